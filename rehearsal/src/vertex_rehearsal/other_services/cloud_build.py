"""Cloud Build: validates builds, runs them one at a time, and stores them."""

import base64
import queue
import threading
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.api.errors import CODES, ApiError
from vertex_rehearsal.cloud_storage.errors import StorageError
from vertex_rehearsal.context import report_bug
from vertex_rehearsal.other_services import build_specs
from vertex_rehearsal.other_services.artifact_registry import ArtifactRegistry
from vertex_rehearsal.other_services.builds import BuildOutcome, BuildRunner
from vertex_rehearsal.other_services.documents import Document, Documents
from vertex_rehearsal.other_services.methods import RestMethod, ServiceRequest

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

KIND = "type.googleapis.com/google.devtools.cloudbuild.v1."
ENDED = ("SUCCESS", "FAILURE", "INTERNAL_ERROR", "TIMEOUT", "CANCELLED", "EXPIRED")
EVERYWHERE = "global"
"""The location of builds without one."""
LIMIT = (
    "Steps of gcr.io/cloud-builders/docker that build, push, tag or pull, one after another, by podman, docker or "
    "buildah; an archive in a bucket as source; nothing leaves this machine: pushed images stay local."
)


def _declare_method(
    name: str, verb: str, path: str, handler: str, permission: str, limit: str = ""
) -> tuple[RestMethod, ...]:
    """Return a method for requests with a location and for those without."""
    return (
        RestMethod(
            f"cloudbuild.projects.locations.{name}",
            verb,
            f"v1/projects/{{project}}/locations/{{location}}/{path}",
            handler,
            permission,
            limit,
        ),
        RestMethod(f"cloudbuild.projects.{name}", verb, f"v1/projects/{{project}}/{path}", handler, permission, limit),
    )


class CloudBuild:
    """The methods of cloudbuild.googleapis.com about builds."""

    METHODS: Sequence[RestMethod] = (
        *_declare_method("builds.create", "POST", "builds", "create", "cloudbuild.builds.create", LIMIT),
        *_declare_method("builds.get", "GET", "builds/{build}", "get", "cloudbuild.builds.get"),
        *_declare_method(
            "builds.list", "GET", "builds", "list_builds", "cloudbuild.builds.list", "Filters have no effect."
        ),
        *_declare_method("builds.cancel", "POST", "builds/{build}:cancel", "cancel", "cloudbuild.builds.update"),
        RestMethod(
            "cloudbuild.projects.locations.operations.get",
            "GET",
            "v1/projects/{project}/locations/{location}/operations/{operation}",
            "get_operation",
        ),
        RestMethod("cloudbuild.operations.get", "GET", "v1/operations/build/{project}/{operation}", "get_operation"),
    )

    def __init__(self, context: "Context") -> None:
        self._context = context
        self._documents = Documents(context.database)
        self._registry = ArtifactRegistry(context)
        self._lock = threading.RLock()
        self._pending: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._running: BuildRunner | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def resume(self) -> None:
        """Mark builds that were interrupted by a restart as failed."""
        for build in self._documents.list_collection("projects/*/locations/*/builds"):
            if build["status"] not in ENDED:
                text = "The rehearsal was ended while the build was running."
                self._record_outcome(build["name"], BuildOutcome("INTERNAL_ERROR", text))

    def close(self) -> None:
        """Stop the running build and the worker thread."""
        with self._lock:
            self._closed = True
            if self._running:
                self._running.stop()
        if self._thread:
            self._pending.put("")
            self._thread.join()

    def create(self, request: ServiceRequest) -> Any:
        """Validate and queue a build, and return its operation."""
        project, location = request["project"], request.path_variables.get("location", EVERYWHERE)
        identifier = str(uuid.uuid4())
        built_in_substitutions = {
            "PROJECT_ID": project,
            "PROJECT_NUMBER": self._context.project_number(project),
            "BUILD_ID": identifier,
            "LOCATION": location,
        }
        build = build_specs.validate_build(request.body, built_in_substitutions)
        name = f"projects/{project}/locations/{location}/builds/{identifier}"
        build |= {
            "name": name,
            "id": identifier,
            "projectId": project,
            "status": "QUEUED",
            "createTime": _format_now(),
            "logsBucket": self._logs_bucket(build, project),
            "logUrl": f"{self._context.address}/",
        }
        with self._lock:
            self._documents.add(name, build)
            self._pending.put(name)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_builds, name="cloud-build", daemon=True)
                self._thread.start()
        return _build_operation(build)

    def _logs_bucket(self, build: Document, project: str) -> str:
        """Return the bucket for a build's log; the default one is created if needed."""
        if build_specs.read_logging(build) in ("CLOUD_LOGGING_ONLY", "NONE"):
            return ""
        requested = build.get("logsBucket", "").removeprefix("gs://")
        bucket = requested.partition("/")[0] or f"{self._context.project_number(project)}-cloudbuild-logs"
        try:
            self._context.store.bucket(bucket)
        except StorageError as error:
            if requested:
                text = f"could not resolve logs bucket {bucket}: {error.message}"
                raise ApiError("INVALID_ARGUMENT", text, "build.logs_bucket") from error
            self._context.store.create_bucket(bucket, project=project, settings={})
        return f"gs://{requested or bucket}"

    def get(self, request: ServiceRequest) -> Any:
        """Return the current state of a build."""
        return self._documents.get(self._build_name(request, request["build"]))

    def list_builds(self, request: ServiceRequest) -> Any:
        """Return a page of builds, newest first."""
        location = request.path_variables.get("location", EVERYWHERE)
        return request.build_page(
            self._documents.list_collection(f"projects/{request['project']}/locations/{location}/builds"), "builds"
        )

    def cancel(self, request: ServiceRequest) -> Any:
        """Cancel a build that has not ended."""
        name = self._build_name(request, request["build"])
        with self._lock:
            build = self._documents.get(name)
            if build["status"] in ENDED:
                raise ApiError("FAILED_PRECONDITION", f"cannot cancel build {build['id']}: it is {build['status']}")
            build = self._documents.change(name, status="CANCELLED", finishTime=_format_now())
            if self._running and self._running.name == name:
                self._running.stop()
        return build

    def get_operation(self, request: ServiceRequest) -> Any:
        """Return the operation of a build."""
        try:
            identifier = base64.b64decode(request["operation"], validate=True).decode()
        except ValueError as error:
            raise ApiError("NOT_FOUND", "Requested entity was not found.") from error
        return _build_operation(self._documents.get(self._build_name(request, identifier)))

    def _build_name(self, request: ServiceRequest, identifier: str) -> str:
        location = request.path_variables.get("location", EVERYWHERE)
        return f"projects/{request['project']}/locations/{location}/builds/{identifier}"

    def _run_builds(self) -> None:
        """Run builds in the order of their arrival, until "" is queued."""
        while name := self._pending.get():
            with self._lock:
                if self._closed:
                    return
                build = self._documents.get(name)
                if build["status"] in ENDED:
                    continue
                build = self._documents.change(name, status="WORKING", startTime=_format_now())
                self._running = BuildRunner(build, self._context, self._registry)
            try:
                outcome = self._running.run_build()
            except Exception as error:
                report_bug(error)
                outcome = BuildOutcome("INTERNAL_ERROR", f"{type(error).__name__}: {error}")
            with self._lock:
                self._running = None
                self._record_outcome(name, outcome)

    def _record_outcome(self, name: str, outcome: BuildOutcome) -> None:
        with self._lock:
            if self._documents.get(name)["status"] == "CANCELLED":
                return
            changes: dict[str, Any] = {
                "status": outcome.status,
                "finishTime": _format_now(),
                "results": outcome.results,
            }
            if outcome.steps:
                changes["steps"] = outcome.steps
            if outcome.detail:
                changes["statusDetail"] = outcome.detail
            if outcome.failure:
                changes["failureInfo"] = {"type": outcome.failure, "detail": outcome.detail}
            self._documents.change(name, **changes)


def _build_operation(build: Mapping[str, Any]) -> Document:
    _, project, _, location, _, identifier = build["name"].split("/")
    encoded_id = base64.b64encode(identifier.encode()).decode()
    operation: Document = {
        "name": f"operations/build/{project}/{encoded_id}"
        if location == EVERYWHERE
        else f"projects/{project}/locations/{location}/operations/{encoded_id}",
        "metadata": {"@type": f"{KIND}BuildOperationMetadata", "build": build},
    }
    if build["status"] not in ENDED:
        return operation
    if build["status"] == "SUCCESS":
        return operation | {"done": True, "response": {"@type": f"{KIND}Build"} | dict(build)}
    code = {"CANCELLED": "CANCELLED", "TIMEOUT": "DEADLINE_EXCEEDED"}.get(build["status"], "UNKNOWN")
    text = build.get("statusDetail") or "Build failed; check build logs for details"
    return operation | {"done": True, "error": {"code": CODES[code][0], "message": text}}


def _format_now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
