"""The mean of the weights that a network goes through while it learns: it errs less than the last of them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

RECENCY = 2
"""How much the later weights count more: those after step n count as n to this power (Shamir and Zhang, 2013)."""


class WeightAverage:
    """The mean of some weights, by their names; one copy of them, whatever the number of steps."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._weights = weights
        self.means = {name: weight.detach().clone() for name, weight in weights.items()}

    @torch.no_grad()
    def add(self, number: int) -> None:
        """Count the weights as they are after the step of this number, the first being 1."""
        share = (RECENCY + 1) / (RECENCY + number)
        for name, weight in self._weights.items():
            self.means[name].lerp_(weight, share)

    @torch.no_grad()
    def apply_mean(self) -> None:
        """Put the mean where the weights are, for good."""
        for name, weight in self._weights.items():
            weight.copy_(self.means[name])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The mean where the weights are, for as long as it is looked at."""
        self._change_places()
        try:
            yield
        finally:
            self._change_places()

    @torch.no_grad()
    def _change_places(self) -> None:
        for name, weight in self._weights.items():
            last = weight.clone()
            weight.copy_(self.means[name])
            self.means[name].copy_(last)
