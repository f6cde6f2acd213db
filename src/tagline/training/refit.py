"""Refitting the best model on training and validation rows together, and whether the refit may be kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tagline.data.dataset import Split
from tagline.evaluation import cross_fitting, paired_tests
from tagline.evaluation.schema import OveransweredLabel
from tagline.models import Classifier, Scores
from tagline.prediction.decisions import Answers, TunedDecisions, find_overused_labels, label_shares
from tagline.prediction.predictor import score_texts
from tagline.reports import report
from tagline.training.context import AttemptContext, Clock
from tagline.training.preflight import new_model

MOST_REFITTED = 20_000
"""Rows up to which a family that refits does so: with more, the validation rows hardly matter."""
MOST_REFITTED_BY_NETWORK = 2_000
"""The same for a family that trains on a device, where a refit takes minutes."""


@dataclass(frozen=True)
class Candidate:
    """A model that may become the bundle, with its decision layer."""

    model: Classifier
    tuned: TunedDecisions
    tuned_on: Split
    """The rows that the layer was tuned on, by out-of-fold scores."""
    raw: Scores
    """Out-of-fold scores of the validation rows, before the layer."""
    answers: Answers
    """The layer's answers for those scores."""


def is_worth_refitting(context: AttemptContext, model: Classifier) -> bool:
    """Return whether there are few enough rows for a refit to matter and to be affordable."""
    rows = len(context.data.splits["train"]) + len(context.data.splits["validation"])
    return rows <= (MOST_REFITTED_BY_NETWORK if model.uses_device else MOST_REFITTED)


def refit(context: AttemptContext, clock: Clock, *, settings: Mapping[str, Any]) -> Candidate | None:
    """Train the best model again on training and validation rows; returns None if that takes too long.

    Its decision layer is tuned on scores of models that have learned nearly as much: those of a model without the
    validation rows are lower for labels that stand in few others, and one such label was answered for every text.
    """
    options = context.spec.model.model_copy(update=dict(settings))
    seed, both = context.spec.training.seed, context.data.select("train", "validation")

    def create() -> Classifier:
        return new_model(context.spec, context.data, options)

    scores = cross_fitting.out_of_fold_scores(context.data, both.rows, create=create, seed=seed, is_over=clock.is_over)
    if scores is None or clock.is_over():
        return None
    tuned = context.tune_decisions(scores, both)
    in_validation = np.isin(both.rows, context.data.splits["validation"].rows)
    model = cross_fitting.fit_on_rows(context.data, both.rows, create=create, seed=seed)
    return Candidate(model, tuned, both, scores[in_validation], tuned.answers.select(in_validation))


def find_refit_problem(context: AttemptContext, refitted: Candidate, *, before: Candidate) -> str:
    """Return why a refit must not replace the model before it, or an empty string."""
    layer, validation = refitted.tuned.layer, context.data.splits["validation"]
    own = layer.answers(score_texts(refitted.model, validation.texts, labels=len(layer.labels)))
    stays = "the model that learned without the validation rows is kept"
    for answers in (refitted.answers, own):
        lost = describe_decline(context, answers, before=before.answers)
        if lost:
            return f"learned once more with the validation rows, it does worse on them ({lost}): {stays}"
    shares = label_shares(context.data.splits["train"].targets, len(layer.labels))
    known = {each["label"] for each in find_overused_labels(before.answers.chosen, layer.labels, shares=shares)}
    for each in find_overused_labels(own.chosen, layer.labels, shares=shares):
        if each["label"] not in known:
            return f"learned once more, {report.overanswer_sentence(OveransweredLabel(**each))}: {stays}"
    return ""


def describe_decline(context: AttemptContext, answers: Answers, *, before: Answers) -> str:
    """Describe by how much answers to the validation rows are significantly worse than others."""
    figure = "accuracy" if context.data.task == "single" else "micro_f1"
    truth = context.data.splits["validation"].targets
    if not len(truth):
        return ""
    found = paired_tests.compare_models(
        context.data.task, truth=truth, first=before.chosen, second=answers.chosen, figure=figure
    )
    return f"{figure} falls by {found.gain:.3f}" if found.gain > 0 and found.is_real else ""
