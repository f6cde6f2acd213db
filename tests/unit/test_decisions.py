"""The decision layer: what turns scores into answers."""

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score

from tagline.decisions import DecisionLayer
from tagline.spec import Decisions

LABELS = ("calm", "cross")
RANDOM = np.random.default_rng(3)


def layer(scores: Any, truth: Any, *, task: Any = "single", labels: Any = LABELS, **spec: Any) -> DecisionLayer:
    values = np.asarray(scores, np.float32)
    return DecisionLayer.fit(Decisions(**spec), task=task, labels=labels, scores=values, truth=np.asarray(truth))


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


def test_a_rare_label_shares_the_threshold_of_all() -> None:
    scores, truth = multi_scores()
    truth[:, 1] = False
    truth[:3, 1] = True
    fitted = layer(scores, truth, task="multi")
    everything = layer(scores.reshape(-1, 1), truth.reshape(-1, 1), task="multi", labels=("x",), calibrate=False)
    assert fitted.thresholds[1] != 0.5
    assert abs(fitted.thresholds[1] - everything.thresholds[0]) < 0.2


def test_one_threshold_for_all() -> None:
    scores, truth = multi_scores()
    assert layer(scores, truth, task="multi", thresholds=0.3).thresholds == (0.3, 0.3)


def test_without_rows_to_tune_on_everything_is_plain() -> None:
    fitted = layer(np.zeros((0, 2)), np.zeros((0, 2), bool), task="multi")
    assert (fitted.temperatures, fitted.thresholds, fitted.abstain_below) == ((1.0, 1.0), (0.5, 0.5), 0.0)


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


def test_of_several_labels_the_least_sure_one_decides_whether_to_abstain() -> None:
    fitted = layer(np.zeros((0, 2)), np.zeros((0, 2), bool), task="multi", thresholds=0.5, abstain_below=0.7)
    answers = fitted.answers(np.array([[0.9, 0.8], [0.9, 0.6], [0.1, 0.2], [0.1, 0.4]], np.float32))
    assert answers.abstained.tolist() == [False, True, False, True]
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
