"""The API of hyperparameter tuning jobs: validation, start, cancellation and deletion."""

import threading
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.api.errors import ApiError, invalid_argument
from vertex_rehearsal.api.messages import protobuf, v1
from vertex_rehearsal.execution.queue import ENDED, Ending, JobQueue, get_job_state
from vertex_rehearsal.operations import new_id
from vertex_rehearsal.settings import Settings
from vertex_rehearsal.training import validation
from vertex_rehearsal.training.runner import JobRunner
from vertex_rehearsal.training.service import check_runnable
from vertex_rehearsal.tuning import parameters
from vertex_rehearsal.tuning.runner import CANCELLED, TuningRunner, finish_tuning_job
from vertex_rehearsal.tuning.studies import GRID_SEARCH

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

AT = "hyperparameter_tuning_job"
RESTARTED = "The rehearsal was ended while the job was running."
NOT_PLAYED = {
    "decay_curve_stopping_spec": "stopping by decay curves", "convex_automated_stopping_spec": "convex stopping",
    "study_stopping_config": "study_stopping_config",
}  # fmt: skip


def check_tuning_job(job: Any, settings: Settings) -> None:
    """Raise ApiError for a tuning job that Vertex AI rejects or that is not emulated."""
    validation.check_name_and_labels(job, AT)
    spec = job.study_spec
    if not spec.metrics:
        raise invalid_argument(f"{AT}.study_spec.metrics", "Required field is not set: metrics.")
    names: set[str] = set()
    for number, metric in enumerate(spec.metrics):
        at = f"{AT}.study_spec.metrics[{number}]"
        name = metric.metric_id
        if not name or any(character.isspace() for character in name):
            raise invalid_argument(f"{at}.metric_id", f'"{name}": metric_id must be set and contain no whitespace.')
        if name in names:
            raise invalid_argument(f"{at}.metric_id", f"The metric {name} is there twice.")
        if metric.HasField("safety_config"):
            raise ApiError("UNIMPLEMENTED", "Safe search is not played by this rehearsal.", f"{at}.safety_config")
        names.add(name)
    parameters.check_parameters(spec.parameters, f"{AT}.study_spec.parameters", gridded=spec.algorithm == GRID_SEARCH)
    if spec.observation_noise:
        at = f"{AT}.study_spec.observation_noise"
        raise invalid_argument(at, "observation_noise is not supported by HyperparameterTuningJob.")
    for field, what in NOT_PLAYED.items():
        if spec.HasField(field):
            raise ApiError("UNIMPLEMENTED", f"{what} is not played by this rehearsal.", f"{AT}.study_spec.{field}")
    _check_counts(job)
    validation.check_job(job.trial_job_spec, f"{AT}.trial_job_spec")
    check_runnable(job.trial_job_spec, settings, f"{AT}.trial_job_spec")


def _check_counts(job: Any) -> None:
    for field in ("max_trial_count", "parallel_trial_count"):
        if getattr(job, field) <= 0:
            raise invalid_argument(f"{AT}.{field}", f"{field} must be positive: {getattr(job, field)}.")
    if job.parallel_trial_count > job.max_trial_count:
        wrong = f"parallel_trial_count is {job.parallel_trial_count}, more than max_trial_count, {job.max_trial_count}."
        raise invalid_argument(f"{AT}.parallel_trial_count", wrong)
    if not 0 <= job.max_failed_trial_count <= job.max_trial_count:
        wrong = f"max_failed_trial_count must be from 0 to max_trial_count: {job.max_failed_trial_count}."
        raise invalid_argument(f"{AT}.max_failed_trial_count", wrong)


class TuningJobs:
    """The RPCs of google.cloud.aiplatform.v1.JobService about hyperparameter tuning jobs."""

    LOOKUPS = {"HyperparameterTuningJob": 100}  # noqa: RUF012
    LIMITS = {  # noqa: RUF012
        "CreateHyperparameterTuningJob": "The Bayesian search is Optuna's; decay curves and convex stopping are "
        "refused; the jobs of trials are listed among custom jobs; what holds for CreateCustomJob.",
    }

    def __init__(self, context: "Context", queue: JobQueue[JobRunner]) -> None:
        self._context = context
        self._queue = queue
        self._lock = threading.Lock()
        self._searches: dict[str, TuningRunner] = {}
        self._waiting: list[Any] = []
        for job in context.database.list_all(v1.HyperparameterTuningJob.DESCRIPTOR.full_name):
            if get_job_state(job) not in ENDED:
                self._recover_job(job)
        queue.watchers.append(self._on_job_change)

    def _recover_job(self, job: Any) -> None:
        """Mark searches that had started before a restart as failed and queue the others."""
        for trial in job.trials:
            self._queue.drop_queued_job(trial.custom_job)
        if get_job_state(job) == "PENDING":
            with self._context.database.change(job.name) as kept:
                del kept.trials[:]
            self._waiting.append(job)
            return
        cancelled = get_job_state(job) == "CANCELLING"
        finish_tuning_job(
            self._context, job.name, CANCELLED if cancelled else Ending("FAILED", ApiError("ABORTED", RESTARTED))
        )

    def resume(self) -> None:
        """Start the searches that had not started before a restart."""
        for job in self._waiting:
            self._start_search(job)

    def close(self) -> None:
        """End every search; its trials have already been ended."""
        with self._lock:
            searches = list(self._searches.values())
        for search in searches:
            search.stop()
        for search in searches:
            search.thread.join()

    def create_hyperparameter_tuning_job(self, request: Any) -> Any:
        """Validate a job as Vertex AI does and start its search."""
        validation.check_parent(request.parent)
        job = v1.HyperparameterTuningJob()
        job.CopyFrom(request.hyperparameter_tuning_job)
        for field in ("trials", "state", "create_time", "start_time", "end_time", "update_time", "error"):
            job.ClearField(field)
        check_tuning_job(job, self._context.settings)
        account, at = job.trial_job_spec.service_account, f"{AT}.trial_job_spec.service_account"
        validation.check_account(account, self._context.project.load_current(), at)
        job.name = f"{request.parent}/hyperparameterTuningJobs/{new_id()}"
        job.state = v1.JobState.JOB_STATE_PENDING
        job.create_time.GetCurrentTime()
        job.update_time.CopyFrom(job.create_time)
        self._context.database.add(job)
        self._start_search(job)
        return job

    def cancel_hyperparameter_tuning_job(self, request: Any) -> Any:
        """Request the cancellation of a job and its trials; a job that has ended is left unchanged."""
        self._context.database.get(request.name)
        with self._lock:
            search = self._searches.get(request.name)
        if search is not None:
            search.cancel()
        return protobuf.Empty()

    def delete_hyperparameter_tuning_job(self, request: Any) -> Any:
        """Delete a job that has ended and the jobs of its trials."""
        job = self._context.database.get(request.name)
        if get_job_state(job) not in ENDED:
            raise ApiError("FAILED_PRECONDITION", f"The job '{request.name}' is {get_job_state(job)}: cancel it first.")
        for trial in job.trials:
            self._context.database.remove(trial.custom_job)
        self._context.database.remove(request.name)
        return self._context.operations.done(request.name, v1.DeleteOperationMetadata(), protobuf.Empty)

    def _start_search(self, job: Any) -> None:
        with self._lock:
            self._searches[job.name] = TuningRunner(job, self._context, self._queue, self._forget_search)
            self._searches[job.name].thread.start()

    def _forget_search(self, name: str) -> None:
        with self._lock:
            del self._searches[name]

    def _on_job_change(self, job: Any) -> None:
        """Notify the searches of a custom job's new state; each ignores jobs of other searches."""
        with self._lock:
            for search in self._searches.values():
                search.events.put(job)
