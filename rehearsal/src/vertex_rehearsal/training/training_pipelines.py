"""Training pipelines of custom training: each is a custom job, and a model made of what it leaves."""

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
    """A pipeline's state by its short name."""
    return str(v1.PipelineState.Name(pipeline.state)).removeprefix("PIPELINE_STATE_")


class TrainingPipelines:
    """The RPCs of google.cloud.aiplatform.v1.PipelineService about training pipelines."""

    LOOKUPS = {"TrainingPipeline": 100}  # noqa: RUF012
    LIMITS = {  # noqa: RUF012
        "CreateTrainingPipeline": "Custom training only, no AutoML; data sets have no effect.",
    }

    def __init__(self, context: "Context", queue: JobQueue[JobRunner], import_model: Callable[[Any], Any]) -> None:
        """`import_model` takes an UploadModelRequest and returns the model as it is kept."""
        self._context = context
        self._queue = queue
        self._import_model = import_model
        self._followed: dict[str, str] = {}
        """Custom jobs, and the pipelines that they belong to."""
        for pipeline in context.database.list_all(v1.TrainingPipeline.DESCRIPTOR.full_name):
            if get_pipeline_state(pipeline) not in ENDED:
                self._followed[_get_backing_job(pipeline)] = pipeline.name
        queue.watchers.append(self._on_job_change)

    def create_training_pipeline(self, request: Any) -> Any:
        """Accept a pipeline, or refuse it as Vertex AI would, and submit its job."""
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
        self._queue.submit(name_job(job, request.parent), first=lambda kept: self._store_pipeline(pipeline, kept))
        return self._context.database.get(pipeline.name)

    def _store_pipeline(self, pipeline: Any, job: Any) -> None:
        fill_message(pipeline.training_task_metadata, {BACKING: job.name})
        self._context.database.add(pipeline)
        self._followed[job.name] = pipeline.name

    def cancel_training_pipeline(self, request: Any) -> Any:
        """Begin to end a pipeline's job, and the pipeline with it."""
        self._queue.cancel(_get_backing_job(self._context.database.get(request.name)))
        return protobuf.Empty()

    def delete_training_pipeline(self, request: Any) -> Any:
        """Forget a pipeline that has ended."""
        state = get_pipeline_state(self._context.database.get(request.name))
        if state not in ENDED:
            raise ApiError("FAILED_PRECONDITION", f"The pipeline '{request.name}' is {state}: cancel it first.")
        self._context.database.remove(request.name)
        return self._context.operations.done(request.name, v1.DeleteOperationMetadata(), protobuf.Empty)

    def _parse_spec(self, pipeline: Any) -> Any:
        """The custom job's spec out of a pipeline's inputs, which come as free JSON."""
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
        """Take a job's new state over to its pipeline."""
        name = self._followed.get(job.name)
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
                del self._followed[job.name]
            if problem is not None:
                pipeline.error.CopyFrom(problem.status())
            elif job.HasField("error"):
                pipeline.error.CopyFrom(job.error)

    def _upload_model(self, pipeline: Any, job: Any) -> ApiError | None:
        """The model that the pipeline asked for; what is wrong with it, if something is."""
        if not pipeline.HasField("model_to_upload"):
            return None
        model = v1.Model()
        model.CopyFrom(pipeline.model_to_upload)
        base = job.job_spec.base_output_directory.output_uri_prefix.rstrip("/")
        model.artifact_uri = model.artifact_uri or f"{base}/model"
        try:
            parent = pipeline.name.partition("/trainingPipelines/")[0]
            kept = self._import_model(
                v1.UploadModelRequest(
                    parent=parent, model=model, model_id=pipeline.model_id, parent_model=pipeline.parent_model
                )
            )
        except ApiError as problem:
            return problem
        except Exception as error:
            report_bug(error)
            return ApiError("INTERNAL", f"{type(error).__name__}: {error}")
        pipeline.model_to_upload.CopyFrom(kept)
        return None


def _stringify_args(value: Any) -> Any:
    """Inputs whose `args` are texts: the SDK lets them be numbers, which free JSON has only one kind of."""
    if isinstance(value, list):
        return [_stringify_args(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: [f"{one:.15g}" if isinstance(one, float) else one for one in inner]
        if key == "args" and isinstance(inner, list)
        else _stringify_args(inner)
        for key, inner in value.items()
    }


def _get_backing_job(pipeline: Any) -> str:
    return str(as_dict(pipeline.training_task_metadata)[BACKING])
