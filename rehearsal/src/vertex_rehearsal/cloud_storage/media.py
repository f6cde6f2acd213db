"""Downloads: byte ranges, checksums, and decompressive transcoding for clients that do not accept gzip."""

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
"""Settings that are also response headers."""

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


def build_download(record: ObjectRecord, file: IO[bytes], *, headers: Mapping[str, str], etag: str) -> StorageResponse:
    """Return the content, or the requested range of it; the file is closed after it is sent."""
    try:
        check_customer_key(record, read_customer_key(headers))
    except errors.StorageError:
        file.close()
        raise
    response_headers = build_object_headers(record) | {"ETag": etag}
    if _needs_decompression(record, headers):
        response_headers.pop("Content-Encoding")
        response_headers["Warning"] = "214 UploadServer gunzipped"
        return StorageResponse(200, response_headers, _decompress_chunks(file))
    span = _parse_range(headers.get("range", ""), record.size)
    if span is None:
        file.close()
        return StorageResponse(
            416, {"Content-Range": f"bytes */{record.size}", "Content-Type": "text/html; charset=UTF-8"}
        )
    first, last = span
    file.seek(first)
    response_headers["Content-Length"] = str(last + 1 - first)
    if (first, last) != (0, record.size - 1) or _asks_for_range(headers, record.size):
        response_headers["Content-Range"] = f"bytes {first}-{last}/{record.size}"
        return StorageResponse(206, response_headers, _read_or_stream(file, last + 1 - first))
    return StorageResponse(200, response_headers, _read_or_stream(file, record.size))


def build_object_headers(record: ObjectRecord) -> dict[str, str]:
    """Return the headers that describe an object."""
    hashes = [f"crc32c={record.crc32c}", *([f"md5={record.md5}"] if record.md5 else [])]
    headers = {
        "Content-Type": _encode_header(record.settings.get("contentType", "application/octet-stream")),
        "Last-Modified": formatdate(record.updated / 1e6, usegmt=True),
        "Accept-Ranges": "bytes",
        "x-goog-generation": str(record.generation),
        "x-goog-metageneration": str(record.metageneration),
        "x-goog-hash": ",".join(hashes),
        "x-goog-stored-content-encoding": _encode_header(record.settings.get("contentEncoding", "identity")),
        "x-goog-stored-content-length": str(record.size),
    }
    headers |= {
        header: _encode_header(record.settings[key]) for key, header in HEADERS.items() if record.settings.get(key)
    }
    headers |= {f"x-goog-meta-{quote(key)}": _encode_header(value) for key, value in record.custom.items()}
    if record.components:
        headers["x-goog-component-count"] = str(record.components)
    if encryption := record.settings.get(ENCRYPTION):
        headers["x-goog-encryption-algorithm"] = encryption["encryptionAlgorithm"]
        headers["x-goog-encryption-key-sha256"] = encryption["keySha256"]
    return headers


def _encode_header(value: str) -> str:
    """Return a value that is safe in a header, percent-encoded where needed."""
    plain = value.isascii() and value.isprintable()
    return value if plain else quote(value, safe=" ;,/?:@&=+$-_.!~*'()#")


def _needs_decompression(record: ObjectRecord, headers: Mapping[str, str]) -> bool:
    is_gzipped = record.settings.get("contentEncoding", "").lower() == "gzip"
    is_fixed = "no-transform" in record.settings.get("cacheControl", "").lower()
    return is_gzipped and not is_fixed and "gzip" not in headers.get("accept-encoding", "").lower()


def _asks_for_range(headers: Mapping[str, str], size: int) -> bool:
    return bool(size and _RANGE.fullmatch(headers.get("range", "").strip())) and headers["range"].strip() != "bytes=-"


def _parse_range(header: str, size: int) -> tuple[int, int] | None:
    """Return the first and last byte to send, None if unsatisfiable; all bytes unless it is a single range."""
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
    """Return small content as bytes, large content as a stream."""
    if count > checksums.CHUNK_BYTES:
        return _close_after(file, checksums.read_chunks(file, count))
    with file:
        return file.read(count)


def _decompress_chunks(file: IO[bytes]) -> Iterator[bytes]:
    decompressor = zlib.decompressobj(wbits=31)

    def chunks() -> Iterator[bytes]:
        for chunk in checksums.read_chunks(file):
            yield decompressor.decompress(chunk)
        yield decompressor.flush()

    return _close_after(file, chunks())


def _close_after(file: IO[bytes], chunks: Iterator[bytes]) -> Iterator[bytes]:
    with file:
        yield from chunks
