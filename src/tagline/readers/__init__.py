"""Files of labelled text read as rows that remember their file and line."""

import io
import math
from collections.abc import Iterator, Mapping, Sequence
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
BATCH_ROWS = 8192
SHOWN_BAD_ROWS = 20
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
FOREIGN = {b"PK\x03\x04": "a zip or Excel file", b"\xd0\xcf\x11\xe0": "an old Excel file", b"%PDF": "a PDF",
           b"\x89PNG": "a picture", b"SQLite": "an SQLite database"}  # fmt: skip


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
        return f"{self.file}:{self.line}: {self.reason}"


@dataclass
class BadRows:
    """The bad rows of a reading: they stop it, or are passed over and named."""

    mode: Literal["stop", "skip"] = "stop"
    rows: list[BadRow] = field(default_factory=list)

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
        listed = "\n".join(f"  {row}" for row in self.rows)
        hint = 'mend them, or go on without them: data.bad_rows = "skip"'
        raise DataError(f"{count}:\n{listed}", hint=hint)


class Format(Protocol):
    """What a file of this package offers: to know its own, to look at a source, and to read its rows."""

    def recognises(self, sample: str, *, name: str) -> bool:
        """Whether these first lines of a file are surely of this format."""

    def inspect(self, name: str, layout: Layout, sample: str) -> dict[str, Any]:
        """The fields of `Source` that this format sets."""

    def rows(self, source: Source, bad: BadRows) -> Iterator[tuple[int, Sequence[Cell]]]:
        """Each row's line and its cells, in the order of the source's columns."""


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
        start = file.read(8)
        file.seek(0)
        _refuse_foreign(address, start)
        if name == "parquet" or (name == "" and start.startswith(b"PAR1")):
            return Source(address, "parquet", stamp=stamp, **format_of("parquet").inspect(address, layout, ""))
        encoding = detected(file) if layout.encoding == "auto" else named(layout.encoding, file)
        file.seek(0)
        sample = _sample(file, encoding)
    if not sample.strip():
        raise DataError(f"{address} is empty")
    if sample.count("\0") > len(sample) // 10:
        raise DataError(f"{address} is not text: it is full of zero bytes")
    name = _format_by_content(name, sample, auto=layout.format == "auto")
    details = format_of(name).inspect(address, layout, sample)
    return Source(name=address, format=name, encoding=encoding, stamp=stamp, **details)


def batches(source: Source, *, bad: BadRows) -> Iterator[Batch]:
    """Every good row of a source, in order and in memory that does not grow with the file."""
    if source.format != "hub" and storage.stamp(source.name) != source.stamp:
        raise storage.changed(source.name)
    rows = format_of(source.format).rows(source, bad)
    while chunk := list(islice(rows, BATCH_ROWS)):
        columns = zip(*(cells for _, cells in chunk), strict=True)
        yield Batch([line for line, _ in chunk], dict(zip(source.columns, columns, strict=True)))


def text_of(source: Source) -> "_Text":
    """A source's content as text, line breaks untouched; a context manager."""
    return _Text(source)


def sampled(source: Source, count: int) -> Batch:
    """The first rows of a source; bad ones are passed over here and named when the source is read."""
    for batch in batches(source, bad=BadRows("skip")):
        return Batch(batch.lines[:count], {name: cells[:count] for name, cells in batch.columns.items()})
    return Batch([], dict.fromkeys(source.columns, ()))


class _Text:
    def __init__(self, source: Source) -> None:
        self._source = source

    def __enter__(self) -> io.TextIOWrapper:
        self._reading = storage.reading(self._source.name)
        encoding = self._source.encoding
        file = self._reading.__enter__()
        self._wrapper = io.TextIOWrapper(file, encoding.name, encoding.errors, newline="")
        return self._wrapper

    def __exit__(self, *problem: Any) -> bool | None:
        self._wrapper.detach()
        return self._reading.__exit__(*problem)


def undecodable(cells: Sequence[Cell], encoding: Encoding) -> str:
    """Why a row of a damaged file is bad: the first bytes that do not fit, or nothing."""
    for cell in cells:
        for text in cell if isinstance(cell, tuple) else (cell or "",):
            odd = next((character for character in text if "\udc80" <= character <= "\udcff"), "")
            if odd:
                return f"byte 0x{ord(odd) - 0xDC00:02x} is not {encoding.name}"
    return ""


def _format_by_name(address: str) -> str:
    suffixes = [suffix.lower() for suffix in PurePath(address).suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return SUFFIXES.get(suffixes[-1], "") if suffixes else ""


def _refuse_foreign(address: str, start: bytes) -> None:
    for mark, what in FOREIGN.items():
        if start.startswith(mark):
            raise DataError(f"{address} is {what}, not text", hint="export it as CSV")


def _sample(file: Any, encoding: Encoding) -> str:
    wrapper = io.TextIOWrapper(file, encoding.name, "replace", newline="")
    sample = wrapper.read(SAMPLE_CHARACTERS)
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


def cell(value: Any) -> Cell:
    """A value of a typed format as a cell: scalars as text, a list of scalars as several labels."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(int(value)) if math.isfinite(value) and value == int(value) else str(value)
    if isinstance(value, list | tuple):
        return tuple(scalar for item in value if isinstance(scalar := cell(item), str))
    if isinstance(value, dict | bytes):
        raise TypeError(f"a value is {type(value).__name__}, not a text, a number or a list of them")
    return str(value)
