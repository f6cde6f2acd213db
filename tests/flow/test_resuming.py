"""A training of family encoder that is killed or told to stop goes on to the very same end."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from attempts import SMALL, SUPPORT, Attempt, contents, events, start, touched

import tagline as library
from tagline import training
from tagline.errors import Interrupted
from tagline.models import Step
from tagline.runs.lookup import list_runs
from tagline.training import attempt as attempts
from tagline.training import spec_sources

KILLS = int(os.environ.get("TAGLINE_KILLS", "4"))
Checkpoints = Callable[[str], Path]


@pytest.fixture(scope="module")
def command(checkpoint: Checkpoints) -> list[str]:
    """Several evaluations, the last of them without a gain."""
    whole = [each for each in SMALL if not each.endswith("=false")]  # with its baseline and its ONNX forms
    return [
        "train",
        str(SUPPORT / "messages.csv"),
        *whole,
        f"model.pretrained={checkpoint('bert')}",
        "training.patience=3",
    ]


@pytest.fixture(scope="module")
def whole(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Attempt, float]:
    """A run that was never stopped, and how long it took."""
    assert start("--version", cwd=tmp_path_factory.mktemp("warm")).end() == 0
    begun = time.monotonic()
    attempt = start(*command, cwd=tmp_path_factory.mktemp("whole"))
    assert attempt.end() == 0, attempt.err
    return attempt, time.monotonic() - begun


def test_killed_at_any_moment_it_goes_on_to_the_very_same_end(
    command: list[str], whole: tuple[Attempt, float], tmp_path: Path
) -> None:
    """Half of the kills come at a moment of the clock, the others when the run's directory is touched."""
    undisturbed, usual_s = whole
    chance = random.Random(f"{KILLS} kills")
    for number in range(KILLS):
        moment = (number + chance.random()) / KILLS
        cwd = tmp_path / str(number)
        if number % 2:
            killed = start(*command, cwd=cwd, dies_at=1 + int(moment * touched(undisturbed)))
            assert killed.end() == -signal.SIGKILL
        else:
            start(*command, cwd=cwd).kill(after_s=moment * usual_s)
        print(f"kill {number} at {moment:.3f}: {[run.state() for run in list_runs(cwd / 'runs')]}")
        goes_on_to_the_end_of(undisturbed, cwd=cwd, command=command)


def goes_on_to_the_end_of(whole: Attempt, *, cwd: Path, command: list[str]) -> None:
    runs = list_runs(cwd / "runs")
    resumed = start("train", "--resume", "last", cwd=cwd) if runs else start(*command, cwd=cwd)
    if not runs or runs[0].state().name != "succeeded":
        assert resumed.end() == 0, resumed.err
    else:
        assert resumed.end() == 4
    assert contents(resumed.run) == contents(whole.run)
    assert events(resumed.run) == events(whole.run)
    assert not list(resumed.run.directory.rglob(".tagline-*"))


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_told_to_stop_it_saves_first(
    command: list[str], whole: tuple[Attempt, float], tmp_path: Path, sent: int, code: int
) -> None:
    stopped = start(*command, cwd=tmp_path, dies_at=touched(whole[0]) // 3, sends=sent)
    assert stopped.end() == code
    assert stopped.run.state().name == "cancelled"
    last = stopped.run.progress().last
    assert int(last) == max(event["step"] for event in stopped.run.events() if event["event"] == "step")
    assert f"next: tagline train --resume runs/{stopped.run.name}" in stopped.err
    goes_on_to_the_end_of(whole[0], cwd=tmp_path, command=command)


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        ("messages.csv", ["training.precision=bfloat16", "training.class_weights=balanced"]),
        ("messages.csv", ["training.precision=float16", "model.dropout=0.1"]),
        ("messages.csv", ["model.lora=4", "model.long_texts=windows", "model.max_tokens=16", "data.fraction=0.2"]),
        ("messages-multi.csv", ["training.label_smoothing=0.1", "model.max_batch_tokens=128"]),
        ("pairs.csv", ["model.freeze=1", "model.layer_decay=0.9"]),
    ],
)
def test_whatever_is_learned_it_goes_on_to_the_very_same_end(
    checkpoint: Checkpoints, tmp_path: Path, data: str, settings: list[str]
) -> None:
    command = ["train", str(SUPPORT / data), *SMALL, f"model.pretrained={checkpoint('bert')}", *settings]
    whole = start(*command, cwd=tmp_path / "whole")
    assert whole.end() == 0, whole.err
    killed = start(*command, cwd=tmp_path / "killed", dies_at=touched(whole) // 2)
    assert killed.end() == -signal.SIGKILL
    assert killed.run.progress().last
    goes_on_to_the_end_of(whole, cwd=killed.cwd, command=command)


ULMFIT = ("model.family=ulmfit", "model.max_tokens=72", "model.lm_epochs=1", "model.embedding_size=16",
          "model.hidden_size=16", "model.layers=2")  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [
        ["model.family=lstm", "model.hidden=16", "model.embedding=16"],
        ["model.family=lstm", "model.hidden=16", "model.vocabulary=words", "model.layers=2", "model.pooling=attention"],
        ["model.head=lstm"],
        [*ULMFIT, "training.epochs=8"],
    ],
    ids=["pieces", "words", "head", "ulmfit"],
)
def test_every_family_goes_on_to_the_very_same_end(
    checkpoint: Checkpoints, tmp_path: Path, settings: list[str]
) -> None:
    if settings == ["model.head=lstm"]:
        settings = [*settings, f"model.pretrained={checkpoint('bert')}"]
    small = [each for each in SMALL if not (each.startswith("model.") and "ulmfit" in settings[0])]
    command = ["train", str(SUPPORT / "messages.csv"), *small, *settings]
    whole = start(*command, cwd=tmp_path / "whole")
    assert whole.end() == 0, whole.err
    for share in (0.25, 0.75):
        killed = start(*command, cwd=tmp_path / str(share), dies_at=int(share * touched(whole)))
        assert killed.end() == -signal.SIGKILL
        assert killed.run.progress().last
        goes_on_to_the_end_of(whole, cwd=killed.cwd, command=command)


def test_a_resumed_run_refuses_changed_data_and_a_changed_spec(command: list[str], tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text((SUPPORT / "messages.csv").read_text())
    killed = start("train", data, *command[2:], cwd=tmp_path, dies_at=60)
    assert killed.end() == -signal.SIGKILL
    spec = killed.run.directory / "spec.toml"
    for path, old, new in ((data, ",billing", ",returns"), (spec, "batch_size = 16", "batch_size = 32")):
        before = path.read_text()
        path.write_text(before.replace(old, new, 1))
        refused = start("train", "--resume", "last", cwd=tmp_path)
        assert refused.end() == 4
        assert path.name in refused.err
        assert "has changed" in refused.err
        path.write_text(before)
    assert start("train", "--resume", "last", cwd=tmp_path).end() == 0


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As in the other processes: more of them would wait for each other on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_told_to_stop_while_the_last_step_is_kept_it_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = attempts.Attempt._write_checkpoint

    def keep_and_stop(attempt: Any, step: Step, *rest: Any, **named: Any) -> None:
        keep(attempt, step, *rest, **named)
        if attempt.model.progress.strength == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(attempts.Attempt, "_write_checkpoint", keep_and_stop)
    with pytest.raises(Interrupted, match="told to stop after saving"):
        library.train(SUPPORT / "messages.csv", "model.family=linear", runs=tmp_path)
    [run] = list_runs(tmp_path)
    assert run.state().name == "cancelled"
    monkeypatch.undo()
    library.train(run.directory, resume=True)
    assert run.state().name == "succeeded"


@pytest.mark.usefixtures("one_thread")
def test_between_evaluations_checkpoints_are_written_by_time(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_sources.resolve_spec(command[1], [*command[2:], "training.epochs=1"])
    whole = library.train(spec, runs=tmp_path / "whole")
    monkeypatch.setattr(attempts, "CHECKPOINT_EVERY_S", 0.0)
    steps = training.start_run(spec, runs=tmp_path / "cut", command="a test")
    assert any(event.get("step") == 12 for event in steps)
    steps.close()  # type: ignore[attr-defined]
    [run] = list_runs(tmp_path / "cut")
    assert run.progress().last == "000011"
    library.train(run.directory, resume=True)
    assert contents(run) == contents(whole)
    assert events(run) == events(whole)
