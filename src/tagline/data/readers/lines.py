"""Plain lines: `text<separator>label` split at the last separator, or one text per line."""

from collections.abc import Iterator, Sequence
from typing import Any

from tagline.data.readers import (
    BadRows,
    Block,
    Cell,
    Layout,
    Source,
    find_undecodable,
    group_into_blocks,
    open_text,
    split_lines,
)

SEPARATORS = ("@", "\t", "|", ";", ",")
LONGEST_LABEL = 40


def inspect(name: str, layout: Layout, sample: str) -> dict[str, Any]:  # noqa: ARG001 - the contract's signature
    """Return the columns and the separator, given or guessed; without one every line is a text."""
    separator = layout.separator or _guess_separator(sample)
    return {"separator": separator, "columns": ("text", "label") if separator else ("text",)}


def blocks(source: Source, bad: BadRows) -> Iterator[Block]:
    """Yield the rows of a file in blocks."""
    return group_into_blocks(_read_rows(source, bad))


def parse_excerpt(source: Source, lines: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the rows in some lines from the middle of a file."""
    stripped = [line.rstrip("\r\n") for line in lines if line.strip()]
    if not source.separator:
        return [(line,) for line in stripped]
    parts = (line.rpartition(source.separator) for line in stripped)
    return [(before, label) for before, separator, label in parts if separator]


def _read_rows(source: Source, bad: BadRows) -> Iterator[tuple[int, Sequence[Cell]]]:
    """Yield each line that is not blank."""
    with open_text(source) as text:
        for number, line in enumerate(text, start=1):
            line = line.rstrip("\r\n")
            if not line.strip():
                continue
            if source.encoding.damaged and (why := find_undecodable((line,), source.encoding)):
                bad.add(source.name, number, why)
            elif not source.separator:
                yield number, (line,)
            else:
                before, separator, label = line.rpartition(source.separator)
                if separator:
                    yield number, (before, label)
                else:
                    bad.add(source.name, number, f'no "{source.separator}" between text and label')


def _guess_separator(sample: str) -> str:
    """Return the separator that is followed in every sample line by one of a few short labels; "" if none is."""
    lines = [line for line in split_lines(sample) if line.strip()]
    for separator in SEPARATORS:
        labels = {line.rpartition(separator)[2].strip() for line in lines if separator in line}
        everywhere = all(separator in line for line in lines)
        few = len(labels) <= max(2, len(lines) // 10)
        if everywhere and few and all(0 < len(label) <= LONGEST_LABEL for label in labels):
            return separator
    return ""
