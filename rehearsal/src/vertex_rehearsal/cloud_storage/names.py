"""Valid names of buckets and objects, and an object's path below its bucket's directory."""

import re

from vertex_rehearsal.cloud_storage import errors

LONGEST_OBJECT_NAME = 1024
LONGEST_COMPONENT = 255
"""Bytes of a file name, the limit of common file systems."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]*[a-z0-9]")
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
_GOOGLE = re.compile(r"g[o0][o0]gle")


def check_bucket_name(name: str) -> None:
    """Refuse invalid bucket names, by Cloud Storage's rules."""
    parts = name.split(".")
    longest = 63 if len(parts) == 1 else 222
    is_invalid = (
        not _BUCKET.fullmatch(name)
        or not 3 <= len(name) <= longest
        or any(not part or len(part) > 63 or part[0] == "-" or part[-1] == "-" for part in parts)
        or _ADDRESS.fullmatch(name)
        or name.startswith("goog")
        or _GOOGLE.search(name)
    )
    if is_invalid:
        raise errors.invalid_request(f"Invalid bucket name: '{name}'", code="InvalidBucketName")


def check_object_name(name: str) -> None:
    """Refuse invalid object names, by Cloud Storage's rules."""
    if problem := explain_invalid_name(name):
        raise errors.invalid_request(problem, location="name", code="InvalidObjectName")


def explain_invalid_name(name: str) -> str:
    """Return why an object's name is invalid; "" if it is valid."""
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
    """Return an object's path below the bucket's directory; None if no file can have its name."""
    parts = name.split("/")
    if "\0" in name or any(part in ("", ".", "..") or len(part.encode()) > LONGEST_COMPONENT for part in parts):
        return None
    return name


def parent_folder(path: str) -> str:
    """Return the parent directory of a plain path, below the bucket's directory."""
    return path.rpartition("/")[0]
