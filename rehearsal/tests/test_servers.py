"""Servers of a model whose health comes and goes."""

import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.api.messages import v1
from vertex_rehearsal.api.methods import load_methods
from vertex_rehearsal.context import Context
from vertex_rehearsal.prediction import servers
from vertex_rehearsal.prediction.servers import ModelServerPool, ModelServerSpec
from vertex_rehearsal.settings import Settings, parse_process_images

SERVER = """
import http.server, os, pathlib, sys
ill = pathlib.Path(sys.argv[1])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if ill.exists() else 200)
        self.end_headers()
    def do_POST(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(os.getpid()).encode())
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["AIP_HTTP_PORT"])), Handler).serve_forever()
"""

AWAY = """
import http.server, os, pathlib, socket, sys, threading, time
back, asked = pathlib.Path(sys.argv[1]), []
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def do_POST(self):
        asked.append(1)
        if len(asked) == 1:
            self.server.socket.shutdown(socket.SHUT_RDWR)  # nobody listens from here on; by a close, a moment later
            threading.Thread(target=self.server.shutdown).start()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"asked %d" % len(asked))
    def log_message(self, *_):
        pass
for _ in range(2):
    with http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["AIP_HTTP_PORT"])), Handler) as server:
        server.serve_forever()
    while not back.exists():
        time.sleep(0.01)
"""


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    load_methods()
    found = Context.create(Settings(directory=tmp_path / "here", ready_s=60, grace_s=1))
    yield found
    found.close()


SETTINGS = Settings(process_images=parse_process_images(["local-=python"], []))


def cast(directory: Path, count: int, code: str, *arguments: str) -> ModelServerSpec:
    spec = {
        "image_uri": "us-docker.pkg.dev/demo/repository/local-serving:1",
        "command": [sys.executable, "-S", "-c", code, *arguments],
    }
    model = v1.Model(name="projects/demo/locations/us-central1/models/1@1", container_spec=spec)
    holder = "projects/demo/locations/us-central1/endpoints/7"
    return ModelServerSpec(holder, "9", model, "", count, v1.MachineSpec(), directory, SETTINGS)


def test_four_failed_checks_stop_the_traffic_and_not_the_server(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "HEALTH_EVERY_S", 0.02)
    ill, noticed = tmp_path / "ill", threading.Event()

    def say(lines: Sequence[str], _severity: str, _replica: str) -> None:
        if any("4 health checks failed" in line for line in lines):
            noticed.set()

    found = ModelServerPool(cast(tmp_path / "logs", 1, SERVER, str(ill)), context, say)
    try:
        found.wait_until_ready()
        before = found.send_request("/any", b"x", "", timeout_s=60).content
        ill.touch()
        assert noticed.wait(60)
        with pytest.raises(ApiError, match="No server of the model is healthy"):
            found.send_request("/any", b"x", "", timeout_s=0.1)
        ill.unlink()
        assert found.send_request("/any", b"x", "", timeout_s=60).content == before, "the same process, healthy again"
    finally:
        found.end()
    assert context.database.run("SELECT * FROM processes") == []
    with pytest.raises(ApiError, match="No server"):
        found.send_request("/any", b"x", "", timeout_s=60)


def test_a_server_that_does_not_listen_is_waited_for_before_anybody_has_noticed(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "HEALTH_EVERY_S", 1.0)
    back = tmp_path / "back"
    found = ModelServerPool(cast(tmp_path / "logs", 1, AWAY, str(back)), context, lambda *_: None)
    try:
        found.wait_until_ready()
        assert found.send_request("/any", b"x", "", timeout_s=60).content == b"asked 1"
        with pytest.raises(ApiError, match="No server of the model is healthy"):
            found.send_request("/any", b"x", "", timeout_s=0.1)
        back.touch()
        assert found.send_request("/any", b"x", "", timeout_s=60).content == b"asked 2"
    finally:
        found.end()


def test_whoever_waits_for_servers_that_are_ended_is_told(context: Context, tmp_path: Path) -> None:
    found = ModelServerPool(cast(tmp_path / "logs", 2, "import time; time.sleep(600)"), context, lambda *_: None)
    found.end()
    with pytest.raises(ApiError, match="were ended before they were ready"):
        found.wait_until_ready()
