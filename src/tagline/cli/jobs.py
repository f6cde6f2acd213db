"""`tagline jobs`: list, show, follow and cancel jobs."""

import shlex
from dataclasses import asdict
from typing import Annotated

import typer

from tagline.cli.notifying import Notify, notify_at_end
from tagline.cli.options import Debug, Json, Runs

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
    from tagline.commands import jobs

    listed = jobs.list_(on=on, project=project, region=region, runs=runs)
    if json:
        console.out_json(listed)
    elif not listed:
        console.out("no job; tagline train SPEC --on rehearsal makes one")
    else:
        rows = [(each["run"], each["state"], each["place"], each["message"] or each["job"]) for each in listed]
        console.out_table(("run", "state", "place", "job"), rows)


@app.command()
def show(name: JobName = "last", runs: Runs = "runs", json: Json = False, debug: Debug = False) -> None:
    """One job: its state, machines, cost so far and, if it failed, why; a run that has ended is brought here."""
    from tagline.cli import console
    from tagline.commands import jobs
    from tagline.jobs import records
    from tagline.runs import resource_usage

    details = jobs.show(name, runs=runs)
    facts = details.to_dict()
    if json:
        console.out_json(facts)
        return
    for key in ("job", "page", "run", "state", "started", "ended", "directory"):
        if facts[key]:
            console.out(f"{key:<9} {facts[key]}")
    if details.description and details.cost:
        console.out(f"machines  {', '.join(details.description.machines)}")
        console.out(f"arguments {shlex.join(details.description.arguments)}")
        console.out(f"cost      {records.format_cost(details.cost, is_rehearsed=bool(details.record.rehearsal))}")
    if details.usage:
        console.out(f"use       {resource_usage.describe_summary(details.usage)}")
    if details.failure:
        console.out(f"why       {details.failure.sentence}")
        console.out(f"next      {details.failure.command}")
        for line in details.failure.traceback:
            console.out(f"  {line}")


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
    from tagline.cli import console, views
    from tagline.commands import jobs
    from tagline.errors import SpecError
    from tagline.jobs import launch

    if notify and (json or not follow):
        raise SpecError("--notify is for a command that stays to the end", hint="add --follow")
    if follow and not json:
        with jobs.enter_job(name, runs) as (record, run), notify_at_end(notify, stays=True, what="the job") as outcome:
            outcome.run = views.watch(launch.follow(record, run, runs=runs), as_json=False)
        return
    for line in jobs.logs(name, runs=runs):
        if json:
            console.out_json(asdict(line), indent=None)
        else:
            console.out(f"{line.time} {line.replica or 'service'} {line.severity}: {line.text}")


@app.command()
def cancel(name: JobName, runs: Runs = "runs", json: Json = False, debug: Debug = False) -> None:
    """End a job; what it has saved can be resumed. One that has been cancelled before stays so."""
    from tagline.cli import console
    from tagline.commands import jobs

    cancelled = jobs.cancel(name, runs=runs)
    if json:
        console.out_json({"cancelled": cancelled.handle})
    else:
        console.out(f"{'told to stop' if cancelled.was_running else 'cancelled already'}: {cancelled.handle}")
