"""The training loop of every torch family: batches of similar length in, steps out, its state a plain dictionary."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.nn.parallel import DistributedDataParallel

from tagline.models import Scores, Step, scores_of
from tagline.models.nn import batches
from tagline.models.nn.tokens import Ints, Sequences
from tagline.models.nn.weight_averaging import WeightAverage
from tagline.models.nn.workers import ComputeContext
from tagline.spec import Training

if TYPE_CHECKING:
    from tagline.data.dataset import Task

LARGEST_GRADIENT = 1.0
LEARNING = "learning."
"""Before the names of weights as the steps left them, where a network is kept with their mean."""
Kept = tuple[dict[str, Tensor], dict[str, Any]]
"""What a loop needs to go on, beside the network's weights: tensors, and plain values."""


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters, by name, that learn at the same share of the learning rate."""

    names: Sequence[str]
    scale: float
    decays: bool


class Loss:
    """How wrong the logits of some sequences are, one number each, and how much each of them counts."""

    def __init__(self, targets: NDArray[Any], *, task: str, labels: int, balanced: bool, smoothing: float) -> None:
        self.is_multi = task == "multi"
        self.smoothing = smoothing
        counts = targets.sum(axis=0) if self.is_multi else np.bincount(targets, minlength=labels)
        others = len(targets) - counts if self.is_multi else len(targets) / labels
        weights = others / np.maximum(counts, 1) if balanced else np.ones(labels)
        self.label_weights = torch.tensor(weights, dtype=torch.float32)
        self._counts, self._rows = counts, len(targets)

    def weights(self, targets: Tensor) -> Tensor:
        """How much each sequence counts. For task `multi` it is its labels that count more or less, in the loss."""
        return torch.ones(len(targets)) if self.is_multi else self.label_weights[targets]

    def best_constant(self) -> Tensor:
        """For task `multi`: the logits that are least wrong where nothing is known of a text."""
        there = torch.as_tensor(self._counts, dtype=torch.float32) * self.label_weights
        missing, half = self._rows - torch.as_tensor(self._counts, dtype=torch.float32), self.smoothing / 2
        for_it, against = there * (1 - half) + missing * half, there * half + missing * (1 - half)
        return torch.log((for_it + 0.5) / (against + 0.5))  # 0.5: some labels are nowhere, or everywhere

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss of each sequence."""
        if not self.is_multi:
            return cross_entropy(logits, targets.long(), reduction="none", label_smoothing=self.smoothing)
        truth = targets.to(logits.dtype) * (1 - self.smoothing) + self.smoothing / 2
        # By the label itself: what smoothing gives to those that are not there would be weighed up to a score of 1.
        emphasis = torch.where(targets.bool(), self.label_weights.to(logits), 1.0)
        return binary_cross_entropy_with_logits(logits, truth, emphasis, reduction="none").mean(dim=1)


@dataclass(frozen=True)
class Examples:
    """What is learned: token sequences, and the target and the weight of each."""

    sequences: Sequences
    targets: Tensor
    weights: Tensor
    pad: int


def rate_at(step: int, *, total: int, warmup_share: float) -> float:
    """The share of the learning rate at a step, counted from 0: up to 1 in a straight line, then down towards 0."""
    warmup = math.ceil(warmup_share * total)
    return (step + 1) / warmup if step < warmup else (total - step) / (total - warmup)


class TrainingLoop:
    """The optimisation of one network."""

    def __init__(
        self,
        network: nn.Module,
        groups: Sequence[ParameterGroup],
        examples: Examples,
        loss: Loss,
        *,
        learning_rate: float,
        epochs: int,
        training: Training,
        seed: int,
        seat: ComputeContext,
    ) -> None:
        self.network, self.examples, self.loss, self.training, self.seat = network, examples, loss, training, seat
        self.seed = seed
        self.task: Task = "multi" if loss.is_multi else "single"
        self.learning_rate = learning_rate
        self.lengths = examples.sequences.lengths
        self.steps_an_epoch = math.ceil(len(self.lengths) / training.batch_size)
        self.total = self.steps_an_epoch * epochs
        self.done = 0
        self.mean_weight = float(examples.weights.mean())
        self.is_sharded = training.sharding == "full" and seat.world.size > 1
        self.wrapped = self._wrap_network()
        named = dict(network.named_parameters())  # sharding has put others in their place
        self.optimizer = torch.optim.AdamW(
            [
                {
                    "params": [named[name] for name in group.names],
                    "lr": learning_rate * group.scale,
                    "weight_decay": training.weight_decay if group.decays else 0.0,
                }
                for group in groups
            ],
            fused=seat.device.kind != "mps" and not self.is_sharded,
        )
        self.full_rates: list[float] = [group["lr"] for group in self.optimizer.param_groups]
        self.learning = {name: named[name] for group in groups for name in group.names}
        self.average = WeightAverage(self.learning) if training.averaging else None
        # A gradient below 6e-8 is zero in float16; scaled up it is not.
        self.scaler = torch.amp.GradScaler(seat.device.kind, enabled=seat.precision == "float16")

    def _wrap_network(self) -> nn.Module:
        if self.is_sharded:
            from torch.distributed.fsdp import fully_shard

            for part in reversed(list(self.network.modules())):  # inner lists of layers first
                if isinstance(part, nn.ModuleList):
                    for layer in part:
                        fully_shard(layer)
            fully_shard(self.network)
            return self.network
        if self.seat.world.size > 1:
            return DistributedDataParallel(self.network, gradient_as_bucket_view=True)
        return self.network

    def steps(self) -> Iterator[Step]:
        """Learn from where it stands to the end; a step is worth measuring at the end of an epoch, or every n."""
        every = self.training.evaluate_every or self.steps_an_epoch
        rows = len(self.lengths)
        while self.done < self.total:
            epoch, first = divmod(self.done, self.steps_an_epoch)
            order = batches.of_epoch(self.lengths, batch_size=self.training.batch_size, seed=self.seed, epoch=epoch)
            seen = epoch * rows + sum(map(len, order[:first]))
            for batch in order[first:]:
                rate = rate_at(self.done, total=self.total, warmup_share=self.training.warmup_share)
                loss, said = self._run_step(batch, rate)
                self.done += 1
                seen += len(batch)
                evaluate = self.done % every == 0 or self.done == self.total
                settings = {"learning_rate": rate * self.learning_rate}
                yield Step(
                    self.done,
                    self.total,
                    loss,
                    evaluate=evaluate,
                    settings=settings,
                    rows=seen,
                    scores_before_update=said,
                )
        if self.average:  # nothing more is learned: whoever takes the network itself takes what was measured
            self.average.apply_mean()
            self.average = None

    def _run_step(self, batch: Ints, rate: float) -> tuple[float, tuple[Ints, Scores]]:
        """One step down: every worker takes its share of the batch, in parts that fit into memory.

        Returns the loss of the batch, and what was said of this worker's rows.
        """
        for group, full_rate in zip(self.optimizer.param_groups, self.full_rates, strict=True):
            group["lr"] = rate * full_rate
        # Nothing random needs to be remembered: what a step draws follows from its number.
        torch.manual_seed((self.seed * 1_000_003 + self.done) * 1_009 + self.seat.world.rank)
        self.wrapped.train()
        # A batch of windows, or of rows that count less, must not be blown up to a full one: the mean is that of all.
        total_weight = len(batch) * self.mean_weight
        loss = 0.0
        rows, logits = [], []
        for part, counts, is_last in self._split_batch(batch):
            with self._without_exchange(until=is_last):
                part_logits = self._compute_logits(part)
                part_loss = self._compute_loss(part_logits, part) * (counts / total_weight)
                # The workers' gradients are averaged, where their sum is meant.
                self.scaler.scale(part_loss * self.seat.world.size).backward()  # type: ignore[no-untyped-call]
            loss += float(part_loss.detach())
            own = part if counts else part[:0]
            rows.append(self.examples.sequences.rows[own].astype(np.int64))
            logits.append(part_logits.detach()[: len(own)].cpu().numpy())
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.network.parameters(), LARGEST_GRADIENT)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        if self.average:
            self.average.add(self.done + 1)
        said = np.concatenate(rows), scores_of(np.concatenate(logits), task=self.task)
        return self.seat.world.sum(loss), said

    def _split_batch(self, batch: Ints) -> Iterator[tuple[Ints, float, bool]]:
        """This worker's share of a batch, whether it counts, and whether it is the last part.

        Workers wait for each other in every part, so one that has fewer, or none, goes through a row that does not
        count.
        """
        share = batch[self.seat.world.rank :: self.seat.world.size]
        parts = list(batches.within_budget(share, self.lengths, most_tokens=self.seat.most_tokens))
        evened = list(self.seat.world.pad_parts(parts, filler=batch[:1]))
        for number, (part, is_real) in enumerate(evened, start=1):
            yield part, float(is_real), number == len(evened)

    def _compute_logits(self, part: Ints) -> Tensor:
        """What the network makes of some sequences, in float32."""
        inputs = self.seat.to_tensors(self.examples.sequences.pad_batch(part, pad=self.examples.pad))
        device = torch.device(self.seat.device.address)
        precision = getattr(torch, self.seat.precision)
        with torch.autocast(device.type, precision, enabled=precision != torch.float32):
            logits: Tensor = self.wrapped(**inputs)
        return logits.float()

    def _compute_loss(self, logits: Tensor, part: Ints) -> Tensor:
        """The weighted sum of the losses of some sequences."""
        targets, weights = (each[part].to(logits.device) for each in (self.examples.targets, self.examples.weights))
        return (self.loss(logits, targets) * weights).sum()

    def _without_exchange(self, *, until: bool) -> AbstractContextManager[Any]:
        """Gradients of all parts but the last stay with the worker."""
        if self.is_sharded:
            self.wrapped.set_requires_gradient_sync(until)  # type: ignore[operator]
        elif isinstance(self.wrapped, DistributedDataParallel) and not until:
            context: AbstractContextManager[Any] = self.wrapped.no_sync()
            return context
        return nullcontext()

    def use_average(self) -> AbstractContextManager[None]:
        """The network with the weights that it is measured and kept with."""
        return self.average.in_place() if self.average else nullcontext()

    def weights(self) -> dict[str, Tensor]:
        """The weights that the network is kept with, whole, in main memory; in every worker at once."""
        means = self.average.means if self.average else {}
        return {name: _gather_tensor(means.get(name, tensor)) for name, tensor in self.network.state_dict().items()}

    def state(self) -> Kept:
        """What is needed to go on, in every worker at once."""
        tensors = optimizer_tensors(self.optimizer)
        if self.average:
            tensors |= {LEARNING + name: _gather_tensor(weight) for name, weight in self.learning.items()}
        return tensors, {"done": self.done, "scaler": self.scaler.state_dict()}

    def restore(self, kept: Kept) -> None:
        """Go on from there, in a network that has the weights it was kept with."""
        tensors, values = dict(kept[0]), kept[1]
        self.average = WeightAverage(self.learning) if self.average else None
        with torch.no_grad():
            for name in [name for name in tensors if name.startswith(LEARNING)]:
                weight = self.learning[name.removeprefix(LEARNING)]
                weight.copy_(_shard_tensor(tensors.pop(name), like=weight))
        restore_optimizer(self.optimizer, tensors)
        if values["scaler"] and self.scaler.is_enabled():  # another device may compute in another precision
            self.scaler.load_state_dict(values["scaler"])
        self.done = values["done"]


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What an optimizer remembers of each parameter, by the parameter's number."""
    kept: dict[int, dict[str, Tensor]] = optimizer.state_dict()["state"]
    return {f"{number}.{key}": _gather_tensor(kept[number][key]) for number in kept for key in kept[number]}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Let an optimizer of the same parameters remember the same."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    numbered: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, key = name.split(".")
        numbered.setdefault(int(number), {})[key] = _shard_tensor(tensor, like=parameters[int(number)])
    optimizer.load_state_dict(optimizer.state_dict() | {"state": numbered})


def _gather_tensor(tensor: Tensor) -> Tensor:
    """A tensor in main memory, put together again if workers share it."""
    whole: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole.detach().cpu()


def _shard_tensor(tensor: Tensor, *, like: Tensor) -> Tensor:
    """This worker's part of a tensor, if workers share the other one; a number of all of them is not shared."""
    if not tensor.ndim or not hasattr(like, "full_tensor"):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    seat: Any = like
    return distribute_tensor(tensor.to(seat.device), seat.device_mesh, seat.placements, src_data_rank=None)
