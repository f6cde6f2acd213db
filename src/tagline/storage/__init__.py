"""A path or a gs:// address: read, written, listed and copied, so that a file is there whole or not at all.

Files, in the order of their imports:

- file_models.py: FileModel: the base of models of JSON files, frozen, which keep what later versions add.
"""

import errno
import fcntl
import glob
import gzip
import hashlib
import os
import secrets
import shutil
import stat
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import IO, TypeVar

from tagline import gcp
from tagline.errors import Conflict, DataError, PlaceError, RunError, SpecError
from tagline.gcp import cloud_storage

T = TypeVar("T")
R = TypeVar("R")
STANDARD_INPUT = "-"
LOCK = ".lock"
"""The file by which a process holds a directory."""

OLD_S = 86_400.0
SCRATCH_PREFIX = ".tagline-"
"""What is being written starts with this; readers pass over it, `sweep_scratch` removes what a killed process left."""
PRIVATE_FILE, PRIVATE_DIRECTORY = 0o600, 0o700
"""Permissions of what holds data: runs, bundles, copies of what is in Cloud Storage."""


def is_remote(address: str | Path) -> bool:
    """Whether an address is in Cloud Storage."""
    return str(address).startswith(gcp.SCHEME)


def require_local(address: str | Path) -> Path:
    """The path behind an address that has to be on this machine."""
    text = str(address)
    if is_remote(text):
        hint = f"name a path here; to take it there then: gcloud storage cp --recursive PATH {text}"
        raise PlaceError(f"{text} is in Cloud Storage, and this has to be on a disk of this machine", hint=hint)
    if text.startswith("file://"):
        raise PlaceError(f"{text} is an address, not a path", hint=f"name the path: {text.removeprefix('file://')}")
    if "://" in text:
        raise PlaceError(f"{text} is not on this machine", hint="download it first, and name the file")
    return Path(text)


def fetch_copy(address: str | Path) -> Path:
    """The path behind an address that is read: of a file or directory in Cloud Storage, a copy of it as it is now.

    Copies are kept by generation, so that nothing is fetched twice.
    """
    text = str(address)
    if not is_remote(text):
        return require_local(address)
    found = cloud_storage.list_objects(text)
    if not found:
        raise DataError(f"there is nothing at {text}", hint="gcloud storage ls shows what there is")
    is_file = found[0].address == text
    seen = hashlib.sha256("".join(f"{each.address}#{each.generation}\n" for each in found).encode()).hexdigest()
    place = cache_directory() / "gs" / seen
    if not place.is_dir():
        sweep_scratch(place.parent, older_than_s=OLD_S)
        try:
            with writing_directory(place) as scratch:
                copy_down(found, scratch, below=text.rpartition("/")[0] if is_file else text)
        except Conflict as error:
            raise file_changed_error(text) from error
        except PlaceError:
            if not place.is_dir():  # else another process was faster
                raise
    return place / Path(found[0].name).name if is_file else place


def choose_staging_path(address: str | Path) -> Path:
    """Where to write a file or a directory that is for this address; `deliver` then takes it there."""
    text = str(address)
    if not is_remote(text):
        return require_local(address)
    if text.endswith("/") or "/" not in text.removeprefix(gcp.SCHEME):
        raise SpecError(f"{text} names no file", hint="gs://BUCKET/NAME")
    return cache_directory() / "out" / hashlib.sha256(text.encode()).hexdigest() / Path(text).name


def deliver(path: Path, address: str | Path, *, last: str = "") -> None:
    """Take a file or a directory that was staged to its address; of a directory, the file `last` after all others."""
    if not is_remote(address):
        return
    if path.is_dir():
        copy_up(path, str(address), last=last)
        remove_directory(path)
    else:
        cloud_storage.upload(path, str(address))
        path.unlink()


def write_bytes(content: bytes, address: str) -> None:
    """An object of Cloud Storage, whole, from what is in memory."""
    with tempfile.NamedTemporaryFile(prefix=SCRATCH_PREFIX) as file:
        file.write(content)
        file.flush()
        cloud_storage.upload(Path(file.name), address)


def copy_down(found: Sequence[cloud_storage.RemoteObject], directory: Path, *, below: str) -> None:
    """Objects into a directory, several at a time, each by its name below an address."""

    def copy(each: cloud_storage.RemoteObject) -> None:
        target = directory / _check_object_name(each.address.removeprefix(below).lstrip("/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        cloud_storage.download(each, target)

    with disk_errors(directory):
        run_concurrently(copy, found, size=lambda each: each.size)


def copy_up(directory: Path, address: str, *, last: str = "") -> None:
    """A directory into Cloud Storage, several files at a time, the file `last` after all others: where it is, all is.

    What is there already, byte for byte, is not sent again.
    """
    top = address.rstrip("/")
    there = {each.address: each for each in cloud_storage.list_objects(f"{top}/")}

    def copy(path: Path) -> None:
        target = f"{top}/{path.relative_to(directory).as_posix()}"
        known = there.get(target)
        if known is None or known.size != path.stat().st_size or known.crc32c != cloud_storage.compute_checksum(path):
            cloud_storage.upload(path, target)

    files = files_below(directory)
    run_concurrently(copy, [path for path in files if path != directory / last], size=lambda path: path.stat().st_size)
    run_concurrently(copy, [path for path in files if path == directory / last])


def remove_remote(address: str) -> None:
    """Remove everything below an address in Cloud Storage, unfinished uploads too."""
    run_concurrently(cloud_storage.delete, cloud_storage.list_objects(f"{address.rstrip('/')}/", unfinished=True))


def run_concurrently(work: Callable[[T], R], items: Sequence[T], *, size: Callable[[T], int] = lambda _: 0) -> list[R]:
    """What comes of each item, several at a time; large ones by themselves, for they go in parts of their own.

    The first problem is raised once all that were begun have ended.
    """
    done: dict[int, R] = {}
    with ThreadPoolExecutor(cloud_storage.STREAMS) as pool:
        begun = {
            number: pool.submit(work, item) for number, item in enumerate(items) if size(item) < cloud_storage.LARGE
        }
        try:
            done |= {number: future.result() for number, future in begun.items()}
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [done[number] if number in done else work(item) for number, item in enumerate(items)]


def _check_object_name(name: str) -> str:
    """An object's name as a path below a directory; one that would lead out of it is refused."""
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise DataError(f'the object "{name}" has a name that no file can have', hint="rename it")
    return name


def cache_directory() -> Path:
    """Where copies are kept that can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tagline"


def is_copy(path: Path) -> bool:
    """Whether a path is in the copy of something in Cloud Storage, which is read and never changed."""
    return cache_directory() / "gs" in path.parents


def is_utf8(text: str) -> bool:
    """Whether a text, or a name from the command line, can be written: halves of characters and odd bytes cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def expand_globs(addresses: Sequence[str]) -> list[str]:
    """Globs replaced by the files they match, sorted; everything else as it stands."""
    found: list[str] = []
    for address in addresses:
        if is_remote(address) and glob.has_magic(address):
            matches = [each.address for each in cloud_storage.list_objects(address)]
            if not matches:
                raise DataError(f"no object matches {address}", hint="gcloud storage ls shows what there is")
            found.extend(matches)
            continue
        if address == STANDARD_INPUT or "://" in address or not glob.has_magic(address) or _path_exists(address):
            found.append(address)
            continue
        matches = sorted(path for path in glob.glob(address, recursive=True) if Path(path).is_file())  # noqa: PTH207
        if not matches:
            raise DataError(f"no file matches {address}", hint=f"relative paths start at {Path.cwd()}")
        found.extend(matches)
    return found


def _path_exists(address: str) -> bool:
    with _reading_errors(address):
        return Path(address).exists()


@contextmanager
def open_for_reading(address: str) -> Iterator[IO[bytes]]:
    """Open data for reading, from any position: unzipped, standard input and pipes kept on disk, never changing."""
    path = _copy_to_disk(address)
    with _reading_errors(address), path.open("rb") as file, _detect_change(file, address):
        zipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if zipped:
            with gzip.open(file) as unzipped:
                yield unzipped  # type: ignore[misc]
        else:
            yield file


@contextmanager
def _detect_change(file: IO[bytes], address: str) -> Iterator[None]:
    """Say that a file was written to while it was read, whatever else went wrong because of it."""
    before = _stamp_file(file)
    try:
        yield
    except Exception as error:
        if _stamp_file(file) != before:
            raise file_changed_error(address) from error
        raise
    if _stamp_file(file) != before:
        raise file_changed_error(address)


def read_stamp(address: str) -> tuple[int, ...]:
    """Changes when the file does."""
    with _reading_errors(address), _copy_to_disk(address).open("rb") as file:
        return _stamp_file(file)


def file_changed_error(address: str) -> DataError:
    """The error for a file that was written to while it was read."""
    return DataError(f"{address} changed while it was being read", hint="try again when nothing writes to it")


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


def files_below(directory: Path) -> list[Path]:
    """Every file below a directory, in a fixed order."""
    return sorted(path for path in directory.rglob("*") if path.is_file())


def hash_file(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_files(directory: Path) -> dict[str, str]:
    """The SHA-256 of every file below a directory, by its path there."""
    return {path.relative_to(directory).as_posix(): hash_file(path) for path in files_below(directory)}


def combine_hashes(hashes: Mapping[str, str]) -> str:
    """One SHA-256 of many files, from their names and each one's own."""
    lines = "".join(f"{name}\0{each}\n" for name, each in sorted(hashes.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def _stamp_file(file: IO[bytes]) -> tuple[int, ...]:
    status = os.fstat(file.fileno())
    return status.st_ino, status.st_size, status.st_mtime_ns


def _copy_to_disk(address: str) -> Path:
    """The path of an address; what can be read only once is copied to disk first."""
    if address == STANDARD_INPUT:
        return _spool_input(address)
    path = fetch_copy(address)
    if "\0" in address or not is_utf8(address):
        shown = address.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace").replace("\0", "\\x00")
        hint = "rename the file, or pipe it in: tagline ... - < FILE"
        raise DataError(f'the name "{shown}" is not that of a file, or not UTF-8', hint=hint)
    with _reading_errors(address):
        mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        hint = f'name a file, or a pattern such as "{path / "*.csv"}"'
        raise DataError(f"{address} is a directory", hint=hint)
    if stat.S_ISFIFO(mode):
        return _spool_input(address)
    if not stat.S_ISREG(mode):
        raise DataError(f"{address} is a device, not a file", hint="name a file, or - for standard input")
    return path


@cache
def _spool_input(address: str) -> Path:
    spool = tempfile.NamedTemporaryFile(prefix=SCRATCH_PREFIX)  # noqa: SIM115
    _kept.append(spool)
    if address == STANDARD_INPUT:
        if sys.stdin is None or sys.stdin.isatty():
            raise DataError("nothing comes in on standard input", hint="pipe the data in: cat data.csv | tagline ...")
        shutil.copyfileobj(sys.stdin.buffer, spool)
    else:
        with _reading_errors(address), Path(address).open("rb") as pipe:
            shutil.copyfileobj(pipe, spool)
    spool.flush()
    return Path(spool.name)


_kept: list[IO[bytes]] = []
"""Copies of standard input and pipes, which are gone when the process is."""


@contextmanager
def _reading_errors(address: str) -> Iterator[None]:
    """Say which file could not be read, and what to do."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"there is no file {address}", hint=_suggest_similar(Path(address))) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{address} is a damaged gzip file: {error}", hint="fetch or write it again") from error
    except OSError as error:
        hint = "is the name right, and may you read it?"
        raise DataError(f"cannot read {address}: {error.strerror or error}", hint=hint) from error


def _suggest_similar(path: Path) -> str:
    if path.is_symlink():
        return f"it is a link to {path.readlink()}, which is not there"
    beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    close = get_close_matches(path.name, beside, n=1)
    return f"did you mean {path.parent / close[0]}?" if close else f"relative paths start at {Path.cwd()}"


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
