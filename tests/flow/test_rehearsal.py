"""Tagline with the emulator: its commands, its images as processes, its trials."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
import tagline
from bare import run_bare
from rehearsing import PARENT, Rehearsal, rehearsing
from serving_models import MACHINE, container, deploy, endpoint, upload
from tagline.jobs import emulator
from tagline.runs.lookup import list_runs

TRAINING_IMAGE = "us-docker.pkg.dev/demo/repository/tagline-train:1"
SERVING_IMAGE = "us-docker.pkg.dev/demo/repository/tagline-serving:1"


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    """One emulator for the tests of this file that leave it as it was."""
    with rehearsing(tmp_path_factory.mktemp("rehearsal"), *emulator.start_options()) as found:
        yield found


def predicted(rehearsal: Rehearsal, place: str, *instances: Any) -> tuple[int, Any]:
    """The status and the answer of a prediction."""
    return rehearsal.http("POST", f"/v1/{place}:predict", {"instances": list(instances)})


def test_deployed_models_survive_a_kill_and_a_bundle_is_served(tmp_path: Path, support: Path) -> None:
    run = tagline.train(support / "messages.csv", "model.family=linear", "model.characters=0", runs=tmp_path / "runs")
    directory = tmp_path / "here"
    with rehearsing(directory, "--grace", "1", *emulator.start_options()) as first:
        assert first.http("POST", "/storage/v1/b?project=demo", {"name": "files"})[0] == 200
        shutil.copytree(run.bundle, directory / "buckets" / "files" / "bundle")
        model = upload(first, {"imageUri": SERVING_IMAGE}, artifactUri="gs://files/bundle")
        shutil.rmtree(directory / "buckets" / "files" / "bundle")  # the copy is what is served
        place = endpoint(first)
        assert "error" not in deploy(first, place, model)
        status, before = predicted(first, place, "my parcel never came")
        assert status == 200, before
        left = first.processes()
        assert left
        first.kill()
    with rehearsing(directory, "--grace", "1", *emulator.start_options()) as second:
        assert not left & second.processes()
        assert predicted(second, place, "my parcel never came") == (200, before)
        deaf = upload(second, container("import time; time.sleep(600)"))
        resources = {"machineSpec": MACHINE, "minReplicaCount": 2}
        body = {"deployedModel": {"model": deaf, "dedicatedResources": resources}}
        assert second.http("POST", f"/v1/{place}:deployModel", body)[0] == 200
        assert second.processes()
        assert second.stop() == 0, "in order, while a model is being deployed"
        assert second.processes() == set()


def test_tagline_is_a_trial_of_somebodys_own_job(rehearsal: Rehearsal) -> None:
    """Its arguments are settings, and its metric is found."""
    from google.cloud import aiplatform_v1

    support = Path(__file__).parents[2] / "examples" / "support" / "messages.csv"
    shelf = rehearsal.directory / "buckets" / "corpus"
    rehearsal.http("POST", "/storage/v1/b?project=demo", {"name": "corpus"})
    upload = "/upload/storage/v1/b/corpus/o?uploadType=media&name=messages.csv"
    rehearsal.http("POST", upload, support.read_bytes(), headers={"Content-Type": "text/csv"})
    settings = (
        "model.family=linear",
        "model.characters=0",
        "model.max_features=300",
        "data.fraction=0.3",
        "training.baseline=false",
    )
    words = ["train", "gs://corpus/messages.csv", *settings, "--runs", "gs://corpus/trials"]
    strength = {"parameterId": "model.strength", "discreteValueSpec": {"values": [0.25, 4.0]}}
    metric = {"metricId": "macro_f1", "goal": "MAXIMIZE"}
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": TRAINING_IMAGE, "args": words},
    }
    job = {
        "displayName": "tuning",
        "maxTrialCount": 2,
        "parallelTrialCount": 2,
        "studySpec": {"metrics": [metric], "parameters": [strength], "algorithm": "GRID_SEARCH"},
        "trialJobSpec": {"workerPoolSpecs": [pool]},
    }
    asked = aiplatform_v1.HyperparameterTuningJob.from_json(json.dumps(job))
    name = rehearsal.rest.create_hyperparameter_tuning_job(parent=PARENT, hyperparameter_tuning_job=asked).name
    ended = rehearsal.wait(name)
    assert [trial["state"] for trial in ended["trials"]] == ["SUCCEEDED"] * 2, [
        entry.get("jsonPayload") for entry in rehearsal.entries(name)
    ]
    made = {run.spec().model.strength: run for run in list_runs(shelf / "trials")}  # type: ignore[attr-defined]
    assert made.keys() == {0.25, 4.0}
    for trial in ended["trials"]:
        [given] = [parameter["value"] for parameter in trial["parameters"]]
        evaluations = [event for event in made[given].events() if event["event"] == "evaluation"]
        best = max(event["value"] for event in evaluations)
        assert trial["finalMeasurement"]["metrics"][0]["value"] == pytest.approx(best)
        assert len(trial["measurements"]) == len(evaluations) + 1


def test_where_the_packages_are_missing_the_extra_is_named() -> None:
    printed = run_bare("""
from tagline.cli import run
code = run(["rehearsal", "start", "--json"])
assert code == 5, code
""")
    assert "tagline[rehearsal]" in json.loads(printed)["error"]["hint"]
