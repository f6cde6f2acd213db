"""One-cycle training as in fastai: scheduled rates and momentum, frozen groups and discriminative learning rates."""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from tagline.models.nn.loop import optimizer_tensors, restore_optimizer

RISING = 0.25
"""The share of the steps in which the rate rises."""
LOWEST_RATE, LAST_RATE = 1 / 25, 1e-5
HIGHEST_MOMENTUM, LOWEST_MOMENTUM = 0.8, 0.7
SQUARES, EPSILON = 0.99, 1e-5
RANGE_STEPS, RANGE_FROM, RANGE_FACTOR = 100, 1e-7, 1e8
RANGE_MOMENTUM, RANGE_SMOOTHING, RANGE_TOO_HIGH = 0.9, 0.98, 4.0
RANGE_IGNORED = 10, 5
"""Points at the start and the end of a range test that are left out."""
Schedule = Callable[[float], tuple[float, float]]
"""Maps the progress, from 0 to 1, to the factor of the rate and the momentum."""


def one_cycle(place: float) -> tuple[float, float]:
    """Return the rate as a share of the highest, which rises and falls, and the momentum, which falls and rises."""
    if place < RISING:
        part = place / RISING
        return _interpolate_cosine(LOWEST_RATE, 1.0, part), _interpolate_cosine(HIGHEST_MOMENTUM, LOWEST_MOMENTUM, part)
    part = (place - RISING) / (1 - RISING)
    return _interpolate_cosine(1.0, LAST_RATE, part), _interpolate_cosine(LOWEST_MOMENTUM, HIGHEST_MOMENTUM, part)


def _interpolate_cosine(first: float, last: float, part: float) -> float:
    return last + (first - last) * (1 + math.cos(math.pi * part)) / 2


def range_test(place: float) -> tuple[float, float]:
    """Return the rate of a learning-rate range test, which grows exponentially, and the momentum."""
    return RANGE_FROM * RANGE_FACTOR**place, RANGE_MOMENTUM


class Cycle:
    """The optimisation of the last groups of a network's parameters over one cycle; the other groups are frozen."""

    def __init__(
        self,
        network: nn.Module,
        groups: Sequence[Sequence[str]],
        *,
        rates: Sequence[float],
        learning: int,
        steps: int,
        weight_decay: float,
        schedule: Schedule = one_cycle,
    ) -> None:
        self.steps = steps
        self.done = 0
        self._schedule = schedule
        named = dict(network.named_parameters())
        for group in groups[: len(groups) - learning]:
            for name in group:
                named[name].requires_grad_(False)
        self._rates: list[float] = []
        parts = []
        for group, rate in list(zip(groups, rates, strict=True))[len(groups) - learning :]:
            for decays in (True, False):
                names = [name for name in group if _has_decay(network, name) == decays]
                for name in names:
                    named[name].requires_grad_(True)
                if names:
                    self._rates.append(rate)
                    decay = weight_decay if decays else 0.0
                    parts.append({"params": [named[name] for name in names], "weight_decay": decay})
        self.optimizer = torch.optim.AdamW(parts, lr=1.0, betas=(HIGHEST_MOMENTUM, SQUARES), eps=EPSILON)

    @property
    def rate(self) -> float:
        """The learning rate of the last group at the next step."""
        return self._schedule(self.done / self.steps)[0] * self._rates[-1]

    def step(self, loss: Tensor) -> None:
        """Run one optimizer step on this loss."""
        factor, momentum = self._schedule(self.done / self.steps)
        for group, rate in zip(self.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = factor * rate
            group["betas"] = (momentum, SQUARES)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.done += 1

    def state(self) -> dict[str, Tensor]:
        """Return the optimizer's state, which `restore` needs beside the network's weights and the steps done."""
        return optimizer_tensors(self.optimizer)

    def restore(self, state: Mapping[str, Tensor], *, done: int) -> None:
        """Resume from a state."""
        restore_optimizer(self.optimizer, state)
        self.done = done


def _has_decay(network: nn.Module, name: str) -> bool:
    """Return whether a parameter has weight decay: all but the output bias and batch normalisation do."""
    owner = network.get_submodule(name.rpartition(".")[0])
    return name != "bias" and not isinstance(owner, nn.BatchNorm1d)


def spread_rates(rate: float, *, groups: int, factor: float = 2.6) -> list[float]:
    """Return discriminative rates: the last group has `rate`, each one before it `factor` times less."""
    return [rate / factor ** (groups - 1 - number) for number in range(groups)]


def smooth_losses(losses: Sequence[float]) -> list[float]:
    """Return the exponential moving average of the losses, with bias correction."""
    means, mean = [], 0.0
    for number, loss in enumerate(losses, start=1):
        mean = mean * RANGE_SMOOTHING + loss * (1 - RANGE_SMOOTHING)
        means.append(mean / (1 - RANGE_SMOOTHING**number))
    return means


def is_too_high(losses: Sequence[float]) -> bool:
    """Return whether a range test can stop: the loss has risen far above its minimum, or is not finite."""
    if not math.isfinite(losses[-1]):
        return True
    means = smooth_losses(losses)
    return means[-1] > RANGE_TOO_HIGH * min(means)


def suggest_rate(losses: Sequence[float], *, boldly: bool) -> float:
    """Return the learning rate that a range test suggests: fastai's, or `boldly` half of the geometric mean of that and
    the rate of the lowest loss.

    A language model learned far more at such a rate: docs/decisions/0010-ulmfit-without-fastai.md has the figures. A
    classifier might forget what the language model has learned.
    """
    first, last = RANGE_IGNORED
    means = smooth_losses([loss for loss in losses if math.isfinite(loss)])
    if not means:
        return RANGE_FROM
    skipped = first if len(means) > first + last else 0
    means = means[skipped:-last] if skipped else means
    rates = [range_test((skipped + number) / RANGE_STEPS)[0] for number in range(len(means))]
    careful = rates[find_valley(means)]
    return max(careful, math.sqrt(careful * rates[means.index(min(means))]) / 2) if boldly else careful


def find_valley(losses: Sequence[float]) -> int:
    """Return fastai's valley point: a place in the longest strictly falling subsequence of the losses."""
    lengths = [1] * len(losses)
    for place in range(1, len(losses)):
        longer = [lengths[before] + 1 for before in range(place) if losses[before] > losses[place]]
        lengths[place] = max(longer, default=1)
    longest = max(lengths, default=1)
    if longest == 1:
        return 0
    end = lengths.index(longest)
    third = longest / 3
    return max(end - longest + int(third) + int(third / 2), 0)
