"""Finds, starts, stops and resets a running emulator from another process."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from vertex_rehearsal.access import TOKEN_FILE
from vertex_rehearsal.errors import EmulatorUnavailable, InvalidSettings, RequestRejected
from vertex_rehearsal.execution.processes import started

FACTS = "rehearsal.json"
LOCK = "rehearsal.lock"
OWN_FILES = (
    FACTS,
    LOCK,
    TOKEN_FILE,
    "rehearsal.log",
    "rehearsal.sqlite",
    "rehearsal.sqlite-wal",
    "rehearsal.sqlite-shm",
)
OWN_DIRECTORIES = ("buckets", "jobs", "endpoints", "builds", "certificates")
PATIENCE_S = 60.0


@dataclass(frozen=True)
class RehearsalInfo:
    """The addresses of a running emulator."""

    directory: str
    pid: int
    started: str
    http_port: int
    grpc_port: int
    ca: str = ""
    """The path of the gRPC port's certificate; "" without TLS."""
    token: str = ""

    @property
    def address(self) -> str:
        """The HTTP address."""
        return f"http://localhost:{self.http_port}"

    @property
    def is_alive(self) -> bool:
        """Whether the process that wrote this is still running."""
        return bool(self.started) and started(self.pid) == self.started


def find_rehearsal(directory: Path) -> RehearsalInfo:
    """Return the emulator that runs in a directory."""
    try:
        facts = RehearsalInfo(**json.loads((directory / FACTS).read_text()))
    except (OSError, ValueError, TypeError):
        facts = None
    if facts is None or not facts.is_alive:
        raise EmulatorUnavailable(
            f"no rehearsal runs in {directory}", hint="vertex-rehearsal start, or name its --directory"
        )
    return facts


@contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """Lock the directory, which permits one emulator only."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file: IO[str] = (directory / LOCK).open("w")
    except OSError as error:
        raise EmulatorUnavailable(
            f"cannot write to {directory}: {error.strerror}", hint="--directory takes another"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            hint = "vertex-rehearsal status shows it, vertex-rehearsal stop ends it"
            raise EmulatorUnavailable(f"a rehearsal runs in {directory} already", hint=hint) from error
        yield


def start_detached(directory: Path, arguments: list[str]) -> RehearsalInfo:
    """Start an emulator that outlives this process and wait until its ports are open."""
    with lock_directory(directory):
        pass
    with (directory / "rehearsal.log").open("wb") as log:
        os.fchmod(log.fileno(), 0o600)
        process = subprocess.Popen(
            [sys.executable, "-m", "vertex_rehearsal", "start", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with suppress(EmulatorUnavailable):
            facts = find_rehearsal(directory)
            if facts.pid == process.pid:
                process.returncode = 0  # the process is detached from now on
                return facts
        if process.poll() is not None:
            said = (directory / "rehearsal.log").read_text(errors="replace").strip()
            raise EmulatorUnavailable(f"the rehearsal did not start: {said or f'exit code {process.returncode}'}")
        time.sleep(0.02)
    process.kill()
    raise EmulatorUnavailable(f"the rehearsal was not ready within {PATIENCE_S:g} seconds")


def send_request(directory: Path, path: str, body: dict[str, Any] | None = None) -> Any:
    """Send a request to the emulator's own API and return the response."""
    facts = find_rehearsal(directory)
    headers = {"Content-Type": "application/json"}
    if facts.token:
        headers["Authorization"] = f"Bearer {facts.token}"
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{facts.http_port}{path}", content, headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:  # noqa: S310
            return json.load(response)
    except urllib.error.HTTPError as error:
        said = json.load(error)["error"]
        kind = InvalidSettings if said.get("status") == "INVALID_ARGUMENT" else RequestRejected
        raise kind(said["message"]) from error
    except OSError as error:
        raise EmulatorUnavailable(f"the rehearsal in {directory} does not answer: {error}") from error


def stop(directory: Path) -> RehearsalInfo:
    """Stop a running emulator and wait until it has ended."""
    facts = find_rehearsal(directory)
    os.kill(facts.pid, signal.SIGTERM)
    until = time.monotonic() + PATIENCE_S
    while facts.is_alive:
        if time.monotonic() > until:
            raise EmulatorUnavailable(f"the rehearsal (process {facts.pid}) does not stop", hint=f"kill -9 {facts.pid}")
        time.sleep(0.02)
    return facts


def reset(directory: Path) -> None:
    """Delete all data: jobs, buckets, logs. Only files that the emulator writes are removed."""
    with suppress(EmulatorUnavailable):
        find_rehearsal(directory)
        raise InvalidSettings(f"a rehearsal runs in {directory}", hint="vertex-rehearsal stop")
    if not directory.is_dir():
        raise EmulatorUnavailable(f"{directory} holds no rehearsal")
    if not (directory / LOCK).exists():
        raise EmulatorUnavailable(f"{directory} holds no rehearsal: {LOCK} is missing")
    try:
        for name in OWN_DIRECTORIES:
            if (directory / name).exists():
                shutil.rmtree(directory / name)
        for name in OWN_FILES:
            (directory / name).unlink(missing_ok=True)
    except OSError as error:
        raise EmulatorUnavailable(f"cannot remove {error.filename}: {error.strerror}") from error
    with suppress(OSError):  # it contains other files
        directory.rmdir()
