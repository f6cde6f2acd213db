"""The API of batch prediction jobs: validation, queueing and deletion."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.api.errors import ApiError, invalid_argument
from vertex_rehearsal.api.messages import protobuf, v1
from vertex_rehearsal.execution.queue import JobQueue
from vertex_rehearsal.operations import new_id
from vertex_rehearsal.prediction import batch_inputs, models
from vertex_rehearsal.prediction.batch_runner import BatchRun
from vertex_rehearsal.prediction.endpoints import MOST_REPLICAS, check_machine
from vertex_rehearsal.training import validation

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

OUTPUTS = ("jsonl",)
AT = "batch_prediction_job"
KIND = "google.cloud.aiplatform.v1.BatchPredictionJob"


class BatchPredictions:
    """The RPCs of google.cloud.aiplatform.v1.JobService about batch prediction jobs."""

    LOOKUPS = {"BatchPredictionJob": 100}  # noqa: RUF012
    LIMITS = {  # noqa: RUF012
        "CreateBatchPredictionJob": "Models of one's own; jsonl, csv and file-list in, jsonl out, both in Cloud "
        "Storage; startingReplicaCount replicas. BigQuery, explanations, monitoring, key fields and unmanaged "
        "containers are refused.",
    }

    def __init__(self, context: "Context") -> None:
        self._context = context
        self._queue = JobQueue(
            context,
            KIND,
            create_runner=lambda job, on_start: BatchRun(job, context, on_start=on_start),
            describe=lambda state, problem: (
                f"Batch prediction job is {state}." + (f" {problem.message}" if problem else "")
            ),
        )

    def resume(self) -> None:
        """Mark jobs that were running before a restart as failed and queue those that were waiting."""
        self._queue.resume()

    def close(self) -> None:
        """End the running jobs; queued jobs wait for the next start."""
        self._queue.close()

    def create_batch_prediction_job(self, request: Any) -> Any:
        """Validate a job as Vertex AI does and queue it."""
        validation.check_parent(request.parent)
        job = v1.BatchPredictionJob()
        job.CopyFrom(request.batch_prediction_job)
        validation.check_name_and_labels(job, AT)
        for field in (
            "name",
            "state",
            "error",
            "partial_failures",
            "resources_consumed",
            "completion_stats",
            "output_info",
            "create_time",
            "start_time",
            "end_time",
            "update_time",
        ):
            job.ClearField(field)
        self._validate_job(job)
        job.name = f"{request.parent}/batchPredictionJobs/{new_id()}"
        BatchRun(job, self._context).check()
        name = models.find_version(self._context, f"{job.model}@{job.model_version_id}").display_name
        return self._queue.submit(
            job, first=lambda stored: self._context.database.add_note(stored.name, "model_display_name", name)
        )

    def cancel_batch_prediction_job(self, request: Any) -> Any:
        """Request the cancellation of a job; its predictions so far are kept."""
        self._queue.cancel(request.name)
        return protobuf.Empty()

    def delete_batch_prediction_job(self, request: Any) -> Any:
        """Delete a job that has ended."""
        self._queue.remove(request.name)
        return self._context.operations.done(request.name, v1.DeleteOperationMetadata(), protobuf.Empty)

    def _validate_job(self, job: Any) -> None:
        if job.HasField("unmanaged_container_model"):
            raise ApiError("UNIMPLEMENTED", "Unmanaged containers are not played.", f"{AT}.unmanaged_container_model")
        if job.generate_explanation:
            raise ApiError("UNIMPLEMENTED", "Explanations are not played.", f"{AT}.generate_explanation")
        if not job.model:
            raise invalid_argument(f"{AT}.model", "Required field is not set: model.")
        model = models.find_version(self._context, job.model, f"{AT}.model")
        job.model, job.model_version_id = models.get_model_name(model), model.version_id
        _check_format(job.input_config.instances_format, models.INPUTS, f"{AT}.input_config.instances_format")
        _check_format(job.output_config.predictions_format, OUTPUTS, f"{AT}.output_config.predictions_format")
        if job.instance_config.key_field or job.instance_config.included_fields or job.instance_config.excluded_fields:
            raise ApiError(
                "UNIMPLEMENTED", "Key, included and excluded fields are not played.", f"{AT}.instance_config"
            )
        if job.instance_config.instance_type not in ("", "object", "array"):
            text = f'"{job.instance_config.instance_type}" is no instance type here: object or array.'
            raise invalid_argument(f"{AT}.instance_config.instance_type", text)
        batch_inputs.check_instance_type(
            job.input_config.instances_format, job.instance_config.instance_type, f"{AT}.instance_config.instance_type"
        )
        if not batch_inputs.find_files(
            self._context, job.input_config.gcs_source.uris, f"{AT}.input_config.gcs_source.uris"
        ):
            raise invalid_argument(f"{AT}.input_config.gcs_source.uris", "Required field is not set: uris.")
        prefix, at = job.output_config.gcs_destination.output_uri_prefix, f"{AT}.output_config.gcs_destination"
        if not prefix:
            raise invalid_argument(f"{at}.output_uri_prefix", "Required field is not set: output_uri_prefix.")
        validation.check_output(prefix, f"{at}.output_uri_prefix")
        bucket = "/".join(prefix.split("/")[:3])
        if not self._context.resolve_uri(bucket).is_dir():
            raise ApiError("NOT_FOUND", f"The bucket {bucket} was not found.", f"{at}.output_uri_prefix")
        validation.check_account(job.service_account, self._context.project.load_current(), f"{AT}.service_account")
        resources = job.dedicated_resources
        if not job.HasField("dedicated_resources"):
            raise invalid_argument(f"{AT}.dedicated_resources", "Required field is not set: dedicated_resources.")
        check_machine(resources.machine_spec, f"{AT}.dedicated_resources.machine_spec")
        if not 0 <= resources.starting_replica_count <= MOST_REPLICAS:
            text = f"starting_replica_count must be from 1 to {MOST_REPLICAS}."
            raise invalid_argument(f"{AT}.dedicated_resources.starting_replica_count", text)
        resources.starting_replica_count = resources.starting_replica_count or 1


def _check_format(name: str, known: Sequence[str], at: str) -> None:
    if not name:
        raise invalid_argument(at, f"Required field is not set: {at.rpartition('.')[2]}.")
    if name not in known:
        raise ApiError("UNIMPLEMENTED", f'The format "{name}" is not played: {", ".join(known)} are.', at)
