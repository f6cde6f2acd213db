"""Texts, single or in pairs, kept in files without a name and read by the chunk: memory does not grow with them."""

import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, overload

import numpy as np
import pyarrow as pa

from tagline import storage
from tagline.data.splits import Ints

Text = str | tuple[str, str]
"""A text, or the two texts of a pair."""


def build_array(texts: Sequence[str]) -> pa.LargeStringArray:
    """Texts as Arrow has them; `pyarrow.array` would first import pandas where that is installed, for half a second."""
    encoded = [text.encode() for text in texts]
    ends = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(each) for each in encoded], out=ends[1:])
    return pa.LargeStringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


class ColumnFile:
    """Texts in a file without a name, added and read back by the chunk: memory does not grow with them."""

    def __init__(self) -> None:
        directory = Path(tempfile.gettempdir())
        with storage.disk_errors(directory):
            self._file = tempfile.TemporaryFile(prefix=storage.SCRATCH_PREFIX, dir=directory)  # noqa: SIM115
        weakref.finalize(self, _close_file, self._file)
        self._places: list[tuple[int, int]] = []
        """Where each chunk stands in the file, and where its texts do after the list of their ends."""
        self.starts = [0]
        """The first row of each chunk, and after them the number of rows."""
        self._last: tuple[int, pa.Array] | None = None

    def append(self, array: pa.Array) -> None:
        """Add a chunk."""
        _, offsets, content = array.buffers()
        with storage.disk_errors(Path(tempfile.gettempdir())):
            place = self._file.tell()
            self._file.write(memoryview(offsets)[: 8 * (len(array) + 1)])
            self._places.append((place, self._file.tell()))
            self._file.write(content or b"")
            self._file.flush()
        self.starts.append(self.starts[-1] + len(array))

    def __getitem__(self, number: int) -> pa.Array:
        """One chunk; the one read last is kept."""
        if self._last is None or self._last[0] != number:
            rows = self.starts[number + 1] - self.starts[number]
            place, content_place = self._places[number]
            offsets = self._read_bytes(place, content_place - place)
            content = self._read_bytes(content_place, int(np.frombuffer(offsets, np.int64)[-1]))
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
            self._last = number, pa.Array.from_buffers(pa.large_string(), rows, buffers)
        return self._last[1]

    def _read_bytes(self, place: int, size: int) -> bytes:
        """Bytes of the file; a system call may give fewer than asked for."""
        parts: list[bytes] = []
        while size and (part := os.pread(self._file.fileno(), size, place)):
            parts.append(part)
            place, size = place + len(part), size - len(part)
        return b"".join(parts)


def _close_file(file: IO[bytes]) -> None:
    """Close a file that nobody will read; what could not be written then is no loss."""
    with suppress(OSError):
        file.close()


class Texts(Sequence[Text]):
    """Texts read as Python strings only when asked for: a view of some rows."""

    def __init__(self, columns: Sequence[ColumnFile], rows: Ints) -> None:
        self._columns = columns
        self._rows = rows
        self._starts = np.array(columns[0].starts)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Text: ...
    @overload
    def __getitem__(self, index: slice) -> "Texts": ...
    def __getitem__(self, index: int | slice) -> "Text | Texts":
        if isinstance(index, slice):
            return Texts(self._columns, self._rows[index])
        row = int(self._rows[index])
        chunk = int(np.searchsorted(self._starts, row, side="right")) - 1
        cells = [column[chunk][row - int(self._starts[chunk])].as_py() for column in self._columns]
        return cells[0] if len(cells) == 1 else (cells[0], cells[1])

    def __iter__(self) -> Iterator[Text]:
        """Each text in order; rows that follow each other in a chunk are read together."""
        chunk_of = np.searchsorted(self._starts, self._rows, side="right") - 1
        breaks = np.flatnonzero(np.diff(chunk_of)) + 1
        for part in np.split(np.arange(len(self._rows)), breaks) if len(self._rows) else ():
            chunk = int(chunk_of[part[0]])
            rows = np.ascontiguousarray(self._rows[part] - self._starts[chunk], np.int64)
            inside = pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])
            columns = [column[chunk].take(inside).to_pylist() for column in self._columns]
            yield from columns[0] if len(columns) == 1 else zip(*columns, strict=True)
