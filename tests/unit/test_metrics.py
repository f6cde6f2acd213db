"""Every figure against scikit-learn's."""

import numpy as np
import pytest
from sklearn import metrics as reference

from tagline.evaluation import metrics
from tagline.spec import Monitor

LABELS = ("a", "b", "c", "d")
RANDOM = np.random.default_rng(7)
START = RANDOM.bit_generator.state


@pytest.fixture(autouse=True)
def from_the_start() -> None:
    """Every test draws the same numbers, whichever tests ran before it."""
    RANDOM.bit_generator.state = START


def single() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    truth = RANDOM.choice(3, 200, p=[0.6, 0.3, 0.1])  # nobody has label d
    scores = RANDOM.dirichlet(np.ones(4), 200)
    scores[np.arange(200), truth] += 0.4
    scores /= scores.sum(axis=1, keepdims=True)
    return truth, scores.argmax(axis=1), scores


def multi() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    truth = RANDOM.random((200, 4)) < np.array([0.5, 0.2, 0.05, 0.0])
    scores = np.clip(truth * 0.3 + RANDOM.random((200, 4)) * 0.7, 0.001, 0.999)
    return truth, scores >= 0.5, scores


def f1_of(truth: np.ndarray, answers: np.ndarray, average: str) -> float:
    return float(reference.f1_score(truth, answers, average=average, zero_division=0))


def test_single_figures() -> None:
    truth, answers, scores = single()
    found = metrics.measure("single", LABELS, truth=truth, answers=answers, scores=scores)
    f1 = {
        kind: reference.f1_score(truth, answers, average=kind, zero_division=0)
        for kind in ("macro", "micro", "weighted")
    }
    assert found["rows"] == 200
    assert found["accuracy"] == pytest.approx(reference.accuracy_score(truth, answers))
    assert found["macro_f1"] == pytest.approx(f1["macro"])
    assert found["micro_f1"] == pytest.approx(f1["micro"])
    assert found["weighted_f1"] == pytest.approx(f1["weighted"])
    assert found["balanced_accuracy"] == pytest.approx(np.mean([np.mean(answers[truth == i] == i) for i in range(3)]))
    assert found["mcc"] == pytest.approx(reference.matthews_corrcoef(truth, answers))
    assert found["log_loss"] == pytest.approx(reference.log_loss(truth, scores, labels=range(4)))
    assert found["auroc"] == pytest.approx(
        np.mean([reference.roc_auc_score(truth == i, scores[:, i]) for i in range(3)])
    )
    assert found["confusion"] == reference.confusion_matrix(truth, answers, labels=range(4)).tolist()


def test_multi_figures() -> None:
    truth, answers, scores = multi()
    found = metrics.measure("multi", LABELS, truth=truth, answers=answers, scores=scores)
    assert found["accuracy"] == found["subset_accuracy"] == pytest.approx(reference.accuracy_score(truth, answers))
    assert found["micro_f1"] == pytest.approx(reference.f1_score(truth, answers, average="micro", zero_division=0))
    assert found["macro_f1"] == pytest.approx(reference.f1_score(truth, answers, average="macro", zero_division=0))
    assert found["weighted_f1"] == pytest.approx(
        reference.f1_score(truth, answers, average="weighted", zero_division=0)
    )
    some = truth.any(axis=1) | answers.any(axis=1)
    overlap = reference.jaccard_score(truth[some], answers[some], average="samples", zero_division=0)
    assert found["jaccard"] == pytest.approx((overlap * some.sum() + (~some).sum()) / len(truth))
    assert found["average_precision"] == pytest.approx(
        np.mean([reference.average_precision_score(truth[:, i], scores[:, i]) for i in range(3)])
    )
    assert found["log_loss"] == pytest.approx(
        np.mean([reference.log_loss(truth[:, i], scores[:, i], labels=[False, True]) for i in range(4)]), rel=1e-4
    )


@pytest.mark.parametrize("task", ["single", "multi"])
def test_per_label_figures(task: str) -> None:
    truth, answers, scores = single() if task == "single" else multi()
    found = metrics.measure(task, LABELS, truth=truth, answers=answers, scores=scores)["per_label"]  # type: ignore[arg-type]
    for i, label in enumerate(LABELS):
        is_true = truth == i if task == "single" else truth[:, i]
        is_answer = answers == i if task == "single" else answers[:, i]
        precision, recall, f1, _ = reference.precision_recall_fscore_support(
            is_true, is_answer, average="binary", zero_division=0
        )
        assert found[label] == pytest.approx(
            {
                "precision": precision,
                "recall": recall,
                "f1": f1,
                "support": is_true.sum(),
                "accuracy": (is_true == is_answer).mean(),
            }
        )


def test_one_label_only_leaves_the_ranking_figures_open() -> None:
    truth = np.zeros(5, dtype=int)
    scores = np.tile([0.9, 0.1], (5, 1))
    found = metrics.measure("single", ("a", "b"), truth=truth, answers=truth, scores=scores)
    assert (found["accuracy"], found["macro_f1"], found["auroc"], found["mcc"]) == (1.0, 1.0, None, None)


@pytest.mark.parametrize("decimals", [0, 1, 6])
def test_equal_scores_are_ranked_as_one(decimals: int) -> None:
    truth, answers, scores = multi()
    scores = scores.round(decimals).astype(np.float32)
    found = metrics.measure("multi", LABELS, truth=truth, answers=answers, scores=scores)
    for name, score in (("average_precision", reference.average_precision_score), ("auroc", reference.roc_auc_score)):
        assert found[name] == pytest.approx(np.mean([score(truth[:, i], scores[:, i]) for i in range(3)])), name


@pytest.mark.parametrize("label", [0, 1, 3])
def test_one_answer_for_all_has_no_correlation(label: int) -> None:
    truth, _, scores = single()
    answers = np.full_like(truth, label)
    assert metrics.measure("single", LABELS, truth=truth, answers=answers, scores=scores)["mcc"] == 0


def test_no_row_measures_nothing() -> None:
    nothing = np.zeros(0, dtype=int)
    assert metrics.measure("single", LABELS, truth=nothing, answers=nothing, scores=np.zeros((0, 4))) == {"rows": 0}


def test_every_monitor_of_the_spec_is_measured_by_some_task() -> None:
    from typing import get_args

    measured: set[str] = set()
    for task, (truth, answers, scores) in (("single", single()), ("multi", multi())):
        measured |= metrics.measure(task, LABELS, truth=truth, answers=answers, scores=scores).keys()  # type: ignore[arg-type]
    assert set(get_args(Monitor)) <= measured


def test_a_lower_loss_and_a_higher_score_are_gains() -> None:
    assert metrics.is_better("log_loss", 0.4, 0.5)
    assert not metrics.is_better("log_loss", 0.5, 0.4)
    assert metrics.is_better("macro_f1", 0.5, 0.4)
    assert not metrics.is_better("macro_f1", 0.4, 0.4)
    assert metrics.is_better("macro_f1", 0.0, None)


@pytest.mark.parametrize(
    ("monitor", "value", "best", "rows", "expected"),
    [
        ("macro_f1", 0.88, 0.91, 76, True), ("macro_f1", 0.85, 0.91, 76, False), ("macro_f1", 0.88, 0.91, 1000, False),
        ("accuracy", 1.0, 1.0, 10, True), ("accuracy", 0.99, 1.0, 10, False), ("mcc", -0.2, -0.1, 50, False),
        ("log_loss", 0.5, 0.4, 10, False), ("macro_f1", 0.5, None, 10, False),
    ],
)  # fmt: skip
def test_a_figure_is_close_to_the_best_within_one_standard_error(
    monitor: str, value: float, best: float | None, rows: int, expected: bool
) -> None:
    assert metrics.is_close(monitor, value, best, rows=rows) == expected
