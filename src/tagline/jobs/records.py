"""Jobs: what a run remembers of the job that does it, how it is watched, why it failed, and where it goes next."""

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

NO_ROOM = ("quota", "capacity")
"""Why a job failed that may find room elsewhere."""
BEGINNING_S = 60.0
"""How long the workers of a job wait for the one that makes their run."""


@dataclass(frozen=True)
class Record:
    """A job, as its run remembers it."""

    place: str
    handle: str
    run: str
    """The run's address."""
    submitted: str
    rehearsal: str = ""
    """Where the rehearsal is, if it is there."""
    rehearsal_facts: str = ""
    """The file that tells where that rehearsal is, as long as it runs; records of earlier versions have none."""

    def launcher(self) -> Launcher:
        """Who knows about it."""
        return find_launcher(self.place)


def find_launcher(place: str, say: Callable[[str], None] = lambda _: None) -> Launcher:
    """Who takes jobs to a place; a rehearsal is one of Vertex AI."""
    made: Launcher = registry.find("launchers", "vertex" if place == "rehearsal" else place)(say)
    return made


def save_record(run: Run, record: Record) -> None:
    """Keep it in the run."""
    run.write_json(JOB, asdict(record))


def load_record(run: Run) -> Record | None:
    """The job of a run; None if it was trained right here."""
    found = run.read_json(JOB)
    try:
        return None if found is None else TypeAdapter(Record).validate_json(json.dumps(found), strict=True)
    except ValidationError as error:
        hint = "tagline jobs list --on vertex shows what runs"
        problem = f"{run.address}/{JOB} is damaged: {error.errors(include_url=False)[0]['msg']}"
        raise RunError(problem, hint=hint) from error


def get_page_url(launcher: Launcher, handle: str) -> str:
    """The address of a job's page; "" where its place has none."""
    return launcher.page(handle) if isinstance(launcher, DescribesJobs) else ""


def estimate_cost(description: JobDescription, state: JobState, *, now: datetime) -> dict[str, Any]:
    """What a job has cost by the table, from its start until its end or now; an estimate, like every price here."""
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
    """What a job has cost, for a person."""
    if cost["so_far"] is None:
        return f"not known: {cost['remark']}"
    remark = f"; {cost['remark']}" if cost["remark"] else ""
    rested = f"an estimate, from {cost['region']}'s prices of {cost['date']}{remark}"
    told = f"${cost['so_far']:,.2f} for {60 * cost['hours']:,.0f} minutes at ${cost['per_hour']:,.2f} an hour"
    return f"nothing, at a rehearsal; on Vertex AI {told} ({rested})" if is_rehearsed else f"about {told} ({rested})"


def find_or_create_run(name: str, runs: str) -> Run:
    """The run that a job goes on with; one that is only planned so far is made of the spec that the job brings."""
    text = os.environ.get(custom_job.SPEC, "")
    if not text or not addresses.is_remote(name):
        return lookup.find_run(name, runs)
    spec = specs.parse(json.loads(text), where=f"the variable {custom_job.SPEC}")
    top, _, leaf = name.rstrip("/").rpartition("/")
    until = time.monotonic() + BEGINNING_S
    while True:
        with suppress(RunError):
            return Run.open(name)
        try:
            command = f"tagline train --resume {name}"
            return Run.create(top, spec, lock.lock_before_start(spec, command=command), name=leaf)
        except NameTaken:  # another worker of the job is making it
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


class JobWatcher:
    """Follows one job: what it says, and how its state changes."""

    def __init__(self, launcher: Launcher, handle: str) -> None:
        self._launcher = launcher
        self._handle = handle
        self.state = JobState("waiting")

    def events(self) -> Iterator[Line | JobState]:
        """Lines as they come, and the state whenever it has changed, to the end."""
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
    """Why a job failed, from all that it has said; what to run next is what the user typed, with other settings."""
    lines = (line for line in launcher.logs(handle) if line is not None)
    spec = run.spec() if run else None
    found = log.diagnose_log(lines, message=launcher.state(handle).message, spec=spec)
    typed = str(run.lock().get("command", "")) if run else ""
    if not typed.startswith("tagline train ") or "--resume" in typed:
        return found
    return replace(found, command=found.command.replace(advice.format_train_command(), typed))


def fetch_ended_run(record: Record, state: JobState, runs: Path, *, reason: str = "") -> Run:
    """The run of a job that has ended, here. One whose process could not say how it ended is told so first."""
    run = Run.open(record.run)
    if state.name in ("failed", "cancelled") and run.state().name in ("waiting", "running"):
        run.set_state(state.name, reason=reason or state.message or state.detail)
    return lookup.download_run(record.run, runs)


def next_fallback(job: Job) -> Job | None:
    """The same job where the first of its fallbacks says; None if there is none."""
    place = job.spec.vertex
    if not place.fallbacks:
        return None
    first, *rest = place.fallbacks
    moved = custom_job.apply_fallback(place, first).model_copy(update={"fallbacks": tuple(rest)})
    return replace(job, spec=job.spec.model_copy(update={"vertex": moved}), is_resumed=True)
