"""Texts without labels, from any file the readers know, or from one with a text on each line."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import PurePath

from tagline.data.columns import choose_text_column
from tagline.data.readers import BadRows, Layout, Source, inspect, read_batches
from tagline.errors import DataError
from tagline.storage import inputs

LINES = Layout(format="lines")
LINE = "text"
"""The one column of such a file."""
HINT = "mend them, or take them out of the file"


def texts_in(addresses: Iterable[str], *, column: str = "") -> Iterator[str]:
    """Every text of these files that is not blank; in a table those of this column, or of the one that holds texts."""
    for address in inputs.expand_globs(tuple(addresses)):
        count = 0
        for text in _read_cells(address, column):
            if text.strip():
                count += 1
                yield text
        if not count:
            raise DataError(f"{address} holds no text")


def check_readable(addresses: Iterable[str]) -> None:
    """Refuse files that cannot be read, before anyone waits for their texts."""
    for address in inputs.expand_globs(tuple(addresses)):
        _column_of(_inspect_file(address), "")


def _inspect_file(address: str) -> Source:
    """Of plain text every line is one, whatever may look like a label at its end."""
    if PurePath(address.removesuffix(".gz")).suffix != ".txt":
        return inspect(address)
    return replace(inspect(address, LINES), separator="", columns=(LINE,))


def _read_cells(address: str, column: str) -> Iterator[str]:
    source = _inspect_file(address)
    name = _column_of(source, column)
    bad = BadRows(hint=HINT)
    for batch in read_batches(source, bad=bad):
        for cell in batch.columns[name]:
            yield cell if isinstance(cell, str) else " ".join(cell or ())
    bad.raise_if_bad()


def _column_of(source: Source, column: str) -> str:
    """The column that holds the texts; whole lines have no other."""
    if source.format == "lines" and source.columns == (LINE,):
        return LINE
    name = column or choose_text_column(source)
    if name not in source.columns:
        raise DataError(f'{source.name} has no column "{name}"; it has: {", ".join(source.columns)}')
    return name
