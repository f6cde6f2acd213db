"""Scores of every row by a model that did not learn from it, and the labels that they make look wrong."""

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from tagline import calibration, mistakes
from tagline.bundle import new_classifier
from tagline.dataset import Dataset, Split
from tagline.decisions import DecisionLayer
from tagline.models import Scores
from tagline.predictor import scored
from tagline.spec import Spec
from tagline.splits import Ints

FOLDS = 5


def scores(spec: Spec, data: Dataset) -> Iterator[tuple[Ints, Scores]]:
    """Part by part, some rows and their scores by a model that learned from all others; equal texts stay together.

    The parts share the minutes that a training may take.
    """
    rows = data.select("train", "validation", "test").rows
    parts = _parts(data, rows, seed=spec.training.seed)
    limit_s = 60 * spec.training.max_minutes / FOLDS or math.inf
    for number in range(FOLDS):
        inside, others = rows[parts == number], rows[parts != number]
        if not len(inside) or not len(others):
            continue
        model = new_classifier(spec, spec.model, task=data.task, labels=data.labels, pair=data.pair)
        learned = Split(data.texts(others), data.targets[others], others)
        begun = time.monotonic()
        for _ in model.fit(learned, data.select(), seed=spec.training.seed):
            if time.monotonic() - begun > limit_s:
                break
        yield inside, scored(model, data.texts(inside), labels=len(data.labels))


def suspects(data: Dataset, found: list[tuple[Ints, Scores]]) -> list[dict[str, Any]]:
    """Rows whose label these scores make look wrong, the most doubtful first."""
    rows = np.concatenate([part for part, _ in found])
    raw = np.concatenate([part for _, part in found])
    split = Split(data.texts(rows), data.targets[rows], rows)
    calibrated = calibration.choose(raw, split.targets, task=data.task).held_out
    halves = (0.5,) * len(data.labels) if data.task == "multi" else ()
    answers = DecisionLayer(data.task, data.labels, thresholds=halves).decided(calibrated)
    return mistakes.suspects(data, {"data": (split, answers)}, most=len(rows))


def _parts(data: Dataset, rows: Ints, *, seed: int) -> Ints:
    """A part for each row, the same for texts that are equal."""
    groups, of_row = np.unique(data.groups[rows], return_inverse=True)
    return np.asarray(np.random.default_rng(seed).permutation(len(groups)) % FOLDS)[of_row]
