"""A training: checked, started or resumed, consumed step by step, stopped, and measured as it was saved.

Files, in the order of their imports:

- spec_sources.py: A complete spec from any form it may be given in: a Spec, its tables, a spec file or a data file.
- language_models.py: A language model of texts without labels, for family `ulmfit` to start from and for others to
  share.
- cluster.py: Cluster: the machines of one training, and how workers are started and supervised on this one.
- trials.py: A training as a trial of a HyperparameterTuningJob: its figures in the metric file that Vertex AI
  reads.
- preflight.py: Checks of a spec, its data and its model before a training begins: for check, train and launch.
- cross_validation.py: Scores of every row by models that did not learn from it, and the labels that they make look
  wrong.
- context.py: AttemptContext: what one attempt at a run works with, from its first step to its report.
- refit.py: Refitting the best model on training and validation rows together, and whether the refit may be kept.
- finish.py: The end of a run: the best model's decision layer, bundle, predictions and report, measured as it was
  saved.
- attempt.py: Attempt: consumes a model's steps, keeps the best, and stops for patience, a budget or a signal.
- learning_curve.py: The learning curve of a run: the same spec on parts of the training rows, and what more rows
  would bring.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from tagline.data import dataset
from tagline.data.checks import Finding
from tagline.data.dataset import Dataset
from tagline.errors import DataError, RunError, TaglineError
from tagline.models import Classifier
from tagline.models.nn.workers import join_workers, world
from tagline.runs import lock as locks
from tagline.runs import lookup, trackers
from tagline.runs.events import Event, ResumedEvent, TickEvent
from tagline.runs.run import Run
from tagline.spec import Spec
from tagline.storage import atomic
from tagline.training import preflight, trials
from tagline.training.attempt import run_attempt
from tagline.training.context import AttemptContext
from tagline.training.preflight import new_model


def start_run(spec: Spec, *, runs: str | Path, command: str, job: str = "", name: str = "") -> Iterator[Event]:
    """Start a run and yield its events; the first names it. A job that was restarted resumes the run it had begun."""
    here = join_workers()
    if begun := here.share(_find_begun_run(runs, job, spec) if job and here.is_main else ""):
        yield from resume_run(lookup.find_run(begun, runs) if here.is_main else Run(begun), job=job)
        return
    if name and here.is_main:
        lookup.check_name_free(name, runs)
    chosen = trackers.create_trackers(spec.tracking.to) if here.is_main else {}
    if here.size > 1:
        preflight.check_sharing(spec)
    data, findings, given = _prepare(spec)
    lock = locks.create_lock(spec, data, command=command, job=job)
    _check_same_data(data, here.share(lock))
    with (
        nullcontext(Run.create(runs, spec, lock, name=name)) if here.is_main else _create_scratch_run(spec, lock) as run
    ):
        has_learned = False
        try:
            tracked = trackers.track_events(
                run_attempt(AttemptContext(run, spec, data, findings), given), run=run, trackers=chosen
            )
            with run.worked_on(), closing(tracked):
                for event in trials.report_evaluations(tracked, spec=spec) if here.is_main else tracked:
                    has_learned = has_learned or isinstance(event, TickEvent)
                    yield event
        except Exception:
            # Nobody planned this run but the process that tells why it cannot begin; a job's run is read elsewhere.
            if here.is_main and not has_learned and not job:
                with suppress(TaglineError):
                    run.delete()
            raise


def resume_run(run: Run, *, job: str = "") -> Iterator[Event]:
    """Resume a run, bit-exactly, and yield its events; a run that was only planned is started.

    For a job that was started again after its run was complete there is nothing left to do.
    """
    here = join_workers()
    unchanged = here.share(_load_unchanged_run(run, job) if here.is_main else None)
    assert unchanged is not None
    spec, lock, is_complete = unchanged
    if is_complete:
        yield ResumedEvent(run=run.address, checkpoint=run.progress().last if here.is_main else "")
        return
    chosen = trackers.create_trackers(spec.tracking.to) if here.is_main else {}
    is_new = "data_fingerprint" not in lock
    given: list[Classifier] = []
    with _record_failure(run) if is_new and here.is_main else nullcontext():
        if here.size > 1:
            preflight.check_sharing(spec)
        if is_new:
            data, findings, given = _prepare(spec)
            lock = here.share(lock | locks.lock_at_start(spec, data, job=job))
            _check_same_data(data, lock)
        else:
            data = _reload_data(run, spec, lock)
            found = preflight.examine(spec, data=data, looks_at_model=False)
            found.insist_on_data()
            findings = found.of_data
    filled = lock if is_new else None
    with nullcontext(run) if here.is_main else _create_scratch_run(spec, lock) as own, own.worked_on():
        attempt = run_attempt(AttemptContext(own, spec, data, findings), given, lock=filled)
        events = trackers.track_events(attempt, run=own, trackers=chosen)
        yield from trials.report_evaluations(events, spec=spec) if here.is_main else events


def _prepare(spec: Spec) -> tuple[Dataset, Sequence[Finding], list[Classifier]]:
    """Load and check the data, and return it with the findings and a new model."""
    found = preflight.examine(spec, looks_at_model=False)
    found.insist_on_data()
    return found.data, found.of_data, [new_model(spec, found.data, spec.model)]


@contextmanager
def _record_failure(run: Run) -> Iterator[None]:
    """Set a run that cannot begin to failed, with the reason: its launcher may be on another machine."""
    try:
        yield
    except Exception as error:
        with suppress(TaglineError):  # what has happened says more
            run.set_state("failed", reason=error.message if isinstance(error, TaglineError) else repr(error))
        raise


def _reload_data(run: Run, spec: Spec, lock: Mapping[str, Any]) -> Dataset:
    """Load the data again, refusing data that has changed since the run was started."""
    try:
        data = dataset.load(spec.data)
    except DataError as error:
        hint = f"the run was started in {lock['directory']}: go there; what was piped in must be piped in again"
        raise RunError(f"cannot read the data of run {run.name}: {error.message}", hint=hint) from error
    if data.fingerprint != lock["data_fingerprint"]:
        files = ", ".join(source.name for source in data.sources)
        hint = f"put it back as it was, or start anew: tagline train {run.address}/spec.toml"
        raise RunError(f"the data ({files}) has changed since run {run.name} was started", hint=hint)
    if why := locks.describe_split_changes(lock, spec, data):
        hint = f"start anew: tagline train {run.address}/spec.toml"
        raise RunError(f"run {run.name} cannot be resumed: {why}", hint=hint)
    return data


def _find_begun_run(runs: str | Path, job: str, spec: Spec) -> str:
    """Return the address of the run that a restarted job had begun from this spec, or an empty string."""
    for run in reversed(lookup.list_runs(runs)):
        with suppress(RunError):  # a damaged run is none of ours
            lock = run.lock()
            if (lock.get("job"), lock.get("spec_fingerprint")) == (job, spec.fingerprint()):
                return run.address
    return ""


def _load_unchanged_run(run: Run, job: str) -> tuple[Spec, dict[str, Any], bool]:
    """Return spec, lock and completeness of a run that can be resumed, or that this very job has completed."""
    spec, lock = run.spec(), run.lock()
    is_complete = run.state().name == "succeeded"
    if is_complete and not (job and lock.get("job") == job):
        raise RunError(f"run {run.name} is complete", hint=f"tagline runs show {run.address}")
    if changes := locks.describe_changes(lock, spec):
        where = f"{run.address}/spec.toml"
        hint = f"put it back as it was, or start anew: tagline train {where}"
        raise RunError(f"{where} has changed since run {run.name} was started: {changes}", hint=hint)
    return spec, lock, is_complete


def _check_same_data(data: Dataset, lock: Mapping[str, Any]) -> None:
    if data.fingerprint != lock["data_fingerprint"]:
        hint = "copy the same files to every machine"
        raise RunError(f"worker {world().rank} reads other data than the main worker", hint=hint)


@contextmanager
def _create_scratch_run(spec: Spec, lock: dict[str, Any]) -> Iterator[Run]:
    """Create a temporary run for a worker other than the main one, whose record is discarded."""
    with tempfile.TemporaryDirectory(prefix=atomic.SCRATCH_PREFIX) as directory:
        yield Run.create(Path(directory), spec, lock)
