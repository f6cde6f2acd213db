"""Logistic regression on sparse features, fitted by L-BFGS. Needs scipy."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tagline.models.linear.tfidf import Features

if TYPE_CHECKING:
    from tagline.data.dataset import Task
    from tagline.data.texts import Text

ITERATIONS_A_STEP = 25
PAST_STEPS = 10

Floats = NDArray[np.float64]


class RegressionProblem:
    """The regularised loss on the training rows, and its minimisation."""

    def __init__(
        self, features: Features, texts: Sequence["Text"], truth: Floats, *, task: "Task", balanced: bool
    ) -> None:
        from scipy.sparse import csr_matrix, vstack

        self._rows = vstack(
            [
                csr_matrix((values.astype(np.float64), columns, starts), shape=(len(starts) - 1, len(features)))
                for starts, columns, values in features.transform_parts(texts)
            ],
            format="csr",
        )
        self._columns = self._rows.T.tocsr()
        self._truth = truth
        self._task = task
        self._row_weights = _balance_rows(truth, task=task) if balanced else np.ones((1, 1))

    def start(self) -> Floats:
        """Return the initial weights, all zero."""
        return np.zeros((self._rows.shape[1] + 1, self._truth.shape[1]))

    def improve(self, weights: Floats, *, strength: float) -> tuple[Floats, float, bool]:
        """Run some iterations of L-BFGS; returns the weights, their loss, and whether it has converged."""
        from threadpoolctl import threadpool_limits

        penalty = 1 / (strength * len(self._truth))
        tolerance = 1e-4 / strength**0.5
        # One thread: the same sums on any number of cores, and no waiting for one that is busy. With both cores of a
        # small machine busy, a run on the sample data took 3 s this way and 19 s with two threads.
        with threadpool_limits(limits=1, user_api="blas"):
            solution, loss, done = minimise_loss(
                lambda flat: self._loss_and_gradient(flat, penalty),
                weights.ravel(),
                iterations=ITERATIONS_A_STEP,
                tolerance=tolerance,
            )
        return solution.reshape(weights.shape), loss, done

    def _loss_and_gradient(self, flat: Floats, penalty: float) -> tuple[float, Floats]:
        weights = flat.reshape(-1, self._truth.shape[1])
        logits = self._rows @ weights[:-1] + weights[-1]
        if self._task == "multi":
            loss = np.logaddexp(0, logits) - self._truth * logits
            scores = 1 / (1 + np.exp(-logits))
        else:
            logits -= logits.max(axis=1, keepdims=True)
            logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
            loss = -self._truth * logits
            scores = np.exp(logits)
        residuals = self._row_weights * (scores - self._truth) / len(self._truth)
        total = (self._row_weights * loss).sum() / len(self._truth) + penalty / 2 * (weights[:-1] ** 2).sum()
        gradient = np.empty_like(weights)
        gradient[:-1] = self._columns @ residuals
        gradient[:-1] += penalty * weights[:-1]
        gradient[-1] = residuals.sum(axis=0)
        return float(total), gradient.ravel()


def minimise_loss(
    loss: Callable[[Floats], tuple[float, Floats]], start: Floats, *, iterations: int, tolerance: float
) -> tuple[Floats, float, bool]:
    """Minimise a smooth convex loss by L-BFGS; returns the point, its loss, and whether it has converged.

    scipy's L-BFGS-B also carries bounds, and on a few hundred thousand weights spends more time on them than the loss
    itself takes.
    """
    point, (value, gradient) = start, loss(start)
    past: deque[tuple[Floats, Floats, float]] = deque(maxlen=PAST_STEPS)
    for _ in range(iterations):
        if np.abs(gradient).max() <= tolerance:
            return point, value, True
        direction = _descent_direction(gradient, past)
        slope = float(gradient @ direction)
        size = 1.0 if past else 1 / float(np.linalg.norm(gradient))
        while True:
            next_point = point + size * direction
            next_value, next_gradient = loss(next_point)
            if next_value <= value + 1e-4 * size * slope:
                break
            size /= 2
            if size < 1e-12:  # the loss has reached its numerical resolution
                return point, value, True
        step, gradient_change = next_point - point, next_gradient - gradient
        curvature = float(step @ gradient_change)
        if curvature > 0:
            past.append((step, gradient_change, curvature))
        point, value, gradient = next_point, next_value, next_gradient
    return point, value, False


def _descent_direction(gradient: Floats, past: Sequence[tuple[Floats, Floats, float]]) -> Floats:
    """Return the L-BFGS direction: the gradient corrected by past curvature (the two loops of Nocedal, 1980)."""
    direction = -gradient
    shares: list[float] = []
    for step, gradient_change, curvature in reversed(past):
        shares.append(float(step @ direction) / curvature)
        direction -= shares[-1] * gradient_change
    if past:
        _, gradient_change, curvature = past[-1]
        direction *= curvature / float(gradient_change @ gradient_change)
    for (step, gradient_change, curvature), share in zip(past, reversed(shares), strict=True):
        direction += (share - float(gradient_change @ direction) / curvature) * step
    return direction


def _balance_rows(truth: Floats, *, task: "Task") -> Floats:
    """Return balanced weights for rows, or for task `multi` for each label of each row: rare labels weigh as much."""
    rows, labels = truth.shape
    frequency = np.maximum(truth.sum(axis=0), 1)
    if task == "single":
        weights: Floats = truth @ (rows / (labels * frequency))
        return weights[:, None]
    if_present, if_absent = rows / (2 * frequency), rows / (2 * np.maximum(rows - frequency, 1))
    return np.asarray(np.where(truth > 0, if_present, if_absent))
