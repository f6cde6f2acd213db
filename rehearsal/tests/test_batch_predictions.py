"""Batch predictions of the rehearsal: what goes in, what comes out where, and every way in which a job can end."""

import base64
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from rehearsing import PARENT, Rehearsal, custom_job, python, rehearsing, until
from serving_models import IMAGE, MACHINE, container, upload


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with rehearsing(tmp_path_factory.mktemp("rehearsal") / "here", "--grace", "1") as found:
        assert found.http("POST", "/storage/v1/b?project=demo", {"name": "files"})[0] == 200
        yield found
        assert found.processes() == set()


@pytest.fixture(scope="module")
def model(rehearsal: Rehearsal) -> str:
    return upload(rehearsal, name="a model")


def write(rehearsal: Rehearsal, name: str, content: str | bytes) -> str:
    """The address of a new file."""
    path = rehearsal.directory / "buckets" / "files" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return f"gs://files/{name}"


def job_of(model: str, *uris: str, form: str = "jsonl", replicas: int = 1, **more: Any) -> dict[str, Any]:
    """A job's JSON."""
    return {
        "displayName": "a batch",
        "model": model,
        "inputConfig": {"instancesFormat": form, "gcsSource": {"uris": list(uris)}},
        "outputConfig": {"predictionsFormat": "jsonl", "gcsDestination": {"outputUriPrefix": "gs://files/out"}},
        "dedicatedResources": {"machineSpec": MACHINE, "startingReplicaCount": replicas},
        **more,
    }


def begin(rehearsal: Rehearsal, job: dict[str, Any]) -> str:
    status, answer = rehearsal.http("POST", f"/v1/{PARENT}/batchPredictionJobs", job)
    assert status == 200, answer
    return str(answer["name"])


def results(rehearsal: Rehearsal, job: dict[str, Any]) -> dict[str, list[str]]:
    """The lines of every file that a job wrote."""
    uri = job["outputInfo"]["gcsOutputDirectory"]
    directory = rehearsal.directory / "buckets" / uri.removeprefix("gs://")
    return {path.name: path.read_text().splitlines() for path in sorted(directory.iterdir())}


def predictions(found: dict[str, list[str]]) -> list[dict[str, Any]]:
    return [json.loads(line) for name, lines in found.items() if "results" in name for line in lines]


def test_the_package_predicts_a_file_and_reads_the_results(rehearsal: Rehearsal, model: str) -> None:
    from google.cloud import aiplatform

    os.environ["STORAGE_EMULATOR_HOST"] = rehearsal.keyed_address
    try:
        aiplatform.init(
            project="demo",
            location="us-central1",
            api_endpoint=rehearsal.address,
            api_transport="rest",
            credentials=rehearsal.credentials,
        )
        lines = "".join(json.dumps({"text": f"é {number}"}) + "\n" for number in range(300))
        source = write(rehearsal, "many.jsonl", lines)
        job = aiplatform.Model(model).batch_predict(
            job_display_name="many",
            gcs_source=source,
            gcs_destination_prefix="gs://files/out",
            instances_format="jsonl",
            predictions_format="jsonl",
            machine_type="n1-standard-4",
            starting_replica_count=2,
            model_parameters={"scale": 2},
            sync=False,
        )
        job.wait_for_resource_creation()
        ended = rehearsal.wait(job.resource_name)
        assert ended["state"] == "JOB_STATE_SUCCEEDED", ended
        again = aiplatform.BatchPredictionJob(job.resource_name)
        assert again.completion_stats.successful_count == 300
        blobs = {blob.name.rpartition("/")[2]: blob.download_as_text() for blob in again.iter_outputs()}
        names = ["prediction.errors_stats-00000-of-00001"]
        names += [f"prediction.results-0000{number}-of-00002" for number in range(2)]
        assert sorted(blobs) == names
        assert "/out/prediction-a-model-20" in again.output_info.gcs_output_directory
        found = predictions(results(rehearsal, ended))
        assert sorted(one["instance"]["text"] for one in found) == sorted(f"é {number}" for number in range(300))
        assert all(one["prediction"]["text"] == one["instance"]["text"] for one in found)
        assert found[0]["prediction"]["parameters"] == {"scale": 2.0}
        assert found[0]["prediction"]["environment"]["AIP_STORAGE_URI"] == ""
        same = aiplatform.BatchPredictionJob.list(filter='model_display_name="a model" AND display_name="many"')
        assert [one.resource_name for one in same] == [job.resource_name]
        assert aiplatform.BatchPredictionJob.list(filter='model_display_name="another model"') == []
        assert rehearsal.http("DELETE", f"/v1/{job.resource_name}")[0] == 200
    finally:
        del os.environ["STORAGE_EMULATOR_HOST"]


def test_rows_and_files_are_instances(rehearsal: Rehearsal, model: str) -> None:
    rows = write(rehearsal, "rows.csv", 'text,number\n"a, b",1\n"c",2.5\nno quotes,3\n"short"\n')
    arrays = begin(rehearsal, job_of(model, rows, form="csv"))
    typed = {"instanceType": "object"}
    objects = begin(rehearsal, job_of(model, rows, form="csv", instanceConfig=typed))
    blob = write(rehearsal, "blob.bin", b"\x00\xff")
    listed = begin(rehearsal, job_of(model, write(rehearsal, "list.txt", f"{blob}\n"), form="file-list"))

    ended = rehearsal.wait(arrays)
    assert ended["state"] == "JOB_STATE_SUCCEEDED", ended
    assert ended["completionStats"]["successfulCount"] == "2"
    assert ended["completionStats"]["failedCount"] == "2"
    assert len(ended["partialFailures"]) == 2
    found = results(rehearsal, ended)
    assert [one["instance"] for one in predictions(found)] == [["a, b", 1.0], ["c", 2.5]]
    errors = found["prediction.errors_stats-00000-of-00001"]
    assert len(errors) == 2
    assert all(line.startswith("(") and line.endswith(", 1)") for line in errors)
    ended = rehearsal.wait(objects)
    assert predictions(results(rehearsal, ended))[1]["instance"] == {"text": "c", "number": 2.5}
    ended = rehearsal.wait(listed)
    encoded = base64.b64encode(b"\x00\xff").decode()
    assert [one["instance"] for one in predictions(results(rehearsal, ended))] == [{"b64": encoded}]


def test_instances_that_fail_are_counted_and_the_rest_is_predicted(rehearsal: Rehearsal, model: str) -> None:
    good, bad = [{"text": "x"}], [{"status": 400, "text": "not this one"}]
    lines = [json.dumps(one) for one in good + bad + good + bad + good] + ["{no json"]
    source = write(rehearsal, "mixed/a.jsonl", "\n".join(lines))
    write(rehearsal, "mixed/b.jsonl", '{"text": "b"}\n')
    one_by_one = {"manualBatchTuningParameters": {"batchSize": 1}}
    mixed = begin(rehearsal, job_of(model, source.replace("a.jsonl", "*.jsonl"), **one_by_one))
    hopeless = begin(rehearsal, job_of(model, write(rehearsal, "bad.jsonl", json.dumps(bad[0]))))
    ended = rehearsal.wait(mixed)
    assert ended["state"] == "JOB_STATE_SUCCEEDED"
    assert ended["completionStats"] == {"successfulCount": "4", "failedCount": "3"}
    errors = results(rehearsal, ended)["prediction.errors_stats-00000-of-00001"]
    assert "not this one" in errors[0]
    assert errors[0].endswith(", 2)")
    ended = rehearsal.wait(hopeless)
    assert ended["state"] == "JOB_STATE_FAILED"
    assert "All 1 instances failed" in ended["error"]["message"]


def test_a_job_is_cancelled_over_grpc_and_one_never_starts(rehearsal: Rehearsal, model: str) -> None:
    from google.api_core import exceptions

    source = write(rehearsal, "slow.jsonl", '{"text": "quick"}\n' + '{"wait": 600}\n' * 3)
    slow = begin(rehearsal, job_of(model, source, manualBatchTuningParameters={"batchSize": 1}))
    rehearsal.wait(slow, "JOB_STATE_RUNNING")
    with pytest.raises(exceptions.FailedPrecondition):
        rehearsal.grpc.delete_batch_prediction_job(name=slow)
    rehearsal.grpc.cancel_batch_prediction_job(name=slow)
    assert rehearsal.wait(slow)["state"] == "JOB_STATE_CANCELLED"
    assert slow in {one.name for one in rehearsal.grpc.list_batch_prediction_jobs(parent=PARENT)}
    deaf = upload(rehearsal, container("import time; time.sleep(600)"))
    waiting = begin(rehearsal, job_of(deaf, source))
    rehearsal.wait(waiting, "JOB_STATE_PENDING")
    rehearsal.grpc.cancel_batch_prediction_job(name=waiting)
    assert rehearsal.wait(waiting)["state"] == "JOB_STATE_CANCELLED"
    broken = upload(rehearsal, container("raise SystemExit('no model here')"))
    ended = rehearsal.wait(begin(rehearsal, job_of(broken, source)))
    assert ended["state"] == "JOB_STATE_FAILED"
    assert "Model server exited unexpectedly" in ended["error"]["message"]
    assert any("no model here" in line for line in rehearsal.said(ended["name"]))


def test_what_is_refused(rehearsal: Rehearsal, model: str) -> None:
    source = write(rehearsal, "one.jsonl", "{}\n")
    good = job_of(model, source)
    output = {"predictionsFormat": "jsonl", "gcsDestination": {"outputUriPrefix": "gs://nobody-s-bucket/x"}}
    for change, status, field in (
        ({"displayName": ""}, 400, "display_name"),
        ({"model": ""}, 400, "model"),
        ({"inputConfig": {"instancesFormat": "bigquery"}}, 501, "input_config.instances_format"),
        (job_of(model, "gs://files/nothing*"), 404, "input_config.gcs_source.uris"),
        (job_of(model), 400, "input_config.gcs_source.uris"),
        ({"outputConfig": output}, 404, "output_config.gcs_destination.output_uri_prefix"),
        ({"instanceConfig": {"keyField": "id"}}, 501, "instance_config"),
        ({"instanceConfig": {"instanceType": "object"}}, 400, "instance_config.instance_type"),
        ({"dedicatedResources": {"machineSpec": {}}}, 400, "dedicated_resources.machine_spec.machine_type"),
    ):
        found, answer = rehearsal.http("POST", f"/v1/{PARENT}/batchPredictionJobs", good | change)
        assert found == status, answer
        blamed = answer["error"]["details"][0]["fieldViolations"][0]["field"]
        assert blamed == f"batch_prediction_job.{field}"
    missing = job_of(f"{PARENT}/models/nobody", source)
    assert rehearsal.http("POST", f"/v1/{PARENT}/batchPredictionJobs", missing)[0] == 404


def test_a_training_pipeline_leaves_a_model(rehearsal: Rehearsal) -> None:
    model = upload(rehearsal, name="to be trained anew")
    code = """
import os, pathlib
directory = pathlib.Path(os.environ["REHEARSAL_GCS"], os.environ["AIP_MODEL_DIR"].removeprefix("gs://"))
directory.mkdir(parents=True)
(directory / "weights.txt").write_text("5")
"""
    spec = custom_job(python(code))["jobSpec"]
    inputs = spec | {"baseOutputDirectory": {"outputUriPrefix": "gs://files/trained"}}
    body = {
        "displayName": "trains",
        "trainingTaskInputs": inputs,
        "parentModel": model,
        "trainingTaskDefinition": "gs://google-cloud-aiplatform/schema/trainingjob/definition/custom_task_1.0.0.yaml",
        "modelToUpload": {"displayName": "trained", "containerSpec": {"imageUri": IMAGE}},
    }
    status, begun = rehearsal.http("POST", f"/v1/{PARENT}/trainingPipelines", body)
    assert status == 200, begun
    ended = until(
        lambda: (
            (now := rehearsal.job(begun["name"]))["state"]
            not in (
                "PIPELINE_STATE_QUEUED",
                "PIPELINE_STATE_PENDING",
                "PIPELINE_STATE_RUNNING",
            )
            and now
        ),
        "the pipeline to end",
    )
    assert ended["state"] == "PIPELINE_STATE_SUCCEEDED", ended
    assert (ended["modelToUpload"]["name"], ended["modelToUpload"]["versionId"]) == (model, "2")
    copied = list((rehearsal.directory / "buckets").glob("rehearsal-models-*/*/2/weights.txt"))
    assert [path.read_text() for path in copied] == ["5"]
