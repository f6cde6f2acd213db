"""Parquet; the line of a row is its number."""

import gzip
import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tagline.data.readers import (
    BATCH_CHARACTERS,
    BATCH_ROWS,
    LONGEST_RECORD,
    BadRows,
    Block,
    Cell,
    Layout,
    Source,
    cell,
    group_into_blocks,
    name_columns,
    row_too_long_error,
)
from tagline.errors import DataError, PlaceError, first_line
from tagline.storage import inputs

SAMPLED_GROUPS = 32
SAMPLED_ROWS = 4000
BYTES_A_CHARACTER = 4
"""The most bytes of a character in UTF-8."""


def inspect(name: str, layout: Layout, sample: str) -> dict[str, Any]:  # noqa: ARG001 - the contract's signature
    """Return the columns and types in the file's schema."""
    with _open_file(name) as file:
        schema = file.schema_arrow
        return {"columns": name_columns(schema.names, of=name), "types": tuple(map(_type_of, schema.types))}


def sample_rows(source: Source) -> list[list[Cell]]:
    """Return rows from evenly spaced places: a few of each batch, from some row groups if there are many."""
    with _open_file(source.name) as file:
        groups = range(0, file.num_row_groups, max(1, file.num_row_groups // SAMPLED_GROUPS))
        total = sum(file.metadata.row_group(group).num_rows for group in groups)
        share = min(1.0, SAMPLED_ROWS / max(1, total))
        rows: list[list[Cell]] = []
        for batch in file.iter_batches(batch_size=BATCH_ROWS, row_groups=list(groups)):
            selection = batch.slice(0, math.ceil(share * batch.num_rows))
            rows += [list(map(cell, values)) for values in zip(*map(_convert_column, selection.columns), strict=True)]
        return rows


def count_rows(name: str) -> int:
    """Return the number of rows in a file's metadata."""
    with _open_file(name) as file:
        return int(file.metadata.num_rows)


def _type_of(kind: Any) -> str:
    from pyarrow import types

    is_plain = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return str(kind) if is_plain else ""


def blocks(source: Source, bad: BadRows) -> Iterator[Block]:  # noqa: ARG001 - as above
    """Yield the rows of a source in blocks."""
    return group_into_blocks(_read_rows(source))


def _read_rows(source: Source) -> Iterator[tuple[int, Sequence[Cell]]]:
    """Yield each row, numbered from 1."""
    with _open_file(source.name) as file:
        number = 0
        for group in range(file.num_row_groups):
            size = _batch_rows(file.metadata.row_group(group), source.name, first=number + 1)
            for batch in file.iter_batches(batch_size=size, row_groups=[group]):
                _refuse_long(batch, source.name, first=number + 1)
                for values in zip(*map(_convert_column, batch.columns), strict=True):
                    number += 1
                    yield number, [source.as_read(value) for value in values]


def _batch_rows(group: Any, name: str, *, first: int) -> int:
    """Return how many rows of a group to read at once, by their size in the metadata; overlong ones are refused."""
    sizes = [group.column(number).total_uncompressed_size for number in range(group.num_columns)]
    mean = sum(sizes) / max(group.num_rows, 1)
    if mean > LONGEST_RECORD * BYTES_A_CHARACTER:
        raise row_too_long_error(name, first)
    return int(min(BATCH_ROWS, max(1, BATCH_CHARACTERS // (mean + 1))))


def _refuse_long(batch: Any, name: str, *, first: int) -> None:
    """Raise DataError at a cell that is longer than a row may be."""
    from pyarrow import compute, types

    for column in batch.columns:
        kind = column.type
        if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
            lengths = compute.binary_length(column)
            if (compute.max(lengths).as_py() or 0) > LONGEST_RECORD * BYTES_A_CHARACTER:
                raise row_too_long_error(name, first + compute.index(lengths, compute.max(lengths)).as_py())


def _convert_column(column: Any) -> list[Any]:
    """Return a column as Python values, or as bytes or text if Python has no such value."""
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:  # strings that the writer did not validate
        values = column.cast("binary").to_pylist()
    except (ValueError, OverflowError):  # times beyond datetime's resolution or range
        values = column.cast("string").to_pylist()
    return values


@contextmanager
def _open_file(name: str) -> Iterator[Any]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        hint = 'pip install "tagline[train]", or use csv or jsonl'
        raise PlaceError("reading Parquet needs pyarrow, which is not installed", hint=hint) from error
    try:
        with inputs.open_for_reading(name) as file:
            if not isinstance(file, gzip.GzipFile):
                yield ParquetFile(file)
                return
            with tempfile.TemporaryFile() as unzipped:  # Parquet is read from its end
                for block in iter(lambda: file.read(1 << 20), b""):
                    unzipped.write(block)
                yield ParquetFile(unzipped)
    except ArrowException as error:
        hint = "write it again, or export it as CSV"
        raise DataError(f"{name} is not a readable Parquet file: {first_line(error)}", hint=hint) from error
