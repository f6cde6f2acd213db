"""Texts without labels, from any file that the readers support, or from a plain text file with one text per line."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import PurePath

from tagline.data.columns import choose_text_column
from tagline.data.readers import BadRows, Layout, Source, inspect, read_batches
from tagline.errors import DataError
from tagline.storage import inputs

LINES = Layout(format="lines")
LINE = "text"
"""The only column of a plain text file."""
HINT = "mend them, or take them out of the file"


def read_texts(addresses: Iterable[str], *, column: str = "") -> Iterator[str]:
    """Yield every text of these files that is not blank; of a table, those of this column, or of its text column."""
    for address in inputs.expand_globs(tuple(addresses)):
        count = 0
        for text in _read_cells(address, column):
            if text.strip():
                count += 1
                yield text
        if not count:
            raise DataError(f"{address} holds no text")


def check_readable(addresses: Iterable[str]) -> None:
    """Raise an error if a file cannot be read, before the work that needs its texts starts."""
    for address in inputs.expand_globs(tuple(addresses)):
        _resolve_column(_inspect_file(address), "")


def _inspect_file(address: str) -> Source:
    """Inspect a file; in plain text each line is a text, whatever looks like a label at its end."""
    if PurePath(address.removesuffix(".gz")).suffix != ".txt":
        return inspect(address)
    return replace(inspect(address, LINES), separator="", columns=(LINE,))


def _read_cells(address: str, column: str) -> Iterator[str]:
    source = _inspect_file(address)
    name = _resolve_column(source, column)
    bad = BadRows(hint=HINT)
    for batch in read_batches(source, bad=bad):
        for cell in batch.columns[name]:
            yield cell if isinstance(cell, str) else " ".join(cell or ())
    bad.raise_if_bad()


def _resolve_column(source: Source, column: str) -> str:
    """Return the column that holds the texts; plain text files have only one."""
    if source.format == "lines" and source.columns == (LINE,):
        return LINE
    name = column or choose_text_column(source)
    if name not in source.columns:
        raise DataError(f'{source.name} has no column "{name}"; it has: {", ".join(source.columns)}')
    return name
