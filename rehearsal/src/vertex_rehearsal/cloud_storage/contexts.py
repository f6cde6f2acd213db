"""Object contexts: keys and values that a user attaches to an object, and the list filter on them."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from vertex_rehearsal.cloud_storage import errors

MOST_CONTEXTS = 50
_WORD = re.compile(r"[A-Za-z0-9][^'\"\\/]{0,255}")
_FILTER = re.compile(r'(-|NOT\s+)?contexts\."([^"]+)"\s*(?::\s*\*|=\s*"([^"]*)")')


def update_contexts(before: Mapping[str, Any], contexts: Any, now: str) -> dict[str, Any] | None:
    """Return an object's contexts with their times; None if there are none."""
    custom = contexts.get("custom") if isinstance(contexts, Mapping) else None
    if contexts and (not isinstance(contexts, Mapping) or set(contexts) - {"custom"}):
        raise _context_error("contexts have one group, custom")
    if not custom:
        return None
    if not isinstance(custom, Mapping) or len(custom) > MOST_CONTEXTS:
        raise _context_error(f"an object has at most {MOST_CONTEXTS}")
    known = before.get("custom") or {}
    return {"custom": {key: _update_context(known.get(key), key, value, now) for key, value in custom.items()}}


def _update_context(before: Mapping[str, Any] | None, key: str, context: Any, now: str) -> dict[str, Any]:
    value = context.get("value") if isinstance(context, Mapping) else None
    if not _WORD.fullmatch(key) or not isinstance(value, str) or not _WORD.fullmatch(value):
        raise _context_error(
            "keys and values begin with a letter or a digit, have at most 256 characters and none of ' \" \\ /"
        )
    if before and before["value"] == value:
        return dict(before)
    return {"value": value, "createTime": before["createTime"] if before else now, "updateTime": now}


def parse_filter(text: str) -> Callable[[Mapping[str, Any]], bool]:
    """Compile a list's `filter` (`contexts."KEY"="VALUE"`, `contexts."KEY":*`, negatable) into a predicate."""
    match = _FILTER.fullmatch(text.strip())
    if not match:
        message = (
            f'Invalid filter: {text}. A filter is contexts."KEY"="VALUE" or contexts."KEY":*, '
            "with - before it for objects without."
        )
        raise errors.invalid_request(message, location="filter")
    negated, key, value = match.groups()

    def matches(settings: Mapping[str, Any]) -> bool:
        context = ((settings.get("contexts") or {}).get("custom") or {}).get(key)
        is_present = context is not None and (value is None or context["value"] == value)
        return is_present is not bool(negated)

    return matches


def _context_error(why: str) -> errors.StorageError:
    return errors.invalid_request(f"Invalid value for 'contexts': {why}.", location="contexts")
