"""`tagline runs`: list, show, report and delete runs."""

import os
import sys
import webbrowser
from typing import Annotated

import typer

from tagline.cli.options import Debug, Json, RunName, Runs

app = typer.Typer(help="What has run here.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_(runs: Runs = "runs", json: Json = False, debug: Debug = False) -> None:
    """Every run, oldest first."""
    from tagline.cli import console
    from tagline.commands import runs as commands

    listed = commands.list_(runs=runs)
    if json:
        console.out_json(listed)
        return
    if not listed:
        console.out(f"no run in {runs}; tagline train DATA makes one")
        return
    rows = []
    for run in listed:
        shown = "  ".join(f"{name} {value:.3f}" for name, value in list(run["figures"].items())[:2])
        rows.append((run["name"], run["state"], run["family"] or "", shown or run["reason"]))
    console.out_table(("run", "state", "family", "test"), rows)


@app.command()
def show(run: RunName = "last", runs: Runs = "runs", json: Json = False, debug: Debug = False) -> None:
    """One run: its state, figures and files."""
    from tagline.cli import console
    from tagline.commands import runs as commands
    from tagline.runs import resource_usage

    details = commands.show(run, runs=runs)
    if json:
        console.out_json(details.to_dict())
        return
    state = details.state
    console.out(f"{details.run.name}: {state.name}" + (f" ({state.reason})" if state.reason else ""))
    console.out(f"started {state.started or 'not yet'}, ended {state.ended or 'not yet'}")
    if details.restarts:
        times = "once" if details.restarts == 1 else f"{details.restarts} times"
        console.out(f"started again {times}; {details.lost_minutes:.1f} minutes of work had to be done again")
    if details.usage:
        console.out(f"used {resource_usage.describe_summary(details.usage)}")
    for entry in details.run.entries():
        console.out(f"  {entry}")
    if details.report:
        console.out()
        with details.run.reading("report.json"):
            console.show_report(details.report)


@app.command()
def report(
    run: RunName = "last",
    output: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help="Write it as .html, .md or .json instead.")
    ] = None,
    runs: Runs = "runs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Open a run's report in a browser; without one, say where it is."""
    from tagline.cli import console
    from tagline.commands.runs import save_report
    from tagline.storage import addresses

    facts, path = save_report(run, output, runs=runs)
    if json:
        console.out_json(facts.to_dict())
        return
    console.out(path)
    has_screen = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not output and has_screen and sys.stdout.isatty():
        webbrowser.open(addresses.fetch_copy(path).resolve().as_uri())


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs to remove with all that is in them.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    runs: Runs = "runs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Remove runs."""
    from tagline.cli import console
    from tagline.commands import runs as commands
    from tagline.errors import SpecError
    from tagline.runs.lookup import find_run

    selected = [find_run(name, runs) for name in names]
    names_shown = ", ".join(run.name for run in selected)
    if not yes:
        if not sys.stdin.isatty():
            raise SpecError(f"would delete {names_shown}", hint="add --yes")
        typer.confirm(f"Delete {names_shown}?", abort=True, err=True)
    deleted = commands.delete(*(run.address for run in selected), runs=runs)  # exactly the confirmed ones
    if json:
        console.out_json({"deleted": deleted})
    else:
        console.out(f"deleted {names_shown}")
