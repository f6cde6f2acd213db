"""Resources of the JSON API, built from the records of buckets and objects."""

from typing import Any
from urllib.parse import quote

from vertex_rehearsal.cloud_storage import access_controls, bucket_settings, locations, object_settings, retention
from vertex_rehearsal.cloud_storage.access_controls import Entry
from vertex_rehearsal.cloud_storage.records import BucketRecord, ObjectRecord, etag, format_rfc3339, get_project_number


def build_object_resource(
    record: ObjectRecord, bucket_record: BucketRecord, base: str, *, full: bool = False, hashes: bool = True
) -> dict[str, Any]:
    """Return the resource of a generation; `base` is the base of its links, `full` adds ACL and owner."""
    path = f"b/{record.bucket}/o/{quote_name(record.name)}"
    media = f"{base}/download/storage/v1/{path}?generation={record.generation}&alt=media"
    resource = {
        "kind": "storage#object",
        "id": f"{record.bucket}/{record.name}/{record.generation}",
        "selfLink": f"{base}/storage/v1/{path}",
        "mediaLink": media,
        "name": record.name,
        "bucket": record.bucket,
        "generation": str(record.generation),
        "metageneration": str(record.metageneration),
        "size": str(record.size),
        "etag": etag(record.generation, record.metageneration),
        "timeCreated": format_rfc3339(record.created),
        "updated": format_rfc3339(record.updated),
        "timeFinalized": format_rfc3339(record.created),
        "timeStorageClassUpdated": format_rfc3339(record.created),
        **{key: value for key, value in record.settings.items() if key not in object_settings.INTERNAL},
    }
    if hashes:
        resource |= {"crc32c": record.crc32c} | ({"md5Hash": record.md5} if record.md5 else {})
    if record.components:
        resource["componentCount"] = record.components
    times = {
        "timeDeleted": record.noncurrent_since,
        "retentionExpirationTime": retention.get_expiration(bucket_record, record),
        "softDeleteTime": record.soft_deleted,
        "hardDeleteTime": record.hard_deleted,
    }
    resource |= {key: format_rfc3339(value) for key, value in times.items() if value is not None}
    if full and not bucket_record.has_uniform_access:
        entries = access_controls.get_object_acl(bucket_record, record.settings)
        resource["acl"] = build_object_acl(record, entries, base)
        resource["owner"] = {"entity": access_controls.get_account(bucket_record.project)}
    return resource


def build_bucket_resource(bucket_record: BucketRecord, base: str, *, full: bool = False) -> dict[str, Any]:
    """Return the resource of a bucket; `full` adds its access control lists and owner."""
    defaults = {
        "storageClass": "STANDARD",
        "location": locations.DEFAULT,
        "softDeletePolicy": {"retentionDurationSeconds": "0", "effectiveTime": format_rfc3339(bucket_record.created)},
        "iamConfiguration": {
            "bucketPolicyOnly": {"enabled": False},
            "uniformBucketLevelAccess": {"enabled": False},
            "publicAccessPrevention": "inherited",
        },
    }
    settings = {key: value for key, value in bucket_record.settings.items() if key not in bucket_settings.INTERNAL}
    resource = {
        "kind": "storage#bucket",
        "id": bucket_record.name,
        "selfLink": f"{base}/storage/v1/b/{bucket_record.name}",
        "name": bucket_record.name,
        "projectNumber": get_project_number(bucket_record.project),
        "generation": str(bucket_record.generation),
        "metageneration": str(bucket_record.metageneration),
        "etag": etag(0, bucket_record.metageneration),
        "timeCreated": format_rfc3339(bucket_record.created),
        "updated": format_rfc3339(bucket_record.updated),
        **defaults,
        **settings,
    }
    resource["locationType"] = locations.get_location_type(resource)
    if resource["locationType"] != "region":
        resource.setdefault("rpo", "DEFAULT")
    times = {"softDeleteTime": bucket_record.soft_deleted, "hardDeleteTime": bucket_record.hard_deleted}
    resource |= {key: format_rfc3339(value) for key, value in times.items() if value is not None}
    if full and not bucket_record.has_uniform_access:
        resource["acl"] = build_bucket_acl(bucket_record, access_controls.get_bucket_acl(bucket_record), base)
        resource["defaultObjectAcl"] = build_default_acl(
            bucket_record, access_controls.get_default_acl(bucket_record), base
        )
        resource["owner"] = {"entity": f"project-owners-{get_project_number(bucket_record.project)}"}
    return resource


def build_bucket_acl(bucket_record: BucketRecord, entries: list[Entry], base: str) -> list[dict[str, Any]]:
    """Return the entries of a bucket as resources."""
    path, owned = f"b/{bucket_record.name}/acl", {"bucket": bucket_record.name}
    return [
        access_controls.build_entry(entry, kind="bucketAccessControl", path=path, base=base, owned=owned)
        for entry in entries
    ]


def build_default_acl(bucket_record: BucketRecord, entries: list[Entry], base: str) -> list[dict[str, Any]]:
    """Return a bucket's entries for new objects as resources."""
    path = f"b/{bucket_record.name}/defaultObjectAcl"
    return [
        access_controls.build_entry(entry, kind="objectAccessControl", path=path, base=base, owned={})
        for entry in entries
    ]


def build_object_acl(record: ObjectRecord, entries: list[Entry], base: str) -> list[dict[str, Any]]:
    """Return the entries of an object as resources."""
    path = f"b/{record.bucket}/o/{quote_name(record.name)}/acl"
    owned = {"bucket": record.bucket, "object": record.name, "generation": str(record.generation)}
    return [
        access_controls.build_entry(entry, kind="objectAccessControl", path=path, base=base, owned=owned)
        for entry in entries
    ]


def quote_name(name: str) -> str:
    """Return a name quoted as one path segment."""
    return quote(name, safe="")
