"""The decision layer: calibration, per-label thresholds and abstention, which turn scores into answers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from tagline.models import Prediction, Scores

if TYPE_CHECKING:
    from tagline.dataset import Task
    from tagline.spec import Decisions

TINY = 1e-7
TEMPERATURES = np.geomspace(0.1, 10, 201)
PRIOR_ROWS = 2.0
"""What it costs, in rows' worth of loss, to leave a temperature of 1: a dozen rows that are all right prove little."""
FEWEST_POSITIVES = 10
"""A label with fewer validation rows than this shares the threshold of all labels."""
FEWEST_ANSWERS = 20
"""A target precision is not believed on fewer answers than this."""
DIGITS = 6


@dataclass(frozen=True)
class Answers:
    """Calibrated scores and what they were taken to mean. `chosen` has the form of a split's targets."""

    scores: NDArray[np.float64]
    chosen: NDArray[Any]
    abstained: NDArray[np.bool_]


@dataclass(frozen=True)
class DecisionLayer:
    """It lives in the bundle and is the same in every runtime."""

    task: "Task"
    labels: tuple[str, ...]
    temperatures: tuple[float, ...]
    """One for task `single`, one a label for task `multi`."""
    thresholds: tuple[float, ...] = ()
    """Task `multi`: one a label."""
    abstain_below: float = 0.0

    @classmethod
    def fit(
        cls, spec: "Decisions", *, task: "Task", labels: Sequence[str], scores: Scores, truth: NDArray[Any]
    ) -> Self:
        """Set by the spec and, where rows are given, tuned on them."""
        raw = scores.astype(np.float64)
        count = 1 if task == "single" else len(labels)
        temperatures = _temperatures(raw, truth, task) if spec.calibrate and len(truth) else (1.0,) * count
        calibrated = cls(task, tuple(labels), temperatures)._calibrated(raw)
        thresholds: tuple[float, ...] = ()
        if task == "multi":
            thresholds = _thresholds(calibrated, truth, spec.thresholds)
        layer = cls(task, tuple(labels), temperatures, thresholds, spec.abstain_below)
        if spec.target_precision and len(truth):
            below = layer._for_precision(raw, truth, spec.target_precision)
            return cls(task, tuple(labels), temperatures, thresholds, below)
        return layer

    def answers(self, scores: Scores) -> Answers:
        """What these scores are taken to mean."""
        calibrated = self._calibrated(scores.astype(np.float64))
        shown = np.round(calibrated, DIGITS)  # what is decided is what is shown; what is measured is exact
        if self.task == "single":
            chosen: NDArray[Any] = shown.argmax(axis=1) if len(shown) else np.zeros(0, dtype=np.int64)
        else:
            chosen = shown >= np.array(self.thresholds)
        return Answers(calibrated, chosen, self._confidence(shown, chosen) < self.abstain_below)

    def predictions(self, answers: Answers) -> list[Prediction]:
        """The same answers, one object a text."""
        shown = answers.scores.round(DIGITS).tolist()
        return [
            self._prediction(row, chosen, bool(abstained))
            for row, chosen, abstained in zip(shown, answers.chosen, answers.abstained, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """As the manifest has it."""
        return {key: value for key, value in asdict(self).items() if key not in ("task", "labels")}

    @classmethod
    def from_dict(cls, value: dict[str, Any], *, task: "Task", labels: Sequence[str]) -> Self:
        """Read back from the manifest."""
        return cls(
            task, tuple(labels), tuple(value["temperatures"]), tuple(value["thresholds"]), value["abstain_below"]
        )  # fmt: skip

    def _prediction(self, row: list[float], chosen: Any, abstained: bool) -> Prediction:
        scores = dict(zip(self.labels, row, strict=True))
        if self.task == "single":
            return Prediction(scores, label=self.labels[int(chosen)], score=row[int(chosen)], abstained=abstained)
        names = tuple(label for label, is_chosen in zip(self.labels, chosen, strict=True) if is_chosen)
        return Prediction(scores, labels=names, abstained=abstained)

    def _calibrated(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        return _tempered(scores, np.array(self.temperatures), self.task)

    def _confidence(self, scores: NDArray[np.float64], chosen: NDArray[Any]) -> NDArray[np.float64]:
        """How sure the answer is: the label's score; of several labels the lowest; of none, that none applies."""
        if self.task == "single":
            return np.asarray(scores.max(axis=1, initial=0.0))
        lowest = np.where(chosen, scores, np.inf).min(axis=1, initial=np.inf)
        return np.asarray(np.where(chosen.any(axis=1), lowest, 1 - scores.max(axis=1, initial=0.0)))

    def _for_precision(self, scores: NDArray[np.float64], truth: NDArray[Any], target: float) -> float:
        """The lowest score at and above which enough answers are right; the best there is where none is enough."""
        answers = self.answers(scores.astype(np.float32))
        right = answers.chosen == truth
        right = right if right.ndim == 1 else right.all(axis=1)
        confidence = self._confidence(answers.scores.round(DIGITS), answers.chosen)
        order = np.argsort(-confidence, kind="stable")
        ordered = confidence[order]
        told_apart = np.r_[ordered[1:] != ordered[:-1], True]  # equal scores are answered together or not at all
        precision = np.cumsum(right[order]) / np.arange(1, len(order) + 1)
        believed = told_apart & (np.arange(len(order)) >= min(FEWEST_ANSWERS, len(order)) - 1)
        enough = np.flatnonzero(believed & (precision >= target))
        last = enough[-1] if len(enough) else int(np.where(believed, precision, -1).argmax())
        return float(ordered[last])


def _tempered(scores: NDArray[np.float64], temperatures: NDArray[np.float64], task: "Task") -> NDArray[np.float64]:
    """Scores as if the model had been surer (below 1) or less sure (above 1) of itself."""
    if task == "single":
        powers = np.log(np.clip(scores, TINY, 1)) / temperatures[0]
        exponents = np.exp(powers - powers.max(axis=1, keepdims=True, initial=-np.inf))
        return np.asarray(exponents / exponents.sum(axis=1, keepdims=True))
    clipped = np.clip(scores, TINY, 1 - TINY)
    return np.asarray(1 / (1 + np.exp(-np.log(clipped / (1 - clipped)) / temperatures)))


def _temperatures(scores: NDArray[np.float64], truth: NDArray[Any], task: "Task") -> tuple[float, ...]:
    """The temperatures under which the truth is likeliest, held near 1 where few rows speak for another."""
    doubt = np.log(TEMPERATURES) ** 2 * PRIOR_ROWS / len(truth)
    if task == "single":
        rows = np.arange(len(truth))
        losses = [-np.log(_tempered(scores, np.array([t]), task)[rows, truth] + TINY).mean() for t in TEMPERATURES]
        return (float(TEMPERATURES[int(np.argmin(losses + doubt))]),)
    losses = []
    for temperature in TEMPERATURES:
        tempered = np.clip(_tempered(scores, np.full(scores.shape[1], temperature), task), TINY, 1 - TINY)
        losses.append(-np.where(truth, np.log(tempered), np.log(1 - tempered)).mean(axis=0))
    return tuple(float(TEMPERATURES[i]) for i in np.argmin(np.array(losses) + doubt[:, None], axis=0))


def _thresholds(scores: NDArray[np.float64], truth: NDArray[Any], wanted: float | str) -> tuple[float, ...]:
    """One a label: the number given, or where F1 is highest, or for a rare label where it is for all together."""
    labels = int(scores.shape[1])
    if isinstance(wanted, float):
        return (wanted,) * labels
    if not len(truth):
        return (0.5,) * labels
    shared = _best_threshold(scores.ravel(), truth.ravel())
    return tuple(
        _best_threshold(scores[:, i], truth[:, i]) if truth[:, i].sum() >= FEWEST_POSITIVES else shared
        for i in range(labels)
    )


def _best_threshold(scores: NDArray[np.float64], truth: NDArray[Any]) -> float:
    """The threshold with the highest F1, halfway between two scores."""
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    hits = np.cumsum(truth[order])
    f1 = 2 * hits / (np.arange(1, len(order) + 1) + truth.sum())
    f1[:-1][ordered[:-1] == ordered[1:]] = -1  # equal scores cannot be told apart
    best = int(f1.argmax())
    next_lower = ordered[best + 1] if best + 1 < len(ordered) else 0.0
    return float(np.clip((ordered[best] + next_lower) / 2, 0.01, 0.99)) if hits[best] else 0.5
