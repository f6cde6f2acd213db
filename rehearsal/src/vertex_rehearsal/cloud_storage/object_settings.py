"""Settings of an object: validated at creation, on patches and updates, and for copies."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from vertex_rehearsal.cloud_storage import contexts, errors, retention
from vertex_rehearsal.cloud_storage.json_values import (
    merge_patch,
    require_choice,
    require_flag,
    require_object,
    require_text,
    require_time,
)
from vertex_rehearsal.cloud_storage.records import format_rfc3339, parse_time

ACL, ENCRYPTION = "acl", "customerEncryption"
CLASSES = (
    "STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE", "MULTI_REGIONAL", "REGIONAL", "DURABLE_REDUCED_AVAILABILITY",
)  # fmt: skip
MOST_CUSTOM_BYTES = 8 * 1024
TEXTS = ("contentType", "contentEncoding", "contentLanguage", "contentDisposition", "cacheControl")
SETTABLE = (
    *TEXTS, "metadata", "customTime", "temporaryHold", "eventBasedHold", "retention", "contexts",
)  # fmt: skip
"""Settings that can change at any time."""
INTERNAL = (ACL, retention.RELEASED)
"""Internal settings, which are no part of an object's resource, or only of a full one."""

Change = Callable[[dict[str, Any]], dict[str, Any]]


def read_object_settings(resource: Mapping[str, Any]) -> dict[str, Any]:
    """Return the validated settings of a new object; fields that Cloud Storage computes are ignored."""
    chosen = {key: resource[key] for key in SETTABLE if resource.get(key) is not None}
    if resource.get("storageClass"):
        chosen["storageClass"] = resource["storageClass"]
    return _check_settings({}, merge_patch({}, chosen))


def make_object_patch(patch: Mapping[str, Any]) -> Change:
    """Return a change of settings with patch semantics: null removes, `metadata` and `contexts` are merged."""

    def change(settings: dict[str, Any]) -> dict[str, Any]:
        changed = merge_patch(settings, {key: patch[key] for key in SETTABLE if key in patch})
        return _check_settings(settings, changed)

    return change


def make_object_update(resource: Mapping[str, Any]) -> Change:
    """Return a change of settings with update semantics: unnamed settings are removed."""

    def change(settings: dict[str, Any]) -> dict[str, Any]:
        lasting = ("storageClass", "customTime", "retention", ENCRYPTION, *INTERNAL)
        kept = {key: settings[key] for key in lasting if key in settings}
        named = {key: resource[key] for key in SETTABLE if key in resource}
        return _check_settings(settings, merge_patch(kept, named))

    return change


def make_object_copy(resource: Mapping[str, Any], *, drops_contexts: bool = False) -> Change:
    """Return a change from a source's settings to its copy's: holds, retention, keys and ACLs are not copied."""

    def change(settings: dict[str, Any]) -> dict[str, Any]:
        dropped = ("contexts",) if drops_contexts else ()
        excluded = ("temporaryHold", "eventBasedHold", "retention", ENCRYPTION, *INTERNAL, *dropped)
        kept = {key: value for key, value in settings.items() if key not in excluded}
        return kept | read_object_settings(resource)

    return change


def check_class(settings: Mapping[str, Any]) -> None:
    """Refuse an unknown storage class."""
    if settings.get("storageClass", "STANDARD") not in CLASSES:
        message = f"The storage class you specified is not valid: {settings['storageClass']}."
        raise errors.invalid_request(message, location="storageClass", code="InvalidStorageClass")


def _check_settings(before: Mapping[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    for key in TEXTS:
        if key in settings:
            require_text(key, settings[key])
    for key in ("temporaryHold", "eventBasedHold"):
        if key in settings:
            settings[key] = require_flag(key, settings[key])
    _check_metadata(settings)
    if "customTime" in settings:
        settings["customTime"] = require_time("customTime", settings["customTime"])
    _check_custom_time(before, settings)
    if "retention" in settings:
        settings["retention"] = _check_retention(settings["retention"])
    now = format_rfc3339(time.time_ns() // 1000)
    settings["contexts"] = contexts.update_contexts(before.get("contexts") or {}, settings.get("contexts"), now)
    check_class(settings)
    return {key: value for key, value in settings.items() if value is not None}


def _check_metadata(settings: dict[str, Any]) -> None:
    custom = settings.get("metadata", {})
    if not isinstance(custom, dict) or not all(isinstance(value, str) for value in custom.values()):
        raise errors.invalid_request(
            "Invalid value for 'metadata': its keys and values must be strings.", location="metadata"
        )
    if sum(len(key.encode()) + len(value.encode()) for key, value in custom.items()) > MOST_CUSTOM_BYTES:
        raise errors.invalid_request("The metadata of an object must not exceed 8 KiB.", code="MetadataTooLarge")
    if not custom:
        settings.pop("metadata", None)


def _check_custom_time(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    if "customTime" not in before:
        return
    if "customTime" not in after or parse_time(after["customTime"]) < parse_time(before["customTime"]):
        raise errors.invalid_request("Custom time cannot be removed or set to an earlier time.", location="customTime")


def _check_retention(value: Any) -> dict[str, str] | None:
    """Return the validated retention of an object; None for an empty one, which removes it."""
    if not require_object("retention", value):
        return None
    mode = require_choice("retention.mode", value.get("mode"), ("Locked", "Unlocked"))
    return {"mode": mode, "retainUntilTime": require_time("retention.retainUntilTime", value.get("retainUntilTime"))}
