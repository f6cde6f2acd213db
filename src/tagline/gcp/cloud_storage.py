"""Cloud Storage: buckets, and the objects in them, each read and written as the very generation that was seen."""

import base64
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tagline import gcp
from tagline.errors import Conflict, DataError, PlaceError

LARGE, CHUNK, STREAMS = 64 * 2**20, 16 * 2**20, 8
"""From how many bytes on a file goes in parts, how large these are, and how many go at a time."""
RETRIED_S = 120.0
"""How long a request is tried again while the network or the service is away."""
WRITER, UNFINISHED = "tagline-writer", ".tagline-part-"
"""What each upload is known by; and how the objects are named that a large one is put together from."""


@dataclass(frozen=True)
class RemoteObject:
    """An object in Cloud Storage, as it is now."""

    address: str
    name: str
    """Without the bucket's."""
    generation: int
    size: int = 0
    crc32c: str = ""
    updated: str = ""
    """When it was written, in UTC."""


@dataclass(frozen=True)
class BucketInfo:
    """What is known of a bucket."""

    name: str
    location: str
    """A region such as us-central1, or an area such as us."""


def find_bucket(name: str) -> BucketInfo | None:
    """A bucket; None where there is none of this name."""
    with gcp.translate_errors(f"{gcp.SCHEME}{name}"):
        found = gcp.storage_client().lookup_bucket(name)
    return BucketInfo(name, found.location.lower()) if found else None


def make_bucket(name: str, *, project: str, region: str) -> None:
    """Make a bucket, unless there is one of this name."""
    if find_bucket(name) is None:
        with gcp.translate_errors(f"{gcp.SCHEME}{name}"):
            gcp.storage_client().create_bucket(name, project=project, location=region)


def missing_permissions(name: str, permissions: Sequence[str]) -> list[str]:
    """Which of these permissions on a bucket whoever runs this lacks."""
    with gcp.translate_errors(f"{gcp.SCHEME}{name}"):
        held = gcp.storage_client().bucket(name).test_iam_permissions(list(permissions))
    return [each for each in permissions if each not in held]


def list_objects(address: str, *, unfinished: bool = False) -> list[RemoteObject]:
    """The object at an address, or else those below it; a pattern is matched. Sorted by name; none: an empty list.

    What killed uploads have left is among them only where `unfinished` asks for it.
    """
    bucket, name = _split_address(address)
    with gcp.translate_errors(address):
        if any(mark in name for mark in "*?["):
            found = list(gcp.storage_client().list_blobs(bucket, match_glob=name))
        elif name and not name.endswith("/"):
            found = [blob] if (blob := gcp.storage_client().bucket(bucket).get_blob(name)) else []
            found = found or list(gcp.storage_client().list_blobs(bucket, prefix=f"{name}/"))
        else:
            found = list(gcp.storage_client().list_blobs(bucket, prefix=name))
    found = [blob for blob in found if not blob.name.endswith("/")]  # consoles make folders of such names
    return [_describe_blob(blob) for blob in found if unfinished or UNFINISHED not in blob.name]


def object_at(address: str) -> RemoteObject | None:
    """The object of this very name; None where there is none."""
    bucket, name = _split_address(address)
    with gcp.translate_errors(address):
        blob = gcp.storage_client().bucket(bucket).get_blob(name)
    return _describe_blob(blob) if blob else None


def read_bytes(found: RemoteObject) -> bytes:
    """What is in an object, in the very form that was seen."""
    with (
        gcp.translate_errors(found.address),
        _translate_transfer_errors(found.address),
        _detect_replacement(found.address),
    ):
        content: bytes = _generation_blob(found).download_as_bytes(checksum="auto", raw_download=True)
    return content


def download(found: RemoteObject, path: Path) -> None:
    """An object into a file, in the very form that was seen; its checksum is checked on the way."""
    with (
        gcp.translate_errors(found.address),
        _translate_transfer_errors(found.address),
        _detect_replacement(found.address),
    ):
        if found.size < LARGE:
            _generation_blob(found).download_to_filename(path, checksum="auto", raw_download=True)
            return
        from google.cloud.storage import transfer_manager

        transfer_manager.download_chunks_concurrently(
            _generation_blob(found),
            path,
            chunk_size=CHUNK,
            worker_type=transfer_manager.THREAD,
            max_workers=STREAMS,
            download_kwargs={"raw_download": True},
        )


def upload(
    path: Path, address: str, *, if_generation: int | None = None, patience_s: float = RETRIED_S
) -> RemoteObject:
    """A file to an object, whole or not at all.

    With `if_generation` only in the place of that generation, 0 for none: else it is a `Conflict`.
    """
    bucket, name = _split_address(address)
    with gcp.translate_errors(address):
        from google.api_core.exceptions import NotFound, PreconditionFailed
        from google.cloud.storage.retry import DEFAULT_RETRY

        target = gcp.storage_client().bucket(bucket).blob(name)
        mark = uuid.uuid4().hex
        target.metadata = {WRITER: mark}
        sent = {"if_generation_match": if_generation, "retry": DEFAULT_RETRY.with_timeout(patience_s)}
        try:
            with _translate_transfer_errors(address):
                if path.stat().st_size < LARGE:
                    target.upload_from_filename(path, checksum="crc32c", **sent)
                else:
                    _upload_parts(path, target, mark, sent)
        except PreconditionFailed as error:
            # It may be this very call's: written, but the answer was lost, and the client has tried again.
            found = target.bucket.get_blob(name)
            if found is None or (found.metadata or {}).get(WRITER) != mark:
                raise Conflict(f"{address} was written by somebody else meanwhile", hint="try again") from error
            target = found
        except NotFound as error:
            raise PlaceError(f"there is no bucket {bucket}", hint="was it removed, or is its name wrong?") from error
        return _describe_blob(target)


def delete(found: RemoteObject) -> None:
    """Remove an object, unless another generation of it has come since; one that is gone already is gone."""
    with gcp.translate_errors(found.address):
        from google.api_core.exceptions import NotFound, PreconditionFailed

        bucket, name = _split_address(found.address)
        with suppress(NotFound, PreconditionFailed):
            gcp.storage_client().bucket(bucket).blob(name).delete(if_generation_match=found.generation)


def compute_checksum(path: Path) -> str:
    """The CRC32C of a file, as Cloud Storage writes it."""
    import google_crc32c

    found: Any = google_crc32c.Checksum()  # type: ignore[no-untyped-call]
    with path.open("rb") as file:
        for part in iter(lambda: file.read(CHUNK), b""):
            found.update(part)
    return base64.b64encode(found.digest()).decode()


def _upload_parts(path: Path, target: Any, mark: str, sent: Mapping[str, Any]) -> None:
    """A large file in parts, several at a time, under a name of their own; the whole then takes its place at once."""
    from google.cloud.storage import transfer_manager

    parts = target.bucket.blob(f"{target.name}{UNFINISHED}{mark}")
    parts.metadata = {WRITER: mark}
    try:
        transfer_manager.upload_chunks_concurrently(
            path,
            parts,
            chunk_size=CHUNK,
            worker_type=transfer_manager.THREAD,
            max_workers=STREAMS,
            checksum="crc32c",
            retry=sent["retry"],
        )
        parts.reload(retry=sent["retry"])
        if parts.crc32c != compute_checksum(path):
            raise _damage_error(f"{gcp.SCHEME}{target.bucket.name}/{target.name}")
        token, _, _ = target.rewrite(parts, **sent)
        while token:
            token, _, _ = target.rewrite(parts, token=token, **sent)
    finally:
        target.bucket.delete_blobs([parts], on_error=lambda _: None, retry=sent["retry"])


def _generation_blob(found: RemoteObject) -> Any:
    bucket, name = _split_address(found.address)
    return gcp.storage_client().bucket(bucket).blob(name, generation=found.generation)


def _describe_blob(blob: Any) -> RemoteObject:
    address = f"{gcp.SCHEME}{blob.bucket.name}/{blob.name}"
    updated = blob.updated.isoformat() if blob.updated else ""
    return RemoteObject(address, blob.name, int(blob.generation), int(blob.size or 0), blob.crc32c or "", updated)


@contextmanager
def _translate_transfer_errors(address: str) -> Iterator[None]:
    """What Google's package says of a transfer in other words than of everything else."""
    from google.api_core.exceptions import from_http_response
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse

    try:
        yield
    except DataCorruption as error:
        raise _damage_error(address) from error
    except InvalidResponse as error:
        raise from_http_response(error.response) from error  # type: ignore[no-untyped-call]


def _damage_error(address: str) -> PlaceError:
    return PlaceError(f"{address} was damaged on its way: its checksum is wrong", hint="try again")


@contextmanager
def _detect_replacement(address: str) -> Iterator[None]:
    """An object that was seen a moment ago and is not there any more in that form."""
    from google.api_core.exceptions import NotFound

    try:
        yield
    except NotFound as error:
        raise Conflict(f"{address} was replaced or removed while it was read", hint="try again") from error


def _split_address(address: str) -> tuple[str, str]:
    bucket, _, name = address.removeprefix(gcp.SCHEME).partition("/")
    if not bucket:
        raise DataError(f"{address} names no bucket", hint="gs://BUCKET/NAME")
    return bucket, name
