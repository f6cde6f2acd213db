"""The emulator as a whole: every service created, every port opened, and all of it closed again."""

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from vertex_rehearsal.access import keep_token, write_private
from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.cloud_storage.application import create_storage_app
from vertex_rehearsal.console.page import ConsolePage
from vertex_rehearsal.context import Context
from vertex_rehearsal.discovery import FACTS, RehearsalInfo, lock_directory
from vertex_rehearsal.errors import PORT_HINT, EmulatorUnavailable
from vertex_rehearsal.execution.processes import started
from vertex_rehearsal.execution.queue import JobQueue
from vertex_rehearsal.execution.workloads import end_leftovers
from vertex_rehearsal.logging.service import LoggingService
from vertex_rehearsal.metadata.schemas import MetadataSchemas
from vertex_rehearsal.metadata.service import Experiments
from vertex_rehearsal.metadata.tensorboards import Tensorboards
from vertex_rehearsal.other_services.routes import OtherServices
from vertex_rehearsal.pipelines.service import PipelineJobs
from vertex_rehearsal.prediction.batch_service import BatchPredictions
from vertex_rehearsal.prediction.deployments import Deployments
from vertex_rehearsal.prediction.endpoints import Endpoints
from vertex_rehearsal.prediction.evaluations import ModelEvaluations
from vertex_rehearsal.prediction.model_service import Models, import_model
from vertex_rehearsal.prediction.service import PredictionService
from vertex_rehearsal.project.authorization import Authorizer
from vertex_rehearsal.project.faults import Fault, Faults
from vertex_rehearsal.project.locations import Locations
from vertex_rehearsal.project.storage_authorization import AuthorizedStorage
from vertex_rehearsal.protocol import grpc, http, registry
from vertex_rehearsal.protocol.certificates import ROOTS, ensure_certificates, write_trusted_roots
from vertex_rehearsal.protocol.dispatch import Dispatcher
from vertex_rehearsal.protocol.metadata_server import MetadataServer
from vertex_rehearsal.protocol.projects_grpc import ProjectsHandler
from vertex_rehearsal.protocol.tunnels import EMULATED_HOSTS, TunnelProtocol
from vertex_rehearsal.settings import Settings
from vertex_rehearsal.training import service as training
from vertex_rehearsal.training.runner import JobRunner
from vertex_rehearsal.training.service import CustomJobs
from vertex_rehearsal.training.training_pipelines import TrainingPipelines
from vertex_rehearsal.tuning.service import TuningJobs


def serve(settings: Settings, *, ready: Callable[[RehearsalInfo], None]) -> None:
    """Run the emulator until told to stop; `ready` is called when every port is open."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # our own error reports an unavailable port
    with lock_directory(settings.directory), ExitStack() as closing:
        if not settings.is_open:
            settings = replace(settings, token=keep_token(settings.directory))
        App(settings, closing).run(ready)


def create_services(context: Context, queue: JobQueue[JobRunner], deployments: Deployments) -> dict[str, Any]:
    """Create one object of each class in the registry, by its name there."""
    models = Models(context, deployments)
    services = (
        CustomJobs(context, queue),
        TuningJobs(context, queue),
        BatchPredictions(context),
        models,
        ModelEvaluations(context),
        Endpoints(context, deployments),
        PredictionService(context, deployments),
        TrainingPipelines(context, queue, partial(import_model, models)),
        PipelineJobs(context, queue),
        Experiments(context),
        MetadataSchemas(context),
        Tensorboards(context),
        LoggingService(context.logs),
        context.operations,
        Locations(),
    )
    return {registry.part_of(type(service)): service for service in services}


class App:
    """One run of the emulator; the given exit stack closes what it opens."""

    def __init__(self, settings: Settings, closing: ExitStack) -> None:
        self.settings = settings
        methods = registry.build_method_table()  # first: it registers the messages that the rest needs
        self.socket = closing.enter_context(_bind_socket(settings.port))
        self.ca, certificate = self._load_certificates()
        self.grpc, grpc_port = grpc.create_server(port=settings.grpc_port, certificate=certificate)
        self.tls_port = grpc.add_tls_port(self.grpc, self._load_google_certificate())
        self.context = context = Context.create(settings, http_port=self.socket.getsockname()[1], grpc_port=grpc_port)
        closing.callback(context.close)
        self.ended = end_leftovers(context)
        context.operations.give_up("The rehearsal was ended while the operation was running.")
        self.queue = training.create_queue(context)
        deployments = Deployments(context)
        services = create_services(context, self.queue, deployments)
        self.faults = Faults(registry.list_fault_targets(methods))
        admission = Authorizer(context.project, self.faults, context.project_number)
        other_services = OtherServices(context, admission)
        dispatcher = Dispatcher(context, methods, registry.bind_handlers(methods, services, context), admission)
        projects = ProjectsHandler(other_services, settings.token)
        self.grpc.add_generic_rpc_handlers((grpc.GrpcHandler(dispatcher), projects))
        closing.callback(lambda: self.grpc.stop(grace=1).wait())
        self.parts = [self.queue, deployments, *services.values(), *other_services.parts()]
        for part in reversed(self.parts):
            if hasattr(part, "close"):
                closing.callback(part.close)
        page = ConsolePage(context, methods, self.queue, ca=self.ca)
        self.app = http.create_http_app(
            dispatcher,
            metadata=MetadataServer(settings.token),
            own_routes=[*page.routes(), *self._build_routes(), *other_services.routes()],
            storage=AuthorizedStorage(create_storage_app(context.store), admission),
        )

    def _load_certificates(self) -> tuple[str, tuple[bytes, bytes] | None]:
        if not self.settings.tls:
            return "", None
        authority, certificate, key = ensure_certificates(self.settings.directory / "certificates")
        return str(authority), (key.read_bytes(), certificate.read_bytes())

    def _load_google_certificate(self) -> tuple[bytes, bytes]:
        """Return the key and certificate of the emulated Google hosts and write the roots that clients trust."""
        directory = self.settings.directory / "certificates" / "google"
        authority, certificate, key = ensure_certificates(directory, sorted(EMULATED_HOSTS))
        trusted = [authority, *([Path(self.ca)] if self.ca else [])]
        write_trusted_roots(directory.parent / ROOTS, trusted)
        return key.read_bytes(), certificate.read_bytes()

    def build_facts(self) -> RehearsalInfo:
        """Return the addresses of the running emulator."""
        pid = os.getpid()
        return RehearsalInfo(
            str(self.settings.directory),
            pid,
            started(pid),
            self.context.http_port,
            self.context.grpc_port,
            self.ca,
            self.settings.token,
        )

    def run(self, ready: Callable[[RehearsalInfo], None]) -> None:
        """Serve until stopped."""
        config = uvicorn.Config(
            self.app,
            http=partial(TunnelProtocol, tls_port=self.tls_port),  # type: ignore[arg-type]
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        facts = self.build_facts()
        path = self.settings.directory / FACTS

        def open_doors() -> None:
            for part in self.parts:
                if hasattr(part, "resume"):
                    part.resume()
            write_private(path, json.dumps(asdict(facts)))
            ready(facts)

        self.grpc.start()
        try:
            _EmulatorServer(config, open_doors).run(sockets=[self.socket])
        finally:
            path.unlink(missing_ok=True)

    def _build_routes(self) -> list[Route]:
        """Return the routes of the emulator's own API, at paths that no bucket can have."""
        return [
            Route("/-/status", self._answer_status),
            Route("/-/preempt", self._answer_preempt, methods=["POST"]),
            Route("/-/fail", self._answer_fail, methods=["POST"]),
        ]

    async def _answer_status(self, _: Request) -> Response:
        about = {"facts": str(self.settings.directory / FACTS), "ended_at_start": self.ended}
        return JSONResponse({"jobs": self.queue.count_jobs(), "faults": self.faults.list_faults(), **about})

    async def _answer_preempt(self, request: Request) -> Response:
        def preempt_job(body: Mapping[str, Any]) -> Mapping[str, Any]:
            return {"job": training.preempt(self.queue, body["job"], body.get("replica", ""))}

        return await _answer_command(request, preempt_job, expected="job")

    async def _answer_fail(self, request: Request) -> Response:
        def plan_fault(body: Mapping[str, Any]) -> Mapping[str, Any]:
            self.faults.add_fault(Fault(**body))
            return {"faults": self.faults.list_faults()}

        return await _answer_command(request, plan_fault, expected="method")


async def _answer_command(
    request: Request, perform: Callable[[Mapping[str, Any]], Mapping[str, Any]], *, expected: str
) -> Response:
    """Answer a command whose JSON body must have a key."""
    try:
        return JSONResponse(perform(await request.json()))
    except ApiError as problem:
        return http.build_error_response(problem)
    except (ValueError, TypeError, KeyError, AttributeError):
        text = f'A body {{"{expected}": NAME}} is expected.'
        return http.build_error_response(ApiError("INVALID_ARGUMENT", text, expected))


def _bind_socket(port: int) -> socket.socket:
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
    except OSError as error:
        found.close()
        raise EmulatorUnavailable(f"cannot serve on 127.0.0.1:{port}: {error.strerror}", hint=PORT_HINT) from error
    return found


class _EmulatorServer(uvicorn.Server):
    """A server that reports when it is ready and shuts down gracefully."""

    def __init__(self, config: uvicorn.Config, on_startup: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_startup = on_startup

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving, then report that the server is ready."""
        await super().startup(sockets)
        self._on_startup()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Shut down gracefully, with exit code 0, on SIGTERM and Ctrl-C."""
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
