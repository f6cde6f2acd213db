"""What is easy to reach on the same test rows: the most frequent answer, and family linear."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagline import metrics, registry
from tagline.bundle import new_classifier
from tagline.dataset import Dataset, Split
from tagline.decisions import tune
from tagline.models import Classifier
from tagline.predictor import scored
from tagline.spec import Spec

FAMILY = "linear"
MOST_ROWS = 10_000
"""That family linear learns from: half a minute's work at most."""
COMPARED = ("accuracy", "macro_f1", "micro_f1", "subset_accuracy")

Figures = dict[str, Any]


def majority(data: Dataset) -> Figures:
    """What answering the most frequent training label everywhere would reach on test."""
    train, test = data.splits["train"].targets, data.splits["test"].targets
    if not len(train) or not len(test):
        return {}
    if data.task == "single":
        most: Any = int(np.bincount(train).argmax())
        answers: NDArray[Any] = np.full(len(test), most)
        named = {"answer": [data.labels[most]]}
    else:
        kinds, counts = np.unique(train, axis=0, return_counts=True)
        most = kinds[counts.argmax()]
        answers = np.tile(most, (len(test), 1))
        named = {"answer": [data.labels[i] for i in np.flatnonzero(most)]}
    return named | _figures(data, answers)


def linear(spec: Spec, data: Dataset) -> Figures:
    """What family linear reaches on the same splits; of a large training split it sees a part, to be quick."""
    train, validation, labels = data.splits["train"], data.splits["validation"], len(data.labels)
    is_large = len(train) > MOST_ROWS
    rows = train.rows
    if is_large:
        rows = np.sort(np.random.default_rng(spec.training.seed).choice(rows, MOST_ROWS, replace=False))
    model = _learned(spec, data, Split(data.texts(rows), data.targets[rows], rows))
    layer = tune(
        spec.decisions, task=data.task, labels=data.labels, truth=validation.targets,
        scores=scored(model, validation.texts, labels=labels), is_quick=True,
    ).layer  # fmt: skip
    if not is_large:  # as the family itself does
        model = _learned(spec, data, data.select("train", "validation"))
    answers = layer.answers(scored(model, data.splits["test"].texts, labels=labels))
    return ({"train_rows": len(rows)} if is_large else {}) | _figures(data, answers.chosen)


def _learned(spec: Spec, data: Dataset, rows: Split) -> Classifier:
    options = registry.find("models", FAMILY).Options()
    model = new_classifier(spec, options, task=data.task, labels=data.labels, pair=data.pair)
    for _ in model.fit(rows, data.select(), seed=spec.training.seed):
        pass
    return model


def _figures(data: Dataset, answers: NDArray[Any]) -> Figures:
    """The few figures that a report puts beside its own."""
    truth = data.splits["test"].targets
    scores = np.eye(len(data.labels))[answers] if data.task == "single" else answers.astype(np.float64)
    figures = metrics.measure(data.task, data.labels, truth=truth, answers=answers, scores=scores)
    return {name: figures[name] for name in COMPARED if name in figures}
