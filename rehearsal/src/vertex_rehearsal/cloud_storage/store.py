"""Store of buckets and objects, with generations and preconditions, in plain files and an index. No HTTP."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, TypeVar

from vertex_rehearsal.cloud_storage import access_controls, checksums, errors, listing, names, retention
from vertex_rehearsal.cloud_storage.customer_keys import check_customer_key
from vertex_rehearsal.cloud_storage.external_changes import ExternalChanges, matches_file
from vertex_rehearsal.cloud_storage.files import Files, StagedContent
from vertex_rehearsal.cloud_storage.index import Index, Session
from vertex_rehearsal.cloud_storage.journal import Journal
from vertex_rehearsal.cloud_storage.listing import ObjectPage, Query
from vertex_rehearsal.cloud_storage.object_settings import ACL, ENCRYPTION
from vertex_rehearsal.cloud_storage.preconditions import ANY, Preconditions
from vertex_rehearsal.cloud_storage.records import BucketRecord, ObjectRecord

MOST_COMPONENTS = 32
MAX_ATTEMPTS = 5
"""Attempts on a file that other processes keep writing, before the index is trusted as it is."""

T = TypeVar("T")


class _FileChanged(Exception):
    """Another process wrote the file of an object."""


@dataclass(frozen=True)
class SourceObject:
    """An object to copy or compose from."""

    bucket: str
    name: str
    generation: int | None = None
    preconditions: Preconditions = ANY
    key: str = ""
    """The SHA-256 of its customer-supplied key, if any."""


class Store:
    """The buckets in one directory; safe for concurrent use by threads."""

    def __init__(self, root: Path) -> None:
        self.files = Files(root)
        self.index = Index(self.files.state / "index.sqlite")
        self.journal = Journal(self.files, self.index)
        self._external_changes = ExternalChanges(self.files, self.index, self.journal)
        self._forget_expired()

    def close(self) -> None:
        """Close the index and release the lock on the directory."""
        self.index.close()
        self.files.close()

    def bucket(self, name: str, preconditions: Preconditions = ANY) -> BucketRecord:
        """Return a bucket, for a reader."""
        with self.index.read_session() as session:
            bucket_record = _get_bucket(session, name)
        preconditions.check(bucket_record, reading=True)
        return bucket_record

    def soft_deleted_bucket(self, name: str, generation: int) -> BucketRecord:
        """Return a soft-deleted bucket."""
        self._forget_expired()
        with self.index.read_session() as session:
            bucket_record = session.get_soft_deleted_bucket(name, generation)
        if not bucket_record:
            raise errors.no_bucket()
        return bucket_record

    def list_buckets(
        self,
        project: str | None,
        *,
        prefix: str = "",
        after: str = "",
        limit: int = 1000,
        soft_deleted: bool = False,
    ) -> list[BucketRecord]:
        """Return the buckets of a project, or of all projects, by name."""
        if soft_deleted:
            self._forget_expired()
        with self.index.read_session() as session:
            return session.list_buckets(project, prefix, after, limit, soft_deleted=soft_deleted)

    def create_bucket(self, name: str, *, project: str, settings: Mapping[str, Any]) -> BucketRecord:
        """Create a bucket."""
        names.check_bucket_name(name)
        with self.index.write_session() as session:
            if session.bucket(name):
                message = "Your previous request to create the named bucket succeeded and you already own it."
                raise errors.StorageError(409, "conflict", message)
            now = session.next_timestamp()
            bucket_record = BucketRecord(name, project, now, now, settings=dict(settings))
            session.put_bucket(bucket_record)
            self.files.bucket_directory(name).mkdir(exist_ok=True)
        return bucket_record

    def change_bucket(
        self, name: str, change: Callable[[dict[str, Any]], dict[str, Any]], preconditions: Preconditions = ANY
    ) -> BucketRecord:
        """Change a bucket's settings."""
        with self.index.write_session() as session:
            bucket_record = _get_bucket(session, name)
            preconditions.check(bucket_record)
            settings = change(bucket_record.settings)
            retention.check_policy_change(name, bucket_record.settings, settings)
            changed = replace(
                bucket_record,
                settings=settings,
                updated=session.next_timestamp(),
                metageneration=bucket_record.metageneration + 1,
            )
            session.put_bucket(changed)
        return changed

    def delete_bucket(self, name: str, preconditions: Preconditions = ANY) -> None:
        """Delete an empty bucket."""
        self.bucket(name)
        self._external_changes.scan_prefix(name, "")
        with self.journal.begin_change() as session:
            bucket_record = _get_bucket(session, name)
            preconditions.check(bucket_record)
            if session.has_objects(name):
                message = "The bucket you tried to delete is not empty."
                raise errors.StorageError(409, "conflict", message, code="BucketNotEmpty")
            session.remove_bucket(name)
            if bucket_record.soft_delete_us:
                session.soft_delete_bucket(bucket_record, session.next_timestamp())
            self.files.remove_directory(name)

    def restore_bucket(self, name: str, generation: int) -> BucketRecord:
        """Restore a soft-deleted bucket; its soft-deleted objects can be restored afterwards."""
        self._forget_expired()
        with self.index.write_session() as session:
            deleted = session.get_soft_deleted_bucket(name, generation)
            if not deleted:
                raise errors.no_bucket()
            if session.bucket(name):
                message = f"A bucket '{name}' exists; the deleted one cannot be restored beside it."
                raise errors.StorageError(409, "conflict", message)
            restored = replace(deleted, soft_deleted=None, hard_deleted=None, updated=session.next_timestamp())
            session.restore_bucket(deleted)
            session.put_bucket(restored)
            self.files.bucket_directory(name).mkdir(exist_ok=True)
        return restored

    def get(
        self, bucket: str, name: str, *, generation: int | None = None, preconditions: Preconditions = ANY
    ) -> ObjectRecord:
        """Return an object for a reader: the live generation, or the one given."""

        def find(trust: bool) -> ObjectRecord:
            with self.index.read_session() as session:
                _get_bucket(session, bucket)
                return self._find_object(session, bucket, name, generation, trust=trust)

        record = self._retry_on_change(bucket, name, find)
        preconditions.check(record, reading=True)
        return record

    def soft_deleted(self, bucket: str, name: str, generation: int) -> ObjectRecord:
        """Return a soft-deleted generation."""
        self._forget_expired()
        with self.index.read_session() as session:
            _get_bucket(session, bucket)
            record = session.get_soft_deleted(bucket, name, generation)
        if not record:
            raise errors.no_object(bucket, name)
        return record

    def restore(
        self, bucket: str, name: str, generation: int, *, copies_acl: bool = False, preconditions: Preconditions = ANY
    ) -> ObjectRecord:
        """Restore a soft-deleted generation as a new one; the soft-deleted one is kept until its hard-delete time."""
        deleted = self.soft_deleted(bucket, name, generation)
        with self.files.path(deleted.place).open("rb") as file:
            staged = self.files.stage_content(checksums.read_chunks(file))
        excluded = (retention.RELEASED, *(() if copies_acl else (ACL,)))
        settings = {key: value for key, value in deleted.settings.items() if key not in excluded}
        return self.put(
            bucket, name, staged, settings=settings, preconditions=preconditions, components=deleted.components
        )

    def read(
        self, bucket: str, name: str, *, generation: int | None = None, preconditions: Preconditions = ANY
    ) -> tuple[ObjectRecord, IO[bytes]]:
        """Return an object and its open file, which is unaffected by later changes of the object."""
        attempts = 0
        while True:
            attempts += 1
            opened = self._open_generation(self.get(bucket, name, generation=generation, preconditions=preconditions))
            if opened and (_matches_record(*opened) or attempts > MAX_ATTEMPTS):
                return opened
            if opened:
                with opened[1]:  # another process is writing it
                    self._update_checksums(*opened)

    def list_objects(self, query: Query) -> ObjectPage:
        """Return a page of objects by name."""
        self.bucket(query.bucket)
        if query.soft_deleted:
            self._forget_expired()
        elif not query.page_token:
            self._external_changes.scan_prefix(query.bucket, query.prefix)
        with self.index.read_session() as session:
            page = listing.list_page(session, query)
        return replace(page, items=[record for record in map(self._refresh_object, page.items) if record])

    def put(
        self,
        bucket: str,
        name: str,
        staged: StagedContent,
        *,
        settings: Mapping[str, Any],
        preconditions: Preconditions = ANY,
        components: int | None = None,
        in_transaction: Callable[[Session, ObjectRecord], None] | None = None,
    ) -> ObjectRecord:
        """Make staged content the live generation of an object; `in_transaction` is called in the same transaction."""
        names.check_object_name(name)

        def write(trust: bool) -> ObjectRecord:
            with self.journal.begin_change() as session:
                bucket_record = _get_bucket(session, bucket)
                before = self._find_live(session, bucket, name, trust=trust)
                preconditions.check(before)
                now = session.next_timestamp()
                retention.check_removable(bucket_record, before, now, is_kept=bucket_record.is_versioned)
                record = self._build_record(session, bucket_record, name, staged, settings, components)
                session.put(record)
                if before:
                    self._retire_generation(session, bucket_record, before, replaced_by=record.place)
                session.add_move("rename", self.files.relative_place(staged.path), record.place)
                if in_transaction:
                    in_transaction(session, record)
            if name.endswith("/"):
                self.files.make_folder(bucket, name)
            return record

        try:
            return self._retry_on_change(bucket, name, write)
        finally:
            staged.path.unlink(missing_ok=True)

    def change(
        self,
        bucket: str,
        name: str,
        change: Callable[[dict[str, Any]], dict[str, Any]],
        *,
        generation: int | None = None,
        preconditions: Preconditions = ANY,
        overrides_retention: bool = False,
    ) -> ObjectRecord:
        """Change an object's settings."""

        def write(trust: bool) -> ObjectRecord:
            with self.index.write_session() as session:
                bucket_record = _get_bucket(session, bucket)
                record = self._find_object(session, bucket, name, generation, trust=trust)
                preconditions.check(record)
                now = session.next_timestamp()
                changed = replace(
                    record,
                    settings=retention.check_change(
                        bucket_record, record.settings, change(record.settings), now, overrides=overrides_retention
                    ),
                    updated=now,
                    metageneration=record.metageneration + 1,
                )
                session.put(changed)
            return changed

        return self._retry_on_change(bucket, name, write)

    def delete(
        self, bucket: str, name: str, *, generation: int | None = None, preconditions: Preconditions = ANY
    ) -> None:
        """Delete an object; with versioning the live generation becomes noncurrent, unless it is named."""

        def write(trust: bool) -> None:
            with self.journal.begin_change() as session:
                bucket_record = _get_bucket(session, bucket)
                record = self._find_object(session, bucket, name, generation, trust=trust)
                preconditions.check(record)
                archives = record.noncurrent_since is None and generation is None
                retention.check_removable(
                    bucket_record, record, session.next_timestamp(), is_kept=archives and bucket_record.is_versioned
                )
                if archives:
                    self._retire_generation(session, bucket_record, record)
                else:
                    self._remove_generation(session, bucket_record, record)
            if name.endswith("/"):
                self.files.remove_folder(bucket, name)

        self._retry_on_change(bucket, name, write)

    def copy(
        self,
        source: SourceObject,
        bucket: str,
        name: str,
        *,
        change: Callable[[dict[str, Any]], dict[str, Any]],
        preconditions: Preconditions = ANY,
    ) -> ObjectRecord:
        """Copy an object's content and changed settings to another name, or to a new generation of its own."""
        names.check_object_name(name)
        self.bucket(bucket)
        record, file = self._open_source(source)
        with file:
            settings = change(record.settings)
            staged = self.files.stage_content(checksums.read_chunks(file))
        return self.put(
            bucket, name, staged, settings=settings, preconditions=preconditions, components=record.components
        )

    def move(self, source: SourceObject, name: str, *, preconditions: Preconditions = ANY) -> ObjectRecord:
        """Rename an object within its bucket, atomically."""
        names.check_object_name(name)
        if name == source.name:
            raise errors.invalid_request("The source and destination object names must be different.")
        record, file = self._open_source(source)
        with file:
            staged = self.files.stage_content(checksums.read_chunks(file))

        def remove_source(session: Session, target: ObjectRecord) -> None:
            current = session.get_live(source.bucket, source.name)
            if not current or current.generation != record.generation:
                raise errors.unmet_precondition("ifSourceGenerationMatch")
            bucket_record = _get_bucket(session, target.bucket)
            retention.check_removable(bucket_record, current, target.created, is_kept=bucket_record.is_versioned)
            self._retire_generation(session, bucket_record, current)

        return self.put(
            source.bucket,
            name,
            staged,
            settings=record.settings,
            preconditions=preconditions,
            components=record.components,
            in_transaction=remove_source,
        )

    def compose(
        self,
        bucket: str,
        name: str,
        sources: Sequence[SourceObject],
        *,
        settings: Mapping[str, Any],
        preconditions: Preconditions = ANY,
    ) -> ObjectRecord:
        """Concatenate 1 to 32 objects of a bucket."""
        names.check_object_name(name)
        if not 1 <= len(sources) <= MOST_COMPONENTS:
            message = f"The number of source components provided ({len(sources)}) is not between 1 and 32."
            raise errors.invalid_request(message)
        components = 0

        def chunks() -> Iterator[bytes]:
            nonlocal components
            for source in sources:
                record, file = self._open_source(source)
                components += record.components or 1
                with file:
                    yield from checksums.read_chunks(file)

        staged = self.files.stage_content(chunks())
        return self.put(bucket, name, staged, settings=settings, preconditions=preconditions, components=components)

    def _forget_expired(self) -> None:
        """Delete soft-deleted objects past their hard-delete time."""
        with self.journal.begin_change() as session:
            _remove_expired(session)

    def _open_generation(self, record: ObjectRecord) -> tuple[ObjectRecord, IO[bytes]] | None:
        """Return a generation and its open file while no write of this process is in progress; None if it is gone."""
        with self.index.exclusive_access():
            with self.index.read_session() as session:
                current = session.generation(record.bucket, record.name, record.generation)
            try:
                return (current, self.files.path(current.place).open("rb")) if current else None
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                if current and current.folder is None:  # in no directory that `list_objects` scans
                    with self.index.write_session() as session:
                        session.remove(current)
                return None

    def _update_checksums(self, record: ObjectRecord, file: IO[bytes]) -> None:
        """Update the record of a noncurrent generation whose file a job still wrote after it was replaced."""
        if record.folder is not None:
            return
        modified_ns = os.fstat(file.fileno()).st_mtime_ns
        sums = checksums.checksum_file(file).result()
        with self.index.write_session() as session:
            current = session.generation(record.bucket, record.name, record.generation)
            if current:
                md5 = None if current.md5 is None else sums.md5
                session.put(replace(current, size=sums.size, crc32c=sums.crc32c, md5=md5, modified_ns=modified_ns))

    def _open_source(self, source: SourceObject) -> tuple[ObjectRecord, IO[bytes]]:
        record, file = self.read(source.bucket, source.name, generation=source.generation)
        try:
            source.preconditions.check(record)
            check_customer_key(record, source.key)
        except errors.StorageError:
            file.close()
            raise
        return record, file

    def _build_record(
        self,
        session: Session,
        bucket_record: BucketRecord,
        name: str,
        staged: StagedContent,
        settings: Mapping[str, Any],
        components: int | None,
    ) -> ObjectRecord:
        now = session.next_timestamp()
        place, folder = self.files.place_for(bucket_record.name, name)
        modified_ns = now * 1000 + 1  # marks the file as ours: no other write has exactly this time
        os.utime(staged.path, ns=(modified_ns, modified_ns))
        completed = access_controls.complete_acl(bucket_record, retention.complete_settings(bucket_record, settings))
        _check_encryption(bucket_record, completed)
        completed = retention.check_change(bucket_record, {}, completed, now, overrides=False)
        sums = staged.checksums
        return ObjectRecord(
            bucket_record.name,
            name,
            now,
            1,
            sums.size,
            sums.crc32c,
            None if components else sums.md5,
            place,
            folder,
            modified_ns,
            now,
            now,
            components=components,
            settings=completed,
        )

    def _retire_generation(
        self, session: Session, bucket_record: BucketRecord, record: ObjectRecord, *, replaced_by: str = ""
    ) -> None:
        """Replace the live generation; with versioning it is kept as a noncurrent one."""
        if not bucket_record.is_versioned:
            self._remove_generation(session, bucket_record, record, replaced_by=replaced_by)
            return
        place = self._keep_content(session, record, replaced_by)
        session.put(replace(record, place=place, folder=None, noncurrent_since=session.next_timestamp()))

    def _remove_generation(
        self, session: Session, bucket_record: BucketRecord, record: ObjectRecord, *, replaced_by: str = ""
    ) -> None:
        """Delete a generation; with soft delete it can be restored for a while."""
        session.remove(record)
        _remove_expired(session)
        if bucket_record.soft_delete_us:
            place, now = self._keep_content(session, record, replaced_by), session.next_timestamp()
            ends = now + bucket_record.soft_delete_us
            session.soft_delete(replace(record, place=place, folder=None, soft_deleted=now, hard_deleted=ends))
        elif record.place != replaced_by:
            session.add_move("remove", record.place)

    def _keep_content(self, session: Session, record: ObjectRecord, replaced_by: str) -> str:
        """Move the content of a replaced generation to a new place and return that place."""
        place = self.files.new_noncurrent_place()
        session.add_move("link" if record.place == replaced_by else "rename", record.place, place)
        return place

    def _find_object(
        self, session: Session, bucket: str, name: str, generation: int | None, *, trust: bool
    ) -> ObjectRecord:
        live = self._find_live(session, bucket, name, trust=trust)
        record = live if generation is None else session.generation(bucket, name, generation)
        if not record:
            raise errors.no_object(bucket, name)
        return record

    def _find_live(self, session: Session, bucket: str, name: str, *, trust: bool) -> ObjectRecord | None:
        """Return the live generation; raise `_FileChanged` if its file disagrees and the index is not to be trusted."""
        record = session.get_live(bucket, name)
        if not trust and not matches_file(record, self.files.stat_object(bucket, name)):
            raise _FileChanged
        return record

    def _retry_on_change(self, bucket: str, name: str, work: Callable[[bool], T]) -> T:
        """Call `work`, synchronising the object's file and retrying when another process changed it."""
        for _ in range(MAX_ATTEMPTS):
            try:
                return work(False)
            except _FileChanged:
                self._external_changes.sync_file(bucket, name)
        return work(True)

    def _refresh_object(self, record: ObjectRecord) -> ObjectRecord | None:
        """Return a listed object in agreement with its file; None if it is gone."""
        if record.noncurrent_since is not None or record.folder is None:
            return record
        if matches_file(record, self.files.stat_file(record.place)):
            return record
        try:
            return self.get(record.bucket, record.name)
        except errors.StorageError:
            return None


def _get_bucket(session: Session, name: str) -> BucketRecord:
    bucket_record = session.bucket(name)
    if not bucket_record:
        raise errors.no_bucket()
    return bucket_record


def _matches_record(record: ObjectRecord, file: IO[bytes]) -> bool:
    return os.fstat(file.fileno()).st_mtime_ns == record.modified_ns


def _remove_expired(session: Session) -> None:
    """Delete soft-deleted rows past their hard-delete time, and their files."""
    for place in session.remove_expired(session.next_timestamp()):
        session.add_move("remove", place)


def _check_encryption(bucket_record: BucketRecord, settings: Mapping[str, Any]) -> None:
    """Refuse a new object whose kind of encryption its bucket does not allow."""
    source = "customerSupplied" if settings.get(ENCRYPTION) else "googleManaged"
    rule = (bucket_record.settings.get("encryption") or {}).get(f"{source}EncryptionEnforcementConfig") or {}
    if rule.get("restrictionMode") == "FullyRestricted":
        message = (
            f"The bucket's encryption.{source}EncryptionEnforcementConfig does not allow objects of this encryption."
        )
        raise errors.StorageError(412, "conditionNotMet", message)
