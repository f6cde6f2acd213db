"""A training as a job: planned, checked, priced, submitted, followed, moved to a fallback, and brought home."""

import secrets
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from tagline import gcp
from tagline.data.checks import Finding
from tagline.data.columns import ResolvedSpec
from tagline.errors import DataError, Interrupted, NameTaken, PlaceError, RunError, SpecError, TaglineError
from tagline.jobs import places, plans, preflight, records
from tagline.jobs.diagnosis.log import Failure, Line
from tagline.jobs.launchers import Job, JobState, Launcher
from tagline.jobs.plans import Plan
from tagline.jobs.prices import Price
from tagline.jobs.records import Record
from tagline.runs import lookup
from tagline.runs.names import choose_name, list_names
from tagline.runs.run import Run
from tagline.storage import addresses
from tagline.training import preflight as training_preflight


@dataclass(frozen=True)
class SpecGuessed:
    """Something was guessed to complete the spec."""

    guess: str


@dataclass(frozen=True)
class FindingsFound:
    """The checks have found something; an error among them ends the launch next."""

    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class JobPriced:
    """The price is known, and nothing has been submitted yet."""

    price: Price


@dataclass(frozen=True)
class JobMoved:
    """The job goes to a fallback."""

    reason: str
    region: str
    machine: str


@dataclass(frozen=True)
class JobSubmitted:
    """The place has accepted the job."""

    handle: str
    page: str
    """The address of its page; "" where the place has none."""


@dataclass(frozen=True)
class JobDetached:
    """The job goes on by itself; its run is listed here."""

    record: Record
    run: Run


@dataclass(frozen=True)
class JobFailed:
    """The job has failed for good; the error that says so is raised next."""

    failure: Failure


@dataclass(frozen=True)
class RunRestarted:
    """The job's machines were taken away and given back on the way."""

    count: int
    lost_minutes: float


@dataclass(frozen=True)
class JobFinished:
    """The job has succeeded, and its run is here."""

    run: Run


LaunchEvent = (
    SpecGuessed
    | FindingsFound
    | JobPriced
    | JobMoved
    | JobSubmitted
    | JobDetached
    | Line
    | JobState
    | JobFailed
    | RunRestarted
    | JobFinished
)
"""What a launch yields; lines and states are those of the job while it is followed."""
Launch = Generator[LaunchEvent, None, Run]
"""Events, and at the end the run."""


def plan(
    source: ResolvedSpec | Run, *, on: str, runs: str = "runs", name: str = "", command: str = "tagline.train"
) -> Generator[SpecGuessed | FindingsFound | JobPriced, None, Plan]:
    """What would be submitted, and its price; no service is asked, and nothing has to be there."""
    job = yield from _make_job(source, on=on, runs=runs, name=name, command=command, is_for_real=False)
    yield JobPriced(plans.price_of(job))
    return Plan.of(records.find_launcher(on).plan(job))


def launch(
    source: ResolvedSpec | Run,
    *,
    on: str,
    confirm: Callable[[Price], bool],
    runs: str = "runs",
    name: str = "",
    detach: bool = False,
    stays: bool = True,
    command: str = "tagline.train",
    say: Callable[[str], None] = lambda _: None,
) -> Launch:
    """Take a training to a place, which has been entered, and follow it to the end unless it is to be left there.

    On Vertex AI nothing is submitted unless `confirm`, which is called after `JobPriced`, returns True. `stays` says
    whether the place outlives this process; `say` is told what the launcher does on the way, such as an upload.
    """
    if name:
        lookup.check_name_free(name, runs)
    job = yield from _make_job(source, on=on, runs=runs, name=name, command=command, is_for_real=True)
    job = yield from _find_room(job)
    launcher = records.find_launcher(on, say)
    price = plans.price_of(job)
    yield JobPriced(price)
    if on == places.VERTEX and not confirm(price):
        raise SpecError("this would spend money", hint="yes=True spends it")
    while True:
        try:
            record, run = yield from _submit(job, launcher, on=on, runs=runs)
        except NameTaken:
            if job.is_named:
                raise
            job = _rename(job, runs)
            continue
        except PlaceError as error:
            other = records.next_fallback(job) if gcp.is_exhausted(error) else None
            if other is None:
                raise
            job = yield from _move(other, error.message)
            continue
        if detach:
            yield JobDetached(record, run)
            return run
        failure = yield from _follow_to_end(record, launcher, run, runs=runs, stays=stays)
        if failure is None:
            return (yield from _bring_home(record, runs))
        other = records.next_fallback(job) if failure.cause in records.NO_ROOM else None
        if other is None:
            yield from _fail(failure, record, runs)
        else:
            job = yield from _move(other, failure.sentence)


def launch_here(source: ResolvedSpec, *, runs: str = "runs", name: str = "", command: str = "tagline.train") -> Launch:
    """Start a training on this machine, in a process that outlives this one."""
    if name:
        lookup.check_name_free(name, runs)
    yield from _examine_training(source, on=places.LOCAL, is_for_real=True)
    launcher = records.find_launcher(places.LOCAL)
    job = Job(
        name or _find_free_name(runs),
        source.spec,
        str(addresses.require_local(runs)),
        command=command,
        is_named=bool(name),
    )
    while True:
        try:
            handle = launcher.submit(launcher.plan(job))
            break
        except NameTaken:
            if job.is_named:
                raise
            job = _rename(job, runs)
    record = Record(places.LOCAL, handle, "", datetime.now(UTC).isoformat())
    run = Run(Path(handle))
    records.save_record(run, record)
    yield JobDetached(record, run)
    return run


def follow(record: Record, run: Run | None, *, runs: str = "runs") -> Generator[LaunchEvent, None, Run | None]:
    """Follow a job that was submitted before, to the end; its run may not be known here."""
    failure = yield from _follow_to_end(record, record.launcher(), run, runs=runs, stays=True)
    if failure is not None:
        yield from _fail(failure, record, runs)
    return (yield from _bring_home(record, runs)) if record.run else run


def _make_job(
    source: ResolvedSpec | Run, *, on: str, runs: str, name: str, command: str, is_for_real: bool
) -> Generator[SpecGuessed | FindingsFound, None, Job]:
    """The job of a new run, its data looked at; or of one that is in a bucket already."""
    submission = secrets.token_hex(6)
    if isinstance(source, Run):
        address = _find_address(source)
        if is_for_real:
            _check_resumable(address)
        job = plans.make_job(source.spec(), name=source.name, on=on, is_for_real=is_for_real, command=command)
        return replace(job, is_resumed=True, runs=address.rpartition("/")[0], submission=submission)
    rows = yield from _examine_training(source, on=on, is_for_real=is_for_real)
    job = plans.make_job(
        source.spec,
        name=name or _find_free_name(runs),
        on=on,
        rows=rows,
        runs=runs,
        is_for_real=is_for_real,
        command=command,
    )
    return replace(job, submission=submission, is_named=bool(name))


def _examine_training(
    source: ResolvedSpec, *, on: str, is_for_real: bool
) -> Generator[SpecGuessed | FindingsFound, None, int | None]:
    """The number of rows to learn from, once data and model can be trained; a plan leaves remote data alone."""
    for guess in source.guesses:
        yield SpecGuessed(guess)
    if not is_for_real and plans.is_data_remote(source.spec):
        return None
    # An encoder may have to be fetched, and a plan asks nobody.
    found = training_preflight.examine(source.spec, is_here=on == places.LOCAL, looks_at_model=is_for_real)
    found.insist_on_data()
    yield from _insist(found.of_model)
    return found.training_rows


def _insist(findings: Sequence[Finding]) -> Generator[FindingsFound, None, None]:
    """Report what was found; what would only fail in the place ends the launch here."""
    if findings:
        yield FindingsFound(tuple(findings))
    if wrong := [each for each in findings if each.severity == "error"]:
        advice = wrong[0].advice if len(wrong) == 1 else "mend them, and try again"
        listed = "\n".join(f"  {each.message}" for each in wrong)
        raise PlaceError(f"it would fail there:\n{listed}", hint=f"nothing was spent; {advice}")


def _find_room(job: Job) -> Generator[FindingsFound | JobMoved, None, Job]:
    """The job where nothing is wrong; one that lacks nothing but quota goes to its fallback."""
    while True:
        findings = preflight.examine_place(job)
        wrong = [each for each in findings if each.severity == "error"]
        other = records.next_fallback(job) if wrong and all(each.code == "quota" for each in wrong) else None
        if other is None:
            yield from _insist(findings)
            return job
        moved = yield from _move(other, wrong[0].message)
        job = replace(moved, is_resumed=job.is_resumed)


def _move(job: Job, reason: str) -> Generator[JobMoved, None, Job]:
    """The job, on its way to a fallback, as a new submission."""
    place = job.spec.vertex
    yield JobMoved(reason, place.region, place.machine)
    return replace(job, submission=secrets.token_hex(6))


def _rename(job: Job, runs: str) -> Job:
    """The job under another name, where another run has taken its name in the same second."""
    return replace(job, name=_find_free_name(runs, job.name))


def _find_free_name(runs: str, *taken: str) -> str:
    """A name for a run that will also come to these runs; what is taken elsewhere turns out when it is submitted."""
    # A plan may name any place, and asks nobody.
    here = [] if addresses.is_remote(runs) else list_names(addresses.require_local(runs))
    return choose_name([*here, *taken])


def _find_address(run: Run) -> str:
    """Where a job finds a run to go on with; a RunError if it is on this machine alone."""
    record = records.load_record(run)
    address = record.run if record else run.address
    if not address.startswith(gcp.SCHEME):
        hint = f"go on here: tagline train --resume {run.address}"
        raise RunError(f"run {run.name} is on this machine, where no job can reach it", hint=hint)
    return address


def _check_resumable(address: str) -> None:
    """Refuse to pay for a job that would find no run to go on with, or one that is complete."""
    hint = "nothing was submitted; tagline train SPEC --on PLACE begins a new run"
    try:
        run = Run.open(address)
    except (RunError, DataError) as error:  # there may be no such bucket
        raise RunError(f"there is no run to resume at {address}", hint=hint) from error
    if run.state().name == "succeeded":
        raise RunError(f"run {run.name} is complete", hint=f"nothing was submitted; tagline jobs show {run.name}")


def _submit(job: Job, launcher: Launcher, *, on: str, runs: str) -> Generator[JobSubmitted, None, tuple[Record, Run]]:
    """Submit a job; its run, which remembers it, is listed here from now on."""
    facts = gcp.rehearsal_facts()  # asked before there is a job that would be forgotten if nobody answered
    handle = launcher.submit(launcher.plan(job))
    yield JobSubmitted(handle, records.get_page_url(launcher, handle))
    record = Record(on, handle, job.run, datetime.now(UTC).isoformat(), gcp.find_rehearsal(), facts)
    records.save_record(Run.open(job.run), record)
    home = lookup.download_run(job.run, addresses.require_local(runs))
    records.save_record(home, record)
    return record, home


def _follow_to_end(
    record: Record, launcher: Launcher, run: Run | None, *, runs: str, stays: bool
) -> Generator[Line | JobState, None, Failure | None]:
    """Follow a job to its end; returns why it failed. An interrupt leaves the job to itself."""
    name = run.name if run else record.handle
    watch = records.JobWatcher(launcher, record.handle)
    try:
        yield from watch.events()
    except KeyboardInterrupt as asked:
        if not stays:
            raise Interrupted("the rehearsal of this command ends with it", signal_number=2) from asked
        hint = f"come back: tagline jobs logs {name} --follow; stop it: tagline jobs cancel {name}"
        raise Interrupted("the job goes on without you", signal_number=2, hint=hint) from asked
    except PlaceError as error:
        hint = f"the job goes on without you; come back: tagline jobs logs {name} --follow"
        raise PlaceError(error.message, hint=f"{error.hint}; {hint}" if error.hint else hint) from error
    if watch.state.name == "failed":
        return records.explain_failure(launcher, record.handle, run)
    if watch.state.name == "cancelled":
        if record.run:
            records.fetch_ended_run(record, watch.state, addresses.require_local(runs))
        hint = f"tagline train --resume {name} --on {record.place}" if run else "tagline jobs list shows the others"
        raise RunError(f"the job of {name} was cancelled", hint=hint)
    return None


def _fail(failure: Failure, record: Record, runs: str) -> Generator[JobFailed, None, NoReturn]:
    """Raise a PlaceError that says why a job failed; what its run has come to is brought here first."""
    if record.run:
        with suppress(TaglineError):  # the bucket itself may be what is gone
            records.fetch_ended_run(record, JobState("failed"), addresses.require_local(runs), reason=failure.sentence)
    yield JobFailed(failure)
    where = f" ({failure.replica})" if failure.replica else ""
    raise PlaceError(f"the job failed{where}: {failure.sentence}", hint=failure.command)


def _bring_home(record: Record, runs: str) -> Generator[RunRestarted | JobFinished, None, Run]:
    """Copy a finished run here."""
    run = lookup.download_run(record.run, addresses.require_local(runs))
    count, minutes = run.restarts()
    if count:
        yield RunRestarted(count, minutes)
    yield JobFinished(run)
    return run
