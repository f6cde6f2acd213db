"""The API of custom jobs: validation, quotas, queueing, preemption and deletion."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.api.messages import protobuf, v1
from vertex_rehearsal.execution import images
from vertex_rehearsal.execution.queue import JobQueue
from vertex_rehearsal.execution.replicas import RunnableJob
from vertex_rehearsal.operations import new_id
from vertex_rehearsal.project import quotas
from vertex_rehearsal.settings import Settings
from vertex_rehearsal.training import validation
from vertex_rehearsal.training.runner import JobRunner

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context


def check_runnable(spec: Any, settings: Settings, at: str) -> None:
    """Raise FAILED_PRECONDITION if an image of the job cannot run on this machine."""
    for number, pool in enumerate(spec.worker_pool_specs):
        image = pool.container_spec.image_uri
        if pool.WhichOneof("task") == "container_spec" and (reason := images.explain_unrunnable(image, settings)):
            field = f"{at}.worker_pool_specs[{number}].container_spec.image_uri"
            raise ApiError("FAILED_PRECONDITION", reason, field)


STATES = {
    "PENDING": "Waiting for job to be provisioned.",
    "RUNNING": "Job is running.",
    "SUCCEEDED": "Job completed successfully.",
    "CANCELLING": "Job is being cancelled.",
    "CANCELLED": "Job cancelled.",
    "FAILED": "Job failed.",
}
"""The log message of each state."""


def create_queue(context: "Context") -> JobQueue[JobRunner]:
    """Create the queue of all custom jobs, including those of trials, pipelines and training pipelines."""
    return JobQueue(
        context,
        v1.CustomJob.DESCRIPTOR.full_name,
        create_runner=lambda job, on_start: JobRunner(RunnableJob(job.name, job.job_spec), context, on_start=on_start),
        describe=lambda state, problem: " ".join(
            [STATES[state], *([problem.message] if problem and state == "FAILED" else [])]
        ),
    )


def name_job(job: Any, parent: str) -> Any:
    """Give a new custom job a name and return it."""
    job.name = f"{parent}/customJobs/{new_id()}"
    return job


def preempt(queue: JobQueue[JobRunner], job: str, replica: str = "") -> str:
    """Preempt a running job on spot machines, given its id or name, and return its name."""
    name, runner = queue.find_running(job)
    strategy = v1.Scheduling.Strategy.Name(runner.job.spec.scheduling.strategy)
    if not replica and strategy != "SPOT":
        raise ApiError(
            "FAILED_PRECONDITION",
            f"The job {job} is not on spot machines: its scheduling.strategy is {strategy}. "
            "One replica of it can be preempted, as happens when a machine fails.",
        )
    runner.preempt(replica)
    return name


class CustomJobs:
    """The RPCs of google.cloud.aiplatform.v1.JobService about custom jobs."""

    LOOKUPS = {"CustomJob": 100}  # noqa: RUF012
    LIMITS = {  # noqa: RUF012
        "CreateCustomJob": "Networks, interactive shells, TensorBoard and machine sizes have no effect; accelerators "
        "and service accounts are checked and have none either; persistent resources are refused.",
    }

    def __init__(self, context: "Context", queue: JobQueue[JobRunner]) -> None:
        self._context = context
        self._queue = queue

    def create_custom_job(self, request: Any) -> Any:
        """Validate a job as Vertex AI does and queue it."""
        validation.check_parent(request.parent)
        job = v1.CustomJob()
        job.CopyFrom(request.custom_job)
        validation.check_name_and_labels(job, "custom_job")
        validation.check_job(job.job_spec, "custom_job.job_spec")
        check_runnable(job.job_spec, self._context.settings, "custom_job.job_spec")
        at = "custom_job.job_spec.service_account"
        validation.check_account(job.job_spec.service_account, self._context.project.load_current(), at)
        for field in ("state", "create_time", "start_time", "end_time", "update_time", "error", "name"):
            job.ClearField(field)
        return self._queue.submit(
            name_job(job, request.parent),
            check=lambda names: self._check_quota(request.parent, job.job_spec, names),
        )

    def cancel_custom_job(self, request: Any) -> Any:
        """Request the cancellation of a job."""
        self._queue.cancel(request.name)
        return protobuf.Empty()

    def delete_custom_job(self, request: Any) -> Any:
        """Delete a job that has ended."""
        self._queue.remove(request.name)
        return self._context.operations.done(request.name, v1.DeleteOperationMetadata(), protobuf.Empty)

    def _check_quota(self, parent: str, spec: Any, names: Sequence[str]) -> None:
        """Raise RESOURCE_EXHAUSTED if the job, with all waiting and running jobs, exceeds a quota of its region."""
        used: Counter[str] = Counter()
        for name in names:
            if name.startswith(f"{parent}/"):
                used += quotas.compute_demand(self._context.database.get(name).job_spec)
        exceeded = self._context.project.load_current().find_exceeded_metrics(
            parent.rpartition("/")[2], quotas.compute_demand(spec), used
        )
        if exceeded:
            metrics = ",".join(f"{quotas.SERVICE}/{metric}" for metric in exceeded)
            raise ApiError("RESOURCE_EXHAUSTED", f"The following quota metrics exceed quota limits: {metrics}")
