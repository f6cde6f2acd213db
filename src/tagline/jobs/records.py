"""The record of a run's job in the run; watching a job, explaining its failure, and choosing its next fallback."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tagline import registry
from tagline import spec as specs
from tagline.errors import NameTaken, RunError
from tagline.gcp import machines
from tagline.jobs import custom_job
from tagline.jobs.diagnosis import advice, log
from tagline.jobs.diagnosis.log import Failure, Line
from tagline.jobs.launchers import DescribesJobs, Job, JobDescription, JobState, Launcher
from tagline.runs import lock, lookup
from tagline.runs.formats import JOB
from tagline.runs.run import Run
from tagline.storage import addresses

EXHAUSTED = ("quota", "capacity")
"""Causes of failure for which a job moves to its next fallback."""
CREATION_TIMEOUT_S = 60.0
"""How long the workers of a job wait for the one that creates their run."""


@dataclass(frozen=True)
class Record:
    """A job, as it is recorded in its run."""

    place: str
    handle: str
    run: str
    """The run's address."""
    submitted: str
    rehearsal: str = ""
    """The rehearsal's address, for a job that runs there."""
    rehearsal_facts: str = ""
    """The file with that rehearsal's address, while it runs; "" in records of earlier versions."""

    def launcher(self) -> Launcher:
        """Return the launcher that submitted it."""
        return find_launcher(self.place)


def find_launcher(place: str, say: Callable[[str], None] = lambda _: None) -> Launcher:
    """Return the launcher of a place; that of a rehearsal is Vertex AI's."""
    launcher: Launcher = registry.find("launchers", "vertex" if place == "rehearsal" else place)(say)
    return launcher


def save_record(run: Run, record: Record) -> None:
    """Write the record of a job into its run."""
    run.write_json(JOB, asdict(record))


def load_record(run: Run) -> Record | None:
    """Read the record of a run's job; None if the run was trained in the process that started it."""
    found = run.read_json(JOB)
    try:
        return None if found is None else TypeAdapter(Record).validate_json(json.dumps(found), strict=True)
    except ValidationError as error:
        hint = "tagline jobs list --on vertex shows what runs"
        problem = f"{run.address}/{JOB} is damaged: {error.errors(include_url=False)[0]['msg']}"
        raise RunError(problem, hint=hint) from error


def get_page_url(launcher: Launcher, handle: str) -> str:
    """Return the address of a job's page; "" where its place has none."""
    return launcher.page(handle) if isinstance(launcher, DescribesJobs) else ""


def estimate_cost(description: JobDescription, state: JobState, *, now: datetime) -> dict[str, Any]:
    """Return what a job has cost by the table of prices, from its start until its end or now; an estimate."""
    hours = 0.0
    if state.started:
        end = datetime.fromisoformat(state.ended) if state.ended else now
        hours = max(0.0, (end - datetime.fromisoformat(state.started)).total_seconds() / 3600)
    spent = None if description.per_hour is None else round(hours * description.per_hour, 4)
    return {
        "currency": "USD",
        "so_far": spent,
        "per_hour": description.per_hour and round(description.per_hour, 4),
        "hours": round(hours, 4),
        "is_estimate": True,
        "remark": description.remark,
        "date": machines.PRICES_OF,
        "region": machines.PRICED_REGION,
    }


def format_cost(cost: Mapping[str, Any], *, is_rehearsed: bool) -> str:
    """Return what a job has cost as a phrase."""
    if cost["so_far"] is None:
        return f"not known: {cost['remark']}"
    remark = f"; {cost['remark']}" if cost["remark"] else ""
    source = f"an estimate, from {cost['region']}'s prices of {cost['date']}{remark}"
    spent = f"${cost['so_far']:,.2f} for {60 * cost['hours']:,.0f} minutes at ${cost['per_hour']:,.2f} an hour"
    return f"nothing, at a rehearsal; on Vertex AI {spent} ({source})" if is_rehearsed else f"about {spent} ({source})"


def find_or_create_run(name: str, runs: str) -> Run:
    """Return the run that a job resumes; one that does not exist yet is created from the spec that the job carries."""
    text = os.environ.get(custom_job.SPEC, "")
    if not text or not addresses.is_remote(name):
        return lookup.find_run(name, runs)
    spec = specs.parse(json.loads(text), where=f"the variable {custom_job.SPEC}")
    top, _, leaf = name.rstrip("/").rpartition("/")
    until = time.monotonic() + CREATION_TIMEOUT_S
    while True:
        with suppress(RunError):
            return Run.open(name)
        try:
            command = f"tagline train --resume {name}"
            return Run.create(top, spec, lock.lock_before_start(spec, command=command), name=leaf)
        except NameTaken:  # another worker of the job is creating it
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


class JobWatcher:
    """Follows one job: its log lines and its changes of state."""

    def __init__(self, launcher: Launcher, handle: str) -> None:
        self._launcher = launcher
        self._handle = handle
        self.state = JobState("waiting")

    def events(self) -> Iterator[Line | JobState]:
        """Yield log lines as they come, and the state whenever it has changed, until the job has ended."""
        yield from self._poll_state()
        for line in self._launcher.logs(self._handle):
            if line is None:
                yield from self._poll_state()
            else:
                yield line
        yield from self._poll_state()

    def _poll_state(self) -> Iterator[JobState]:
        now = self._launcher.state(self._handle)
        if now != self.state:
            self.state = now
            yield now


def explain_failure(launcher: Launcher, handle: str, run: Run | None) -> Failure:
    """Diagnose a failed job from its whole log; the command to run next is the user's own with other settings."""
    lines = (line for line in launcher.logs(handle) if line is not None)
    spec = run.spec() if run else None
    failure = log.diagnose_log(lines, message=launcher.state(handle).message, spec=spec)
    typed = str(run.lock().get("command", "")) if run else ""
    if not typed.startswith("tagline train ") or "--resume" in typed:
        return failure
    return replace(failure, command=failure.command.replace(advice.format_train_command(), typed))


def fetch_ended_run(record: Record, state: JobState, runs: Path, *, reason: str = "") -> Run:
    """Download the run of a job that has ended, after recording the end in it if its process could not."""
    run = Run.open(record.run)
    if state.name in ("failed", "cancelled") and run.state().name in ("waiting", "running"):
        run.set_state(state.name, reason=reason or state.message or state.detail)
    return lookup.download_run(record.run, runs)


def next_fallback(job: Job) -> Job | None:
    """Return the job with its first fallback applied; None if it has none."""
    place = job.spec.vertex
    if not place.fallbacks:
        return None
    first, *rest = place.fallbacks
    moved = custom_job.apply_fallback(place, first).model_copy(update={"fallbacks": tuple(rest)})
    return replace(job, spec=job.spec.model_copy(update={"vertex": moved}), is_resumed=True)
