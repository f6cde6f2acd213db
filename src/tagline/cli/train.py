"""`tagline train`: train a classifier, here or in a job."""

import os
import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tagline.cli.notifying import Notify, notify_at_end
from tagline.cli.options import Debug, Json, On, Overrides, Runs

if TYPE_CHECKING:
    from tagline.commands.train import TrainingRequest
    from tagline.jobs.plans import Plan
    from tagline.runs.run import Run


def train(
    source: Annotated[
        str | None, typer.Argument(metavar="SPEC|DATA", help="A spec (.toml), or a data file to guess one for.")
    ] = None,
    overrides: Overrides = None,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="RUN", help="Go on with a run that was stopped.")
    ] = None,
    learning_curve: Annotated[
        bool, typer.Option("--learning-curve", help="Train on parts of the rows too: would more data help?")
    ] = False,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Of the run, and of its job; else made up.")] = "",
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, metavar="N", help="Processes on this machine; else one a GPU.")
    ] = None,
    on: On = "local",
    plan: Annotated[bool, typer.Option("--plan", help="Print the job that --on would submit, and its price.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Leave the job to itself once it is submitted.")] = False,
    notify: Notify = None,
    yes: Annotated[bool, typer.Option("--yes", help="Spend money without asking.")] = False,
    runs: Runs = "runs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train a classifier, measure it, and bundle it. A data file needs no spec: its columns are guessed."""
    with notify_at_end(notify, stays=not (detach or plan), what="the training") as outcome:
        from tagline.commands.train import TrainingRequest
        from tagline.runs.notifications import remove_targets
        from tagline.training import cluster

        request = TrainingRequest(
            source,
            tuple(overrides or ()),
            resume=resume,
            learning_curve=learning_curve,
            name=name,
            workers=workers,
            on=on,
            detach=detach,
            runs=runs,
            command=shlex.join(["tagline", *remove_targets(sys.argv[1:])]),
            arguments=tuple(sys.argv[1:]),
            job=cluster.job(),
        )
        if plan:
            _plan(request, as_json=json)
        else:
            outcome.run = _train(request, yes=yes, as_json=json, debug=debug)


def _train(request: "TrainingRequest", *, yes: bool, as_json: bool, debug: bool) -> "Run | None":
    """Train and return the run; None where this process did not stay to its end or left it to workers."""
    from tagline import gcp
    from tagline.cli import console, views
    from tagline.commands.train import run_training
    from tagline.errors import BUG_EXIT_CODE, TaglineError
    from tagline.system import extras
    from tagline.training import cluster

    request.check()
    events = run_training(request, confirm=lambda _: yes or _confirm(), say=console.say)
    if not request.is_here:
        return views.watch(events, as_json=as_json)
    cluster.follow_launcher()
    gcp.reveal_secrets(os.environ)
    try:
        with extras.explain_missing_packages():  # also in what a worker reports to its launcher
            return views.watch(events, as_json=as_json)
    except BaseException as error:
        if not cluster.report_to_launcher(error):
            raise cluster.explain_worker_loss(error)  # noqa: B904 - it is that error itself, or holds it
        if debug:
            console.show_error(error, as_json=False, debug=True)
        raise typer.Exit(error.exit_code if isinstance(error, TaglineError) else BUG_EXIT_CODE) from error


def _confirm() -> bool:
    """Ask for confirmation to spend money; raise SpecError without a terminal."""
    from tagline.errors import SpecError

    if not sys.stdin.isatty():
        raise SpecError("this would spend money", hint="add --yes")
    return typer.confirm("Submit the job?", abort=True, err=True)


def _plan(request: "TrainingRequest", *, as_json: bool) -> None:
    """Print the job that would be submitted, and its price."""
    from tagline.cli import console, views
    from tagline.commands.train import make_plan
    from tagline.jobs.launch import JobPriced

    events, sentence = make_plan(request), ""
    while True:
        try:
            event = next(events)
        except StopIteration as end:
            plan: Plan = end.value
            break
        if isinstance(event, JobPriced):
            sentence = event.price.sentence()
        else:
            views.show_event(event, as_json=as_json)
    if as_json:
        console.out_json(plan.to_dict())
        return
    console.out_json(plan.job)
    console.out()
    console.out(plan.gcloud)
    console.out()
    for each in plan.uploads:
        console.out(f"upload   {each.source} to {each.address}")
    if plan.packages:
        console.out(f"packages {', '.join(plan.packages)}")
    console.out(f"price    {sentence}")
