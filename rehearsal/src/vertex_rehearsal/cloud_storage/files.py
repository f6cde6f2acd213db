"""The files of a store: objects are plain files in their bucket's directory where the name allows it."""

import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vertex_rehearsal.cloud_storage import checksums, names
from vertex_rehearsal.cloud_storage.checksums import Checksums
from vertex_rehearsal.errors import EmulatorUnavailable

STATE = ".cloud-storage"
"""Directory beside the buckets; a bucket's name cannot start with a dot."""


@dataclass(frozen=True)
class StagedContent:
    """Content that is on disk and not yet an object."""

    path: Path
    checksums: Checksums


@dataclass(frozen=True)
class FileStatus:
    """Size and modification time of a file."""

    size: int
    modified_ns: int


class Files:
    """The files below one root, locked for one process; places are paths relative to the root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = root / STATE
        for name in ("staging", "aside", "noncurrent", "uploads"):
            (self.state / name).mkdir(parents=True, exist_ok=True)
        self._lock = (self.state / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.close()
            hint = "stop it, or name another directory"
            raise EmulatorUnavailable(f"another process serves the buckets in {root}", hint=hint) from error

    def close(self) -> None:
        """Release the lock on the directory."""
        self._lock.close()

    def bucket_directory(self, bucket: str) -> Path:
        """Return a bucket's directory, which a job sees as `/gcs/<bucket>`."""
        return self.root / bucket

    def path(self, place: str) -> Path:
        """Return the path of a place."""
        return self.root / place

    def stage_content(self, chunks: Iterable[bytes]) -> StagedContent:
        """Write streamed content to a staging file, which is removed if the stream fails."""
        path = self.new_staging_path()
        running = checksums.RunningChecksums()
        try:
            with path.open("wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                    running.add(chunk)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return StagedContent(path, running.result())

    def new_staging_path(self) -> Path:
        """Return a new path on the file system of the buckets."""
        return self.state / "staging" / secrets.token_hex(16)

    def clear_staging(self) -> None:
        """Remove the staging files of a killed process."""
        for path in (self.state / "staging").iterdir():
            path.unlink()

    def new_aside_place(self) -> str:
        """Return a new place for an object that cannot be a plain file."""
        return f"{STATE}/aside/{secrets.token_hex(16)}"

    def new_noncurrent_place(self) -> str:
        """Return a new place for a noncurrent generation."""
        return f"{STATE}/noncurrent/{secrets.token_hex(16)}"

    def relative_place(self, path: Path) -> str:
        """Return a path of this store as a place."""
        return str(path.relative_to(self.root))

    def place_for(self, bucket: str, name: str) -> tuple[str, str | None]:
        """Return the place for an object, and its directory below the bucket's if it is a plain file."""
        plain = names.plain_path(name)
        if plain is None or not self._is_free(bucket, plain):
            return self.new_aside_place(), None
        return f"{bucket}/{plain}", names.parent_folder(plain)

    def stat_object(self, bucket: str, name: str) -> FileStatus | None:
        """Return the status of the plain file with an object's name, if there is one."""
        plain = names.plain_path(name)
        status = None if plain is None else self.stat_file(f"{bucket}/{plain}")
        return None if status and self.has_symlink(bucket, name) else status

    def has_symlink(self, bucket: str, plain: str) -> bool:
        """Return whether a path leads through a symbolic link."""
        parent = self.root / bucket
        for part in plain.split("/")[:-1]:
            parent = parent / part
            if parent.is_symlink():
                return True
        return False

    def stat_file(self, place: str) -> FileStatus | None:
        """Return the status of the regular file at a place; symbolic links are not followed."""
        try:
            status = os.lstat(self.root / place)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileStatus(status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None

    def apply_move(self, verb: str, source: str, target: str) -> None:
        """Apply a journaled file operation; it is idempotent."""
        match verb:
            case "rename" if self.path(source).exists():
                self.path(target).parent.mkdir(parents=True, exist_ok=True)
                self.path(source).replace(self.path(target))
            case "link" if not self.path(target).exists():
                self._link_or_copy(self.path(source), self.path(target))
            case "remove":
                self.path(source).unlink(missing_ok=True)
        if not source.startswith(STATE):
            self._prune_directories(source)

    def _link_or_copy(self, source: Path, target: Path) -> None:
        """Hard-link a file, or copy it where the file system has no links."""
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise
        except OSError:  # a file system without links
            copy = self.new_staging_path()
            shutil.copy2(source, copy)
            copy.replace(target)

    def make_folder(self, bucket: str, name: str) -> None:
        """Create the directory of an object whose name ends in a slash, where possible."""
        plain = names.plain_path(name.rstrip("/"))
        if plain is not None and self._is_free(bucket, f"{plain}/-"):
            with suppress(FileExistsError, NotADirectoryError):  # a job may just have written a file of this name
                (self.bucket_directory(bucket) / plain).mkdir(parents=True, exist_ok=True)

    def remove_folder(self, bucket: str, name: str) -> None:
        """Remove the directory of `make_folder` if it is empty."""
        plain = names.plain_path(name.rstrip("/"))
        if plain is not None:
            self._prune_directories(f"{bucket}/{plain}/-")

    def remove_directory(self, bucket: str) -> None:
        """Remove the directory of an empty bucket."""
        shutil.rmtree(self.bucket_directory(bucket), ignore_errors=True)

    def _is_free(self, bucket: str, plain: str) -> bool:
        """Return whether a file can be created here; a directory of its name is removed if it holds no files."""
        parent = self.bucket_directory(bucket)
        *folders, _ = plain.split("/")
        for part in folders:
            parent = parent / part
            try:
                if not stat.S_ISDIR(os.lstat(parent).st_mode):
                    return False
            except FileNotFoundError:
                return True
        target = self.bucket_directory(bucket) / plain
        if target.is_symlink() or not target.is_dir():
            return not target.is_symlink()
        return _remove_if_empty(target)

    def _prune_directories(self, place: str) -> None:
        """Remove the empty directories above a place, up to the bucket's own."""
        parts = place.split("/")[:-1]
        while len(parts) > 1:
            try:
                self.path("/".join(parts)).rmdir()
            except OSError:
                return
            parts.pop()


def _remove_if_empty(directory: Path) -> bool:
    """Remove a tree of directories without files; return whether it was removed."""
    try:
        for entry in directory.iterdir():
            if entry.is_symlink() or not entry.is_dir() or not _remove_if_empty(entry):
                return False
        directory.rmdir()
    except OSError:  # another process writes here
        return False
    return True
