"""Batches: every sequence once, in an order that is seeded and favours nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagline.models.nn import batches
from tagline.models.nn.batches import BATCHES_A_POOL
from tagline.models.nn.tokens import Ints

lengths_of_texts = st.lists(st.integers(1, 300), max_size=200).map(lambda found: np.array(found, np.int64))


def of_epoch(lengths: Ints, *, batch_size: int = 8, seed: int = 0, epoch: int = 0) -> list[list[int]]:
    return [batch.tolist() for batch in batches.of_epoch(lengths, batch_size=batch_size, seed=seed, epoch=epoch)]


def random_lengths(count: int) -> Ints:
    return np.random.default_rng(0).integers(1, 200, count)


@given(lengths=lengths_of_texts, batch_size=st.integers(1, 40), seed=st.integers(0, 2**32 - 1), epoch=st.integers(0, 9))
def test_every_sequence_is_seen_once_an_epoch_in_as_few_batches_as_possible(
    lengths: Ints, batch_size: int, seed: int, epoch: int
) -> None:
    found = of_epoch(lengths, batch_size=batch_size, seed=seed, epoch=epoch)
    assert sorted(number for batch in found for number in batch) == list(range(len(lengths)))
    assert all(0 < len(batch) <= batch_size for batch in found)
    assert len(found) == -(-len(lengths) // batch_size)


def test_the_same_seed_and_epoch_give_the_same_order_and_others_another() -> None:
    lengths = random_lengths(500)
    first = of_epoch(lengths, seed=1, epoch=0)
    assert of_epoch(lengths, seed=1, epoch=0) == first
    assert of_epoch(lengths, seed=1, epoch=1) != first
    assert of_epoch(lengths, seed=2, epoch=0) != first


def test_other_batches_are_together_in_another_epoch() -> None:
    lengths = random_lengths(500)
    first, second = ({frozenset(batch) for batch in of_epoch(lengths, epoch=epoch)} for epoch in (0, 1))
    assert len(first & second) < 5


def test_texts_of_one_length_are_mixed_like_any_others() -> None:
    first, second = (of_epoch(np.full(500, 12), epoch=epoch) for epoch in (0, 1))
    assert {frozenset(batch) for batch in first}.isdisjoint({frozenset(batch) for batch in second})


def test_no_length_and_no_row_comes_earlier_than_another() -> None:
    """The mean place of a sequence, over many epochs, is the middle, whatever its length and its row."""
    lengths = np.sort(random_lengths(320))
    places = np.zeros(len(lengths))
    epochs = 200
    for epoch in range(epochs):
        for place, batch in enumerate(of_epoch(lengths, epoch=epoch)):
            places[batch] += place / 39 / epochs
    tenths = [part.mean() for part in np.array_split(places, 10)]
    assert tenths == pytest.approx([0.5] * 10, abs=0.05)


def test_the_batch_that_is_not_full_is_not_always_the_last() -> None:
    where = {[len(batch) for batch in of_epoch(random_lengths(33), epoch=epoch)].index(1) for epoch in range(60)}
    assert where == {0, 1, 2, 3, 4}


def test_a_batch_holds_similar_lengths() -> None:
    lengths = random_lengths(4000)
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in of_epoch(lengths, batch_size=32))
    assert padded < 1.1 * lengths.sum()


def test_rows_are_sorted_within_a_pool_only() -> None:
    """Else the longest texts would meet each other in every epoch."""
    lengths = np.random.default_rng(0).permutation(3 * BATCHES_A_POOL * 8) + 1
    longest = set(np.argsort(lengths)[-8:].tolist())
    assert not any(longest == set(batch) for batch in of_epoch(lengths))


@given(rows=st.lists(st.tuples(st.integers(1, 50), st.booleans()), max_size=60), most_tokens=st.integers(1, 500))
def test_parts_hold_every_sequence_once_and_fit_the_budget(rows: list[tuple[int, bool]], most_tokens: int) -> None:
    lengths = np.array([length for length, _ in rows], np.int64)
    numbers = np.array([number for number, (_, is_chosen) in enumerate(rows) if is_chosen], np.int64)
    parts = list(batches.within_budget(numbers, lengths, most_tokens=most_tokens))
    assert sorted(number for part in parts for number in part.tolist()) == numbers.tolist()
    for part in parts:
        assert len(part) == 1 or len(part) * lengths[part].max() <= most_tokens


def test_parts_are_as_large_as_the_budget_allows() -> None:
    parts = list(batches.within_budget(np.arange(6), np.array([4, 4, 4, 4, 4, 4]), most_tokens=16))
    assert [len(part) for part in parts] == [4, 2]


def test_a_sequence_over_the_budget_stands_alone() -> None:
    parts = list(batches.within_budget(np.arange(4), np.array([2, 90, 2, 80]), most_tokens=10))
    assert [part.tolist() for part in parts] == [[0, 2], [3], [1]]


def test_the_longest_of_a_part_is_not_much_longer_than_the_shortest() -> None:
    lengths = np.array([30, 4, 5, 8, 9, 31])
    parts = batches.within_budget(np.arange(6), lengths, most_tokens=1000, most_stretch=1.25)
    assert [part.tolist() for part in parts] == [[1, 2], [3, 4], [0, 5]]


def test_nothing_has_no_parts_and_no_batches() -> None:
    nothing = np.zeros(0, np.int64)
    assert list(batches.within_budget(nothing, nothing, most_tokens=8)) == []
    assert of_epoch(nothing) == []
