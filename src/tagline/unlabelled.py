"""Texts without labels, from any file the readers know, or from one with a text on each line."""

from collections.abc import Iterable, Iterator
from pathlib import PurePath

from tagline.columns import columns_of, text_column
from tagline.errors import DataError
from tagline.readers import BadRows, Layout, batches, inspect, text_of


def texts_in(addresses: Iterable[str], *, column: str = "") -> Iterator[str]:
    """Every text of these files that is not blank; in a table those of this column, or of the one that holds texts."""
    for address in addresses:
        count = 0
        for text in _lines(address) if PurePath(address).suffix == ".txt" else _cells(address, column):
            if text.strip():
                count += 1
                yield text
        if not count:
            raise DataError(f"{address} holds no text")


def _lines(address: str) -> Iterator[str]:
    """Of plain text every line is one, whatever may look like a label at its end."""
    with text_of(inspect(address, Layout(format="lines"))) as file:
        yield from (line.rstrip("\r\n") for line in file)


def _cells(address: str, column: str) -> Iterator[str]:
    source = inspect(address)
    name = column or text_column(source, columns_of(source))
    if name not in source.columns:
        raise DataError(f'{address} has no column "{name}"; it has: {", ".join(source.columns)}')
    bad = BadRows()
    for batch in batches(source, bad=bad):
        for cell in batch.columns[name]:
            yield cell if isinstance(cell, str) else " ".join(cell or ())
    bad.settle()
