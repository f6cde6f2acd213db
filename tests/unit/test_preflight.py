"""What is wrong with a place, as far as tables tell."""

import json
import threading
from datetime import date
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tagline import spec as specs
from tagline.data.checks import Finding
from tagline.jobs import preflight, prices

TODAY = date(2026, 11, 16)
PREBUILT = "us-docker.pkg.dev/vertex-ai/training/pytorch-gpu.2-4.py310:latest"


def found(*, model: dict[str, Any] | None = None, tracking: tuple[str, ...] = (), **vertex: Any) -> list[Finding]:
    raw = {
        "data": {"train": "a.csv", "text": "t", "labels": "l"},
        "model": model or {"family": "encoder"},
        "tracking": {"to": tracking},
        "vertex": {"bucket": "b", **vertex},
    }
    spec = specs.parse(raw, where="a test")
    return preflight.check_offline(spec, prices.estimate_price(spec, training_rows=1000), today=TODAY)


def test_the_defaults_are_sound() -> None:
    assert found() == []


@pytest.mark.parametrize(("vertex", "code", "told"), [
    ({"bucket": ""}, "bucket", "vertex.bucket: needed"),
    ({"region": "us-moon1"}, "region", 'no region "us-moon1"'),
    ({"machine": "n1-standard-96", "accelerators": 1}, "machine", "takes 4 of NVIDIA_TESLA_T4, not 1"),
    ({"machine": "e2-standard-4"}, "machine", "e2-standard-4"),
    ({"accelerator": "NVIDIA_TESLA_K80"}, "machine", "no longer available"),
    ({"workers": 1, "reduction_servers": 2}, "reduction", "several machines"),
    ({"budget": 1.0}, "budget", "vertex.max_hours=1.2"),
    ({"fallbacks": ({"region": "nowhere"},)}, "fallback", 'no region "nowhere"'),
    ({"fallbacks": ({"machine": "g2-standard-8"},)}, "fallback", "number 1"),
    ({"image": PREBUILT}, "image", "Python 3.10"),
])  # fmt: skip
def test_what_would_be_refused_is_an_error(vertex: dict[str, Any], code: str, told: str) -> None:
    errors = [each for each in found(**vertex) if each.severity == "error"]
    assert code in {each.code for each in errors}
    assert any(told in each.message for each in errors), errors
    assert all(each.advice for each in errors)


def test_what_only_costs_is_a_warning() -> None:
    linear = {"family": "linear"}
    assert [(each.code, each.severity) for each in found(model=linear)] == [("device", "warning")]
    assert [each.code for each in found(model=linear, accelerators=0, workers=2)] == ["workers"]
    assert [each.code for each in found(tracking=("wandb",))] == ["wandb"]
    key = {"WANDB_API_KEY": "projects/p/secrets/s/versions/1"}
    assert found(tracking=("wandb",), secrets=key) == []


@pytest.mark.usefixtures("signed_out")
def test_without_credentials_nothing_else_is_asked() -> None:
    spec = specs.parse({"data": {"train": "a.csv", "text": "t", "labels": "l"}}, where="a test")
    [only] = preflight.check_online(spec, project="p")
    assert (only.code, only.severity) == ("credentials", "error")
    assert "gcloud auth application-default login" in only.advice


class Expired(BaseHTTPRequestHandler):
    """Where tokens are given, for somebody who gets none any more."""

    def do_POST(self) -> None:
        body = json.dumps(
            {"error": "invalid_grant", "error_description": "Token has been expired or revoked."}
        ).encode()
        self.send_response(400)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.usefixtures("signed_out")
def test_credentials_that_have_expired_are_said_before_anything_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    server = HTTPServer(("127.0.0.1", 0), Expired)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    account = {
        "type": "service_account",
        "project_id": "p",
        "private_key": pem,
        "client_email": "a@p.iam.gserviceaccount.com",
        "token_uri": f"http://127.0.0.1:{server.server_port}/token",
    }
    (tmp_path / "account.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    spec = specs.parse({"data": {"train": "a.csv", "text": "t", "labels": "l"}}, where="a test")
    [only] = preflight.check_online(spec, project="p")
    server.shutdown()
    server.server_close()
    assert (only.code, only.severity) == ("credentials", "error")
    assert "expired or revoked" in only.message
    assert "gcloud auth application-default login" in only.advice
    assert "PRIVATE" not in only.message


@pytest.mark.parametrize(("email", "project"), [
    ("trainer@my-project.iam.gserviceaccount.com", "my-project"),
    ("123456-compute@developer.gserviceaccount.com", "123456"),
    ("my-project@appspot.gserviceaccount.com", "my-project"),
    ("trainer@my-project.example.com.iam.gserviceaccount.com", "-"),
    ("service-1@gcp-sa-aiplatform-cc.example", "-"),
])  # fmt: skip
def test_the_project_of_a_service_account(email: str, project: str) -> None:
    assert preflight._find_owner(email) == project
