"""Who may do what: policies with conditions, uniform access, public access prevention, access control lists."""

from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import storage

from cloud_storage_server import Cloud

VIEWER = "roles/storage.objectViewer"
CONDITION = {"title": "always", "expression": "true"}


def set_uniform(bucket: storage.Bucket, *, enabled: bool) -> None:
    """Uniform bucket-level access, on or off."""
    bucket.iam_configuration.uniform_bucket_level_access_enabled = enabled
    bucket.patch()


def test_conditions_want_uniform_access_and_version_3(cloud: Cloud, bucket: storage.Bucket) -> None:
    policy = bucket.get_iam_policy(requested_policy_version=3)
    binding = {"role": VIEWER, "members": {"user:me@example.com"}, "condition": CONDITION}
    policy.bindings.append(binding)
    with pytest.raises(exceptions.PreconditionFailed, match="enable uniform bucket-level access"):
        bucket.set_iam_policy(policy)
    set_uniform(bucket, enabled=True)
    policy = bucket.get_iam_policy(requested_policy_version=3)
    policy.bindings.append(binding)
    with pytest.raises(exceptions.BadRequest, match="at least 3"):
        bucket.set_iam_policy(policy)
    policy.version = 3
    assert bucket.set_iam_policy(policy).version == 3
    kept = bucket.get_iam_policy(requested_policy_version=3)
    assert kept.bindings[-1]["condition"] == CONDITION
    hidden = bucket.get_iam_policy().bindings[-1]
    assert hidden["role"].startswith(f"{VIEWER}_withcond_")
    assert "condition" not in hidden


@pytest.mark.parametrize(
    "wrong",
    [
        {"role": "owner", "members": ["allUsers"]},
        {"role": VIEWER, "members": ["me@example.com"]},
        {"role": VIEWER, "members": ["user:me"]},
        {"role": VIEWER, "members": ["everybody"]},
        {"role": VIEWER, "members": "allUsers"},
        {"role": VIEWER, "members": ["domain:nodot"]},
        {"role": VIEWER, "members": ["allUsers"], "condition": {"title": "no expression"}},
        {"role": VIEWER, "members": ["allUsers"], "condition": "true"},
    ],
)
def test_bindings_that_cannot_be(cloud: Cloud, bucket: storage.Bucket, wrong: dict[str, Any]) -> None:
    answer = cloud.call("PUT", f"/storage/v1/b/{bucket.name}/iam", json={"bindings": [wrong], "version": 3})
    assert answer.status_code == 400
    assert len(bucket.get_iam_policy().bindings) == 2


def test_members_that_there_are(cloud: Cloud, bucket: storage.Bucket) -> None:
    members = [
        "allAuthenticatedUsers", "user:me@example.com", "serviceAccount:a@test.iam.gserviceaccount.com",
        "group:us@example.com", "domain:example.com", "projectEditor:test", "principalSet://iam.googleapis.com/x/y",
        "deleted:user:me@example.com?uid=1", "serviceAccount:test.svc.id.goog[space/name]",
    ]  # fmt: skip
    path = f"/storage/v1/b/{bucket.name}/iam"
    answer = cloud.call("PUT", path, json={"bindings": [{"role": VIEWER, "members": members}]})
    assert answer.json()["bindings"][0]["members"] == members
    assert cloud.call("GET", f"{path}?fields=bindings/role").json() == {"bindings": [{"role": VIEWER}]}


def test_uniform_access_puts_lists_out_of_use(cloud: Cloud, bucket: storage.Bucket) -> None:
    bucket.blob("x").upload_from_string("x")
    before = list(bucket.acl)
    set_uniform(bucket, enabled=True)
    assert bucket.iam_configuration.uniform_bucket_level_access_locked_time is not None
    path = f"/storage/v1/b/{bucket.name}"
    for below in ("acl", "defaultObjectAcl", "o/x/acl", "acl/allUsers"):
        assert cloud.call("GET", f"{path}/{below}").status_code == 400
    entry = {"entity": "allUsers", "role": "READER"}
    assert cloud.call("PATCH", path, json={"acl": [entry]}).status_code == 400
    assert cloud.call("PATCH", f"{path}/o/x", json={"acl": [entry]}).status_code == 400
    with pytest.raises(exceptions.BadRequest, match="uniform bucket-level access"):
        bucket.blob("y").upload_from_string("y", predefined_acl="publicRead")
    assert "acl" not in cloud.call("GET", f"{path}?projection=full").json()
    set_uniform(bucket, enabled=False)
    bucket.acl.reload()
    assert list(bucket.acl) == before


def test_nothing_becomes_public_where_that_is_prevented(cloud: Cloud, bucket: storage.Bucket) -> None:
    bucket.blob("x").upload_from_string("x")
    bucket.iam_configuration.public_access_prevention = "enforced"
    bucket.patch()
    for make_public in (bucket.make_public, bucket.blob("x").make_public):
        with pytest.raises(exceptions.PreconditionFailed, match="public access prevention"):
            make_public()
    policy = bucket.get_iam_policy()
    policy[VIEWER] = {"allUsers"}
    with pytest.raises(exceptions.PreconditionFailed, match="public access prevention"):
        bucket.set_iam_policy(policy)
    bucket.iam_configuration.public_access_prevention = "sometimes"
    with pytest.raises(exceptions.BadRequest, match="publicAccessPrevention"):
        bucket.patch()


def test_entries_of_a_bucket(cloud: Cloud, bucket: storage.Bucket) -> None:
    path = f"/storage/v1/b/{bucket.name}/acl"
    assert {entry["role"] for entry in cloud.call("GET", path).json()["items"]} == {"OWNER", "READER"}
    made = cloud.call("POST", path, json={"entity": "group-us@example.com", "role": "WRITER"}).json()
    assert (made["kind"], made["email"], made["bucket"]) == (
        "storage#bucketAccessControl",
        "us@example.com",
        bucket.name,
    )
    one = f"{path}/group-us@example.com"
    assert cloud.call("GET", one).json() == made
    assert cloud.call("PATCH", one, json={"role": "READER"}).json()["role"] == "READER"
    assert cloud.call("DELETE", one).status_code == 204
    assert cloud.call("GET", one).status_code == 404
    assert cloud.call("PATCH", one, json={"role": "READER"}).status_code == 404
    for wrong in ({"entity": "me", "role": "READER"}, {"entity": "allUsers", "role": "KING"}, {"role": "READER"}):
        assert cloud.call("POST", path, json=wrong).status_code == 400
    assert cloud.call("PUT", path, json={}).status_code == 405


def test_an_object_gets_what_its_bucket_has_for_new_ones(bucket: storage.Bucket) -> None:
    bucket.default_object_acl.all().grant_read()
    bucket.default_object_acl.save()
    blob = bucket.blob("x")
    blob.upload_from_string("x")
    assert "READER" in blob.acl.all().get_roles()
    bucket.default_object_acl.all().revoke_read()
    bucket.default_object_acl.save()
    blob.acl.reload()
    assert "READER" in blob.acl.all().get_roles(), "those of an object are its own"
    private = bucket.blob("y")
    private.upload_from_string("y", predefined_acl="private")
    (entry,) = private.acl
    assert entry["role"] == "OWNER"
    private.reload(projection="full")
    assert private.owner["entity"] == entry["entity"]


def test_lists_are_changed_under_preconditions(bucket: storage.Bucket) -> None:
    blob = bucket.blob("x")
    blob.upload_from_string("x")
    blob.acl.domain("example.com").grant_read()
    with pytest.raises(exceptions.PreconditionFailed):
        blob.acl.save(if_metageneration_match=9)
    blob.acl.save(if_metageneration_match=blob.metageneration)
    copied = bucket.copy_blob(blob, bucket, "y", preserve_acl=False)
    assert "READER" not in copied.acl.domain("example.com").get_roles()


def test_predefined_lists_that_there_are_not(cloud: Cloud, bucket: storage.Bucket) -> None:
    upload = f"/upload/storage/v1/b/{bucket.name}/o?uploadType=media&name=x&predefinedAcl=open"
    assert cloud.call("POST", upload, data=b"x").status_code == 400
    assert cloud.call("PUT", f"/{bucket.name}/x", data=b"x", headers={"x-goog-acl": "open"}).status_code == 400
    assert cloud.call("PUT", f"/{bucket.name}/x", data=b"x", headers={"x-goog-acl": "public-read"}).status_code == 200
    assert "READER" in bucket.blob("x").acl.all().get_roles()
    assert cloud.call("GET", f"/storage/v1/b/{bucket.name}?projection=some").status_code == 400
