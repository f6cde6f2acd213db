"""Calibration: a score of 0.8 is right 8 times in 10, by the method with the lowest out-of-fold log loss."""

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
"""Digits of a calibrated score, in decisions and where it is shown."""
TINY = 1e-7
METHODS: tuple[Method, ...] = ("temperature", "vector", "isotonic")
"""The simplest first."""
SMOOTHINGS = (0.0, 0.05, 0.1)
"""Label smoothing that a model may have been trained with. On HappyDB undoing it lowered the log loss on test from
0.413 to 0.402 and the calibration error from 0.027 to 0.019."""
LEFT_OF_FLOOR = 0.01
"""Lower bound of a score once smoothing is undone, as a share of the floor that smoothing puts under all labels."""
FOLDS = 5
PRIOR_ROWS = 2.0
"""Strength of the prior on unchanged scores, in rows: a dozen rows that are all right prove little."""
FEWEST_FOR_VECTOR = 100
FEWEST_FOR_ISOTONIC = 1000
"""Rows below which an isotonic curve overfits."""
MOST_CELLS = 400_000
"""The most rows times labels that a map is fitted to: more no longer change its few parameters."""
KNOTS = 32
KEPT_OF_SCORE = 0.01
"""Share of the model's own score in an isotonic one: tie-breaking for scores on the same step of the curve."""


@with_config(ConfigDict(allow_inf_nan=False))
@dataclass(frozen=True)
class Calibration:
    """A calibration map as plain numbers: a scale and a shift of each label's log-odds, or a curve per label."""

    method: Method = "none"
    scales: tuple[float, ...] = (1.0,)
    """One for all labels, or one per label."""
    shifts: tuple[float, ...] = (0.0,)
    smoothing: float = 0.0
    """Label smoothing to undo first: the share of every score that is the same for all labels."""
    curves: tuple[tuple[tuple[float, float], ...], ...] = ()
    """Method `isotonic`: the points of each label's curve, as pairs of raw and calibrated score."""

    def apply(self, scores: NDArray[Any], *, task: "Task") -> Floats:
        """Return the calibrated scores; for task `single` a row still adds up to 1."""
        raw = scores.astype(np.float64)
        if self.curves:
            points = [np.array(curve).T for curve in self.curves]
            calibrated = np.column_stack([np.interp(raw[:, i], x, y) for i, (x, y) in enumerate(points)])
            calibrated = (1 - KEPT_OF_SCORE) * calibrated + KEPT_OF_SCORE * raw
            return np.asarray(calibrated / calibrated.sum(axis=1, keepdims=True) if task == "single" else calibrated)
        return scores_from_log_odds(log_odds(raw, task, smoothing=self.smoothing) * self._scales + self._shifts, task)

    @cached_property
    def _scales(self) -> Floats:
        return np.array(self.scales)

    @cached_property
    def _shifts(self) -> Floats:
        return np.array(self.shifts)

    def to_dict(self) -> dict[str, Any]:
        """Return the calibration as the manifest stores it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """Read a calibration from the manifest; raise ValueError if it is none."""
        return TypeAdapter(cls).validate_python(value)

    def check(self, *, labels: int) -> None:
        """Raise ValueError if the numbers do not fit this many labels."""
        for name, numbers in (("scales", self.scales), ("shifts", self.shifts)):
            if len(numbers) not in (1, labels):
                raise ValueError(f"calibration.{name}: {len(numbers)} numbers are not for {labels} labels")
        if len(self.curves) not in (0, labels) or not all(self.curves):
            raise ValueError(f"calibration.curves: {len(self.curves)} curves are not for {labels} labels")


@dataclass(frozen=True)
class FittedCalibration:
    """The chosen calibration, the rows' out-of-fold calibrated scores, and the loss of each method."""

    calibration: Calibration
    held_out: Floats
    losses: dict[str, float]
    """Out-of-fold log loss of each method."""


def choose_method(
    scores: NDArray[Any], truth: NDArray[Any], *, task: "Task", is_quick: bool = False
) -> FittedCalibration:
    """Return the simplest method whose cross-validated loss is within one standard error of the best.

    With `is_quick` it is a temperature: enough to monitor a model during training.
    """
    fold_of_row = _assign_folds(truth)
    forms = [_Form("temperature")] if is_quick else _list_forms(len(truth), task)
    trials = [_Trial.cross_validate(form, scores, truth, fold_of_row, task) for form in forms]
    best_by_method: dict[str, _Trial] = {}
    for trial in sorted(trials, key=lambda trial: trial.loss):
        best_by_method.setdefault(trial.form.method, trial)
    best = min(best_by_method.values(), key=lambda trial: trial.loss)
    simple_first = [best_by_method[method] for method in METHODS if method in best_by_method]
    chosen = next(trial for trial in simple_first if trial.is_as_good_as(best))
    losses: dict[str, float] = {trial.form.method: trial.loss for trial in simple_first}
    return FittedCalibration(_fit(chosen.form, scores, truth, task), chosen.held_out, losses)


def fit_ensemble_weights(log_odds_by_model: Sequence[Floats], truth: NDArray[Any], *, task: "Task") -> Floats:
    """Fit the weights of several models' log-odds in a sum, by maximum likelihood.

    With few rows a prior keeps them near the first model alone.
    """
    from scipy.optimize import minimize

    sample = _sample_rows(len(truth), labels=log_odds_by_model[0].shape[1])
    stacked = np.stack([each[sample] for each in log_odds_by_model])
    targets = _encode_one_hot(truth[sample], log_odds_by_model[0].shape[1])
    start, rows = np.eye(len(log_odds_by_model))[0], max(len(targets), 1)
    prior = PRIOR_ROWS / rows

    def loss(weights: Floats) -> tuple[float, Floats]:
        fitted = scores_from_log_odds(np.tensordot(weights, stacked, axes=1), task)
        offset = weights - start
        value = _log_loss(fitted, targets, task).sum() / rows + prior * (offset**2).sum()
        gradient = (stacked * (fitted - targets)).sum(axis=(1, 2)) / rows
        return float(value), gradient + 2 * prior * offset

    return np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * len(start)).x)


def _sample_rows(rows: int, *, labels: int) -> NDArray[np.int64]:
    """Return the rows to fit a map to: all, or a sample that is large enough."""
    limit = max(MOST_CELLS // labels, FEWEST_FOR_ISOTONIC)
    return np.arange(rows) if rows <= limit else np.random.default_rng(0).choice(rows, limit, replace=False)


@dataclass(frozen=True)
class _Form:
    """A calibration method and the smoothing to undo, before it is fitted."""

    method: Method
    smoothing: float = 0.0


@dataclass(frozen=True)
class _Trial:
    """A form with its cross-validated scores and losses."""

    form: _Form
    held_out: Floats
    losses: Floats

    @classmethod
    def cross_validate(
        cls, form: _Form, scores: NDArray[Any], truth: NDArray[Any], fold_of_row: NDArray[np.int64], task: "Task"
    ) -> Self:
        held_out = _cross_fit(form, scores, truth, fold_of_row, task)
        return cls(form, held_out, _compute_row_losses(held_out, truth, task))

    @property
    def loss(self) -> float:
        return float(self.losses.mean())

    def is_as_good_as(self, best: "_Trial") -> bool:
        """Return whether the loss is within one standard error of the best."""
        excess = self.losses - best.losses
        return bool(excess.mean() <= excess.std() / np.sqrt(len(excess)))


def _list_forms(rows: int, task: "Task") -> Iterator[_Form]:
    """Yield the forms to try with this many rows; not `none`: a temperature near 1 is as simple and never worse."""
    smoothings = SMOOTHINGS if task == "single" and rows >= FEWEST_FOR_VECTOR else (0.0,)
    yield from (_Form("temperature", smoothing) for smoothing in smoothings)
    if rows >= FEWEST_FOR_VECTOR:
        yield from (_Form("vector", smoothing) for smoothing in smoothings)
    if rows >= FEWEST_FOR_ISOTONIC:
        yield _Form("isotonic")


def _assign_folds(truth: NDArray[Any]) -> NDArray[np.int64]:
    """Assign a fold to each row, stratified by label."""
    strata = truth if truth.ndim == 1 else truth.argmax(axis=1) + truth.shape[1] * truth.sum(axis=1)
    order = np.lexsort((np.random.default_rng(0).permutation(len(truth)), strata))
    fold_of_row = np.empty(len(truth), dtype=np.int64)
    fold_of_row[order] = np.arange(len(truth)) % FOLDS
    return fold_of_row


def _cross_fit(
    form: _Form, scores: NDArray[Any], truth: NDArray[Any], fold_of_row: NDArray[np.int64], task: "Task"
) -> Floats:
    """Return each row's scores under a map fitted on the other folds."""
    held_out = np.zeros(scores.shape, dtype=np.float64)
    for number in range(FOLDS):
        inside = fold_of_row == number
        if inside.any():
            held_out[inside] = _fit(form, scores[~inside], truth[~inside], task).apply(scores[inside], task=task)
    return held_out


def _fit(form: _Form, scores: NDArray[Any], truth: NDArray[Any], task: "Task") -> Calibration:
    if not len(truth):
        return Calibration()
    sample = _sample_rows(len(truth), labels=scores.shape[1])
    scores, truth = scores[sample], truth[sample]
    if form.method == "isotonic":
        return _fit_isotonic(scores.astype(np.float64), _encode_one_hot(truth, scores.shape[1]))
    return _fit_affine(form, log_odds(scores.astype(np.float64), task, smoothing=form.smoothing), truth, task)


def _fit_affine(form: _Form, values: Floats, truth: NDArray[Any], task: "Task") -> Calibration:
    """Fit scales (and shifts) by maximum likelihood, with a prior that keeps them near 1 (and 0) when rows are few."""
    from scipy.optimize import minimize

    rows, labels = values.shape
    targets = _encode_one_hot(truth, labels)
    scale_count = 1 if task == "single" and form.method == "temperature" else labels
    shift_count = labels if form.method == "vector" else 0
    prior = PRIOR_ROWS / rows

    def loss(parameters: Floats) -> tuple[float, Floats]:
        scales, shifts = np.exp(parameters[:scale_count]), parameters[scale_count:] if shift_count else 0.0
        moved = values * scales + shifts
        fitted = scores_from_log_odds(moved, task)
        value = _log_loss(fitted, targets, task).sum() / rows + prior * (parameters**2).sum()
        error = (fitted - targets) / rows
        by_scale = (error * values).sum(axis=0) * scales
        gradient = by_scale if scale_count == labels else np.array([by_scale.sum()])
        if shift_count:
            gradient = np.concatenate([gradient, error.sum(axis=0)])
        return float(value), gradient + 2 * prior * parameters

    start = np.zeros(scale_count + shift_count)
    optimum = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(-6.0, 6.0)] * len(start)).x
    scales, shifts = np.exp(optimum[:scale_count]), optimum[scale_count:]
    return Calibration(
        form.method, _round_values(scales), _round_values(shifts) if shift_count else (0.0,), form.smoothing
    )


def _fit_isotonic(scores: Floats, truth: Floats) -> Calibration:
    """Fit an isotonic regression for each label, thinned to a few points."""
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
    """Return the scores' log-odds; for task `single` logarithms, which are log-odds up to a constant per row."""
    if task == "single":
        lowest = TINY if not smoothing else LEFT_OF_FLOOR * smoothing / scores.shape[1]
        return np.asarray(np.log((scores - smoothing / scores.shape[1] if smoothing else scores).clip(lowest, 1)))
    clipped = np.clip(scores, TINY, 1 - TINY)
    return np.asarray(np.log(clipped / (1 - clipped)))


def scores_from_log_odds(values: Floats, task: "Task") -> Floats:
    """Convert log-odds back to scores."""
    if task == "multi":
        return np.asarray(1 / (1 + np.exp(-np.clip(values, -500, 500))))
    exponents = np.exp(values - values.max(axis=1, keepdims=True, initial=-np.inf))
    return np.asarray(exponents / exponents.sum(axis=1, keepdims=True))


def _compute_row_losses(scores: Floats, truth: NDArray[Any], task: "Task") -> Floats:
    """Return each row's log loss."""
    return np.asarray(_log_loss(scores, _encode_one_hot(truth, scores.shape[1]), task).sum(axis=1))


def _log_loss(scores: Floats, targets: Floats, task: "Task") -> Floats:
    loss = -targets * np.log(np.clip(scores, TINY, 1))
    return loss if task == "single" else loss - (1 - targets) * np.log(np.clip(1 - scores, TINY, 1))
