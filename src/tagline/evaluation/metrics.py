"""Metrics: the figures of answers and scores, compared with the truth."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tagline.errors import SpecError
from tagline.evaluation.schema import Report

if TYPE_CHECKING:
    from tagline.data.dataset import Task

LOWER_IS_BETTER = {"log_loss", "brier", "ece"}
HEADLINE = {
    "single": ("accuracy", "macro_f1", "weighted_f1", "mcc", "log_loss"),
    "multi": ("micro_f1", "macro_f1", "subset_accuracy", "average_precision", "log_loss"),
}
"""The figures to show first."""
SIDE_BY_SIDE = ("accuracy", "macro_f1", "micro_f1", "ece")
"""The figures in which runs are compared."""
BINS = 15
"""Bins of the expected calibration error, as in most papers."""
CHANCE_DRAWS = 20
ONE_TASK_ONLY = {
    "balanced_accuracy": "single", "mcc": "single",
    "subset_accuracy": "multi", "jaccard": "multi", "average_precision": "multi",
}  # fmt: skip
"""Figures that only one task has."""


def headline(report: Report) -> list[tuple[str, float]]:
    """Return the main figures of a report, in the order in which they matter for the task."""
    return [(name, report.test[name]) for name in HEADLINE[report.task] if report.test.get(name) is not None]


def measure(
    task: "Task", labels: Sequence[str], *, truth: NDArray[Any], answers: NDArray[Any], scores: NDArray[Any]
) -> dict[str, Any]:
    """Return every figure of these answers; None for one that the rows cannot give (one label only, no row)."""
    if len(truth) == 0:
        return {"rows": 0}
    measured = (
        _measure_single(labels, truth, answers, scores)
        if task == "single"
        else _measure_multi(labels, truth, answers, scores)
    )
    return {"rows": len(truth), **measured}


def select_table_figures(main: str) -> list[str]:
    """Return the figures of a table of runs, without micro-F1 where accuracy is the same number."""
    return [name for name in SIDE_BY_SIDE if name != "micro_f1" or main != "accuracy"]


def encode_targets(labels: Sequence[Any], names: Sequence[str]) -> NDArray[Any]:
    """Encode labels by name, one per row or several, as a split's targets: numbers, or rows of booleans for `multi`."""
    numbers = {name: number for number, name in enumerate(names)}
    if labels and isinstance(labels[0], str):
        return np.array([numbers[label] for label in labels])
    flags = np.zeros((len(labels), len(numbers)), dtype=bool)
    for row, row_labels in enumerate(labels):
        flags[row, [numbers[label] for label in row_labels]] = True
    return flags


def check_monitor(monitor: str, task: "Task") -> None:
    """Raise SpecError if the task does not have the monitored figure."""
    if ONE_TASK_ONLY.get(monitor, task) != task:
        problem = f"training.monitor: {monitor} is a figure of task {ONE_TASK_ONLY[monitor]}; this data is {task}"
        raise SpecError(problem, hint="macro_f1 is one that both have", problems=[problem])


def is_better(monitor: str, value: float, than: float | None) -> bool:
    """Return whether a figure is better than the best so far."""
    if than is None:
        return not math.isnan(value)
    return value < than if monitor in LOWER_IS_BETTER else value > than


def is_close(monitor: str, value: float, best: float | None, *, rows: int) -> bool:
    """Return whether a share, measured on this many rows, is within one standard error of the best so far."""
    if best is None or monitor in LOWER_IS_BETTER:
        return False
    return value >= best - math.sqrt(max(best * (1 - best), 0) / rows)


def _measure_single(
    labels: Sequence[str], truth: NDArray[Any], answers: NDArray[Any], scores: NDArray[Any]
) -> dict[str, Any]:
    rows = len(truth)
    confusion = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(confusion, (truth, answers), 1)
    hits, supports, answered = confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)
    one_hot = np.eye(len(labels), dtype=bool)[truth]
    recalls = hits[supports > 0] / supports[supports > 0]
    return {
        "accuracy": float(hits.sum() / rows),
        **_average_labels(hits, supports, answered, micro=float(hits.sum() / rows)),
        "balanced_accuracy": float(recalls.mean()),
        "mcc": _mcc(int(hits.sum()), supports, answered) if (supports + answered > 0).sum() > 1 else None,
        **measure_calibration("single", truth=truth, answers=answers, scores=scores),
        "auroc": _auroc(one_hot, scores),
        "per_label": _measure_per_label(labels, hits, supports, answered, rows),
        "confusion": confusion.tolist(),
    }


def _measure_multi(
    labels: Sequence[str], truth: NDArray[Any], answers: NDArray[Any], scores: NDArray[Any]
) -> dict[str, Any]:
    truth, answers = truth.astype(bool), answers.astype(bool)
    hits, supports, answered = (truth & answers).sum(axis=0), truth.sum(axis=0), answers.sum(axis=0)
    micro = 2 * hits.sum() / max(1, supports.sum() + answered.sum())
    subset = float((truth == answers).all(axis=1).mean())
    union = (truth | answers).sum(axis=1)
    overlap = np.where(union > 0, (truth & answers).sum(axis=1) / np.maximum(union, 1), 1.0)
    return {
        "accuracy": subset,
        "subset_accuracy": subset,
        **_average_labels(hits, supports, answered, micro=float(micro)),
        "jaccard": float(overlap.mean()),
        **measure_calibration("multi", truth=truth, answers=answers, scores=scores),
        "average_precision": _average_precision(truth, scores),
        "auroc": _auroc(truth, scores),
        "per_label": _measure_per_label(labels, hits, supports, answered, len(truth)),
    }


def measure_calibration(
    task: "Task", *, truth: NDArray[Any], answers: NDArray[Any], scores: NDArray[Any]
) -> dict[str, float]:
    """Return log loss, Brier score and expected calibration error of the scores."""
    if task == "multi":
        clipped = np.clip(scores, 1e-15, 1 - 1e-7)
        by_label = [
            expected_calibration_error(reliability_bins(*label)) for label in zip(scores.T, truth.T, strict=True)
        ]
        return {
            "log_loss": abs(float(np.where(truth, np.log(clipped), np.log(1 - clipped)).mean())),
            "brier": float(((scores - truth) ** 2).mean()),
            "ece": float(np.mean(by_label)),
        }
    of_truth = scores[np.arange(len(truth)), truth]
    return {
        "log_loss": abs(float(np.log(np.clip(of_truth, 1e-15, 1)).mean())),
        "brier": float(((scores**2).sum(axis=1) - 2 * of_truth + 1).mean()),
        "ece": expected_calibration_error(reliability_bins(scores.max(axis=1), answers == truth)),
    }


def precision_recall_f1(
    hits: NDArray[Any], supports: NDArray[Any], answered: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return precision, recall and F1 of each label; 0 where the denominator is 0."""
    precision = hits / np.maximum(answered, 1)
    recall = hits / np.maximum(supports, 1)
    return precision, recall, 2 * hits / np.maximum(supports + answered, 1)


def label_averages(hits: NDArray[Any], supports: NDArray[Any], answered: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return means over the labels that occur in the truth or the answers; labels are the last axis."""
    precision, recall, f1 = precision_recall_f1(hits, supports, answered)
    present = supports + answered > 0
    count = np.maximum(present.sum(axis=-1), 1)
    return {
        "macro_f1": (f1 * present).sum(axis=-1) / count,
        "weighted_f1": (f1 * supports).sum(axis=-1) / np.maximum(supports.sum(axis=-1), 1),
        "macro_precision": (precision * present).sum(axis=-1) / count,
        "macro_recall": (recall * present).sum(axis=-1) / count,
    }


def _average_labels(
    hits: NDArray[Any], supports: NDArray[Any], answered: NDArray[Any], *, micro: float
) -> dict[str, float | None]:
    averages: dict[str, Any] = {"micro_f1": micro, **label_averages(hits, supports, answered)}
    has_any = bool((supports + answered).any())
    return {name: float(value) if has_any else None for name, value in averages.items()}


def _measure_per_label(
    labels: Sequence[str], hits: NDArray[Any], supports: NDArray[Any], answered: NDArray[Any], rows: int
) -> dict[str, dict[str, float]]:
    precision, recall, f1 = precision_recall_f1(hits, supports, answered)
    accuracy = 1 - (supports + answered - 2 * hits) / rows
    return {
        label: {
            "precision": float(precision[i]),
            "recall": float(recall[i]),
            "f1": float(f1[i]),
            "support": int(supports[i]),
            "accuracy": float(accuracy[i]),
        }
        for i, label in enumerate(labels)
    }


def _auroc(truth: NDArray[Any], scores: NDArray[Any]) -> float | None:
    """Return the area under the ROC curve, from ranks, as the mean over labels."""
    positives = truth.sum(axis=0)
    usable = (positives > 0) & (positives < len(truth))
    if not usable.any():
        return None
    rank_sums = [float(_rank_values(scores[:, i])[truth[:, i]].sum()) for i in np.flatnonzero(usable)]
    pairs = positives[usable] * (len(truth) - positives[usable])
    return float(((rank_sums - positives[usable] * (positives[usable] + 1) / 2) / pairs).mean())


def _rank_values(values: NDArray[Any]) -> NDArray[Any]:
    """Return the rank of each value, from 1; ties share their mean rank."""
    _, positions, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((counts.cumsum() - (counts - 1) / 2)[positions])


def _average_precision(truth: NDArray[Any], scores: NDArray[Any]) -> float | None:
    """Return the precision down to each row that has a label, as the mean over rows and then over labels."""
    usable = [i for i in range(truth.shape[1]) if truth[:, i].any() and not truth[:, i].all()]
    means = []
    for i in usable:
        groups = np.unique(-scores[:, i], return_inverse=True)[1]  # tied rows count together
        hits = np.bincount(groups, truth[:, i])
        means.append((hits * hits.cumsum() / np.bincount(groups).cumsum()).sum() / hits.sum())
    return float(np.mean(means)) if means else None


def _mcc(hits: int, supports: NDArray[Any], answered: NDArray[Any]) -> float:
    """Return Matthews' correlation coefficient, generalised by Gorodkin to any number of labels."""
    rows = int(supports.sum())
    variances = [float(rows**2 - int(counts @ counts)) for counts in (supports, answered)]
    return (hits * rows - int(supports @ answered)) / math.sqrt(variances[0] * variances[1]) if all(variances) else 0.0


def reliability_bins(confidence: NDArray[Any], is_true: NDArray[Any]) -> list[dict[str, float]]:
    """Return the mean score, and how often it is true, in each of fifteen bins of equal width."""
    bins = np.clip((confidence * BINS).astype(np.int64), 0, BINS - 1)
    rows = np.bincount(bins, minlength=BINS)
    score_sums, true_counts = np.bincount(bins, confidence, BINS), np.bincount(bins, is_true, BINS)
    return [
        {"rows": int(rows[i]), "score": float(score_sums[i] / rows[i]), "true": float(true_counts[i] / rows[i])}
        for i in np.flatnonzero(rows)
    ]


def chance_calibration_error(confidence: NDArray[Any]) -> float:
    """Return the calibration error that perfectly calibrated scores would show on as many rows, by chance."""
    random = np.random.default_rng(0)
    drawn = (random.random(len(confidence)) < confidence for _ in range(CHANCE_DRAWS))
    return float(np.mean([expected_calibration_error(reliability_bins(confidence, is_true)) for is_true in drawn]))


def expected_calibration_error(bins: Sequence[dict[str, float]]) -> float:
    """Return the expected calibration error: how far scores are from how often they are true, over all rows."""
    total = sum(each["rows"] for each in bins)
    return float(sum(each["rows"] * abs(each["score"] - each["true"]) for each in bins) / max(1, total))
