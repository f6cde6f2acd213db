"""A training as a trial of a HyperparameterTuningJob: its figures in the metric file that Vertex AI reads."""

import json
import os
import time
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tagline.runs.events import EvaluationEvent, Event, WarningEvent
from tagline.spec import Spec

TRIAL, METRIC_FILE = "CLOUD_ML_TRIAL_ID", "CLOUD_ML_HP_METRIC_FILE"
USUAL_FILE = "/tmp/hypertune/output.metrics"  # noqa: S108 - Vertex AI's own
MOST_LINES = 100
"""The number of lines that cloudml-hypertune keeps."""


@dataclass
class MetricWriter:
    """Writes the metric file in cloudml-hypertune's format, rewritten at each report."""

    path: Path
    trial: str
    lines: list[str] = field(default_factory=list)

    def report(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Add a line for each metric."""
        for name, value in metrics.items():
            line = {
                name: str(value),
                "checkpoint_path": "",
                "global_step": str(step),
                "timestamp": time.time(),
                "trial": self.trial,
            }
            self.lines.append(json.dumps(line) + "\n")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(self.lines[-MOST_LINES:]), "utf-8")


def is_trial(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is a trial of a tuning job."""
    return bool(environment.get(TRIAL) or environment.get(METRIC_FILE))


def report_evaluations(
    events: Generator[Event, None, None], *, spec: Spec, environment: Mapping[str, str] = os.environ
) -> Generator[Event, None, None]:
    """Pass events through; in a trial, report each evaluation, and at the end the one that was kept."""
    with closing(events):
        if not is_trial(environment):
            yield from events
            return
        writer = MetricWriter(Path(environment.get(METRIC_FILE) or USUAL_FILE), environment.get(TRIAL, "0"))
        names: dict[str, None] = dict.fromkeys((spec.tuning.metric, spec.training.monitor))
        kept: dict[str, float] = {}
        step = 0
        for event in events:
            yield event
            if not isinstance(event, EvaluationEvent):
                continue
            step = event.step
            found = {name: event.figures[name] for name in names if name in event.figures}
            kept = found if event.best else kept
            yield from _write_metrics(writer, found, step)
        # The last report is the one that counts, unless the study says otherwise.
        yield from _write_metrics(writer, kept, step)
        if not kept:
            yield WarningEvent(message=f"the trial has no {' or '.join(names)} to report")


def _write_metrics(writer: MetricWriter, metrics: Mapping[str, float], step: int) -> Generator[Event, None, None]:
    """Report a metric; a failure to do so is a warning."""
    try:
        writer.report(metrics, step=step)
    except OSError as error:
        yield WarningEvent(message=f"cannot report to the tuning job: {writer.path}: {error.strerror}")
