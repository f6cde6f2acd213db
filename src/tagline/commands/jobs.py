"""The jobs of a place: listed, shown, followed and cancelled; the functions of `tagline.jobs`."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tagline import gcp
from tagline.errors import RunError, TaglineError
from tagline.jobs import places, records
from tagline.jobs.diagnosis.log import Failure, Line
from tagline.jobs.launchers import DescribesJobs, JobDescription, JobState
from tagline.jobs.records import Record, load_record
from tagline.runs import resource_usage
from tagline.runs.formats import JOB
from tagline.runs.lookup import find_run, list_runs
from tagline.runs.run import Run
from tagline.storage import addresses


@dataclass(frozen=True)
class JobView:
    """One job: its state, machines, cost so far and, if it failed, why."""

    record: Record
    state: JobState
    page: str
    failure: Failure | None
    home: Run | None
    """The run, once the job has ended and it was downloaded."""
    description: JobDescription | None
    cost: dict[str, Any] | None
    usage: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The JSON document that `tagline jobs show --json` prints."""
        described = self.description
        return {
            "job": self.record.handle,
            "place": self.record.place,
            "run": self.record.run,
            "state": self.state.name,
            "detail": self.state.detail,
            "message": self.state.message,
            "started": self.state.started,
            "ended": self.state.ended,
            "failure": asdict(self.failure) if self.failure else None,
            "directory": str(self.home.directory) if self.home else None,
            "page": self.page,
            "machines": list(described.machines) if described else [],
            "image": described.image if described else "",
            "arguments": list(described.arguments) if described else [],
            "cost": self.cost,
            "usage": self.usage,
        }


@dataclass(frozen=True)
class JobCancelled:
    """The result of cancelling a job."""

    handle: str
    was_running: bool
    """False if it had been cancelled already."""


def list_(
    *, on: str = "", project: str = "", region: str = "us-central1", runs: str | Path = "runs"
) -> list[dict[str, Any]]:
    """The jobs that were submitted from here; with `on`, every job of Tagline in that place."""
    if on in ("", places.LOCAL):
        return _list_from_here(str(runs))
    places.check_place(on)
    with places.enter(on, stays=True):
        found = records.find_launcher(on).list(gcp.find_project(project), region)
    return [
        {"run": run, "place": on, "job": handle, "state": state.name, "message": state.message}
        for handle, run, state in found
    ]


def show(name: str = "last", *, runs: str | Path = "runs") -> JobView:
    """One job: its state, machines, cost so far and, if it failed, why; a run that has ended is brought here."""
    with enter_job(name, str(runs)) as (record, run):
        launcher = record.launcher()
        state = launcher.state(record.handle)
        failure = records.explain_failure(launcher, record.handle, run) if state.name == "failed" else None
        home = None
        if record.run and state.has_ended:
            why = failure.sentence if failure else ""
            with suppress(*((TaglineError,) if failure else ())):  # the bucket itself may be what is gone
                home = records.fetch_ended_run(record, state, addresses.require_local(runs), reason=why)
        description = launcher.describe(record.handle) if isinstance(launcher, DescribesJobs) else None
        cost = records.estimate_cost(description, state, now=datetime.now(UTC)) if description else None
        page = records.get_page_url(launcher, record.handle)
        usage = _summarize_usage(record, home, run)
        return JobView(record, state, page, failure, home, description, cost, usage)


def logs(name: str = "last", *, follow: bool = False, runs: str | Path = "runs") -> Iterator[Line]:
    """What a job has said so far, by replica; with `follow`, all that it says until it has ended."""
    with enter_job(name, str(runs)) as (record, _):
        for line in record.launcher().logs(record.handle):
            if line is not None:
                yield line
            elif not follow:
                return


def cancel(name: str, *, runs: str | Path = "runs") -> JobCancelled:
    """Stop a job; what it has saved can be resumed."""
    with enter_job(name, str(runs)) as (record, run):
        launcher = record.launcher()
        state = launcher.state(record.handle)
        if state.has_ended and state.name != "cancelled":
            hint = f"tagline jobs show {run.name if run else record.handle}"
            raise RunError(f"the job has ended already, it {state.name}: {record.handle}", hint=hint)
        if not state.has_ended:
            launcher.cancel(record.handle)
    return JobCancelled(record.handle, was_running=not state.has_ended)


@contextmanager
def enter_job(name: str, runs: str) -> Iterator[tuple[Record, Run | None]]:
    """Enter the place of a job, found by the name of its run or its own, and return both."""
    if "/customJobs/" in name:
        yield Record(gcp.find_place(), name, "", "", gcp.find_rehearsal()), None
        return
    run = _find_last_job(runs) if name == "last" else find_run(name, runs)
    record = load_record(run)
    if record is None:
        raise RunError(f"run {run.name} was trained here, and is no job", hint=f"tagline runs show {run.name}")
    with places.enter_place_of(record):
        yield record, run


def _find_last_job(runs: str) -> Run:
    """Return the newest run that is a job, passing over runs trained by a foreground command."""
    for run in reversed(list_runs(runs)):
        with suppress(RunError):  # one whose files are damaged is not the one that is meant
            if run.read_json(JOB) is not None:
                return run
    raise RunError(f"there is no job among the runs in {runs}", hint="tagline jobs list --on PLACE asks the place")


def _list_from_here(runs: str) -> list[dict[str, Any]]:
    """Return the jobs of the runs listed here, each with its current state."""
    found = []
    for run in list_runs(runs):
        if (record := load_record(run)) is None:
            continue
        try:
            with places.enter_place_of(record):
                state = record.launcher().state(record.handle)
                told = {"state": state.name, "message": state.message}
        except TaglineError as error:  # what is here tells how far it had come; the others are listed all the same
            told = {"state": run.state().name, "message": error.message}
        found.append({"run": run.name, "place": record.place, "job": record.handle, **told})
    return found


def _summarize_usage(record: Record, home: Run | None, run: Run | None) -> dict[str, Any]:
    """Return the resource usage so far of a job's training, from its run's events."""
    with suppress(TaglineError):  # a bucket may be gone, and a run not have begun
        found = home or (Run.open(record.run) if record.run else run)
        return resource_usage.summarize_usage(found.events()) if found else {}
    return {}
