"""`tagline runs`: what has run here."""

import os
import sys
import webbrowser
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tagline.cli.options import Debug, Json, RunName, Runs

if TYPE_CHECKING:
    from tagline.runs import Run, State

app = typer.Typer(help="What has run here.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_(runs: Runs = "runs", json: Json = False, debug: Debug = False) -> None:
    """Every run, oldest first."""
    from tagline import console, storage
    from tagline.mirrors import list_runs

    known = list_runs(runs)
    found = [(run, *seen) for run, seen in zip(known, storage.together(_looked_at, known), strict=True)]
    if json:
        console.out_json([
            {
                "name": run.name, "directory": run.address, **_renamed(asdict(state)),
                "family": (report or {}).get("family"), "figures": dict(console.headline(report)) if report else {},
            }
            for run, state, report in found
        ])  # fmt: skip
        return
    if not found:
        console.out(f"no run in {runs}; tagline train DATA makes one")
        return
    rows = []
    for run, state, report in found:
        figures = "  ".join(f"{name} {value:.3f}" for name, value in console.headline(report)[:2]) if report else ""
        rows.append((run.name, state.name, (report or {}).get("family", ""), figures or state.reason))
    console.out_table(("run", "state", "family", "test"), rows)


@app.command()
def show(run: RunName = "last", runs: Runs = "runs", json: Json = False, debug: Debug = False) -> None:
    """One run: its state, figures and files."""
    from tagline import console
    from tagline.mirrors import find_run

    found = find_run(run, runs)
    state, report = found.state(), found.report()
    restarts, lost_minutes = found.restarts()
    if json:
        console.out_json({
            "name": found.name, "directory": found.address, **_renamed(asdict(state)), "lock": found.lock(),
            "restarts": restarts, "lost_minutes": lost_minutes, "report": report,
        })  # fmt: skip
        return
    console.out(f"{found.name}: {state.name}" + (f" ({state.reason})" if state.reason else ""))
    console.out(f"started {state.started or 'not yet'}, ended {state.ended or 'not yet'}")
    if restarts:
        times = "once" if restarts == 1 else f"{restarts} times"
        console.out(f"started again {times}; {lost_minutes:.1f} minutes of work had to be done again")
    for entry in found.entries():
        console.out(f"  {entry}")
    if report:
        console.out()
        console.show_report(report)


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
    from tagline import console, pages, storage
    from tagline.errors import RunError
    from tagline.mirrors import find_run

    found = find_run(run, runs)
    facts = found.report()
    if facts is None:
        state = found.state()
        raise RunError(f"run {found.name} has no report: it is {state.name}", hint=state.reason)
    if output:
        pages.save(facts, output, name=found.name, spec=found.spec_text(), lock=found.lock())
    path = output or f"{found.address}/report.html"
    if json:
        console.out_json(facts)
        return
    console.out(path)
    has_screen = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not output and has_screen and sys.stdout.isatty():
        webbrowser.open(storage.fetched(path).resolve().as_uri())


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs to remove with all that is in them.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    runs: Runs = "runs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Remove runs."""
    from tagline import console
    from tagline.errors import SpecError
    from tagline.mirrors import find_run

    found = [find_run(name, runs) for name in names]
    listed = ", ".join(run.name for run in found)
    if not yes:
        if not sys.stdin.isatty():
            raise SpecError(f"would delete {listed}", hint="add --yes")
        typer.confirm(f"Delete {listed}?", abort=True, err=True)
    for run in found:
        run.delete()
    if json:
        console.out_json({"deleted": [run.name for run in found]})
    else:
        console.out(f"deleted {listed}")


def _looked_at(run: "Run") -> "tuple[State, dict[str, Any] | None]":
    """A run's state and report; one whose files are damaged has failed, and the others are listed all the same."""
    from tagline.errors import RunError
    from tagline.runs import State

    try:
        return run.state(), run.report()
    except RunError as error:
        return State("failed", created="", reason=error.message), None


def _renamed(state: dict[str, str]) -> dict[str, str]:
    return {"state": state.pop("name"), **state}
