"""The files of a store: objects are plain files in their bucket's directory; what no directory can hold lies aside."""

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
"""Beside the buckets; no bucket's name can start with a dot."""


@dataclass(frozen=True)
class StagedContent:
    """Content that is on disk and not yet an object."""

    path: Path
    checksums: Checksums


@dataclass(frozen=True)
class FileStatus:
    """What a file's entry in its directory says."""

    size: int
    modified_ns: int


class Files:
    """Everything below one root, which one process has at a time; places are named relative to it."""

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
        """Let another process have the directory."""
        self._lock.close()

    def bucket_directory(self, bucket: str) -> Path:
        """A bucket's directory: what a job sees as `/gcs/<bucket>`."""
        return self.root / bucket

    def path(self, place: str) -> Path:
        """The path of a place."""
        return self.root / place

    def stage_content(self, chunks: Iterable[bytes]) -> StagedContent:
        """Write content as it arrives; nothing is left of what does not arrive whole."""
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
        """A path that nothing has yet, on the file system of the buckets."""
        return self.state / "staging" / secrets.token_hex(16)

    def clear_staging(self) -> None:
        """Remove what a killed process was writing."""
        for left in (self.state / "staging").iterdir():
            left.unlink()

    def new_aside_place(self) -> str:
        """A new place for an object that cannot be a plain file."""
        return f"{STATE}/aside/{secrets.token_hex(16)}"

    def new_noncurrent_place(self) -> str:
        """A new place for a generation that is no longer live."""
        return f"{STATE}/noncurrent/{secrets.token_hex(16)}"

    def relative_place(self, path: Path) -> str:
        """A path of this store as a place."""
        return str(path.relative_to(self.root))

    def place_for(self, bucket: str, name: str) -> tuple[str, str | None]:
        """Where to keep an object, and its directory below the bucket's if it is a plain file there."""
        plain = names.plain_path(name)
        if plain is None or not self._is_free(bucket, plain):
            return self.new_aside_place(), None
        return f"{bucket}/{plain}", names.parent_folder(plain)

    def stat_object(self, bucket: str, name: str) -> FileStatus | None:
        """The plain file that has an object's name, whoever wrote it."""
        plain = names.plain_path(name)
        found = None if plain is None else self.stat_file(f"{bucket}/{plain}")
        return None if found and self.has_symlink(bucket, name) else found

    def has_symlink(self, bucket: str, plain: str) -> bool:
        """Whether a path leaves the bucket's directory through a link."""
        above = self.root / bucket
        for part in plain.split("/")[:-1]:
            above = above / part
            if above.is_symlink():
                return True
        return False

    def stat_file(self, place: str) -> FileStatus | None:
        """The regular file in a place; links are not followed."""
        try:
            status = os.lstat(self.root / place)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileStatus(status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None

    def apply_move(self, verb: str, source: str, target: str) -> None:
        """Do what was decided; doing it once more changes nothing."""
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
        """The same bytes under a second path, until one of them is replaced."""
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise
        except OSError:  # a file system without links
            copied = self.new_staging_path()
            shutil.copy2(source, copied)
            copied.replace(target)

    def make_folder(self, bucket: str, name: str) -> None:
        """Show an object whose name ends in a slash as the directory that it stands for, where one can be."""
        plain = names.plain_path(name.rstrip("/"))
        if plain is not None and self._is_free(bucket, f"{plain}/-"):
            with suppress(FileExistsError, NotADirectoryError):  # a job may just have written a file of this name
                (self.bucket_directory(bucket) / plain).mkdir(parents=True, exist_ok=True)

    def remove_folder(self, bucket: str, name: str) -> None:
        """Remove the directory of `make_folder` if nothing is in it."""
        plain = names.plain_path(name.rstrip("/"))
        if plain is not None:
            self._prune_directories(f"{bucket}/{plain}/-")

    def remove_directory(self, bucket: str) -> None:
        """Remove what is left of a bucket without objects."""
        shutil.rmtree(self.bucket_directory(bucket), ignore_errors=True)

    def _is_free(self, bucket: str, plain: str) -> bool:
        """Whether a file can stand here: every directory above is one, and it is no directory in use itself."""
        above = self.bucket_directory(bucket)
        *folders, _ = plain.split("/")
        for part in folders:
            above = above / part
            try:
                if not stat.S_ISDIR(os.lstat(above).st_mode):
                    return False
            except FileNotFoundError:
                return True
        target = self.bucket_directory(bucket) / plain
        if target.is_symlink() or not target.is_dir():
            return not target.is_symlink()
        return _remove_if_empty(target)

    def _prune_directories(self, place: str) -> None:
        """Remove directories above a place that hold nothing, up to the bucket's own."""
        parts = place.split("/")[:-1]
        while len(parts) > 1:
            try:
                self.path("/".join(parts)).rmdir()
            except OSError:
                return
            parts.pop()


def _remove_if_empty(directory: Path) -> bool:
    """Whether there was no file at any depth, in which case the directories are gone."""
    try:
        for entry in directory.iterdir():
            if entry.is_symlink() or not entry.is_dir() or not _remove_if_empty(entry):
                return False
        directory.rmdir()
    except OSError:  # somebody else is busy here
        return False
    return True
