"""A trial of a tuning job: its arguments, and the file in which Vertex AI looks for its figures."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest

from tagline import spec
from tagline.cli.options import understand_settings
from tagline.errors import SpecError
from tagline.runs.events import EvaluationEvent, Event, StartedEvent
from tagline.training import cluster, trials

SPEC = spec.defaults({"train": "a.csv", "text": "text", "labels": "label"})


@pytest.mark.parametrize(
    ("typed", "understood"),
    [
        (["train", "a.csv", "--training.learning_rate", "0.1"], ["train", "a.csv", "training.learning_rate=0.1"]),
        (["train", "a.csv", "--training.learning_rate=0.1"], ["train", "a.csv", "training.learning_rate=0.1"]),
        (["train", "a.csv", "--model.bias", "-0.5", "--json"], ["train", "a.csv", "model.bias=-0.5", "--json"]),
        (["train", "--model.name=a=b", "--runs", "x"], ["train", "model.name=a=b", "--runs", "x"]),
        (["train", "a.csv", "--data.separator", ""], ["train", "a.csv", "data.separator="]),
        (["train", "a.csv", "--training.batch_size=32.0"], ["train", "a.csv", "training.batch_size=32"]),
        (["check", "a.csv", "--data.seed", "3"], ["check", "a.csv", "data.seed=3"]),
        (["train", "a.csv", "--", "--data.seed", "3"], ["train", "a.csv", "--", "--data.seed", "3"]),
        (["predict", "last", "--not.ours", "3"], ["predict", "last", "--not.ours", "3"]),
        ([], []),
    ],
)
def test_settings_as_tuning_jobs_append_them(typed: list[str], understood: list[str]) -> None:
    assert understand_settings(typed) == understood


def test_a_setting_without_a_value() -> None:
    with pytest.raises(SpecError, match=r"--training\.epochs has no value"):
        understand_settings(["train", "a.csv", "--training.epochs"])


def evaluations(*values: float) -> Generator[Event, None, None]:
    best = 0.0
    yield StartedEvent()
    for number, value in enumerate(values, start=1):
        figures = {"macro_f1": value, "accuracy": value / 2}
        yield EvaluationEvent(step=number * 10, figures=figures, best=value > best)
        best = max(best, value)


def test_each_evaluation_is_reported_and_last_the_one_that_was_kept(tmp_path: Path) -> None:
    path = tmp_path / "there" / "output.metrics"
    environment = {trials.TRIAL: "7", trials.METRIC_FILE: str(path)}
    events = trials.report_evaluations(evaluations(0.25, 0.75, 0.5), spec=SPEC, environment=environment)
    for event in events:
        if event.get("step") == 20:
            break
    next(events)  # what has been measured is there before the next step
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["macro_f1"] for line in lines] == ["0.25", "0.75"]
    assert [event["event"] for event in events] == []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["macro_f1"], line["global_step"]) for line in lines] == [
        ("0.25", "10"),
        ("0.75", "20"),
        ("0.5", "30"),
        ("0.75", "30"),
    ]
    assert {(line["trial"], line["checkpoint_path"]) for line in lines} == {("7", "")}
    assert all(isinstance(line["timestamp"], float) for line in lines)


def test_another_metric_and_the_last_hundred_lines(tmp_path: Path) -> None:
    path = tmp_path / "output.metrics"
    other = SPEC.model_copy(update={"tuning": SPEC.tuning.model_copy(update={"metric": "accuracy"})})
    list(trials.report_evaluations(evaluations(*[0.5] * 60), spec=other, environment={trials.METRIC_FILE: str(path)}))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 100
    assert [{*line} & {"accuracy", "macro_f1"} for line in lines[-2:]] == [{"accuracy"}, {"macro_f1"}]


def test_outside_of_a_trial_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "USUAL_FILE", str(tmp_path / "output.metrics"))
    assert len(list(trials.report_evaluations(evaluations(0.5), spec=SPEC, environment={}))) == 2
    assert not list(tmp_path.iterdir())
    list(trials.report_evaluations(evaluations(0.5), spec=SPEC, environment={trials.TRIAL: "1"}))
    assert (tmp_path / "output.metrics").exists()


def test_a_file_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environment = {trials.METRIC_FILE: str(tmp_path / "file" / "output.metrics")}
    said = list(trials.report_evaluations(evaluations(0.5), spec=SPEC, environment=environment))
    assert [event["event"] for event in said] == ["started", "evaluation", "warning", "warning"]
    assert "cannot report to the tuning job" in said[-1]["message"]


def test_trials_of_one_job_are_not_restarts_of_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cluster.JOB, raising=False)
    monkeypatch.setenv("CLOUD_ML_JOB_ID", "42")
    names = {cluster.job()}
    for trial in ("1", "2"):
        monkeypatch.setenv(trials.TRIAL, trial)
        names.add(cluster.job())
    assert len(names) == 3
