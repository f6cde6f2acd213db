"""The decision layer: what turns scores into answers."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score

from tagline.errors import SpecError
from tagline.prediction.conformal import COVERAGES
from tagline.prediction.decisions import DecisionLayer, find_overused_labels, label_shares, tune
from tagline.spec import Decisions, Goal

LABELS = ("calm", "cross")
RANDOM = np.random.default_rng(3)
START = RANDOM.bit_generator.state


@pytest.fixture(autouse=True)
def from_the_start() -> None:
    """Every test draws the same numbers, whichever tests ran before it."""
    RANDOM.bit_generator.state = START


def layer(scores: Any, truth: Any, *, task: Any = "single", labels: Any = LABELS, **spec: Any) -> DecisionLayer:
    values = np.asarray(scores, np.float32)
    return tune(Decisions(**spec), task=task, labels=labels, scores=values, truth=np.asarray(truth)).layer


def overconfident(rows: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Scores of 0.99 that are right 8 times in 10."""
    truth = RANDOM.integers(0, 2, rows)
    said = np.where(RANDOM.random(rows) < 0.8, truth, 1 - truth)
    return np.where(np.eye(2)[said] == 1, 0.99, 0.01).astype(np.float32), truth


def test_calibration_makes_a_score_mean_what_it_says() -> None:
    scores, truth = overconfident()
    fitted = layer(scores, truth)
    assert fitted.answers(scores).scores.max(axis=1).mean() == pytest.approx(0.8, abs=0.03)


def test_calibration_can_be_off() -> None:
    scores, truth = overconfident()
    fitted = layer(scores, truth, calibrate=False)
    assert np.allclose(fitted.answers(scores).scores, scores, atol=1e-5)


def test_calibration_never_changes_which_label_is_highest() -> None:
    scores = RANDOM.dirichlet(np.ones(5), 300).astype(np.float32)
    truth = RANDOM.integers(0, 5, 300)
    fitted = layer(scores, truth, labels=tuple("abcde"))
    assert (fitted.answers(scores).chosen == scores.argmax(axis=1)).all()


def multi_scores() -> tuple[np.ndarray, np.ndarray]:
    truth = RANDOM.random((600, 2)) < np.array([0.5, 0.1])
    scores = np.clip(0.25 * truth + 0.5 * RANDOM.random((600, 2)) * np.array([1.0, 0.6]), 0.001, 0.999)
    return scores.astype(np.float32), truth


def test_thresholds_are_tuned_for_each_label() -> None:
    scores, truth = multi_scores()
    fitted = layer(scores, truth, task="multi")
    tuned = f1_score(truth, fitted.answers(scores).chosen, average="macro")
    halves = f1_score(truth, layer(scores, truth, task="multi", thresholds=0.5).answers(scores).chosen, average="macro")
    assert len(fitted.thresholds) == 2
    assert tuned > halves + 0.05


@pytest.mark.parametrize("rows", [1, 3, 12])
def test_a_label_that_a_model_knows_nothing_of_is_not_found_everywhere(rows: int) -> None:
    """Its F1 would be highest if every text were given it."""
    random = np.random.default_rng(8)
    scores, truth = multi_scores()
    truth[:, 1] = False
    truth[random.choice(len(truth), rows, replace=False), 1] = True
    scores[:, 1] = rows / len(truth) * (0.9 + 0.2 * random.random(len(truth)))
    for calibrate in (False, True):
        fitted = layer(scores, truth, task="multi", calibrate=calibrate)
        assert fitted.answers(scores).chosen[:, 1].sum() <= 2 * rows


def test_a_label_that_no_row_to_tune_on_has_is_told_by_what_suits_all_labels() -> None:
    scores, truth = multi_scores()
    truth[:, 1] = False
    fitted = layer(scores, truth, task="multi", calibrate=False)
    assert 0.25 < fitted.thresholds[1] < 0.5
    assert fitted.thresholds[0] != fitted.thresholds[1]


def test_a_rare_label_shares_the_threshold_that_reaches_a_goal() -> None:
    scores, truth = multi_scores()
    truth[:, 1] = False
    truth[:3, 1] = True
    fitted = layer(scores, truth, task="multi", thresholds=Goal(recall=0.9))
    everything = layer(
        scores.reshape(-1, 1),
        truth.reshape(-1, 1),
        task="multi",
        labels=("x",),
        calibrate=False,
        thresholds=Goal(recall=0.9),
    )
    assert abs(fitted.thresholds[1] - everything.thresholds[0]) < 0.2


@pytest.mark.parametrize("goal", [Goal(precision=0.9), Goal(recall=0.9)])
def test_thresholds_reach_a_goal_with_as_many_answers_as_it_allows(goal: Goal) -> None:
    scores, truth = multi_scores()
    chosen = layer(scores, truth, task="multi", thresholds=goal, calibrate=False).answers(scores).chosen[:, 0]
    hits = (chosen & truth[:, 0]).sum()
    if goal.precision:
        assert hits / chosen.sum() >= 0.9
    else:
        assert 0.9 <= hits / truth[:, 0].sum() < 0.92


def test_a_label_that_is_nowhere_as_precise_as_wanted_is_answered_where_others_are() -> None:
    random = np.random.default_rng(2)
    truth = random.random((600, 2)) < 0.2
    scores = np.clip(0.2 * random.random((600, 2)) + [0.0, 0.3], 0.001, 0.999)
    scores[:, 0] += 0.7 * truth[:, 0]
    truth[np.argsort(-scores[:, 1])[:50], 1] = False  # it is wrong even where it is surest
    fitted = layer(scores, truth, task="multi", thresholds=Goal(precision=0.9), calibrate=False)
    chosen = fitted.answers(scores.astype(np.float32)).chosen
    assert chosen[:, 0].sum() >= truth[:, 0].sum()
    assert chosen[:, 1].sum() < 0.05 * len(chosen)


def test_one_threshold_for_all() -> None:
    scores, truth = multi_scores()
    assert layer(scores, truth, task="multi", thresholds=0.3).thresholds == (0.3, 0.3)


def test_without_rows_to_tune_on_everything_is_plain() -> None:
    fitted = layer(np.zeros((0, 2)), np.zeros((0, 2), bool), task="multi")
    assert (fitted.calibration.method, fitted.thresholds, fitted.abstain_below, fitted.floors) == (
        "none",
        (0.5, 0.5),
        0.0,
        (),
    )


def test_abstains_below_a_score() -> None:
    fitted = layer(np.zeros((0, 2)), np.zeros(0, int), abstain_below=0.7)
    answers = fitted.answers(np.array([[0.9, 0.1], [0.6, 0.4]], np.float32))
    assert answers.abstained.tolist() == [False, True]
    said = fitted.predictions(answers)
    assert said[0].to_dict() == {"label": "calm", "score": 0.9, "scores": {"calm": 0.9, "cross": 0.1}}
    assert said[1].to_dict()["abstained"] is True


def test_abstains_often_enough_for_a_target_precision() -> None:
    truth = RANDOM.integers(0, 2, 4000)
    sure = RANDOM.uniform(0.5, 1.0, 4000)
    said = np.where(RANDOM.random(4000) < sure, truth, 1 - truth)
    scores = np.where(np.eye(2)[said] == 1, sure[:, None], 1 - sure[:, None]).astype(np.float32)
    fitted = layer(scores[:2000], truth[:2000], target_precision=0.9)
    answers = fitted.answers(scores[2000:])
    given = ~answers.abstained
    assert (answers.chosen == truth[2000:])[given].mean() == pytest.approx(0.9, abs=0.04)
    assert 0.1 < given.mean() < 0.9


def answered_and_right(rows: int, target: float, *, seed: int) -> tuple[int, int]:
    """Of 4,000 unseen rows, how many were answered and how many of these were right, after tuning on some others."""
    random = np.random.default_rng(seed)
    sure = random.uniform(0.4, 1.0, rows + 4000)
    truth = (random.random(rows + 4000) >= sure).astype(int)
    scores = np.column_stack([sure, (1 - sure) / 2, (1 - sure) / 2])  # always "a", right as often as it says
    fitted = layer(scores[:rows], truth[:rows], labels=tuple("abc"), target_precision=target, calibrate=False)
    given = ~fitted.answers(scores[rows:].astype(np.float32)).abstained
    return int(given.sum()), int((truth[rows:] == 0)[given].sum())


@pytest.mark.parametrize("target", [0.8, 0.9])
@pytest.mark.parametrize("rows", [200, 800])
def test_a_target_precision_is_reached_on_average_although_it_is_tuned_on_few_rows(rows: int, target: float) -> None:
    found = [answered_and_right(rows, target, seed=seed) for seed in range(150)]
    answered, right = np.sum(found, axis=0)
    assert target <= right / answered < target + 0.015  # without caution 0.796 and 0.797, 0.886 and 0.894
    assert answered / (150 * 4000) > 0.85 * 2 * (1 - target) / 0.6  # of what an oracle would answer


def test_of_several_labels_all_must_be_right_for_an_answer_to_be_sure() -> None:
    fitted = layer(np.zeros((0, 2)), np.zeros((0, 2), bool), task="multi", thresholds=0.5, abstain_below=0.7)
    scores = [[0.9, 0.8], [0.8, 0.8], [0.9, 0.6], [0.9, 0.25], [0.1, 0.2], [0.2, 0.2], [0.1, 0.4]]
    answers = fitted.answers(np.array(scores, np.float32))
    assert answers.abstained.tolist() == [False, True, True, True, False, True, True]
    assert fitted.predictions(answers)[0].to_dict()["labels"] == ["calm", "cross"]


def test_what_is_decided_is_what_is_shown() -> None:
    fitted = layer(
        np.zeros((0, 1)), np.zeros((0, 1), bool), task="multi", labels=("x",), thresholds=0.5, calibrate=False
    )
    [prediction] = fitted.predictions(fitted.answers(np.array([[0.4999999]], np.float32)))
    assert prediction.scores == {"x": 0.5}
    assert prediction.labels == ("x",)


def test_equal_scores_are_answered_together_or_not_at_all() -> None:
    scores = np.tile(np.float32([0.9, 0.1]), (40, 1))
    truth = np.arange(40) % 2
    fitted = layer(scores, np.sort(truth), target_precision=0.95, calibrate=False)
    assert (fitted.answers(scores).chosen == np.sort(truth))[~fitted.answers(scores).abstained].mean() == 0.5
    sure = np.concatenate([np.tile(np.float32([0.99, 0.01]), (40, 1)), scores])
    careful = layer(sure, np.r_[np.zeros(40, int), np.sort(truth)], target_precision=0.95, calibrate=False)
    assert careful.answers(sure).abstained.tolist() == [False] * 40 + [True] * 40


def test_a_dozen_rows_that_are_all_right_do_not_make_it_certain() -> None:
    scores = np.tile(np.float32([0.7, 0.3]), (12, 1))
    assert layer(scores, np.zeros(12, int)).answers(scores).scores.max() < 0.9


def test_it_goes_through_the_manifest_unchanged() -> None:
    scores, truth = multi_scores()
    fitted = layer(scores, truth, task="multi", target_precision=0.6)
    assert DecisionLayer.from_dict(fitted.to_dict(), task="multi", labels=LABELS) == fitted


def scattered(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of five labels and labels drawn with those probabilities."""
    random = np.random.default_rng(seed)
    scores = random.dirichlet(np.full(5, 0.7), rows)
    return scores.astype(np.float32), (random.random(rows)[:, None] > scores.cumsum(axis=1)).sum(axis=1).clip(max=4)


@pytest.fixture(scope="module")
def draws() -> list[tuple[DecisionLayer, np.ndarray, np.ndarray]]:
    """Layers, each with scores and labels that it was not fitted to."""
    drawn = [scattered(1500, seed) for seed in range(40)]
    return [
        (layer(scores[:500], truth[:500], labels=tuple("abcde")), scores[500:], truth[500:]) for scores, truth in drawn
    ]


@pytest.mark.parametrize("promised", [0.7, 0.8, 0.9, 0.95])
def test_sets_hold_the_truth_as_often_as_promised(
    draws: list[tuple[DecisionLayer, np.ndarray, np.ndarray]], promised: float
) -> None:
    kept = []
    for fitted, scores, truth in draws:
        sets = fitted.prediction_sets(fitted.answers(scores), coverage=promised)
        kept.append(sets[np.arange(1000), truth].mean())
    assert np.mean(kept) == pytest.approx(promised, abs=0.01)


def test_a_set_of_task_multi_holds_all_labels_of_a_text() -> None:
    scores, truth = multi_scores()
    fitted = layer(scores[:300], truth[:300], task="multi")
    sets = fitted.prediction_sets(fitted.answers(scores[300:]), coverage=0.9)
    assert (sets | ~truth[300:]).all(axis=1).mean() == pytest.approx(0.9, abs=0.05)


def test_a_set_is_never_empty_and_grows_with_the_promise() -> None:
    scores, truth = scattered(400, 1)
    fitted = layer(scores, truth, labels=tuple("abcde"))
    answers = fitted.answers(scores)
    sizes = [fitted.prediction_sets(answers, coverage=coverage).sum(axis=1) for coverage in COVERAGES]
    assert sizes[0].min() >= 1
    assert all((smaller <= larger).all() for smaller, larger in pairwise(sizes))
    [prediction] = fitted.predictions(fitted.answers(scores[:1]), coverage=0.9)
    assert prediction.set is not None
    assert prediction.set[0] == prediction.label
    assert prediction.to_dict()["set"] == list(prediction.set)


@pytest.mark.parametrize("coverage", [0.0, -1.0, 0.995, 1.0, float("nan")])
def test_a_promise_that_cannot_be_kept_is_refused(coverage: float) -> None:
    scores, truth = scattered(100, 2)
    fitted = layer(scores, truth, labels=tuple("abcde"))
    with pytest.raises(SpecError, match="cannot be made"):
        fitted.prediction_sets(fitted.answers(scores), coverage=coverage)


def test_without_validation_rows_no_set_is_promised() -> None:
    fitted = layer(np.zeros((0, 2)), np.zeros(0, int))
    with pytest.raises(SpecError, match="no validation row"):
        fitted.predictions(fitted.answers(np.float32([[0.5, 0.5]])), coverage=0.9)


def test_rows_too_few_for_a_promise_get_all_labels() -> None:
    scores, truth = scattered(20, 3)
    fitted = layer(scores, truth, labels=tuple("abcde"))
    assert fitted.prediction_sets(fitted.answers(scores), coverage=0.99).all()


def test_the_label_for_none_is_the_answer_where_no_other_is_and_only_there() -> None:
    labels = ("billing", "none", "delivery")
    decided = DecisionLayer("multi", labels, thresholds=(0.5, 0.0, 0.5), none_label="none")
    scores = np.array([[0.9, 0.8, 0.1], [0.1, 0.01, 0.2], [0.6, 0.0, 0.7]], dtype=np.float32)
    answers = decided.answers(scores)
    assert [prediction.labels for prediction in decided.predictions(answers)] == [
        ("billing",),
        ("none",),
        ("billing", "delivery"),
    ]
    without = DecisionLayer("multi", ("billing", "delivery"), thresholds=(0.5, 0.5))
    others = scores[:, [0, 2]].astype(np.float64)
    assert decided.confidence(answers.scores, answers.chosen) == pytest.approx(
        without.confidence(others, without.decide(others).chosen)
    )
    again = DecisionLayer.from_dict(decided.to_dict(), task="multi", labels=labels)
    assert again == decided


def test_a_layer_written_before_there_was_a_label_for_none_answers_as_it_did() -> None:
    labels = ("billing", "none")
    old = DecisionLayer("multi", labels, thresholds=(0.5, 0.5)).to_dict()
    del old["none_label"]
    found = DecisionLayer.from_dict(old, task="multi", labels=labels).answers(np.array([[0.9, 0.9], [0.1, 0.1]]))
    assert found.chosen.tolist() == [[True, True], [False, False]]


def test_thresholds_are_tuned_without_the_label_for_none() -> None:
    scores, truth = multi_scores()
    none = ~truth.any(axis=1)
    with_none = tune(
        Decisions(),
        task="multi",
        labels=("a", "b", "none"),
        none_label="none",
        scores=np.column_stack([scores, 0.5 * none + 0.25]).astype(np.float32),
        truth=np.column_stack([truth, none]),
    ).layer
    plain = layer(scores, truth, task="multi", labels=("a", "b"))
    assert with_none.thresholds[:2] == pytest.approx(plain.thresholds, abs=0.02)
    assert with_none.thresholds[2] == 0
    chosen = with_none.answers(np.column_stack([scores, none]).astype(np.float32)).chosen
    assert (chosen[:, 2] == ~chosen[:, :2].any(axis=1)).all()


def test_a_label_given_far_more_often_than_it_is_there_is_found() -> None:
    chosen = np.zeros((40, 3), dtype=bool)
    chosen[:, 1], chosen[:30, 2] = True, True
    found = find_overused_labels(chosen, ("a", "b", "c"), shares=np.array([0.0, 0.01, 0.3]))
    assert found == [{"label": "b", "answered": 1.0, "expected": 0.01}]
    assert find_overused_labels(chosen[:10], ("a", "b", "c"), shares=np.zeros(3)) == []
    shares = label_shares(np.array([0, 0, 0, 1]), 2)
    assert shares.tolist() == [0.75, 0.25]
    assert find_overused_labels(np.zeros(40, dtype=np.int64), ("a", "b"), shares=shares) == []
    assert [each["label"] for each in find_overused_labels(np.ones(40, dtype=np.int64), ("a", "b"), shares=shares)] == [
        "b"
    ]
