"""The learning curve of a run: the same spec on parts of the training rows, and what more rows would bring."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tagline import pages, report, storage
from tagline.errors import RunError
from tagline.runs import Run, list_runs
from tagline.spec import Spec
from tagline.training import Event, go_on, start

FRACTIONS = (0.125, 0.25, 0.5)
FIGURE = "macro_f1"
DIRECTORY = "curve"
DRAWS = 500
SLOPES = np.linspace(0.1, 1.5, 29)
"""Exponents of the power law that are tried."""
NOT_WORTH = 0.005
"""A gain below this is none."""

Floats = NDArray[np.float64]


def measure(run: Run) -> Iterator[Event]:
    """Train on parts of a finished run's rows, as events, and add the curve to its report.

    Parts that were trained before are not trained again, so that a curve that was stopped goes on.
    """
    with run.worked_on():
        yield from _measured(run)


def _measured(run: Run) -> Iterator[Event]:
    whole = run.report()
    if whole is None or not whole["test"].get("rows"):
        raise RunError(f"run {run.name} has measured nothing that a curve could end in", hint=run.address)
    spec = run.spec()
    points = []
    for fraction in FRACTIONS:
        part = _part(spec, fraction)
        events = _trained(run, part)
        yield {"event": "phase", "message": f"learning from {fraction:g} of the training rows"}
        yield from (event for event in events if event["event"] in ("step", "tick"))
        points.append(_point(_finished(run, part)))
    points.append(_point(run))
    curve = fitted(points)
    pages.write_report(run, report.with_learning_curve(whole, curve))
    yield {"event": "curve", "run": run.address, **curve}


def fitted(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A curve with what twice as many rows would bring: error falling as a power of the rows, down to a floor."""
    rows = np.array([point["rows"] for point in points], dtype=np.float64)
    values = np.array([point["value"] for point in points])
    widths = np.array([(point["interval"][1] - point["interval"][0]) / 3.92 for point in points])
    random = np.random.default_rng(0)
    ends = np.array([rows[-1], 2 * rows[-1]])
    # Test rows are the same for all points, so that most of their chance is shared; what differs is a part of it.
    drawn = values + random.standard_normal((DRAWS, len(points))) * widths / 2
    gains = np.array([np.diff(_predicted(rows, each, ends))[0] for each in drawn])
    gain = float(np.diff(_predicted(rows, values, ends))[0])
    low, high = (float(end) for end in np.quantile(gains, [0.025, 0.975]))
    now = float(values[-1])
    expected, low, high = (min(1.0, now + more) for more in (gain, min(low, gain), max(high, gain)))
    at = {"rows": int(ends[1]), "value": expected, "interval": [low, high]}
    return {
        "figure": FIGURE, "points": list(points), "expected": [at], "gain": expected - now,
        "sentence": _sentence(at, expected - now, now),
    }  # fmt: skip


def _sentence(at: Mapping[str, Any], gain: float, now: float) -> str:
    low, high = at["interval"]
    span = f"{FIGURE} {at['value']:.3f} with {at['rows']:,} rows, {low:.3f} to {high:.3f}, against {now:.3f} now"
    if high - now < NOT_WORTH:
        return f"More rows of the same kind would hardly help: {span}."
    if gain < NOT_WORTH:
        return f"More rows of the same kind may help a little: {span}."
    return f"Twice as many training rows would probably help: {span}."


def _predicted(rows: Floats, values: Floats, at: Floats) -> Floats:
    """The power law nearest to these points, at other numbers of rows: 1 - value = floor + scale * rows ** -slope.

    Where it would fall with more rows it is flat: that is noise.
    """
    best, found = np.inf, np.full(len(at), values.mean())
    for slope in SLOPES:
        powers = rows**-slope
        columns = np.stack([np.ones_like(powers), powers], axis=1)
        (floor, scale), *_ = np.linalg.lstsq(columns, 1 - values, rcond=None)
        if scale < 0:
            floor, scale = (1 - values).mean(), 0.0
        if floor < 0:
            floor, scale = 0.0, float((powers @ (1 - values)) / (powers @ powers))
        error = float(((floor + scale * powers - (1 - values)) ** 2).sum())
        if error < best - 1e-15:
            best, found = error, 1 - floor - scale * at**-slope
    return np.asarray(found)


def _part(spec: Spec, fraction: float) -> Spec:
    """The same spec on a part of its training rows; nothing else that a curve does not need."""
    data = spec.data.model_copy(update={"fraction": spec.data.fraction * fraction})
    training = spec.training.model_copy(update={"baseline": False})
    tracking = spec.tracking.model_copy(update={"to": ()})
    return spec.model_copy(update={"data": data, "training": training, "tracking": tracking})


def _trained(run: Run, part: Spec) -> Iterator[Event]:
    """The events of a part's training, none where it is complete."""
    known = _known(run, part)
    if known is None:
        yield from start(part, runs=run.directory / DIRECTORY, command=f"learning curve of {run.name}")
    elif known.state().name != "succeeded":
        yield from go_on(known)


def _finished(run: Run, part: Spec) -> Run:
    """The run of a part that has been trained, without what is heavy: its figures are all that is needed."""
    finished = _known(run, part)
    assert finished is not None
    for heavy in (finished.bundle, finished.directory / "checkpoints"):
        storage.remove_directory(heavy)
    return finished


def _known(run: Run, part: Spec) -> Run | None:
    """The run of a part, if it was begun."""
    runs = list_runs(run.directory / DIRECTORY)
    return next((known for known in runs if known.lock()["spec_fingerprint"] == part.fingerprint()), None)


def _point(run: Run) -> dict[str, Any]:
    found: Any = run.report()
    test = found["test"]
    return {"rows": found["splits"]["train"], "value": test[FIGURE] or 0.0, "interval": test["intervals"][FIGURE]}
