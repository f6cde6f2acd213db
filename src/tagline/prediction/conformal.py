"""Split conformal prediction: sets of labels that hold the truth with a promised coverage."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagline.errors import SpecError
from tagline.prediction.calibration import DIGITS

Floats = NDArray[np.float64]

COVERAGES = tuple(hundredth / 100 for hundredth in range(50, 100))
"""Coverages that prediction sets can have: the share of texts whose set holds the truth."""


def compute_floors(scores: Floats, truth: NDArray[Any]) -> tuple[float, ...]:
    """Return for each of `COVERAGES` the lowest score in a set.

    It is the quantile 1 - c of the true labels' scores, with the finite-sample correction: of n + 1 rows at most that
    share is below. A text of task `multi` is covered when all its labels are in the set, so its lowest score counts.
    """
    if not len(truth):
        return ()
    if truth.ndim == 1:
        of_truth = scores[np.arange(len(truth)), truth]
    else:
        of_truth = np.where(truth, scores, 1.0).min(axis=1, initial=1.0)
    lowest_first = np.sort(of_truth.round(DIGITS))
    ranks = [int((len(truth) + 1) * (1 - coverage) + 1e-9) for coverage in COVERAGES]
    return tuple(float(lowest_first[rank - 1]) if rank else 0.0 for rank in ranks)


def find_floor(floors: tuple[float, ...], *, coverage: float) -> float:
    """Return the lowest score in a set with at least this coverage."""
    if not floors:
        hint = "train with a validation split to have sets"
        raise SpecError("this bundle promises no coverage: there was no validation row to learn it from", hint=hint)
    candidates = [floor for promised, floor in zip(COVERAGES, floors, strict=True) if promised >= coverage - 1e-9]
    if not candidates or not coverage > 0:
        raise SpecError(f"sets with a coverage of {coverage:g} cannot be made", hint="give one from 0.5 to 0.99")
    return candidates[0]
