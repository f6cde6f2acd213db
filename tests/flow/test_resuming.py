"""A training of family encoder that is killed or told to stop goes on to the very same end."""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from attempts import SMALL, SUPPORT, Attempt, contents, events, start, touched

from tagline.runs import list_runs

KILLS = int(os.environ.get("TAGLINE_KILLS", "4"))
Checkpoints = Callable[[str], Path]


@pytest.fixture(scope="module")
def command(checkpoint: Checkpoints) -> list[str]:
    """Several evaluations, the last of them without a gain."""
    return ["train", str(SUPPORT / "messages.csv"), *SMALL, f"model.pretrained={checkpoint('bert')}",
            "training.patience=3"]  # fmt: skip


@pytest.fixture(scope="module")
def whole(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Attempt, float]:
    """A run that was never stopped, and how long it took."""
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
