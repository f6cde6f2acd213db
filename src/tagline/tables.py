"""Rows in files: jsonl, csv, tsv and Parquet, written part by part and joined."""

import csv
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from tagline.errors import PlaceError

Row = dict[str, Any]

OURS = ("label", "labels", "score", "scores", "abstained", "set")
"""Keys of an answer; an input column of the same name is kept as `input_...`."""
TYPES = {"score": "float64", "abstained": "bool"}
"""Of columns in Parquet that are not text."""


def answer_columns(task: str) -> list[str]:
    """What of an answer stands in a table."""
    return ["labels", "abstained"] if task == "multi" else ["label", "score", "abstained"]


@dataclass(frozen=True)
class Table:
    """A format. A part is written by itself, and may not be a whole file of the format; parts joined are one."""

    write: Callable[[Iterable[Row], Sequence[str], IO[bytes]], None]
    join: Callable[[Sequence[Path], Sequence[str], IO[bytes]], None]


def _write_jsonl(rows: Iterable[Row], _: Sequence[str], file: IO[bytes]) -> None:
    for row in rows:
        file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def _join_jsonl(parts: Sequence[Path], _: Sequence[str], file: IO[bytes]) -> None:
    for part in parts:
        with part.open("rb") as some:
            shutil.copyfileobj(some, file)


def _write_delimited(rows: Iterable[Row], columns: Sequence[str], file: IO[bytes], *, delimiter: str) -> None:
    csv.DictWriter(_Lines(file), columns, delimiter=delimiter, lineterminator="\r\n").writerows(map(_flat, rows))


def _join_delimited(parts: Sequence[Path], columns: Sequence[str], file: IO[bytes], *, delimiter: str) -> None:
    csv.DictWriter(_Lines(file), columns, delimiter=delimiter, lineterminator="\r\n").writeheader()
    _join_jsonl(parts, columns, file)


class _Lines:
    """Where a CSV writer writes: rows end in a line feed. (A writer told so itself leaves a lone CR unquoted.)"""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, row: str) -> None:
        self._file.write(row.removesuffix("\r\n").encode() + b"\n")


def _write_parquet(rows: Iterable[Row], columns: Sequence[str], file: IO[bytes]) -> None:
    from pyarrow import Table as Arrow
    from pyarrow import field, parquet, schema

    typed = schema([field(name, TYPES.get(name, "string")) for name in columns])
    parquet.write_table(Arrow.from_pylist([_flat(row) for row in rows], schema=typed), file)


def _join_parquet(parts: Sequence[Path], _: Sequence[str], file: IO[bytes]) -> None:
    from pyarrow import parquet

    with parquet.ParquetWriter(file, parquet.read_schema(parts[0])) as writer:
        for part in parts:
            writer.write_table(parquet.read_table(part))


def _flat(row: Row) -> Row:
    """A row for a table: several labels between bars, without the scores of all labels."""
    flat = {name: "|".join(map(str, value)) if isinstance(value, list) else value for name, value in row.items()}
    flat.pop("scores")
    return flat | {"abstained": row.get("abstained", False)}


def check_parquet() -> None:
    """Refuse to write Parquet where nothing is installed that can."""
    try:
        import pyarrow.parquet  # noqa: F401 - whether it is there
    except ImportError as error:
        hint = 'pip install "tagline[train]", or write csv or jsonl'
        raise PlaceError("writing Parquet needs pyarrow, which is not installed", hint=hint) from error


TABLES = {
    ".jsonl": Table(_write_jsonl, _join_jsonl),
    ".csv": Table(partial(_write_delimited, delimiter=","), partial(_join_delimited, delimiter=",")),
    ".tsv": Table(partial(_write_delimited, delimiter="\t"), partial(_join_delimited, delimiter="\t")),
    ".parquet": Table(_write_parquet, _join_parquet),
}
