"""Every error a user can meet, with its exit code.

TaglineError              exit 1    base: `message` says what is wrong and where, `hint` what to do next
├── CheckFailed           exit 1    a check or a gate did not pass; everything was saved
├── SpecError             exit 2    the spec or the command is wrong; `problems` lists all of it
├── DataError             exit 3    the labelled text is wrong
├── BundleError           exit 4    a bundle is missing, damaged or too new
├── RunError              exit 4    a run is missing, in use, or cannot go on
│   ├── Conflict          exit 4    another process has written to the same place
│   └── NameTaken         exit 4    a run of this name exists already
├── PlaceError            exit 5    the place to run (this machine, Vertex AI) lacks something or refused
└── Interrupted           exit 130 or 143    stopped by a signal, after saving what can be resumed

Any other exception that reaches the user is a bug in Tagline: exit 70.
"""

from collections.abc import Sequence
from typing import ClassVar

BUG_EXIT_CODE = 70


class TaglineError(Exception):
    """Base of all errors that carry a message for the user; never raised itself."""

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
        """Build one error that names every problem found in `where`."""
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
    """A run is missing, in use by another process, or cannot be continued."""

    exit_code = 4


class Conflict(RunError):
    """Another process changed or removed the target after it was read; nothing was written."""


class NameTaken(RunError):
    """A run of this name exists already; none was created."""


class PlaceError(TaglineError):
    """The place to run lacks something, or refused a request."""

    exit_code = 5


class Interrupted(TaglineError):
    """Stopped by a signal: 130 after Ctrl-C, 143 after SIGTERM."""

    def __init__(self, message: str, *, signal_number: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.signal_number = signal_number

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """128 plus the signal's number, as in shells."""
        return 128 + self.signal_number


def first_line(error: BaseException) -> str:
    """Return the first line of a foreign error's message, or its class name if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
