"""A training of family fewshot that is killed or told to stop goes on to the very same end."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from attempts import SUPPORT, Attempt, contents, events, start, touched

from tagline.runs.lookup import list_runs

Checkpoints = Callable[[str], Path]
SMALL = (
    "model.family=fewshot", "model.max_tokens=32", "model.tuning_steps=30", "data.fraction=0.3",
    "training.batch_size=16", "training.learning_rate=0.003", "training.log_every=1",
    "training.baseline=false", "training.export=false",
)  # fmt: skip


@pytest.fixture(scope="module", params=["messages.csv", "messages-multi.csv"])
def command(request: pytest.FixtureRequest, checkpoint: Checkpoints) -> list[str]:
    return ["train", str(SUPPORT / request.param), *SMALL, f"model.pretrained={checkpoint('bert')}"]


@pytest.fixture(scope="module")
def whole(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    """A run that was never stopped."""
    attempt = start(*command, cwd=tmp_path_factory.mktemp("whole"))
    assert attempt.end() == 0, attempt.err
    return attempt


def ends_like(resumed: Attempt, whole: Attempt) -> None:
    assert resumed.end() == 0, resumed.err
    assert contents(resumed.run) == contents(whole.run)
    assert events(resumed.run) == events(whole.run)
    assert not list(resumed.run.directory.rglob(".tagline-*"))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_killed_at_any_moment_it_goes_on_to_the_very_same_end(
    command: list[str], whole: Attempt, tmp_path: Path, share: float
) -> None:
    killed = start(*command, cwd=tmp_path, dies_at=1 + int(share * touched(whole)))
    assert killed.end() == -signal.SIGKILL
    again = ["train", "--resume", "last"] if list_runs(tmp_path / "runs") else command
    ends_like(start(*again, cwd=tmp_path), whole)


def test_told_to_stop_between_contrastive_steps_and_killed_later_it_goes_on_from_there(
    command: list[str], whole: Attempt, tmp_path: Path
) -> None:
    stopped = start(*command, cwd=tmp_path, dies_at=2 * touched(whole) // 5, sends=signal.SIGTERM)
    assert stopped.end() == 143
    assert 0 < int(stopped.run.progress().last) <= 30
    killed = start("train", "--resume", "last", cwd=tmp_path, dies_at=touched(whole) // 3)
    assert killed.end() == -signal.SIGKILL
    ends_like(start("train", "--resume", "last", cwd=tmp_path), whole)
