"""What keeps an object from being deleted or replaced: holds, its bucket's retention policy, and its own retention."""

from collections.abc import Mapping
from typing import Any

from vertex_rehearsal.cloud_storage import errors
from vertex_rehearsal.cloud_storage.records import BucketRecord, ObjectRecord, format_rfc3339, parse_time

RELEASED = "eventBasedHoldReleased"
"""Among an object's settings, in microseconds; no part of its resource. A bucket's retention period begins then."""
LONGEST_S = 100 * 31_557_600
HOLDS = (("temporaryHold", "Temporary"), ("eventBasedHold", "Event-Based"))


def get_expiration(holder: BucketRecord, found: ObjectRecord) -> int | None:
    """Until when an object may not be deleted, in microseconds; None if no retention says so."""
    ends = []
    policy = holder.settings.get("retentionPolicy")
    if policy and not found.settings.get("eventBasedHold"):
        ends.append(found.settings.get(RELEASED, found.created) + int(policy["retentionPeriod"]) * 1_000_000)
    if own := found.settings.get("retention"):
        ends.append(parse_time(own["retainUntilTime"]))
    return max(ends, default=None)


def check_removable(holder: BucketRecord, found: ObjectRecord | None, now: int, *, is_kept: bool) -> None:
    """Refuse to delete or replace what is held or retained; a retained one that `is_kept` as a version may go on."""
    if found is None:
        return
    named = f"Object '{found.bucket}/{found.name}'"
    for key, word in HOLDS:
        if found.settings.get(key):
            message = (
                f"{named} is under active {word} hold and cannot be deleted, overwritten or archived until hold is "
                "removed."
            )
            raise errors.StorageError(403, "objectUnderActiveHold", message)
    end = get_expiration(holder, found)
    if end is not None and now < end and not is_kept:
        message = (
            f"{named} is subject to bucket's retention policy or object retention and cannot be deleted or overwritten "
            f"until {format_rfc3339(end)}"
        )
        raise errors.StorageError(403, "retentionPolicyNotMet", message)


def complete_settings(holder: BucketRecord, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A new object's settings, with what its bucket says of new objects."""
    kept = {"storageClass": holder.default_class} | dict(settings)
    if holder.has_autoclass:
        kept["storageClass"] = "STANDARD"
    if holder.settings.get("defaultEventBasedHold") and "eventBasedHold" not in kept:
        kept["eventBasedHold"] = True
    return kept


def check_change(
    holder: BucketRecord, before: Mapping[str, Any], after: dict[str, Any], now: int, *, overrides: bool
) -> dict[str, Any]:
    """An object's settings as they may become; refuses what its retention does not allow."""
    if before.get("eventBasedHold") and not after.get("eventBasedHold"):
        after = after | {RELEASED: now}
    elif RELEASED in before and not after.get("eventBasedHold"):
        after = after | {RELEASED: before[RELEASED]}
    old, new = before.get("retention"), after.get("retention")
    if new == old:
        return after
    if new:
        _check_retention(holder, new, now)
    if old and (not new or parse_time(new["retainUntilTime"]) < parse_time(old["retainUntilTime"])):
        _check_shortening(old, overrides=overrides)
    if old and new and old["mode"] == "Locked" and new["mode"] != "Locked":
        raise _locked_error()
    return after


def check_policy_change(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Refuse to shorten or remove a retention policy that is locked."""
    old, new = before.get("retentionPolicy") or {}, after.get("retentionPolicy") or {}
    if old.get("isLocked") and int(new.get("retentionPeriod", 0)) < int(old["retentionPeriod"]):
        message = f"Cannot reduce retention duration of a locked Retention Policy for bucket '{name}'."
        raise errors.StorageError(403, "forbidden", message)


def lock_policy(settings: dict[str, Any]) -> dict[str, Any]:
    """A bucket's settings with its retention policy locked, for ever."""
    policy = settings.get("retentionPolicy")
    if not policy:
        raise errors.invalid_request("There is no retention policy on this bucket to lock.")
    return settings | {"retentionPolicy": policy | {"isLocked": True}}


def _check_retention(holder: BucketRecord, given: Mapping[str, Any], now: int) -> None:
    if (holder.settings.get("objectRetention") or {}).get("mode") != "Enabled":
        message = f"Object retention is not enabled for bucket '{holder.name}'."
        raise errors.invalid_request(message, location="retention")
    end = parse_time(given["retainUntilTime"])
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
