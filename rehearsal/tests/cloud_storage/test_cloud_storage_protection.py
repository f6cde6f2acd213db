"""What keeps objects: holds, retention policies, an object's own retention, and soft delete."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from google.api_core import exceptions
from google.cloud import storage

from cloud_storage_server import Cloud
from vertex_rehearsal.cloud_storage import errors
from vertex_rehearsal.cloud_storage.listing import Query
from vertex_rehearsal.cloud_storage.records import BucketRecord
from vertex_rehearsal.cloud_storage.store import Store

WEEK_S = 7 * 86_400


def test_a_retention_policy_keeps_objects(cloud: Cloud, bucket: storage.Bucket) -> None:
    bucket.retention_period = 1000
    bucket.patch()
    assert (bucket.retention_period, bucket.retention_policy_locked) == (1000, None)
    assert bucket.retention_policy_effective_time is not None
    blob = bucket.blob("x")
    blob.upload_from_string("x")
    assert blob.retention_expiration_time == blob.time_created + timedelta(seconds=1000)
    with pytest.raises(exceptions.Forbidden, match="retention policy"):
        blob.delete()
    with pytest.raises(exceptions.Forbidden, match="cannot be deleted or overwritten until"):
        bucket.blob("x").upload_from_string("y")
    assert blob.download_as_bytes() == b"x"
    assert next(iter(bucket.list_blobs())).retention_expiration_time == blob.retention_expiration_time
    bucket.retention_period = None
    bucket.patch()
    blob.reload()
    assert blob.retention_expiration_time is None
    blob.delete()


def test_a_kept_version_may_be_replaced_and_not_deleted(bucket: storage.Bucket) -> None:
    bucket.retention_period = 1000
    bucket.versioning_enabled = True
    bucket.patch()
    blob = bucket.blob("x")
    blob.upload_from_string("first")
    first = blob.generation
    bucket.blob("x").upload_from_string("second")
    with pytest.raises(exceptions.Forbidden):
        bucket.blob("x", generation=first).delete()


def test_a_locked_policy_can_only_become_longer(cloud: Cloud, bucket: storage.Bucket) -> None:
    path = f"/storage/v1/b/{bucket.name}"
    assert cloud.call("POST", f"{path}/lockRetentionPolicy").status_code == 400, "ifMetagenerationMatch is required"
    assert cloud.call("POST", f"{path}/lockRetentionPolicy?ifMetagenerationMatch=1").status_code == 400, "no policy"
    bucket.retention_period = 1000
    bucket.patch()
    assert cloud.call("POST", f"{path}/lockRetentionPolicy?ifMetagenerationMatch=1").status_code == 412
    bucket.lock_retention_policy()
    assert bucket.retention_policy_locked
    for period in (999, None):
        bucket.retention_period = period
        with pytest.raises(exceptions.Forbidden, match="Cannot reduce retention duration of a locked"):
            bucket.patch()
    assert cloud.call("PUT", path, json={}).status_code == 403
    bucket.reload()
    bucket.retention_period = 2000
    bucket.patch()
    assert (bucket.retention_period, bucket.retention_policy_locked) == (2000, True)


@pytest.mark.parametrize("wrong", [{"retentionPeriod": "0"}, {"retentionPeriod": "x"}, {"retentionPeriod": 4e10}, [1]])
def test_retention_periods_that_cannot_be(cloud: Cloud, bucket: storage.Bucket, wrong: object) -> None:
    answer = cloud.call("PATCH", f"/storage/v1/b/{bucket.name}", json={"retentionPolicy": wrong})
    assert answer.status_code == 400
    assert "retentionP" in answer.json()["error"]["message"]


def test_new_objects_are_held_where_the_bucket_says_so(cloud: Cloud, bucket: storage.Bucket) -> None:
    bucket.default_event_based_hold = True
    bucket.retention_period = 1000
    bucket.patch()
    blob = bucket.blob("x")
    blob.upload_from_string("x")
    assert (blob.event_based_hold, blob.retention_expiration_time) == (True, None)
    with pytest.raises(exceptions.Forbidden, match="Event-Based hold"):
        blob.delete()
    released = datetime.now(UTC)
    blob.event_based_hold = False
    blob.patch()
    blob.reload()
    assert blob.retention_expiration_time >= released + timedelta(seconds=999), "the period begins at the release"
    path = f"/upload/storage/v1/b/{bucket.name}/o?uploadType=resumable"
    begun = cloud.call("POST", path, json={"name": "y", "eventBasedHold": False})
    assert cloud.http.put(begun.headers["Location"], data=b"y", timeout=60).json()["eventBasedHold"] is False


def test_an_object_has_a_retention_of_its_own(cloud: Cloud, bucket_name: str) -> None:
    bucket = cloud.client.create_bucket(bucket_name, enable_object_retention=True)
    assert bucket.object_retention_mode == "Enabled"
    blob = bucket.blob("x")
    end = datetime.now(UTC) + timedelta(hours=1)
    blob.retention.mode, blob.retention.retain_until_time = "Unlocked", end
    blob.upload_from_string("x")
    assert blob.retention.retain_until_time == end
    with pytest.raises(exceptions.Forbidden):
        blob.delete()
    blob.retention.retain_until_time = end - timedelta(minutes=30)
    with pytest.raises(exceptions.Forbidden, match="overrideUnlockedRetention"):
        blob.patch()
    blob.patch(override_unlocked_retention=True)
    blob.retention.mode = "Locked"
    blob.patch()
    for mode, until in ((None, None), ("Unlocked", end), ("Locked", end - timedelta(minutes=40))):
        blob.retention.mode, blob.retention.retain_until_time = mode, until
        with pytest.raises(exceptions.Forbidden, match="locked retention"):
            blob.patch(override_unlocked_retention=True)


def test_an_objects_retention_wants_a_bucket_that_has_it(cloud: Cloud, bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.upload_from_string("x")
    path = f"/storage/v1/b/{bucket.name}/o/x"
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    answer = cloud.call("PATCH", path, json={"retention": {"mode": "Locked", "retainUntilTime": later}})
    assert "not enabled" in answer.json()["error"]["message"]
    for wrong in (
        {"mode": "Locked"},
        {"mode": "Loose", "retainUntilTime": later},
        {"mode": "Locked", "retainUntilTime": "x"},
    ):
        assert cloud.call("PATCH", path, json={"retention": wrong}).status_code == 400


def test_a_deleted_object_can_be_restored(cloud: Cloud, bucket: storage.Bucket) -> None:
    bucket.soft_delete_policy.retention_duration_seconds = WEEK_S
    bucket.patch()
    blob = bucket.blob("a/x")
    blob.metadata = {"k": "v"}
    blob.upload_from_string("first")
    first = blob.generation
    blob.upload_from_string("second")
    blob.delete()
    assert list(bucket.list_blobs()) == []
    deleted = list(bucket.list_blobs(prefix="a/", soft_deleted=True))
    assert [each.generation for each in deleted] == [first, blob.generation]
    assert deleted[0].hard_delete_time - deleted[0].soft_delete_time == timedelta(seconds=WEEK_S)
    assert bucket.get_blob("a/x", generation=first, soft_deleted=True).metadata == {"k": "v"}
    assert bucket.get_blob("a/x", generation=first) is None
    path = f"/storage/v1/b/{bucket.name}/o"
    assert cloud.call("GET", f"{path}/a%2Fx?softDeleted=true").status_code == 400, "generation is required"
    assert cloud.call("GET", f"{path}?softDeleted=true&versions=true").status_code == 400
    restored = bucket.restore_blob("a/x", generation=first)
    assert (restored.download_as_bytes(), restored.metadata) == (b"first", {"k": "v"})
    assert restored.generation not in (first, blob.generation)
    with pytest.raises(exceptions.NotFound):
        bucket.restore_blob("a/x", generation=1)


def test_a_deleted_version_can_be_restored(bucket: storage.Bucket) -> None:
    bucket.soft_delete_policy.retention_duration_seconds = WEEK_S
    bucket.versioning_enabled = True
    bucket.patch()
    blob = bucket.blob("x")
    blob.upload_from_string("first")
    first = blob.generation
    blob.upload_from_string("second")
    assert list(bucket.list_blobs(soft_deleted=True)) == []
    bucket.blob("x", generation=first).delete()
    assert [each.generation for each in bucket.list_blobs(soft_deleted=True)] == [first]
    assert bucket.restore_blob("x", generation=first).download_as_bytes() == b"first"


def test_a_deleted_bucket_can_be_restored_with_its_objects(cloud: Cloud, bucket: storage.Bucket) -> None:
    bucket.soft_delete_policy.retention_duration_seconds = WEEK_S
    bucket.patch()
    blob = bucket.blob("x")
    blob.upload_from_string("x")
    blob.delete()
    bucket.delete()
    other = cloud.client.create_bucket(bucket.name)
    assert list(other.list_blobs(soft_deleted=True)) == []
    with pytest.raises(exceptions.Conflict):
        cloud.client.restore_bucket(bucket.name, generation=bucket.generation)
    other.delete()
    found = cloud.client.get_bucket(bucket.name, generation=bucket.generation, soft_deleted=True)
    assert found.hard_delete_time - found.soft_delete_time == timedelta(seconds=WEEK_S)
    listed = cloud.client.list_buckets(prefix=bucket.name, soft_deleted=True)
    assert [each.generation for each in listed] == [bucket.generation]
    restored = cloud.client.restore_bucket(bucket.name, generation=bucket.generation)
    assert (restored.generation, restored.soft_delete_time) == (bucket.generation, None)
    assert restored.restore_blob("x", generation=blob.generation).download_as_bytes() == b"x"
    with pytest.raises(exceptions.NotFound):
        cloud.client.restore_bucket(bucket.name, generation=bucket.generation)


def test_soft_delete_is_off_or_for_a_week_to_three_months(cloud: Cloud, bucket: storage.Bucket) -> None:
    path = f"/storage/v1/b/{bucket.name}"
    for wrong in (1, WEEK_S - 1, 90 * 86_400 + 1, "x"):
        answer = cloud.call("PATCH", path, json={"softDeletePolicy": {"retentionDurationSeconds": wrong}})
        assert answer.status_code == 400
    answer = cloud.call("PATCH", path, json={"softDeletePolicy": {"retentionDurationSeconds": 0}})
    assert answer.json()["softDeletePolicy"]["retentionDurationSeconds"] == "0"


def test_what_was_deleted_long_ago_is_gone_with_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    policy = {"softDeletePolicy": {"retentionDurationSeconds": str(WEEK_S)}}
    holder = store.create_bucket("kept-for-a-week", project="test", settings=policy)
    made = store.put(holder.name, "x", store.files.stage_content([b"x"]), settings={})
    store.delete(holder.name, "x")
    kept = tmp_path / ".cloud-storage" / "noncurrent"
    assert [path.read_bytes() for path in kept.iterdir()] == [b"x"]
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + (WEEK_S + 1) * 1_000_000_000)
    with pytest.raises(errors.StorageError):
        store.soft_deleted(holder.name, "x", made.generation)
    assert store.list_objects(Query(holder.name, soft_deleted=True)).items == []
    assert list(kept.iterdir()) == []
    store.close()


def test_a_bucket_says_what_it_keeps() -> None:
    plain = BucketRecord("x", "test", 1, 1)
    assert (plain.soft_delete_us, plain.has_autoclass, plain.has_uniform_access) == (0, False, False)
