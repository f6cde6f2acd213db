"""The emulator's sqlite database: resources, operations, log entries and points, kept across restarts."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from vertex_rehearsal import listing
from vertex_rehearsal.api.errors import ApiError, invalid_argument, not_found_error
from vertex_rehearsal.api.messages import message_class
from vertex_rehearsal.errors import EmulatorUnavailable

SCHEMA = """
CREATE TABLE IF NOT EXISTS resources (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    collection TEXT NOT NULL,
    type TEXT NOT NULL,
    content BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS by_collection ON resources (collection, number);
CREATE TABLE IF NOT EXISTS entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    log TEXT NOT NULL,
    job TEXT NOT NULL,
    moment TEXT NOT NULL,
    insert_id TEXT NOT NULL,
    content TEXT NOT NULL,
    UNIQUE (log, moment, insert_id)
);
CREATE INDEX IF NOT EXISTS by_job ON entries (job, moment);
CREATE INDEX IF NOT EXISTS by_moment ON entries (moment);
CREATE TABLE IF NOT EXISTS processes (
    pid INTEGER NOT NULL,
    started TEXT NOT NULL,
    container TEXT NOT NULL,
    PRIMARY KEY (pid, started)
);
CREATE TABLE IF NOT EXISTS documents (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    collection TEXT NOT NULL,
    content TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS documents_by_collection ON documents (collection, number);
CREATE TABLE IF NOT EXISTS projects (
    number TEXT PRIMARY KEY,
    id TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS notes (
    name TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (name, key)
);
CREATE TABLE IF NOT EXISTS links (
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (source, target)
);
CREATE INDEX IF NOT EXISTS by_target ON links (target);
CREATE TABLE IF NOT EXISTS points (
    series TEXT NOT NULL,
    step INTEGER NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (series, step)
);
"""
VERSION = 1
MOST_PER_PAGE = 1000


class Database:
    """The sqlite database of one emulator, shared by all threads."""

    def __init__(self, path: Path) -> None:
        self.lock = threading.RLock()
        try:
            self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            found = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if found not in (0, VERSION):
                hint = "vertex-rehearsal reset begins anew, or use the version that wrote it"
                raise EmulatorUnavailable(f"{path} is of another version ({found}, not {VERSION})", hint=hint)
            self._connection.executescript(SCHEMA)
            self._connection.execute(f"PRAGMA user_version={VERSION}")
        except sqlite3.DatabaseError as error:
            raise EmulatorUnavailable(
                f"{path} cannot be read: {error}", hint="vertex-rehearsal reset begins anew"
            ) from error

    def close(self) -> None:
        """Close the database."""
        with self.lock:
            self._connection.close()

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        with self.lock:
            return self._connection.execute(statement, values).fetchall()

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for many rows in one transaction."""
        with self.lock, self._begin_transaction():
            self._connection.executemany(statement, rows)

    @contextmanager
    def _begin_transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def add(self, message: Any) -> None:
        """Store a new resource under its `name`; raise ALREADY_EXISTS if the name is taken."""
        _renew_etag(message, "0")
        name, kind = message.name, message.DESCRIPTOR.full_name
        try:
            self.run(
                "INSERT INTO resources (name, collection, type, content) VALUES (?, ?, ?, ?)",
                (name, name.rpartition("/")[0], kind, message.SerializeToString()),
            )
        except sqlite3.IntegrityError as error:
            raise ApiError("ALREADY_EXISTS", f"The resource '{name}' already exists.") from error

    def get(self, name: str) -> Any:
        """Return a resource; raise NOT_FOUND if it does not exist."""
        rows = self.run("SELECT type, content FROM resources WHERE name = ?", (name,))
        if not rows:
            raise not_found_error(name)
        return message_class(rows[0][0]).FromString(rows[0][1])

    @contextmanager
    def change(self, name: str, *, renews_etag: bool = True) -> Iterator[Any]:
        """Yield a resource to change under a lock; store it if the block ends without an error."""
        with self.lock:
            message = self.get(name)
            before = message.etag if "etag" in message.DESCRIPTOR.fields_by_name else ""
            yield message
            if renews_etag:
                _renew_etag(message, before)
            if "update_time" in message.DESCRIPTOR.fields_by_name:
                message.update_time.GetCurrentTime()
            self.run("UPDATE resources SET content = ? WHERE name = ?", (message.SerializeToString(), name))

    def add_note(self, name: str, key: str, value: str) -> None:
        """Store a note on a resource: a value to filter lists by for which the message has no field."""
        self.run("INSERT OR REPLACE INTO notes (name, key, value) VALUES (?, ?, ?)", (name, key, value))

    def get_notes(self, name: str) -> dict[str, str]:
        """Return the notes on a resource."""
        return dict(self.run("SELECT key, value FROM notes WHERE name = ?", (name,)))

    def project_id(self, project: str) -> str:
        """Return the id of a project given by a number that clients have seen; any other value unchanged."""
        if not project.isdigit():
            return project
        rows = self.run("SELECT id FROM projects WHERE number = ?", (project,))
        return str(rows[0][0]) if rows else project

    def resolve_name(self, name: str) -> str:
        """Return a resource name with the project's number replaced by its id."""
        if not name.startswith("projects/"):
            return name
        _, project, *rest = name.split("/")
        return "/".join(["projects", self.project_id(project), *rest])

    def remove(self, name: str) -> None:
        """Delete a resource."""
        with self.lock, self._begin_transaction():
            for table in ("resources", "notes"):
                self._connection.execute(f"DELETE FROM {table} WHERE name = ?", (name,))  # noqa: S608

    def remove_all(self, name: str) -> None:
        """Delete a resource and its descendants, with their links and points."""
        with self.lock, self._begin_transaction():
            for table, column in (
                ("resources", "name"),
                ("notes", "name"),
                ("links", "source"),
                ("links", "target"),
                ("points", "series"),
            ):
                self._connection.execute(
                    f"DELETE FROM {table} WHERE {column} = ? OR ({column} > ? AND {column} < ?)",  # noqa: S608
                    (name, f"{name}/", f"{name}0"),  # 0 comes after /
                )

    def has_resource(self, name: str) -> bool:
        """Whether a resource exists."""
        return bool(self.run("SELECT 1 FROM resources WHERE name = ?", (name,)))

    def list_all(self, kind: str) -> list[Any]:
        """Return every resource of a type, oldest first."""
        rows = self.run("SELECT content FROM resources WHERE type = ? ORDER BY number", (kind,))
        return [message_class(kind).FromString(content) for (content,) in rows]

    def list_page(
        self, collection: str, request: Any, *, keep: Callable[[Any], bool] = lambda _: True, default_size: int = 100
    ) -> tuple[list[Any], str]:
        """Return a page of a collection by `filter`, `page_size` and `page_token`, newest first, and the next token."""
        if request.page_size < 0:
            raise invalid_argument("page_size", f"page_size must not be negative: {request.page_size}")
        query = listing.compile_query(request, self.resolve_name)
        size = min(request.page_size or default_size, MOST_PER_PAGE)
        rows = self._iter_rows(collection, _decode_page_start(request.page_token) if not query.orders else 2**62)
        kept = (
            (number, message)
            for number, message in rows
            if keep(message) and query.passes(message, self.get_notes(message.name) if query.needs_notes else {})
        )
        if query.orders:
            return _cut_page(query, list(kept), size, request.page_token)
        page = list(islice(kept, size + 1))
        token = str(page[size - 1][0]) if len(page) > size else ""
        return [message for _, message in page[:size]], token

    def _iter_rows(self, collection: str, below: int) -> Iterator[tuple[int, Any]]:
        """Yield the resources of a collection with their numbers, newest first."""
        rows = self.run(
            "SELECT number, type, content FROM resources WHERE collection = ? AND number < ? ORDER BY number DESC",
            (collection, below),
        )
        for number, kind, content in rows:
            yield number, message_class(kind).FromString(content)


def _renew_etag(message: Any, before: str) -> None:
    """Set a later etag if the message has one; all have the same length, since clients compare them as strings."""
    if "etag" in message.DESCRIPTOR.fields_by_name:
        message.etag = str(max(time.time_ns() // 1000, (int(before) if before.isdigit() else 0) + 1))


def _cut_page(query: listing.ListQuery, rows: list[tuple[int, Any]], size: int, token: str) -> tuple[list[Any], str]:
    """Return a page of an ordered list and the next page's token: the position of the last resource."""
    after = listing.decode_place(token, len(query.orders))
    ordered = [row for row in query.sort(rows) if after is None or query.compare(row[:2], after) > 0]
    more = listing.encode_place(*ordered[size - 1][:2]) if len(ordered) > size else ""
    return [message for _, _, message in ordered[:size]], more


def _decode_page_start(token: str) -> int:
    if not token:
        return 2**62
    if not token.isascii() or not token.isdigit() or len(token) > 18:  # digits of a number that sqlite can hold
        raise invalid_argument("page_token", "The page token is invalid.")
    return int(token)
