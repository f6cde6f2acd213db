"""Cloud Logging's API: writes, lists and tails log entries."""

import base64
import json
import queue
import re
from collections.abc import Callable, Iterator
from typing import Any

from vertex_rehearsal import filters
from vertex_rehearsal.api.errors import invalid_argument, not_found_error
from vertex_rehearsal.api.messages import as_dict, fill_message, logging, protobuf
from vertex_rehearsal.api.methods import HttpRule
from vertex_rehearsal.logging.store import Logs

LOG_NAME = re.compile(r"(projects/[^/]+)/logs/[^/]+")
MOST_PER_PAGE = 1000
STEP_S = 0.5


class LoggingService:
    """The RPCs of google.logging.v2.LoggingServiceV2 about entries and logs."""

    RULES = {  # noqa: RUF012
        "WriteLogEntries": (HttpRule("POST", "/v2/entries:write", "*"),),
        "ListLogEntries": (HttpRule("POST", "/v2/entries:list", "*"),),
        "ListLogs": (HttpRule("GET", "/v2/{parent=projects/*}/logs"),),
        "DeleteLog": (HttpRule("DELETE", "/v2/{log_name=projects/*/logs/*}"),),
        "ListMonitoredResourceDescriptors": (HttpRule("GET", "/v2/monitoredResourceDescriptors"),),
    }
    """HTTP rules from the documentation; the Python library for Cloud Logging has no table of them."""
    LIMITS = {  # noqa: RUF012
        "ListLogEntries": "Filters know comparisons, AND, OR, NOT, words, log_id, SEARCH, ip_in_net and sample; "
        "neither cast nor regexp_extract.",
        "TailLogEntries": "Over gRPC; the filter of the first request holds for the whole call.",
    }

    def __init__(self, logs: Logs) -> None:
        self._logs = logs

    def write_log_entries(self, request: Any) -> Any:
        """Validate and store entries."""
        entries = []
        for number, entry in enumerate(request.entries):
            entry.log_name = entry.log_name or request.log_name
            if not LOG_NAME.fullmatch(entry.log_name):
                raise invalid_argument(
                    f"entries[{number}].log_name", f'"{entry.log_name}" is no log: projects/PROJECT/logs/LOG.'
                )
            if not entry.HasField("resource"):
                if request.HasField("resource"):
                    entry.resource.CopyFrom(request.resource)
                else:
                    entry.resource.type = "global"
            for key, value in request.labels.items():
                if key not in entry.labels:
                    entry.labels[key] = value
            try:
                entries.append(as_dict(entry))
            except TypeError as error:  # a payload of an unknown message type
                raise invalid_argument(f"entries[{number}].proto_payload", str(error)) from error
        if entries and not request.dry_run:
            self._logs.write(entries)
        return logging.WriteLogEntriesResponse()

    def list_log_entries(self, request: Any) -> Any:
        """Return a page of entries, oldest first by default."""
        newest_first = _parse_order(request.order_by)
        if not request.resource_names:
            raise invalid_argument("resource_names", "Required field is not set: resource_names.")
        projects = ["/".join(name.split("/")[:2]) for name in request.resource_names]
        if request.page_size < 0:
            raise invalid_argument("page_size", f"page_size must not be negative: {request.page_size}")
        size = min(request.page_size or 50, MOST_PER_PAGE)
        response = logging.ListLogEntriesResponse()
        after = _decode_page_start(request.page_token)
        matches = filters.parse_filter(request.filter, functions=filters.LOG_FUNCTIONS)
        position = after
        for next_position, entry in self._logs.find_entries(matches, projects, newest_first=newest_first, after=after):
            if len(response.entries) == size:
                response.next_page_token = base64.urlsafe_b64encode(json.dumps(position).encode()).decode()
                break
            fill_message(response.entries.add(), entry)
            position = next_position
        return response

    def tail_log_entries(self, requests: Iterator[Any], is_open: Callable[[], bool]) -> Iterator[Any]:
        """Stream new entries until the client closes the call."""
        first = next(requests)
        projects = ["/".join(name.split("/")[:2]) for name in first.resource_names]
        if not projects:
            raise invalid_argument("resource_names", "Required field is not set: resource_names.")
        with self._logs.follow_entries(
            filters.parse_filter(first.filter, functions=filters.LOG_FUNCTIONS)
        ) as entry_queue:
            while is_open():
                try:
                    entries = [entry_queue.get(timeout=STEP_S)]
                except queue.Empty:
                    continue
                while not entry_queue.empty() and len(entries) < MOST_PER_PAGE:
                    entries.append(entry_queue.get())
                response = logging.TailLogEntriesResponse()
                for entry in entries:
                    if entry["logName"].startswith(tuple(f"{project}/logs/" for project in projects)):
                        fill_message(response.entries.add(), entry)
                if response.entries:
                    yield response

    def list_logs(self, request: Any) -> Any:
        """Return the names of a project's logs."""
        return logging.ListLogsResponse(log_names=self._logs.list_names(request.parent))

    def delete_log(self, request: Any) -> Any:
        """Delete a log with all of its entries."""
        if not self._logs.delete_entries(request.log_name):
            raise not_found_error(request.log_name)
        return protobuf.Empty()

    def list_monitored_resource_descriptors(self, _: Any) -> Any:
        """Return the types of resources that entries here refer to."""
        response = logging.ListMonitoredResourceDescriptorsResponse()
        for kind, labels in (
            ("ml_job", ("job_id", "project_id", "task_name")),
            ("global", ("project_id",)),
            ("aiplatform.googleapis.com/Endpoint", ("endpoint_id", "location", "resource_container")),
        ):
            descriptor = response.resource_descriptors.add(type=kind)
            for label in labels:
                descriptor.labels.add(key=label)
        return response


def _parse_order(order: str) -> bool:
    if order.strip() not in ("", "timestamp", "timestamp asc", "timestamp desc"):
        raise invalid_argument("order_by", f'order_by must be "timestamp asc" or "timestamp desc", not "{order}".')
    return order.strip() == "timestamp desc"


def _decode_page_start(token: str) -> tuple[str, int] | None:
    if not token:
        return None
    try:
        moment, number = json.loads(base64.urlsafe_b64decode(token))
        position = str(moment), int(number)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:  # binascii's errors are ValueErrors
        raise invalid_argument("page_token", "The page token is invalid.") from error
    if not 0 <= position[1] < 2**63:
        raise invalid_argument("page_token", "The page token is invalid.")
    return position
