"""Tuning jobs of the rehearsal: real searches with trials that are processes, by Google's own packages unmodified."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rehearsing import IMAGE, PARENT, Rehearsal, python, rehearsing, until

WORDS = "import json, os, sys, time\ngiven = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
REPORT = """
def report(value, step=0):
    with open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "a") as file:
        file.write(json.dumps({"score": str(value), "global_step": str(step), "timestamp": time.time()}) + chr(10))
"""
SCRIPT = WORDS + REPORT


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with rehearsing(tmp_path_factory.mktemp("rehearsal") / "here", "--grace", "1") as found:
        yield found
        assert found.processes() == set()
        assert not list((found.directory / "jobs").glob("*/hypertune")), "nothing of a trial is left but its log"


def double(name: str, low: float, high: float, **more: Any) -> dict[str, Any]:
    return {"parameterId": name, "doubleValueSpec": {"minValue": low, "maxValue": high}, **more}


def integer(name: str, low: int, high: int, **more: Any) -> dict[str, Any]:
    return {"parameterId": name, "integerValueSpec": {"minValue": str(low), "maxValue": str(high)}, **more}


def categorical(name: str, *values: str, **more: Any) -> dict[str, Any]:
    return {"parameterId": name, "categoricalValueSpec": {"values": list(values)}, **more}


def discrete(name: str, *values: float, **more: Any) -> dict[str, Any]:
    return {"parameterId": name, "discreteValueSpec": {"values": list(values)}, **more}


def tuning_job(
    code: str,
    *parameters: dict[str, Any],
    trials: int,
    parallel: int = 1,
    goal: str = "MAXIMIZE",
    study: dict[str, Any] | None = None,
    job: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A tuning job's JSON."""
    metrics = [{"metricId": "score", "goal": goal}]
    return {
        "displayName": "tuning",
        "maxTrialCount": trials,
        "parallelTrialCount": parallel,
        "studySpec": {"metrics": metrics, "parameters": list(parameters), **(study or {})},
        "trialJobSpec": {"workerPoolSpecs": [python(code)], **(job or {})},
        **more,
    }


def submit(rehearsal: Rehearsal, spec: dict[str, Any]) -> str:
    status, job = rehearsal.http("POST", f"/v1/{PARENT}/hyperparameterTuningJobs", spec)
    assert status == 200, job
    return str(job["name"])


def run(rehearsal: Rehearsal, spec: dict[str, Any]) -> dict[str, Any]:
    return rehearsal.wait(submit(rehearsal, spec))


def values(trial: dict[str, Any]) -> dict[str, Any]:
    return {parameter["parameterId"]: parameter["value"] for parameter in trial["parameters"]}


def score(trial: dict[str, Any]) -> float:
    return float(trial["finalMeasurement"]["metrics"][0].get("value", 0))


def test_the_high_level_package_and_hypertune(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from google.cloud import aiplatform
    from google.cloud.aiplatform import hyperparameter_tuning as hpt

    options = {"project": "demo", "location": "us-central1", "credentials": rehearsal.credentials}
    aiplatform.init(api_endpoint=rehearsal.address, api_transport="rest", staging_bucket="gs://staging", **options)
    code = """
import os, sys, hypertune
print("arguments", sys.argv[1:], "model goes to", os.environ["AIP_MODEL_DIR"])
tune = hypertune.HyperTune()
for step in (1, 2):
    tune.report_hyperparameter_tuning_metric("accuracy", float(sys.argv[2]) * step, global_step=step)
"""
    pool = {
        "machine_spec": {"machine_type": "n1-standard-4"},
        "replica_count": 1,
        "container_spec": {"image_uri": IMAGE, "command": ["python", "-c", code]},
    }
    custom = aiplatform.CustomJob("trial", worker_pool_specs=[pool], base_output_dir="gs://staging/out")
    job = aiplatform.HyperparameterTuningJob(
        display_name="by the package",
        custom_job=custom,
        metric_spec={"accuracy": "maximize"},
        parameter_spec={
            "units": hpt.DiscreteParameterSpec(values=[16, 32], scale="linear"),
            "rate": hpt.DoubleParameterSpec(min=0.001, max=0.1, scale="log"),
        },
        max_trial_count=2,
        parallel_trial_count=1,
    )
    job.run(sync=True)
    assert job.state.name == "JOB_STATE_SUCCEEDED"
    assert [(trial.id, trial.state.name) for trial in job.trials] == [("1", "SUCCEEDED"), ("2", "SUCCEEDED")]
    for trial in job.trials:
        given = {parameter.parameter_id: parameter.value for parameter in trial.parameters}
        assert trial.final_measurement.metrics[0].value == given["units"] * 2
        assert [one.step_count for one in trial.measurements] == [1, 2]
        said = [
            entry["jsonPayload"]["message"]
            for entry in rehearsal.entries(job.resource_name)
            if entry.get("labels", {}).get("ml.googleapis.com/trial_id") == trial.id
        ]
        expected = f"arguments ['--units', '{given['units']:.0f}', '--rate', '{given['rate']}'] model goes to "
        assert said[-1] == f"{expected}gs://staging/out/{trial.id}/model/"
    listed = rehearsal.rest.list_hyperparameter_tuning_jobs(
        request={"parent": PARENT, "filter": 'display_name="by the package"'}
    )
    assert [found.name for found in listed] == [job.resource_name]
    job.delete()
    assert rehearsal.http("GET", f"/v1/{job.resource_name}")[0] == 404


def test_a_grid_is_tried_whole_and_ends_by_itself(rehearsal: Rehearsal) -> None:
    code = SCRIPT + "report(10 * int(given['--n']) + {'a': 1, 'b': 2}[given['--kind']] + float(given['--share']))"
    spec = tuning_job(
        code,
        integer("n", 1, 2),
        categorical("kind", "a", "b"),
        discrete("share", 0.25, 0.5),
        trials=20,
        parallel=4,
        study={"algorithm": "GRID_SEARCH"},
    )
    job = run(rehearsal, spec)
    assert job["state"] == "JOB_STATE_SUCCEEDED"
    tried = [tuple(values(trial).values()) for trial in job["trials"]]
    assert tried == [(n, kind, share) for n in (1, 2) for kind in "ab" for share in (0.25, 0.5)]
    assert values(max(job["trials"], key=score)) == {"n": 2, "kind": "b", "share": 0.5}
    assert [trial["id"] for trial in job["trials"]] == [str(number) for number in range(1, 9)]


def test_a_bayesian_search_comes_near_the_optimum_and_a_random_one_covers_the_space(rehearsal: Rehearsal) -> None:
    code = SCRIPT + "report((float(given['--x']) - 0.3) ** 2)"
    bayesian = submit(rehearsal, tuning_job(code, double("x", -1, 1), trials=20, parallel=2, goal="MINIMIZE"))
    random = submit(
        rehearsal,
        tuning_job(
            code,
            double("x", 0.001, 1.0, scaleType="UNIT_LOG_SCALE"),
            trials=12,
            parallel=2,
            goal="MINIMIZE",
            study={"algorithm": "RANDOM_SEARCH"},
        ),
    )
    trials = rehearsal.wait(bayesian)["trials"]
    assert len(trials) == 20
    best = min(trials, key=score)
    assert abs(values(best)["x"] - 0.3) < 0.1
    late = [abs(values(trial)["x"] - 0.3) for trial in trials[10:]]
    assert sorted(late)[len(late) // 2] < 0.35, "it looks where it was good"
    tried = [values(trial)["x"] for trial in rehearsal.wait(random)["trials"]]
    assert all(0.001 <= x <= 1 for x in tried)
    assert sum(x < 0.0316 for x in tried) in range(2, 11), "a logarithmic scale: half of it is below the geometric mean"


def test_conditional_parameters_come_with_their_parents_values(rehearsal: Rehearsal) -> None:
    code = SCRIPT + "print(sorted(given)); report(len(given))"
    spec = tuning_job(
        code,
        categorical(
            "model",
            "linear",
            "deep",
            conditionalParameterSpecs=[
                {"parentCategoricalValues": {"values": ["deep"]}, "parameterSpec": integer("layers", 2, 3)},
                {"parentCategoricalValues": {"values": ["linear"]}, "parameterSpec": discrete("c", 0.1, 1)},
            ],
        ),
        trials=10,
        parallel=4,
        study={"algorithm": "GRID_SEARCH"},
    )
    job = run(rehearsal, spec)
    assert [values(trial) for trial in job["trials"]] == [
        {"model": "linear", "c": 0.1},
        {"model": "linear", "c": 1},
        {"model": "deep", "layers": 2},
        {"model": "deep", "layers": 3},
    ]
    del spec["studySpec"]["algorithm"]
    for trial in run(rehearsal, {**spec, "maxTrialCount": 6})["trials"]:
        assert set(values(trial)) == {"model", {"deep": "layers", "linear": "c"}[values(trial)["model"]]}
        assert score(trial) == 2


def test_parallel_trials_overlap_and_are_never_too_many(rehearsal: Rehearsal) -> None:
    bucket = rehearsal.directory / "buckets" / "times"
    bucket.mkdir()
    # Each trial but the last waits until another is there with it: alone, it would wait for ever.
    code = (
        SCRIPT
        + """
here = os.path.join(os.environ["REHEARSAL_GCS"], "times")
mine = os.path.join(here, os.environ["CLOUD_ML_TRIAL_ID"])
begun = time.time()
open(mine + ".begun", "w").close()
pair = {"1": "2", "2": "1", "3": "4", "4": "3"}[os.environ["CLOUD_ML_TRIAL_ID"]]
while not os.path.exists(os.path.join(here, pair + ".begun")):
    time.sleep(0.01)
with open(mine + ".json", "w") as file:
    json.dump([begun, time.time()], file)
report(1)
"""
    )
    job = run(rehearsal, tuning_job(code, double("x", 0, 1), trials=4, parallel=2))
    assert job["state"] == "JOB_STATE_SUCCEEDED"
    times = [json.loads(path.read_text()) for path in bucket.glob("*.json")]
    assert len(times) == 4
    most = max(sum(begun <= moment < ended for begun, ended in times) for moment, _ in times)
    assert most == 2


def test_trials_that_fail_or_report_nothing_are_infeasible(rehearsal: Rehearsal) -> None:
    code = (
        SCRIPT
        + """
number = int(given["--n"])
if number == 1: sys.exit(3)
if number == 2: sys.exit(0)
report("nan" if number == 3 else number)
"""
    )
    spec = tuning_job(code, integer("n", 1, 4), trials=4, parallel=2, study={"algorithm": "GRID_SEARCH"})
    job = run(rehearsal, spec)
    assert job["state"] == "JOB_STATE_SUCCEEDED"
    assert [trial["state"] for trial in job["trials"]] == ["INFEASIBLE"] * 3 + ["SUCCEEDED"]
    reasons = [trial["infeasibleReason"] for trial in job["trials"][:3]]
    assert "exited with a non-zero status of 3" in reasons[0]
    assert "without a report of score" in reasons[1]
    assert "no number" in reasons[2]
    job = run(rehearsal, {**spec, "maxFailedTrialCount": 2, "parallelTrialCount": 1})
    assert job["state"] == "JOB_STATE_FAILED"
    assert len(job["trials"]) == 2
    assert "2 of 2 trials failed, the last of them trial 2: The trial ended without" in job["error"]["message"]


@pytest.mark.parametrize(("selection", "expected"), [("LAST_MEASUREMENT", 1), ("BEST_MEASUREMENT", 3)])
def test_the_final_measurement(rehearsal: Rehearsal, selection: str, expected: float) -> None:
    code = SCRIPT + "for step, value in enumerate((2, 3, 1)): report(value, step)"
    spec = tuning_job(code, double("x", 0, 1), trials=1, study={"measurementSelectionType": selection})
    (trial,) = run(rehearsal, spec)["trials"]
    assert [one["metrics"][0]["value"] for one in trial["measurements"]] == [2, 3, 1]
    assert score(trial) == expected


def test_reports_are_seen_live_and_cancelling_ends_the_trials(rehearsal: Rehearsal) -> None:
    name = submit(
        rehearsal, tuning_job(SCRIPT + "report(7, 1); time.sleep(600)", double("x", 0, 1), trials=9, parallel=2)
    )
    seen = until(
        lambda: (
            (trials := rehearsal.job(name).get("trials", []))
            and all(t.get("measurements") for t in trials)
            and len(trials) == 2
            and trials
        ),
        "reports of two trials that run",
    )
    assert {trial["state"] for trial in seen} == {"ACTIVE"}
    assert rehearsal.job(name)["state"] == "JOB_STATE_RUNNING"
    status, answer = rehearsal.http("DELETE", f"/v1/{name}")
    assert (status, answer["error"]["status"]) == (400, "FAILED_PRECONDITION")
    rehearsal.rest.cancel_hyperparameter_tuning_job(name=name)
    job = rehearsal.wait(name)
    assert job["state"] == "JOB_STATE_CANCELLED"
    assert [trial["state"] for trial in job["trials"]] == ["INFEASIBLE"] * 2
    assert {rehearsal.job(trial["customJob"])["state"] for trial in job["trials"]} == {"JOB_STATE_CANCELLED"}
    assert rehearsal.processes() == set()


def test_the_median_rule_stops_a_trial_without_hope(rehearsal: Rehearsal) -> None:
    code = (
        SCRIPT
        + """
good = given["--kind"] == "good"
report(1 if good else 0, 1)
if not good: time.sleep(600)
"""
    )
    study = {"algorithm": "GRID_SEARCH", "medianAutomatedStoppingSpec": {}}
    job = run(rehearsal, tuning_job(code, categorical("kind", "good", "bad"), trials=2, study=study))
    assert [(trial["state"], score(trial)) for trial in job["trials"]] == [("SUCCEEDED", 1), ("SUCCEEDED", 0)]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"displayName": ""}, "display_name"),
        ({"maxTrialCount": 0}, "max_trial_count"),
        ({"parallelTrialCount": 0}, "parallel_trial_count"),
        ({"parallelTrialCount": 5}, "parallel_trial_count"),
        ({"maxFailedTrialCount": 9}, "max_failed_trial_count"),
        ({"trialJobSpec": {}}, "trial_job_spec.worker_pool_specs"),
        ({"metrics": []}, "study_spec.metrics"),
        ({"metrics": [{"metricId": "a b"}]}, "study_spec.metrics[0].metric_id"),
        ({"metrics": [{"metricId": "a"}, {"metricId": "a"}]}, "study_spec.metrics[1].metric_id"),
        ({"observationNoise": "LOW"}, "study_spec.observation_noise"),
        ({"algorithm": "GRID_SEARCH"}, "study_spec.parameters[0].double_value_spec"),
        ({"parameters": []}, "study_spec.parameters"),
        ({"parameters": [{"parameterId": "x"}]}, "study_spec.parameters[0]"),
        ({"parameters": [double("", 0, 1)]}, "study_spec.parameters[0].parameter_id"),
        ({"parameters": [double("a b", 0, 1)]}, "study_spec.parameters[0].parameter_id"),
        ({"parameters": [double("x", 0, 1), integer("x", 0, 1)]}, "study_spec.parameters[1].parameter_id"),
        ({"parameters": [double("x", 1, 0)]}, "study_spec.parameters[0].double_value_spec.min_value"),
        ({"parameters": [integer("x", 1, 0)]}, "study_spec.parameters[0].integer_value_spec.min_value"),
        ({"parameters": [double("x", 0, 1, scaleType="UNIT_LOG_SCALE")]}, "study_spec.parameters[0].scale_type"),
        ({"parameters": [double("x", 0, 1, scaleType="UNIT_REVERSE_LOG_SCALE")]},
         "study_spec.parameters[0].scale_type"),
        ({"parameters": [categorical("x")]}, "study_spec.parameters[0].categorical_value_spec.values"),
        ({"parameters": [categorical("x", "a", scaleType=1)]}, "study_spec.parameters[0].scale_type"),
        ({"parameters": [discrete("x", 2, 1)]}, "study_spec.parameters[0].discrete_value_spec.values"),
        ({"parameters": [{"parameterId": "x", "integerValueSpec": {"maxValue": 3, "defaultValue": 1}}]},
         "study_spec.parameters[0].integer_value_spec.default_value"),
        ({"parameters": [double("x", 0, 1, conditionalParameterSpecs=[
            {"parentIntValues": {"values": [1]}, "parameterSpec": double("y", 0, 1)}])]},
         "study_spec.parameters[0].conditional_parameter_specs[0]"),
        ({"parameters": [integer("x", 0, 1, conditionalParameterSpecs=[
            {"parentIntValues": {"values": [2]}, "parameterSpec": double("y", 0, 1)}])]},
         "study_spec.parameters[0].conditional_parameter_specs[0].parent_int_values.values"),
        ({"parameters": [integer("x", 0, 1, conditionalParameterSpecs=[
            {"parentIntValues": {"values": [0, 1]}, "parameterSpec": double("y", 0, 1)},
            {"parentIntValues": {"values": [1]}, "parameterSpec": double("y", 0, 1)}])]},
         "study_spec.parameters[0].conditional_parameter_specs[1].parameter_spec.parameter_id"),
    ],
)  # fmt: skip
def test_what_is_refused(rehearsal: Rehearsal, change: dict[str, Any], field: str) -> None:
    spec = tuning_job("pass", double("x", 0, 1), trials=4)
    for key, value in change.items():
        (spec["studySpec"] if key in ("metrics", "observationNoise", "algorithm", "parameters") else spec)[key] = value
    status, answer = rehearsal.http("POST", f"/v1/{PARENT}/hyperparameterTuningJobs", spec)
    assert (status, answer["error"]["status"]) == (400, "INVALID_ARGUMENT"), answer
    assert answer["error"]["details"][0]["fieldViolations"][0]["field"] == f"hyperparameter_tuning_job.{field}"


@pytest.mark.parametrize("rule", ["decayCurveStoppingSpec", "convexAutomatedStoppingSpec", "studyStoppingConfig"])
def test_what_is_not_played_is_named(rehearsal: Rehearsal, rule: str) -> None:
    spec = tuning_job("pass", double("x", 0, 1), trials=4, study={rule: {}})
    status, answer = rehearsal.http("POST", f"/v1/{PARENT}/hyperparameterTuningJobs", spec)
    assert (status, answer["error"]["status"]) == (501, "UNIMPLEMENTED")
