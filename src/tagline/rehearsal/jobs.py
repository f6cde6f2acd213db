"""Custom jobs: accepted or refused, queued, run a few at a time, and kept."""

import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tagline.rehearsal import containers, quotas, refusals
from tagline.rehearsal.messages import protobuf, v1
from tagline.rehearsal.operations import new_id
from tagline.rehearsal.performances import Ending, Performance
from tagline.rehearsal.problems import Problem, not_found
from tagline.rehearsal.replicas import Job
from tagline.rehearsal.stage import report_bug

if TYPE_CHECKING:
    from tagline.rehearsal.stage import Stage

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED")


def state_of(job: Any) -> str:
    """A job's state by its short name."""
    return str(v1.JobState.Name(job.state)).removeprefix("JOB_STATE_")


def check_runnable(spec: Any, at: str) -> None:
    """Refuse a job whose images cannot run on this machine."""
    for number, pool in enumerate(spec.worker_pool_specs):
        image = pool.container_spec.image_uri
        if pool.WhichOneof("task") == "container_spec" and (reason := containers.explain_unplayable(image)):
            field = f"{at}.worker_pool_specs[{number}].container_spec.image_uri"
            raise Problem("FAILED_PRECONDITION", reason, field)


class JobQueue:
    """The custom jobs of a rehearsal, of which a few run at a time."""

    def __init__(self, stage: "Stage") -> None:
        self._stage = stage
        self._lock = threading.RLock()
        self._waiting: deque[str] = deque()
        self._running: dict[str, Performance] = {}
        self._played: dict[str, Callable[[Any], Job]] = {}
        """What is made of jobs that wait, where that is not simply what they say."""
        self._threads: set[threading.Thread] = set()
        self._closed = False
        self.watchers: list[Callable[[Any], None]] = []
        """Called with a job whenever its state has changed."""

    def submit(
        self, parent: str, job: Any, *, first: Callable[[Any], None] = lambda _: None,
        played: Callable[[Any], Job] | None = None, checks_quota: bool = False,
    ) -> Any:  # fmt: skip
        """Keep a new job, do something with it first, and run it, or what `played` makes of it, when its turn comes."""
        job.name = f"{parent}/customJobs/{new_id()}"
        job.state = v1.JobState.JOB_STATE_QUEUED
        job.create_time.GetCurrentTime()
        job.update_time.CopyFrom(job.create_time)
        with self._lock:  # nobody sees a queued job that does not wait
            if checks_quota:
                self._check_quota(parent, job.job_spec)
            self._stage.keeping.add(job)
            first(job)
            if played is not None:
                self._played[job.name] = played
            self._wait(job.name)
        return job

    def _check_quota(self, parent: str, spec: Any) -> None:
        """Refuse a job that asks for more than its region's quotas leave beside those that wait and run."""
        used: Counter[str] = Counter()
        for name in (*self._waiting, *self._running):
            if name.startswith(f"{parent}/"):
                used += quotas.demand(self._stage.keeping.get(name).job_spec)
        exceeded = self._stage.project.now().exceeded(parent.rpartition("/")[2], quotas.demand(spec), used)
        if exceeded:
            metrics = ",".join(f"{quotas.SERVICE}/{metric}" for metric in exceeded)
            raise Problem("RESOURCE_EXHAUSTED", f"The following quota metrics exceed quota limits: {metrics}")

    def resume(self) -> None:
        """After a restart: what was running has failed, what was queued runs."""
        reason = "The rehearsal was ended while the job was running."
        for job in self._stage.keeping.all(v1.CustomJob.DESCRIPTOR.full_name):
            state = state_of(job)
            if state == "QUEUED":
                self._wait(job.name)
            elif state == "CANCELLING":
                self._ended(job.name, Ending("CANCELLED", Problem("CANCELLED", "CANCELED")))
            elif state not in ENDED:
                self._ended(job.name, Ending("FAILED", Problem("ABORTED", reason)))

    def close(self) -> None:
        """End what runs; what is queued waits for the next start."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            for performance in self._running.values():
                performance.stop("The rehearsal was stopped while the job was running.")
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def cancel(self, name: str) -> None:
        """Ask a job to end; one that has ended stays as it is."""
        with self._lock:
            state = state_of(self._stage.keeping.get(name))
            if name in self._running:
                if state != "CANCELLING":
                    self._change(name, "CANCELLING")
                    self._running[name].cancel()
            elif name in self._waiting:
                self._waiting.remove(name)
                self._played.pop(name, None)
                self._ended(name, Ending("CANCELLED", Problem("CANCELLED", "CANCELED")))

    def preempt(self, job: str, replica: str = "") -> str:
        """Preempt a running job on spot machines, named by its id or its name; returns its name."""
        with self._lock:
            name = next((name for name in self._running if job in (name, name.rpartition("/")[2])), None)
            if name is None:
                raise not_found(f"{job} (among the jobs that run)")
            performance = self._running[name]
            strategy = v1.Scheduling.Strategy.Name(performance.job.spec.scheduling.strategy)
            if not replica and strategy != "SPOT":
                raise Problem(
                    "FAILED_PRECONDITION",
                    f"The job {job} is not on spot machines: its scheduling.strategy is {strategy}. "
                    "One replica of it can be preempted, as happens when a machine fails.",
                )
            performance.preempt(replica)
            return name

    def remove(self, name: str) -> None:
        """Forget a job that has ended."""
        with self._lock:
            state = state_of(self._stage.keeping.get(name))
            if state not in ENDED:
                raise Problem("FAILED_PRECONDITION", f"The job '{name}' is {state}: cancel it first.")
            self._stage.keeping.remove(name)

    def forget_queued(self, name: str) -> None:
        """Forget a job that is not going to run; one that has begun, or has been deleted, is left."""
        with self._lock, suppress(Problem):
            if state_of(self._stage.keeping.get(name)) == "QUEUED":
                self._stage.keeping.remove(name)

    def counts(self) -> dict[str, int]:
        """How many run, and how many wait."""
        with self._lock:
            return {"running": len(self._running), "queued": len(self._waiting)}

    def _wait(self, name: str) -> None:
        with self._lock:
            self._waiting.append(name)
            self._fill()

    def _fill(self) -> None:
        """Give free places to those who wait longest."""
        while self._waiting and len(self._running) < self._stage.settings.at_once and not self._closed:
            name = self._waiting.popleft()
            kept = self._change(name, "PENDING")
            started = self._starter(name)
            job = self._played.pop(name, _as_it_is)(kept)
            self._running[name] = Performance(job, self._stage, started=started)
            thread = threading.Thread(target=self._run, args=(name, self._running[name]), daemon=True)
            self._threads.add(thread)
            thread.start()

    def _starter(self, name: str) -> Callable[[], None]:
        def started() -> None:
            with self._lock:
                if state_of(self._stage.keeping.get(name)) == "PENDING":
                    self._change(name, "RUNNING")

        return started

    def _run(self, name: str, performance: Performance) -> None:
        try:
            ending = self._shortage(performance.job) or performance.run()
        except Problem as problem:
            ending = Ending("FAILED", problem)
        except Exception as error:
            report_bug(error)
            ending = Ending("FAILED", Problem("INTERNAL", f"{type(error).__name__}: {error}"))
        with self._lock:
            del self._running[name]
            self._threads.discard(threading.current_thread())
            self._ended(name, ending)
            self._fill()

    def _shortage(self, job: Job) -> Ending | None:
        """How a job ends that no machines are left for."""
        if not self._stage.project.now().lacks(job.region, job.spec):
            return None
        text = f"Resources are insufficient in region: {job.region}. Please try a different region."
        return Ending("FAILED", Problem("RESOURCE_EXHAUSTED", text))

    def _ended(self, name: str, ending: Ending) -> None:
        self._change(name, ending.state, ending.problem)

    def _change(self, name: str, state: str, problem: Problem | None = None) -> Any:
        with self._stage.keeping.change(name) as job:
            job.state = v1.JobState.Value(f"JOB_STATE_{state}")
            if state == "RUNNING":
                job.start_time.GetCurrentTime()
            if state in ENDED:
                job.end_time.GetCurrentTime()
            if problem is not None:
                job.error.CopyFrom(problem.status())
            self._note(job, state, problem)  # first: who sees an end finds the whole log
        for watcher in self.watchers:
            watcher(job)
        return job

    def _note(self, job: Any, state: str, problem: Problem | None) -> None:
        said = {
            "PENDING": "Waiting for job to be provisioned.", "RUNNING": "Job is running.",
            "SUCCEEDED": "Job completed successfully.", "CANCELLING": "Job is being cancelled.",
            "CANCELLED": "Job cancelled.", "FAILED": "Job failed.",
        }[state]  # fmt: skip
        text = f"{said} {problem.message}" if problem and state == "FAILED" else said
        _, project, _, _, _, number = job.name.split("/")
        self._stage.logs.note(text, job=number, project=project, severity="ERROR" if state == "FAILED" else "INFO")


def _as_it_is(kept: Any) -> Job:
    return Job(kept.name, kept.job_spec)


class CustomJobs:
    """The RPCs of google.cloud.aiplatform.v1.JobService about custom jobs."""

    LIMITS = {  # noqa: RUF012
        "CreateCustomJob": "Networks, interactive shells, TensorBoard and machine sizes have no effect; accelerators "
        "and service accounts are checked and have none either; persistent resources are refused.",
    }

    def __init__(self, stage: "Stage") -> None:
        self._stage = stage

    def create_custom_job(self, request: Any) -> Any:
        """Accept a job, or refuse it as Vertex AI would."""
        refusals.check_parent(request.parent)
        job = v1.CustomJob()
        job.CopyFrom(request.custom_job)
        refusals.check_named(job, "custom_job")
        refusals.check_job(job.job_spec, "custom_job.job_spec")
        check_runnable(job.job_spec, "custom_job.job_spec")
        refusals.check_account(job.job_spec.service_account, self._stage.project.now())
        for field in ("state", "create_time", "start_time", "end_time", "update_time", "error", "name"):
            job.ClearField(field)
        return self._stage.jobs.submit(request.parent, job, checks_quota=True)

    def get_custom_job(self, request: Any) -> Any:
        """A job as it is now."""
        return self._stage.keeping.get(request.name)

    def list_custom_jobs(self, request: Any) -> Any:
        """A page of jobs, newest first."""
        refusals.check_parent(request.parent)
        jobs, token = self._stage.keeping.page(f"{request.parent}/customJobs", request)
        return v1.ListCustomJobsResponse(custom_jobs=jobs, next_page_token=token)

    def cancel_custom_job(self, request: Any) -> Any:
        """Begin to end a job."""
        self._stage.jobs.cancel(request.name)
        return protobuf.Empty()

    def delete_custom_job(self, request: Any) -> Any:
        """Forget a job that has ended."""
        self._stage.jobs.remove(request.name)
        return self._stage.operations.done(request.name, v1.DeleteOperationMetadata(), protobuf.Empty)
