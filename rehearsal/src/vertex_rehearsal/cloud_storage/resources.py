"""Buckets and objects as the JSON API's resources, what of them a user may set, and which fields were asked for."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from vertex_rehearsal.cloud_storage import errors, policies
from vertex_rehearsal.cloud_storage.records import BucketRecord, ObjectRecord, etag, format_rfc3339

PROJECT_NUMBER = "123456789012"
CLASSES = (
    "STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE", "MULTI_REGIONAL", "REGIONAL", "DURABLE_REDUCED_AVAILABILITY",
)  # fmt: skip
MULTI_REGIONS = ("US", "EU", "ASIA")
DUAL_REGIONS = ("NAM4", "EUR4", "EUR5", "EUR7", "EUR8", "ASIA1")
MOST_CUSTOM_BYTES = 8 * 1024

OF_AN_OBJECT = (
    "contentType", "contentEncoding", "contentLanguage", "contentDisposition", "cacheControl", "metadata",
    "customTime", "temporaryHold", "eventBasedHold",
)  # fmt: skip
"""What may be set of an object, at any time."""
OF_A_BUCKET = (
    "labels", "versioning", "lifecycle", "softDeletePolicy", "cors", "website", "logging", "defaultEventBasedHold",
    "iamConfiguration", "billing", "autoclass", "rpo", "encryption", "storageClass",
)  # fmt: skip
"""What may be set of a bucket, at any time; `location` when it is made."""
NOT_PLAYED = ("retentionPolicy", "hierarchicalNamespace", "customPlacementConfig", "objectRetention", "ipFilter")
"""What changes how a bucket behaves, and would not here."""


def build_object_resource(found: ObjectRecord, base: str) -> dict[str, Any]:
    """The resource of a generation; `base` is the address at which the caller reached us."""
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
        "crc32c": found.crc32c,
        "etag": etag(found.generation, found.metageneration),
        "timeCreated": format_rfc3339(found.created),
        "updated": format_rfc3339(found.updated),
        "timeFinalized": format_rfc3339(found.created),
        "timeStorageClassUpdated": format_rfc3339(found.created),
        **found.settings,
    }
    if found.md5:
        resource["md5Hash"] = found.md5
    if found.components:
        resource["componentCount"] = found.components
    if found.noncurrent_since:
        resource["timeDeleted"] = format_rfc3339(found.noncurrent_since)
    return resource


def build_bucket_resource(found: BucketRecord, base: str) -> dict[str, Any]:
    """The resource of a bucket."""
    defaults = {
        "storageClass": "STANDARD",
        "location": "US",
        "rpo": "DEFAULT",
        "softDeletePolicy": {"retentionDurationSeconds": "0", "effectiveTime": format_rfc3339(found.created)},
        "iamConfiguration": {
            "bucketPolicyOnly": {"enabled": False},
            "uniformBucketLevelAccess": {"enabled": False},
            "publicAccessPrevention": "inherited",
        },
    }
    settings = defaults | {key: value for key, value in found.settings.items() if key != policies.KEY}
    location = settings["location"]
    return {
        "kind": "storage#bucket",
        "id": found.name,
        "selfLink": f"{base}/storage/v1/b/{found.name}",
        "name": found.name,
        "projectNumber": PROJECT_NUMBER,
        "generation": str(found.generation),
        "metageneration": str(found.metageneration),
        "etag": etag(0, found.metageneration),
        "timeCreated": format_rfc3339(found.created),
        "updated": format_rfc3339(found.updated),
        **settings,
        "locationType": _location_type(location),
    }


def quote_name(name: str) -> str:
    """A name as one segment of an address."""
    return quote(name, safe="")


def _location_type(location: str) -> str:
    if location in MULTI_REGIONS:
        return "multi-region"
    return "dual-region" if location in DUAL_REGIONS else "region"


def object_settings(resource: Mapping[str, Any]) -> dict[str, Any]:
    """What a resource sets of a new object; what Cloud Storage computes itself is passed over."""
    chosen = {key: resource[key] for key in OF_AN_OBJECT if resource.get(key) is not None}
    if resource.get("storageClass"):
        chosen["storageClass"] = resource["storageClass"]
    return _check_object(chosen)


def bucket_settings(resource: Mapping[str, Any]) -> dict[str, Any]:
    """What a resource sets of a new bucket."""
    chosen = {key: resource[key] for key in OF_A_BUCKET if resource.get(key) is not None}
    if resource.get("location") is not None:
        chosen["location"] = _require_text("location", resource["location"]).upper()
    return _check_bucket(chosen, resource)


def expected_checksums(resource: Mapping[str, Any]) -> dict[str, str]:
    """The checksums that a resource says its content has."""
    found = {"crc32c": resource.get("crc32c"), "md5": resource.get("md5Hash")}
    return {name: str(value) for name, value in found.items() if value}


def make_object_patch(patch: Mapping[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A change of settings: null removes, `metadata` is patched key by key."""

    def change(settings: dict[str, Any]) -> dict[str, Any]:
        changed = merge_patch(settings, {key: patch[key] for key in OF_AN_OBJECT if key in patch})
        _check_custom_time(settings, changed)
        return _check_object(changed)

    return change


def make_object_update(resource: Mapping[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A change of settings: what is not named is removed."""

    def change(settings: dict[str, Any]) -> dict[str, Any]:
        kept = {key: settings[key] for key in ("storageClass", "customTime") if key in settings}
        named = {key: resource[key] for key in OF_AN_OBJECT if resource.get(key) is not None}
        _check_custom_time(settings, kept | named)
        return _check_object(kept | named)

    return change


def make_object_copy(resource: Mapping[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A copy's settings: its source's, but for what is named."""

    def change(settings: dict[str, Any]) -> dict[str, Any]:
        holds = ("temporaryHold", "eventBasedHold")
        kept = {key: value for key, value in settings.items() if key not in holds}
        return _check_object(kept | object_settings(resource))

    return change


def make_bucket_patch(patch: Mapping[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A change of settings: null removes, `labels` and the like are patched key by key."""

    def change(settings: dict[str, Any]) -> dict[str, Any]:
        return _check_bucket(merge_patch(settings, {key: patch[key] for key in OF_A_BUCKET if key in patch}), patch)

    return change


def make_bucket_update(resource: Mapping[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A change of settings: what is not named is removed."""

    def change(settings: dict[str, Any]) -> dict[str, Any]:
        kept = {key: settings[key] for key in ("location", "storageClass", policies.KEY) if key in settings}
        return _check_bucket(kept | bucket_settings({**resource, "location": None}), resource)

    return change


def merge_patch(before: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON merge patch, as Google's `patch` methods apply it."""
    result = dict(before)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            inner = result.get(key)
            result[key] = merge_patch(inner if isinstance(inner, dict) else {}, value)
        else:
            result[key] = value
    return result


def _check_object(settings: dict[str, Any]) -> dict[str, Any]:
    for key in ("contentType", "contentEncoding", "contentLanguage", "contentDisposition", "cacheControl"):
        if key in settings:
            _require_text(key, settings[key])
    custom = settings.get("metadata", {})
    if not isinstance(custom, dict) or not all(isinstance(value, str) for value in custom.values()):
        raise errors.invalid_request(
            "Invalid value for 'metadata': its keys and values must be strings.", location="metadata"
        )
    if sum(len(key.encode()) + len(value.encode()) for key, value in custom.items()) > MOST_CUSTOM_BYTES:
        raise errors.invalid_request("The metadata of an object must not exceed 8 KiB.", code="MetadataTooLarge")
    if not custom:
        settings.pop("metadata", None)
    if "customTime" in settings:
        settings["customTime"] = _parse_time("customTime", settings["customTime"])
    _check_class(settings)
    return settings


def _check_custom_time(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    if "customTime" not in before:
        return
    if "customTime" not in after or _parse_time("customTime", after["customTime"]) < before["customTime"]:
        raise errors.invalid_request("Custom time cannot be removed or set to an earlier time.", location="customTime")


def _check_bucket(settings: dict[str, Any], resource: Mapping[str, Any]) -> dict[str, Any]:
    for key in NOT_PLAYED:
        value = resource.get(key)
        if value and value != {"enabled": False}:
            raise errors.unsupported_feature(key)
    labels = settings.get("labels", {})
    if not isinstance(labels, dict) or not all(_is_label(key, value) for key, value in labels.items()):
        raise errors.invalid_request("Invalid value for 'labels'.", location="labels")
    if not labels:
        settings.pop("labels", None)
    _check_class(settings)
    return settings


def _is_label(key: str, value: Any) -> bool:
    allowed = re.compile(r"[\w-]{0,63}")
    lower = isinstance(value, str) and key == key.lower() and value == value.lower()
    return lower and bool(key) and bool(allowed.fullmatch(key)) and bool(allowed.fullmatch(value))


def _check_class(settings: Mapping[str, Any]) -> None:
    if settings.get("storageClass", "STANDARD") not in CLASSES:
        message = f"The storage class you specified is not valid: {settings['storageClass']}."
        raise errors.invalid_request(message, location="storageClass", code="InvalidStorageClass")


def _require_text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise errors.invalid_request(f"Invalid value for '{key}': a string is wanted.", location=key)
    return value


def _parse_time(key: str, value: Any) -> str:
    try:
        moment = datetime.fromisoformat(_require_text(key, value))
    except ValueError as error:
        raise errors.invalid_request(
            f"Invalid value for '{key}': '{value}' is not an RFC 3339 time.", location=key
        ) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return format_rfc3339(round(moment.timestamp() * 1e6))


def select_fields(document: Any, fields: str) -> Any:
    """The part of a document that `fields` asks for: `kind,items(name,size),nextPageToken`, `items/name`, `*`."""
    return document if not fields else _select_keys(document, _parse_fields(fields))


_Tree = dict[str, "_Tree"]


def _parse_fields(fields: str) -> _Tree:
    words = re.findall(r"[^,()/]+|[,()/]", fields)
    position = 0

    def parse_group() -> _Tree:
        nonlocal position
        found: _Tree = {}
        at = found
        while position < len(words):
            word = words[position]
            position += 1
            if word == ")":
                return found
            if word == ",":
                at = found
            elif word == "(":
                at.update(parse_group())
            elif word != "/":
                at = at.setdefault(word.strip(), {})
        return found

    parsed = parse_group()
    if position < len(words) or fields.count("(") != fields.count(")"):
        raise errors.invalid_request(f"Invalid field selection {fields}", location="fields")
    return parsed


def _select_keys(document: Any, tree: _Tree) -> Any:
    if not tree:
        return document
    if isinstance(document, list):
        return [_select_keys(item, tree) for item in document]
    if not isinstance(document, dict):
        return document
    chosen = {}
    for key, value in document.items():
        if key in tree or "*" in tree:
            chosen[key] = _select_keys(value, tree.get(key, tree.get("*", {})))
    return chosen


def parse_body(body: bytes) -> dict[str, Any]:
    """A resource as a request brings it; nothing is an empty one."""
    if not body.strip():
        return {}
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise errors.StorageError(400, "parseError", "Parse Error") from error
    if not isinstance(document, dict):
        raise errors.StorageError(400, "parseError", "Parse Error")
    return document
