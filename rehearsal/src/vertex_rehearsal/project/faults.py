"""Fault injection: calls that fail on demand, to test how clients handle it."""

import difflib
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vertex_rehearsal.api.errors import ApiError, invalid_argument

STATUSES = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ABORTED",
    429: "RESOURCE_EXHAUSTED", 499: "CANCELLED", 500: "INTERNAL", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}  # fmt: skip
"""Each HTTP status that a call can be failed with, and its canonical code."""


class ConnectionDropped(Exception):
    """Raised to close the connection without a response."""


@dataclass(frozen=True)
class Fault:
    """How the next calls of a method fail."""

    method: str
    status: int = 503
    times: int = 1
    after_effect: bool = False
    """Whether the call takes effect before it fails."""
    drop: bool = False

    @property
    def error(self) -> Exception:
        """The exception to raise instead of a response."""
        if self.drop:
            return ConnectionDropped()
        text = "The rehearsal was told to fail this call (vertex-rehearsal fail)."
        return ApiError(STATUSES[self.status], text)


class Faults:
    """The planned faults, held in memory only."""

    def __init__(self, known: Collection[str]) -> None:
        self._known = known
        self._lock = threading.Lock()
        self._planned: list[Fault] = []

    def add_fault(self, fault: Fault) -> None:
        """Plan a fault for the next calls of a method, in place of an earlier one."""
        if fault.method not in self._known:
            close = difflib.get_close_matches(fault.method, self._known, n=1)
            suggestion = f"; did you mean {close[0]}?" if close else "; vertex-rehearsal methods lists them."
            raise invalid_argument("method", f"{fault.method} is no method{suggestion}")
        if fault.status not in STATUSES:
            raise invalid_argument("status", f"status must be one of {', '.join(map(str, STATUSES))}.")
        with self._lock:
            self._planned = [other for other in self._planned if other.method != fault.method]
            if fault.times > 0:
                self._planned.append(fault)

    def take_fault(self, names: Sequence[str]) -> Fault | None:
        """Return the fault planned for any of these names and count it as used once; None if there is none."""
        with self._lock:
            for index, fault in enumerate(self._planned):
                if fault.method in names:
                    remaining = replace(fault, times=fault.times - 1)
                    self._planned[index : index + 1] = [remaining] if remaining.times else []
                    return fault
        return None

    def list_faults(self) -> list[dict[str, Any]]:
        """Return the planned faults as JSON objects."""
        with self._lock:
            return [vars(fault) for fault in self._planned]
