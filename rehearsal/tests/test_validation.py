"""What Vertex AI refuses before anything runs."""

from typing import Any

import pytest

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.api.messages import fill_message, v1
from vertex_rehearsal.api.methods import load_methods
from vertex_rehearsal.machines import find_misfit
from vertex_rehearsal.prediction.endpoints import ID, METRICS, check_autoscaling
from vertex_rehearsal.project.project import Project
from vertex_rehearsal.training import validation

PACKAGE = {
    "executorImageUri": "us-docker.pkg.dev/vertex-ai/training/pytorch-xla.2-4.py310:latest",
    "packageUris": ["gs://bucket/trainer.tar.gz"], "pythonModule": "trainer.task",
}  # fmt: skip
CONTAINER = {"imageUri": "us-docker.pkg.dev/p/r/local-train:1"}


def pool(*, count: int = 1, machine: dict[str, Any] | None = None, **task: Any) -> dict[str, Any]:
    return {"replicaCount": count, "machineSpec": machine or {"machineType": "n1-standard-4"}, **task}


def spec(*pools: dict[str, Any], **more: Any) -> Any:
    load_methods()
    return fill_message(v1.CustomJobSpec(), {"workerPoolSpecs": list(pools), **more})


@pytest.mark.parametrize(
    "good",
    [
        [pool(containerSpec=CONTAINER)],
        [pool(pythonPackageSpec=PACKAGE)],
        [pool(containerSpec=CONTAINER), pool(count=3, containerSpec=CONTAINER)],
        [pool(containerSpec=CONTAINER), {}, pool(count=2, containerSpec=CONTAINER)],
        [pool(containerSpec={"imageUri": "gcr.io/p/i"})],
        [pool(containerSpec=CONTAINER, diskSpec={"bootDiskType": "pd-standard", "bootDiskSizeGb": 100})],
        [pool(containerSpec={"imageUri": f"europe-docker.pkg.dev/p/r/i@sha256:{'a' * 64}"})],
        [pool(containerSpec={**CONTAINER, "args": ["x" * 100_000]})],
        [pool(machine={"machineType": "g2-standard-8", "acceleratorType": "NVIDIA_L4", "acceleratorCount": 1},
              containerSpec=CONTAINER)],
    ],
)  # fmt: skip
def test_accepted(good: list[dict[str, Any]]) -> None:
    validation.check_job(spec(*good), "job_spec")


@pytest.mark.parametrize(
    ("bad", "field", "words"),
    [
        ([], "worker_pool_specs", "not set"),
        ([pool(containerSpec=CONTAINER)] * 5, "worker_pool_specs", "the most is 4"),
        ([pool()], "worker_pool_specs[0].container_spec", "must be set"),
        ([{}], "worker_pool_specs[0].container_spec", "must be set"),
        ([pool(count=2, containerSpec=CONTAINER)], "worker_pool_specs[0].replica_count", "exactly one replica"),
        ([pool(count=0, containerSpec=CONTAINER)], "worker_pool_specs[0].replica_count", "exactly one replica"),
        ([pool(containerSpec=CONTAINER), pool(count=0, containerSpec=CONTAINER)],
         "worker_pool_specs[1].replica_count", "positive"),
        ([{"replicaCount": 1, "containerSpec": CONTAINER}],
         "worker_pool_specs[0].machine_spec.machine_type", "not set"),
        ([pool(machine={"machineType": "n9-giant"}, containerSpec=CONTAINER)],
         "worker_pool_specs[0].machine_spec.machine_type", '"n9-giant" is not supported'),
        ([pool(machine={"machineType": "e2-standard-4", "acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 1},
               containerSpec=CONTAINER)], "worker_pool_specs[0].machine_spec.accelerator_type", "not supported for"),
        ([pool(containerSpec={"imageUri": "local-train:1"})],
         "worker_pool_specs[0].container_spec.image_uri", "no image in a registry"),
        ([pool(containerSpec={"imageUri": "docker.io/library/python"})],
         "worker_pool_specs[0].container_spec.image_uri", "no image in a registry"),
        ([pool(containerSpec={"command": ["true"]})], "worker_pool_specs[0].container_spec.image_uri", "not set"),
        ([pool(containerSpec={**CONTAINER, "args": ["x" * 100_001]})], "worker_pool_specs[0].container_spec.args",
         "100,001 characters"),
        ([pool(containerSpec={**CONTAINER, "env": [{"name": f"N{i}"} for i in range(101)]})],
         "worker_pool_specs[0].container_spec.env", "101 environment variables"),
        ([pool(containerSpec={**CONTAINER, "env": [{"name": "A"}, {"name": "A"}]})],
         "worker_pool_specs[0].container_spec.env", "twice"),
        ([pool(containerSpec={**CONTAINER, "env": [{"name": "A B"}]})],
         "worker_pool_specs[0].container_spec.env", "no name"),
        ([pool(containerSpec={**CONTAINER, "env": [{"name": "A", "value": "x\0"}]})],
         "worker_pool_specs[0].container_spec.env", "null"),
        ([pool(containerSpec={**CONTAINER, "command": ["x\0"]})],
         "worker_pool_specs[0].container_spec.command", "null"),
        ([pool(pythonPackageSpec={**PACKAGE, "args": ["x\0"]})],
         "worker_pool_specs[0].python_package_spec.args", "null"),
        ([pool(containerSpec=CONTAINER, diskSpec={"bootDiskSizeGb": 99})],
         "worker_pool_specs[0].disk_spec.boot_disk_size_gb", "from 100 to 64,000, not 99"),
        ([pool(containerSpec=CONTAINER, diskSpec={"bootDiskSizeGb": 64_001})],
         "worker_pool_specs[0].disk_spec.boot_disk_size_gb", "not 64001"),
        ([pool(containerSpec=CONTAINER, diskSpec={"bootDiskType": "floppy"})],
         "worker_pool_specs[0].disk_spec.boot_disk_type", "pd-ssd, pd-standard, hyperdisk-balanced"),
        ([pool(pythonPackageSpec={**PACKAGE, "packageUris": []})],
         "worker_pool_specs[0].python_package_spec.package_uris", "not set"),
        ([pool(pythonPackageSpec={**PACKAGE, "packageUris": ["gs://b/p"] * 101})],
         "worker_pool_specs[0].python_package_spec.package_uris", "101 package URIs"),
        ([pool(pythonPackageSpec={**PACKAGE, "packageUris": ["trainer.tar.gz"]})],
         "worker_pool_specs[0].python_package_spec.package_uris", "no file in Cloud Storage"),
        ([pool(pythonPackageSpec={**PACKAGE, "pythonModule": ""})],
         "worker_pool_specs[0].python_package_spec.python_module", "not set"),
    ],
)  # fmt: skip
def test_refused_with_the_field(bad: list[dict[str, Any]], field: str, words: str) -> None:
    with pytest.raises(ApiError, match=words) as caught:
        validation.check_job(spec(*bad), "job_spec")
    assert caught.value.code == "INVALID_ARGUMENT"
    assert caught.value.field == f"job_spec.{field}"


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"baseOutputDirectory": {"outputUriPrefix": "/tmp/x"}}, "job_spec.base_output_directory.output_uri_prefix"),
        ({"scheduling": {"timeout": "0s"}}, "job_spec.scheduling.timeout"),
        ({"scheduling": {"timeout": "99999999s"}}, "job_spec.scheduling.timeout"),
    ],
)
def test_the_rest_of_a_spec(more: dict[str, Any], field: str) -> None:
    with pytest.raises(ApiError) as caught:
        validation.check_job(spec(pool(containerSpec=CONTAINER), **more), "job_spec")
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("name", "labels", "field"),
    [
        ("", {}, "job.display_name"), ("x" * 129, {}, "job.display_name"), ("x", {"Team": "a"}, "job.labels"),
        ("x", {"team": "a" * 64}, "job.labels"), ("x", {"": "a"}, "job.labels"), ("x", {"team": "a b"}, "job.labels"),
        ("x", {f"k{i}": "" for i in range(65)}, "job.labels"),
    ],
)  # fmt: skip
def test_names_and_labels(name: str, labels: dict[str, str], field: str) -> None:
    load_methods()
    with pytest.raises(ApiError) as caught:
        validation.check_name_and_labels(v1.CustomJob(display_name=name, labels=labels), "job")
    assert caught.value.field == field
    validation.check_name_and_labels(v1.CustomJob(display_name="x" * 128, labels={"team": "text-1_é"}), "job")


@pytest.mark.parametrize(
    "parent", ["projects/p", "projects/p/locations/mars-north1", "projects/p/locations/us-central1/x"]
)
def test_where_there_is_no_region(parent: str) -> None:
    with pytest.raises(ApiError) as caught:
        validation.check_parent(parent)
    assert (caught.value.code, caught.value.field) == ("INVALID_ARGUMENT", "parent")
    assert validation.check_parent("projects/p/locations/europe-west4") == ("p", "europe-west4")


@pytest.mark.parametrize(
    ("machine", "accelerator", "count", "field"),
    [
        ("n1-standard-8", "NVIDIA_TESLA_T4", 1, ""), ("n1-standard-8", "NVIDIA_TESLA_V100", 8, ""),
        ("n1-standard-8", "NVIDIA_TESLA_T4", 3, "accelerator_count"),
        ("n1-standard-16", "NVIDIA_TESLA_V100", 1, "accelerator_count"),
        ("n1-standard-32", "NVIDIA_TESLA_T4", 1, "accelerator_count"), ("n1-standard-64", "NVIDIA_TESLA_T4", 4, ""),
        ("n1-standard-8", "NVIDIA_L4", 1, "accelerator_type"),
        ("n1-standard-8", "NVIDIA_TESLA_K80", 1, "accelerator_type"),
        ("n1-standard-8", "NVIDIA_TESLA_T4", 0, "accelerator_count"), ("n1-standard-8", "", 1, "accelerator_count"),
        ("g2-standard-48", "NVIDIA_L4", 4, ""), ("g2-standard-48", "NVIDIA_L4", 1, "accelerator_type"),
        ("g2-standard-4", "", 0, "accelerator_type"), ("a2-highgpu-2g", "NVIDIA_TESLA_A100", 2, ""),
        ("a2-ultragpu-1g", "NVIDIA_A100_80GB", 1, ""), ("a3-highgpu-8g", "NVIDIA_H100_80GB", 8, ""),
        ("e2-standard-4", "", 0, ""), ("e2-standard-4", "NVIDIA_TESLA_T4", 1, "accelerator_type"),
        ("huge-1", "", 0, "machine_type"),
    ],
)  # fmt: skip
def test_machines_and_their_accelerators(machine: str, accelerator: str, count: int, field: str) -> None:
    found, words = find_misfit(machine, accelerator, count)
    assert found == field
    assert bool(words) == bool(field)


@pytest.mark.parametrize(
    ("account", "is_one"),
    [
        ("", True), ("me@demo.iam.gserviceaccount.com", True), ("1-compute@developer.gserviceaccount.com", True),
        ("demo@appspot.gserviceaccount.com", True), ("me@gmail.com", False), ("me", False),
        ("me@evil.com/gserviceaccount.com", False), ("serviceAccount:me@demo.iam.gserviceaccount.com", False),
    ],
)  # fmt: skip
def test_service_accounts(account: str, is_one: bool) -> None:
    if is_one:
        validation.check_account(account, Project(), "job.service_account")
        return
    with pytest.raises(ApiError, match="is no service account") as caught:
        validation.check_account(account, Project(), "job.service_account")
    assert (caught.value.code, caught.value.field) == ("INVALID_ARGUMENT", "job.service_account")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("projects/p/locations/us-central1/keyRings/r/cryptoKeys/k", ""), ("", "not set"),
        ("projects/p/locations/us-central1/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1", "no name of a key"),
        ("k", "no name of a key"), ("projects/p/locations/us/keyRings/r/cryptoKeys/k", "must be in us-central1"),
    ],
)  # fmt: skip
def test_keys_of_ones_own(key: str, words: str) -> None:
    load_methods()
    parent, spec = "projects/p/locations/us-central1", {"kms_key_name": key}
    for request, field in (
        (v1.CreateCustomJobRequest(parent=parent, custom_job={"encryption_spec": spec}), "custom_job."),
        (v1.CreateEndpointRequest(parent=parent, endpoint={"encryption_spec": spec}), "endpoint."),
        (v1.UploadModelRequest(parent=parent, model={"encryption_spec": spec}), "model."),
        (v1.CopyModelRequest(parent=parent, encryption_spec=spec), ""),
    ):
        if not words:
            validation.check_encryption(request)
            continue
        with pytest.raises(ApiError, match=words) as caught:
            validation.check_encryption(request)
        assert caught.value.field == f"{field}encryption_spec.kms_key_name"
    validation.check_encryption(v1.CreateEndpointRequest(parent=parent, endpoint={"display_name": "x"}))


@pytest.mark.parametrize(
    ("wanted", "is_one"),
    [
        ("a", True), ("a-1", True), ("a" * 63, True), ("1", True), ("123456789", True), ("a" * 64, False),
        ("a-", False),
        ("-a", False), ("1a", False), ("0", False), ("01", False), ("1234567890", False), ("A", False), ("a_b", False),
    ],
)  # fmt: skip
def test_ids_of_endpoints(wanted: str, is_one: bool) -> None:
    assert bool(ID.fullmatch(wanted)) == is_one


@pytest.mark.parametrize(
    ("specs", "field"),
    [
        ([], ""), ([("cpu/utilization", 0)], ""), ([("cpu/utilization", 100), ("accelerator/duty_cycle", 1)], ""),
        ([("request_count", 300)], ""), ([("cpu/utilization", 101)], "at[0].target"),
        ([("accelerator/duty_cycle", -1)], "at[0].target"), ([("memory", 50)], "at[0].metric_name"),
        ([("cpu/utilization", 50), ("cpu/utilization", 60)], "at[1].metric_name"),
    ],
)  # fmt: skip
def test_what_replicas_are_scaled_by(specs: list[tuple[str, int]], field: str) -> None:
    load_methods()
    given = [v1.AutoscalingMetricSpec(metric_name=f"{METRICS}{name}", target=target) for name, target in specs]
    if field:
        with pytest.raises(ApiError) as caught:
            check_autoscaling(given, "at")
        assert (caught.value.code, caught.value.field) == ("INVALID_ARGUMENT", field)
    else:
        check_autoscaling(given, "at")
        assert all(one.target for one in given)
    with pytest.raises(ApiError, match="no metric"):
        check_autoscaling([v1.AutoscalingMetricSpec(metric_name="cpu/utilization")], "at")
