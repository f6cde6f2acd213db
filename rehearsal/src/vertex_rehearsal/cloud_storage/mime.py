"""Multipart bodies: `multipart/related` as a stream, `multipart/mixed` as a whole."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from vertex_rehearsal.cloud_storage import errors

MOST_HEAD_BYTES = 2**20


@dataclass(frozen=True)
class Part:
    """One part: headers keyed by lower-case names, and content."""

    headers: dict[str, str]
    content: bytes


def parse_boundary(content_type: str) -> bytes:
    """Return the boundary in a Content-Type."""
    match = re.search(r'boundary=(?:"([^"]+)"|\'([^\']+)\'|([^;\s]+))', content_type, re.IGNORECASE)
    if not match:
        raise errors.invalid_request("Missing boundary in the Content-Type of a multipart body.")
    return next(group for group in match.groups() if group).encode()


def parse_parts(body: bytes, boundary: bytes) -> list[Part]:
    """Parse all parts of a body."""
    parts = []
    scanner = _Scanner([body], boundary)
    while (headers := scanner.next_headers()) is not None:
        parts.append(Part(headers, b"".join(scanner.content())))
    return parts


def stream_parts(chunks: Iterable[bytes], boundary: bytes) -> tuple[Part, dict[str, str], Iterator[bytes]]:
    """Return the first part whole, the second part's headers, and a stream of its content."""
    scanner = _Scanner(chunks, boundary)
    first = scanner.next_headers()
    if first is None:
        raise errors.invalid_request("Malformed multipart body.")
    content = b""
    for chunk in scanner.content():
        content += chunk
        if len(content) > MOST_HEAD_BYTES:
            raise errors.invalid_request("The metadata part of a multipart body is too large.")
    second = scanner.next_headers()
    if second is None:
        raise errors.invalid_request("Malformed multipart body: it has no second part.")
    return Part(first, content), second, scanner.content()


class _Scanner:
    """Reads a body from boundary to boundary; all newlines are assumed to be like the first."""

    def __init__(self, chunks: Iterable[bytes], boundary: bytes) -> None:
        self._chunks = iter(chunks)
        self._buffer = b""
        self._mark = b"--" + boundary
        self._newline = b"\r\n"
        self._started = False

    def next_headers(self) -> dict[str, str] | None:
        """Return the headers of the next part; None after the last."""
        if not self._started:
            self._find_first_boundary()
        while len(self._buffer) < 2 and self._read_more():
            pass
        if self._buffer.startswith(b"--"):
            return None
        if not self._buffer.startswith(self._newline):
            raise errors.invalid_request("Malformed multipart body.")
        blank = self._newline * 2
        while blank not in self._buffer:
            if len(self._buffer) > MOST_HEAD_BYTES or not self._read_more():
                raise errors.invalid_request("Malformed multipart body: a part has no end of headers.")
        head, self._buffer = self._buffer.split(blank, 1)
        lines = head.decode("utf-8", "replace").strip().splitlines()
        pairs = (line.partition(":") for line in lines)
        return {name.strip().lower(): value.strip() for name, _, value in pairs}

    def content(self) -> Iterator[bytes]:
        """Iterate over the content of the current part, up to the next boundary."""
        mark = self._newline + self._mark
        if self._buffer.startswith(self._mark):  # an empty part, without a newline before the boundary
            self._buffer = self._buffer[len(self._mark) :]
            return
        while (position := self._buffer.find(mark)) < 0:
            keep = len(mark) - 1
            ready, self._buffer = self._buffer[:-keep], self._buffer[-keep:]
            if ready:
                yield ready
            if not self._read_more():
                raise errors.invalid_request("Malformed multipart body: its end is missing.")
        ready, self._buffer = self._buffer[:position], self._buffer[position + len(mark) :]
        if ready:
            yield ready

    def _find_first_boundary(self) -> None:
        self._started = True
        while (position := self._buffer.find(self._mark)) < 0 or len(self._buffer) < position + len(self._mark) + 2:
            if len(self._buffer) > MOST_HEAD_BYTES or not self._read_more():
                raise errors.invalid_request("Malformed multipart body: its boundary is missing.")
        self._buffer = self._buffer[position + len(self._mark) :]
        if self._buffer.startswith(b"\n"):
            self._newline = b"\n"

    def _read_more(self) -> bool:
        chunk = next(self._chunks, None)
        if chunk is None:
            return False
        self._buffer += chunk
        return True
