"""Buckets, as Google's pages "Buckets" (JSON API), "Bucket naming guidelines" and "Object Versioning" describe them."""

from datetime import UTC, datetime, timedelta

import pytest
from google.api_core import exceptions
from google.cloud import storage

from cloud_storage_server import Cloud


def test_a_new_bucket_says_what_it_is(cloud: Cloud, bucket_name: str) -> None:
    begun = datetime.now(UTC)
    made = cloud.client.create_bucket(bucket_name, location="europe-west1")
    found = cloud.client.get_bucket(bucket_name)
    assert (found.name, found.id, found.metageneration) == (bucket_name, bucket_name, 1)
    assert (found.location, found.location_type, found.storage_class) == ("EUROPE-WEST1", "region", "STANDARD")
    assert found.etag == made.etag
    edge = timedelta(seconds=1)  # a time may be rounded
    assert begun - edge <= found.time_created <= datetime.now(UTC) + edge
    assert cloud.http.get(found.self_link, timeout=60).json()["name"] == bucket_name


def test_the_default_location_is_the_us_multi_region(bucket: storage.Bucket) -> None:
    assert (bucket.location, bucket.location_type) == ("US", "multi-region")


def test_a_bucket_is_made_once(cloud: Cloud, bucket: storage.Bucket) -> None:
    with pytest.raises(exceptions.Conflict, match="you already own it"):
        cloud.client.create_bucket(bucket.name)


def test_a_bucket_that_is_not_there(cloud: Cloud, bucket_name: str) -> None:
    with pytest.raises(exceptions.NotFound, match="The specified bucket does not exist"):
        cloud.client.get_bucket(bucket_name)
    assert cloud.client.lookup_bucket(bucket_name) is None
    assert not cloud.client.bucket(bucket_name).exists()
    with pytest.raises(exceptions.NotFound):
        list(cloud.client.list_blobs(bucket_name))
    with pytest.raises(exceptions.NotFound):
        cloud.client.bucket(bucket_name).blob("x").upload_from_string("x")


@pytest.mark.parametrize(
    "wrong",
    ["ab", "-abc", "abc-", "Abc", "a" * 64, "192.168.5.4", "goog-x", "my-google-x", "g00gle", "a..b", "a b", "é-x"],
)
def test_names_that_no_bucket_may_have(cloud: Cloud, wrong: str) -> None:
    answer = cloud.call("POST", "/storage/v1/b?project=test", json={"name": wrong})
    assert (answer.status_code, answer.json()["error"]["errors"][0]["reason"]) == (400, "invalid")
    assert not (cloud.root / wrong).exists()


def test_names_at_the_edge(cloud: Cloud, bucket_name: str) -> None:
    for allowed in (f"{bucket_name}_x", f"{bucket_name}.example.com", bucket_name + "a" * (63 - len(bucket_name))):
        cloud.client.create_bucket(allowed).delete()


def test_a_bucket_needs_a_name_and_a_project(cloud: Cloud, bucket_name: str) -> None:
    assert cloud.call("POST", "/storage/v1/b", json={"name": bucket_name}).status_code == 400
    assert cloud.call("POST", "/storage/v1/b?project=test", json={}).status_code == 400
    assert cloud.call("GET", "/storage/v1/b").status_code == 400
    answer = cloud.call("POST", "/storage/v1/b?project=test", data="{")
    assert answer.json()["error"]["errors"][0]["reason"] == "parseError"


def test_buckets_are_listed_by_project_prefix_and_page(cloud: Cloud, bucket_name: str) -> None:
    made = [cloud.client.create_bucket(f"{bucket_name}-{letter}", project="another").name for letter in "abc"]
    assert [each.name for each in cloud.client.list_buckets(project="another", prefix=bucket_name)] == made
    pages = list(cloud.client.list_buckets(project="another", prefix=bucket_name, page_size=2).pages)
    assert [[each.name for each in page] for page in pages] == [made[:2], made[2:]]
    assert list(cloud.client.list_buckets(prefix=bucket_name)) == []


def test_a_bucket_that_holds_something_stays(cloud: Cloud, bucket: storage.Bucket) -> None:
    bucket.blob("x").upload_from_string("x")
    with pytest.raises(exceptions.Conflict, match="not empty"):
        bucket.delete()
    bucket.delete(force=True)
    assert not bucket.exists()
    assert not (cloud.root / bucket.name).exists()


def test_a_deleted_bucket_can_be_made_again(cloud: Cloud, bucket: storage.Bucket) -> None:
    bucket.delete()
    with pytest.raises(exceptions.NotFound):
        bucket.delete()
    assert list(cloud.client.create_bucket(bucket.name).list_blobs()) == []


def test_labels_are_patched_one_by_one(cloud: Cloud, bucket: storage.Bucket) -> None:
    bucket.labels = {"team": "search", "stage": "test"}
    bucket.patch()
    assert bucket.metageneration == 2
    labels = bucket.labels
    del labels["team"]
    bucket.labels = labels
    bucket.patch()
    again = cloud.client.get_bucket(bucket.name)
    assert (again.labels, again.metageneration) == ({"stage": "test"}, 3)


def test_update_replaces_all_that_can_be_set(cloud: Cloud, bucket: storage.Bucket) -> None:
    bucket.labels = {"a": "b"}
    bucket.patch()
    answer = cloud.call("PUT", f"/storage/v1/b/{bucket.name}", json={"versioning": {"enabled": True}})
    assert answer.json().get("labels") is None
    assert answer.json()["versioning"] == {"enabled": True}
    assert answer.json()["location"] == "US"


def test_settings_are_kept_and_answered(cloud: Cloud, bucket: storage.Bucket) -> None:
    bucket.versioning_enabled = True
    bucket.add_lifecycle_delete_rule(age=30)
    bucket.soft_delete_policy.retention_duration_seconds = 7 * 86400
    bucket.storage_class = "NEARLINE"
    bucket.cors = [{"origin": ["*"], "method": ["GET"]}]
    bucket.patch()
    again = cloud.client.get_bucket(bucket.name)
    assert again.versioning_enabled
    assert [dict(rule) for rule in again.lifecycle_rules] == [{"action": {"type": "Delete"}, "condition": {"age": 30}}]
    assert again.soft_delete_policy.retention_duration_seconds == 7 * 86400
    assert (again.storage_class, again.cors) == ("NEARLINE", [{"origin": ["*"], "method": ["GET"]}])
    blob = again.blob("x")
    blob.upload_from_string("x")
    assert blob.storage_class == "NEARLINE"


def test_metageneration_preconditions_of_a_bucket(bucket: storage.Bucket) -> None:
    bucket.labels = {"a": "b"}
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.patch(if_metageneration_match=7)
    bucket.labels = {"a": "b"}
    bucket.patch(if_metageneration_match=1)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.delete(if_metageneration_match=1)


def test_permissions_and_policy(bucket: storage.Bucket) -> None:
    asked = ["storage.objects.get", "storage.buckets.delete"]
    assert bucket.test_iam_permissions(asked) == asked
    assert any(binding["role"] == "roles/storage.legacyBucketOwner" for binding in bucket.get_iam_policy().bindings)


def test_a_policy_is_kept_as_it_is_set(cloud: Cloud, bucket: storage.Bucket) -> None:
    policy = bucket.get_iam_policy()
    before = policy.etag
    policy["roles/storage.objectViewer"] = {"serviceAccount:me@test.iam.gserviceaccount.com"}
    assert bucket.set_iam_policy(policy)["roles/storage.objectViewer"] == policy["roles/storage.objectViewer"]
    bucket.reload()
    bucket.labels = {"a": "b"}
    bucket.update()
    assert bucket.get_iam_policy()["roles/storage.objectViewer"] == policy["roles/storage.objectViewer"]
    assert "iamPolicy" not in cloud.call("GET", f"/storage/v1/b/{bucket.name}").json()
    policy.etag = before
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.set_iam_policy(policy)
    for wrong in ({"bindings": {}}, {"bindings": [{"members": []}]}, {"bindings": [], "version": 9}):
        assert cloud.call("PUT", f"/storage/v1/b/{bucket.name}/iam", json=wrong).status_code == 400
    assert cloud.call("PUT", "/storage/v1/b/nobody-has-this/iam", json={"bindings": []}).status_code == 404


def test_a_noncurrent_generation_is_kept_and_can_be_read_and_restored(bucket: storage.Bucket) -> None:
    bucket.versioning_enabled = True
    bucket.patch()
    blob = bucket.blob("x")
    blob.upload_from_string("first")
    first = blob.generation
    blob.upload_from_string("second")
    second = blob.generation
    versions = list(bucket.list_blobs(versions=True))
    assert [version.generation for version in versions] == [first, second]
    assert versions[0].time_deleted is not None
    assert versions[1].time_deleted is None
    assert [each.generation for each in bucket.list_blobs()] == [second]
    assert bucket.blob("x", generation=first).download_as_bytes() == b"first"
    restored = bucket.copy_blob(bucket.blob("x"), bucket, "x", source_generation=first)
    assert restored.download_as_bytes() == b"first"
    assert restored.generation > second


def test_deleting_keeps_a_generation_and_naming_it_removes_it(bucket: storage.Bucket) -> None:
    bucket.versioning_enabled = True
    bucket.patch()
    blob = bucket.blob("x")
    blob.upload_from_string("first")
    generation = blob.generation
    bucket.blob("x").delete()
    assert not bucket.blob("x").exists()
    assert [each.name for each in bucket.list_blobs()] == []
    assert bucket.blob("x", generation=generation).download_as_bytes() == b"first"
    with pytest.raises(exceptions.Conflict):
        bucket.delete()
    bucket.blob("x", generation=generation).delete()
    assert list(bucket.list_blobs(versions=True)) == []
    bucket.delete()


def test_without_versioning_nothing_is_kept(bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.upload_from_string("first")
    first = blob.generation
    blob.upload_from_string("second")
    with pytest.raises(exceptions.NotFound):
        bucket.blob("x", generation=first).reload()
    assert len(list(bucket.list_blobs(versions=True))) == 1
