"""`tagline jobs`: what runs in a place."""

from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tagline.cli import places
from tagline.cli.options import Debug, Json, Runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tagline.jobs import Record
    from tagline.runs import Run

app = typer.Typer(help="What runs in a place.", no_args_is_help=True, rich_markup_mode=None)

JobName = Annotated[str, typer.Argument(metavar="JOB", help="The name of its run, last, or the job's own name.")]


@app.command("list")
def list_(
    on: Annotated[str, typer.Option("--on", metavar="PLACE", help="Ask the place: rehearsal or vertex.")] = "",
    project: Annotated[str, typer.Option("--project", help="Of vertex; else gcloud's.")] = "",
    region: Annotated[str, typer.Option("--region", help="Of vertex.")] = "us-central1",
    runs: Runs = "runs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """The jobs that were submitted from here, or every job of Tagline in a place."""
    from tagline import console

    found = _from_here(runs) if on in ("", places.LOCAL) else _in_place(on, project, region)
    if json:
        console.out_json(found)
    elif not found:
        console.out("no job; tagline train SPEC --on rehearsal makes one")
    else:
        rows = [(each["run"], each["state"], each["place"], each["message"] or each["job"]) for each in found]
        console.out_table(("run", "state", "place", "job"), rows)


@app.command()
def show(name: JobName = "last", runs: Runs = "runs", json: Json = False, debug: Debug = False) -> None:
    """One job: its state and, if it failed, why; a run that has ended is brought here."""
    from tagline import console, jobs, storage
    from tagline.errors import TaglineError

    with _known(name, runs) as (record, run):
        launcher = record.launcher()
        state = launcher.state(record.handle)
        failure = jobs.explained(launcher, record.handle, run) if state.name == "failed" else None
        home = None
        if record.run and state.has_ended:
            why = failure.sentence if failure else ""
            with suppress(*((TaglineError,) if failure else ())):  # the bucket itself may be what is gone
                home = jobs.brought_home(record, state, storage.local(runs), reason=why)
        facts: dict[str, Any] = {
            "job": record.handle, "place": record.place, "run": record.run, "state": state.name, "detail": state.detail,
            "message": state.message, "started": state.started, "ended": state.ended,
            "failure": asdict(failure) if failure else None, "directory": str(home.directory) if home else None,
        }  # fmt: skip
    if json:
        console.out_json(facts)
        return
    for key in ("job", "run", "state", "started", "ended", "directory"):
        if facts[key]:
            console.out(f"{key:<9} {facts[key]}")
    if failure:
        console.out(f"why       {failure.sentence}")
        console.out(f"next      {failure.command}")
        for line in failure.traceback:
            console.out(f"  {line}")


@app.command()
def logs(
    name: JobName = "last",
    follow: Annotated[bool, typer.Option("--follow", help="Stay until it has ended.")] = False,
    runs: Runs = "runs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """What a job has said, by replica."""
    from tagline import console
    from tagline.cli import launching

    with _known(name, runs) as (record, run):
        launcher = record.launcher()
        if follow and not json:
            launching.stay(record, launcher, run, runs)
            return
        for line in launcher.logs(record.handle):
            if line is None:
                break
            if json:
                console.out_json(asdict(line), indent=None)
            else:
                console.out(f"{line.time} {line.replica or 'service'} {line.severity}: {line.text}")


@app.command()
def cancel(name: JobName, runs: Runs = "runs", json: Json = False, debug: Debug = False) -> None:
    """End a job; what it has saved can be resumed."""
    from tagline import console

    with _known(name, runs) as (record, _):
        record.launcher().cancel(record.handle)
    if json:
        console.out_json({"cancelled": record.handle})
    else:
        console.out(f"told to stop: {record.handle}")


@contextmanager
def _known(name: str, runs: str) -> "Iterator[tuple[Record, Run | None]]":
    """A job by the name of its run, which is given too, or by its own; its place is entered."""
    from tagline import gcp
    from tagline.errors import RunError
    from tagline.jobs import Record, recalled
    from tagline.mirrors import find_run

    if "/customJobs/" in name:
        place = places.REHEARSAL if gcp.rehearsal() else places.VERTEX
        yield Record(place, name, "", "", gcp.rehearsal()), None
        return
    run = find_run(name, runs)
    record = recalled(run)
    if record is None:
        raise RunError(f"run {run.name} was trained here, and is no job", hint=f"tagline runs show {run.name}")
    with places.of(record):
        yield record, run


def _from_here(runs: str) -> list[dict[str, Any]]:
    """The jobs of the runs that are listed here, each asked where it stands."""
    from tagline.errors import TaglineError
    from tagline.jobs import recalled
    from tagline.mirrors import list_runs

    found = []
    for run in list_runs(runs):
        if (record := recalled(run)) is None:
            continue
        try:
            with places.of(record):
                state = record.launcher().state(record.handle)
                told = {"state": state.name, "message": state.message}
        except TaglineError as error:  # what is here tells how far it had come; the others are listed all the same
            told = {"state": run.state().name, "message": error.message}
        found.append({"run": run.name, "place": record.place, "job": record.handle, **told})
    return found


def _in_place(on: str, project: str, region: str) -> list[dict[str, Any]]:
    from tagline import gcp, jobs

    places.check(on)
    with places.entered(on, stays=True):
        found = jobs.launcher_of(on).list(gcp.project(project), region)
    return [
        {"run": run, "place": on, "job": handle, "state": state.name, "message": state.message}
        for handle, run, state in found
    ]
