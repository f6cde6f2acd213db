"""CRC32C and MD5 of bytes as they pass by, in the base64 form that Google's APIs use."""

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
    """What was counted over some content."""

    size: int
    crc32c: str
    md5: str


class RunningChecksums:
    """Checksums of what was given so far."""

    def __init__(self) -> None:
        self.size = 0
        self._crc32c = google_crc32c.Checksum()  # type: ignore[no-untyped-call]
        self._md5 = hashlib.md5(usedforsecurity=False)

    def add(self, content: bytes) -> None:
        """Go on with these bytes."""
        self.size += len(content)
        self._crc32c.update(content)  # type: ignore[no-untyped-call]
        self._md5.update(content)

    def result(self) -> Checksums:
        """The checksums now."""
        crc32c: bytes = self._crc32c.digest()  # type: ignore[no-untyped-call]
        return Checksums(self.size, _encode_base64(crc32c), _encode_base64(self._md5.digest()))


def checksum_file(file: IO[bytes]) -> RunningChecksums:
    """The checksums of a file from where it stands to its end."""
    running = RunningChecksums()
    for chunk in read_chunks(file):
        running.add(chunk)
    return running


def read_chunks(file: IO[bytes], count: int | None = None) -> Iterator[bytes]:
    """A file's bytes from where it stands: to its end, or that many."""
    left = count
    while left is None or left > 0:
        chunk = file.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left))
        if not chunk:
            return
        if left is not None:
            left -= len(chunk)
        yield chunk


def parse_hash_header(header: str) -> dict[str, str]:
    """The checksums that an `x-goog-hash` header names: `crc32c=n03x6A==,md5=Ojk9c3dhfxgoKVVHYwFbHQ==`."""
    pairs = (part.strip().partition("=") for part in header.split(",") if part.strip())
    return {name.lower(): value for name, _, value in pairs}


def verify_checksums(found: Checksums, expected: Mapping[str, str]) -> None:
    """Refuse content whose sender expected other checksums, or none that could be."""
    for name, length, value in (("crc32c", 4, found.crc32c), ("md5", 16, found.md5)):
        given = expected.get(name)
        if given is None:
            continue
        what = {"crc32c": "CRC32C", "md5": "MD5 hash"}[name]
        if not _is_digest(given, length):
            raise errors.invalid_request(f'Invalid {what}: "{given}".', code="InvalidDigest")
        if given != value:
            message = f'Provided {what} "{given}" doesn\'t match calculated {what} "{value}".'
            raise errors.invalid_request(message, code="BadDigest")


def digest_to_hex(digest: str) -> str:
    """A digest in the form of the XML API's ETags."""
    return base64.b64decode(digest).hex()


def _is_digest(text: str, length: int) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == length
    except binascii.Error:
        return False


def _encode_base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()
