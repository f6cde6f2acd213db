"""Splitting rows into train, validation and test: seeded, stratified, equal texts kept together."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def stratified_split(
    groups: Ints, targets: NDArray[Any], *, shares: Sequence[float], random: np.random.Generator, cover: bool = True
) -> Ints:
    """Assign each row to a part: `shares[i]` of every label to part i + 1, the rest to part 0; groups stay together.

    At least one text of each label stays in part 0, as far as other labels allow. With `cover`, a label that has enough
    texts for all parts is in each of them, however small the shares are, so that it can be measured.

    """
    if not len(groups) or not any(shares):
        return np.zeros(len(groups), dtype=np.int64)
    _, first_rows, group_of_row = np.unique(groups, return_index=True, return_inverse=True)
    group_targets = targets[first_rows]
    strata, kinds = strata_of(group_targets)
    counts = (
        np.bincount(strata)
        if group_targets.ndim == 1
        else np.r_[group_targets.sum(axis=0), (~group_targets.any(axis=1)).sum()]
    )
    assigned = np.zeros((len(shares) + 1, len(counts)), dtype=np.int64)
    parts = np.zeros(len(first_rows), dtype=np.int64)
    order = np.lexsort((random.random(len(first_rows)), kinds, strata))
    ordered = strata[order]
    blocks = np.split(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1)
    # The rarest label first, as in iterative stratification (Sechidis et al. 2011): a frequent label has rows left to
    # compensate for what rarer labels in the same rows took too much or too little of.
    for block in sorted(blocks, key=lambda block: int(counts[strata[block[0]]])):
        if len(block) == 1 and group_targets.ndim == 1:
            continue  # skipped for speed: if the labels are ids, there are as many of these as rows
        label = int(strata[block[0]])
        count, remaining = int(counts[label]), block
        for part, share in enumerate(shares, start=1):
            least = int(cover and share > 0 and count > np.count_nonzero(shares))
            wanted = max(round(count * share), least) - int(assigned[part, label])
            picks = _pick_evenly(len(remaining), min(wanted, len(remaining) - int(assigned[0, label] == 0)), random)
            parts[remaining[picks]] = part
            remaining = np.delete(remaining, picks)
        if group_targets.ndim == 2:
            for part in range(len(shares) + 1):
                assigned[part, :-1] += group_targets[block[parts[block] == part]].sum(axis=0)
    return np.asarray(parts[group_of_row], dtype=np.int64)


def _pick_evenly(size: int, wanted: int, random: np.random.Generator) -> Ints:
    """Return evenly spaced positions: in an order sorted by kind they take a proportional number of each kind."""
    if wanted <= 0:
        return np.zeros(0, dtype=np.int64)
    return ((np.arange(wanted) + random.random()) * size / wanted).astype(np.int64)


def strata_of(targets: NDArray[Any]) -> tuple[Ints, Ints]:
    """Return the stratum and the kind of each row: its label; for a set of labels the rarest of them, and the set.

    A label of one or two rows cannot be in three splits, so a row goes by another of its labels if it has one.

    """
    if targets.ndim == 1:
        labels = targets.astype(np.int64)
        return labels, np.zeros_like(labels)
    frequency = targets.sum(axis=0).astype(np.float64)
    frequency[frequency < 3] += len(targets)
    rarity = np.where(targets, -frequency, -np.inf)
    rarest = np.where(targets.any(axis=1), rarity.argmax(axis=1), targets.shape[1]).astype(np.int64)
    packed = np.packbits(targets, axis=1)
    _, kinds = np.unique(packed, axis=0, return_inverse=True)
    return rarest, kinds.reshape(-1).astype(np.int64)


def group_ids(hashes: Ints) -> Ints:
    """Number hashes in order of first appearance, so that group ids do not depend on the hash function."""
    _, first_rows, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    rank = np.empty(len(first_rows), dtype=np.int64)
    rank[np.argsort(first_rows)] = np.arange(len(first_rows))
    return np.asarray(rank[inverse], dtype=np.int64)
