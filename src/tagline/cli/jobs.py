"""`tagline jobs`: what runs in a place."""

import shlex
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tagline.cli import places
from tagline.cli.notifying import Notify, notifying
from tagline.cli.options import Debug, Json, Runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tagline.jobs.records import Record
    from tagline.runs.run import Run

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
    from tagline.cli import console

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
    """One job: its state, machines, cost so far and, if it failed, why; a run that has ended is brought here."""
    from tagline import storage
    from tagline.cli import console
    from tagline.errors import TaglineError
    from tagline.jobs import records
    from tagline.jobs.launchers import DescribesJobs
    from tagline.runs import resource_usage

    with _known(name, runs) as (record, run):
        launcher = record.launcher()
        state = launcher.state(record.handle)
        failure = records.explained(launcher, record.handle, run) if state.name == "failed" else None
        home = None
        if record.run and state.has_ended:
            why = failure.sentence if failure else ""
            with suppress(*((TaglineError,) if failure else ())):  # the bucket itself may be what is gone
                home = records.brought_home(record, state, storage.local(runs), reason=why)
        description = launcher.describe(record.handle) if isinstance(launcher, DescribesJobs) else None
        cost = records.cost_so_far(description, state, now=datetime.now(UTC)) if description else None
        facts: dict[str, Any] = {
            "job": record.handle, "place": record.place, "run": record.run, "state": state.name, "detail": state.detail,
            "message": state.message, "started": state.started, "ended": state.ended,
            "failure": asdict(failure) if failure else None, "directory": str(home.directory) if home else None,
            "page": records.page_of(launcher, record.handle),
            "machines": list(description.machines) if description else [],
            "image": description.image if description else "",
            "arguments": list(description.arguments) if description else [],
            "cost": cost, "usage": _usage(record, home, run),
        }  # fmt: skip
    if json:
        console.out_json(facts)
        return
    for key in ("job", "page", "run", "state", "started", "ended", "directory"):
        if facts[key]:
            console.out(f"{key:<9} {facts[key]}")
    if description and cost:
        console.out(f"machines  {', '.join(description.machines)}")
        console.out(f"arguments {shlex.join(description.arguments)}")
        console.out(f"cost      {records.cost_sentence(cost, is_rehearsed=bool(record.rehearsal))}")
    if facts["usage"]:
        console.out(f"use       {resource_usage.describe_summary(facts['usage'])}")
    if failure:
        console.out(f"why       {failure.sentence}")
        console.out(f"next      {failure.command}")
        for line in failure.traceback:
            console.out(f"  {line}")


def _usage(record: "Record", home: "Run | None", run: "Run | None") -> dict[str, Any]:
    """What the job's training has used of its machine so far, from the events that are in its run."""
    from tagline.errors import TaglineError
    from tagline.runs import remote, resource_usage

    with suppress(TaglineError):  # a bucket may be gone, and a run not have begun
        found = home or (remote.MirroredRun.at(record.run) if record.run else run)
        return resource_usage.summarize(found.events()) if found else {}
    return {}


@app.command()
def logs(
    name: JobName = "last",
    follow: Annotated[bool, typer.Option("--follow", help="Stay until it has ended.")] = False,
    notify: Notify = None,
    runs: Runs = "runs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """What a job has said, by replica."""
    from tagline.cli import console, launching
    from tagline.errors import SpecError

    if notify and (json or not follow):
        raise SpecError("--notify is for a command that stays to the end", hint="add --follow")
    with _known(name, runs) as (record, run):
        launcher = record.launcher()
        if follow and not json:
            with notifying(notify, stays=True, what="the job") as outcome:
                outcome.run = launching.stay(record, launcher, run, runs)
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
    """End a job; what it has saved can be resumed. One that has been cancelled before stays so."""
    from tagline.cli import console
    from tagline.errors import RunError

    with _known(name, runs) as (record, run):
        launcher = record.launcher()
        state = launcher.state(record.handle)
        if state.has_ended and state.name != "cancelled":
            hint = f"tagline jobs show {run.name if run else record.handle}"
            raise RunError(f"the job has ended already, it {state.name}: {record.handle}", hint=hint)
        if not state.has_ended:
            launcher.cancel(record.handle)
    if json:
        console.out_json({"cancelled": record.handle})
    else:
        console.out(f"{'cancelled already' if state.has_ended else 'told to stop'}: {record.handle}")


@contextmanager
def _known(name: str, runs: str) -> "Iterator[tuple[Record, Run | None]]":
    """A job by the name of its run, which is given too, or by its own; its place is entered."""
    from tagline import gcp
    from tagline.errors import RunError
    from tagline.jobs.records import Record, recalled
    from tagline.runs.remote import find_run

    if "/customJobs/" in name:
        yield Record(gcp.place(), name, "", "", gcp.rehearsal()), None
        return
    run = _last_with_job(runs) if name == "last" else find_run(name, runs)
    record = recalled(run)
    if record is None:
        raise RunError(f"run {run.name} was trained here, and is no job", hint=f"tagline runs show {run.name}")
    with places.of(record):
        yield record, run


def _last_with_job(runs: str) -> "Run":
    """The newest run that is a job: runs that were trained in the meantime, by a command that stayed, are none."""
    from tagline.errors import RunError
    from tagline.runs.remote import list_runs
    from tagline.runs.run import JOB

    for run in reversed(list_runs(runs)):
        with suppress(RunError):  # one whose files are damaged is not the one that is meant
            if run.read_json(JOB) is not None:
                return run
    raise RunError(f"there is no job among the runs in {runs}", hint="tagline jobs list --on PLACE asks the place")


def _from_here(runs: str) -> list[dict[str, Any]]:
    """The jobs of the runs that are listed here, each asked where it stands."""
    from tagline.errors import TaglineError
    from tagline.jobs.records import recalled
    from tagline.runs.remote import list_runs

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
    from tagline import gcp
    from tagline.jobs import records

    places.check(on)
    with places.entered(on, stays=True):
        found = records.launcher_of(on).list(gcp.project(project), region)
    return [
        {"run": run, "place": on, "job": handle, "state": state.name, "message": state.message}
        for handle, run, state in found
    ]
