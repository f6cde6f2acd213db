"""Files that others wrote, changed or removed in a bucket's directory, brought into the index as objects."""

import logging
import os
import stat
import threading
import time
from mimetypes import guess_type
from pathlib import Path

from vertex_rehearsal.cloud_storage import checksums, names
from vertex_rehearsal.cloud_storage.checksums import Checksums
from vertex_rehearsal.cloud_storage.files import Files, FileStatus
from vertex_rehearsal.cloud_storage.index import Index, Session
from vertex_rehearsal.cloud_storage.journal import Journal
from vertex_rehearsal.cloud_storage.records import BucketRecord, ObjectRecord
from vertex_rehearsal.cloud_storage.retention import complete_settings

SETTLED_NS = 50_000_000
"""A file system's clock may stand still for some milliseconds: what changed so lately may change unseen."""

_log = logging.getLogger(__name__)


class ExternalChanges:
    """Looks at single files, and at directories that changed since they were last read."""

    def __init__(self, files: Files, index: Index, journal: Journal) -> None:
        self._files = files
        self._index = index
        self._journal = journal
        self._scanning = threading.Lock()
        self._folders: dict[Path, tuple[int, list[str]]] = {}
        """Directories as they were last read: their time of change, and the directories in them."""

    def sync_file(self, bucket: str, name: str) -> None:
        """Bring the index up to a file that somebody else wrote, changed or removed."""
        seen = self._files.stat_object(bucket, name)
        counted = self._compute_checksums(bucket, name, seen) if seen else None
        with self._journal.begin_change() as session:
            before, now_seen = session.get_live(bucket, name), self._files.stat_object(bucket, name)
            holder = session.bucket(bucket)
            if not holder or matches_file(before, now_seen):
                return  # what looked like a change was a write of our own that was not yet finished
            if before and now_seen is None:
                session.remove(before)
            elif seen and counted:
                self._adopt_file(session, holder, before, name, seen, counted)

    def _compute_checksums(self, bucket: str, name: str, seen: FileStatus) -> Checksums | None:
        age_ns = time.time_ns() - seen.modified_ns
        if 0 <= age_ns < SETTLED_NS:
            time.sleep((SETTLED_NS - age_ns) / 1e9)
        try:
            with (self._files.bucket_directory(bucket) / name).open("rb") as file:
                return checksums.checksum_file(file).result()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except PermissionError:
            _log.warning("%s/%s cannot be read, and is no object for that", bucket, name)
            return None

    def _adopt_file(
        self,
        session: Session,
        holder: BucketRecord,
        before: ObjectRecord | None,
        name: str,
        seen: FileStatus,
        counted: Checksums,
    ) -> None:
        """Make a file that somebody else wrote the live generation of the object that it names."""
        if before:
            session.remove(before)
            if before.folder is None:
                session.add_move("remove", before.place)
        now = session.next_timestamp()
        kind, encoding = guess_type(name)
        settings = complete_settings(holder, {"contentType": kind} if kind and not encoding else {})
        bucket = holder.name
        session.put(
            ObjectRecord(
                bucket,
                name,
                now,
                1,
                counted.size,
                counted.crc32c,
                counted.md5,
                f"{bucket}/{name}",
                names.parent_folder(name),
                seen.modified_ns,
                now,
                now,
                settings=settings,
            )
        )

    def scan_prefix(self, bucket: str, prefix: str) -> None:
        """Take note of files that others wrote or removed in the directories where names begin with a prefix."""
        folder = names.parent_folder(prefix)
        if folder and (names.plain_path(folder) is None or self._files.has_symlink(bucket, f"{folder}/-")):
            return
        with self._scanning:
            present: set[str] = set()
            changed = False
            waiting = [folder]
            while waiting:
                each = waiting.pop()
                entries = self._read_directory(self._files.bucket_directory(bucket) / each)
                changed = changed or entries is None or entries[1] is not None
                if entries is None:
                    continue
                present.add(each)
                below, written = entries
                if written is not None:
                    self._sync_directory(bucket, each, written)
                waiting += [f"{each}/{name}" if each else name for name in below]
            if changed:
                self._forget_folders(bucket, folder, present)

    def _read_directory(self, folder: Path) -> tuple[list[str], list[str] | None] | None:
        """The directories in a directory, and its files if any came or went since it was read; none if it is gone."""
        try:
            status = os.lstat(folder)
            if not stat.S_ISDIR(status.st_mode):
                return None
            modified_ns, below = self._folders.get(folder, (0, []))
            if modified_ns == status.st_mtime_ns:
                return below, None
            read_ns = time.time_ns()
            with os.scandir(folder) as found:
                entries = list(found)
        except (FileNotFoundError, NotADirectoryError):
            return None
        below = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        if read_ns - status.st_mtime_ns > SETTLED_NS:
            self._folders[folder] = status.st_mtime_ns, below
        return below, [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]

    def _sync_directory(self, bucket: str, folder: str, written: list[str]) -> None:
        """Take note of each file that the index does not know, and of each that it knows and is not there."""
        there = {f"{folder}/{name}" if folder else name for name in written}
        with self._index.read_session() as session:
            known = session.names_in(bucket, folder)
        for name in there ^ known:
            if not names.explain_invalid_name(name):
                self.sync_file(bucket, name)

    def _forget_folders(self, bucket: str, folder: str, present: set[str]) -> None:
        """Take note of directories that were removed with all that was in them."""
        with self._index.read_session() as session:
            gone = session.folders_below(bucket, folder) - present
            lost = [name for each in gone for name in session.names_in(bucket, each)]
        for name in lost:
            self.sync_file(bucket, name)


def matches_file(found: ObjectRecord | None, seen: FileStatus | None) -> bool:
    """Whether what the index knows of an object is what its directory shows."""
    if found is None or found.folder is None:
        return seen is None
    return seen is not None and (seen.size, seen.modified_ns) == (found.size, found.modified_ns)
