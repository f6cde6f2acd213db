"""Readers of labelled text: CSV, JSON lines, Parquet and other formats as rows with their file and line.

Files, in the order of their imports:

- encoding.py: Detection of a file's encoding from its bytes.
- delimited.py: CSV and TSV: fields between separators, line breaks inside quotes, with or without a header.
- jsonlines.py: JSON lines: one object per line.
- lines.py: Plain lines: `text<separator>label` split at the last separator, or one text per line.
- automl.py: Google AutoML Text's import files: CSV rows `[ml_use,]text,label...` and JSON lines with `textContent`.
- parquet.py: Parquet; the line of a row is its number.
- hub.py: Datasets of the Hugging Face hub, `hf://glue/mnli`, through the `datasets` package if it is installed.
"""

import codecs
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import PurePath
from typing import IO, Any, Literal, Protocol

from tagline.data.readers.encoding import Encoding, check_named_encoding, detect_encoding
from tagline.errors import DataError
from tagline.storage import addresses, inputs

Cell = str | tuple[str, ...] | None
"""A text, several labels, or nothing."""

UTF_8 = Encoding("utf-8")
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f\ufffd]")
FEW_CONTROLS = 20
WHOLE = 2**53
"""Below this a float that looks whole is exact."""
Block = tuple[list[int], Sequence[Sequence[Cell]]]
"""Some rows: the line that each starts on, and its cells in the order of the source's columns."""

BATCH_ROWS = 8192
SHOWN_BAD_ROWS = 20
LONGEST_REASON = 300
SAMPLE_CHARACTERS = 1 << 16
EXCERPTED = ("csv", "tsv", "jsonl", "lines")
"""Line-based formats, which can be read from the middle of a file."""
EXCERPTS = 32
EXCERPT_BYTES = 1 << 15
WHOLLY_SAMPLED_BYTES = EXCERPTS * EXCERPT_BYTES
"""The size of a sample: all of a smaller file, excerpts of a larger one."""
FEWEST_SAMPLED = 50
"""With fewer whole rows in all excerpts, because rows are very long, the first rows are the sample instead."""
MOST_SAMPLED = 20_000
BLOCK_CHARACTERS = 1 << 19
"""Characters read at once from a text file."""
LONGEST_RECORD = 1 << 24
"""The most characters in a row. Texts to classify are far shorter, and a few kilobytes of gzip can hold longer ones."""
BATCH_CHARACTERS = 2 * LONGEST_RECORD
"""The most characters in a block of rows."""
FORMATS = {
    "csv": "tagline.data.readers.delimited",
    "tsv": "tagline.data.readers.delimited",
    "automl": "tagline.data.readers.automl",
    "jsonl": "tagline.data.readers.jsonlines",
    "lines": "tagline.data.readers.lines",
    "parquet": "tagline.data.readers.parquet",
    "hub": "tagline.data.readers.hub",
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
"""First bytes of files that are not labelled text (words in lower case), what they are, and what to do."""


@dataclass(frozen=True)
class Layout:
    """The user's settings for reading files; `auto` and empty ones are detected."""

    format: str = "auto"
    separator: str = ""
    header: bool | Literal["auto"] = "auto"
    encoding: str = "auto"


@dataclass(frozen=True)
class Source:
    """An inspected file: how to read it, and its columns."""

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
    """Of a typed format: the Arrow type of each numeric or boolean column, "" for other columns."""
    keeps_types: bool = False
    """Whether numbers, booleans and lists are kept as such, to be written again, rather than read as text."""

    @property
    def as_read(self) -> Callable[[Any], Any]:
        """The function that converts a value of a typed format."""
        return as_json if self.keeps_types else cell


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of one source, by column. `lines[i]` is the line on which row i starts."""

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
    """The bad rows met in reading: they stop it, or are skipped and reported."""

    mode: Literal["stop", "skip"] = "stop"
    rows: list[BadRow] = field(default_factory=list)
    hint: str = "mend them, or go on without them: data.bad_rows=skip"
    unread: set[str] = field(default_factory=set)
    """Keys that occur only in later rows than those from which the columns were inferred; they are ignored."""

    def add(self, file: str, line: int, reason: str) -> None:
        """Record a bad row; if bad rows stop the reading, enough of them stop it at once."""
        self.rows.append(BadRow(file, line, reason))
        if self.mode == "stop" and len(self.rows) >= SHOWN_BAD_ROWS:
            self.raise_if_bad()

    def raise_if_bad(self) -> None:
        """Raise DataError if there are bad rows, unless they are to be skipped."""
        if self.mode == "skip" or not self.rows:
            return
        at_least = "at least " if len(self.rows) >= SHOWN_BAD_ROWS else ""
        count = "1 bad row" if len(self.rows) == 1 else f"{at_least}{len(self.rows)} bad rows"
        files = list(dict.fromkeys(row.file for row in self.rows))
        in_order = sorted(self.rows, key=lambda row: (files.index(row.file), row.line))
        listed = "\n".join(f"  {row}" for row in in_order)
        raise DataError(f"{count}:\n{listed}", hint=self.hint)


class Format(Protocol):
    """The contract of a file format's module: recognise a file, inspect it, and read its rows."""

    def recognises(self, sample: str, *, name: str) -> bool:
        """Return whether these first lines of a file are certainly in this format."""

    def inspect(self, name: str, layout: Layout, sample: str) -> dict[str, Any]:
        """Return the fields of `Source` that this format sets."""

    def blocks(self, source: Source, bad: BadRows) -> Iterator[Block]:
        """Yield the good rows in order; bad ones are added to `bad`."""


def format_of(name: str) -> Format:
    """Return the implementation of a format."""
    module: Any = import_module(FORMATS[name])
    return module  # type: ignore[no-any-return]


def inspect(address: str, layout: Layout = Layout()) -> Source:  # noqa: B008 - frozen
    """Inspect a file: its format, encoding and columns."""
    if address.startswith("hf://"):
        return Source(name=address, format="hub", **format_of("hub").inspect(address, layout, ""))
    return _inspect_file(address, layout, inputs.read_stamp(address))


@cache
def _inspect_file(address: str, layout: Layout, stamp: tuple[int, ...]) -> Source:
    name = layout.format if layout.format != "auto" else _format_by_name(address)
    with inputs.open_for_reading(address) as file:
        start = file.read(64)
        file.seek(0)
        _refuse_foreign(address, start)
        if name == "parquet" or (name == "" and start.startswith(b"PAR1")):
            return Source(address, "parquet", stamp=stamp, **format_of("parquet").inspect(address, layout, ""))
        encoding = detect_encoding(file) if layout.encoding == "auto" else check_named_encoding(layout.encoding, file)
        file.seek(0)
        sample = _read_sample(file, encoding, address)
    if not sample.strip():
        raise DataError(f"{address} is empty", hint="it needs a row for each text")
    if len(CONTROL.findall(sample)) > max(FEW_CONTROLS, len(sample) // 10):
        hint = "if it is text, save it as UTF-8, or name its data.encoding; else " + EXPORT
        raise DataError(f"{address} is not text, or in an encoding that was not recognised", hint=hint)
    name = _format_by_content(name, sample, auto=layout.format == "auto")
    details = format_of(name).inspect(address, layout, sample)
    return Source(name=address, format=name, encoding=encoding, stamp=stamp, **details)


def read_batches(source: Source, *, bad: BadRows) -> Iterator[Batch]:
    """Read the good rows of a source batch by batch, in order and in constant memory."""
    if source.format != "hub" and inputs.read_stamp(source.name) != source.stamp:
        raise addresses.file_changed_error(source.name)
    for lines, rows in format_of(source.format).blocks(source, bad):
        if rows:
            yield Batch(lines, dict(zip(source.columns, zip(*rows, strict=True), strict=True)))


def estimate_rows(source: Source) -> int | None:
    """Estimate the rows of a source: by its lines, or by its metadata; None for datasets of the hub."""
    if source.format == "hub":
        return None
    if source.format == "parquet":
        parquet: Any = format_of("parquet")
        return int(parquet.count_rows(source.name))
    with inputs.open_for_reading(source.name) as file:
        lines = sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b""))
    return max(lines - source.header, 1)


def group_into_blocks(rows: Iterable[tuple[int, Sequence[Cell]]]) -> Iterator[Block]:
    """Group rows into blocks."""
    lines: list[int] = []
    block: list[Sequence[Cell]] = []
    characters = 0
    for line, cells in rows:
        lines.append(line)
        block.append(cells)
        for value in cells:
            characters += len(value) if type(value) is str else len(repr(value)) if value else 0
        if len(lines) >= BATCH_ROWS or characters >= BATCH_CHARACTERS:
            yield lines, block
            lines, block, characters = [], [], 0
    if lines:
        yield lines, block


class LineReader:
    """Reads the lines of a text with their line breaks unchanged, and refuses overlong ones."""

    def __init__(self, text: io.TextIOWrapper, name: str) -> None:
        self._text, self._name = text, name
        self._block: Iterator[str] = iter(())
        self._read = 0
        """Lines read so far."""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._block, "")
        if not line:
            self._block = iter(self._next_block())
            line = next(self._block)
        return line

    def readlines(self) -> list[str]:
        """Return the rest of the current block's lines, or the next block's; none at the end."""
        return list(self._block) or self._next_block()

    def _next_block(self) -> list[str]:
        block = self._text.read(BLOCK_CHARACTERS)
        rest = self._text.readline(LONGEST_RECORD) if block else ""
        lines = io.StringIO(block + rest, newline="").readlines()
        self._read += len(lines)
        if len(rest) >= LONGEST_RECORD:
            raise row_too_long_error(self._name, self._read)
        return lines


def row_too_long_error(name: str, line: int) -> DataError:
    """Return the error for a row that is longer than any text to classify."""
    hint = "take it out of the file; is it labelled text, and is no quote left open?"
    return DataError(f"{name}:{line}: a row of more than {LONGEST_RECORD:,} characters", hint=hint)


@contextmanager
def open_text(source: Source) -> Iterator[LineReader]:
    """Open a source as lines of text, read in constant memory."""
    with inputs.open_for_reading(source.name) as file:
        text = io.TextIOWrapper(file, source.encoding.name, source.encoding.errors, newline="")
        try:
            yield LineReader(text, source.name)
        finally:
            text.detach()


def sample_source(source: Source) -> Batch:
    """Sample rows from the whole source, at a cost independent of its size; `lines` of a large one are mere counts.

    Bad rows are skipped here, and reported when the source is read.

    """
    rows: Sequence[Sequence[Cell]] = []
    if source.format == "parquet":
        parquet: Any = format_of("parquet")
        rows = parquet.sample_rows(source)
    elif source.format in EXCERPTED and (excerpts := _read_excerpts(source)):
        reader: Any = format_of(source.format)
        rows = [row for lines in excerpts for row in reader.parse_excerpt(source, lines)]
    if len(rows) >= FEWEST_SAMPLED:
        return Batch(list(range(1, len(rows) + 1)), dict(zip(source.columns, zip(*rows, strict=True), strict=True)))
    batches: list[Batch] = []
    for batch in read_batches(source, bad=BadRows("skip")):
        batches.append(batch)
        if sum(len(batch.lines) for batch in batches) >= MOST_SAMPLED:
            break
    return Batch(
        [line for batch in batches for line in batch.lines],
        {name: [cell for batch in batches for cell in batch.columns[name]] for name in source.columns},
    )


def _read_excerpts(source: Source) -> list[list[str]]:
    """Return whole lines from evenly spaced excerpts of a large file; none of a small file."""
    with inputs.open_for_reading(source.name) as file:
        is_zipped = not isinstance(file, io.BufferedReader)
        chunks = _stream_chunks(file) if is_zipped else _seek_chunks(file)
    encoding = _without_mark(source.encoding.name, chunks[0][:4]) if chunks else ""
    return [_whole_lines(chunk, encoding, is_first=position == 0) for position, chunk in enumerate(chunks)]


def _seek_chunks(file: IO[bytes]) -> list[bytes]:
    size = file.seek(0, io.SEEK_END)
    if size <= WHOLLY_SAMPLED_BYTES:
        return []
    chunks = []
    for number in range(EXCERPTS):
        file.seek(size * number // EXCERPTS // 4 * 4)  # aligned to every code unit size
        chunks.append(file.read(EXCERPT_BYTES))
    return chunks


def _stream_chunks(file: IO[bytes]) -> list[bytes]:
    """Return evenly spaced chunks of a stream: every block, then every second one, every fourth, as it gets longer."""
    chunks: list[bytes] = []
    size, stride, number = 0, 1, 0
    while block := file.read(EXCERPT_BYTES):
        if number % stride == 0:
            chunks.append(block)
        if len(chunks) > 2 * EXCERPTS:
            chunks, stride = chunks[::2], 2 * stride
        size, number = size + len(block), number + 1
    return chunks if size > WHOLLY_SAMPLED_BYTES else []


def _without_mark(encoding: str, start: bytes) -> str:
    """Return the codec for decoding the middle of a file, which has no byte-order mark."""
    if encoding == "utf-8-sig":
        return "utf-8"
    if encoding not in ("utf-16", "utf-32"):
        return encoding
    return encoding + ("-be" if start.startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)) else "-le")


def _whole_lines(chunk: bytes, encoding: str, *, is_first: bool) -> list[str]:
    """Return the lines that are complete within a chunk."""
    if not is_first and not encoding.startswith(
        ("utf-16", "utf-32")
    ):  # in other encodings no character contains this byte
        chunk = chunk[chunk.find(b"\n") + 1 :]
        is_first = True
    lines = list(split_lines(chunk.decode(encoding, "replace").removeprefix("\ufeff")))
    return lines[0 if is_first else 1 : -1]


def find_undecodable(cells: Sequence[Cell], encoding: Encoding) -> str:
    """Return why a row of a damaged file is bad, by its first undecodable byte; "" if it has none."""
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


def _read_sample(file: Any, encoding: Encoding, name: str) -> str:
    """Return the first lines, the last of them complete."""
    wrapper = io.TextIOWrapper(file, encoding.name, "replace", newline="")
    sample, rest = wrapper.read(SAMPLE_CHARACTERS), wrapper.readline(LONGEST_RECORD)
    wrapper.detach()
    if len(rest) >= LONGEST_RECORD:
        raise row_too_long_error(name, sum(1 for _ in split_lines(sample)))
    return sample + rest


def _format_by_content(name: str, sample: str, *, auto: bool) -> str:
    """Return the format: by the first lines if the name does not say, and for AutoML's files by the lines alone."""
    if not auto:
        return name
    if name in ("", "csv", "jsonl") and format_of("automl").recognises(sample, name="automl"):
        return "automl"
    candidates = (name,) if name else ("jsonl", "tsv", "csv")
    return next((c for c in candidates if name or format_of(c).recognises(sample, name=c)), "lines")


def split_lines(sample: str) -> Iterator[str]:
    """Yield the lines of a sample, split as lines of a file are (`str.splitlines` splits at eight more characters)."""
    return iter(io.StringIO(sample, newline=""))


def name_columns(names: Sequence[str], *, of: str, hint: str = "rename one of them in the file") -> tuple[str, ...]:
    """Return column names stripped, with empty ones replaced; raise DataError if two are the same."""
    positions: dict[str, int] = {}
    for position, raw_name in enumerate(names, start=1):
        name = raw_name.strip() or f"column_{position}"
        if name in positions:
            message = f'{of} has two columns called "{name}": column {positions[name]} and column {position}'
            raise DataError(message, hint=hint)
        positions[name] = position
    return tuple(positions)


def cell(value: Any) -> Cell:
    """Return a value of a typed format as a cell: scalars as text, lists of scalars as labels, others as JSON."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _format_number(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list | tuple) and not any(isinstance(item, list | tuple | dict) for item in value):
        return tuple(scalar for item in value if isinstance(scalar := cell(item), str))
    if isinstance(value, list | tuple | dict):  # usually in an unused column: no reason to refuse the row
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def as_json(value: Any) -> Any:
    """Return a value as JSON can represent it, or else as text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): as_json(item) for key, item in value.items()}
    return value if isinstance(value, int) else cell(value)


def _format_number(value: float) -> str | None:
    """Return a number in its usual notation, None for NaN."""
    if math.isnan(value):
        return None
    return str(int(value)) if abs(value) < WHOLE and value == int(value) else str(value)
