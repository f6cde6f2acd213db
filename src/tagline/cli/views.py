"""Live display of a training: its progress, its job, and the finished run."""

import shlex
from collections.abc import Generator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from tagline.cli import console

if TYPE_CHECKING:
    from tagline.commands.train import TrainingEvent
    from tagline.jobs.launch import LaunchEvent
    from tagline.jobs.records import Record
    from tagline.runs.run import Run


def watch(events: "Generator[TrainingEvent, None, Run | None]", *, as_json: bool) -> "Run | None":
    """Show a training to its end, here or in a job, and return its run; raise an error if a gate was not passed."""
    from tagline.commands.train import TrainingBegun
    from tagline.jobs.diagnosis.log import Line
    from tagline.jobs.launchers import JobState
    from tagline.runs.events import Event

    progress: console.ProgressDisplay | None = None
    with closing(events), ExitStack() as stack:
        log = stack.enter_context(console.JobLog())
        while True:
            try:
                event = next(events)
            except StopIteration as end:
                run: Run | None = end.value
                break
            try:
                if isinstance(event, TrainingBegun):
                    progress = stack.enter_context(console.ProgressDisplay())
                elif isinstance(event, Event):
                    assert progress is not None
                    progress.show(event)
                elif isinstance(event, Line | JobState):
                    log.show(event)
                else:
                    log.flush()
                    show_event(event, as_json=as_json)
            except KeyboardInterrupt as interrupt:  # the generator decides how to stop
                events.throw(interrupt)
    if progress is not None and run is not None:
        show_run(run, as_json=as_json, is_brief=console.is_in_a_job())
        _check_gates(run, run.address)
    return run


def show_event(event: "LaunchEvent | TrainingEvent", *, as_json: bool) -> None:
    """Show one event of a launch; lines and states of its job are shown by a JobLog."""
    from tagline.commands.train import TrainingWarned
    from tagline.jobs import launch

    match event:
        case launch.SpecGuessed(guess):
            console.say(f"guessed {guess}")
        case TrainingWarned(message):
            console.say(f"warning: {message}")
        case launch.FindingsFound(findings):
            console.show_findings(findings, with_rows=True)
        case launch.JobPriced(price):
            console.say(price.sentence(), lead="price", colour=console.BOLD)
        case launch.JobMoved(reason, region, machine):
            console.say(f"{reason.rstrip('.')}: going on in {region} on {machine}")
        case launch.JobSubmitted(handle, page):
            console.say(f"submitted {handle}")
            console.say(page, lead="page")
        case launch.JobDetached(record, run):
            show_detached(record, run, as_json=as_json)
        case launch.JobFailed(failure):
            for line in failure.traceback:
                console.say(line)
        case launch.RunRestarted(count, minutes):
            console.say(f"started again {count} times, with {minutes:.1f} minutes of work done twice")
        case launch.JobFinished(run):
            show_run(run, as_json=as_json)
            _check_gates(run, str(run.directory))


def _check_gates(run: "Run", address: str) -> None:
    """Raise an error for gates that were not passed."""
    from tagline.evaluation import gates

    report = run.report()
    gates.enforce_gates(report.gates if report else (), hint=f"everything is saved: {address}")


def show_detached(record: "Record", run: "Run", *, as_json: bool) -> None:
    """Show a detached job: where it is, and how to follow or stop it."""
    from tagline.jobs import records

    if as_json:
        page = records.get_page_url(record.launcher(), record.handle)
        console.out_json({"run": str(run.directory), "job": record.handle, "page": page})
        return
    console.out(f"run      {run.directory}")
    console.out(f"job      {record.handle}")
    console.out(f"follow   tagline jobs logs {run.name} --follow")
    console.out(f"stop     tagline jobs cancel {run.name}")


def show_run(run: "Run", *, as_json: bool, is_brief: bool = False) -> None:
    """Show a finished run: its figures, advice, address and an example; `is_brief`, in a job's log, shows the figures
    and the report, because the rest is shown where the run is downloaded."""
    report = run.report()
    if as_json:
        console.out_json(
            {"run": run.address, "bundle": f"{run.address}/bundle", "report": report.to_dict() if report else None}
        )
        return
    assert report is not None
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
