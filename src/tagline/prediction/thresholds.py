"""Thresholds tuned on validation rows: for F1, a precision or a recall of each label, and for abstention."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tagline.prediction.calibration import DIGITS

if TYPE_CHECKING:
    from tagline.spec import Goal

Floats = NDArray[np.float64]


FEWEST_POSITIVES = 10
"""A label with fewer validation rows than this shares the threshold that reaches a goal for all labels."""
DRAWS = 20
"""Of the validation rows, for each of which a threshold is found."""
OWN_ROWS = 2
"""With so many validation rows of its own, a label's threshold for F1 lies midway to the one that suits all labels."""
MOST_OFTEN = 2.0
"""Times as often as it is there a label may be found. Where a model knows nothing of a label its F1 is highest if every
text is given it."""
FEWEST_ANSWERS = 20
"""A target precision is not believed on fewer answers than this."""
CAUTION = 0.5
"""Standard errors that a precision must lie above the one wanted: of all thresholds, the lowest that seems to reach it
owes that in part to chance. Simulated with 200 rows to tune on and 90 % wanted, 88.6 % of the answers were right
without this and 90.1 % with it; with 1,500 rows 89.8 % and 90.5 %."""
TINY = 10.0**-DIGITS


def tune_thresholds(scores: Floats, truth: NDArray[Any], wanted: "float | str | Goal") -> tuple[float, ...]:
    """One a label: the number given, or where F1 is highest, or where the goal is reached."""
    labels = int(scores.shape[1])
    if isinstance(wanted, float):
        return (wanted,) * labels
    if not len(truth):
        return (0.5,) * labels
    if isinstance(wanted, str):
        everywhere = _maximise_f1(scores.ravel(), truth.ravel(), draws=1)
        return tuple(_tune_for_f1(scores[:, i], truth[:, i], everywhere) for i in range(labels))
    shared = _tune_for_goal(scores.ravel(), truth.ravel(), wanted)
    return tuple(_tune_label_for_goal(scores[:, i], truth[:, i], wanted, shared) for i in range(labels))


def tune_abstention(confidence: Floats, right: NDArray[np.bool_], *, precision: float) -> float:
    """The lowest score at and above which surely enough answers are right; the best there is where none is enough."""
    order = np.argsort(-confidence, kind="stable")
    ordered = confidence[order]
    told_apart = np.r_[ordered[1:] != ordered[:-1], True]  # equal scores are answered together or not at all
    believed = told_apart & (np.arange(len(order)) >= min(FEWEST_ANSWERS, len(order)) - 1)
    return float(ordered[_find_last_precise(np.cumsum(right[order]), wanted=precision, among=believed)])


def _tune_for_f1(scores: Floats, truth: NDArray[Any], everywhere: float) -> float:
    """The threshold for the F1 of one label, the nearer to the one that suits all labels the fewer rows it has.

    On GoEmotions (28 labels), macro- and micro-F1 on rows that were not tuned on, with 400 rows to tune on, ten deals:
    0.449 and 0.573; by its own rows alone 0.434 and 0.449; one threshold for all labels 0.429 and 0.581; one half 0.357
    and 0.544. With 1,200 rows 0.465 and 0.576; 0.455 and 0.484; 0.434 and 0.584; 0.356 and 0.540.
    """
    rows = int(truth.sum())
    if not rows:
        return everywhere
    trust = rows / (rows + OWN_ROWS)
    leaning = math.pow(_maximise_f1(scores, truth, draws=DRAWS), trust) * math.pow(everywhere, 1 - trust)
    return max(leaning, _cap_answers(scores, int(MOST_OFTEN * rows)))


def _cap_answers(scores: Floats, answers: int) -> float:
    """The threshold that no more scores than these reach."""
    ordered = np.sort(scores)[::-1]
    if answers >= len(ordered):
        return 0.0
    too_many = ordered[answers]
    higher = ordered[ordered > too_many]
    return float(too_many + (higher[-1] if len(higher) else 1.0)) / 2


def _maximise_f1(scores: Floats, truth: NDArray[Any], *, draws: int) -> float:
    """The threshold with the highest F1, as the mean over draws of the rows: the best of one draw alone follows chance.

    Of 1 the rows themselves are meant: there are enough of them.
    """
    if not truth.any():
        return 0.5
    order = np.argsort(-scores, kind="stable")
    ordered, is_true = scores[order], truth[order].astype(np.float64)
    drawn = np.ones((1, len(order)), np.int64)
    if draws > 1:
        drawn = np.random.default_rng(0).multinomial(len(order), np.full(len(order), 1 / len(order)), size=draws)
    hits, answered = np.cumsum(drawn * is_true, axis=1), np.cumsum(drawn, axis=1)
    f1 = 2 * hits / np.maximum(answered + hits[:, -1:], 1)
    f1[:, :-1][:, ordered[:-1] == ordered[1:]] = -1  # equal scores cannot be told apart
    best = f1.argmax(axis=1)[hits[:, -1] > 0]
    between = [_find_midpoint(ordered, place) for place in best]
    return float(np.exp(np.mean(np.log(between)))) if between else 0.5


def _tune_label_for_goal(scores: Floats, truth: NDArray[Any], goal: "Goal", shared: float) -> float:
    """The threshold that reaches a goal for one label; with few rows, the one that reaches it for all labels.

    A label that is nowhere as precise as wanted is answered only where others are.
    """
    if truth.sum() < FEWEST_POSITIVES:
        return shared
    own = _tune_for_goal(scores, truth, goal)
    answered = scores >= own
    is_precise = truth[answered].sum() >= goal.precision * answered.sum()
    return own if is_precise or not goal.precision else max(own, shared)


def _tune_for_goal(scores: Floats, truth: NDArray[Any], goal: "Goal") -> float:
    """The lowest threshold with the precision wanted, or the highest with the recall."""
    if not truth.any():
        return 0.5
    order = np.argsort(-scores, kind="stable")
    ordered, hits = scores[order], np.cumsum(truth[order])
    told_apart = np.r_[ordered[:-1] != ordered[1:], True]
    if goal.recall:
        return _find_midpoint(ordered, int(np.flatnonzero(told_apart & (hits >= goal.recall * hits[-1]))[0]))
    return _find_midpoint(ordered, _find_last_precise(hits, wanted=goal.precision, among=told_apart))


def _find_last_precise(hits: NDArray[Any], *, wanted: float, among: NDArray[np.bool_]) -> int:
    """How far down the answers, the surest first, this share is surely right; where nowhere, where it nearly is."""
    answered = np.arange(1, len(hits) + 1)
    above = hits / answered - wanted - CAUTION * np.sqrt(wanted * (1 - wanted) / answered)
    enough = np.flatnonzero(among & (above >= 0))
    return int(enough[-1]) if len(enough) else int(np.where(among, above, -np.inf).argmax())


def _find_midpoint(ordered: Floats, place: int) -> float:
    """Halfway between a score and the next lower one."""
    next_lower = ordered[place + 1] if place + 1 < len(ordered) else 0.0
    return float(np.clip((ordered[place] + next_lower) / 2, TINY, 1 - TINY))
