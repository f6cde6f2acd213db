"""train(spec): consumes a model's steps, decides what to keep and when to stop, and measures what came out.

Files, in the order of their imports:

- language_models.py: A language model of texts without labels, for family `ulmfit` to start from and for others to
  share.
- cluster.py: Cluster: the machines of one training, and how workers are started on this one, watched and spoken
  for.
- trials.py: A trial of somebody's own HyperparameterTuningJob: its figures, in the file that Vertex AI reads.
- preflight.py: What is wrong with a spec, its data and its model, found before a training begins: for check, train
  and launch.
- cross_validation.py: Scores of every row by models that did not learn from it, and the labels that they make look
  wrong.
- learning_curve.py: The learning curve of a run: the same spec on parts of the training rows, and what more rows
  would bring.
"""

import math
import os
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tagline import __version__, gcp, registry
from tagline.data import dataset
from tagline.data.checks import Finding
from tagline.data.columns import ResolvedSpec, complete_spec, resolve
from tagline.data.dataset import Dataset, Split
from tagline.data.texts import Text
from tagline.errors import Conflict, DataError, Interrupted, RunError, SpecError, TaglineError
from tagline.evaluation import baselines, cross_fitting, intervals, metrics
from tagline.evaluation.schema import OveransweredLabel, SplitFigures
from tagline.exports.export import ExportedForms, MeasuredRows, add_forms
from tagline.models import Classifier, Exportable, Scorer, Scores, Step
from tagline.models.nn import workers
from tagline.models.nn.workers import join_workers, world
from tagline.prediction import bundle, onnx_runtime
from tagline.prediction.bundle import load_classifier
from tagline.prediction.decisions import (
    Answers,
    DecisionLayer,
    TunedDecisions,
    find_overused_labels,
    label_shares,
    tune,
)
from tagline.prediction.predictor import Predictor, score_texts
from tagline.reports import html, markdown, report
from tagline.runs import lock as locks
from tagline.runs import lookup, trackers
from tagline.runs.events import (
    EvaluationEvent,
    Event,
    FinishedEvent,
    PhaseEvent,
    ResumedEvent,
    StartedEvent,
    StepEvent,
    TickEvent,
    UsageEvent,
    WarningEvent,
)
from tagline.runs.resource_usage import UsageSampler
from tagline.runs.run import Progress, Run, StateName
from tagline.spec import Goal, Spec, apply_overrides
from tagline.storage import addresses, atomic, hashing, inputs
from tagline.system.signals import Stop
from tagline.training import preflight, trials
from tagline.training.preflight import new_model

SpecSource = Spec | Mapping[str, Any] | str | Path
"""A spec, its tables, the path of a spec file, or that of a data file."""

CHECKPOINT_EVERY_S = 300.0
"""Where evaluations are further apart, so that a machine taken away costs minutes and not an epoch."""
SAID = ("fraction", "split-words")
"""Notes of the checks that a training says too: what is learned from follows from them."""
MOST_REFITTED = 20_000
"""Rows of train and validation up to which a family that refits does so: of more, a tenth is hardly missed."""
MOST_REFITTED_BY_NETWORK = 2_000
"""The same for a family that computes on a device: what others learn in seconds takes it minutes."""


def resolve_spec(source: SpecSource, overrides: Sequence[str] = ()) -> Spec:
    """A complete spec, from whatever form it was given in."""
    return resolve_source(source, overrides).spec


def resolve_source(source: SpecSource, overrides: Sequence[str] = ()) -> ResolvedSpec:
    """A complete spec and what was guessed for it, from a spec, its tables, a spec file or a data file."""
    if isinstance(source, Spec) and not overrides:
        return ResolvedSpec(source)
    if isinstance(source, Spec | Mapping):
        raw = source.model_dump() if isinstance(source, Spec) else dict(source)
        return complete_spec(apply_overrides(raw, overrides), where="the spec")
    return resolve(str(source), overrides)


def start_run(spec: Spec, *, runs: str | Path, command: str, job: str = "", name: str = "") -> Iterator[Event]:
    """A new run, as its events; the first names it. A job that was started again goes on with the run it has begun."""
    here = join_workers()
    if begun := here.share(_find_begun_run(runs, job, spec) if job and here.is_main else ""):
        yield from resume_run(lookup.find_run(begun, runs) if here.is_main else lookup.open_run(begun), job=job)
        return
    if name and here.is_main:
        lookup.check_name_free(name, runs)
    chosen = trackers.create_trackers(spec.tracking.to) if here.is_main else {}
    if here.size > 1:
        check_sharing(spec)
    data, findings, given = _prepare(spec)
    lock = locks.create_lock(spec, data, command=command, job=job)
    _check_same_data(data, here.share(lock))
    with (
        nullcontext(lookup.new_run(runs, spec, lock, name=name))
        if here.is_main
        else _create_scratch_run(spec, lock) as run
    ):
        has_learned = False
        try:
            tracked = trackers.track_events(_run_attempt(run, spec, data, findings, given), run=run, trackers=chosen)
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
    """The rest of a run that was stopped, as if it never had been; all of one that was only planned so far.

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
            check_sharing(spec)
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
        attempt = _run_attempt(own, spec, data, findings, given, lock=filled)
        events = trackers.track_events(attempt, run=own, trackers=chosen)
        yield from trials.report_evaluations(events, spec=spec) if here.is_main else events


def _prepare(spec: Spec) -> tuple[Dataset, Sequence[Finding], list[Classifier]]:
    """What a run begins with, once nothing is wrong with it: the data, what checks say of it, and a new model."""
    found = preflight.examine(spec, looks_at_model=False)
    found.insist_on_data()
    return found.data, found.of_data, [new_model(spec, found.data, spec.model)]


@contextmanager
def _record_failure(run: Run) -> Iterator[None]:
    """Leave a run that cannot begin in a state that tells why: whoever planned it may be elsewhere."""
    try:
        yield
    except Exception as error:
        with suppress(TaglineError):  # what has happened says more
            run.set_state("failed", reason=error.message if isinstance(error, TaglineError) else repr(error))
        raise


def _reload_data(run: Run, spec: Spec, lock: Mapping[str, Any]) -> Dataset:
    """The data that a run was started with."""
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
    """The address of the run of this spec that a job has begun before it was started again."""
    for run in reversed(lookup.list_runs(runs)):
        with suppress(RunError):  # a damaged run is none of ours
            lock = run.lock()
            if (lock.get("job"), lock.get("spec_fingerprint")) == (job, spec.fingerprint()):
                return run.address
    return ""


def _load_unchanged_run(run: Run, job: str) -> tuple[Spec, dict[str, Any], bool]:
    """The spec and the lock of a run that can be gone on with, or that this very job has completed."""
    spec, lock = run.spec(), run.lock()
    is_complete = run.state().name == "succeeded"
    if is_complete and not (job and lock.get("job") == job):
        raise RunError(f"run {run.name} is complete", hint=f"tagline runs show {run.address}")
    if changes := locks.describe_changes(lock, spec):
        where = f"{run.address}/spec.toml"
        hint = f"put it back as it was, or start anew: tagline train {where}"
        raise RunError(f"{where} has changed since run {run.name} was started: {changes}", hint=hint)
    return spec, lock, is_complete


def can_share(spec: Spec) -> bool:
    """Whether several workers can learn this spec's family together."""
    return "sharding" in registry.find("models", spec.model.family).uses  # type: ignore[attr-defined]


def check_sharing(spec: Spec) -> None:
    """Refuse to share the work of a family that cannot share it, or data that can be read only once."""
    if not can_share(spec):
        family: str = spec.model.family  # type: ignore[attr-defined]
        raise SpecError(f"family {family} learns in one process", hint="leave out --workers")
    named = (spec.data.train, spec.data.validation, spec.data.test)
    for address in (each for some in named for each in ((some,) if isinstance(some, str) else some)):
        if address == inputs.STANDARD_INPUT or Path(address).is_fifo():
            hint = "write it to a file first"
            raise SpecError(f"every worker reads the data, and {address} can be read only once", hint=hint)


def _check_same_data(data: Dataset, lock: Mapping[str, Any]) -> None:
    if data.fingerprint != lock["data_fingerprint"]:
        hint = "copy the same files to every machine"
        raise RunError(f"worker {world().rank} reads other data than the main worker", hint=hint)


@contextmanager
def _create_scratch_run(spec: Spec, lock: dict[str, Any]) -> Iterator[Run]:
    """The record of a worker that is not the main one: nobody reads it."""
    with tempfile.TemporaryDirectory(prefix=atomic.SCRATCH_PREFIX) as directory:
        yield Run.create(Path(directory), spec, lock)


def _run_attempt(
    run: Run,
    spec: Spec,
    data: Dataset,
    findings: Sequence[Finding],
    given: list[Classifier] | None = None,
    *,
    lock: dict[str, Any] | None = None,
) -> Generator[Event, None, None]:
    """Learn, keep the best, measure, and leave the run in a state that tells what happened; `lock` is a new one."""
    again = _resume_command(run)
    with run.held(), Stop(hint=again if world().is_main else "") as stop:
        progress, damage = run.intact_progress()
        run.begin_attempt(progress)
        if lock is not None:
            run.write_json("lock.json", lock)
        run.set_state("running")
        try:
            yield from _Attempt(run, spec, data, findings, stop, given, progress=progress, damage=damage).events()
        except (Interrupted, KeyboardInterrupt, GeneratorExit) as asked:
            reason = asked.message if isinstance(asked, Interrupted) else "interrupted"
            _try_set_state(run, "cancelled", f"{reason}; go on with: {again}")
            raise
        except Conflict:  # the run is another's
            raise
        except BaseException as error:
            _try_set_state(run, "failed", error.message if isinstance(error, TaglineError) else repr(error))
            raise
        run.set_state("succeeded")


def _resume_command(run: Run) -> str:
    """What goes on with a run: in the place where this process is a job, or right here."""
    place = f" --on {gcp.find_place()}" if gcp.JOB_ID in os.environ and addresses.is_remote(run.address) else ""
    return f"tagline train --resume {run.address}{place}"


def _try_set_state(run: Run, name: StateName, reason: str) -> None:
    """Write down how an attempt ended; where that cannot be done, what ended it says more."""
    with suppress(TaglineError):
        run.set_state(name, reason=reason)


class _Attempt:
    """One process's work on a run."""

    def __init__(
        self,
        run: Run,
        spec: Spec,
        data: Dataset,
        findings: Sequence[Finding],
        stop: Stop,
        given: list[Classifier] | None = None,
        *,
        progress: Progress | None = None,
        damage: str = "",
    ) -> None:
        self.run = run
        self.stop = stop
        self.spec = spec
        self.data = data
        self.findings = findings
        self.family: str = spec.model.family  # type: ignore[attr-defined]
        self.world = world()
        self.progress, self.damage = self.world.share((progress or Progress(), damage))
        self.written = self.progress
        """The progress of the last checkpoint; `progress` may be ahead of it."""
        # Whoever made it must not hold it too: it is let go before the best one is loaded.
        self.model = given.pop() if given else self._load_model()
        self.usage = UsageSampler()

    def events(self) -> Iterator[Event]:
        """Everything that happens, each event written down before it is shown."""
        sizes: dict[str, int] = {name: len(split) for name, split in self.data.splits.items()}
        computing: dict[str, Any] = dict(locks.describe_device(self.spec))
        if self.progress.last:
            self.run.rewind_events(self.progress.events)
            yield ResumedEvent(run=self.run.address, checkpoint=self.progress.last, **computing)
        else:
            self.run.rewind_events(0)
            started = StartedEvent(
                run=self.run.address,
                family=self.family,
                task=self.data.task,
                labels=len(self.data.labels),
                splits=sizes,
                **computing,
            )
            yield self._record_event(started)
            for message in self._collect_warnings():
                yield self._record_event(WarningEvent(message=message))
        if self.damage:
            where = f"checkpoint {self.progress.last}" if self.progress.last else "the beginning: no checkpoint is left"
            yield self._record_event(WarningEvent(message=f"{self.damage}; going on from {where}"))
        yield from self._fit_model()
        workers.leave_workers()
        # It may have come while the last step was measured and kept: no step follows that would look for it. Workers do
        # not agree on it first: gloo's destructor holds Python's lock while it waits for a thread that may still want
        # it after an exchange (seen in several trainings by two workers, which did not end).
        if self.stop.signal is not None:
            raise self.stop.create_interruption(is_saved=True)
        if self.world.is_main:
            yield from self._finish()

    def _load_model(self) -> Classifier:
        """The model of the last checkpoint; a worker that has none is given its weights by the main one."""
        if self.progress.last and self.world.is_main:
            return load_classifier(self.family, self.run.checkpoint(self.progress.last))
        return new_model(self.spec, self.data, self.spec.model)

    def _collect_warnings(self) -> list[str]:
        findings = [*self.findings, *preflight.find_doubts(self.spec, self.data)]
        return [
            *preflight.find_unused(self.spec, self.data.task),
            *(finding.message for finding in findings if finding.severity == "warning" or finding.code in SAID),
        ]

    def _fit_model(self) -> Iterator[Event]:
        """Consume the model's steps until they end, the budget is spent, patience runs out, or a signal says stop."""
        if self.progress.stopped:
            return
        settings = self.spec.training
        train, validation = self.data.splits["train"], self.data.splits["validation"]
        clock = _Clock(self.progress.seconds, budget_s=60 * settings.max_minutes)
        due_s = clock.seconds() + CHECKPOINT_EVERY_S
        for step in self.model.fit(train, validation, seed=settings.seed):
            self.stop.waits = True
            step.insist_on_loss()
            facts: dict[str, Any] = {
                "step": step.number,
                "total": step.total,
                "loss": float(step.loss),
                "rows": step.rows,
            }
            facts |= {"stage": step.stage} if step.stage else {}
            if step.number % settings.log_every == 0 or step.evaluate:
                yield self._record_event(StepEvent(**facts, settings=dict(step.settings)))
            else:
                yield TickEvent(**facts)  # for a person who watches; it is not kept
            # Clocks and signals differ from worker to worker; what they do about them must not.
            is_over, is_due, is_asked = self.world.any(
                clock.is_over(), clock.seconds() > due_s, self.stop.signal is not None
            )
            if step.evaluate or (is_over and not self.progress.best):
                yield self._evaluate(step)
            if self.world.is_main and self.usage.is_due(at_evaluation=step.evaluate):
                yield self._record_event(UsageEvent(step=step.number, **self.usage.take_sample()))
            if reason := self._find_stop_reason(is_over=is_over):
                yield self._record_event(WarningEvent(message=reason))
            if step.evaluate or reason or is_due or is_asked:
                self._write_checkpoint(step, clock, stopped=reason)
                due_s = clock.seconds() + CHECKPOINT_EVERY_S
                if is_asked:
                    raise self.stop.create_interruption(is_saved=True)
            if reason:
                break
        self.stop.waits = False

    def _score_texts(self, texts: Sequence[Text]) -> Scores:
        """The model's scores, every worker having made its share of them."""
        here, labels = self.world, len(self.data.labels)
        if here.size == 1:
            return score_texts(self.model, texts, labels=labels)
        mine = list(texts[here.rank :: here.size])
        # Workers that share one model's layers must go through them equally often.
        fill = [texts[0]] * (math.ceil(len(texts) / here.size) - len(mine))
        return here.interleave_rows(score_texts(self.model, mine + fill, labels=labels)[: len(mine)], total=len(texts))

    def _find_stop_reason(self, *, is_over: bool) -> str:
        settings = self.spec.training
        if is_over:
            return f"stopped after training.max_minutes = {settings.max_minutes:g}"
        if settings.patience and self.progress.evaluations_without_gain >= settings.patience:
            return f"stopped: no gain in {settings.patience} evaluations (training.patience)"
        return ""

    def _evaluate(self, step: Step) -> Event:
        """Measure the model as it is on validation; the best so far will be kept.

        Of two that these rows cannot tell apart it is the later one, which has learned more and at lower rates. What is
        no gain counts against patience all the same.
        """
        name = f"{step.number:06d}"
        split = self.data.splits["validation"]
        monitor = self.spec.training.monitor
        figures: dict[str, Any] = {}
        value, is_gain, is_kept = None, True, True
        if len(split):
            scores = self._score_texts(split.texts)
            figures = report.measure_split(self.data, split, self._tune_decisions(scores, split, is_quick=True).answers)
            value = figures.get(monitor)
            if value is None:
                hint = "set another training.monitor"
                raise DataError(
                    f"{monitor} cannot be measured on task {self.data.task} with this validation split", hint=hint
                )
            best = self.progress.best_value
            is_gain = self.world.share(metrics.is_better(monitor, value, best))
            is_close = not self.model.refits and metrics.is_close(monitor, value, best, rows=len(split))
            is_kept = is_gain or self.world.share(is_close)
        if is_kept:
            self.progress = replace(self.progress, best=name, best_settings=dict(step.settings))
        missed = 0 if is_gain else self.progress.evaluations_without_gain + 1
        value_to_beat = value if is_gain else self.progress.best_value
        self.progress = replace(self.progress, best_value=value_to_beat, evaluations_without_gain=missed)
        plain = {key: number for key, number in figures.items() if isinstance(number, float)}
        event = EvaluationEvent(
            step=step.number, monitor=monitor, value=value, best=is_kept, gain=is_gain, figures=plain
        )
        return self._record_event(event)

    def _write_checkpoint(self, step: Step, clock: "_Clock", *, stopped: str) -> None:
        """Write a checkpoint and make it count."""
        name = f"{step.number:06d}"
        directory = self.run.checkpoint(name)
        atomic.remove_directory(directory)
        with atomic.writing_directory(directory) as scratch:
            self.model.save(scratch, resumable=True)
            files = hashing.hash_files(scratch)
        events = self.run.event_count()
        now = datetime.now(UTC).isoformat()
        self.progress = replace(
            self.progress,
            last=name,
            events=events,
            seconds=clock.seconds(),
            stopped=stopped,
            time=now,
            files=files,
        ).with_earlier_bests(self.written)
        self.run.write_progress(self.progress)
        self.written = self.progress

    def _tune_decisions(self, scores: Scores, split: Split, *, is_quick: bool = False) -> TunedDecisions:
        """The decision layer that these scores of a split's rows come to."""
        return tune(
            self.spec.decisions,
            task=self.data.task,
            labels=self.data.labels,
            none_label=self.data.none_label,
            scores=scores,
            truth=split.targets,
            is_quick=is_quick,
        )

    def _find_unmet_targets(self, candidate: "_Candidate") -> Iterator[str]:
        """What the spec asks of the decision layer and the rows that it was tuned on do not allow."""
        decisions = self.spec.decisions
        figures = report.measure_split(self.data, candidate.tuned_on, candidate.tuned.answers)
        if target := decisions.target_precision:
            reached = figures.get("accuracy_of_answered", figures.get("accuracy"))
            if reached is None or reached < target:
                shown = "cannot be measured" if reached is None else f"is {reached:.2f}"
                yield f"decisions.target_precision = {target:g} was not reached: on held-out rows it {shown}"
        if isinstance(goal := decisions.thresholds, Goal) and self.data.task == "multi":
            name, wanted = ("precision", goal.precision) if goal.precision else ("recall", goal.recall)
            missed = [
                label
                for label, f in figures.get("per_label", {}).items()
                if f["support"] and f[name] < wanted - 1e-9 and label != self.data.none_label
            ]
            if missed:
                labels = ", ".join(missed)
                yield f"decisions.thresholds: a {name} of {wanted:g} was not reached on held-out rows by: {labels}"

    def _finish(self) -> Iterator[Event]:
        """Bundle the best model, and measure what was saved rather than what was in memory."""
        del self.model  # with its optimizer it holds three times what the best needs, which is loaded now
        if damage := self.run.checkpoint_damage(self.progress, self.progress.best):
            hint = f"go on from an earlier checkpoint: tagline train --resume {self.run.address}"
            raise RunError(damage, hint=hint)
        best = load_classifier(self.family, self.run.checkpoint(self.progress.best))
        validation, test = self.data.splits["validation"], self.data.splits["test"]
        raw = score_texts(best, validation.texts, labels=len(self.data.labels))
        tuned = self._tune_decisions(raw, validation)
        kept = _Candidate(best, tuned, validation, raw, tuned.answers)
        clock = _Clock(self.progress.seconds, budget_s=60 * self.spec.training.max_minutes)
        fallbacks: list[str] = []
        if best.refits and len(validation) and not clock.is_over() and self._is_worth_refitting(best):
            yield PhaseEvent(message="learning once more, with the validation rows too")
            refitted = self._refit(clock)
            problem = self._find_refit_problem(refitted, before=kept) if refitted else ""
            kept = kept if problem or refitted is None else refitted
            fallbacks += [problem] if problem else []
        unkept = list(self._find_unmet_targets(kept))
        for message in (*unkept, *fallbacks):
            yield self._record_event(WarningEvent(message=message))
        others = {"majority": baselines.measure_majority(self.data)}
        if self.spec.training.baseline and len(test) and not clock.is_over():
            yield from self._compare_baselines(others)
        yield PhaseEvent(message="measuring")
        made: dict[str, Any] = {}
        warnings: list[str] = []
        with self.run.reading("events.jsonl"):
            history = report.summarize_history(self.run.events(), refits=best.refits)
        announced, layer = len(fallbacks), kept.tuned.layer

        def fill(directory: Path) -> dict[str, Any]:
            kept.model.save(directory)
            scorer, raw, forms = self._select_runtime(directory, layer, warnings, fallbacks)
            predictor = Predictor(scorer, layer, pair=self.data.pair)
            outcome = report.SplitPredictions(test, raw, layer.answers(raw))
            made["report"] = report.build_report(
                self.data,
                predictor,
                family=self.family,
                findings=self.findings,
                wanted=self.spec.gates,
                test=outcome,
                validation=report.SplitPredictions(validation, kept.raw, kept.answers),
                losses=kept.tuned.losses,
                unkept=unkept,
                fallbacks=fallbacks,
                baselines=others,
                history=history,
                runtime=forms.runtime,
                exports=forms.found,
            )
            made["predictions"] = report.format_predictions(self.data, outcome, layer)
            return {
                "tagline": __version__,
                "task": self.data.task,
                "pair": self.data.pair,
                "labels": self.data.labels,
                "family": self.family,
                "spec": self.spec.model_dump(mode="json"),
                "fingerprint": self.data.fingerprint,
                "decisions": layer.to_dict(),
                "figures": _select_numbers(made["report"].test),
                "exports": forms.found,
                "runtime": forms.runtime,
            }

        yield self._record_event(UsageEvent(step=int(self.progress.last), **self.usage.take_sample()))
        bundle.write(
            self.run.bundle, fill=fill, card=lambda manifest: markdown.render_model_card(manifest, made["report"])
        )
        warnings += [report.overanswer_sentence(each) for each in made["report"].overanswered]
        for message in (*warnings, *fallbacks[announced:]):
            yield self._record_event(WarningEvent(message=message))
        self.run.write_lines("predictions.jsonl", made["predictions"])
        html.write_report(self.run, made["report"])
        yield self._record_event(FinishedEvent(run=self.run.address, figures=_select_numbers(made["report"].test)))

    def _is_worth_refitting(self, model: Classifier) -> bool:
        """Whether the validation rows would be missed by what learned without them, and there is time to learn more."""
        rows = len(self.data.splits["train"]) + len(self.data.splits["validation"])
        return rows <= (MOST_REFITTED_BY_NETWORK if model.uses_device else MOST_REFITTED)

    def _refit(self, clock: "_Clock") -> "_Candidate | None":
        """The model that won, learned again with the validation rows too; none where that takes too long.

        Its decision layer is tuned on scores of models that have learned nearly as much: those of a model without the
        validation rows are lower for labels that stand in few others, and one such label was answered for every text.
        """
        options = self.spec.model.model_copy(update=self.progress.best_settings)
        seed, both = self.spec.training.seed, self.data.select("train", "validation")

        def create() -> Classifier:
            return new_model(self.spec, self.data, options)

        scores = cross_fitting.out_of_fold_scores(self.data, both.rows, create=create, seed=seed, is_over=clock.is_over)
        if scores is None or clock.is_over():
            return None
        tuned = self._tune_decisions(scores, both)
        in_validation = np.isin(both.rows, self.data.splits["validation"].rows)
        model = cross_fitting.fit_on_rows(self.data, both.rows, create=create, seed=seed)
        return _Candidate(model, tuned, both, scores[in_validation], tuned.answers.select(in_validation))

    def _find_refit_problem(self, refitted: "_Candidate", *, before: "_Candidate") -> str:
        """Why a refitted model must not take the place of the one before it; nothing where it may."""
        layer, validation = refitted.tuned.layer, self.data.splits["validation"]
        own = layer.answers(score_texts(refitted.model, validation.texts, labels=len(layer.labels)))
        stays = "the model that learned without the validation rows is kept"
        for answers in (refitted.answers, own):
            lost = self._describe_decline(answers, before=before.answers)
            if lost:
                return f"learned once more with the validation rows, it does worse on them ({lost}): {stays}"
        shares = label_shares(self.data.splits["train"].targets, len(layer.labels))
        known = {each["label"] for each in find_overused_labels(before.answers.chosen, layer.labels, shares=shares)}
        for each in find_overused_labels(own.chosen, layer.labels, shares=shares):
            if each["label"] not in known:
                return f"learned once more, {report.overanswer_sentence(OveransweredLabel(**each))}: {stays}"
        return ""

    def _describe_decline(self, answers: Answers, *, before: Answers) -> str:
        """By how much answers to the validation rows are worse than others, where that is no chance."""
        figure = "accuracy" if self.data.task == "single" else "micro_f1"
        truth = self.data.splits["validation"].targets
        if not len(truth):
            return ""
        found = intervals.compare_models(
            self.data.task, truth=truth, first=before.chosen, second=answers.chosen, figure=figure
        )
        return f"{figure} falls by {found.gain:.3f}" if found.gain > 0 and found.is_real else ""

    def _compare_baselines(self, others: dict[str, baselines.Figures]) -> Iterator[Event]:
        """Add what other families reach; one that cannot learn from this data is no reason for the run to fail."""
        learned = (
            {} if self.family == baselines.FAMILY else {baselines.FAMILY: (baselines.measure_linear, "to compare with")}
        )
        rival = baselines.choose_rival(self.spec, self.data)
        if rival and self.world.size == 1:  # the others are not there to learn with
            learned[rival] = baselines.measure_rival, "which may do better with so few rows"
        for family, (reached, why) in learned.items():
            yield PhaseEvent(message=f"learning family {family}, {why}")
            try:
                others[family] = reached(self.spec, self.data)
            except TaglineError as error:
                yield self._record_event(WarningEvent(message=f"not compared with family {family}: {error.message}"))

    def _select_runtime(
        self, directory: Path, layer: DecisionLayer, warnings: list[str], fallbacks: list[str]
    ) -> tuple[Scorer, Scores, ExportedForms]:
        """What was saved, in the form that will predict, and its scores of the test rows.

        Other forms are checked on those rows; where there are none, on the validation rows.
        """
        test, validation = self.data.splits["test"], self.data.splits["validation"]
        rows = test if len(test) else validation
        own = load_classifier(self.family, directory)
        raw = score_texts(own, rows.texts, labels=len(layer.labels))
        forms = ExportedForms()
        if self.spec.training.export and own.uses_device and isinstance(own, Exportable):
            answers = layer.answers(raw)
            measured = MeasuredRows(rows.texts, rows.targets, answers.chosen, answers.scores)
            try:
                if not len(rows):
                    raise RunError("there is no row to check another form with")
                forms = add_forms(
                    own,
                    directory,
                    to="onnx",
                    family=self.family,
                    layer=layer,
                    measured=measured,
                    samples=self.data.splits["train"].texts,
                )
            except TaglineError as error:
                atomic.remove_directory(directory / onnx_runtime.DIRECTORY)
                warnings.append(f"the bundle needs torch to predict: {error.message}")
        forms = self._drop_worse_runtimes(own, forms, layer, fallbacks)
        if forms.runtime:
            return forms.scorers[forms.runtime], forms.scores[forms.runtime][: len(test)], forms
        return own, raw[: len(test)], forms

    def _drop_worse_runtimes(
        self, own: Classifier, forms: ExportedForms, layer: DecisionLayer, fallbacks: list[str]
    ) -> ExportedForms:
        """The forms, none of them predicting that does worse on validation than the model's own."""
        texts, labels = self.data.splits["validation"].texts, len(layer.labels)
        tried = [name for name in (forms.runtime, "float32") if forms.runtime and name in forms.scorers]
        if not tried or not len(texts):
            return forms
        before = layer.answers(score_texts(own, texts, labels=labels))
        for name in dict.fromkeys(tried):
            lost = self._describe_decline(
                layer.answers(score_texts(forms.scorers[name], texts, labels=labels)), before=before
            )
            if not lost:
                return replace(forms, runtime=name)
            fallbacks.append(f"its form {name} does worse on validation than its own ({lost}): that form is not used")
        return replace(forms, runtime="")

    def _record_event(self, event: Event) -> Event:
        """Write an event down, with the time."""
        written = event.model_copy(update={"time": datetime.now(UTC).isoformat()})
        self.run.append_event(written)
        return written


@dataclass(frozen=True)
class _Candidate:
    """A model that may become the bundle, with its decision layer."""

    model: Classifier
    tuned: TunedDecisions
    tuned_on: Split
    """The rows that the layer was tuned on, by scores of models that had not learned from them."""
    raw: Scores
    """Such scores of the validation rows, before the layer."""
    answers: Answers
    """And what the layer makes of them."""


def _select_numbers(figures: SplitFigures) -> dict[str, Any]:
    return {key: value for key, value in figures.items() if isinstance(value, int | float)}


@dataclass
class _Clock:
    """Seconds spent on learning, those of earlier attempts included."""

    before: float
    budget_s: float

    def __post_init__(self) -> None:
        self._start = time.monotonic()

    def seconds(self) -> float:
        return self.before + time.monotonic() - self._start

    def is_over(self) -> bool:
        return 0 < self.budget_s <= self.seconds()
