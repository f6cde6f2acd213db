"""This machine: a run in a process of its own, which goes on when the command that started it has ended."""

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
    """Starts processes, and finds them again by the run they work on: that is the handle."""

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        self._say = say

    def plan(self, job: Job) -> dict[str, Any]:
        """The command that will run, and the run."""
        return {
            "command": ["tagline", "train", "--resume", job.run],
            "run": {"address": job.run, "name": job.name, "spec": specs.to_toml(job.spec), "command": job.command},
        }

    def submit(self, plan: Mapping[str, Any]) -> str:
        """Make the run, and start the process."""
        told = plan["run"]
        directory = Path(told["address"]).absolute()
        spec = specs.loads(told["spec"], where=told["address"])
        run = Run.create(
            directory.parent, spec, lock.lock_before_start(spec, command=told["command"]), name=told["name"]
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
        process.returncode = 0  # it is nobody's child from now on
        return str(directory)

    def state(self, handle: str) -> JobState:
        """As the run has it; one whose process ended before it began has failed."""
        found = _open_run(handle).state()
        if found.name == "waiting" and not _find_pid(handle):
            lines = _read_log_lines(handle)
            return JobState("failed", message=lines[-1] if lines else "its process ended without a word")
        return JobState(found.name, message=found.reason, started=found.started, ended=found.ended)

    def logs(self, handle: str) -> Iterator[Line | None]:
        """What the process prints, as it grows."""
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
        """It saves, and stops."""
        if pid := _find_pid(handle):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def list(self, project: str, region: str) -> list[tuple[str, str, JobState]]:  # noqa: ARG002
        """None: what runs here is listed by its runs."""
        return []


def _open_run(handle: str) -> Run:
    return Run.open(Path(handle))


def _read_log_lines(handle: str) -> list[str]:
    """What has been printed so far, whole lines only."""
    try:
        return (Path(handle) / LOG).read_text("utf-8", "replace").split("\n")[:-1]
    except OSError as error:
        raise RunError(f"{handle} has no log", hint=f"tagline runs show {handle}") from error


def _find_pid(handle: str) -> int:
    """The process that works on a run; 0 if it has ended."""
    return find_live_process(Path(handle) / PROCESS)
