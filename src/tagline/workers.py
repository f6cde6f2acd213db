"""The processes of one training: how they are started, which of them this is, and how they agree."""

import json
import logging
import os
import socket
import struct
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tagline.devices import Device, Precision
from tagline.errors import PlaceError, RunError, TaglineError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
RESTARTS = 3
VERDICT = "TAGLINE_VERDICT"
"""Names the file where a worker that must not be started again writes its exit code."""
JOB = "TAGLINE_JOB"
"""Names the job that workers belong to, however often they are started."""
PATIENCE = timedelta(minutes=30)
"""How long a worker waits for another one: the main one may be writing a large checkpoint."""


@dataclass(frozen=True)
class World:
    """All workers of a training, seen from one of them. A training of one worker is a world of one."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def is_main(self) -> bool:
        """Whether this worker is the one that writes and speaks."""
        return self.rank == 0

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """For each flag whether it is up in any worker; every worker gets the same answer."""
        if self.size == 1:
            return flags
        import torch
        import torch.distributed as dist

        raised = torch.tensor(flags, dtype=torch.int32)
        dist.all_reduce(raised, op=dist.ReduceOp.MAX)
        return tuple(map(bool, raised.tolist()))

    def sum(self, number: float) -> float:
        """The sum of every worker's number."""
        return self._reduced(number, "SUM")

    def most(self, number: float) -> float:
        """The largest of the workers' numbers."""
        return self._reduced(number, "MAX")

    def _reduced(self, number: float, how: str) -> float:
        if self.size == 1:
            return number
        import torch
        import torch.distributed as dist

        box = torch.tensor(number, dtype=torch.float64)
        dist.all_reduce(box, op=getattr(dist.ReduceOp, how))
        return float(box)

    def share(self, value: T) -> T:
        """The main worker's value, in every worker."""
        if self.size == 1:
            return value
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def gather(self, value: NDArray[Any]) -> list[NDArray[Any]]:
        """Every worker's array, by rank, in every worker."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        boxes: list[Any] = [None] * self.size
        dist.all_gather_object(boxes, value)
        return boxes

    def interleaved(self, mine: NDArray[Any], *, total: int) -> NDArray[Any]:
        """One array in its own order from what each worker made of rows rank, rank + size, rank + 2 size ..."""
        if self.size == 1:
            return mine
        whole = np.zeros((total, *mine.shape[1:]), mine.dtype)
        for rank, part in enumerate(self.gather(mine)):
            whole[rank :: self.size] = part
        return whole


@dataclass(frozen=True)
class Place:
    """What one worker computes on."""

    device: Device
    precision: Precision
    world: World
    most_tokens: int
    """In one forward pass, padding included; a larger batch is taken in parts."""

    def tensors(self, inputs: dict[str, NDArray[Any]]) -> "dict[str, Tensor]":
        """A batch on the device."""
        import torch

        return {name: torch.from_numpy(array).to(self.device.address) for name, array in inputs.items()}


@cache
def world() -> World:
    """This process's place among the workers, as torchrun says it; the first call joins them."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return World()
    import torch
    import torch.distributed as dist

    here = World(int(os.environ["RANK"]), size, int(os.environ.get("LOCAL_RANK", "0")))
    if torch.cuda.is_available():
        torch.cuda.set_device(here.local_rank % torch.cuda.device_count())
    # gloo carries what workers tell each other from main memory; nccl what GPUs do.
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=PATIENCE)
    return here


def leave() -> None:
    """Part with the other workers; what follows is done alone."""
    if world().size > 1:
        import torch.distributed as dist

        dist.destroy_process_group()


@dataclass(frozen=True)
class Cluster:
    """The machines of one training, seen from one of them."""

    machines: int = 1
    number: int = 0
    main: str = "localhost:0"
    """Where the first of them is; port 0: any that is free."""
    own_name: str = ""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Cluster":
        """As Vertex AI says it in CLUSTER_SPEC; where that is not set, this machine alone."""
        if not environment.get("CLUSTER_SPEC"):
            return cls()
        try:
            spec = json.loads(environment["CLUSTER_SPEC"])
            pool, index = spec["task"]["type"], int(spec["task"]["index"])
            # Pool 2 holds reduction servers and pool 3 evaluators: neither runs Tagline.
            machines = [(name, i, at) for name in ("workerpool0", "workerpool1")
                        for i, at in enumerate(spec["cluster"].get(name, ()))]  # fmt: skip
            number = next(i for i, (name, place, _) in enumerate(machines) if (name, place) == (pool, index))
        except (ValueError, KeyError, TypeError, StopIteration) as error:
            raise PlaceError(
                f"cannot understand CLUSTER_SPEC: {error!r}", hint="unset it to train here alone"
            ) from error
        return cls(len(machines), number, machines[0][2], machines[number][2].rpartition(":")[0])


def are_needed(count: int | None, cluster: Cluster) -> int:
    """How many workers to start on this machine: as many as asked for, else one a GPU; 0 if this process is enough."""
    if "RANK" in os.environ:
        return 0  # it has been started as a worker
    if count is None:
        from tagline.devices import found

        count = sum(device.kind == "cuda" for device in found()) or 1
    return count if count * cluster.machines > 1 else 0


def job() -> str:
    """The name of the job this worker belongs to, the same after every restart; empty if it is no worker."""
    if os.environ.get(JOB):
        return os.environ[JOB]
    run_id = os.environ.get("TORCHELASTIC_RUN_ID")
    return f"torchrun {run_id} {os.getppid()}" if run_id else ""


def launch(arguments: Sequence[str], *, count: int, cluster: Cluster) -> int:
    """Run `python -m tagline` with these arguments in so many workers here; returns the exit code of the whole.

    torchrun's agent starts all workers again when one of them dies; they go on from the last checkpoint. One that ends
    with an error writes its verdict first: those that are started after it end with the same code at once.
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    name = os.environ.get("CLOUD_ML_JOB_ID") or uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as directory:
        verdict = Path(directory) / "verdict"
        cores = len(os.sched_getaffinity(0))
        os.environ |= {VERDICT: str(verdict), JOB: name}
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // count)))
        if cluster.machines > 1 and (interface := _interface(cluster)):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        config = LaunchConfig(
            min_nodes=cluster.machines, max_nodes=cluster.machines, nproc_per_node=count, run_id=name,
            rdzv_backend="c10d", rdzv_endpoint=cluster.main, rdzv_configs={"is_host": cluster.number == 0},
            max_restarts=RESTARTS, monitor_interval=0.5, local_addr=cluster.own_name or "localhost",
        )  # fmt: skip
        try:
            elastic_launch(config, sys.executable)("-m", "tagline", *arguments)
        except SignalException as asked:
            return 128 + int(asked.sigval)
        except ChildFailedError as failed:
            if verdict.exists():
                return int(verdict.read_text())
            rank, failure = failed.get_first_failure()
            hint = "what it said stands above; is there enough memory?"
            problem = f"worker {rank} ended with exit code {failure.exitcode}, the last of {RESTARTS + 1} times"
            raise RunError(problem, hint=hint) from failed
    return 0


@contextmanager
def as_one_of_many() -> Iterator[None]:
    """Tell the launcher when starting this worker again would not help, and say it when another one is gone."""
    path = os.environ.get(VERDICT)
    try:
        yield
    except TaglineError as error:
        if path and "RANK" in os.environ:
            Path(path).write_text(str(error.exit_code))
        raise
    except RuntimeError as error:
        if world().size > 1 and ("gloo" in str(error) or type(error).__module__.startswith("torch")):
            raise PlaceError(f"worker {world().rank} has lost another one: {str(error).splitlines()[0]}") from error
        raise


def verdict() -> int | None:
    """The exit code that an earlier attempt of these workers has settled on."""
    path = os.environ.get(VERDICT)
    return int(Path(path).read_text()) if path and "RANK" in os.environ and Path(path).exists() else None


def _interface(cluster: Cluster) -> str:
    """The network interface that leads to the other machines: gloo would take the one of the machine's own name."""
    import fcntl

    host, _, port = cluster.main.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((cluster.own_name if cluster.number == 0 else host, int(port)))
        except OSError as error:
            raise PlaceError(f"cannot find the machine {host} of CLUSTER_SPEC: {error}") from error
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(probe, 0x8915, struct.pack("256s", name.encode()))  # SIOCGIFADDR
            except OSError:
                continue  # an interface without an address
            if socket.inet_ntoa(found[20:24]) == own:
                return name
    return ""
