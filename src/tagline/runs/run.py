"""Run: one training of a spec, local or in a bucket: its spec, lock, state, events, checkpoints and results."""

import json
import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, final

from pydantic import TypeAdapter

from tagline import spec as specs
from tagline.errors import NameTaken, RunError, SpecError
from tagline.evaluation.schema import REPORT_FORMAT, Report
from tagline.prediction.bundle import MANIFEST
from tagline.runs import checkpoints, formats
from tagline.runs.checkpoints import PROGRESS, Progress
from tagline.runs.events import Event, parse_event
from tagline.runs.formats import ATTEMPTS, EVENTS, JOB, NEEDED, STATE, AttemptRecord, RunState, StateName
from tagline.runs.names import check_name, choose_name, list_names
from tagline.runs.stores import RunStore
from tagline.runs.stores.bucket import BucketStore
from tagline.runs.stores.local import LocalStore
from tagline.spec import Spec
from tagline.storage import addresses
from tagline.system.processes import find_live_process


@final
class Run:
    """A run, by its directory, its address in Cloud Storage, or the store that holds it."""

    def __init__(self, where: str | Path | RunStore) -> None:
        self.store = _find_store(where) if isinstance(where, str | Path) else where

    @property
    def directory(self) -> Path:
        """The local directory of the run's files; for a run in Cloud Storage, of those that were read or written."""
        return self.store.directory

    @property
    def name(self) -> str:
        """The run's name: by default its time and a short word."""
        return self.directory.name

    @property
    def address(self) -> str:
        """The run's address, as a user names it."""
        return self.store.address

    @property
    def bundle(self) -> Path:
        """The directory of the bundle, once there is one; for a run in Cloud Storage, a copy."""
        local = self.directory / "bundle"
        if not local.is_dir() and self.has_bundle():
            self.store.fetch_directory("bundle")
        return local

    @property
    def bundle_address(self) -> str:
        """The bundle's address, valid from any working directory."""
        return f"{self.store.absolute_address}/bundle"

    @property
    def tracker_dir(self) -> Path:
        """The directory in which trackers keep what runs share."""
        return self.store.tracker_dir

    @classmethod
    def create(cls, runs: str | Path, spec: Spec, lock: dict[str, Any], *, name: str = "") -> "Run":
        """Create a waiting run atomically in a directory or in Cloud Storage, under a unique name.

        Raise NameTaken if the given `name` is taken.
        """
        if name and addresses.is_remote(runs):
            check_name(name)
        while True:
            chosen = name or choose_name(list_names(runs))
            files = _initial_files(spec, lock)
            try:
                if addresses.is_remote(runs):
                    return cls(BucketStore.create(f"{str(runs).rstrip('/')}/{chosen}", files))
                return cls(LocalStore.create(addresses.require_local(runs) / chosen, files))
            except NameTaken:
                if name:  # else another process took the chosen one: choose a later one
                    raise

    @classmethod
    def open(cls, where: str | Path | RunStore) -> "Run":
        """Open an existing run; raise RunError if it is none."""
        run = cls(where)
        run.refresh()
        if not run.exists():
            top = f" --runs {run.address.rpartition('/')[0]}" if addresses.is_remote(run.address) else ""
            raise RunError(f"{run.address} is not a run", hint=f"tagline runs list{top} shows those that are there")
        return run

    def exists(self) -> bool:
        """Return whether it is a run: whether it has the files that every run has."""
        try:
            return all(self.store.has(name) for name in NEEDED)
        except OSError:  # another user's, without permission to read
            return False

    def has_bundle(self) -> bool:
        """Return whether the run has a complete bundle."""
        return self.store.has(f"bundle/{MANIFEST}")

    def refresh(self) -> None:
        """List the run's files anew, since another process may have written to it."""
        self.store.refresh()

    def created(self) -> str:
        """Return when the run was created, by its state."""
        return self.recorded_state().created

    def spec(self) -> Spec:
        """Return the resolved spec."""
        with self.reading("spec.toml"):
            try:
                return specs.load_recorded(self.store.local_path("spec.toml"))
            except SpecError as error:
                raise formats.make_damage_error(self.store, "spec.toml", error.message) from error

    def spec_text(self) -> str:
        """Return the spec as reports show it: with every default, without the settings of its job."""
        return specs.to_toml(self.spec(), with_place=False)

    def lock(self) -> dict[str, Any]:
        """Return what the run depends on: data, versions, device, seed."""
        with self.reading("lock.json"):
            lock = formats.read_object(self.store, "lock.json")
            formats.LOCK.validate_python(lock)
        return lock

    def report(self) -> Report | None:
        """Return the report; None if there is none yet."""
        if not self.store.local_path("report.json").is_file():
            return None
        value = formats.read_object(self.store, "report.json")
        if value.get("format") != REPORT_FORMAT:
            hint = f"train again: tagline train {self.address}/spec.toml"
            raise RunError(
                f"{self.address}/report.json is of format {value.get('format')}, not {REPORT_FORMAT}: "
                "another version of Tagline made it",
                hint=hint,
            )
        with self.reading("report.json"):
            return Report.model_validate(value)

    def predictions(self) -> list[dict[str, Any]]:
        """Return the test rows with truth and answer, in order."""
        with self.reading("predictions.jsonl"):
            lines = self.store.local_path("predictions.jsonl").read_text("utf-8").split("\n")
            rows = [json.loads(line) for line in lines if line]
            for row in rows:
                formats.PREDICTION.validate_python(row)
        return rows

    def recorded_state(self) -> RunState:
        """Return the recorded state of the run."""
        return formats.read_state(self.store)

    def state(self) -> RunState:
        """Return the state of the run; one whose process has ended without a final state has failed.

        For one in Cloud Storage that runs on another machine, the reason gives its last heartbeat.
        """
        state = self.recorded_state()
        if state.name == "running" and not self.store.is_held():
            state = self.recorded_state()  # it may have written its final state just before it released the lock
        if state.name == "running" and (last_write := self.store.find_last_write()):
            return replace(state, reason=f"last heard of at {last_write:%Y-%m-%d %H:%M:%S} UTC")
        job = self.read_json(JOB) or {}
        if state.name in ("waiting", "running") and job.get("run"):
            if self._has_lost_rehearsal(job):
                reason = f"its rehearsal in {Path(job['rehearsal_facts']).parent} has ended"
                return replace(state, name="failed", reason=reason)
            return replace(state, reason=f"when last looked at; now: tagline jobs show {self.name}")
        if state.name == "running" and not self.store.is_held():
            reason = f"its process ended without a word; go on with: tagline train --resume {self.address}"
            return replace(state, name="failed", reason=reason)
        return state

    def _has_lost_rehearsal(self, job: dict[str, Any]) -> bool:
        """Return whether the emulator that should train this run has ended; one that still has the run would answer."""
        facts = str(job.get("rehearsal_facts") or "")
        return bool(facts) and not addresses.is_remote(self.address) and not find_live_process(Path(facts))

    def set_state(self, name: StateName, reason: str = "") -> None:
        """Write the state of the run."""
        if name == "succeeded":
            self.store.flush_all()  # a run that succeeded must have its bundle stored
        self.store.flush(EVENTS)
        old, now = self.recorded_state(), datetime.now(UTC).isoformat()
        started = old.started or (now if name == "running" else "")
        ended = now if name in ("succeeded", "failed", "cancelled") else ""
        self.write_json(STATE, asdict(replace(old, name=name, started=started, ended=ended, reason=reason)))

    def read_json(self, name: str) -> Any:
        """Read a JSON file of the run; None if there is none."""
        return formats.read_object(self.store, name) if self.store.local_path(name).is_file() else None

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file of the run atomically."""
        self.write_text(name, formats.to_json(value))

    def write_text(self, name: str, text: str) -> None:
        """Write a text file of the run atomically."""
        self.store.write_text(name, text)

    def write_lines(self, name: str, lines: Sequence[str]) -> None:
        """Write a file of lines atomically."""
        self.write_text(name, "".join(f"{line}\n" for line in lines))

    def held(self) -> AbstractContextManager[None]:
        """Hold the run, so that no other process can write it; the hold ends with the process."""
        return self.store.held()

    def worked_on(self) -> AbstractContextManager[None]:
        """Make the run's files available locally, and in the end store what was added."""
        return self.store.worked_on()

    def begin_attempt(self, progress: Progress | None = None) -> None:
        """Record that the run starts, or resumes from this progress; by default from the recorded one."""
        attempts, events = self.attempts(), self.events()
        progress = progress or self.progress()
        last_time = events[-1].time if events else attempts[-1].time if attempts else ""
        now = datetime.now(UTC).isoformat()
        started = AttemptRecord(now, socket.gethostname(), progress.last, progress.time, last_time)
        self.write_lines(ATTEMPTS, [json.dumps(asdict(each)) for each in (*attempts, started)])

    def attempts(self) -> list[AttemptRecord]:
        """Return every start of the run, oldest first."""
        path, adapter = self.store.local_path(ATTEMPTS), TypeAdapter(AttemptRecord)
        with self.reading(ATTEMPTS):
            lines = path.read_text("utf-8").splitlines() if path.is_file() else []
            return [adapter.validate_json(line, strict=True) for line in lines]

    def restarts(self) -> tuple[int, float]:
        """Return how often the run was resumed, and how many minutes of work were repeated for that."""
        attempts, lost_s = self.attempts(), 0.0
        with self.reading(ATTEMPTS):
            for before, attempt in pairwise(attempts):
                saved = datetime.fromisoformat(attempt.checkpoint_time or before.time)
                ended = datetime.fromisoformat(attempt.heard or before.time)
                lost_s += max(0.0, (ended - saved).total_seconds())
        return max(0, len(attempts) - 1), lost_s / 60

    def entries(self) -> list[str]:
        """Return the addresses of the run's top-level files and directories; a directory's ends with a slash."""
        return self.store.entries()

    def append_event(self, event: Event) -> None:
        """Append a line to events.jsonl; other machines may see it some seconds later."""
        self.store.append(EVENTS, json.dumps(event.to_dict(), ensure_ascii=False).encode() + b"\n")

    def events(self) -> list[Event]:
        """Return the events so far; an incomplete last line is ignored."""
        with self.reading(EVENTS):
            return [parse_event(json.loads(line)) for line in self._event_lines()]

    def rewind_events(self, count: int) -> None:
        """Keep the first `count` events: those after a checkpoint will happen again."""
        with self.reading(EVENTS):
            lines = [line.decode() for line in self._event_lines()[:count]]
        self.write_lines(EVENTS, lines)

    def event_count(self) -> int:
        """Return the number of events."""
        return len(self._event_lines())

    def _event_lines(self) -> list[bytes]:
        with self.reading(EVENTS):
            return self.store.local_path(EVENTS).read_bytes().split(b"\n")[:-1]

    def progress(self) -> Progress:
        """Return the last checkpoint's progress; an empty one if there is none."""
        return checkpoints.read_progress(self.store)

    def intact_progress(self) -> tuple[Progress, str]:
        """Return the newest progress whose checkpoints are undamaged, and the damage of later ones, if any."""
        return checkpoints.find_intact_progress(self.store)

    def checkpoint_damage(self, progress: Progress, name: str) -> str:
        """Return what is wrong with a checkpoint's files; empty if they match their hashes, or none were recorded."""
        return checkpoints.describe_damage(self.store, progress, name)

    def checkpoint(self, name: str) -> Path:
        """Return a checkpoint's directory."""
        return self.directory / checkpoints.format_directory(name)

    def write_progress(self, progress: Progress) -> None:
        """Record the progress once its checkpoints are stored, and remove those that it does not name."""
        self.store.flush(*map(checkpoints.format_directory, progress.checkpoints), EVENTS)
        self.write_json(PROGRESS, asdict(progress))
        self.store.keep_checkpoints(progress.checkpoints)

    def delete(self) -> None:
        """Remove the run and everything in it, unless it is running; a process that still works on it then ends."""
        self.store.remove()

    def reading(self, name: str) -> AbstractContextManager[None]:
        """Translate errors of reading and parsing a file of the run into a RunError."""
        return formats.reading(self.store, name)


def _find_store(where: str | Path) -> RunStore:
    return BucketStore(str(where)) if addresses.is_remote(where) else LocalStore(addresses.require_local(where))


def _initial_files(spec: Spec, lock: dict[str, Any]) -> dict[str, str]:
    """Return the files of a new run; in Cloud Storage the first takes the name, and the last makes it a run."""
    state = RunState("waiting", created=datetime.now(UTC).isoformat())
    return {
        "spec.toml": specs.to_toml(spec),
        "lock.json": formats.to_json(lock),
        EVENTS: "",
        STATE: formats.to_json(asdict(state)),
    }
