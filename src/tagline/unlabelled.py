"""Texts without labels, from any file the readers know, or from one with a text on each line."""

from collections.abc import Iterable, Iterator
from pathlib import PurePath

from tagline import storage
from tagline.columns import columns_of, text_column
from tagline.errors import DataError
from tagline.readers import BadRows, Layout, Source, batches, inspect, text_of

LINES = Layout(format="lines")


def texts_in(addresses: Iterable[str], *, column: str = "") -> Iterator[str]:
    """Every text of these files that is not blank; in a table those of this column, or of the one that holds texts."""
    for address in storage.expand(tuple(addresses)):
        count = 0
        for text in _lines(address) if _is_plain(address) else _cells(address, column):
            if text.strip():
                count += 1
                yield text
        if not count:
            raise DataError(f"{address} holds no text")


def look_at(addresses: Iterable[str]) -> None:
    """Refuse files that cannot be read, before anyone waits for their texts."""
    for address in storage.expand(tuple(addresses)):
        source = inspect(address, LINES if _is_plain(address) else Layout())
        if not _is_plain(address):
            _column_of(source, "")


def _is_plain(address: str) -> bool:
    return PurePath(address.removesuffix(".gz")).suffix == ".txt"


def _lines(address: str) -> Iterator[str]:
    """Of plain text every line is one, whatever may look like a label at its end."""
    with text_of(inspect(address, LINES)) as file:
        yield from (line.rstrip("\r\n") for line in file)


def _cells(address: str, column: str) -> Iterator[str]:
    source = inspect(address)
    name = _column_of(source, column)
    bad = BadRows()
    for batch in batches(source, bad=bad):
        for cell in batch.columns[name]:
            yield cell if isinstance(cell, str) else " ".join(cell or ())
    bad.settle()


def _column_of(source: Source, column: str) -> str:
    """The column that holds the texts."""
    name = column or text_column(source, columns_of(source))
    if name not in source.columns:
        raise DataError(f'{source.name} has no column "{name}"; it has: {", ".join(source.columns)}')
    return name
