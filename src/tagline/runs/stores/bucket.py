"""BucketStore: a run in Cloud Storage, worked on in a scratch directory of this machine."""

import json
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from tagline.errors import Conflict, DataError, NameTaken, PlaceError, RunError, TaglineError
from tagline.gcp import cloud_storage
from tagline.gcp.cloud_storage import RemoteObject
from tagline.prediction.bundle import MANIFEST
from tagline.runs.checkpoints import PROGRESS, format_directory, read_progress
from tagline.runs.formats import ATTEMPTS, NEEDED, STATE, read_state
from tagline.runs.stores.local import LocalStore
from tagline.storage import addresses, atomic, hashing

APPENDED_EVERY_S = 5.0
PATIENCE_S = 600.0
"""How long a run waits for a network or a service that is away, rather than lose what it has learned."""
SILENT = timedelta(minutes=10)
"""A run that has not been heard of for so long may be removed, whatever its state says."""
TRIES = 8


class BucketStore:
    """Cloud Storage. Files are here once they are asked for; what is written goes there at once.

    Whoever holds the run has taken it over: any other process that still works on it ends with a `Conflict` at its next
    write that counts, and has damaged nothing until then.
    """

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        with atomic.disk_errors(Path(tempfile.gettempdir())):
            scratch = Path(tempfile.mkdtemp(prefix=atomic.SCRATCH_PREFIX))
            weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)
            self.directory = scratch / "runs" / self.address.rpartition("/")[2]
            self.directory.mkdir(parents=True)
        self._mirror = LocalStore(self.directory)
        self._there: dict[str, RemoteObject] = {}
        """What is in the bucket, as it was last seen or written from here."""
        self._sent: dict[str, tuple[int, ...]] = {}
        """The files here that are the same as there."""
        self._is_held_here = False
        self._is_lost = False
        self._appended_due = 0.0

    @classmethod
    def create(cls, address: str, files: Mapping[str, str]) -> Self:
        """A new run that begins with these files, uploaded in this order; a first one that is there is `NameTaken`."""
        store = cls(address)
        for name, text in files.items():
            (store.directory / name).write_text(text, "utf-8")
        try:
            for name in files:
                path = store.directory / name
                store._there[name] = cloud_storage.upload(path, f"{store.address}/{name}", if_generation=0)
                store._sent[name] = _read_stamp(path)
        except Conflict as error:
            top, _, taken = store.address.rpartition("/")
            raise NameTaken(f"there is a run {taken} in {top} already", hint="give it another name") from error
        return store

    @property
    def absolute_address(self) -> str:
        """The address, which is the same everywhere."""
        return self.address

    @property
    def tracker_dir(self) -> Path:
        """In the run itself: other processes have scratch directories of their own."""
        return self.directory

    def has(self, name: str) -> bool:
        """Whether it was there when last looked at; while the run is held, whether it is here."""
        return self._mirror.has(name) if self._is_held_here else name in self._there

    def entries(self) -> list[str]:
        """What was there when last looked at."""
        tops = {"".join(name.partition("/")[:2]) for name in self._there}
        return [f"{self.address}/{top}" for top in sorted(tops)]

    def refresh(self) -> None:
        """See what is there now; what was read from here before is read anew if it has changed."""
        found = {self._relative_name(each): each for each in cloud_storage.list_objects(f"{self.address}/")}
        for name, known in self._there.items():
            if name not in found or found[name].generation != known.generation:
                (self.directory / name).unlink(missing_ok=True)
                self._sent.pop(name, None)
        self._there = found

    def is_held(self) -> bool:
        """Nobody here can know; `find_last_write` says when it was last heard of."""
        return True

    def find_last_write(self) -> datetime | None:
        """When the run was last written to, unless it is held here."""
        times = [each.updated for each in self._there.values() if each.updated and not self._is_held_here]
        return datetime.fromisoformat(max(times)) if times else None

    def local_path(self, name: str) -> Path:
        """A file of the mirror; it is brought here, unless the run is held: then all that counts is here."""
        path = self.directory / name
        if not self._is_held_here and name in self._there and not path.is_file():
            self._bring_files(lambda each: each == name)
        return path

    def fetch_directory(self, name: str) -> None:
        """Have all files of a directory of the run here as they are there."""
        self._bring_files(lambda each: each.startswith(f"{name}/"))

    def write_text(self, name: str, text: str) -> None:
        """Write a whole file, here and there."""
        self._mirror.write_text(name, text)
        self._push_file(name)

    def append(self, name: str, content: bytes) -> None:
        """Add to the end of a file; it is there after some seconds."""
        self._mirror.append(name, content)
        if time.monotonic() < self._appended_due:
            return
        with suppress(PlaceError):  # it goes with the next one, or with the checkpoint, which waits for the network
            self._push_file(name, patience_s=APPENDED_EVERY_S)
        self._appended_due = time.monotonic() + APPENDED_EVERY_S

    def flush(self, *names: str) -> None:
        """Take these directories there, several files at a time, then these files one by one."""
        directories = [name for name in names if (self.directory / name).is_dir()]
        if directories:
            below = tuple(f"{name}/" for name in directories)
            self._push_some(each for each in self._list_files() if each.startswith(below))
        for name in names:
            if name not in directories:
                self._push_file(name)

    def flush_all(self) -> None:
        """Take everything there that is not there as it is here, a bundle's manifest after its other files."""
        names = [name for name in self._list_files() if not name.startswith("checkpoints/") and name != STATE]
        last = [name for name in names if name.endswith(f"/{MANIFEST}")]
        self._push_some(name for name in names if name not in last)
        self._push_some(last)

    def keep_checkpoints(self, names: Sequence[str]) -> None:
        """Remove all other checkpoints here, and there as far as they were written or found from here.

        Another process may have taken over just now, and have others.
        """
        self._mirror.keep_checkpoints(names)
        kept = (PROGRESS, *(f"{format_directory(name)}/" for name in names))
        gone = [name for name in self._there if name.startswith("checkpoints/") and not name.startswith(kept)]
        addresses.run_concurrently(cloud_storage.delete, [self._there.pop(name) for name in gone])
        for name in gone:
            self._sent.pop(name, None)

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
                self.flush_all()
            raise
        self.flush_all()

    def remove(self) -> None:
        """Remove the run, unless it is running and was heard of lately; a process that still works on it then ends."""
        self.refresh()
        heard = self.find_last_write()
        if read_state(self).name == "running" and heard and datetime.now(UTC) - heard < SILENT:
            hint = f"stop it first, or wait until it has been silent for {SILENT.seconds // 60} minutes"
            raise RunError(f"{self.address} is in use: last heard of at {heard:%H:%M:%S} UTC", hint=hint)
        cloud_storage.delete(self._there[STATE])  # from here on it is no run
        addresses.remove_remote(self.address)

    def download(self, directory: Path, *, without: tuple[str, ...]) -> None:
        """Copy the run's files, as they were last seen, into a directory, but for those below these directories."""
        below = tuple(f"{name}/" for name in without)
        wanted = [each for name, each in self._there.items() if not name.startswith(below)]
        addresses.copy_down(wanted, directory, below=self.address)

    def _take_over(self) -> None:
        """Write the state anew, as it is, then the progress: what another process knows of them is then out of date.

        Whoever has the state has the run. Who still has it after writing the progress can be sure that no checkpoint
        counts, and none is removed, but from here; so the rest is read then.
        """
        self._claim_file(STATE, "")
        if read_state(self).name == "succeeded":
            raise RunError(f"run {self.directory.name} is complete", hint=f"tagline runs show {self.address}")
        self._claim_file(PROGRESS, "{}")
        self._check_ownership()
        self.refresh()
        progress = read_progress(self)
        needed = tuple(f"{format_directory(name)}/" for name in (progress.last, progress.best) if name)
        kept = tuple(f"{format_directory(name)}/" for name in progress.checkpoints)
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
        return Conflict(f"{who} has taken over run {self.directory.name}", hint=hint)

    def _make_gone_error(self) -> TaglineError:
        """What to say when the run, or its bucket, is not there any more."""
        try:
            cloud_storage.list_objects(f"{self.address}/")
        except DataError:
            return PlaceError(f"the bucket of {self.address} is not there any more", hint="was it removed?")
        return RunError(
            f"run {self.directory.name} is not in {self.address.rpartition('/')[0]} any more", hint="was it removed?"
        )

    def _relative_name(self, found: RemoteObject) -> str:
        return found.address.removeprefix(f"{self.address}/")


def _read_stamp(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def list_stores(address: str) -> list[BucketStore]:
    """One for each name below an address, whether it is a run or not; one listing tells what is in all of them."""
    top = address.rstrip("/")
    found: dict[str, BucketStore] = {}
    for each in cloud_storage.list_objects(f"{top}/"):
        name, _, rest = each.address.removeprefix(f"{top}/").partition("/")
        if rest:
            store = found.get(name) or found.setdefault(name, BucketStore(f"{top}/{name}"))
            store._there[rest] = each
    return list(found.values())
