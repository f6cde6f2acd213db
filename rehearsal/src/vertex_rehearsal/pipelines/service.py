"""The API of pipeline jobs: compiled Kubeflow pipelines, validated, run, cancelled and deleted."""

import re
import threading
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.api.errors import ApiError, invalid_argument
from vertex_rehearsal.api.messages import as_dict, protobuf, v1
from vertex_rehearsal.api.transcoding import parse_message
from vertex_rehearsal.context import report_bug
from vertex_rehearsal.execution.queue import Ending, JobQueue
from vertex_rehearsal.execution.workloads import find_mount_command
from vertex_rehearsal.operations import new_id
from vertex_rehearsal.pipelines import spec as pipeline_specs
from vertex_rehearsal.pipelines.runner import PipelineRun
from vertex_rehearsal.pipelines.task_details import write_entry
from vertex_rehearsal.training import validation
from vertex_rehearsal.training.runner import JobRunner
from vertex_rehearsal.training.training_pipelines import ENDED, get_pipeline_state

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

AT = "pipeline_job"
ID = re.compile(r"[a-z][-a-z0-9]{0,127}")


class PipelineJobs:
    """The RPCs of google.cloud.aiplatform.v1.PipelineService about pipeline jobs."""

    LOOKUPS = {"PipelineJob": 100}  # noqa: RUF012
    LIMITS = {  # noqa: RUF012
        "CreatePipelineJob": "Nothing is cached; Python functions run with this machine's Python where their image is "
        "not here; resources, networks and service accounts have no effect; templates come from Cloud Storage only.",
    }

    def __init__(self, context: "Context", queue: JobQueue[JobRunner]) -> None:
        self._context = context
        self._queue = queue
        self._lock = threading.Lock()
        self._runs: dict[str, tuple[PipelineRun, threading.Thread]] = {}
        for job in context.database.list_all(v1.PipelineJob.DESCRIPTOR.full_name):
            if get_pipeline_state(job) not in ENDED:
                for detail in job.job_detail.task_details:
                    queue.drop_queued_job(detail.executor_detail.container_detail.main_job)
                problem = ApiError("ABORTED", "The rehearsal was ended while the pipeline was running.")
                self._finish_job(job.name, Ending("FAILED", problem))
        queue.watchers.append(self._on_job_change)

    def close(self) -> None:
        """End every run; the jobs of its tasks have already been ended."""
        with self._lock:
            runs = list(self._runs.values())
        for run, _ in runs:
            run.stop("The rehearsal was stopped while the pipeline was running.")
        for _, thread in runs:
            thread.join()

    def create_pipeline_job(self, request: Any) -> Any:
        """Validate a pipeline as Vertex AI does and run it."""
        validation.check_parent(request.parent)
        job = v1.PipelineJob()
        job.CopyFrom(request.pipeline_job)
        for field in ("state", "job_detail", "create_time", "start_time", "end_time", "update_time", "error"):
            job.ClearField(field)
        spec = self._read_spec(job)
        pipeline_specs.check_spec(spec, self._context.settings)
        job.display_name = job.display_name or spec["pipelineInfo"]["name"]
        validation.check_name_and_labels(job, AT)
        self._check_root(job)
        validation.check_account(job.service_account, self._context.project.load_current(), f"{AT}.service_account")
        given = {key: as_dict(value) for key, value in job.runtime_config.parameter_values.items()}
        parameters = pipeline_specs.resolve_inputs(spec, given)
        number = request.pipeline_job_id or f"{_slugify_name(spec['pipelineInfo']['name'])}-{new_id()}"
        if not ID.fullmatch(number):
            raise invalid_argument("pipeline_job_id", f'"{number}" is invalid: [a-z][-a-z0-9]{{0,127}} is expected.')
        job.name = f"{request.parent}/pipelineJobs/{number}"
        job.state = v1.PipelineState.PIPELINE_STATE_PENDING
        job.create_time.GetCurrentTime()
        job.update_time.CopyFrom(job.create_time)
        self._context.database.add(job)
        run = PipelineRun(job, spec, parameters, self._context, self._queue)
        thread = threading.Thread(target=self._run_pipeline, args=(run,), daemon=True)
        with self._lock:
            self._runs[job.name] = (run, thread)
        thread.start()
        return job

    def cancel_pipeline_job(self, request: Any) -> Any:
        """Request the cancellation of a pipeline and its tasks; one that has ended is left unchanged."""
        with self._lock:
            run, _ = self._runs.get(request.name, (None, None))
        if run is None:
            self._context.database.get(request.name)
            return protobuf.Empty()
        self._change_state(request.name, "CANCELLING")
        run.cancel()
        return protobuf.Empty()

    def delete_pipeline_job(self, request: Any) -> Any:
        """Delete a pipeline that has ended."""
        state = get_pipeline_state(self._context.database.get(request.name))
        if state not in ENDED:
            raise ApiError("FAILED_PRECONDITION", f"The pipeline '{request.name}' is {state}: cancel it first.")
        self._context.database.remove(request.name)
        return self._context.operations.done(request.name, v1.DeleteOperationMetadata(), protobuf.Empty)

    def _read_spec(self, job: Any) -> Any:
        """Return the compiled pipeline, from the request or from the file at the template's URI."""
        if job.pipeline_spec.fields:
            return as_dict(job.pipeline_spec)
        at, uri = f"{AT}.template_uri", job.template_uri
        if not uri:
            raise invalid_argument(f"{AT}.pipeline_spec", "One of pipeline_spec and template_uri must be set.")
        if not uri.startswith("gs://"):
            raise ApiError("UNIMPLEMENTED", f"Templates come from Cloud Storage here (gs://...), not from {uri}.", at)
        file = self._context.resolve_uri(uri, at)
        if not file.is_file():
            raise ApiError("NOT_FOUND", f"The template {uri} was not found.", at)
        import yaml

        try:
            spec = next(iter(yaml.safe_load_all(file.read_text(encoding="utf-8"))), None)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise invalid_argument(at, f"The template {uri} is no YAML: {error}") from error
        if not isinstance(spec, dict):
            raise invalid_argument(at, f"The template {uri} is no compiled pipeline.")
        return as_dict(parse_message(spec, job.pipeline_spec, at=at))

    def _check_root(self, job: Any) -> None:
        at, root = f"{AT}.runtime_config.gcs_output_directory", job.runtime_config.gcs_output_directory
        if not root:
            raise invalid_argument(at, "Required field is not set: gcs_output_directory.")
        validation.check_output(root, at)
        bucket = root.removeprefix("gs://").partition("/")[0]
        if not (self._context.buckets / bucket).is_dir():
            raise ApiError("NOT_FOUND", f"The bucket {bucket} was not found.", at)
        if job.runtime_config.parameters or job.runtime_config.input_artifacts:
            raise ApiError("UNIMPLEMENTED", "parameters (deprecated) and input_artifacts are not played.", at)
        if not find_mount_command(self._context.buckets):
            raise ApiError("FAILED_PRECONDITION", "Pipelines need the buckets at /gcs, which root may mount on Linux.")

    def _run_pipeline(self, run: PipelineRun) -> None:
        self._change_state(run.name, "RUNNING")
        try:
            ending = run.run()
        except Exception as error:
            report_bug(error)
            ending = Ending("FAILED", ApiError("INTERNAL", f"{type(error).__name__}: {error}"))
        self._finish_job(run.name, ending)
        with self._lock:
            del self._runs[run.name]

    def _change_state(self, name: str, state: str) -> None:
        with self._context.database.change(name) as job:
            if get_pipeline_state(job) in (*ENDED, "CANCELLING"):
                return
            job.state = v1.PipelineState.Value(f"PIPELINE_STATE_{state}")
            if state == "RUNNING":
                job.start_time.GetCurrentTime()

    def _finish_job(self, name: str, ending: Ending) -> None:
        with self._context.database.change(name) as job:
            job.state = v1.PipelineState.Value(f"PIPELINE_STATE_{ending.state}")
            job.end_time.GetCurrentTime()
            if ending.problem:
                job.error.CopyFrom(ending.problem.status())
            for detail in job.job_detail.task_details:
                if not detail.HasField("end_time"):
                    detail.state = v1.PipelineTaskDetail.State.Value(ending.state)
                    detail.end_time.GetCurrentTime()
            why = f" {ending.problem.message}" if ending.problem else ""
            write_entry(
                self._context,
                name,
                f"Pipeline is {ending.state}.{why}",
                "ERROR" if ending.state == "FAILED" else "INFO",
            )

    def _on_job_change(self, job: Any) -> None:
        with self._lock:
            runs = [run for run, _ in self._runs.values()]
        for run in runs:
            run.update_job(job)


def _slugify_name(name: str) -> str:
    """Return a pipeline's name as the prefix of an id."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:100] or "pipeline"
