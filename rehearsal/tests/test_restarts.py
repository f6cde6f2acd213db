"""What becomes of tuning jobs and pipelines when the rehearsal is killed, or stopped, while they run."""

import os
from pathlib import Path
from typing import Any

import pytest

from rehearsing import IMAGE, PARENT, Rehearsal, python, rehearsing, until

REPORT = """
import os
with open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "w") as file:
    file.write('{"score": "1"}' + chr(10))
"""
SLEEP = "import time; time.sleep(600)"


def tuning(rehearsal: Rehearsal, code: str, *, trials: int, parallel: int = 1) -> str:
    parameter = {"parameterId": "x", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}
    spec = {
        "displayName": "tuning",
        "maxTrialCount": trials,
        "parallelTrialCount": parallel,
        "studySpec": {"metrics": [{"metricId": "score"}], "parameters": [parameter]},
        "trialJobSpec": {"workerPoolSpecs": [python(code)]},
    }
    return created(rehearsal, "hyperparameterTuningJobs", spec)


def pipeline(rehearsal: Rehearsal) -> str:
    spec = {
        "schemaVersion": "2.1.0",
        "pipelineInfo": {"name": "sleeps"},
        "root": {"dag": {"tasks": {"sleep": {"componentRef": {"name": "comp-sleep"}}}}},
        "components": {"comp-sleep": {"executorLabel": "exec-sleep"}},
        "deploymentSpec": {"executors": {"exec-sleep": {"container": {"image": IMAGE, "command": ["sleep", "600"]}}}},
    }
    job = {"pipelineSpec": spec, "runtimeConfig": {"gcsOutputDirectory": "gs://pipes/out"}}
    return created(rehearsal, "pipelineJobs", job)


def created(rehearsal: Rehearsal, collection: str, body: dict[str, Any]) -> str:
    status, answer = rehearsal.http("POST", f"/v1/{PARENT}/{collection}", body)
    assert status == 200, answer
    return str(answer["name"])


def tasks_of(rehearsal: Rehearsal, name: str) -> list[dict[str, Any]]:
    return list(rehearsal.job(name).get("jobDetail", {}).get("taskDetails", []))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount the buckets at /gcs")
def test_what_ran_has_failed_and_what_had_not_begun_begins(tmp_path: Path) -> None:
    with rehearsing(tmp_path / "here", "--at-once", "2") as first:
        (first.directory / "buckets" / "pipes").mkdir()
        played = pipeline(first)
        until(lambda: [t["state"] for t in tasks_of(first, played)] == ["RUNNING"], "a task that runs")
        tuned = tuning(first, SLEEP, trials=3, parallel=2)
        first.wait(tuned, "JOB_STATE_RUNNING")
        until(lambda: len(first.job(tuned)["trials"]) == 2, "one trial that runs and one that waits")
        waits = tuning(first, REPORT, trials=2)
        until(lambda: first.job(waits).get("trials"), "a trial that waits")
        assert first.job(waits)["state"] == "JOB_STATE_PENDING"
        first.kill()
    with rehearsing(tmp_path / "here", "--at-once", "2") as second:
        for name in (played, tuned):
            assert second.job(name)["state"].endswith("_STATE_FAILED")
            assert second.job(name)["error"]["message"].startswith("The rehearsal was ended while the")
        assert [task["state"] for task in tasks_of(second, played)] == ["FAILED"]
        assert [trial["state"] for trial in second.job(tuned)["trials"]] == ["INFEASIBLE"] * 2
        assert second.wait(waits)["state"] == "JOB_STATE_SUCCEEDED"
        assert [trial["state"] for trial in second.job(waits)["trials"]] == ["SUCCEEDED"] * 2
        jobs = second.http("GET", f"/v1/{PARENT}/customJobs")[1]["customJobs"]
        assert len(jobs) == 1 + 1 + 2, "a trial that waited for a place is not run for nobody"
        assert second.processes() == set()
        played, tuned = pipeline(second), tuning(second, SLEEP, trials=2, parallel=2)
        second.wait(tuned, "JOB_STATE_RUNNING")
        until(lambda: tasks_of(second, played), "a task")
        assert second.stop() == 0
    with rehearsing(tmp_path / "here") as third:
        for name in (played, tuned):
            assert third.job(name)["state"].endswith("_STATE_FAILED")
            assert "The rehearsal was stopped while the" in third.job(name)["error"]["message"]
        assert third.processes() == set()
