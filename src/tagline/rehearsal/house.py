"""A rehearsal as a whole: every service made, every door opened, and all of it closed again."""

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tagline.errors import PlaceError
from tagline.rehearsal.access import keep_token, write_private
from tagline.rehearsal.finding import FACTS, Facts, alone_in
from tagline.rehearsal.stage import Settings
from tagline.system.processes import started

if TYPE_CHECKING:
    from tagline.rehearsal.cloud_storage.store import Store

PORT_HINT = "is something else listening there? --port and --grpc-port take others"


def serve(settings: Settings, *, ready: Callable[[Facts], None]) -> None:
    """Play until told to stop; `ready` is called when every door is open."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what it would say about a port, our error says
    with alone_in(settings.directory), ExitStack() as closing:
        if not settings.is_open:
            settings = replace(settings, token=keep_token(settings.directory))
        _Evening(settings, closing).play(ready)


class _Evening:
    """One opening of the house."""

    def __init__(self, settings: Settings, closing: ExitStack) -> None:
        from tagline.rehearsal import doors, services
        from tagline.rehearsal.admission import Admission
        from tagline.rehearsal.deployments import Deployments
        from tagline.rehearsal.faults import Faults
        from tagline.rehearsal.jobs import JobQueue
        from tagline.rehearsal.metadata_server import MetadataServer
        from tagline.rehearsal.neighbours.door import Neighbours
        from tagline.rehearsal.page import Page
        from tagline.rehearsal.programs import end_leftovers
        from tagline.rehearsal.stage import Stage
        from tagline.rehearsal.storage_calls import AdmittedStorage

        self.settings = settings
        self.socket = closing.enter_context(_listening(settings.port))
        self.stage = stage = Stage.of(settings)
        closing.callback(stage.keeping.close)
        stage.http_port = self.socket.getsockname()[1]
        storage, store = _storage(stage.buckets)
        closing.callback(store.close)
        stage.store = store
        programme = services.programme()
        self.ended = end_leftovers(stage)
        stage.operations.give_up("The rehearsal was ended while the operation was running.")
        stage.jobs = JobQueue(stage)
        stage.deployments = Deployments(stage)
        made: dict[str, Any] = {"operations:Operations": stage.operations}
        for _, part in services.PARTS:
            if part not in made:
                made[part] = services.load(part)(stage)
        self.faults = Faults(services.callable_names(programme))
        admission = Admission(stage.project, self.faults, stage.project_number)
        neighbours = Neighbours(stage, admission)
        self.parts = [stage.jobs, stage.deployments, *made.values(), *neighbours.parts()]
        both = doors.Doors(stage, programme, services.handlers(programme, made), admission)
        self.ca, certificate = self._certificates()
        try:
            self.grpc, stage.grpc_port = doors.grpc_server(both, port=settings.grpc_port, certificate=certificate)
        except RuntimeError as error:
            raise PlaceError(f"cannot serve gRPC on 127.0.0.1:{settings.grpc_port}", hint=PORT_HINT) from error
        closing.callback(lambda: self.grpc.stop(grace=1).wait())
        for part in reversed(self.parts):
            if hasattr(part, "close"):
                closing.callback(part.close)
        metadata = MetadataServer(settings.token)
        own = [*Page(stage, programme, store, ca=self.ca).routes(), *self._routes(), *neighbours.routes()]
        admitted = AdmittedStorage(storage, admission)
        self.app = doors.application(both, metadata=metadata, own=own, storage=admitted)

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
            str(self.settings.directory), pid, started(pid), self.stage.http_port, self.stage.grpc_port,
            self.ca, self.settings.token,
        )  # fmt: skip

    def play(self, ready: Callable[[Facts], None]) -> None:
        """From the first door's opening to the last process's end."""
        from tagline.rehearsal.connections import Protocol

        config = uvicorn.Config(
            self.app, http=Protocol, log_level="warning", access_log=False, lifespan="off", server_header=False,
            timeout_graceful_shutdown=2,
        )  # fmt: skip
        facts = self.facts()
        path = self.settings.directory / FACTS

        def opened() -> None:
            for part in self.parts:
                if hasattr(part, "resume"):
                    part.resume()
            write_private(path, json.dumps(asdict(facts)))
            ready(facts)

        self.grpc.start()
        try:
            _Server(config, opened).run(sockets=[self.socket])
        finally:
            path.unlink(missing_ok=True)

    def _routes(self) -> list[Route]:
        """What the rehearsal itself is asked, at paths that are no bucket's."""

        async def status(_: Request) -> Response:
            about = {"facts": str(self.settings.directory / FACTS), "ended_at_start": self.ended}
            return JSONResponse({"jobs": self.stage.jobs.counts(), "faults": self.faults.planned(), **about})

        async def preempt(request: Request) -> Response:
            from tagline.rehearsal.doors import refusal
            from tagline.rehearsal.problems import Problem

            try:
                asked = await request.json()
                return JSONResponse({"job": self.stage.jobs.preempt(asked["job"], asked.get("replica", ""))})
            except Problem as problem:
                return refusal(problem)
            except (ValueError, TypeError, KeyError, AttributeError):
                return refusal(Problem("INVALID_ARGUMENT", 'A body {"job": NAME} is expected.', "job"))

        async def fail(request: Request) -> Response:
            from tagline.rehearsal.doors import refusal
            from tagline.rehearsal.faults import Fault
            from tagline.rehearsal.problems import Problem

            try:
                self.faults.plan(Fault(**await request.json()))
            except Problem as problem:
                return refusal(problem)
            except (ValueError, TypeError):
                return refusal(Problem("INVALID_ARGUMENT", 'A body {"method": NAME} is expected.', "method"))
            return JSONResponse({"faults": self.faults.planned()})

        return [
            Route("/-/status", status), Route("/-/preempt", preempt, methods=["POST"]),
            Route("/-/fail", fail, methods=["POST"]),
        ]  # fmt: skip


def _listening(port: int) -> socket.socket:
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
    except OSError as error:
        found.close()
        raise PlaceError(f"cannot serve on 127.0.0.1:{port}: {error.strerror}", hint=PORT_HINT) from error
    return found


def _storage(buckets: Path) -> tuple[ASGIApp, "Store"]:
    """Cloud Storage for the buckets in a directory, and what it stands on."""
    from tagline.rehearsal.cloud_storage.application import application
    from tagline.rehearsal.cloud_storage.store import Store

    store = Store(buckets)
    return application(store), store


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
