"""The contract of a store, which holds the files of a run: a local directory, or Cloud Storage mirrored in one.

Files, in the order of their imports:

- local.py: LocalStore: a run in a local directory.
- bucket.py: BucketStore: a run in Cloud Storage, mirrored in a local scratch directory.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Protocol


class RunStore(Protocol):
    """Holds the files of a run, which reads and writes them locally; a remote store keeps its copy up to date.

    Files are named by their path below the run, as `checkpoints/progress.json`.
    """

    @property
    def address(self) -> str:
        """The run's address, as a user names it."""

    @property
    def absolute_address(self) -> str:
        """The run's address, valid from any working directory."""

    @property
    def directory(self) -> Path:
        """The local directory of the run's files: all of them, or those that were read or written."""

    @property
    def tracker_dir(self) -> Path:
        """The directory in which trackers keep what runs share."""

    def has(self, name: str) -> bool:
        """Return whether the run has a file, as of the last `refresh`; while the run is held, local files count."""

    def entries(self) -> list[str]:
        """Return the addresses of the run's top-level files and directories; a directory's ends with a slash."""

    def refresh(self) -> None:
        """List the files anew; local copies that are out of date are dropped."""

    def is_held(self) -> bool:
        """Return whether a process holds the run, or may hold it because this cannot be determined."""

    def find_last_write(self) -> datetime | None:
        """Return when the run was last written to, if that is the only heartbeat of a process on another machine."""

    def local_path(self, name: str) -> Path:
        """Return the local path of a file, which need not exist."""

    def fetch_directory(self, name: str) -> None:
        """Make all files of a directory of the run available locally."""

    def write_text(self, name: str, text: str) -> None:
        """Write a text file of the run atomically."""

    def append(self, name: str, content: bytes) -> None:
        """Append to a file; other machines may see it some seconds later, or after a `flush`."""

    def flush(self, *names: str) -> None:
        """Copy these local directories, then these files, to where the run is stored."""

    def flush_all(self) -> None:
        """Copy everything but checkpoints and the state, a bundle's manifest after its other files."""

    def keep_checkpoints(self, names: Sequence[str]) -> None:
        """Remove all checkpoints but these."""

    def held(self) -> AbstractContextManager[None]:
        """Hold the run, so that no other process can write it."""

    def worked_on(self) -> AbstractContextManager[None]:
        """Make the run's files available locally, and in the end store what was added."""

    def remove(self) -> None:
        """Remove the run and everything in it, unless a process holds it."""
