"""The bootstrap that intervals and paired tests share: figures of a thousand resampled test sets."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tagline.evaluation.metrics import label_averages
from tagline.prediction.decisions import are_right

if TYPE_CHECKING:
    from tagline.data.dataset import Task

RESAMPLES = 1000
LEVEL = 0.95
AT_ONCE = 2**24
"""The most numbers in memory at once."""
RESAMPLED = {
    "single": ("accuracy", "macro_f1", "weighted_f1"),
    "multi": ("micro_f1", "macro_f1", "weighted_f1", "subset_accuracy"),
}  # fmt: skip
"""The figures that get an interval: those that depend on answers alone."""

Floats = NDArray[np.float64]
Interval = tuple[float, float]
Counts = tuple[Floats, Floats, Floats, Floats, Floats]
"""Hits, supports and answers of each label, right rows, and all rows; each with a row per resample."""


def resample_figures(
    task: "Task", truth: NDArray[Any], models: list[NDArray[Any]], *, seed: int
) -> list[dict[str, Floats]]:
    """Return each model's figures on the same thousand test sets, drawn from the rows with replacement.

    Rows with the same truth and the same answers of all models are drawn together: a few hundred kinds of rows stand
    for any number of them.
    """
    kinds, counts = _group_rows([truth, *models])
    random = np.random.default_rng(seed)
    shares = counts / counts.sum()
    parts: list[list[dict[str, Floats]]] = []
    at_once = max(1, min(RESAMPLES, AT_ONCE // len(counts)))
    for start in range(0, RESAMPLES, at_once):
        weights = random.multinomial(int(counts.sum()), shares, size=min(at_once, RESAMPLES - start)).astype(np.float64)
        parts.append(
            [_compute_figures(task, *_count_with_weights(task, kinds[0], model, weights)) for model in kinds[1:]]
        )
    return [
        {name: np.concatenate([part[i][name] for part in parts]) for name in RESAMPLED[task]}
        for i in range(len(models))
    ]


def measure_once(task: "Task", truth: NDArray[Any], answers: NDArray[Any]) -> dict[str, float]:
    """Return the figures of the rows themselves, without resampling."""
    figures = _compute_figures(task, *_count_with_weights(task, truth, answers, np.ones((1, len(truth)))))
    return {name: float(values[0]) for name, values in figures.items()}


def percentile_interval(values: Floats) -> Interval:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _group_rows(columns: list[NDArray[Any]]) -> tuple[list[NDArray[Any]], NDArray[np.int64]]:
    """Return the distinct rows of several columns, and how often each occurs."""
    flat = [column.reshape(len(column), -1) for column in columns]
    packed = [np.packbits(column, axis=1) if column.dtype == bool else column for column in flat]
    _, first, counts = np.unique(np.concatenate(packed, axis=1), axis=0, return_index=True, return_counts=True)
    return [column[first] for column in columns], counts


def _count_with_weights(task: "Task", truth: NDArray[Any], answers: NDArray[Any], weights: Floats) -> Counts:
    right = weights @ are_right(answers, truth)
    if task == "multi":
        return weights @ (truth & answers), weights @ truth, weights @ answers, right, weights.sum(axis=1)
    labels = int(max(truth.max(), answers.max())) + 1
    by_truth = _sum_by_label(weights, truth, labels)
    by_answer = _sum_by_label(weights, answers, labels)
    return _sum_by_label(weights * (truth == answers), truth, labels), by_truth, by_answer, right, weights.sum(axis=1)


def _sum_by_label(weights: Floats, labels: NDArray[Any], count: int) -> Floats:
    """Sum the weights by label."""
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(count))
    totals = np.concatenate([np.zeros((len(weights), 1)), np.cumsum(weights[:, order], axis=1)], axis=1)
    ends = np.append(starts[1:], len(labels))
    return np.asarray(totals[:, ends] - totals[:, starts])


def _compute_figures(
    task: "Task", hits: Floats, supports: Floats, answered: Floats, right: Floats, rows: Floats
) -> dict[str, Floats]:
    micro = 2 * hits.sum(axis=1) / np.maximum(1, supports.sum(axis=1) + answered.sum(axis=1))
    known = {"accuracy": right / rows, "subset_accuracy": right / rows, "micro_f1": micro}
    known |= label_averages(hits, supports, answered)
    return {name: known[name] for name in RESAMPLED[task]}
