"""Writing rows to files: jsonl, csv, tsv and Parquet, in parts that are joined."""

import csv
import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal, get_args

from tagline.data.readers import cell
from tagline.errors import PlaceError

Row = dict[str, Any]

OURS = ("label", "labels", "score", "scores", "abstained", "set")
"""Keys of a prediction; an input column of the same name is kept as `input_...`."""
EscapeFormulas = Literal["ours", "all", "none"]
"""Which cells of a CSV or TSV are escaped against formula injection: those of our own columns, all, or none."""
ESCAPE_FORMULAS: tuple[EscapeFormulas, ...] = get_args(EscapeFormulas)
FORMULA = re.compile(r"'*(?:[=@\t\r\n＝＋－＠]|[-+](?!(?:\d[\d.,]*(?:[eE][-+]?\d+)?)?\Z))")
"""The start of a cell that a spreadsheet may run (OWASP, CSV injection), or that is escaped already; -1 is a number."""
Columns = Mapping[str, str]
"""The names of columns, each with its Arrow type in Parquet; "" for text."""


def answer_columns(task: str) -> dict[str, str]:
    """Return the columns of a prediction in a table."""
    return (
        {"labels": "", "abstained": "bool"}
        if task == "multi"
        else {"label": "", "score": "float64", "abstained": "bool"}
    )


@dataclass(frozen=True)
class Table:
    """A table format. Parts are written separately and need not be valid files by themselves; joined, they are one."""

    write: Callable[[Iterable[Row], Columns, IO[bytes]], None]
    join: Callable[[Sequence[Path], Columns, IO[bytes]], None]


def _write_jsonl(rows: Iterable[Row], _: Columns, file: IO[bytes]) -> None:
    for row in rows:
        file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


def _join_jsonl(parts: Sequence[Path], _: Columns, file: IO[bytes]) -> None:
    for part in parts:
        with part.open("rb") as source:
            shutil.copyfileobj(source, file)


def escape_formula(cell: Any) -> Any:
    """Return a cell with a quote before what looks like a formula; `unescape_formula` reverses it."""
    return f"'{cell}" if isinstance(cell, str) and FORMULA.match(cell) else cell


def unescape_formula(cell: str) -> str:
    """Return the cell as it was before `escape_formula`."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def _escape_row(row: Row, which: EscapeFormulas) -> Row:
    """Return a row with formulas escaped in our own columns, or in all columns and their names."""
    if which == "none":
        return row
    if which == "ours":
        return {name: escape_formula(value) if name in OURS and value else value for name, value in row.items()}
    return {escape_formula(name): escape_formula(value) for name, value in row.items()}


def _write_delimited(
    rows: Iterable[Row], columns: Columns, file: IO[bytes], *, delimiter: str, escape: EscapeFormulas
) -> None:
    names = list(_escape_row(dict.fromkeys(columns), escape))
    writer = csv.DictWriter(_LineFeedWriter(file), names, delimiter=delimiter, lineterminator="\r\n")
    writer.writerows(_escape_row(_flatten_row(row, answer_columns("single")), escape) for row in rows)


def _join_delimited(
    parts: Sequence[Path], columns: Columns, file: IO[bytes], *, delimiter: str, escape: EscapeFormulas
) -> None:
    names = list(_escape_row(dict.fromkeys(columns), escape))
    csv.DictWriter(_LineFeedWriter(file), names, delimiter=delimiter, lineterminator="\r\n").writeheader()
    _join_jsonl(parts, columns, file)


class _LineFeedWriter:
    """A file for `csv` whose rows end in a line feed; told to end them so itself, `csv` leaves a lone CR unquoted."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, row: str) -> None:
        self._file.write(row.removesuffix("\r\n").encode() + b"\n")


def _write_parquet(rows: Iterable[Row], columns: Columns, file: IO[bytes]) -> None:
    from pyarrow import Table as Arrow
    from pyarrow import field, parquet, schema

    typed = schema([field(name, kind or "string") for name, kind in columns.items()])
    parquet.write_table(Arrow.from_pylist([_flatten_row(row, columns) for row in rows], schema=typed), file)


def _join_parquet(parts: Sequence[Path], _: Columns, file: IO[bytes]) -> None:
    from pyarrow import parquet

    with parquet.ParquetWriter(file, parquet.read_schema(parts[0])) as writer:
        for part in parts:
            writer.write_table(parquet.read_table(part))


def _flatten_row(row: Row, typed: Columns) -> Row:
    """Return a row for a table: untyped values as text, several labels joined by bars, without all labels' scores."""
    flat = {name: value if typed.get(name) else _as_text(value) for name, value in row.items() if name != "scores"}
    return flat | {"abstained": row.get("abstained", False)}


def _as_text(value: Any) -> str | None:
    converted = cell(value)
    return "|".join(converted) if isinstance(converted, tuple) else converted


def check_parquet() -> None:
    """Raise PlaceError if pyarrow, which writes Parquet, is not installed."""
    try:
        import pyarrow.parquet  # noqa: F401 - whether it is there
    except ImportError as error:
        hint = 'pip install "tagline[train]", or write csv or jsonl'
        raise PlaceError("writing Parquet needs pyarrow, which is not installed", hint=hint) from error


DELIMITERS = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (".jsonl", *DELIMITERS, ".parquet")
"""The suffixes of the formats that can be written."""


def table_for(suffix: str, *, escape_formulas: EscapeFormulas = "ours") -> Table:
    """Return the format of a file by its suffix."""
    if suffix in DELIMITERS:
        options: dict[str, Any] = {"delimiter": DELIMITERS[suffix], "escape": escape_formulas}
        return Table(partial(_write_delimited, **options), partial(_join_delimited, **options))
    return Table(_write_parquet, _join_parquet) if suffix == ".parquet" else Table(_write_jsonl, _join_jsonl)
