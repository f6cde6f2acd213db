"""Runs and bundles that were made before the modules moved to rooms: they are shown, resumed, measured and served."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tagline as package
from tagline.serving.app import LoadedBundle

EARLIER = Path(__file__).parents[1] / "unit" / "fixtures" / "runs-0.1"
TEXT = "My parcel has not arrived."


@pytest.fixture
def earlier(support: Path, tmp_path: Path) -> Path:
    """A directory with the runs `done` and `killed`, and the rows that they learn from."""
    shutil.copytree(EARLIER, tmp_path / "runs")
    rows = (support / "messages.csv").read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "messages.csv").write_text("".join(rows[:120]), "utf-8")
    for lock in (tmp_path / "runs").glob("*/lock.json"):
        lock.write_text(lock.read_text().replace('"/data"', f'"{tmp_path}"'))
    return tmp_path / "runs"


def test_an_earlier_run_is_shown_and_its_bundle_answers(earlier: Path, tagline: Callable[..., Any]) -> None:
    shown = tagline("runs", "show", "done", "--json").json
    assert shown["state"] == "succeeded"
    answer = package.load(earlier / "done" / "bundle").predict([TEXT])[0]
    served = LoadedBundle(package.Bundle.load(earlier / "done" / "bundle"), threads=1)
    assert served.predict([TEXT], None)[0].label == answer.label
    measured = tagline("evaluate", earlier / "done" / "bundle", "messages.csv", "--json").json
    assert measured["test"]["rows"] > 100


def test_an_earlier_run_that_was_killed_is_resumed_to_the_same_answers(
    earlier: Path, tagline: Callable[..., Any]
) -> None:
    done = tagline("train", "--resume", "killed", "--json")
    assert done.code == 0, done.err
    resumed, whole = (package.load(earlier / name / "bundle").predict([TEXT])[0] for name in ("killed", "done"))
    assert resumed.label == whole.label
    assert resumed.scores == pytest.approx(whole.scores, abs=1e-3)  # another processor rounds otherwise
