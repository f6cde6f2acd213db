"""Google's high-level packages against the rehearsal, unmodified; and Python packages as jobs."""

import io
import itertools
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rehearsing import IMAGE, PARENT, Rehearsal, custom_job, python, rehearsing, until

EXECUTOR = "us-docker.pkg.dev/vertex-ai/training/pytorch-xla.2-4.py310:latest"
TASK = """
import os, sys, trainer
import rich
print("arguments", sys.argv[1:], "from", trainer.__file__)
print("model goes to", os.environ.get("AIP_MODEL_DIR"))
"""
POOLS = [{
    "machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 1,
    "container_spec": {"image_uri": IMAGE, "command": ["python", "-S", "-c", "print('hello')"]},
}]  # fmt: skip


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with rehearsing(tmp_path_factory.mktemp("rehearsal") / "here", "--grace", "1") as found:
        (found.directory / "buckets" / "staging").mkdir()
        yield found


@pytest.fixture(scope="module")
def aiplatform(rehearsal: Rehearsal) -> Any:
    """The high-level package, pointed at the rehearsal."""
    from google.cloud import aiplatform

    aiplatform.init(
        project="demo",
        location="us-central1",
        api_endpoint=rehearsal.address,
        api_transport="rest",
        credentials=rehearsal.credentials,
        staging_bucket="gs://staging",
    )
    return aiplatform


@pytest.fixture(scope="module")
def package(rehearsal: Rehearsal) -> str:
    """A source distribution in a bucket."""
    setup = "setup(name='trainer', version='0.1', packages=['trainer'], install_requires=['rich'])"
    files = {"setup.py": f"from setuptools import setup\n{setup}", "trainer/__init__.py": "", "trainer/task.py": TASK}
    return packed(rehearsal, "trainer-0.1", files)


def packed(rehearsal: Rehearsal, name: str, files: dict[str, str]) -> str:
    """The address of a source distribution of these files."""
    with tarfile.open(rehearsal.directory / "buckets" / "staging" / f"{name}.tar.gz", "w:gz") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(f"{name}/{path}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return f"gs://staging/{name}.tar.gz"


def test_a_custom_job_is_run(aiplatform: Any, rehearsal: Rehearsal) -> None:
    job = aiplatform.CustomJob(display_name="run", worker_pool_specs=POOLS, labels={"team": "text"})
    job.run()
    assert job.state.name == "JOB_STATE_SUCCEEDED"
    assert rehearsal.said(job.resource_name)[-1] == "hello"
    assert job.resource_name in {found.resource_name for found in aiplatform.CustomJob.list(filter="labels.team=text")}
    job.delete()
    assert rehearsal.http("GET", f"/v1/{job.resource_name}")[0] == 404


def test_a_custom_job_is_submitted_and_cancelled(aiplatform: Any) -> None:
    command = {"command": ["python", "-S", "-c", "import time; time.sleep(600)"], "image_uri": IMAGE}
    job = aiplatform.CustomJob(display_name="cancel", worker_pool_specs=[POOLS[0] | {"container_spec": command}])
    job.submit()
    job.cancel()
    state = until(lambda: job.state.name in ("JOB_STATE_CANCELLED", "JOB_STATE_FAILED") and job.state.name, "its end")
    assert state == "JOB_STATE_CANCELLED"


def test_a_job_of_the_preview_which_speaks_v1beta1(aiplatform: Any, rehearsal: Rehearsal) -> None:
    from google.cloud.aiplatform.preview import jobs

    job = jobs.CustomJob(display_name="preview", worker_pool_specs=POOLS)
    job.submit()
    assert rehearsal.wait(job.resource_name)["state"] == "JOB_STATE_SUCCEEDED"
    assert job.state.name == "JOB_STATE_SUCCEEDED"
    assert rehearsal.said(job.resource_name)[-1] == "hello"


def test_a_training_job_of_a_python_package(aiplatform: Any, rehearsal: Rehearsal, package: str) -> None:
    job = aiplatform.CustomPythonPackageTrainingJob(
        display_name="package",
        python_package_gcs_uri=package,
        python_module_name="trainer.task",
        container_uri=EXECUTOR,
    )
    job.run(args=["--epochs", 3], base_output_dir="gs://staging/out", machine_type="n1-standard-4", replica_count=2)
    name = job._gca_resource.training_task_metadata["backingCustomJob"]
    said = rehearsal.said(name)
    assert job.state.name == "PIPELINE_STATE_SUCCEEDED", said
    assert any(line.startswith("arguments ['--epochs', '3'] from") for line in said), said
    assert "model goes to gs://staging/out/model/" in said
    assert any("Successfully installed trainer-0.1" in line for line in said)
    assert not list((rehearsal.directory / "jobs").glob("*/environment-*")), "environments go when their jobs end"
    pipelines = rehearsal.client("PipelineServiceClient")
    listed = {found.name: found.display_name for found in pipelines.list_training_pipelines(parent=PARENT)}
    assert listed[job.resource_name] == "package"
    pipelines.delete_training_pipeline(name=job.resource_name).result(timeout=60)


def test_a_training_job_of_a_container_that_fails(aiplatform: Any, rehearsal: Rehearsal) -> None:
    command = ["python", "-S", "-c", "import sys; sys.exit(2)"]
    job = aiplatform.CustomContainerTrainingJob(display_name="container", container_uri=IMAGE, command=command)
    job.submit(machine_type="n1-standard-4", replica_count=1)
    until(lambda: job.state.name in ("PIPELINE_STATE_SUCCEEDED", "PIPELINE_STATE_FAILED"), "its end")
    assert job.state.name == "PIPELINE_STATE_FAILED"
    assert "The replica workerpool0-0 exited with a non-zero status of 2." in job.error.message


def test_a_script_becomes_a_job(
    aiplatform: Any, rehearsal: Rehearsal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from google.cloud import storage

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", rehearsal.keyed_address)
    storage.Client(project="demo", credentials=rehearsal.credentials).create_bucket("scripts")
    (tmp_path / "task.py").write_text("import sys\nprint('a script', sys.argv[1:])\n")
    job = aiplatform.CustomJob.from_local_script(
        display_name="script",
        script_path=str(tmp_path / "task.py"),
        container_uri=EXECUTOR,
        args=["--x", "1"],
        requirements=["rich"],
        machine_type="n1-standard-4",
        staging_bucket="gs://scripts",
    )
    job.submit()
    rehearsal.wait(job.resource_name)
    assert "a script ['--x', '1']" in rehearsal.said(job.resource_name)
    assert job.state.name == "JOB_STATE_SUCCEEDED"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"trainingTaskDefinition": ""}, "training_pipeline.training_task_definition"),
        ({"trainingTaskInputs": {"worker_pool_specs": []}}, "training_pipeline.training_task_inputs.worker_pool_specs"),
        ({"trainingTaskInputs": {"worker_pols": []}}, "training_pipeline.training_task_inputs.worker_pols"),
        ({"displayName": ""}, "training_pipeline.display_name"),
        ({"trainingTaskDefinition": "gs://x/automl_tabular_1.0.0.yaml"}, ""),
        ({"modelToUpload": {"displayName": "m"}}, "training_pipeline.training_task_inputs.base_output_directory"),
    ],
)
def test_a_pipeline_that_is_refused(rehearsal: Rehearsal, change: dict[str, Any], field: str) -> None:
    good = {
        "displayName": "x",
        "trainingTaskDefinition": "gs://x/custom_task_1.0.0.yaml",
        "trainingTaskInputs": {"worker_pool_specs": POOLS},
    }
    status, answer = rehearsal.http("POST", f"/v1/{PARENT}/trainingPipelines", good | change)
    if field:
        assert status == 400
        assert answer["error"]["details"][0]["fieldViolations"][0]["field"] == field
    else:
        assert status == 501


def package_job(package: str, module: str = "trainer.task") -> dict[str, Any]:
    spec = {"executorImageUri": EXECUTOR, "packageUris": [package], "pythonModule": module}
    pool = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1, "pythonPackageSpec": spec}
    return custom_job(pool)


def test_a_package_that_is_not_there_and_one_that_is_none(rehearsal: Rehearsal) -> None:
    job = rehearsal.run(package_job("gs://staging/nothing-1.0.tar.gz"))
    assert job["state"] == "JOB_STATE_FAILED"
    assert job["error"]["message"] == "The package gs://staging/nothing-1.0.tar.gz was not found."
    (rehearsal.directory / "buckets" / "staging" / "broken-1.0.tar.gz").write_bytes(b"no archive")
    job = rehearsal.run(package_job("gs://staging/broken-1.0.tar.gz"))
    assert "The replica workerpool0-0 exited with a non-zero status of" in job["error"]["message"]
    job = rehearsal.run(package_job("gs://../rehearsal.sqlite"))
    assert job["state"] == "JOB_STATE_FAILED"
    assert "no address in Cloud Storage" in job["error"]["message"]


def test_strictly_a_package_sees_nothing_but_what_it_brings(tmp_path: Path) -> None:
    code = (
        "from importlib.util import find_spec\nprint('sees', [n for n in ('rich', 'torch', 'lonely') if find_spec(n)])"
    )
    about = "Metadata-Version: 2.1\nName: lonely\nVersion: 1.0\n"
    wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with rehearsing(tmp_path / "here", "--strict") as rehearsal:
        bucket = rehearsal.directory / "buckets" / "wheels"
        bucket.mkdir()
        with zipfile.ZipFile(bucket / "lonely-1.0-py3-none-any.whl", "w") as archive:
            for name, text in {
                "lonely/__init__.py": "",
                "lonely/task.py": code,
                "lonely-1.0.dist-info/METADATA": about,
                "lonely-1.0.dist-info/WHEEL": wheel,
                "lonely-1.0.dist-info/RECORD": "",
            }.items():
                archive.writestr(name, text)
        name = rehearsal.submit(package_job("gs://wheels/lonely-1.0-py3-none-any.whl", "lonely.task"))
        assert rehearsal.wait(name)["state"] == "JOB_STATE_SUCCEEDED", rehearsal.said(name)
        assert rehearsal.said(name)[-1] == "sees ['lonely']"


def test_a_job_that_is_cancelled_while_its_package_is_installed(rehearsal: Rehearsal) -> None:
    slow = packed(rehearsal, "slow-0.1", {"setup.py": "import time; time.sleep(600)"})
    name = rehearsal.submit(package_job(slow))
    until(lambda: any("Running command: pip3" in line for line in rehearsal.said(name)), "pip to begin")
    rehearsal.http("POST", f"/v1/{name}:cancel", {})
    assert rehearsal.wait(name)["state"] == "JOB_STATE_CANCELLED"
    assert rehearsal.processes() == set()


@pytest.fixture
def logging_client(rehearsal: Rehearsal) -> Any:
    """google-cloud-logging's client, over HTTP."""
    import google.cloud.logging

    return google.cloud.logging.Client(
        project="demo",
        credentials=rehearsal.credentials,
        client_options={"api_endpoint": rehearsal.address},
        _use_grpc=False,
    )


def grpc_logging(rehearsal: Rehearsal) -> Any:
    from google.cloud.logging_v2.services.logging_service_v2 import LoggingServiceV2Client

    transport = LoggingServiceV2Client.get_transport_class("grpc")
    return LoggingServiceV2Client(transport=transport(channel=rehearsal.channel))


MINE = 'logName="projects/demo/logs/mine" AND NOT jsonPayload."logging.googleapis.com/diagnostic":*'
"""The package's first entry is about itself."""


def test_logs_are_written_listed_and_deleted_by_the_package(rehearsal: Rehearsal, logging_client: Any) -> None:
    logger = logging_client.logger("mine")
    logger.log_text("a text", severity="WARNING", labels={"k": "v"})
    logger.log_struct({"message": "a struct", "n": 1}, severity="ERROR")
    for number in range(5):
        logger.log_text(f"line {number}")
    listed = list(logging_client.list_entries(filter_=MINE, page_size=2))
    assert [entry.payload for entry in listed[:2]] == ["a text", {"message": "a struct", "n": 1}]
    assert [entry.payload for entry in listed[2:]] == [f"line {number}" for number in range(5)]
    assert listed[0].labels == {"k": "v"}
    severe = logging_client.list_entries(filter_="severity>=ERROR AND logName:mine", order_by="timestamp desc")
    assert [entry.payload["message"] for entry in severe] == ["a struct"]
    over_grpc = grpc_logging(rehearsal).list_log_entries(
        request={"resource_names": ["projects/demo"], "filter": MINE, "page_size": 3}
    )
    assert [entry.text_payload for entry in over_grpc] == ["a text", "", *(f"line {number}" for number in range(5))]
    assert "projects/demo/logs/mine" in grpc_logging(rehearsal).list_logs(parent="projects/demo").log_names
    logger.delete()
    assert list(logging_client.list_entries(filter_=MINE)) == []


def test_logs_over_grpc_are_followed_as_they_come(rehearsal: Rehearsal) -> None:
    client = grpc_logging(rehearsal)
    wish = {"resource_names": ["projects/demo"], "filter": 'resource.type="ml_job" AND severity>=WARNING'}
    keep_open = threading.Event()

    def requests() -> Iterator[Any]:
        from google.cloud.logging_v2.types import TailLogEntriesRequest

        yield TailLogEntriesRequest(wish)
        keep_open.wait(60)

    code = "import sys, time\nwhile True: print('no'); print('followed', file=sys.stderr, flush=True); time.sleep(0.1)"
    name = rehearsal.submit(custom_job(python(code)))
    stream = client.tail_log_entries(requests())  # which returns with the first entry
    found = [entry for response in itertools.islice(stream, 3) for entry in response.entries]
    assert {entry.json_payload["message"] for entry in found} == {"followed"}
    assert {entry.resource.labels["job_id"] for entry in found} == {name.rpartition("/")[2]}
    stream.cancel()
    keep_open.set()
    rehearsal.http("POST", f"/v1/{name}:cancel", {})
    rehearsal.wait(name)


@pytest.mark.parametrize(
    "body",
    [
        {"filter": "severity="}, {"resourceNames": []}, {"orderBy": "severity"}, {"pageToken": "nonsense"},
        {"pageSize": -1}, {"filter": "severity>=LOUD"}, {"nonsense": 1}, {"pageToken": "WyIiLCAxZTk5OV0="},
        {"pageToken": "WyIiLCA5OTk5OTk5OTk5OTk5OTk5OTk5OTldAA=="}, {"pageToken": "WyIiLCAtMV0="},
    ],
)  # fmt: skip
def test_a_list_of_entries_that_is_refused(rehearsal: Rehearsal, body: dict[str, Any]) -> None:
    rehearsal.http("POST", "/v2/entries:write", {"entries": [{"logName": "projects/demo/logs/x", "textPayload": "x"}]})
    status, answer = rehearsal.http("POST", "/v2/entries:list", {"resourceNames": ["projects/demo"]} | body)
    assert (status, answer["error"]["status"]) == (400, "INVALID_ARGUMENT")


def test_entries_are_written_once_and_with_a_name(rehearsal: Rehearsal) -> None:
    entry = {
        "logName": "projects/demo/logs/once",
        "insertId": "a",
        "timestamp": "2026-01-01T00:00:00Z",
        "textPayload": "x",
    }
    for _ in range(2):
        assert rehearsal.http("POST", "/v2/entries:write", {"entries": [entry]}) == (200, {})
    assert (
        rehearsal.http("POST", "/v2/entries:write", {"entries": [entry | {"insertId": "b"}], "dryRun": True})[0] == 200
    )
    wish = {"resourceNames": ["projects/demo"], "filter": "logName:once"}
    assert [e["insertId"] for e in rehearsal.http("POST", "/v2/entries:list", wish)[1]["entries"]] == ["a"]
    assert rehearsal.http("POST", "/v2/entries:write", {"entries": [{"textPayload": "x"}]})[0] == 400
    assert rehearsal.http("DELETE", "/v2/projects/demo/logs/nobody")[0] == 404
    assert json.loads(json.dumps(entry)) == entry
