"""Paths and gs:// addresses: told apart, fetched into copies, delivered, copied and removed."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from tagline import gcp
from tagline.errors import Conflict, DataError, PlaceError, SpecError
from tagline.gcp import cloud_storage
from tagline.storage import atomic, hashing

T = TypeVar("T")
R = TypeVar("R")
OLD_S = 86_400.0


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
        atomic.sweep_scratch(place.parent, older_than_s=OLD_S)
        try:
            with atomic.writing_directory(place) as scratch:
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
        atomic.remove_directory(path)
    else:
        cloud_storage.upload(path, str(address))
        path.unlink()


def write_bytes(content: bytes, address: str) -> None:
    """An object of Cloud Storage, whole, from what is in memory."""
    with tempfile.NamedTemporaryFile(prefix=atomic.SCRATCH_PREFIX) as file:
        file.write(content)
        file.flush()
        cloud_storage.upload(Path(file.name), address)


def copy_down(found: Sequence[cloud_storage.RemoteObject], directory: Path, *, below: str) -> None:
    """Objects into a directory, several at a time, each by its name below an address."""

    def copy(each: cloud_storage.RemoteObject) -> None:
        target = directory / _check_object_name(each.address.removeprefix(below).lstrip("/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        cloud_storage.download(each, target)

    with atomic.disk_errors(directory):
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

    files = hashing.files_below(directory)
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


def file_changed_error(address: str) -> DataError:
    """The error for a file that was written to while it was read."""
    return DataError(f"{address} changed while it was being read", hint="try again when nothing writes to it")
