"""Runs a tuning job: trials as custom jobs, a few at a time, with values that a study suggests."""

import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.api.messages import v1
from vertex_rehearsal.context import report_bug
from vertex_rehearsal.execution.queue import ENDED, Ending, JobQueue, get_job_state
from vertex_rehearsal.execution.replicas import RunnableJob
from vertex_rehearsal.training.runner import JobRunner
from vertex_rehearsal.training.service import name_job
from vertex_rehearsal.tuning import metric_files, parameters
from vertex_rehearsal.tuning.metric_files import MetricFile
from vertex_rehearsal.tuning.studies import Study, Suggestion

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

LOOK_S = 0.2
"""Polling interval of the metric files of running trials."""
ENOUGH_FAILED = 5
"""Failed trials, and none that succeeded, after which a job fails that leaves the number to Vertex AI."""
CANCELLED = Ending("CANCELLED", ApiError("CANCELLED", "CANCELED"))


def finish_tuning_job(context: "Context", name: str, ending: Ending) -> None:
    """Store how a tuning job ended and mark its running trials as stopped."""
    reason = ending.problem.message if ending.problem else "The job has ended."
    with context.database.change(name) as job:
        for trial in job.trials:
            if not trial.HasField("end_time"):
                _finish_trial(trial, None, f"The trial was ended with its job: {reason}")
        job.state = v1.JobState.Value(f"JOB_STATE_{ending.state}")
        job.end_time.GetCurrentTime()
        if ending.problem:
            job.error.CopyFrom(ending.problem.status())
        said = {"SUCCEEDED": "Job completed successfully.", "CANCELLED": "Job cancelled."}.get(ending.state)
        _log_note(context, name, said or f"Job failed. {reason}", "INFO" if said else "ERROR")


def _log_note(context: "Context", name: str, text: str, severity: str = "INFO") -> None:
    _, project, _, _, _, number = name.split("/")
    context.logs.write_note(text, job=number, project=project, severity=severity)


def _finish_trial(trial: Any, measurement: Any | None, reason: str) -> None:
    trial.end_time.GetCurrentTime()
    if measurement is None:
        trial.state = v1.Trial.INFEASIBLE
        trial.infeasible_reason = reason
    else:
        trial.state = v1.Trial.SUCCEEDED
        trial.final_measurement.CopyFrom(measurement)


@dataclass
class _RunningTrial:
    """A trial whose job has not ended."""

    id: str
    suggestion: Suggestion
    file: MetricFile
    directory: Path
    is_stopped_early: bool = False


@dataclass(frozen=True)
class _Cancel:
    pass


@dataclass(frozen=True)
class _Stop:
    """The emulator stops."""


class TuningRunner:
    """Runs one tuning job in its own thread; other threads only put events in its queue."""

    def __init__(self, job: Any, context: "Context", queue: JobQueue[JobRunner], ended: Callable[[str], None]) -> None:
        self._job = job
        self._context = context
        self._queue = queue
        self._ended = ended
        self.events: Queue[Any] = Queue()
        self.thread = threading.Thread(target=self._run_search, daemon=True)
        self._running: dict[str, _RunningTrial] = {}
        """Running trials by the names of their custom jobs."""
        self._completed: list[list[Any]] = []
        """The measurements of succeeded trials."""
        self._begun = 0
        self._failed = 0
        self._ending: Ending | None = None
        """How the job will end once its running trials have ended."""

    def cancel(self) -> None:
        """Cancel the job and its trials."""
        self.events.put(_Cancel())

    def stop(self) -> None:
        """End the job at once because the emulator stops."""
        self.events.put(_Stop())

    def _run_search(self) -> None:
        try:
            self._run_trials()
        except Exception as error:
            report_bug(error)
            self._end_trials(Ending("FAILED", ApiError("INTERNAL", f"{type(error).__name__}: {error}")))
        finally:
            for running in self._running.values():
                shutil.rmtree(running.directory, ignore_errors=True)
            if self._ending is not None:
                finish_tuning_job(self._context, self._job.name, self._ending)
            self._ended(self._job.name)

    def _run_trials(self) -> None:
        study = Study(self._job.study_spec, trials=self._job.max_trial_count)
        _log_note(self._context, self._job.name, "Tuning is being set up.")
        while True:
            while self._ending is None and self._wants_more() and (suggestion := study.ask()):
                self._start_trial(suggestion)
            if not self._running:
                break
            try:
                event = self.events.get(timeout=LOOK_S)
            except Empty:
                self._poll_trials()
                continue
            if isinstance(event, _Stop):
                self._handle_stop()
                return
            if isinstance(event, _Cancel):
                self._change_state(state="CANCELLING")
                self._end_trials(CANCELLED)
            elif event.name in self._running:
                self._handle_job_change(event, study)
        if self._ending is None:
            self._ending = Ending("SUCCEEDED")

    def _handle_stop(self) -> None:
        """Leave a job without trials for the next start; fail any other."""
        if get_job_state(self._context.database.get(self._job.name)) != "PENDING":
            self._ending = Ending("FAILED", ApiError("ABORTED", "The rehearsal was stopped while the job was running."))
            for name in self._running:
                self._queue.drop_queued_job(name)

    def _wants_more(self) -> bool:
        return bool(len(self._running) < self._job.parallel_trial_count and self._begun < self._job.max_trial_count)

    def _change_state(self, *, state: str) -> None:
        with self._context.database.change(self._job.name) as job:
            job.state = v1.JobState.Value(f"JOB_STATE_{state}")
            if state == "RUNNING":
                job.start_time.GetCurrentTime()

    def _start_trial(self, suggestion: Suggestion) -> None:
        """Submit the custom job of the next trial."""
        self._begun += 1
        number = str(self._begun)
        spec = self._job.trial_job_spec
        job = v1.CustomJob(display_name=f"{self._job.display_name}-trial-{number}"[-128:], job_spec=spec)
        job.labels.update(dict(self._job.labels))
        arguments = [
            word for key, value in suggestion.values.items() for word in (f"--{key}", parameters.format_argument(value))
        ]
        tuning_id = self._job.name.rpartition("/")[2]

        def before_start(kept: Any) -> None:
            directory = self._context.settings.directory.resolve() / "jobs" / kept.name.rpartition("/")[2] / "hypertune"
            metrics = [metric.metric_id for metric in self._job.study_spec.metrics]
            file = MetricFile(directory / "output.metrics", metrics)
            self._running[kept.name] = _RunningTrial(number, suggestion, file, directory)
            with self._context.database.change(self._job.name) as tuning:
                trial = tuning.trials.add(id=number, state=v1.Trial.REQUESTED, custom_job=kept.name)
                for key, value in suggestion.values.items():
                    parameter = trial.parameters.add(parameter_id=key)
                    if isinstance(value, str):
                        parameter.value.string_value = value
                    else:
                        parameter.value.number_value = value

        def create_runner(kept: Any, on_start: Callable[[], None]) -> JobRunner:
            directory = self._running[kept.name].directory
            directory.mkdir(parents=True, exist_ok=True)
            variables = {
                "CLOUD_ML_TRIAL_ID": number,
                "CLOUD_ML_HP_METRIC_FILE": str(directory / "output.metrics"),
                "CLOUD_ML_JOB_ID": tuning_id,
            }
            work = RunnableJob(kept.name, spec, tuple(arguments), tuple(variables.items()), number, tuning_id)
            return JobRunner(work, self._context, on_start=on_start)

        parent = self._job.name.partition("/hyperparameterTuningJobs/")[0]
        self._queue.submit(name_job(job, parent), first=before_start, create_runner=create_runner)

    def _poll_trials(self) -> None:
        """Store the reports of running trials, and stop trials early by the median rule."""
        for name, running in list(self._running.items()):
            if not running.file.read():
                continue
            self._write_measurements(running)
            spec = self._job.study_spec
            if (
                spec.HasField("median_automated_stopping_spec")
                and not running.is_stopped_early
                and metric_files.is_hopeless(running.file.measurements, self._completed, spec)
            ):
                running.is_stopped_early = True
                with self._context.database.change(self._job.name) as job:
                    job.trials[int(running.id) - 1].state = v1.Trial.STOPPING
                _log_note(self._context, self._job.name, f"Trial {running.id} is stopped early by the median rule.")
                self._queue.cancel(name)

    def _write_measurements(self, running: _RunningTrial) -> None:
        with self._context.database.change(self._job.name) as job:
            trial = job.trials[int(running.id) - 1]
            del trial.measurements[:]
            trial.measurements.extend(running.file.measurements)

    def _handle_job_change(self, custom_job: Any, study: Study) -> None:
        """Handle a new state of a trial's job."""
        state = get_job_state(custom_job)
        if state == "RUNNING":
            self._running[custom_job.name].file.began_s = custom_job.start_time.ToMicroseconds() / 1e6
            with self._context.database.change(self._job.name) as job:
                trial = job.trials[int(self._running[custom_job.name].id) - 1]
                trial.state = v1.Trial.ACTIVE
                trial.start_time.CopyFrom(custom_job.start_time)
                if get_job_state(job) == "PENDING":
                    job.state = v1.JobState.JOB_STATE_RUNNING
                    job.start_time.GetCurrentTime()
        if state not in ENDED:
            return
        running = self._running.pop(custom_job.name)
        running.file.read()
        shutil.rmtree(running.directory, ignore_errors=True)
        self._write_measurements(running)
        has_ended_well = state == "SUCCEEDED" or running.is_stopped_early
        measurement = (
            metric_files.select_final(running.file.measurements, self._job.study_spec) if has_ended_well else None
        )
        reason = (
            "" if measurement is not None else self._explain_failure(custom_job, running, has_ended_well=has_ended_well)
        )
        with self._context.database.change(self._job.name) as job:
            _finish_trial(job.trials[int(running.id) - 1], measurement, reason)
        if measurement is None:
            study.tell(running.suggestion, None)
            self._handle_failure(running, reason)
        else:
            metrics = self._job.study_spec.metrics
            values = [metric_files.get_metric_value(measurement, metric.metric_id) for metric in metrics]
            study.tell(running.suggestion, [value for value in values if value is not None])
            self._completed.append(running.file.measurements)

    def _explain_failure(self, custom_job: Any, running: _RunningTrial, *, has_ended_well: bool) -> str:
        """Return why a trial has no final measurement."""
        if not has_ended_well:
            return str(custom_job.error.message) or "The trial's job was cancelled."
        names = ", ".join(metric.metric_id for metric in self._job.study_spec.metrics)
        if running.file.not_numbers:
            return f"The trial reported {', '.join(sorted(running.file.not_numbers))} as something that is no number."
        return f"The trial ended without a report of {names}: nothing was written to CLOUD_ML_HP_METRIC_FILE."

    def _handle_failure(self, running: _RunningTrial, reason: str) -> None:
        _log_note(self._context, self._job.name, f"Trial {running.id} failed. {reason}", "ERROR")
        self._failed += 1
        most = self._job.max_failed_trial_count
        given_up = self._failed >= (most or min(ENOUGH_FAILED, self._job.max_trial_count))
        if self._ending is None and given_up and (most or not self._completed):
            said = f"{self._failed} of {self._begun} trials failed, the last of them trial {running.id}: {reason}"
            self._end_trials(Ending("FAILED", ApiError("INVALID_ARGUMENT", said)))

    def _end_trials(self, ending: Ending) -> None:
        """Start no more trials and end the running ones."""
        self._ending = self._ending or ending
        for name in list(self._running):
            self._queue.cancel(name)
