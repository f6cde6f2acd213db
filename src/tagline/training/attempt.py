"""Attempt: consumes a model's steps, keeps the best, and stops for patience, a budget or a signal."""

import math
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tagline import gcp
from tagline.data.texts import Text
from tagline.errors import Conflict, DataError, Interrupted, TaglineError
from tagline.evaluation import metrics
from tagline.models import Classifier, Scores, Step
from tagline.models.nn import workers
from tagline.models.nn.workers import world
from tagline.prediction.bundle import load_classifier
from tagline.prediction.predictor import score_texts
from tagline.reports import report
from tagline.runs import lock as locks
from tagline.runs.checkpoints import Progress
from tagline.runs.events import (
    EvaluationEvent,
    Event,
    ResumedEvent,
    StartedEvent,
    StepEvent,
    TickEvent,
    UsageEvent,
    WarningEvent,
)
from tagline.runs.formats import StateName
from tagline.runs.run import Run
from tagline.storage import addresses, atomic, hashing
from tagline.system.signals import Stop
from tagline.training import preflight
from tagline.training.context import AttemptContext, Clock
from tagline.training.finish import finish_run
from tagline.training.preflight import new_model

CHECKPOINT_EVERY_S = 300.0
"""Longest time between checkpoints, so that a preempted machine costs minutes and not an epoch."""
REPEATED_NOTES = ("fraction", "split-words")
"""Notes of the checks that a training repeats as warnings: what is learned from follows from them."""


def run_attempt(
    context: AttemptContext,
    given: list[Classifier] | None = None,
    *,
    lock: dict[str, Any] | None = None,
) -> Generator[Event, None, None]:
    """Run an attempt to its end and record in the run's state how it ended; `lock` is written if given."""
    run = context.run
    again = _resume_command(run)
    with run.held(), Stop(hint=again if world().is_main else "") as stop:
        progress, damage = run.intact_progress()
        run.begin_attempt(progress)
        if lock is not None:
            run.write_json("lock.json", lock)
        run.set_state("running")
        try:
            yield from Attempt(context, stop, given, progress=progress, damage=damage).events()
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
    """Return the command that resumes a run, in the place where this process is a job or on this machine."""
    place = f" --on {gcp.find_place()}" if gcp.JOB_ID in os.environ and addresses.is_remote(run.address) else ""
    return f"tagline train --resume {run.address}{place}"


def _try_set_state(run: Run, name: StateName, reason: str) -> None:
    """Record how an attempt ended; a failure to do so is not raised, since the original error says more."""
    with suppress(TaglineError):
        run.set_state(name, reason=reason)


class Attempt:
    """One process's work on a run."""

    def __init__(
        self,
        context: AttemptContext,
        stop: Stop,
        given: list[Classifier] | None = None,
        *,
        progress: Progress | None = None,
        damage: str = "",
    ) -> None:
        self.context = context
        self.run, self.spec, self.data = context.run, context.spec, context.data
        self.stop = stop
        self.world = world()
        self.progress, self.damage = self.world.share((progress or Progress(), damage))
        self.written = self.progress
        """The progress of the last checkpoint; `progress` may be ahead of it."""
        # The caller must not keep a reference: the model is released before the best one is loaded.
        self.model = given.pop() if given else self._load_model()

    def events(self) -> Iterator[Event]:
        """Yield all events, each recorded before it is yielded."""
        sizes: dict[str, int] = {name: len(split) for name, split in self.data.splits.items()}
        computing: dict[str, Any] = dict(locks.describe_device(self.spec))
        if self.progress.last:
            self.run.rewind_events(self.progress.events)
            yield ResumedEvent(run=self.run.address, checkpoint=self.progress.last, **computing)
        else:
            self.run.rewind_events(0)
            started = StartedEvent(
                run=self.run.address,
                family=self.context.family,
                task=self.data.task,
                labels=len(self.data.labels),
                splits=sizes,
                **computing,
            )
            yield self.context.record(started)
            for message in self._collect_warnings():
                yield self.context.record(WarningEvent(message=message))
        if self.damage:
            where = f"checkpoint {self.progress.last}" if self.progress.last else "the beginning: no checkpoint is left"
            yield self.context.record(WarningEvent(message=f"{self.damage}; going on from {where}"))
        yield from self._fit_model()
        workers.leave_workers()
        # It may have come while the last step was measured and kept: no step follows that would look for it. Workers do
        # not agree on it first: gloo's destructor holds Python's lock while it waits for a thread that may still want
        # it after an exchange (seen in several trainings by two workers, which did not end).
        if self.stop.signal is not None:
            raise self.stop.create_interruption(is_saved=True)
        if self.world.is_main:
            del self.model  # with its optimizer it holds three times what the best needs, which is loaded now
            yield from finish_run(self.context, self.progress)

    def _load_model(self) -> Classifier:
        """Load the last checkpoint's model; workers other than the main one get its weights broadcast."""
        if self.progress.last and self.world.is_main:
            return load_classifier(self.context.family, self.run.checkpoint(self.progress.last))
        return new_model(self.spec, self.data, self.spec.model)

    def _collect_warnings(self) -> list[str]:
        findings = [*self.context.findings, *preflight.find_doubts(self.spec, self.data)]
        return [
            *preflight.find_unused(self.spec, self.data.task),
            *(
                finding.message
                for finding in findings
                if finding.severity == "warning" or finding.code in REPEATED_NOTES
            ),
        ]

    def _fit_model(self) -> Iterator[Event]:
        """Consume the model's steps until they end, the budget is spent, patience runs out, or a signal arrives."""
        if self.progress.stopped:
            return
        settings = self.spec.training
        train, validation = self.data.splits["train"], self.data.splits["validation"]
        clock = Clock(self.progress.seconds, budget_s=60 * settings.max_minutes)
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
                yield self.context.record(StepEvent(**facts, settings=dict(step.settings)))
            else:
                yield TickEvent(**facts)  # for a person who watches; it is not kept
            # Clocks and signals differ from worker to worker; what they do about them must not.
            is_over, is_due, is_asked = self.world.any(
                clock.is_over(), clock.seconds() > due_s, self.stop.signal is not None
            )
            if step.evaluate or (is_over and not self.progress.best):
                yield self._evaluate(step)
            if self.world.is_main and self.context.usage.is_due(at_evaluation=step.evaluate):
                yield self.context.record(UsageEvent(step=step.number, **self.context.usage.take_sample()))
            if reason := self._find_stop_reason(is_over=is_over):
                yield self.context.record(WarningEvent(message=reason))
            if step.evaluate or reason or is_due or is_asked:
                self._write_checkpoint(step, clock, stopped=reason)
                due_s = clock.seconds() + CHECKPOINT_EVERY_S
                if is_asked:
                    raise self.stop.create_interruption(is_saved=True)
            if reason:
                break
        self.stop.waits = False

    def _score_texts(self, texts: Sequence[Text]) -> Scores:
        """Score texts, each worker its share of them."""
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
        """Evaluate the model on validation and keep it if it is the best so far.

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
            figures = report.measure_split(
                self.data, split, self.context.tune_decisions(scores, split, is_quick=True).answers
            )
            value = figures.get(monitor)
            if value is None:
                hint = "set another training.monitor"
                raise DataError(
                    f"{monitor} cannot be measured on task {self.data.task} with this validation split",
                    hint=hint,
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
        return self.context.record(event)

    def _write_checkpoint(self, step: Step, clock: Clock, *, stopped: str) -> None:
        """Write a checkpoint and record it as the last."""
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
