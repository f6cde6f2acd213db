"""The training loop of the torch families: batches of similar length in, steps out, with a state that can be saved."""

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
RAW_WEIGHTS = "learning."
"""Prefix of the raw weights in a state, where the network is saved with their mean."""
LoopState = tuple[dict[str, Tensor], dict[str, Any]]
"""The state a loop needs to resume, beside the network's weights: tensors and plain values."""


@dataclass(frozen=True)
class ParameterGroup:
    """Names of parameters that share a learning rate, `scale` times the base rate, and weight decay."""

    names: Sequence[str]
    scale: float
    decays: bool


class Loss:
    """The loss of each sequence, with label smoothing and class weights, and the weight of each sequence."""

    def __init__(self, targets: NDArray[Any], *, task: str, labels: int, balanced: bool, smoothing: float) -> None:
        self.is_multi = task == "multi"
        self.smoothing = smoothing
        counts = targets.sum(axis=0) if self.is_multi else np.bincount(targets, minlength=labels)
        others = len(targets) - counts if self.is_multi else len(targets) / labels
        weights = others / np.maximum(counts, 1) if balanced else np.ones(labels)
        self.label_weights = torch.tensor(weights, dtype=torch.float32)
        self._counts, self._rows = counts, len(targets)

    def weights(self, targets: Tensor) -> Tensor:
        """Return the weight of each sequence; for task `multi`, where the loss applies the class weights, 1."""
        return torch.ones(len(targets)) if self.is_multi else self.label_weights[targets]

    def best_constant(self) -> Tensor:
        """Return the constant logits with the lowest loss over all rows, for task `multi`."""
        positive = torch.as_tensor(self._counts, dtype=torch.float32) * self.label_weights
        negative, half = self._rows - torch.as_tensor(self._counts, dtype=torch.float32), self.smoothing / 2
        mass_for, mass_against = positive * (1 - half) + negative * half, positive * half + negative * (1 - half)
        return torch.log((mass_for + 0.5) / (mass_against + 0.5))  # 0.5: some labels are on no row, or on all

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each sequence."""
        if not self.is_multi:
            return cross_entropy(logits, targets.long(), reduction="none", label_smoothing=self.smoothing)
        truth = targets.to(logits.dtype) * (1 - self.smoothing) + self.smoothing / 2
        # Weighted by the true label: the mass that smoothing gives absent labels would be weighted up to a score of 1.
        emphasis = torch.where(targets.bool(), self.label_weights.to(logits), 1.0)
        return binary_cross_entropy_with_logits(logits, truth, emphasis, reduction="none").mean(dim=1)


@dataclass(frozen=True)
class Examples:
    """Training examples: token sequences, with the target and the weight of each."""

    sequences: Sequences
    targets: Tensor
    weights: Tensor
    pad: int


def rate_at(step: int, *, total: int, warmup_share: float) -> float:
    """Return the share of the learning rate at a step, counted from 0: linear warm-up to 1, then linear decay to 0."""
    warmup = math.ceil(warmup_share * total)
    return (step + 1) / warmup if step < warmup else (total - step) / (total - warmup)


class TrainingLoop:
    """The training of one network, with DDP or sharding where there are several workers."""

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
        context: ComputeContext,
    ) -> None:
        self.network, self.examples, self.loss, self.training, self.context = network, examples, loss, training, context
        self.seed = seed
        self.task: Task = "multi" if loss.is_multi else "single"
        self.learning_rate = learning_rate
        self.lengths = examples.sequences.lengths
        self.steps_an_epoch = math.ceil(len(self.lengths) / training.batch_size)
        self.total = self.steps_an_epoch * epochs
        self.done = 0
        self.mean_weight = float(examples.weights.mean())
        self.is_sharded = training.sharding == "full" and context.world.size > 1
        self.wrapped = self._wrap_network()
        named = dict(network.named_parameters())  # sharding has replaced them
        self.optimizer = torch.optim.AdamW(
            [
                {
                    "params": [named[name] for name in group.names],
                    "lr": learning_rate * group.scale,
                    "weight_decay": training.weight_decay if group.decays else 0.0,
                }
                for group in groups
            ],
            fused=context.device.kind != "mps" and not self.is_sharded,
        )
        self.full_rates: list[float] = [group["lr"] for group in self.optimizer.param_groups]
        self.learning = {name: named[name] for group in groups for name in group.names}
        self.average = WeightAverage(self.learning) if training.averaging else None
        # A gradient below 6e-8 underflows to zero in float16, so the loss is scaled up.
        self.scaler = torch.amp.GradScaler(context.device.kind, enabled=context.precision == "float16")

    def _wrap_network(self) -> nn.Module:
        if self.is_sharded:
            from torch.distributed.fsdp import fully_shard

            for part in reversed(list(self.network.modules())):  # inner lists of layers first
                if isinstance(part, nn.ModuleList):
                    for layer in part:
                        fully_shard(layer)
            fully_shard(self.network)
            return self.network
        if self.context.world.size > 1:
            return DistributedDataParallel(self.network, gradient_as_bucket_view=True)
        return self.network

    def steps(self) -> Iterator[Step]:
        """Train from the current step to the last; `evaluate` is set at the end of an epoch, or every n steps."""
        every = self.training.evaluate_every or self.steps_an_epoch
        rows = len(self.lengths)
        while self.done < self.total:
            epoch, first = divmod(self.done, self.steps_an_epoch)
            order = batches.of_epoch(self.lengths, batch_size=self.training.batch_size, seed=self.seed, epoch=epoch)
            seen = epoch * rows + sum(map(len, order[:first]))
            for batch in order[first:]:
                rate = rate_at(self.done, total=self.total, warmup_share=self.training.warmup_share)
                loss, scored = self._run_step(batch, rate)
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
                    scores_before_update=scored,
                )
        if self.average:  # training is over: from here on the network itself has the weights that were evaluated
            self.average.apply_mean()
            self.average = None

    def _run_step(self, batch: Ints, rate: float) -> tuple[float, tuple[Ints, Scores]]:
        """Run one optimizer step with gradient accumulation: each worker computes its share of the batch in parts.

        Returns the loss of the batch, and the scores of this worker's rows before the update.
        """
        for group, full_rate in zip(self.optimizer.param_groups, self.full_rates, strict=True):
            group["lr"] = rate * full_rate
        # No random state needs saving: the seed of each step follows from its number.
        torch.manual_seed((self.seed * 1_000_003 + self.done) * 1_009 + self.context.world.rank)
        self.wrapped.train()
        # Divided by the mean weight of all examples: a batch of windows, or of lighter rows, must not count as a full
        # one.
        total_weight = len(batch) * self.mean_weight
        loss = 0.0
        rows, logits = [], []
        for part, counts, is_last in self._split_batch(batch):
            with self._defer_gradient_sync(is_last=is_last):
                part_logits = self._compute_logits(part)
                part_loss = self._compute_loss(part_logits, part) * (counts / total_weight)
                # DDP averages the workers' gradients, where the sum is needed.
                self.scaler.scale(part_loss * self.context.world.size).backward()  # type: ignore[no-untyped-call]
            loss += float(part_loss.detach())
            counted = part if counts else part[:0]
            rows.append(self.examples.sequences.rows[counted].astype(np.int64))
            logits.append(part_logits.detach()[: len(counted)].cpu().numpy())
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.network.parameters(), LARGEST_GRADIENT)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        if self.average:
            self.average.add(self.done + 1)
        scored = np.concatenate(rows), scores_of(np.concatenate(logits), task=self.task)
        return self.context.world.sum(loss), scored

    def _split_batch(self, batch: Ints) -> Iterator[tuple[Ints, float, bool]]:
        """Yield the parts of this worker's share of a batch, each with its weight (0 or 1) and whether it is the last.

        Workers synchronise in every part, so a worker with fewer parts, or none, computes a row of weight 0.
        """
        share = batch[self.context.world.rank :: self.context.world.size]
        parts = list(batches.within_budget(share, self.lengths, most_tokens=self.context.most_tokens))
        padded = list(self.context.world.pad_parts(parts, filler=batch[:1]))
        for number, (part, is_real) in enumerate(padded, start=1):
            yield part, float(is_real), number == len(padded)

    def _compute_logits(self, part: Ints) -> Tensor:
        """Return the network's logits for some sequences, in float32."""
        inputs = self.context.to_tensors(self.examples.sequences.pad_batch(part, pad=self.examples.pad))
        device = torch.device(self.context.device.address)
        precision = getattr(torch, self.context.precision)
        with torch.autocast(device.type, precision, enabled=precision != torch.float32):
            logits: Tensor = self.wrapped(**inputs)
        return logits.float()

    def _compute_loss(self, logits: Tensor, part: Ints) -> Tensor:
        """Return the weighted sum of the losses of some sequences."""
        targets, weights = (each[part].to(logits.device) for each in (self.examples.targets, self.examples.weights))
        return (self.loss(logits, targets) * weights).sum()

    def _defer_gradient_sync(self, *, is_last: bool) -> AbstractContextManager[Any]:
        """Return a context in which gradients are synchronised between workers only for the last part."""
        if self.is_sharded:
            self.wrapped.set_requires_gradient_sync(is_last)  # type: ignore[operator]
        elif isinstance(self.wrapped, DistributedDataParallel) and not is_last:
            no_sync: AbstractContextManager[Any] = self.wrapped.no_sync()
            return no_sync
        return nullcontext()

    def use_average(self) -> AbstractContextManager[None]:
        """Return a context in which the network has the averaged weights, with which it is evaluated and saved."""
        return self.average.in_place() if self.average else nullcontext()

    def weights(self) -> dict[str, Tensor]:
        """Return the weights to save, unsharded and in main memory; a collective call in every worker."""
        means = self.average.means if self.average else {}
        return {name: _gather_tensor(means.get(name, tensor)) for name, tensor in self.network.state_dict().items()}

    def state(self) -> LoopState:
        """Return the state that `restore` needs to resume; a collective call in every worker."""
        tensors = optimizer_tensors(self.optimizer)
        if self.average:
            tensors |= {RAW_WEIGHTS + name: _gather_tensor(weight) for name, weight in self.learning.items()}
        return tensors, {"done": self.done, "scaler": self.scaler.state_dict()}

    def restore(self, state: LoopState) -> None:
        """Resume from a state, in a network that has the weights saved with it."""
        tensors, values = dict(state[0]), state[1]
        self.average = WeightAverage(self.learning) if self.average else None
        with torch.no_grad():
            for name in [name for name in tensors if name.startswith(RAW_WEIGHTS)]:
                weight = self.learning[name.removeprefix(RAW_WEIGHTS)]
                weight.copy_(_shard_tensor(tensors.pop(name), like=weight))
        restore_optimizer(self.optimizer, tensors)
        if values["scaler"] and self.scaler.is_enabled():  # the precision may differ on another device
            self.scaler.load_state_dict(values["scaler"])
        self.done = values["done"]


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return an optimizer's state as tensors named `NUMBER.KEY`, by the number of the parameter."""
    state: dict[int, dict[str, Tensor]] = optimizer.state_dict()["state"]
    return {f"{number}.{key}": _gather_tensor(state[number][key]) for number in state for key in state[number]}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the state that `optimizer_tensors` returned, in an optimizer of the same parameters."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    numbered: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, key = name.split(".")
        numbered.setdefault(int(number), {})[key] = _shard_tensor(tensor, like=parameters[int(number)])
    optimizer.load_state_dict(optimizer.state_dict() | {"state": numbered})


def _gather_tensor(tensor: Tensor) -> Tensor:
    """Return a tensor in main memory, gathered from all workers if it is sharded."""
    whole: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole.detach().cpu()


def _shard_tensor(tensor: Tensor, *, like: Tensor) -> Tensor:
    """Return this worker's shard of a tensor, if `like` is sharded; a scalar is returned whole."""
    if not tensor.ndim or not hasattr(like, "full_tensor"):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    sharded: Any = like
    return distribute_tensor(tensor.to(sharded.device), sharded.device_mesh, sharded.placements, src_data_rank=None)
