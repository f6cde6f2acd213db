"""project.json of a rehearsal, what jobs ask of quotas, and which method and permission a request is about."""

import json
from pathlib import Path
from typing import Any

import pytest

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.api.methods import load_methods
from vertex_rehearsal.errors import InvalidSettings
from vertex_rehearsal.project import quotas
from vertex_rehearsal.project.permissions import get_method_names, get_permission
from vertex_rehearsal.project.project import Project
from vertex_rehearsal.project.project_file import ProjectFile, read_project
from vertex_rehearsal.project.storage_authorization import PERMISSIONS, parse_call

T4 = "custom_model_training_nvidia_t4_gpus"


def written(directory: Path, content: Any) -> Path:
    path = directory / "project.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_without_a_file_a_project_has_everything(tmp_path: Path) -> None:
    project = ProjectFile(tmp_path).load_current()
    assert project == Project()
    assert project.has_service("aiplatform.googleapis.com")
    assert project.has_permission("aiplatform.customJobs.create")
    assert project.limit(T4, "us-central1") == 1000
    assert project.secrets == {}


def test_what_a_file_says(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_bytes(b"from a file")
    content = {
        "disabled_services": ["cloudbuild.googleapis.com"],
        "denied_permissions": ["storage.*", "aiplatform.customJobs.create"],
        "quotas": {f"aiplatform.googleapis.com/{T4}": {"us-central1": 0, "*": 2}, "custom_model_training_cpus": -1},
        "no_capacity": ["us-central1/NVIDIA_TESLA_V100"],
        "secrets": {"wandb": "a value", "other": {"file": "key.txt"}},
        "repositories": ["us-central1/mine"],
        "images": ["us-central1-docker.pkg.dev/demo/mine/deep/local-train:abc"],
        "missing_accounts": ["1-compute@developer.gserviceaccount.com", "trainer@demo.iam.gserviceaccount.com"],
    }
    project = read_project(written(tmp_path, content))
    assert not project.has_service("cloudbuild.googleapis.com")
    assert not project.has_permission("storage.objects.create")
    assert project.has_permission("aiplatform.customJobs.get")
    assert [project.limit(T4, region) for region in ("us-central1", "us-east1")] == [0, 2]
    assert project.find_exceeded_metrics("us-east1", {T4: 2}, {}) == []
    assert project.find_exceeded_metrics("us-east1", {T4: 2}, {T4: 1}) == [T4]
    assert project.find_exceeded_metrics("us-east1", {"custom_model_training_cpus": 10**9}, {}) == []
    assert [secret.read() for secret in project.secrets.values()] == [b"a value", b"from a file"]
    assert "a value" not in repr(project)
    assert len(project.missing_accounts) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "cannot be read"),
        ("[]", "an object is expected"),
        ('{"quotas": {}, "quotas": {}}', '"quotas" is there twice'),
        ({"quota": {}}, "quota: no such key; did you mean quotas?"),
        ({"disabled_services": ["aiplatfrm.googleapis.com"]}, "did you mean aiplatform.googleapis.com?"),
        ({"disabled_services": "storage"}, "disabled_services: a list of texts is expected"),
        ({"denied_permissions": ["roles/viewer"]}, '"roles/viewer" is no permission'),
        ({"quotas": {"custom_model_training_nvidia_t4_gpu": 0}}, f"did you mean {T4}?"),
        ({"quotas": {T4: "0"}}, '"0" is no limit'),
        ({"quotas": {T4: True}}, "true is no limit"),
        ({"quotas": {T4: {"us-centra1": 0}}}, "did you mean us-central1?"),
        ({"no_capacity": ["NVIDIA_TESLA_V100"]}, "no_capacity"),
        ({"no_capacity": ["us-central1/V100"]}, "REGION/ACCELERATOR"),
        ({"secrets": {"a b": "x"}}, "secrets.a b"),
        ({"secrets": {"key": 5}}, 'secrets.key: its value, or {"file": PATH}'),
        ({"secrets": {"key": {"file": "nowhere"}}}, "No such file"),
        ({"secrets": {"key": "x" * 65_537}}, "at most 65,536 bytes"),
        ({"repositories": ["mine"]}, "REGION/NAME"),
        ({"images": ["mine:1"]}, "REGION-docker.pkg.dev"),
        ({"missing_accounts": ["me@example.com"]}, "NAME@PROJECT.iam.gserviceaccount.com"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, content: Any, said: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(InvalidSettings) as raised:
        ProjectFile(tmp_path)
    assert said in raised.value.message
    assert str(path) in raised.value.message


def test_all_problems_are_listed_and_no_secret_is(tmp_path: Path) -> None:
    content = {"nonsense": 1, "secrets": {"key!": "do not show"}, "quotas": 3}
    with pytest.raises(InvalidSettings) as raised:
        read_project(written(tmp_path, content))
    assert len(raised.value.problems) == 3
    assert "do not show" not in raised.value.message


def test_a_change_is_seen_and_a_bad_one_is_never_a_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = ProjectFile(tmp_path)
    written(tmp_path, {"quotas": {T4: 0}})
    assert file.load_current().limit(T4, "us-central1") == 0
    written(tmp_path, {"quotas": {T4: "none"}})
    for _ in range(2):
        with pytest.raises(ApiError, match=r"(?s)FAILED_PRECONDITION.*is no limit"):
            file.load_current()
    assert capsys.readouterr().err.count("is no limit") == 1
    (tmp_path / "project.json").unlink()
    assert file.load_current() == Project()


def test_what_a_job_asks_of_quotas() -> None:
    load_methods()
    from vertex_rehearsal.api.messages import fill_message, v1

    t4 = {"machineType": "n1-standard-8", "acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 2}
    pools = [{"machineSpec": t4, "replicaCount": 1}, {"machineSpec": t4, "replicaCount": 3}]
    spec = fill_message(v1.CustomJobSpec(), {"workerPoolSpecs": pools})
    assert quotas.compute_demand(spec) == {T4: 8, "custom_model_training_cpus": 32}
    spec.scheduling.strategy = v1.Scheduling.Strategy.SPOT
    spot = {"custom_model_training_preemptible_nvidia_t4_gpus": 8, "custom_model_training_preemptible_cpus": 32}
    assert quotas.compute_demand(spec) == spot
    assert set(spot) <= set(quotas.METRICS)


def test_metrics_are_called_as_google_calls_them() -> None:
    names = {quotas.get_metric_name(kind, preemptible=False) for kind in quotas.ACCELERATORS}
    kinds = ("p4", "t4", "v100", "l4", "a100", "a100_80gb", "h100", "h100_mega", "h200", "b200")
    assert names == {f"custom_model_training_nvidia_{kind}_gpus" for kind in kinds}


@pytest.mark.parametrize(
    ("method", "permission"),
    [
        ("JobService/CreateCustomJob", "aiplatform.customJobs.create"),
        ("JobService/ListCustomJobs", "aiplatform.customJobs.list"),
        ("JobService/CancelCustomJob", "aiplatform.customJobs.cancel"),
        ("ModelService/UploadModel", "aiplatform.models.upload"),
        ("MetadataService/ListMetadataStores", "aiplatform.metadataStores.list"),
        ("PredictionService/StreamRawPredict", ""),
    ],
)
def test_permissions_of_methods(method: str, permission: str) -> None:
    found = load_methods()[f"/google.cloud.aiplatform.v1.{method}"]
    assert get_permission(found) == permission
    service, _, name = method.partition("/")
    assert get_method_names(found) == (name, service, "aiplatform")


@pytest.mark.parametrize(
    ("verb", "path", "query", "method"),
    [
        ("GET", "/storage/v1/b", "project=p", "storage.buckets.list"),
        ("POST", "/storage/v1/b", "project=p", "storage.buckets.insert"),
        ("GET", "/storage/v1/b/mine", "", "storage.buckets.get"),
        ("GET", "/storage/v1/b/mine/o", "", "storage.objects.list"),
        ("GET", "/storage/v1/b/mine/o/a%2Fb", "alt=media", "storage.objects.get"),
        ("DELETE", "/storage/v1/b/mine/o/a", "", "storage.objects.delete"),
        ("POST", "/storage/v1/b/mine/o/a/rewriteTo/b/other/o/c", "", "storage.objects.rewrite"),
        ("POST", "/storage/v1/b/mine/o/a/compose", "", "storage.objects.compose"),
        ("GET", "/storage/v1/b/mine/iam/testPermissions", "", "storage.buckets.testIamPermissions"),
        ("POST", "/upload/storage/v1/b/mine/o", "uploadType=media", "storage.objects.insert"),
        ("PUT", "/upload/storage/v1/b/mine/o", "upload_id=x", "storage.objects.insert"),
        ("GET", "/download/storage/v1/b/mine/o/a", "alt=media", "storage.objects.get"),
        ("POST", "/batch/storage/v1", "", "storage.batch"),
        ("GET", "/mine", "", "storage.objects.list"),
        ("PUT", "/mine/a/b", "", "storage.objects.insert"),
        ("GET", "/mine/a/b", "", "storage.objects.get"),
        ("DELETE", "/mine/a", "uploadId=x", "storage.objects.insert"),
        ("GET", "/storage/v1/projects/p/serviceAccount", "", "storage.projects.serviceAccount.get"),
        ("PUT", "/storage/v1/b/mine/iam", "", "storage.buckets.setIamPolicy"),
        ("POST", "/storage/v1/b/mine/lockRetentionPolicy", "", "storage.buckets.lockRetentionPolicy"),
    ],
)
def test_methods_of_cloud_storage(verb: str, path: str, query: str, method: str) -> None:
    call = parse_call(verb, path, query)
    assert call.names == (method, "storage")
    assert call.permission == PERMISSIONS[method]
