"""The command line: one file per command group, and one place that handles errors.

Files, in the order of their imports:

- console.py: Terminal output: tables, progress and errors. The only module that prints.
- options.py: Arguments and options shared by several commands.
- notifying.py: `--notify`: a notification when a long command has ended, in success or failure.
- views.py: Live display of a training: its progress, its job, and the finished run.
- unknown_options.py: Suggestions for an unknown option: most often it is a setting of the spec.
- init.py: `tagline init`: write a spec for a data file.
- check.py: `tagline check`: find the problems of a spec and its data.
- train.py: `tagline train`: train a classifier, here or in a job.
- evaluate.py: `tagline evaluate`: evaluate a bundle on a file.
- compare.py: `tagline compare`: compare runs, with tests of significance.
- predict.py: `tagline predict`: predict the labels of texts.
- export.py: `tagline export`: export a bundle to another runtime, and compare its predictions.
- serve.py: `tagline serve`: run the HTTP server and its playground.
- sign.py: `tagline sign` and `tagline verify`: sign bundles and verify signatures.
- lm.py: `tagline lm`: train a language model to be shared.
- info.py: `tagline info`: print versions and devices, for a bug report.
- runs.py: `tagline runs`: list, show, report and delete runs.
- jobs.py: `tagline jobs`: list, show, follow and cancel jobs.
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
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    as_json, debug = "--json" in options, "--debug" in options
    signal.signal(signal.SIGTERM, _handle_sigterm)
    if isinstance(sys.stdout, io.TextIOWrapper):  # do not fail on a text that this terminal cannot show
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = app(args=understand_settings(arguments), prog_name="tagline", standalone_mode=False)
        if sys.stdout is not None:  # closed by the parent process
            sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # the reader closed the pipe; typer turns that into an exit
        _discard_output()
        return 128 + signal.SIGPIPE
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:  # a prompt was declined
        return 1
    except BaseException as error:
        from tagline.cli import console

        if hasattr(error, "format_message"):  # a usage error of typer's
            explained = unknown_options.explain_option(error, options) if hasattr(error, "option_name") else None
            error = explained or SpecError(error.format_message(), hint="tagline --help, or --help after any command")
        elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO, errno.EBADF):
            _discard_output()
            hint = "free some space, or send it elsewhere"
            error = PlaceError(f"cannot write the output: {error.strerror}", hint=hint)
        elif translated := emulator.translate(error):
            error = translated
        elif isinstance(error, ModuleNotFoundError):
            error = extras.explain_import_error(error) or error
        is_after_result = isinstance(error, CheckFailed)  # standard output has its one JSON document already
        return console.show_error(error, as_json=as_json and not is_after_result, debug=debug)
    return code if isinstance(code, int) else 0


def _discard_output() -> None:
    """Redirect standard output to the null device, so that nothing is flushed to it at exit after a write failed."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _handle_sigterm(number: int, _frame: FrameType | None) -> None:
    """Raise Interrupted on SIGTERM: outside of training there is nothing to save before a graceful shutdown."""
    raise Interrupted("told to stop", signal_number=number)
