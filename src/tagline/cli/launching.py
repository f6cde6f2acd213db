"""`tagline train --on PLACE`: planned, checked, priced, asked about, submitted, followed, and brought home."""

import secrets
import shlex
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from tagline.cli import places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tagline.data.checks import Finding
    from tagline.data.columns import ResolvedSpec
    from tagline.jobs.diagnosis.log import Failure
    from tagline.jobs.launchers import Job, Launcher
    from tagline.jobs.prices import Price
    from tagline.jobs.records import Record
    from tagline.runs.run import Run
    from tagline.spec import Spec

NO_PROJECT, NO_BUCKET = "your-project", "your-bucket"
"""In a plan that was asked for without any."""
SHOWN = ("job", "gcloud", "price", "parent", "uploads", "packages")
"""Of a plan; the rest follows from it."""


def show_plan(found: "ResolvedSpec | Run", *, on: str, runs: str, as_json: bool, name: str = "") -> None:
    """What would be done, and its price; nobody is asked, and nothing has to be there."""
    from tagline.cli import console
    from tagline.jobs import records

    job = _job_of(found, on=on, runs=runs, name=name)
    plan = records.launcher_of(on).plan(job)
    if as_json:
        console.out_json({key: plan[key] for key in SHOWN if key in plan})
        return
    console.out_json(plan["job"])
    console.out()
    console.out(plan["gcloud"])
    console.out()
    for each in plan["uploads"]:
        console.out(f"upload   {each['from']} to {each['to']}")
    if plan.get("packages"):
        console.out(f"packages {', '.join(plan['packages'])}")
    console.out(f"price    {price_of(job).sentence()}")


def resolved(source: str, overrides: "Sequence[str]") -> "ResolvedSpec":
    """A spec to plan with: data that is elsewhere is not looked at."""
    from tagline import spec as specs
    from tagline.data import columns

    if source.endswith(".toml"):
        spec, _ = specs.examine(specs.read(Path(source), overrides))
        if spec and _is_elsewhere(spec):
            return columns.ResolvedSpec(spec)
    return columns.resolve(source, overrides)


def launch(
    found: "ResolvedSpec | Run",
    *,
    on: str,
    runs: str,
    detach: bool,
    yes: bool,
    as_json: bool,
    stays: bool,
    name: str = "",
) -> "Run | None":
    """Take a training to a place and, unless it is to be left there, stay with it to the end. The place is entered;
    `stays` says whether it outlives this command."""
    from tagline import gcp
    from tagline.cli import console
    from tagline.errors import NameTaken, PlaceError
    from tagline.jobs import records
    from tagline.runs import remote

    if name:
        remote.check_free(name, runs)
    job = _with_room(_job_of(found, on=on, runs=runs, is_for_real=True, name=name))
    launcher = records.launcher_of(on, console.say)
    console.say(price_of(job).sentence(), lead="price", colour=console.BOLD)
    if on == places.VERTEX and not yes:
        _ask()
    while True:
        try:
            record, run = _submitted(job, launcher, on=on, runs=runs)
        except NameTaken:
            if job.is_named:
                raise
            job = _renamed(job, runs)
            continue
        except PlaceError as error:
            other = records.elsewhere(job) if gcp.is_exhausted(error) else None
            if other is None:
                raise
            job = _moved(other, error.message)
            continue
        if detach:
            _leave(record, run, as_json=as_json)
            return None
        failure = _followed(record, launcher, run, runs=runs, stays=stays)
        if failure is None:
            break
        other = records.elsewhere(job) if failure.cause in records.NO_ROOM else None
        if other is None:
            _fail(failure, record, runs)
        job = _moved(other, failure.sentence)
    return _come_home(record, runs, as_json=as_json)


def _with_room(job: "Job") -> "Job":
    """The job where everything is right but, maybe, details; one that lacks nothing but quota goes to its fallback."""
    from tagline.jobs import records

    while True:
        findings = examined(job)
        wrong = [each for each in findings if each.severity == "error"]
        other = records.elsewhere(job) if wrong and all(each.code == "quota" for each in wrong) else None
        if other is None:
            _insist(findings)
            return job
        job = replace(_moved(other, wrong[0].message), is_resumed=job.is_resumed)


def _moved(job: "Job", reason: str) -> "Job":
    """A job on its way to a fallback."""
    from tagline.cli import console

    place = job.spec.vertex
    console.say(f"{reason.rstrip('.')}: going on in {place.region} on {place.machine}")
    return replace(job, submission=secrets.token_hex(6))


def _renamed(job: "Job", runs: str) -> "Job":
    """A job whose run's name somebody else has taken, in the same second."""
    return replace(job, name=_free_name(runs, job.name))


def _free_name(runs: str, *taken: str) -> str:
    """A name for a run that will also come to these runs; what is taken elsewhere turns out when it is submitted."""
    from tagline import storage
    from tagline.runs.run import names_in, next_name

    # A plan may name any place, and asks nobody.
    here = [] if storage.is_remote(runs) else names_in(storage.local(runs))
    return next_name([*here, *taken])


def leave_here(found: "ResolvedSpec", *, runs: str, as_json: bool, name: str = "") -> None:
    """Start a training on this machine, in a process that outlives the command."""
    from tagline import storage
    from tagline.errors import NameTaken
    from tagline.jobs import records
    from tagline.jobs.launchers import Job
    from tagline.runs import remote
    from tagline.runs.run import Run

    if name:
        remote.check_free(name, runs)
    _said(found)
    _training_rows(found.spec, on=places.LOCAL, is_for_real=True)
    directory = storage.local(runs)
    launcher = records.launcher_of(places.LOCAL)
    job = Job(name or _free_name(runs), found.spec, str(directory), command=_typed(), is_named=bool(name))
    while True:
        try:
            handle = launcher.submit(launcher.plan(job))
            break
        except NameTaken:
            if job.is_named:
                raise
            job = _renamed(job, runs)
    record = records.Record(places.LOCAL, handle, "", datetime.now(UTC).isoformat())
    run = Run(Path(handle))
    records.remember(run, record)
    _leave(record, run, as_json=as_json)


def stay(record: "Record", launcher: "Launcher", run: "Run | None", runs: str) -> "Run | None":
    """Come back to a job, and stay with it to the end; its run may not be known here."""
    if failure := _followed(record, launcher, run, runs=runs, stays=True):
        _fail(failure, record, runs)
    return _come_home(record, runs, as_json=False) if record.run else run


def examined(job: "Job") -> "list[Finding]":
    """All that is wrong with the place a job would go to, which is entered."""
    from tagline import gcp
    from tagline.gcp import cloud_storage
    from tagline.jobs import preflight

    place = job.spec.vertex
    found = preflight.by_the_tables(job.spec, price_of(job), today=datetime.now(UTC).date())
    if gcp.rehearsal():
        cloud_storage.make_bucket(place.bucket, project=job.project, region=place.region)
        found += _unplayable_image(place.image)
    return [*found, *preflight.by_asking(job.spec, project=job.project)]


def _unplayable_image(image: str) -> "list[Finding]":
    """What the rehearsal will refuse of an image of the user's own."""
    from tagline.data.checks import Finding
    from tagline.images import google_images
    from tagline.jobs import emulator

    if not image or google_images.is_prebuilt(image) or not (reason := emulator.explain_unrunnable(image)):
        return []
    advice = "install podman or docker, or rehearse with the image that Tagline makes: vertex.image="
    return [Finding("image", "error", f"vertex.image: {reason}", advice)]


def _job_of(
    found: "ResolvedSpec | Run", *, on: str, runs: str, is_for_real: bool = False, name: str = ""
) -> "Job":  # fmt: skip
    """The job of a new run, its data looked at; or of one that is in a bucket already."""
    from tagline import gcp
    from tagline.errors import RunError
    from tagline.jobs import records
    from tagline.runs.run import Run

    submission = secrets.token_hex(6)
    if isinstance(found, Run):
        record = records.recalled(found)
        address = record.run if record else found.address
        if not address.startswith(gcp.SCHEME):
            hint = f"go on here: tagline train --resume {found.address}"
            raise RunError(f"run {found.name} is on this machine, where no job can reach it", hint=hint)
        if is_for_real:
            _insist_on_run(address)
        job = planned(found.spec(), name=found.name, on=on, is_for_real=is_for_real)
        return replace(job, is_resumed=True, runs=address.rpartition("/")[0], submission=submission)
    _said(found)
    looks = is_for_real or not _is_elsewhere(found.spec)
    rows = _training_rows(found.spec, on=on, is_for_real=is_for_real) if looks else None
    called = name or _free_name(runs)
    job = planned(found.spec, name=called, on=on, rows=rows, runs=runs, is_for_real=is_for_real)
    return replace(job, submission=submission, is_named=bool(name))


def _insist_on_run(address: str) -> None:
    """Refuse to pay for a job that would find no run to go on with, or one that is complete."""
    from tagline.errors import DataError, RunError
    from tagline.runs.remote import MirroredRun

    hint = "nothing was submitted; tagline train SPEC --on PLACE begins a new run"
    try:
        run = MirroredRun.at(address)
    except (RunError, DataError) as error:  # there may be no such bucket
        raise RunError(f"there is no run to resume at {address}", hint=hint) from error
    if run.state().name == "succeeded":
        raise RunError(f"run {run.name} is complete", hint=f"nothing was submitted; tagline jobs show {run.name}")


def _said(found: "ResolvedSpec") -> None:
    from tagline.cli import console

    for guess in found.guesses:
        console.say(f"guessed {guess}")


def _typed() -> str:
    from tagline.runs.notifications import without_targets

    return shlex.join(["tagline", *without_targets(sys.argv[1:])])


def planned(
    spec: "Spec", *, name: str, on: str, rows: int | None = None, runs: str = "", is_for_real: bool = False
) -> "Job":  # fmt: skip
    """The job that a spec makes, with everything of this machine that it needs; how long it takes is told by `runs`."""
    from tagline import gcp
    from tagline.errors import SpecError
    from tagline.jobs import throughput
    from tagline.jobs.launchers import Job
    from tagline.jobs.uploads import folder, staged

    usual = places.BUCKET if on == places.REHEARSAL else "" if is_for_real else NO_BUCKET
    bucket = (spec.vertex.bucket or usual).removeprefix(gcp.SCHEME)
    if not bucket:
        raise SpecError("vertex.bucket: needed on vertex, for data and run", hint="vertex.bucket=NAME")
    given = spec.vertex.project
    project = gcp.project(given) if is_for_real else gcp.project_without_asking(given) or NO_PROJECT
    place = spec.vertex.model_copy(update={"bucket": bucket.strip("/"), "project": project})
    there, uploads = staged(spec.model_copy(update={"vertex": place}), place.bucket)
    return Job(
        name, there, f"{folder(place.bucket)}/runs", project=project, uploads=uploads, training_rows=rows,
        rate=throughput.measured(spec, runs) if rows else None, command=_typed(),
    )  # fmt: skip


def _is_elsewhere(spec: "Spec") -> bool:
    """Whether looking at the data would take a network."""
    data = spec.data
    return any(
        "://" in each for each in (*data.addresses("train"), *data.addresses("validation"), *data.addresses("test"))
    )


def _training_rows(spec: "Spec", *, on: str, is_for_real: bool) -> int:
    """How many rows there are to learn from; data that cannot be trained on is an error, and so is a model."""
    from tagline import training
    from tagline.data import dataset

    data = dataset.load(spec.data)
    training.insist_on_sound(data)
    if is_for_real:  # an encoder may have to be fetched, and a plan asks nobody
        _insist(training.examine_model(spec, data, is_here=on == places.LOCAL))
    return len(data.splits["train"])


def _insist(findings: "Sequence[Finding]") -> None:
    """Show what was found; what would only fail there ends here."""
    from tagline.cli import console
    from tagline.errors import PlaceError

    console.show_findings(findings, with_rows=True)
    if wrong := [each for each in findings if each.severity == "error"]:
        advice = wrong[0].advice if len(wrong) == 1 else "mend them, and try again"
        listed = "\n".join(f"  {each.message}" for each in wrong)
        raise PlaceError(f"it would fail there:\n{listed}", hint=f"nothing was spent; {advice}")


def _ask() -> None:
    """Nothing is spent on a terminal without a yes."""
    from tagline.errors import SpecError

    if not sys.stdin.isatty():
        raise SpecError("this would spend money", hint="add --yes")
    typer.confirm("Submit the job?", abort=True, err=True)


def price_of(job: "Job") -> "Price":
    """What a job would cost."""
    from tagline.jobs import prices

    return prices.price_of(job.spec, training_rows=job.training_rows, rate=job.rate)


def _submitted(job: "Job", launcher: "Launcher", *, on: str, runs: str) -> "tuple[Record, Run]":
    """Submit a job; its run, which remembers it, is listed here from now on."""
    from tagline import gcp, storage
    from tagline.cli import console
    from tagline.jobs import records
    from tagline.runs import remote

    facts = gcp.rehearsal_facts()  # asked before there is a job that would be forgotten if nobody answered
    handle = launcher.submit(launcher.plan(job))
    console.say(f"submitted {handle}")
    console.say(records.page_of(launcher, handle), lead="page")
    record = records.Record(on, handle, job.run, datetime.now(UTC).isoformat(), gcp.rehearsal(), facts)
    records.remember(remote.MirroredRun.at(job.run), record)
    home = remote.bring_home(job.run, storage.local(runs))
    records.remember(home, record)
    return record, home


def _leave(record: "Record", run: "Run", *, as_json: bool) -> None:
    from tagline.cli import console
    from tagline.jobs import records

    if as_json:
        page = records.page_of(record.launcher(), record.handle)
        console.out_json({"run": str(run.directory), "job": record.handle, "page": page})
        return
    console.out(f"run      {run.directory}")
    console.out(f"job      {record.handle}")
    console.out(f"follow   tagline jobs logs {run.name} --follow")
    console.out(f"stop     tagline jobs cancel {run.name}")


def _followed(
    record: "Record", launcher: "Launcher", run: "Run | None", *, runs: str, stays: bool
) -> "Failure | None":  # fmt: skip
    """Stay with a job to its end; returns why it failed. Ctrl-C leaves it to itself."""
    from tagline import storage
    from tagline.cli import console
    from tagline.errors import Interrupted, PlaceError, RunError
    from tagline.jobs import records

    name = run.name if run else record.handle
    watch = records.Watch(launcher, record.handle)
    try:
        with console.JobLog() as log:
            for event in watch.events():
                log.show(event)
    except KeyboardInterrupt as asked:
        if not stays:
            raise Interrupted("the rehearsal of this command ends with it", signal_number=2) from asked
        hint = f"come back: tagline jobs logs {name} --follow; stop it: tagline jobs cancel {name}"
        raise Interrupted("the job goes on without you", signal_number=2, hint=hint) from asked
    except PlaceError as error:
        hint = f"the job goes on without you; come back: tagline jobs logs {name} --follow"
        raise PlaceError(error.message, hint=f"{error.hint}; {hint}" if error.hint else hint) from error
    if watch.state.name == "failed":
        return records.explained(launcher, record.handle, run)
    if watch.state.name == "cancelled":
        if record.run:
            records.brought_home(record, watch.state, storage.local(runs))
        hint = f"tagline train --resume {name} --on {record.place}" if run else "tagline jobs list shows the others"
        raise RunError(f"the job of {name} was cancelled", hint=hint)
    return None


def _fail(failure: "Failure", record: "Record", runs: str) -> NoReturn:
    """Say why a job failed; what its run has come to is here too."""
    from tagline import storage
    from tagline.cli import console
    from tagline.errors import PlaceError, TaglineError
    from tagline.jobs import records
    from tagline.jobs.launchers import JobState

    if record.run:
        with suppress(TaglineError):  # the bucket itself may be what is gone
            records.brought_home(record, JobState("failed"), storage.local(runs), reason=failure.sentence)
    for line in failure.traceback:
        console.say(line)
    where = f" ({failure.replica})" if failure.replica else ""
    raise PlaceError(f"the job failed{where}: {failure.sentence}", hint=failure.command)


def _come_home(record: "Record", runs: str, *, as_json: bool) -> "Run":
    """Bring a finished run here, and show it as if it had been trained here."""
    from tagline import storage
    from tagline.cli import console
    from tagline.cli.train import show
    from tagline.evaluation import gates
    from tagline.runs import remote

    run = remote.bring_home(record.run, storage.local(runs))
    count, minutes = run.restarts()
    if count:
        console.say(f"started again {count} times, with {minutes:.1f} minutes of work done twice")
    show(run, as_json=as_json)
    report = run.report()
    gates.insist(report.gates if report else (), hint=f"everything is saved: {run.directory}")
    return run
