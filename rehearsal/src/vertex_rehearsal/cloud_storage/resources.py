"""Buckets and objects as the JSON API's resources."""

from typing import Any
from urllib.parse import quote

from vertex_rehearsal.cloud_storage import access_controls, bucket_settings, locations, object_settings, retention
from vertex_rehearsal.cloud_storage.access_controls import Entry
from vertex_rehearsal.cloud_storage.records import BucketRecord, ObjectRecord, etag, format_rfc3339, get_project_number


def build_object_resource(
    found: ObjectRecord, holder: BucketRecord, base: str, *, full: bool = False, hashes: bool = True
) -> dict[str, Any]:
    """The resource of a generation; `base` is where the caller reached us, `full` adds who may do what."""
    path = f"b/{found.bucket}/o/{quote_name(found.name)}"
    media = f"{base}/download/storage/v1/{path}?generation={found.generation}&alt=media"
    resource = {
        "kind": "storage#object",
        "id": f"{found.bucket}/{found.name}/{found.generation}",
        "selfLink": f"{base}/storage/v1/{path}",
        "mediaLink": media,
        "name": found.name,
        "bucket": found.bucket,
        "generation": str(found.generation),
        "metageneration": str(found.metageneration),
        "size": str(found.size),
        "etag": etag(found.generation, found.metageneration),
        "timeCreated": format_rfc3339(found.created),
        "updated": format_rfc3339(found.updated),
        "timeFinalized": format_rfc3339(found.created),
        "timeStorageClassUpdated": format_rfc3339(found.created),
        **{key: value for key, value in found.settings.items() if key not in object_settings.INTERNAL},
    }
    if hashes:
        resource |= {"crc32c": found.crc32c} | ({"md5Hash": found.md5} if found.md5 else {})
    if found.components:
        resource["componentCount"] = found.components
    times = {
        "timeDeleted": found.noncurrent_since,
        "retentionExpirationTime": retention.get_expiration(holder, found),
        "softDeleteTime": found.soft_deleted,
        "hardDeleteTime": found.hard_deleted,
    }
    resource |= {key: format_rfc3339(value) for key, value in times.items() if value is not None}
    if full and not holder.has_uniform_access:
        entries = access_controls.get_object_acl(holder, found.settings)
        resource["acl"] = build_object_acl(found, entries, base)
        resource["owner"] = {"entity": access_controls.get_account(holder.project)}
    return resource


def build_bucket_resource(found: BucketRecord, base: str, *, full: bool = False) -> dict[str, Any]:
    """The resource of a bucket."""
    defaults = {
        "storageClass": "STANDARD",
        "location": locations.DEFAULT,
        "softDeletePolicy": {"retentionDurationSeconds": "0", "effectiveTime": format_rfc3339(found.created)},
        "iamConfiguration": {
            "bucketPolicyOnly": {"enabled": False},
            "uniformBucketLevelAccess": {"enabled": False},
            "publicAccessPrevention": "inherited",
        },
    }
    settings = {key: value for key, value in found.settings.items() if key not in bucket_settings.INTERNAL}
    resource = {
        "kind": "storage#bucket",
        "id": found.name,
        "selfLink": f"{base}/storage/v1/b/{found.name}",
        "name": found.name,
        "projectNumber": get_project_number(found.project),
        "generation": str(found.generation),
        "metageneration": str(found.metageneration),
        "etag": etag(0, found.metageneration),
        "timeCreated": format_rfc3339(found.created),
        "updated": format_rfc3339(found.updated),
        **defaults,
        **settings,
    }
    resource["locationType"] = locations.get_location_type(resource)
    if resource["locationType"] != "region":
        resource.setdefault("rpo", "DEFAULT")
    times = {"softDeleteTime": found.soft_deleted, "hardDeleteTime": found.hard_deleted}
    resource |= {key: format_rfc3339(value) for key, value in times.items() if value is not None}
    if full and not found.has_uniform_access:
        resource["acl"] = build_bucket_acl(found, access_controls.get_bucket_acl(found), base)
        resource["defaultObjectAcl"] = build_default_acl(found, access_controls.get_default_acl(found), base)
        resource["owner"] = {"entity": f"project-owners-{get_project_number(found.project)}"}
    return resource


def build_bucket_acl(holder: BucketRecord, entries: list[Entry], base: str) -> list[dict[str, Any]]:
    """The entries of a bucket as resources."""
    path, owned = f"b/{holder.name}/acl", {"bucket": holder.name}
    return [
        access_controls.build_entry(entry, kind="bucketAccessControl", path=path, base=base, owned=owned)
        for entry in entries
    ]


def build_default_acl(holder: BucketRecord, entries: list[Entry], base: str) -> list[dict[str, Any]]:
    """The entries of a bucket's new objects as resources."""
    path = f"b/{holder.name}/defaultObjectAcl"
    return [
        access_controls.build_entry(entry, kind="objectAccessControl", path=path, base=base, owned={})
        for entry in entries
    ]


def build_object_acl(found: ObjectRecord, entries: list[Entry], base: str) -> list[dict[str, Any]]:
    """The entries of an object as resources."""
    path = f"b/{found.bucket}/o/{quote_name(found.name)}/acl"
    owned = {"bucket": found.bucket, "object": found.name, "generation": str(found.generation)}
    return [
        access_controls.build_entry(entry, kind="objectAccessControl", path=path, base=base, owned=owned)
        for entry in entries
    ]


def quote_name(name: str) -> str:
    """A name as one segment of an address."""
    return quote(name, safe="")
