"""Parsing of the JSON API's input: bodies, merge patches and typed values."""

import json
from collections.abc import Mapping
from typing import Any

from vertex_rehearsal.cloud_storage import errors
from vertex_rehearsal.cloud_storage.records import format_exact_time, parse_time


def parse_body(body: bytes) -> dict[str, Any]:
    """Parse a request's resource; an empty body is an empty resource."""
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
    """Apply a JSON merge patch, as Google's `patch` methods do."""
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
    """Return a string, or refuse the value."""
    if not isinstance(value, str):
        raise errors.invalid_request(f"Invalid value for '{key}': a string is wanted.", location=key)
    return value


def require_flag(key: str, value: Any) -> bool:
    """Return a boolean given in JSON or as a string, or refuse the value."""
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise errors.invalid_request(f"Invalid value for '{key}': a boolean is wanted.", location=key)
    return value


def require_number(key: str, value: Any) -> int:
    """Return an integer given in JSON or, as Google writes long ones, as a string; or refuse the value."""
    if isinstance(value, bool) or not str(value).isascii() or not str(value).isdigit():
        raise errors.invalid_request(f"Invalid value for '{key}': '{value}' is not a valid integer.", location=key)
    return int(value)


def require_object(key: str, value: Any) -> dict[str, Any]:
    """Return a JSON object, or refuse the value."""
    if not isinstance(value, dict):
        raise errors.invalid_request(f"Invalid value for '{key}': an object is wanted.", location=key)
    return value


def require_choice(key: str, value: Any, choices: tuple[str, ...]) -> str:
    """Return one of several strings, or refuse the value."""
    if value not in choices:
        raise errors.invalid_request(
            f"Invalid value for '{key}': '{value}'; it is {' or '.join(choices)}.", location=key
        )
    return str(value)


def require_time(key: str, value: Any) -> str:
    """Return an RFC 3339 time in Google's format, or refuse the value."""
    try:
        return format_exact_time(parse_time(require_text(key, value)))
    except ValueError as error:
        message = f"Invalid value for '{key}': '{value}' is not an RFC 3339 time."
        raise errors.invalid_request(message, location=key) from error
