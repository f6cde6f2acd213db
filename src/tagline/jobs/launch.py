"""Launch a training as a job: plan, check, price, submit and follow it, move it to a fallback, download its run."""

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
    """A value of the spec was inferred."""

    guess: str


@dataclass(frozen=True)
class FindingsFound:
    """The findings of the checks; if there is an error among them, the launch fails next."""

    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class JobPriced:
    """The price was estimated; nothing has been submitted yet."""

    price: Price


@dataclass(frozen=True)
class JobMoved:
    """The job was moved to a fallback."""

    reason: str
    region: str
    machine: str


@dataclass(frozen=True)
class JobSubmitted:
    """The place has accepted the job."""

    handle: str
    page: str
    """The address of the job's page; "" where the place has none."""


@dataclass(frozen=True)
class JobDetached:
    """The job continues on its own; its run is listed on this machine."""

    record: Record
    run: Run


@dataclass(frozen=True)
class JobFailed:
    """The job has failed and has no fallback left; the error is raised next."""

    failure: Failure


@dataclass(frozen=True)
class RunRestarted:
    """The job was restarted after its machines were preempted."""

    count: int
    lost_minutes: float


@dataclass(frozen=True)
class JobFinished:
    """The job has succeeded, and its run has been downloaded."""

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
"""The events of a launch; lines and states are those of the job while it is followed."""
Launch = Generator[LaunchEvent, None, Run]
"""A generator of events that returns the run."""


def plan(
    source: ResolvedSpec | Run, *, on: str, runs: str = "runs", name: str = "", command: str = "tagline.train"
) -> Generator[SpecGuessed | FindingsFound | JobPriced, None, Plan]:
    """Return what would be submitted, and its price, without calling any service."""
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
    """Submit a training to a place, which has been entered, and follow the job to its end unless `detach` is set.

    On Vertex AI nothing is submitted unless `confirm`, which is called after `JobPriced`, returns True. `stays` says
    whether the place outlives this process; the launcher reports its progress, such as uploads, to `say`.
    """
    if name:
        lookup.check_name_free(name, runs)
    job = yield from _make_job(source, on=on, runs=runs, name=name, command=command, is_for_real=True)
    job = yield from _check_place(job)
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
            job = yield from _move_to_fallback(other, error.message)
            continue
        if detach:
            yield JobDetached(record, run)
            return run
        failure = yield from _follow_to_end(record, launcher, run, runs=runs, stays=stays)
        if failure is None:
            return (yield from _download_run(record, runs))
        other = records.next_fallback(job) if failure.cause in records.EXHAUSTED else None
        if other is None:
            yield from _fail(failure, record, runs)
        else:
            job = yield from _move_to_fallback(other, failure.sentence)


def launch_here(source: ResolvedSpec, *, runs: str = "runs", name: str = "", command: str = "tagline.train") -> Launch:
    """Start a training on this machine in a detached process."""
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
    """Follow a job that was submitted earlier to its end; its run may be unknown on this machine."""
    failure = yield from _follow_to_end(record, record.launcher(), run, runs=runs, stays=True)
    if failure is not None:
        yield from _fail(failure, record, runs)
    return (yield from _download_run(record, runs)) if record.run else run


def _make_job(
    source: ResolvedSpec | Run, *, on: str, runs: str, name: str, command: str, is_for_real: bool
) -> Generator[SpecGuessed | FindingsFound, None, Job]:
    """Return the job of a new run, once its data is checked, or of a run that is in a bucket already."""
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
    """Check data and model and return the number of training rows; a plan does not read remote data."""
    for guess in source.guesses:
        yield SpecGuessed(guess)
    if not is_for_real and plans.is_data_remote(source.spec):
        return None
    # Checking an encoder may download it, and a plan uses no network.
    result = training_preflight.examine(source.spec, is_here=on == places.LOCAL, looks_at_model=is_for_real)
    result.insist_on_data()
    yield from _raise_on_errors(result.of_model)
    return result.training_rows


def _raise_on_errors(findings: Sequence[Finding]) -> Generator[FindingsFound, None, None]:
    """Yield the findings, and raise PlaceError if one of them is an error: the job would fail too."""
    if findings:
        yield FindingsFound(tuple(findings))
    if wrong := [each for each in findings if each.severity == "error"]:
        advice = wrong[0].advice if len(wrong) == 1 else "mend them, and try again"
        listed = "\n".join(f"  {each.message}" for each in wrong)
        raise PlaceError(f"it would fail there:\n{listed}", hint=f"nothing was spent; {advice}")


def _check_place(job: Job) -> Generator[FindingsFound | JobMoved, None, Job]:
    """Check the job's place, moving to the next fallback while quota is the only error."""
    while True:
        findings = preflight.examine_place(job)
        wrong = [each for each in findings if each.severity == "error"]
        other = records.next_fallback(job) if wrong and all(each.code == "quota" for each in wrong) else None
        if other is None:
            yield from _raise_on_errors(findings)
            return job
        moved = yield from _move_to_fallback(other, wrong[0].message)
        job = replace(moved, is_resumed=job.is_resumed)


def _move_to_fallback(job: Job, reason: str) -> Generator[JobMoved, None, Job]:
    """Announce that the job moves to a fallback, and return it as a new submission."""
    place = job.spec.vertex
    yield JobMoved(reason, place.region, place.machine)
    return replace(job, submission=secrets.token_hex(6))


def _rename(job: Job, runs: str) -> Job:
    """Return the job under another name, after another process took its name in the same second."""
    return replace(job, name=_find_free_name(runs, job.name))


def _find_free_name(runs: str, *taken: str) -> str:
    """Choose a name that is free in a directory; whether it is free in the bucket shows at submission."""
    # A plan may name any bucket, and uses no network.
    existing = [] if addresses.is_remote(runs) else list_names(addresses.require_local(runs))
    return choose_name([*existing, *taken])


def _find_address(run: Run) -> str:
    """Return the address of a run to resume; raise RunError if it is on this machine only."""
    record = records.load_record(run)
    address = record.run if record else run.address
    if not address.startswith(gcp.SCHEME):
        hint = f"go on here: tagline train --resume {run.address}"
        raise RunError(f"run {run.name} is on this machine, where no job can reach it", hint=hint)
    return address


def _check_resumable(address: str) -> None:
    """Raise RunError if there is no run to resume or it is complete, before a job is paid for."""
    hint = "nothing was submitted; tagline train SPEC --on PLACE begins a new run"
    try:
        run = Run.open(address)
    except (RunError, DataError) as error:  # there may be no such bucket
        raise RunError(f"there is no run to resume at {address}", hint=hint) from error
    if run.state().name == "succeeded":
        raise RunError(f"run {run.name} is complete", hint=f"nothing was submitted; tagline jobs show {run.name}")


def _submit(job: Job, launcher: Launcher, *, on: str, runs: str) -> Generator[JobSubmitted, None, tuple[Record, Run]]:
    """Submit a job, record it in its run, and list the run on this machine."""
    facts = gcp.rehearsal_facts()  # before there is a job: an error here would lose it
    handle = launcher.submit(launcher.plan(job))
    yield JobSubmitted(handle, records.get_page_url(launcher, handle))
    record = Record(on, handle, job.run, datetime.now(UTC).isoformat(), gcp.find_rehearsal(), facts)
    records.save_record(Run.open(job.run), record)
    local_run = lookup.download_run(job.run, addresses.require_local(runs))
    records.save_record(local_run, record)
    return record, local_run


def _follow_to_end(
    record: Record, launcher: Launcher, run: Run | None, *, runs: str, stays: bool
) -> Generator[Line | JobState, None, Failure | None]:
    """Follow a job to its end and return the reason if it failed. An interrupt leaves the job running."""
    name = run.name if run else record.handle
    watch = records.JobWatcher(launcher, record.handle)
    try:
        yield from watch.events()
    except KeyboardInterrupt as interrupt:
        if not stays:
            raise Interrupted("the rehearsal of this command ends with it", signal_number=2) from interrupt
        hint = f"come back: tagline jobs logs {name} --follow; stop it: tagline jobs cancel {name}"
        raise Interrupted("the job goes on without you", signal_number=2, hint=hint) from interrupt
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
    """Download the run of a failed job, then raise PlaceError with the reason."""
    if record.run:
        with suppress(TaglineError):  # the bucket itself may be what is gone
            records.fetch_ended_run(record, JobState("failed"), addresses.require_local(runs), reason=failure.sentence)
    yield JobFailed(failure)
    where = f" ({failure.replica})" if failure.replica else ""
    raise PlaceError(f"the job failed{where}: {failure.sentence}", hint=failure.command)


def _download_run(record: Record, runs: str) -> Generator[RunRestarted | JobFinished, None, Run]:
    """Download a finished run."""
    run = lookup.download_run(record.run, addresses.require_local(runs))
    count, minutes = run.restarts()
    if count:
        yield RunRestarted(count, minutes)
    yield JobFinished(run)
    return run
