"""How sure a figure is: bootstrap intervals, and Wilson's interval of a share."""

import math
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from tagline.evaluation.resampling import Floats, Interval, measure_once, percentile_interval, resample_figures
from tagline.prediction.decisions import are_right

if TYPE_CHECKING:
    from tagline.data.dataset import Task

SHARES = ("accuracy", "subset_accuracy")
"""Figures that are shares of rows, whose intervals need no drawing."""


def bootstrap_intervals(
    task: "Task", *, truth: NDArray[Any], answers: NDArray[Any], seed: int = 0
) -> dict[str, Interval]:
    """For each figure the ends between which it would lie, 95 % sure, on any number of such rows; itself inside."""
    if not len(truth):
        return {}
    [drawn] = resample_figures(task, truth, [answers], seed=seed)
    figures = measure_once(task, truth, answers)
    right = are_right(answers, truth)
    of_share = wilson_interval(int(right.sum()), len(right))
    # Rows that are all right, or all wrong, can be drawn again a thousand times and say nothing of others.
    return {
        name: of_share if name in SHARES or values.min() == values.max() else _correct_bias(values, figures[name])
        for name, values in drawn.items()
    }


def wilson_interval(hits: int, rows: int, *, level_z: float = 1.96) -> Interval:
    """Wilson's interval of a share."""
    if not rows:
        return 0.0, 1.0
    share, squared = hits / rows, level_z**2
    middle = (share + squared / (2 * rows)) / (1 + squared / rows)
    half = level_z * math.sqrt(share * (1 - share) / rows + squared / (4 * rows**2)) / (1 + squared / rows)
    # By rounding alone an end can fall short of a share of 0 or 1.
    return max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half))


def _correct_bias(drawn: Floats, figure: float) -> Interval:
    """The ends of draws, moved up by twice what their mean lies below the figure; between 0 and 1, and around it.

    A draw has fewer different rows of each label than the test set, and that has fewer than there are: with few rows a
    label macro-F1 is too low in the figure, and by as much again in the draws. Decision 12 has what this mends.
    """
    shift = 2 * (figure - float(drawn.mean()))
    low, high = percentile_interval(drawn)
    return max(0.0, min(low + shift, figure)), min(1.0, max(high + shift, figure))
