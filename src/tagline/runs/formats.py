"""What the JSON files of a run hold, as far as they are read back: checked when they are read."""

from typing import Annotated, Any, Literal, Required

from pydantic import ConfigDict, Field, FiniteFloat, TypeAdapter, with_config
from typing_extensions import TypedDict

REPORT_FORMAT = 4
"""Of the figures and all else that a report holds."""
Count = Annotated[int, Field(ge=0)]
OPEN = ConfigDict(extra="allow", strict=True)
"""Other keys are let through: later versions add some, and trackers of other packages too."""


@with_config(OPEN)
class LabelFigures(TypedDict):
    """The figures of one label."""

    precision: FiniteFloat
    recall: FiniteFloat
    f1: FiniteFloat
    support: Count


@with_config(OPEN)
class Figures(TypedDict, total=False):
    """The figures of a split."""

    rows: Count
    accuracy: FiniteFloat | None
    macro_f1: FiniteFloat | None
    micro_f1: FiniteFloat | None
    weighted_f1: FiniteFloat | None
    subset_accuracy: FiniteFloat | None
    coverage: FiniteFloat
    accuracy_of_answered: FiniteFloat | None
    per_label: dict[str, LabelFigures]
    intervals: dict[str, Annotated[list[FiniteFloat], Field(min_length=2, max_length=2)]]


@with_config(OPEN)
class ReportFile(TypedDict):
    """`report.json`."""

    task: Literal["single", "multi"]
    pair: bool
    labels: list[str]
    family: str
    splits: dict[str, Count]
    test: Figures
    baselines: dict[str, dict[str, Any]]
    gates: list[dict[str, Any]]
    decisions: dict[str, Any]
    findings: list[dict[str, Any]]
    advice: list[str]


@with_config(OPEN)
class LockFile(TypedDict, total=False):
    """`lock.json`."""

    spec_fingerprint: Required[str]
    settings: dict[str, Any]
    directory: str
    command: str
    job: str
    data_fingerprint: str
    device: str
    workers: Count
    processors: Count


@with_config(OPEN)
class EventLine(TypedDict, total=False):
    """A line of `events.jsonl`; which keys it has depends on its kind."""

    event: Required[str]
    time: str
    step: Count
    total: Count
    rows: Count
    loss: float
    stage: str
    settings: dict[str, float]
    monitor: str
    value: float | None
    best: bool
    gain: bool
    figures: dict[str, float]
    message: str


@with_config(OPEN)
class PredictionLine(TypedDict, total=False):
    """A line of `predictions.jsonl`."""

    text: Required[str | list[str]]
    truth: Required[str | list[str]]
    label: str
    labels: list[str]
    scores: Required[dict[str, FiniteFloat]]


REPORT: TypeAdapter[Any] = TypeAdapter(ReportFile)
LOCK: TypeAdapter[Any] = TypeAdapter(LockFile)
PREDICTION: TypeAdapter[Any] = TypeAdapter(PredictionLine)
EVENT: TypeAdapter[Any] = TypeAdapter(EventLine)
