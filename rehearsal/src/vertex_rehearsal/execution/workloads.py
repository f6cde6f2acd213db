"""A program of a rehearsal: a process or a container, its output read as it comes, until nothing of it is left."""

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
"""What a shell exits with where there is no such program."""
HELD = ("/bin/sh", "-c", 'read -r _ && exec "$@" </dev/null', "sh")
"""What begins a command only when it is told to; never, if whoever started it is gone before."""


class Workload:
    """A command that runs, with a home of its own that goes with it."""

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
        """Start it; `container` is its container's name or "", `on_exit` is called with its exit code as shells count it.

        The environment holds the mark by which everything that it starts is found.
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
        shutil.rmtree(self._home, ignore_errors=True)  # a machine that is restarted remembers nothing
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
            return subprocess.Popen(  # as a shell would: it starts, and has nothing to do
                [sys.executable, "-S", "-c", f"raise SystemExit({NOT_FOUND})"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )

    def _release_process(self) -> None:
        """It begins only when it is marked and written down: what it starts is found, however early that hides."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError), self._process.stdin as told:  # it was ended meanwhile
                told.write(b"go\n")

    def _read_output(self, pipe: IO[bytes], severity: str) -> None:
        for lines in processes.read_lines(pipe):
            self._write_log(lines, severity)

    def terminate(self) -> None:
        """SIGTERM, as a machine that is taken away gives it."""
        processes.send_signal(self._process.pid, SIGTERM)

    def end(self, *, until: float) -> None:
        """Wait for it until a moment of the monotonic clock, then end it and everything that it has started."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=max(0.0, until - time.monotonic()))
        if self._container:  # it may outlive its client, and its name is needed again
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
    """128 + the number of the signal that ended it."""
    return code if code >= 0 else 128 - code


def _start_thread(work: Callable[..., None], *values: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=values, daemon=True)
    thread.start()
    return thread


def build_variables(context: Context, project: str, home: Path) -> dict[str, str]:
    """What every program is given: this machine's, and those by which Google's clients find the rehearsal."""
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
        # Vertex AI's SDK asks Google's Resource Manager over gRPC, at its own name: a tunnel leads here.
        "grpc_proxy": context.address,
        "no_grpc_proxy": "localhost,127.0.0.0/8",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(context.trusted_roots),
        "REHEARSAL_ADDRESS": context.address,
        "REHEARSAL_GCS": str(context.buckets),
    }


def filter_for_container(environment: Mapping[str, str]) -> dict[str, str]:
    """A program's variables without those that are about this machine, which an image has of its own."""
    about_here = environments.inherit_variables()
    kept = {name: value for name, value in environment.items() if about_here.get(name) != value}
    for name in ("grpc_proxy", "no_grpc_proxy", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"):
        kept.pop(name, None)  # no file of this machine is seen there
    for name in ("HOME", "TMPDIR"):
        if kept.get(name) == environment["HOME"]:
            del kept[name]
    return kept | {"REHEARSAL_GCS": "/gcs"}


def expand_variables(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """$(NAME) is the value of a variable, as in Kubernetes; $$(NAME) is not."""

    def value(found: "re.Match[str]") -> str:
        return found[0][1:] if found[0].startswith("$$") else environment.get(found[1], found[0])

    return [re.sub(r"\$?\$\((\w+)\)", value, word) for word in words]


@cache
def find_mount_command(buckets: Path) -> tuple[str, ...]:
    """What makes the buckets a command's own /gcs, by a mount that no other process sees; empty where it may not."""
    unshare = shutil.which("unshare")
    if not unshare or os.geteuid() != 0:
        return ()
    script = 'mount --bind "$0" /gcs && exec "$@"'
    prefix = (unshare, "--mount", "--propagation", "private", "sh", "-c", script, str(buckets))
    try:
        Path("/gcs").mkdir(exist_ok=True)
        done = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    except OSError:
        return ()
    return prefix if done.returncode == 0 else ()


def end_leftovers(context: Context) -> int:
    """End the processes and containers that a rehearsal left behind when it was killed; returns how many there were."""
    recorded = context.database.run("SELECT pid, started, container FROM processes")
    alive = {pid for pid, begun, _ in recorded if begun and started(pid) == begun}
    mark = context.build_mark()
    count = len(processes.find_by_mark(mark) | alive)
    processes.end_processes(alive, mark)
    for _, _, container in recorded:
        if container:
            containers.remove_container(container)
    for directory in (context.settings.directory / "jobs").glob("*/*/"):  # homes and environments: only logs are kept
        shutil.rmtree(directory, ignore_errors=True)
    context.database.run("DELETE FROM processes")
    return count
