"""Runs compared."""

from pathlib import Path
from typing import Any

import pytest

import tagline
from tagline.errors import RunError, SpecError
from tagline.runs.run import Run

pytestmark = pytest.mark.trains

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
LINEAR = "model.family=linear"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    directory = tmp_path_factory.mktemp("runs")
    train: Any = lambda *settings, name="messages.csv": tagline.train(SUPPORT / name, LINEAR, *settings, runs=directory)  # noqa: E731
    return {
        "good": train("data.test_share=0.3"),
        "same": train("data.test_share=0.3", "model.max_features=90000"),
        "bad": train("data.test_share=0.3", "model.words=0", "model.characters=1"),
        "other rows": train("data.test_share=0.3", "data.seed=7"),
        "multi": train(name="messages-multi.csv"),
        "multi, worse": train("model.words=0", "model.characters=1", name="messages-multi.csv"),
    }


def test_a_real_difference_is_told_from_none(runs: dict[str, Run]) -> None:
    found = tagline.compare(*(runs[name].directory for name in ("bad", "good", "same")))
    assert {found["runs"][0]["name"], found["runs"][1]["name"]} == {runs["good"].name, runs["same"].name}
    by_other = {each["other"]: each for each in found["differences"]}
    assert by_other[runs["bad"].name]["is_real"]
    assert " is better than " in by_other[runs["bad"].name]["sentence"]
    [equal] = [each for each in found["differences"] if each["other"] != runs["bad"].name]
    assert "cannot be told apart" in equal["sentence"]
    assert equal["p_value"] > 0.05


def test_task_multi_is_compared_too(runs: dict[str, Run]) -> None:
    found = tagline.compare(runs["multi"].directory, runs["multi, worse"].directory)
    assert found["runs"][0]["name"] == runs["multi"].name
    assert found["rows"] == 43


def test_runs_on_other_rows_are_not_compared(runs: dict[str, Run]) -> None:
    with pytest.raises(RunError, match=r"different test rows \(\d+ and \d+, \d+ in common\)"):
        tagline.compare(runs["good"].directory, runs["other rows"].directory)
    with pytest.raises(RunError, match="different labels"):
        tagline.compare(runs["good"].directory, runs["multi"].directory)


def test_one_run_or_the_same_twice_is_no_comparison(runs: dict[str, Run]) -> None:
    with pytest.raises(SpecError, match="two runs or more"):
        tagline.compare(runs["good"].directory)
    with pytest.raises(SpecError, match="named twice"):
        tagline.compare(runs["good"].directory, runs["good"].directory)
    with pytest.raises(RunError, match="there is no run nonsense"):
        tagline.compare(runs["good"].directory, "nonsense")
