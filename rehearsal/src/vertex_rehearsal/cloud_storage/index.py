"""The index of a store in one SQLite file: buckets, objects, unfinished uploads and pending file moves."""

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vertex_rehearsal.cloud_storage.records import BucketRecord, ObjectRecord

SCHEMA = """
CREATE TABLE IF NOT EXISTS clock (last INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS buckets (
    name TEXT PRIMARY KEY, project TEXT NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL,
    metageneration INTEGER NOT NULL, settings TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS objects (
    bucket TEXT NOT NULL, name BLOB NOT NULL, generation INTEGER NOT NULL, metageneration INTEGER NOT NULL,
    size INTEGER NOT NULL, crc32c TEXT NOT NULL, md5 TEXT, place BLOB NOT NULL, folder BLOB,
    modified_ns INTEGER NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL, noncurrent_since INTEGER,
    components INTEGER, settings TEXT NOT NULL,
    PRIMARY KEY (bucket, name, generation)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS soft_deleted (
    bucket TEXT NOT NULL, name BLOB NOT NULL, generation INTEGER NOT NULL, metageneration INTEGER NOT NULL,
    size INTEGER NOT NULL, crc32c TEXT NOT NULL, md5 TEXT, place BLOB NOT NULL, folder BLOB,
    modified_ns INTEGER NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL, noncurrent_since INTEGER,
    components INTEGER, settings TEXT NOT NULL, soft_deleted INTEGER NOT NULL, hard_deleted INTEGER NOT NULL,
    PRIMARY KEY (bucket, name, generation)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS hard_deleted ON soft_deleted (hard_deleted);
CREATE TABLE IF NOT EXISTS soft_deleted_buckets (
    name TEXT NOT NULL, project TEXT NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL,
    metageneration INTEGER NOT NULL, settings TEXT NOT NULL, soft_deleted INTEGER NOT NULL,
    hard_deleted INTEGER NOT NULL, PRIMARY KEY (name, created)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS live ON objects (bucket, name) WHERE noncurrent_since IS NULL;
CREATE INDEX IF NOT EXISTS folders ON objects (bucket, folder, name) WHERE folder IS NOT NULL;
CREATE TABLE IF NOT EXISTS moves (
    number INTEGER PRIMARY KEY, verb TEXT NOT NULL, source BLOB NOT NULL, target BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS uploads (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, bucket TEXT NOT NULL, name BLOB NOT NULL, created INTEGER NOT NULL,
    state TEXT NOT NULL, document TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS parts (
    upload TEXT NOT NULL, number INTEGER NOT NULL, file TEXT NOT NULL, size INTEGER NOT NULL, crc32c TEXT NOT NULL,
    md5 TEXT NOT NULL, updated INTEGER NOT NULL, PRIMARY KEY (upload, number)
) WITHOUT ROWID;
"""

_OBJECT = (
    "bucket, name, generation, metageneration, size, crc32c, md5, place, folder, modified_ns, created, updated, "
    "noncurrent_since, components, settings"
)
_SOFT_DELETED = f"{_OBJECT}, soft_deleted, hard_deleted"
_LIVE = "noncurrent_since IS NULL"


class Index:
    """SQLite index; readers see the last committed state, writers are serialised by a lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._write_lock = threading.RLock()
        self._free_connections: list[sqlite3.Connection] = []
        self._writer = self._connect()
        self._writer.executescript(SCHEMA)
        self._writer.execute("INSERT INTO clock SELECT 0 WHERE NOT EXISTS (SELECT * FROM clock)")

    def close(self) -> None:
        """Close all connections."""
        with self._write_lock:
            for connection in (*self._free_connections, self._writer):
                connection.close()
            self._free_connections.clear()

    @contextmanager
    def read_session(self) -> Iterator["Session"]:
        """Open a session on the committed state."""
        try:
            connection = self._free_connections.pop()
        except IndexError:
            connection = self._connect()
        try:
            yield Session(connection)
        finally:
            self._free_connections.append(connection)

    @contextmanager
    def write_session(self) -> Iterator["Session"]:
        """Open a transaction under the write lock: committed at the end, rolled back if the block fails."""
        with self._write_lock:
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield Session(self._writer)
            except BaseException:
                self._writer.execute("ROLLBACK")
                raise
            self._writer.execute("COMMIT")

    @contextmanager
    def exclusive_access(self) -> Iterator[None]:
        """Hold the write lock while the block runs; `write_session` may be used inside it."""
        with self._write_lock:
            yield

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=60, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")  # a killed process loses nothing; only a power cut could
        return connection


class Session:
    """Queries and changes of the index on one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def next_timestamp(self) -> int:
        """Return the time in microseconds, later than every timestamp returned before."""
        now = time.time_ns() // 1000
        self._db.execute("UPDATE clock SET last = max(last + 1, ?)", (now,))
        last: int = self._db.execute("SELECT last FROM clock").fetchone()[0]
        return last

    def bucket(self, name: str) -> BucketRecord | None:
        """Return the bucket of this name, if any."""
        row = self._db.execute("SELECT * FROM buckets WHERE name = ?", (name,)).fetchone()
        return _bucket_from_row(row) if row else None

    def list_buckets(
        self, project: str | None, prefix: str, after: str, limit: int, *, soft_deleted: bool = False
    ) -> list[BucketRecord]:
        """Return the buckets of a project, or of all projects, by name."""
        table = "soft_deleted_buckets" if soft_deleted else "buckets"
        rows = self._db.execute(
            f"SELECT * FROM {table} WHERE project = coalesce(?, project) AND name > ? "  # noqa: S608
            "AND substr(name, 1, ?) = ? ORDER BY name LIMIT ?",
            (project, after, len(prefix), prefix, limit),
        )
        return [_bucket_from_row(row) for row in rows]

    def put_bucket(self, bucket: BucketRecord) -> None:
        """Insert or replace a bucket."""
        self._db.execute(
            "INSERT OR REPLACE INTO buckets VALUES (?, ?, ?, ?, ?, ?)",
            (
                bucket.name,
                bucket.project,
                bucket.created,
                bucket.updated,
                bucket.metageneration,
                json.dumps(bucket.settings),
            ),
        )

    def remove_bucket(self, name: str) -> None:
        """Delete a bucket."""
        self._db.execute("DELETE FROM buckets WHERE name = ?", (name,))

    def get_soft_deleted_bucket(self, name: str, generation: int) -> BucketRecord | None:
        """Return a soft-deleted bucket."""
        query = "SELECT * FROM soft_deleted_buckets WHERE name = ? AND created = ?"
        row = self._db.execute(query, (name, min(generation, 2**63 - 1))).fetchone()
        return _bucket_from_row(row) if row else None

    def soft_delete_bucket(self, bucket: BucketRecord, now: int) -> None:
        """Store a soft-deleted bucket and its soft-deleted objects, apart from a later bucket of its name."""
        values = (bucket.name, bucket.project, bucket.created, bucket.updated, bucket.metageneration)
        self._db.execute(
            "INSERT INTO soft_deleted_buckets VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*values, json.dumps(bucket.settings), now, now + bucket.soft_delete_us),
        )
        self._rename_soft_deleted(bucket.name, _deleted_name(bucket))

    def restore_bucket(self, bucket: BucketRecord) -> None:
        """Remove a bucket from the soft-deleted ones and give it its soft-deleted objects back."""
        values = (bucket.name, bucket.created)
        self._db.execute("DELETE FROM soft_deleted_buckets WHERE name = ? AND created = ?", values)
        self._rename_soft_deleted(_deleted_name(bucket), bucket.name)

    def _rename_soft_deleted(self, before: str, after: str) -> None:
        self._db.execute("UPDATE soft_deleted SET bucket = ? WHERE bucket = ?", (after, before))

    def soft_delete(self, record: ObjectRecord) -> None:
        """Store a soft-deleted generation until its hard-delete time."""
        marks = ",".join("?" * 17)
        values = (*_object_to_row(record), record.soft_deleted, record.hard_deleted)
        self._db.execute(f"INSERT OR REPLACE INTO soft_deleted ({_SOFT_DELETED}) VALUES ({marks})", values)  # noqa: S608

    def get_soft_deleted(self, bucket: str, name: str, generation: int) -> ObjectRecord | None:
        """Return a soft-deleted generation."""
        query = f"SELECT {_SOFT_DELETED} FROM soft_deleted WHERE bucket = ? AND name = ? AND generation = ?"  # noqa: S608
        row = self._db.execute(query, (bucket, name.encode(), min(generation, 2**63 - 1))).fetchone()
        return _object_from_row(row) if row else None

    def remove_expired(self, now: int) -> list[str]:
        """Delete soft-deleted rows past their hard-delete time; return the places of their content."""
        rows = self._db.execute("SELECT place FROM soft_deleted WHERE hard_deleted <= ?", (now,)).fetchall()
        if rows:
            self._db.execute("DELETE FROM soft_deleted WHERE hard_deleted <= ?", (now,))
        self._db.execute("DELETE FROM soft_deleted_buckets WHERE hard_deleted <= ?", (now,))
        return [place.decode() for (place,) in rows]

    def has_objects(self, bucket: str) -> bool:
        """Return whether a bucket has any generation of any object."""
        return self._db.execute("SELECT 1 FROM objects WHERE bucket = ? LIMIT 1", (bucket,)).fetchone() is not None

    def get_live(self, bucket: str, name: str) -> ObjectRecord | None:
        """Return the live generation of an object."""
        query = f"SELECT {_OBJECT} FROM objects WHERE bucket = ? AND name = ? AND {_LIVE}"  # noqa: S608
        row = self._db.execute(query, (bucket, name.encode())).fetchone()
        return _object_from_row(row) if row else None

    def generation(self, bucket: str, name: str, generation: int) -> ObjectRecord | None:
        """Return one generation of an object, live or noncurrent."""
        if generation >= 2**63:  # beyond SQLite's integers, so never assigned
            return None
        query = f"SELECT {_OBJECT} FROM objects WHERE bucket = ? AND name = ? AND generation = ?"  # noqa: S608
        row = self._db.execute(query, (bucket, name.encode(), generation)).fetchone()
        return _object_from_row(row) if row else None

    def iter_range(
        self,
        bucket: str,
        start: bytes,
        end: bytes | None,
        *,
        versions: bool,
        generation: int = 0,
        soft_deleted: bool = False,
    ) -> Iterator[ObjectRecord]:
        """Iterate over objects with names from `start` to before `end`, in the byte order of names."""
        conditions = ["bucket = ?", "name >= ?" if not generation else "(name, generation) >= (?, ?)"]
        values: list[Any] = [bucket, start, *([generation] if generation else [])]
        if end is not None:
            conditions.append("name < ?")
            values.append(end)
        if not versions and not soft_deleted:
            conditions.append(_LIVE)
        columns, table = (_SOFT_DELETED, "soft_deleted") if soft_deleted else (_OBJECT, "objects")
        query = f"SELECT {columns} FROM {table} WHERE {' AND '.join(conditions)} ORDER BY name, generation"  # noqa: S608
        for row in self._db.execute(query, values):
            yield _object_from_row(row)

    def names_in(self, bucket: str, folder: str) -> set[str]:
        """Return the names of objects whose files are directly in this directory."""
        query = "SELECT name FROM objects INDEXED BY folders WHERE bucket = ? AND folder = ?"
        return {row[0].decode() for row in self._db.execute(query, (bucket, folder.encode()))}

    def folders_below(self, bucket: str, folder: str) -> set[str]:
        """Return this directory, and those below it that hold objects."""
        low, high = (f"{folder}/".encode(), f"{folder}0".encode()) if folder else (b"", b"\xff")
        query = "SELECT DISTINCT folder FROM objects INDEXED BY folders WHERE bucket = ? AND folder >= ? AND folder < ?"
        folders = {row[0].decode() for row in self._db.execute(query, (bucket, low, high))}
        return folders | {folder}

    def put(self, record: ObjectRecord) -> None:
        """Insert or replace a generation."""
        self._db.execute(
            f"INSERT OR REPLACE INTO objects ({_OBJECT}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",  # noqa: S608
            _object_to_row(record),
        )

    def remove(self, record: ObjectRecord) -> None:
        """Delete a generation."""
        self._db.execute(
            "DELETE FROM objects WHERE bucket = ? AND name = ? AND generation = ?",
            (record.bucket, record.name.encode(), record.generation),
        )

    def relocate_object(self, place: str, other: str) -> None:
        """Record a new place, outside the bucket's directory, for an object's content."""
        self._db.execute(
            "UPDATE objects SET place = ?, folder = NULL WHERE place = ?", (other.encode(), place.encode())
        )

    def remove_by_place(self, place: str) -> None:
        """Delete the object of a place whose file another process has removed."""
        self._db.execute("DELETE FROM objects WHERE place = ?", (place.encode(),))

    def list_moves(self) -> list[tuple[str, str, str]]:
        """Return the pending file moves: verb, source, target."""
        rows = self._db.execute("SELECT verb, source, target FROM moves ORDER BY number").fetchall()
        return [(verb, source.decode(), target.decode()) for verb, source, target in rows]

    def add_move(self, verb: str, source: str, target: str = "") -> None:
        """Add a file move to the journal."""
        values = (verb, source.encode(), target.encode())
        self._db.execute("INSERT INTO moves (verb, source, target) VALUES (?, ?, ?)", values)

    def remove_moves(self) -> None:
        """Clear the journal after all moves are applied."""
        self._db.execute("DELETE FROM moves")

    def get_upload(self, identifier: str) -> dict[str, Any] | None:
        """Return an upload: `kind`, `bucket`, `name`, `state`, `created`, and the document stored with it."""
        row = self._db.execute("SELECT * FROM uploads WHERE id = ?", (identifier,)).fetchone()
        return _upload_from_row(row) if row else None

    def list_uploads(self, bucket: str, kind: str) -> list[dict[str, Any]]:
        """Return the unfinished uploads of a kind."""
        query = "SELECT * FROM uploads WHERE bucket = ? AND kind = ? AND state = 'open' ORDER BY name, created"
        return [_upload_from_row(row) for row in self._db.execute(query, (bucket, kind))]

    def list_uploads_before(self, moment: int) -> list[dict[str, Any]]:
        """Return the uploads created before a moment, finished or not."""
        rows = self._db.execute("SELECT * FROM uploads WHERE created < ?", (moment,)).fetchall()
        return [_upload_from_row(row) for row in rows]

    def remove_upload(self, identifier: str) -> None:
        """Delete an upload."""
        self._db.execute("DELETE FROM uploads WHERE id = ?", (identifier,))

    def put_upload(self, upload: dict[str, Any]) -> None:
        """Insert or replace an upload."""
        columns = ("id", "kind", "bucket", "name", "created", "state")
        document = {key: value for key, value in upload.items() if key not in columns}
        values = [upload[column] for column in columns]
        values[3] = upload["name"].encode()
        self._db.execute("INSERT OR REPLACE INTO uploads VALUES (?,?,?,?,?,?,?)", (*values, json.dumps(document)))

    def list_parts(self, upload: str) -> list[dict[str, Any]]:
        """Return the parts of a multipart upload by number."""
        rows = self._db.execute("SELECT * FROM parts WHERE upload = ? ORDER BY number", (upload,))
        columns = ("upload", "number", "file", "size", "crc32c", "md5", "updated")
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def put_part(self, part: dict[str, Any]) -> None:
        """Insert a part, or replace the one of its number."""
        self._db.execute(
            "INSERT OR REPLACE INTO parts VALUES (:upload, :number, :file, :size, :crc32c, :md5, :updated)", part
        )

    def remove_parts(self, upload: str) -> None:
        """Delete the parts of an upload."""
        self._db.execute("DELETE FROM parts WHERE upload = ?", (upload,))


def _bucket_from_row(row: tuple[Any, ...]) -> BucketRecord:
    name, project, created, updated, metageneration, settings, *deleted = row
    return BucketRecord(name, project, created, updated, metageneration, json.loads(settings), *deleted)


def _deleted_name(bucket: BucketRecord) -> str:
    """Return the name for the soft-deleted objects of a soft-deleted bucket; no bucket can have such a name."""
    return f"{bucket.name}#{bucket.created}"


def _object_to_row(record: ObjectRecord) -> tuple[Any, ...]:
    return (
        record.bucket,
        record.name.encode(),
        record.generation,
        record.metageneration,
        record.size,
        record.crc32c,
        record.md5,
        record.place.encode(),
        None if record.folder is None else record.folder.encode(),
        record.modified_ns,
        record.created,
        record.updated,
        record.noncurrent_since,
        record.components,
        json.dumps(record.settings),
    )


def _object_from_row(row: tuple[Any, ...]) -> ObjectRecord:
    bucket, name, generation, metageneration, size, crc32c, md5, place, folder = row[:9]
    modified_ns, created, updated, noncurrent_since, components, settings, *deleted = row[9:]
    return ObjectRecord(
        bucket,
        name.decode(),
        generation,
        metageneration,
        size,
        crc32c,
        md5,
        place.decode(),
        None if folder is None else folder.decode(),
        modified_ns,
        created,
        updated,
        noncurrent_since,
        components,
        json.loads(settings),
        *deleted,
    )


def _upload_from_row(row: tuple[Any, ...]) -> dict[str, Any]:
    identifier, kind, bucket, name, created, state, document = row
    columns = {"id": identifier, "kind": kind, "bucket": bucket, "name": name.decode(), "created": created}
    return {**json.loads(document), **columns, "state": state}
