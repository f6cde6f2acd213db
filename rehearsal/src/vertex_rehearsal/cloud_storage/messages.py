"""Requests and responses, independent of any web framework; bodies are streamed."""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, unquote

from vertex_rehearsal.cloud_storage import errors

MOST_DOCUMENT_BYTES = 10 * 2**20
"""Limit of bodies that are documents, not content."""
GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class StorageRequest:
    """A client's request; path segments are unquoted one by one, since an object's name may contain slashes."""

    method: str
    segments: tuple[str, ...]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Keyed by lower-case names."""
    chunks: Iterable[bytes] = ()
    repeated: tuple[tuple[str, str], ...] = ()
    """The query's pairs in order, with repeated parameters."""
    scheme: str = "http"
    prefix: str = ""
    """Prefix of the path that carries the client's token."""

    @classmethod
    def of(
        cls,
        method: str,
        path: str,
        query: str,
        headers: Mapping[str, str],
        chunks: Iterable[bytes],
        *,
        scheme: str = "http",
        prefix: str = "",
    ) -> "StorageRequest":
        """Build a request from the raw parts of an HTTP request."""
        try:
            segments = tuple(unquote(part, errors="strict") for part in path.removeprefix("/").split("/"))
            pairs = tuple(parse_qsl(query, keep_blank_values=True, errors="strict"))
        except UnicodeDecodeError as error:
            raise errors.invalid_request("The address is not UTF-8.", code="InvalidURI") from error
        return cls(method, segments, dict(reversed(pairs)), headers, chunks, pairs, scheme, prefix)

    @property
    def base(self) -> str:
        """The base address that the client used."""
        return f"{self.scheme}://{self.headers.get('host', 'localhost')}{self.prefix}"

    def document(self) -> bytes:
        """Return the whole body, decompressed."""
        return _read_whole(self.content())

    def plain_document(self) -> bytes:
        """Return the whole body, decompressed only if it is gzip: some clients send a wrong Content-Encoding."""
        body = _read_whole(self.chunks)
        return _read_whole(replace(self, chunks=[body]).content()) if body.startswith(GZIP) else body

    def content(self) -> Iterator[bytes]:
        """Iterate over the body, decompressed if it was sent with gzip encoding."""
        if self.headers.get("content-encoding", "").lower() != "gzip":
            yield from self.chunks
            return
        decompressor = zlib.decompressobj(wbits=31)
        try:
            for chunk in self.chunks:
                yield decompressor.decompress(chunk)
            yield decompressor.flush()
        except zlib.error as error:
            raise errors.invalid_request("The body is not gzip, as its Content-Encoding says.") from error

    def read_flag(self, name: str) -> bool:
        """Return a boolean parameter; false if it is missing."""
        value = self.query.get(name, "false").lower()
        if value not in ("true", "false"):
            raise errors.invalid_request(f"Invalid value for '{name}': '{value}' is not a boolean.", location=name)
        return value == "true"

    def read_number(self, name: str) -> int | None:
        """Return a parameter that is a non-negative integer; None if it is missing."""
        value = self.query.get(name)
        if value is None:
            return None
        if not (value.isascii() and value.isdigit()):
            message = f"Invalid value for '{name}': '{value}' is not a valid integer."
            raise errors.invalid_request(message, location=name)
        return int(value)


@dataclass(frozen=True)
class StorageResponse:
    """The response to a client."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Iterator[bytes] = b""


def _read_whole(chunks: Iterable[bytes]) -> bytes:
    parts, size = [], 0
    for chunk in chunks:
        size += len(chunk)
        if size > MOST_DOCUMENT_BYTES:
            raise errors.StorageError(413, "uploadTooLarge", "The request is too large.")
        parts.append(chunk)
    return b"".join(parts)


def build_json_response(
    document: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> StorageResponse:
    """Return a response of the JSON API."""
    body = json.dumps(document, ensure_ascii=False).encode()
    return StorageResponse(status, {"Content-Type": "application/json; charset=UTF-8"} | dict(headers or {}), body)


def build_json_error(error: errors.StorageError) -> StorageResponse:
    """Return an error response of the JSON API."""
    return StorageResponse(304) if error.status == 304 else build_json_response(error.document(), status=error.status)
