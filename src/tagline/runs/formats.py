"""The files of a run, beside its report and events: their names, contents and readers."""

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
"""The record of the job that a run is trained in, possibly on another machine."""
NEEDED = ("spec.toml", "lock.json", EVENTS, STATE)
"""The files that every run has from its start."""
OPEN = ConfigDict(extra="allow", strict=True)
"""Unknown keys are allowed: later versions and third-party trackers add some."""
StateName = Literal["waiting", "running", "succeeded", "failed", "cancelled"]
T = TypeVar("T")


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class RunState:
    """The state of a run, its times and its reason: `state.json`."""

    name: StateName
    created: str
    started: str = ""
    ended: str = ""
    reason: str = ""


@dataclass(frozen=True)
class AttemptRecord:
    """One start of a run: its time, host and checkpoint. A line of `attempts.jsonl`."""

    time: str
    host: str
    checkpoint: str = ""
    checkpoint_time: str = ""
    heard: str = ""
    """Time of the last event or start of the attempt before."""


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
    """Read a JSON file of a run, which must hold an object."""
    with reading(store, name):
        value: dict[str, Any] = json.loads(store.local_path(name).read_text("utf-8"))
    if not isinstance(value, dict):
        raise make_damage_error(store, name, f"it is a {type(value).__name__}")
    return value


def read_as(store: RunStore, name: str, kind: type[T]) -> T:
    """Read a JSON file of a run as the given type; an unknown key counts as damage."""
    with reading(store, name):
        value = json.dumps(read_object(store, name))
        return TypeAdapter(kind).validate_json(value, strict=True)


def read_state(store: RunStore) -> RunState:
    """Read the recorded state of a run."""
    return read_as(store, STATE, RunState)


def to_json(value: Any) -> str:
    """Format a value as a JSON file of a run."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


@contextmanager
def reading(store: RunStore, name: str) -> Iterator[None]:
    """Translate errors of reading and parsing a file of a run into a RunError."""
    try:
        yield
    except ValidationError as error:
        raise make_damage_error(store, name, _first_problem(error)) from error
    except (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError) as error:
        raise make_damage_error(store, name, error) from error


def make_damage_error(store: RunStore, name: str, error: Exception | str) -> RunError:
    """Create the error for a file that cannot be read."""
    if isinstance(error, Exception) and not isinstance(error, FileNotFoundError):
        error = f"{type(error).__name__}: {first_line(error)}"
    hint = f"tagline runs delete {store.address}"
    what = "is missing" if isinstance(error, FileNotFoundError) else f"is damaged: {error}"
    return RunError(f"{store.address}/{name} {what}", hint=hint)


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
