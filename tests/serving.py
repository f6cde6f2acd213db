"""A real server process for tests."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rehearsing import until

CLOSED = -1
"""Standard error that is closed."""


@dataclass
class Server:
    """A process that serves, and how to ask it."""

    process: "subprocess.Popen[bytes]"
    address: str
    log: IO[bytes]

    def ask(self, body: Any, *, route: str = "/predict", headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """The status and the JSON of an answer; a body of bytes is sent as it is."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(
            self.address + route, content, {"Content-Type": "application/json"} | (headers or {})
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def get(self, route: str) -> tuple[int, str]:
        """The status and the text of a page."""
        try:
            with urllib.request.urlopen(self.address + route, timeout=60) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def said(self) -> str:
        """Its log so far."""
        return os.pread(self.log.fileno(), 10_000_000, 0).decode()

    def wait_for_log(self, what: str) -> None:
        """Until the log has a line with this in it."""

        def is_there() -> bool:
            has_ended = self.process.poll() is not None  # before the log is read: all that it said is there then
            found = what in self.said()
            assert found or not has_ended, f"it ended without {what}: {self.said()[-2000:]}"
            return found

        until(is_there, f"{what} in the log")

    def is_answering(self) -> bool:
        """Whether it is there and healthy."""
        assert self.process.poll() is None, "it has ended"
        try:
            return self.get("/health")[0] == 200
        except OSError:
            return False

    @property
    def children(self) -> list[str]:
        """The processes that it has started."""
        pid = self.process.pid
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()

    def stop(self) -> int:
        """Told to stop, it ends with this code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=180)


@contextmanager
def serving(bundle: Path | str, *arguments: str, stderr: int | None = None, **environment: str) -> Iterator[Server]:
    """A server of this bundle, all its processes ready, on a port of its own."""
    words = ["-m", "tagline", "serve", str(bundle), "--port", "{port}", *arguments]
    with serving_python(*words, stderr=stderr, **environment) as server:
        yield server


@contextmanager
def serving_python(*words: str, stderr: int | None = None, **environment: str) -> Iterator[Server]:
    """What Python serves when it is started with these words, ready; a word `{port}` is the port that it is given.

    With a `stderr` of its own, its log cannot be read; one of -1 is closed.
    """
    with socket.socket() as held, tempfile.TemporaryFile() as log:  # a pipe that nobody reads is full some day
        # Bound without listening: nobody else is given the port, and who may use an address again can listen there.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = str(held.getsockname()[1])
        command = [sys.executable, *(port if word == "{port}" else word for word in words)]
        if stderr == CLOSED:
            command = ["sh", "-c", 'exec "$0" "$@" 2>&-', *command]
        target = log if stderr in (None, CLOSED) else stderr
        process = subprocess.Popen(command, env=os.environ | environment, stdin=subprocess.PIPE, stderr=target)
        assert process.stdin is not None
        server = Server(process, f"http://127.0.0.1:{port}", log)
        try:
            if stderr is None:
                server.wait_for_log('"serving"')
            else:
                until(server.is_answering, "the server to answer")
            yield server
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdin.close()
