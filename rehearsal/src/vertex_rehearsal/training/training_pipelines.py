"""The API of training pipelines: each runs a custom job and uploads the model that the job wrote."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.api.errors import ApiError, invalid_argument
from vertex_rehearsal.api.messages import as_dict, fill_message, protobuf, v1
from vertex_rehearsal.api.transcoding import parse_message
from vertex_rehearsal.context import report_bug
from vertex_rehearsal.execution.queue import JobQueue, get_job_state
from vertex_rehearsal.operations import new_id
from vertex_rehearsal.training import validation
from vertex_rehearsal.training.runner import JobRunner
from vertex_rehearsal.training.service import check_runnable, name_job

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

CUSTOM = "/custom_task_1.0.0.yaml"
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
BACKING = "backingCustomJob"


def get_pipeline_state(pipeline: Any) -> str:
    """Return the short name of a pipeline's state."""
    return str(v1.PipelineState.Name(pipeline.state)).removeprefix("PIPELINE_STATE_")


class TrainingPipelines:
    """The RPCs of google.cloud.aiplatform.v1.PipelineService about training pipelines."""

    LOOKUPS = {"TrainingPipeline": 100}  # noqa: RUF012
    LIMITS = {  # noqa: RUF012
        "CreateTrainingPipeline": "Custom training only, no AutoML; data sets have no effect.",
    }

    def __init__(self, context: "Context", queue: JobQueue[JobRunner], import_model: Callable[[Any], Any]) -> None:
        """`import_model` takes an UploadModelRequest and returns the stored model."""
        self._context = context
        self._queue = queue
        self._import_model = import_model
        self._pipelines_by_job: dict[str, str] = {}
        """The name of the pipeline that each unfinished custom job belongs to."""
        for pipeline in context.database.list_all(v1.TrainingPipeline.DESCRIPTOR.full_name):
            if get_pipeline_state(pipeline) not in ENDED:
                self._pipelines_by_job[_get_backing_job(pipeline)] = pipeline.name
        queue.watchers.append(self._on_job_change)

    def create_training_pipeline(self, request: Any) -> Any:
        """Validate a pipeline as Vertex AI does and submit its job."""
        validation.check_parent(request.parent)
        pipeline = v1.TrainingPipeline()
        pipeline.CopyFrom(request.training_pipeline)
        validation.check_name_and_labels(pipeline, "training_pipeline")
        spec = self._parse_spec(pipeline)
        job = v1.CustomJob(display_name=f"{pipeline.display_name}-custom-job"[:128], job_spec=spec)
        job.labels.update(dict(pipeline.labels))
        pipeline.name = f"{request.parent}/trainingPipelines/{new_id()}"
        pipeline.state = v1.PipelineState.PIPELINE_STATE_QUEUED
        pipeline.create_time.GetCurrentTime()
        pipeline.update_time.CopyFrom(pipeline.create_time)
        self._queue.submit(name_job(job, request.parent), first=lambda stored: self._store_pipeline(pipeline, stored))
        return self._context.database.get(pipeline.name)

    def _store_pipeline(self, pipeline: Any, job: Any) -> None:
        fill_message(pipeline.training_task_metadata, {BACKING: job.name})
        self._context.database.add(pipeline)
        self._pipelines_by_job[job.name] = pipeline.name

    def cancel_training_pipeline(self, request: Any) -> Any:
        """Request the cancellation of a pipeline's job, and thereby of the pipeline."""
        self._queue.cancel(_get_backing_job(self._context.database.get(request.name)))
        return protobuf.Empty()

    def delete_training_pipeline(self, request: Any) -> Any:
        """Delete a pipeline that has ended."""
        state = get_pipeline_state(self._context.database.get(request.name))
        if state not in ENDED:
            raise ApiError("FAILED_PRECONDITION", f"The pipeline '{request.name}' is {state}: cancel it first.")
        self._context.database.remove(request.name)
        return self._context.operations.done(request.name, v1.DeleteOperationMetadata(), protobuf.Empty)

    def _parse_spec(self, pipeline: Any) -> Any:
        """Parse and validate the custom job's spec in a pipeline's inputs, which are free-form JSON."""
        definition = pipeline.training_task_definition
        if not definition:
            at = "training_pipeline.training_task_definition"
            raise invalid_argument(at, "Required field is not set: training_task_definition.")
        if not definition.endswith(CUSTOM):
            raise ApiError("UNIMPLEMENTED", f"{definition} is not played by this rehearsal: custom training alone is.")
        at = "training_pipeline.training_task_inputs"
        inputs = as_dict(pipeline.training_task_inputs)
        if not isinstance(inputs, dict):
            raise invalid_argument(at, "Required field is not set: training_task_inputs.")
        spec = parse_message(_stringify_args(inputs), v1.CustomJobSpec(), at=at)
        validation.check_job(spec, at)
        check_runnable(spec, self._context.settings, at)
        validation.check_account(spec.service_account, self._context.project.load_current(), f"{at}.service_account")
        if pipeline.HasField("model_to_upload") and not spec.base_output_directory.output_uri_prefix:
            raise invalid_argument(
                f"{at}.base_output_directory", "A model needs base_output_directory, where it is made."
            )
        return spec

    def _on_job_change(self, job: Any) -> None:
        """Copy a job's new state to its pipeline."""
        name = self._pipelines_by_job.get(job.name)
        if name is None:
            return
        state = get_job_state(job)
        with self._context.database.change(name) as pipeline:
            if job.HasField("start_time"):
                pipeline.start_time.CopyFrom(job.start_time)
            problem = self._upload_model(pipeline, job) if state == "SUCCEEDED" else None
            if problem is not None:
                state = "FAILED"
            pipeline.state = v1.PipelineState.Value(f"PIPELINE_STATE_{state}")
            if state in ENDED:
                pipeline.end_time.GetCurrentTime()
                del self._pipelines_by_job[job.name]
            if problem is not None:
                pipeline.error.CopyFrom(problem.status())
            elif job.HasField("error"):
                pipeline.error.CopyFrom(job.error)

    def _upload_model(self, pipeline: Any, job: Any) -> ApiError | None:
        """Upload the pipeline's model, if it has one; return the error if that fails."""
        if not pipeline.HasField("model_to_upload"):
            return None
        model = v1.Model()
        model.CopyFrom(pipeline.model_to_upload)
        base = job.job_spec.base_output_directory.output_uri_prefix.rstrip("/")
        model.artifact_uri = model.artifact_uri or f"{base}/model"
        try:
            parent = pipeline.name.partition("/trainingPipelines/")[0]
            stored = self._import_model(
                v1.UploadModelRequest(
                    parent=parent, model=model, model_id=pipeline.model_id, parent_model=pipeline.parent_model
                )
            )
        except ApiError as problem:
            return problem
        except Exception as error:
            report_bug(error)
            return ApiError("INTERNAL", f"{type(error).__name__}: {error}")
        pipeline.model_to_upload.CopyFrom(stored)
        return None


def _stringify_args(value: Any) -> Any:
    """Convert numbers in `args` to strings: the SDK permits them, and free-form JSON has them all as floats."""
    if isinstance(value, list):
        return [_stringify_args(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: [f"{item:.15g}" if isinstance(item, float) else item for item in inner]
        if key == "args" and isinstance(inner, list)
        else _stringify_args(inner)
        for key, inner in value.items()
    }


def _get_backing_job(pipeline: Any) -> str:
    return str(as_dict(pipeline.training_task_metadata)[BACKING])
