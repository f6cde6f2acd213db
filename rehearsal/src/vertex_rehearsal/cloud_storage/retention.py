"""Protection from deletion and replacement: holds, bucket retention policies and object retention."""

from collections.abc import Mapping
from typing import Any

from vertex_rehearsal.cloud_storage import errors
from vertex_rehearsal.cloud_storage.records import BucketRecord, ObjectRecord, format_rfc3339, parse_time

RELEASED = "eventBasedHoldReleased"
"""Internal setting: when the event-based hold was released (microseconds), which starts the retention period."""
LONGEST_S = 100 * 31_557_600
HOLDS = (("temporaryHold", "Temporary"), ("eventBasedHold", "Event-Based"))


def get_expiration(bucket_record: BucketRecord, record: ObjectRecord) -> int | None:
    """Return when an object's retention ends, in microseconds; None without retention."""
    ends = []
    policy = bucket_record.settings.get("retentionPolicy")
    if policy and not record.settings.get("eventBasedHold"):
        ends.append(record.settings.get(RELEASED, record.created) + int(policy["retentionPeriod"]) * 1_000_000)
    if object_retention := record.settings.get("retention"):
        ends.append(parse_time(object_retention["retainUntilTime"]))
    return max(ends, default=None)


def check_removable(bucket_record: BucketRecord, record: ObjectRecord | None, now: int, *, is_kept: bool) -> None:
    """Refuse to delete or replace an object under hold or retention, unless retained and `is_kept` as a version."""
    if record is None:
        return
    named = f"Object '{record.bucket}/{record.name}'"
    for key, word in HOLDS:
        if record.settings.get(key):
            message = (
                f"{named} is under active {word} hold and cannot be deleted, overwritten or archived until hold is "
                "removed."
            )
            raise errors.StorageError(403, "objectUnderActiveHold", message)
    end = get_expiration(bucket_record, record)
    if end is not None and now < end and not is_kept:
        message = (
            f"{named} is subject to bucket's retention policy or object retention and cannot be deleted or overwritten "
            f"until {format_rfc3339(end)}"
        )
        raise errors.StorageError(403, "retentionPolicyNotMet", message)


def complete_settings(bucket_record: BucketRecord, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new object's settings with the defaults of its bucket."""
    completed = {"storageClass": bucket_record.default_class} | dict(settings)
    if bucket_record.has_autoclass:
        completed["storageClass"] = "STANDARD"
    if bucket_record.settings.get("defaultEventBasedHold") and "eventBasedHold" not in completed:
        completed["eventBasedHold"] = True
    return completed


def check_change(
    bucket_record: BucketRecord, before: Mapping[str, Any], after: dict[str, Any], now: int, *, overrides: bool
) -> dict[str, Any]:
    """Return an object's changed settings; refuse changes that its retention forbids."""
    if before.get("eventBasedHold") and not after.get("eventBasedHold"):
        after = after | {RELEASED: now}
    elif RELEASED in before and not after.get("eventBasedHold"):
        after = after | {RELEASED: before[RELEASED]}
    old, new = before.get("retention"), after.get("retention")
    if new == old:
        return after
    if new:
        _check_retention(bucket_record, new, now)
    if old and (not new or parse_time(new["retainUntilTime"]) < parse_time(old["retainUntilTime"])):
        _check_shortening(old, overrides=overrides)
    if old and new and old["mode"] == "Locked" and new["mode"] != "Locked":
        raise _locked_error()
    return after


def check_policy_change(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Refuse to shorten or remove a locked retention policy."""
    old, new = before.get("retentionPolicy") or {}, after.get("retentionPolicy") or {}
    if old.get("isLocked") and int(new.get("retentionPeriod", 0)) < int(old["retentionPeriod"]):
        message = f"Cannot reduce retention duration of a locked Retention Policy for bucket '{name}'."
        raise errors.StorageError(403, "forbidden", message)


def lock_policy(settings: dict[str, Any]) -> dict[str, Any]:
    """Return a bucket's settings with its retention policy locked, permanently."""
    policy = settings.get("retentionPolicy")
    if not policy:
        raise errors.invalid_request("There is no retention policy on this bucket to lock.")
    return settings | {"retentionPolicy": policy | {"isLocked": True}}


def _check_retention(bucket_record: BucketRecord, requested: Mapping[str, Any], now: int) -> None:
    if (bucket_record.settings.get("objectRetention") or {}).get("mode") != "Enabled":
        message = f"Object retention is not enabled for bucket '{bucket_record.name}'."
        raise errors.invalid_request(message, location="retention")
    end = parse_time(requested["retainUntilTime"])
    if not now < end <= now + LONGEST_S * 1_000_000:
        message = "Invalid value for 'retention.retainUntilTime': it must be in the future, within 100 years."
        raise errors.invalid_request(message, location="retention.retainUntilTime")


def _check_shortening(old: Mapping[str, Any], *, overrides: bool) -> None:
    if old["mode"] == "Locked":
        raise _locked_error()
    if not overrides:
        message = "Unlocked retention can be reduced or removed only with the parameter overrideUnlockedRetention=true."
        raise errors.StorageError(403, "forbidden", message, location="overrideUnlockedRetention")


def _locked_error() -> errors.StorageError:
    return errors.StorageError(403, "forbidden", "A locked retention cannot be shortened, unlocked or removed.")
