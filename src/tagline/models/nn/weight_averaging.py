"""Weight averaging: the mean of a network's weights over training, which errs less than the last weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

RECENCY = 2
"""Polynomial-decay averaging: the weights after step n count as n to this power (Shamir and Zhang, 2013)."""


class WeightAverage:
    """The running mean of some weights, by name; it holds one copy of them."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self._weights = weights
        self.means = {name: weight.detach().clone() for name, weight in weights.items()}

    @torch.no_grad()
    def add(self, number: int) -> None:
        """Add the current weights to the mean, after step `number` (from 1)."""
        share = (RECENCY + 1) / (RECENCY + number)
        for name, weight in self._weights.items():
            self.means[name].lerp_(weight, share)

    @torch.no_grad()
    def apply_mean(self) -> None:
        """Replace the weights by their mean, for good."""
        for name, weight in self._weights.items():
            weight.copy_(self.means[name])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Replace the weights by their mean within the context."""
        self._swap_weights()
        try:
            yield
        finally:
            self._swap_weights()

    @torch.no_grad()
    def _swap_weights(self) -> None:
        for name, weight in self._weights.items():
            last = weight.clone()
            weight.copy_(self.means[name])
            self.means[name].copy_(last)
