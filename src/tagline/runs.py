"""Run: one attempt at a spec, a directory whose files are there whole or not at all."""

import fcntl
import json
import random
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from tagline import spec as specs
from tagline import storage
from tagline.errors import NameTaken, PlaceError, RunError
from tagline.metrics import REPORT_FORMAT
from tagline.spec import Spec

PROGRESS = "checkpoints/progress.json"
ATTEMPTS = "attempts.jsonl"
JOB = "job.json"
"""Of a run that a job does, maybe elsewhere."""
NEEDED = ("spec.toml", "lock.json", "state.json", "events.jsonl")
"""What a run begins with."""
StateName = Literal["waiting", "running", "succeeded", "failed", "cancelled"]
WORDS = (
    "amber", "apple", "aspen", "birch", "blue", "brisk", "calm", "cedar", "clear", "cloud", "coral", "crisp", "dawn",
    "delta", "early", "ember", "fern", "field", "fjord", "flint", "fresh", "glad", "grove", "harbor", "hazel", "heron",
    "ivory", "jade", "june", "keen", "lake", "larch", "lemon", "light", "lilac", "linen", "lunar", "maple", "meadow",
    "mint", "moss", "north", "oak", "ocean", "olive", "opal", "pearl", "pine", "plum", "quick", "quiet", "rain", "reed",
    "river", "robin", "rowan", "sage", "sand", "shore", "silver", "slate", "snow", "spruce", "swift", "tidal", "topaz",
    "umber", "velvet", "violet", "warm", "willow", "wren", "yarrow", "zephyr",
)  # fmt: skip


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class State:
    """Where a run stands, since when, and why."""

    name: StateName
    created: str
    started: str = ""
    ended: str = ""
    reason: str = ""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Progress:
    """What is needed to go on: the last and the best checkpoint, and what had happened by then."""

    last: str = ""
    best: str = ""
    best_value: float | None = None
    best_settings: dict[str, int | float] = field(default_factory=dict)
    """Some count and some measure: an option that is a whole number is read back as one."""
    evaluations_without_gain: int = 0
    events: int = 0
    """Lines of events.jsonl that were written before the last checkpoint."""
    seconds: float = 0.0
    """Spent on learning, over all attempts."""
    stopped: str = ""
    """Why learning ended before its last step: patience or budget."""
    time: str = ""
    """When the last checkpoint was made."""


@dataclass(frozen=True)
class Attempt:
    """One start of a run: when, where, and from what it went on."""

    time: str
    host: str
    checkpoint: str = ""
    checkpoint_time: str = ""
    heard: str = ""
    """When the attempt before it was last heard of."""


Kept = TypeVar("Kept", State, Progress)


class Run:
    """A run's directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def name(self) -> str:
        """Time and a short word."""
        return self.directory.name

    @property
    def address(self) -> str:
        """Where the run is, as a user names it."""
        return str(self.directory)

    @property
    def bundle(self) -> Path:
        """Where the bundle is, once there is one."""
        return self.directory / "bundle"

    @property
    def bundle_address(self) -> str:
        """Where the bundle is, for those who are elsewhere."""
        return str(self.bundle.absolute())

    @property
    def shelf(self) -> Path:
        """Where trackers keep what runs share."""
        return self.directory.absolute().parent

    @classmethod
    def create(cls, runs: Path, spec: Spec, lock: dict[str, Any], *, name: str = "") -> Self:
        """A new run with its spec, every default written out, and its lock; it appears whole. A name may be given."""
        storage.sweep(runs, older_than_s=24 * 3600)
        while True:
            directory = runs / (name or next_name(names_in(runs)))
            try:
                with storage.writing_directory(directory) as scratch:
                    write_beginning(scratch, spec, lock)
            except PlaceError as error:
                if not directory.is_dir():  # else another process was faster
                    raise
                if name:
                    raise NameTaken(f"there is a run {name} in {runs} already", hint="give it another name") from error
                continue
            return cls(directory)

    @classmethod
    def open(cls, directory: Path) -> Self:
        """A run that is there."""
        if not is_run(directory):
            raise RunError(f"{directory} is not a run", hint="tagline runs list shows those that are there")
        return cls(directory)

    def spec(self) -> Spec:
        """The spec as it was resolved."""
        return specs.load(self._path("spec.toml"))

    def spec_text(self) -> str:
        """The spec as its file has it, every default written out."""
        return self._path("spec.toml").read_text("utf-8")

    def lock(self) -> dict[str, Any]:
        """What the run depends on: data, versions, device, seed."""
        found = self._read("lock.json")
        if "spec_fingerprint" not in found:
            raise self._damaged("lock.json", KeyError("spec_fingerprint"))
        return found

    def report(self) -> dict[str, Any] | None:
        """The report, once there is one."""
        if not self._path("report.json").is_file():
            return None
        found = self._read("report.json")
        if found.get("format") != REPORT_FORMAT:
            hint = f"train again: tagline train {self.address}/spec.toml"
            raise RunError(
                f"the report of run {self.name} is of format {found.get('format')}, not {REPORT_FORMAT}: "
                "another version of Tagline made it", hint=hint,
            )  # fmt: skip
        return found

    def predictions(self) -> list[dict[str, Any]]:
        """The test rows with truth and answer, in order."""
        path = self._path("predictions.jsonl")
        try:
            return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
        except (OSError, ValueError) as error:
            raise self._damaged(path.name, error) from error

    def state(self) -> State:
        """Where the run stands; one whose process is gone has failed, whatever its file still says."""
        state = self._read_as(State, "state.json")
        if state.name == "running" and not self._is_held():
            state = self._read_as(State, "state.json")  # it may have ended, and said so, before it let go
        if state.name in ("waiting", "running") and (self.read_json(JOB) or {}).get("run"):
            return replace(state, reason=f"when last looked at; now: tagline jobs show {self.name}")
        if state.name == "running" and not self._is_held():
            reason = f"its process ended without a word; go on with: tagline train --resume {self.address}"
            return replace(state, name="failed", reason=reason)
        return state

    def set_state(self, name: StateName, reason: str = "") -> None:
        """Write down where the run stands now."""
        old, now = self._read_as(State, "state.json"), datetime.now(UTC).isoformat()
        started = old.started or (now if name == "running" else "")
        ended = now if name in ("succeeded", "failed", "cancelled") else ""
        self.write_json("state.json", asdict(replace(old, name=name, started=started, ended=ended, reason=reason)))

    def read_json(self, name: str) -> Any:
        """A JSON file of the run; None where there is none."""
        return self._read(name) if self._path(name).is_file() else None

    def write_json(self, name: str, value: Any) -> None:
        """A JSON file of the run, whole."""
        self.write_text(name, _json(value))

    def write_text(self, name: str, text: str) -> None:
        """A text file of the run, whole."""
        storage.write_text(self.directory / name, text)

    def write_lines(self, name: str, lines: Sequence[str]) -> None:
        """A file of lines, whole."""
        self.write_text(name, "".join(f"{line}\n" for line in lines))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep every other process from writing this run; ends with the process, however that ends."""
        with storage.held(self.directory):
            for directory in (self.directory, self.directory / "checkpoints"):
                storage.sweep(directory)
            yield

    @contextmanager
    def worked_on(self) -> Iterator[None]:
        """Have all that the run holds here, and in the end take what was added to where the run is."""
        yield

    def begin_attempt(self) -> None:
        """Write down that the run starts, or starts again."""
        attempts, progress, events = self.attempts(), self.progress(), self.events()
        heard = events[-1]["time"] if events else attempts[-1].time if attempts else ""
        now = datetime.now(UTC).isoformat()
        begun = Attempt(now, socket.gethostname(), progress.last, progress.time, heard)
        self.write_lines(ATTEMPTS, [json.dumps(asdict(each)) for each in (*attempts, begun)])

    def attempts(self) -> list[Attempt]:
        """Every start of the run, oldest first."""
        path = self._path(ATTEMPTS)
        try:
            lines = path.read_text("utf-8").splitlines() if path.is_file() else []
            return [Attempt(**json.loads(line)) for line in lines]
        except (OSError, ValueError, TypeError) as error:
            raise self._damaged(ATTEMPTS, error) from error

    def restarts(self) -> tuple[int, float]:
        """How often the run was started again, and how many minutes of its work had to be done again for that."""
        attempts, lost_s = self.attempts(), 0.0
        for before, attempt in pairwise(attempts):
            kept = datetime.fromisoformat(attempt.checkpoint_time or before.time)
            heard = datetime.fromisoformat(attempt.heard or before.time)
            lost_s += max(0.0, (heard - kept).total_seconds())
        return max(0, len(attempts) - 1), lost_s / 60

    def entries(self) -> list[str]:
        """What is in the run, by its addresses; a directory's ends with a slash."""
        found = sorted(path for path in self.directory.iterdir() if not path.name.startswith("."))
        return [f"{path}{'/' if path.is_dir() else ''}" for path in found]

    def append_event(self, event: dict[str, Any]) -> None:
        """One line at the end of events.jsonl."""
        path = self.directory / "events.jsonl"
        with storage.disk_errors(path), path.open("ab") as file:
            file.write(json.dumps(event, ensure_ascii=False).encode() + b"\n")

    def events(self) -> list[dict[str, Any]]:
        """What has happened so far; a last line that was cut off is not there yet."""
        try:
            return [json.loads(line) for line in self._event_lines()]
        except ValueError as error:
            raise self._damaged("events.jsonl", error) from error

    def rewind_events(self, count: int) -> None:
        """Forget what happened after a checkpoint: it will happen again."""
        self.write_lines("events.jsonl", [line.decode() for line in self._event_lines()[:count]])

    def event_count(self) -> int:
        """How many events there are."""
        return len(self._event_lines())

    def _event_lines(self) -> list[bytes]:
        return self._path("events.jsonl").read_bytes().split(b"\n")[:-1]

    def progress(self) -> Progress:
        """The last checkpoint's progress, or none."""
        if not self._path(PROGRESS).is_file():
            return Progress()
        return self._read_as(Progress, PROGRESS)

    def checkpoint(self, name: str) -> Path:
        """A checkpoint's directory."""
        return self.directory / "checkpoints" / name

    def write_progress(self, progress: Progress) -> None:
        """Make a checkpoint count, and remove the ones that no longer do."""
        checkpoints = self.directory / "checkpoints"
        storage.write_text(self.directory / PROGRESS, _json(asdict(progress)))
        for directory in checkpoints.iterdir():
            if directory.is_dir() and directory.name not in (progress.last, progress.best):
                storage.remove_directory(directory)

    def delete(self) -> None:
        """Remove the run and everything in it, unless it is running."""
        with self.held():
            storage.remove_directory(self.directory)

    def _is_held(self) -> bool:
        path = self.directory / storage.LOCK
        if not path.exists():
            return False
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def _read_as(self, kind: type[Kept], name: str) -> Kept:
        value = json.dumps(self._read(name))
        try:
            return TypeAdapter(kind).validate_json(value, strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            raise self._damaged(name, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error

    def _damaged(self, name: str, error: Exception | str) -> RunError:
        hint = f"tagline runs delete {self.address}"
        what = "is missing" if isinstance(error, FileNotFoundError) else f"is damaged: {error}"
        return RunError(f"{self.address}/{name} {what}", hint=hint)

    def _path(self, name: str) -> Path:
        """A file of the run, to be read."""
        return self.directory / name

    def _read(self, name: str) -> dict[str, Any]:
        path = self._path(name)
        try:
            value: dict[str, Any] = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise self._damaged(name, error) from error
        if not isinstance(value, dict):
            raise self._damaged(name, TypeError(f"it is a {type(value).__name__}"))
        return value


def write_beginning(directory: Path, spec: Spec, lock: dict[str, Any]) -> None:
    """What a run begins with."""
    state = State("waiting", created=datetime.now(UTC).isoformat())
    (directory / "spec.toml").write_text(specs.to_toml(spec), "utf-8")
    (directory / "lock.json").write_text(_json(lock), "utf-8")
    (directory / "state.json").write_text(_json(asdict(state)), "utf-8")
    (directory / "events.jsonl").touch()


def names_in(runs: Path) -> list[str]:
    """The names that are taken in a directory of runs."""
    return [path.name for path in runs.iterdir()] if runs.is_dir() else []


def next_name(names: Iterable[str]) -> str:
    """A name that sorts after those there are: the time and a word, in one second each word after the last."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    taken = sorted(name.removeprefix(f"{stamp}-") for name in names if name.startswith(f"{stamp}-"))
    if not taken:
        return f"{stamp}-{random.choice(WORDS[: len(WORDS) // 2])}"  # noqa: S311 - a name, not a secret
    later = [word for word in WORDS if word > taken[-1]]
    return f"{stamp}-{later[0] if later else taken[-1] + '-' + WORDS[0]}"


def is_run(directory: Path) -> bool:
    """Whether a directory is a run: it has all that a run begins with."""
    return all((directory / name).is_file() for name in NEEDED)


def list_runs(runs: Path) -> list[Run]:
    """The runs in a directory, oldest first."""
    if not runs.is_dir():
        return []
    hidden = storage.SCRATCH_PREFIX
    found = (path for path in runs.iterdir() if not path.name.startswith(hidden) and is_run(path))
    return [Run(path) for path in sorted(found)]


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
