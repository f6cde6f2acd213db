"""CSV and TSV: fields between separators, line breaks inside quotes, with or without a header."""

import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any

from tagline.errors import DataError, SpecError
from tagline.readers import BadRows, Cell, Layout, Source, lines_of, text_of, told_apart, undecodable

# A field may be as long as memory allows: whether a text is too long is for the checks to say.
csv.field_size_limit(sys.maxsize)

SEPARATORS = (",", ";", "\t", "|")
SAMPLE_ROWS = 200
UNCLOSED = "a quote opened here is never closed"
LEFT_OPEN = "it runs to line {}: is a quote left open?"


def inspect(name: str, layout: Layout, sample: str) -> dict[str, Any]:
    """Separator, quoting, header and columns, from the user's word or the first rows."""
    separator = layout.separator or ("\t" if layout.format == "tsv" else _separator(sample, name))
    if len(separator) != 1 or separator in '"\r\n':
        hint = 'it must be one character; for "text<separator>label" lines use data.format = "lines"'
        raise SpecError(f"data.separator: {separator!r} cannot separate the fields of {name}", hint=hint)
    rows = _sample_rows(sample, separator)
    if not rows:
        raise DataError(f"{name} has no row")
    header = _has_header(rows) if layout.header == "auto" else layout.header
    columns = told_apart(rows[0]) if header else tuple(f"column_{i + 1}" for i in range(len(rows[0])))
    return {"separator": separator, "header": header, "columns": columns}


def rows(source: Source, bad: BadRows) -> Iterator[tuple[int, Sequence[Cell]]]:
    """Each row after the header, with the line it starts on."""
    wanted, damaged = len(source.columns), source.encoding.damaged
    found = records(source, quoted=source.separator != "\t" or _quotes_are_quotes(source))
    if source.header:
        next(found, None)
    for line, last, cells, fault in found:
        if len(cells) != wanted:
            bad.add(source.name, line, _miscounted(len(cells), wanted, line, last, fault))
        elif fault:
            bad.add(source.name, line, fault)
        elif damaged and (why := undecodable(cells, source.encoding)):
            bad.add(source.name, line, why)
        else:
            yield line, cells


Record = tuple[int, int, list[str], str]
"""First line, last line, cells, and what is wrong with its quotes."""


def records(source: Source, *, quoted: bool) -> Iterator[Record]:
    """Each record of a file, blank lines left out."""
    with text_of(source) as text:
        pending: list[str] = []
        exhausted: list[bool] = []

        def lines() -> Iterator[str]:
            for line in text:  # not `yield from`, which would close the file behind our back
                pending.append(line)
                yield line
            exhausted.append(True)  # the reader wants more than there is: it is inside a quote, or done

        reader = csv.reader(lines(), delimiter=source.separator, quoting=_quoting(quoted))
        line = 1
        for cells in reader:
            last = reader.line_num
            if exhausted:
                yield line, last, cells, UNCLOSED
            elif cells:
                joined = last > line and not _is_strict(pending, source.separator)
                yield line, last, cells, LEFT_OPEN.format(last) if joined else ""
            line = last + 1
            pending.clear()


def _is_strict(lines: Iterable[str], separator: str) -> bool:
    """Whether every quote that opens a field closes it just before the next separator."""
    try:
        return all(True for _ in csv.reader(lines, delimiter=separator, strict=True))
    except csv.Error:
        return False


def recognises(sample: str, *, name: str) -> bool:
    """Whether a separator cuts nearly all sample rows into the same number of fields, at least two."""
    for separator in ("\t",) if name == "tsv" else (",", ";"):
        rows = _sample_rows(sample, separator)
        if _evenness(rows) > 0.95 and len(rows[0]) > 1:
            return True
    return False


def looks_like_header(first: Sequence[str], rest: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names columns: short words, no numbers, none of them a value of its own column."""
    if any(_is_number(cell) or len(cell) > 60 or len(cell.split()) > 6 for cell in first):
        return False
    below = [{row[i] for row in rest if i < len(row)} for i in range(len(first))]
    return not any(cell and cell in values for cell, values in zip(first, below, strict=True))


def _quoting(quoted: bool) -> Any:
    return csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE


@cache
def _quotes_are_quotes(source: Source) -> bool:
    """Whether quotes in this TSV enclose fields. Many TSVs have none: there, a quote is only a character."""
    with text_of(source) as text:
        if not any('"' in line for line in text):
            return False
    wanted = len(source.columns)
    plain, uneven = _counted(records(source, quoted=False), wanted)
    enclosed, uneven_enclosed = _counted(records(source, quoted=True), wanted)
    if uneven:  # a line break or a tab inside quotes, or rows that are bad either way
        return uneven_enclosed < uneven
    # Every line is a row by itself: quotes may be taken off, but must not join lines.
    with text_of(source) as text:
        return enclosed == plain and not uneven_enclosed and _is_strict(text, source.separator)


def _counted(found: Iterator[Record], wanted: int) -> tuple[int, int]:
    """How many records there are, and how many of them have not the fields that they should."""
    total = uneven = 0
    for _, _, cells, fault in found:
        total += 1
        uneven += len(cells) != wanted or bool(fault)
    return total, uneven


def _separator(sample: str, name: str) -> str:
    """The separator that cuts the sample most evenly; by its name a .tsv has tabs."""
    if name.removesuffix(".gz").endswith((".tsv", ".tab")):
        return "\t"
    best, best_score = ",", (0.0, 1)
    for separator in SEPARATORS:
        rows = _sample_rows(sample, separator)
        score = (round(_evenness(rows), 1), len(rows[0]) if rows else 0)
        if score[1] > 1 and score > best_score:
            best, best_score = separator, score
    return best


def _sample_rows(sample: str, separator: str) -> list[list[str]]:
    """The sample's first rows; in a TSV a quote is only a character where rows are more even so."""
    enclosed = _read_sample(sample, separator, quoted=True)
    if separator != "\t" or '"' not in sample:
        return enclosed
    plain = _read_sample(sample, separator, quoted=False)
    return max(enclosed, plain, key=lambda rows: (_evenness(rows), len(rows[0]) if rows else 0))


def _read_sample(sample: str, separator: str, *, quoted: bool) -> list[list[str]]:
    reader = csv.reader(lines_of(sample), delimiter=separator, quoting=_quoting(quoted))
    return [row for row in islice(reader, SAMPLE_ROWS) if row]


def _evenness(rows: Sequence[Sequence[str]]) -> float:
    if not rows:
        return 0.0
    return sum(len(row) == len(rows[0]) for row in rows) / len(rows)


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    return looks_like_header(rows[0], rows[1:])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _miscounted(found: int, wanted: int, line: int, last: int, fault: str) -> str:
    reason = f"{found} field{'s' * (found != 1)} where {wanted} {'are' if wanted != 1 else 'is'} expected"
    fault = fault or (LEFT_OPEN.format(last) if last > line else "")
    return f"{reason}; {fault}" if fault else reason
