"""A run goes on from undamaged checkpoints alone, to the same end as one that was never stopped."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tagline
from tagline import training
from tagline.errors import RunError
from tagline.runs.checkpoints import PROGRESS, Progress
from tagline.runs.lookup import list_runs
from tagline.runs.run import Run
from tagline.training import attempt as attempts
from tagline.training import spec_sources

pytestmark = pytest.mark.trains

DATA = Path(__file__).parents[2] / "examples" / "support" / "messages.csv"
SETTINGS = (
    "model.family=linear",
    "model.max_features=200",
    "data.fraction=0.3",
    "training.baseline=false",
    "training.log_every=1",
)
Stopped = Callable[..., Run]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return tagline.train(DATA, *SETTINGS, runs=tmp_path_factory.mktemp("whole"))


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stopped:
    """A run that was stopped after so many evaluations; of these the ones that count as best can be chosen."""

    def make(evaluations: int, *, bests: list[bool] | None = None) -> Run:
        measured = attempts.Attempt._evaluate

        def evaluate(attempt: Any, step: Any) -> Any:
            before = attempt.progress
            event = measured(attempt, step)
            if bests and not bests.pop(0):
                attempt.progress = replace(attempt.progress, best=before.best)
            return event

        monkeypatch.setattr(attempts.Attempt, "_evaluate", evaluate)
        spec = spec_sources.resolve_spec(DATA, SETTINGS)
        events = training.start_run(spec, runs=tmp_path / "runs", command="a test")
        seen = 0
        for event in events:
            if seen == evaluations:
                break
            seen += event["event"] == "evaluation"
        events.close()  # type: ignore[attr-defined]
        monkeypatch.undo()
        [run] = list_runs(tmp_path / "runs")
        return run

    return make


def flip(run: Run, name: str, file: str = "model.safetensors", count: int = 20) -> None:
    """Change bytes in the middle of a checkpoint's file."""
    path = run.checkpoint(name) / file
    content = bytearray(path.read_bytes())
    for place in range(len(content) // 2, len(content) // 2 + count):
        content[place] ^= 1
    path.write_bytes(content)


def warnings(run: Run) -> list[str]:
    return [event["message"] for event in run.events() if event["event"] == "warning"]


def outcome(run: Run) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.bundle.iterdir()}


def test_a_checkpoint_is_recorded_with_the_hash_of_every_file(stopped: Stopped) -> None:
    progress = stopped(1).progress()
    assert set(progress.files) == {"config.json", "model.safetensors", "vocabulary.json"}


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "vocabulary.json"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(stopped: Stopped, whole: Run, file: str) -> None:
    run = stopped(2)
    progress = run.progress()
    assert progress.last == progress.best
    flip(run, progress.last, file, count=1)
    tagline.train(run.directory, resume=True)
    [said] = [message for message in warnings(run) if "checkpoint" in message]
    assert f"checkpoints/{progress.last}/{file} has changed since it was written" in said
    assert f"going on from checkpoint {progress.earlier[0].last}" in said
    assert outcome(run) == outcome(whole)


def test_a_damaged_best_checkpoint_is_not_used_though_the_last_is_sound(stopped: Stopped, whole: Run) -> None:
    run = stopped(3, bests=[True, True, False])
    progress = run.progress()
    assert progress.last != progress.best
    flip(run, progress.best)
    resumed, damage = run.intact_progress()
    assert resumed.last == resumed.best == progress.earlier[1].last
    assert f"{progress.best}/model.safetensors has changed" in damage
    tagline.train(run.directory, resume=True)
    assert outcome(run) == outcome(whole)


def test_a_damaged_last_checkpoint_is_passed_over_for_the_best(stopped: Stopped) -> None:
    run = stopped(2, bests=[True, False])
    progress = run.progress()
    flip(run, progress.last)
    assert run.intact_progress()[0].last == progress.best


def test_without_a_sound_checkpoint_a_run_starts_from_the_beginning(stopped: Stopped, whole: Run) -> None:
    run = stopped(2)
    for name in run.progress().checkpoints:
        (run.checkpoint(name) / "vocabulary.json").unlink()
    tagline.train(run.directory, resume=True)
    [said] = [message for message in warnings(run) if "checkpoint" in message]
    assert "vocabulary.json is missing" in said
    assert "going on from the beginning" in said
    assert outcome(run) == outcome(whole)


def test_a_run_whose_progress_has_no_hashes_goes_on(stopped: Stopped, whole: Run) -> None:
    run = stopped(2)
    progress = json.loads((run.directory / PROGRESS).read_text())
    del progress["files"], progress["earlier"]
    (run.directory / PROGRESS).write_text(json.dumps(progress))
    tagline.train(run.directory, resume=True)
    assert not [message for message in warnings(run) if "checkpoint" in message]
    assert outcome(run) == outcome(whole)


def test_the_best_checkpoint_is_checked_again_before_it_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = attempts.Attempt._write_checkpoint

    def keep_and_flip(attempt: Any, *rest: Any, **named: Any) -> None:
        keep(attempt, *rest, **named)
        if attempt.model.progress.strength == 3:
            flip(attempt.run, attempt.progress.best)

    monkeypatch.setattr(attempts.Attempt, "_write_checkpoint", keep_and_flip)
    with pytest.raises(RunError, match="has changed since it was written") as error:
        tagline.train(DATA, *SETTINGS, runs=tmp_path)
    assert "tagline train --resume" in error.value.hint
    monkeypatch.undo()
    [run] = list_runs(tmp_path)
    assert run.state().name == "failed"
    tagline.train(run.directory, resume=True)
    assert run.state().name == "succeeded"


def test_at_most_three_checkpoints_are_kept() -> None:
    progress = Progress()
    for number, best in enumerate(["1", "2", "2", "2", "5", "6", "6"], start=1):
        progress = Progress(last=str(number), best=best).with_earlier_bests(progress)
        assert len(progress.checkpoints) <= 3
        assert progress.last == progress.best or progress.earlier[0].last == progress.best
    assert progress.checkpoints == ["7", "6", "5"]
