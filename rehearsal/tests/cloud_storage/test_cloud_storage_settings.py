"""Settings of buckets and objects that are played, and what is refused by its name or because it cannot be."""

import base64
import datetime
import gzip
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import storage
from google.cloud.storage import transfer_manager

from cloud_storage_server import Cloud
from vertex_rehearsal.cloud_storage import methods
from vertex_rehearsal.project.storage_authorization import PERMISSIONS

KEY = b"k" * 32


def test_autoclass_chooses_the_class(bucket: storage.Bucket) -> None:
    bucket.autoclass_enabled = True
    bucket.patch()
    assert (bucket.autoclass_terminal_storage_class, bucket.autoclass_enabled) == ("NEARLINE", True)
    toggled, chosen = bucket.autoclass_toggle_time, bucket.autoclass_terminal_storage_class_update_time
    blob = bucket.blob("x")
    blob.storage_class = "COLDLINE"
    blob.upload_from_string("x")
    assert blob.storage_class == "STANDARD"
    bucket.autoclass_terminal_storage_class = "ARCHIVE"
    bucket.patch()
    assert bucket.autoclass_terminal_storage_class_update_time > chosen
    assert bucket.autoclass_toggle_time == toggled
    bucket.add_lifecycle_set_storage_class_rule("COLDLINE", age=1)
    with pytest.raises(exceptions.BadRequest, match="Autoclass"):
        bucket.patch()


@pytest.mark.parametrize(
    "wrong",
    [
        {"autoclass": {"enabled": True, "terminalStorageClass": "COLDLINE"}},
        {"autoclass": True},
        {"lifecycle": {"rule": [{"action": {"type": "Shred"}, "condition": {"age": 1}}]}},
        {"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"mood": 1}}]}},
        {"lifecycle": {"rule": [{"action": {"type": "Delete"}}]}},
        {"versioning": {"enabled": "perhaps"}},
        {"rpo": "ASYNC_TURBO"},
        {"rpo": "NOW"},
        {"cors": {}},
        {"location": "EU"},
        {"encryption": {"strength": 9}},
        {"storageClass": "CHEAP"},
    ],
)
def test_settings_that_cannot_be(cloud: Cloud, bucket: storage.Bucket, wrong: dict[str, Any]) -> None:
    assert cloud.call("PATCH", f"/storage/v1/b/{bucket.name}", json=wrong).status_code == 400
    bucket.reload()
    assert bucket.metageneration == 1


@pytest.mark.parametrize(
    "setting",
    [
        {"hierarchicalNamespace": {"enabled": True}},
        {"ipFilter": {"mode": "Enabled"}},
        {"encryption": {"defaultKmsKeyName": "projects/p/locations/us/keyRings/r/cryptoKeys/k"}},
    ],
)
def test_a_setting_that_is_not_played_is_refused_by_its_name(
    cloud: Cloud, bucket_name: str, setting: dict[str, Any]
) -> None:
    answer = cloud.call("POST", "/storage/v1/b?project=test", json={"name": bucket_name} | setting)
    assert answer.status_code == 501
    assert next(iter(setting)) in answer.json()["error"]["message"]
    assert cloud.client.lookup_bucket(bucket_name) is None


def test_a_setting_that_is_not_played_may_be_off(cloud: Cloud, bucket_name: str) -> None:
    body = {"name": bucket_name, "hierarchicalNamespace": {"enabled": False}}
    made = cloud.call("POST", "/storage/v1/b?project=test", json=body).json()
    assert made["hierarchicalNamespace"] == {"enabled": False}
    found = cloud.call("PUT", f"/storage/v1/b/{bucket_name}", json={}).json()
    assert found["hierarchicalNamespace"] == {"enabled": False}


@pytest.mark.parametrize("path", ["notificationConfigs", "folders", "managedFolders", "anywhereCaches", "o/x/iam"])
def test_a_method_that_is_not_played_says_so(cloud: Cloud, bucket: storage.Bucket, path: str) -> None:
    answer = cloud.call("GET", f"/storage/v1/b/{bucket.name}/{path}")
    assert answer.status_code == 501
    assert path in answer.json()["error"]["message"]


def test_headers_and_parameters_that_are_not_played_are_refused(cloud: Cloud, bucket: storage.Bucket) -> None:
    upload = f"/upload/storage/v1/b/{bucket.name}/o?uploadType=media&name=x"
    assert cloud.call("POST", f"{upload}&kmsKeyName=k", data=b"x").status_code == 501
    for header in ("x-goog-object-lock-mode", "x-goog-encryption-kms-key-name", "x-goog-temporary-hold"):
        answer = cloud.call("PUT", f"/{bucket.name}/x", data=b"x", headers={header: "x"})
        assert answer.status_code == 501
        assert header in answer.text
    assert cloud.call("POST", f"/{bucket.name}", data=b"x").status_code == 501
    body = "<CreateBucketConfiguration><Autoclass/></CreateBucketConfiguration>"
    assert cloud.call("PUT", f"/{bucket.name}-2", data=body).status_code == 501
    assert not bucket.blob("x").exists()


def test_locations(cloud: Cloud, bucket_name: str) -> None:
    for wrong in ("nowhere", "US-CENTRAL", 7, "us-central1 "):
        answer = cloud.call("POST", "/storage/v1/b?project=test", json={"name": bucket_name, "location": wrong})
        assert "location constraint" in answer.json()["error"]["message"]
    found = cloud.client.create_bucket(bucket_name, location="us", data_locations=["us-west1", "US-EAST1"])
    assert (found.location, found.location_type) == ("US", "dual-region")
    assert found.data_locations == ["US-EAST1", "US-WEST1"]
    for regions in (["US-EAST1"], ["US-EAST1", "US-EAST1"], ["US-EAST1", "EUROPE-WEST1"], "US-EAST1"):
        body = {"name": f"{bucket_name}-2", "location": "US", "customPlacementConfig": {"dataLocations": regions}}
        assert cloud.call("POST", "/storage/v1/b?project=test", json=body).status_code == 400


def test_rules_of_encryption(cloud: Cloud, bucket: storage.Bucket) -> None:
    path = f"/storage/v1/b/{bucket.name}"
    rule = {"googleManagedEncryptionEnforcementConfig": {"restrictionMode": "FullyRestricted"}}
    kept = cloud.call("PATCH", path, json={"encryption": rule}).json()["encryption"]
    assert kept["googleManagedEncryptionEnforcementConfig"]["effectiveTime"]
    with pytest.raises(exceptions.PreconditionFailed, match="googleManaged"):
        bucket.blob("x").upload_from_string("x")
    bucket.blob("x", encryption_key=KEY).upload_from_string("x")
    cleared = {"encryption": {"googleManagedEncryptionEnforcementConfig": None}}
    assert "encryption" not in cloud.call("PATCH", path, json=cleared).json()
    bucket.blob("y").upload_from_string("y")


def test_an_object_is_read_with_the_key_it_was_written_with(bucket: storage.Bucket) -> None:
    blob = bucket.blob("x", encryption_key=KEY)
    blob.upload_from_string("secret")
    assert blob.download_as_bytes() == b"secret"
    with pytest.raises(exceptions.BadRequest, match="encrypted by a customer-supplied encryption key"):
        bucket.blob("x").download_as_bytes()
    with pytest.raises(exceptions.BadRequest, match="incorrect"):
        bucket.blob("x", encryption_key=b"l" * 32).download_as_bytes()
    found = bucket.get_blob("x")
    assert (found.md5_hash, found.crc32c, found.size) == (None, None, 6)
    plain = bucket.blob("y")
    plain.upload_from_string("plain")
    with pytest.raises(exceptions.BadRequest, match="not encrypted"):
        bucket.blob("y", encryption_key=KEY).download_as_bytes()
    with pytest.raises(exceptions.BadRequest):
        bucket.blob("z").rewrite(bucket.blob("x"))
    rotated = bucket.blob("x", encryption_key=b"l" * 32)
    assert rotated.rewrite(blob)[0] is None
    assert rotated.download_as_bytes() == b"secret"
    opened = bucket.blob("open")
    opened.rewrite(rotated)
    assert opened.download_as_bytes() == b"secret"


def test_keys_that_cannot_be(cloud: Cloud, bucket: storage.Bucket) -> None:
    digest = base64.b64encode(hashlib.sha256(KEY).digest()).decode()
    for algorithm, key, given in (("AES1", KEY, digest), ("AES256", b"short", digest), ("AES256", KEY, "x")):
        headers = {
            "x-goog-encryption-algorithm": algorithm,
            "x-goog-encryption-key": base64.b64encode(key).decode(),
            "x-goog-encryption-key-sha256": given,
        }
        assert cloud.call("PUT", f"/{bucket.name}/x", data=b"x", headers=headers).status_code == 400


def test_a_custom_time_is_exact(cloud: Cloud, bucket: storage.Bucket) -> None:
    moment = datetime.datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=datetime.UTC)
    blob = bucket.blob("x")
    blob.custom_time = moment
    blob.upload_from_string("x")
    assert bucket.get_blob("x").custom_time == moment
    path = f"/storage/v1/b/{bucket.name}/o/x"
    earlier = cloud.call("PATCH", path, json={"customTime": "2026-03-01T12:00:00.123455Z"})
    assert (earlier.status_code, "earlier time" in earlier.text) == (400, True)
    assert cloud.call("PATCH", path, json={"customTime": "2026-03-01T12:00:00.123457Z"}).status_code == 200


def test_contexts_are_kept_and_listed_by(cloud: Cloud, bucket: storage.Bucket) -> None:
    for name in ("a", "b", "c"):
        bucket.blob(name).upload_from_string("x")
    path = f"/storage/v1/b/{bucket.name}/o"
    first = cloud.call("PATCH", f"{path}/a", json={"contexts": {"custom": {"team": {"value": "nlp"}}}}).json()
    cloud.call("PATCH", f"{path}/b", json={"contexts": {"custom": {"team": {"value": "ads"}, "old": {"value": "1"}}}})
    changed = cloud.call("PATCH", f"{path}/a", json={"contexts": {"custom": {"stage": {"value": "test"}}}}).json()
    assert changed["contexts"]["custom"]["team"] == first["contexts"]["custom"]["team"]

    def list_names(expression: str) -> list[str]:
        found = cloud.call("GET", path, params={"filter": expression}).json()
        return [item["name"] for item in found.get("items", [])]

    assert list_names('contexts."team":*') == ["a", "b"]
    assert list_names('contexts."team"="ads"') == ["b"]
    assert list_names('-contexts."team":*') == ["c"]
    assert list_names('-contexts."team"="ads"') == ["a", "c"]
    for wrong in ("team=ads", 'contexts."team"', 'name="a"'):
        assert cloud.call("GET", path, params={"filter": wrong}).status_code == 400
    copied = cloud.call("POST", f"{path}/a/copyTo/b/{bucket.name}/o/d").json()
    assert set(copied["contexts"]["custom"]) == {"team", "stage"}
    dropped = cloud.call("POST", f"{path}/a/rewriteTo/b/{bucket.name}/o/d?dropContextGroups=custom").json()
    assert "contexts" not in dropped["resource"]
    assert "contexts" not in cloud.call("PATCH", f"{path}/a", json={"contexts": None}).json()


@pytest.mark.parametrize(
    "wrong",
    [
        {"custom": {"-x": {"value": "v"}}},
        {"custom": {"x": {"value": ""}}},
        {"custom": {"x": "v"}},
        {"custom": {f"k{number}": {"value": "v"} for number in range(51)}},
        {"other": {}},
        {"custom": {"x": {"value": "a/b"}}},
    ],
)
def test_contexts_that_cannot_be(cloud: Cloud, bucket: storage.Bucket, wrong: dict[str, Any]) -> None:
    bucket.blob("x").upload_from_string("x")
    assert cloud.call("PATCH", f"/storage/v1/b/{bucket.name}/o/x", json={"contexts": wrong}).status_code == 400


@pytest.mark.parametrize("glob", ["[a", "{a,b", "a}", "a\\", "a[]", "}{"])
def test_globs_that_cannot_be(cloud: Cloud, bucket: storage.Bucket, glob: str) -> None:
    answer = cloud.call("GET", f"/storage/v1/b/{bucket.name}/o", params={"matchGlob": glob})
    assert answer.status_code == 400
    assert answer.json()["error"]["errors"][0]["location"] == "matchGlob"


@pytest.mark.parametrize(
    "fields", ["nothing", "items(name,colour)", "items/name/first", "items(name", "kind,items/acl/x"]
)
def test_fields_that_there_are_not(cloud: Cloud, bucket: storage.Bucket, fields: str) -> None:
    answer = cloud.call("GET", f"/storage/v1/b/{bucket.name}/o", params={"fields": fields})
    assert answer.status_code == 400
    assert "Invalid field selection" in answer.json()["error"]["message"]


def test_fields_of_the_users_own(cloud: Cloud, bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.metadata = {"k": "v", "l": "w"}
    blob.upload_from_string("x")
    path = f"/storage/v1/b/{bucket.name}/o/x"
    assert cloud.call("GET", path, params={"fields": "metadata/k"}).json() == {"metadata": {"k": "v"}}
    assert cloud.call("GET", path, params={"fields": "metadata(*)"}).json() == {"metadata": {"k": "v", "l": "w"}}


def test_a_wrong_checksum_at_the_beginning_is_not_forgotten_at_the_end(cloud: Cloud, bucket: storage.Bucket) -> None:
    begun = cloud.call(
        "POST",
        f"/upload/storage/v1/b/{bucket.name}/o?uploadType=resumable",
        json={"name": "x", "crc32c": "AAAAAA=="},
    )
    address = begun.headers["Location"]
    right = {"x-goog-hash": "crc32c=n03x6A=="}  # of what is sent
    answer = cloud.http.put(address, data=b"Hello world", headers=right, timeout=60)
    assert answer.status_code == 400
    assert "crc32c" in answer.text.lower()
    assert not bucket.blob("x").exists()


def test_packed_content_in_parts(bucket: storage.Bucket, tmp_path: Path) -> None:
    content = os.urandom(6 * 2**20)
    (tmp_path / "packed").write_bytes(gzip.compress(content))
    blob = bucket.blob("x")
    blob.content_encoding = "gzip"
    transfer_manager.upload_chunks_concurrently(
        str(tmp_path / "packed"), blob, chunk_size=5 * 2**20, worker_type="thread"
    )
    assert bucket.get_blob("x").content_encoding == "gzip"
    assert bucket.blob("x").download_as_bytes() == content
    assert gzip.decompress(bucket.blob("x").download_as_bytes(raw_download=True)) == content


def test_every_method_has_its_line_and_its_permission() -> None:
    listed = list(methods.list_storage_methods())
    names = [method.id for method in listed]
    assert len(names) == len(set(names))
    played = {method.id for method in listed if method.is_played}
    assert played == set(PERMISSIONS) - {"storage.batch", "storage.other"}
    assert all(method.extent == "not" for method in listed if not method.is_played)
