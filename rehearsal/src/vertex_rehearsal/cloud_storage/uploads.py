"""Uploads that take several requests: resumable ones in one piece, multipart ones in numbered parts. No HTTP."""

import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from vertex_rehearsal.cloud_storage import checksums, errors, names
from vertex_rehearsal.cloud_storage.files import Staged
from vertex_rehearsal.cloud_storage.index import Session
from vertex_rehearsal.cloud_storage.preconditions import Preconditions
from vertex_rehearsal.cloud_storage.records import Object
from vertex_rehearsal.cloud_storage.store import Store

SMALLEST_PART = 5 * 2**20
MOST_PARTS = 10_000
KEPT_S = 7 * 24 * 3600


@dataclass(frozen=True)
class Span:
    """Which bytes of an upload a request brings: from `first`; up to `last` and of `total` where these are known."""

    first: int | None = 0
    """None asks how far the upload has come."""
    last: int | None = None
    total: int | None = None
    ends: bool = False
    """Whether the end of these bytes is the end of the upload, however many they are."""


@dataclass(frozen=True)
class Progress:
    """How far an upload has come."""

    persisted: int
    finished: Object | None = None


class Uploads:
    """Uploads of a store; unfinished ones outlive the process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._index = store.index
        self._directory = store.files.state / "uploads"
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._running: dict[str, checksums.Running] = {}
        """Checksums of what has arrived; counted anew from the file where the process was another."""
        self._forget_old()

    def begin(
        self, bucket: str, name: str, *, settings: Mapping[str, Any], preconditions: Preconditions,
        expected: Mapping[str, str], total: int | None,
    ) -> str:  # fmt: skip
        """A new resumable upload."""
        names.check_object_name(name)
        self._check_now(bucket, name, preconditions)
        upload = {"settings": dict(settings), "preconditions": asdict(preconditions), "expected": dict(expected)}
        identifier = self._new("resumable", bucket, name, upload | {"total": total})
        self._file(identifier).touch()
        return identifier

    def write(self, identifier: str, span: Span, chunks: Iterable[bytes], *, expected: Mapping[str, str]) -> Progress:
        """Take bytes in; what arrives before a connection breaks is kept. The last byte makes the object."""
        with self._alone(identifier):
            upload = self._upload(identifier, "resumable")
            if upload["state"] == "finished":
                found = Object(**upload["made"])
                return Progress(found.size, found)
            path = self._file(identifier)
            total = self._agreed_total(upload, span, path.stat().st_size)
            if span.first is not None:
                self._append(identifier, path, span, chunks)
            persisted = path.stat().st_size
            if span.ends:
                total = self._agreed_total(upload, Span(persisted, total=persisted), persisted)
            if total is None or persisted < total:
                return Progress(persisted)
            return Progress(persisted, self._finish(upload, path, upload["expected"] | expected))

    def cancel(self, identifier: str) -> None:
        """Give a resumable upload up."""
        with self._alone(identifier):
            self._cancel(self._upload(identifier, "resumable"))

    def begin_parts(self, bucket: str, name: str, *, settings: Mapping[str, Any]) -> str:
        """A new multipart upload."""
        names.check_object_name(name)
        self._store.bucket(bucket)
        return self._new("multipart", bucket, name, {"settings": dict(settings)})

    def write_part(
        self, identifier: str, bucket: str, name: str, number: int, chunks: Iterable[bytes], *,
        expected: Mapping[str, str],
    ) -> dict[str, Any]:  # fmt: skip
        """Take a part in, in place of an earlier one of its number."""
        self._parted(identifier, bucket, name)
        if not 1 <= number <= MOST_PARTS:
            raise errors.invalid(f"Part number must be an integer between 1 and {MOST_PARTS}, inclusive.")
        staged = self._store.files.stage(chunks)
        try:
            checksums.compare(staged.checksums, expected)
            with self._alone(identifier), self._store.journal.changing() as session:
                self._parted(identifier, bucket, name)
                file = f"{identifier}.{secrets.token_hex(8)}"
                for part in session.parts(identifier):
                    if part["number"] == number:
                        session.add_move("remove", self._place(part["file"]))
                counted = staged.checksums
                part = {
                    "upload": identifier, "number": number, "file": file, "size": counted.size,
                    "crc32c": counted.crc32c, "md5": counted.md5, "updated": session.tick(),
                }  # fmt: skip
                session.put_part(part)
                session.add_move("rename", self._store.files.relative(staged.path), self._place(file))
        except BaseException:
            staged.path.unlink(missing_ok=True)
            raise
        return part

    def parts(self, identifier: str, bucket: str, name: str) -> list[dict[str, Any]]:
        """The parts that have arrived."""
        self._parted(identifier, bucket, name)
        with self._index.reading() as session:
            return session.parts(identifier)

    def unfinished_parts(self, bucket: str) -> list[dict[str, Any]]:
        """The multipart uploads that are neither complete nor given up."""
        self._store.bucket(bucket)
        with self._index.reading() as session:
            return session.uploads(bucket, "multipart")

    def complete(
        self, identifier: str, bucket: str, name: str, chosen: Sequence[tuple[int, str]], preconditions: Preconditions
    ) -> Object:
        """Put the chosen parts together, each named by its number and its MD5 in hexadecimal."""
        with self._alone(identifier):
            upload = self._parted(identifier, bucket, name)
            with self._index.reading() as session:
                there = {part["number"]: part for part in session.parts(identifier)}
            parts = [_chosen(there, number, etag) for number, etag in chosen]
            if not parts or [part["number"] for part in parts] != sorted({part["number"] for part in parts}):
                message = "The list of parts was not in ascending order. Parts must be ordered by part number."
                raise errors.invalid(message, code="InvalidPartOrder")
            if any(part["size"] < SMALLEST_PART for part in parts[:-1]):
                message = "Your proposed upload is smaller than the minimum allowed object size."
                raise errors.invalid(message, code="EntityTooSmall")
            staged = self._store.files.stage(self._joined(parts))
            return self._store.put(
                bucket, name, staged, settings=upload["settings"], preconditions=preconditions, components=len(parts),
                along=lambda session, made: self._mark_finished(session, upload, made),
            )  # fmt: skip

    def abort(self, identifier: str, bucket: str, name: str) -> None:
        """Give a multipart upload up."""
        with self._alone(identifier):
            self._cancel(self._parted(identifier, bucket, name))

    def _forget_old(self) -> None:
        """Google keeps an upload for a week."""
        with self._store.journal.changing() as session:
            for upload in session.uploads_before(session.tick() - KEPT_S * 1_000_000):
                self._remove_parts(session, upload["id"])
                session.add_move("remove", self._place(upload["id"]))
                session.remove_upload(upload["id"])

    def _new(self, kind: str, bucket: str, name: str, document: dict[str, Any]) -> str:
        identifier = secrets.token_urlsafe(48)
        with self._index.writing() as session:
            known = {"id": identifier, "kind": kind, "bucket": bucket, "name": name, "created": session.tick()}
            session.put_upload(document | known | {"state": "open"})
        return identifier

    def _upload(self, identifier: str, kind: str) -> dict[str, Any]:
        with self._index.reading() as session:
            upload = session.upload(identifier)
        if not upload or upload["kind"] != kind:
            raise errors.Refused(404, "notFound", "The upload session was not found.", code="NoSuchUpload")
        if upload["state"] == "cancelled":
            raise errors.Refused(410, "gone", "The upload session is no longer available.", code="NoSuchUpload")
        return upload

    def _parted(self, identifier: str, bucket: str, name: str) -> dict[str, Any]:
        try:
            upload = self._upload(identifier, "multipart")
        except errors.Refused:
            upload = {}
        if (upload.get("state"), upload.get("bucket"), upload.get("name")) != ("open", bucket, name):
            message = "The requested upload was not found."
            raise errors.Refused(404, "notFound", message, code="NoSuchUpload")
        return upload

    def _agreed_total(self, upload: dict[str, Any], span: Span, persisted: int) -> int | None:
        """How long the whole will be, if anybody has said; refuses what contradicts it or leaves a gap."""
        total: int | None = upload["total"]
        if span.total is not None and total is not None and span.total != total:
            message = f"Invalid request. The total size of the upload is {total} byte(s), not {span.total}."
            raise errors.invalid(message)
        if span.total is not None and total is None:
            total = span.total
            with self._index.writing() as session:
                session.put_upload(upload | {"total": total})
        reach = max(persisted, 0 if span.last is None else span.last + 1)
        if total is not None and reach > total:
            raise errors.invalid(f"Invalid request. The total size of the upload is {total} byte(s).")
        if span.first is not None and span.first > persisted:
            message = (
                f"Invalid request. According to the Content-Range header, the upload offset is {span.first} byte(s), "
                f"which exceeds already uploaded size of {persisted} byte(s)."
            )
            raise errors.invalid(message)
        return total

    def _append(self, identifier: str, path: Path, span: Span, chunks: Iterable[bytes]) -> None:
        """Write what is new of these bytes."""
        assert span.first is not None
        known = path.stat().st_size - span.first
        received = 0
        running = self._counted(identifier, path)
        with path.open("ab") as file:
            for chunk in chunks:
                if span.last is not None and received + len(chunk) > span.last + 1 - span.first:
                    raise _miscounted(span, received + len(chunk))
                new = chunk[max(0, known - received) :]
                file.write(new)
                running.add(new)
                received += len(chunk)
        if span.last is not None and received != span.last + 1 - span.first:
            raise _miscounted(span, received)

    def _counted(self, identifier: str, path: Path) -> checksums.Running:
        """The checksums of what has arrived."""
        running = self._running.get(identifier)
        if running is None or running.size != path.stat().st_size:
            with path.open("rb") as file:
                running = checksums.of_file(file)
        self._running[identifier] = running
        return running

    def _finish(self, upload: dict[str, Any], path: Path, expected: Mapping[str, str]) -> Object:
        counted = self._counted(upload["id"], path).result()
        preconditions = Preconditions.restored(upload["preconditions"])
        try:
            checksums.compare(counted, expected)
            made = self._store.put(
                upload["bucket"], upload["name"], Staged(path, counted), settings=upload["settings"],
                preconditions=preconditions, along=lambda session, made: self._mark_finished(session, upload, made),
            )  # fmt: skip
        except errors.Refused:
            self._cancel(upload)
            raise
        self._running.pop(upload["id"], None)
        return made

    def _mark_finished(self, session: Session, upload: dict[str, Any], made: Object) -> None:
        """In the turn that makes the object, so that no crash leaves one without the other."""
        session.put_upload(upload | {"state": "finished", "made": asdict(made)})
        self._remove_parts(session, upload["id"])

    def _remove_parts(self, session: Session, identifier: str) -> None:
        for part in session.parts(identifier):
            session.add_move("remove", self._place(part["file"]))
        session.remove_parts(identifier)

    def _cancel(self, upload: dict[str, Any]) -> None:
        identifier = upload["id"]
        with self._store.journal.changing() as session:
            session.put_upload(upload | {"state": "cancelled"})
            self._remove_parts(session, identifier)
            session.add_move("remove", self._place(identifier))
        self._running.pop(identifier, None)

    def _check_now(self, bucket: str, name: str, preconditions: Preconditions) -> None:
        """Refuse at once what would be refused at the end."""
        self._store.bucket(bucket)
        try:
            found = self._store.get(bucket, name)
        except errors.Refused:
            found = None
        preconditions.check(found)

    def _joined(self, parts: Sequence[dict[str, Any]]) -> Iterator[bytes]:
        for part in parts:
            with (self._directory / part["file"]).open("rb") as file:
                yield from checksums.chunks_of(file)

    def _file(self, identifier: str) -> Path:
        return self._directory / identifier

    def _place(self, file: str) -> str:
        return self._store.files.relative(self._directory / file)

    @contextmanager
    def _alone(self, identifier: str) -> Iterator[None]:
        """One request at a time for an upload."""
        with self._guard:
            lock = self._locks.setdefault(identifier, threading.Lock())
        with lock:
            yield


def _chosen(there: Mapping[int, dict[str, Any]], number: int, etag: str) -> dict[str, Any]:
    part = there.get(number)
    if not part or etag.strip('"') != part_etag(part):
        message = "One or more of the specified parts could not be found, or its ETag did not match."
        raise errors.invalid(message, code="InvalidPart")
    return part


def part_etag(part: Mapping[str, Any]) -> str:
    """A part's ETag: its MD5 in hexadecimal."""
    return checksums.in_hexadecimal(part["md5"])


def _miscounted(span: Span, received: int) -> errors.Refused:
    assert span.first is not None
    assert span.last is not None
    message = (
        f"Invalid request. There were {received} byte(s) in the request body. There should have been "
        f"{span.last + 1 - span.first} byte(s) (starting at offset {span.first} and ending at offset {span.last}) "
        "according to the Content-Range header."
    )
    return errors.invalid(message)
