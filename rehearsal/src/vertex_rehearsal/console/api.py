"""What the rehearsal's page shows, as values of JSON: resources, log entries, buckets and objects, a page at a time."""

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
STRETCH = 10_000
"""Entries that are searched at once."""
IN_LISTS = (
    "name", "displayName", "state", "createTime", "startTime", "endTime", "updateTime", "error", "versionId",
    "trafficSplit",
)  # fmt: skip
"""What a list shows of a resource as it is; a pipeline's specification or a thousand trials are read one at a time."""
MACHINES = ("machineSpec", "machine_spec")
COUNTS = ("replicaCount", "replica_count", "startingReplicaCount", "minReplicaCount")


class ConsoleApi:
    """Looks things up in what is kept, and changes nothing."""

    def __init__(self, context: "Context", queue: "JobQueue[Any]") -> None:
        self._context = context
        self._store = context.store
        self._queue = queue
        self._run = context.database.run

    def get_overview(self) -> dict[str, Any]:
        """How many resources of each kind there are, and what is going on."""
        counts: dict[str, int] = {}
        for collection, count in self._run("SELECT collection, count(*) FROM resources GROUP BY collection"):
            kind = collection.rpartition("/")[2]
            counts[kind] = counts.get(kind, 0) + count
        directory = str(self._context.settings.directory)
        return {"counts": counts, "jobs": self._queue.count_jobs(), "directory": directory}

    def list_resources(self, kind: str, *, text: str = "", before: int | None = None) -> dict[str, Any]:
        """A page of a kind's resources in all projects, newest first; `before` is the `next` of the page before."""
        collections = [
            collection
            for (collection,) in self._run("SELECT DISTINCT collection FROM resources")
            if collection.rpartition("/")[2] == kind
        ]
        found: list[dict[str, Any]] = []
        for number, message in self._iter_resources(collections, before):
            if text.lower() in _join_search_text(message).lower():
                if len(found) == RESOURCES_PER_PAGE:
                    return {"items": found, "next": found[-1]["number"]}
                found.append({"number": number, **_summarize_resource(as_dict(message))})
        return {"items": found, "next": None}

    def _iter_resources(self, collections: Sequence[str], before: int | None) -> Iterator[tuple[int, Any]]:
        """All resources of these collections, read a few at a time."""
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
        """One resource in full, or the newest of its versions (NAME@1, ...), and the machines that it asks for."""
        versions = (f"{name}@", f"{name}A")  # A comes after @
        newest = "SELECT name FROM resources WHERE name > ? AND name < ? ORDER BY number DESC LIMIT 1"
        kept = self._run("SELECT name FROM resources WHERE name = ?", (name,)) or self._run(newest, versions)
        content = as_dict(self._context.database.get(kept[0][0] if kept else name))
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
        """The newest log entries that pass, oldest first: of all, after a number, or before a place."""
        last = self._run("SELECT coalesce(max(number), 0) FROM entries")[0][0]
        is_job = bool(about and self._run("SELECT 1 FROM entries WHERE job = ? LIMIT 1", (about,)))
        clauses, given = ["number <= ?"], [last]
        if is_job:
            # What came after a number is found by it, quickly however long the log is: a plus keeps sqlite to that.
            clauses.append("job = ?" if after is None else "+job = ?")
            given.append(about)
        if after is not None:
            clauses.append("number > ?")
            given.append(after)
        passes = _build_conditions("" if is_job else about, severity, text)
        order = ("moment", "number") if after is None else ("number",)
        rows = list(islice(self._iter_entries(clauses, given, passes, order, before), ENTRIES_PER_PAGE + 1))
        more, rows = len(rows) > ENTRIES_PER_PAGE, rows[:ENTRIES_PER_PAGE]
        shown = [
            {"number": number, "moment": moment, **_format_entry(json.loads(content))}
            for number, moment, content in reversed(rows)
        ]
        return {"entries": shown, "last": last, "more": more}

    def _iter_entries(
        self,
        clauses: list[str],
        given: list[Any],
        passes: tuple[str, list[Any]],
        order: tuple[str, ...],
        before: tuple[str, int] | None,
    ) -> Iterator[tuple[int, str, str]]:
        """Number, moment and content of those that pass, a stretch at a time: a long search holds up nobody else."""
        stretch = ENTRIES_PER_PAGE + 1
        place: tuple[Any, ...] | None = before
        while True:
            beyond = [f"({', '.join(order)}) < ({', '.join('?' * len(order))})"] if place is not None else []
            rows = self._run(
                f"SELECT number, moment, CASE WHEN {passes[0]} THEN content END FROM entries "  # noqa: S608
                f"WHERE {' AND '.join([*clauses, *beyond])} ORDER BY {', '.join(f'{name} DESC' for name in order)} "
                f"LIMIT {stretch}",
                (*passes[1], *given, *(place or ())),
            )
            yield from (row for row in rows if row[2] is not None)
            if len(rows) < stretch:
                return
            number, moment, _ = rows[-1]
            place = tuple({"moment": moment, "number": number}[name] for name in order)
            stretch = STRETCH

    def list_buckets(self, *, after: str = "") -> dict[str, Any]:
        """A page of the buckets of all projects, by their names; `after` is the `next` of the page before."""
        found = self._store.list_buckets(None, after=after, limit=OBJECTS_PER_PAGE + 1)
        items = [
            {
                "name": bucket.name,
                "project": bucket.project,
                "created": format_rfc3339(bucket.created),
                "location": bucket.settings.get("location", "US"),
                "class": bucket.default_class,
                "versions": bucket.is_versioned,
            }
            for bucket in found[:OBJECTS_PER_PAGE]
        ]
        return {"items": items, "next": items[-1]["name"] if len(found) > OBJECTS_PER_PAGE else ""}

    def list_objects(self, bucket: str, *, prefix: str = "", page: str = "") -> dict[str, Any]:
        """A page of a folder: the folders in it, and its objects."""
        query = Query(bucket, prefix=prefix, delimiter="/", limit=OBJECTS_PER_PAGE, page_token=page)
        found = self._store.list_objects(query)
        objects = [
            {
                "name": item.name,
                "size": item.size,
                "generation": str(item.generation),
                "updated": format_rfc3339(item.updated),
                "type": item.settings.get("contentType", ""),
            }
            for item in found.items
        ]
        return {"folders": found.prefixes, "objects": objects, "next": found.next_token}


def _build_conditions(about: str, severity: str, text: str) -> tuple[str, list[Any]]:
    """What an entry's content has to be, as sqlite is asked."""
    clauses: list[str] = []
    given: list[Any] = []
    if about:
        clauses.append("instr(content, ?) > 0")
        given.append(json.dumps(about))  # the id of an endpoint is the value of a label, in quotes
    if severity:
        if severity not in SEVERITIES:
            raise invalid_argument("severity", f"{severity} is no severity: {', '.join(SEVERITIES)} are.")
        wanted = [name for name, rank in SEVERITIES.items() if rank >= SEVERITIES[severity]]
        clauses.append(f"json_extract(content, '$.severity') IN ({', '.join('?' * len(wanted))})")
        given += wanted
    if text:
        clauses.append("instr(lower(content), lower(?)) > 0")
        given.append(json.dumps(text)[1:-1])  # as it is written inside of JSON
    return " AND ".join(clauses) or "1", given


def iter_machines(content: Any) -> Iterator[dict[str, Any]]:
    """Every machine that a resource asks for, wherever it says so."""
    if isinstance(content, Mapping):
        for key in MACHINES:
            if isinstance(spec := content.get(key), Mapping):
                count = next((content[name] for name in COUNTS if name in content), 1)  # JSON has 64 bits as text
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
    """What a search looks at: the names and the state."""
    state = message.DESCRIPTOR.fields_by_name.get("state")
    shown = state.enum_type.values_by_number[message.state].name if state is not None else ""
    return f"{getattr(message, 'display_name', '')} {message.name} {shown}"


def _summarize_resource(content: dict[str, Any]) -> dict[str, Any]:
    shown = {key: content[key] for key in IN_LISTS if key in content}
    shown["machines"] = list(iter_machines(content))
    shown["trials"] = len(content.get("trials", ()))
    shown["deployedModels"] = [
        {key: model[key] for key in ("id", "displayName", "model") if key in model}
        for model in content.get("deployedModels", ())
    ]
    return shown


def _format_entry(entry: Mapping[str, Any]) -> dict[str, str]:
    """An entry as a line of a log."""
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
