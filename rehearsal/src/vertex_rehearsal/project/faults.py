"""Faults: calls that fail because somebody has asked for it, to see what a client makes of it."""

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
    """The connection is to be closed without an answer."""


@dataclass(frozen=True)
class Fault:
    """How the next calls of a method fail."""

    method: str
    status: int = 503
    times: int = 1
    after_effect: bool = False
    """The call is performed, and its caller does not learn of it."""
    drop: bool = False

    @property
    def error(self) -> Exception:
        """What is raised instead of an answer."""
        if self.drop:
            return ConnectionDropped()
        text = "The rehearsal was told to fail this call (vertex-rehearsal fail)."
        return ApiError(STATUSES[self.status], text)


class Faults:
    """The faults that are still to come; they are forgotten with the process."""

    def __init__(self, known: Collection[str]) -> None:
        self._known = known
        self._lock = threading.Lock()
        self._planned: list[Fault] = []

    def add_fault(self, fault: Fault) -> None:
        """Let the next calls fail; a fault planned before for the same method is forgotten."""
        if fault.method not in self._known:
            close = difflib.get_close_matches(fault.method, self._known, n=1)
            meant = f"; did you mean {close[0]}?" if close else "; vertex-rehearsal methods lists them."
            raise invalid_argument("method", f"{fault.method} is no method{meant}")
        if fault.status not in STATUSES:
            raise invalid_argument("status", f"status must be one of {', '.join(map(str, STATUSES))}.")
        with self._lock:
            self._planned = [one for one in self._planned if one.method != fault.method]
            if fault.times > 0:
                self._planned.append(fault)

    def take_fault(self, names: Sequence[str]) -> Fault | None:
        """The fault of a call that is known by any of these names, which has then happened once more."""
        with self._lock:
            for place, fault in enumerate(self._planned):
                if fault.method in names:
                    left = replace(fault, times=fault.times - 1)
                    self._planned[place : place + 1] = [left] if left.times else []
                    return fault
        return None

    def list_faults(self) -> list[dict[str, Any]]:
        """What is still to come, as values of JSON."""
        with self._lock:
            return [vars(fault) for fault in self._planned]
