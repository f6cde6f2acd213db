"""The launcher for this machine: a run in a detached process, which outlives the command that started it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tagline import spec as specs
from tagline.errors import RunError
from tagline.jobs.diagnosis.log import Line
from tagline.jobs.launchers import Job, JobState
from tagline.runs import lock
from tagline.runs.run import Run
from tagline.system.processes import find_live_process, read_start_time

LOG, PROCESS = "log.txt", "process.json"
POLL_S = 0.2


class LocalLauncher:
    """Starts detached processes; the handle of a job is the directory of its run."""

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        self._say = say

    def plan(self, job: Job) -> dict[str, Any]:
        """Return the command that will run, and the run."""
        return {
            "command": ["tagline", "train", "--resume", job.run],
            "run": {"address": job.run, "name": job.name, "spec": specs.to_toml(job.spec), "command": job.command},
        }

    def submit(self, plan: Mapping[str, Any]) -> str:
        """Create the run and start its process."""
        planned = plan["run"]
        directory = Path(planned["address"]).absolute()
        spec = specs.loads(planned["spec"], where=planned["address"])
        run = Run.create(
            directory.parent, spec, lock.lock_before_start(spec, command=planned["command"]), name=planned["name"]
        )
        with (directory / LOG).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *plan["command"][:-1], str(directory)],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        run.write_json(PROCESS, {"pid": process.pid, "started": read_start_time(process.pid)})
        process.returncode = 0  # detached: Popen must not warn that it is still running
        return str(directory)

    def state(self, handle: str) -> JobState:
        """Return the run's state; a run whose process ended before training began has failed."""
        run_state = _open_run(handle).state()
        if run_state.name == "waiting" and not _find_pid(handle):
            lines = _read_log_lines(handle)
            return JobState("failed", message=lines[-1] if lines else "its process ended without a word")
        return JobState(run_state.name, message=run_state.reason, started=run_state.started, ended=run_state.ended)

    def logs(self, handle: str) -> Iterator[Line | None]:
        """Yield the lines that the process prints, as they come."""
        seen = 0
        has_ended = False
        while True:
            lines = _read_log_lines(handle)
            for line in lines[seen:]:
                yield Line(datetime.now(UTC).isoformat(), "local", "INFO", line)
            seen = len(lines)
            if has_ended:
                return
            has_ended = self.state(handle).has_ended and not _find_pid(handle)
            yield None
            time.sleep(POLL_S)

    def cancel(self, handle: str) -> None:
        """Send the process SIGTERM, on which it saves a checkpoint and exits."""
        if pid := _find_pid(handle):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def list(self, project: str, region: str) -> list[tuple[str, str, JobState]]:  # noqa: ARG002
        """Return an empty list: local jobs are found through their runs."""
        return []


def _open_run(handle: str) -> Run:
    return Run.open(Path(handle))


def _read_log_lines(handle: str) -> list[str]:
    """Return the complete lines printed so far."""
    try:
        return (Path(handle) / LOG).read_text("utf-8", "replace").split("\n")[:-1]
    except OSError as error:
        raise RunError(f"{handle} has no log", hint=f"tagline runs show {handle}") from error


def _find_pid(handle: str) -> int:
    """Return the id of the process that works on a run; 0 if it has ended."""
    return find_live_process(Path(handle) / PROCESS)
