"""Authorizes calls by enabled services and permissions, and injects the planned faults."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from vertex_rehearsal.api.errors import ApiError, ErrorCause
from vertex_rehearsal.project.faults import Fault, Faults
from vertex_rehearsal.project.project import SERVICES
from vertex_rehearsal.project.project_file import ProjectFile

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Call:
    """A call of an API method over HTTP or gRPC."""

    api: str
    """The first part of the address of its API: `aiplatform`."""
    names: tuple[str, ...]
    """The names for which faults can be planned: the method's, its service's, its API's."""
    permission: str = ""
    """The permission that the caller needs; "" if none."""
    resource: str = ""
    """The resource, such as `projects/demo/locations/us-central1`."""


class Authorizer:
    """Checks calls and rejects them with Google's errors."""

    def __init__(self, project: ProjectFile, faults: Faults, number_of: Callable[[str], str]) -> None:
        self._project = project
        self._faults = faults
        self._number_of = number_of

    def perform(self, call: Call, work: Callable[[], Answer]) -> Answer:
        """Perform a call unless it is not authorized or a fault is planned for it."""
        fault = self.check_call(call)
        if fault is None:
            return work()
        if fault.after_effect:
            work()
        raise fault.error

    def check_call(self, call: Call) -> Fault | None:
        """Raise PERMISSION_DENIED if a call is not authorized; return the fault planned for it, if any."""
        project = self._project.load_current()
        service = f"{call.api}.googleapis.com"
        if not project.has_service(service):
            raise self._build_disabled_error(call, service)
        if call.permission and not project.has_permission(call.permission):
            raise _build_denied_error(call, service)
        return self._faults.take_fault(call.names)

    def _build_disabled_error(self, call: Call, service: str) -> ApiError:
        words = call.resource.split("/")
        number = self._number_of(words[1] if words[0] == "projects" and len(words) > 1 else "rehearsal")
        page = f"https://console.developers.google.com/apis/api/{service}/overview?project={number}"
        return ApiError(
            "PERMISSION_DENIED",
            f"{SERVICES[call.api]} has not been used in project {number} before or it is disabled. Enable it by "
            f"visiting {page} then retry. If you enabled this API recently, wait a few minutes for the action to "
            "propagate to our systems and retry.",
            cause=ErrorCause(
                "SERVICE_DISABLED", "googleapis.com", {"service": service, "consumer": f"projects/{number}"}
            ),
        )


def _build_denied_error(call: Call, service: str) -> ApiError:
    about = {"permission": call.permission, "resource": call.resource}
    return ApiError(
        "PERMISSION_DENIED",
        f"Permission '{call.permission}' denied on resource '//{service}/{call.resource}' (or it may not exist).",
        cause=ErrorCause("IAM_PERMISSION_DENIED", service, about),
    )
