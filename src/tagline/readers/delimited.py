"""CSV and TSV: fields between separators, line breaks inside quotes, with or without a header."""

import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, islice
from typing import Any, TextIO

from tagline.errors import DataError, SpecError
from tagline.readers import BadRows, Block, Cell, Layout, Source, in_blocks, lines_of, text_of, told_apart, undecodable

# A field may be as long as memory allows: whether a text is too long is for the checks to say.
csv.field_size_limit(sys.maxsize)

SEPARATORS = (",", ";", "\t", "|")
SAMPLE_ROWS = 200
UNCLOSED = "a quote opened here is never closed"
BLOCK_CHARACTERS = 1 << 19
MOST_LINES_A_RECORD = 10_000
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
    header = looks_like_header(rows[0], rows[1:]) if layout.header == "auto" else layout.header
    columns = told_apart(rows[0]) if header else tuple(f"column_{i + 1}" for i in range(len(rows[0])))
    return {"separator": separator, "header": header, "columns": columns}


Record = tuple[int, int, list[str], str]
"""First line, last line, cells, and what is wrong with its quotes."""


def blocks(source: Source, bad: BadRows) -> Iterator[Block]:
    """The rows after the header, many at once where all is well and one by one where something is wrong."""
    quoted = source.separator != "\t" or _quotes_are_quotes(source)
    with text_of(source) as text:
        first, header = 1, source.header
        while lines := _whole_records(text, quoted=quoted):
            parsed = None if source.encoding.damaged else _parsed(lines, source, quoted=quoted)
            if parsed is not None:
                starts, rows = parsed
                yield [first + start for start in starts[header:]], rows[header:]
            else:
                found = _records(chain(lines, text), first=first, separator=source.separator, quoted=quoted)
                yield from in_blocks(_checked(islice(found, int(header), None), source, bad))
                return
            first, header = first + len(lines), False


def records(source: Source, *, quoted: bool) -> Iterator[Record]:
    """Each record of a file, blank lines left out."""
    with text_of(source) as text:
        yield from _records(text, first=1, separator=source.separator, quoted=quoted)


def _whole_records(text: TextIO, *, quoted: bool) -> list[str]:
    """The next lines, no record of them cut in two unless its quotes are odd for very long."""
    lines = text.readlines(BLOCK_CHARACTERS)
    if quoted and "".join(lines).count('"') % 2:
        for line in islice(text, MOST_LINES_A_RECORD):
            lines.append(line)
            if line.count('"') % 2:
                break
    return lines


def _parsed(lines: list[str], source: Source, *, quoted: bool) -> tuple[list[int], list[list[str]]] | None:
    """Where each row starts among the lines, and its cells; None where a row needs a closer look."""
    reader = csv.reader(lines, delimiter=source.separator, quoting=_quoting(quoted), strict=True)
    try:
        rows, ends = [], [0]
        for cells in reader:
            rows.append(cells)
            ends.append(reader.line_num)
    except csv.Error:
        return None
    lengths = set(map(len, rows))
    if lengths == {len(source.columns)}:
        return ends[:-1], rows
    if lengths == {len(source.columns), 0}:  # blank lines
        kept = [(start, cells) for start, cells in zip(ends, rows, strict=False) if cells]
        return [start for start, _ in kept], [cells for _, cells in kept]
    return None


def _checked(found: Iterable[Record], source: Source, bad: BadRows) -> Iterator[tuple[int, Sequence[Cell]]]:
    """The records that are rows, with the line each starts on; the others are bad."""
    wanted, damaged = len(source.columns), source.encoding.damaged
    for line, last, cells, fault in found:
        if len(cells) != wanted:
            bad.add(source.name, line, _miscounted(len(cells), wanted, line, last, fault))
        elif fault:
            bad.add(source.name, line, fault)
        elif damaged and (why := undecodable(cells, source.encoding)):
            bad.add(source.name, line, why)
        else:
            yield line, cells


def _records(text: Iterable[str], *, first: int, separator: str, quoted: bool) -> Iterator[Record]:
    """Each record of some lines, the first of which has this number."""
    pending: list[str] = []
    exhausted: list[bool] = []

    def lines() -> Iterator[str]:
        for line in text:  # not `yield from`, which would close the file behind our back
            pending.append(line)
            yield line
        exhausted.append(True)  # the reader wants more than there is: it is inside a quote, or done

    reader = csv.reader(lines(), delimiter=separator, quoting=_quoting(quoted))
    line = first
    for cells in reader:
        last = first + reader.line_num - 1
        if exhausted:
            yield line, last, cells, UNCLOSED
        elif cells:
            joined = last > line and not _is_strict(pending, separator)
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
