"""Batch prediction jobs: accepted or refused, queued, run a few at a time, and kept."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tagline.rehearsal import instances, models, refusals
from tagline.rehearsal.batch_runs import BatchRun, Stopped
from tagline.rehearsal.endpoints import MOST_REPLICAS, check_machine
from tagline.rehearsal.jobs import ENDED, state_of
from tagline.rehearsal.messages import protobuf, v1
from tagline.rehearsal.operations import new_id
from tagline.rehearsal.problems import Problem, invalid
from tagline.rehearsal.stage import report_bug

if TYPE_CHECKING:
    from tagline.rehearsal.stage import Stage

OUTPUTS = ("jsonl",)
AT = "batch_prediction_job"
KIND = "google.cloud.aiplatform.v1.BatchPredictionJob"


class BatchPredictions:
    """The RPCs of google.cloud.aiplatform.v1.JobService about batch prediction jobs."""

    LIMITS = {  # noqa: RUF012
        "CreateBatchPredictionJob": "Models of one's own; jsonl, csv and file-list in, jsonl out, both in Cloud "
        "Storage; startingReplicaCount replicas. BigQuery, explanations, monitoring, key fields and unmanaged "
        "containers are refused.",
    }

    def __init__(self, stage: "Stage") -> None:
        self._stage = stage
        self._lock = threading.RLock()
        self._waiting: deque[str] = deque()
        self._running: dict[str, tuple[BatchRun, threading.Thread]] = {}
        self._closed = False

    def resume(self) -> None:
        """After a restart: what was running has failed, what was queued runs."""
        for job in self._stage.keeping.all(KIND):
            state = state_of(job)
            if state == "QUEUED":
                with self._lock:
                    self._waiting.append(job.name)
                    self._fill()
            elif state == "CANCELLING":
                self._change(job.name, "CANCELLED")
            elif state not in ENDED:
                reason = "The rehearsal was ended while the job was running."
                self._change(job.name, "FAILED", Problem("ABORTED", reason))

    def close(self) -> None:
        """End what runs; what is queued waits for the next start."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            running = list(self._running.values())
        for run, _ in running:
            run.stop("The rehearsal was stopped while the job was running.")
        for _, thread in running:
            thread.join()

    def create_batch_prediction_job(self, request: Any) -> Any:
        """Accept a job, or refuse it as Vertex AI would."""
        refusals.check_parent(request.parent)
        job = v1.BatchPredictionJob()
        job.CopyFrom(request.batch_prediction_job)
        refusals.check_named(job, AT)
        for field in (
            "name", "state", "error", "partial_failures", "resources_consumed", "completion_stats", "output_info",
            "create_time", "start_time", "end_time", "update_time",
        ):  # fmt: skip
            job.ClearField(field)
        self._check(job)
        job.name = f"{request.parent}/batchPredictionJobs/{new_id()}"
        BatchRun(job, self._stage).check()
        job.state = v1.JobState.JOB_STATE_QUEUED
        job.create_time.GetCurrentTime()
        job.update_time.CopyFrom(job.create_time)
        with self._lock:
            self._stage.keeping.add(job)
            self._waiting.append(job.name)
            self._fill()
        return job

    def get_batch_prediction_job(self, request: Any) -> Any:
        """A job as it is now."""
        return self._stage.keeping.get(request.name)

    def list_batch_prediction_jobs(self, request: Any) -> Any:
        """A page of jobs, newest first."""
        refusals.check_parent(request.parent)
        jobs, token = self._stage.keeping.page(f"{request.parent}/batchPredictionJobs", request)
        return v1.ListBatchPredictionJobsResponse(batch_prediction_jobs=jobs, next_page_token=token)

    def cancel_batch_prediction_job(self, request: Any) -> Any:
        """Begin to end a job; what it has predicted stays."""
        with self._lock:
            state = state_of(self._stage.keeping.get(request.name))
            if request.name in self._running:
                if state != "CANCELLING":
                    self._change(request.name, "CANCELLING")
                    self._running[request.name][0].cancel()
            elif state not in ENDED:
                self._waiting.remove(request.name)
                self._change(request.name, "CANCELLED")
        return protobuf.Empty()

    def delete_batch_prediction_job(self, request: Any) -> Any:
        """Forget a job that has ended."""
        with self._lock:
            state = state_of(self._stage.keeping.get(request.name))
            if state not in ENDED:
                raise Problem("FAILED_PRECONDITION", f"The job '{request.name}' is {state}: cancel it first.")
            self._stage.keeping.remove(request.name)
        return self._stage.operations.done(request.name, v1.DeleteOperationMetadata(), protobuf.Empty)

    def _check(self, job: Any) -> None:
        if job.HasField("unmanaged_container_model"):
            raise Problem("UNIMPLEMENTED", "Unmanaged containers are not played.", f"{AT}.unmanaged_container_model")
        if job.generate_explanation:
            raise Problem("UNIMPLEMENTED", "Explanations are not played.", f"{AT}.generate_explanation")
        if not job.model:
            raise invalid(f"{AT}.model", "Required field is not set: model.")
        model = models.find(self._stage, job.model, f"{AT}.model")
        job.model, job.model_version_id = models.plain_name(model), model.version_id
        _check_format(job.input_config.instances_format, models.INPUTS, f"{AT}.input_config.instances_format")
        _check_format(job.output_config.predictions_format, OUTPUTS, f"{AT}.output_config.predictions_format")
        if job.instance_config.key_field or job.instance_config.included_fields or job.instance_config.excluded_fields:
            raise Problem("UNIMPLEMENTED", "Key, included and excluded fields are not played.", f"{AT}.instance_config")
        if job.instance_config.instance_type not in ("", "object", "array"):
            text = f'"{job.instance_config.instance_type}" is no instance type here: object or array.'
            raise invalid(f"{AT}.instance_config.instance_type", text)
        instances.check_type(
            job.input_config.instances_format, job.instance_config.instance_type, f"{AT}.instance_config.instance_type"
        )
        if not instances.files(self._stage, job.input_config.gcs_source.uris, f"{AT}.input_config.gcs_source.uris"):
            raise invalid(f"{AT}.input_config.gcs_source.uris", "Required field is not set: uris.")
        prefix, at = job.output_config.gcs_destination.output_uri_prefix, f"{AT}.output_config.gcs_destination"
        if not prefix:
            raise invalid(f"{at}.output_uri_prefix", "Required field is not set: output_uri_prefix.")
        refusals.check_output(prefix, f"{at}.output_uri_prefix")
        bucket = "/".join(prefix.split("/")[:3])
        if not self._stage.local(bucket).is_dir():
            raise Problem("NOT_FOUND", f"The bucket {bucket} was not found.", f"{at}.output_uri_prefix")
        resources = job.dedicated_resources
        if not job.HasField("dedicated_resources"):
            raise invalid(f"{AT}.dedicated_resources", "Required field is not set: dedicated_resources.")
        check_machine(resources.machine_spec, f"{AT}.dedicated_resources.machine_spec")
        if not 0 <= resources.starting_replica_count <= MOST_REPLICAS:
            text = f"starting_replica_count must be from 1 to {MOST_REPLICAS}."
            raise invalid(f"{AT}.dedicated_resources.starting_replica_count", text)
        resources.starting_replica_count = resources.starting_replica_count or 1

    def _fill(self) -> None:
        """Give free places to those who wait longest."""
        while self._waiting and len(self._running) < self._stage.settings.at_once and not self._closed:
            name = self._waiting.popleft()
            run = BatchRun(self._change(name, "PENDING"), self._stage, started=self._starter(name))
            thread = threading.Thread(target=self._run, args=(name, run), daemon=True)
            self._running[name] = run, thread
            thread.start()

    def _starter(self, name: str) -> Callable[[], None]:
        def started() -> None:
            with self._lock:
                if state_of(self._stage.keeping.get(name)) == "PENDING":
                    self._change(name, "RUNNING")

        return started

    def _run(self, name: str, run: BatchRun) -> None:
        state, problem = "SUCCEEDED", None
        try:
            run.run()
        except Stopped as stopped:
            state, problem = stopped.state, stopped.problem
        except Problem as found:
            state, problem = "FAILED", found
        except Exception as error:
            report_bug(error)
            state, problem = "FAILED", Problem("INTERNAL", f"{type(error).__name__}: {error}")
        with self._lock:
            del self._running[name]
            with self._stage.keeping.change(name) as job:
                run.report(job)
            self._change(name, state, problem)
            self._fill()

    def _change(self, name: str, state: str, problem: Problem | None = None) -> Any:
        with self._stage.keeping.change(name) as job:
            job.state = v1.JobState.Value(f"JOB_STATE_{state}")
            if state == "RUNNING":
                job.start_time.GetCurrentTime()
            if state in ENDED:
                job.end_time.GetCurrentTime()
            if problem is not None:
                job.error.CopyFrom(problem.status())
            _, project, _, _, _, number = name.split("/")
            severity = "ERROR" if state == "FAILED" else "INFO"
            text = f"Batch prediction job is {state}." + (f" {problem.message}" if problem else "")
            self._stage.logs.note(text, job=number, project=project, severity=severity)
        return job


def _check_format(given: str, known: Sequence[str], at: str) -> None:
    if not given:
        raise invalid(at, f"Required field is not set: {at.rpartition('.')[2]}.")
    if given not in known:
        raise Problem("UNIMPLEMENTED", f'The format "{given}" is not played: {", ".join(known)} are.', at)
