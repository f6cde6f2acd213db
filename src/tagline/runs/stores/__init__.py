"""The contract of a store, which is where a run is: a directory of this machine, or Cloud Storage mirrored in one.

Files, in the order of their imports:

- local.py: LocalStore: a run in a directory of this machine.
- bucket.py: BucketStore: a run in Cloud Storage, worked on in a scratch directory of this machine.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Protocol


class RunStore(Protocol):
    """Where a run is. A run reads and writes its files on this machine, and its store sees that they are there too.

    Files are named by their path below the run, as `checkpoints/progress.json`.
    """

    @property
    def address(self) -> str:
        """Where the run is, as a user names it."""

    @property
    def absolute_address(self) -> str:
        """Where the run is, for those who are elsewhere."""

    @property
    def directory(self) -> Path:
        """Where the run's files are on this machine: all of them, or those that were asked for or written."""

    @property
    def tracker_dir(self) -> Path:
        """Where trackers keep what runs share."""

    def has(self, name: str) -> bool:
        """Whether the run has a file, by the last `refresh`; while it is held, what is on this machine counts."""

    def entries(self) -> list[str]:
        """What is in the run, by its addresses; a directory's ends with a slash."""

    def refresh(self) -> None:
        """See what is there now; what was read before is read anew if it has changed."""

    def is_held(self) -> bool:
        """Whether a process holds the run, or nobody can know from here."""

    def find_last_write(self) -> datetime | None:
        """When the run was last written to, where only that tells whether a process elsewhere still works on it."""

    def local_path(self, name: str) -> Path:
        """Where a file can be read on this machine; there may be none."""

    def fetch_directory(self, name: str) -> None:
        """Have all files of a directory of the run on this machine."""

    def write_text(self, name: str, text: str) -> None:
        """A text file of the run, whole."""

    def append(self, name: str, content: bytes) -> None:
        """Add to the end of a file; whoever reads it elsewhere may see it some seconds later, or after a `flush`."""

    def flush(self, *names: str) -> None:
        """Have these directories, then these files, where the run is as they are on this machine."""

    def flush_all(self) -> None:
        """Have everything but checkpoints and the state there, a bundle's manifest after its other files."""

    def keep_checkpoints(self, names: Sequence[str]) -> None:
        """Remove all checkpoints but these."""

    def held(self) -> AbstractContextManager[None]:
        """Keep every other process from writing this run."""

    def worked_on(self) -> AbstractContextManager[None]:
        """Have all that the run holds here, and in the end take what was added to where the run is."""

    def remove(self) -> None:
        """Remove the run and everything in it, unless a process works on it."""
