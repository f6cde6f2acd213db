"""A run's directory: whole files, one writer, honest states."""

import json
import re
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tagline import spec as specs
from tagline.errors import NameTaken, RunError, SpecError
from tagline.prediction.bundle import MANIFEST
from tagline.runs import run as runs
from tagline.runs.checkpoints import Progress
from tagline.runs.events import StepEvent, parse_event
from tagline.runs.lookup import check_name_free, find_bundle, find_last_with_bundle, find_run, list_runs
from tagline.runs.run import Run

SPEC = specs.defaults({"train": "data.csv", "text": "text", "labels": "label"})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "runs", SPEC, {"seed": 42, "spec_fingerprint": ""})


def test_a_new_run_is_whole(run: Run) -> None:
    assert {path.name for path in run.directory.iterdir()} == {"spec.toml", "lock.json", "state.json", "events.jsonl"}
    assert run.state().name == "waiting"
    assert run.spec() == SPEC
    assert run.lock() == {"seed": 42, "spec_fingerprint": ""}


def test_names_sort_by_time_and_never_collide(tmp_path: Path) -> None:
    made = [Run.create(tmp_path, SPEC, {}) for _ in range(20)]
    assert len({run.name for run in made}) == 20
    assert [run.name for run in list_runs(tmp_path)] == sorted(run.name for run in made)


def test_a_run_that_a_user_named_is_the_last_only_while_it_is_the_newest(tmp_path: Path) -> None:
    own = Run.create(tmp_path, SPEC, {"spec_fingerprint": ""}, name="zebra")
    moments = {"20250101-000000-old": "2025-01-01T00:00:00+00:00", "20991231-235959-new": "2099-12-31T23:59:59+00:00"}
    for name in moments:
        Run.create(tmp_path, SPEC, {"spec_fingerprint": ""}, name=name)
    assert [run.name for run in list_runs(tmp_path)] == ["20250101-000000-old", own.name, "20991231-235959-new"]
    assert find_run("last", tmp_path).name == "20991231-235959-new"
    assert find_run("zebra", tmp_path).address == own.address


@pytest.mark.parametrize("name", ["", "last", "A", "ä", "a b", "../a", "-a", "a/b", "a" * 64, "a.b"])
def test_a_name_that_no_run_can_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot name a run"):
        check_name_free(name, tmp_path)


def test_a_name_that_another_process_takes_meanwhile_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, first = runs.list_names, Run.create(tmp_path, SPEC, {})
    seen: list[list[str]] = [[]]  # before the other was there
    monkeypatch.setattr(runs, "list_names", lambda where: seen.pop() if seen else really(where))
    monkeypatch.setattr(runs, "choose_name", lambda names: "another" if first.name in names else first.name)
    assert Run.create(tmp_path, SPEC, {}).name == "another"
    with pytest.raises(NameTaken, match=f"there is a run {first.name}"):
        Run.create(tmp_path, SPEC, {}, name=first.name)
    assert sorted(run.name for run in list_runs(tmp_path)) == [first.name, "another"]


def test_states_have_times_and_a_reason(run: Run) -> None:
    with run.held():
        run.set_state("running")
        started = run.state()
        run.set_state("cancelled", reason="interrupted")
    ended = run.state()
    assert started.name == "running"
    assert started.started
    assert not started.ended
    assert (ended.name, ended.reason, ended.started) == ("cancelled", "interrupted", started.started)
    assert ended.ended >= ended.started


def test_a_run_whose_process_is_gone_has_failed_and_says_how_to_go_on(run: Run) -> None:
    with run.held():
        run.set_state("running")
    state = run.state()
    assert state.name == "failed"
    assert f"--resume {run.directory}" in state.reason


def test_two_processes_cannot_write_one_run(run: Run) -> None:
    code = f"""
from datetime import datetime, timedelta
from pathlib import Path
from tagline.runs.run import Run
with Run(Path({str(run.directory)!r})).held():
    print("held", flush=True)
    input()
"""
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdin is not None
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    with pytest.raises(RunError, match=f"is in use by process {other.pid}"), run.held():
        pass
    with pytest.raises(RunError, match="is in use"):
        run.delete()
    other.kill()
    other.wait()
    other.stdin.close()
    other.stdout.close()
    with run.held():
        pass


def test_events_are_appended_and_can_be_rewound(run: Run) -> None:
    for number in range(5):
        run.append_event(parse_event({"event": "step", "step": number, "text": "é\n"}))
    run.rewind_events(3)
    assert [(event["step"], event["text"]) for event in run.events()] == [(0, "é\n"), (1, "é\n"), (2, "é\n")]


def test_an_event_that_was_cut_off_is_not_there_yet(run: Run) -> None:
    run.append_event(StepEvent(step=1))
    with (run.directory / "events.jsonl").open("a") as file:
        file.write('{"event": "st')
    assert run.events() == [StepEvent(step=1)]


def test_settings_that_were_best_are_read_back_as_what_they_were(run: Run) -> None:
    settings = {"strength": 4.0, "tuning_steps": 30}
    run.checkpoint("progress.json").parent.mkdir(exist_ok=True)
    run.write_progress(Progress(best_settings=settings))
    assert repr(run.progress().best_settings) == repr(settings)  # 30 == 30.0, but no option takes 30.0 steps


def test_a_checkpoint_counts_when_its_progress_is_written(run: Run) -> None:
    assert run.progress() == Progress()
    for name in ("000001", "000002", "000003"):
        run.checkpoint(name).mkdir(parents=True)
    progress = Progress(last="000003", best="000001", best_value=0.5, best_settings={"strength": 4.0}, events=2)
    run.write_progress(progress)
    assert run.progress() == progress
    assert sorted(path.name for path in (run.directory / "checkpoints").iterdir()) == [
        "000001",
        "000003",
        "progress.json",
    ]


def test_half_written_files_of_a_killed_process_are_swept_away(run: Run) -> None:
    (run.directory / ".tagline-abc").write_text("half")
    (run.directory / ".tagline-dir").mkdir()
    with run.held():
        assert not list(run.directory.glob(".tagline-*"))


def test_runs_are_found_by_path_by_name_and_as_the_last(tmp_path: Path) -> None:
    first, second = (Run.create(tmp_path, SPEC, {}) for _ in range(2))
    newest = max((first, second), key=lambda run: run.name)
    assert find_run(str(first.directory), tmp_path).directory == first.directory
    assert find_run(first.name, tmp_path).directory == first.directory
    assert find_run("last", tmp_path).directory == newest.directory
    with pytest.raises(RunError, match="there is no run nonsense"):
        find_run("nonsense", tmp_path)
    with pytest.raises(RunError, match="there is no run in"):
        find_run("last", tmp_path / "empty")


def test_a_run_without_a_bundle_says_why(run: Run) -> None:
    run.set_state("failed", reason="the disk is full")
    with pytest.raises(RunError, match="has no bundle: it is failed") as error:
        find_bundle(str(run.directory), run.directory.parent)
    assert error.value.hint == "the disk is full"


def test_where_a_bundle_is_wanted_last_is_the_newest_run_that_has_one(tmp_path: Path) -> None:
    older, trained, failed, running = (Run.create(tmp_path, SPEC, {}, name=name) for name in "abcd")
    with pytest.raises(RunError, match="run d has no bundle: it is waiting"):
        find_bundle("last", tmp_path)
    for run in (older, trained):
        run.bundle.mkdir()
        (run.bundle / MANIFEST).write_text("{}")
    failed.set_state("failed", reason="the disk is full")
    running.bundle.mkdir()  # not written yet
    assert find_bundle("last", tmp_path) == trained.bundle
    found, without = find_last_with_bundle(tmp_path)
    assert (found.name, [run.name for run in without]) == ("b", ["d", "c"])
    assert find_run("last", tmp_path).name == "d"
    with pytest.raises(RunError, match="there is no run in"):
        find_bundle("last", tmp_path / "empty")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("lasst", "; did you mean last?"),
        ("20260101-120000-ambr", "; did you mean 20260101-120000-amber?"),
        ("no/such/bundle", ""),
    ],
)
def test_a_name_that_is_nothing_s_is_said_with_the_closest(name: str, meant: str, tmp_path: Path) -> None:
    Run.create(tmp_path, SPEC, {}, name="20260101-120000-amber")
    with pytest.raises(RunError, match=f"^there is no run or bundle {name}{re.escape(meant)}$"):
        find_bundle(name, tmp_path)
    with pytest.raises(RunError, match=f"^there is no run {name}{re.escape(meant)}$"):
        find_run(name, tmp_path)


@pytest.mark.parametrize(
    "content",
    ["{", "[]", "{}", '{"name": "asleep", "created": ""}', '{"name": "running", "created": 7}',
     '{"name": "running", "created": "", "mood": ""}'],
)  # fmt: skip
def test_a_damaged_state_is_said(run: Run, content: str) -> None:
    (run.directory / "state.json").write_text(content)
    with pytest.raises(RunError, match=r"state\.json is damaged"):
        run.state()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"seconds": "an hour"}', "seconds: "),
        ('{"best_settings": {"rate": []}}', "best_settings.rate"),
        ('{"events": 1.5}', "events: "),
    ],
)
def test_damaged_progress_is_said(run: Run, content: str, problem: str) -> None:
    run.checkpoint("progress.json").parent.mkdir(exist_ok=True)
    run.checkpoint("progress.json").write_text(content)
    with pytest.raises(RunError, match=rf"progress\.json is damaged: {re.escape(problem)}"):
        run.progress()


@pytest.mark.parametrize(
    ("name", "content"),
    [("lock.json", "{}"), ("lock.json", "[]"), ("lock.json", "{"), ("events.jsonl", "no JSON\n"),
     ("report.json", "[]")],
)  # fmt: skip
def test_any_other_damaged_file_is_said(run: Run, name: str, content: str) -> None:
    (run.directory / name).write_text(content)
    with pytest.raises(RunError, match=f"{re.escape(name)} is damaged"):
        {"lock.json": run.lock, "events.jsonl": run.events, "report.json": run.report}[name]()


def test_a_file_that_somebody_removed_is_missing_rather_than_damaged(run: Run) -> None:
    with pytest.raises(RunError, match=r"predictions\.jsonl is missing$"):
        run.predictions()


def test_a_deleted_run_is_gone(run: Run) -> None:
    run.delete()
    assert not run.directory.exists()
    assert list_runs(run.directory.parent) == []


def test_what_is_no_run_is_not_opened(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run"):
        Run.open(tmp_path)


def test_every_default_is_written_out(run: Run) -> None:
    text = (run.directory / "spec.toml").read_text()
    assert "validation_share = 0.1" in text
    assert json.dumps("macro_f1") in text


def test_what_restarts_cost_is_the_work_that_was_done_again(run: Run) -> None:
    assert run.restarts() == (0, 0.0)
    run.begin_attempt()
    assert run.restarts() == (0, 0.0)
    first = run.attempts()[0]
    later = datetime.fromisoformat(first.time) + timedelta(minutes=3)
    run.append_event(StepEvent(step=1, time=later.isoformat()))
    run.begin_attempt()
    assert run.restarts() == (1, pytest.approx(3.0))
    kept = datetime.fromisoformat(first.time) + timedelta(minutes=10)
    run.checkpoint("000010").mkdir(parents=True)
    run.write_progress(Progress(last="000010", events=1, time=kept.isoformat()))
    run.append_event(StepEvent(step=2, time=(kept + timedelta(minutes=2)).isoformat()))
    run.begin_attempt()
    assert run.restarts() == (2, pytest.approx(5.0))
    assert [attempt.checkpoint for attempt in run.attempts()] == ["", "", "000010"]
    run.rewind_events(1)
    run.begin_attempt()
    assert run.restarts() == (3, pytest.approx(5.0)), "stopped right after it had saved, it has lost nothing"


def test_advice_to_resume_names_the_place_where_this_process_is_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tagline.runs.run import Run
    from tagline.training.attempt import _resume_command

    there, here = Run("gs://bucket/tagline/runs/a"), Run(tmp_path / "a")
    monkeypatch.delenv("CLOUD_ML_JOB_ID", raising=False)
    assert _resume_command(there) == "tagline train --resume gs://bucket/tagline/runs/a"
    monkeypatch.setenv("CLOUD_ML_JOB_ID", "42")
    assert _resume_command(there) == "tagline train --resume gs://bucket/tagline/runs/a --on vertex"
    assert _resume_command(here) == f"tagline train --resume {tmp_path / 'a'}"
    monkeypatch.setenv("REHEARSAL_ADDRESS", "http://localhost:8085")
    assert _resume_command(there) == "tagline train --resume gs://bucket/tagline/runs/a --on rehearsal"


def test_a_process_named_by_a_file_is_known_again(tmp_path: Path) -> None:
    import os

    from tagline.system.processes import find_live_process, read_start_time

    path = tmp_path / "process.json"
    assert find_live_process(path) == 0
    for text in ("", "[]", '{"pid": 1}', '{"pid": "x", "started": "1"}'):
        path.write_text(text)
        assert find_live_process(path) == 0
    path.write_text(json.dumps({"pid": os.getpid(), "started": read_start_time(os.getpid()), "more": 1}))
    assert find_live_process(path) == os.getpid()
    path.write_text(json.dumps({"pid": os.getpid(), "started": "earlier"}))
    assert find_live_process(path) == 0
