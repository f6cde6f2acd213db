"""JSON lines: one object per line."""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tagline.data.readers import (
    BadRows,
    Block,
    Cell,
    Layout,
    Source,
    cell,
    find_undecodable,
    group_into_blocks,
    open_text,
    split_lines,
)
from tagline.errors import DataError

TOO_DEEP = "JSON nested too deeply"
LONE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
ALIKE = 'one object a line; to turn a JSON array into that: jq -c ".[]" in.json > out.jsonl'


def recognises(sample: str, *, name: str) -> bool:  # noqa: ARG001 - the contract's signature
    """Return whether the first line is a JSON object."""
    return parse_line(next(split_lines(sample.lstrip()), ""))[0] is not None


def inspect(name: str, layout: Layout, sample: str) -> dict[str, Any]:  # noqa: ARG001 - the contract's signature
    """Return the keys of the sampled objects as columns, in order of appearance."""
    if sample.lstrip().startswith("["):
        raise DataError(f"{name} is a JSON array, not JSON lines", hint=ALIKE)
    columns: dict[str, None] = {}
    reasons: list[str] = []
    for line in filter(str.strip, split_lines(sample)):
        row, why = parse_line(line)
        columns |= dict.fromkeys(flatten_object(row or {}))
        reasons.append(why or "an empty object")
    if not columns:
        raise DataError(f"{name} does not begin with a JSON object: {reasons[0]}", hint=ALIKE)
    return {"columns": tuple(columns)}


def blocks(source: Source, bad: BadRows) -> Iterator[Block]:
    """Yield the rows of a file in blocks."""
    return group_into_blocks(_read_rows(source, bad))


def _read_rows(source: Source, bad: BadRows) -> Iterator[tuple[int, Sequence[Cell]]]:
    """Yield each object's values as cells; the cell of a missing key is empty."""
    known = frozenset(source.columns)
    for number, row in read_objects(source, bad):
        values = flatten_object(row)
        bad.unread |= values.keys() - known
        try:
            cells = [source.as_read(values.get(column)) for column in source.columns]
        except RecursionError:
            bad.add(source.name, number, TOO_DEEP)
        else:
            yield number, cells


def parse_excerpt(source: Source, lines: Sequence[str]) -> list[list[Cell]]:
    """Return the rows in some lines from the middle of a file."""
    rows = (flatten_object(row) for line in lines if (row := parse_line(line)[0]) is not None)
    return [[cell(row.get(column)) for column in source.columns] for row in rows]


def read_objects(source: Source, bad: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the object on each line, with the line's number."""
    with open_text(source) as text:
        for number, line in enumerate(text, start=1):
            if not line.strip():
                continue
            row, why = parse_line(line)
            if source.encoding.damaged and (odd := find_undecodable((line,), source.encoding)):
                bad.add(source.name, number, odd)
            elif row is None:
                bad.add(source.name, number, why)
            else:
                yield number, row


def flatten_object(row: Mapping[str, Any], *, prefix: str = "", levels: int = 8) -> dict[str, Any]:
    """Return an object's values by key, with those of nested objects as `outer.inner`."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict) and value and levels:
            flat |= flatten_object(value, prefix=f"{prefix}{key}.", levels=levels - 1)
        else:
            flat[prefix + key] = value
    return flat


def parse_line(line: str) -> tuple[dict[str, Any] | None, str]:
    """Return the object on a line, or None and why it is none."""
    try:
        row = json.loads(line)
        if LONE_SURROGATE.search(line):  # left by tools that truncate texts: UTF-8 cannot encode it
            utf_16 = json.dumps(row, ensure_ascii=False).encode("utf-16", "surrogatepass")
            row = json.loads(utf_16.decode("utf-16", "replace"))
    except json.JSONDecodeError as error:
        return None, f"not JSON: {error.msg} at character {error.pos + 1}"
    except ValueError:  # more digits than Python's limit
        return None, f"a number of more than {sys.get_int_max_str_digits():,} digits"
    except RecursionError:
        return None, TOO_DEEP
    return (row, "") if isinstance(row, dict) else (None, "not a JSON object")
