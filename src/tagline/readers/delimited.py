"""CSV and TSV: fields between separators, line breaks inside quotes, with or without a header."""

import csv
import io
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from tagline.errors import DataError
from tagline.readers import BadRows, Cell, Layout, Source, text_of, undecodable

# A field may be as long as memory allows: whether a text is too long is for the checks to say.
csv.field_size_limit(sys.maxsize)

SEPARATORS = (",", ";", "\t", "|")
SAMPLE_ROWS = 200
UNCLOSED = "a quote opened here is never closed"


def inspect(name: str, layout: Layout, sample: str) -> dict[str, Any]:
    """Separator, quoting, header and columns, from the user's word or the first rows."""
    separator = layout.separator or ("\t" if layout.format == "tsv" else _separator(sample, name))
    if len(separator) != 1:
        hint = 'for "text<separator>label" lines use data.format = "lines"'
        raise DataError(f'{name}: fields cannot be separated by "{separator}"; it must be one character', hint=hint)
    rows = _sample_rows(sample, separator)
    if not rows:
        raise DataError(f"{name} is empty")
    header = _has_header(rows) if layout.header == "auto" else layout.header
    columns = _header_names(rows[0]) if header else tuple(f"column_{i + 1}" for i in range(len(rows[0])))
    return {"separator": separator, "header": header, "columns": columns}


def rows(source: Source, bad: BadRows) -> Iterator[tuple[int, Sequence[Cell]]]:
    """Each row after the header, with the line it starts on."""
    wanted, damaged = len(source.columns), source.encoding.damaged
    found = records(source, quoted=source.separator != "\t" or _quotes_are_quotes(source))
    if source.header:
        next(found, None)
    for line, last, cells in found:
        if len(cells) != wanted:
            bad.add(source.name, line, _miscounted(len(cells), wanted, line, last))
        elif last < 0:
            bad.add(source.name, line, UNCLOSED)
        elif damaged and (why := undecodable(cells, source.encoding)):
            bad.add(source.name, line, why)
        else:
            yield line, cells


def records(source: Source, *, quoted: bool) -> Iterator[tuple[int, int, list[str]]]:
    """Each record with its first and last line; the last is -1 where the file ends inside a quote."""
    with text_of(source) as text:
        exhausted: list[bool] = []

        def lines() -> Iterator[str]:
            yield from text
            exhausted.append(True)  # the reader wants more than there is: it is inside a quote, or done

        reader = csv.reader(lines(), delimiter=source.separator, quoting=_quoting(quoted))
        line = 1
        for cells in reader:
            last = reader.line_num
            if cells:
                yield line, -1 if exhausted else last, cells
            line = last + 1


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


def _quotes_are_quotes(source: Source) -> bool:
    """Whether quotes in this TSV enclose fields. Many TSVs have none: there, a quote is only a character."""
    try:
        with text_of(source) as text:
            if not any('"' in line for line in text):
                return False
        with text_of(source) as text:
            strict = csv.reader(text, delimiter=source.separator, strict=True)
            return all(len(cells) in (0, len(source.columns)) for cells in strict)
    except csv.Error:
        return False


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
    """The sample's whole rows: the last one may be cut off."""
    reader = csv.reader(io.StringIO(sample, newline=""), delimiter=separator)
    rows = [row for row in islice(reader, SAMPLE_ROWS) if row]
    whole = sample.endswith(("\n", "\r")) or len(rows) == SAMPLE_ROWS or len(rows) < 2
    return rows if whole else rows[:-1]


def _evenness(rows: Sequence[Sequence[str]]) -> float:
    if not rows:
        return 0.0
    return sum(len(row) == len(rows[0]) for row in rows) / len(rows)


def _has_header(rows: Sequence[Sequence[str]]) -> bool:
    return looks_like_header(rows[0], rows[1:])


def _header_names(cells: Sequence[str]) -> tuple[str, ...]:
    """Names without spaces around them, and a second column of the same name told apart."""
    names: list[str] = []
    for position, cell in enumerate(cells, start=1):
        name = cell.strip() or f"column_{position}"
        names.append(name if name not in names else f"{name}_{position}")
    return tuple(names)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _miscounted(found: int, wanted: int, line: int, last: int) -> str:
    reason = f"{found} field{'s' * (found != 1)} where {wanted} {'are' if wanted != 1 else 'is'} expected"
    if last < 0:
        return f"{reason}; {UNCLOSED}"
    return f"{reason}; it runs to line {last}: is a quote left open?" if last > line else reason
