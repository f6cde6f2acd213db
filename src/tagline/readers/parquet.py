"""Parquet; a row's line is its number."""

import gzip
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tagline import storage
from tagline.errors import DataError, PlaceError
from tagline.readers import BATCH_ROWS, BadRows, Cell, Layout, Source, cell


def inspect(name: str, layout: Layout, sample: str) -> dict[str, Any]:  # noqa: ARG001 - the contract's signature
    """The columns that the file itself names."""
    with _opened(name) as file:
        return {"columns": tuple(file.schema_arrow.names)}


def rows(source: Source, bad: BadRows) -> Iterator[tuple[int, Sequence[Cell]]]:
    """Each row, numbered from 1."""
    with _opened(source.name) as file:
        number = 0
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=list(source.columns)):
            for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                number += 1
                try:
                    yield number, [cell(value) for value in values]
                except TypeError as error:
                    bad.add(source.name, number, str(error))


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
        raise DataError(f"{name} is not a readable Parquet file: {str(error).splitlines()[0]}") from error
