"""Lists a bucket's objects in pages: by prefix, delimiter, offsets, glob and filter, in the byte order of names."""

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from vertex_rehearsal.cloud_storage import errors
from vertex_rehearsal.cloud_storage.contexts import parse_filter
from vertex_rehearsal.cloud_storage.index import Session
from vertex_rehearsal.cloud_storage.records import ObjectRecord

MOST_RESULTS = 1000


@dataclass(frozen=True)
class Query:
    """What to list, and how."""

    bucket: str
    prefix: str = ""
    delimiter: str = ""
    start: str = ""
    """Inclusive lower bound of names."""
    end: str = ""
    """Exclusive upper bound of names; no bound if empty."""
    glob: str = ""
    filter: str = ""
    versions: bool = False
    soft_deleted: bool = False
    include_trailing_delimiter: bool = False
    limit: int = MOST_RESULTS
    page_token: str = ""


@dataclass(frozen=True)
class ObjectPage:
    """One page of results, and the token of the next."""

    items: list[ObjectRecord] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    next_token: str = ""


def list_page(session: Session, query: Query) -> ObjectPage:
    """Return a page of objects and prefixes, up to the limit."""
    items: list[ObjectRecord] = []
    prefixes: list[str] = []
    limit = max(1, min(query.limit, MOST_RESULTS))
    for record, prefix in _iter_results(session, query):
        is_new = not prefixes or prefixes[-1] != prefix
        if len(items) + len(prefixes) >= limit and (record or is_new):
            return ObjectPage(items, prefixes, _encode_cursor(record, prefix))
        if record:
            items.append(record)
        elif is_new:
            prefixes.append(prefix)
    return ObjectPage(items, prefixes)


def _iter_results(session: Session, query: Query) -> Iterator[tuple[ObjectRecord | None, str]]:
    """Iterate over objects and common prefixes; the objects under a common prefix are skipped."""
    start, generation, end = _compute_bounds(query)
    pattern = _compile_glob(query.glob) if query.glob else None
    matches = parse_filter(query.filter) if query.filter else None
    while start is not None:
        next_start = None
        for record in session.iter_range(
            query.bucket,
            start,
            end,
            versions=query.versions,
            generation=generation,
            soft_deleted=query.soft_deleted,
        ):
            if (pattern and not pattern.fullmatch(record.name)) or (matches and not matches(record.settings)):
                continue
            group = _find_prefix(query, record.name)
            if not group:
                yield record, ""
                continue
            if query.include_trailing_delimiter and group == record.name:
                yield record, ""
            yield None, group
            if not (query.include_trailing_delimiter and query.versions and group == record.name):
                next_start = after_prefix(group.encode())
                break
        start, generation = next_start, 0


def _compute_bounds(query: Query) -> tuple[bytes | None, int, bytes | None]:
    """Return the first name and generation to list, and the name to stop before."""
    prefix = query.prefix.encode()
    start, generation = max(prefix, query.start.encode()), 0
    if query.page_token:
        token, generation = _decode_cursor(query.page_token)
        start, generation = (token, generation) if token >= start else (start, 0)
    ends = [end for end in (after_prefix(prefix) if prefix else None, query.end.encode() or None) if end is not None]
    return start, generation, min(ends) if ends else None


def _find_prefix(query: Query, name: str) -> str:
    """Return the common prefix that stands for a name; "" for a name that is listed itself."""
    if not query.delimiter:
        return ""
    position = name.find(query.delimiter, len(query.prefix))
    return name[: position + len(query.delimiter)] if position >= 0 else ""


def after_prefix(prefix: bytes) -> bytes | None:
    """Return the smallest byte string after all that begin with a prefix."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def _encode_cursor(record: ObjectRecord | None, prefix: str) -> str:
    name, generation = (record.name, record.generation) if record else (prefix, 0)
    return base64.urlsafe_b64encode(f"{generation}:".encode() + name.encode()).decode()


def _decode_cursor(token: str) -> tuple[bytes, int]:
    try:
        generation, _, name = base64.urlsafe_b64decode(token).partition(b":")
        cursor = name, int(generation)
    except (binascii.Error, ValueError) as error:
        raise errors.invalid_request("Invalid value for 'pageToken'.", location="pageToken") from error
    if not 0 <= cursor[1] < 2**63:
        raise errors.invalid_request("Invalid value for 'pageToken'.", location="pageToken")
    return cursor


def glob_to_regex(glob: str) -> str:
    """Translate `matchGlob`: `*` and `?` stop at a slash, `**` does not; `[a-z]`, `[!a]`, `{a,b}`."""
    pattern, position, depth = "", 0, 0
    while position < len(glob):
        character = glob[position]
        length = 1
        match character:
            case "*" if glob.startswith("**/", position):
                pattern, length = pattern + "(?:.*/)?", 3
            case "*" if glob.startswith("**", position):
                pattern, length = pattern + ".*", 2
            case "*":
                pattern += "[^/]*"
            case "?":
                pattern += "[^/]"
            case "[" if (end := glob.find("]", position + 2)) > 0:
                pattern, length = pattern + _character_class(glob[position + 1 : end]), end + 1 - position
            case "{":
                pattern, depth = pattern + "(?:", depth + 1
            case "," if depth:
                pattern += "|"
            case "}" if depth:
                pattern, depth = pattern + ")", depth - 1
            case "\\" if position + 1 < len(glob):
                pattern, length = pattern + re.escape(glob[position + 1]), 2
            case _:
                pattern += re.escape(character)
        position += length
    return pattern


def _compile_glob(glob: str) -> re.Pattern[str]:
    rest = re.sub(r"\\.|\[.[^\]]*\]", "", glob, flags=re.DOTALL)  # without escapes and character classes
    if "[" in rest or "\\" in rest or not _is_balanced(rest):
        raise _glob_error(glob, "a [, { or \\ without what belongs to it")
    try:
        return re.compile(glob_to_regex(glob), re.DOTALL)
    except re.error as error:
        raise _glob_error(glob, str(error)) from error


def _is_balanced(glob: str) -> bool:
    depth = 0
    for character in glob:
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth < 0:
            return False
    return depth == 0


def _glob_error(glob: str, why: str) -> errors.StorageError:
    return errors.invalid_request(f"Invalid glob pattern: {glob} ({why})", location="matchGlob")


def _character_class(content: str) -> str:
    negated = content.startswith(("!", "^"))
    escaped = re.sub(r"([\[\]\\^&~|])", r"\\\1", content[1:] if negated else content)
    return f"[{'^' if negated else ''}{escaped}]"
