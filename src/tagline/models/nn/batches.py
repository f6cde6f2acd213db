"""Batches of sequences of similar length, in a seeded order that does not depend on length."""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tagline.models.nn.tokens import Ints

Lengths = NDArray[np.int32]

BATCHES_A_POOL = 50
"""Rows are sorted by length within random pools of this many batches: little padding, in a random order."""


def of_epoch(lengths: Lengths, *, batch_size: int, seed: int, epoch: int) -> list[Ints]:
    """Return an epoch's batches of similar length, every sequence once; the order depends on seed and epoch alone."""
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(lengths))
    epoch_batches: list[Ints] = []
    for first in range(0, len(order), BATCHES_A_POOL * batch_size):
        pool = order[first : first + BATCHES_A_POOL * batch_size]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        epoch_batches += [pool[start : start + batch_size] for start in range(0, len(pool), batch_size)]
    return [epoch_batches[number] for number in random.permutation(len(epoch_batches))]


def within_budget(
    numbers: Ints, lengths: Lengths, *, most_tokens: int, most_stretch: float = math.inf
) -> Iterator[Ints]:
    """Yield sequences, sorted by length, in parts of at most `most_tokens` with padding; a longer one is by itself.

    The longest sequence of a part is at most `most_stretch` times the shortest.
    """
    order = numbers[np.argsort(lengths[numbers], kind="stable")]
    first = 0
    for last in range(1, len(order) + 1):
        longest = int(lengths[order[last]]) if last < len(order) else math.inf
        if (last + 1 - first) * longest > most_tokens or longest > most_stretch * int(lengths[order[first]]):
            yield order[first:last]
            first = last
