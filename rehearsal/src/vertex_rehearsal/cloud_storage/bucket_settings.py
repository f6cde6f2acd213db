"""Settings of a bucket: validated and completed at creation and on changes; unsupported ones are refused by name."""

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from vertex_rehearsal.cloud_storage import errors, locations, policies
from vertex_rehearsal.cloud_storage.json_values import (
    merge_patch,
    require_choice,
    require_flag,
    require_number,
    require_object,
    require_text,
)
from vertex_rehearsal.cloud_storage.object_settings import ACL, CLASSES, check_class
from vertex_rehearsal.cloud_storage.records import format_rfc3339
from vertex_rehearsal.cloud_storage.retention import LONGEST_S

DEFAULT_ACL = "defaultObjectAcl"
SETTABLE = (
    "labels", "versioning", "lifecycle", "softDeletePolicy", "cors", "website", "logging", "defaultEventBasedHold",
    "iamConfiguration", "billing", "autoclass", "rpo", "encryption", "storageClass", "retentionPolicy", "ipFilter",
)  # fmt: skip
"""Settings that can change at any time; `location` and `customPlacementConfig` are set at creation only."""
LASTING = (
    "hierarchicalNamespace",
    "location",
    "customPlacementConfig",
    "storageClass",
    "objectRetention",
    ACL,
    DEFAULT_ACL,
    policies.KEY,
)
"""Settings that an update keeps unless it names them."""
INTERNAL = (ACL, DEFAULT_ACL, policies.KEY)
NOT_PLAYED = ("hierarchicalNamespace",)
"""Refused, since they change how a bucket behaves and would have no effect here."""
DAY_S = 86_400
UNIFORM_ACCESS_LOCKS_DAYS = 90
ACTIONS = ("Delete", "SetStorageClass", "AbortIncompleteMultipartUpload")
CONDITIONS = (
    "age", "createdBefore", "customTimeBefore", "daysSinceCustomTime", "daysSinceNoncurrentTime", "isLive",
    "matchesPattern", "matchesPrefix", "matchesStorageClass", "matchesSuffix", "noncurrentTimeBefore",
    "numNewerVersions",
)  # fmt: skip
ENCRYPTION_RULES = tuple(
    f"{who}EncryptionEnforcementConfig" for who in ("googleManaged", "customerManaged", "customerSupplied")
)
RESTRICTIONS = ("NotRestricted", "FullyRestricted")

Change = Callable[[dict[str, Any]], dict[str, Any]]


def read_bucket_settings(resource: Mapping[str, Any], *, has_object_retention: bool = False) -> dict[str, Any]:
    """Return the validated settings of a new bucket."""
    _refuse_unsupported(resource)
    chosen = merge_patch({}, {key: resource[key] for key in SETTABLE if resource.get(key) is not None})
    if resource.get("customPlacementConfig"):
        location, regions = locations.parse_regions(resource.get("location"), resource["customPlacementConfig"])
        chosen |= {"location": location, "customPlacementConfig": {"dataLocations": regions}}
    elif resource.get("location") is not None:
        chosen["location"] = locations.parse_location(resource["location"])
    if resource.get("hierarchicalNamespace"):  # an enabled one is refused above
        chosen["hierarchicalNamespace"] = {"enabled": False}
    if has_object_retention:
        chosen["objectRetention"] = {"mode": "Enabled"}
    return _complete_settings({}, chosen)


def make_bucket_patch(patch: Mapping[str, Any]) -> Change:
    """Return a change of settings with patch semantics: null removes, objects like `labels` are merged."""
    _refuse_unsupported(patch)

    def change(settings: dict[str, Any]) -> dict[str, Any]:
        _check_placement(settings, patch)
        return _complete_settings(
            settings, merge_patch(settings, {key: patch[key] for key in SETTABLE if key in patch})
        )

    return change


def make_bucket_update(resource: Mapping[str, Any]) -> Change:
    """Return a change of settings with update semantics: unnamed settings are removed."""
    _refuse_unsupported(resource)

    def change(settings: dict[str, Any]) -> dict[str, Any]:
        _check_placement(settings, resource)
        kept = {key: settings[key] for key in LASTING if key in settings}
        return _complete_settings(
            settings, merge_patch(kept, {key: resource[key] for key in SETTABLE if key in resource})
        )

    return change


def _refuse_unsupported(resource: Mapping[str, Any]) -> None:
    for key in NOT_PLAYED:
        value = resource.get(key)
        if value and value != {"enabled": False}:
            raise errors.unsupported_feature(key)


def _check_placement(settings: Mapping[str, Any], resource: Mapping[str, Any]) -> None:
    location = resource.get("location")
    if location is not None and str(location).upper() != settings.get("location", locations.DEFAULT):
        raise errors.invalid_request("A bucket's location cannot be changed.", location="location")


def _complete_settings(before: Mapping[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return validated settings with the times and defaults that Cloud Storage adds, without empty ones."""
    now = time.time_ns() // 1000
    completed = dict(after)
    for key, complete in _VALIDATORS.items():
        if key in after:
            completed[key] = complete(before.get(key), after[key], now)
    check_class(completed)
    _check_combination(completed)
    return {key: value for key, value in completed.items() if value is not None}


def _check_combination(settings: Mapping[str, Any]) -> None:
    """Refuse settings that are valid alone and conflict with each other."""
    if (settings.get("autoclass") or {}).get("enabled"):
        if settings.get("storageClass", "STANDARD") != "STANDARD":
            raise errors.invalid_request("A bucket with Autoclass has storage class STANDARD.", location="storageClass")
        rules = (settings.get("lifecycle") or {}).get("rule", [])
        if any(rule["action"]["type"] == "SetStorageClass" for rule in rules):
            message = "A lifecycle rule with SetStorageClass cannot be used with Autoclass."
            raise errors.invalid_request(message, location="lifecycle")
    placement = {"location": locations.DEFAULT, **settings}
    if settings.get("rpo") == "ASYNC_TURBO" and locations.get_location_type(placement) != "dual-region":
        raise errors.invalid_request("Turbo replication is for buckets in dual-regions.", location="rpo")


def _complete_labels(_: Any, labels: Any, __: int) -> dict[str, str] | None:
    if (
        not isinstance(labels, dict)
        or len(labels) > 64
        or not all(_is_label(key, value) for key, value in labels.items())
    ):
        raise errors.invalid_request("Invalid value for 'labels'.", location="labels")
    return labels or None


def _is_label(key: str, value: Any) -> bool:
    allowed = re.compile(r"[\w-]{0,63}")
    lower = isinstance(value, str) and key == key.lower() and value == value.lower()
    return lower and bool(key) and bool(allowed.fullmatch(key)) and bool(allowed.fullmatch(value))


def _complete_flag(key: str) -> Callable[[Any, Any, int], Any]:
    """Return the validator of an object with flags."""

    def complete(_: Any, value: Any, __: int) -> dict[str, bool] | None:
        return {key: require_flag(key, flag) for key, flag in require_object(key, value).items()} or None

    return complete


def _complete_lifecycle(_: Any, value: Any, __: int) -> dict[str, Any] | None:
    rules = require_object("lifecycle", value).get("rule") or []
    if not isinstance(rules, list) or len(rules) > 100:
        raise errors.invalid_request("Invalid value for 'lifecycle.rule': at most 100 rules.", location="lifecycle")
    for rule in rules:
        action = require_object("lifecycle.rule.action", require_object("lifecycle.rule", rule).get("action"))
        require_choice("lifecycle.rule.action.type", action.get("type"), ACTIONS)
        if action["type"] == "SetStorageClass":
            require_choice("lifecycle.rule.action.storageClass", action.get("storageClass"), CLASSES)
        condition = require_object("lifecycle.rule.condition", rule.get("condition"))
        if not condition or (unknown := sorted(set(condition) - set(CONDITIONS))):
            message = f"Invalid lifecycle condition: {', '.join(unknown) if condition else 'a rule has one or more'}."
            raise errors.invalid_request(message, location="lifecycle")
    return {"rule": rules} if rules else None


def _complete_soft_delete(before: Any, value: Any, now: int) -> dict[str, str]:
    name = "softDeletePolicy.retentionDurationSeconds"
    seconds = require_number(name, require_object("softDeletePolicy", value).get("retentionDurationSeconds", 0))
    if seconds and not 7 * DAY_S <= seconds <= 90 * DAY_S:
        message = f"Invalid value for '{name}': 0, or between {7 * DAY_S} (7 days) and {90 * DAY_S} (90 days)."
        raise errors.invalid_request(message, location=name)
    if before and int(before["retentionDurationSeconds"]) == seconds:
        return dict(before)
    return {"retentionDurationSeconds": str(seconds), "effectiveTime": format_rfc3339(now)}


def _complete_retention(before: Any, value: Any, now: int) -> dict[str, Any] | None:
    if not require_object("retentionPolicy", value):
        return None
    name = "retentionPolicy.retentionPeriod"
    seconds = require_number(name, value.get("retentionPeriod"))
    if not 0 < seconds <= LONGEST_S:
        raise errors.invalid_request(f"Invalid value for '{name}': 1 second to 100 years.", location=name)
    kept = {key: before[key] for key in ("effectiveTime", "isLocked") if key in before} if before else {}
    if not before or int(before["retentionPeriod"]) != seconds:
        kept["effectiveTime"] = format_rfc3339(now)
    return kept | {"retentionPeriod": str(seconds)}


def _complete_access(before: Any, value: Any, now: int) -> dict[str, Any]:
    access = require_object("iamConfiguration", value)
    old = before or {}
    if "publicAccessPrevention" in access:
        require_choice(
            "iamConfiguration.publicAccessPrevention",
            access["publicAccessPrevention"],
            ("inherited", "enforced", "unspecified"),
        )
    prevention = access.get("publicAccessPrevention", "inherited")
    was_enabled = (old.get("uniformBucketLevelAccess") or {}).get("enabled", False)
    # bucketPolicyOnly is the former name of uniformBucketLevelAccess: the one that changed counts
    flags = [
        require_flag(f"iamConfiguration.{key}.enabled", require_object(key, access[key]).get("enabled", False))
        for key in ("uniformBucketLevelAccess", "bucketPolicyOnly")
        if access.get(key) is not None
    ]
    enabled = next((flag for flag in flags if flag != was_enabled), was_enabled) if flags else was_enabled
    locked = (old.get("uniformBucketLevelAccess") or {}).get("lockedTime")
    if was_enabled and not enabled and str(locked) <= format_rfc3339(now):
        message = "Cannot disable uniform bucket-level access: it was enabled more than 90 days ago."
        raise errors.invalid_request(message, location="iamConfiguration.uniformBucketLevelAccess")
    uniform: dict[str, Any] = {"enabled": enabled}
    if enabled:
        locks_at = now + UNIFORM_ACCESS_LOCKS_DAYS * DAY_S * 1_000_000
        uniform["lockedTime"] = locked if was_enabled else format_rfc3339(locks_at)
    prevention = "inherited" if prevention == "unspecified" else prevention
    return {"uniformBucketLevelAccess": uniform, "bucketPolicyOnly": uniform, "publicAccessPrevention": prevention}


def _complete_autoclass(before: Any, value: Any, now: int) -> dict[str, Any] | None:
    old, moment = before or {}, format_rfc3339(now)
    enabled = require_flag("autoclass.enabled", require_object("autoclass", value).get("enabled", False))
    if not enabled and not old:
        return None
    terminal = value.get("terminalStorageClass") or "NEARLINE"
    require_choice("autoclass.terminalStorageClass", terminal, ("NEARLINE", "ARCHIVE"))
    toggled = moment if enabled != old.get("enabled", False) else old["toggleTime"]
    if not enabled:
        return {"enabled": False, "toggleTime": toggled}
    same = terminal == old.get("terminalStorageClass")
    return {
        "enabled": True,
        "toggleTime": toggled,
        "terminalStorageClass": terminal,
        "terminalStorageClassUpdateTime": old["terminalStorageClassUpdateTime"] if same else moment,
    }


def _complete_encryption(before: Any, value: Any, now: int) -> dict[str, Any] | None:
    rules = require_object("encryption", value)
    if rules.get("defaultKmsKeyName"):
        raise errors.unsupported_feature("encryption.defaultKmsKeyName")
    if unknown := sorted(set(rules) - {*ENCRYPTION_RULES, "defaultKmsKeyName"}):
        raise errors.invalid_request(f"Invalid value for 'encryption': {unknown[0]}.", location="encryption")
    completed = {}
    for key, rule in rules.items():
        mode = require_choice(
            f"encryption.{key}.restrictionMode", require_object(key, rule).get("restrictionMode"), RESTRICTIONS
        )
        old = (before or {}).get(key) or {}
        effective_time = old.get("effectiveTime") or (format_rfc3339(now) if mode == "FullyRestricted" else None)
        completed[key] = {"restrictionMode": mode} | ({"effectiveTime": effective_time} if effective_time else {})
    return completed or None


def _complete_ip_filter(_: Any, value: Any, __: int) -> dict[str, Any] | None:
    rules = require_object("ipFilter", value)
    if not rules:
        return None
    if require_choice("ipFilter.mode", rules.get("mode"), ("Disabled", "Enabled")) == "Enabled":
        raise errors.unsupported_feature("ipFilter.mode Enabled")
    return rules


def _complete_rpo(_: Any, value: Any, __: int) -> str:
    return require_choice("rpo", value, ("DEFAULT", "ASYNC_TURBO"))


def _complete_hold(_: Any, value: Any, __: int) -> bool:
    return require_flag("defaultEventBasedHold", value)


def _complete_texts(key: str) -> Callable[[Any, Any, int], Any]:
    """Return the validator of an object with string values."""

    def complete(_: Any, value: Any, __: int) -> dict[str, str] | None:
        return {name: require_text(f"{key}.{name}", text) for name, text in require_object(key, value).items()} or None

    return complete


def _complete_cors(_: Any, value: Any, __: int) -> list[Any] | None:
    if not isinstance(value, list) or not all(isinstance(rule, dict) for rule in value):
        raise errors.invalid_request("Invalid value for 'cors': a list of objects is wanted.", location="cors")
    return value or None


_VALIDATORS: dict[str, Callable[[Any, Any, int], Any]] = {
    "labels": _complete_labels, "versioning": _complete_flag("versioning"), "lifecycle": _complete_lifecycle,
    "softDeletePolicy": _complete_soft_delete, "cors": _complete_cors, "website": _complete_texts("website"),
    "logging": _complete_texts("logging"), "defaultEventBasedHold": _complete_hold,
    "iamConfiguration": _complete_access, "billing": _complete_flag("billing"), "autoclass": _complete_autoclass,
    "rpo": _complete_rpo, "encryption": _complete_encryption, "retentionPolicy": _complete_retention,
    "ipFilter": _complete_ip_filter,
}  # fmt: skip
"""The validator of each setting; it takes the previous value, the new value and the time."""
