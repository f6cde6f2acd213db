"""What a family that refits ships: a decision layer tuned for the weights in the bundle, or the model before it."""

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tagline
from tagline.data.dataset import Dataset
from tagline.evaluation import cross_fitting
from tagline.exports import export
from tagline.models import Classifier
from tagline.training import finish, refit

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
QUICK = ("model.family=linear", "model.characters=0", "model.words=1", "training.baseline=false")


@pytest.fixture(scope="module")
def rare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 texts of one or two of 30 labels, half of which have one or two rows."""
    drawn = np.random.default_rng(1)
    shares = np.arange(1, 31) ** -1.6
    rows = []
    for _ in range(300):
        own = drawn.choice(30, size=1 + int(drawn.random() < 0.3), replace=False, p=shares / shares.sum())
        words = [f"topic{label}x{drawn.integers(4)}" for label in own for _ in range(2)]
        words += [f"w{number}" for number in drawn.integers(500, size=6)]
        drawn.shuffle(words)
        rows.append((" ".join(words), "|".join(f"label{label}" for label in own)))
    path = tmp_path_factory.mktemp("rare") / "rare.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "labels"), *rows])
    return path


def warnings_of(run: tagline.Run) -> list[str]:
    return [event["message"] for event in run.events() if event["event"] == "warning"]


def report_of(run: tagline.Run) -> dict[str, Any]:
    report = run.report()
    assert report is not None
    return report


def test_no_rare_label_is_answered_for_every_text(rare: Path, tmp_path: Path) -> None:
    """Under the thresholds of a model that had not seen its one row, a label was: micro-F1 0.523, no row right."""
    run = tagline.train(rare, "data.label_separator=|", *QUICK, runs=tmp_path)
    rows = run.predictions()
    given = Counter(label for row in rows for label in row["labels"])
    there = Counter(label for row in rows for label in row["truth"])
    assert all(count <= there[label] + len(rows) // 5 for label, count in given.items()), given
    report = report_of(run)
    assert report["test"]["micro_f1"] > 0.8
    assert report["test"]["subset_accuracy"] > 0.6
    assert report["overanswered"] == report["fallbacks"] == []


def test_with_too_many_rows_the_model_stays_as_it_was_tuned(rare: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(refit, "MOST_REFITTED", 100)
    monkeypatch.setattr(cross_fitting, "fit_on_rows", pytest.fail)
    run = tagline.train(rare, "data.label_separator=|", *QUICK, runs=tmp_path)
    assert report_of(run)["test"]["micro_f1"] > 0.7


def test_a_refit_that_does_worse_is_not_shipped_and_that_is_said(tmp_path: Path, monkeypatch: Any) -> None:
    """All rows together teach it nonsense; the folds did not."""
    learn = cross_fitting.fit_on_rows

    def learn_nonsense(data: Dataset, rows: Any, **options: Any) -> Classifier:
        if len(rows) == len(data.select("train", "validation")):
            data.targets[:] = data.targets[::-1]
            try:
                return learn(data, rows, **options)
            finally:
                data.targets[:] = data.targets[::-1]
        return learn(data, rows, **options)

    settings = (SUPPORT / "messages.csv", *QUICK, "data.validation_share=0.3")
    with monkeypatch.context() as patch:
        patch.setattr(cross_fitting, "fit_on_rows", learn_nonsense)
        run = tagline.train(*settings, runs=tmp_path / "nonsense")
    [said] = [message for message in warnings_of(run) if "learned once more" in message]
    assert "does worse on them (accuracy falls by" in said
    report = report_of(run)
    assert report["fallbacks"] == [said]
    assert f"Know which form was kept: {said}." in report["advice"]
    monkeypatch.setattr(refit, "MOST_REFITTED", 0)
    without = tagline.train(*settings, runs=tmp_path / "without")
    assert report["test"] == report_of(without)["test"]


def test_a_form_that_does_worse_on_validation_does_not_predict(tmp_path: Path, monkeypatch: Any) -> None:
    """Of family linear, as if it needed a form that needs no torch."""
    from tagline.models.linear import Linear

    add_forms = export.add_forms

    def add_damaged_form(*arguments: Any, **options: Any) -> export.ExportedForms:
        forms = add_forms(*arguments, **options)
        whole = forms.scorers["int8"].scores
        monkeypatch.setattr(forms.scorers["int8"], "scores", lambda texts: whole(texts)[:, ::-1])
        return forms

    monkeypatch.setattr(Linear, "uses_device", True)
    monkeypatch.setattr(finish, "add_forms", add_damaged_form)
    monkeypatch.setattr(export, "MOST_LOST", 1.0)
    run = tagline.train(SUPPORT / "messages.csv", *QUICK, "data.validation_share=0.3", runs=tmp_path)
    report = report_of(run)
    assert report["runtime"] == "float32"
    assert set(report["exports"]) == {"float32", "int8"}
    [said] = report["fallbacks"]
    assert said.startswith("its form int8 does worse on validation than its own (accuracy falls by")
    assert said in warnings_of(run)


def test_a_label_given_to_every_text_is_said(rare: Path, tmp_path: Path) -> None:
    run = tagline.train(rare, "data.label_separator=|", *QUICK, "decisions.thresholds=0.001", runs=tmp_path)
    report = report_of(run)
    worst = report["overanswered"][0]
    assert worst["answered"] - worst["expected"] >= 0.5
    assert any(f"{worst['label']} is answered for" in message for message in warnings_of(run))
    assert report["advice"][0].startswith("Do not use it yet: it gives (nearly) every text the same label")
    assert tagline.evaluate(run.bundle, rare)["overanswered"]
