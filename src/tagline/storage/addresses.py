"""Local paths and gs:// addresses: cached downloads, uploads, copies and removal."""

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
    """Return whether an address is in Cloud Storage."""
    return str(address).startswith(gcp.SCHEME)


def require_local(address: str | Path) -> Path:
    """Return the path of an address that must be on this machine."""
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
    """Return a local path for reading an address: for one in Cloud Storage, a copy of its current state.

    Copies are cached by generation, so that nothing is downloaded twice.

    """
    text = str(address)
    if not is_remote(text):
        return require_local(address)
    objects = cloud_storage.list_objects(text)
    if not objects:
        raise DataError(f"there is nothing at {text}", hint="gcloud storage ls shows what there is")
    is_file = objects[0].address == text
    version = hashlib.sha256(
        "".join(f"{remote.address}#{remote.generation}\n" for remote in objects).encode()
    ).hexdigest()
    copy = cache_directory() / "gs" / version
    if not copy.is_dir():
        atomic.sweep_scratch(copy.parent, older_than_s=OLD_S)
        try:
            with atomic.writing_directory(copy) as scratch:
                copy_down(objects, scratch, below=text.rpartition("/")[0] if is_file else text)
        except Conflict as error:
            raise file_changed_error(text) from error
        except PlaceError:
            if not copy.is_dir():  # otherwise another process has finished it first
                raise
    return copy / Path(objects[0].name).name if is_file else copy


def choose_staging_path(address: str | Path) -> Path:
    """Return the local path at which to write a file or directory before `deliver` moves it to this address."""
    text = str(address)
    if not is_remote(text):
        return require_local(address)
    if text.endswith("/") or "/" not in text.removeprefix(gcp.SCHEME):
        raise SpecError(f"{text} names no file", hint="gs://BUCKET/NAME")
    return cache_directory() / "out" / hashlib.sha256(text.encode()).hexdigest() / Path(text).name


def deliver(path: Path, address: str | Path, *, last: str = "") -> None:
    """Move a staged file or directory to its address; of a directory, the file `last` is uploaded after all others."""
    if not is_remote(address):
        return
    if path.is_dir():
        copy_up(path, str(address), last=last)
        atomic.remove_directory(path)
    else:
        cloud_storage.upload(path, str(address))
        path.unlink()


def write_bytes(content: bytes, address: str) -> None:
    """Write bytes to an object in Cloud Storage atomically."""
    with tempfile.NamedTemporaryFile(prefix=atomic.SCRATCH_PREFIX) as file:
        file.write(content)
        file.flush()
        cloud_storage.upload(Path(file.name), address)


def copy_down(objects: Sequence[cloud_storage.RemoteObject], directory: Path, *, below: str) -> None:
    """Download objects concurrently into a directory, remote to its path relative to the address `below`."""

    def copy(remote: cloud_storage.RemoteObject) -> None:
        target = directory / _check_object_name(remote.address.removeprefix(below).lstrip("/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        cloud_storage.download(remote, target)

    with atomic.disk_errors(directory):
        run_concurrently(copy, objects, size=lambda remote: remote.size)


def copy_up(directory: Path, address: str, *, last: str = "") -> None:
    """Upload a directory concurrently, with the file `last` after all others: where it exists, the copy is complete.

    Objects that have the same content already are not uploaded again.

    """
    top = address.rstrip("/")
    existing = {remote.address: remote for remote in cloud_storage.list_objects(f"{top}/")}

    def copy(path: Path) -> None:
        target = f"{top}/{path.relative_to(directory).as_posix()}"
        known = existing.get(target)
        if known is None or known.size != path.stat().st_size or known.crc32c != cloud_storage.compute_checksum(path):
            cloud_storage.upload(path, target)

    files = hashing.files_below(directory)
    run_concurrently(copy, [path for path in files if path != directory / last], size=lambda path: path.stat().st_size)
    run_concurrently(copy, [path for path in files if path == directory / last])


def remove_remote(address: str) -> None:
    """Remove every object below an address in Cloud Storage, including parts of unfinished uploads."""
    run_concurrently(cloud_storage.delete, cloud_storage.list_objects(f"{address.rstrip('/')}/", unfinished=True))


def run_concurrently(work: Callable[[T], R], items: Sequence[T], *, size: Callable[[T], int] = lambda _: 0) -> list[R]:
    """Return the result for each item, computed concurrently; large items, which are split into parts, run one by one.

    The first error is raised after all tasks that had started have ended.

    """
    results: dict[int, R] = {}
    with ThreadPoolExecutor(cloud_storage.STREAMS) as pool:
        futures = {
            number: pool.submit(work, item) for number, item in enumerate(items) if size(item) < cloud_storage.LARGE
        }
        try:
            results |= {number: future.result() for number, future in futures.items()}
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [results[number] if number in results else work(item) for number, item in enumerate(items)]


def _check_object_name(name: str) -> str:
    """Return an object's name as a relative path; raise DataError if it would lead out of its directory."""
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise DataError(f'the object "{name}" has a name that no file can have', hint="rename it")
    return name


def cache_directory() -> Path:
    """Return the directory of cached copies, which can be deleted at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tagline"


def is_copy(path: Path) -> bool:
    """Return whether a path is in a cached copy from Cloud Storage, which is never changed."""
    return cache_directory() / "gs" in path.parents


def file_changed_error(address: str) -> DataError:
    """Return the error for a file that was written to while it was read."""
    return DataError(f"{address} changed while it was being read", hint="try again when nothing writes to it")
