"""The IAM policy of a bucket: kept as it is set, and answered. It keeps nobody out: here everybody may do all."""

from collections.abc import Callable, Mapping
from typing import Any

from vertex_rehearsal.cloud_storage import errors
from vertex_rehearsal.cloud_storage.records import BucketRecord, etag

KEY = "iamPolicy"
"""Among a bucket's settings; no part of its resource."""
UNSET = (
    {"role": "roles/storage.legacyBucketOwner", "members": ["projectOwner:rehearsal"]},
    {"role": "roles/storage.legacyBucketReader", "members": ["projectViewer:rehearsal"]},
)


def build_policy(found: BucketRecord) -> dict[str, Any]:
    """A bucket's policy as a resource."""
    kept = found.settings.get(KEY) or {"version": 1, "bindings": list(UNSET)}
    resource = f"projects/_/buckets/{found.name}"
    return {"kind": "storage#policy", "resourceId": resource, "etag": etag(0, found.metageneration), **kept}


def make_policy_change(policy: Mapping[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A change of settings: another policy in the place of the one that was there."""
    bindings = policy.get("bindings", [])
    if not isinstance(bindings, list) or not all(map(_is_binding, bindings)):
        raise errors.invalid_request("Invalid value for 'bindings': each has a role and members.", location="bindings")
    version = policy.get("version") or 1
    if version not in (1, 2, 3):
        raise errors.invalid_request(f"Invalid value for 'version': {version}.", location="version")
    return lambda settings: settings | {KEY: {"version": version, "bindings": bindings}}


def _is_binding(given: Any) -> bool:
    if not isinstance(given, dict) or not isinstance(given.get("role"), str) or not given["role"]:
        return False
    members = given.get("members", [])
    return isinstance(members, list) and all(isinstance(member, str) for member in members)
