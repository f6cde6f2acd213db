"""The decision layer, which turns scores into answers: calibration, thresholds, abstention, prediction sets."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from tagline.models import Prediction, Scores
from tagline.prediction import calibration
from tagline.prediction.calibration import DIGITS, Calibration
from tagline.prediction.conformal import COVERAGES, compute_floors, find_floor
from tagline.prediction.thresholds import tune_abstention, tune_thresholds

if TYPE_CHECKING:
    from tagline.data.dataset import Task
    from tagline.spec import Decisions

Floats = NDArray[np.float64]

NO_THRESHOLD = 0.0
"""The threshold of `none_label`, whose own score decides nothing."""
FAR_MORE_OFTEN = 0.5
"""A label is overused when its share of the answers exceeds its share of the training rows by this much."""
FEWEST_TO_JUDGE = 20
"""The fewest rows on which overuse of a label is judged."""
AS_THEY_ARE = Calibration()


@dataclass(frozen=True)
class Answers:
    """Calibrated scores and the labels chosen by them. `chosen` has the form of a split's targets."""

    scores: Floats
    chosen: NDArray[Any]
    abstained: NDArray[np.bool_]

    def select(self, rows: NDArray[Any]) -> "Answers":
        """Return the answers to some of the texts."""
        return Answers(self.scores[rows], self.chosen[rows], self.abstained[rows])


class _DecisionFields(BaseModel):
    """The fields of a decision layer in the manifest."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    calibration: Calibration
    thresholds: tuple[float, ...]
    abstain_below: float
    floors: tuple[float, ...]
    none_label: str = ""


@dataclass(frozen=True)
class DecisionLayer:
    """Turns scores into answers; part of the bundle, and the same in every runtime."""

    task: "Task"
    labels: tuple[str, ...]
    calibration: Calibration = AS_THEY_ARE
    thresholds: tuple[float, ...] = ()
    """Task `multi`: one per label."""
    abstain_below: float = 0.0
    floors: tuple[float, ...] = ()
    """For each of `COVERAGES` the lowest score of a label in a set; empty if there were no rows to fit them on."""
    none_label: str = ""
    """Task `multi`: the label that means no other label. It is the answer where no other reaches its threshold, and is
    never combined with another."""

    def answers(self, scores: Scores) -> Answers:
        """Return the answers for a model's own scores."""
        return self.decide(self.calibration.apply(scores, task=self.task))

    def decide(self, calibrated: Floats) -> Answers:
        """Return the answers for scores that are already calibrated."""
        shown = calibrated.round(DIGITS)  # decisions use the rounded scores that are shown; metrics use the exact ones
        if self.task == "single":
            chosen: NDArray[Any] = shown.argmax(axis=1) if len(shown) else np.zeros(0, dtype=np.int64)
        else:
            chosen = shown >= np.array(self.thresholds)
            if self.none_label:
                none = self.labels.index(self.none_label)
                chosen[:, none] = ~np.delete(chosen, none, axis=1).any(axis=1)
        return Answers(calibrated, chosen, self.confidence(shown, chosen) < self.abstain_below)

    def confidence(self, scores: Floats, chosen: NDArray[Any]) -> Floats:
        """Return the confidence of each answer: the label's score, or the probability of exactly these labels.

        Labels count as independent: of GoEmotions' answers 23 % were right where this says 15 and 25 %, and the lowest
        score of the labels given (for none, 1 minus the highest) says 33 and 43 %. `none_label` is left out: the other
        labels determine it.
        """
        if chosen.ndim == 1:
            return np.asarray(scores.max(axis=1, initial=0.0))
        if self.none_label:
            none = self.labels.index(self.none_label)
            scores, chosen = np.delete(scores, none, axis=1), np.delete(chosen, none, axis=1)
        return np.asarray(np.where(chosen, scores, 1 - scores).prod(axis=1)).round(DIGITS)

    def prediction_sets(self, answers: Answers, *, coverage: float) -> NDArray[np.bool_]:
        """Return for each text a set of labels that holds the truth with this probability, the likeliest among them."""
        shown = np.round(answers.scores, DIGITS)
        inside = shown >= find_floor(self.floors, coverage=coverage)
        if self.task == "single" and len(shown):
            inside[np.arange(len(shown)), answers.chosen] = True
        return np.asarray(inside)

    def predictions(self, answers: Answers, *, coverage: float | None = None) -> list[Prediction]:
        """Return the answers as one object per text; with `coverage`, each with its prediction set."""
        shown = answers.scores.round(DIGITS).tolist()
        sets = [None] * len(shown) if coverage is None else self.prediction_sets(answers, coverage=coverage)
        return [
            self._build_prediction(row, chosen, abstained, inside)
            for row, chosen, abstained, inside in zip(
                shown, answers.chosen.tolist(), answers.abstained.tolist(), sets, strict=True
            )
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the layer as the manifest stores it."""
        return {
            "calibration": self.calibration.to_dict(),
            "thresholds": list(self.thresholds),
            "abstain_below": self.abstain_below,
            "floors": list(self.floors),
            "none_label": self.none_label,
        }

    @classmethod
    def from_dict(cls, value: dict[str, Any], *, task: "Task", labels: Sequence[str]) -> Self:
        """Read a layer from the manifest; raise ValueError if it does not fit these labels, or a number is not finite.

        A layer that was written before `none_label` existed answers as it did then.
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
    """A tuned decision layer, and the answers for the rows it was tuned on, made of out-of-fold calibrated scores."""

    layer: DecisionLayer
    answers: Answers
    losses: dict[str, float]
    """Out-of-fold log loss of each calibration method; empty if none was tried."""


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
    """Return a decision layer set by the spec and tuned on the rows, if any; `is_quick` fits a temperature alone."""
    names = tuple(labels)
    held_out, losses, chosen = scores.astype(np.float64), {}, AS_THEY_ARE
    if spec.calibrate and len(truth):
        fitted = calibration.choose_method(scores, truth, task=task, is_quick=is_quick)
        held_out, losses, chosen = fitted.held_out, fitted.losses, fitted.calibration
    thresholds: tuple[float, ...] = ()
    if task == "multi" and none_label:
        none = names.index(none_label)
        tuned = tune_thresholds(np.delete(held_out, none, axis=1), np.delete(truth, none, axis=1), spec.thresholds)
        thresholds = (*tuned[:none], NO_THRESHOLD, *tuned[none:])
    elif task == "multi":
        thresholds = tune_thresholds(held_out, truth, spec.thresholds)
    layer = DecisionLayer(
        task, names, chosen, thresholds, spec.abstain_below, compute_floors(held_out, truth), none_label
    )
    if spec.target_precision and len(truth):
        answers = layer.decide(held_out)
        confidence = layer.confidence(answers.scores.round(DIGITS), answers.chosen)
        right = are_right(answers.chosen, truth)
        layer = replace(layer, abstain_below=tune_abstention(confidence, right, precision=spec.target_precision))
    return TunedDecisions(layer, layer.decide(held_out), losses)


def are_right(answers: NDArray[Any], truth: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which answers are right; of several labels, exact matches alone."""
    return np.asarray(answers == truth if truth.ndim == 1 else (answers == truth).all(axis=1))


def find_overused_labels(
    chosen: NDArray[Any], labels: Sequence[str], *, shares: NDArray[np.floating[Any]]
) -> list[dict[str, Any]]:
    """Return labels answered far more often than their shares of the training rows, with both shares, worst first."""
    if len(chosen) < FEWEST_TO_JUDGE:
        return []
    answered = chosen.mean(axis=0) if chosen.ndim == 2 else np.bincount(chosen, minlength=len(labels)) / len(chosen)
    excess = answered - shares
    return [
        {"label": labels[i], "answered": float(answered[i]), "expected": float(shares[i])}
        for i in np.argsort(-excess, kind="stable")
        if excess[i] >= FAR_MORE_OFTEN
    ]


def label_shares(targets: NDArray[Any], labels: int) -> Floats:
    """Return the share of these rows that has each label."""
    if not len(targets):
        return np.zeros(labels)
    counts = targets.sum(axis=0) if targets.ndim == 2 else np.bincount(targets, minlength=labels)
    return np.asarray(counts / len(targets))
