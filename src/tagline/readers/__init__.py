"""Files of labelled text read as rows that remember their file and line."""

import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import PurePath
from typing import Any, Literal, Protocol

from tagline import storage
from tagline.encoding import Encoding, detected, named
from tagline.errors import DataError

Cell = str | tuple[str, ...] | None
"""A text, several labels, or nothing."""

UTF_8 = Encoding("utf-8")
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f\ufffd]")
FEW_CONTROLS = 20
WHOLE = 2**53
"""Up to here a float that looks whole is."""
Block = tuple[list[int], Sequence[Sequence[Cell]]]
"""Some rows: the line that each starts on, and its cells in the order of the source's columns."""

BATCH_ROWS = 8192
SHOWN_BAD_ROWS = 20
LONGEST_REASON = 300
SAMPLE_CHARACTERS = 1 << 16
FORMATS = {
    "csv": "tagline.readers.delimited",
    "tsv": "tagline.readers.delimited",
    "automl": "tagline.readers.automl",
    "jsonl": "tagline.readers.jsonlines",
    "lines": "tagline.readers.lines",
    "parquet": "tagline.readers.parquet",
    "hub": "tagline.readers.hub",
}
SUFFIXES = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".parquet": "parquet", ".pq": "parquet",
}  # fmt: skip
EXPORT, UNPACK, FETCH = "export it as CSV", "unpack it first", "fetch the data file itself"
FOREIGN = {
    b"PK\x03\x04": ("a zip or Excel file", EXPORT), b"\xd0\xcf\x11\xe0": ("an old Excel file", EXPORT),
    b"%PDF-": ("a PDF", EXPORT), b"\x89PNG": ("a picture", EXPORT), b"\xff\xd8\xff": ("a picture", EXPORT),
    b"SQLite format 3": ("an SQLite database", EXPORT), b"\x80\x04\x95": ("a pickle", EXPORT),
    b"\x1f\x8b": ("a gzip file inside a gzip file", UNPACK), b"BZh": ("a bzip2 file", UNPACK),
    b"\xfd7zXZ": ("an xz file", UNPACK), b"7z\xbc\xaf": ("a 7z file", UNPACK),
    b"\x28\xb5\x2f\xfd": ("a zstd file", UNPACK), b"<!doctype html": ("a web page", FETCH),
    b"version https://git-lfs": ("a Git LFS pointer", "git lfs pull, or fetch the file itself"),
}  # fmt: skip
"""How files that are no labelled text begin (words in lower case), what they are, and what to do with them."""


@dataclass(frozen=True)
class Layout:
    """What the user said about the files; `auto` and empty mean: look."""

    format: str = "auto"
    separator: str = ""
    header: bool | Literal["auto"] = "auto"
    encoding: str = "auto"


@dataclass(frozen=True)
class Source:
    """One file, looked at: how it is to be read and what it holds."""

    name: str
    format: str
    columns: tuple[str, ...]
    encoding: Encoding = UTF_8
    separator: str = ""
    header: bool = False
    split_column: str = ""
    """The column in which the format itself says train, validation or test."""
    stamp: tuple[int, ...] = ()
    types: tuple[str, ...] = ()
    """Of a format that has them: Arrow's name for the numbers or truth values of each column, "" for all else."""
    keeps_types: bool = False
    """Whether numbers, truth values and lists are read as such, to be written again, rather than as text."""

    @property
    def as_read(self) -> Callable[[Any], Any]:
        """What becomes of a value of a typed format."""
        return as_json if self.keeps_types else cell


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of one source, by column. `lines[i]` is where row i starts."""

    lines: list[int]
    columns: Mapping[str, Sequence[Cell]]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used, and why."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        reason = self.reason if len(self.reason) <= LONGEST_REASON else self.reason[:LONGEST_REASON] + "…"
        return f"{self.file}:{self.line}: " + "".join(c if c.isprintable() else "�" for c in reason)


@dataclass
class BadRows:
    """The bad rows of a reading: they stop it, or are passed over and named."""

    mode: Literal["stop", "skip"] = "stop"
    rows: list[BadRow] = field(default_factory=list)
    hint: str = "mend them, or go on without them: data.bad_rows=skip"
    unread: set[str] = field(default_factory=set)
    """Columns of later rows that the first ones did not have, by which a file is known: they are left out."""

    def add(self, file: str, line: int, reason: str) -> None:
        """Note a bad row; where bad rows stop, enough of them stop at once."""
        self.rows.append(BadRow(file, line, reason))
        if self.mode == "stop" and len(self.rows) >= SHOWN_BAD_ROWS:
            self.settle()

    def settle(self) -> None:
        """Raise for what was found, unless bad rows are to be skipped."""
        if self.mode == "skip" or not self.rows:
            return
        at_least = "at least " if len(self.rows) >= SHOWN_BAD_ROWS else ""
        count = "1 bad row" if len(self.rows) == 1 else f"{at_least}{len(self.rows)} bad rows"
        files = list(dict.fromkeys(row.file for row in self.rows))
        in_order = sorted(self.rows, key=lambda row: (files.index(row.file), row.line))
        listed = "\n".join(f"  {row}" for row in in_order)
        raise DataError(f"{count}:\n{listed}", hint=self.hint)


class Format(Protocol):
    """What a file of this package offers: to know its own, to look at a source, and to read its rows."""

    def recognises(self, sample: str, *, name: str) -> bool:
        """Whether these first lines of a file are surely of this format."""

    def inspect(self, name: str, layout: Layout, sample: str) -> dict[str, Any]:
        """The fields of `Source` that this format sets."""

    def blocks(self, source: Source, bad: BadRows) -> Iterator[Block]:
        """The good rows, in order; the others are added to the bad."""


def format_of(name: str) -> Format:
    """The implementation of a format."""
    module: Any = import_module(FORMATS[name])
    return module  # type: ignore[no-any-return]


def inspect(address: str, layout: Layout = Layout()) -> Source:  # noqa: B008 - frozen
    """Look at a file: format, encoding, columns."""
    if address.startswith("hf://"):
        return Source(name=address, format="hub", **format_of("hub").inspect(address, layout, ""))
    return _inspect(address, layout, storage.stamp(address))


@cache
def _inspect(address: str, layout: Layout, stamp: tuple[int, ...]) -> Source:
    name = layout.format if layout.format != "auto" else _format_by_name(address)
    with storage.reading(address) as file:
        start = file.read(64)
        file.seek(0)
        _refuse_foreign(address, start)
        if name == "parquet" or (name == "" and start.startswith(b"PAR1")):
            return Source(address, "parquet", stamp=stamp, **format_of("parquet").inspect(address, layout, ""))
        encoding = detected(file) if layout.encoding == "auto" else named(layout.encoding, file)
        file.seek(0)
        sample = _sample(file, encoding)
    if not sample.strip():
        raise DataError(f"{address} is empty", hint="it needs a row for each text")
    if len(CONTROL.findall(sample)) > max(FEW_CONTROLS, len(sample) // 10):
        hint = "if it is text, save it as UTF-8, or name its data.encoding; else " + EXPORT
        raise DataError(f"{address} is not text, or in an encoding that was not recognised", hint=hint)
    name = _format_by_content(name, sample, auto=layout.format == "auto")
    details = format_of(name).inspect(address, layout, sample)
    return Source(name=address, format=name, encoding=encoding, stamp=stamp, **details)


def batches(source: Source, *, bad: BadRows) -> Iterator[Batch]:
    """Every good row of a source, in order and in memory that does not grow with the file."""
    if source.format != "hub" and storage.stamp(source.name) != source.stamp:
        raise storage.changed(source.name)
    for lines, rows in format_of(source.format).blocks(source, bad):
        if rows:
            yield Batch(lines, dict(zip(source.columns, zip(*rows, strict=True), strict=True)))


def estimated_rows(source: Source) -> int | None:
    """About how many rows a source has, for a forecast: its lines, or what it says itself; of the hub nobody knows."""
    if source.format == "hub":
        return None
    if source.format == "parquet":
        parquet: Any = format_of("parquet")
        return int(parquet.rows_in(source.name))
    with storage.reading(source.name) as file:
        lines = sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b""))
    return max(lines - source.header, 1)


def in_blocks(rows: Iterable[tuple[int, Sequence[Cell]]]) -> Iterator[Block]:
    """Rows one by one as blocks of them."""
    remaining = iter(rows)
    while some := list(islice(remaining, BATCH_ROWS)):
        yield [line for line, _ in some], [cells for _, cells in some]


@contextmanager
def text_of(source: Source) -> Iterator[io.TextIOWrapper]:
    """A source's content as text, line breaks untouched."""
    with storage.reading(source.name) as file:
        text = io.TextIOWrapper(file, source.encoding.name, source.encoding.errors, newline="")
        try:
            yield text
        finally:
            text.detach()


def sampled(source: Source, count: int) -> Batch:
    """The first rows of a source; bad ones are passed over here and named when the source is read."""
    for batch in batches(source, bad=BadRows("skip")):
        return Batch(batch.lines[:count], {name: cells[:count] for name, cells in batch.columns.items()})
    return Batch([], dict.fromkeys(source.columns, ()))


def undecodable(cells: Sequence[Cell], encoding: Encoding) -> str:
    """Why a row of a damaged file is bad: the first bytes that do not fit, or nothing."""
    for cell in cells:
        for text in cell if isinstance(cell, tuple) else (cell or "",):
            odd = next((character for character in text if "\udc00" <= character <= "\udcff"), "")
            if odd:
                return f"byte 0x{ord(odd) - 0xDC00:02x} is not {encoding.name}"
    return ""


def _format_by_name(address: str) -> str:
    suffixes = [suffix.lower() for suffix in PurePath(address).suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return SUFFIXES.get(suffixes[-1], "") if suffixes else ""


def _refuse_foreign(address: str, start: bytes) -> None:
    for mark, (what, hint) in FOREIGN.items():
        if start.startswith(mark) or start.lstrip().lower().startswith(mark):
            raise DataError(f"{address} is {what}, not labelled text", hint=hint)


def _sample(file: Any, encoding: Encoding) -> str:
    """The first lines, the last of them whole."""
    wrapper = io.TextIOWrapper(file, encoding.name, "replace", newline="")
    sample = wrapper.read(SAMPLE_CHARACTERS) + wrapper.readline()
    wrapper.detach()
    return sample


def _format_by_content(name: str, sample: str, *, auto: bool) -> str:
    """The format, from the first lines where the name does not say; AutoML's files are told by their lines alone."""
    if not auto:
        return name
    if name in ("", "csv", "jsonl") and format_of("automl").recognises(sample, name="automl"):
        return "automl"
    candidates = (name,) if name else ("jsonl", "tsv", "csv")
    return next((c for c in candidates if name or format_of(c).recognises(sample, name=c)), "lines")


def lines_of(sample: str) -> Iterator[str]:
    """The lines of a sample, ended by what ends a line of a file (`str.splitlines` knows eight ends more)."""
    return iter(io.StringIO(sample, newline=""))


def told_apart(names: Sequence[str]) -> tuple[str, ...]:
    """Column names without spaces around them, none of them empty or there twice."""
    found: dict[str, None] = {}
    for position, given in enumerate(names, start=1):
        name = given.strip() or f"column_{position}"
        while name in found:
            name = f"{name}_{position}"
        found[name] = None
    return tuple(found)


def cell(value: Any) -> Cell:
    """A value of a typed format as a cell: scalars as text, a list of scalars as several labels, the rest as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list | tuple) and not any(isinstance(item, list | tuple | dict) for item in value):
        return tuple(scalar for item in value if isinstance(scalar := cell(item), str))
    if isinstance(value, list | tuple | dict):  # a column nobody asked for, as a rule: no reason to refuse the row
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def as_json(value: Any) -> Any:
    """A value as JSON can hold it, and as text where it cannot."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    return value if isinstance(value, int) else cell(value)


def _number(value: float) -> str | None:
    """A number as people write it; no number is no value."""
    if math.isnan(value):
        return None
    return str(int(value)) if abs(value) < WHOLE and value == int(value) else str(value)
