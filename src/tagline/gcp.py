"""The one door to Google Cloud: its clients, credentials, and its errors as ours."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tagline.errors import DataError, PlaceError, first_line

SCHEME = "gs://"


@dataclass(frozen=True)
class Object:
    """An object in Cloud Storage, as it is now."""

    address: str
    name: str
    """Without the bucket's."""
    generation: int


def objects(address: str) -> list[Object]:
    """The object at an address, or else those below it; a pattern is matched. Sorted by name; none: an empty list."""
    bucket, name = _parts(address)
    with _errors(address):
        if any(mark in name for mark in "*?["):
            found = list(_client().list_blobs(bucket, match_glob=name))
        elif name and not name.endswith("/"):
            found = [blob] if (blob := _client().bucket(bucket).get_blob(name)) else []
            found = found or list(_client().list_blobs(bucket, prefix=f"{name}/"))
        else:
            found = list(_client().list_blobs(bucket, prefix=name))
    files = [blob for blob in found if not blob.name.endswith("/")]  # consoles make folders of such names
    return [Object(f"{SCHEME}{bucket}/{blob.name}", blob.name, blob.generation) for blob in files]


def download(found: Object, path: Path) -> None:
    """An object into a file, in the very form that was seen; its checksum is checked on the way."""
    with _errors(found.address):
        bucket, name = _parts(found.address)
        blob = _client().bucket(bucket).blob(name, generation=found.generation)
        blob.download_to_filename(path, checksum="auto", raw_download=True)


def upload(path: Path, address: str) -> None:
    """A file to an object, whole or not at all."""
    with _errors(address):
        bucket, name = _parts(address)
        _client().bucket(bucket).blob(name).upload_from_filename(path, checksum="crc32c")


def _parts(address: str) -> tuple[str, str]:
    bucket, _, name = address.removeprefix(SCHEME).partition("/")
    if not bucket:
        raise DataError(f"{address} names no bucket", hint="gs://BUCKET/NAME")
    return bucket, name


@cache
def _client() -> Any:
    """Of Cloud Storage; the rehearsal, or another emulator, wants no credentials."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    if os.environ.get("STORAGE_EMULATOR_HOST"):
        return storage.Client(project="rehearsal", credentials=AnonymousCredentials())  # type: ignore[no-untyped-call]
    return storage.Client(project=os.environ.get("GOOGLE_CLOUD_PROJECT", "none"))


@contextmanager
def _errors(address: str) -> Iterator[None]:
    """Google's errors as ours, each with what to do about it."""
    try:
        from google.api_core import exceptions
        from google.auth.exceptions import GoogleAuthError
        from requests import ConnectionError as NoConnection
    except ImportError as error:
        hint = 'pip install "tagline[vertex]"'
        raise PlaceError(f"{address} needs {error.name}, which is not installed", hint=hint) from error
    try:
        yield
    except exceptions.NotFound as error:
        raise DataError(f"there is no {address}", hint="is the name of the bucket right?") from error
    except exceptions.Forbidden as error:
        hint = "whoever runs this needs roles/storage.objectUser on the bucket"
        raise PlaceError(f"{address} may not be used: {first_line(error)}", hint=hint) from error
    except (exceptions.Unauthorized, GoogleAuthError) as error:
        hint = "log in: gcloud auth application-default login; or set GOOGLE_APPLICATION_CREDENTIALS"
        raise PlaceError(f"{address} needs Google credentials: {first_line(error)}", hint=hint) from error
    except (exceptions.GoogleAPIError, NoConnection) as error:
        raise PlaceError(f"{address}: {first_line(error)}", hint="try again; is the network there?") from error
