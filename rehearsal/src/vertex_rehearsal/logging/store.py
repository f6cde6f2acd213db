"""Storage of log entries: written, listed by filter, and followed as they arrive."""

import json
import queue
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from vertex_rehearsal.database import Database
from vertex_rehearsal.filters import SEVERITIES, Comparison, Filter, parse_timestamp

MOST_WAITING = 100_000
"""Limit of a follower's queue; entries beyond it are dropped for that follower."""


class Logs:
    """The log entries of all jobs and clients."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._followers: list[tuple[Filter, queue.Queue[dict[str, Any]]]] = []
        self._lock = threading.Lock()

    def write_lines(
        self, lines: Sequence[str], *, job: str, task: str, project: str, region: str, severity: str, trial: str = ""
    ) -> None:
        """Write a replica's output as Vertex AI does: a line that is a JSON object becomes the payload."""
        labels = {
            "compute.googleapis.com/zone": f"{region}-a",
            "ml.googleapis.com/job_id": job,
            "ml.googleapis.com/job_id/log_area": "root",
            "ml.googleapis.com/trial_id": trial,
            "ml.googleapis.com/trial_type": "",
            "ml.googleapis.com/tpu_worker_id": "",
        }
        self.write([{**_build_entry(line, project, task, severity, job), "labels": labels} for line in lines])

    def write_note(self, text: str, *, job: str, project: str, severity: str = "INFO") -> None:
        """Write a message of the service itself about a job."""
        log = f"ml.googleapis.com%2F{job}"
        self.write([{**_build_heading(project, "service", severity, job, log=log), "textPayload": text}])

    def write(self, entries: Sequence[dict[str, Any]]) -> None:
        """Store entries; one whose log, timestamp and insertId are known is a duplicate and is ignored."""
        now = _format_now()
        for entry in entries:
            entry.setdefault("timestamp", now)
            entry.setdefault("receiveTimestamp", now)
            entry.setdefault("insertId", secrets.token_hex(8))
            entry.setdefault("severity", "DEFAULT")
        rows = [
            (
                entry["logName"],
                entry.get("resource", {}).get("labels", {}).get("job_id", ""),
                _to_sortable_time(entry["timestamp"]),
                entry["insertId"],
                json.dumps(entry),
            )
            for entry in entries
        ]
        statement = "INSERT OR IGNORE INTO entries (log, job, moment, insert_id, content) VALUES (?, ?, ?, ?, ?)"
        self._database.run_many(statement, rows)
        with self._lock:
            for matches, entry_queue in self._followers:
                for entry in entries:
                    if matches(entry) and entry_queue.qsize() < MOST_WAITING:
                        entry_queue.put(entry)

    def find_entries(
        self, matches: Filter, projects: Sequence[str], *, newest_first: bool, after: tuple[str, int] | None
    ) -> Iterator[tuple[tuple[str, int], dict[str, Any]]]:
        """Iterate over the matching entries of projects by time, each with its position for the next page."""
        where, values = _build_conditions(matches.always)
        direction, comparator = ("DESC", "<") if newest_first else ("ASC", ">")
        while True:
            clauses, parameters = list(where), list[str | int](values)
            if after is not None:
                clauses.append(f"(moment, number) {comparator} (?, ?)")
                parameters += after
            rows = self._database.run(
                f"SELECT moment, number, log, content FROM entries WHERE {' AND '.join(clauses) or '1'} "  # noqa: S608
                f"ORDER BY moment {direction}, number {direction} LIMIT 1000",
                parameters,
            )
            for moment, number, log, content in rows:
                after = (moment, number)
                entry = json.loads(content)
                if any(log.startswith(f"{project}/logs/") for project in projects) and matches(entry):
                    yield after, entry
            if len(rows) < 1000:
                return

    def list_names(self, project: str) -> list[str]:
        """Return the logs of a project."""
        rows = self._database.run("SELECT DISTINCT log FROM entries ORDER BY log")
        return [log for (log,) in rows if log.startswith(f"{project}/logs/")]

    def delete_entries(self, log: str) -> int:
        """Delete a log and return the number of its entries."""
        count = self._database.run("SELECT count(*) FROM entries WHERE log = ?", (log,))[0][0]
        self._database.run("DELETE FROM entries WHERE log = ?", (log,))
        return int(count)

    @contextmanager
    def follow_entries(self, matches: Filter) -> Iterator["queue.Queue[dict[str, Any]]"]:
        """Yield a queue that receives every new entry that matches."""
        follower = (matches, queue.Queue[dict[str, Any]]())
        with self._lock:
            self._followers.append(follower)
        try:
            yield follower[1]
        finally:
            with self._lock:
                self._followers.remove(follower)


def _parse_object(line: str) -> dict[str, Any] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def parse_line(line: str, severity: str) -> dict[str, Any]:
    """Return severity and payload of an output line; a JSON object is the payload and may set the severity."""
    payload = _parse_object(line)
    if payload is None:
        payload = {"message": line}
    requested = str(payload.pop("severity", severity)).upper()
    severity = requested if requested in SEVERITIES else severity
    payload.setdefault("levelname", severity)
    return {"severity": severity, "jsonPayload": payload}


def _build_entry(line: str, project: str, task: str, severity: str, job: str) -> dict[str, Any]:
    entry = parse_line(line, severity)
    entry["jsonPayload"].setdefault("attrs", {"tag": task})
    return {**_build_heading(project, task, entry["severity"], job), **entry}


def _build_heading(project: str, task: str, severity: str, job: str, *, log: str = "") -> dict[str, Any]:
    labels = {"job_id": job, "project_id": project, "task_name": task}
    return {
        "logName": f"projects/{project}/logs/{log or task}",
        "severity": severity,
        "timestamp": _format_now(),
        "resource": {"type": "ml_job", "labels": labels},
    }


def _format_now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _to_sortable_time(stamp: str) -> str:
    """Return a timestamp in a format whose lexical order is that of time."""
    return parse_timestamp(stamp).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _build_conditions(always: Sequence[Comparison]) -> tuple[list[str], list[str]]:
    """Return SQL conditions on indexed columns, from the comparisons that every entry must pass."""
    where, values = [], []
    for comparison in always:
        if comparison.field == "resource.labels.job_id" and comparison.operator == "=":
            where.append("job = ?")
            values.append(comparison.value)
        if comparison.field == "timestamp" and comparison.operator in (">", ">=", "<", "<="):
            where.append(f"moment {comparison.operator[0]}= ?")
            values.append(_to_sortable_time(comparison.value))
    return where, values
