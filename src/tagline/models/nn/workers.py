"""The workers of one training: which of them this process is, what it computes on, and how they agree."""

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
PATIENCE = timedelta(minutes=30)
"""How long a worker waits for another one: the main one may be writing a large checkpoint."""
JOINING = timedelta(minutes=10)
"""How long machines and workers wait for each other at the start: one of them may still be fetching its image."""


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
        return self._all_reduce(number, "SUM")

    def most(self, number: float) -> float:
        """The largest of the workers' numbers."""
        return self._all_reduce(number, "MAX")

    def _all_reduce(self, number: float, how: str) -> float:
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

    def pad_parts(self, parts: Sequence[T], *, filler: T) -> Iterator[tuple[T, bool]]:
        """This worker's parts, and whether each is real: one that has fewer than another fills up."""
        for number in range(int(self.most(len(parts)))):
            is_real = number < len(parts)
            yield parts[number] if is_real else filler, is_real

    def interleave_rows(self, mine: NDArray[Any], *, total: int) -> NDArray[Any]:
        """One array in its own order from what each worker made of rows rank, rank + size, rank + 2 size ..."""
        if self.size == 1:
            return mine
        whole = np.zeros((total, *mine.shape[1:]), mine.dtype)
        for rank, part in enumerate(self.gather(mine)):
            whole[rank :: self.size] = part
        return whole


@dataclass(frozen=True)
class ComputeContext:
    """What one worker computes on."""

    device: Device
    precision: Precision
    world: World
    most_tokens: int
    """In one forward pass, padding included; a larger batch is taken in parts."""

    def to_tensors(self, inputs: dict[str, NDArray[Any]]) -> "dict[str, Tensor]":
        """A batch on the device."""
        import torch

        return {name: torch.from_numpy(array).to(self.device.address) for name, array in inputs.items()}


def world() -> World:
    """This process among the workers it has joined; alone, if it has joined none."""
    return join_workers() if join_workers.cache_info().currsize else World()


@cache
def join_workers() -> World:
    """Find the other workers, if torchrun or its like says that there are some."""
    size = int(os.environ.get("WORLD_SIZE", "1")) if is_worker(os.environ) else 1
    if size == 1:
        return World()
    import torch
    import torch.distributed as dist

    here = World(int(os.environ["RANK"]), size, int(os.environ.get("LOCAL_RANK", "0")))
    if torch.cuda.is_available():
        torch.cuda.set_device(here.local_rank % torch.cuda.device_count())
    # gloo carries what workers tell each other from main memory; nccl what GPUs do.
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=shared_store(), rank=here.rank, world_size=size, timeout=PATIENCE)
    return here


@cache
def shared_store() -> "Store":
    """Where workers leave word for each other, once all of them are there."""
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    size, rank = int(os.environ["WORLD_SIZE"]), os.environ["RANK"]
    try:
        whole, *_ = next(rendezvous("env://", timeout=JOINING))
        # torchrun keeps its store when it starts workers again, and with it where the dead ones could be reached.
        attempt = [os.environ.get(f"TORCHELASTIC_{name}", "") for name in ("RUN_ID", "RESTART_COUNT")]
        store = PrefixStore("/".join(["tagline", *attempt]), whole)
        store.set(f"here/{rank}", "yes")
        store.wait([f"here/{other}" for other in range(size)], JOINING)
    except (RuntimeError, ValueError) as error:  # what torch raises if it is not told where, or nobody answers there
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        problem = f"worker {rank} of {size} does not find the others at {where}: {first_line(error)}"
        raise PlaceError(problem) from error
    return store


def leave_workers() -> None:
    """Part with the other workers; what follows is done alone."""
    if world().size > 1:
        import torch.distributed as dist

        dist.destroy_process_group()
        join_workers.cache_clear()
