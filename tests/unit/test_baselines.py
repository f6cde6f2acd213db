"""What a report compares a model with."""

import shutil
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tagline
from tagline.data import checks, dataset
from tagline.errors import RunError
from tagline.evaluation import baselines
from tagline.reports import advice, compare
from tagline.runs.run import Run

sys.path.insert(0, str(Path(__file__).parents[1]))
from reports import change_report

pytestmark = pytest.mark.trains

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
QUICK = ("model.max_tokens=24", "training.epochs=1", "training.export=false")


@pytest.fixture(scope="module", params=[("encoder", "fewshot"), ("fewshot", "encoder")], ids=lambda pair: pair[0])
def run(request: pytest.FixtureRequest, checkpoint: Callable[[str], Path], tmp_path_factory: Any) -> tuple[Run, str]:
    """A training on few rows a label, and the family that it should be compared with."""
    family, rival = request.param
    settings = (f"model.family={family}", f"model.pretrained={checkpoint('bert')}", "data.fraction=0.3", *QUICK)
    return tagline.train(SUPPORT / "messages.csv", *settings, runs=tmp_path_factory.mktemp("runs")), rival


def test_with_few_rows_a_label_the_rival_is_measured_too(run: tuple[Run, str]) -> None:
    report: Any = run[0].report()
    assert set(report["baselines"]) == {"majority", "linear", run[1]}
    assert 0 <= report["baselines"][run[1]]["accuracy"] <= 1
    assert any(sentence.startswith(f"Family {run[1]} reaches accuracy") for sentence in advice.write_verdict(report))


def test_the_better_of_the_two_is_advised_with_its_figures(run: tuple[Run, str]) -> None:
    report: Any = run[0].report()
    for theirs, said in ((1.0, "it reaches 1.000 against"), (0.0, "")):
        changed = change_report(report, baselines=report.baselines | {run[1]: {"accuracy": theirs}})
        steps = [step for step in advice.next_steps(changed) if f"model.family={run[1]}" in step]
        assert bool(steps) == bool(said)
        assert all(said in step for step in steps)


def test_check_tells_what_a_run_on_the_same_data_has_measured(run: tuple[Run, str]) -> None:
    here, runs = run[0], run[0].directory.parent
    data = dataset.load(here.spec().data)
    assert checks.has_few_shots(data)
    found = compare.find_few_shot_result(data, runs=runs)
    assert found is not None
    assert f"run {here.name} measured" in found.message
    damaged = runs / "29990101-000000-odd"  # the newest, so that it is looked at first
    shutil.copytree(here.directory, damaged)
    (damaged / "lock.json").write_text("{")
    assert compare.find_few_shot_result(data, runs=runs) == found
    shutil.rmtree(damaged)
    other = dataset.load(here.spec().data.model_copy(update={"fraction": 0.4}))
    assert compare.find_few_shot_result(other, runs=runs) is None, "that run was on other rows"


@pytest.mark.parametrize(
    ("rows", "best"),
    [
        ([[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]], [1, 0, 0]),
        ([[1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 0]], [0, 1, 0]),
        ([[1, 1], [1, 1], [1, 0], [0, 1]], [1, 1]),
        ([[0, 0], [0, 0]], [0, 0]),
    ],
)  # fmt: skip
def test_one_answer_for_all_is_the_best_there_is(rows: list[list[int]], best: list[int]) -> None:
    """Most of the texts may have no label, and no answer at all would make any model look good."""
    truth = np.array(rows, dtype=bool)
    found = baselines._find_best_constant(truth)
    assert found.tolist() == [bool(each) for each in best]

    def micro_f1(answer: tuple[bool, ...]) -> float:
        given = np.tile(answer, (len(truth), 1))
        return float(2 * (given & truth).sum() / max(given.sum() + truth.sum(), 1))

    assert micro_f1(tuple(found)) == max(map(micro_f1, product((False, True), repeat=truth.shape[1])))


def test_many_labels_are_not_all_named_in_a_sentence(tmp_path: Path) -> None:
    run = tagline.train(SUPPORT / "messages-multi.csv", "model.family=linear", runs=tmp_path)
    report: Any = run.report()
    assert 0 < report["baselines"]["majority"]["micro_f1"] < report["test"]["micro_f1"]
    many = {**report["baselines"]["majority"], "answer": list("abcdefgh")}
    said = advice.write_verdict(change_report(report, baselines={"majority": many}))[1]
    assert said.startswith("Always answering a, b, c and 5 labels more would reach micro_f1 0.")


def test_with_many_rows_a_label_only_what_is_easy_is_compared_with() -> None:
    data = dataset.load(tagline.spec.Data(train=str(SUPPORT / "messages.csv"), text="message", labels="topic"))
    assert not checks.has_few_shots(data)


def test_what_cannot_be_compared_with_is_said_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise RunError("out of memory on cpu")

    monkeypatch.setattr(baselines, "measure_linear", fails)
    small = ("model.family=lstm", "model.hidden=8", "training.epochs=1", "training.export=false", "data.fraction=0.2")
    run = tagline.train(SUPPORT / "messages.csv", *small, runs=tmp_path)
    report: Any = run.report()
    assert set(report["baselines"]) == {"majority"}
    said = [event["message"] for event in run.events() if event["event"] == "warning"]
    assert "not compared with family linear: out of memory on cpu" in said
