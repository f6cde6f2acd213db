"""CRC32C and MD5 of streamed bytes, in the base64 form that Google's APIs use."""

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO

import google_crc32c

from vertex_rehearsal.cloud_storage import errors

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Checksums:
    """The size and the checksums of some content."""

    size: int
    crc32c: str
    md5: str


class RunningChecksums:
    """Incremental checksums."""

    def __init__(self) -> None:
        self.size = 0
        self._crc32c = google_crc32c.Checksum()  # type: ignore[no-untyped-call]
        self._md5 = hashlib.md5(usedforsecurity=False)

    def add(self, content: bytes) -> None:
        """Update the checksums with more content."""
        self.size += len(content)
        self._crc32c.update(content)  # type: ignore[no-untyped-call]
        self._md5.update(content)

    def result(self) -> Checksums:
        """Return the checksums of the content so far."""
        crc32c: bytes = self._crc32c.digest()  # type: ignore[no-untyped-call]
        return Checksums(self.size, _encode_base64(crc32c), _encode_base64(self._md5.digest()))


def checksum_file(file: IO[bytes]) -> RunningChecksums:
    """Return the checksums of a file from its current position to its end."""
    running = RunningChecksums()
    for chunk in read_chunks(file):
        running.add(chunk)
    return running


def read_chunks(file: IO[bytes], count: int | None = None) -> Iterator[bytes]:
    """Read a file in chunks from its current position: to its end, or `count` bytes."""
    remaining = count
    while remaining is None or remaining > 0:
        chunk = file.read(CHUNK_BYTES if remaining is None else min(CHUNK_BYTES, remaining))
        if not chunk:
            return
        if remaining is not None:
            remaining -= len(chunk)
        yield chunk


def parse_hash_header(header: str) -> dict[str, str]:
    """Parse an `x-goog-hash` header: `crc32c=n03x6A==,md5=Ojk9c3dhfxgoKVVHYwFbHQ==`."""
    pairs = (part.strip().partition("=") for part in header.split(",") if part.strip())
    return {name.lower(): value for name, _, value in pairs}


def verify_checksums(actual: Checksums, expected: Mapping[str, str]) -> None:
    """Refuse content if an expected checksum differs or is malformed."""
    for name, length, value in (("crc32c", 4, actual.crc32c), ("md5", 16, actual.md5)):
        expected_value = expected.get(name)
        if expected_value is None:
            continue
        label = {"crc32c": "CRC32C", "md5": "MD5 hash"}[name]
        if not _is_digest(expected_value, length):
            raise errors.invalid_request(f'Invalid {label}: "{expected_value}".', code="InvalidDigest")
        if expected_value != value:
            message = f'Provided {label} "{expected_value}" doesn\'t match calculated {label} "{value}".'
            raise errors.invalid_request(message, code="BadDigest")


def digest_to_hex(digest: str) -> str:
    """Return a digest in hexadecimal, as in the XML API's ETags."""
    return base64.b64decode(digest).hex()


def _is_digest(text: str, length: int) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == length
    except binascii.Error:
        return False


def _encode_base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()
