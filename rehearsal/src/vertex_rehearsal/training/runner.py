"""Runs one custom job: installs packages, starts replicas, handles retries, preemption and cancellation."""

import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.context import Context
from vertex_rehearsal.execution import processes
from vertex_rehearsal.execution.environments import Environment, inherit_variables
from vertex_rehearsal.execution.processes import MARK
from vertex_rehearsal.execution.queue import Ending
from vertex_rehearsal.execution.replicas import (
    Replica,
    ReplicaExit,
    RunnableJob,
    RunningReplica,
    create_cluster,
    get_log_path,
    runs_in_container,
    write_log,
)

TRANSIENT = frozenset((6, 134, 11, 139))
"""Exit codes that Vertex AI treats as machine failures and retries: SIGABRT and SIGSEGV."""
MOST_RETRIES = 3
MOST_PREEMPTIONS = 6
LONGEST_RUN_S = 7 * 24 * 3600.0


@dataclass(frozen=True)
class _CancelRequest:
    pass


@dataclass(frozen=True)
class _StopRequest:
    """The emulator stops."""

    reason: str


@dataclass(frozen=True)
class _PreemptRequest:
    replica: str
    """The name of one replica, or "" for all."""


class JobRunner:
    """Runs one job; `run` blocks the calling thread, the other methods are thread-safe."""

    def __init__(self, job: RunnableJob, context: Context, *, on_start: Callable[[], None] = lambda: None) -> None:
        self.job = job
        self._context = context
        self._on_start = on_start
        self._events: queue.Queue[Any] = queue.Queue()
        self._cluster = create_cluster(job.spec)
        self._running: dict[str, RunningReplica] = {}
        self._pythons: dict[int, Path] = {}
        self._environments: list[Path] = []
        self._retries = 0
        self._preemptions = 0
        self._interrupted = threading.Event()
        """Set on cancel or stop: a package installation ends at once, replicas get their grace period."""

    def cancel(self) -> None:
        """Cancel the job; its processes get the grace period to stop."""
        self._interrupted.set()
        self._events.put(_CancelRequest())

    def stop(self, reason: str) -> None:
        """End the job at once because the emulator stops."""
        self._interrupted.set()
        self._events.put(_StopRequest(reason))

    def preempt(self, replica: str = "") -> None:
        """Preempt one replica or all of them and restart on new machines."""
        if replica and replica not in {each.name for each in self._cluster}:
            names = ", ".join(each.name for each in self._cluster)
            raise ApiError("NOT_FOUND", f"The job has no replica {replica}; it has {names}.")
        self._events.put(_PreemptRequest(replica))

    def write_results(self, job: Any) -> None:
        """Write nothing: a custom job has no results besides its state."""

    def run(self) -> Ending:
        """Run the job to its end; none of its processes remain on return."""
        if self._context.project.load_current().lacks_capacity(self.job.region, self.job.spec):
            text = f"Resources are insufficient in region: {self.job.region}. Please try a different region."
            return Ending("FAILED", ApiError("RESOURCE_EXHAUSTED", text))
        directory = self._context.settings.directory / "jobs" / self.job.id
        directory.mkdir(parents=True, exist_ok=True)
        try:
            ending = self._install_packages(directory) or self._run_replicas()
        except ApiError as problem:
            ending = Ending("FAILED", problem)
        finally:
            self._end_replicas(list(self._running.values()), grace_s=0.0)
            processes.end_processes([], self._context.build_mark(self.job.id))
            for environment in self._environments:
                shutil.rmtree(environment, ignore_errors=True)
        return ending

    def _install_packages(self, directory: Path) -> Ending | None:
        """Create the virtual environments of pools with packages; return an ending if an installation fails."""
        pythons: dict[tuple[str, ...], Path] = {}
        for number, pool in enumerate(self.job.spec.worker_pool_specs):
            if pool.WhichOneof("task") != "python_package_spec":
                continue
            uris = tuple(pool.python_package_spec.package_uris)
            if uris not in pythons:
                first = next(replica for replica in self._cluster if replica.pool == number)
                image = pool.python_package_spec.executor_image_uri
                self._log_line(first, f"Not in {image}: in a new environment of this machine's Python.", "NOTICE")
                environment = Environment(directory / f"environment-{number}", self._context.settings.strict)
                environment.create()
                pythons[uris] = environment.python
                self._environments.append(environment.directory)
                if ending := self._fill_environment(environment, uris, first):
                    return ending
            self._pythons[number] = pythons[uris]
        return None

    def _fill_environment(self, environment: Environment, uris: tuple[str, ...], replica: Replica) -> Ending | None:
        at = f"worker_pool_specs[{replica.pool}].python_package_spec.package_uris"
        mark = self._context.build_mark(self.job.id, "pip")
        variables = inherit_variables() | {MARK: mark, "HOME": str(environment.directory)}
        for uri in uris:
            package = self._context.resolve_uri(uri, at)
            if not package.is_file():
                return Ending("FAILED", ApiError("NOT_FOUND", f"The package {uri} was not found.", at))
            code = environment.install(
                package,
                variables=variables,
                say=lambda line: self._log_line(replica, line),
                on_start=self._watch_installation,
            )
            if self._interrupted.is_set():
                return None
            if code:
                return Ending("FAILED", self._build_error(replica, code))
        return None

    def _watch_installation(self, process: "subprocess.Popen[str]") -> None:
        """Kill an installation once the job is cancelled or stopped."""

        def end_on_interrupt() -> None:
            while process.poll() is None:
                if self._interrupted.wait(0.2):
                    processes.end_processes([process.pid], self._context.build_mark(self.job.id, "pip"))
                    return

        threading.Thread(target=end_on_interrupt, daemon=True).start()

    def _log_line(self, replica: Replica, line: str, severity: str = "INFO") -> None:
        write_log(self._context, self.job, replica, [line], severity)

    def _log_note(self, text: str, severity: str = "INFO") -> None:
        self._context.logs.write_note(text, job=self.job.id, project=self.job.project, severity=severity)

    def _run_replicas(self) -> Ending:
        """Start every replica and handle events until the job ends or its timeout passes."""
        timeout = self.job.spec.scheduling.timeout
        limited = self.job.spec.scheduling.HasField("timeout")
        run_s = timeout.ToTimedelta().total_seconds() if limited else LONGEST_RUN_S
        until = time.monotonic() + run_s
        if not self._interrupted.is_set():
            self._on_start()
            self._start_replicas(self._cluster)
        while True:
            try:
                event = self._events.get(timeout=min(max(0.0, until - time.monotonic()), 3600.0))
            except queue.Empty:
                if time.monotonic() < until:
                    continue
                self._end_all()
                reason = f"The job ran longer than its timeout of {run_s:g} seconds and was cancelled."
                return Ending("CANCELLED", ApiError("CANCELLED", reason))
            if ending := self._handle_event(event):
                return ending

    def _handle_event(self, event: Any) -> Ending | None:
        match event:
            case ReplicaExit() if self._running.get(event.running.replica.name) is event.running:
                return self._handle_exit(event)
            case _PreemptRequest():
                return self._handle_preemption(event)
            case _CancelRequest():
                self._end_all()
                return Ending("CANCELLED", ApiError("CANCELLED", "CANCELED"))
            case _StopRequest():
                self._end_all(at_once=True)
                return Ending("FAILED", ApiError("ABORTED", event.reason))
        return None  # the exit of a process that has been replaced since

    def _handle_exit(self, event: ReplicaExit) -> Ending | None:
        replica = event.running.replica
        self._end_replicas([self._running.pop(replica.name)], grace_s=0.0)
        is_primary = replica.pool == 0
        if event.code == 0:
            if not is_primary:
                return None
            self._end_all()
            return Ending("SUCCEEDED")
        scheduling = self.job.spec.scheduling
        if event.code not in TRANSIENT or scheduling.disable_retries or self._retries >= MOST_RETRIES:
            self._end_all()
            return Ending("FAILED", self._build_error(replica, event.code))
        self._retries += 1
        self._log_note(
            f"The replica {replica.name} exited with the transient status {event.code}: "
            f"retry {self._retries} of {MOST_RETRIES}.",
            "WARNING",
        )
        self._restart_replicas(replica, everything=is_primary or scheduling.restart_job_on_worker_restart)
        return None

    def _handle_preemption(self, event: _PreemptRequest) -> Ending | None:
        """Shut the replicas down gracefully and restart them; fail the job if retries are disabled or used up."""
        chosen = [running for name, running in self._running.items() if event.replica in ("", name)]
        if not chosen:
            return None  # the replica has ended already
        names = ", ".join(running.replica.name for running in chosen)
        self._log_note(f"Preempted: {names}.", "WARNING")
        for running in chosen:
            del self._running[running.replica.name]
        self._end_replicas(chosen, grace_s=self._context.settings.grace_s)
        scheduling = self.job.spec.scheduling
        self._preemptions += 1
        if scheduling.disable_retries or self._preemptions > MOST_PREEMPTIONS:
            self._end_all()
            return Ending("FAILED", ApiError("UNAVAILABLE", f"The replicas {names} were preempted."))
        first = chosen[0].replica
        everything = not event.replica or first.pool == 0 or scheduling.restart_job_on_worker_restart
        self._restart_replicas(first, everything=everything)
        return None

    def _restart_replicas(self, replica: Replica, *, everything: bool) -> None:
        if everything:
            self._end_all()
        chosen = self._cluster if everything else (replica,)
        self._log_note(f"Restarting {', '.join(each.name for each in chosen)}.")
        self._start_replicas(chosen)

    def _start_replicas(self, replicas: tuple[Replica, ...]) -> None:
        pools = self.job.spec.worker_pool_specs
        contained = {
            number: not self.job.as_process and runs_in_container(pools[number], self._context.settings)
            for number in {replica.pool for replica in replicas}
        }
        for replica in replicas:
            self._running[replica.name] = RunningReplica(
                replica,
                self.job,
                self._context,
                self._cluster,
                python=self._pythons.get(replica.pool),
                contained=contained[replica.pool],
                events=self._events,
            )

    def _end_all(self, *, at_once: bool = False) -> None:
        running = list(self._running.values())
        self._running.clear()
        self._end_replicas(running, grace_s=0.0 if at_once else self._context.settings.grace_s)

    def _end_replicas(self, running: list[RunningReplica], *, grace_s: float) -> None:
        for each in running:
            each.terminate()
        until = time.monotonic() + grace_s
        for each in running:
            each.end(until=until)

    def _build_error(self, replica: Replica, code: int) -> ApiError:
        log = get_log_path(self._context, self.job, replica)
        return ApiError(
            "INVALID_ARGUMENT",
            f"The replica {replica.name} exited with a non-zero status of {code}. "
            f"To find out more about why your job exited please check the logs: {log}",
        )
