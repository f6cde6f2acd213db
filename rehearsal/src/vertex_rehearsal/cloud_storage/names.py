"""Which names buckets and objects may have, and where in a bucket's directory an object of a name is kept."""

import re

from vertex_rehearsal.cloud_storage import errors

LONGEST_OBJECT_NAME = 1024
LONGEST_COMPONENT = 255
"""Bytes of a file's name, on every file system in use."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]*[a-z0-9]")
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
_GOOGLE = re.compile(r"g[o0][o0]gle")


def check_bucket_name(name: str) -> None:
    """Refuse what Cloud Storage refuses as the name of a bucket."""
    parts = name.split(".")
    longest = 63 if len(parts) == 1 else 222
    wrong = (
        not _BUCKET.fullmatch(name)
        or not 3 <= len(name) <= longest
        or any(not part or len(part) > 63 or part[0] == "-" or part[-1] == "-" for part in parts)
        or _ADDRESS.fullmatch(name)
        or name.startswith("goog")
        or _GOOGLE.search(name)
    )
    if wrong:
        raise errors.invalid_request(f"Invalid bucket name: '{name}'", code="InvalidBucketName")


def check_object_name(name: str) -> None:
    """Refuse what Cloud Storage refuses as the name of an object."""
    if problem := explain_invalid_name(name):
        raise errors.invalid_request(problem, location="name", code="InvalidObjectName")


def explain_invalid_name(name: str) -> str:
    """What is wrong with an object's name; nothing if it may be used."""
    if not name:
        return "Required parameter: name"
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        return "The object name is not valid Unicode."
    if length > LONGEST_OBJECT_NAME:
        return f"The maximum object length is {LONGEST_OBJECT_NAME} characters, but got a name with {length} bytes."
    if "\r" in name or "\n" in name:
        return "Disallowed unicode characters present in object name: carriage return or line feed."
    if name in (".", ".."):
        return f"Invalid object name: '{name}'"
    if name.startswith(".well-known/acme-challenge/"):
        return "Object names must not start with .well-known/acme-challenge/"
    return ""


def plain_path(name: str) -> str | None:
    """The path below the bucket's directory that is this name; none if no file can have it."""
    parts = name.split("/")
    if "\0" in name or any(part in ("", ".", "..") or len(part.encode()) > LONGEST_COMPONENT for part in parts):
        return None
    return name


def parent_folder(path: str) -> str:
    """The directory of a plain path, below the bucket's directory."""
    return path.rpartition("/")[0]
