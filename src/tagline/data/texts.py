"""Texts, single or in pairs, stored in unnamed temporary files and read by the chunk: memory use is constant."""

import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, overload

import numpy as np
import pyarrow as pa

from tagline.data.splits import Ints
from tagline.storage import atomic

Text = str | tuple[str, str]
"""A text, or the two texts of a pair."""


def build_array(texts: Sequence[str]) -> pa.LargeStringArray:
    """Build an Arrow array of texts; `pyarrow.array` would import pandas where it is installed, for half a second."""
    encoded = [text.encode() for text in texts]
    ends = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(each) for each in encoded], out=ends[1:])
    return pa.LargeStringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


class ColumnFile:
    """A column of texts in an unnamed temporary file, appended and read by the chunk: memory use is constant."""

    def __init__(self) -> None:
        directory = Path(tempfile.gettempdir())
        with atomic.disk_errors(directory):
            self._file = tempfile.TemporaryFile(prefix=atomic.SCRATCH_PREFIX, dir=directory)  # noqa: SIM115
        weakref.finalize(self, _close_file, self._file)
        self._offsets: list[tuple[int, int]] = []
        """The offset of each chunk in the file, and that of its texts, which follow the table of their ends."""
        self.starts = [0]
        """The first row of each chunk, followed by the number of rows."""
        self._last: tuple[int, pa.Array] | None = None

    def append(self, array: pa.Array) -> None:
        """Append a chunk."""
        _, offsets, content = array.buffers()
        with atomic.disk_errors(Path(tempfile.gettempdir())):
            offset = self._file.tell()
            self._file.write(memoryview(offsets)[: 8 * (len(array) + 1)])
            self._offsets.append((offset, self._file.tell()))
            self._file.write(content or b"")
            self._file.flush()
        self.starts.append(self.starts[-1] + len(array))

    def __getitem__(self, number: int) -> pa.Array:
        """Return one chunk; the last one read is cached."""
        if self._last is None or self._last[0] != number:
            rows = self.starts[number + 1] - self.starts[number]
            start, content_start = self._offsets[number]
            offsets = self._read_bytes(start, content_start - start)
            content = self._read_bytes(content_start, int(np.frombuffer(offsets, np.int64)[-1]))
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
            self._last = number, pa.Array.from_buffers(pa.large_string(), rows, buffers)
        return self._last[1]

    def _read_bytes(self, offset: int, size: int) -> bytes:
        """Read bytes of the file, with repeated calls, since one call may return fewer than requested."""
        parts: list[bytes] = []
        while size and (part := os.pread(self._file.fileno(), size, offset)):
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)


def _close_file(file: IO[bytes]) -> None:
    """Close a file that will not be read again, ignoring write errors."""
    with suppress(OSError):
        file.close()


class Texts(Sequence[Text]):
    """A view of some rows as Python strings, which are created on access."""

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
        """Yield each text in order; consecutive rows of a chunk are read together."""
        chunk_of = np.searchsorted(self._starts, self._rows, side="right") - 1
        breaks = np.flatnonzero(np.diff(chunk_of)) + 1
        for part in np.split(np.arange(len(self._rows)), breaks) if len(self._rows) else ():
            chunk = int(chunk_of[part[0]])
            rows = np.ascontiguousarray(self._rows[part] - self._starts[chunk], np.int64)
            inside = pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])
            columns = [column[chunk].take(inside).to_pylist() for column in self._columns]
            yield from columns[0] if len(columns) == 1 else zip(*columns, strict=True)
