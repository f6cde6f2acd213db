"""A real server process for tests."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any


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

    def wait_for_log(self, what: str) -> None:
        """Until the log has a line with this in it."""
        for _ in range(600):
            said = os.pread(self.log.fileno(), 10_000_000, 0).decode()
            if what in said:
                return
            time.sleep(0.05)
        raise AssertionError(f"the log has no {what}: {said[-2000:]}")

    def stop(self) -> int:
        """Told to stop, it ends with this code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


@contextmanager
def serving(bundle: Path | str, *arguments: str, **environment: str) -> Iterator[Server]:
    """A server of this bundle, ready, on a port of its own."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "tagline", "serve", str(bundle), "--port", str(port), *arguments]
    with tempfile.TemporaryFile() as log:  # a pipe that nobody reads is full some day, and the server waits
        process = subprocess.Popen(command, env=os.environ | environment, stderr=log)
        server = Server(process, f"http://127.0.0.1:{port}", log)
        try:
            _wait_for(server)
            yield server
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def _wait_for(server: Server) -> None:
    for _ in range(600):
        if server.process.poll() is not None:
            server.log.seek(0)
            raise AssertionError(server.log.read().decode())
        try:
            server.get("/info")
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the server did not come up within a minute")
