"""LocalStore: a run in a local directory."""

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
    """A directory with atomic writes, held by a file lock that ends with the process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def create(cls, directory: Path, files: Mapping[str, str]) -> Self:
        """Create a run with these files atomically; raise NameTaken if the directory exists."""
        atomic.sweep_scratch(directory.parent, older_than_s=DAY_S)
        try:
            with atomic.writing_directory(directory) as scratch:
                for name, text in files.items():
                    (scratch / name).write_text(text, "utf-8")
        except PlaceError as error:
            if not directory.is_dir():  # else another process has created it
                raise
            problem = f"there is a run {directory.name} in {directory.parent} already"
            raise NameTaken(problem, hint="give it another name") from error
        return cls(directory)

    @property
    def address(self) -> str:
        """The directory, as the user named it."""
        return str(self.directory)

    @property
    def absolute_address(self) -> str:
        """The absolute path of the directory."""
        return str(self.directory.absolute())

    @property
    def tracker_dir(self) -> Path:
        """The directory of runs that contains this one."""
        return self.directory.absolute().parent

    def has(self, name: str) -> bool:
        """Return whether the file exists."""
        return (self.directory / name).is_file()

    def entries(self) -> list[str]:
        """Return the entries of the directory, except files being written."""
        paths = sorted(path for path in self.directory.iterdir() if not path.name.startswith("."))
        return [f"{path}{'/' if path.is_dir() else ''}" for path in paths]

    def refresh(self) -> None:
        """Nothing to do: every read is from the disk."""

    def is_held(self) -> bool:
        """Return whether a process has the lock."""
        try:
            with (self.directory / atomic.LOCK).open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:  # a process holds it, or it is another user's and cannot be opened
            return True
        return False

    def find_last_write(self) -> datetime | None:
        """Return None: the lock is more reliable."""
        return None

    def local_path(self, name: str) -> Path:
        """Return the path of the file itself."""
        return self.directory / name

    def fetch_directory(self, name: str) -> None:
        """Nothing to do: all files are local."""

    def write_text(self, name: str, text: str) -> None:
        """Write a file atomically."""
        atomic.write_text(self.directory / name, text)

    def append(self, name: str, content: bytes) -> None:
        """Append to a file."""
        path = self.directory / name
        with atomic.disk_errors(path), path.open("ab") as file:
            file.write(content)

    def flush(self, *names: str) -> None:
        """Nothing to do: files are written in place."""

    def flush_all(self) -> None:
        """Nothing to do: files are written in place."""

    def keep_checkpoints(self, names: Sequence[str]) -> None:
        """Remove the directories of all other checkpoints."""
        for directory in (self.directory / "checkpoints").iterdir():
            if directory.is_dir() and directory.name not in names:
                atomic.remove_directory(directory)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock, and remove unfinished files of an earlier process."""
        with atomic.lock_directory(self.directory):
            for directory in (self.directory, self.directory / "checkpoints"):
                atomic.sweep_scratch(directory)
            yield

    @contextmanager
    def worked_on(self) -> Iterator[None]:
        """Nothing to do: files are written in place."""
        yield

    def remove(self) -> None:
        """Remove the directory, unless a process holds it."""
        with self.held():
            atomic.remove_directory(self.directory)
