"""JSON API of the emulator's console: resources, log entries, buckets and objects, in pages."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from vertex_rehearsal.api.errors import invalid_argument
from vertex_rehearsal.api.messages import as_dict, message_class
from vertex_rehearsal.cloud_storage.listing import Query
from vertex_rehearsal.cloud_storage.records import format_rfc3339
from vertex_rehearsal.execution.queue import JobQueue
from vertex_rehearsal.filters import SEVERITIES

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

RESOURCES_PER_PAGE = 50
ENTRIES_PER_PAGE = 500
OBJECTS_PER_PAGE = 200
SCAN_ROWS = 10_000
"""Entries scanned by one query."""
IN_LISTS = (
    "name", "displayName", "state", "createTime", "startTime", "endTime", "updateTime", "error", "versionId",
    "trafficSplit",
)  # fmt: skip
"""Fields of a resource in lists; large ones, as a pipeline's specification or trials, are left to `get_resource`."""
MACHINES = ("machineSpec", "machine_spec")
COUNTS = ("replicaCount", "replica_count", "startingReplicaCount", "minReplicaCount")


class ConsoleApi:
    """Read-only queries of the emulator's state."""

    def __init__(self, context: "Context", queue: "JobQueue[Any]") -> None:
        self._context = context
        self._store = context.store
        self._queue = queue
        self._run = context.database.run

    def get_overview(self) -> dict[str, Any]:
        """Return the number of resources of each kind, the running and queued jobs, and the state directory."""
        counts: dict[str, int] = {}
        for collection, count in self._run("SELECT collection, count(*) FROM resources GROUP BY collection"):
            kind = collection.rpartition("/")[2]
            counts[kind] = counts.get(kind, 0) + count
        directory = str(self._context.settings.directory)
        return {"counts": counts, "jobs": self._queue.count_jobs(), "directory": directory}

    def list_resources(self, kind: str, *, text: str = "", before: int | None = None) -> dict[str, Any]:
        """Return a page of resources of a kind in all projects, newest first; `before` is the last `next`."""
        collections = [
            collection
            for (collection,) in self._run("SELECT DISTINCT collection FROM resources")
            if collection.rpartition("/")[2] == kind
        ]
        items: list[dict[str, Any]] = []
        for number, message in self._iter_resources(collections, before):
            if text.lower() in _join_search_text(message).lower():
                if len(items) == RESOURCES_PER_PAGE:
                    return {"items": items, "next": items[-1]["number"]}
                items.append({"number": number, **_summarize_resource(as_dict(message))})
        return {"items": items, "next": None}

    def _iter_resources(self, collections: Sequence[str], before: int | None) -> Iterator[tuple[int, Any]]:
        """Iterate over the resources of these collections, newest first, in batches."""
        marks = ", ".join("?" * len(collections))
        while True:
            rows = self._run(
                f"SELECT number, type, content FROM resources WHERE collection IN ({marks}) AND number < ? "  # noqa: S608
                "ORDER BY number DESC LIMIT 200",
                (*collections, 2**62 if before is None else before),
            )
            for number, kind, content in rows:
                before = number
                yield number, message_class(kind).FromString(content)
            if len(rows) < 200:
                return

    def get_resource(self, name: str) -> dict[str, Any]:
        """Return a resource, or the newest of its versions (NAME@1, ...), and the machines that it requests."""
        versions = (f"{name}@", f"{name}A")  # A comes after @
        newest = "SELECT name FROM resources WHERE name > ? AND name < ? ORDER BY number DESC LIMIT 1"
        rows = self._run("SELECT name FROM resources WHERE name = ?", (name,)) or self._run(newest, versions)
        content = as_dict(self._context.database.get(rows[0][0] if rows else name))
        return {"content": content, "machines": list(iter_machines(content))}

    def list_entries(
        self,
        *,
        about: str = "",
        severity: str = "",
        text: str = "",
        after: int | None = None,
        before: tuple[str, int] | None = None,
    ) -> dict[str, Any]:
        """Return the newest matching log entries, oldest first; optionally after a number or before a position."""
        last = self._run("SELECT coalesce(max(number), 0) FROM entries")[0][0]
        is_job = bool(about and self._run("SELECT 1 FROM entries WHERE job = ? LIMIT 1", (about,)))
        clauses, parameters = ["number <= ?"], [last]
        if is_job:
            # With `after`, the unary plus keeps SQLite from using the index on `job`: the range of numbers is faster.
            clauses.append("job = ?" if after is None else "+job = ?")
            parameters.append(about)
        if after is not None:
            clauses.append("number > ?")
            parameters.append(after)
        content_condition = _build_conditions("" if is_job else about, severity, text)
        order = ("moment", "number") if after is None else ("number",)
        rows = list(
            islice(self._iter_entries(clauses, parameters, content_condition, order, before), ENTRIES_PER_PAGE + 1)
        )
        more, rows = len(rows) > ENTRIES_PER_PAGE, rows[:ENTRIES_PER_PAGE]
        entries = [
            {"number": number, "moment": moment, **_format_entry(json.loads(content))}
            for number, moment, content in reversed(rows)
        ]
        return {"entries": entries, "last": last, "more": more}

    def _iter_entries(
        self,
        clauses: list[str],
        parameters: list[Any],
        content_condition: tuple[str, list[Any]],
        order: tuple[str, ...],
        before: tuple[str, int] | None,
    ) -> Iterator[tuple[int, str, str]]:
        """Iterate over number, moment and content of matching entries, in queries short enough not to block others."""
        limit = ENTRIES_PER_PAGE + 1
        position: tuple[Any, ...] | None = before
        while True:
            range_conditions = (
                [f"({', '.join(order)}) < ({', '.join('?' * len(order))})"] if position is not None else []
            )
            rows = self._run(
                f"SELECT number, moment, CASE WHEN {content_condition[0]} THEN content END FROM entries "  # noqa: S608
                f"WHERE {' AND '.join([*clauses, *range_conditions])} "
                f"ORDER BY {', '.join(f'{name} DESC' for name in order)} "
                f"LIMIT {limit}",
                (*content_condition[1], *parameters, *(position or ())),
            )
            yield from (row for row in rows if row[2] is not None)
            if len(rows) < limit:
                return
            number, moment, _ = rows[-1]
            position = tuple({"moment": moment, "number": number}[name] for name in order)
            limit = SCAN_ROWS

    def list_buckets(self, *, after: str = "") -> dict[str, Any]:
        """Return a page of the buckets of all projects by name; `after` is the `next` of the previous page."""
        buckets = self._store.list_buckets(None, after=after, limit=OBJECTS_PER_PAGE + 1)
        items = [
            {
                "name": bucket.name,
                "project": bucket.project,
                "created": format_rfc3339(bucket.created),
                "location": bucket.settings.get("location", "US"),
                "class": bucket.default_class,
                "versions": bucket.is_versioned,
            }
            for bucket in buckets[:OBJECTS_PER_PAGE]
        ]
        return {"items": items, "next": items[-1]["name"] if len(buckets) > OBJECTS_PER_PAGE else ""}

    def list_objects(self, bucket: str, *, prefix: str = "", page: str = "") -> dict[str, Any]:
        """Return a page of a folder: its subfolders and objects."""
        query = Query(bucket, prefix=prefix, delimiter="/", limit=OBJECTS_PER_PAGE, page_token=page)
        object_page = self._store.list_objects(query)
        objects = [
            {
                "name": item.name,
                "size": item.size,
                "generation": str(item.generation),
                "updated": format_rfc3339(item.updated),
                "type": item.settings.get("contentType", ""),
            }
            for item in object_page.items
        ]
        return {"folders": object_page.prefixes, "objects": objects, "next": object_page.next_token}


def _build_conditions(about: str, severity: str, text: str) -> tuple[str, list[Any]]:
    """Return an SQL condition on the content of entries, and its parameters."""
    clauses: list[str] = []
    parameters: list[Any] = []
    if about:
        clauses.append("instr(content, ?) > 0")
        parameters.append(json.dumps(about))  # the id of an endpoint is the value of a label, in quotes
    if severity:
        if severity not in SEVERITIES:
            raise invalid_argument("severity", f"{severity} is no severity: {', '.join(SEVERITIES)} are.")
        names = [name for name, rank in SEVERITIES.items() if rank >= SEVERITIES[severity]]
        clauses.append(f"json_extract(content, '$.severity') IN ({', '.join('?' * len(names))})")
        parameters += names
    if text:
        clauses.append("instr(lower(content), lower(?)) > 0")
        parameters.append(json.dumps(text)[1:-1])  # escaped as within JSON
    return " AND ".join(clauses) or "1", parameters


def iter_machines(content: Any) -> Iterator[dict[str, Any]]:
    """Iterate over all machine specifications in a resource, at any depth."""
    if isinstance(content, Mapping):
        for key in MACHINES:
            if isinstance(spec := content.get(key), Mapping):
                count = next((content[name] for name in COUNTS if name in content), 1)  # 64-bit integers are strings
                yield {"count": f"{float(count):g}", **{_camel_case(name): value for name, value in spec.items()}}
        for value in content.values():
            yield from iter_machines(value)
    elif isinstance(content, list):
        for value in content:
            yield from iter_machines(value)


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _join_search_text(message: Any) -> str:
    """Return the text that a search looks at: names and state."""
    state = message.DESCRIPTOR.fields_by_name.get("state")
    shown = state.enum_type.values_by_number[message.state].name if state is not None else ""
    return f"{getattr(message, 'display_name', '')} {message.name} {shown}"


def _summarize_resource(content: dict[str, Any]) -> dict[str, Any]:
    summary = {key: content[key] for key in IN_LISTS if key in content}
    summary["machines"] = list(iter_machines(content))
    summary["trials"] = len(content.get("trials", ()))
    summary["deployedModels"] = [
        {key: model[key] for key in ("id", "displayName", "model") if key in model}
        for model in content.get("deployedModels", ())
    ]
    return summary


def _format_entry(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return a log entry as a line of the log view."""
    labels = entry.get("resource", {}).get("labels", {})
    payload = entry.get("jsonPayload", entry.get("protoPayload", {}))
    text = entry.get("textPayload", payload.get("message"))
    if not isinstance(text, str):
        text = json.dumps(payload, ensure_ascii=False)
    log = unquote(entry["logName"]).rpartition("/")[2]
    return {
        "severity": entry["severity"],
        "job": labels.get("job_id", ""),
        "from": labels.get("task_name", log),
        "text": text,
    }
