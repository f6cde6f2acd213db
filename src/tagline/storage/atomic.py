"""Files and directories of this machine: written whole or not at all, locked, replaced and removed."""

import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tagline.errors import PlaceError, RunError

LOCK = ".lock"
"""The file by which a process holds a directory."""
SCRATCH_PREFIX = ".tagline-"
"""What is being written starts with this; readers pass over it, `sweep_scratch` removes what a killed process left."""
PRIVATE_FILE, PRIVATE_DIRECTORY = 0o600, 0o700
"""Permissions of what holds data: runs, bundles, copies of what is in Cloud Storage."""


@contextmanager
def open_for_writing(path: Path, *, is_private: bool = True) -> Iterator[IO[bytes]]:
    """Open `path` for writing; it takes the place of the old file only when the block ends well.

    A private file is its owner's alone, unless the one that it replaces was not; others are as the umask says.
    """
    with disk_errors(path):
        make_directory(path.parent, is_private=is_private)
        descriptor, name = _create_scratch_file(path.parent, mode=PRIVATE_FILE if is_private else 0o666)
    try:
        with disk_errors(path), os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if is_private and (mode := _mode_of(path)):
                os.fchmod(file.fileno(), mode)
        with disk_errors(path):
            name.replace(path)
    except BaseException:
        name.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str, *, is_private: bool = True) -> None:
    """Write a whole text file, as UTF-8, in one go."""
    with open_for_writing(path, is_private=is_private) as file:
        file.write(text.encode())


@contextmanager
def writing_directory(path: Path, *, is_private: bool = True) -> Iterator[Path]:
    """A scratch directory that becomes `path` when the block ends well; `path` must not be there yet.

    A private one, with all that is in it, is its owner's alone; others are as the umask says.
    """
    with disk_errors(path):
        make_directory(path.parent, is_private=is_private)
        scratch = _create_scratch_directory(path.parent, mode=PRIVATE_DIRECTORY if is_private else 0o777)
    try:
        with disk_errors(path):
            mode = stat.S_IMODE(scratch.stat().st_mode)  # as the system made it, which knows the umask
            yield scratch
            for each in sorted(scratch.rglob("*")):
                if each.is_symlink():
                    continue
                each.chmod(mode if each.is_dir() else mode & 0o666)  # libraries write as they like
                if each.is_file():
                    _fsync(each)
            scratch.rename(path)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def make_directory(path: Path, *, is_private: bool = True) -> None:
    """Make a directory, unless it is there: then its permissions stay as they are."""
    path.mkdir(mode=PRIVATE_DIRECTORY if is_private else 0o777, parents=True, exist_ok=True)


def _create_scratch_file(directory: Path, *, mode: int) -> tuple[int, Path]:
    """A new file under a name that nobody else uses, open for writing; the umask takes from its mode."""
    while True:
        path = directory / f"{SCRATCH_PREFIX}{secrets.token_hex(8)}"
        with suppress(FileExistsError):
            return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode), path


def _create_scratch_directory(directory: Path, *, mode: int) -> Path:
    """A new directory under a name that nobody else uses; the umask takes from its mode."""
    while True:
        path = directory / f"{SCRATCH_PREFIX}{secrets.token_hex(8)}"
        with suppress(FileExistsError):
            path.mkdir(mode=mode)
            return path


def _mode_of(path: Path) -> int:
    """The permissions of a file; 0 where there is none."""
    try:
        return stat.S_IMODE(path.stat().st_mode) & 0o666
    except OSError:
        return 0


def remove_directory(path: Path) -> None:
    """Remove a directory so that no moment shows half of it under its name."""
    if not path.exists():
        return
    with disk_errors(path):
        doomed = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=path.parent)) / path.name
        path.rename(doomed)
        shutil.rmtree(doomed.parent)


def replace_directory(path: Path, *, by: Path) -> None:
    """Put a directory in the place of one beside it, which is removed only then; there may be none yet."""
    with disk_errors(path):
        doomed = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=path.parent))
        if path.exists():
            path.rename(doomed / path.name)
        by.rename(path)
        shutil.rmtree(doomed)


@contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """Keep every other process from writing in a directory; ends with the process, however that ends."""
    path = directory / LOCK
    with disk_errors(path):
        lock = path.open("a+")
    with lock as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip()
            raise RunError(f"{directory} is in use by process {holder}", hint="wait for it, or stop it") from error
        # Who holds it is for the error above alone: on a full disk it is held all the same, so that it can be deleted.
        with suppress(OSError):
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), str(os.getpid()).encode())
        yield


def sweep_scratch(directory: Path, *, older_than_s: float = 0) -> None:
    """Remove what killed processes left half-written here; where others may be writing, only what is old."""
    for left in directory.glob(f"{SCRATCH_PREFIX}*"):
        if older_than_s and time.time() - left.lstat().st_mtime < older_than_s:
            continue
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Say which path could not be written, and what to do."""
    try:
        yield
    except OSError as error:
        hints = {
            errno.ENOSPC: "free some space and run the same command again, or name another place",
            errno.EDQUOT: "free some space and run the same command again, or name another place",
            errno.EACCES: "make it writable, or name another place",
            errno.EROFS: "it is on a read-only file system: name another place",
        }
        reason = error.strerror or str(error)
        raise PlaceError(f"cannot write {path}: {reason}", hint=hints.get(error.errno or 0, "")) from error
