"""The contract of a tracker, which records a run elsewhere, and the delivery of events in a thread of its own.

Files, in the order of their imports:

- mlflow.py: MLflow: a run in the store of MLFLOW_TRACKING_URI, else in `mlflow.db` beside the runs.
- tensorboard.py: TensorBoard: event files in the run's directory, written with TensorBoard's own package, without
  torch.
- vertex.py: Vertex AI Experiments: a run in the experiment of TAGLINE_EXPERIMENT, its steps in Vertex AI
  TensorBoard.
- wandb.py: Weights & Biases: a run in the project of WANDB_PROJECT, or with WANDB_MODE=offline in the run's
  directory.
"""

import hashlib
import json
import queue
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from tagline import registry
from tagline.errors import TaglineError
from tagline.runs.events import EvaluationEvent, Event, PhaseEvent, ResumedEvent, StepEvent, WarningEvent
from tagline.runs.run import Run
from tagline.spec import Spec

END_TIMEOUT_S = 60.0
"""How long a finished run waits for all its trackers together."""
SILENT_S = 2.0
"""How long it does so before it shows a message."""


@dataclass(frozen=True)
class Point:
    """Figures by name, at a step and a time in seconds since 1970."""

    step: int
    time: float
    figures: Mapping[str, float]


class Tracker(Protocol):
    """Records a run. The methods are called in this order, in one thread; after an exception none is called again."""

    def begin(self, run: Run, *, resumed_at: int) -> None:
        """Open the run's record with its parameters, or continue the existing one: steps after `resumed_at` will come
        again."""

    def record(self, points: Sequence[Point]) -> None:
        """Add the figures measured since the last call."""

    def end(self, run: Run) -> None:
        """Close the record with the run's state and, if it succeeded, its report and the address of its bundle."""


def create_trackers(names: Sequence[str]) -> dict[str, Tracker]:
    """Create a tracker for each name; a missing package is an error."""
    return {name: registry.find("trackers", name)() for name in names}


def track_events(
    events: Generator[Event, None, None], *, run: Run, trackers: Mapping[str, Tracker]
) -> Generator[Event, None, None]:
    """Yield the events, and record them; a tracker that fails is dropped with a warning, which is not written."""
    feeds = [_TrackerThread(name, tracker, run) for name, tracker in trackers.items()]
    try:
        with closing(events):
            for event in events:
                for feed in feeds if event.event != "tick" else ():
                    feed.put(event)
                yield event
                yield from _pop_warnings(feeds)
    except Exception:
        yield from _close_feeds(feeds)
        raise
    except BaseException:  # the consumer has stopped: warnings cannot be yielded
        list(_close_feeds(feeds))
        raise
    yield from _close_feeds(feeds)


def record_id(run: Run) -> str:
    """Return an id that is stable over resumes, and unique even where many machines record in one place."""
    return f"{run.name}-{hashlib.sha256(run.state().created.encode()).hexdigest()[:8]}"


def list_parameters(spec: Spec) -> dict[str, Any]:
    """Return every key of the spec with its JSON value, without a job's variables, which may be secret."""
    sections = spec.model_dump(mode="json", exclude={"vertex": {"environment", "secrets"}})
    return {f"{section}.{key}": value for section, part in sections.items() for key, value in part.items()}


def format_parameter(value: Any) -> str:
    """Format a parameter as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def report_figures(run: Run) -> dict[str, float]:
    """Return the report's figures of each split, and each label's F1."""
    report = run.report()
    splits = {"validation": report.validation, "test": report.test} if report else {}
    figures: dict[str, float] = {}
    for split, measured in splits.items():
        if measured is not None:
            figures |= _select_numbers(measured.items(), prefix=f"report/{split}/")
            figures |= {f"report/{split}/f1/{label}": of_label.f1 for label, of_label in measured.per_label.items()}
    return figures


def last_step(run: Run) -> int:
    """Return the step of the last event that has one, at which the report's figures are recorded."""
    return max((int(event["step"]) for event in run.events() if "step" in event), default=0)


def _to_point(event: Event) -> Point | None:
    match event:
        case StepEvent():
            figures = _select_numbers([("loss", event.loss), *event.settings.items()], prefix="train/")
        case EvaluationEvent():
            figures = _select_numbers(event.figures.items(), prefix="validation/")
        case _:
            return None
    return Point(event.step, datetime.fromisoformat(event.time).timestamp(), figures)


def _select_numbers(values: Iterable[tuple[str, Any]], *, prefix: str) -> dict[str, float]:
    return {f"{prefix}{key}": float(value) for key, value in values if isinstance(value, int | float)}


class _TrackerThread:
    """A tracker in a thread of its own.

    Its package may be slow or hang: the run goes on. It may catch every exception: those of our signal handlers are
    raised in the main thread, which it cannot affect. Events that queue up while it writes are one call: a batch.
    """

    def __init__(self, name: str, tracker: Tracker, run: Run) -> None:
        self.name = name
        self.problem = ""
        self._tracker = tracker
        self._run = run
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run_tracker, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def put(self, event: Event | None) -> None:
        """Queue an event, or None after the last."""
        self._events.put(event)

    def wait_for_end(self, *, by: float) -> bool:
        """Wait until the record is closed, or until this time; return whether it is closed."""
        self._thread.join(max(0.0, by - time.monotonic()))
        return not self._thread.is_alive()

    def _run_tracker(self) -> None:
        try:
            # The first event comes once this process holds the run: another process's run must not be touched.
            if (first := self._events.get()) is None:
                return
            self._tracker.begin(self._run, resumed_at=_resumed_at(first))
            for points in self._iter_batches():
                self._tracker.record(points)
            self._tracker.end(self._run)
        except TaglineError as error:
            self.problem = f"{error}; {error.hint}" if error.hint else str(error)
        except BaseException as error:  # a package that calls sys.exit has failed too
            self.problem = f"{type(error).__name__}: {error}"

    def _iter_batches(self) -> Iterator[list[Point]]:
        """Yield all queued points at once, until the end."""
        is_open = True
        while is_open:
            queued = [self._events.get()]
            while not self._events.empty():
                queued.append(self._events.get())
            is_open = None not in queued
            if points := [point for event in queued if event and (point := _to_point(event))]:
                yield points


def _resumed_at(first: Event) -> int:
    """Return the step that a run resumes from, by its first event."""
    return int(first.checkpoint or 0) if isinstance(first, ResumedEvent) else 0


def _pop_warnings(feeds: list[_TrackerThread]) -> Iterator[Event]:
    """Yield a warning for each tracker that has failed, and remove it from the list."""
    for feed in [feed for feed in feeds if feed.problem]:
        feeds.remove(feed)
        problem = " ".join(feed.problem.split())
        yield WarningEvent(message=f"tracker {feed.name} failed, the run goes on without it: {problem}")


def _close_feeds(feeds: list[_TrackerThread]) -> Iterator[Event]:
    """Let the trackers close their records, in parallel."""
    now = time.monotonic()
    for feed in feeds:
        feed.put(None)
    if slow := [feed for feed in feeds if not feed.wait_for_end(by=now + SILENT_S)]:
        yield PhaseEvent(message="waiting for " + ", ".join(f"tracker {feed.name}" for feed in slow))
    for feed in slow:
        if not feed.wait_for_end(by=now + END_TIMEOUT_S):
            feed.problem = f"it did not end within {END_TIMEOUT_S:g} seconds"
    yield from _pop_warnings(feeds)
