"""Jobs that wait for their turn: run a few at a time in the order they came, cancelled, resumed after a restart."""

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
    """A job's state by its short name."""
    return str(v1.JobState.Name(job.state)).removeprefix("JOB_STATE_")


@dataclass(frozen=True)
class Ending:
    """How a job ended: SUCCEEDED, FAILED or CANCELLED, and why."""

    state: str
    problem: ApiError | None = None


class Runner(Protocol):
    """What runs one job; `run` in a thread of its own, the rest from any other."""

    def run(self) -> Ending:
        """Run the job to its end; nothing of it is left when this returns."""

    def write_results(self, job: Any) -> None:
        """Write into the job what became of it, beside its state."""

    def cancel(self) -> None:
        """End it as soon as its processes have had their time to stop."""

    def stop(self, reason: str) -> None:
        """End it at once: the emulator stops."""


RunnerT = TypeVar("RunnerT", bound=Runner)
CreateRunner = Callable[[Any, Callable[[], None]], RunnerT]
"""Makes the runner of a job; the runner calls the second argument when the job has really begun."""


class JobQueue(Generic[RunnerT]):
    """The jobs of one kind, of which a few run at a time."""

    def __init__(
        self,
        context: Context,
        kind: str,
        *,
        create_runner: CreateRunner[RunnerT],
        describe: Callable[[str, ApiError | None], str],
    ) -> None:
        """`kind` is the full name of the jobs' message; `describe` says a new state in the job's log."""
        self._context = context
        self._kind = kind
        self._create_runner = create_runner
        self._describe = describe
        self._lock = threading.RLock()
        self._waiting: deque[str] = deque()
        self._running: dict[str, RunnerT] = {}
        self._runners: dict[str, CreateRunner[RunnerT]] = {}
        """Of jobs that wait and have a runner of their own."""
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
        """Keep a new job and run it when its turn comes.

        `check` may refuse it, given the names of those that wait and run; `first` is called once it is kept.
        """
        job.state = v1.JobState.JOB_STATE_QUEUED
        job.create_time.GetCurrentTime()
        job.update_time.CopyFrom(job.create_time)
        with self._lock:  # nobody sees a queued job that does not wait
            check((*self._waiting, *self._running))
            self._context.database.add(job)
            first(job)
            if create_runner is not None:
                self._runners[job.name] = create_runner
            self._enqueue(job.name)
        return job

    def resume(self) -> None:
        """After a restart: what was running has failed, what was queued runs."""
        for job in self._context.database.list_all(self._kind):
            state = get_job_state(job)
            if state == "QUEUED":
                self._enqueue(job.name)
            elif state == "CANCELLING":
                self._change_state(job.name, Ending("CANCELLED", CANCELLED))
            elif state not in ENDED:
                self._change_state(job.name, Ending("FAILED", ApiError("ABORTED", RESTARTED)))

    def close(self) -> None:
        """End what runs; what is queued waits for the next start."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            for runner in self._running.values():
                runner.stop(STOPPED)
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def cancel(self, name: str) -> None:
        """Ask a job to end; one that has ended stays as it is."""
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
        """Forget a job that has ended."""
        with self._lock:
            state = get_job_state(self._context.database.get(name))
            if state not in ENDED:
                raise ApiError("FAILED_PRECONDITION", f"The job '{name}' is {state}: cancel it first.")
            self._context.database.remove(name)

    def drop_queued_job(self, name: str) -> None:
        """Forget a job that is not going to run; one that has begun, or has been deleted, is left."""
        with self._lock, suppress(ApiError):
            if get_job_state(self._context.database.get(name)) == "QUEUED":
                self._context.database.remove(name)

    def find_running(self, job: str) -> tuple[str, RunnerT]:
        """The name and the runner of a job that runs, given its id or its name."""
        with self._lock:
            for name, runner in self._running.items():
                if job in (name, name.rpartition("/")[2]):
                    return name, runner
        raise not_found_error(f"{job} (among the jobs that run)")

    def count_jobs(self) -> dict[str, int]:
        """How many run, and how many wait."""
        with self._lock:
            return {"running": len(self._running), "queued": len(self._waiting)}

    def _enqueue(self, name: str) -> None:
        with self._lock:
            self._waiting.append(name)
            self._start_waiting()

    def _start_waiting(self) -> None:
        """Give free places to those who wait longest."""
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
        """Keep a job's new state, note it in its log, and tell the watchers."""
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
            _, project, _, _, _, number = name.split("/")  # noted first: who sees an end finds the whole log
            severity = "ERROR" if state == "FAILED" else "INFO"
            self._context.logs.write_note(
                self._describe(state, problem), job=number, project=project, severity=severity
            )
        for watcher in self.watchers:
            watcher(job)
        return job
