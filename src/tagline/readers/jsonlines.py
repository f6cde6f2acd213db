"""JSON lines: one object a line."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from tagline.errors import DataError
from tagline.readers import BadRows, Cell, Layout, Source, cell, text_of, undecodable

ALIKE = 'one object a line; to turn a JSON array into that: jq -c ".[]" in.json > out.jsonl'


def recognises(sample: str, *, name: str) -> bool:  # noqa: ARG001 - the contract's signature
    """Whether the first line is a JSON object."""
    return parsed(sample.lstrip().split("\n", 1)[0])[0] is not None


def inspect(name: str, layout: Layout, sample: str) -> dict[str, Any]:  # noqa: ARG001 - the contract's signature
    """The keys of the first objects, in the order in which they appear."""
    if sample.lstrip().startswith("["):
        raise DataError(f"{name} is a JSON array, not JSON lines", hint=ALIKE)
    columns: dict[str, None] = {}
    for line in sample.splitlines():
        row, _ = parsed(line)
        columns |= dict.fromkeys(row or {})
    if not columns:
        raise DataError(f"{name} holds no JSON object", hint=ALIKE)
    return {"columns": tuple(columns)}


def rows(source: Source, bad: BadRows) -> Iterator[tuple[int, Sequence[Cell]]]:
    """Each object's values as cells; a key it lacks is an empty cell."""
    for number, row in objects(source, bad):
        try:
            yield number, [cell(row.get(column)) for column in source.columns]
        except TypeError as error:
            bad.add(source.name, number, str(error))


def objects(source: Source, bad: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each line's object."""
    with text_of(source) as text:
        for number, line in enumerate(text, start=1):
            if not line.strip():
                continue
            row, why = parsed(line)
            if source.encoding.damaged and (odd := undecodable((line,), source.encoding)):
                bad.add(source.name, number, odd)
            elif row is None:
                bad.add(source.name, number, why)
            else:
                yield number, row


def parsed(line: str) -> tuple[dict[str, Any] | None, str]:
    """The object on a line, or None and why it is none."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        return None, f"not JSON: {error.msg} at character {error.pos + 1}"
    except ValueError as error:  # an integer of more digits than Python converts
        return None, f"not usable JSON: {error}"
    except RecursionError:
        return None, "JSON nested too deeply"
    return (row, "") if isinstance(row, dict) else (None, "not a JSON object")
