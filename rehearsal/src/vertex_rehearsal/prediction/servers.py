"""Model servers with Vertex AI's serving environment: health checks, restarts and round-robin requests."""

import http.client
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.context import Context, report_bug
from vertex_rehearsal.execution import containers, images, workloads
from vertex_rehearsal.execution.processes import MARK
from vertex_rehearsal.execution.workloads import Workload
from vertex_rehearsal.settings import Settings

PORT = 8080
PORTS = range(20_000, 32_000)
"""Below the system's ephemeral ports."""
STARTING_S = 0.05
"""Interval of the health checks of a server that is starting."""
HEALTH_EVERY_S = 10.0
HEALTH_TIMEOUT_S = 10.0
MOST_HEALTH_FAILURES = 4
"""Consecutive failed health checks after which a server gets no requests until it is healthy; it is not restarted."""
RESTART_S = (0.0, 1.0, 5.0, 10.0, 30.0)
"""Back-off before each restart of a server that exited by itself."""
WriteLog = Callable[[Sequence[str], str, str], None]
"""Writes (lines, severity, replica's name) to the log."""

_allocated_ports: set[int] = set()
_port_lock = threading.Lock()


@dataclass(frozen=True)
class ModelServerSpec:
    """What is needed to start the servers of a deployed model or a batch prediction job."""

    holder: str
    """The name of the endpoint or batch prediction job."""
    id: str
    """The id of the deployed model."""
    model: Any
    storage_uri: str
    """The URI of the model's files; "" without files."""
    count: int
    machine: Any
    directory: Path
    """The directory of their logs and home directories."""
    settings: Settings

    @property
    def project(self) -> str:
        """The project's id."""
        return self.holder.split("/")[1]

    @property
    def holder_id(self) -> str:
        """The last part of the holder's name."""
        return self.holder.rpartition("/")[2]

    @property
    def predict_route(self) -> str:
        """The path of prediction requests."""
        return str(self.model.container_spec.predict_route) or f"{self.health_route}:predict"

    @property
    def health_route(self) -> str:
        """The path of health checks."""
        default = f"/v1/endpoints/{self.holder_id}/deployedModels/{self.id}"
        return str(self.model.container_spec.health_route) or default

    def check_runnable(self) -> None:
        """Raise FAILED_PRECONDITION if the servers cannot run on this machine."""
        image = self.model.container_spec.image_uri
        if reason := images.explain_unrunnable(image, self.settings):
            raise ApiError("FAILED_PRECONDITION", reason)
        spec = self.model.container_spec
        if not self.storage_uri and not self.runs_in_container and not spec.command and not spec.args:
            raise ApiError(
                "FAILED_PRECONDITION",
                f"{image} is not on this machine and would run as a process, which has no files to serve: "
                "upload the model with its artifact_uri.",
            )

    @cached_property
    def runs_in_container(self) -> bool:
        """Whether the servers run as containers."""
        return images.runs_in_container(self.model.container_spec.image_uri, self.settings)


@dataclass(frozen=True)
class ServerResponse:
    """The response of a model server."""

    status: int
    content_type: str
    content: bytes


class ModelServer:
    """One replica: starts its program, checks its health and restarts it until it is ended."""

    def __init__(
        self, spec: ModelServerSpec, index: int, context: Context, write_log: WriteLog, changed: Callable[[], None]
    ) -> None:
        self.name = f"{spec.id}-{index}"
        self.is_healthy = False
        self.was_ready = False
        self.exit_code: int | None = None
        """Set if the server exited before it was ever ready."""
        self.log = spec.directory / f"{self.name}.log"
        self._server_spec = spec
        self._context = context
        self._pool_log = write_log
        self._changed = changed
        self._contained = spec.runs_in_container
        declared = [port.container_port for port in spec.model.container_spec.ports] or [PORT]
        self.port = _allocate_port(declared[0] if self._contained else 0)
        self._home = spec.directory / self.name
        self._container = f"rehearsal-{spec.holder_id}-{self.name}" if self._contained else ""
        self._events: queue.Queue[int | None] = queue.Queue()
        self._program: Workload | None = None
        self._lock = threading.Lock()
        self._ended = False
        self._thread = threading.Thread(target=self._supervise_program, daemon=True)
        self._thread.start()

    def log_line(self, line: str, severity: str) -> None:
        """Write a line to the log of this server."""
        self._write_log([line], severity)

    def send_request(self, verb: str, path: str, body: bytes, content_type: str, *, timeout_s: float) -> ServerResponse:
        """Return the server's response; raise OSError or http.client.HTTPException if there is none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            headers = {"Content-Type": content_type} if content_type else {}
            connection.request(verb, path, body or None, headers)
            answer = connection.getresponse()
            return ServerResponse(answer.status, answer.getheader("Content-Type", ""), answer.read())
        finally:
            connection.close()

    def end(self) -> None:
        """Shut down gracefully (SIGTERM, grace period, SIGKILL); return when no process is left."""
        with self._lock:
            self._ended = True
            program = self._program
        self.is_healthy = False
        self._events.put(None)
        if program is not None:
            program.terminate()
        self._thread.join()

    def _supervise_program(self) -> None:
        """Start the program, watch it, and restart it when it exits by itself."""
        restarts = 0
        try:
            while self._start_program():
                code = self._watch_health()
                if code is None:
                    break
                self._end_program(grace_s=0.0)
                if not self.was_ready:
                    self.exit_code = code
                    break
                self.log_line(f"The server exited with the status {code} and is restarted.", "ERROR")
                self._changed()
                try:
                    self._events.get(timeout=RESTART_S[min(restarts, len(RESTART_S) - 1)])
                    break  # told to end
                except queue.Empty:
                    restarts += 1
        except Exception as error:  # a full disk, for example: threads that wait for the server must be notified
            report_bug(error)
            self.exit_code = 70
        finally:
            self.is_healthy = False
            self._end_program(grace_s=self._context.settings.grace_s)
            with _port_lock:
                _allocated_ports.discard(self.port)
            self._changed()

    def _start_program(self) -> bool:
        """Start the program unless the server has been ended; return whether it was started."""
        with self._lock:
            if self._ended:
                return False
            environment = self._build_environment()
            self._program = Workload(
                self._build_command(environment),
                environment,
                home=self._home,
                container=self._container,
                mark=environment[MARK],
                context=self._context,
                write_log=self._write_log,
                on_exit=self._events.put,
            )
        return True

    def _watch_health(self) -> int | None:
        """Check the health until the program exits; return its exit code, or None if the server was ended."""
        failures = 0
        while True:
            try:
                code = self._events.get(timeout=HEALTH_EVERY_S if self.is_healthy else STARTING_S)
            except queue.Empty:
                failures = 0 if self._answers_healthy() else failures + 1
                if failures == 0 and not self.is_healthy:
                    self.is_healthy = self.was_ready = True
                    self._changed()
                elif failures == MOST_HEALTH_FAILURES and self.is_healthy:
                    self.is_healthy = False
                    self.log_line(
                        f"{MOST_HEALTH_FAILURES} health checks failed: it gets no requests until one passes.", "ERROR"
                    )
                    self._changed()
                continue
            self.is_healthy = False
            return None if self._ended else code

    def _answers_healthy(self) -> bool:
        try:
            return (
                self.send_request("GET", self._server_spec.health_route, b"", "", timeout_s=HEALTH_TIMEOUT_S).status
                == 200
            )
        except (OSError, http.client.HTTPException):
            return False

    def _end_program(self, *, grace_s: float) -> None:
        """End the program and all of its processes."""
        with self._lock:
            program, self._program = self._program, None
        if program is not None:
            program.end(until=time.monotonic() + grace_s)

    def _build_environment(self) -> dict[str, str]:
        """Return the environment variables that Vertex AI sets for model servers."""
        spec = self._server_spec
        container_spec = spec.model.container_spec
        variables = {
            **workloads.build_variables(self._context, spec.project, self._home),
            "AIP_HTTP_PORT": str(self.port),
            "AIP_HEALTH_ROUTE": spec.health_route,
            "AIP_PREDICT_ROUTE": spec.predict_route,
            "AIP_STORAGE_URI": spec.storage_uri,
            "AIP_ENDPOINT_ID": spec.holder_id,
            "AIP_DEPLOYED_MODEL_ID": spec.id,
            "AIP_MODEL_NAME": spec.holder_id,
            "AIP_VERSION_NAME": spec.id,
            "AIP_MODE": "PREDICTION",
            "AIP_MODE_VERSION": "1.0.0",
            "AIP_FRAMEWORK": "CUSTOM_CONTAINER",
            "AIP_PROJECT_NUMBER": self._context.project_number(spec.project),
            "AIP_MACHINE_TYPE": spec.machine.machine_type,
            MARK: self._context.build_mark(spec.holder_id, self.name),
        }
        if spec.machine.accelerator_count:
            kind = spec.machine.DESCRIPTOR.fields_by_name["accelerator_type"].enum_type
            variables["AIP_ACCELERATOR_TYPE"] = kind.values_by_number[spec.machine.accelerator_type].name
        for variable in container_spec.env:  # each may refer to earlier ones
            if variable.name not in ("AIP_HTTP_PORT", MARK):
                variables[variable.name] = workloads.expand_variables([variable.value], variables)[0]
        return workloads.filter_for_container(variables) if self._contained else variables

    def _build_command(self, environment: Mapping[str, str]) -> list[str]:
        """Return the command that starts the server."""
        spec = self._server_spec.model.container_spec
        command, arguments = (workloads.expand_variables(words, environment) for words in (spec.command, spec.args))
        if self._container:
            return containers.build_run_command(
                spec.image_uri,
                self._container,
                entrypoint=command,
                arguments=arguments,
                environment=environment,
                buckets=self._context.buckets,
            )
        self.log_line(f"This machine has no image {spec.image_uri}: its server is a process of this Python.", "NOTICE")
        known = self._context.settings.process_image(spec.image_uri)
        if known and not command:
            files = (
                str(self._context.resolve_uri(self._server_spec.storage_uri)) if self._server_spec.storage_uri else ""
            )
            command = list(known.entrypoint)
            arguments = arguments or workloads.expand_variables(
                known.arguments, {**environment, "AIP_STORAGE_DIR": files}
            )
        return [*workloads.find_mount_command(self._context.buckets), *command, *arguments]

    def _write_log(self, lines: Sequence[str], severity: str) -> None:
        self._pool_log(lines, severity, self.name)
        with self.log.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)


class ModelServerPool:
    """All replicas of one deployed model."""

    def __init__(self, spec: ModelServerSpec, context: Context, write_log: WriteLog) -> None:
        spec.check_runnable()
        spec.directory.mkdir(parents=True, exist_ok=True)
        self.server_spec = spec
        self._changed = threading.Condition()
        self._turn = 0
        self._ended = False
        limit = spec.model.container_spec.deployment_timeout.ToTimedelta().total_seconds()
        self._until = time.monotonic() + min(limit or context.settings.ready_s, context.settings.ready_s)
        self._all = [ModelServer(spec, index, context, write_log, self._notify_waiters) for index in range(spec.count)]

    def wait_until_ready(self) -> None:
        """Wait until every replica has been healthy; raise FAILED_PRECONDITION, as Vertex AI does, if one never is."""
        with self._changed:
            while not all(server.was_ready for server in self._all):
                ended = next((server for server in self._all if server.exit_code is not None), None)
                if ended:
                    raise _build_startup_error(
                        f"Model server exited unexpectedly with the status {ended.exit_code}.", ended
                    )
                left_s = self._until - time.monotonic()
                if self._ended:
                    raise ApiError("ABORTED", "The model's servers were ended before they were ready.")
                if left_s <= 0:
                    late = next(server for server in self._all if not server.was_ready)
                    raise _build_startup_error("Model server never became ready.", late)
                self._changed.wait(left_s)

    def send_request(self, path: str, body: bytes, content_type: str, *, timeout_s: float) -> ServerResponse:
        """Return the response of the next healthy replica; wait for one that is starting."""
        until = time.monotonic() + timeout_s
        server = self._choose_server(until)
        try:
            return server.send_request("POST", path, body, content_type, timeout_s=max(0.001, until - time.monotonic()))
        except ConnectionRefusedError:
            # The replica is not listening and has not received the request, so it is safe to retry with another one.
            server.is_healthy = False
            return self.send_request(path, body, content_type, timeout_s=max(0.001, until - time.monotonic()))
        except TimeoutError as error:
            message = f"The model's server did not answer within {timeout_s:g} seconds."
            raise ApiError("DEADLINE_EXCEEDED", message) from error
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise ApiError("UNAVAILABLE", f"502:Bad Gateway ({server.name}: {reason})") from error

    def _choose_server(self, until: float) -> ModelServer:
        with self._changed:
            while True:
                healthy = [server for server in self._all if server.is_healthy]
                if healthy:
                    self._turn += 1
                    return healthy[self._turn % len(healthy)]
                if all(server.exit_code is not None for server in self._all):
                    raise ApiError("UNAVAILABLE", f"No server of the model runs. Its logs are in {self._all[0].log}")
                left_s = until - time.monotonic()
                if left_s <= 0 or self._ended:
                    raise ApiError("UNAVAILABLE", "No server of the model is healthy.")
                self._changed.wait(left_s)

    def end(self) -> None:
        """End every replica and wake the threads that wait for one."""
        self._ended = True
        self._notify_waiters()
        threads = [threading.Thread(target=server.end, daemon=True) for server in self._all]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _notify_waiters(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _build_startup_error(reason: str, server: ModelServer) -> ApiError:
    return ApiError(
        "FAILED_PRECONDITION",
        f"{reason} Please validate that your model file or container configuration are valid. "
        f"Model server logs can be found at {server.log}",
    )


def _allocate_port(preferred: int) -> int:
    """Allocate a port that is free and not allocated to another server; the preferred one if possible."""
    with _port_lock:
        while True:
            port = preferred or secrets.choice(PORTS)
            preferred = 0
            if port not in _allocated_ports and _is_port_free(port):
                _allocated_ports.add(port)
                return port


def _is_port_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
