"""Dealing rows into splits: whole texts, even shares of every label, nothing lost, the same every time."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagline.data.splits import group_ids, strata_of, stratified_split

SHARES = st.tuples(st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.4]), st.sampled_from([0.0, 0.05, 0.1, 0.3, 0.5]))


def dealt(groups: Any, targets: Any, *, shares: tuple[float, ...], seed: int = 0, cover: bool = True) -> Any:
    return stratified_split(
        np.asarray(groups), np.asarray(targets), shares=shares, random=np.random.default_rng(seed), cover=cover
    )


def expected(count: int, shares: tuple[float, ...]) -> list[int]:
    """How many of a label's texts each part is due: its share, and one where there are enough for all."""
    wanted = []
    left = count
    for share in shares:
        due = max(round(count * share), int(share > 0 and count > np.count_nonzero(shares)))
        wanted.append(min(due, left - 1))
        left -= wanted[-1]
    return wanted


@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    copies=st.integers(1, 3),
    shares=SHARES,
    seed=st.integers(0, 2**32 - 1),
)
def test_each_label_gives_every_part_its_share_of_texts(
    sizes: list[int], copies: int, shares: tuple[float, float], seed: int
) -> None:
    targets = np.repeat(np.arange(len(sizes)), sizes)
    groups = np.tile(np.arange(len(targets)), copies)
    parts = dealt(groups, np.tile(targets, copies), shares=shares, seed=seed)
    assert len(parts) == len(groups)
    by_text = parts[: len(targets)]
    assert (parts == np.tile(by_text, copies)).all(), "equal texts stay together"
    for label, size in enumerate(sizes):
        given_out = [int((by_text[targets == label] == part).sum()) for part in (1, 2)]
        assert given_out == expected(size, shares)
        assert (by_text[targets == label] == 0).any(), "something is left to train on"
        if size >= 3:
            assert all(count > 0 for count, share in zip(given_out, shares, strict=True) if share)


@given(
    rows=st.lists(st.sets(st.integers(0, 5), max_size=4), min_size=1, max_size=150),
    shares=SHARES,
    seed=st.integers(0, 2**32 - 1),
)
def test_sets_of_labels_are_dealt_evenly_too(rows: list[set[int]], shares: tuple[float, float], seed: int) -> None:
    targets = np.array([[label in row for label in range(6)] for row in rows])
    parts = dealt(np.arange(len(rows)), targets, shares=shares, seed=seed)
    assert parts.shape == (len(rows),)
    assert set(np.unique(parts)) <= {0, 1, 2}
    for label in range(6):
        of_label = parts[targets[:, label]]
        for part, share in enumerate(shares, start=1):
            # Rows are shared by labels, so not every label can be exact: each of the five others may push it by one.
            assert abs((of_label == part).sum() - share * len(of_label)) <= 6
            assert share or not (of_label == part).any()


def test_a_frequent_label_makes_up_for_what_rarer_ones_took() -> None:
    rng = np.random.default_rng(1)
    targets = rng.random((4000, 12)) < np.geomspace(0.004, 0.5, 12)
    parts = dealt(np.arange(4000), targets, shares=(0.1, 0.1))
    for label in range(12):
        count = int(targets[:, label].sum())
        for part in (1, 2):
            assert (parts[targets[:, label]] == part).sum() == pytest.approx(0.1 * count, abs=max(2, 0.01 * count))


def test_a_label_that_only_comes_with_very_rare_ones_still_stands_in_every_part() -> None:
    targets = np.zeros((43, 5), dtype=bool)
    targets[:40, 0] = True
    targets[40:, 1] = True
    targets[[40, 41, 42], [2, 3, 4]] = True
    parts = dealt(np.arange(43), targets, shares=(0.1, 0.1))
    assert sorted(parts[40:]) == [0, 1, 2]


def test_rows_without_any_label_are_dealt_as_a_kind_of_their_own() -> None:
    targets = np.zeros((100, 3), dtype=bool)
    targets[:50, 0] = True
    parts = dealt(np.arange(100), targets, shares=(0.1, 0.2))
    assert np.bincount(parts[50:]).tolist() == [35, 5, 10]


def test_within_a_label_every_combination_gets_its_due() -> None:
    targets = np.zeros((200, 3), dtype=bool)
    targets[:, 0] = True
    targets[:100, 1] = True
    targets[:, 2] = True
    parts = dealt(np.arange(200), targets, shares=(0.1,))
    assert (parts[:100] == 1).sum() == (parts[100:] == 1).sum() == 10


def test_another_seed_deals_otherwise_and_the_same_seed_the_same() -> None:
    targets = np.arange(300) % 3
    first, again, other = (dealt(np.arange(300), targets, shares=(0.1, 0.1), seed=seed) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_without_cover_small_labels_stay_whole_and_none_vanishes() -> None:
    targets = np.repeat([0, 1, 2], [100, 4, 1])
    dropped = dealt(np.arange(105), targets, shares=(0.1,), cover=False) == 1
    assert np.bincount(targets[dropped], minlength=3).tolist() == [10, 0, 0]
    nearly_all = dealt(np.arange(105), targets, shares=(0.999,), cover=False) == 1
    assert np.bincount(targets[~nearly_all]).tolist() == [1, 1, 1]


def test_nothing_can_be_dealt_from_nothing() -> None:
    assert dealt(np.zeros(0, dtype=int), np.zeros(0, dtype=int), shares=(0.1, 0.1)).tolist() == []
    assert dealt([0], [0], shares=(0.4, 0.4)).tolist() == [0]
    assert dealt([0, 0, 0], [0, 1, 2], shares=(0.4, 0.4)).tolist() == [0, 0, 0]


def test_a_set_of_labels_goes_by_its_rarest_that_can_be_split() -> None:
    targets = np.array([[1, 1, 0], [1, 1, 0], [1, 0, 1], [1, 1, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
    strata, kinds = strata_of(targets)
    assert strata.tolist() == [1, 1, 0, 1, 3, 2, 3]
    assert kinds[0] == kinds[1] == kinds[3]
    assert len(set(kinds.tolist())) == 4


def test_group_numbers_do_not_depend_on_the_hash_function() -> None:
    assert group_ids(np.array([50, -7, 50, 3, -7])).tolist() == [0, 1, 0, 2, 1]
    assert group_ids(np.array([1, 99, 1, 98, 99])).tolist() == [0, 1, 0, 2, 1]
