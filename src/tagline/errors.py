"""Every error a user can meet, with its exit code.

TaglineError              exit 1    base: `message` says what and where, `hint` the next thing to do
├── CheckFailed           exit 1    a check or a gate did not pass; everything was saved
├── SpecError             exit 2    the spec or the command is wrong; `problems` lists all of it
├── DataError             exit 3    the labelled text is wrong
├── BundleError           exit 4    a bundle is missing, damaged or too new
├── RunError              exit 4    a run is missing, in use, or cannot go on
│   ├── Conflict          exit 4    somebody else has written what was to be written
│   └── NameTaken         exit 4    there is a run of this name already
├── PlaceError            exit 5    the place to run (this machine, Vertex AI) lacks something or refused
└── Interrupted           exit 130 or 143    told to stop, after saving what can be resumed

Anything else that reaches the user is a bug of ours: exit 70.
"""

from collections.abc import Sequence
from typing import ClassVar

BUG_EXIT_CODE = 70


class TaglineError(Exception):
    """An error with a sentence for the user; never raised as such."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class CheckFailed(TaglineError):
    """A check or a gate did not pass."""

    exit_code = 1


class SpecError(TaglineError):
    """The spec is wrong. `problems` are lines of the form `section.key: what is wrong`."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "", problems: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)

    @classmethod
    def from_problems(cls, where: str, problems: Sequence[str]) -> "SpecError":
        """One error that names every problem found in `where`."""
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        lines = "\n".join(f"  {problem}" for problem in problems)
        return cls(f"{where} has {count}:\n{lines}", problems=problems)


class DataError(TaglineError):
    """The labelled text is wrong, or cannot be read."""

    exit_code = 3


class BundleError(TaglineError):
    """A bundle is missing, damaged or too new for this version."""

    exit_code = 4


class RunError(TaglineError):
    """A run is missing, in use by another process, or cannot go on."""

    exit_code = 4


class Conflict(RunError):
    """Somebody else has written, replaced or removed it since it was seen: nothing was written."""


class NameTaken(RunError):
    """There is a run of this name already: none was made."""


class PlaceError(TaglineError):
    """The place to run lacks something or refused."""

    exit_code = 5


class Interrupted(TaglineError):
    """Told to stop by a signal: 130 after Ctrl-C, 143 after SIGTERM."""

    def __init__(self, message: str, *, signal_number: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.signal_number = signal_number

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """128 + the signal's number, as shells count."""
        return 128 + self.signal_number


def first_line(error: BaseException) -> str:
    """What a foreign error says first; its name, if it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
