"""A real rehearsal process for tests, and Google's own clients pointed at it."""

import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from python_processes import start_python
from vertex_rehearsal.access import build_keyed_address

PARENT = "projects/demo/locations/us-central1"
IMAGE = "us-docker.pkg.dev/demo/repository/local-train:1"
AS_PROCESSES = ("--process-image", "local-=python")
"""Images that run without a container runtime, as the tests have them."""
ENDED = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")


@dataclass
class Rehearsal:
    """A process that rehearses, and how to ask it."""

    process: "subprocess.Popen[bytes]"
    facts: dict[str, Any]
    directory: Path
    ready_s: float

    @property
    def address(self) -> str:
        """Of HTTP; clients are given credentials too."""
        return str(self.facts["address"])

    @property
    def keyed_address(self) -> str:
        """Of HTTP, with the token in it: for clients that send an emulator no credentials."""
        return build_keyed_address(self.address, self.token)

    @property
    def token(self) -> str:
        """What every client has to send; "" where it is open."""
        return str(self.facts["token"])

    @property
    def bearer(self) -> dict[str, str]:
        """The header of whoever has the token."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    @property
    def credentials(self) -> Any:
        """What Google's packages for Python send the token with."""
        from google.auth.credentials import AnonymousCredentials
        from google.oauth2.credentials import Credentials

        return Credentials(self.token) if self.token else AnonymousCredentials()

    @property
    def channel(self) -> Any:
        """A gRPC channel whose calls carry the token."""
        import grpc

        return grpc.intercept_channel(grpc.insecure_channel(self.facts["grpc"]), _bearer_interceptor(self.token))

    @cached_property
    def rest(self) -> Any:
        """aiplatform_v1's client of jobs over REST."""
        return self.client("JobServiceClient")

    @cached_property
    def grpc(self) -> Any:
        """aiplatform_v1's client of jobs over gRPC."""
        return self.client("JobServiceClient", "grpc")

    def client(self, name: str, transport: str = "rest", *, library: Any = None) -> Any:
        """One of aiplatform_v1's clients, or another library's, unmodified."""
        from google.cloud import aiplatform_v1

        kind = getattr(library or aiplatform_v1, name)
        if transport == "rest":
            options = {"api_endpoint": self.address}
            return kind(credentials=self.credentials, transport="rest", client_options=options)
        return kind(transport=kind.get_transport_class("grpc")(channel=self.channel))

    def http(self, verb: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """The status and the JSON of an answer; a body of bytes is sent as it is."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        given = {"Content-Type": "application/json"} | self.bearer | (headers or {})
        request = urllib.request.Request(self.address + path, content, given, method=verb)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def submit(self, spec: dict[str, Any]) -> str:
        """A job's name, over plain HTTP."""
        status, job = self.http("POST", f"/v1/{PARENT}/customJobs", spec)
        assert status == 200, job
        return str(job["name"])

    def job(self, name: str) -> dict[str, Any]:
        """A job as it is now."""
        status, job = self.http("GET", f"/v1/{name}")
        assert status == 200, job
        return dict(job)

    def wait(self, name: str, *states: str) -> dict[str, Any]:
        """A job once it is in one of these states, or has ended."""
        wanted = states or ENDED
        return until(lambda: (job := self.job(name))["state"] in wanted and job, f"{name} to be {wanted}")

    def run(self, spec: dict[str, Any]) -> dict[str, Any]:
        """A job that has ended."""
        return self.wait(self.submit(spec))

    def entries(self, name: str, condition: str = "") -> list[dict[str, Any]]:
        """The log entries of a job, oldest first."""
        wanted = f'resource.type="ml_job" AND resource.labels.job_id="{name.rpartition("/")[2]}" {condition}'
        found: list[dict[str, Any]] = []
        token = ""
        while True:
            body = {"resourceNames": ["projects/demo"], "filter": wanted, "pageSize": 1000, "pageToken": token}
            page = self.http("POST", "/v2/entries:list", body)[1]
            found += page.get("entries", [])
            token = page.get("nextPageToken", "")
            if not token:
                return found

    def said(self, name: str, task: str = "workerpool0-0") -> list[str]:
        """What a replica of a job printed."""
        mine = [entry for entry in self.entries(name) if entry["resource"]["labels"]["task_name"] == task]
        return [str(entry["jsonPayload"].get("message", entry["jsonPayload"])) for entry in mine]

    def processes(self, of: str = "") -> set[int]:
        """Every process of its jobs and servers, or of one that is named, wherever it has moved itself."""
        part = f"{of.rpartition('/')[2]}/" if of else ""
        mark = f"REHEARSAL_MARK={self.directory}#{part}".encode()
        found = set()
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in path.read_bytes():
                    found.add(int(path.parent.name))
            except OSError:
                continue
        return found

    def wait_until_idle(self) -> None:
        """Nothing of a job that was told to stop is left, nor of one that nobody waited for."""
        idle = {"running": 0, "queued": 0}
        until(lambda: self.http("GET", "/-/status")[1]["jobs"] == idle, "every job to have ended")

    def stop(self) -> int:
        """Told to stop, it ends with this code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def kill(self) -> None:
        """SIGKILL, which it cannot see coming."""
        self.process.kill()
        self.process.wait()


def _bearer_interceptor(token: str) -> Any:
    """Adds the token to every call of a gRPC channel."""
    import grpc

    more = [("authorization", f"Bearer {token}")] if token else []

    class Bearer(  # type: ignore[misc]
        grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamStreamClientInterceptor
    ):
        def intercept_unary_unary(self, proceed: Callable[..., Any], details: Any, request: Any) -> Any:
            return proceed(details._replace(metadata=[*(details.metadata or ()), *more]), request)

        intercept_unary_stream = intercept_stream_stream = intercept_unary_unary

    return Bearer()


def until(found: Callable[[], Any], what: str, *, patience_s: float = 600.0) -> Any:
    """What is found, once it is true."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if result := found():
            return result
        time.sleep(0.02)
    raise AssertionError(f"waited {patience_s:g} seconds for {what}")


def free_port() -> int:
    """A port that nobody listens on, below those that the system gives to whoever connects to something."""
    while True:
        with suppress(OSError), socket.create_server(("", random.SystemRandom().randrange(20_000, 32_000))) as server:
            return int(server.getsockname()[1])


def pool(*command: str, replicas: int = 1, **more: Any) -> dict[str, Any]:
    """A worker pool of processes."""
    return {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": replicas,
        "containerSpec": {"imageUri": IMAGE, "command": list(command), **more},
    }


def python(code: str, *, replicas: int = 1, **more: Any) -> dict[str, Any]:
    """A worker pool of bare Python processes."""
    return pool("python", "-S", "-c", code, replicas=replicas, **more)


def custom_job(*pools: dict[str, Any], name: str = "a job", **spec: Any) -> dict[str, Any]:
    """A job's JSON."""
    return {"displayName": name, "jobSpec": {"workerPoolSpecs": list(pools), **spec}}


@contextmanager
def rehearsing(
    directory: Path, *arguments: str, program: Sequence[str] = ("-m", "vertex_rehearsal"), **environment: str
) -> Iterator[Rehearsal]:
    """A rehearsal that is ready, on ports of its own; `program` is what Python runs."""
    words = ["--directory", str(directory), "--port", "0", "--grpc-port", "0", "--json", *AS_PROCESSES, *arguments]
    with tempfile.TemporaryFile() as log:
        begun = time.monotonic()
        options = {"env": os.environ | environment, "stdout": subprocess.PIPE, "stderr": log}
        process = start_python(*program, "start", *words, **options)
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            ready_s = time.monotonic() - begun
            assert line, _written(log)
            yield Rehearsal(process, json.loads(line), directory, ready_s)
            assert "Traceback" not in (said := _written(log)), said
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(timeout=60)
                except subprocess.TimeoutExpired:
                    process.kill()
            process.wait()
            process.stdout.close()


def _written(file: IO[bytes]) -> str:
    """What is in a file; the place where another process goes on writing to it stays where it is."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")
