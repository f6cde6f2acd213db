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
    """The difference between two models on the same rows, and its significance."""

    figure: str
    gain: float
    interval: Interval
    only_first: int
    """Rows that only the first model gets right."""
    only_second: int
    p_value: float
    """McNemar's exact test: how often rows like these would differ as much by chance alone."""

    @property
    def is_real(self) -> bool:
        """Whether the interval excludes zero and McNemar's test agrees, in the same direction."""
        return self.leaves_out_zero and self.p_value < 1 - LEVEL and not self.is_divided

    @property
    def is_divided(self) -> bool:
        """Whether the figure and the number of right rows favour different models."""
        return (self.only_first - self.only_second) * self.gain < 0

    @property
    def leaves_out_zero(self) -> bool:
        """Whether the interval of the difference excludes zero."""
        return self.interval[0] > 0 or self.interval[1] < 0


def compare_models(
    task: "Task", *, truth: NDArray[Any], first: NDArray[Any], second: NDArray[Any], figure: str, seed: int = 0
) -> Difference:
    """Compare the first model with the second, row by row."""
    resampled_first, resampled_second = resample_figures(task, truth, [first, second], seed=seed)
    gain = measure_once(task, truth, first)[figure] - measure_once(task, truth, second)[figure]
    right_first, right_second = are_right(first, truth), are_right(second, truth)
    only_first = int((right_first & ~right_second).sum())
    only_second = int((right_second & ~right_first).sum())
    return Difference(
        figure,
        gain,
        percentile_interval(resampled_first[figure] - resampled_second[figure]),
        only_first,
        only_second,
        mcnemar(only_first, only_second),
    )


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the p-value of McNemar's exact test, from the rows that only one of two models gets right."""
    return binomial_p(min(only_first, only_second), only_first + only_second)


def binomial_p(fewer: int, total: int) -> float:
    """Return the two-sided p-value of a fair coin: how often it gives this few heads, or this few tails."""
    if total == 0:
        return 1.0
    if total > 1000:  # the exact sum overflows floats, and the normal approximation is close
        distance = (abs(fewer - total / 2) - 0.5) / math.sqrt(total / 4)
        return min(1.0, math.erfc(max(0.0, distance) / math.sqrt(2)))
    return min(1.0, float(2 * sum(math.comb(total, k) for k in range(fewer + 1)) / 2**total))
