"""Run: one attempt at a spec, wherever it is: its spec, lock, state, events, checkpoints and what came out."""

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
        """Where the run's files are on this machine; of one in Cloud Storage, those that were asked for or written."""
        return self.store.directory

    @property
    def name(self) -> str:
        """Time and a short word."""
        return self.directory.name

    @property
    def address(self) -> str:
        """Where the run is, as a user names it."""
        return self.store.address

    @property
    def bundle(self) -> Path:
        """Where the bundle is, once there is one; of a run in Cloud Storage, a copy."""
        here = self.directory / "bundle"
        if not here.is_dir() and self.has_bundle():
            self.store.fetch_directory("bundle")
        return here

    @property
    def bundle_address(self) -> str:
        """Where the bundle is, for those who are elsewhere."""
        return f"{self.store.absolute_address}/bundle"

    @property
    def tracker_dir(self) -> Path:
        """Where trackers keep what runs share."""
        return self.store.tracker_dir

    @classmethod
    def create(cls, runs: str | Path, spec: Spec, lock: dict[str, Any], *, name: str = "") -> "Run":
        """A new run in a directory or in Cloud Storage, waiting: it appears whole, under a name that nothing else has.

        A name may be given; if that is taken, it is refused.
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
                if name:  # else another process was faster, and there is a later name
                    raise

    @classmethod
    def open(cls, where: str | Path | RunStore) -> "Run":
        """A run that is there."""
        run = cls(where)
        run.refresh()
        if not run.exists():
            top = f" --runs {run.address.rpartition('/')[0]}" if addresses.is_remote(run.address) else ""
            raise RunError(f"{run.address} is not a run", hint=f"tagline runs list{top} shows those that are there")
        return run

    def exists(self) -> bool:
        """Whether it is a run: it has all that a run begins with."""
        try:
            return all(self.store.has(name) for name in NEEDED)
        except OSError:  # another user's, who lets nobody look
            return False

    def has_bundle(self) -> bool:
        """Whether the run has a complete bundle."""
        return self.store.has(f"bundle/{MANIFEST}")

    def refresh(self) -> None:
        """See what is there now, in a run that a process elsewhere may have gone on with."""
        self.store.refresh()

    def created(self) -> str:
        """When the run was made, as its state tells."""
        return self.recorded_state().created

    def spec(self) -> Spec:
        """The spec as it was resolved."""
        with self.reading("spec.toml"):
            try:
                return specs.load_recorded(self.store.local_path("spec.toml"))
            except SpecError as error:
                raise formats.make_damage_error(self.store, "spec.toml", error.message) from error

    def spec_text(self) -> str:
        """The spec for people who read a report: every default written out, without where it ran."""
        return specs.to_toml(self.spec(), with_place=False)

    def lock(self) -> dict[str, Any]:
        """What the run depends on: data, versions, device, seed."""
        with self.reading("lock.json"):
            found = formats.read_object(self.store, "lock.json")
            formats.LOCK.validate_python(found)
        return found

    def report(self) -> Report | None:
        """The report, once there is one."""
        if not self.store.local_path("report.json").is_file():
            return None
        found = formats.read_object(self.store, "report.json")
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
            lines = self.store.local_path("predictions.jsonl").read_text("utf-8").split("\n")
            rows = [json.loads(line) for line in lines if line]
            for row in rows:
                formats.PREDICTION.validate_python(row)
        return rows

    def recorded_state(self) -> RunState:
        """Where the run stands, as it was written down."""
        return formats.read_state(self.store)

    def state(self) -> RunState:
        """Where the run stands; one whose process is gone has failed, whatever its file still says.

        Of one in Cloud Storage that runs elsewhere, it tells when it was last heard of.
        """
        state = self.recorded_state()
        if state.name == "running" and not self.store.is_held():
            state = self.recorded_state()  # it may have ended, and said so, before it let go
        if state.name == "running" and (heard := self.store.find_last_write()):
            return replace(state, reason=f"last heard of at {heard:%Y-%m-%d %H:%M:%S} UTC")
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
        """Whether the rehearsal that should do this run does not run any more; one that keeps the run has answered."""
        facts = str(job.get("rehearsal_facts") or "")
        return bool(facts) and not addresses.is_remote(self.address) and not find_live_process(Path(facts))

    def set_state(self, name: StateName, reason: str = "") -> None:
        """Write down where the run stands now."""
        if name == "succeeded":
            self.store.flush_all()  # a run that succeeded has its bundle
        self.store.flush(EVENTS)
        old, now = self.recorded_state(), datetime.now(UTC).isoformat()
        started = old.started or (now if name == "running" else "")
        ended = now if name in ("succeeded", "failed", "cancelled") else ""
        self.write_json(STATE, asdict(replace(old, name=name, started=started, ended=ended, reason=reason)))

    def read_json(self, name: str) -> Any:
        """A JSON file of the run; None where there is none."""
        return formats.read_object(self.store, name) if self.store.local_path(name).is_file() else None

    def write_json(self, name: str, value: Any) -> None:
        """A JSON file of the run, whole."""
        self.write_text(name, formats.to_json(value))

    def write_text(self, name: str, text: str) -> None:
        """A text file of the run, whole."""
        self.store.write_text(name, text)

    def write_lines(self, name: str, lines: Sequence[str]) -> None:
        """A file of lines, whole."""
        self.write_text(name, "".join(f"{line}\n" for line in lines))

    def held(self) -> AbstractContextManager[None]:
        """Keep every other process from writing this run; ends with the process, however that ends."""
        return self.store.held()

    def worked_on(self) -> AbstractContextManager[None]:
        """Have all that the run holds here, and in the end take what was added to where the run is."""
        return self.store.worked_on()

    def begin_attempt(self, progress: Progress | None = None) -> None:
        """Write down that the run starts, or starts again from this progress; by default from the recorded one."""
        attempts, events = self.attempts(), self.events()
        progress = progress or self.progress()
        heard = events[-1].time if events else attempts[-1].time if attempts else ""
        now = datetime.now(UTC).isoformat()
        begun = AttemptRecord(now, socket.gethostname(), progress.last, progress.time, heard)
        self.write_lines(ATTEMPTS, [json.dumps(asdict(each)) for each in (*attempts, begun)])

    def attempts(self) -> list[AttemptRecord]:
        """Every start of the run, oldest first."""
        path, known = self.store.local_path(ATTEMPTS), TypeAdapter(AttemptRecord)
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
        return self.store.entries()

    def append_event(self, event: Event) -> None:
        """One line at the end of events.jsonl; elsewhere it may be seen some seconds later."""
        self.store.append(EVENTS, json.dumps(event.to_dict(), ensure_ascii=False).encode() + b"\n")

    def events(self) -> list[Event]:
        """What has happened so far; a last line that was cut off is not there yet."""
        with self.reading(EVENTS):
            return [parse_event(json.loads(line)) for line in self._event_lines()]

    def rewind_events(self, count: int) -> None:
        """Forget what happened after a checkpoint: it will happen again."""
        with self.reading(EVENTS):
            lines = [line.decode() for line in self._event_lines()[:count]]
        self.write_lines(EVENTS, lines)

    def event_count(self) -> int:
        """How many events there are."""
        return len(self._event_lines())

    def _event_lines(self) -> list[bytes]:
        with self.reading(EVENTS):
            return self.store.local_path(EVENTS).read_bytes().split(b"\n")[:-1]

    def progress(self) -> Progress:
        """The last checkpoint's progress, or none."""
        return checkpoints.read_progress(self.store)

    def intact_progress(self) -> tuple[Progress, str]:
        """The newest progress whose checkpoints are undamaged, and what is wrong with later ones, if anything is."""
        return checkpoints.find_intact_progress(self.store)

    def checkpoint_damage(self, progress: Progress, name: str) -> str:
        """What is wrong with a checkpoint's files; nothing where they are as recorded, or no hashes were recorded."""
        return checkpoints.describe_damage(self.store, progress, name)

    def checkpoint(self, name: str) -> Path:
        """A checkpoint's directory."""
        return self.directory / checkpoints.format_directory(name)

    def write_progress(self, progress: Progress) -> None:
        """Make a checkpoint count once all of it is where the run is, and remove the ones that no longer do."""
        self.store.flush(*map(checkpoints.format_directory, progress.checkpoints), EVENTS)
        self.write_json(PROGRESS, asdict(progress))
        self.store.keep_checkpoints(progress.checkpoints)

    def delete(self) -> None:
        """Remove the run and everything in it, unless it is running; a process that still works on it then ends."""
        self.store.remove()

    def reading(self, name: str) -> AbstractContextManager[None]:
        """Translate whatever is raised while a file of the run is read, or something is made of what it holds."""
        return formats.reading(self.store, name)


def _find_store(where: str | Path) -> RunStore:
    return BucketStore(str(where)) if addresses.is_remote(where) else LocalStore(addresses.require_local(where))


def _initial_files(spec: Spec, lock: dict[str, Any]) -> dict[str, str]:
    """What a run begins with; in Cloud Storage the first takes the name, and the last makes it a run."""
    state = RunState("waiting", created=datetime.now(UTC).isoformat())
    return {
        "spec.toml": specs.to_toml(spec),
        "lock.json": formats.to_json(lock),
        EVENTS: "",
        STATE: formats.to_json(asdict(state)),
    }
