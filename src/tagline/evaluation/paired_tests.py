"""Paired tests of two models on the same rows: a bootstrap interval of the difference, and McNemar's exact test."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from tagline.evaluation.resampling import LEVEL, Interval, measure_once, percentile_interval, resample_figures
from tagline.prediction.decisions import are_right

if TYPE_CHECKING:
    from tagline.data.dataset import Task


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
    ours, theirs = resample_figures(task, truth, [first, second], seed=seed)
    gain = measure_once(task, truth, first)[figure] - measure_once(task, truth, second)[figure]
    right_first, right_second = are_right(first, truth), are_right(second, truth)
    only_first = int((right_first & ~right_second).sum())
    only_second = int((right_second & ~right_first).sum())
    return Difference(
        figure,
        gain,
        percentile_interval(ours[figure] - theirs[figure]),
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
