"""The workers of a distributed training: the rank of this process, its device, and collective operations."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tagline.errors import PlaceError, first_line
from tagline.models.nn.devices import Device, Precision
from tagline.system.processes import is_worker

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed.distributed_c10d import Store

T = TypeVar("T")
COLLECTIVE_TIMEOUT = timedelta(minutes=30)
"""How long a worker waits for another: the main worker may be writing a large checkpoint."""
JOIN_TIMEOUT = timedelta(minutes=10)
"""How long workers wait for each other at the start: a machine may still be pulling its image."""


@dataclass(frozen=True)
class World:
    """The workers of a training, as seen by one of them; without others, a world of size 1."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def is_main(self) -> bool:
        """Whether this worker is the main one, which writes files and reports events."""
        return self.rank == 0

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Return for each flag whether it is set in any worker; every worker gets the same result."""
        if self.size == 1:
            return flags
        import torch
        import torch.distributed as dist

        raised = torch.tensor(flags, dtype=torch.int32)
        dist.all_reduce(raised, op=dist.ReduceOp.MAX)
        return tuple(map(bool, raised.tolist()))

    def sum(self, number: float) -> float:
        """Return the sum of the workers' numbers."""
        return self._all_reduce(number, "SUM")

    def max(self, number: float) -> float:
        """Return the largest of the workers' numbers."""
        return self._all_reduce(number, "MAX")

    def _all_reduce(self, number: float, how: str) -> float:
        if self.size == 1:
            return number
        import torch
        import torch.distributed as dist

        tensor = torch.tensor(number, dtype=torch.float64)
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, how))
        return float(tensor)

    def share(self, value: T) -> T:
        """Broadcast the main worker's value to every worker."""
        if self.size == 1:
            return value
        import torch.distributed as dist

        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def gather(self, value: NDArray[Any]) -> list[NDArray[Any]]:
        """Return every worker's array, by rank, in every worker."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, value)
        return gathered

    def pad_parts(self, parts: Sequence[T], *, filler: T) -> Iterator[tuple[T, bool]]:
        """Yield this worker's parts and whether each is real, padded with `filler` to the largest worker's number."""
        for number in range(int(self.max(len(parts)))):
            is_real = number < len(parts)
            yield parts[number] if is_real else filler, is_real

    def interleave_rows(self, mine: NDArray[Any], *, total: int) -> NDArray[Any]:
        """Return one array in row order from each worker's results for rows rank, rank + size, rank + 2 size ..."""
        if self.size == 1:
            return mine
        rows = np.zeros((total, *mine.shape[1:]), mine.dtype)
        for rank, part in enumerate(self.gather(mine)):
            rows[rank :: self.size] = part
        return rows


@dataclass(frozen=True)
class ComputeContext:
    """The device and precision of one worker, and the other workers."""

    device: Device
    precision: Precision
    world: World
    most_tokens: int
    """The tokens in one forward pass, padding included; a larger batch is computed in parts."""

    def to_tensors(self, inputs: dict[str, NDArray[Any]]) -> "dict[str, Tensor]":
        """Return a batch as tensors on the device."""
        import torch

        return {name: torch.from_numpy(array).to(self.device.address) for name, array in inputs.items()}


def world() -> World:
    """Return the world this process has joined; a world of size 1 if it has joined none."""
    return join_workers() if join_workers.cache_info().currsize else World()


@cache
def join_workers() -> World:
    """Join the other workers, if torchrun or a similar launcher has set their number in the environment."""
    size = int(os.environ.get("WORLD_SIZE", "1")) if is_worker(os.environ) else 1
    if size == 1:
        return World()
    import torch
    import torch.distributed as dist

    joined = World(int(os.environ["RANK"]), size, int(os.environ.get("LOCAL_RANK", "0")))
    if torch.cuda.is_available():
        torch.cuda.set_device(joined.local_rank % torch.cuda.device_count())
    # gloo for tensors in main memory, nccl for those on GPUs.
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(
        backend, store=shared_store(), rank=joined.rank, world_size=size, timeout=COLLECTIVE_TIMEOUT
    )
    return joined


@cache
def shared_store() -> "Store":
    """Return the key-value store of the workers, once all of them have joined."""
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    size, rank = int(os.environ["WORLD_SIZE"]), os.environ["RANK"]
    try:
        base_store, *_ = next(rendezvous("env://", timeout=JOIN_TIMEOUT))
        # torchrun keeps its store when it restarts workers, with the addresses of the dead ones in it.
        attempt = [os.environ.get(f"TORCHELASTIC_{name}", "") for name in ("RUN_ID", "RESTART_COUNT")]
        store = PrefixStore("/".join(["tagline", *attempt]), base_store)
        store.set(f"here/{rank}", "yes")
        store.wait([f"here/{other}" for other in range(size)], JOIN_TIMEOUT)
    except (RuntimeError, ValueError) as error:  # raised by torch without an address, or if there is no answer
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        problem = f"worker {rank} of {size} does not find the others at {where}: {first_line(error)}"
        raise PlaceError(problem) from error
    return store


def leave_workers() -> None:
    """Leave the process group; this process is then a world of size 1."""
    if world().size > 1:
        import torch.distributed as dist

        dist.destroy_process_group()
        join_workers.cache_clear()
