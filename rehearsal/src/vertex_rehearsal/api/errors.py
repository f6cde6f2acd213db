"""Google's API errors: one exception with a canonical code, and its HTTP and gRPC forms."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vertex_rehearsal.api.messages import rpc

CODES = {
    "CANCELLED": (1, 499), "UNKNOWN": (2, 500), "INVALID_ARGUMENT": (3, 400), "DEADLINE_EXCEEDED": (4, 504),
    "NOT_FOUND": (5, 404), "ALREADY_EXISTS": (6, 409), "PERMISSION_DENIED": (7, 403), "RESOURCE_EXHAUSTED": (8, 429),
    "FAILED_PRECONDITION": (9, 400), "ABORTED": (10, 409), "OUT_OF_RANGE": (11, 400), "UNIMPLEMENTED": (12, 501),
    "INTERNAL": (13, 500), "UNAVAILABLE": (14, 503), "DATA_LOSS": (15, 500), "UNAUTHENTICATED": (16, 401),
}  # fmt: skip
"""Each canonical code with its number and its HTTP status, as google.rpc.Code documents them."""
DETAIL = "type.googleapis.com/google.rpc."


@dataclass(frozen=True)
class ErrorCause:
    """The machine-readable cause of an error: google.rpc.ErrorInfo."""

    reason: str
    domain: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass
class ApiError(Exception):
    """An API error with a canonical code and a message."""

    code: str
    message: str
    field: str = ""
    """The invalid field of the request, such as `custom_job.display_name`."""
    cause: ErrorCause | None = None

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    @property
    def number(self) -> int:
        """The number of the canonical code."""
        return CODES[self.code][0]

    @property
    def http_status(self) -> int:
        """The HTTP status."""
        return CODES[self.code][1]

    def body(self) -> dict[str, Any]:
        """Return the JSON body of the HTTP response."""
        error: dict[str, Any] = {"code": self.http_status, "message": self.message, "status": self.code}
        details: list[dict[str, Any]] = []
        if self.field:
            violation = {"field": self.field, "description": self.message}
            details.append({"@type": f"{DETAIL}BadRequest", "fieldViolations": [violation]})
        if self.cause:
            about = {"reason": self.cause.reason, "domain": self.cause.domain, "metadata": dict(self.cause.metadata)}
            details.append({"@type": f"{DETAIL}ErrorInfo"} | about)
        return {"error": error | ({"details": details} if details else {})}

    def status(self) -> Any:
        """Return the google.rpc.Status used in operations, jobs and gRPC's error details."""
        status = rpc.Status(code=self.number, message=self.message)
        if self.field:
            details = rpc.BadRequest()
            details.field_violations.add(field=self.field, description=self.message)
            status.details.add().Pack(details)
        if self.cause:
            about = rpc.ErrorInfo(reason=self.cause.reason, domain=self.cause.domain, metadata=self.cause.metadata)
            status.details.add().Pack(about)
        return status


def invalid_argument(field: str, message: str) -> ApiError:
    """Return INVALID_ARGUMENT with the name of the invalid field."""
    return ApiError("INVALID_ARGUMENT", message, field)


def not_found_error(name: str) -> ApiError:
    """Return NOT_FOUND with Vertex AI's message."""
    return ApiError("NOT_FOUND", f"The resource '{name}' was not found.")


def unimplemented_error(path: str) -> ApiError:
    """Return UNIMPLEMENTED with the name of the method."""
    return ApiError("UNIMPLEMENTED", f"{path} is not played by this rehearsal; vertex-rehearsal methods lists what is.")
