"""BucketStore: a run in Cloud Storage, mirrored in a local scratch directory."""

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

APPEND_INTERVAL_S = 5.0
PATIENCE_S = 600.0
"""How long a run waits for an unreachable network or service, rather than lose its progress."""
SILENT = timedelta(minutes=10)
"""A run without a heartbeat for this long may be removed, whatever its state says."""
TRIES = 8


class BucketStore:
    """A run in Cloud Storage. Files are downloaded when they are read, and uploaded when they are written.

    Optimistic concurrency: a process that holds the run has taken it over, and any other process that still works on it
    ends with a `Conflict` at its next write that counts, and has damaged nothing until then.
    """

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        with atomic.disk_errors(Path(tempfile.gettempdir())):
            scratch = Path(tempfile.mkdtemp(prefix=atomic.SCRATCH_PREFIX))
            weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)
            self.directory = scratch / "runs" / self.address.rpartition("/")[2]
            self.directory.mkdir(parents=True)
        self._mirror = LocalStore(self.directory)
        self._remote: dict[str, RemoteObject] = {}
        """The objects in the bucket, as last listed or uploaded by this process."""
        self._synced: dict[str, tuple[int, ...]] = {}
        """The stamps of local files that are the same as in the bucket."""
        self._is_held_here = False
        self._is_lost = False
        self._appended_due = 0.0

    @classmethod
    def create(cls, address: str, files: Mapping[str, str]) -> Self:
        """Create a run with these files, uploaded in this order; raise NameTaken if the first one exists."""
        store = cls(address)
        for name, text in files.items():
            (store.directory / name).write_text(text, "utf-8")
        try:
            for name in files:
                path = store.directory / name
                store._remote[name] = cloud_storage.upload(path, f"{store.address}/{name}", if_generation=0)
                store._synced[name] = _read_stamp(path)
        except Conflict as error:
            top, _, taken = store.address.rpartition("/")
            raise NameTaken(f"there is a run {taken} in {top} already", hint="give it another name") from error
        return store

    @property
    def absolute_address(self) -> str:
        """The address, which is always absolute."""
        return self.address

    @property
    def tracker_dir(self) -> Path:
        """The run's own directory: other processes have scratch directories of their own."""
        return self.directory

    def has(self, name: str) -> bool:
        """Return whether a file is in the last listing; while the run is held, whether it exists locally."""
        return self._mirror.has(name) if self._is_held_here else name in self._remote

    def entries(self) -> list[str]:
        """Return the top-level entries of the last listing."""
        tops = {"".join(name.partition("/")[:2]) for name in self._remote}
        return [f"{self.address}/{top}" for top in sorted(tops)]

    def refresh(self) -> None:
        """List the bucket anew, and drop local copies that are out of date."""
        listed = {self._relative_name(each): each for each in cloud_storage.list_objects(f"{self.address}/")}
        for name, known in self._remote.items():
            if name not in listed or listed[name].generation != known.generation:
                (self.directory / name).unlink(missing_ok=True)
                self._synced.pop(name, None)
        self._remote = listed

    def is_held(self) -> bool:
        """Return True: it cannot be determined; `find_last_write` gives the last heartbeat."""
        return True

    def find_last_write(self) -> datetime | None:
        """Return when the run was last written to; None while this process holds it."""
        times = [each.updated for each in self._remote.values() if each.updated and not self._is_held_here]
        return datetime.fromisoformat(max(times)) if times else None

    def local_path(self, name: str) -> Path:
        """Return a file of the mirror, downloaded if missing; while the run is held, the mirror is complete."""
        path = self.directory / name
        if not self._is_held_here and name in self._remote and not path.is_file():
            self._bring_files(lambda each: each == name)
        return path

    def fetch_directory(self, name: str) -> None:
        """Download all files of a directory of the run."""
        self._bring_files(lambda each: each.startswith(f"{name}/"))

    def write_text(self, name: str, text: str) -> None:
        """Write a file to the mirror and to the bucket."""
        self._mirror.write_text(name, text)
        self._push_file(name)

    def append(self, name: str, content: bytes) -> None:
        """Append to a file; the bucket has it after some seconds."""
        self._mirror.append(name, content)
        if time.monotonic() < self._appended_due:
            return
        with suppress(PlaceError):  # the next append uploads it too, or the checkpoint, which waits for the network
            self._push_file(name, patience_s=APPEND_INTERVAL_S)
        self._appended_due = time.monotonic() + APPEND_INTERVAL_S

    def flush(self, *names: str) -> None:
        """Upload these directories, several files at a time, then these files one by one."""
        directories = [name for name in names if (self.directory / name).is_dir()]
        if directories:
            below = tuple(f"{name}/" for name in directories)
            self._push_some(each for each in self._list_files() if each.startswith(below))
        for name in names:
            if name not in directories:
                self._push_file(name)

    def flush_all(self) -> None:
        """Upload everything that has changed, a bundle's manifest after its other files."""
        names = [name for name in self._list_files() if not name.startswith("checkpoints/") and name != STATE]
        manifests = [name for name in names if name.endswith(f"/{MANIFEST}")]
        self._push_some(name for name in names if name not in manifests)
        self._push_some(manifests)

    def keep_checkpoints(self, names: Sequence[str]) -> None:
        """Remove all other checkpoints from the mirror, and from the bucket those that this process knows.

        Another process may have taken over just now, and have written others.
        """
        self._mirror.keep_checkpoints(names)
        kept = (PROGRESS, *(f"{format_directory(name)}/" for name in names))
        removed = [name for name in self._remote if name.startswith("checkpoints/") and not name.startswith(kept)]
        addresses.run_concurrently(cloud_storage.delete, [self._remote.pop(name) for name in removed])
        for name in removed:
            self._synced.pop(name, None)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Take the run over from any other process, with its last and its best checkpoint."""
        self._is_held_here = True
        try:
            self._take_over()
            yield
        finally:
            self._is_held_here = False

    @contextmanager
    def worked_on(self) -> Iterator[None]:
        """Download what trackers and others have added to the run, and in the end upload what they add now."""
        self.refresh()
        self._bring_files(lambda name: not name.startswith(("checkpoints/", "bundle/")))
        try:
            yield
        except BaseException:
            with suppress(TaglineError):  # the first error says more
                self.flush_all()
            raise
        self.flush_all()

    def remove(self) -> None:
        """Remove the run, unless it is running with a recent heartbeat; a process that still works on it then ends."""
        self.refresh()
        last_write = self.find_last_write()
        if read_state(self).name == "running" and last_write and datetime.now(UTC) - last_write < SILENT:
            hint = f"stop it first, or wait until it has been silent for {SILENT.seconds // 60} minutes"
            raise RunError(f"{self.address} is in use: last heard of at {last_write:%H:%M:%S} UTC", hint=hint)
        cloud_storage.delete(self._remote[STATE])  # without its state it is no run
        addresses.remove_remote(self.address)

    def download(self, directory: Path, *, without: tuple[str, ...]) -> None:
        """Download the files of the last listing into a directory, without those below the directories `without`."""
        below = tuple(f"{name}/" for name in without)
        wanted = [each for name, each in self._remote.items() if not name.startswith(below)]
        addresses.copy_down(wanted, directory, below=self.address)

    def _take_over(self) -> None:
        """Rewrite the state, then the progress, unchanged: their generations in other processes are then out of date.

        The process that wrote the state last owns the run. If it still does after writing the progress, no other
        process can make a checkpoint count, or remove one; so the rest is read then.
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
        leftover = [
            each
            for each in cloud_storage.list_objects(f"{self.address}/checkpoints/", unfinished=True)
            if self._relative_name(each) != PROGRESS and not self._relative_name(each).startswith(kept)
        ]
        addresses.run_concurrently(cloud_storage.delete, leftover)

    def _claim_file(self, name: str, initial: str) -> None:
        """Download a file and upload it again, as a generation of this process; create it if it does not exist."""
        path = self.directory / name
        for _ in range(TRIES):
            existing = cloud_storage.object_at(f"{self.address}/{name}")
            if existing is None and not initial:
                raise self._make_gone_error()
            with suppress(Conflict):  # it was written in between: retry
                atomic.write_text(path, cloud_storage.read_bytes(existing).decode() if existing else initial)
                self._remote[name] = cloud_storage.upload(
                    path, f"{self.address}/{name}", if_generation=existing.generation if existing else 0
                )
                self._synced[name] = _read_stamp(path)
                return
            if name != STATE:
                self._check_ownership()
        raise Conflict(f"{self.address} is being taken over by other processes", hint="leave it to one of them")

    def _push_file(self, name: str, *, patience_s: float = PATIENCE_S) -> None:
        """Upload a file, if it has changed."""
        if self._is_lost:
            raise self._make_lost_error()
        path, address = self.directory / name, f"{self.address}/{name}"
        if not path.is_file() or self._synced.get(name) == (stamp := _read_stamp(path)):
            return
        known = self._remote.get(name)
        for _ in range(TRIES):
            try:
                uploaded = cloud_storage.upload(
                    path, address, if_generation=known.generation if known else 0, patience_s=patience_s
                )
            except Conflict:
                self._check_ownership()
                # This process owns the run: one that lost it wrote this before it noticed. The local file counts.
                known = cloud_storage.object_at(address)
                continue
            self._remote[name], self._synced[name] = uploaded, stamp
            return
        raise Conflict(f"{address} is written by others all the time", hint="who else writes there?")

    def _push_some(self, names: Iterable[str]) -> None:
        addresses.run_concurrently(
            self._push_file, list(names), size=lambda name: (self.directory / name).stat().st_size
        )

    def _list_files(self) -> list[str]:
        """Return the finished files of the mirror."""
        names = (path.relative_to(self.directory) for path in hashing.files_below(self.directory))
        return [path.as_posix() for path in names if not any(part.startswith(".") for part in path.parts)]

    def _bring_files(self, is_wanted: Callable[[str], bool]) -> None:
        """Download these files, if they are missing."""
        for _ in range(TRIES):
            missing = [name for name in self._remote if is_wanted(name) and not (self.directory / name).is_file()]
            if not missing:
                return
            try:
                self._download_files([self._remote[name] for name in missing])
            except Conflict:
                self.refresh()
        raise Conflict(f"{self.address} changes faster than it can be read", hint="try again")

    def _download_files(self, objects: list[RemoteObject]) -> None:
        """Download files atomically: another thread of this process may be reading."""
        with (
            atomic.disk_errors(self.directory),
            tempfile.TemporaryDirectory(prefix=atomic.SCRATCH_PREFIX, dir=self.directory) as scratch,
        ):
            addresses.copy_down(objects, Path(scratch), below=self.address)
            for each in objects:
                path = self.directory / self._relative_name(each)
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(Path(scratch) / self._relative_name(each), path)
                self._synced[self._relative_name(each)] = _read_stamp(path)

    def _check_ownership(self) -> None:
        """Raise Conflict if another process has taken the run over."""
        current, known = cloud_storage.object_at(f"{self.address}/{STATE}"), self._remote.get(STATE)
        if current is None:
            raise self._make_gone_error()
        if known is None or current.generation != known.generation:
            raise self._make_lost_error()

    def _make_lost_error(self) -> Conflict:
        """Create the error that another process has taken the run over; no more writes are made from here."""
        self._is_lost = True
        owner = "another process"
        with suppress(TaglineError, ValueError, KeyError, IndexError):
            attempts = cloud_storage.object_at(f"{self.address}/{ATTEMPTS}")
            last = json.loads(cloud_storage.read_bytes(attempts).splitlines()[-1]) if attempts else {}
            owner = f"a process on {last['host']}, started at {last['time']},"
        hint = "this one has ended and changed nothing since; tagline runs show " + self.address
        return Conflict(f"{owner} has taken over run {self.directory.name}", hint=hint)

    def _make_gone_error(self) -> TaglineError:
        """Create the error that the run, or its bucket, does not exist any more."""
        try:
            cloud_storage.list_objects(f"{self.address}/")
        except DataError:
            return PlaceError(f"the bucket of {self.address} is not there any more", hint="was it removed?")
        return RunError(
            f"run {self.directory.name} is not in {self.address.rpartition('/')[0]} any more", hint="was it removed?"
        )

    def _relative_name(self, remote: RemoteObject) -> str:
        return remote.address.removeprefix(f"{self.address}/")


def _read_stamp(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def list_stores(address: str) -> list[BucketStore]:
    """Return a store for each name below an address, whether it is a run or not, with one listing for all."""
    top = address.rstrip("/")
    stores: dict[str, BucketStore] = {}
    for each in cloud_storage.list_objects(f"{top}/"):
        name, _, rest = each.address.removeprefix(f"{top}/").partition("/")
        if rest:
            store = stores.get(name) or stores.setdefault(name, BucketStore(f"{top}/{name}"))
            store._remote[rest] = each
    return list(stores.values())
