"""Records of buckets and objects."""

import base64
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from vertex_rehearsal.cloud_storage.checksums import digest_to_hex


@dataclass(frozen=True)
class BucketRecord:
    """A bucket: values that Cloud Storage maintains, and the user's settings."""

    name: str
    project: str
    created: int
    """Microseconds since 1970, as are all times here."""
    updated: int
    metageneration: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    soft_deleted: int | None = None
    hard_deleted: int | None = None
    """The time from which a soft-deleted bucket cannot be restored."""

    @property
    def generation(self) -> int:
        """The bucket's only generation: the time of its creation."""
        return self.created

    @property
    def etags(self) -> tuple[str, ...]:
        """The ETags by which preconditions may name this state."""
        return (etag(0, self.metageneration),)

    @property
    def default_class(self) -> str:
        """The storage class of objects created without one."""
        return str(self.settings.get("storageClass", "STANDARD"))

    @property
    def is_versioned(self) -> bool:
        """Whether object versioning is enabled: overwritten and deleted generations are kept."""
        return bool((self.settings.get("versioning") or {}).get("enabled"))

    @property
    def soft_delete_us(self) -> int:
        """The soft-delete retention in microseconds; 0 if soft delete is off."""
        return int((self.settings.get("softDeletePolicy") or {}).get("retentionDurationSeconds", 0)) * 1_000_000

    @property
    def has_autoclass(self) -> bool:
        """Whether Autoclass manages the storage classes of objects."""
        return bool((self.settings.get("autoclass") or {}).get("enabled"))

    @property
    def has_uniform_access(self) -> bool:
        """Whether uniform bucket-level access is enabled, which disables access control lists."""
        access = self.settings.get("iamConfiguration") or {}
        return bool((access.get("uniformBucketLevelAccess") or {}).get("enabled"))

    @property
    def prevents_public_access(self) -> bool:
        """Whether public access prevention is enforced."""
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
    """None for composite objects, as with Google."""
    place: str
    """Path of its content below the store's root."""
    folder: str | None
    """Its directory below the bucket's; None if its content is stored elsewhere."""
    modified_ns: int
    """The file's modification time; a different one means that another process wrote the file."""
    created: int
    updated: int
    noncurrent_since: int | None = None
    components: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    soft_deleted: int | None = None
    hard_deleted: int | None = None
    """The time from which a soft-deleted object cannot be restored."""

    @property
    def etags(self) -> tuple[str, ...]:
        """The ETags by which preconditions may name this state, in either API."""
        return etag(self.generation, self.metageneration), self.xml_etag

    @property
    def xml_etag(self) -> str:
        """The XML API's ETag: the MD5 in hexadecimal where there is one."""
        return digest_to_hex(self.md5) if self.md5 else f"{self.crc32c}-{self.generation}"

    @property
    def custom(self) -> dict[str, str]:
        """The user's custom metadata."""
        metadata: dict[str, str] = self.settings.get("metadata") or {}
        return metadata


def etag(generation: int, metageneration: int) -> str:
    """Return the JSON API's ETag: both numbers, packed as Google does."""
    return base64.b64encode(b"\x08" + _encode_varint(generation) + b"\x10" + _encode_varint(metageneration)).decode()


def _encode_varint(number: int) -> bytes:
    packed = bytearray()
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)
    return bytes(packed)


def format_rfc3339(microseconds: int) -> str:
    """Format a time as Google's APIs do, in milliseconds."""
    return format_exact_time(microseconds // 1000 * 1000)


def format_exact_time(microseconds: int) -> str:
    """Format a user's time, with microseconds where it has any."""
    seconds, rest = divmod(microseconds, 1_000_000)
    fraction = f"{rest:06d}" if rest % 1000 else f"{rest // 1000:03d}"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{fraction}Z"


def parse_time(text: str) -> int:
    """Parse an RFC 3339 time to microseconds; raise ValueError if it is invalid."""
    moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    elapsed = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (elapsed.days * 86400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds


def get_project_number(project: str) -> str:
    """Return the number of a project, derived from its id."""
    return project if project.isdigit() else str(100_000_000_000 + zlib.crc32(project.encode()))
