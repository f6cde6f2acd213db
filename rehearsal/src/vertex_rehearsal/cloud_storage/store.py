"""Store: buckets and objects with generations and preconditions, kept as plain files and an index. No HTTP."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, TypeVar

from vertex_rehearsal.cloud_storage import checksums, errors, listing, names
from vertex_rehearsal.cloud_storage.external_changes import ExternalChanges, matches_file
from vertex_rehearsal.cloud_storage.files import Files, StagedContent
from vertex_rehearsal.cloud_storage.index import Index, Session
from vertex_rehearsal.cloud_storage.journal import Journal
from vertex_rehearsal.cloud_storage.listing import ObjectPage, Query
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


class Store:
    """One directory of buckets; any number of threads may use it at once."""

    def __init__(self, root: Path) -> None:
        self.files = Files(root)
        self.index = Index(self.files.state / "index.sqlite")
        self.journal = Journal(self.files, self.index)
        self._outside = ExternalChanges(self.files, self.index, self.journal)

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

    def list_buckets(
        self, project: str | None, *, prefix: str = "", after: str = "", limit: int = 1000
    ) -> list[BucketRecord]:
        """A project's buckets, or those of all projects, in the order of their names."""
        with self.index.read_session() as session:
            return session.list_buckets(project, prefix, after, limit)

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
            changed = replace(
                found,
                settings=change(found.settings),
                updated=session.next_timestamp(),
                metageneration=found.metageneration + 1,
            )
            session.put_bucket(changed)
        return changed

    def delete_bucket(self, name: str, preconditions: Preconditions = ANY) -> None:
        """Remove a bucket that holds nothing."""
        self.bucket(name)
        self._outside.scan_prefix(name, "")
        with self.index.write_session() as session:
            preconditions.check(_get_bucket(session, name))
            if session.has_objects(name):
                message = "The bucket you tried to delete is not empty."
                raise errors.StorageError(409, "conflict", message, code="BucketNotEmpty")
            session.remove_bucket(name)
            self.files.remove_directory(name)

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
        if not query.page_token:
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
                _check_holds(before)
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
    ) -> ObjectRecord:
        """An object with other settings."""

        def write(trust: bool) -> ObjectRecord:
            with self.index.write_session() as session:
                _get_bucket(session, bucket)
                found = self._find_object(session, bucket, name, generation, trust=trust)
                preconditions.check(found)
                changed = replace(
                    found,
                    settings=change(found.settings),
                    updated=session.next_timestamp(),
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
                _check_holds(found)
                if found.noncurrent_since is None and generation is None:
                    self._retire_generation(session, holder, found)
                else:
                    session.remove(found)
                    session.add_move("remove", found.place)
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
            _check_holds(now)
            self._retire_generation(session, _get_bucket(session, made.bucket), now)

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
        kept = {"storageClass": holder.default_class} | dict(settings)
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
        if holder.is_versioned:
            kept = self.files.new_noncurrent_place()
            session.put(replace(found, place=kept, folder=None, noncurrent_since=session.next_timestamp()))
            if found.place == replaced_by:
                session.add_move("link", found.place, kept)
            else:
                session.add_move("rename", found.place, kept)
            return
        session.remove(found)
        if found.place != replaced_by:
            session.add_move("remove", found.place)

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


def _check_holds(found: ObjectRecord | None) -> None:
    for key, word in (("temporaryHold", "Temporary"), ("eventBasedHold", "Event-Based")):
        if found and found.settings.get(key):
            message = (
                f"Object '{found.bucket}/{found.name}' is under active {word} hold and cannot be deleted, "
                "overwritten or archived until hold is removed."
            )
            raise errors.StorageError(403, "objectUnderActiveHold", message)
