"""MirroredRun: a run in Cloud Storage, worked on in a scratch directory; and runs found wherever they are."""

import json
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from tagline.errors import Conflict, DataError, NameTaken, PlaceError, RunError, TaglineError
from tagline.gcp import cloud_storage
from tagline.gcp.cloud_storage import RemoteObject
from tagline.prediction.bundle import MANIFEST
from tagline.runs.events import Event
from tagline.runs.run import (
    ATTEMPTS,
    NEEDED,
    PROGRESS,
    Progress,
    Run,
    RunState,
    StateName,
    check_name,
    choose_name,
    write_initial_files,
)
from tagline.spec import Spec
from tagline.storage import addresses, atomic, hashing

EVENTS, STATE = "events.jsonl", "state.json"
EVENTS_EVERY_S = 5.0
PATIENCE_S = 600.0
"""How long a run waits for a network or a service that is away, rather than lose what it has learned."""
SILENT = timedelta(minutes=10)
"""A run that has not been heard of for so long may be removed, whatever its state says."""
TRIES = 8


class MirroredRun(Run):
    """A run in Cloud Storage. Files are here once they are asked for; what is written goes there at once.

    Whoever holds it has taken it over: any other process that still works on it ends with a `Conflict` at its next
    write that counts, and has damaged nothing until then.
    """

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")
        with atomic.disk_errors(Path(tempfile.gettempdir())):
            scratch = Path(tempfile.mkdtemp(prefix=atomic.SCRATCH_PREFIX))
            weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)
            super().__init__(scratch / "runs" / self._address.rpartition("/")[2])
            self.directory.mkdir(parents=True)
        self._there: dict[str, RemoteObject] = {}
        """What is in the bucket, as it was last seen or written from here."""
        self._sent: dict[str, tuple[int, ...]] = {}
        """The files here that are the same as there."""
        self._is_held_here = False
        self._is_lost = False
        self._events_due = 0.0

    @classmethod
    def at(cls, address: str) -> Self:
        """A run that is there."""
        run = cls(address)
        run.refresh()
        if not run._is_run():
            hint = f"tagline runs list --runs {run.address.rpartition('/')[0]} shows those that are there"
            raise RunError(f"{run.address} is not a run", hint=hint)
        return run

    @property
    def address(self) -> str:
        """Where the run is."""
        return self._address

    @property
    def bundle(self) -> Path:
        """A copy of the bundle that is there; while the run is worked on here, where it will be."""
        here = self.directory / "bundle"
        if not self._is_held_here and not here.is_dir() and f"bundle/{MANIFEST}" in self._there:
            self._bring_files(lambda name: name.startswith("bundle/"))
        return here

    @property
    def bundle_address(self) -> str:
        """Where the bundle is, for those who are elsewhere."""
        return f"{self.address}/bundle"

    @property
    def tracker_dir(self) -> Path:
        """In the run itself: other processes have scratch directories of their own."""
        return self.directory

    def refresh(self) -> None:
        """See what is there now; what was read from here before is read anew if it has changed."""
        found = {self._relative_name(each): each for each in cloud_storage.list_objects(f"{self.address}/")}
        for name, known in self._there.items():
            if name not in found or found[name].generation != known.generation:
                (self.directory / name).unlink(missing_ok=True)
                self._sent.pop(name, None)
        self._there = found

    def state(self) -> RunState:
        """Where the run stands; of one that runs elsewhere, also when it was last heard of."""
        state = super().state()
        if state.name == "running" and not self._is_held_here and (heard := self._find_last_write()):
            return replace(state, reason=f"last heard of at {heard:%Y-%m-%d %H:%M:%S} UTC")
        return state

    def set_state(self, name: StateName, reason: str = "") -> None:
        """Write down where the run stands now; one that succeeded has its bundle there first."""
        if name == "succeeded":
            self._push_all()
        self._push_file(EVENTS)
        super().set_state(name, reason)

    def write_text(self, name: str, text: str) -> None:
        """A text file of the run, whole, here and there."""
        super().write_text(name, text)
        self._push_file(name)

    def append_event(self, event: Event) -> None:
        """One line at the end of events.jsonl; it is there after some seconds."""
        super().append_event(event)
        if time.monotonic() < self._events_due:
            return
        with suppress(PlaceError):  # it goes with the next one, or with the checkpoint, which waits for the network
            self._push_file(EVENTS, patience_s=EVENTS_EVERY_S)
        self._events_due = time.monotonic() + EVENTS_EVERY_S

    def write_progress(self, progress: Progress) -> None:
        """Make a checkpoint count once all of it is there, and remove the ones that no longer do."""
        kept = tuple(f"checkpoints/{name}/" for name in progress.checkpoints)
        self._push_some(name for name in self._list_files() if name.startswith(kept))
        self._push_file(EVENTS)
        super().write_progress(progress)
        self._push_file(PROGRESS)
        # Only what was written or found here: another process may have taken over just now, and have others.
        self._remove_files(
            name for name in self._there if name.startswith("checkpoints/") and not name.startswith(kept)
        )

    def _bring_checkpoint(self, name: str) -> None:
        """Have a checkpoint's files on this machine."""
        self._bring_files(lambda each: each.startswith(f"checkpoints/{name}/"))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Take the run over from whoever worked on it, with its last and its best checkpoint."""
        self._is_held_here = True
        try:
            self._take_over()
            yield
        finally:
            self._is_held_here = False

    @contextmanager
    def worked_on(self) -> Iterator[None]:
        """Have here what trackers and others have added to the run, and take there what they add now."""
        self.refresh()
        self._bring_files(lambda name: not name.startswith(("checkpoints/", "bundle/")))
        try:
            yield
        except BaseException:
            with suppress(TaglineError):  # what has happened says more
                self._push_all()
            raise
        self._push_all()

    def entries(self) -> list[str]:
        """What is in the run, by its addresses; a directory's ends with a slash."""
        tops = {"".join(name.partition("/")[:2]) for name in self._there}
        return [f"{self.address}/{top}" for top in sorted(tops)]

    def delete(self) -> None:
        """Remove the run and everything in it, unless it is running; a process that still works on it then ends."""
        self.refresh()
        heard = self._find_last_write()
        if super().state().name == "running" and heard and datetime.now(UTC) - heard < SILENT:
            hint = f"stop it first, or wait until it has been silent for {SILENT.seconds // 60} minutes"
            raise RunError(f"{self.address} is in use: last heard of at {heard:%H:%M:%S} UTC", hint=hint)
        cloud_storage.delete(self._there[STATE])  # from here on it is no run
        addresses.remove_remote(self.address)

    def _take_over(self) -> None:
        """Write the state anew, as it is, then the progress: what another process knows of them is then out of date.

        Whoever has the state has the run. Who still has it after writing the progress can be sure that no checkpoint
        counts, and none is removed, but from here; so the rest is read then.
        """
        self._claim_file(STATE, "")
        if super().state().name == "succeeded":
            raise RunError(f"run {self.name} is complete", hint=f"tagline runs show {self.address}")
        self._claim_file(PROGRESS, "{}")
        self._check_ownership()
        self.refresh()
        progress = self.progress()
        needed = tuple(f"checkpoints/{name}/" for name in (progress.last, progress.best) if name)
        kept = tuple(f"checkpoints/{name}/" for name in progress.checkpoints)
        self._bring_files(lambda name: name in (*NEEDED, ATTEMPTS) or name.startswith(needed))
        left = [
            each
            for each in cloud_storage.list_objects(f"{self.address}/checkpoints/", unfinished=True)
            if self._relative_name(each) != PROGRESS and not self._relative_name(each).startswith(kept)
        ]
        addresses.run_concurrently(cloud_storage.delete, left)

    def _claim_file(self, name: str, first: str) -> None:
        """A file of the run here as it is there, in a generation that is ours; where there is none, a first one."""
        path = self.directory / name
        for _ in range(TRIES):
            found = cloud_storage.object_at(f"{self.address}/{name}")
            if found is None and not first:
                raise self._make_gone_error()
            with suppress(Conflict):  # it was written between the look and the reading, or the writing: look again
                atomic.write_text(path, cloud_storage.read_bytes(found).decode() if found else first)
                self._there[name] = cloud_storage.upload(
                    path, f"{self.address}/{name}", if_generation=found.generation if found else 0
                )
                self._sent[name] = _read_stamp(path)
                return
            if name != STATE:
                self._check_ownership()
        raise Conflict(f"{self.address} is being taken over by other processes", hint="leave it to one of them")

    def _push_file(self, name: str, *, patience_s: float = PATIENCE_S) -> None:
        """Take a file there, if it is not there as it is here."""
        if self._is_lost:
            raise self._make_lost_error()
        path, address = self.directory / name, f"{self.address}/{name}"
        if not path.is_file() or self._sent.get(name) == (stamp := _read_stamp(path)):
            return
        known = self._there.get(name)
        for _ in range(TRIES):
            try:
                made = cloud_storage.upload(
                    path, address, if_generation=known.generation if known else 0, patience_s=patience_s
                )
            except Conflict:
                self._check_ownership()
                # The run is ours: a process that lost it wrote this before it knew. What we have is what counts.
                known = cloud_storage.object_at(address)
                continue
            self._there[name], self._sent[name] = made, stamp
            return
        raise Conflict(f"{address} is written by others all the time", hint="who else writes there?")

    def _push_some(self, names: Iterable[str]) -> None:
        addresses.run_concurrently(
            self._push_file, list(names), size=lambda name: (self.directory / name).stat().st_size
        )

    def _push_all(self) -> None:
        """Everything that is not there as it is here, a bundle's manifest after its other files."""
        names = [name for name in self._list_files() if not name.startswith("checkpoints/") and name != STATE]
        last = [name for name in names if name.endswith(f"/{MANIFEST}")]
        self._push_some(name for name in names if name not in last)
        self._push_some(last)

    def _list_files(self) -> list[str]:
        """The files of the run that are here and finished."""
        found = (path.relative_to(self.directory) for path in hashing.files_below(self.directory))
        return [path.as_posix() for path in found if not any(part.startswith(".") for part in path.parts)]

    def _bring_files(self, is_wanted: Callable[[str], bool]) -> None:
        """Have these files here as they are there."""
        for _ in range(TRIES):
            missing = [name for name in self._there if is_wanted(name) and not (self.directory / name).is_file()]
            if not missing:
                return
            try:
                self._download_files([self._there[name] for name in missing])
            except Conflict:
                self.refresh()
        raise Conflict(f"{self.address} changes faster than it can be read", hint="try again")

    def _download_files(self, found: list[RemoteObject]) -> None:
        """Files appear whole: another part of this process may be reading."""
        with (
            atomic.disk_errors(self.directory),
            tempfile.TemporaryDirectory(prefix=atomic.SCRATCH_PREFIX, dir=self.directory) as scratch,
        ):
            addresses.copy_down(found, Path(scratch), below=self.address)
            for each in found:
                path = self.directory / self._relative_name(each)
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(Path(scratch) / self._relative_name(each), path)
                self._sent[self._relative_name(each)] = _read_stamp(path)

    def _remove_files(self, names: Iterable[str]) -> None:
        gone = [name for name in list(names) if name != PROGRESS]
        addresses.run_concurrently(cloud_storage.delete, [self._there.pop(name) for name in gone])
        for name in gone:
            self._sent.pop(name, None)

    def _local_path(self, name: str) -> Path:
        """A file of the run, to be read; it is brought here, unless all of it is here."""
        path = self.directory / name
        if not self._is_held_here and name in self._there and not path.is_file():
            self._bring_files(lambda each: each == name)
        return path

    def _check_ownership(self) -> None:
        """End here if another process has taken the run over."""
        there, known = cloud_storage.object_at(f"{self.address}/{STATE}"), self._there.get(STATE)
        if there is None:
            raise self._make_gone_error()
        if known is None or there.generation != known.generation:
            raise self._make_lost_error()

    def _make_lost_error(self) -> Conflict:
        """What to say when another process has taken the run over; nothing is written from here any more."""
        self._is_lost = True
        who = "another process"
        with suppress(TaglineError, ValueError, KeyError, IndexError):
            found = cloud_storage.object_at(f"{self.address}/{ATTEMPTS}")
            last = json.loads(cloud_storage.read_bytes(found).splitlines()[-1]) if found else {}
            who = f"a process on {last['host']}, started at {last['time']},"
        hint = "this one has ended and changed nothing since; tagline runs show " + self.address
        return Conflict(f"{who} has taken over run {self.name}", hint=hint)

    def _make_gone_error(self) -> TaglineError:
        """What to say when the run, or its bucket, is not there any more."""
        try:
            cloud_storage.list_objects(f"{self.address}/")
        except DataError:
            return PlaceError(f"the bucket of {self.address} is not there any more", hint="was it removed?")
        return RunError(f"run {self.name} is not in {self.address.rpartition('/')[0]} any more", hint="was it removed?")

    def _find_last_write(self) -> datetime | None:
        """When the run was last written to."""
        times = [each.updated for each in self._there.values() if each.updated]
        return datetime.fromisoformat(max(times)) if times else None

    def _is_run(self) -> bool:
        return all(name in self._there for name in NEEDED)

    def _is_held(self) -> bool:
        """Nobody here can know; the state says when it was last heard of."""
        return True

    def _has_lost_rehearsal(self, job: dict[str, Any]) -> bool:  # noqa: ARG002
        """No: what answers about this run is that rehearsal."""
        return False

    def _relative_name(self, found: RemoteObject) -> str:
        return found.address.removeprefix(f"{self.address}/")


def _read_stamp(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def create_remote_run(address: str, name: str, spec: Spec, lock: dict[str, Any]) -> MirroredRun:
    """A new run below an address in Cloud Storage, waiting; a name that is taken is refused, none is made up."""
    if name:
        check_name(name)
    top = address.rstrip("/")
    while True:
        run = MirroredRun(f"{top}/{name or choose_name(list_remote_names(top))}")
        write_initial_files(run.directory, spec, lock)
        try:
            # The spec takes the name, the state makes it a run.
            for part in ("spec.toml", "lock.json", EVENTS, STATE):
                run._there[part] = cloud_storage.upload(run.directory / part, f"{run.address}/{part}", if_generation=0)
                run._sent[part] = _read_stamp(run.directory / part)
        except Conflict as error:
            if name:
                raise NameTaken(f"there is a run {name} in {top} already", hint="give it another name") from error
            continue
        return run


def list_remote_names(address: str) -> list[str]:
    """The first parts of the names below an address."""
    return sorted(
        {
            each.address.removeprefix(f"{address}/").partition("/")[0]
            for each in cloud_storage.list_objects(f"{address}/")
        }
    )
