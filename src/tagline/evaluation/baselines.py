"""What others reach on the same test rows: one answer for all, family linear, and with few rows a rival."""

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
"""That family linear learns from: half a minute's work at most."""
RIVALS: dict[str, tuple[str, dict[str, Any]]] = {
    "encoder": ("fewshot", {"tuning_steps": 0}), "fewshot": ("encoder", {}),
}  # fmt: skip
"""With few rows a label, fine-tuning and a frozen encoder with a head on top are each the better choice at times."""
COMPARED = ("accuracy", "macro_f1", "micro_f1", "subset_accuracy")

Figures = dict[str, Any]


def measure_majority(data: Dataset) -> Figures:
    """What one answer for every text would reach on test: the most frequent label, or the best set of labels."""
    train, test = data.splits["train"].targets, data.splits["test"].targets
    if not len(train) or not len(test):
        return {}
    if data.task == "single":
        most: Any = int(np.bincount(train).argmax())
        answers: NDArray[Any] = np.full(len(test), most)
        named = {"answer": [data.labels[most]]}
    else:
        most = _find_best_constant(train)
        answers = np.tile(most, (len(test), 1))
        named = {"answer": [data.labels[i] for i in np.flatnonzero(most)]}
    return named | _select_figures(data, answers)


def _find_best_constant(targets: NDArray[Any]) -> NDArray[np.bool_]:
    """Task `multi`: the labels which, answered to every row, have the highest micro-F1.

    The most frequent set of labels is often the empty one, and then nothing is worse than it.
    """
    counts = targets.sum(axis=0)
    most_frequent_first = np.argsort(-counts, kind="stable")
    hits, answered = np.cumsum(counts[most_frequent_first]), len(targets) * np.arange(1, len(counts) + 1)
    best = np.zeros(len(counts), dtype=bool)
    if counts.any():
        best[most_frequent_first[: int((2 * hits / (answered + counts.sum())).argmax()) + 1]] = True
    return best


def measure_linear(spec: Spec, data: Dataset) -> Figures:
    """What family linear reaches on the same splits; of a large training split it sees a part, to be quick."""
    train = data.splits["train"]
    options, rows = registry.find("models", FAMILY).Options(), sample_rows(train.rows, seed=spec.training.seed)
    if len(rows) == len(train):
        return _measure_family(spec, data, options, train)
    part = Split(data.texts(rows), data.targets[rows], rows)
    return {"train_rows": len(rows)} | _measure_family(spec, data, options, part)


def sample_rows(rows: Ints, *, seed: int) -> Ints:
    """Of so many rows those that family linear learns from: all, or some that are drawn with the seed."""
    if len(rows) <= MOST_ROWS:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, MOST_ROWS, replace=False))


def choose_rival(spec: Spec, data: Dataset) -> str:
    """The family that may be the better choice with so few rows a label; none with many."""
    name, _ = RIVALS.get(spec.model.family, ("", {}))
    return name if name and checks.has_few_shots(data) else ""


def measure_rival(spec: Spec, data: Dataset) -> Figures:
    """What the rival reaches on the same splits: with its defaults and the same pretrained encoder."""
    name, settings = RIVALS[spec.model.family]
    same = spec.model.model_dump(include={"pretrained", "max_tokens"})
    options = registry.find("models", name).Options(**same, **settings)
    plain = spec.model_copy(update={"training": Training.model_validate({"seed": spec.training.seed})})
    return _measure_family(plain, data, options, data.splits["train"])


def _measure_family(spec: Spec, data: Dataset, options: Any, train: Split) -> Figures:
    """What a family reaches from the rows that the spec's own family learns from, with a decision layer of its own.

    A family that refits with the validation rows does so here where the spec's own does: else it would have seen more.
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
    own = registry.find("models", spec.model.family)
    if model.refits and own.refits and len(train) == len(data.splits["train"]):
        model, layer = _refit(spec, data, options)
    answers = layer.answers(score_texts(model, data.splits["test"].texts, labels=labels))
    return _select_figures(data, answers.chosen)


def _refit(spec: Spec, data: Dataset, options: Any) -> tuple[Classifier, DecisionLayer]:
    """A model that has learned from the validation rows too, with a decision layer tuned on out-of-fold scores."""
    both, seed = data.select("train", "validation"), spec.training.seed

    def create() -> Classifier:
        return create_classifier(spec, options, task=data.task, labels=data.labels, pair=data.pair)

    scores = cross_fitting.out_of_fold_scores(data, both.rows, create=create, seed=seed, is_over=lambda: False)
    assert scores is not None
    tuned = tune(
        spec.decisions,
        task=data.task,
        labels=data.labels,
        truth=both.targets,
        none_label=data.none_label,
        scores=scores,
        is_quick=True,
    )
    return cross_fitting.fit_on_rows(data, both.rows, create=create, seed=seed), tuned.layer


def _fit_model(spec: Spec, data: Dataset, options: Any, rows: Split) -> Classifier:
    model = create_classifier(spec, options, task=data.task, labels=data.labels, pair=data.pair)
    for _ in model.fit(rows, data.select(), seed=spec.training.seed):
        pass
    return model


def _select_figures(data: Dataset, answers: NDArray[Any]) -> Figures:
    """The few figures that a report puts beside its own."""
    truth = data.splits["test"].targets
    scores = np.eye(len(data.labels))[answers] if data.task == "single" else answers.astype(np.float64)
    figures = metrics.measure(data.task, data.labels, truth=truth, answers=answers, scores=scores)
    return {name: figures[name] for name in COMPARED if name in figures}
