"""What is known of a bucket and of an object, as values."""

import base64
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from vertex_rehearsal.cloud_storage.checksums import digest_to_hex


@dataclass(frozen=True)
class BucketRecord:
    """A bucket: what Cloud Storage counts for it, and what its user has set."""

    name: str
    project: str
    created: int
    """Microseconds since 1970, as all times here are."""
    updated: int
    metageneration: int = 1
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def generation(self) -> int:
        """A bucket has one generation, from when it was made."""
        return self.created

    @property
    def etags(self) -> tuple[str, ...]:
        """By which a precondition may name this state of it."""
        return (etag(0, self.metageneration),)

    @property
    def default_class(self) -> str:
        """The storage class of an object that names none."""
        return str(self.settings.get("storageClass", "STANDARD"))

    @property
    def is_versioned(self) -> bool:
        """Whether generations are kept that are overwritten or deleted."""
        return bool((self.settings.get("versioning") or {}).get("enabled"))


@dataclass(frozen=True)
class ObjectRecord:
    """One generation of an object."""

    bucket: str
    name: str
    generation: int
    metageneration: int
    size: int
    crc32c: str
    md5: str | None
    """None for what was put together from parts, as with Google."""
    place: str
    """Where its bytes are, below the store's root."""
    folder: str | None
    """Its directory below the bucket's; None for what is kept aside."""
    modified_ns: int
    """The file's own time of change; another one means that somebody else wrote it."""
    created: int
    updated: int
    noncurrent_since: int | None = None
    components: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def etags(self) -> tuple[str, ...]:
        """By which a precondition may name this state of it, in either API."""
        return etag(self.generation, self.metageneration), self.xml_etag

    @property
    def xml_etag(self) -> str:
        """The XML API's: the MD5 in hexadecimal where there is one."""
        return digest_to_hex(self.md5) if self.md5 else f"{self.crc32c}-{self.generation}"

    @property
    def custom(self) -> dict[str, str]:
        """The user's own metadata."""
        found: dict[str, str] = self.settings.get("metadata") or {}
        return found


def etag(generation: int, metageneration: int) -> str:
    """The JSON API's: both numbers, as Google packs them."""
    return base64.b64encode(b"\x08" + _encode_varint(generation) + b"\x10" + _encode_varint(metageneration)).decode()


def _encode_varint(number: int) -> bytes:
    packed = bytearray()
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)
    return bytes(packed)


def format_rfc3339(microseconds: int) -> str:
    """A time as Google's APIs write it."""
    moment = datetime.fromtimestamp(microseconds / 1e6, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
