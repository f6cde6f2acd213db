"""Baselines on the same test rows: one answer for all, family linear, and with few rows a rival family."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagline import registry
from tagline.data import checks
from tagline.data.dataset import Dataset, Split
from tagline.data.splits import Ints
from tagline.evaluation import cross_fitting, metrics
from tagline.models import Classifier
from tagline.prediction.bundle import create_classifier
from tagline.prediction.decisions import DecisionLayer, tune
from tagline.prediction.predictor import score_texts
from tagline.spec import Spec, Training

FAMILY = "linear"
MOST_ROWS = 10_000
"""The most rows that family linear is fitted on: half a minute's work."""
RIVALS: dict[str, tuple[str, dict[str, Any]]] = {
    "encoder": ("fewshot", {"tuning_steps": 0}), "fewshot": ("encoder", {}),
}  # fmt: skip
"""With few rows per label either fine-tuning or a frozen encoder with a head on top may do better."""
COMPARED = ("accuracy", "macro_f1", "micro_f1", "subset_accuracy")

Figures = dict[str, Any]


def measure_majority(data: Dataset) -> Figures:
    """Measure one answer for every test text: the most frequent label, or the best set of labels."""
    train, test = data.splits["train"].targets, data.splits["test"].targets
    if not len(train) or not len(test):
        return {}
    if data.task == "single":
        majority: Any = int(np.bincount(train).argmax())
        answers: NDArray[Any] = np.full(len(test), majority)
        answer = {"answer": [data.labels[majority]]}
    else:
        majority = _find_best_constant(train)
        answers = np.tile(majority, (len(test), 1))
        answer = {"answer": [data.labels[i] for i in np.flatnonzero(majority)]}
    return answer | _select_figures(data, answers)


def _find_best_constant(targets: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the labels that, answered for every row of task `multi`, have the highest micro-F1.

    The most frequent set of labels would be no baseline: it is often the empty one, and no model does worse.
    """
    counts = targets.sum(axis=0)
    most_frequent_first = np.argsort(-counts, kind="stable")
    hits, answered = np.cumsum(counts[most_frequent_first]), len(targets) * np.arange(1, len(counts) + 1)
    best = np.zeros(len(counts), dtype=bool)
    if counts.any():
        best[most_frequent_first[: int((2 * hits / (answered + counts.sum())).argmax()) + 1]] = True
    return best


def measure_linear(spec: Spec, data: Dataset) -> Figures:
    """Measure family linear on the same splits, fitted on a sample of a large training split."""
    train = data.splits["train"]
    options, rows = registry.find("models", FAMILY).Options(), sample_rows(train.rows, seed=spec.training.seed)
    if len(rows) == len(train):
        return _measure_family(spec, data, options, train)
    part = Split(data.texts(rows), data.targets[rows], rows)
    return {"train_rows": len(rows)} | _measure_family(spec, data, options, part)


def sample_rows(rows: Ints, *, seed: int) -> Ints:
    """Return the rows that family linear is fitted on: all, or a random sample drawn with the seed."""
    if len(rows) <= MOST_ROWS:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, MOST_ROWS, replace=False))


def choose_rival(spec: Spec, data: Dataset) -> str:
    """Return the family that may do better with few rows per label; empty with many."""
    name, _ = RIVALS.get(spec.model.family, ("", {}))
    return name if name and checks.has_few_shots(data) else ""


def measure_rival(spec: Spec, data: Dataset) -> Figures:
    """Measure the rival on the same splits, with its defaults and the same pretrained encoder."""
    name, settings = RIVALS[spec.model.family]
    same = spec.model.model_dump(include={"pretrained", "max_tokens"})
    options = registry.find("models", name).Options(**same, **settings)
    plain = spec.model_copy(update={"training": Training.model_validate({"seed": spec.training.seed})})
    return _measure_family(plain, data, options, data.splits["train"])


def _measure_family(spec: Spec, data: Dataset, options: Any, train: Split) -> Figures:
    """Measure a family fitted on the same rows as the spec's own family, with a decision layer of its own.

    A family that refits with the validation rows does so only if the spec's own does: else it would see more rows.
    """
    validation, labels = data.splits["validation"], len(data.labels)
    model = _fit_model(spec, data, options, train)
    layer = tune(
        spec.decisions,
        task=data.task,
        labels=data.labels,
        truth=validation.targets,
        none_label=data.none_label,
        scores=score_texts(model, validation.texts, labels=labels),
        is_quick=True,
    ).layer
    spec_family = registry.find("models", spec.model.family)
    if model.refits and spec_family.refits and len(train) == len(data.splits["train"]):
        model, layer = _refit(spec, data, options)
    answers = layer.answers(score_texts(model, data.splits["test"].texts, labels=labels))
    return _select_figures(data, answers.chosen)


def _refit(spec: Spec, data: Dataset, options: Any) -> tuple[Classifier, DecisionLayer]:
    """Fit a model on the validation rows too, with a decision layer tuned on out-of-fold scores."""
    joined, seed = data.select("train", "validation"), spec.training.seed

    def create() -> Classifier:
        return create_classifier(spec, options, task=data.task, labels=data.labels, pair=data.pair)

    scores = cross_fitting.out_of_fold_scores(data, joined.rows, create=create, seed=seed, is_over=lambda: False)
    assert scores is not None
    tuned = tune(
        spec.decisions,
        task=data.task,
        labels=data.labels,
        truth=joined.targets,
        none_label=data.none_label,
        scores=scores,
        is_quick=True,
    )
    return cross_fitting.fit_on_rows(data, joined.rows, create=create, seed=seed), tuned.layer


def _fit_model(spec: Spec, data: Dataset, options: Any, rows: Split) -> Classifier:
    model = create_classifier(spec, options, task=data.task, labels=data.labels, pair=data.pair)
    for _ in model.fit(rows, data.select(), seed=spec.training.seed):
        pass
    return model


def _select_figures(data: Dataset, answers: NDArray[Any]) -> Figures:
    """Return the few figures that a report compares with its own."""
    truth = data.splits["test"].targets
    scores = np.eye(len(data.labels))[answers] if data.task == "single" else answers.astype(np.float64)
    figures = metrics.measure(data.task, data.labels, truth=truth, answers=answers, scores=scores)
    return {name: figures[name] for name in COMPARED if name in figures}
