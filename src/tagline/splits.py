"""Rows dealt into train, validation and test: seeded, stratified, equal texts kept together."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


def deal(groups: Ints, strata: Ints, kinds: Ints, *, share: float, random: np.random.Generator) -> Mask:
    """Choose about `share` of the rows: whole groups, evenly from every stratum and within it from every kind.

    `groups` says which rows hold the same text, `strata` the label a row is dealt by, `kinds` its whole set of labels.
    A stratum of three groups or more always gives at least one, so that no label goes unmeasured.
    """
    chosen = np.zeros(len(groups), dtype=bool)
    if share <= 0 or len(groups) == 0:
        return chosen
    _, first_rows, group_of_row = np.unique(groups, return_index=True, return_inverse=True)
    chosen_groups = np.zeros(len(first_rows), dtype=bool)
    order = np.lexsort((random.random(len(first_rows)), kinds[first_rows], strata[first_rows]))
    ordered_strata = strata[first_rows][order]
    starts = np.flatnonzero(np.r_[True, ordered_strata[1:] != ordered_strata[:-1]])
    for block in np.split(order, starts[1:]):
        size = len(block)
        wanted = min(max(round(size * share), int(size >= 3)), size - 1)
        if wanted > 0:
            # Evenly spaced picks in an order sorted by kind take from each kind its due.
            picks = ((np.arange(wanted) + random.random()) * size / wanted).astype(np.int64)
            chosen_groups[block[picks]] = True
    return np.asarray(chosen_groups[group_of_row], dtype=bool)


def strata_of(targets: NDArray[Any]) -> tuple[Ints, Ints]:
    """The stratum and the kind of each row: its label; for a set of labels the rarest of them, and the set."""
    if targets.ndim == 1:
        labels = targets.astype(np.int64)
        return labels, np.zeros_like(labels)
    frequency = targets.sum(axis=0)
    rarity = np.where(targets.astype(bool), -frequency[None, :].astype(np.float64), -np.inf)
    rarest = np.where(targets.any(axis=1), rarity.argmax(axis=1), targets.shape[1]).astype(np.int64)
    packed = np.packbits(targets.astype(bool), axis=1)
    _, kinds = np.unique(packed, axis=0, return_inverse=True)
    return rarest, kinds.reshape(-1).astype(np.int64)


def group_ids(hashes: Ints) -> Ints:
    """Hashes as group numbers in order of first appearance, so that they do not depend on the hash function."""
    _, first_rows, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    rank = np.empty(len(first_rows), dtype=np.int64)
    rank[np.argsort(first_rows)] = np.arange(len(first_rows))
    return np.asarray(rank[inverse], dtype=np.int64)
