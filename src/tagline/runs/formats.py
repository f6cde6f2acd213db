"""What the JSON files of a run hold beside its report and events: checked when they are read."""

from typing import Any, Required

from pydantic import ConfigDict, FiniteFloat, TypeAdapter, with_config
from typing_extensions import TypedDict

from tagline.evaluation.schema import Count

OPEN = ConfigDict(extra="allow", strict=True)
"""Other keys are let through: later versions add some, and trackers of other packages too."""


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
class PredictionLine(TypedDict, total=False):
    """A line of `predictions.jsonl`."""

    text: Required[str | list[str]]
    truth: Required[str | list[str]]
    label: str
    labels: list[str]
    scores: Required[dict[str, FiniteFloat]]


LOCK: TypeAdapter[Any] = TypeAdapter(LockFile)
PREDICTION: TypeAdapter[Any] = TypeAdapter(PredictionLine)
