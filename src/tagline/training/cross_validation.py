"""Scores of every row by models that did not learn from it, and the labels that they make look wrong."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tagline import registry
from tagline.data import near_duplicates
from tagline.data.dataset import Dataset, Split
from tagline.data.splits import Ints
from tagline.evaluation import baselines, error_analysis
from tagline.models import Scores
from tagline.prediction import calibration
from tagline.prediction.bundle import create_classifier
from tagline.prediction.decisions import DecisionLayer
from tagline.prediction.predictor import score_texts
from tagline.spec import Spec

FOLDS = 5
MOST_COMPARED = 50_000
"""Limit of texts that are compared with each other: about ten seconds' work for short ones."""


@dataclass(frozen=True)
class HeldOutPart:
    """Out-of-fold scores of some rows, and the scores before each update of the rows learned from."""

    rows: Ints
    opinions: tuple[Scores, ...]
    """Out-of-fold scores by the spec's family and by family linear."""
    learned: Ints
    said: Scores
    """For each row learned from, the mean of its log-odds just before each update."""


def score_folds(spec: Spec, data: Dataset) -> Iterator[HeldOutPart]:
    """Score every row out of fold, fold by fold; near duplicates stay in one fold.

    The parts share the minutes that a training may take.
    """
    rows = data.select("train", "validation", "test").rows
    of_row = _assign_folds(data, rows, seed=spec.training.seed)
    for number in range(FOLDS):
        inside, others = rows[of_row == number], rows[of_row != number]
        if len(inside) and len(others):
            end = time.monotonic() + (60 * spec.training.max_minutes / FOLDS or math.inf)
            yield _score_fold(spec, data, inside, others, end=end)


def _score_fold(spec: Spec, data: Dataset, inside: Ints, others: Ints, *, end: float) -> HeldOutPart:
    """Train models on some rows and score the others.

    Family linear errs on other rows than a network does and learns in seconds: it is asked too, and first.
    """
    companions: tuple[Scores, ...] = ()
    if spec.model.family != baselines.FAMILY:
        options = registry.find("models", baselines.FAMILY).Options()
        some = baselines.sample_rows(others, seed=spec.training.seed)
        companions = (_fit_and_score(spec, data, options, inside, some, end=end)[0],)
    own, said = _fit_and_score(spec, data, spec.model, inside, others, end=end)
    is_known = ~np.isnan(said[:, 0])
    return HeldOutPart(inside, (own, *companions), others[is_known], said[is_known])


def _fit_and_score(
    spec: Spec, data: Dataset, options: Any, inside: Ints, others: Ints, *, end: float
) -> tuple[Scores, Scores]:
    """Score some rows by a model trained on others; with the log-odds of those before updates, NaN where unknown."""
    model = create_classifier(spec, options, task=data.task, labels=data.labels, pair=data.pair)
    learned = Split(data.texts(others), data.targets[others], others)
    sums, times = np.zeros((len(others), len(data.labels)), np.float32), np.zeros((len(others), 1), np.float32)
    for step in model.fit(learned, data.select(), seed=spec.training.seed):
        if step.scores_before_update:
            rows, scores = step.scores_before_update
            np.add.at(sums, rows, calibration.log_odds(scores, data.task))
            np.add.at(times, rows, 1)
        if time.monotonic() > end:
            break
    with np.errstate(invalid="ignore"):
        return score_texts(model, data.texts(inside), labels=len(data.labels)), sums / times


def combine_scores(data: Dataset, found: Sequence[HeldOutPart]) -> tuple[Ints, calibration.Floats]:
    """Return all rows with the models' combined scores, weighted to make the given labels likeliest."""
    rows = np.concatenate([part.rows for part in found])
    truth = data.targets[rows]
    by_family = zip(*(part.opinions for part in found), strict=True)
    opinions = [calibration.log_odds(np.concatenate(each), data.task) for each in by_family]
    weights = calibration.fit_ensemble_weights(opinions, truth, task=data.task)
    opinions[0] = _add_training_scores(opinions[0], data, rows, found)
    # No map of each label's own follows: isotonic curves, which banking77 chooses, put errors and others on one step,
    # and 86 % of the first n were errors in place of 92 %.
    return rows, calibration.scores_from_log_odds(np.tensordot(weights, opinions, axes=1), data.task)


def _add_training_scores(
    unseen: calibration.Floats, data: Dataset, rows: Ints, found: Sequence[HeldOutPart]
) -> calibration.Floats:
    """Average the log-odds of each row over all models of the family: one out of fold, four before their updates.

    A row whose label is wrong is doubted for most of a training (Pleiss et al., 2020). A model that learns from a row
    leans towards its label all the same, and that much, on average, is taken away.
    """
    truth = data.targets[rows]
    has_it = truth.astype(bool) if truth.ndim == 2 else np.eye(len(data.labels), dtype=bool)[truth]
    place = np.full(len(data.targets), -1)
    place[rows] = np.arange(len(rows))
    sums, times = unseen.copy(), np.ones((len(rows), 1))
    for part in found:
        at = place[part.learned]
        said, at = part.said[at >= 0], at[at >= 0]
        leaning = said - unseen[at]
        for which in (has_it[at], ~has_it[at]):
            leaning[which] -= leaning[which].mean() if which.any() else 0.0
        sums[at] += unseen[at] + leaning
        times[at] += 1
    return sums / times


def find_label_errors(data: Dataset, found: Sequence[HeldOutPart]) -> list[dict[str, Any]]:
    """Return rows whose labels look wrong by these scores, the most doubtful first."""
    rows, calibrated = combine_scores(data, found)
    split = Split(data.texts(rows), data.targets[rows], rows)
    halves = (0.5,) * len(data.labels) if data.task == "multi" else ()
    answers = DecisionLayer(data.task, data.labels, thresholds=halves, none_label=data.none_label).decide(calibrated)
    return error_analysis.list_suspects(data, {"data": (split, answers)}, most=len(rows))


def _assign_folds(data: Dataset, rows: Ints, *, seed: int) -> Ints:
    """Assign a fold to each row, the same for equal and nearly equal texts.

    A wrong label that a copy of its text has too is learned from the copy, and looks right.
    """
    groups, first, of_row = np.unique(data.groups[rows], return_index=True, return_inverse=True)
    if len(groups) <= MOST_COMPARED:
        groups, of_group = np.unique(near_duplicates.cluster_texts(data.texts(rows[first])), return_inverse=True)
        of_row = of_group[of_row]
    return np.asarray(np.random.default_rng(seed).permutation(len(groups)) % FOLDS)[of_row]
