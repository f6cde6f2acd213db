"""The files of a run, beside its report and events: what they are called, what they hold, and how they are read."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Required, TypeVar

from pydantic import ConfigDict, FiniteFloat, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from tagline.errors import RunError, first_line
from tagline.evaluation.schema import Count
from tagline.runs.stores import RunStore

STATE, EVENTS, ATTEMPTS = "state.json", "events.jsonl", "attempts.jsonl"
JOB = "job.json"
"""Of a run that a job does, maybe elsewhere."""
NEEDED = ("spec.toml", "lock.json", EVENTS, STATE)
"""What a run begins with."""
OPEN = ConfigDict(extra="allow", strict=True)
"""Other keys are let through: later versions add some, and trackers of other packages too."""
StateName = Literal["waiting", "running", "succeeded", "failed", "cancelled"]
T = TypeVar("T")


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class RunState:
    """Where a run stands, since when, and why: `state.json`."""

    name: StateName
    created: str
    started: str = ""
    ended: str = ""
    reason: str = ""


@dataclass(frozen=True)
class AttemptRecord:
    """One start of a run: when, where, and from what it went on. A line of `attempts.jsonl`."""

    time: str
    host: str
    checkpoint: str = ""
    checkpoint_time: str = ""
    heard: str = ""
    """When the attempt before it was last heard of."""


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


def read_object(store: RunStore, name: str) -> dict[str, Any]:
    """What a JSON file of a run holds, which must be an object."""
    with reading(store, name):
        value: dict[str, Any] = json.loads(store.local_path(name).read_text("utf-8"))
    if not isinstance(value, dict):
        raise make_damage_error(store, name, f"it is a {type(value).__name__}")
    return value


def read_as(store: RunStore, name: str, kind: type[T]) -> T:
    """A JSON file of a run as what it holds; a key that is not known is damage."""
    with reading(store, name):
        value = json.dumps(read_object(store, name))
        return TypeAdapter(kind).validate_json(value, strict=True)


def read_state(store: RunStore) -> RunState:
    """Where a run stands, as it was written down."""
    return read_as(store, STATE, RunState)


def to_json(value: Any) -> str:
    """A value as a JSON file of a run has it."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


@contextmanager
def reading(store: RunStore, name: str) -> Iterator[None]:
    """Translate whatever is raised while a file of a run is read, or something is made of what it holds."""
    try:
        yield
    except ValidationError as error:
        raise make_damage_error(store, name, _first_problem(error)) from error
    except (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError) as error:
        raise make_damage_error(store, name, error) from error


def make_damage_error(store: RunStore, name: str, error: Exception | str) -> RunError:
    """What to say of a file that cannot be read."""
    if isinstance(error, Exception) and not isinstance(error, FileNotFoundError):
        error = f"{type(error).__name__}: {first_line(error)}"
    hint = f"tagline runs delete {store.address}"
    what = "is missing" if isinstance(error, FileNotFoundError) else f"is damaged: {error}"
    return RunError(f"{store.address}/{name} {what}", hint=hint)


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
