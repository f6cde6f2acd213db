"""Cloud Build: builds accepted or refused, performed one at a time, and kept."""

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
"""The location of builds that name none."""
LIMIT = (
    "Steps of gcr.io/cloud-builders/docker that build, push, tag or pull, one after another, by podman, docker or "
    "buildah; an archive in a bucket as source; nothing leaves this machine, so that what is pushed is what is here."
)


def _declare_method(
    name: str, verb: str, rest: str, answer: str, permission: str, limit: str = ""
) -> tuple[RestMethod, ...]:
    """A method in a location and without one."""
    return (
        RestMethod(
            f"cloudbuild.projects.locations.{name}",
            verb,
            f"v1/projects/{{project}}/locations/{{location}}/{rest}",
            answer,
            permission,
            limit,
        ),
        RestMethod(f"cloudbuild.projects.{name}", verb, f"v1/projects/{{project}}/{rest}", answer, permission, limit),
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
        self._waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._running: BuildRunner | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def resume(self) -> None:
        """After a restart: what had not ended has failed."""
        for build in self._documents.list_collection("projects/*/locations/*/builds"):
            if build["status"] not in ENDED:
                text = "The rehearsal was ended while the build was running."
                self._record_outcome(build["name"], BuildOutcome("INTERNAL_ERROR", text))

    def close(self) -> None:
        """End what is being built."""
        with self._lock:
            self._closed = True
            if self._running:
                self._running.stop()
        if self._thread:
            self._waiting.put("")
            self._thread.join()

    def create(self, asked: ServiceRequest) -> Any:
        """Accept a build, or refuse it as Cloud Build would."""
        project, location = asked["project"], asked.named.get("location", EVERYWHERE)
        identifier = str(uuid.uuid4())
        known = {
            "PROJECT_ID": project,
            "PROJECT_NUMBER": self._context.project_number(project),
            "BUILD_ID": identifier,
            "LOCATION": location,
        }
        build = build_specs.validate_build(asked.body, known)
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
            self._waiting.put(name)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_builds, name="cloud-build", daemon=True)
                self._thread.start()
        return _build_operation(build)

    def _logs_bucket(self, build: Document, project: str) -> str:
        """Where the log goes: a bucket that is there, or one that is made for it."""
        if build_specs.read_logging(build) in ("CLOUD_LOGGING_ONLY", "NONE"):
            return ""
        given = build.get("logsBucket", "").removeprefix("gs://")
        bucket = given.partition("/")[0] or f"{self._context.project_number(project)}-cloudbuild-logs"
        try:
            self._context.store.bucket(bucket)
        except StorageError as refused:
            if given:
                text = f"could not resolve logs bucket {bucket}: {refused.message}"
                raise ApiError("INVALID_ARGUMENT", text, "build.logs_bucket") from refused
            self._context.store.create_bucket(bucket, project=project, settings={})
        return f"gs://{given or bucket}"

    def get(self, asked: ServiceRequest) -> Any:
        """A build as it is now."""
        return self._documents.get(self._build_name(asked, asked["build"]))

    def list_builds(self, asked: ServiceRequest) -> Any:
        """Builds, newest first."""
        location = asked.named.get("location", EVERYWHERE)
        return asked.build_page(
            self._documents.list_collection(f"projects/{asked['project']}/locations/{location}/builds"), "builds"
        )

    def cancel(self, asked: ServiceRequest) -> Any:
        """End a build; one that has ended cannot be."""
        name = self._build_name(asked, asked["build"])
        with self._lock:
            build = self._documents.get(name)
            if build["status"] in ENDED:
                raise ApiError("FAILED_PRECONDITION", f"cannot cancel build {build['id']}: it is {build['status']}")
            build = self._documents.change(name, status="CANCELLED", finishTime=_format_now())
            if self._running and self._running.name == name:
                self._running.stop()
        return build

    def get_operation(self, asked: ServiceRequest) -> Any:
        """The operation of a build."""
        try:
            identifier = base64.b64decode(asked["operation"], validate=True).decode()
        except ValueError as error:
            raise ApiError("NOT_FOUND", "Requested entity was not found.") from error
        return _build_operation(self._documents.get(self._build_name(asked, identifier)))

    def _build_name(self, asked: ServiceRequest, identifier: str) -> str:
        location = asked.named.get("location", EVERYWHERE)
        return f"projects/{asked['project']}/locations/{location}/builds/{identifier}"

    def _run_builds(self) -> None:
        """Perform builds in the order in which they came, until "" comes."""
        while name := self._waiting.get():
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
            about: dict[str, Any] = {"status": outcome.status, "finishTime": _format_now(), "results": outcome.results}
            if outcome.steps:
                about["steps"] = outcome.steps
            if outcome.detail:
                about["statusDetail"] = outcome.detail
            if outcome.failure:
                about["failureInfo"] = {"type": outcome.failure, "detail": outcome.detail}
            self._documents.change(name, **about)


def _build_operation(build: Mapping[str, Any]) -> Document:
    _, project, _, location, _, identifier = build["name"].split("/")
    ending = base64.b64encode(identifier.encode()).decode()
    found: Document = {
        "name": f"operations/build/{project}/{ending}"
        if location == EVERYWHERE
        else f"projects/{project}/locations/{location}/operations/{ending}",
        "metadata": {"@type": f"{KIND}BuildOperationMetadata", "build": build},
    }
    if build["status"] not in ENDED:
        return found
    if build["status"] == "SUCCESS":
        return found | {"done": True, "response": {"@type": f"{KIND}Build"} | dict(build)}
    code = {"CANCELLED": "CANCELLED", "TIMEOUT": "DEADLINE_EXCEEDED"}.get(build["status"], "UNKNOWN")
    text = build.get("statusDetail") or "Build failed; check build logs for details"
    return found | {"done": True, "error": {"code": CODES[code][0], "message": text}}


def _format_now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
