"""How sure a figure is: bootstrap intervals, and paired tests of two models on the same rows."""

import math
from dataclasses import dataclass
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
"""Numbers in memory while rows are drawn."""
RESAMPLED = {
    "single": ("accuracy", "macro_f1", "weighted_f1"),
    "multi": ("micro_f1", "macro_f1", "weighted_f1", "subset_accuracy"),
}  # fmt: skip
"""The figures that get an interval: those that follow from answers alone."""

SHARES = ("accuracy", "subset_accuracy")
"""Figures that are shares of rows, whose intervals need no drawing."""

Floats = NDArray[np.float64]
Interval = tuple[float, float]


def bootstrap_intervals(
    task: "Task", *, truth: NDArray[Any], answers: NDArray[Any], seed: int = 0
) -> dict[str, Interval]:
    """For each figure the ends between which it would lie, 95 % sure, on any number of such rows; itself inside."""
    if not len(truth):
        return {}
    [drawn] = _resample_figures(task, truth, [answers], seed=seed)
    figures = _measure_once(task, truth, answers)
    right = are_right(answers, truth)
    of_share = wilson_interval(int(right.sum()), len(right))
    # Rows that are all right, or all wrong, can be drawn again a thousand times and say nothing of others.
    return {
        name: of_share if name in SHARES or values.min() == values.max() else _correct_bias(values, figures[name])
        for name, values in drawn.items()
    }


@dataclass(frozen=True)
class Difference:
    """How much better one model is than another on the same rows, and whether chance explains it."""

    figure: str
    gain: float
    interval: Interval
    only_first: int
    """Rows that only the first model gets right."""
    only_second: int
    p_value: float
    """Of McNemar's exact test: how often rows like these would differ as much by chance alone."""

    @property
    def is_real(self) -> bool:
        """Whether the interval leaves out zero and McNemar's test agrees, in the same direction."""
        return self.leaves_out_zero and self.p_value < 1 - LEVEL and not self.is_divided

    @property
    def is_divided(self) -> bool:
        """Whether the figure and the number of rows that are right speak for different models."""
        return (self.only_first - self.only_second) * self.gain < 0

    @property
    def leaves_out_zero(self) -> bool:
        """Whether the interval of the figure's difference is on one side."""
        return self.interval[0] > 0 or self.interval[1] < 0


def compare_models(
    task: "Task", *, truth: NDArray[Any], first: NDArray[Any], second: NDArray[Any], figure: str, seed: int = 0
) -> Difference:
    """The first model against the second, row by row."""
    ours, theirs = _resample_figures(task, truth, [first, second], seed=seed)
    gain = _measure_once(task, truth, first)[figure] - _measure_once(task, truth, second)[figure]
    right_first, right_second = are_right(first, truth), are_right(second, truth)
    only_first = int((right_first & ~right_second).sum())
    only_second = int((right_second & ~right_first).sum())
    return Difference(
        figure,
        gain,
        _percentile_interval(ours[figure] - theirs[figure]),
        only_first,
        only_second,
        mcnemar(only_first, only_second),
    )


def mcnemar(only_first: int, only_second: int) -> float:
    """How often a fair coin thrown once for each row on which two models differ falls as unevenly as this."""
    return binomial_p(min(only_first, only_second), only_first + only_second)


def binomial_p(fewer: int, total: int) -> float:
    """Two-sided: how often a fair coin gives this few heads, or this few tails."""
    if total == 0:
        return 1.0
    if total > 1000:  # the exact sum is of numbers too large for floats, and normal by then
        distance = (abs(fewer - total / 2) - 0.5) / math.sqrt(total / 4)
        return min(1.0, math.erfc(max(0.0, distance) / math.sqrt(2)))
    return min(1.0, float(2 * sum(math.comb(total, k) for k in range(fewer + 1)) / 2**total))


def wilson_interval(hits: int, rows: int, *, level_z: float = 1.96) -> Interval:
    """Wilson's interval of a share."""
    if not rows:
        return 0.0, 1.0
    share, squared = hits / rows, level_z**2
    middle = (share + squared / (2 * rows)) / (1 + squared / rows)
    half = level_z * math.sqrt(share * (1 - share) / rows + squared / (4 * rows**2)) / (1 + squared / rows)
    # By rounding alone an end can fall short of a share of 0 or 1.
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def _percentile_interval(values: Floats) -> Interval:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _correct_bias(drawn: Floats, figure: float) -> Interval:
    """The ends of draws, moved up by twice what their mean lies below the figure; between 0 and 1, and around it.

    A draw has fewer different rows of each label than the test set, and that has fewer than there are: with few rows a
    label macro-F1 is too low in the figure, and by as much again in the draws. Decision 12 has what this mends.
    """
    shift = 2 * (figure - float(drawn.mean()))
    low, high = _percentile_interval(drawn)
    return max(0.0, min(low + shift, figure)), min(1.0, max(high + shift, figure))


def _resample_figures(
    task: "Task", truth: NDArray[Any], models: list[NDArray[Any]], *, seed: int
) -> list[dict[str, Floats]]:
    """Each model's figures on the same thousand test sets, drawn from the rows with repetition.

    Rows that are alike, in truth and in every model's answer, are drawn together: a few hundred kinds of rows stand for
    any number of them.
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


def _group_rows(columns: list[NDArray[Any]]) -> tuple[list[NDArray[Any]], NDArray[np.int64]]:
    """The different rows of several columns side by side, and how often each stands there."""
    flat = [column.reshape(len(column), -1) for column in columns]
    packed = [np.packbits(column, axis=1) if column.dtype == bool else column for column in flat]
    _, first, counts = np.unique(np.concatenate(packed, axis=1), axis=0, return_index=True, return_counts=True)
    return [column[first] for column in columns], counts


Counts = tuple[Floats, Floats, Floats, Floats, Floats]
"""Hits, rows and answers of each label; rows that are right; all rows. Each with a row for every resample."""


def _count_with_weights(task: "Task", truth: NDArray[Any], answers: NDArray[Any], weights: Floats) -> Counts:
    right = weights @ are_right(answers, truth)
    if task == "multi":
        return weights @ (truth & answers), weights @ truth, weights @ answers, right, weights.sum(axis=1)
    labels = int(max(truth.max(), answers.max())) + 1
    by_truth = _sum_by_label(weights, truth, labels)
    by_answer = _sum_by_label(weights, answers, labels)
    return _sum_by_label(weights * (truth == answers), truth, labels), by_truth, by_answer, right, weights.sum(axis=1)


def _sum_by_label(weights: Floats, labels: NDArray[Any], count: int) -> Floats:
    """Weights added up by label."""
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(count))
    totals = np.concatenate([np.zeros((len(weights), 1)), np.cumsum(weights[:, order], axis=1)], axis=1)
    ends = np.append(starts[1:], len(labels))
    return np.asarray(totals[:, ends] - totals[:, starts])


def _measure_once(task: "Task", truth: NDArray[Any], answers: NDArray[Any]) -> dict[str, float]:
    """The figures of the rows as they are."""
    figures = _compute_figures(task, *_count_with_weights(task, truth, answers, np.ones((1, len(truth)))))
    return {name: float(values[0]) for name, values in figures.items()}


def _compute_figures(
    task: "Task", hits: Floats, supports: Floats, answered: Floats, right: Floats, rows: Floats
) -> dict[str, Floats]:
    micro = 2 * hits.sum(axis=1) / np.maximum(1, supports.sum(axis=1) + answered.sum(axis=1))
    known = {"accuracy": right / rows, "subset_accuracy": right / rows, "micro_f1": micro}
    known |= label_averages(hits, supports, answered)
    return {name: known[name] for name in RESAMPLED[task]}
