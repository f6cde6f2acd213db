"""Run: one attempt at a spec, a directory whose files are there whole or not at all."""

import fcntl
import json
import random
import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from tagline import spec as specs
from tagline.errors import NameTaken, PlaceError, RunError, SpecError, TaglineError, first_line
from tagline.evaluation.schema import REPORT_FORMAT, Report
from tagline.runs import formats
from tagline.runs.events import Event, parse_event
from tagline.spec import Spec
from tagline.storage import atomic, hashing
from tagline.system.processes import alive_in

PROGRESS = "checkpoints/progress.json"
ATTEMPTS = "attempts.jsonl"
JOB = "job.json"
"""Of a run that a job does, maybe elsewhere."""
LAST = "last"
"""What the newest run is called."""
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
STAMP, STAMPED = "%Y%m%d-%H%M%S", re.compile(r"(\d{8}-\d{6})-")
"""The time in a name that was not given by the user."""
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
class RunState:
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
    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file of the last checkpoint; empty in runs of versions that did not record them."""
    earlier: list["Progress"] = field(default_factory=list)
    """The progress at earlier checkpoints that were the best of their time, newest first: what `Run.intact_progress`
    goes back to when a later checkpoint is damaged."""

    @property
    def checkpoints(self) -> list[str]:
        """The checkpoints that must be kept."""
        names = (self.last, self.best, *(record.last for record in self.earlier))
        return [name for name in dict.fromkeys(names) if name]

    @property
    def hashes(self) -> dict[str, dict[str, str]]:
        """SHA-256 of each file of each checkpoint, by the checkpoint's name, where they were recorded."""
        return {record.last: record.files for record in (self, *self.earlier) if record.files}

    def with_earlier_bests(self, previous: "Progress") -> "Progress":
        """This progress with a way back: to the best checkpoint, and from there to the one that was best before."""
        records = (previous, *previous.earlier)
        bests = [replace(each, earlier=[]) for each in records if each.last and each.last == each.best != self.last]
        return replace(self, earlier=bests[: 1 if self.last == self.best else 2])


@dataclass(frozen=True)
class Attempt:
    """One start of a run: when, where, and from what it went on."""

    time: str
    host: str
    checkpoint: str = ""
    checkpoint_time: str = ""
    heard: str = ""
    """When the attempt before it was last heard of."""


Kept = TypeVar("Kept", RunState, Progress)


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
    def tracker_dir(self) -> Path:
        """Where trackers keep what runs share."""
        return self.directory.absolute().parent

    @classmethod
    def create(cls, runs: Path, spec: Spec, lock: dict[str, Any], *, name: str = "") -> Self:
        """A new run with its spec, every default written out, and its lock; it appears whole. A name may be given."""
        atomic.sweep_scratch(runs, older_than_s=24 * 3600)
        while True:
            directory = runs / (name or choose_name(list_names(runs)))
            try:
                with atomic.writing_directory(directory) as scratch:
                    write_initial_files(scratch, spec, lock)
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

    def created(self) -> str:
        """When the run was made, as its state tells."""
        return self._read_as(RunState, "state.json").created

    def spec(self) -> Spec:
        """The spec as it was resolved."""
        with self.reading("spec.toml"):
            try:
                return specs.load_recorded(self._local_path("spec.toml"))
            except SpecError as error:
                raise self._make_damage_error("spec.toml", error.message) from error

    def spec_text(self) -> str:
        """The spec for people who read a report: every default written out, without where it ran."""
        return specs.to_toml(self.spec(), with_place=False)

    def lock(self) -> dict[str, Any]:
        """What the run depends on: data, versions, device, seed."""
        with self.reading("lock.json"):
            found = self._read_object("lock.json")
            formats.LOCK.validate_python(found)
        return found

    def report(self) -> Report | None:
        """The report, once there is one."""
        if not self._local_path("report.json").is_file():
            return None
        found = self._read_object("report.json")
        if found.get("format") != REPORT_FORMAT:
            hint = f"train again: tagline train {self.address}/spec.toml"
            raise RunError(
                f"{self.address}/report.json is of format {found.get('format')}, not {REPORT_FORMAT}: "
                "another version of Tagline made it",
                hint=hint,
            )
        with self.reading("report.json"):
            return Report.model_validate(found)

    def predictions(self) -> list[dict[str, Any]]:
        """The test rows with truth and answer, in order."""
        with self.reading("predictions.jsonl"):
            lines = self._local_path("predictions.jsonl").read_text("utf-8").split("\n")
            rows = [json.loads(line) for line in lines if line]
            for row in rows:
                formats.PREDICTION.validate_python(row)
        return rows

    def state(self) -> RunState:
        """Where the run stands; one whose process is gone has failed, whatever its file still says."""
        state = self._read_as(RunState, "state.json")
        if state.name == "running" and not self._is_held():
            state = self._read_as(RunState, "state.json")  # it may have ended, and said so, before it let go
        job = self.read_json(JOB) or {}
        if state.name in ("waiting", "running") and job.get("run"):
            if self._has_lost_rehearsal(job):
                reason = f"its rehearsal in {Path(job['rehearsal_facts']).parent} has ended"
                return replace(state, name="failed", reason=reason)
            return replace(state, reason=f"when last looked at; now: tagline jobs show {self.name}")
        if state.name == "running" and not self._is_held():
            reason = f"its process ended without a word; go on with: tagline train --resume {self.address}"
            return replace(state, name="failed", reason=reason)
        return state

    def _has_lost_rehearsal(self, job: dict[str, Any]) -> bool:
        """Whether the rehearsal that should do this run does not run any more."""
        return bool(job.get("rehearsal_facts")) and not alive_in(Path(job["rehearsal_facts"]))

    def set_state(self, name: StateName, reason: str = "") -> None:
        """Write down where the run stands now."""
        old, now = self._read_as(RunState, "state.json"), datetime.now(UTC).isoformat()
        started = old.started or (now if name == "running" else "")
        ended = now if name in ("succeeded", "failed", "cancelled") else ""
        self.write_json("state.json", asdict(replace(old, name=name, started=started, ended=ended, reason=reason)))

    def read_json(self, name: str) -> Any:
        """A JSON file of the run; None where there is none."""
        return self._read_object(name) if self._local_path(name).is_file() else None

    def write_json(self, name: str, value: Any) -> None:
        """A JSON file of the run, whole."""
        self.write_text(name, _to_json(value))

    def write_text(self, name: str, text: str) -> None:
        """A text file of the run, whole."""
        atomic.write_text(self.directory / name, text)

    def write_lines(self, name: str, lines: Sequence[str]) -> None:
        """A file of lines, whole."""
        self.write_text(name, "".join(f"{line}\n" for line in lines))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep every other process from writing this run; ends with the process, however that ends."""
        with atomic.lock_directory(self.directory):
            for directory in (self.directory, self.directory / "checkpoints"):
                atomic.sweep_scratch(directory)
            yield

    @contextmanager
    def worked_on(self) -> Iterator[None]:
        """Have all that the run holds here, and in the end take what was added to where the run is."""
        yield

    def begin_attempt(self, progress: Progress | None = None) -> None:
        """Write down that the run starts, or starts again from this progress; by default from the recorded one."""
        attempts, events = self.attempts(), self.events()
        progress = progress or self.progress()
        heard = events[-1].time if events else attempts[-1].time if attempts else ""
        now = datetime.now(UTC).isoformat()
        begun = Attempt(now, socket.gethostname(), progress.last, progress.time, heard)
        self.write_lines(ATTEMPTS, [json.dumps(asdict(each)) for each in (*attempts, begun)])

    def attempts(self) -> list[Attempt]:
        """Every start of the run, oldest first."""
        path, known = self._local_path(ATTEMPTS), TypeAdapter(Attempt)
        with self.reading(ATTEMPTS):
            lines = path.read_text("utf-8").splitlines() if path.is_file() else []
            return [known.validate_json(line, strict=True) for line in lines]

    def restarts(self) -> tuple[int, float]:
        """How often the run was started again, and how many minutes of its work had to be done again for that."""
        attempts, lost_s = self.attempts(), 0.0
        with self.reading(ATTEMPTS):
            for before, attempt in pairwise(attempts):
                kept = datetime.fromisoformat(attempt.checkpoint_time or before.time)
                heard = datetime.fromisoformat(attempt.heard or before.time)
                lost_s += max(0.0, (heard - kept).total_seconds())
        return max(0, len(attempts) - 1), lost_s / 60

    def entries(self) -> list[str]:
        """What is in the run, by its addresses; a directory's ends with a slash."""
        found = sorted(path for path in self.directory.iterdir() if not path.name.startswith("."))
        return [f"{path}{'/' if path.is_dir() else ''}" for path in found]

    def append_event(self, event: Event) -> None:
        """One line at the end of events.jsonl."""
        path = self.directory / "events.jsonl"
        with atomic.disk_errors(path), path.open("ab") as file:
            file.write(json.dumps(event.to_dict(), ensure_ascii=False).encode() + b"\n")

    def events(self) -> list[Event]:
        """What has happened so far; a last line that was cut off is not there yet."""
        with self.reading("events.jsonl"):
            return [parse_event(json.loads(line)) for line in self._event_lines()]

    def rewind_events(self, count: int) -> None:
        """Forget what happened after a checkpoint: it will happen again."""
        with self.reading("events.jsonl"):
            lines = [line.decode() for line in self._event_lines()[:count]]
        self.write_lines("events.jsonl", lines)

    def event_count(self) -> int:
        """How many events there are."""
        return len(self._event_lines())

    def _event_lines(self) -> list[bytes]:
        with self.reading("events.jsonl"):
            return self._local_path("events.jsonl").read_bytes().split(b"\n")[:-1]

    def progress(self) -> Progress:
        """The last checkpoint's progress, or none."""
        if not self._local_path(PROGRESS).is_file():
            return Progress()
        progress = self._read_as(Progress, PROGRESS)
        if not all(name.isdecimal() for name in progress.checkpoints) or progress.events < 0:
            raise self._make_damage_error(
                PROGRESS, f"it names {', '.join(progress.checkpoints)} after {progress.events} events"
            )
        return progress

    def intact_progress(self) -> tuple[Progress, str]:
        """The newest progress whose checkpoints are undamaged, and what is wrong with later ones, if anything is.

        Where no checkpoint is left, learning starts from the beginning: it comes to the same end, only later.
        """
        progress, problems = self.progress(), []
        while progress.last:
            problem = self.checkpoint_damage(progress, progress.last) or self.checkpoint_damage(progress, progress.best)
            if not problem:
                break
            if problem not in problems:
                problems.append(problem)
            progress = replace(progress.earlier[0], earlier=progress.earlier[1:]) if progress.earlier else Progress()
        return progress, "; ".join(problems)

    def checkpoint_damage(self, progress: Progress, name: str) -> str:
        """What is wrong with a checkpoint's files; nothing where they are as recorded, or no hashes were recorded."""
        recorded = progress.hashes.get(name, {})
        if name and recorded:
            self._bring_checkpoint(name)
        for file, expected in recorded.items():
            path = self.checkpoint(name) / file
            try:
                found = hashing.hash_file(path)
            except FileNotFoundError:
                return f"{self.address}/checkpoints/{name}/{file} is missing"
            except OSError as error:
                return f"{self.address}/checkpoints/{name}/{file} cannot be read: {error.strerror}"
            if found != expected:
                return f"{self.address}/checkpoints/{name}/{file} has changed since it was written"
        return ""

    def _bring_checkpoint(self, name: str) -> None:
        """Have a checkpoint's files on this machine, where they are already."""

    def checkpoint(self, name: str) -> Path:
        """A checkpoint's directory."""
        return self.directory / "checkpoints" / name

    def write_progress(self, progress: Progress) -> None:
        """Make a checkpoint count, and remove the ones that no longer do."""
        checkpoints = self.directory / "checkpoints"
        atomic.write_text(self.directory / PROGRESS, _to_json(asdict(progress)))
        for directory in checkpoints.iterdir():
            if directory.is_dir() and directory.name not in progress.checkpoints:
                atomic.remove_directory(directory)

    def delete(self) -> None:
        """Remove the run and everything in it, unless it is running."""
        with self.held():
            atomic.remove_directory(self.directory)

    def _is_held(self) -> bool:
        try:
            with (self.directory / atomic.LOCK).open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:  # somebody holds it, or it is another user's: then nobody here can know
            return True
        return False

    def _read_as(self, kind: type[Kept], name: str) -> Kept:
        with self.reading(name):
            value = json.dumps(self._read_object(name))
            return TypeAdapter(kind).validate_json(value, strict=True)

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Translate whatever is raised while a file of the run is read, or something is made of what it holds."""
        try:
            yield
        except ValidationError as error:
            raise self._make_damage_error(name, _first_problem(error)) from error
        except (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError) as error:
            raise self._make_damage_error(name, error) from error

    def _make_damage_error(self, name: str, error: Exception | str) -> RunError:
        if isinstance(error, Exception) and not isinstance(error, FileNotFoundError):
            error = f"{type(error).__name__}: {first_line(error)}"
        hint = f"tagline runs delete {self.address}"
        what = "is missing" if isinstance(error, FileNotFoundError) else f"is damaged: {error}"
        return RunError(f"{self.address}/{name} {what}", hint=hint)

    def _local_path(self, name: str) -> Path:
        """A file of the run, to be read."""
        return self.directory / name

    def _read_object(self, name: str) -> dict[str, Any]:
        with self.reading(name):
            value: dict[str, Any] = json.loads(self._local_path(name).read_text("utf-8"))
        if not isinstance(value, dict):
            raise self._make_damage_error(name, f"it is a {type(value).__name__}")
        return value


def write_initial_files(directory: Path, spec: Spec, lock: dict[str, Any]) -> None:
    """What a run begins with."""
    state = RunState("waiting", created=datetime.now(UTC).isoformat())
    (directory / "spec.toml").write_text(specs.to_toml(spec), "utf-8")
    (directory / "lock.json").write_text(_to_json(lock), "utf-8")
    (directory / "state.json").write_text(_to_json(asdict(state)), "utf-8")
    (directory / "events.jsonl").touch()


def list_names(runs: Path) -> list[str]:
    """The names that are taken in a directory of runs."""
    return [path.name for path in runs.iterdir()] if runs.is_dir() else []


def choose_name(names: Iterable[str]) -> str:
    """A name that sorts after those there are: the time and a word, in one second each word after the last."""
    stamp = datetime.now(UTC).strftime(STAMP)
    taken = sorted(name.removeprefix(f"{stamp}-") for name in names if name.startswith(f"{stamp}-"))
    if not taken:
        return f"{stamp}-{random.choice(WORDS[: len(WORDS) // 2])}"  # noqa: S311 - a name, not a secret
    later = [word for word in WORDS if word > taken[-1]]
    return f"{stamp}-{later[0] if later else taken[-1] + '-' + WORDS[0]}"


def check_name(name: str) -> None:
    """Refuse a name that a run cannot have here and in a bucket alike, where it is the label of a job too."""
    if name == LAST or not NAME.fullmatch(name):
        hint = f'up to 63 of a-z, 0-9, - and _, a letter or digit first; "{LAST}" means the newest run'
        raise SpecError(f'"{name}" cannot name a run', hint=hint)


def age_sort_key(run: Run) -> tuple[str, str]:
    """What sorts runs from the oldest to the newest: the time in the name or, where a user chose it, in the state."""
    if found := STAMPED.match(run.name):
        return found[1], run.name
    with suppress(TaglineError, ValueError):
        return datetime.fromisoformat(run.created()).astimezone(UTC).strftime(STAMP), run.name
    return "", run.name


def is_run(directory: Path) -> bool:
    """Whether a directory is a run: it has all that a run begins with."""
    try:
        return all((directory / name).is_file() for name in NEEDED)
    except OSError:  # another user's, who lets nobody look
        return False


def list_runs(runs: Path) -> list[Run]:
    """The runs in a directory, oldest first."""
    if not runs.is_dir():
        return []
    hidden = atomic.SCRATCH_PREFIX
    found = (path for path in runs.iterdir() if not path.name.startswith(hidden) and is_run(path))
    return sorted((Run(path) for path in found), key=age_sort_key)


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def _to_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
