"""Records the state of a pipeline's tasks: task details in the job, as on Vertex AI, and log entries."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vertex_rehearsal.api.messages import as_dict, fill_message, v1
from vertex_rehearsal.pipelines.task_values import Artifacts, TaskOutcome

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context


class TaskDetails:
    """The task details of one stored pipeline job."""

    def __init__(self, pipeline: str, context: "Context") -> None:
        self._pipeline = pipeline
        self._context = context

    def begin_task(
        self,
        name: str,
        number: str,
        parent: str,
        parameters: Mapping[str, Any] | None = None,
        artifacts: Artifacts | None = None,
    ) -> None:
        """Add a task's details unless they exist."""
        with self._context.database.change(self._pipeline) as job:
            details = job.job_detail.task_details
            if any(str(detail.task_id) == number for detail in details):
                return
            detail = details.add(task_id=int(number), task_name=name, parent_task_id=int(parent or 0))
            detail.state = v1.PipelineTaskDetail.PENDING
            detail.create_time.GetCurrentTime()
            detail.start_time.CopyFrom(detail.create_time)
            fill_message(
                detail.execution.metadata,
                {f"input:{key}": _to_json_value(value) for key, value in (parameters or {}).items()},
            )
            _write_artifacts(detail.inputs, artifacts or {})

    def record_state(self, number: str, state: str, outcome: TaskOutcome | None = None, *, job: str = "") -> None:
        """Store a task's new state and outcome."""
        with self._context.database.change(self._pipeline) as kept:
            detail = next(detail for detail in kept.job_detail.task_details if str(detail.task_id) == number)
            detail.state = v1.PipelineTaskDetail.State.Value(state)
            if not detail.pipeline_task_status or detail.pipeline_task_status[-1].state != detail.state:
                detail.pipeline_task_status.add(state=detail.state).update_time.GetCurrentTime()
            if job:
                detail.executor_detail.container_detail.main_job = job
            if outcome is None:
                return
            detail.end_time.GetCurrentTime()
            if outcome.problem:
                detail.error.CopyFrom(outcome.problem.status())
            given = {f"output:{key}": _to_json_value(value) for key, value in outcome.parameters.items()}
            fill_message(detail.execution.metadata, as_dict(detail.execution.metadata) | given)
            _write_artifacts(detail.outputs, outcome.artifacts)
            name = detail.task_name
        why = f" {outcome.problem.message}" if outcome.problem else ""
        self.write_entry(f"Task {name} is {state}.{why}", name, "ERROR" if state == "FAILED" else "INFO")

    def write_entry(self, text: str, task: str, severity: str) -> None:
        """Write a line to the pipeline's log."""
        write_entry(self._context, self._pipeline, text, severity, task=task)


def write_entry(context: "Context", name: str, text: str, severity: str = "INFO", *, task: str = "") -> None:
    """Write an entry about a pipeline job."""
    _, project, _, region, _, number = name.split("/")
    labels = {"pipeline_job_id": number, "location": region, "resource_container": project}
    context.logs.write(
        [
            {
                "logName": f"projects/{project}/logs/aiplatform.googleapis.com%2Fpipeline_job",
                "severity": severity,
                "resource": {"type": "aiplatform.googleapis.com/PipelineJob", "labels": labels},
                "jsonPayload": {"message": text, **({"taskName": task} if task else {})},
            }
        ]
    )


def _write_artifacts(place: Any, artifacts: Artifacts) -> None:
    for key, ones in artifacts.items():
        for one in ones:
            written = place[key].artifacts.add(
                name=one["name"],
                uri=one["uri"],
                display_name=one.get("displayName", ""),
                schema_title=one["type"].get("schemaTitle", ""),
            )
            fill_message(written.metadata, _to_json_value(one.get("metadata", {})))


def _to_json_value(value: Any) -> Any:
    """Convert a value to Google's JSON: non-finite numbers become strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [_to_json_value(one) for one in value]
    return {key: _to_json_value(one) for key, one in value.items()} if isinstance(value, dict) else value
