"""Uploads of several requests: resumable uploads, and multipart uploads of numbered parts. No HTTP."""

import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from vertex_rehearsal.cloud_storage import checksums, errors, names
from vertex_rehearsal.cloud_storage.files import StagedContent
from vertex_rehearsal.cloud_storage.index import Session
from vertex_rehearsal.cloud_storage.preconditions import Preconditions
from vertex_rehearsal.cloud_storage.records import ObjectRecord
from vertex_rehearsal.cloud_storage.store import Store

SMALLEST_PART = 5 * 2**20
MOST_PARTS = 10_000
KEPT_S = 7 * 24 * 3600


@dataclass(frozen=True)
class Span:
    """The bytes of an upload in a request: from `first`, and up to `last` of `total` where these are known."""

    first: int | None = 0
    """None asks for the upload's progress."""
    last: int | None = None
    total: int | None = None
    ends: bool = False
    """Whether the upload ends with these bytes, whatever their number."""


@dataclass(frozen=True)
class UploadProgress:
    """The progress of an upload, and its object once it is complete."""

    persisted: int
    finished: ObjectRecord | None = None


class Uploads:
    """The uploads of a store; unfinished ones survive a restart."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._index = store.index
        self._directory = store.files.state / "uploads"
        self._locks_guard = threading.Lock()
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._running: dict[str, checksums.RunningChecksums] = {}
        """Checksums of the bytes received; recomputed from the file after a restart."""
        self._forget_old()

    def begin_resumable(
        self,
        bucket: str,
        name: str,
        *,
        settings: Mapping[str, Any],
        preconditions: Preconditions,
        expected: Mapping[str, str],
        total: int | None,
    ) -> str:
        """Start a resumable upload and return its id."""
        names.check_object_name(name)
        self._check_now(bucket, name, preconditions)
        upload = {"settings": dict(settings), "preconditions": asdict(preconditions), "expected": dict(expected)}
        identifier = self._create_upload("resumable", bucket, name, upload | {"total": total})
        self._upload_path(identifier).touch()
        return identifier

    def write(
        self, identifier: str, span: Span, chunks: Iterable[bytes], *, expected: Mapping[str, str]
    ) -> UploadProgress:
        """Append bytes, which are kept if the connection breaks; the last byte creates the object."""
        with self._lock_upload(identifier):
            upload = self._get_upload(identifier, "resumable")
            if upload["state"] == "finished":
                record = ObjectRecord(**upload["made"])
                return UploadProgress(record.size, record)
            path = self._upload_path(identifier)
            total = self._resolve_total(upload, span, path.stat().st_size)
            if span.first is not None:
                self._append_bytes(identifier, path, span, chunks)
            persisted = path.stat().st_size
            if span.ends:
                total = self._resolve_total(upload, Span(persisted, total=persisted), persisted)
            if total is None or persisted < total:
                return UploadProgress(persisted)
            return UploadProgress(persisted, self._finish_upload(upload, path, expected))

    def cancel(self, identifier: str) -> None:
        """Cancel a resumable upload."""
        with self._lock_upload(identifier):
            self._cancel_upload(self._get_upload(identifier, "resumable"))

    def begin_parts(self, bucket: str, name: str, *, settings: Mapping[str, Any]) -> str:
        """Start a multipart upload and return its id."""
        names.check_object_name(name)
        self._store.bucket(bucket)
        return self._create_upload("multipart", bucket, name, {"settings": dict(settings)})

    def write_part(
        self,
        identifier: str,
        bucket: str,
        name: str,
        number: int,
        chunks: Iterable[bytes],
        *,
        expected: Mapping[str, str],
    ) -> dict[str, Any]:
        """Store a part, or replace the one of its number."""
        self._get_multipart(identifier, bucket, name)
        if not 1 <= number <= MOST_PARTS:
            raise errors.invalid_request(f"Part number must be an integer between 1 and {MOST_PARTS}, inclusive.")
        staged = self._store.files.stage_content(chunks)
        try:
            checksums.verify_checksums(staged.checksums, expected)
            with self._lock_upload(identifier), self._store.journal.begin_change() as session:
                self._get_multipart(identifier, bucket, name)
                file = f"{identifier}.{secrets.token_hex(8)}"
                for part in session.list_parts(identifier):
                    if part["number"] == number:
                        session.add_move("remove", self._upload_place(part["file"]))
                sums = staged.checksums
                part = {
                    "upload": identifier,
                    "number": number,
                    "file": file,
                    "size": sums.size,
                    "crc32c": sums.crc32c,
                    "md5": sums.md5,
                    "updated": session.next_timestamp(),
                }
                session.put_part(part)
                session.add_move("rename", self._store.files.relative_place(staged.path), self._upload_place(file))
        except BaseException:
            staged.path.unlink(missing_ok=True)
            raise
        return part

    def list_parts(self, identifier: str, bucket: str, name: str) -> list[dict[str, Any]]:
        """Return the parts received so far."""
        self._get_multipart(identifier, bucket, name)
        with self._index.read_session() as session:
            return session.list_parts(identifier)

    def list_multipart_uploads(self, bucket: str) -> list[dict[str, Any]]:
        """Return the multipart uploads in progress."""
        self._store.bucket(bucket)
        with self._index.read_session() as session:
            return session.list_uploads(bucket, "multipart")

    def complete(
        self, identifier: str, bucket: str, name: str, chosen: Sequence[tuple[int, str]], preconditions: Preconditions
    ) -> ObjectRecord:
        """Join the chosen parts, each given by its number and its MD5 in hexadecimal."""
        with self._lock_upload(identifier):
            upload = self._get_multipart(identifier, bucket, name)
            with self._index.read_session() as session:
                parts_by_number = {part["number"]: part for part in session.list_parts(identifier)}
            parts = [_select_part(parts_by_number, number, etag) for number, etag in chosen]
            if not parts or [part["number"] for part in parts] != sorted({part["number"] for part in parts}):
                message = "The list of parts was not in ascending order. Parts must be ordered by part number."
                raise errors.invalid_request(message, code="InvalidPartOrder")
            if any(part["size"] < SMALLEST_PART for part in parts[:-1]):
                message = "Your proposed upload is smaller than the minimum allowed object size."
                raise errors.invalid_request(message, code="EntityTooSmall")
            staged = self._store.files.stage_content(self._join_parts(parts))
            return self._store.put(
                bucket,
                name,
                staged,
                settings=upload["settings"],
                preconditions=preconditions,
                components=len(parts),
                in_transaction=lambda session, record: self._mark_finished(session, upload, record),
            )

    def abort(self, identifier: str, bucket: str, name: str) -> None:
        """Cancel a multipart upload."""
        with self._lock_upload(identifier):
            self._cancel_upload(self._get_multipart(identifier, bucket, name))

    def _forget_old(self) -> None:
        """Remove uploads older than a week, as Google does."""
        with self._store.journal.begin_change() as session:
            for upload in session.list_uploads_before(session.next_timestamp() - KEPT_S * 1_000_000):
                self._remove_parts(session, upload["id"])
                session.add_move("remove", self._upload_place(upload["id"]))
                session.remove_upload(upload["id"])

    def _create_upload(self, kind: str, bucket: str, name: str, document: dict[str, Any]) -> str:
        identifier = secrets.token_urlsafe(48)
        with self._index.write_session() as session:
            columns = {
                "id": identifier,
                "kind": kind,
                "bucket": bucket,
                "name": name,
                "created": session.next_timestamp(),
            }
            session.put_upload(document | columns | {"state": "open"})
        return identifier

    def _get_upload(self, identifier: str, kind: str) -> dict[str, Any]:
        with self._index.read_session() as session:
            upload = session.get_upload(identifier)
        if not upload or upload["kind"] != kind:
            raise errors.StorageError(404, "notFound", "The upload session was not found.", code="NoSuchUpload")
        if upload["state"] == "cancelled":
            raise errors.StorageError(410, "gone", "The upload session is no longer available.", code="NoSuchUpload")
        return upload

    def _get_multipart(self, identifier: str, bucket: str, name: str) -> dict[str, Any]:
        try:
            upload = self._get_upload(identifier, "multipart")
        except errors.StorageError:
            upload = {}
        if (upload.get("state"), upload.get("bucket"), upload.get("name")) != ("open", bucket, name):
            message = "The requested upload was not found."
            raise errors.StorageError(404, "notFound", message, code="NoSuchUpload")
        return upload

    def _resolve_total(self, upload: dict[str, Any], span: Span, persisted: int) -> int | None:
        """Return the upload's total size, if known; refuse a span that contradicts it or leaves a gap."""
        total: int | None = upload["total"]
        if span.total is not None and total is not None and span.total != total:
            message = f"Invalid request. The total size of the upload is {total} byte(s), not {span.total}."
            raise errors.invalid_request(message)
        if span.total is not None and total is None:
            total = span.total
            with self._index.write_session() as session:
                session.put_upload(upload | {"total": total})
        reach = max(persisted, 0 if span.last is None else span.last + 1)
        if total is not None and reach > total:
            raise errors.invalid_request(f"Invalid request. The total size of the upload is {total} byte(s).")
        if span.first is not None and span.first > persisted:
            message = (
                f"Invalid request. According to the Content-Range header, the upload offset is {span.first} byte(s), "
                f"which exceeds already uploaded size of {persisted} byte(s)."
            )
            raise errors.invalid_request(message)
        return total

    def _append_bytes(self, identifier: str, path: Path, span: Span, chunks: Iterable[bytes]) -> None:
        """Append the bytes that the file does not have yet."""
        assert span.first is not None
        present = path.stat().st_size - span.first
        received = 0
        running = self._get_checksums(identifier, path)
        with path.open("ab") as file:
            for chunk in chunks:
                if span.last is not None and received + len(chunk) > span.last + 1 - span.first:
                    raise _length_error(span, received + len(chunk))
                new = chunk[max(0, present - received) :]
                file.write(new)
                running.add(new)
                received += len(chunk)
        if span.last is not None and received != span.last + 1 - span.first:
            raise _length_error(span, received)

    def _get_checksums(self, identifier: str, path: Path) -> checksums.RunningChecksums:
        """Return the checksums of the bytes received so far."""
        running = self._running.get(identifier)
        if running is None or running.size != path.stat().st_size:
            with path.open("rb") as file:
                running = checksums.checksum_file(file)
        self._running[identifier] = running
        return running

    def _finish_upload(self, upload: dict[str, Any], path: Path, expected: Mapping[str, str]) -> ObjectRecord:
        sums = self._get_checksums(upload["id"], path).result()
        preconditions = Preconditions.from_dict(upload["preconditions"])
        try:
            for expected_checksums in (
                upload["expected"],
                expected,
            ):  # at its beginning and at its end: one does not replace the other
                checksums.verify_checksums(sums, expected_checksums)
            record = self._store.put(
                upload["bucket"],
                upload["name"],
                StagedContent(path, sums),
                settings=upload["settings"],
                preconditions=preconditions,
                in_transaction=lambda session, record: self._mark_finished(session, upload, record),
            )
        except errors.StorageError:
            self._cancel_upload(upload)
            raise
        self._running.pop(upload["id"], None)
        return record

    def _mark_finished(self, session: Session, upload: dict[str, Any], record: ObjectRecord) -> None:
        """Record the object in the transaction that creates it, so that a crash leaves both or neither."""
        session.put_upload(upload | {"state": "finished", "made": asdict(record)})
        self._remove_parts(session, upload["id"])

    def _remove_parts(self, session: Session, identifier: str) -> None:
        for part in session.list_parts(identifier):
            session.add_move("remove", self._upload_place(part["file"]))
        session.remove_parts(identifier)

    def _cancel_upload(self, upload: dict[str, Any]) -> None:
        identifier = upload["id"]
        with self._store.journal.begin_change() as session:
            session.put_upload(upload | {"state": "cancelled"})
            self._remove_parts(session, identifier)
            session.add_move("remove", self._upload_place(identifier))
        self._running.pop(identifier, None)

    def _check_now(self, bucket: str, name: str, preconditions: Preconditions) -> None:
        """Refuse a request early if it would fail at the end."""
        self._store.bucket(bucket)
        try:
            record = self._store.get(bucket, name)
        except errors.StorageError:
            record = None
        preconditions.check(record)

    def _join_parts(self, parts: Sequence[dict[str, Any]]) -> Iterator[bytes]:
        for part in parts:
            with (self._directory / part["file"]).open("rb") as file:
                yield from checksums.read_chunks(file)

    def _upload_path(self, identifier: str) -> Path:
        return self._directory / identifier

    def _upload_place(self, file: str) -> str:
        return self._store.files.relative_place(self._directory / file)

    @contextmanager
    def _lock_upload(self, identifier: str) -> Iterator[None]:
        """Serialise the requests of an upload."""
        with self._locks_guard:
            lock = self._locks.setdefault(identifier, threading.Lock())
        with lock:
            yield


def _select_part(parts_by_number: Mapping[int, dict[str, Any]], number: int, etag: str) -> dict[str, Any]:
    part = parts_by_number.get(number)
    if not part or etag.strip('"') != part_etag(part):
        message = "One or more of the specified parts could not be found, or its ETag did not match."
        raise errors.invalid_request(message, code="InvalidPart")
    return part


def part_etag(part: Mapping[str, Any]) -> str:
    """Return a part's ETag: its MD5 in hexadecimal."""
    return checksums.digest_to_hex(part["md5"])


def _length_error(span: Span, received: int) -> errors.StorageError:
    assert span.first is not None
    assert span.last is not None
    message = (
        f"Invalid request. There were {received} byte(s) in the request body. There should have been "
        f"{span.last + 1 - span.first} byte(s) (starting at offset {span.first} and ending at offset {span.last}) "
        "according to the Content-Range header."
    )
    return errors.invalid_request(message)
