"""A word at the end of a training: by a real web server, a real mail server, and a real program."""

import json
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tagline.cli import run as run_command
from tagline.errors import SpecError
from tagline.runs import notifications
from tagline.runs.lookup import list_runs
from tagline.runs.notifications import Notice

pytestmark = pytest.mark.trains

SUPPORT = Path(__file__).parents[2] / "examples" / "support" / "messages.csv"
TRAIN = ("train", str(SUPPORT), "model.family=linear", "model.max_features=200", "model.strength=4.0",
         "model.characters=0", "training.baseline=false")  # fmt: skip
NOTICE = Notice("succeeded", "Tagline: the training oak has ended", "runs/oak", figures={"macro_f1": 0.9})


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def webhook(status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    got: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with serving(server):
        yield f"http://127.0.0.1:{server.server_address[1]}/hook/s3cret", got


@contextmanager
def mail_server(refuses: bool = False) -> Iterator[tuple[str, list[str]]]:
    got: list[str] = []

    class Handler(socketserver.StreamRequestHandler):
        def answer(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

        def handle(self) -> None:
            self.answer("220 here")
            while line := self.rfile.readline().decode().strip():
                word = line.split()[0].upper()
                if word == "DATA":
                    self.answer("354 go on")
                    lines = []
                    while (text := self.rfile.readline().decode().rstrip("\r\n")) != ".":
                        lines.append(text)
                    got.append("\n".join(lines))
                if word == "RCPT" and refuses:
                    self.answer("550 nobody of that name")
                else:
                    self.answer("221 bye" if word == "QUIT" else "250 ok")
                if word == "QUIT":
                    return

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with serving(server):
        yield f"smtp://127.0.0.1:{server.server_address[1]}", got


@pytest.mark.parametrize(("target", "channel"), [
    ("https://hooks.example/x", "webhook"), ("me@example.com", "e-mail"), ("notify-send done", "command"),
    ("./tell.sh me@example.com", "command"),
])  # fmt: skip
def test_the_form_of_a_target_tells_how_it_is_reached(target: str, channel: str) -> None:
    assert notifications.detect_channel(target) == channel


def test_a_webhook_gets_the_notice() -> None:
    with webhook() as (address, got):
        assert notifications.send_notice(address, NOTICE, {}) == ""
    assert got[0]["text"] == NOTICE.text
    assert (got[0]["state"], got[0]["run"], got[0]["figures"]) == ("succeeded", "runs/oak", {"macro_f1": 0.9})


def test_a_mail_goes_by_the_users_own_server() -> None:
    with mail_server() as (address, got):
        assert notifications.send_notice("me@example.com", NOTICE, {"TAGLINE_SMTP": address}) == ""
    [mail] = got
    assert "Subject: Tagline: the training oak has ended" in mail
    assert "To: me@example.com" in mail
    assert "macro_f1 0.900" in mail


def test_a_command_gets_the_notice(tmp_path: Path) -> None:
    code = (
        "import json, os, sys; print(os.environ['TAGLINE_STATE'], json.load(sys.stdin)['run'], file=open('told', 'w'))"
    )
    script = tmp_path / "tell.py"
    script.write_text(code.replace("'told'", repr(str(tmp_path / "told"))))
    assert notifications.send_notice(f"{sys.executable} {script}", NOTICE, {}) == ""
    assert (tmp_path / "told").read_text() == "succeeded runs/oak\n"


def test_whoever_cannot_be_told_is_a_sentence_and_no_secret_is_in_it() -> None:
    with webhook(500) as (address, _):
        told = notifications.send_notice(address, NOTICE, {})
        assert told.startswith("the webhook of --notify was not told: HTTPError")
    assert "s3cret" not in told
    gone = notifications.send_notice(address, NOTICE, {})
    assert gone.startswith("the webhook of --notify was not told: URLError")
    with mail_server(refuses=True) as (smtp, _):
        assert "the e-mail of --notify was not told" in notifications.send_notice(
            "a@b.c", NOTICE, {"TAGLINE_SMTP": smtp}
        )
    assert "exit code 1" in notifications.send_notice(f"{sys.executable} -c 'raise SystemExit(1)'", NOTICE, {})


@pytest.mark.parametrize(("target", "environment", "told"), [
    ("me@example.com", {}, "TAGLINE_SMTP names no mail server"),
    ("me@example.com", {"TAGLINE_SMTP": "mail.example"}, "no address of a mail server"),
    ("me@example.com", {"TAGLINE_SMTP": "smtp://host:port"}, "no address of a mail server"),
    ("https://", {}, "names no host"), ("no-such-program-anywhere --x", {}, "no program"),
    ("'", {}, "cannot understand"),
])  # fmt: skip
def test_what_could_never_be_told_is_refused_at_once(target: str, environment: dict[str, str], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        notifications.check_targets([target], environment)


def test_a_training_tells_how_it_ended_and_fails_of_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with webhook() as (address, got), mail_server() as (smtp, mails):
        monkeypatch.setenv("TAGLINE_SMTP", smtp)
        words = [*TRAIN, "--notify", address, "--notify", "me@example.com"]
        monkeypatch.setattr(sys, "argv", ["tagline", *words])
        assert run_command(words) == 0
        [run] = list_runs(tmp_path / "runs")
        assert got[0]["state"] == "succeeded"
        assert Path(got[0]["run"]).name == run.name
        assert got[0]["figures"]["macro_f1"] > 0
        assert run.name in mails[0]
        failing = [*TRAIN, "gates.accuracy=0.999", "--notify", address]
        assert run_command(failing) == 1
        assert got[1]["state"] == "failed"
        assert "accuracy" in got[1]["reason"]
        assert run_command([*TRAIN, "training.no=1", "--notify", address]) == 2
        assert run_command([*TRAIN, "--notify", address, "--detach"]) == 2
        assert len(got) == 2
    assert "s3cret" not in (run.directory / "lock.json").read_text()
    capsys.readouterr()
    assert run_command([*TRAIN, "--notify", address]) == 0  # nobody is there any more
    assert "warning: the webhook of --notify was not told" in capsys.readouterr().err
