"""How sure a figure is."""

from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import accuracy_score, f1_score

from tagline.evaluation import intervals, paired_tests

RANDOM = np.random.default_rng(7)
START = RANDOM.bit_generator.state


@pytest.fixture(autouse=True)
def from_the_start() -> None:
    """Every test draws the same numbers, whichever tests ran before it."""
    RANDOM.bit_generator.state = START


def answers(rows: int, right: float, labels: int = 4) -> tuple[np.ndarray, np.ndarray]:
    truth = RANDOM.integers(0, labels, rows)
    return truth, np.where(RANDOM.random(rows) < right, truth, RANDOM.integers(0, labels, rows))


def test_an_interval_is_as_wide_as_theory_has_it() -> None:
    truth, said = answers(1000, 0.8)
    low, high = intervals.bootstrap_intervals("single", truth=truth, answers=said)["accuracy"]
    share = accuracy_score(truth, said)
    assert (low + high) / 2 == pytest.approx(share, abs=0.005)
    assert high - low == pytest.approx(3.92 * np.sqrt(share * (1 - share) / 1000), rel=0.15)


def test_the_figure_itself_lies_inside_for_every_figure_and_task() -> None:
    truth, said = answers(300, 0.7)
    found = intervals.bootstrap_intervals("single", truth=truth, answers=said)
    assert found["macro_f1"][0] < f1_score(truth, said, average="macro") < found["macro_f1"][1]
    hot, hot_said = RANDOM.random((200, 3)) < 0.3, RANDOM.random((200, 3)) < 0.3
    several = intervals.bootstrap_intervals("multi", truth=hot, answers=hot_said)
    assert several["micro_f1"][0] < f1_score(hot, hot_said, average="micro") < several["micro_f1"][1]
    assert several["macro_f1"][0] < f1_score(hot, hot_said, average="macro") < several["macro_f1"][1]


def test_few_rows_a_label_do_not_pull_the_interval_down() -> None:
    truth, said = answers(300, 0.8, labels=77)
    low, high = intervals.bootstrap_intervals("single", truth=truth, answers=said)["macro_f1"]
    figure = f1_score(truth, said, average="macro")
    assert low < figure < high
    assert high - figure > figure - low  # draws are lower than the figure, as the figure is than that of all rows


@pytest.mark.parametrize("rows", [2, 5, 20, 77])
def test_a_row_a_label_leaves_the_figure_inside_and_the_ends_possible(rows: int) -> None:
    truth = np.arange(rows)
    for wrong in {0, 1, rows // 2, rows - 1}:
        said = np.where(truth < wrong, (truth + 1) % rows, truth)
        hot = [np.eye(rows, dtype=bool)[labels] for labels in (truth, said)]
        for found in (
            intervals.bootstrap_intervals("single", truth=truth, answers=said)["macro_f1"],
            intervals.bootstrap_intervals("multi", truth=hot[0], answers=hot[1])["macro_f1"],
        ):
            assert 0 <= found[0] <= f1_score(truth, said, average="macro") + 1e-9
            assert f1_score(truth, said, average="macro") - 1e-9 <= found[1] <= 1


def test_rows_in_another_order_and_many_rows_give_the_same() -> None:
    truth, said = answers(50_000, 0.9, labels=30)
    order = RANDOM.permutation(len(truth))
    shuffled = intervals.bootstrap_intervals("single", truth=truth[order], answers=said[order])
    assert intervals.bootstrap_intervals("single", truth=truth, answers=said) == shuffled


@pytest.mark.parametrize(("fewer", "more"), [(0, 0), (0, 3), (2, 9), (5, 5), (10, 31), (400, 520), (700, 701)])
def test_mcnemar_is_the_exact_binomial_test(fewer: int, more: int) -> None:
    expected = stats.binomtest(fewer, fewer + more).pvalue if fewer + more else 1.0
    assert paired_tests.mcnemar(fewer, more) == pytest.approx(expected, rel=0.02)
    assert paired_tests.mcnemar(more, fewer) == paired_tests.mcnemar(fewer, more)


def test_a_better_model_is_told_from_a_worse_one_and_equals_are_not() -> None:
    truth, better = answers(1500, 0.85)
    worse = np.where(RANDOM.random(1500) < 0.15, RANDOM.integers(0, 4, 1500), better)
    found = paired_tests.compare_models("single", truth=truth, first=better, second=worse, figure="macro_f1")
    assert found.is_real
    assert found.p_value < 0.001
    assert found.gain == pytest.approx(
        f1_score(truth, better, average="macro") - f1_score(truth, worse, average="macro")
    )
    swapped = better.copy()
    wrong, right = np.flatnonzero(better != truth)[:5], np.flatnonzero(better == truth)[:5]
    swapped[wrong], swapped[right] = truth[wrong], (truth[right] + 1) % 4
    assert not paired_tests.compare_models(
        "single", truth=truth, first=better, second=swapped, figure="macro_f1"
    ).is_real


def test_the_same_answers_differ_by_nothing() -> None:
    truth, said = answers(100, 0.6)
    found = paired_tests.compare_models("single", truth=truth, first=said, second=said, figure="macro_f1")
    assert (found.gain, found.interval, found.p_value, found.is_real) == (0.0, (0.0, 0.0), 1.0, False)


@pytest.mark.parametrize(("hits", "rows"), [(0, 10), (10, 10), (37, 50), (0, 0)])
def test_a_share_has_wilsons_interval(hits: int, rows: int) -> None:
    low, high = intervals.wilson_interval(hits, rows)
    if rows:
        expected: Any = stats.binomtest(hits, rows).proportion_ci(method="wilson")
        assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-4)
    else:
        assert (low, high) == (0.0, 1.0)


def test_rows_that_are_all_right_leave_room_for_doubt() -> None:
    truth = np.arange(12) % 3
    found = intervals.bootstrap_intervals("single", truth=truth, answers=truth)
    assert found["accuracy"][0] < 0.8
    assert found["macro_f1"] == found["accuracy"]


def test_a_figure_and_the_rows_that_speak_for_different_models_prove_nothing() -> None:
    truth = np.r_[np.zeros(1500, int), np.ones(1500, int), np.full(30, 2)]
    first, second = truth.copy(), truth.copy()
    first[:50] = 1
    second[3005:] = 0
    found = paired_tests.compare_models("single", truth=truth, first=first, second=second, figure="macro_f1")
    assert found.leaves_out_zero
    assert found.p_value < 0.05
    assert found.is_divided
    assert not found.is_real
