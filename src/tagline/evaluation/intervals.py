"""Confidence intervals of figures: bootstrap intervals, and Wilson's interval of a share."""

import math
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from tagline.evaluation.resampling import Floats, Interval, measure_once, percentile_interval, resample_figures
from tagline.prediction.decisions import are_right

if TYPE_CHECKING:
    from tagline.data.dataset import Task

SHARES = ("accuracy", "subset_accuracy")
"""Figures that are shares of rows, whose intervals need no resampling."""


def bootstrap_intervals(
    task: "Task", *, truth: NDArray[Any], answers: NDArray[Any], seed: int = 0
) -> dict[str, Interval]:
    """Return the 95 % interval of each figure, which includes the figure itself."""
    if not len(truth):
        return {}
    [resampled] = resample_figures(task, truth, [answers], seed=seed)
    figures = measure_once(task, truth, answers)
    right = are_right(answers, truth)
    share_interval = wilson_interval(int(right.sum()), len(right))
    # Where all rows are right, or all wrong, every resample is the same and says nothing about other rows.
    return {
        name: share_interval if name in SHARES or values.min() == values.max() else _correct_bias(values, figures[name])
        for name, values in resampled.items()
    }


def wilson_interval(hits: int, rows: int, *, level_z: float = 1.96) -> Interval:
    """Return Wilson's interval of a share."""
    if not rows:
        return 0.0, 1.0
    share, squared = hits / rows, level_z**2
    middle = (share + squared / (2 * rows)) / (1 + squared / rows)
    half = level_z * math.sqrt(share * (1 - share) / rows + squared / (4 * rows**2)) / (1 + squared / rows)
    # Rounding alone can put an end on the wrong side of a share of 0 or 1.
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def _correct_bias(resampled: Floats, figure: float) -> Interval:
    """Return the percentile interval, shifted up by twice the bootstrap bias, within 0 and 1 and around the figure.

    A resample has fewer distinct rows of each label than the test set, which has fewer than the population: with few
    rows per label macro-F1 is too low in the figure, and by as much again in the resamples. Decision 12 has the
    measurements.
    """
    shift = 2 * (figure - float(resampled.mean()))
    low, high = percentile_interval(resampled)
    return max(0.0, min(low + shift, figure)), min(1.0, max(high + shift, figure))
