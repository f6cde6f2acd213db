"""Runs a program as a process or a container, logs its output, and ends it with all of its descendants."""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from signal import SIGTERM
from typing import IO

from vertex_rehearsal.context import Context
from vertex_rehearsal.execution import containers, environments, processes
from vertex_rehearsal.execution.processes import started

WriteLog = Callable[[Sequence[str], str], None]
"""Writes (lines, severity) to a log."""
NOT_FOUND = 127
"""A shell's exit code for a command that was not found."""
HELD = ("/bin/sh", "-c", 'read -r _ && exec "$@" </dev/null', "sh")
"""Prefix that delays a command until a line arrives on its standard input; it never starts if the parent dies first."""


class Workload:
    """A running command with a temporary home directory."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        home: Path,
        container: str,
        mark: str,
        context: Context,
        write_log: WriteLog,
        on_exit: Callable[[int], None],
    ) -> None:
        """Start the command; `container` is a container's name or "", `on_exit` gets the exit code as shells report it.

        The environment contains the mark by which its descendants are found.
        """
        self._home = home
        self._container = container
        self._mark = mark
        self._context = context
        self._write_log = write_log
        self._process = self._start_process(command, environment)
        self._started = started(self._process.pid)
        processes.brand_process(self._process.pid, mark)
        context.database.run(
            "INSERT OR REPLACE INTO processes (pid, started, container) VALUES (?, ?, ?)",
            (self._process.pid, self._started, container),
        )
        self._release_process()
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = (
            _start_thread(self._read_output, self._process.stdout, "INFO"),
            _start_thread(self._read_output, self._process.stderr, "ERROR"),
        )
        _start_thread(lambda: on_exit(_to_shell_status(self._process.wait())))

    def _start_process(self, command: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        shutil.rmtree(self._home, ignore_errors=True)  # a restarted machine has an empty disk
        self._home.mkdir(parents=True)
        try:
            return subprocess.Popen(
                [*HELD, *command],
                cwd=self._home,
                env={**environment, **os.environ} if self._container else environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._write_log([f"{command[0]}: {getattr(error, 'strerror', None) or error}"], "ERROR")
            return subprocess.Popen(  # as a shell does: the process exits at once with NOT_FOUND
                [sys.executable, "-S", "-c", f"raise SystemExit({NOT_FOUND})"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )

    def _release_process(self) -> None:
        """Let the command begin, now that it is marked and recorded, so that every descendant can be found."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError), self._process.stdin as pipe:  # it was ended meanwhile
                pipe.write(b"go\n")

    def _read_output(self, pipe: IO[bytes], severity: str) -> None:
        for lines in processes.read_lines(pipe):
            self._write_log(lines, severity)

    def terminate(self) -> None:
        """Send SIGTERM, as a preempted machine does."""
        processes.send_signal(self._process.pid, SIGTERM)

    def end(self, *, until: float) -> None:
        """Wait until a time of the monotonic clock, then kill the program and all of its descendants."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=max(0.0, until - time.monotonic()))
        if self._container:  # it may outlive its client, and its name is reused
            containers.remove_container(self._container)
        processes.end_processes([self._process.pid], self._mark)
        self._process.wait()
        for reader in self._readers:
            reader.join(timeout=10)
        self._context.database.run(
            "DELETE FROM processes WHERE pid = ? AND started = ?", (self._process.pid, self._started)
        )
        shutil.rmtree(self._home, ignore_errors=True)


def _to_shell_status(code: int) -> int:
    """Return an exit code as shells report it: 128 + the number of the signal that ended the process."""
    return code if code >= 0 else 128 - code


def _start_thread(work: Callable[..., None], *values: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=values, daemon=True)
    thread.start()
    return thread


def build_variables(context: Context, project: str, home: Path) -> dict[str, str]:
    """Return the variables of every program: inherited ones and those that direct Google's clients to the emulator."""
    return {
        **environments.inherit_variables(),
        "HOME": str(home),
        "TMPDIR": str(home),
        "PYTHONUNBUFFERED": "1",
        "GOOGLE_CLOUD_PROJECT": project,
        "STORAGE_EMULATOR_HOST": context.keyed_address,
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        "GCE_METADATA_HOST": context.keyed_address.removeprefix("http://"),
        "GCE_METADATA_IP": f"127.0.0.1:{context.http_port}",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM": f"{context.address}/",
        # Vertex AI's SDK calls Google's Resource Manager over gRPC at its real host name: a tunnel leads here.
        "grpc_proxy": context.address,
        "no_grpc_proxy": "localhost,127.0.0.0/8",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(context.trusted_roots),
        "REHEARSAL_ADDRESS": context.address,
        "REHEARSAL_GCS": str(context.buckets),
    }


def filter_for_container(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those that describe the host, for which an image has its own values."""
    inherited = environments.inherit_variables()
    variables = {name: value for name, value in environment.items() if inherited.get(name) != value}
    for name in ("grpc_proxy", "no_grpc_proxy", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"):
        variables.pop(name, None)  # containers do not see the host's files
    for name in ("HOME", "TMPDIR"):
        if variables.get(name) == environment["HOME"]:
            del variables[name]
    return variables | {"REHEARSAL_GCS": "/gcs"}


def expand_variables(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Replace $(NAME) by the value of the variable, as Kubernetes does; $$(NAME) is an escape for $(NAME)."""

    def replace(match: "re.Match[str]") -> str:
        return match[0][1:] if match[0].startswith("$$") else environment.get(match[1], match[0])

    return [re.sub(r"\$?\$\((\w+)\)", replace, word) for word in words]


@cache
def find_mount_command(buckets: Path) -> tuple[str, ...]:
    """Return a prefix that mounts the buckets at /gcs for one command only; empty if mounting is not permitted."""
    unshare = shutil.which("unshare")
    if not unshare or os.geteuid() != 0:
        return ()
    script = 'mount --bind "$0" /gcs && exec "$@"'
    prefix = (unshare, "--mount", "--propagation", "private", "sh", "-c", script, str(buckets))
    try:
        Path("/gcs").mkdir(exist_ok=True)
        completed = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    except OSError:
        return ()
    return prefix if completed.returncode == 0 else ()


def end_leftovers(context: Context) -> int:
    """End the processes and containers that a killed emulator left behind; return the number of processes."""
    recorded = context.database.run("SELECT pid, started, container FROM processes")
    alive = {pid for pid, start_time, _ in recorded if start_time and started(pid) == start_time}
    mark = context.build_mark()
    count = len(processes.find_by_mark(mark) | alive)
    processes.end_processes(alive, mark)
    for _, _, container in recorded:
        if container:
            containers.remove_container(container)
    for directory in (context.settings.directory / "jobs").glob("*/*/"):  # homes and environments; log files stay
        shutil.rmtree(directory, ignore_errors=True)
    context.database.run("DELETE FROM processes")
    return count
