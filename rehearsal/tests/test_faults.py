"""A rehearsal that refuses, fails and lacks what its user has asked it to: seen through Google's own clients."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from google.api_core.exceptions import (
    Forbidden,
    InternalServerError,
    ResourceExhausted,
    ServiceUnavailable,
    TooManyRequests,
)
from google.cloud import storage

from rehearsing import PARENT, Rehearsal, custom_job, python, rehearsing

T4 = "custom_model_training_nvidia_t4_gpus"


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with rehearsing(tmp_path_factory.mktemp("faults") / "here", "--grace", "1") as found:
        yield found
        assert found.processes() == set()


@pytest.fixture
def project(rehearsal: Rehearsal) -> Iterator[Callable[..., None]]:
    """Writes project.json, which is gone after the test."""
    path = rehearsal.directory / "project.json"
    yield lambda **content: path.write_text(json.dumps(content)) and None
    path.unlink(missing_ok=True)


def fail(rehearsal: Rehearsal, method: str, **how: Any) -> None:
    status, answer = rehearsal.http("POST", "/-/fail", {"method": method, **how})
    assert status == 200, answer


def on(accelerator: str, count: int = 1) -> dict[str, Any]:
    pool = python("import time; time.sleep(600)")
    pool["machineSpec"] = {"machineType": "n1-standard-4", "acceleratorType": accelerator, "acceleratorCount": count}
    return custom_job(pool)


def names(rehearsal: Rehearsal) -> set[str]:
    return {job["name"] for job in rehearsal.http("GET", f"/v1/{PARENT}/customJobs")[1].get("customJobs", ())}


def test_a_call_fails_as_often_as_asked(rehearsal: Rehearsal) -> None:
    fail(rehearsal, "ListCustomJobs", times=2)
    for client in (rehearsal.rest, rehearsal.grpc):
        with pytest.raises(ServiceUnavailable, match="told to fail"):
            client.list_custom_jobs(parent=PARENT, retry=None)
    assert rehearsal.http("GET", "/-/status")[1]["faults"] == []
    assert list(rehearsal.rest.list_custom_jobs(parent=PARENT)) is not None
    fail(rehearsal, "JobService", status=429)
    with pytest.raises((ResourceExhausted, TooManyRequests)):
        rehearsal.rest.list_custom_jobs(parent=PARENT, retry=None)


def test_a_call_that_was_performed_all_the_same(rehearsal: Rehearsal) -> None:
    before = names(rehearsal)
    fail(rehearsal, "CreateCustomJob", status=500, after_effect=True)
    job = custom_job(python("pass"), name="seen by nobody")
    with pytest.raises(InternalServerError):
        rehearsal.rest.create_custom_job(parent=PARENT, custom_job=_snake(job))
    (made,) = names(rehearsal) - before
    assert rehearsal.wait(made)["displayName"] == "seen by nobody"
    fail(rehearsal, "CreateCustomJob", status=500)
    with pytest.raises(InternalServerError):
        rehearsal.rest.create_custom_job(parent=PARENT, custom_job=_snake(job))
    assert names(rehearsal) - before == {made}


def _snake(job: dict[str, Any]) -> Any:
    from google.cloud.aiplatform_v1 import CustomJob

    return CustomJob.from_json(json.dumps(job))


def test_a_connection_that_is_lost(rehearsal: Rehearsal) -> None:
    before = names(rehearsal)
    fail(rehearsal, "CreateCustomJob", drop=True, after_effect=True)
    with pytest.raises(requests.ConnectionError):
        requests.post(
            f"{rehearsal.address}/v1/{PARENT}/customJobs",
            json=custom_job(python("pass")),
            headers=rehearsal.bearer,
            timeout=30,
        )
    (made,) = names(rehearsal) - before
    rehearsal.wait(made)
    for path, method in (
        ("/storage/v1/b?project=demo", "storage"),
        ("/-/cloudbuild/v1/projects/demo/builds", "cloudbuild"),
    ):
        fail(rehearsal, method, drop=True)
        with pytest.raises(requests.ConnectionError):
            requests.get(f"{rehearsal.address}{path}", headers=rehearsal.bearer, timeout=30)
        assert requests.get(f"{rehearsal.address}{path}", headers=rehearsal.bearer, timeout=30).status_code == 200
    fail(rehearsal, "GetCustomJob", drop=True)
    with pytest.raises(ServiceUnavailable, match="Socket closed"):
        rehearsal.grpc.get_custom_job(name=made, retry=None)


def test_cloud_storage_fails_and_its_client_tries_again(rehearsal: Rehearsal) -> None:
    options = {"api_endpoint": rehearsal.address}
    client = storage.Client(project="demo", credentials=rehearsal.credentials, client_options=options)
    bucket = client.create_bucket("faulty")
    fail(rehearsal, "storage.objects.insert", after_effect=True)
    with pytest.raises(ServiceUnavailable):
        bucket.blob("once").upload_from_string("x" * 100_000, retry=None)
    assert bucket.blob("once").download_as_text() == "x" * 100_000
    fail(rehearsal, "storage.objects.insert", times=2)
    bucket.blob("twice").upload_from_string("content", if_generation_match=0)
    assert bucket.blob("twice").download_as_text() == "content"
    client.close()


def test_quotas_are_kept(rehearsal: Rehearsal, project: Callable[..., None]) -> None:
    project(quotas={T4: {"us-central1": 2}})
    first = rehearsal.submit(on("NVIDIA_TESLA_T4"))
    without = rehearsal.submit(custom_job(python("pass")))
    with pytest.raises((ResourceExhausted, TooManyRequests)) as raised:
        rehearsal.rest.create_custom_job(parent=PARENT, custom_job=_snake(on("NVIDIA_TESLA_T4", 2)))
    wanted = f"The following quota metrics exceed quota limits: aiplatform.googleapis.com/{T4}"
    assert raised.value.message.endswith(wanted)
    with pytest.raises(ResourceExhausted):
        rehearsal.grpc.create_custom_job(parent=PARENT, custom_job=_snake(on("NVIDIA_TESLA_T4", 2)))
    elsewhere = PARENT.replace("us-central1", "us-east1")
    status, other = rehearsal.http("POST", f"/v1/{elsewhere}/customJobs", on("NVIDIA_TESLA_T4", 2))
    assert status == 200
    for name in (first, other["name"]):
        rehearsal.http("POST", f"/v1/{name}:cancel", {})
        rehearsal.wait(name)
    again = rehearsal.submit(on("NVIDIA_TESLA_T4", 2))
    rehearsal.http("POST", f"/v1/{again}:cancel", {})
    rehearsal.wait(again)
    assert rehearsal.wait(without)["state"] == "JOB_STATE_SUCCEEDED"


def test_no_capacity(rehearsal: Rehearsal, project: Callable[..., None]) -> None:
    project(no_capacity=["us-central1/NVIDIA_TESLA_V100"])
    job = rehearsal.run(on("NVIDIA_TESLA_V100"))
    assert job["state"] == "JOB_STATE_FAILED"
    assert job["error"]["code"] == 8
    assert job["error"]["message"].startswith(
        "Resources are insufficient in region: us-central1. Please try a different region"
    )
    assert "startTime" not in job, "it never ran"


def test_what_a_project_lacks(rehearsal: Rehearsal, project: Callable[..., None]) -> None:
    project(denied_permissions=["aiplatform.customJobs.create", "storage.objects.*"])
    for client in (rehearsal.rest, rehearsal.grpc):
        with pytest.raises(Forbidden, match=r"'aiplatform.customJobs.create' denied on resource") as raised:
            client.create_custom_job(parent=PARENT, custom_job=_snake(custom_job(python("pass"))))
        assert raised.value.reason == "IAM_PERMISSION_DENIED"
    assert rehearsal.http("GET", f"/v1/{PARENT}/customJobs")[0] == 200
    status, answer = rehearsal.http("GET", "/storage/v1/b/any/o")
    assert (status, answer["error"]["errors"][0]["reason"]) == (403, "forbidden")
    assert "storage.objects.list" in answer["error"]["message"]
    project(disabled_services=["aiplatform.googleapis.com"])
    with pytest.raises(Forbidden, match="Vertex AI API has not been used in project") as raised:
        rehearsal.rest.list_custom_jobs(parent=PARENT)
    assert raised.value.reason == "SERVICE_DISABLED"
    project(nonsense=True)
    status, answer = rehearsal.http("GET", f"/v1/{PARENT}/customJobs")
    assert (status, answer["error"]["status"]) == (400, "FAILED_PRECONDITION")
    assert "nonsense: no such key" in answer["error"]["message"]


def test_from_the_command_line(rehearsal: Rehearsal, vertex_rehearsal: Callable[..., Any], tmp_path: Path) -> None:
    where = ("--directory", rehearsal.directory)
    done = vertex_rehearsal("fail", "ListCustomJobs", "--status", "500", "--times", "3", *where, "--json")
    wanted = {"method": "ListCustomJobs", "status": 500, "times": 3, "after_effect": False, "drop": False}
    assert done.json == {"faults": [wanted]}
    assert rehearsal.http("GET", f"/v1/{PARENT}/customJobs")[0] == 500
    assert vertex_rehearsal("fail", "ListCustomJobs", "--times", "0", *where).code == 0
    assert rehearsal.http("GET", f"/v1/{PARENT}/customJobs")[0] == 200
    unknown = vertex_rehearsal("fail", "CreateCustmJob", *where)
    assert (unknown.code, "did you mean CreateCustomJob?" in unknown.err) == (2, True)
    for body in ({"method": "storage", "status": 200}, {"nothing": 1}, [1], {"method": "storage", "times": "x"}):
        assert rehearsal.http("POST", "/-/fail", body)[0] == 400
    (tmp_path / "rehearsal").mkdir()
    (tmp_path / "rehearsal" / "project.json").write_text('{"quotas": []}')
    bad = vertex_rehearsal("start", "--port", "0", "--grpc-port", "0")
    assert bad.code == 2
    assert "quotas: an object is expected" in bad.err
