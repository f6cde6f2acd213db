"""The decision layer, which turns scores into answers: calibration, thresholds, abstention, sets of labels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from tagline.errors import SpecError
from tagline.models import Prediction, Scores
from tagline.prediction import calibration
from tagline.prediction.calibration import Calibration

if TYPE_CHECKING:
    from tagline.data.dataset import Task
    from tagline.spec import Decisions, Goal

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
COVERAGES = tuple(hundredth / 100 for hundredth in range(50, 100))
"""What a set of labels can promise: to hold the truth in this share of texts."""
DIGITS = 6
TINY = 10.0**-DIGITS
NO_THRESHOLD = 0.0
"""In place of one for the label that says that no other is there: its own score decides nothing."""
FAR_MORE_OFTEN = 0.5
"""Of all texts, by which the share that is given a label may exceed the label's share of the training rows."""
FEWEST_TO_JUDGE = 20
"""Rows below which nothing is said about how often a label is given."""
AS_THEY_ARE = Calibration()


@dataclass(frozen=True)
class Answers:
    """Calibrated scores and what they were taken to mean. `chosen` has the form of a split's targets."""

    scores: Floats
    chosen: NDArray[Any]
    abstained: NDArray[np.bool_]

    def select(self, rows: NDArray[Any]) -> "Answers":
        """The answers to some of the texts."""
        return Answers(self.scores[rows], self.chosen[rows], self.abstained[rows])


class _DecisionFields(BaseModel):
    """What the manifest holds of a decision layer."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    calibration: Calibration
    thresholds: tuple[float, ...]
    abstain_below: float
    floors: tuple[float, ...]
    none_label: str = ""


@dataclass(frozen=True)
class DecisionLayer:
    """It lives in the bundle and is the same in every runtime."""

    task: "Task"
    labels: tuple[str, ...]
    calibration: Calibration = AS_THEY_ARE
    thresholds: tuple[float, ...] = ()
    """Task `multi`: one a label."""
    abstain_below: float = 0.0
    floors: tuple[float, ...] = ()
    """For each of `COVERAGES` the score down to which labels stand in a set; none where no row was there to tell."""
    none_label: str = ""
    """Task `multi`: the label that says that no other is there. It is the answer where no other reaches its threshold,
    and never stands beside another."""

    def answers(self, scores: Scores) -> Answers:
        """What these scores are taken to mean."""
        return self.decide(self.calibration.apply(scores, task=self.task))

    def decide(self, calibrated: Floats) -> Answers:
        """What scores that are calibrated already are taken to mean."""
        shown = calibrated.round(DIGITS)  # what is decided is what is shown; what is measured is exact
        if self.task == "single":
            chosen: NDArray[Any] = shown.argmax(axis=1) if len(shown) else np.zeros(0, dtype=np.int64)
        else:
            chosen = shown >= np.array(self.thresholds)
            if self.none_label:
                none = self.labels.index(self.none_label)
                chosen[:, none] = ~np.delete(chosen, none, axis=1).any(axis=1)
        return Answers(calibrated, chosen, self.confidence(shown, chosen) < self.abstain_below)

    def confidence(self, scores: Floats, chosen: NDArray[Any]) -> Floats:
        """How sure each answer is: the label's score; of several labels, that these are there and no other is.

        As if labels knew nothing of each other: of GoEmotions' answers 23 % were right where this says 15 and 25 %, and
        the lowest score of the labels given, or for none what the highest leaves, 33 and 43 %. The label that says that
        no other is there adds nothing to what the others say.
        """
        if chosen.ndim == 1:
            return np.asarray(scores.max(axis=1, initial=0.0))
        if self.none_label:
            none = self.labels.index(self.none_label)
            scores, chosen = np.delete(scores, none, axis=1), np.delete(chosen, none, axis=1)
        return np.asarray(np.where(chosen, scores, 1 - scores).prod(axis=1)).round(DIGITS)

    def prediction_sets(self, answers: Answers, *, coverage: float) -> NDArray[np.bool_]:
        """For each text the labels that together hold its truth with this probability; the likeliest is always one."""
        shown = np.round(answers.scores, DIGITS)
        inside = shown >= self._find_floor(coverage)
        if self.task == "single" and len(shown):
            inside[np.arange(len(shown)), answers.chosen] = True
        return np.asarray(inside)

    def _find_floor(self, coverage: float) -> float:
        if not self.floors:
            hint = "train with a validation split to have sets"
            raise SpecError("this bundle promises no coverage: there was no validation row to learn it from", hint=hint)
        enough = [floor for promised, floor in zip(COVERAGES, self.floors, strict=True) if promised >= coverage - 1e-9]
        if not enough or not coverage > 0:
            raise SpecError(f"sets with a coverage of {coverage:g} cannot be made", hint="give one from 0.5 to 0.99")
        return enough[0]

    def predictions(self, answers: Answers, *, coverage: float | None = None) -> list[Prediction]:
        """The same answers, one object a text; with `coverage`, each with its set of labels."""
        shown = answers.scores.round(DIGITS).tolist()
        sets = [None] * len(shown) if coverage is None else self.prediction_sets(answers, coverage=coverage)
        return [
            self._build_prediction(row, chosen, abstained, inside)
            for row, chosen, abstained, inside in zip(
                shown, answers.chosen.tolist(), answers.abstained.tolist(), sets, strict=True
            )
        ]

    def to_dict(self) -> dict[str, Any]:
        """As the manifest has it."""
        return {
            "calibration": self.calibration.to_dict(),
            "thresholds": list(self.thresholds),
            "abstain_below": self.abstain_below,
            "floors": list(self.floors),
            "none_label": self.none_label,
        }

    @classmethod
    def from_dict(cls, value: dict[str, Any], *, task: "Task", labels: Sequence[str]) -> Self:
        """Read back from the manifest; what does not fit these labels, or is no number, is a ValueError.

        One that was written before answers knew a label for none answers as it did.
        """
        fields = _DecisionFields.model_validate(value)
        fields.calibration.check(labels=len(labels))
        if len(fields.thresholds) != (len(labels) if task == "multi" else 0):
            raise ValueError(f"{len(fields.thresholds)} thresholds are not for {len(labels)} labels of task {task}")
        if len(fields.floors) not in (0, len(COVERAGES)):
            raise ValueError(f"{len(fields.floors)} floors are not for {len(COVERAGES)} coverages")
        if fields.none_label and fields.none_label not in labels:
            raise ValueError(f"none_label {fields.none_label!r} is no label")
        return cls(task, tuple(labels), **dict(fields))

    def _build_prediction(self, row: list[float], chosen: Any, abstained: bool, inside: Any) -> Prediction:
        scores = dict(zip(self.labels, row, strict=True))
        likeliest_first = sorted(np.flatnonzero(inside), key=lambda i: -row[i]) if inside is not None else ()
        label_set = None if inside is None else tuple(self.labels[i] for i in likeliest_first)
        if self.task == "single":
            label, score = self.labels[chosen], row[chosen]
            return Prediction(scores, label=label, score=score, abstained=abstained, set=label_set)
        names = tuple(label for label, is_chosen in zip(self.labels, chosen, strict=True) if is_chosen)
        return Prediction(scores, labels=names, abstained=abstained, set=label_set)


@dataclass(frozen=True)
class TunedDecisions:
    """A decision layer, and the answers of the rows it was tuned on, their scores calibrated without them."""

    layer: DecisionLayer
    answers: Answers
    losses: dict[str, float]
    """Log loss of each way to calibrate, on rows that it was not fitted on; empty where none was tried."""


def tune(
    spec: "Decisions",
    *,
    task: "Task",
    labels: Sequence[str],
    scores: Scores,
    truth: NDArray[Any],
    none_label: str = "",
    is_quick: bool = False,
) -> TunedDecisions:
    """A decision layer set by the spec and, where rows are given, tuned on them; quickly, with a temperature alone."""
    names = tuple(labels)
    held_out, losses, chosen = scores.astype(np.float64), {}, AS_THEY_ARE
    if spec.calibrate and len(truth):
        fitted = calibration.choose_method(scores, truth, task=task, is_quick=is_quick)
        held_out, losses, chosen = fitted.held_out, fitted.losses, fitted.calibration
    thresholds: tuple[float, ...] = ()
    if task == "multi" and none_label:
        none = names.index(none_label)
        tuned = _tune_thresholds(np.delete(held_out, none, axis=1), np.delete(truth, none, axis=1), spec.thresholds)
        thresholds = (*tuned[:none], NO_THRESHOLD, *tuned[none:])
    elif task == "multi":
        thresholds = _tune_thresholds(held_out, truth, spec.thresholds)
    layer = DecisionLayer(
        task, names, chosen, thresholds, spec.abstain_below, _compute_floors(held_out, truth), none_label
    )
    if spec.target_precision and len(truth):
        layer = replace(layer, abstain_below=_tune_abstention(layer, held_out, truth, spec))
    return TunedDecisions(layer, layer.decide(held_out), losses)


def are_right(answers: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.bool_]:
    """Which answers are right; of several labels, when all of them are and none is missing."""
    return np.asarray(answers == truth if truth.ndim == 1 else (answers == truth).all(axis=1))


def find_overused_labels(
    chosen: NDArray[Any], labels: Sequence[str], *, shares: NDArray[np.floating[Any]]
) -> list[dict[str, Any]]:
    """Labels given to far more of the texts than their shares of the training rows, with both; the worst first."""
    if len(chosen) < FEWEST_TO_JUDGE:
        return []
    given = chosen.mean(axis=0) if chosen.ndim == 2 else np.bincount(chosen, minlength=len(labels)) / len(chosen)
    excess = given - shares
    return [
        {"label": labels[i], "answered": float(given[i]), "expected": float(shares[i])}
        for i in np.argsort(-excess, kind="stable")
        if excess[i] >= FAR_MORE_OFTEN
    ]


def label_shares(targets: NDArray[Any], labels: int) -> Floats:
    """Of these rows, the share that has each label."""
    if not len(targets):
        return np.zeros(labels)
    counts = targets.sum(axis=0) if targets.ndim == 2 else np.bincount(targets, minlength=labels)
    return np.asarray(counts / len(targets))


def _tune_abstention(layer: DecisionLayer, calibrated: Floats, truth: NDArray[Any], spec: "Decisions") -> float:
    """The lowest score at and above which surely enough answers are right; the best there is where none is enough."""
    answers = layer.decide(calibrated)
    sure = layer.confidence(answers.scores.round(DIGITS), answers.chosen)
    order = np.argsort(-sure, kind="stable")
    ordered = sure[order]
    told_apart = np.r_[ordered[1:] != ordered[:-1], True]  # equal scores are answered together or not at all
    believed = told_apart & (np.arange(len(order)) >= min(FEWEST_ANSWERS, len(order)) - 1)
    hits = np.cumsum(are_right(answers.chosen, truth)[order])
    return float(ordered[_find_last_precise(hits, wanted=spec.target_precision, among=believed)])


def _find_last_precise(hits: NDArray[Any], *, wanted: float, among: NDArray[np.bool_]) -> int:
    """How far down the answers, the surest first, this share is surely right; where nowhere, where it nearly is."""
    answered = np.arange(1, len(hits) + 1)
    above = hits / answered - wanted - CAUTION * np.sqrt(wanted * (1 - wanted) / answered)
    enough = np.flatnonzero(among & (above >= 0))
    return int(enough[-1]) if len(enough) else int(np.where(among, above, -np.inf).argmax())


def _compute_floors(scores: Floats, truth: NDArray[Any]) -> tuple[float, ...]:
    """Split conformal prediction: of n rows' scores of the truth, the one that at most a share 1 - c of n + 1 is below.

    A text of task `multi` is covered when all its labels are in the set, so its lowest one counts.
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


def _tune_thresholds(scores: Floats, truth: NDArray[Any], wanted: "float | str | Goal") -> tuple[float, ...]:
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


def _find_midpoint(ordered: Floats, place: int) -> float:
    """Halfway between a score and the next lower one."""
    next_lower = ordered[place + 1] if place + 1 < len(ordered) else 0.0
    return float(np.clip((ordered[place] + next_lower) / 2, TINY, 1 - TINY))
