"""Runs pipeline tasks as custom jobs and reads the outputs that they write to their bucket."""

import json
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.api.messages import v1
from vertex_rehearsal.execution import environments
from vertex_rehearsal.execution.environments import Environment
from vertex_rehearsal.execution.queue import ENDED, JobQueue, get_job_state
from vertex_rehearsal.execution.replicas import RunnableJob
from vertex_rehearsal.pipelines import placeholders, spec
from vertex_rehearsal.pipelines.task_details import TaskDetails
from vertex_rehearsal.pipelines.task_values import Artifacts, TaskOutcome, new_artifact
from vertex_rehearsal.training.runner import JobRunner
from vertex_rehearsal.training.service import name_job

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

MACHINE = "e2-standard-4"
"""Vertex AI's default machine for tasks."""


class TaskJobs:
    """The custom jobs of one pipeline job's tasks."""

    def __init__(self, pipeline: Any, details: TaskDetails, context: "Context", queue: JobQueue[JobRunner]) -> None:
        self._pipeline = pipeline.name
        self._details = details
        self._context = context
        self._queue = queue
        self._id = pipeline.name.rpartition("/")[2]
        self._parent = pipeline.name.partition("/pipelineJobs/")[0]
        self._root = pipeline.runtime_config.gcs_output_directory.rstrip("/")
        self._created = pipeline.create_time.ToJsonString()
        self._lock = threading.Lock()
        self._jobs: dict[str, tuple[str, Future[Any]]] = {}
        """Unfinished jobs: the task of each, and the future that its waiting thread holds."""
        self._cancelled = False
        self._stopped = ""

    def cancel(self) -> None:
        """Cancel running jobs and those submitted later."""
        self._cancelled = True
        with self._lock:
            names = list(self._jobs)
        for name in names:
            self._queue.cancel(name)

    def stop(self, reason: str) -> None:
        """Stop waiting for jobs: the emulator stops and has ended them."""
        self._stopped, self._cancelled = reason, True
        with self._lock:
            waiting = dict(self._jobs)
            self._jobs.clear()
        for name, (_, ended) in waiting.items():
            self._queue.drop_queued_job(name)
            ended.set_result(None)

    def update_job(self, job: Any) -> None:
        """Handle a new state of a custom job if it belongs to a task."""
        with self._lock:
            task, ended = self._jobs.get(job.name, ("", None))
            if ended is None:
                return
            if get_job_state(job) in ENDED:
                del self._jobs[job.name]
        if get_job_state(job) in ENDED:
            ended.set_result(job)
        elif get_job_state(job) == "RUNNING":
            self._details.record_state(task, "RUNNING")

    def run(
        self,
        name: str,
        number: str,
        container: Mapping[str, Any],
        component: Mapping[str, Any],
        parameters: Mapping[str, Any],
        artifacts: Artifacts,
    ) -> TaskOutcome:
        """Run a container's command as a custom job and read its outputs."""
        base = f"{self._root}/{self._id}/{number}"
        definitions = component.get("outputDefinitions", {})
        files = {key: placeholders.get_mount_path(f"{base}/{key}") for key in definitions.get("parameters", {})}
        made = {
            key: [new_artifact(self._parent, key, f"{base}/{key}", about.get("artifactType", {}))]
            for key, about in definitions.get("artifacts", {}).items()
        }
        executor_input = {
            "inputs": {"parameterValues": parameters, "artifacts": _wrap_artifacts(artifacts)},
            "outputs": {
                "parameters": {key: {"outputFile": path} for key, path in files.items()},
                "artifacts": _wrap_artifacts(made),
                "outputFile": placeholders.get_mount_path(f"{base}/executor_output.json"),
            },
        }
        directory = self._context.resolve_uri(base)
        directory.mkdir(parents=True, exist_ok=True)
        job = self._run_job(name, number, container, executor_input)
        if job is None:
            return TaskOutcome("FAILED", problem=ApiError("ABORTED", self._stopped))
        if get_job_state(job) != "SUCCEEDED":
            state = "CANCELLED" if get_job_state(job) == "CANCELLED" else "FAILED"
            return TaskOutcome(state, problem=ApiError("FAILED_PRECONDITION", str(job.error.message)))
        return _read_outputs(directory, definitions, made)

    def _run_job(
        self, name: str, number: str, container: Mapping[str, Any], executor_input: Mapping[str, Any]
    ) -> Any | None:
        """Wait for a task's custom job and return it; None if the emulator stops first."""
        facts = {
            "pipeline_job_name": self._id,
            "pipeline_job_uuid": self._id,
            "pipeline_job_resource_name": self._pipeline,
            "pipeline_task_name": name,
            "pipeline_task_uuid": number,
            "pipeline_root": self._root,
            "pipeline_job_create_time_utc": self._created,
            "pipeline_job_schedule_time_utc": self._created,
        }
        job = v1.CustomJob(display_name=f"{self._id}-{name}"[-128:])
        pool = job.job_spec.worker_pool_specs.add(replica_count=1)
        pool.machine_spec.machine_type = MACHINE
        pool.container_spec.image_uri = container["image"]
        pool.container_spec.command.extend(
            placeholders.render_command(container.get("command", ()), executor_input, facts)
        )
        pool.container_spec.args.extend(placeholders.render_command(container.get("args", ()), executor_input, facts))
        for variable in container.get("env", ()):
            pool.container_spec.env.add(name=variable["name"], value=variable.get("value", ""))
        ended: Future[Any] = Future()
        as_process = spec.runs_as_process(container)
        directory = self._context.settings.directory.resolve() / "jobs" / self._id / number
        variables = self._create_environment(directory) if as_process else {}

        def before_start(kept: Any) -> None:
            with self._lock:
                self._jobs[kept.name] = (number, ended)
            self._details.record_state(number, "PENDING", job=kept.name)

        def create_runner(kept: Any, on_start: Callable[[], None]) -> JobRunner:
            work = RunnableJob(kept.name, kept.job_spec, variables=tuple(variables.items()), as_process=as_process)
            return JobRunner(work, self._context, on_start=on_start)

        try:
            kept = self._queue.submit(name_job(job, self._parent), first=before_start, create_runner=create_runner)
            if self._cancelled:
                self._queue.cancel(kept.name)
            return ended.result()
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _create_environment(self, directory: Path) -> dict[str, str]:
        """Create a virtual environment for a task, so that its command installs packages only there."""
        environment = Environment(directory / "environment", self._context.settings.strict)
        environment.create()
        path = f"{environment.python.parent}:{environments.inherit_variables()['PATH']}"
        return {"PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}


def _read_outputs(directory: Path, definitions: Mapping[str, Any], made: Mapping[str, Any]) -> TaskOutcome:
    """Read a task's outputs from their files or from the file of Kubeflow's executor."""
    written: dict[str, Any] = {}
    if (file := directory / "executor_output.json").is_file():
        try:
            written = json.loads(file.read_text())
        except ValueError as error:
            raise ApiError("INVALID_ARGUMENT", f"executor_output.json is no JSON: {error}.") from error
    parameters = dict(written.get("parameterValues", {}))
    for key, about in definitions.get("parameters", {}).items():
        kind = about.get("parameterType", "")
        if key in parameters:
            parameters[key] = spec.convert_value(parameters[key], kind, key)
        elif (directory / key).is_file():
            parameters[key] = spec.parse_output((directory / key).read_text(), kind, key)
        elif not about.get("isOptional"):
            raise ApiError("INVALID_ARGUMENT", f"The task has not written its output {key}.")
    artifacts = {}
    for key, ours in made.items():
        theirs = written.get("artifacts", {}).get(key, {}).get("artifacts", ours)
        artifacts[key] = [{**ours[0], **one, "type": ours[0]["type"]} for one in theirs]
    return TaskOutcome("SUCCEEDED", parameters, artifacts)


def _wrap_artifacts(artifacts: Artifacts) -> dict[str, Any]:
    return {key: {"artifacts": list(ones)} for key, ones in artifacts.items()}
