"""Parquet; a row's line is its number."""

import gzip
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tagline import storage
from tagline.errors import DataError, PlaceError, first_line
from tagline.readers import (
    BATCH_ROWS,
    BadRows,
    Block,
    Cell,
    Layout,
    Source,
    in_blocks,
    told_apart,
)


def inspect(name: str, layout: Layout, sample: str) -> dict[str, Any]:  # noqa: ARG001 - the contract's signature
    """The columns that the file itself names."""
    with _opened(name) as file:
        schema = file.schema_arrow
        return {"columns": told_apart(schema.names), "types": tuple(map(_type_of, schema.types))}


def rows_in(name: str) -> int:
    """How many rows a file says that it has."""
    with _opened(name) as file:
        return int(file.metadata.num_rows)


def _type_of(kind: Any) -> str:
    from pyarrow import types

    is_plain = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return str(kind) if is_plain else ""


def blocks(source: Source, bad: BadRows) -> Iterator[Block]:  # noqa: ARG001 - as above
    """The rows of a source, many at once."""
    return in_blocks(_rows(source))


def _rows(source: Source) -> Iterator[tuple[int, Sequence[Cell]]]:
    """Each row, numbered from 1."""
    with _opened(source.name) as file:
        number = 0
        for batch in file.iter_batches(batch_size=BATCH_ROWS):
            for values in zip(*map(_values, batch.columns), strict=True):
                number += 1
                yield number, [source.as_read(value) for value in values]


def _values(column: Any) -> list[Any]:
    """A column as Python values, or as bytes or text where Python has no such value."""
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:  # a writer that did not check its strings
        values = column.cast("binary").to_pylist()
    except (ValueError, OverflowError):  # times finer or further than datetime's
        values = column.cast("string").to_pylist()
    return values


@contextmanager
def _opened(name: str) -> Iterator[Any]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        hint = 'pip install "tagline[train]", or use csv or jsonl'
        raise PlaceError("reading Parquet needs pyarrow, which is not installed", hint=hint) from error
    try:
        with storage.reading(name) as file:
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
