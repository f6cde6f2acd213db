"""The replicas of a job: each a program with its own address and the environment that Vertex AI sets."""

import errno
import json
import queue
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vertex_rehearsal.api.messages import as_dict
from vertex_rehearsal.context import Context
from vertex_rehearsal.execution import containers, images, workloads
from vertex_rehearsal.execution.processes import MARK
from vertex_rehearsal.execution.workloads import Workload
from vertex_rehearsal.settings import Settings

PORT = 2222
"""The port on which Vertex AI's replicas communicate."""
TASKS = ("chief", "worker", "ps", "evaluator")
"""TensorFlow's names of the worker pools."""
TRAINING_POOLS = (0, 1)
"""The pools that train: the primary and its workers."""


@dataclass(frozen=True)
class RunnableJob:
    """What is needed to run a job."""

    name: str
    spec: Any
    arguments: tuple[str, ...] = ()
    """Extra arguments of every replica: a trial's parameters."""
    variables: tuple[tuple[str, str], ...] = ()
    """Extra environment variables of every replica."""
    trial: str = ""
    log: str = ""
    """The id of the job whose log it writes to; "" for its own."""
    as_process: bool = False
    """Whether it runs as a local process regardless of its image."""

    @property
    def project(self) -> str:
        """The project's id."""
        return self.name.split("/")[1]

    @property
    def region(self) -> str:
        """The region."""
        return self.name.split("/")[3]

    @property
    def id(self) -> str:
        """The last part of the name."""
        return self.name.rpartition("/")[2]


@dataclass(frozen=True)
class Replica:
    """One machine of a job."""

    pool: int
    index: int
    address: str

    @property
    def name(self) -> str:
        """The name that Vertex AI gives it."""
        return f"workerpool{self.pool}-{self.index}"


def create_cluster(spec: Any) -> tuple[Replica, ...]:
    """Return a job's replicas, each with a free address."""
    return tuple(
        Replica(number, index, _find_free_address())
        for number, pool in enumerate(spec.worker_pool_specs)
        for index in range(pool.replica_count if pool.WhichOneof("task") else 0)
    )


def _find_free_address() -> str:
    """Return a free loopback address: on Linux any of 127.0.0.0/8, elsewhere 127.0.0.1 with a port of its own."""
    while True:
        host = f"127.{16 + secrets.randbelow(224)}.{secrets.randbelow(256)}.{1 + secrets.randbelow(254)}"
        with socket.socket() as probe:
            try:
                probe.bind((host, PORT))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
                with socket.socket() as free:
                    free.bind(("127.0.0.1", 0))
                    return f"127.0.0.1:{free.getsockname()[1]}"
        return f"{host}:{PORT}"


def build_environment(
    job: RunnableJob, replica: Replica, cluster: Sequence[Replica], context: Context, home: Path
) -> dict[str, str]:
    """Return the variables that Vertex AI sets, and those that direct Google's clients to the emulator."""
    variables = {
        **workloads.build_variables(context, job.project, home),
        "CLOUD_ML_JOB_ID": job.id,
        "CLOUD_ML_PROJECT_ID": context.project_number(job.project),
        "CLOUD_ML_REGION": job.region,
        **_build_cluster_variables(job, replica, cluster),
        **(_build_torch_variables(replica, cluster) if context.settings.sets_torch_variables else {}),
    }
    base = job.spec.base_output_directory.output_uri_prefix.rstrip("/")
    if base:
        base = f"{base}/{job.trial}" if job.trial else base
        for variable, directory in (("MODEL", "model"), ("CHECKPOINT", "checkpoints"), ("TENSORBOARD_LOG", "logs")):
            variables[f"AIP_{variable}_DIR"] = f"{base}/{directory}/"
    pool = job.spec.worker_pool_specs[replica.pool]
    variables |= dict(job.variables) | {
        variable.name: variable.value for variable in getattr(pool, _get_task(pool)).env
    }
    return variables | {MARK: context.build_mark(job.id, replica.name)}


def _build_cluster_variables(job: RunnableJob, replica: Replica, cluster: Sequence[Replica]) -> dict[str, str]:
    spec = as_dict(job.spec, own_names=True)
    pools: dict[int, list[str]] = {}
    for each in cluster:
        pools.setdefault(each.pool, []).append(each.address)
    trial = {"trial": job.trial} if job.trial else {}
    variables = {
        "CLUSTER_SPEC": json.dumps(
            {
                "cluster": {f"workerpool{pool}": addresses for pool, addresses in pools.items()},
                "environment": "cloud",
                "task": {"type": f"workerpool{replica.pool}", "index": replica.index, **trial},
                "job": spec,
            }
        )
    }
    if len(cluster) > 1:
        variables["TF_CONFIG"] = json.dumps(
            {
                "cluster": {TASKS[pool]: addresses for pool, addresses in pools.items() if TASKS[pool] != "evaluator"},
                "environment": "cloud",
                "job": spec,
                "task": {"type": TASKS[replica.pool], "index": replica.index, "cloud": job.id, **trial},
            }
        )
    return variables


def _build_torch_variables(replica: Replica, cluster: Sequence[Replica]) -> dict[str, str]:
    """Return the variables for torch.distributed's `env://` initialisation.

    They are empty for reduction servers and evaluators, which are not in the process group, and for a single replica.
    """
    trainers = [each for each in cluster if each.pool in TRAINING_POOLS]
    if len(cluster) == 1 or replica not in trainers:
        return {}
    host, _, port = trainers[0].address.rpartition(":")
    return {
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "RANK": str(trainers.index(replica)),
        "WORLD_SIZE": str(len(trainers)),
    }


def _get_task(pool: Any) -> str:
    return str(pool.WhichOneof("task"))


def runs_in_container(pool: Any, settings: Settings) -> bool:
    """Whether a pool's replicas run as containers."""
    return _get_task(pool) == "container_spec" and images.runs_in_container(pool.container_spec.image_uri, settings)


def get_log_path(context: Context, job: RunnableJob, replica: Replica) -> Path:
    """Return the file with the output of a replica."""
    return context.settings.directory / "jobs" / job.id / f"{replica.name}.log"


def write_log(context: Context, job: RunnableJob, replica: Replica, lines: Sequence[str], severity: str) -> None:
    """Write lines of a replica to its job's log and to its file."""
    context.logs.write_lines(
        lines,
        job=job.log or job.id,
        task=replica.name,
        project=job.project,
        region=job.region,
        severity=severity,
        trial=job.trial,
    )
    with get_log_path(context, job, replica).open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)


@dataclass(frozen=True)
class ReplicaExit:
    """The event that a replica's process has exited."""

    running: "RunningReplica"
    code: int
    """As shells report it: 128 + the number of the signal that ended it."""


class RunningReplica:
    """The running program of a replica."""

    def __init__(
        self,
        replica: Replica,
        job: RunnableJob,
        context: Context,
        cluster: Sequence[Replica],
        *,
        python: Path | None,
        contained: bool,
        events: "queue.Queue[Any]",
    ) -> None:
        self.replica = replica
        self._job = job
        self._context = context
        home = context.settings.directory / "jobs" / job.id / replica.name
        environment = build_environment(job, replica, cluster, context, home)
        self._container = f"rehearsal-{job.id}-{replica.name}" if contained else ""
        if contained:
            environment = workloads.filter_for_container(environment)
        self._program = Workload(
            self._build_command(environment, python),
            environment,
            home=home,
            container=self._container,
            mark=environment[MARK],
            context=context,
            write_log=self._write_log,
            on_exit=lambda code: events.put(ReplicaExit(self, code)),
        )

    def _build_command(self, environment: Mapping[str, str], python: Path | None) -> list[str]:
        """Return the command that starts the replica."""
        pool = self._job.spec.worker_pool_specs[self.replica.pool]
        arguments = [*getattr(pool, _get_task(pool)).args, *self._job.arguments]
        if python is not None:
            package = pool.python_package_spec
            return self._build_process_command([str(python), "-m", package.python_module, *arguments])
        spec = pool.container_spec
        image = spec.image_uri
        if self._container:
            return containers.build_run_command(
                image,
                self._container,
                entrypoint=workloads.expand_variables(spec.command, environment),
                arguments=workloads.expand_variables(arguments, environment),
                environment=environment,
                buckets=self._context.buckets,
            )
        if images.is_reduction_server(image):
            self.log_line(
                "There are no GPUs here whose gradients could be added up: this reduction server waits.", "NOTICE"
            )
            return ["sleep", "infinity"]
        if self.replica.index == 0:
            self.log_line(f"This machine has no image {image}: its command runs as a process of its Python.", "NOTICE")
        known = self._context.settings.process_image(image)
        command = [*(spec.command or (known.entrypoint if known else ())), *arguments]
        if known and not spec.command and not arguments:
            command += known.arguments
        return self._build_process_command(workloads.expand_variables(command, environment))

    def _build_process_command(self, command: list[str]) -> list[str]:
        mount = workloads.find_mount_command(self._context.buckets)
        if not mount and self.replica.index == 0:
            self.log_line("/gcs cannot be mounted here: the buckets are directories in $REHEARSAL_GCS.", "NOTICE")
        return [*mount, *command]

    def log_line(self, line: str, severity: str) -> None:
        """Write a line of this replica to the job's log."""
        self._write_log([line], severity)

    def _write_log(self, lines: Sequence[str], severity: str) -> None:
        write_log(self._context, self._job, self.replica, lines, severity)

    def terminate(self) -> None:
        """Send SIGTERM, as a preempted machine does."""
        self._program.terminate()

    def end(self, *, until: float) -> None:
        """Wait until a time of the monotonic clock, then kill the program and all of its descendants."""
        self._program.end(until=until)
