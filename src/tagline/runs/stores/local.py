"""LocalStore: a run in a directory of this machine."""

import fcntl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Self

from tagline.errors import NameTaken, PlaceError
from tagline.storage import atomic

DAY_S = 24 * 3600


class LocalStore:
    """A directory whose files are there whole or not at all; who holds it has a lock that ends with the process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def create(cls, directory: Path, files: Mapping[str, str]) -> Self:
        """A new run that begins with these files; it appears whole. A directory that is there is a `NameTaken`."""
        atomic.sweep_scratch(directory.parent, older_than_s=DAY_S)
        try:
            with atomic.writing_directory(directory) as scratch:
                for name, text in files.items():
                    (scratch / name).write_text(text, "utf-8")
        except PlaceError as error:
            if not directory.is_dir():  # else another process was faster
                raise
            said = f"there is a run {directory.name} in {directory.parent} already"
            raise NameTaken(said, hint="give it another name") from error
        return cls(directory)

    @property
    def address(self) -> str:
        """The directory, as the user named it."""
        return str(self.directory)

    @property
    def absolute_address(self) -> str:
        """The directory, whatever the working directory is."""
        return str(self.directory.absolute())

    @property
    def tracker_dir(self) -> Path:
        """The directory of runs, which this one is in."""
        return self.directory.absolute().parent

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return (self.directory / name).is_file()

    def entries(self) -> list[str]:
        """What is in the directory, but for what is being written."""
        found = sorted(path for path in self.directory.iterdir() if not path.name.startswith("."))
        return [f"{path}{'/' if path.is_dir() else ''}" for path in found]

    def refresh(self) -> None:
        """Nothing to do: every read is a look at the disk."""

    def is_held(self) -> bool:
        """Whether a process has the lock."""
        try:
            with (self.directory / atomic.LOCK).open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:  # somebody holds it, or it is another user's: then nobody here can know
            return True
        return False

    def find_last_write(self) -> datetime | None:
        """Not asked: the lock tells more."""
        return None

    def local_path(self, name: str) -> Path:
        """The file itself."""
        return self.directory / name

    def fetch_directory(self, name: str) -> None:
        """Nothing to do: all files are here."""

    def write_text(self, name: str, text: str) -> None:
        """Write a whole file, in one go."""
        atomic.write_text(self.directory / name, text)

    def append(self, name: str, content: bytes) -> None:
        """Add to the end of a file."""
        path = self.directory / name
        with atomic.disk_errors(path), path.open("ab") as file:
            file.write(content)

    def flush(self, *names: str) -> None:
        """Nothing to do: what is written is there."""

    def flush_all(self) -> None:
        """Nothing to do: what is written is there."""

    def keep_checkpoints(self, names: Sequence[str]) -> None:
        """Remove the directories of all other checkpoints."""
        for directory in (self.directory / "checkpoints").iterdir():
            if directory.is_dir() and directory.name not in names:
                atomic.remove_directory(directory)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock, and remove what a process that held it before has left half-written."""
        with atomic.lock_directory(self.directory):
            for directory in (self.directory, self.directory / "checkpoints"):
                atomic.sweep_scratch(directory)
            yield

    @contextmanager
    def worked_on(self) -> Iterator[None]:
        """Nothing to do: what is added is there."""
        yield

    def remove(self) -> None:
        """Remove the directory, unless a process holds it."""
        with self.held():
            atomic.remove_directory(self.directory)
