"""IAM policies of buckets: validated, stored and returned, but not enforced."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from vertex_rehearsal.cloud_storage import errors
from vertex_rehearsal.cloud_storage.records import BucketRecord, etag

KEY = "iamPolicy"
"""Key among a bucket's settings; not part of its resource."""
UNSET = (
    {"role": "roles/storage.legacyBucketOwner", "members": ["projectOwner:rehearsal"]},
    {"role": "roles/storage.legacyBucketReader", "members": ["projectViewer:rehearsal"]},
)
WITH_CONDITIONS = 3
"""The policy version that allows conditions."""
PUBLIC = ("allUsers", "allAuthenticatedUsers")
PUBLIC_ACCESS_PREVENTED = (
    "The member bindings allUsers and allAuthenticatedUsers are not allowed since public access prevention is enforced."
)

_EMAIL = r"[^\s@:]+@[^\s@:]+\.[^\s@:]+"
_MEMBER = re.compile(
    rf"allUsers|allAuthenticatedUsers|(?:user|serviceAccount|group):{_EMAIL}|domain:[^\s@:]+\.[^\s@:]+"
    r"|project(?:Owner|Editor|Viewer):\S+|principal(?:Set)?://\S+"
    rf"|deleted:(?:user|serviceAccount|group):{_EMAIL}\?uid=\d+|serviceAccount:\S+\.svc\.id\.goog\[\S+/\S+\]"
)
_ROLE = re.compile(r"(?:(?:projects|organizations)/[^/\s]+/)?roles/[A-Za-z0-9_.]+")


def build_policy(bucket_record: BucketRecord, *, version: int = 1) -> dict[str, Any]:
    """Return a bucket's policy as a resource; conditions are shown in version 3 only."""
    policy = bucket_record.settings.get(KEY) or {"version": 1, "bindings": list(UNSET)}
    if version < WITH_CONDITIONS and any(map(_has_condition, policy["bindings"])):
        policy = {"version": 1, "bindings": [_hide_condition(binding) for binding in policy["bindings"]]}
    resource = f"projects/_/buckets/{bucket_record.name}"
    return {"kind": "storage#policy", "resourceId": resource, "etag": etag(0, bucket_record.metageneration), **policy}


def make_policy_change(
    policy: Mapping[str, Any], *, is_uniform: bool, prevents_public: bool
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a change of settings that replaces the policy, after validating it."""
    bindings = policy.get("bindings", [])
    if not isinstance(bindings, list):
        raise errors.invalid_request("Invalid value for 'bindings': a list is wanted.", location="bindings")
    for binding in bindings:
        _check_binding(binding)
    version = policy.get("version") or 1
    if version not in (1, WITH_CONDITIONS):
        raise errors.invalid_request(f"Invalid value for 'version': {version}.", location="version")
    if any(map(_has_condition, bindings)):
        if not is_uniform:
            message = "To set IAM conditions on this bucket, please enable uniform bucket-level access on it first."
            raise errors.StorageError(412, "conditionNotMet", message)
        if version < WITH_CONDITIONS:
            message = "The policy has conditional role bindings; its version must be at least 3."
            raise errors.invalid_request(message, location="version")
    if prevents_public and any(member in PUBLIC for binding in bindings for member in binding.get("members", [])):
        raise errors.StorageError(412, "conditionNotMet", PUBLIC_ACCESS_PREVENTED)
    return lambda settings: settings | {KEY: {"version": version, "bindings": bindings}}


def _check_binding(binding: Any) -> None:
    if (
        not isinstance(binding, dict)
        or not isinstance(binding.get("role"), str)
        or not _ROLE.fullmatch(binding["role"])
    ):
        role = binding.get("role") if isinstance(binding, dict) else binding
        raise errors.invalid_request(f"Role {role} is not supported for this resource.", location="bindings.role")
    members = binding.get("members", [])
    if not isinstance(members, list):
        raise errors.invalid_request("Invalid value for 'bindings.members': a list is wanted.", location="bindings")
    for member in members:
        if not isinstance(member, str) or not _MEMBER.fullmatch(member):
            raise errors.invalid_request(f"Invalid IAM member: {member}", location="bindings.members")
    condition = binding.get("condition")
    if condition is not None and not _is_condition(condition):
        message = "Invalid value for 'bindings.condition': it has an expression and a title, each a string."
        raise errors.invalid_request(message, location="bindings.condition")


def _is_condition(condition: Any) -> bool:
    if not isinstance(condition, dict) or set(condition) - {"expression", "title", "description", "location"}:
        return False
    return all(isinstance(value, str) for value in condition.values()) and bool(condition.get("expression"))


def _has_condition(binding: Mapping[str, Any]) -> bool:
    return bool(binding.get("condition"))


def _hide_condition(binding: Mapping[str, Any]) -> dict[str, Any]:
    """Return a conditional binding as IAM shows it in version 1: its role carries a hash of the condition."""
    if not _has_condition(binding):
        return dict(binding)
    digest = hashlib.sha256(json.dumps(binding["condition"], sort_keys=True).encode()).hexdigest()[:20]
    return {"role": f"{binding['role']}_withcond_{digest}", "members": binding.get("members", [])}
