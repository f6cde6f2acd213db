"""Out-of-fold scores, each by a model that was not fitted on the row, to tune a refitted model's decision layer."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tagline.data.dataset import Dataset, Split
from tagline.data.splits import Ints
from tagline.models import Classifier, Scores
from tagline.prediction.predictor import score_texts

FOLDS = 3


def out_of_fold_scores(
    data: Dataset,
    rows: Ints,
    *,
    create: Callable[[], Classifier],
    seed: int,
    is_over: Callable[[], bool],
    folds: int = FOLDS,
) -> Scores | None:
    """Return the out-of-fold scores of these rows, from a new model for each fold; None if time is up."""
    fold_of_row = assign_folds(data.targets[rows], data.groups[rows], folds=folds, seed=seed)
    scores = np.zeros((len(rows), len(data.labels)), dtype=np.float32)
    for fold in range(folds):
        if is_over():
            return None
        is_inside = fold_of_row == fold
        if is_inside.any():
            model = fit_on_rows(data, rows[~is_inside], create=create, seed=seed)
            scores[is_inside] = score_texts(model, data.texts(rows[is_inside]), labels=len(data.labels))
    return scores


def fit_on_rows(data: Dataset, rows: Ints, *, create: Callable[[], Classifier], seed: int) -> Classifier:
    """Fit a new model on these rows, with nothing held out."""
    model = create()
    for step in model.fit(Split(data.texts(rows), data.targets[rows], rows), data.select(), seed=seed):
        step.insist_on_loss()
    return model


def assign_folds(targets: NDArray[np.generic], groups: Ints, *, folds: int, seed: int) -> Ints:
    """Assign a fold to each row, stratified by its rarest label, with equal texts in the same fold."""
    _, first_rows, group_of_row = np.unique(groups, return_index=True, return_inverse=True)
    labelled = targets[first_rows]
    strata = labelled.astype(np.int64) if labelled.ndim == 1 else _rarest_labels(labelled)
    order = np.lexsort((np.random.default_rng(seed).random(len(strata)), strata))
    fold_of_group = np.empty(len(strata), dtype=np.int64)
    fold_of_group[order] = np.arange(len(strata)) % folds
    return np.asarray(fold_of_group[group_of_row])


def _rarest_labels(targets: NDArray[np.generic]) -> Ints:
    """Return the rarest label of each row; for a row without labels, a number beyond all labels."""
    has_it = targets.astype(bool)
    counts = np.where(has_it, has_it.sum(axis=0), np.inf)
    return np.asarray(np.where(has_it.any(axis=1), counts.argmin(axis=1), targets.shape[1]), dtype=np.int64)
