"""`tagline train`: a run."""

import os
import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tagline.cli import places
from tagline.cli.notifying import Notify, notifying
from tagline.cli.options import Debug, Json, Overrides, Runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tagline.data.columns import ResolvedSpec
    from tagline.runs.events import Event
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
    on: places.On = places.LOCAL,
    plan: Annotated[bool, typer.Option("--plan", help="Print the job that --on would submit, and its price.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Leave the job to itself once it is submitted.")] = False,
    notify: Notify = None,
    yes: Annotated[bool, typer.Option("--yes", help="Spend money without asking.")] = False,
    runs: Runs = "runs",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train a classifier, measure it, and bundle it. A data file needs no spec: its columns are guessed."""
    with notifying(notify, stays=not (detach or plan), what="the training") as outcome:
        outcome.run = _train(
            source, overrides, resume=resume, learning_curve=learning_curve, name=name, workers=workers, on=on,
            plan=plan, detach=detach, yes=yes, runs=runs, json=json, debug=debug,
        )  # fmt: skip


def _train(
    source: str | None, overrides: "Sequence[str] | None", *, resume: str | None, learning_curve: bool, name: str,
    workers: int | None, on: str, plan: bool, detach: bool, yes: bool, runs: str, json: bool, debug: bool,
) -> "Run | None":  # fmt: skip
    """The run that was trained, where this command stays to its end and trains it by itself."""
    from tagline import gcp, registry, training
    from tagline.cli import console
    from tagline.data.columns import resolve
    from tagline.errors import BUG_EXIT_CODE, SpecError, TaglineError
    from tagline.jobs.records import find_or_begin
    from tagline.runs.run import Run
    from tagline.system import extras
    from tagline.training import cluster

    if (source is None) == (resume is None):
        hint = "tagline train DATA, tagline train SPEC, or tagline train --resume RUN"
        raise SpecError("train takes a spec, a data file, or a run to resume: one of them", hint=hint)
    if name:
        _check_name(name, is_resumed=resume is not None)
    places.check(on)
    if on != places.LOCAL or detach or plan:
        return _elsewhere(
            source, overrides or (), resume, on=on, plan=plan, detach=detach, yes=yes, runs=runs, as_json=json,
            is_alone=workers is None and not learning_curve, name=name,
        )  # fmt: skip
    cluster.follow_launcher()
    gcp.reveal(os.environ)
    try:
        with extras.explain_missing_packages():  # also to whoever started this process as a worker
            found = find_or_begin(resume, runs) if resume is not None else resolve(str(source), overrides or ())
            machines = cluster.Cluster.of(os.environ)
            spec = found.spec() if isinstance(found, Run) else found.spec
            uses_device = registry.find("models", spec.model.family).uses_device  # type: ignore[attr-defined]
            if warning := cluster.check_accelerators(os.environ, uses_device=uses_device):
                console.say(f"warning: {warning}")
            if count := cluster.are_needed(workers, machines, can_share=training.can_share(spec)):
                training.check_sharing(spec)
                _refuse_curve(learning_curve)
                for line in cluster.launch(sys.argv[1:], count=count, cluster=machines):
                    console.say(f"warning: {line}")
                return None
            return _work(found, runs=runs, with_curve=learning_curve, as_json=json, name=name)
    except BaseException as error:
        if not cluster.leave_word(error):
            raise cluster.explained(error)  # noqa: B904 - it is that error itself, or holds it
        if debug:
            console.show_error(error, as_json=False, debug=True)
        raise typer.Exit(error.exit_code if isinstance(error, TaglineError) else BUG_EXIT_CODE) from error


def _elsewhere(
    source: str | None, overrides: "Sequence[str]", resume: str | None, *, on: str, plan: bool, detach: bool, yes: bool,
    runs: str, as_json: bool, is_alone: bool, name: str,
) -> "Run | None":  # fmt: skip
    """Take the training to a place, or say how that would be done."""
    from tagline.cli import launching
    from tagline.data.columns import resolve
    from tagline.errors import SpecError
    from tagline.runs.remote import find_run

    if not is_alone:
        hint = "vertex.workers says how many machines; a learning curve is made here, without --detach"
        raise SpecError("--workers and --learning-curve are about this machine and this process", hint=hint)
    if on == places.LOCAL:
        if plan:
            raise SpecError("--plan is about a job elsewhere", hint="add --on vertex, or --on rehearsal")
        if source is None:
            raise SpecError("a run that is resumed here stays with its command", hint="leave out --detach")
        launching.leave_here(resolve(source, overrides), runs=runs, as_json=as_json, name=name)
        return None
    if plan:
        found = find_run(resume, runs) if resume is not None else launching.resolved(str(source), overrides)
        launching.show_plan(found, on=on, runs=runs, as_json=as_json, name=name)
        return None
    with places.entered(on, stays=detach) as stays:
        found = find_run(resume, runs) if resume is not None else resolve(str(source), overrides)
        return launching.launch(
            found, on=on, runs=runs, detach=detach, yes=yes, as_json=as_json, stays=stays, name=name
        )


def _check_name(name: str, *, is_resumed: bool) -> None:
    """Refuse a name that no run can have, and one for a run that has a name."""
    from tagline.errors import SpecError
    from tagline.runs.run import check_name

    check_name(name)
    if is_resumed:
        raise SpecError("a resumed run keeps its name", hint="leave out --name")


def _work(found: "Run | ResolvedSpec", *, runs: str, with_curve: bool, as_json: bool, name: str) -> "Run | None":
    """Train in this process, alone or as one of several workers; the main one speaks."""
    from tagline import training
    from tagline.cli import console
    from tagline.evaluation import gates
    from tagline.models.nn.workers import join
    from tagline.runs.notifications import without_targets
    from tagline.runs.remote import find_run
    from tagline.runs.run import Run
    from tagline.training import learning_curve
    from tagline.training.cluster import job

    here = join()
    _refuse_curve(with_curve and here.size > 1)
    address = ""
    events: Iterator[Event]
    if isinstance(found, Run) and with_curve and found.state().name == "succeeded":
        events, address = iter(()), found.address
    elif isinstance(found, Run):
        events = training.resume_run(found, job=job())
    else:
        for guess in found.guesses if here.is_main else ():
            console.say(f"guessed {guess}")
        command = shlex.join(["tagline", *without_targets(sys.argv[1:])])
        events = training.start(found.spec, runs=runs, command=command, job=job(), name=name)
    with console.ProgressDisplay() as progress:
        for event in events:
            if here.is_main:
                address = event.get("run", address)
                progress.show(event)
        if with_curve and here.is_main:
            for event in learning_curve.measure(find_run(address, runs)):
                progress.show(event)
    if not here.is_main:
        return None
    run = find_run(address, runs)
    show(run, as_json=as_json, is_brief=console.is_in_a_job())
    report = run.report()
    gates.insist(report.gates if report else (), hint=f"everything is saved: {run.address}")
    return run


def _refuse_curve(is_asked: bool) -> None:
    """A learning curve is made of trainings one after the other, each in one process."""
    from tagline.errors import SpecError

    if is_asked:
        hint = "train with the workers first, then: tagline train --resume last --learning-curve"
        raise SpecError("--learning-curve takes one process", hint=hint)


def show(run: Any, *, as_json: bool, is_brief: bool = False) -> None:
    """A finished run: its figures, where it is, and what to do with it; in a job's log only the first of that, because
    the rest is shown where the run comes home."""
    from tagline.cli import console

    report = run.report()
    if as_json:
        console.out_json({"run": run.address, "bundle": f"{run.address}/bundle", "report": report.to_dict()})
        return
    if is_brief:
        console.show_figures(report)
        console.show_label_figures(report)
        console.out(f"report   {run.address}/report.html")
        return
    console.out()
    console.show_report(report)
    console.out()
    for step in report.advice:
        console.out_sentence(step, lead="next     ")
    console.out(f"report   {run.address}/report.html")
    console.out(f"bundle   {run.address}/bundle")
    example = '"first text" "second text"' if report.pair else '"a text of yours"'
    console.out(f"try it   tagline predict {shlex.quote(run.address)} {example}")
