"""Labels that are probably wrong: confident learning (Northcutt, 2021) on rows that the model did not learn from."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Suspect:
    """A row whose label the model doubts: which label it has (or lacks), and what the model would say."""

    row: int
    given: int | None
    """Task `multi`: None where a label is missing."""
    suggested: int | None
    """Task `multi`: None where a label is too many."""
    doubt: float
    """How much likelier the suggestion is than what is given, from 0 to 1."""


def suspects(scores: NDArray[Any], truth: NDArray[Any]) -> list[Suspect]:
    """Rows whose label is doubted, the most doubtful first."""
    if not len(truth):
        return []
    found = _single(scores, truth) if truth.ndim == 1 else _multi(scores, truth)
    return sorted(found, key=lambda suspect: (-suspect.doubt, suspect.row))


def _single(scores: NDArray[Any], truth: NDArray[Any]) -> list[Suspect]:
    """Another label is as likely as it usually is where it is given, and likelier than the one that is."""
    rows = np.arange(len(truth))
    usual = _usual(scores, np.eye(scores.shape[1], dtype=bool)[truth])
    given = scores[rows, truth]
    others = np.where(scores >= usual, scores, -1.0)
    others[rows, truth] = -1.0
    likeliest = others.argmax(axis=1)
    doubt = others[rows, likeliest] - given
    return [
        Suspect(int(row), int(truth[row]), int(likeliest[row]), float(doubt[row]))
        for row in np.flatnonzero((others[rows, likeliest] >= 0) & (doubt > 0))
    ]


def _multi(scores: NDArray[Any], truth: NDArray[Any]) -> list[Suspect]:
    """The same for each label by itself: there and not likely, or likely and not there."""
    usual_there, usual_not = _usual(scores, truth), 1 - _usual(1 - scores, ~truth)
    missing = ~truth & (scores >= usual_there) & (scores > 0.5)
    too_many = truth & (scores <= usual_not) & (scores < 0.5)
    found = [Suspect(int(r), None, int(c), float(2 * scores[r, c] - 1)) for r, c in np.argwhere(missing)]
    return found + [Suspect(int(r), int(c), None, float(1 - 2 * scores[r, c])) for r, c in np.argwhere(too_many)]


def _usual(scores: NDArray[Any], given: NDArray[Any]) -> NDArray[Any]:
    """For each label its mean score on the rows that have it; above any score where none has."""
    counts = given.sum(axis=0)
    return np.where(counts > 0, (scores * given).sum(axis=0) / np.maximum(counts, 1), 2.0)
