"""Training as a process: what it leaves behind, however it ends."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attempts import SUPPORT, contents, events, told

import tagline as library
from python_processes import run_python, start_python
from tagline.errors import DataError, Interrupted, PlaceError, RunError, SpecError
from tagline.runs.lookup import list_runs
from tagline.runs.run import Run

Command = Callable[..., Any]
LINEAR = ("model.family=linear", "model.characters=0")


@pytest.fixture(scope="module")
def data() -> Path:
    """Enough rows to learn from in several steps."""
    return SUPPORT / "messages.csv"


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that was never stopped."""
    return library.train(data, *LINEAR, runs=tmp_path_factory.mktemp("whole"))


def start(data: Path, cwd: Path) -> subprocess.Popen[str]:
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return start_python("-m", "tagline", "train", data, *LINEAR, cwd=cwd, text=True, **streams)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_told_to_stop_it_saves_and_can_go_on_to_the_same_end(
    data: Path, whole: Run, tmp_path: Path, tagline: Command, sent: int, code: int
) -> None:
    stopped = run_python(*told(sent, "train", data, *LINEAR), cwd=tmp_path, text=True)
    assert stopped.returncode == code, stopped.stderr
    [run] = list_runs(tmp_path / "runs")
    assert run.state().name == "cancelled"
    assert run.progress().last, "what it has learned is kept"
    assert f"next: tagline train --resume runs/{run.name}" in stopped.stderr
    resumed = tagline("train", "--resume", run.name)
    assert resumed.code == 0, resumed.err
    assert run.state().name == "succeeded"
    assert contents(run) == contents(whole)
    assert events(run) == events(whole)


def test_killed_at_any_moment_nothing_trips_and_it_goes_on_to_the_same_end(
    data: Path, whole: Run, tmp_path: Path, tagline: Command
) -> None:
    begun = time.monotonic()
    tagline("train", data, *LINEAR)
    usual_s = time.monotonic() - begun
    seed = os.getpid()
    print(f"moments drawn with seed {seed}")
    chance = random.Random(seed)
    for _ in range(5):
        with start(data, tmp_path) as process:
            time.sleep(chance.uniform(0.2 * usual_s, usual_s))
            process.kill()
    listed = tagline("runs", "list", "--json")
    assert listed.code == 0, listed.err
    assert {entry["state"] for entry in listed.json} <= {"failed", "succeeded", "waiting"}
    for run in list_runs(tmp_path / "runs"):
        if run.state().name != "succeeded":
            resumed = tagline("train", "--resume", run.name)
            assert resumed.code == 0, resumed.err
        assert contents(run) == contents(whole)
        assert events(run) == events(whole)
        assert not list(run.directory.rglob(".tagline-*"))


def test_a_resumed_run_refuses_changed_data_and_a_changed_spec(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "data.csv"
    copy.write_text(data.read_text())
    with pytest.raises(Interrupted):
        stopped_after_the_first_evaluation(copy, tmp_path / "runs")
    [run] = list_runs(tmp_path / "runs")
    copy.write_text(data.read_text().replace(",billing\n", ",returns\n", 1))
    with pytest.raises(RunError, match=r"the data .* has changed"):
        library.train(run.directory, resume=True)
    copy.write_text(data.read_text())
    written = (run.directory / "spec.toml").read_text()
    (run.directory / "spec.toml").write_text(written.replace("max_features = 100000", "max_features = 10"))
    with pytest.raises(RunError, match=r"spec\.toml has changed"):
        library.train(run.directory, resume=True)
    (run.directory / "spec.toml").write_text(written)
    assert library.train(run.directory, resume=True).state().name == "succeeded"
    with pytest.raises(RunError, match="is complete"):
        library.train(run.directory, resume=True)


def stopped_after_the_first_evaluation(data: Path, runs: Path) -> None:
    from tagline import training
    from tagline.training import spec_sources

    for event in training.start_run(spec_sources.resolve_spec(data, LINEAR), runs=runs, command="a test"):
        if event["event"] == "evaluation":
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_failure_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tagline.models.linear import Linear

    def break_down(*_: object, **__: object) -> None:
        raise ZeroDivisionError("the model broke")

    monkeypatch.setattr(Linear, "scores", break_down)
    with pytest.raises(ZeroDivisionError):
        library.train(SUPPORT / "messages.csv", *LINEAR, runs=tmp_path)
    [run] = list_runs(tmp_path)
    assert run.state().name == "failed"
    assert "the model broke" in run.state().reason


def test_patience_and_a_budget_stop_early_and_say_so(tmp_path: Path) -> None:
    for setting, said in (
        ("training.patience=1", "stopped: no gain in 1 evaluations"),
        ("training.max_minutes=0.0001", "stopped after training.max_minutes"),
    ):
        run = library.train(SUPPORT / "pairs.csv", *LINEAR, setting, "training.monitor=log_loss", runs=tmp_path)
        assert run.state().name == "succeeded"
        warnings = [event["message"] for event in run.events() if event["event"] == "warning"]
        assert any(message.startswith(said) for message in warnings), warnings


@pytest.mark.parametrize("setting", ["training.patience=1", "training.max_minutes=0.0001"])
def test_stopped_early_and_then_killed_it_goes_on_to_the_same_end(
    tmp_path: Path, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tagline.prediction import bundle

    settings = (*LINEAR, setting, "training.monitor=log_loss")
    whole = library.train(SUPPORT / "pairs.csv", *settings, runs=tmp_path / "whole")

    def killed(*_: object, **__: object) -> None:
        raise SystemError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(bundle, "write", killed)
        with pytest.raises(SystemError):
            library.train(SUPPORT / "pairs.csv", *settings, runs=tmp_path / "killed")
    [run] = list_runs(tmp_path / "killed")
    library.train(run.directory, resume=True)
    assert contents(run) == contents(whole)
    assert events(run) == events(whole)


def test_a_target_that_validation_does_not_allow_is_said(tmp_path: Path) -> None:
    run = library.train(SUPPORT / "pairs.csv", *LINEAR, "decisions.target_precision=0.99", runs=tmp_path)
    warnings = [event["message"] for event in run.events() if event["event"] == "warning"]
    [said] = [message for message in warnings if "decisions.target_precision = 0.99 was not reached" in message]
    report = run.report()
    assert report is not None
    assert report["unkept"] == [said]
    assert report["advice"][0] == f"Ask for less, or collect more data: {said}."


def test_overrides_count_whatever_the_spec_is_given_as(tmp_path: Path) -> None:
    raw = {"data": {"train": str(SUPPORT / "pairs.csv")}}
    first = library.train(raw, *LINEAR, "data.test_share=0.3", "model.strength=2.0", runs=tmp_path)
    assert first.spec().data.test_share == 0.3
    second = library.train(first.spec(), "data.test_share=0.2", runs=tmp_path)
    assert second.spec().data.test_share == 0.2
    with pytest.raises(SpecError, match="takes its spec from the run"):
        library.train(first.directory, "data.test_share=0.1", resume=True)


def test_a_monitor_of_the_other_task_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="jaccard is a figure of task multi"):
        library.train(SUPPORT / "pairs.csv", "training.monitor=jaccard", runs=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_setting_without_effect_is_said(tmp_path: Path) -> None:
    unread = ("training.epochs=9", "decisions.thresholds=0.3", "tuning.trials=3")
    run = library.train(SUPPORT / "pairs.csv", *LINEAR, *unread, runs=tmp_path)
    said = [event.get("message") for event in run.events()]
    assert "training.epochs has no effect on family linear" in said
    assert "decisions.thresholds has no effect on task single: the likeliest label is the answer" in said
    assert "tuning.trials has no effect: this version trains once and tunes nothing" in said
    assert not any(line and line.startswith("tuning.search") for line in said)


def test_data_that_cannot_be_trained_on_makes_no_run(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("text,label\nhello,a\nbye,a\n")
    with pytest.raises(DataError, match='every row has the label "a"'):
        library.train(tmp_path / "one.csv", runs=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_run_that_cannot_begin_leaves_none_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tagline.models.linear import Linear

    def refuse(*_: object, **__: object) -> None:
        raise DataError("no word stands in enough training texts")

    monkeypatch.setattr(Linear, "fit", refuse)
    with pytest.raises(DataError, match="no word stands in enough training texts"):
        library.train(SUPPORT / "messages.csv", *LINEAR, runs=tmp_path / "runs")
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_label_seen_only_in_test_is_warned_of_and_measured(tmp_path: Path) -> None:
    rows = "".join(f"good thing {i},yes\nbad thing {i},no\n" for i in range(20))
    (tmp_path / "train.csv").write_text("text,label\n" + rows)
    (tmp_path / "test.csv").write_text("text,label\nfine by me,maybe\ngood one,yes\n")
    run = library.train(tmp_path / "train.csv", *LINEAR, f"data.test={tmp_path / 'test.csv'}", runs=tmp_path / "runs")
    report = run.report()
    assert report is not None
    assert report["test"]["per_label"]["maybe"]["recall"] == 0
    assert any("maybe" in event.get("message", "") for event in run.events())


@pytest.mark.parametrize("setting", ["data.validation_share=0.0", "data.test_share=0.0"])
def test_an_empty_split_is_warned_of_and_the_run_succeeds(tmp_path: Path, setting: str) -> None:
    run = library.train(SUPPORT / "messages.csv", *LINEAR, setting, "model.max_features=500", runs=tmp_path)
    assert run.state().name == "succeeded"
    assert any("split is empty" in event.get("message", "") for event in run.events())


def test_three_rows_are_enough_to_try(tmp_path: Path) -> None:
    (tmp_path / "tiny.csv").write_text("text,label\nyes please,yes\nno thanks,no\nyes,yes\n")
    run = library.train(tmp_path / "tiny.csv", *LINEAR, runs=tmp_path / "runs")
    assert library.load(run.bundle).predict(["yes please"])[0].label == "yes"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file, not a directory")
    with pytest.raises(PlaceError, match="cannot write"):
        library.train(SUPPORT / "pairs.csv", *LINEAR, runs=tmp_path / "runs")


def test_a_full_disk_is_named_and_the_run_has_failed(tmp_path: Path, tagline: Command) -> None:
    """A limit on the size of files stands in for a disk that is full."""
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000));"
        f"from tagline.cli import run; sys.exit(run(['train', {str(SUPPORT / 'messages.csv')!r}, *{LINEAR!r}]))"
    )
    done = run_python("-c", code, cwd=tmp_path, text=True)
    assert done.returncode == 5, done.stderr
    assert "cannot write" in done.stderr
    [run] = list_runs(tmp_path / "runs")
    assert run.state().name == "failed"
    assert "cannot write" in run.state().reason
    assert tagline("train", "--resume", run.name).code == 0


def test_the_public_function_takes_a_mapping_a_spec_and_a_path(tmp_path: Path) -> None:
    raw = {"data": {"train": str(SUPPORT / "pairs.csv")}, "model": {"family": "linear", "max_features": 500}}
    first = library.train(raw, runs=tmp_path)
    second = library.train(first.spec(), runs=tmp_path)
    third = library.train(first.directory / "spec.toml", runs=tmp_path)
    assert contents(first) == contents(second) == contents(third)
    with pytest.raises(SpecError, match=r"model\.max_featurs"):
        library.train({**raw, "model": {"family": "linear", "max_featurs": 500}}, runs=tmp_path)


def test_predictions_of_the_test_split_are_what_predict_answers(tmp_path: Path) -> None:
    for name in ("messages.csv", "messages-multi.csv", "pairs.csv"):
        run = library.train(SUPPORT / name, *LINEAR, "model.max_features=500", "model.strength=4.0", runs=tmp_path)
        lines = [json.loads(line) for line in (run.directory / "predictions.jsonl").read_text().splitlines()]
        report = run.report()
        assert report is not None
        assert len(lines) == report["splits"]["test"]
        texts = [tuple(line["text"]) if report["pair"] else line["text"] for line in lines]
        answers = [prediction.to_dict() for prediction in library.load(run.bundle).predict(texts)]
        assert [{key: line[key] for key in answer} for line, answer in zip(lines, answers, strict=True)] == answers
