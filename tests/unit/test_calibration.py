"""Calibration: which map is chosen, and that scores mean what they say afterwards."""

from typing import Any

import numpy as np
import pytest

from tagline.evaluation.metrics import expected_calibration_error, reliability_bins
from tagline.prediction import calibration
from tagline.prediction.calibration import Calibration, _Form

RANDOM = np.random.default_rng(5)
START = RANDOM.bit_generator.state


@pytest.fixture(autouse=True)
def from_the_start() -> None:
    """Every test draws the same numbers, whichever tests ran before it."""
    RANDOM.bit_generator.state = START


def drawn(scores: np.ndarray) -> np.ndarray:
    """Labels drawn with these probabilities: the scores are perfect."""
    return (RANDOM.random(len(scores))[:, None] > scores.cumsum(axis=1)).sum(axis=1).clip(max=scores.shape[1] - 1)


def softened(scores: np.ndarray, power: float) -> np.ndarray:
    raised = scores**power
    return raised / raised.sum(axis=1, keepdims=True)


def error_of(scores: np.ndarray, truth: np.ndarray) -> float:
    return expected_calibration_error(reliability_bins(scores.max(axis=1), scores.argmax(axis=1) == truth))


@pytest.mark.parametrize("power", [0.4, 2.5])
def test_a_temperature_undoes_too_little_and_too_much_confidence(power: float) -> None:
    right = RANDOM.dirichlet(np.full(4, 0.5), 4000)
    truth, shown = drawn(right), softened(right, power)
    fitted = calibration.choose_method(shown[:2000], truth[:2000], task="single")
    assert fitted.calibration.method == "temperature"
    assert fitted.calibration.scales[0] == pytest.approx(1 / power, rel=0.15)
    assert error_of(fitted.calibration.apply(shown[2000:], task="single"), truth[2000:]) < 0.03
    assert error_of(shown[2000:], truth[2000:]) > 0.08


def test_labels_that_are_off_in_different_ways_get_a_vector() -> None:
    right = RANDOM.dirichlet(np.full(3, 0.6), 4000)
    truth = drawn(right)
    shown = right * np.array([1.0, 4.0, 0.2])
    shown /= shown.sum(axis=1, keepdims=True)
    fitted = calibration.choose_method(shown[:3000], truth[:3000], task="single")
    assert fitted.calibration.method == "vector"
    assert np.allclose(fitted.calibration.apply(shown[3000:], task="single"), right[3000:], atol=0.08)


def test_a_curve_is_chosen_where_no_scale_and_shift_will_do() -> None:
    right = RANDOM.random((8000, 2))
    truth = RANDOM.random((8000, 2)) < right
    shown = np.where(right < 0.5, right**4 * 8, 1 - (1 - right) ** 4 * 8) * 0.98 + 0.01
    fitted = calibration.choose_method(shown[:6000], truth[:6000], task="multi")
    assert fitted.calibration.method == "isotonic"
    assert np.abs(fitted.calibration.apply(shown[6000:], task="multi") - right[6000:]).mean() < 0.05


def test_few_rows_are_not_asked_for_more_than_a_temperature() -> None:
    scores = RANDOM.dirichlet(np.ones(3), 60)
    assert list(calibration.choose_method(scores, drawn(scores), task="single").losses) == ["temperature"]


def test_held_out_scores_come_from_maps_that_have_not_seen_the_row() -> None:
    scores = np.tile([0.6, 0.4], (50, 1))
    truth = np.zeros(50, int)
    plain = calibration.choose_method(scores, truth, task="single")
    truth[0] = 1
    changed = calibration.choose_method(scores, truth, task="single")
    assert changed.held_out[0].tolist() != changed.calibration.apply(scores[:1], task="single")[0].tolist()
    assert changed.held_out[0, 1] < plain.held_out[0, 1] + 0.1


@pytest.mark.parametrize("task", ["single", "multi"])
def test_it_goes_through_the_manifest_unchanged(task: Any) -> None:
    scores = RANDOM.dirichlet(np.ones(3), 1500)
    truth: Any = drawn(scores) if task == "single" else RANDOM.random(scores.shape) < scores
    for method in calibration.METHODS:
        fitted = calibration._fit(_Form(method), scores, truth, task)  # type: ignore[arg-type]
        again = Calibration.from_dict(fitted.to_dict())
        assert again == fitted
        assert (again.apply(scores, task=task) == fitted.apply(scores, task=task)).all()


def test_scores_of_nothing_but_zeros_and_ones_are_no_trouble() -> None:
    scores = np.eye(2)[RANDOM.integers(0, 2, 1500)]
    truth = RANDOM.integers(0, 2, 1500)
    for method in ("temperature", "vector", "isotonic"):
        applied = calibration._fit(_Form(method), scores, truth, "single").apply(scores, task="single")  # type: ignore[arg-type]
        assert np.isfinite(applied).all()
        assert applied.sum(axis=1) == pytest.approx(1)


def test_label_smoothing_is_undone() -> None:
    right = RANDOM.dirichlet(np.full(5, 0.15), 6000)
    truth = drawn(right)
    shown = 0.9 * right + 0.1 / 5
    fitted = calibration.choose_method(shown[:3000], truth[:3000], task="single")
    assert fitted.calibration.smoothing == 0.1
    assert error_of(fitted.calibration.apply(shown[3000:], task="single"), truth[3000:]) < 0.02
    assert Calibration.from_dict(fitted.calibration.to_dict()) == fitted.calibration


def of_evidence(evidence: np.ndarray, task: Any) -> np.ndarray:
    """Scores of a model that has seen this much for each label, in log-odds."""
    if task == "multi":
        return np.asarray(1 / (1 + np.exp(-evidence)))
    return np.asarray(np.exp(evidence) / np.exp(evidence).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("task", ["single", "multi"])
def test_opinions_that_rest_on_different_evidence_are_added_up(task: Any) -> None:
    first, second, third = RANDOM.normal(0, 1.5, (3, 3000, 3))
    right = of_evidence(first + 0.5 * second, task)
    truth = drawn(right) if task == "single" else RANDOM.random(right.shape) < right
    opinions = [calibration.log_odds(of_evidence(each, task), task) for each in (first, second, third)]
    assert calibration.fit_ensemble_weights(opinions, truth, task=task) == pytest.approx([1, 0.5, 0], abs=0.1)


def test_without_rows_to_weigh_opinions_by_the_first_one_counts() -> None:
    first, second = np.log(RANDOM.dirichlet(np.ones(3), (2, 0)))
    assert calibration.fit_ensemble_weights([first, second], np.zeros(0, int), task="single").tolist() == [1, 0]
