"""`--notify`: a notification when a long command has ended, in success or failure."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from tagline.runs.notifications import Notice
    from tagline.runs.run import Run

Notify = Annotated[
    list[str] | None,
    typer.Option("--notify", metavar="TARGET", help="Tell a command, a webhook's URL or an e-mail address at the end."),
]


@dataclass
class CommandOutcome:
    """The outcome of a command, for its notification."""

    run: "Run | None" = None


@contextmanager
def notify_at_end(targets: Sequence[str] | None, *, stays: bool, what: str) -> Iterator[CommandOutcome]:
    """Notify the targets when the context ends; raise SpecError unless the command `stays` to the end of its work."""
    from tagline.errors import SpecError
    from tagline.system.processes import is_worker

    outcome = CommandOutcome()
    if not targets or is_worker(os.environ):  # with several workers, their launcher notifies
        yield outcome
        return
    from tagline.runs import notifications

    if not stays:
        hint = "leave it out; later: tagline jobs logs NAME --follow --notify TARGET"
        raise SpecError("--notify is for a command that stays to the end", hint=hint)
    notifications.check_targets(targets, os.environ)
    started = time.monotonic()
    try:
        yield outcome
    except (SpecError, typer.Abort):  # nothing was started
        raise
    except BaseException as error:
        _send_notice(targets, _describe_failure(error, what, time.monotonic() - started))
        raise
    _send_notice(targets, _describe_success(outcome, what, time.monotonic() - started))


def _send_notice(targets: Sequence[str], notice: "Notice") -> None:
    from tagline.cli import console
    from tagline.runs import notifications

    for target in targets:
        if problem := notifications.send_notice(target, notice, os.environ):
            console.say(f"warning: {problem}")


def _describe_success(outcome: CommandOutcome, what: str, seconds: float) -> "Notice":
    from tagline.evaluation.metrics import headline
    from tagline.runs.notifications import Notice

    run = outcome.run
    report = run.report() if run else None
    figures = dict(headline(report)) if report else {}
    shown = "".join(f", {name} {value:.3f}" for name, value in figures.items())
    name = f" {run.name}" if run else ""
    text = f"Tagline: {what}{name} has ended after {_format_duration(seconds)}{shown}"
    return Notice("succeeded", text, run.address if run else "", seconds=round(seconds, 1), figures=figures)


def _describe_failure(error: BaseException, what: str, seconds: float) -> "Notice":
    from tagline.errors import Interrupted, TaglineError
    from tagline.runs.notifications import Notice

    is_cancelled = isinstance(error, Interrupted | KeyboardInterrupt)
    state: Literal["failed", "cancelled"] = "cancelled" if is_cancelled else "failed"
    reason = error.message if isinstance(error, TaglineError) else f"{type(error).__name__}: {error}"
    how = "was stopped" if is_cancelled else "has failed"
    text = f"Tagline: {what} {how} after {_format_duration(seconds)}: {reason.splitlines()[0]}"
    hint = error.hint if isinstance(error, TaglineError) else ""
    return Notice(state, text, reason="\n".join(filter(None, [reason, hint])), seconds=round(seconds, 1))


def _format_duration(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
