"""The log of a build, streamed to a bucket and to Cloud Logging."""

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from vertex_rehearsal.other_services.build_specs import read_logging

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

EVERY_S = 1.0
"""Shortest interval between rewrites of the object in the bucket."""


class BuildLog:
    """Writes the lines of one build; a context manager that writes the rest on exit."""

    def __init__(self, context: "Context", build: Mapping[str, Any]) -> None:
        self._context = context
        self._build = build
        self._logging = read_logging(build)
        self._lines: list[str] = []
        self._written_lines = 0
        self._next_write = 0.0
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._write_object()

    def write_lines(self, *texts: str) -> None:
        """Append lines to the log."""
        lines = [line for text in texts for line in text.split("\n")]
        if self._logging not in ("GCS_ONLY", "NONE"):
            labels = {"build_id": self._build["id"], "project_id": self._build["projectId"], "build_trigger_id": ""}
            name = f"projects/{self._build['projectId']}/logs/cloudbuild"
            heading = {"logName": name, "resource": {"type": "build", "labels": labels}, "severity": "INFO"}
            self._context.logs.write([{**heading, "textPayload": line} for line in lines])
        with self._lock:
            self._lines += lines
            if time.monotonic() >= self._next_write:
                self._write_object()

    def _write_object(self) -> None:
        """Write the whole log as one object, since objects cannot be appended to."""
        if not self._build["logsBucket"] or self._written_lines == len(self._lines):
            return
        bucket, _, prefix = self._build["logsBucket"].removeprefix("gs://").partition("/")
        name = f"{prefix.rstrip('/')}/log-{self._build['id']}.txt".lstrip("/")
        content = "".join(f"{line}\n" for line in self._lines).encode()
        store = self._context.store
        store.put(
            bucket, name, store.files.stage_content([content]), settings={"contentType": "text/plain; charset=utf-8"}
        )
        self._written_lines = len(self._lines)
        self._next_write = time.monotonic() + EVERY_S
