"""What to do with the validation rows once they have chosen a model, and what its decision layer is tuned on.

    python benchmarks/refit.py [--sets NAME ...] [--family NAME] [--seeds N]

For each corpus a model is trained as `tagline train` does it; from there five ways go on, all in one process and
measured on the same test rows: `none`, the model as it is; `old`, learned again with the validation rows under the
decision layer of the model before; `moved`, the same with thresholds moved until as many validation rows are answered
as before (task multi); `3 folds` and `5 folds`, learned again under a layer tuned on out-of-fold scores of all its
rows. Times are of the processor, as a ratio to a training without any of this. The corpora are not part of this
project: TAGLINE_DATA names the directory that holds them; `generated` needs none: 90 labels, a few of them frequent,
most of them with a handful of rows.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from families import CORPORA, DATA, Corpus, Row, _halves, _renamed, _table, _write
from measure import earlier, write

import tagline
from tagline.data import dataset
from tagline.evaluation import cross_fitting, metrics
from tagline.prediction.bundle import create_classifier, load_classifier
from tagline.prediction.decisions import DecisionLayer, tune
from tagline.prediction.predictor import score_texts
from tagline.training import refit, spec_sources

LABELS, TAIL = 90, 1.6
MOST_TEST_ROWS = 2000
PROMISED = 0.9
SHOWN = ("accuracy", "micro_f1", "macro_f1", "ece", "covered", "labels in a set", "most often", "time")


def generated_rows(count: int, *, seed: int) -> list[Row]:
    """Texts of one or two of 90 labels, of which the n-th is n ** -1.6 times as frequent as the first."""
    drawn = np.random.default_rng(seed)
    shares = np.arange(1, LABELS + 1) ** -TAIL
    rows = []
    for _ in range(count):
        own = drawn.choice(LABELS, size=1 + int(drawn.random() < 0.3), replace=False, p=shares / shares.sum())
        words = [f"topic{label}x{drawn.integers(4)}" for label in own for _ in range(2)]
        words += [f"w{number}" for number in drawn.integers(2000, size=8)]
        drawn.shuffle(words)
        rows.append({"text": " ".join(words), "label": "|".join(f"label {label:02d}" for label in sorted(own))})
    return rows


def _generated(seed: int) -> Corpus:
    rows = generated_rows(2500 + MOST_TEST_ROWS, seed=seed)
    settings = ("data.text=text", "data.labels=label", "data.label_separator=|")
    return Corpus("en", lambda: (rows[:2500], rows[2500:]), settings)


def _sms() -> tuple[list[Row], list[Row]]:
    lines = (DATA / "sms_spam" / "SMSSpamCollection.tsv").read_text("utf-8").splitlines()
    return _halves([{"label": label, "text": text} for label, _, text in (line.partition("\t") for line in lines)])


BANKING = Corpus("en", lambda: (
    _renamed(_table("banking77/train.csv"), text="text", label="category"),
    _renamed(_table("banking77/test.csv"), text="text", label="category"),
))  # fmt: skip
SETS: dict[str, tuple[Callable[[int], Corpus], int]] = {
    "generated 900": (_generated, 900),
    "generated 2500": (_generated, 2500),
    "goemotions 1500": (lambda _: CORPORA["goemotions"], 1500),
    "financial_phrasebank 300": (lambda _: CORPORA["financial_phrasebank"], 300),
    "financial_phrasebank": (lambda _: CORPORA["financial_phrasebank"], 4000),
    "sms_spam 1000": (lambda _: Corpus("en", _sms), 1000),
    "banking77 800": (lambda _: BANKING, 800),
    "happydb 3000": (lambda _: CORPORA["happydb"], 3000),
}


def ways(name: str, family: str, *, seed: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Each way with its figures on test."""
    corpus, most = SETS[name][0](seed), SETS[name][1]
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        for part, rows, count in zip(("train", "test"), corpus.rows(), (most, MOST_TEST_ROWS), strict=True):
            _write(place / f"{part}.csv", random.Random(seed).sample(rows, min(count, len(rows))))
        spec = spec_sources.resolve_spec(
            place / "train.csv",
            [
                f"data.test={place / 'test.csv'}",
                *corpus.settings,
                f"model.family={family}",
                "data.bad_rows=skip",
                "training.baseline=false",
                "training.export=false",
            ],
        )
        refit.MOST_REFITTED = refit.MOST_REFITTED_BY_NETWORK = 0
        begun = time.process_time()
        run = tagline.train(spec, runs=place / "runs")
        whole = time.process_time() - begun
        yield from _compared(run, family, whole=whole)


def _compared(run: Any, family: str, *, whole: float) -> Iterator[tuple[str, dict[str, float]]]:
    spec = run.spec()
    data = dataset.load(spec.data)
    validation, test, both = data.splits["validation"], data.splits["test"], data.select("train", "validation")
    best = load_classifier(family, run.checkpoint(run.progress().best))
    options = spec.model.model_copy(update=run.progress().best_settings)

    def create() -> Any:
        return create_classifier(spec, options, task=data.task, labels=data.labels, pair=data.pair)

    def tuned(scores: Any, truth: Any) -> DecisionLayer:
        return tune(spec.decisions, task=data.task, labels=data.labels, scores=scores, truth=truth).layer

    def seen(model: Any, split: Any) -> Any:
        return score_texts(model, split.texts, labels=len(data.labels))

    before = seen(best, validation)
    layer = tuned(before, validation.targets)
    yield "none", _figures(data, layer, seen(best, test), time=1.0)
    begun = time.process_time()
    refitted = cross_fitting.fit_on_rows(data, both.rows, create=create, seed=spec.training.seed)
    once = time.process_time() - begun
    scores = seen(refitted, test)
    yield "old", _figures(data, layer, scores, time=1 + once / whole)
    if data.task == "multi":
        moved = _moved(layer, before, seen(refitted, validation))
        yield "moved", _figures(data, moved, scores, time=1 + once / whole)
    for folds in (3, 5):
        begun = time.process_time()
        outside = cross_fitting.out_of_fold_scores(
            data,
            both.rows,
            create=create,
            seed=spec.training.seed,
            is_over=lambda: False,
            folds=folds,
        )
        crossed = tuned(outside, both.targets)
        spent = once + time.process_time() - begun
        yield f"{folds} folds", _figures(data, crossed, scores, time=1 + spent / whole)


def _moved(layer: DecisionLayer, before: Any, after: Any) -> DecisionLayer:
    """Thresholds at which as many validation rows are answered as before the model had learned from them."""
    answered, calibrated = layer.answers(before).chosen.sum(axis=0), layer.answers(after).scores
    ordered = np.sort(calibrated, axis=0)[::-1]
    thresholds = [
        float(ordered[n - 1 : n + 1, i].mean()) if 0 < n < len(ordered) else layer.thresholds[i]
        for i, n in enumerate(answered)
    ]
    return replace(layer, thresholds=tuple(thresholds))


def _figures(data: Any, layer: DecisionLayer, scores: Any, **known: float) -> dict[str, float]:
    truth, answers = data.splits["test"].targets, layer.answers(scores)
    found = metrics.measure(data.task, data.labels, truth=truth, answers=answers.chosen, scores=answers.scores)
    sets = layer.prediction_sets(answers, coverage=PROMISED)
    is_covered = sets[np.arange(len(sets)), truth] if truth.ndim == 1 else (sets | ~truth.astype(bool)).all(axis=1)
    often = answers.chosen.mean(axis=0) if truth.ndim == 2 else np.bincount(answers.chosen) / len(truth)
    known |= {"covered": float(is_covered.mean()), "labels in a set": float(sets.sum(axis=1).mean())}
    return {name: found.get(name, known.get(name, float(often.max()))) for name in SHOWN}


def main() -> None:
    parser = argparse.ArgumentParser(description="ways to use the validation rows for learning too")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--family", default="linear")
    parser.add_argument("--seeds", type=int, default=2)
    chosen = parser.parse_args()
    for name in chosen.sets:
        found: dict[str, list[dict[str, float]]] = {}
        for seed in range(chosen.seeds):
            for way, figures in ways(name, chosen.family, seed=seed):
                found.setdefault(way, []).append(figures)
        print(f"\n{name}, {chosen.family}, {chosen.seeds} seeds; sets promise {PROMISED}")
        print(f"{'':<10}" + "".join(f"{key:>16}" for key in SHOWN))
        means = {way: {key: float(np.mean([f[key] for f in some])) for key in SHOWN} for way, some in found.items()}
        for way, figures in means.items():
            print(f"{way:<10}" + "".join(f"{figures[key]:>16.3f}" for key in SHOWN), flush=True)
        result = f"refit-{chosen.family}"
        write(result, (earlier(result) or {}) | {name: means})


if __name__ == "__main__":
    main()
