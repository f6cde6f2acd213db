"""Cloud Storage: buckets, and objects that are read and written with generation preconditions."""

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
"""Size in bytes from which a file is transferred in parts; size of a part; number of concurrent transfers."""
RETRIED_S = 120.0
"""How long a request is retried while the network or the service is unavailable."""
WRITER, UNFINISHED = "tagline-writer", ".tagline-part-"
"""The metadata key that identifies an upload; and the name infix of the temporary objects of large uploads."""


@dataclass(frozen=True)
class RemoteObject:
    """An object in Cloud Storage at one generation."""

    address: str
    name: str
    """The object's name, without the bucket's."""
    generation: int
    size: int = 0
    crc32c: str = ""
    updated: str = ""
    """When it was written, in UTC."""


@dataclass(frozen=True)
class BucketInfo:
    """The name and the location of a bucket."""

    name: str
    location: str
    """A region such as us-central1, or a multi-region such as us."""


def find_bucket(name: str) -> BucketInfo | None:
    """Return a bucket, or None if no bucket has this name."""
    with gcp.translate_errors(f"{gcp.SCHEME}{name}"):
        bucket = gcp.storage_client().lookup_bucket(name)
    return BucketInfo(name, bucket.location.lower()) if bucket else None


def make_bucket(name: str, *, project: str, region: str) -> None:
    """Create a bucket, unless one of this name exists."""
    if find_bucket(name) is None:
        with gcp.translate_errors(f"{gcp.SCHEME}{name}"):
            gcp.storage_client().create_bucket(name, project=project, location=region)


def missing_permissions(name: str, permissions: Sequence[str]) -> list[str]:
    """Return which of these permissions on a bucket the caller lacks."""
    with gcp.translate_errors(f"{gcp.SCHEME}{name}"):
        granted = gcp.storage_client().bucket(name).test_iam_permissions(list(permissions))
    return [permission for permission in permissions if permission not in granted]


def list_objects(address: str, *, unfinished: bool = False) -> list[RemoteObject]:
    """List the object at an address, or else those below it, or those that match a pattern; sorted by name.

    Parts left by interrupted uploads are included only with `unfinished`.

    """
    bucket, name = _split_address(address)
    with gcp.translate_errors(address):
        if any(mark in name for mark in "*?["):
            blobs = list(gcp.storage_client().list_blobs(bucket, match_glob=name))
        elif name and not name.endswith("/"):
            blobs = [blob] if (blob := gcp.storage_client().bucket(bucket).get_blob(name)) else []
            blobs = blobs or list(gcp.storage_client().list_blobs(bucket, prefix=f"{name}/"))
        else:
            blobs = list(gcp.storage_client().list_blobs(bucket, prefix=name))
    blobs = [blob for blob in blobs if not blob.name.endswith("/")]  # folder placeholders made by consoles
    return [_describe_blob(blob) for blob in blobs if unfinished or UNFINISHED not in blob.name]


def object_at(address: str) -> RemoteObject | None:
    """Return the object of exactly this name, or None if there is none."""
    bucket, name = _split_address(address)
    with gcp.translate_errors(address):
        blob = gcp.storage_client().bucket(bucket).get_blob(name)
    return _describe_blob(blob) if blob else None


def read_bytes(remote: RemoteObject) -> bytes:
    """Return the content of an object at exactly the generation that was listed."""
    with (
        gcp.translate_errors(remote.address),
        _translate_transfer_errors(remote.address),
        _detect_replacement(remote.address),
    ):
        content: bytes = _generation_blob(remote).download_as_bytes(checksum="auto", raw_download=True)
    return content


def download(remote: RemoteObject, path: Path) -> None:
    """Download an object to a file, at exactly the generation that was listed, and verify its checksum."""
    with (
        gcp.translate_errors(remote.address),
        _translate_transfer_errors(remote.address),
        _detect_replacement(remote.address),
    ):
        if remote.size < LARGE:
            _generation_blob(remote).download_to_filename(path, checksum="auto", raw_download=True)
            return
        from google.cloud.storage import transfer_manager

        transfer_manager.download_chunks_concurrently(
            _generation_blob(remote),
            path,
            chunk_size=CHUNK,
            worker_type=transfer_manager.THREAD,
            max_workers=STREAMS,
            download_kwargs={"raw_download": True},
        )


def upload(
    path: Path, address: str, *, if_generation: int | None = None, patience_s: float = RETRIED_S
) -> RemoteObject:
    """Upload a file to an object, atomically.

    `if_generation` is a precondition: the generation to replace, 0 for none; if it fails, `Conflict` is raised.

    """
    bucket, name = _split_address(address)
    with gcp.translate_errors(address):
        from google.api_core.exceptions import NotFound, PreconditionFailed
        from google.cloud.storage.retry import DEFAULT_RETRY

        target = gcp.storage_client().bucket(bucket).blob(name)
        mark = uuid.uuid4().hex
        target.metadata = {WRITER: mark}
        options = {"if_generation_match": if_generation, "retry": DEFAULT_RETRY.with_timeout(patience_s)}
        try:
            with _translate_transfer_errors(address):
                if path.stat().st_size < LARGE:
                    target.upload_from_filename(path, checksum="crc32c", **options)
                else:
                    _upload_parts(path, target, mark, options)
        except PreconditionFailed as error:
            # The client may have retried after a lost response: the object may be this very upload's.
            existing = target.bucket.get_blob(name)
            if existing is None or (existing.metadata or {}).get(WRITER) != mark:
                raise Conflict(f"{address} was written by somebody else meanwhile", hint="try again") from error
            target = existing
        except NotFound as error:
            raise PlaceError(f"there is no bucket {bucket}", hint="was it removed, or is its name wrong?") from error
        return _describe_blob(target)


def delete(remote: RemoteObject) -> None:
    """Delete an object, unless a newer generation has replaced it; deleting an object that is gone is no error."""
    with gcp.translate_errors(remote.address):
        from google.api_core.exceptions import NotFound, PreconditionFailed

        bucket, name = _split_address(remote.address)
        with suppress(NotFound, PreconditionFailed):
            gcp.storage_client().bucket(bucket).blob(name).delete(if_generation_match=remote.generation)


def compute_checksum(path: Path) -> str:
    """Return the CRC32C of a file in the form that Cloud Storage uses."""
    import google_crc32c

    checksum: Any = google_crc32c.Checksum()  # type: ignore[no-untyped-call]
    with path.open("rb") as file:
        for part in iter(lambda: file.read(CHUNK), b""):
            checksum.update(part)
    return base64.b64encode(checksum.digest()).decode()


def _upload_parts(path: Path, target: Any, mark: str, options: Mapping[str, Any]) -> None:
    """Upload a large file in concurrent parts to a temporary object, then copy that to the target atomically."""
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
            retry=options["retry"],
        )
        parts.reload(retry=options["retry"])
        if parts.crc32c != compute_checksum(path):
            raise _damage_error(f"{gcp.SCHEME}{target.bucket.name}/{target.name}")
        token, _, _ = target.rewrite(parts, **options)
        while token:
            token, _, _ = target.rewrite(parts, token=token, **options)
    finally:
        target.bucket.delete_blobs([parts], on_error=lambda _: None, retry=options["retry"])


def _generation_blob(remote: RemoteObject) -> Any:
    bucket, name = _split_address(remote.address)
    return gcp.storage_client().bucket(bucket).blob(name, generation=remote.generation)


def _describe_blob(blob: Any) -> RemoteObject:
    address = f"{gcp.SCHEME}{blob.bucket.name}/{blob.name}"
    updated = blob.updated.isoformat() if blob.updated else ""
    return RemoteObject(address, blob.name, int(blob.generation), int(blob.size or 0), blob.crc32c or "", updated)


@contextmanager
def _translate_transfer_errors(address: str) -> Iterator[None]:
    """Translate the errors that Google's package raises only in transfers."""
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
    """Raise Conflict if an object that was listed is gone at that generation."""
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
