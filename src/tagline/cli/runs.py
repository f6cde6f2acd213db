"""`tagline runs`: what has run here."""

import os
import sys
import webbrowser
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tagline.cli.options import Debug, Json, RunName, Runs

if TYPE_CHECKING:
    from tagline.runs.run import Run, RunState

app = typer.Typer(help="What has run here.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_(runs: Runs = "runs", json: Json = False, debug: Debug = False) -> None:
    """Every run, oldest first."""
    from tagline import storage
    from tagline.cli import console
    from tagline.runs.remote import list_runs

    known = list_runs(runs)
    found = [(run, *seen) for run, seen in zip(known, storage.together(_looked_at, known), strict=True)]
    if json:
        console.out_json(
            [
                {
                    "name": run.name,
                    "directory": run.address,
                    **_renamed(asdict(state)),
                    "family": family or None,
                    "figures": dict(figures),
                }
                for run, state, family, figures in found
            ]
        )
        return
    if not found:
        console.out(f"no run in {runs}; tagline train DATA makes one")
        return
    rows = []
    for run, state, family, figures in found:
        shown = "  ".join(f"{name} {value:.3f}" for name, value in figures[:2])
        rows.append((run.name, state.name, family, shown or state.reason))
    console.out_table(("run", "state", "family", "test"), rows)


@app.command()
def show(run: RunName = "last", runs: Runs = "runs", json: Json = False, debug: Debug = False) -> None:
    """One run: its state, figures and files."""
    from tagline.cli import console
    from tagline.runs import resource_usage
    from tagline.runs.remote import find_run

    found = find_run(run, runs)
    state, report = found.state(), found.report()
    restarts, lost_minutes = found.restarts()
    usage = resource_usage.summarize(found.events())
    if json:
        facts = {
            "name": found.name,
            "directory": found.address,
            **_renamed(asdict(state)),
            "lock": found.lock(),
            "restarts": restarts,
            "lost_minutes": lost_minutes,
            "report": report.to_dict() if report else None,
            "usage": usage,
        }
        console.out_json(facts)
        return
    console.out(f"{found.name}: {state.name}" + (f" ({state.reason})" if state.reason else ""))
    console.out(f"started {state.started or 'not yet'}, ended {state.ended or 'not yet'}")
    if restarts:
        times = "once" if restarts == 1 else f"{restarts} times"
        console.out(f"started again {times}; {lost_minutes:.1f} minutes of work had to be done again")
    if usage:
        console.out(f"used {resource_usage.describe_summary(usage)}")
    for entry in found.entries():
        console.out(f"  {entry}")
    if report:
        console.out()
        with found.reading("report.json"):
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
    from tagline import storage
    from tagline.cli import console
    from tagline.errors import RunError
    from tagline.reports import html
    from tagline.runs import resource_usage
    from tagline.runs.remote import find_run

    found = find_run(run, runs)
    facts = found.report()
    if facts is None:
        state = found.state()
        raise RunError(f"run {found.name} has no report: it is {state.name}", hint=state.reason)
    if output:
        spec, lock = found.spec_text(), found.lock()
        with found.reading("events.jsonl"):
            usage = resource_usage.describe_summary(resource_usage.summarize(found.events()))
        with found.reading("report.json"):
            html.save(facts, output, name=found.name, spec=spec, lock=lock, usage=usage)
    path = output or f"{found.address}/report.html"
    if json:
        console.out_json(facts.to_dict())
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
    from tagline.cli import console
    from tagline.errors import SpecError
    from tagline.runs.remote import find_run

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


def _looked_at(run: "Run") -> "tuple[RunState, str, list[tuple[str, float]]]":
    """A run's state, family and figures; one whose files are damaged has failed, and the others are listed all the
    same."""
    from tagline.cli import console
    from tagline.errors import RunError
    from tagline.runs.run import RunState

    try:
        state, report = run.state(), run.report()
        with run.reading("report.json"):
            return state, report.family if report else "", console.headline(report) if report else []
    except RunError as error:
        return RunState("failed", created="", reason=error.message), "", []


def _renamed(state: dict[str, str]) -> dict[str, str]:
    return {"state": state.pop("name"), **state}
