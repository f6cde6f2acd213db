"""`tagline train`: a run."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tagline.cli.options import Debug, Json, Overrides, Runs


def train(
    source: Annotated[
        str | None, typer.Argument(metavar="SPEC|DATA", help="A spec (.toml), or a data file to guess one for.")
    ] = None,
    overrides: Overrides = None,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="RUN", help="Go on with a run that was stopped.")
    ] = None,
    runs: Runs = Path("runs"),
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train a classifier, measure it, and bundle it. A data file needs no spec: its columns are guessed."""
    from tagline import console, training
    from tagline.columns import resolve
    from tagline.errors import SpecError
    from tagline.runs import Run, find_run

    if (source is None) == (resume is None):
        hint = "tagline train DATA, tagline train SPEC, or tagline train --resume RUN"
        raise SpecError("train takes a spec, a data file, or a run to resume: one of them", hint=hint)
    if resume is not None:
        events = training.go_on(find_run(resume, runs))
    else:
        resolved = resolve(str(source), overrides or ())
        for guess in resolved.guesses:
            console.say(f"guessed {guess}")
        events = training.start(resolved.spec, runs=runs, command=shlex.join(["tagline", *sys.argv[1:]]))
    directory = Path()
    with console.Progress() as progress:
        for event in events:
            directory = Path(event.get("run", directory))
            progress.show(event)
    show(Run(directory), as_json=json)


def show(run: Any, *, as_json: bool) -> None:
    """A finished run: its figures, where it is, and what to do with it."""
    from tagline import console

    report = run.report()
    if as_json:
        console.out_json({"run": str(run.directory), "bundle": str(run.bundle), "report": report})
        return
    console.out()
    console.show_report(report)
    console.out()
    console.out(f"report   {run.directory / 'report.json'}")
    console.out(f"bundle   {run.bundle}")
    example = '"first text" "second text"' if report["pair"] else '"a text of yours"'
    console.out(f"try it   tagline predict {shlex.quote(str(run.directory))} {example}")
