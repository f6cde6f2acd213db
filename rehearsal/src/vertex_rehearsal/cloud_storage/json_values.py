"""JSON as the JSON API takes it: bodies, merge patches, and values of the kind that a field wants."""

import json
from collections.abc import Mapping
from typing import Any

from vertex_rehearsal.cloud_storage import errors
from vertex_rehearsal.cloud_storage.records import format_exact_time, parse_time


def parse_body(body: bytes) -> dict[str, Any]:
    """A resource as a request brings it; nothing is an empty one."""
    if not body.strip():
        return {}
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise errors.StorageError(400, "parseError", "Parse Error") from error
    if not isinstance(document, dict):
        raise errors.StorageError(400, "parseError", "Parse Error")
    return document


def merge_patch(before: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON merge patch, as Google's `patch` methods apply it."""
    result = dict(before)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            inner = result.get(key)
            result[key] = merge_patch(inner if isinstance(inner, dict) else {}, value)
        else:
            result[key] = value
    return result


def require_text(key: str, value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise errors.invalid_request(f"Invalid value for '{key}': a string is wanted.", location=key)
    return value


def require_flag(key: str, value: Any) -> bool:
    """True or false, in JSON or as a string."""
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise errors.invalid_request(f"Invalid value for '{key}': a boolean is wanted.", location=key)
    return value


def require_number(key: str, value: Any) -> int:
    """A whole number, in JSON or as a string, as Google writes long ones."""
    if isinstance(value, bool) or not str(value).isascii() or not str(value).isdigit():
        raise errors.invalid_request(f"Invalid value for '{key}': '{value}' is not a valid integer.", location=key)
    return int(value)


def require_object(key: str, value: Any) -> dict[str, Any]:
    """An object of JSON."""
    if not isinstance(value, dict):
        raise errors.invalid_request(f"Invalid value for '{key}': an object is wanted.", location=key)
    return value


def require_choice(key: str, value: Any, choices: tuple[str, ...]) -> str:
    """One of some words."""
    if value not in choices:
        raise errors.invalid_request(
            f"Invalid value for '{key}': '{value}'; it is {' or '.join(choices)}.", location=key
        )
    return str(value)


def require_time(key: str, value: Any) -> str:
    """A time, as Google writes it."""
    try:
        return format_exact_time(parse_time(require_text(key, value)))
    except ValueError as error:
        message = f"Invalid value for '{key}': '{value}' is not an RFC 3339 time."
        raise errors.invalid_request(message, location=key) from error
