"""A rehearsal as a whole: opened, found again, told things, and closed."""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import uvicorn
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tagline.errors import PlaceError, RunError, SpecError
from tagline.rehearsal import processes
from tagline.rehearsal.stage import Settings

FACTS = "rehearsal.json"
LOCK = "rehearsal.lock"
OWN_FILES = (FACTS, LOCK, "rehearsal.log", "rehearsal.sqlite", "rehearsal.sqlite-wal", "rehearsal.sqlite-shm")
OWN_DIRECTORIES = ("buckets", "jobs", "certificates")
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Facts:
    """Where a rehearsal that runs is found."""

    directory: str
    pid: int
    started: str
    http_port: int
    grpc_port: int
    ca: str = ""
    """The certificate that its gRPC port is signed with; "" without TLS."""
    token: str = ""

    @property
    def address(self) -> str:
        """Of HTTP."""
        return f"http://localhost:{self.http_port}"

    @property
    def is_alive(self) -> bool:
        """Whether its process is still the one that wrote this."""
        return bool(self.started) and processes.started(self.pid) == self.started


def find(directory: Path) -> Facts:
    """The rehearsal that runs in a directory."""
    try:
        facts = Facts(**json.loads((directory / FACTS).read_text()))
    except (OSError, ValueError, TypeError):
        facts = None
    if facts is None or not facts.is_alive:
        raise PlaceError(f"no rehearsal runs in {directory}", hint="tagline rehearsal start, or name its --directory")
    return facts


def serve(settings: Settings, *, ready: Callable[[Facts], None]) -> None:
    """Play until told to stop; `ready` is called when every door is open."""
    settings = _absolute(settings)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what it would say about a port, our error says
    with _alone_in(settings.directory):
        _Evening(settings).play(ready)


def _absolute(settings: Settings) -> Settings:
    return Settings(**asdict(settings) | {"directory": settings.directory.absolute()})


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """One rehearsal a directory."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file: IO[str] = (directory / LOCK).open("w")
    except OSError as error:
        raise PlaceError(f"cannot write to {directory}: {error.strerror}", hint="--directory takes another") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            hint = "tagline rehearsal status shows it, tagline rehearsal stop ends it"
            raise PlaceError(f"a rehearsal runs in {directory} already", hint=hint) from error
        yield


class _Evening:
    """One opening of the house."""

    def __init__(self, settings: Settings) -> None:
        from tagline.rehearsal import doors, services
        from tagline.rehearsal.jobs import JobQueue
        from tagline.rehearsal.metadata_server import MetadataServer
        from tagline.rehearsal.replicas import end_leftovers
        from tagline.rehearsal.stage import Stage

        self.settings = settings
        self.stage = stage = Stage.of(settings)
        programme = services.programme()
        self.ended = end_leftovers(stage)
        stage.operations.give_up("The rehearsal was ended while the operation was running.")
        stage.jobs = JobQueue(stage)
        made: dict[str, Any] = {"operations:Operations": stage.operations}
        for _, part in services.PARTS:
            if part not in made:
                made[part] = services.load(part)(stage)
        both = doors.Doors(stage, programme, services.handlers(programme, made))
        self.socket = _listening(settings.port)
        stage.http_port = self.socket.getsockname()[1]
        self.ca, certificate = self._certificates()
        try:
            self.grpc, stage.grpc_port = doors.grpc_server(both, port=settings.grpc_port, certificate=certificate)
        except RuntimeError as error:
            self.socket.close()
            raise PlaceError(f"cannot serve gRPC on 127.0.0.1:{settings.grpc_port}", hint=_PORT_HINT) from error
        metadata = MetadataServer(settings.token)
        storage, self.close_storage = _storage(stage.buckets)
        self.app = doors.application(both, metadata=metadata, own=self._routes(), storage=storage)
        self.parts = list(made.values())

    def _certificates(self) -> tuple[str, tuple[bytes, bytes] | None]:
        if not self.settings.tls:
            return "", None
        from tagline.rehearsal.certificates import certificates

        authority, certificate, key = certificates(self.settings.directory / "certificates")
        return str(authority), (key.read_bytes(), certificate.read_bytes())

    def facts(self) -> Facts:
        """Where it is found."""
        pid = os.getpid()
        return Facts(
            str(self.settings.directory), pid, processes.started(pid), self.stage.http_port, self.stage.grpc_port,
            self.ca, self.settings.token,
        )  # fmt: skip

    def play(self, ready: Callable[[Facts], None]) -> None:
        """From the first door's opening to the last process's end."""
        config = uvicorn.Config(
            self.app, log_level="warning", access_log=False, lifespan="off", server_header=False,
            timeout_graceful_shutdown=2,
        )  # fmt: skip
        facts = self.facts()
        path = self.settings.directory / FACTS

        def opened() -> None:
            for part in (self.stage.jobs, *self.parts):
                if hasattr(part, "resume"):
                    part.resume()
            _write_private(path, json.dumps(asdict(facts)))
            ready(facts)

        self.grpc.start()
        try:
            _Server(config, opened).run(sockets=[self.socket])
        finally:
            self.stage.jobs.close()
            for part in self.parts:
                if hasattr(part, "close"):
                    part.close()
            self.grpc.stop(grace=1).wait()
            self.close_storage()
            self.stage.keeping.close()
            path.unlink(missing_ok=True)

    def _routes(self) -> list[Route]:
        """What the rehearsal itself is asked."""

        async def front(_: Request) -> Response:
            page = "<!doctype html><title>Rehearsal</title><p>Vertex AI and Cloud Logging, played on this machine."
            return HTMLResponse(page, headers={"Metadata-Flavor": "Google"})

        async def status(_: Request) -> Response:
            return JSONResponse({"jobs": self.stage.jobs.counts(), "ended_at_start": self.ended})

        async def preempt(request: Request) -> Response:
            from tagline.rehearsal.doors import refusal
            from tagline.rehearsal.problems import Problem

            asked = await request.json()
            try:
                return JSONResponse({"job": self.stage.jobs.preempt(asked["job"], asked.get("replica", ""))})
            except Problem as problem:
                return refusal(problem)

        return [
            Route("/", front), Route("/rehearsal/status", status),
            Route("/rehearsal/preempt", preempt, methods=["POST"]),
        ]  # fmt: skip


_PORT_HINT = "is something else listening there? --port and --grpc-port take others"


def _listening(port: int) -> socket.socket:
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
    except OSError as error:
        found.close()
        raise PlaceError(f"cannot serve on 127.0.0.1:{port}: {error.strerror}", hint=_PORT_HINT) from error
    return found


def _storage(_buckets: Path) -> tuple[ASGIApp | None, Callable[[], None]]:
    """Cloud Storage for the buckets in a directory, and what closes it: the place where it joins."""
    return None, lambda: None


def _write_private(path: Path, text: str) -> None:
    """Whole or not at all, and for nobody else: it may hold the token."""
    part = path.with_name(f".{path.name}.part")
    part.touch(mode=0o600)
    part.write_text(text)
    part.replace(path)


class _Server(uvicorn.Server):
    """A server that says when it is ready, and ends in order when told to."""

    def __init__(self, config: uvicorn.Config, opened: Callable[[], None]) -> None:
        super().__init__(config)
        self._opened = opened

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the door, then say so."""
        await super().startup(sockets)
        self._opened()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C end it in order and with success."""
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def start_detached(settings: Settings, arguments: list[str]) -> Facts:
    """Start a rehearsal that outlives this process; returns when its doors are open."""
    settings = _absolute(settings)
    with _alone_in(settings.directory):
        pass
    with (settings.directory / "rehearsal.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tagline", "rehearsal", "start", *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True,
        )  # fmt: skip
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with suppress(PlaceError):
            facts = find(settings.directory)
            if facts.pid == process.pid:
                process.returncode = 0  # it is nobody's child from now on
                return facts
        if process.poll() is not None:
            said = (settings.directory / "rehearsal.log").read_text(errors="replace").strip()
            raise PlaceError(f"the rehearsal did not start: {said or f'exit code {process.returncode}'}")
        time.sleep(0.02)
    process.kill()
    raise PlaceError(f"the rehearsal was not ready within {PATIENCE_S:g} seconds")


def ask(directory: Path, path: str, body: dict[str, Any] | None = None) -> Any:
    """What the rehearsal in a directory answers at a path of its own."""
    facts = find(directory)
    headers = {"Content-Type": "application/json"}
    if facts.token:
        headers["Authorization"] = f"Bearer {facts.token}"
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{facts.http_port}{path}", content, headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:  # noqa: S310
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise RunError(json.load(error)["error"]["message"]) from error
    except OSError as error:
        raise PlaceError(f"the rehearsal in {directory} does not answer: {error}") from error


def stop(directory: Path) -> Facts:
    """Tell a rehearsal to stop, and wait until it has."""
    facts = find(directory)
    os.kill(facts.pid, signal.SIGTERM)
    until = time.monotonic() + PATIENCE_S
    while facts.is_alive:
        if time.monotonic() > until:
            raise PlaceError(f"the rehearsal (process {facts.pid}) does not stop", hint=f"kill -9 {facts.pid}")
        time.sleep(0.02)
    return facts


def reset(directory: Path) -> None:
    """Forget everything: jobs, buckets, logs. Only what a rehearsal writes is removed."""
    with suppress(PlaceError):
        find(directory)
        raise SpecError(f"a rehearsal runs in {directory}", hint="tagline rehearsal stop")
    if not directory.is_dir():
        raise PlaceError(f"{directory} holds no rehearsal")
    if not (directory / LOCK).exists():
        raise PlaceError(f"{directory} holds no rehearsal: {LOCK} is missing")
    for name in OWN_DIRECTORIES:
        shutil.rmtree(directory / name, ignore_errors=True)
    for name in OWN_FILES:
        (directory / name).unlink(missing_ok=True)
    with suppress(OSError):  # something of somebody else's is in it
        directory.rmdir()
