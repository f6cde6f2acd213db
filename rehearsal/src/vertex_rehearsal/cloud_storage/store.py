"""Store: buckets and objects with generations and preconditions, kept as plain files and an index. No HTTP."""

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
PATIENCE = 5
"""How often a file that others go on writing is looked at anew before it is taken as it was last seen."""

T = TypeVar("T")


class _FileChanged(Exception):
    """Somebody else wrote the file of an object."""


@dataclass(frozen=True)
class SourceObject:
    """An object to copy or compose from."""

    bucket: str
    name: str
    generation: int | None = None
    preconditions: Preconditions = ANY
    key: str = ""
    """The SHA-256 of the key that it was written with."""


class Store:
    """One directory of buckets; any number of threads may use it at once."""

    def __init__(self, root: Path) -> None:
        self.files = Files(root)
        self.index = Index(self.files.state / "index.sqlite")
        self.journal = Journal(self.files, self.index)
        self._outside = ExternalChanges(self.files, self.index, self.journal)
        self._forget_expired()

    def close(self) -> None:
        """Let go of the directory."""
        self.index.close()
        self.files.close()

    def bucket(self, name: str, preconditions: Preconditions = ANY) -> BucketRecord:
        """A bucket, for a reader."""
        with self.index.read_session() as session:
            found = _get_bucket(session, name)
        preconditions.check(found, reading=True)
        return found

    def soft_deleted_bucket(self, name: str, generation: int) -> BucketRecord:
        """A deleted bucket that can be restored."""
        self._forget_expired()
        with self.index.read_session() as session:
            found = session.get_soft_deleted_bucket(name, generation)
        if not found:
            raise errors.no_bucket()
        return found

    def list_buckets(
        self,
        project: str | None,
        *,
        prefix: str = "",
        after: str = "",
        limit: int = 1000,
        soft_deleted: bool = False,
    ) -> list[BucketRecord]:
        """A project's buckets, or those of all projects, in the order of their names."""
        if soft_deleted:
            self._forget_expired()
        with self.index.read_session() as session:
            return session.list_buckets(project, prefix, after, limit, soft_deleted=soft_deleted)

    def create_bucket(self, name: str, *, project: str, settings: Mapping[str, Any]) -> BucketRecord:
        """A new bucket."""
        names.check_bucket_name(name)
        with self.index.write_session() as session:
            if session.bucket(name):
                message = "Your previous request to create the named bucket succeeded and you already own it."
                raise errors.StorageError(409, "conflict", message)
            now = session.next_timestamp()
            made = BucketRecord(name, project, now, now, settings=dict(settings))
            session.put_bucket(made)
            self.files.bucket_directory(name).mkdir(exist_ok=True)
        return made

    def change_bucket(
        self, name: str, change: Callable[[dict[str, Any]], dict[str, Any]], preconditions: Preconditions = ANY
    ) -> BucketRecord:
        """A bucket with other settings."""
        with self.index.write_session() as session:
            found = _get_bucket(session, name)
            preconditions.check(found)
            settings = change(found.settings)
            retention.check_policy_change(name, found.settings, settings)
            changed = replace(
                found,
                settings=settings,
                updated=session.next_timestamp(),
                metageneration=found.metageneration + 1,
            )
            session.put_bucket(changed)
        return changed

    def delete_bucket(self, name: str, preconditions: Preconditions = ANY) -> None:
        """Remove a bucket that holds nothing."""
        self.bucket(name)
        self._outside.scan_prefix(name, "")
        with self.journal.begin_change() as session:
            found = _get_bucket(session, name)
            preconditions.check(found)
            if session.has_objects(name):
                message = "The bucket you tried to delete is not empty."
                raise errors.StorageError(409, "conflict", message, code="BucketNotEmpty")
            session.remove_bucket(name)
            if found.soft_delete_us:
                session.soft_delete_bucket(found, session.next_timestamp())
            self.files.remove_directory(name)

    def restore_bucket(self, name: str, generation: int) -> BucketRecord:
        """A deleted bucket as it was, with its deleted objects; each of those can be restored then."""
        self._forget_expired()
        with self.index.write_session() as session:
            found = session.get_soft_deleted_bucket(name, generation)
            if not found:
                raise errors.no_bucket()
            if session.bucket(name):
                message = f"A bucket '{name}' exists; the deleted one cannot be restored beside it."
                raise errors.StorageError(409, "conflict", message)
            made = replace(found, soft_deleted=None, hard_deleted=None, updated=session.next_timestamp())
            session.restore_bucket(found)
            session.put_bucket(made)
            self.files.bucket_directory(name).mkdir(exist_ok=True)
        return made

    def get(
        self, bucket: str, name: str, *, generation: int | None = None, preconditions: Preconditions = ANY
    ) -> ObjectRecord:
        """An object, for a reader: its live generation unless another is named."""

        def find(trust: bool) -> ObjectRecord:
            with self.index.read_session() as session:
                _get_bucket(session, bucket)
                return self._find_object(session, bucket, name, generation, trust=trust)

        found = self._retry_on_change(bucket, name, find)
        preconditions.check(found, reading=True)
        return found

    def soft_deleted(self, bucket: str, name: str, generation: int) -> ObjectRecord:
        """A deleted generation that can be restored."""
        self._forget_expired()
        with self.index.read_session() as session:
            _get_bucket(session, bucket)
            found = session.get_soft_deleted(bucket, name, generation)
        if not found:
            raise errors.no_object(bucket, name)
        return found

    def restore(
        self, bucket: str, name: str, generation: int, *, copies_acl: bool = False, preconditions: Preconditions = ANY
    ) -> ObjectRecord:
        """A deleted generation once more, as a new one; the deleted one stays until it is deleted for good."""
        found = self.soft_deleted(bucket, name, generation)
        with self.files.path(found.place).open("rb") as file:
            staged = self.files.stage_content(checksums.read_chunks(file))
        own = (retention.RELEASED, *(() if copies_acl else (ACL,)))
        settings = {key: value for key, value in found.settings.items() if key not in own}
        return self.put(
            bucket, name, staged, settings=settings, preconditions=preconditions, components=found.components
        )

    def read(
        self, bucket: str, name: str, *, generation: int | None = None, preconditions: Preconditions = ANY
    ) -> tuple[ObjectRecord, IO[bytes]]:
        """An object and its bytes, which stay the same whatever happens to the object meanwhile."""
        looks = 0
        while True:
            looks += 1
            opened = self._open_generation(self.get(bucket, name, generation=generation, preconditions=preconditions))
            if opened and (_matches_record(*opened) or looks > PATIENCE):
                return opened
            if opened:
                with opened[1]:  # somebody else is writing it
                    self._update_checksums(*opened)

    def list_objects(self, query: Query) -> ObjectPage:
        """Objects by their names."""
        self.bucket(query.bucket)
        if query.soft_deleted:
            self._forget_expired()
        elif not query.page_token:
            self._outside.scan_prefix(query.bucket, query.prefix)
        with self.index.read_session() as session:
            page = listing.list_page(session, query)
        return replace(page, items=[found for found in map(self._refresh_object, page.items) if found])

    def put(
        self,
        bucket: str,
        name: str,
        staged: StagedContent,
        *,
        settings: Mapping[str, Any],
        preconditions: Preconditions = ANY,
        components: int | None = None,
        along: Callable[[Session, ObjectRecord], None] | None = None,
    ) -> ObjectRecord:
        """Make staged content the live generation of an object; `along` is done with it or not at all."""
        names.check_object_name(name)

        def write(trust: bool) -> ObjectRecord:
            with self.journal.begin_change() as session:
                holder = _get_bucket(session, bucket)
                before = self._find_live(session, bucket, name, trust=trust)
                preconditions.check(before)
                now = session.next_timestamp()
                retention.check_removable(holder, before, now, is_kept=holder.is_versioned)
                made = self._build_record(session, holder, name, staged, settings, components)
                session.put(made)
                if before:
                    self._retire_generation(session, holder, before, replaced_by=made.place)
                session.add_move("rename", self.files.relative_place(staged.path), made.place)
                if along:
                    along(session, made)
            if name.endswith("/"):
                self.files.make_folder(bucket, name)
            return made

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
        """An object with other settings."""

        def write(trust: bool) -> ObjectRecord:
            with self.index.write_session() as session:
                holder = _get_bucket(session, bucket)
                found = self._find_object(session, bucket, name, generation, trust=trust)
                preconditions.check(found)
                now = session.next_timestamp()
                changed = replace(
                    found,
                    settings=retention.check_change(
                        holder, found.settings, change(found.settings), now, overrides=overrides_retention
                    ),
                    updated=now,
                    metageneration=found.metageneration + 1,
                )
                session.put(changed)
            return changed

        return self._retry_on_change(bucket, name, write)

    def delete(
        self, bucket: str, name: str, *, generation: int | None = None, preconditions: Preconditions = ANY
    ) -> None:
        """Delete an object: where generations are kept the live one is kept too, unless it is named itself."""

        def write(trust: bool) -> None:
            with self.journal.begin_change() as session:
                holder = _get_bucket(session, bucket)
                found = self._find_object(session, bucket, name, generation, trust=trust)
                preconditions.check(found)
                archives = found.noncurrent_since is None and generation is None
                retention.check_removable(
                    holder, found, session.next_timestamp(), is_kept=archives and holder.is_versioned
                )
                if archives:
                    self._retire_generation(session, holder, found)
                else:
                    self._remove_generation(session, holder, found)
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
        """Make an object's content and settings, changed, those of another, or of the same once more."""
        names.check_object_name(name)
        self.bucket(bucket)
        found, file = self._open_source(source)
        with file:
            settings = change(found.settings)
            staged = self.files.stage_content(checksums.read_chunks(file))
        return self.put(
            bucket, name, staged, settings=settings, preconditions=preconditions, components=found.components
        )

    def move(self, source: SourceObject, name: str, *, preconditions: Preconditions = ANY) -> ObjectRecord:
        """Give an object another name in its bucket: no moment shows both, or none."""
        names.check_object_name(name)
        if name == source.name:
            raise errors.invalid_request("The source and destination object names must be different.")
        found, file = self._open_source(source)
        with file:
            staged = self.files.stage_content(checksums.read_chunks(file))

        def remove_source(session: Session, made: ObjectRecord) -> None:
            now = session.get_live(source.bucket, source.name)
            if not now or now.generation != found.generation:
                raise errors.unmet_precondition("ifSourceGenerationMatch")
            holder = _get_bucket(session, made.bucket)
            retention.check_removable(holder, now, made.created, is_kept=holder.is_versioned)
            self._retire_generation(session, holder, now)

        return self.put(
            source.bucket,
            name,
            staged,
            settings=found.settings,
            preconditions=preconditions,
            components=found.components,
            along=remove_source,
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
        """Put the contents of 1 to 32 objects of a bucket together."""
        names.check_object_name(name)
        if not 1 <= len(sources) <= MOST_COMPONENTS:
            message = f"The number of source components provided ({len(sources)}) is not between 1 and 32."
            raise errors.invalid_request(message)
        components = 0

        def chunks() -> Iterator[bytes]:
            nonlocal components
            for source in sources:
                found, file = self._open_source(source)
                components += found.components or 1
                with file:
                    yield from checksums.read_chunks(file)

        staged = self.files.stage_content(chunks())
        return self.put(bucket, name, staged, settings=settings, preconditions=preconditions, components=components)

    def _forget_expired(self) -> None:
        """Delete for good what was deleted long ago."""
        with self.journal.begin_change() as session:
            _remove_expired(session)

    def _open_generation(self, found: ObjectRecord) -> tuple[ObjectRecord, IO[bytes]] | None:
        """A generation and its file, in a moment in which no write of our own is half done; none if it is gone."""
        with self.index.exclusive_access():
            with self.index.read_session() as session:
                now = session.generation(found.bucket, found.name, found.generation)
            try:
                return (now, self.files.path(now.place).open("rb")) if now else None
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                if now and now.folder is None:  # no place that a list looks at
                    with self.index.write_session() as session:
                        session.remove(now)
                return None

    def _update_checksums(self, found: ObjectRecord, file: IO[bytes]) -> None:
        """Take note of a job that still wrote into a file when it ceased to be the live generation's."""
        if found.folder is not None:
            return
        modified_ns = os.fstat(file.fileno()).st_mtime_ns
        counted = checksums.checksum_file(file).result()
        with self.index.write_session() as session:
            now = session.generation(found.bucket, found.name, found.generation)
            if now:
                md5 = None if now.md5 is None else counted.md5
                session.put(replace(now, size=counted.size, crc32c=counted.crc32c, md5=md5, modified_ns=modified_ns))

    def _open_source(self, source: SourceObject) -> tuple[ObjectRecord, IO[bytes]]:
        found, file = self.read(source.bucket, source.name, generation=source.generation)
        try:
            source.preconditions.check(found)
            check_customer_key(found, source.key)
        except errors.StorageError:
            file.close()
            raise
        return found, file

    def _build_record(
        self,
        session: Session,
        holder: BucketRecord,
        name: str,
        staged: StagedContent,
        settings: Mapping[str, Any],
        components: int | None,
    ) -> ObjectRecord:
        now = session.next_timestamp()
        place, folder = self.files.place_for(holder.name, name)
        modified_ns = now * 1000 + 1  # no write by anybody else leaves exactly this time behind
        os.utime(staged.path, ns=(modified_ns, modified_ns))
        kept = access_controls.complete_acl(holder, retention.complete_settings(holder, settings))
        _check_encryption(holder, kept)
        kept = retention.check_change(holder, {}, kept, now, overrides=False)
        counted = staged.checksums
        return ObjectRecord(
            holder.name,
            name,
            now,
            1,
            counted.size,
            counted.crc32c,
            None if components else counted.md5,
            place,
            folder,
            modified_ns,
            now,
            now,
            components=components,
            settings=kept,
        )

    def _retire_generation(
        self, session: Session, holder: BucketRecord, found: ObjectRecord, *, replaced_by: str = ""
    ) -> None:
        """Take the live generation's place from it; its content is kept in a bucket that keeps generations."""
        if not holder.is_versioned:
            self._remove_generation(session, holder, found, replaced_by=replaced_by)
            return
        kept = self._keep_content(session, found, replaced_by)
        session.put(replace(found, place=kept, folder=None, noncurrent_since=session.next_timestamp()))

    def _remove_generation(
        self, session: Session, holder: BucketRecord, found: ObjectRecord, *, replaced_by: str = ""
    ) -> None:
        """Delete a generation; where the bucket says so, it can be restored for a while."""
        session.remove(found)
        _remove_expired(session)
        if holder.soft_delete_us:
            kept, now = self._keep_content(session, found, replaced_by), session.next_timestamp()
            ends = now + holder.soft_delete_us
            session.soft_delete(replace(found, place=kept, folder=None, soft_deleted=now, hard_deleted=ends))
        elif found.place != replaced_by:
            session.add_move("remove", found.place)

    def _keep_content(self, session: Session, found: ObjectRecord, replaced_by: str) -> str:
        """Where a generation's bytes are kept when they are no longer the live ones."""
        kept = self.files.new_noncurrent_place()
        session.add_move("link" if found.place == replaced_by else "rename", found.place, kept)
        return kept

    def _find_object(
        self, session: Session, bucket: str, name: str, generation: int | None, *, trust: bool
    ) -> ObjectRecord:
        live = self._find_live(session, bucket, name, trust=trust)
        found = live if generation is None else session.generation(bucket, name, generation)
        if not found:
            raise errors.no_object(bucket, name)
        return found

    def _find_live(self, session: Session, bucket: str, name: str, *, trust: bool) -> ObjectRecord | None:
        """The live generation, if the index is trusted or the bucket's directory agrees with it."""
        found = session.get_live(bucket, name)
        if not trust and not matches_file(found, self.files.stat_object(bucket, name)):
            raise _FileChanged
        return found

    def _retry_on_change(self, bucket: str, name: str, work: Callable[[bool], T]) -> T:
        """Do some work on an object, first taking note of what others did to its file."""
        for _ in range(PATIENCE):
            try:
                return work(False)
            except _FileChanged:
                self._outside.sync_file(bucket, name)
        return work(True)

    def _refresh_object(self, found: ObjectRecord) -> ObjectRecord | None:
        """A listed object as its file is now; none if it is gone."""
        if found.noncurrent_since is not None or found.folder is None:
            return found
        if matches_file(found, self.files.stat_file(found.place)):
            return found
        try:
            return self.get(found.bucket, found.name)
        except errors.StorageError:
            return None


def _get_bucket(session: Session, name: str) -> BucketRecord:
    found = session.bucket(name)
    if not found:
        raise errors.no_bucket()
    return found


def _matches_record(found: ObjectRecord, file: IO[bytes]) -> bool:
    return os.fstat(file.fileno()).st_mtime_ns == found.modified_ns


def _remove_expired(session: Session) -> None:
    """Delete for good what was deleted long ago."""
    for place in session.remove_expired(session.next_timestamp()):
        session.add_move("remove", place)


def _check_encryption(holder: BucketRecord, settings: Mapping[str, Any]) -> None:
    """Refuse a new object whose kind of encryption its bucket does not allow."""
    who = "customerSupplied" if settings.get(ENCRYPTION) else "googleManaged"
    rule = (holder.settings.get("encryption") or {}).get(f"{who}EncryptionEnforcementConfig") or {}
    if rule.get("restrictionMode") == "FullyRestricted":
        message = f"The bucket's encryption.{who}EncryptionEnforcementConfig does not allow objects of this encryption."
        raise errors.StorageError(412, "conditionNotMet", message)
