"""A first-in, first-out job queue with limited concurrency, cancellation and recovery after a restart."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from vertex_rehearsal.api.errors import ApiError, not_found_error
from vertex_rehearsal.api.messages import v1
from vertex_rehearsal.context import Context, report_bug

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED")
CANCELLED = ApiError("CANCELLED", "CANCELED")
RESTARTED = "The rehearsal was ended while the job was running."
STOPPED = "The rehearsal was stopped while the job was running."


def get_job_state(job: Any) -> str:
    """Return the short name of a job's state."""
    return str(v1.JobState.Name(job.state)).removeprefix("JOB_STATE_")


@dataclass(frozen=True)
class Ending:
    """How a job ended: SUCCEEDED, FAILED or CANCELLED, and why."""

    state: str
    problem: ApiError | None = None


class Runner(Protocol):
    """Runs one job; `run` is called in its own thread, the other methods from any thread."""

    def run(self) -> Ending:
        """Run the job to its end; none of its processes remain on return."""

    def write_results(self, job: Any) -> None:
        """Write the job's results, apart from its state, into the job."""

    def cancel(self) -> None:
        """Cancel the job; its processes get the grace period to stop."""

    def stop(self, reason: str) -> None:
        """End the job at once because the emulator stops."""


RunnerT = TypeVar("RunnerT", bound=Runner)
CreateRunner = Callable[[Any, Callable[[], None]], RunnerT]
"""Creates the runner of a job; the runner calls the second argument when the job has started."""


class JobQueue(Generic[RunnerT]):
    """Queues the jobs of one kind and runs a limited number at a time."""

    def __init__(
        self,
        context: Context,
        kind: str,
        *,
        create_runner: CreateRunner[RunnerT],
        describe: Callable[[str, ApiError | None], str],
    ) -> None:
        """`kind` is the full name of the jobs' message; `describe` returns the log line for a new state."""
        self._context = context
        self._kind = kind
        self._create_runner = create_runner
        self._describe = describe
        self._lock = threading.RLock()
        self._waiting: deque[str] = deque()
        self._running: dict[str, RunnerT] = {}
        self._runners: dict[str, CreateRunner[RunnerT]] = {}
        """Factories of waiting jobs that do not use the default one."""
        self._threads: set[threading.Thread] = set()
        self._closed = False
        self.watchers: list[Callable[[Any], None]] = []
        """Called with a job whenever its state has changed."""

    def submit(
        self,
        job: Any,
        *,
        check: Callable[[Sequence[str]], None] = lambda _: None,
        first: Callable[[Any], None] = lambda _: None,
        create_runner: CreateRunner[RunnerT] | None = None,
    ) -> Any:
        """Store a new job and queue it.

        `check` may raise, given the names of the waiting and running jobs; `first` is called once the job is stored.
        """
        job.state = v1.JobState.JOB_STATE_QUEUED
        job.create_time.GetCurrentTime()
        job.update_time.CopyFrom(job.create_time)
        with self._lock:  # a stored job in state QUEUED is always in the queue
            check((*self._waiting, *self._running))
            self._context.database.add(job)
            first(job)
            if create_runner is not None:
                self._runners[job.name] = create_runner
            self._enqueue(job.name)
        return job

    def resume(self) -> None:
        """Mark jobs that were running before a restart as failed and queue those that were waiting."""
        for job in self._context.database.list_all(self._kind):
            state = get_job_state(job)
            if state == "QUEUED":
                self._enqueue(job.name)
            elif state == "CANCELLING":
                self._change_state(job.name, Ending("CANCELLED", CANCELLED))
            elif state not in ENDED:
                self._change_state(job.name, Ending("FAILED", ApiError("ABORTED", RESTARTED)))

    def close(self) -> None:
        """End the running jobs; queued jobs wait for the next start."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            for runner in self._running.values():
                runner.stop(STOPPED)
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def cancel(self, name: str) -> None:
        """Request the cancellation of a job; a job that has ended is left unchanged."""
        with self._lock:
            state = get_job_state(self._context.database.get(name))
            if name in self._running:
                if state != "CANCELLING":
                    self._change_state(name, Ending("CANCELLING"))
                    self._running[name].cancel()
            elif name in self._waiting:
                self._waiting.remove(name)
                self._runners.pop(name, None)
                self._change_state(name, Ending("CANCELLED", CANCELLED))

    def remove(self, name: str) -> None:
        """Delete a job that has ended."""
        with self._lock:
            state = get_job_state(self._context.database.get(name))
            if state not in ENDED:
                raise ApiError("FAILED_PRECONDITION", f"The job '{name}' is {state}: cancel it first.")
            self._context.database.remove(name)

    def drop_queued_job(self, name: str) -> None:
        """Delete a job if it is still queued."""
        with self._lock, suppress(ApiError):
            if get_job_state(self._context.database.get(name)) == "QUEUED":
                self._context.database.remove(name)

    def find_running(self, job: str) -> tuple[str, RunnerT]:
        """Return the name and the runner of a running job, given its id or name."""
        with self._lock:
            for name, runner in self._running.items():
                if job in (name, name.rpartition("/")[2]):
                    return name, runner
        raise not_found_error(f"{job} (among the jobs that run)")

    def count_jobs(self) -> dict[str, int]:
        """Return how many jobs are running and how many are queued."""
        with self._lock:
            return {"running": len(self._running), "queued": len(self._waiting)}

    def _enqueue(self, name: str) -> None:
        with self._lock:
            self._waiting.append(name)
            self._start_waiting()

    def _start_waiting(self) -> None:
        """Start the oldest waiting jobs while the concurrency limit allows."""
        while self._waiting and len(self._running) < self._context.settings.at_once and not self._closed:
            name = self._waiting.popleft()
            job = self._change_state(name, Ending("PENDING"))
            create_runner = self._runners.pop(name, self._create_runner)
            self._running[name] = create_runner(job, lambda name=name: self._mark_running(name))  # type: ignore[misc]
            thread = threading.Thread(target=self._run_job, args=(name, self._running[name]), daemon=True)
            self._threads.add(thread)
            thread.start()

    def _mark_running(self, name: str) -> None:
        with self._lock:
            if get_job_state(self._context.database.get(name)) == "PENDING":
                self._change_state(name, Ending("RUNNING"))

    def _run_job(self, name: str, runner: RunnerT) -> None:
        try:
            ending = runner.run()
        except ApiError as problem:
            ending = Ending("FAILED", problem)
        except Exception as error:
            report_bug(error)
            ending = Ending("FAILED", ApiError("INTERNAL", f"{type(error).__name__}: {error}"))
        with self._lock:
            del self._running[name]
            self._threads.discard(threading.current_thread())
            self._change_state(name, ending, write_results=runner.write_results)
            self._start_waiting()

    def _change_state(self, name: str, ending: Ending, *, write_results: Callable[[Any], None] = lambda _: None) -> Any:
        """Store a job's new state, write it to its log and notify the watchers."""
        state, problem = ending.state, ending.problem
        with self._context.database.change(name) as job:
            job.state = v1.JobState.Value(f"JOB_STATE_{state}")
            write_results(job)
            if state == "RUNNING":
                job.start_time.GetCurrentTime()
            if state in ENDED:
                job.end_time.GetCurrentTime()
            if problem is not None:
                job.error.CopyFrom(problem.status())
            # Logged before the change is visible, so that an ended job has its whole log.
            _, project, _, _, _, number = name.split("/")
            severity = "ERROR" if state == "FAILED" else "INFO"
            self._context.logs.write_note(
                self._describe(state, problem), job=number, project=project, severity=severity
            )
        for watcher in self.watchers:
            watcher(job)
        return job
