"""Formatting of values as TOML."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel


def format_value(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, BaseModel):
        return format_value(value.model_dump(exclude_defaults=True))
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {format_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(format_value, value)) + "]"
    return repr(value) if isinstance(value, int | float) else str(value)
