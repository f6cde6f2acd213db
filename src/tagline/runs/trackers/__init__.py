"""The contract of a tracker, which records a run elsewhere, and how a run's events get there without harm to it.

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
"""How long a finished run waits for its trackers, all together."""
SILENT_S = 2.0
"""How long it does so without a word."""


@dataclass(frozen=True)
class Point:
    """Figures by name, at a step and a time in seconds since 1970."""

    step: int
    time: float
    figures: Mapping[str, float]


class Tracker(Protocol):
    """Records one run. The methods are called in this order, in one thread; after an exception none is called again."""

    def begin(self, run: Run, *, resumed_at: int) -> None:
        """Open the run's record with its parameters, or go on with the one it has: what came after step `resumed_at`
        will come again."""

    def record(self, points: Sequence[Point]) -> None:
        """Add all that was measured since the last call."""

    def end(self, run: Run) -> None:
        """Close the record with the run's state and, if it succeeded, its report and the address of its bundle."""


def create_trackers(names: Sequence[str]) -> dict[str, Tracker]:
    """A new tracker for each name; one whose package is missing is an error."""
    return {name: registry.find("trackers", name)() for name in names}


def track_events(
    events: Generator[Event, None, None], *, run: Run, trackers: Mapping[str, Tracker]
) -> Generator[Event, None, None]:
    """The same events, recorded on their way; a tracker that fails is left out after a warning, which no file keeps."""
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
    except BaseException:  # nobody listens any more
        list(_close_feeds(feeds))
        raise
    yield from _close_feeds(feeds)


def record_id(run: Run) -> str:
    """The same whenever the run is resumed, and no other run's, even where many machines record in one place."""
    return f"{run.name}-{hashlib.sha256(run.state().created.encode()).hexdigest()[:8]}"


def list_parameters(spec: Spec) -> dict[str, Any]:
    """Every key of the spec with its value as JSON knows it; a job's variables are nobody else's business."""
    sections = spec.model_dump(mode="json", exclude={"vertex": {"environment", "secrets"}})
    return {f"{section}.{key}": value for section, part in sections.items() for key, value in part.items()}


def format_parameter(value: Any) -> str:
    """A parameter as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def report_figures(run: Run) -> dict[str, float]:
    """What was measured in the end: the figures of each split, and each label's F1."""
    report = run.report()
    splits = {"validation": report.validation, "test": report.test} if report else {}
    figures: dict[str, float] = {}
    for split, measured in splits.items():
        if measured is not None:
            figures |= _select_numbers(measured.items(), prefix=f"report/{split}/")
            figures |= {f"report/{split}/f1/{label}": of_label.f1 for label, of_label in measured.per_label.items()}
    return figures


def last_step(run: Run) -> int:
    """The step of the last event that has one, where the report's figures belong."""
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
    """A tracker at work in a thread of its own.

    Its package may be slow or hang: the run goes on. It may catch every exception: those that our signal handlers raise
    are raised in the main thread, out of its reach. What piles up while it writes is one call, so it writes in batches.
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
        """An event, or None after the last."""
        self._events.put(event)

    def wait_for_end(self, *, by: float) -> bool:
        """Wait until the record is closed, or until that time."""
        self._thread.join(max(0.0, by - time.monotonic()))
        return not self._thread.is_alive()

    def _run_tracker(self) -> None:
        try:
            # The first event comes once the run is ours: one that another process holds must not be touched.
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
        """All that waits, at once, until the end."""
        is_open = True
        while is_open:
            waiting = [self._events.get()]
            while not self._events.empty():
                waiting.append(self._events.get())
            is_open = None not in waiting
            if points := [point for event in waiting if event and (point := _to_point(event))]:
                yield points


def _resumed_at(first: Event) -> int:
    """The step that a run goes on from, by its first event."""
    return int(first.checkpoint or 0) if isinstance(first, ResumedEvent) else 0


def _pop_warnings(feeds: list[_TrackerThread]) -> Iterator[Event]:
    """A warning for each tracker that has failed by now; it is taken off the list."""
    for feed in [feed for feed in feeds if feed.problem]:
        feeds.remove(feed)
        what = " ".join(feed.problem.split())
        yield WarningEvent(message=f"tracker {feed.name} failed, the run goes on without it: {what}")


def _close_feeds(feeds: list[_TrackerThread]) -> Iterator[Event]:
    """Let the trackers close their records, side by side."""
    now = time.monotonic()
    for feed in feeds:
        feed.put(None)
    if slow := [feed for feed in feeds if not feed.wait_for_end(by=now + SILENT_S)]:
        yield PhaseEvent(message="waiting for " + ", ".join(f"tracker {feed.name}" for feed in slow))
    for feed in slow:
        if not feed.wait_for_end(by=now + END_TIMEOUT_S):
            feed.problem = f"it did not end within {END_TIMEOUT_S:g} seconds"
    yield from _pop_warnings(feeds)
