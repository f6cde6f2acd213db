"""Calibration: a score of 0.8 made to be right 8 times in 10, by the map that does best on rows it has not seen."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, TypeAdapter, with_config

if TYPE_CHECKING:
    from tagline.data.dataset import Task

Floats = NDArray[np.float64]
Method = Literal["none", "temperature", "vector", "isotonic"]

DIGITS = 6
"""Of a calibrated score: what is shown, and what is decided by."""
TINY = 1e-7
METHODS: tuple[Method, ...] = ("temperature", "vector", "isotonic")
"""Simple ones first."""
SMOOTHINGS = (0.0, 0.05, 0.1)
"""Label smoothing that a model may have learned with. On HappyDB undoing it took the log loss on test from 0.413 to
0.402 and the calibration error from 0.027 to 0.019."""
LEFT_OF_FLOOR = 0.01
"""Of a score at the floor that smoothing puts under all labels, what is left of it."""
FOLDS = 5
PRIOR_ROWS = 2.0
"""What it costs, in rows' worth of loss, to move the scores: a dozen rows that are all right prove little."""
FEWEST_FOR_VECTOR = 100
FEWEST_FOR_ISOTONIC = 1000
"""Rows below which a curve of any shape follows the noise."""
MOST_CELLS = 400_000
"""Rows times labels that a map is fitted to: more move a handful of numbers by nothing."""
KNOTS = 32
KEPT_OF_SCORE = 0.01
"""Share of the model's own score in an isotonic one, so that scores on one step of the curve keep their order."""


@with_config(ConfigDict(allow_inf_nan=False))
@dataclass(frozen=True)
class Calibration:
    """A map of scores, kept as plain numbers: a scale and a shift of each label's log-odds, or a curve a label."""

    method: Method = "none"
    scales: tuple[float, ...] = (1.0,)
    """One for all labels, or one a label."""
    shifts: tuple[float, ...] = (0.0,)
    smoothing: float = 0.0
    """Share of every score that is the same for all labels and is taken away first: label smoothing, undone."""
    curves: tuple[tuple[tuple[float, float], ...], ...] = ()
    """Method `isotonic`: points of each label's curve, from a score to what it is worth."""

    def apply(self, scores: NDArray[Any], *, task: "Task") -> Floats:
        """These scores as shares one can count on; for task `single` a row still adds up to 1."""
        raw = scores.astype(np.float64)
        if self.curves:
            points = [np.array(curve).T for curve in self.curves]
            worth = np.column_stack([np.interp(raw[:, i], x, y) for i, (x, y) in enumerate(points)])
            worth = (1 - KEPT_OF_SCORE) * worth + KEPT_OF_SCORE * raw
            return np.asarray(worth / worth.sum(axis=1, keepdims=True) if task == "single" else worth)
        return scores_from_log_odds(log_odds(raw, task, smoothing=self.smoothing) * self._scales + self._shifts, task)

    @cached_property
    def _scales(self) -> Floats:
        return np.array(self.scales)

    @cached_property
    def _shifts(self) -> Floats:
        return np.array(self.shifts)

    def to_dict(self) -> dict[str, Any]:
        """As the manifest has it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Read back from the manifest; what is no calibration is a ValueError."""
        return TypeAdapter(cls).validate_python(value)

    def check(self, *, labels: int) -> None:
        """Refuse numbers that do not fit so many labels."""
        for name, numbers in (("scales", self.scales), ("shifts", self.shifts)):
            if len(numbers) not in (1, labels):
                raise ValueError(f"calibration.{name}: {len(numbers)} numbers are not for {labels} labels")
        if len(self.curves) not in (0, labels) or not all(self.curves):
            raise ValueError(f"calibration.curves: {len(self.curves)} curves are not for {labels} labels")


@dataclass(frozen=True)
class FittedCalibration:
    """The calibration chosen, the rows' scores under maps that were not fitted on them, and how each method did."""

    calibration: Calibration
    held_out: Floats
    losses: dict[str, float]
    """Log loss of each method on rows that it was not fitted on."""


def choose_method(
    scores: NDArray[Any], truth: NDArray[Any], *, task: "Task", is_quick: bool = False
) -> FittedCalibration:
    """The simplest method whose cross-validated loss these rows cannot tell from the best one's.

    Quickly, it is a temperature: enough to see how a model that still learns is doing.
    """
    fold = _assign_folds(truth)
    forms = [_Form("temperature")] if is_quick else _list_forms(len(truth), task)
    tried = [_Trial.cross_validate(form, scores, truth, fold, task) for form in forms]
    of_method: dict[str, _Trial] = {}
    for trial in sorted(tried, key=lambda trial: trial.loss):
        of_method.setdefault(trial.form.method, trial)
    best = min(of_method.values(), key=lambda trial: trial.loss)
    simple_first = [of_method[method] for method in METHODS if method in of_method]
    chosen = next(trial for trial in simple_first if trial.is_as_good_as(best))
    losses: dict[str, float] = {trial.form.method: trial.loss for trial in simple_first}
    return FittedCalibration(_fit(chosen.form, scores, truth, task), chosen.held_out, losses)


def fit_ensemble_weights(opinions: Sequence[Floats], truth: NDArray[Any], *, task: "Task") -> Floats:
    """What the log-odds of several models are worth in a sum: so much that the truth is likeliest.

    Where few rows speak, the first model's count for most.
    """
    from scipy.optimize import minimize

    some = _sample_rows(len(truth), labels=opinions[0].shape[1])
    looked_at, wanted = np.stack([each[some] for each in opinions]), _encode_one_hot(truth[some], opinions[0].shape[1])
    start, rows = np.eye(len(opinions))[0], max(len(wanted), 1)
    pull = PRIOR_ROWS / rows

    def loss(worth: Floats) -> tuple[float, Floats]:
        likely = scores_from_log_odds(np.tensordot(worth, looked_at, axes=1), task)
        moved = worth - start
        value = _log_loss(likely, wanted, task).sum() / rows + pull * (moved**2).sum()
        gradient = (looked_at * (likely - wanted)).sum(axis=(1, 2)) / rows
        return float(value), gradient + 2 * pull * moved

    return np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * len(start)).x)


def _sample_rows(rows: int, *, labels: int) -> NDArray[np.int64]:
    """Rows to fit a map to: all, or as many as can move it."""
    most = max(MOST_CELLS // labels, FEWEST_FOR_ISOTONIC)
    return np.arange(rows) if rows <= most else np.random.default_rng(0).choice(rows, most, replace=False)


@dataclass(frozen=True)
class _Form:
    """A map before it is fitted."""

    method: Method
    smoothing: float = 0.0


@dataclass(frozen=True)
class _Trial:
    """A form, cross-validated."""

    form: _Form
    held_out: Floats
    losses: Floats

    @classmethod
    def cross_validate(
        cls, form: _Form, scores: NDArray[Any], truth: NDArray[Any], fold: NDArray[np.int64], task: "Task"
    ) -> Self:
        held_out = _cross_fit(form, scores, truth, fold, task)
        return cls(form, held_out, _compute_row_losses(held_out, truth, task))

    @property
    def loss(self) -> float:
        return float(self.losses.mean())

    def is_as_good_as(self, best: "_Trial") -> bool:
        """Whether the rows cannot tell it from the best one."""
        lost = self.losses - best.losses
        return bool(lost.mean() <= lost.std() / np.sqrt(len(lost)))


def _list_forms(rows: int, task: "Task") -> Iterator[_Form]:
    """What may be tried on so many rows. `none` is no candidate: a temperature near 1 is as simple and never worse."""
    smoothings = SMOOTHINGS if task == "single" and rows >= FEWEST_FOR_VECTOR else (0.0,)
    yield from (_Form("temperature", smoothing) for smoothing in smoothings)
    if rows >= FEWEST_FOR_VECTOR:
        yield from (_Form("vector", smoothing) for smoothing in smoothings)
    if rows >= FEWEST_FOR_ISOTONIC:
        yield _Form("isotonic")


def _assign_folds(truth: NDArray[Any]) -> NDArray[np.int64]:
    """A fold for each row, every label spread over all of them."""
    key = truth if truth.ndim == 1 else truth.argmax(axis=1) + truth.shape[1] * truth.sum(axis=1)
    order = np.lexsort((np.random.default_rng(0).permutation(len(truth)), key))
    fold = np.empty(len(truth), dtype=np.int64)
    fold[order] = np.arange(len(truth)) % FOLDS
    return fold


def _cross_fit(form: _Form, scores: NDArray[Any], truth: NDArray[Any], fold: NDArray[np.int64], task: "Task") -> Floats:
    """Each row's scores under a map fitted on the other folds."""
    found = np.zeros(scores.shape, dtype=np.float64)
    for number in range(FOLDS):
        inside = fold == number
        if inside.any():
            found[inside] = _fit(form, scores[~inside], truth[~inside], task).apply(scores[inside], task=task)
    return found


def _fit(form: _Form, scores: NDArray[Any], truth: NDArray[Any], task: "Task") -> Calibration:
    if not len(truth):
        return Calibration()
    some = _sample_rows(len(truth), labels=scores.shape[1])
    scores, truth = scores[some], truth[some]
    if form.method == "isotonic":
        return _fit_isotonic(scores.astype(np.float64), _encode_one_hot(truth, scores.shape[1]))
    return _fit_affine(form, log_odds(scores.astype(np.float64), task, smoothing=form.smoothing), truth, task)


def _fit_affine(form: _Form, values: Floats, truth: NDArray[Any], task: "Task") -> Calibration:
    """The scales (and shifts) under which the truth is likeliest, held near 1 (and 0) where few rows speak."""
    from scipy.optimize import minimize

    rows, labels = values.shape
    wanted = _encode_one_hot(truth, labels)
    scale_count = 1 if task == "single" and form.method == "temperature" else labels
    shift_count = labels if form.method == "vector" else 0
    pull = PRIOR_ROWS / rows

    def loss(parameters: Floats) -> tuple[float, Floats]:
        scales, shifts = np.exp(parameters[:scale_count]), parameters[scale_count:] if shift_count else 0.0
        moved = values * scales + shifts
        likely = scores_from_log_odds(moved, task)
        likelihood = _log_loss(likely, wanted, task).sum() / rows + pull * (parameters**2).sum()
        error = (likely - wanted) / rows
        by_scale = (error * values).sum(axis=0) * scales
        gradient = by_scale if scale_count == labels else np.array([by_scale.sum()])
        if shift_count:
            gradient = np.concatenate([gradient, error.sum(axis=0)])
        return float(likelihood), gradient + 2 * pull * parameters

    start = np.zeros(scale_count + shift_count)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(-6.0, 6.0)] * len(start)).x
    scales, shifts = np.exp(found[:scale_count]), found[scale_count:]
    return Calibration(
        form.method, _round_values(scales), _round_values(shifts) if shift_count else (0.0,), form.smoothing
    )


def _fit_isotonic(scores: Floats, truth: Floats) -> Calibration:
    """For each label the rising curve nearest to how often it was true, thinned to a few points."""
    from sklearn.isotonic import IsotonicRegression

    edge = 1 / (2 * len(truth))
    curves = []
    for i in range(scores.shape[1]):
        fitted = IsotonicRegression(y_min=edge, y_max=1 - edge, out_of_bounds="clip").fit(scores[:, i], truth[:, i])
        x, y = fitted.X_thresholds_, fitted.y_thresholds_
        if len(x) > KNOTS:
            kept = np.unique(np.linspace(0, len(x) - 1, KNOTS).round().astype(int))
            x, y = x[kept], y[kept]
        curves.append(tuple(zip(_round_values(x), _round_values(y), strict=True)))
    return Calibration("isotonic", curves=tuple(curves))


def _round_values(values: NDArray[Any]) -> tuple[float, ...]:
    return tuple(float(f"{value:.8g}") for value in values)


def _encode_one_hot(truth: NDArray[Any], labels: int) -> Floats:
    return truth.astype(np.float64) if truth.ndim == 2 else np.eye(labels)[truth]


def log_odds(scores: NDArray[Any], task: "Task", *, smoothing: float = 0.0) -> Floats:
    """What a scale and a shift act on: for task `single` logarithms, which are log-odds up to a constant a row."""
    if task == "single":
        lowest = TINY if not smoothing else LEFT_OF_FLOOR * smoothing / scores.shape[1]
        return np.asarray(np.log((scores - smoothing / scores.shape[1] if smoothing else scores).clip(lowest, 1)))
    clipped = np.clip(scores, TINY, 1 - TINY)
    return np.asarray(np.log(clipped / (1 - clipped)))


def scores_from_log_odds(values: Floats, task: "Task") -> Floats:
    """Log-odds as scores again."""
    if task == "multi":
        return np.asarray(1 / (1 + np.exp(-np.clip(values, -500, 500))))
    exponents = np.exp(values - values.max(axis=1, keepdims=True, initial=-np.inf))
    return np.asarray(exponents / exponents.sum(axis=1, keepdims=True))


def _compute_row_losses(scores: Floats, truth: NDArray[Any], task: "Task") -> Floats:
    """Each row's log loss."""
    return np.asarray(_log_loss(scores, _encode_one_hot(truth, scores.shape[1]), task).sum(axis=1))


def _log_loss(scores: Floats, wanted: Floats, task: "Task") -> Floats:
    likely = -wanted * np.log(np.clip(scores, TINY, 1))
    return likely if task == "single" else likely - (1 - wanted) * np.log(np.clip(1 - scores, TINY, 1))
