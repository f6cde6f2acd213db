"""Training as a process that records itself elsewhere: the run stays what it would have been."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from attempts import SUPPORT, events, told

from python_processes import run_python, start_python
from tagline import registry
from tagline.runs.lookup import list_runs

TRAIN = ("train", str(SUPPORT / "messages.csv"), "model.family=linear", "model.max_features=2000", "model.characters=0")
EVERYWHERE = 'tracking.to=["tensorboard", "wandb", "mlflow"]'
OWN_PACKAGES = ("tensorboard", "wandb", "mlflow")
PATIENT = "from tagline.runs import trackers; trackers.END_TIMEOUT_S = 900.0"
"""However long the packages take to be loaded on a busy machine."""
Command = Callable[..., Any]


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in list(os.environ):
        if variable.startswith(("WANDB_", "MLFLOW_")):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("WANDB_MODE", "offline")


def said(err: str) -> list[str]:
    """What was said, but for the names of runs, the time left and a word about waiting, which depend on the machine."""
    lines = [line for line in err.splitlines() if not line.startswith("waiting for tracker")]
    return [re.sub(r"\d{8}-\d{6}-\w+|\d+:\d\d left", "NAME", line) for line in lines]


def tracked(*words: str, cwd: Path, sent: int = 0) -> "subprocess.CompletedProcess[str]":
    """A command that waits for its trackers, or gets a signal while it learns."""
    done = run_python(*told(sent, *words, before=PATIENT), cwd=cwd, text=True)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def recorded(runs: Path) -> list[Any]:
    """The runs in the store beside the runs."""
    registry.find("trackers", "mlflow")  # imports it without its deprecations, which are errors here
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{runs / 'mlflow.db'}")
    return list(client.search_runs([client.get_experiment_by_name("tagline").experiment_id]))


def test_a_tracked_run_says_and_makes_what_an_untracked_one_does(tagline: Command, tmp_path: Path) -> None:
    plain = tagline(*TRAIN, "--json", "--runs", "plain")
    done = tracked(*TRAIN, EVERYWHERE, "--json", "--runs", "tracked", cwd=tmp_path)
    assert done.returncode == plain.code == 0, done.stderr
    report = json.loads(done.stdout)["report"]
    assert report == plain.json["report"]
    assert said(done.stderr.replace("tracked/", "plain/")) == said(plain.err)
    [run] = list_runs(tmp_path / "tracked")
    assert events(run) == events(list_runs(tmp_path / "plain")[0])
    [record] = recorded(tmp_path / "tracked")
    assert record.info.run_name == run.name
    assert record.info.status == "FINISHED"
    assert record.data.metrics["report/test/macro_f1"] == report["test"]["macro_f1"]
    assert list(run.directory.glob("tensorboard/*tfevents*"))
    assert list(run.directory.glob("wandb/offline-run-*/*.wandb"))


def test_told_to_stop_it_still_saves_and_goes_on_with_the_same_record(tagline: Command, tmp_path: Path) -> None:
    stopped = tracked(*TRAIN, EVERYWHERE, cwd=tmp_path, sent=signal.SIGTERM)
    assert stopped.returncode == 143, stopped.stderr
    [run] = list_runs(tmp_path / "runs")
    assert run.state().name == "cancelled"
    assert [record.info.status for record in recorded(tmp_path / "runs")] == ["KILLED"]
    resumed = tracked("train", "--resume", run.name, cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert "tracker" not in "\n".join(said(resumed.stderr))
    assert [record.info.status for record in recorded(tmp_path / "runs")] == ["FINISHED"]
    plain = tagline(*TRAIN, "--runs", "plain")
    assert plain.code == 0, plain.err
    assert events(run) == events(list_runs(tmp_path / "plain")[0])


def test_nobody_is_asked_for_a_key_on_a_terminal(tmp_path: Path) -> None:
    terminal, ours = os.openpty()
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "xterm"}
    command = told(0, *TRAIN, 'tracking.to=["wandb"]', before=PATIENT)
    streams = {"stdin": ours, "stdout": subprocess.DEVNULL, "stderr": ours}
    with start_python(*command, cwd=tmp_path, env=environment, **streams) as process:
        os.close(ours)
        shown = b""
        with suppress(OSError):  # how a terminal ends
            while piece := os.read(terminal, 65536):
                shown += piece
    os.close(terminal)
    assert process.returncode == 0
    assert b"tracker wandb failed, the run goes on without it: UsageError: No API key configured" in shown


def with_no_tracker_installed(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command where importing a tracker's package is an error, as if none were installed."""
    code = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OWN_PACKAGES!r}:
            raise ImportError("No module named " + name)
sys.meta_path.insert(0, Refuse())
from tagline.cli import run
sys.exit(run({list(arguments)!r}))
"""
    return run_python("-c", code, cwd=cwd, text=True)


@pytest.mark.parametrize("name", OWN_PACKAGES)
def test_a_tracker_that_is_not_installed_is_said_before_the_run_begins(name: str, tmp_path: Path) -> None:
    done = with_no_tracker_installed(*TRAIN, f'tracking.to=["{name}"]', cwd=tmp_path)
    assert done.returncode == 5
    assert f"error: tracker {name} cannot be loaded: No module named {name}" in done.stderr
    assert 'next: pip install "tagline[track]"' in done.stderr
    assert not (tmp_path / "runs").exists()


def test_an_untracked_run_needs_none_of_the_packages(tmp_path: Path) -> None:
    done = with_no_tracker_installed(*TRAIN, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
