"""CSV and TSV: fields between separators, line breaks inside quotes, with or without a header."""

import csv
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, islice
from typing import Any

from tagline.data.column_profiles import COLUMN_WORDS, split_name
from tagline.data.readers import (
    LONGEST_RECORD,
    BadRows,
    Block,
    Cell,
    Layout,
    LineReader,
    Source,
    find_undecodable,
    group_into_blocks,
    name_columns,
    open_text,
    row_too_long_error,
    split_lines,
)
from tagline.errors import DataError, SpecError

csv.field_size_limit(sys.maxsize)  # the limit is LONGEST_RECORD, on whole rows

SEPARATORS = (",", ";", "\t", "|")
SAMPLE_ROWS = 200
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
UNCLOSED = "a quote opened here is never closed"
MOST_LINES_A_RECORD = 10_000
RENAME = "rename one of them in the first line; if that is no header: data.header=false"
LEFT_OPEN = "it runs to line {}: is a quote left open?"


def inspect(name: str, layout: Layout, sample: str) -> dict[str, Any]:
    """Return separator, header and columns, as set by the user or guessed from the first rows."""
    separator = layout.separator or ("\t" if layout.format == "tsv" else _guess_separator(sample, name))
    if len(separator) != 1 or separator in '"\r\n':
        hint = 'it must be one character; for "text<separator>label" lines use data.format = "lines"'
        raise SpecError(f"data.separator: {separator!r} cannot separate the fields of {name}", hint=hint)
    rows = _sample_rows(sample, separator)
    if not rows:
        raise DataError(f"{name} has no row")
    header = looks_like_header(rows[0], rows[1:]) if layout.header == "auto" else layout.header
    numbered = tuple(f"column_{i + 1}" for i in range(len(rows[0])))
    columns = name_columns(rows[0], of=name, hint=RENAME) if header else numbered
    return {"separator": separator, "header": header, "columns": columns}


Record = tuple[int, int, list[str], str]
"""First line, last line, cells, and a problem with its quotes."""


def blocks(source: Source, bad: BadRows) -> Iterator[Block]:
    """Yield the rows after the header, in fast batches until a row has a problem, then checked one by one."""
    quoted = source.separator != "\t" or _quotes_are_quotes(source)
    with open_text(source) as text:
        first, header = 1, source.header
        while lines := _whole_records(text, quoted=quoted):
            parsed = None if source.encoding.damaged else _parse_rows(lines, source, quoted=quoted)
            if parsed is not None:
                starts, rows = parsed
                yield [first + start for start in starts[header:]], rows[header:]
            else:
                records = _parse_records(chain(lines, text), source, first=first, quoted=quoted)
                yield from group_into_blocks(_check_records(islice(records, int(header), None), source, bad))
                return
            first, header = first + len(lines), False


def read_records(source: Source, *, quoted: bool) -> Iterator[Record]:
    """Yield each record of a file, without blank lines."""
    with open_text(source) as text:
        yield from _parse_records(text, source, first=1, quoted=quoted)


def _whole_records(text: LineReader, *, quoted: bool) -> list[str]:
    """Return the next lines, ending at the end of a record unless a quote stays open for very long."""
    lines = text.readlines()
    if quoted and sum(line.count('"') for line in lines) % 2:
        characters = 0
        for line in islice(text, MOST_LINES_A_RECORD):
            lines.append(line)
            characters += len(line)
            if line.count('"') % 2 or characters > LONGEST_RECORD:
                break
    return lines


def _parse_rows(lines: list[str], source: Source, *, quoted: bool) -> tuple[list[int], list[list[str]]] | None:
    """Return the line on which each row starts, and its cells; None if a row has a problem."""
    reader = csv.reader(lines, delimiter=source.separator, quoting=_choose_quoting(quoted), strict=True)
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


def _check_records(records: Iterable[Record], source: Source, bad: BadRows) -> Iterator[tuple[int, Sequence[Cell]]]:
    """Yield the records that are good rows, with the line each starts on; the others are added to the bad rows."""
    expected, damaged = len(source.columns), source.encoding.damaged
    for line, last, cells, fault in records:
        if len(cells) != expected:
            bad.add(source.name, line, _explain_field_count(len(cells), expected, line, last, fault))
        elif fault:
            bad.add(source.name, line, fault)
        elif damaged and (why := find_undecodable(cells, source.encoding)):
            bad.add(source.name, line, why)
        else:
            yield line, cells


def _parse_records(text: Iterable[str], source: Source, *, first: int, quoted: bool) -> Iterator[Record]:
    """Yield each record of some lines; `first` is the number of the first line."""
    separator = source.separator
    pending: list[str] = []
    exhausted: list[bool] = []
    line = first

    def lines() -> Iterator[str]:
        characters = 0
        for each in text:  # not `yield from`, which would close the file too
            characters = characters + len(each) if pending else len(each)
            if characters > LONGEST_RECORD:
                raise row_too_long_error(source.name, line)
            pending.append(each)
            yield each
        exhausted.append(True)  # the reader asked for more lines: a quote is open, or it is done

    reader = csv.reader(lines(), delimiter=separator, quoting=_choose_quoting(quoted))
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
    """Return whether every quote that opens a field closes it just before the next separator."""
    try:
        return all(True for _ in csv.reader(lines, delimiter=separator, strict=True))
    except csv.Error:
        return False


def recognises(sample: str, *, name: str) -> bool:
    """Return whether a separator splits nearly all sample rows into the same number of fields, at least two."""
    for separator in ("\t",) if name == "tsv" else (",", ";"):
        rows = _sample_rows(sample, separator)
        if _measure_evenness(rows) > 0.95 and len(rows[0]) > 1:
            return True
    return False


def looks_like_header(first: Sequence[str], rest: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row names the columns rather than being data.

    Each column votes: a single name may occur as a value too, such as spam above spam.

    """
    if any(_is_number(cell) or len(cell) > 60 or len(cell.split()) > 6 for cell in first):
        return False
    if not rest:
        return True
    votes = [_judge_header_cell(cell, [row[i] for row in rest if i < len(row)]) for i, cell in enumerate(first)]
    return sum(votes) > 0 if min(votes) < 0 else True


def _judge_header_cell(cell: str, below: Sequence[str]) -> int:
    """Return a vote on a first-row cell: positive if it differs from the cells below, negative if it is like them."""
    values = [value for value in below if value]
    if not cell or not values:
        return 0
    if all(map(_is_number, values)):
        return 3
    if (
        any(map(str.isdigit, cell))
        and sum(_reduce_to_shape(value) == _reduce_to_shape(cell) for value in values) > len(values) / 2
    ):
        return -2  # an id among ids
    if sum(len(value.split()) for value in values) >= 4 * len(values):  # texts
        is_column_word = split_name(cell)[-1:] and split_name(cell)[-1] in COLUMN_WORDS and len(cell.split()) <= 3
        is_word = IDENTIFIER.fullmatch(cell) is not None
        return 3 if is_column_word and is_word else 2 if is_column_word or is_word else 0
    count = values.count(cell)
    if count == 0:  # if nearly all values are distinct, one more is no evidence
        return 1 if len(set(values)) <= len(values) / 2 else 0
    # A cell that repeats often below is a value; one that occurs once or twice may be a coincidence.
    return -2 if count >= 0.1 * len(values) else -1 if count > 1 else 0


def _reduce_to_shape(value: str) -> str:
    """Return a value with its digits and letters made equal: T-123 and T-9 have one shape."""
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "0", value))


def parse_excerpt(source: Source, lines: Sequence[str]) -> list[list[str]]:
    """Return the rows in some lines from the middle of a file, which may begin or end inside a quoted field."""
    readings = [_read_excerpt(source, lines, quoted=True), _read_excerpt(source, ['"', *lines], quoted=True)[1:]]
    if source.separator == "\t":
        readings.append(_read_excerpt(source, lines, quoted=False))
    rows = max(readings, key=lambda rows: sum(1 if _is_whole(row, source) else -2 for row in rows))
    whole = [row for row in rows if _is_whole(row, source)]
    return whole if not source.header or not whole or tuple(map(str.strip, whole[0])) != source.columns else whole[1:]


def _read_excerpt(source: Source, lines: Sequence[str], *, quoted: bool) -> list[list[str]]:
    """Return the rows except the last, which may be cut off."""
    reader = csv.reader(lines, delimiter=source.separator, quoting=_choose_quoting(quoted))
    return [row for row in reader if row][:-1]


def _is_whole(row: Sequence[str], source: Source) -> bool:
    """Return whether a row is complete; an odd quote in a cell is the end of a text that began before the excerpt."""
    return len(row) == len(source.columns) and not any(cell.count('"') % 2 for cell in row)


def _choose_quoting(quoted: bool) -> Any:
    return csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE


@cache
def _quotes_are_quotes(source: Source) -> bool:
    """Return whether quotes in this TSV enclose fields; in many TSVs a quote is an ordinary character."""
    with open_text(source) as text:
        if not any('"' in line for line in text):
            return False
    expected = len(source.columns)
    plain, uneven = _count_records(read_records(source, quoted=False), expected)
    enclosed, uneven_enclosed = _count_records(read_records(source, quoted=True), expected)
    if uneven:  # line breaks or tabs inside quotes, or rows that are bad in both readings
        return uneven_enclosed < uneven
    # Every line is a row by itself: quotes may be removed, but must not join lines.
    with open_text(source) as text:
        return enclosed == plain and not uneven_enclosed and _is_strict(text, source.separator)


def _count_records(records: Iterator[Record], expected: int) -> tuple[int, int]:
    """Return the number of records, and of those with a wrong number of fields or a problem with quotes."""
    total = uneven = 0
    for _, _, cells, fault in records:
        total += 1
        uneven += len(cells) != expected or bool(fault)
    return total, uneven


def _guess_separator(sample: str, name: str) -> str:
    """Return the separator that splits the sample most evenly; a tab if the file name ends in .tsv."""
    if name.removesuffix(".gz").endswith((".tsv", ".tab")):
        return "\t"
    best, best_score = ",", (0.0, 1)
    for separator in SEPARATORS:
        rows = _sample_rows(sample, separator)
        score = (round(_measure_evenness(rows), 1), len(rows[0]) if rows else 0)
        if score[1] > 1 and score > best_score:
            best, best_score = separator, score
    return best


def _sample_rows(sample: str, separator: str) -> list[list[str]]:
    """Return the sample's first rows; in a TSV quotes are ordinary characters if that makes rows more even."""
    enclosed = _read_sample(sample, separator, quoted=True)
    if separator != "\t" or '"' not in sample:
        return enclosed
    plain = _read_sample(sample, separator, quoted=False)
    return max(enclosed, plain, key=lambda rows: (_measure_evenness(rows), len(rows[0]) if rows else 0))


def _read_sample(sample: str, separator: str, *, quoted: bool) -> list[list[str]]:
    reader = csv.reader(split_lines(sample), delimiter=separator, quoting=_choose_quoting(quoted))
    return [row for row in islice(reader, SAMPLE_ROWS) if row]


def _measure_evenness(rows: Sequence[Sequence[str]]) -> float:
    if not rows:
        return 0.0
    return sum(len(row) == len(rows[0]) for row in rows) / len(rows)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _explain_field_count(count: int, expected: int, line: int, last: int, fault: str) -> str:
    reason = f"{count} field{'s' * (count != 1)} where {expected} {'are' if expected != 1 else 'is'} expected"
    fault = fault or (LEFT_OPEN.format(last) if last > line else "")
    return f"{reason}; {fault}" if fault else reason
