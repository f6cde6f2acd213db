"""Input files: globs, decompression, spooling of standard input and pipes, and detection of changes."""

import glob
import gzip
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import IO

from tagline.errors import DataError
from tagline.gcp import cloud_storage
from tagline.storage import addresses, atomic

STANDARD_INPUT = "-"


def is_utf8(text: str) -> bool:
    """Return whether a string can be encoded as UTF-8: lone surrogates, also those of undecodable bytes, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def expand_globs(patterns: Sequence[str]) -> list[str]:
    """Replace globs by the files they match, sorted; other addresses stay as they are."""
    expanded: list[str] = []
    for address in patterns:
        if addresses.is_remote(address) and glob.has_magic(address):
            matches = [remote.address for remote in cloud_storage.list_objects(address)]
            if not matches:
                raise DataError(f"no object matches {address}", hint="gcloud storage ls shows what there is")
            expanded.extend(matches)
            continue
        if address == STANDARD_INPUT or "://" in address or not glob.has_magic(address) or _path_exists(address):
            expanded.append(address)
            continue
        matches = sorted(path for path in glob.glob(address, recursive=True) if Path(path).is_file())  # noqa: PTH207
        if not matches:
            raise DataError(f"no file matches {address}", hint=f"relative paths start at {Path.cwd()}")
        expanded.extend(matches)
    return expanded


def _path_exists(address: str) -> bool:
    with _reading_errors(address):
        return Path(address).exists()


@contextmanager
def open_for_reading(address: str) -> Iterator[IO[bytes]]:
    """Open an input for reading from any position: decompressed, spooled if it is a stream, and checked for changes."""
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
    """Raise an error if a file was written to while it was read, in place of other errors that this caused."""
    before = _stamp_file(file)
    try:
        yield
    except Exception as error:
        if _stamp_file(file) != before:
            raise addresses.file_changed_error(address) from error
        raise
    if _stamp_file(file) != before:
        raise addresses.file_changed_error(address)


def read_stamp(address: str) -> tuple[int, ...]:
    """Return a value that changes when the file does."""
    with _reading_errors(address), _copy_to_disk(address).open("rb") as file:
        return _stamp_file(file)


def _stamp_file(file: IO[bytes]) -> tuple[int, ...]:
    status = os.fstat(file.fileno())
    return status.st_ino, status.st_size, status.st_mtime_ns


def _copy_to_disk(address: str) -> Path:
    """Return the path of an address; streams are spooled to disk first."""
    if address == STANDARD_INPUT:
        return _spool_input(address)
    path = addresses.fetch_copy(address)
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
    spool = tempfile.NamedTemporaryFile(prefix=atomic.SCRATCH_PREFIX)  # noqa: SIM115
    _spools.append(spool)
    if address == STANDARD_INPUT:
        if sys.stdin is None or sys.stdin.isatty():
            raise DataError("nothing comes in on standard input", hint="pipe the data in: cat data.csv | tagline ...")
        shutil.copyfileobj(sys.stdin.buffer, spool)
    else:
        with _reading_errors(address), Path(address).open("rb") as pipe:
            shutil.copyfileobj(pipe, spool)
    spool.flush()
    return Path(spool.name)


_spools: list[IO[bytes]] = []
"""Spooled standard input and pipes, which are deleted when the process ends."""


@contextmanager
def _reading_errors(address: str) -> Iterator[None]:
    """Translate an error in reading to a DataError that names the file and what to do."""
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
    siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    close = get_close_matches(path.name, siblings, n=1)
    return f"did you mean {path.parent / close[0]}?" if close else f"relative paths start at {Path.cwd()}"
