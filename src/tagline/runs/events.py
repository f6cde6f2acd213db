"""Event: something that happens in a run, with a frozen model for each kind of line of events.jsonl."""

from typing import Any, Literal

from pydantic import Field

from tagline.evaluation.schema import Count, CurvePoint, Interval, Number
from tagline.storage.file_models import FileModel


class Event(FileModel):
    """An event of a kind that this version does not know; the base of the known kinds."""

    event: str = Field(description="the kind of event")
    time: str = Field(default="", description="when it was written, in UTC, as ISO 8601 has it")

    def model_post_init(self, _: Any) -> None:
        """Mark the kind as set, also where it is the default."""
        self.model_fields_set.add("event")


class StartedEvent(Event):
    """A run has started."""

    event: Literal["started"] = Field(default="started", description="the kind of event")
    run: str = Field(default="", description="the run's address")
    family: str = Field(default="", description="the model's family")
    task: str = Field(default="", description="single or multi")
    labels: Count = Field(default=0, description="how many labels there are")
    splits: dict[str, Count] = Field(default={}, description="rows of each split")
    device: str = Field(default="", description="what it computes on")
    precision: str = Field(default="", description="in which precision, where torch computes")


class ResumedEvent(Event):
    """A run was resumed from a checkpoint; shown and not written, since the attempts are in attempts.jsonl."""

    event: Literal["resumed"] = Field(default="resumed", description="the kind of event")
    run: str = Field(default="", description="the run's address")
    checkpoint: str = Field(default="", description="the checkpoint: the number of its step")
    device: str = Field(default="", description="what it computes on")
    precision: str = Field(default="", description="in which precision, where torch computes")


class TickEvent(Event):
    """A step between two that are written; shown and not written."""

    event: Literal["tick", "step"] = Field(default="tick", description="the kind of event")
    step: Count = Field(description="the step, from 1")
    total: Count = Field(default=0, description="how many steps there will be")
    loss: Number = Field(default=0.0, description="the training loss")
    rows: Count = Field(default=0, description="training rows read so far; 0 where steps are not made of rows")
    stage: str = Field(default="", description="the stage of the training, if it has several")


class StepEvent(TickEvent):
    """A step of the training: every training.log_every of them, and each that is followed by an evaluation."""

    event: Literal["step"] = Field(default="step", description="the kind of event")
    settings: dict[str, Number] = Field(
        default={}, description="settings that change while it learns, such as learning_rate"
    )


class EvaluationEvent(Event):
    """The model was measured on validation."""

    event: Literal["evaluation"] = Field(default="evaluation", description="the kind of event")
    step: Count = Field(description="the step after which it was measured")
    monitor: str = Field(default="", description="the figure that says which model is best: training.monitor")
    value: Number | None = Field(default=None, description="its value; null without validation rows")
    best: bool = Field(default=False, description="whether the model is kept as the best so far")
    gain: bool = Field(default=True, description="whether it is better; else it may be kept as the later of two alike")
    figures: dict[str, Number] = Field(default={}, description="all figures, by name as in report.json")


class GpuUsage(FileModel):
    """The usage of a GPU."""

    name: str = Field(description="its name")
    share: float | None = Field(default=None, description="share of the time in which it computes")
    memory_bytes: Count | None = Field(default=None, description="memory in use")
    total_memory_bytes: Count | None = Field(default=None, description="memory that it has")


class UsageEvent(Event):
    """The process's resource usage; values that the machine does not report are left out."""

    event: Literal["usage"] = Field(default="usage", description="the kind of event")
    step: Count = Field(default=0, description="the step after which it was sampled")
    processor: Number | None = Field(default=None, description="share of the processors since the sample before")
    peak_memory_bytes: Count | None = Field(default=None, description="the most memory that the process had in use")
    memory_bytes: Count | None = Field(default=None, description="memory that it has in use")
    machine_memory_bytes: Count | None = Field(default=None, description="memory that the machine has")
    gpus: list[GpuUsage] = Field(default=[], description="its NVIDIA GPUs")


class WarningEvent(Event):
    """A warning; the run goes on."""

    event: Literal["warning"] = Field(default="warning", description="the kind of event")
    message: str = Field(description="what it is")


class PhaseEvent(Event):
    """The current phase of the run; shown and not written."""

    event: Literal["phase"] = Field(default="phase", description="the kind of event")
    message: str = Field(description="what it is")


class FinishedEvent(Event):
    """The run is complete."""

    event: Literal["finished"] = Field(default="finished", description="the kind of event")
    run: str = Field(default="", description="the run's address")
    figures: dict[str, Number] = Field(
        default={}, description="the figures of the test split, by name as in report.json"
    )


class CurveEvent(Event):
    """A learning curve is complete; shown and not written, since it is in report.json."""

    event: Literal["curve"] = Field(default="curve", description="the kind of event")
    run: str = Field(default="", description="the run's address")
    figure: str = Field(description="the figure that was measured")
    points: list[CurvePoint] = Field(description="what was measured")
    expected: list[CurvePoint] = Field(description="what is expected with twice as many rows")
    gain: float = Field(description="the expected gain of twice as many rows, along the curve")
    gain_interval: Interval = Field(description="its 95 % interval")
    sentence: str = Field(description="what that comes to")


WRITTEN: dict[str, type[Event]] = {
    "started": StartedEvent,
    "step": StepEvent,
    "evaluation": EvaluationEvent,
    "usage": UsageEvent,
    "warning": WarningEvent,
    "finished": FinishedEvent,
}
"""The kinds that are lines of events.jsonl."""
SHOWN: dict[str, type[Event]] = {
    "resumed": ResumedEvent,
    "tick": TickEvent,
    "phase": PhaseEvent,
    "curve": CurveEvent,
}
"""The kinds that are only shown while a training runs."""
KINDS = WRITTEN | SHOWN


def parse_event(value: Any) -> Event:
    """Validate an event read from JSON; one of an unknown kind becomes an `Event` with all its keys."""
    kind = value.get("event") if isinstance(value, dict) else None
    return KINDS.get(str(kind), Event).model_validate(value)
