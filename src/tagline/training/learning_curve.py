"""The learning curve of a run: the same spec on parts of the training rows, and what more rows would bring."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tagline.errors import RunError
from tagline.evaluation.schema import CurvePoint, LearningCurve
from tagline.reports import html, report
from tagline.runs.events import CurveEvent, Event, PhaseEvent, TickEvent
from tagline.runs.lookup import list_runs
from tagline.runs.run import Run
from tagline.spec import Spec
from tagline.storage import atomic
from tagline.training import resume_run, start_run

FRACTIONS = (0.125, 0.25, 0.5)
FIGURE = "macro_f1"
DIRECTORY = "curve"
DRAWS = 2000
SLOPES = np.linspace(0.1, 1.5, 29)
"""Exponents of the power law to try."""
NOT_WORTH = 0.005
"""A gain below this counts as none."""
TINY = 1e-300
"""Avoids a division by zero."""

Floats = NDArray[np.float64]


def measure_curve(run: Run) -> Iterator[Event]:
    """Train on parts of a finished run's rows, as events, and add the curve to its report.

    Parts that were trained before are not trained again, so that a curve that was stopped goes on.
    """
    with run.worked_on():
        yield from _measure_parts(run)


def _measure_parts(run: Run) -> Iterator[Event]:
    whole = run.report()
    if whole is None or not whole.test.rows:
        raise RunError(f"run {run.name} has measured nothing that a curve could end in", hint=run.address)
    spec = run.spec()
    points = []
    for fraction in FRACTIONS:
        part = _reduce_spec(spec, fraction)
        events = _train_part(run, part)
        yield PhaseEvent(message=f"learning from {fraction:g} of the training rows")
        yield from (event for event in events if isinstance(event, TickEvent))
        points.append(_read_point(_finish_part(run, part)))
    points.append(_read_point(run))
    curve = fit_curve(points)
    html.write_report(run, report.add_learning_curve(whole, curve))
    yield CurveEvent(run=run.address, **dict(curve.items()))


def fit_curve(points: Sequence[CurvePoint]) -> LearningCurve:
    """Extrapolate a curve to twice as many rows: error falls as a power of the rows, down to a floor.

    Of simulated curves 96 % had their true value at twice the rows between the ends (decision 12).
    """
    rows = np.array([point.rows for point in points], dtype=np.float64)
    values = np.array([point.value for point in points])
    widths = np.array([(point.interval[1] - point.interval[0]) / 3.92 for point in points])
    [nearest] = _predict_values(rows, values[None], np.append(rows, 2 * rows[-1]))
    drawn, gains = _simulate_curves(rows, values, widths=widths, residual=_estimate_residual(values, nearest[:-1]))
    expected, gain = float(nearest[-1]), float(nearest[-1] - nearest[-2])
    at = CurvePoint(rows=int(2 * rows[-1]), value=expected, interval=_compute_interval(drawn, around=expected))
    gained = _compute_interval(gains, around=gain)
    return LearningCurve(
        figure=FIGURE,
        points=list(points),
        expected=[at],
        gain=gain,
        gain_interval=gained,
        sentence=_format_forecast(at, gained, now=float(values[-1])),
    )


def _simulate_curves(rows: Floats, values: Floats, *, widths: Floats, residual: float) -> tuple[Floats, Floats]:
    """Return values and gains at twice the rows, of curves through resampled points.

    Chance is that of the test rows (a point's width) and of the training (how far points lie from their curve). That
    test rows are the same for all points is left out: with few of them the ends are a little too far apart.
    """
    random = np.random.default_rng(0)
    moved = values + random.standard_normal((DRAWS, len(values))) * np.hypot(widths, residual)
    found = _predict_values(rows, moved, np.array([rows[-1], 2 * rows[-1]]))
    # Twice the rows are one more training, off its own curve as far as these are.
    return found[:, 1] + random.standard_normal(DRAWS) * residual, found[:, 1] - found[:, 0]


def _estimate_residual(values: Floats, nearest: Floats) -> float:
    """Return the residual standard deviation of a curve, which has three parameters."""
    return math.sqrt(float(((values - nearest) ** 2).sum()) / max(1, len(values) - 3))


def _compute_interval(drawn: Floats, *, around: float) -> list[float]:
    low, high = np.quantile(drawn, [0.025, 0.975])
    return [max(0.0, min(float(low), around)), min(1.0, max(float(high), around))]


def _format_forecast(at: CurvePoint, gained: Sequence[float], *, now: float) -> str:
    """Return whether more rows help: the curve rises significantly, and beyond this run's figure."""
    low, high = at.interval
    forecast = f"{FIGURE} {at.value:.3f} with {at.rows:,} rows, {low:.3f} to {high:.3f}, against {now:.3f} now"
    span = f"{forecast}; along the curve {gained[0]:.3f} to {gained[1]:.3f} more"
    if gained[1] < NOT_WORTH:
        return f"More rows of the same kind would hardly help: {span}."
    if gained[0] < NOT_WORTH or at.value - now < NOT_WORTH:
        return f"Whether more rows of the same kind would help cannot be told: {span}."
    return f"Twice as many training rows would probably help: {span}."


def _predict_values(rows: Floats, values: Floats, at: Floats) -> Floats:
    """Fit a power law to each curve and evaluate it at other sizes: 1 - value = floor + scale * rows ** -slope.

    Where it would fall with more rows it is flat: that is noise.
    """
    errors = 1 - values
    best, found = np.full(len(errors), np.inf), np.zeros((len(errors), len(at)))
    for slope in SLOPES:
        powers = rows**-slope
        floors, scales = _fit_line(powers, errors)
        missed = ((floors + scales * powers - errors) ** 2).sum(axis=1)
        nearer = missed < best - 1e-15
        best[nearer] = missed[nearer]
        found[nearer] = (1 - floors - scales * at**-slope)[nearer]
    return found


def _fit_line(powers: Floats, errors: Floats) -> tuple[Floats, Floats]:
    """Fit floor and scale of each curve by non-negative least squares."""
    centred = powers - powers.mean()
    means = errors.mean(axis=1, keepdims=True)
    scales = np.maximum(0.0, (errors @ centred)[:, None] / max(float(centred @ centred), TINY))
    floors = means - scales * powers.mean()
    through_zero = np.maximum(0.0, (errors @ powers)[:, None] / (powers @ powers))
    return np.maximum(0.0, floors), np.where(floors < 0, through_zero, scales)


def _reduce_spec(spec: Spec, fraction: float) -> Spec:
    """The same spec on a part of its training and validation rows (some families learn from both), and on all of its
    test rows; nothing else that a curve does not need.
    """
    data = spec.data.model_copy(update={"learning_fraction": spec.data.learning_fraction * fraction})
    training = spec.training.model_copy(update={"baseline": False})
    tracking = spec.tracking.model_copy(update={"to": ()})
    return spec.model_copy(update={"data": data, "training": training, "tracking": tracking})


def _train_part(run: Run, part: Spec) -> Iterator[Event]:
    """Yield the events of a part's training; none if it is complete."""
    known = _find_part(run, part)
    if known is None:
        yield from start_run(part, runs=run.directory / DIRECTORY, command=f"learning curve of {run.name}")
    elif known.state().name != "succeeded":
        yield from resume_run(known)


def _finish_part(run: Run, part: Spec) -> Run:
    """Return the run of a trained part after removing its large files: only its figures are needed."""
    finished = _find_part(run, part)
    assert finished is not None
    for heavy in (finished.bundle, finished.directory / "checkpoints"):
        atomic.remove_directory(heavy)
    return finished


def _find_part(run: Run, part: Spec) -> Run | None:
    """Return the run of a part, if it was begun."""
    runs = list_runs(run.directory / DIRECTORY)
    return next((known for known in runs if known.lock()["spec_fingerprint"] == part.fingerprint()), None)


def _read_point(run: Run) -> CurvePoint:
    found = run.report()
    assert found is not None
    with run.reading("report.json"):
        test = found.test
        return CurvePoint(rows=found.splits["train"], value=test.macro_f1 or 0.0, interval=test.intervals[FIGURE])
