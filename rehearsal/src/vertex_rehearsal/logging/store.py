"""Log entries as Cloud Logging keeps them: written, listed by filter, and followed as they come."""

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
"""Entries that a follower may be behind; one that does not read loses the rest."""


class Logs:
    """The log of a rehearsal."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._followers: list[tuple[Filter, queue.Queue[dict[str, Any]]]] = []
        self._lock = threading.Lock()

    def write_lines(
        self, lines: Sequence[str], *, job: str, task: str, project: str, region: str, severity: str, trial: str = ""
    ) -> None:
        """What a replica printed, as Vertex AI writes it down: an object of JSON is its own payload."""
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
        """What the service itself has to say about a job."""
        log = f"ml.googleapis.com%2F{job}"
        self.write([{**_build_heading(project, "service", severity, job, log=log), "textPayload": text}])

    def write(self, entries: Sequence[dict[str, Any]]) -> None:
        """Keep entries; one with the log, timestamp and insertId of another is the same entry."""
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
            for passes, waiting in self._followers:
                for entry in entries:
                    if passes(entry) and waiting.qsize() < MOST_WAITING:
                        waiting.put(entry)

    def find_entries(
        self, passes: Filter, projects: Sequence[str], *, newest_first: bool, after: tuple[str, int] | None
    ) -> Iterator[tuple[tuple[str, int], dict[str, Any]]]:
        """Entries of these projects in the order of time, each with the place to go on after."""
        where, values = _build_conditions(passes.always)
        direction, beyond = ("DESC", "<") if newest_first else ("ASC", ">")
        while True:
            clauses, given = list(where), list[str | int](values)
            if after is not None:
                clauses.append(f"(moment, number) {beyond} (?, ?)")
                given += after
            rows = self._database.run(
                f"SELECT moment, number, log, content FROM entries WHERE {' AND '.join(clauses) or '1'} "  # noqa: S608
                f"ORDER BY moment {direction}, number {direction} LIMIT 1000",
                given,
            )
            for when, number, log, content in rows:
                after = (when, number)
                entry = json.loads(content)
                if any(log.startswith(f"{project}/logs/") for project in projects) and passes(entry):
                    yield after, entry
            if len(rows) < 1000:
                return

    def list_names(self, project: str) -> list[str]:
        """The logs of a project."""
        rows = self._database.run("SELECT DISTINCT log FROM entries ORDER BY log")
        return [log for (log,) in rows if log.startswith(f"{project}/logs/")]

    def delete_entries(self, log: str) -> int:
        """Forget a log; how many entries it had."""
        count = self._database.run("SELECT count(*) FROM entries WHERE log = ?", (log,))[0][0]
        self._database.run("DELETE FROM entries WHERE log = ?", (log,))
        return int(count)

    @contextmanager
    def follow_entries(self, passes: Filter) -> Iterator["queue.Queue[dict[str, Any]]"]:
        """A queue that gets every new entry that passes."""
        follower = (passes, queue.Queue[dict[str, Any]]())
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
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def parse_line(line: str, severity: str) -> dict[str, Any]:
    """What an entry says of a printed line: an object of JSON is its own payload, and may name its severity."""
    payload = _parse_object(line)
    if payload is None:
        payload = {"message": line}
    named = str(payload.pop("severity", severity)).upper()
    severity = named if named in SEVERITIES else severity
    payload.setdefault("levelname", severity)
    return {"severity": severity, "jsonPayload": payload}


def _build_entry(line: str, project: str, task: str, severity: str, job: str) -> dict[str, Any]:
    found = parse_line(line, severity)
    found["jsonPayload"].setdefault("attrs", {"tag": task})
    return {**_build_heading(project, task, found["severity"], job), **found}


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
    """One form for every moment, so that their texts have their order."""
    return parse_timestamp(stamp).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _build_conditions(always: Sequence[Comparison]) -> tuple[list[str], list[str]]:
    """Conditions that the index knows, from the comparisons that every entry must pass."""
    where, values = [], []
    for comparison in always:
        if comparison.field == "resource.labels.job_id" and comparison.operator == "=":
            where.append("job = ?")
            values.append(comparison.value)
        if comparison.field == "timestamp" and comparison.operator in (">", ">=", "<", "<="):
            where.append(f"moment {comparison.operator[0]}= ?")
            values.append(_to_sortable_time(comparison.value))
    return where, values
