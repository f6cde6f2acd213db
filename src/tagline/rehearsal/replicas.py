"""The replicas of a job: processes with addresses of their own and the environment that Vertex AI gives them."""

import errno
import json
import os
import queue
import re
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from signal import SIGTERM
from typing import IO, Any

from tagline.rehearsal import containers, environments, processes
from tagline.rehearsal.messages import as_dict
from tagline.rehearsal.processes import MARK
from tagline.rehearsal.stage import Stage

PORT = 2222
"""What Vertex AI's replicas talk to each other on."""
TASKS = ("chief", "worker", "ps", "evaluator")
"""What TensorFlow calls the worker pools."""


@dataclass(frozen=True)
class Job:
    """What a job is, for those who run it."""

    name: str
    spec: Any
    arguments: tuple[str, ...] = ()
    """Added to those of every replica: a trial's parameters."""
    variables: tuple[tuple[str, str], ...] = ()
    """Added to the environment of every replica."""
    trial: str = ""
    log: str = ""
    """The id of the job whose log it writes; its own, if that is not another."""
    as_process: bool = False
    """Whether it runs as a process of this machine whatever its image is."""

    @property
    def project(self) -> str:
        """Its project's id."""
        return self.name.split("/")[1]

    @property
    def region(self) -> str:
        """Its region."""
        return self.name.split("/")[3]

    @property
    def id(self) -> str:
        """The last part of its name."""
        return self.name.rpartition("/")[2]


@dataclass(frozen=True)
class Replica:
    """One machine of a job."""

    pool: int
    index: int
    address: str

    @property
    def name(self) -> str:
        """As Vertex AI calls it."""
        return f"workerpool{self.pool}-{self.index}"


def cluster_of(spec: Any) -> tuple[Replica, ...]:
    """A job's replicas, each with an address that nobody listens on."""
    return tuple(
        Replica(number, index, _address())
        for number, pool in enumerate(spec.worker_pool_specs)
        for index in range(pool.replica_count if pool.WhichOneof("task") else 0)
    )


def _address() -> str:
    """All of 127.0.0.0/8 is this machine on Linux; elsewhere replicas differ by their ports."""
    while True:
        host = f"127.{16 + secrets.randbelow(224)}.{secrets.randbelow(256)}.{1 + secrets.randbelow(254)}"
        with socket.socket() as tried:
            try:
                tried.bind((host, PORT))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                with socket.socket() as free:
                    free.bind(("127.0.0.1", 0))
                    return f"127.0.0.1:{free.getsockname()[1]}"
        return f"{host}:{PORT}"


def environment_of(job: Job, replica: Replica, cluster: Sequence[Replica], stage: Stage, home: Path) -> dict[str, str]:
    """The variables that Vertex AI sets, and those by which Google's clients find the rehearsal and not the cloud."""
    found = {
        **environments.inherited(), "HOME": str(home), "TMPDIR": str(home), "PYTHONUNBUFFERED": "1",
        "CLOUD_ML_JOB_ID": job.id, "CLOUD_ML_PROJECT_ID": stage.project_number(job.project),
        "CLOUD_ML_REGION": job.region, **_cluster_variables(job, replica, cluster), **directions_of(stage, job.project),
    }  # fmt: skip
    base = job.spec.base_output_directory.output_uri_prefix.rstrip("/")
    if base:
        base = f"{base}/{job.trial}" if job.trial else base
        for variable, directory in (("MODEL", "model"), ("CHECKPOINT", "checkpoints"), ("TENSORBOARD_LOG", "logs")):
            found[f"AIP_{variable}_DIR"] = f"{base}/{directory}/"
    pool = job.spec.worker_pool_specs[replica.pool]
    found |= dict(job.variables) | {variable.name: variable.value for variable in getattr(pool, _task(pool)).env}
    return found | {MARK: stage.mark(job.id, replica.name)}


def directions_of(stage: Stage, project: str) -> dict[str, str]:
    """The variables by which Google's clients find the rehearsal and not the cloud."""
    return {
        "GOOGLE_CLOUD_PROJECT": project, "STORAGE_EMULATOR_HOST": stage.address,
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false", "GCE_METADATA_HOST": f"127.0.0.1:{stage.http_port}",
        "GCE_METADATA_IP": f"127.0.0.1:{stage.http_port}",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM": f"{stage.address}/",
        "REHEARSAL_ADDRESS": stage.address, "REHEARSAL_GCS": str(stage.buckets),
    }  # fmt: skip


def _cluster_variables(job: Job, replica: Replica, cluster: Sequence[Replica]) -> dict[str, str]:
    spec = as_dict(job.spec, own_names=True)
    pools: dict[int, list[str]] = {}
    for each in cluster:
        pools.setdefault(each.pool, []).append(each.address)
    trial = {"trial": job.trial} if job.trial else {}
    found = {
        "CLUSTER_SPEC": json.dumps({
            "cluster": {f"workerpool{pool}": addresses for pool, addresses in pools.items()}, "environment": "cloud",
            "task": {"type": f"workerpool{replica.pool}", "index": replica.index, **trial}, "job": spec,
        })
    }  # fmt: skip
    if len(cluster) > 1:
        found["TF_CONFIG"] = json.dumps({
            "cluster": {TASKS[pool]: addresses for pool, addresses in pools.items() if TASKS[pool] != "evaluator"},
            "environment": "cloud", "job": spec,
            "task": {"type": TASKS[replica.pool], "index": replica.index, "cloud": job.id, **trial},
        })  # fmt: skip
    return found


def _task(pool: Any) -> str:
    return str(pool.WhichOneof("task"))


def is_ours(image: str) -> bool:
    """Whether an image is one of Tagline's, whose program is installed here: its path's last part says so."""
    return image.rpartition("/")[2].startswith("tagline-")


def is_contained(pool: Any) -> bool:
    """Whether a pool's replicas run as containers: where the image is on this machine, or is not one of ours."""
    if _task(pool) != "container_spec":
        return False
    image = pool.container_spec.image_uri
    return containers.has_image(image) or not is_ours(image)


def in_container(environment: Mapping[str, str]) -> dict[str, str]:
    """A replica's variables without those that are about this machine, which the image has of its own."""
    about_here = environments.inherited()
    kept = {name: value for name, value in environment.items() if about_here.get(name) != value}
    for name in ("HOME", "TMPDIR"):
        if kept.get(name) == environment["HOME"]:
            del kept[name]
    return kept | {"REHEARSAL_GCS": "/gcs"}


def can_play(image: str) -> bool:
    """Whether a replica of this image can run here at all."""
    return is_ours(image) or bool(containers.engine())


@cache
def mount_of(buckets: Path) -> tuple[str, ...]:
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


def log_of(stage: Stage, job: Job, replica: Replica) -> Path:
    """The file that holds all that a replica has printed."""
    return stage.settings.directory / "jobs" / job.id / f"{replica.name}.log"


def say(stage: Stage, job: Job, replica: Replica, lines: Sequence[str], severity: str) -> None:
    """Write lines of a replica to its job's log."""
    stage.logs.lines(
        lines, job=job.log or job.id, task=replica.name, project=job.project, region=job.region, severity=severity,
        trial=job.trial,
    )  # fmt: skip
    with log_of(stage, job, replica).open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


@dataclass(frozen=True)
class Exit:
    """A replica's process has ended."""

    running: "Running"
    code: int
    """As shells count: 128 + the number of the signal that ended it."""


class Running:
    """A replica's process, from its start until nothing of it is left."""

    def __init__(
        self, replica: Replica, job: Job, stage: Stage, cluster: Sequence[Replica], *, python: Path | None,
        contained: bool, events: "queue.Queue[Any]",
    ) -> None:  # fmt: skip
        self.replica = replica
        self._job = job
        self._stage = stage
        self.home = stage.settings.directory / "jobs" / job.id / replica.name
        shutil.rmtree(self.home, ignore_errors=True)  # a machine that is restarted remembers nothing
        self.home.mkdir(parents=True)
        self._mark = stage.mark(job.id, replica.name)
        environment = environment_of(job, replica, cluster, stage, self.home)
        self._container = f"rehearsal-{job.id}-{replica.name}" if contained else ""
        if contained:
            environment = in_container(environment)
        command = self._command(environment, python)
        try:
            self.process = subprocess.Popen(
                command, cwd=self.home, env=environment | os.environ if contained else environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self.say(f"{command[0]}: {error.strerror}", "ERROR")
            self.process = subprocess.Popen(  # as a shell would: the replica starts, and has nothing to do
                [sys.executable, "-S", "-c", "raise SystemExit(127)"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        self._started = processes.started(self.process.pid)
        stage.keeping.run(
            "INSERT OR REPLACE INTO processes (pid, started, container) VALUES (?, ?, ?)",
            (self.process.pid, self._started, self._container),
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._readers = [
            self._thread(self._read, self.process.stdout, "INFO"),
            self._thread(self._read, self.process.stderr, "ERROR"),
        ]
        self._thread(self._wait, events)

    def _thread(self, work: Callable[..., None], *values: Any) -> threading.Thread:
        thread = threading.Thread(target=work, args=values, daemon=True)
        thread.start()
        return thread

    def _command(self, environment: Mapping[str, str], python: Path | None) -> list[str]:
        """What is executed."""
        pool = self._job.spec.worker_pool_specs[self.replica.pool]
        arguments = [*getattr(pool, _task(pool)).args, *self._job.arguments]
        if python is not None:
            package = pool.python_package_spec
            return self._as_process([str(python), "-m", package.python_module, *arguments])
        spec = pool.container_spec
        image = spec.image_uri
        if self._container:
            return containers.command(
                image, self._container, entrypoint=expanded(spec.command, environment), buckets=self._stage.buckets,
                arguments=expanded(arguments, environment), environment=environment,
            )  # fmt: skip
        if self.replica.index == 0:
            self.say(f"This machine has no image {image}: its command runs as a process of its Python.", "NOTICE")
        command = [*spec.command] or [sys.executable, "-m", "tagline"]
        return self._as_process(expanded([*command, *arguments], environment))

    def _as_process(self, command: list[str]) -> list[str]:
        mount = mount_of(self._stage.buckets)
        if not mount and self.replica.index == 0:
            self.say("/gcs cannot be mounted here: the buckets are directories in $REHEARSAL_GCS.", "NOTICE")
        return [*mount, *command]

    def say(self, line: str, severity: str) -> None:
        """Write a line to the job's log, as this replica's."""
        say(self._stage, self._job, self.replica, [line], severity)

    def _read(self, pipe: IO[bytes], severity: str) -> None:
        for lines in processes.lines_of(pipe):
            say(self._stage, self._job, self.replica, lines, severity)

    def _wait(self, events: "queue.Queue[Any]") -> None:
        code = self.process.wait()
        events.put(Exit(self, code if code >= 0 else 128 - code))

    def tell_to_stop(self) -> None:
        """SIGTERM, as a machine that is taken away gives it."""
        processes.tell(self.process.pid, SIGTERM)

    def end(self, *, until: float) -> None:
        """Wait for it until a moment of the monotonic clock, then end it and everything that it has started."""
        try:
            self.process.wait(timeout=max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            if self._container:
                containers.remove(self._container)
        processes.end([self.process.pid], self._mark)
        self.process.wait()
        for reader in self._readers:
            reader.join(timeout=10)
        self._stage.keeping.run(
            "DELETE FROM processes WHERE pid = ? AND started = ?", (self.process.pid, self._started)
        )
        shutil.rmtree(self.home, ignore_errors=True)


def expanded(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """$(NAME) is the value of a variable, as in Kubernetes; $$(NAME) is not."""

    def value(found: "re.Match[str]") -> str:
        return found[0][1:] if found[0].startswith("$$") else environment.get(found[1], found[0])

    return [re.sub(r"\$?\$\((\w+)\)", value, word) for word in words]


def end_leftovers(stage: Stage) -> int:
    """End the processes and containers that a rehearsal left behind when it was killed; returns how many there were."""
    recorded = stage.keeping.run("SELECT pid, started, container FROM processes")
    alive = {pid for pid, begun, _ in recorded if begun and processes.started(pid) == begun}
    mark = stage.mark()
    count = len(processes.marked(mark) | alive)
    processes.end(alive, mark)
    for _, _, container in recorded:
        if container:
            containers.remove(container)
    stage.keeping.run("DELETE FROM processes")
    return count
