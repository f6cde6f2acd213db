"""Errors that a user of the emulator meets, with their exit codes.

RehearsalError              exit 1    base: `message` says what and where, `hint` the next thing to do
├── InvalidSettings         exit 2    the command or the project file is wrong
├── RequestRejected         exit 4    the running emulator refused what it was asked
└── EmulatorUnavailable     exit 5    it cannot start, does not run, or does not answer

What clients of the emulated APIs are answered is `protocol.errors`.
"""

from collections.abc import Sequence
from typing import ClassVar

PORT_HINT = "is something else listening there? --port and --grpc-port take others"


class RehearsalError(Exception):
    """An error with a sentence for the user; never raised as such."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InvalidSettings(RehearsalError):
    """The command or the project file is wrong."""

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "", problems: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)

    @classmethod
    def from_problems(cls, where: str, problems: Sequence[str]) -> "InvalidSettings":
        """One error that names every problem found in `where`."""
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        lines = "\n".join(f"  {problem}" for problem in problems)
        return cls(f"{where} has {count}:\n{lines}", problems=problems)


class RequestRejected(RehearsalError):
    """The running emulator refused what it was asked."""

    exit_code = 4


class EmulatorUnavailable(RehearsalError):
    """The emulator cannot start, does not run, or does not answer."""

    exit_code = 5
