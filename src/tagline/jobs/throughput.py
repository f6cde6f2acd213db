"""How fast earlier runs have learned, read from their events, for those who want to know how long another will take."""

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
    """The rate of the newest run in a directory here that learned the same; None where none did, or none tells."""
    if not runs or runs.startswith(gcp.SCHEME):  # a plan asks nobody
        return None
    wanted = _make_rate_key(spec)
    for run in reversed(list_runs(Path(runs))):
        with suppress(TaglineError, OSError, ValueError):  # a damaged run tells nothing
            with run.reading("events.jsonl"):
                found = _measure_rate(run) if _make_rate_key(run.spec()) == wanted else None
            if found:
                return found
    return None


def _make_rate_key(spec: Spec) -> tuple[Any, ...]:
    """What a rate depends on beside the machine. A file is known by its name: in a bucket it has another address."""
    model = spec.model
    files = tuple(PurePosixPath(each).name for each in spec.data.list_addresses("train"))
    pretrained = PurePosixPath(str(getattr(model, "pretrained", ""))).name
    options = tuple(getattr(model, key, None) for key in ("family", "head", "max_tokens", "long_texts", "lora"))
    return (*options, pretrained, files, spec.data.text)


def _measure_rate(run: Run) -> Rate | None:
    """How fast a run has learned; None where its steps are not made of rows, or nobody knows what it ran on."""
    starts = [datetime.fromisoformat(attempt.time) for attempt in run.attempts()]
    steps = [event for event in run.events() if isinstance(event, StepEvent) and not event.stage]
    rows, seconds = 0, 0.0
    for before, after in pairwise(steps):
        begun, ended = (datetime.fromisoformat(step.time) for step in (before, after))
        if not any(begun < start <= ended for start in starts):  # else nobody worked on it in between
            rows += after.rows - before.rows
            seconds += (ended - begun).total_seconds()
    flops, machine = _estimate_flops(run)
    return Rate(rows / seconds, flops, run.name, machine) if rows > 0 and seconds > 0 and flops else None


def _estimate_flops(run: Run) -> tuple[float, str]:
    """What the machines of a run may come to, and what they were."""
    lock, record = run.lock(), records.load_record(run)
    kind, _, name = str(lock.get("device", "")).partition(": ")
    workers = int(lock.get("workers", 1))
    if kind == "cuda":
        return prices.estimate_gpu_flops(name) * workers, f"{workers} x {name}"
    place = run.spec().vertex
    is_there = record is not None and record.place == "vertex"
    count = place.workers * machines.count_processors(place.machine) if is_there else int(lock.get("processors", 0))
    # Of other devices, such as Apple's, the tables know nothing.
    return prices.estimate_processor_flops(count) if kind == "cpu" and count else 0.0, f"{count} processors"
