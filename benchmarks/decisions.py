"""What the decision layer is worth on four corpora: calibration, thresholds, abstention, and sets of labels.

    python benchmarks/decisions.py [--sets NAME ...] [--family NAME] [--rows N]

One model a corpus is trained with the family's defaults on up to N rows (4,000, which takes minutes on one core). Its
held-out rows, validation and test, are then dealt anew ten times into rows to tune the decision layer on and rows to
measure it on. A call adds its figures to those that others have measured. The corpora are not part of this project:
TAGLINE_DATA names the directory that holds them.
"""

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from families import CORPORA, DATA, Corpus, _renamed, _table, _write
from measure import earlier, write

import tagline
from tagline.data import dataset
from tagline.evaluation import intervals, metrics
from tagline.prediction.bundle import load_classifier
from tagline.prediction.decisions import DecisionLayer, are_right, tune
from tagline.prediction.predictor import score_texts
from tagline.spec import Decisions

SETS = {name: CORPORA[name] for name in ("financial_phrasebank", "happydb", "goemotions")} | {
    "banking77": Corpus("en", lambda: (
        _renamed(_table("banking77/train.csv"), text="text", label="category"),
        _renamed(_table("banking77/test.csv"), text="text", label="category"),
    )),
}  # fmt: skip
MOST_TEST_ROWS = 4000
DEALS = 10
TARGETS = {"single": 0.95, "multi": 0.6}
PROMISED = 0.95


def held_out(corpus: Corpus, family: str, *, most: int) -> tuple[Any, Any, int, Any]:
    """Scores and truth of rows that a model did not learn from, how many of them were for validation, and the task."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        for name, rows, count in zip(("train", "test"), corpus.rows(), (most, MOST_TEST_ROWS), strict=True):
            _write(place / f"{name}.csv", random.Random(0).sample(rows, min(count, len(rows))))
        run = tagline.train(
            place / "train.csv",
            f"data.test={place / 'test.csv'}",
            *corpus.settings,
            f"model.family={family}",
            "data.bad_rows=skip",
            "training.baseline=false",
            "training.export=false",
            runs=place / "runs",
        )
        data = dataset.load(run.spec().data)
        model = load_classifier(family, run.checkpoint(run.progress().best))
        splits = [data.splits[name] for name in ("validation", "test")]  # type: ignore[index]
        scores = [score_texts(model, split.texts, labels=len(data.labels)) for split in splits]
    return np.concatenate(scores), np.concatenate([split.targets for split in splits]), len(splits[0]), data.task


def deals(scores: Any, truth: Any, rows: int, task: Any) -> Iterator[dict[str, float]]:
    """The figures of each deal."""
    labels = [str(number) for number in range(scores.shape[1])]
    for seed in range(DEALS):
        order = np.random.default_rng(seed).permutation(len(scores))
        tuning, measuring = order[:rows], order[rows:]
        settings = Decisions(target_precision=TARGETS[task])
        layer = tune(settings, task=task, labels=labels, scores=scores[tuning], truth=truth[tuning]).layer
        said, right_answers = layer.answers(scores[measuring]), truth[measuring]
        plain = DecisionLayer(task, tuple(labels), thresholds=(0.5,) * len(labels)).answers(scores[measuring])
        before, after = (
            metrics.measure(task, labels, truth=right_answers, answers=each.chosen, scores=each.scores)
            for each in (plain, said)
        )
        sets = layer.prediction_sets(said, coverage=PROMISED)
        covered = sets[np.arange(len(sets)), right_answers] if task == "single" else (sets | ~right_answers).all(axis=1)
        given = ~said.abstained
        is_right = are_right(said.chosen, right_answers)[given]
        low, high = intervals.wilson_interval(int(is_right.sum()), len(is_right))
        yield {
            "ece before": before["ece"],
            "ece after": after["ece"],
            "brier before": before["brier"],
            "brier after": after["brier"],
            "by chance": metrics.chance_calibration_error(said.scores.max(axis=1)) if task == "single" else 0.0,
            "macro-F1 at 0.5": before["macro_f1"],
            "macro-F1": after["macro_f1"],
            "coverage": float(covered.mean()),
            "labels": float(sets.sum(axis=1).mean()),
            "answered": float(given.mean()),
            "right": float(is_right.mean()) if len(is_right) else np.nan,
            "from": low,
            "to": high,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="the decision layer on four corpora")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--family", default="encoder")
    parser.add_argument("--rows", type=int, default=4000)
    chosen = parser.parse_args()
    if not DATA.exists():
        sys.exit(f"{DATA} is missing; set TAGLINE_DATA")
    result = f"decisions-{chosen.family}"
    for name in chosen.sets:
        scores, truth, rows, task = held_out(SETS[name], chosen.family, most=chosen.rows)
        figures = list(deals(scores, truth, rows, task))
        # Where nothing was answered nothing was right.
        means = {key: float(np.nanmean([each[key] for each in figures])) for key in figures[0]}
        print(f"{name}, {chosen.family}: {rows:,} rows to tune on, {len(scores) - rows:,} to measure on, {DEALS} deals")
        print("  " + "  ".join(f"{key} {value:.3f}" for key, value in means.items()))
        print(f"  (promised coverage {PROMISED}, target precision {TARGETS[task]})", flush=True)
        write(result, (earlier(result) or {}) | {f"{name} {chosen.rows}": means})


if __name__ == "__main__":
    main()
