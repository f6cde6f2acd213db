"""Long-running operations: returned at once, finished in the background, stored in the database."""

import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from vertex_rehearsal.api.errors import ApiError, invalid_argument
from vertex_rehearsal.api.messages import longrunning, protobuf
from vertex_rehearsal.database import Database

LONGEST_WAIT_S = 60.0


def new_id() -> str:
    """Return a new numeric id like Vertex AI's."""
    return str(10**18 + secrets.randbelow(8 * 10**18))


class Operations:
    """The emulator's operations and their RPCs."""

    LIMITS = {"CancelOperation": "An operation that has begun is finished all the same."}  # noqa: RUF012

    def __init__(self, database: Database, report_bug: Callable[[BaseException], None]) -> None:
        self._database = database
        self._report_bug = report_bug
        self._finished = threading.Condition()

    def start_operation(self, parent: str, metadata: Any, work: Callable[[], Any]) -> Any:
        """Start an operation whose work, which returns a message, runs in its own thread."""
        operation = self._create_operation(parent, metadata)
        threading.Thread(target=self._run_work, args=(operation.name, work), daemon=True).start()
        return operation

    def done(self, parent: str, metadata: Any, work: Callable[[], Any]) -> Any:
        """Return a finished operation."""
        operation = self._create_operation(parent, metadata)
        self._run_work(operation.name, work)
        return self._database.get(operation.name)

    def wait_for(self, name: str, patience_s: float) -> Any:
        """Wait until an operation is done or the timeout passes, and return it."""
        until = time.monotonic() + patience_s
        with self._finished:
            while True:
                operation = self._database.get(name)
                left_s = until - time.monotonic()
                if operation.done or left_s <= 0:
                    return operation
                self._finished.wait(left_s)

    def give_up(self, reason: str) -> None:
        """Fail the operations that an earlier process left unfinished."""
        for operation in self._database.list_all("google.longrunning.Operation"):
            if not operation.done:
                with self._database.change(operation.name) as kept:
                    kept.done = True
                    kept.error.CopyFrom(ApiError("ABORTED", reason).status())

    def get_operation(self, request: Any) -> Any:
        """Return an operation in its current state."""
        return self._database.get(request.name)

    def wait_operation(self, request: Any) -> Any:
        """Wait until an operation is done or the requested timeout passes, and return it."""
        asked_s = request.timeout.ToTimedelta().total_seconds() if request.HasField("timeout") else LONGEST_WAIT_S
        return self.wait_for(request.name, min(asked_s, LONGEST_WAIT_S))

    def list_operations(self, request: Any) -> Any:
        """Return the operations of a resource, newest first."""
        operations, token = self._database.list_page(f"{request.name}/operations", request)
        return longrunning.ListOperationsResponse(operations=operations, next_page_token=token)

    def cancel_operation(self, request: Any) -> Any:
        """Accept a cancellation, which is best effort: an operation that has begun is finished."""
        self._database.get(request.name)
        return protobuf.Empty()

    def delete_operation(self, request: Any) -> Any:
        """Delete an operation that is done."""
        if not self._database.get(request.name).done:
            raise ApiError("FAILED_PRECONDITION", f"The operation '{request.name}' is not done.")
        self._database.remove(request.name)
        return protobuf.Empty()

    def _create_operation(self, parent: str, metadata: Any) -> Any:
        if not parent:
            raise invalid_argument("name", "The resource's name is empty.")
        metadata.generic_metadata.create_time.GetCurrentTime()
        metadata.generic_metadata.update_time.GetCurrentTime()
        operation = longrunning.Operation(name=f"{parent}/operations/{new_id()}")
        operation.metadata.Pack(metadata)
        self._database.add(operation)
        return operation

    def _run_work(self, name: str, work: Callable[[], Any]) -> None:
        response, problem = None, None
        try:
            response = work()
        except ApiError as found:
            problem = found
        except Exception as error:
            self._report_bug(error)
            problem = ApiError("INTERNAL", f"{type(error).__name__}: {error}")
        with self._database.change(name) as operation:
            operation.done = True
            if problem:
                operation.error.CopyFrom(problem.status())
            else:
                operation.response.Pack(response)
        with self._finished:
            self._finished.notify_all()
