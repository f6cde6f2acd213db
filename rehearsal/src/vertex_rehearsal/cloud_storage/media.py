"""An object's bytes as an answer: ranges, checksums, and content unpacked for clients that do not take gzip."""

import re
import zlib
from collections.abc import Iterator, Mapping
from email.utils import formatdate
from typing import IO
from urllib.parse import quote

from vertex_rehearsal.cloud_storage import checksums, errors
from vertex_rehearsal.cloud_storage.customer_keys import check_customer_key, read_customer_key
from vertex_rehearsal.cloud_storage.messages import StorageResponse
from vertex_rehearsal.cloud_storage.object_settings import ENCRYPTION
from vertex_rehearsal.cloud_storage.records import ObjectRecord

HEADERS = {
    "contentEncoding": "Content-Encoding",
    "contentLanguage": "Content-Language",
    "contentDisposition": "Content-Disposition",
    "cacheControl": "Cache-Control",
    "storageClass": "x-goog-storage-class",
    "customTime": "x-goog-custom-time",
}
"""Settings that are headers too."""

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


def build_download(found: ObjectRecord, file: IO[bytes], *, headers: Mapping[str, str], etag: str) -> StorageResponse:
    """The content, or the range of it that the request's headers ask for; the file is closed when it is sent."""
    try:
        check_customer_key(found, read_customer_key(headers))
    except errors.StorageError:
        file.close()
        raise
    own = build_object_headers(found) | {"ETag": etag}
    if _needs_decompression(found, headers):
        own.pop("Content-Encoding")
        own["Warning"] = "214 UploadServer gunzipped"
        return StorageResponse(200, own, _decompress_chunks(file))
    span = _parse_range(headers.get("range", ""), found.size)
    if span is None:
        file.close()
        return StorageResponse(
            416, {"Content-Range": f"bytes */{found.size}", "Content-Type": "text/html; charset=UTF-8"}
        )
    first, last = span
    file.seek(first)
    own["Content-Length"] = str(last + 1 - first)
    if (first, last) != (0, found.size - 1) or _asks_for_range(headers, found.size):
        own["Content-Range"] = f"bytes {first}-{last}/{found.size}"
        return StorageResponse(206, own, _read_or_stream(file, last + 1 - first))
    return StorageResponse(200, own, _read_or_stream(file, found.size))


def build_object_headers(found: ObjectRecord) -> dict[str, str]:
    """What an answer says of an object beside its content."""
    hashes = [f"crc32c={found.crc32c}", *([f"md5={found.md5}"] if found.md5 else [])]
    own = {
        "Content-Type": _encode_header(found.settings.get("contentType", "application/octet-stream")),
        "Last-Modified": formatdate(found.updated / 1e6, usegmt=True),
        "Accept-Ranges": "bytes",
        "x-goog-generation": str(found.generation),
        "x-goog-metageneration": str(found.metageneration),
        "x-goog-hash": ",".join(hashes),
        "x-goog-stored-content-encoding": _encode_header(found.settings.get("contentEncoding", "identity")),
        "x-goog-stored-content-length": str(found.size),
    }
    own |= {header: _encode_header(found.settings[key]) for key, header in HEADERS.items() if found.settings.get(key)}
    own |= {f"x-goog-meta-{quote(key)}": _encode_header(value) for key, value in found.custom.items()}
    if found.components:
        own["x-goog-component-count"] = str(found.components)
    if encryption := found.settings.get(ENCRYPTION):
        own["x-goog-encryption-algorithm"] = encryption["encryptionAlgorithm"]
        own["x-goog-encryption-key-sha256"] = encryption["keySha256"]
    return own


def _encode_header(value: str) -> str:
    """A value that a header can hold; what it cannot is quoted as in an address."""
    plain = value.isascii() and value.isprintable()
    return value if plain else quote(value, safe=" ;,/?:@&=+$-_.!~*'()#")


def _needs_decompression(found: ObjectRecord, headers: Mapping[str, str]) -> bool:
    is_packed = found.settings.get("contentEncoding", "").lower() == "gzip"
    stays = "no-transform" in found.settings.get("cacheControl", "").lower()
    return is_packed and not stays and "gzip" not in headers.get("accept-encoding", "").lower()


def _asks_for_range(headers: Mapping[str, str], size: int) -> bool:
    return bool(size and _RANGE.fullmatch(headers.get("range", "").strip())) and headers["range"].strip() != "bytes=-"


def _parse_range(header: str, size: int) -> tuple[int, int] | None:
    """First and last byte to send; none if no byte is in the range. What is no single range asks for everything."""
    match = _RANGE.fullmatch(header.strip())
    if not match or match.groups() == ("", ""):
        return 0, size - 1
    first, last = match.groups()
    if not first:
        length = min(int(last), size)
        return (size - length, size - 1) if length else None
    if int(first) >= size or (last and int(last) < int(first)):
        return None
    return int(first), min(int(last), size - 1) if last else size - 1


def _read_or_stream(file: IO[bytes], count: int) -> bytes | Iterator[bytes]:
    """Little at once, much piece by piece."""
    if count > checksums.CHUNK_BYTES:
        return _close_after(file, checksums.read_chunks(file, count))
    with file:
        return file.read(count)


def _decompress_chunks(file: IO[bytes]) -> Iterator[bytes]:
    unpacking = zlib.decompressobj(wbits=31)

    def chunks() -> Iterator[bytes]:
        for chunk in checksums.read_chunks(file):
            yield unpacking.decompress(chunk)
        yield unpacking.flush()

    return _close_after(file, chunks())


def _close_after(file: IO[bytes], chunks: Iterator[bytes]) -> Iterator[bytes]:
    with file:
        yield from chunks
