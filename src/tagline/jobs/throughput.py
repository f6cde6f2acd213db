"""Training rates of earlier runs, measured from their events, by which the duration of another is estimated."""

from contextlib import suppress
from datetime import datetime
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

from tagline import gcp
from tagline.errors import TaglineError
from tagline.gcp import machines
from tagline.jobs import prices, records
from tagline.jobs.prices import Rate
from tagline.runs.events import StepEvent
from tagline.runs.lookup import list_runs
from tagline.runs.run import Run
from tagline.spec import Spec


def find_earlier_rate(spec: Spec, runs: str) -> Rate | None:
    """Return the rate of the newest local run of the same training; None if there is none with a rate."""
    if not runs or runs.startswith(gcp.SCHEME):  # a plan uses no network
        return None
    wanted = _make_rate_key(spec)
    for run in reversed(list_runs(Path(runs))):
        with suppress(TaglineError, OSError, ValueError):  # a damaged run is passed over
            with run.reading("events.jsonl"):
                rate = _measure_rate(run) if _make_rate_key(run.spec()) == wanted else None
            if rate:
                return rate
    return None


def _make_rate_key(spec: Spec) -> tuple[Any, ...]:
    """Return what a rate depends on beside the machine; files by name, as their addresses differ in a bucket."""
    model = spec.model
    files = tuple(PurePosixPath(each).name for each in spec.data.list_addresses("train"))
    pretrained = PurePosixPath(str(getattr(model, "pretrained", ""))).name
    options = tuple(getattr(model, key, None) for key in ("family", "head", "max_tokens", "long_texts", "lora"))
    return (*options, pretrained, files, spec.data.text)


def _measure_rate(run: Run) -> Rate | None:
    """Measure the training rate of a run; None where its steps count no rows or its hardware is unknown."""
    starts = [datetime.fromisoformat(attempt.time) for attempt in run.attempts()]
    steps = [event for event in run.events() if isinstance(event, StepEvent) and not event.stage]
    rows, seconds = 0, 0.0
    for before, after in pairwise(steps):
        begun, ended = (datetime.fromisoformat(step.time) for step in (before, after))
        if not any(begun < start <= ended for start in starts):  # else the run was interrupted in between
            rows += after.rows - before.rows
            seconds += (ended - begun).total_seconds()
    flops, machine = _estimate_flops(run)
    return Rate(rows / seconds, flops, run.name, machine) if rows > 0 and seconds > 0 and flops else None


def _estimate_flops(run: Run) -> tuple[float, str]:
    """Return the FLOP/s of a run's hardware, and its description."""
    lock, record = run.lock(), records.load_record(run)
    kind, _, name = str(lock.get("device", "")).partition(": ")
    workers = int(lock.get("workers", 1))
    if kind == "cuda":
        return prices.estimate_gpu_flops(name) * workers, f"{workers} x {name}"
    place = run.spec().vertex
    is_on_vertex = record is not None and record.place == "vertex"
    count = place.workers * machines.count_processors(place.machine) if is_on_vertex else int(lock.get("processors", 0))
    # Other devices, such as Apple's, are not in the tables.
    return prices.estimate_processor_flops(count) if kind == "cpu" and count else 0.0, f"{count} processors"
