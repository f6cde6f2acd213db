"""What is known of a bucket and of an object, as values."""

import base64
import zlib
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
    soft_deleted: int | None = None
    hard_deleted: int | None = None
    """When a deleted bucket can no longer be restored."""

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

    @property
    def soft_delete_us(self) -> int:
        """How long what is deleted can be restored; 0 if it cannot."""
        return int((self.settings.get("softDeletePolicy") or {}).get("retentionDurationSeconds", 0)) * 1_000_000

    @property
    def has_autoclass(self) -> bool:
        """Whether Cloud Storage itself chooses the classes of objects."""
        return bool((self.settings.get("autoclass") or {}).get("enabled"))

    @property
    def has_uniform_access(self) -> bool:
        """Whether access control lists are out of use."""
        access = self.settings.get("iamConfiguration") or {}
        return bool((access.get("uniformBucketLevelAccess") or {}).get("enabled"))

    @property
    def prevents_public_access(self) -> bool:
        """Whether nothing of it may be made public."""
        access = self.settings.get("iamConfiguration") or {}
        return bool(access.get("publicAccessPrevention") == "enforced")


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
    soft_deleted: int | None = None
    hard_deleted: int | None = None
    """When a deleted object can no longer be restored."""

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
    return format_exact_time(microseconds // 1000 * 1000)


def format_exact_time(microseconds: int) -> str:
    """A time that a user gave, to the microsecond where it has any."""
    seconds, rest = divmod(microseconds, 1_000_000)
    fraction = f"{rest:06d}" if rest % 1000 else f"{rest // 1000:03d}"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{fraction}Z"


def parse_time(text: str) -> int:
    """The microseconds of an RFC 3339 time; ValueError if it is none."""
    moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds


def get_project_number(project: str) -> str:
    """The number of a project, which is the same for the same id everywhere."""
    return project if project.isdigit() else str(100_000_000_000 + zlib.crc32(project.encode()))
