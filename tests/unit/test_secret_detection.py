"""Secrets in a job's variables: refused by name and by value, and in nothing that others read."""

import json
from pathlib import Path
from typing import Any

import pytest

import tagline
from tagline import spec as specs
from tagline.cli import run as run_command
from tagline.errors import SpecError
from tagline.prediction.bundle import Bundle
from tagline.runs.run import Run
from tagline.spec import secret_detection

pytestmark = pytest.mark.trains

SUPPORT = Path(__file__).parents[2] / "examples" / "support" / "messages.csv"
DATA = {"train": "a.csv", "text": "t", "labels": "l"}

SECRETS = [
    ("DB_PASSWD", "hunter2"), ("AUTH_BEARER", "abcdef"), ("DB_PASSWORD", "x"), ("PGPASSWORD", "x"), ("SSHPASS", "x"),
    ("MYSQL_PWD", "x"), ("password", "x"), ("dbPassword", "x"), ("API_KEY", "x"), ("WANDB_APIKEY", "x"),
    ("OPENAI_API_KEY_PROD", "x"), ("HF_TOKEN", "x"), ("GITHUB_PAT", "x"), ("CLIENT_SECRET", "x"), ("SECRET_SAUCE", "x"),
    ("AWS_SECRET_ACCESS_KEY", "x"), ("REDISCLI_AUTH", "x"), ("DB_PASSWORD_2", "x"), ("SSH_PASSPHRASE", "x"),
    ("GOOGLE_APPLICATION_CREDENTIALS", "key.json"), ("SESSION_COOKIE", "x"), ("my-api-key", "x"),
    ("DATABASE_URL", "postgres://app:hunter2@db.example/reviews"), ("REDIS", "redis://:hunter2@cache:6379/0"),
    ("ENDPOINT", "https://api.example/v1?api_key=abc123"), ("STORE", "https://b.example/x?sig=abc%3D&se=1"),
    ("DSN", "host=db user=app password=hunter2"), ("ODBC", "Server=db;Uid=app;Pwd=hunter2;"),
    ("HEADERS", "Authorization: Bearer abcdef123456"), ("KEY_FILE_CONTENT", "-----BEGIN PRIVATE KEY-----\nMII"),
    ("ACCOUNT", '{"type": "service_account", "private_key": "abc"}'), ("ID", "AKIAIOSFODNN7EXAMPLE"),
    ("HUB", "hf_abcdefghijklmnopqrstuvwx"), ("GIT", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
    ("LLM", "sk-proj-abcdefghijklmnopqrst"), ("WHO", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc"),
]  # fmt: skip
NO_SECRETS = [
    ("TOKENIZERS_PARALLELISM", "false"), ("PASSWORDLESS", "yes"), ("PASSWORDLESS_LOGIN", "always"),
    ("KEY_COLUMN", "id"), ("PRIMARY_KEY", "id"), ("MAX_TOKENS", "512"), ("TOKEN_LIMIT", "512"), ("PAD_TOKEN", "[PAD]"),
    ("USE_AUTH_TOKEN", "false"), ("PASSWORD_FILE", "/run/p"), ("AUTH_TYPE", "basic"), ("PWD", "/srv"), ("BYPASS", "a"),
    ("KEYBOARD_LAYOUT", "de"), ("MONKEY", "x"), ("AUTHOR", "me"), ("COMPASS", "north"), ("SECRETARY", "Kim"),
    ("WANDB_MODE", "offline"), ("NCCL_DEBUG", "INFO"), ("PYTHONHASHSEED", "0"), ("LANG", "C.UTF-8"), ("EMPTY", ""),
    ("PROXY", "http://proxy.example:3128"), ("GIT_URL", "ssh://git@github.example/a/b"), ("TIME", "12:30@home"),
    ("DATABASE_URL", "postgres://app@db.example/reviews"), ("COMMIT", "0123456789abcdef0123456789abcdef01234567"),
    ("QUERY", "https://api.example/v1?page=2&sort=key"), ("MODEL", "sk-learn"), ("TOKEN_URL", "https://x.example/t"),
    ("LABELS", "password reset, login"), ("BASICS", "basic training"),
]  # fmt: skip


def spec_with(environment: dict[str, str]) -> dict[str, Any]:
    return {"data": DATA, "vertex": {"environment": environment}}


@pytest.mark.parametrize(("name", "value"), SECRETS)
def test_a_secret_is_refused_with_the_way_to_pass_it_and_never_shown(name: str, value: str) -> None:
    with pytest.raises(SpecError) as refused:
        specs.parse(spec_with({"HARMLESS": "a", name: value}), where="tagline.toml")
    assert f"vertex.secrets.{name}=projects/PROJECT/secrets/NAME/versions/latest" in refused.value.message
    assert "HARMLESS" not in refused.value.message
    assert len(value) < 4 or value not in refused.value.message


@pytest.mark.parametrize(("name", "value"), NO_SECRETS)
def test_what_only_sounds_like_a_secret_is_taken(name: str, value: str) -> None:
    assert specs.parse(spec_with({name: value}), where="tagline.toml").vertex.environment == {name: value}


def test_a_command_with_a_secret_ends_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    word = "vertex.environment.DATABASE_URL=postgres://app:hunter2@db/reviews"
    assert run_command(["train", str(SUPPORT), "model.family=linear", word]) == 2
    assert "hunter2" not in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_where_a_run_was_made_stands_in_no_bundle_and_no_report(tmp_path: Path) -> None:
    settings = (
        "model.family=linear",
        "model.max_features=200",
        "model.strength=4.0",
        "model.characters=0",
        "training.baseline=false",
    )
    run = tagline.train(SUPPORT, *settings, "vertex.environment.INNOCENT=xyzzy", "vertex.bucket=plugh", runs=tmp_path)
    manifest = json.loads((run.bundle / "tagline.json").read_text())
    assert "vertex" not in manifest["spec"]
    assert manifest["spec"]["data"]["text"] == "message"
    for name in ("bundle/tagline.json", "bundle/README.md", "report.html", "report.json", "lock.json"):
        text = (run.directory / name).read_text()
        assert "xyzzy" not in text, name
        assert "plugh" not in text, name
    assert run.spec().vertex.environment == {"INNOCENT": "xyzzy"}

    # A bundle of an older version, which has the section, loads; written anew, it has it no more.
    older = Bundle.load(run.bundle).manifest
    older = older.model_copy(update={"spec": {**older.spec, "vertex": {"environment": {"DB_PASSWD": "hunter2"}}}})
    older = older.model_copy(update={"sha256": older.digest()})
    (run.bundle / "tagline.json").write_text(older.to_json())
    assert tagline.load(run.bundle).predict(["where is my parcel?"])[0].label
    assert Bundle.load(run.bundle).manifest.spec["vertex"]


def test_a_run_that_an_older_version_made_with_a_secret_can_still_be_read(tmp_path: Path) -> None:
    spec = specs.parse(spec_with({"FOO": "bar"}), where="a test")
    run = Run.create(tmp_path, spec, {"spec_fingerprint": spec.fingerprint()})
    path = run.directory / "spec.toml"
    path.write_text(path.read_text().replace('"FOO" = "bar"', '"DB_PASSWD" = "hunter2"'))
    assert Run.open(run.directory).spec().vertex.environment == {"DB_PASSWD": "hunter2"}
    assert "hunter2" not in run.spec_text()


@pytest.mark.parametrize(("command", "shown"), [
    ("tagline train a.csv vertex.environment.X=y training.epochs=3",
     "tagline train a.csv vertex.environment.X=... training.epochs=3"),
    ("tagline train a.csv", "tagline train a.csv"),
    ("tagline train 'my file.csv' vertex.environment={A=\"b\"}", "tagline train 'my file.csv' vertex.environment=..."),
])  # fmt: skip
def test_a_command_is_shown_without_the_values_of_variables(command: str, shown: str) -> None:
    assert secret_detection.mask_environment(command) == shown
