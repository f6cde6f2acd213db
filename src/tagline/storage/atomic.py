"""Atomic writes, locks, replacement and removal of local files and directories."""

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
"""The lock file of a directory."""
SCRATCH_PREFIX = ".tagline-"
"""The name prefix of temporary files; readers ignore them, `sweep_scratch` removes those left by killed processes."""
PRIVATE_FILE, PRIVATE_DIRECTORY = 0o600, 0o700
"""Permissions of files and directories that hold data: runs, bundles, copies of objects in Cloud Storage."""


@contextmanager
def open_for_writing(path: Path, *, is_private: bool = True) -> Iterator[IO[bytes]]:
    """Open `path` for an atomic write: it replaces the old file only if the block succeeds.

    A private file is accessible to its owner alone, unless the file it replaces was not; others follow the umask.

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
    """Write a text file atomically, as UTF-8."""
    with open_for_writing(path, is_private=is_private) as file:
        file.write(text.encode())


@contextmanager
def writing_directory(path: Path, *, is_private: bool = True) -> Iterator[Path]:
    """Yield a scratch directory that becomes `path` if the block succeeds; `path` must not exist yet.

    A private one is accessible to its owner alone, with all its content; others follow the umask.

    """
    with disk_errors(path):
        make_directory(path.parent, is_private=is_private)
        scratch = _create_scratch_directory(path.parent, mode=PRIVATE_DIRECTORY if is_private else 0o777)
    try:
        with disk_errors(path):
            mode = stat.S_IMODE(scratch.stat().st_mode)  # the requested mode with the umask applied
            yield scratch
            for entry in sorted(scratch.rglob("*")):
                if entry.is_symlink():
                    continue
                entry.chmod(mode if entry.is_dir() else mode & 0o666)  # libraries set modes of their own
                if entry.is_file():
                    _fsync(entry)
            scratch.rename(path)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def make_directory(path: Path, *, is_private: bool = True) -> None:
    """Create a directory; one that exists keeps its permissions."""
    path.mkdir(mode=PRIVATE_DIRECTORY if is_private else 0o777, parents=True, exist_ok=True)


def _create_scratch_file(directory: Path, *, mode: int) -> tuple[int, Path]:
    """Create a file under a unique name, open for writing; the umask is applied to its mode."""
    while True:
        path = directory / f"{SCRATCH_PREFIX}{secrets.token_hex(8)}"
        with suppress(FileExistsError):
            return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode), path


def _create_scratch_directory(directory: Path, *, mode: int) -> Path:
    """Create a directory under a unique name; the umask is applied to its mode."""
    while True:
        path = directory / f"{SCRATCH_PREFIX}{secrets.token_hex(8)}"
        with suppress(FileExistsError):
            path.mkdir(mode=mode)
            return path


def _mode_of(path: Path) -> int:
    """Return the permissions of a file; 0 if there is none."""
    try:
        return stat.S_IMODE(path.stat().st_mode) & 0o666
    except OSError:
        return 0


def remove_directory(path: Path) -> None:
    """Remove a directory atomically: it is renamed first, so that it is never half there under its name."""
    if not path.exists():
        return
    with disk_errors(path):
        discarded = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=path.parent)) / path.name
        path.rename(discarded)
        shutil.rmtree(discarded.parent)


def replace_directory(path: Path, *, by: Path) -> None:
    """Replace a directory, if there is one, by its sibling `by`; the old one is removed last."""
    with disk_errors(path):
        discarded = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=path.parent))
        if path.exists():
            path.rename(discarded / path.name)
        by.rename(path)
        shutil.rmtree(discarded)


@contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """Hold a directory's lock against other processes; it is released when this process ends for any reason."""
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
        # The pid is only for the error above: on a full disk the lock works without it, so that runs can be deleted.
        with suppress(OSError):
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), str(os.getpid()).encode())
        yield


def sweep_scratch(directory: Path, *, older_than_s: float = 0) -> None:
    """Remove temporary files leftover by killed processes; where others may be writing, only old ones."""
    for leftover in directory.glob(f"{SCRATCH_PREFIX}*"):
        if older_than_s and time.time() - leftover.lstat().st_mtime < older_than_s:
            continue
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Translate an OSError to a PlaceError that names the path and what to do."""
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
