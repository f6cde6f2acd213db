"""Synchronises the index with files that other processes write, change or remove in a bucket's directory."""

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
"""File timestamps have a resolution of some milliseconds: a file changed this recently may change unnoticed."""

_log = logging.getLogger(__name__)


class ExternalChanges:
    """Finds external changes of single files, and of directories that changed since they were last read."""

    def __init__(self, files: Files, index: Index, journal: Journal) -> None:
        self._files = files
        self._index = index
        self._journal = journal
        self._scanning = threading.Lock()
        self._folders: dict[Path, tuple[int, list[str]]] = {}
        """Directories as last read: modification time and subdirectories."""

    def sync_file(self, bucket: str, name: str) -> None:
        """Update the index with a file that another process wrote, changed or removed."""
        status = self._files.stat_object(bucket, name)
        sums = self._compute_checksums(bucket, name, status) if status else None
        with self._journal.begin_change() as session:
            before, current = session.get_live(bucket, name), self._files.stat_object(bucket, name)
            bucket_record = session.bucket(bucket)
            if not bucket_record or matches_file(before, current):
                return  # the apparent change was an unfinished write of this process
            if before and current is None:
                session.remove(before)
            elif status and sums:
                self._adopt_file(session, bucket_record, before, name, status, sums)

    def _compute_checksums(self, bucket: str, name: str, status: FileStatus) -> Checksums | None:
        age_ns = time.time_ns() - status.modified_ns
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
        bucket_record: BucketRecord,
        before: ObjectRecord | None,
        name: str,
        status: FileStatus,
        sums: Checksums,
    ) -> None:
        """Make a file that another process wrote the live generation of its object."""
        if before:
            session.remove(before)
            if before.folder is None:
                session.add_move("remove", before.place)
        now = session.next_timestamp()
        kind, encoding = guess_type(name)
        settings = complete_settings(bucket_record, {"contentType": kind} if kind and not encoding else {})
        bucket = bucket_record.name
        session.put(
            ObjectRecord(
                bucket,
                name,
                now,
                1,
                sums.size,
                sums.crc32c,
                sums.md5,
                f"{bucket}/{name}",
                names.parent_folder(name),
                status.modified_ns,
                now,
                now,
                settings=settings,
            )
        )

    def scan_prefix(self, bucket: str, prefix: str) -> None:
        """Index files that other processes wrote or removed in the directories of names with a prefix."""
        folder = names.parent_folder(prefix)
        if folder and (names.plain_path(folder) is None or self._files.has_symlink(bucket, f"{folder}/-")):
            return
        with self._scanning:
            present: set[str] = set()
            changed = False
            pending = [folder]
            while pending:
                current = pending.pop()
                entries = self._read_directory(self._files.bucket_directory(bucket) / current)
                changed = changed or entries is None or entries[1] is not None
                if entries is None:
                    continue
                present.add(current)
                subfolders, files = entries
                if files is not None:
                    self._sync_directory(bucket, current, files)
                pending += [f"{current}/{name}" if current else name for name in subfolders]
            if changed:
                self._forget_folders(bucket, folder, present)

    def _read_directory(self, folder: Path) -> tuple[list[str], list[str] | None] | None:
        """Return a directory's subdirectories and, if it changed since the last read, its files; None if it is gone."""
        try:
            status = os.lstat(folder)
            if not stat.S_ISDIR(status.st_mode):
                return None
            modified_ns, subfolders = self._folders.get(folder, (0, []))
            if modified_ns == status.st_mtime_ns:
                return subfolders, None
            read_ns = time.time_ns()
            with os.scandir(folder) as scan:
                entries = list(scan)
        except (FileNotFoundError, NotADirectoryError):
            return None
        subfolders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        if read_ns - status.st_mtime_ns > SETTLED_NS:
            self._folders[folder] = status.st_mtime_ns, subfolders
        return subfolders, [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]

    def _sync_directory(self, bucket: str, folder: str, files: list[str]) -> None:
        """Synchronise the files that are new to the index, and indexed ones that are gone."""
        present = {f"{folder}/{name}" if folder else name for name in files}
        with self._index.read_session() as session:
            known = session.names_in(bucket, folder)
        for name in present ^ known:
            if not names.explain_invalid_name(name):
                self.sync_file(bucket, name)

    def _forget_folders(self, bucket: str, folder: str, present: set[str]) -> None:
        """Synchronise the objects of directories that were removed."""
        with self._index.read_session() as session:
            removed = session.folders_below(bucket, folder) - present
            lost = [name for path in removed for name in session.names_in(bucket, path)]
        for name in lost:
            self.sync_file(bucket, name)


def matches_file(record: ObjectRecord | None, status: FileStatus | None) -> bool:
    """Return whether an object's record agrees with its file."""
    if record is None or record.folder is None:
        return status is None
    return status is not None and (status.size, status.modified_ns) == (record.size, record.modified_ns)
