"""The command line: one file a command group, one place where errors end.

Files, in the order of their imports:

- console.py: What a person sees: tables, progress, how an error is shown. The only place that prints.
- options.py: Arguments and options that several commands take.
- notifying.py: `--notify`: a word when a command that takes long has ended, however it ended.
- views.py: What a person sees of a training: its progress, its job, and the run that comes of it.
- unknown_options.py: What was meant by an option that a command does not have: most often a setting of the spec.
- init.py: `tagline init`: a spec for a data file.
- check.py: `tagline check`: everything that is wrong with a spec and its data.
- train.py: `tagline train`: a run.
- evaluate.py: `tagline evaluate`: a bundle measured on other data.
- compare.py: `tagline compare`: runs side by side, and whether the difference is real.
- predict.py: `tagline predict`: answers for texts.
- export.py: `tagline export`: a bundle in another runtime, checked to give the same answers.
- serve.py: `tagline serve`: the HTTP server and its playground.
- sign.py: `tagline sign` and `tagline verify`: who made a bundle.
- lm.py: `tagline lm`: a language model to be shared.
- info.py: `tagline info`: versions and devices, for a bug report.
- runs.py: `tagline runs`: what has run here.
- jobs.py: `tagline jobs`: what runs in a place.
- rehearsal.py: `tagline rehearsal`: the commands of the emulator, where it is installed.
"""

import errno
import io
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Annotated

import typer

from tagline.cli import (
    check,
    compare,
    evaluate,
    export,
    info,
    init,
    jobs,
    lm,
    predict,
    rehearsal,
    runs,
    serve,
    sign,
    train,
    unknown_options,
)
from tagline.cli.options import understand_settings
from tagline.errors import CheckFailed, Interrupted, PlaceError, SpecError
from tagline.jobs import emulator
from tagline.system import extras

app = typer.Typer(
    name="tagline",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"default_map": {"rehearsal": rehearsal.DEFAULTS}},
)


@app.callback(invoke_without_command=True)
def tagline(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    """Labelled text to a trained and measured text classifier."""
    if version:
        from tagline import __version__
        from tagline.cli import console

        console.out(f"tagline {__version__}")
        raise typer.Exit


for command in (
    init.init,
    check.check,
    train.train,
    evaluate.evaluate,
    compare.compare,
    predict.predict,
    export.export,
    serve.serve,
    sign.sign,
    sign.verify,
    lm.lm,
    info.info,
):
    app.command()(command)
app.add_typer(runs.app, name="runs")
app.add_typer(jobs.app, name="jobs")
rehearsal.mount(app)


def main() -> None:
    """The `tagline` command."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command line; returns its exit code."""
    arguments = arguments or ["--help"]
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    as_json, debug = "--json" in ours, "--debug" in ours
    signal.signal(signal.SIGTERM, _handle_sigterm)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a text that this terminal cannot show is no reason to stop
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = app(args=understand_settings(arguments), prog_name="tagline", standalone_mode=False)
        if sys.stdout is not None:  # closed by whoever called us
            sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # the reader of our output has seen enough; typer makes an exit of it
        _discard_output()
        return 128 + signal.SIGPIPE
    except typer.Exit as done:
        return done.exit_code
    except typer.Abort:  # answered no
        return 1
    except BaseException as error:
        from tagline.cli import console

        if hasattr(error, "format_message"):  # wrong usage, as typer puts it
            meant = unknown_options.explain_option(error, ours) if hasattr(error, "option_name") else None
            error = meant or SpecError(error.format_message(), hint="tagline --help, or --help after any command")
        elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO, errno.EBADF):
            _discard_output()
            hint = "free some space, or send it elsewhere"
            error = PlaceError(f"cannot write the output: {error.strerror}", hint=hint)
        elif translated := emulator.translate(error):
            error = translated
        elif isinstance(error, ModuleNotFoundError):
            error = extras.explain_import_error(error) or error
        is_after_result = isinstance(error, CheckFailed)  # standard output holds one document, and it is there
        return console.show_error(error, as_json=as_json and not is_after_result, debug=debug)
    return code if isinstance(code, int) else 0


def _discard_output() -> None:
    """Let nothing more be written to where writing failed, not even at the end of the process."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _handle_sigterm(number: int, _frame: FrameType | None) -> None:
    """SIGTERM outside of learning: nothing to save, so stop at once and in order."""
    raise Interrupted("told to stop", signal_number=number)
