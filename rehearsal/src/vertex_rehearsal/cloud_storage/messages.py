"""A request and its answer, free of any web framework; bodies are read and written piece by piece."""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, unquote

from vertex_rehearsal.cloud_storage import errors

MOST_DOCUMENT_BYTES = 10 * 2**20
"""Of a body that is a document and no content; more is refused."""
GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class StorageRequest:
    """What a client asks; a path's segments are unquoted one by one, for an object's name may hold slashes."""

    method: str
    segments: tuple[str, ...]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """By their names in lower case."""
    chunks: Iterable[bytes] = ()
    repeated: tuple[tuple[str, str], ...] = ()
    """The query once more, with parameters that come several times."""
    scheme: str = "http"
    prefix: str = ""
    """Of the path, before all that is ours: it carries a token."""

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
        """From the raw parts of an HTTP request."""
        try:
            segments = tuple(unquote(part, errors="strict") for part in path.removeprefix("/").split("/"))
            pairs = tuple(parse_qsl(query, keep_blank_values=True, errors="strict"))
        except UnicodeDecodeError as error:
            raise errors.invalid_request("The address is not UTF-8.", code="InvalidURI") from error
        return cls(method, segments, dict(reversed(pairs)), headers, chunks, pairs, scheme, prefix)

    @property
    def base(self) -> str:
        """The address at which the client reached us."""
        return f"{self.scheme}://{self.headers.get('host', 'localhost')}{self.prefix}"

    def document(self) -> bytes:
        """A body that is read whole."""
        return _read_whole(self.content())

    def plain_document(self) -> bytes:
        """A body that is read whole, and packed only if it looks it: some clients send the header of another one."""
        first = _read_whole(self.chunks)
        return _read_whole(replace(self, chunks=[first]).content()) if first.startswith(GZIP) else first

    def content(self) -> Iterator[bytes]:
        """The body, unpacked if it was packed for the way."""
        if self.headers.get("content-encoding", "").lower() != "gzip":
            yield from self.chunks
            return
        unpacking = zlib.decompressobj(wbits=31)
        try:
            for chunk in self.chunks:
                yield unpacking.decompress(chunk)
            yield unpacking.flush()
        except zlib.error as error:
            raise errors.invalid_request("The body is not gzip, as its Content-Encoding says.") from error

    def read_flag(self, name: str) -> bool:
        """A parameter that is true or false."""
        value = self.query.get(name, "false").lower()
        if value not in ("true", "false"):
            raise errors.invalid_request(f"Invalid value for '{name}': '{value}' is not a boolean.", location=name)
        return value == "true"

    def read_number(self, name: str) -> int | None:
        """A parameter that is a whole number, not below zero."""
        value = self.query.get(name)
        if value is None:
            return None
        if not (value.isascii() and value.isdigit()):
            message = f"Invalid value for '{name}': '{value}' is not a valid integer."
            raise errors.invalid_request(message, location=name)
        return int(value)


@dataclass(frozen=True)
class StorageResponse:
    """What a client gets."""

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
    """An answer of the JSON API."""
    body = json.dumps(document, ensure_ascii=False).encode()
    return StorageResponse(status, {"Content-Type": "application/json; charset=UTF-8"} | dict(headers or {}), body)


def build_json_error(refused: errors.StorageError) -> StorageResponse:
    """A refusal of the JSON API."""
    return (
        StorageResponse(304)
        if refused.status == 304
        else build_json_response(refused.document(), status=refused.status)
    )
