"""Folds, and scores of rows by models that have not learned from them."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from samples import DATA

from tagline.data import dataset
from tagline.data.dataset import Split
from tagline.evaluation.cross_fitting import assign_folds, out_of_fold_scores
from tagline.models import Scores, Step


class Rememberer:
    """A classifier whose score of a text is 1 where it has learned from it."""

    def __init__(self, labels: int) -> None:
        self.labels = labels
        self.seen: set[Any] = set()

    def fit(self, train: Split, validation: Split, *, seed: int) -> Iterator[Step]:
        assert len(validation) == 0
        assert seed == 42
        self.seen = set(train.texts)
        yield Step(1, 1, 0.0)

    def scores(self, texts: Sequence[Any]) -> Scores:
        return np.array([[float(text in self.seen)] * self.labels for text in texts], dtype=np.float32)


@pytest.mark.parametrize("task", ["single", "multi"])
def test_no_row_is_scored_by_a_model_that_learned_from_it(task: str) -> None:
    data = dataset.load(DATA[task])
    rows = data.select("train", "validation").rows
    made: list[Rememberer] = []

    def create() -> Any:
        made.append(Rememberer(len(data.labels)))
        return made[-1]

    scores = out_of_fold_scores(data, rows, create=create, seed=42, is_over=lambda: False)
    assert scores is not None
    assert scores.shape == (len(rows), len(data.labels))
    assert not scores.any()
    assert len(made) == 3
    assert set().union(*(model.seen for model in made)) == set(data.texts(rows))


def test_out_of_time_there_are_no_scores() -> None:
    data = dataset.load(DATA["single"])
    assert (
        out_of_fold_scores(data, data.select("train").rows, create=pytest.fail, seed=42, is_over=lambda: True) is None
    )


def test_rare_labels_stand_in_every_fold_and_equal_texts_in_one() -> None:
    targets = np.zeros((90, 4), dtype=bool)
    targets[:, 0] = True
    targets[:3, 1] = targets[10:16, 2] = True  # beside the frequent one
    folds = assign_folds(targets, np.arange(90), folds=3, seed=0)
    for label, count in ((1, 1), (2, 2), (0, 30)):
        assert np.bincount(folds[targets[:, label]], minlength=3).tolist() == [count] * 3
    groups = np.arange(90) // 2
    folds = assign_folds(np.arange(90) % 5, groups, folds=3, seed=0)
    assert (folds[::2] == folds[1::2]).all()
    assert np.bincount(folds).tolist() == [30, 30, 30]


def test_folds_of_one_seed_are_the_same() -> None:
    targets = np.arange(50) % 7
    first, again, other = (assign_folds(targets, np.arange(50), folds=3, seed=seed) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
