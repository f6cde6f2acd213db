"""The report: everything that was measured, as data for programs and for the rendered pages."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tagline.data import checks
from tagline.data.checks import Finding
from tagline.data.dataset import SPLITS, Dataset, Split
from tagline.evaluation import error_analysis, gates, intervals, metrics, slices
from tagline.evaluation.schema import (
    REPORT_FORMAT,
    EvaluationPoint,
    LearningCurve,
    LossPoint,
    OveransweredLabel,
    Report,
    TrainingHistory,
)
from tagline.models import Scores
from tagline.models.nn.tokens import length_of
from tagline.prediction import attribution
from tagline.prediction.calibration import DIGITS
from tagline.prediction.decisions import (
    AS_THEY_ARE,
    Answers,
    DecisionLayer,
    are_right,
    find_overused_labels,
    label_shares,
)
from tagline.prediction.predictor import Predictor
from tagline.reports import advice
from tagline.runs.events import EvaluationEvent, Event, StepEvent

if TYPE_CHECKING:
    from tagline.spec import Gates

SET_COVERAGES = (0.8, 0.9, 0.95, 0.99)
THRESHOLDS = tuple(round(number / 50, 2) for number in range(1, 50))
COVERAGE_POINTS = 100
EXPLAINED = 24
EXPLAINED_CHARACTERS = 200_000
"""The most characters to score for explanations, so that long texts do not take minutes."""
MOST_POINTS = 400
"""The most points of the loss curve."""

Figures = dict[str, Any]


@dataclass(frozen=True)
class SplitPredictions:
    """A model's predictions for a split: its own scores, and the answers of the decision layer."""

    split: Split
    raw: Scores
    answers: Answers


def build_report(
    dataset: Dataset,
    predictor: Predictor,
    *,
    family: str,
    findings: Sequence[Finding],
    wanted: "Gates",
    test: SplitPredictions,
    validation: SplitPredictions | None = None,
    losses: Mapping[str, float] | None = None,
    unkept: Sequence[str] = (),
    fallbacks: Sequence[str] = (),
    baselines: Mapping[str, Figures] | None = None,
    history: TrainingHistory | None = None,
    runtime: str = "",
    exports: Mapping[str, Mapping[str, float]] | None = None,
) -> Report:
    """Build the report of a dataset. The same spec, data and seed give the same report."""
    layer = predictor.decisions
    figures = measure_split(dataset, test.split, test.answers)
    if unknown := _count_unknown_label_rows(dataset, layer, test.split):
        figures["unknown_label_rows"] = unknown
    if len(test.split):
        bounds = intervals.bootstrap_intervals(dataset.task, truth=test.split.targets, answers=test.answers.chosen)
        figures["intervals"] = {name: list(ends) for name, ends in bounds.items()}
    outcomes = {"test": test} | ({"validation": validation} if validation else {})
    held_out = {name: (each.split, each.answers) for name, each in outcomes.items()}
    facts: dict[str, Any] = {
        "format": REPORT_FORMAT,
        "task": dataset.task,
        "pair": dataset.pair,
        "labels": list(dataset.labels),
        "family": family,
        "splits": {name: len(dataset.splits[name]) for name in SPLITS} if validation else {"test": len(test.split)},
        "test": figures,
        **({"validation": measure_split(dataset, validation.split, validation.answers)} if validation else {}),
        "baselines": dict(baselines or {}),
        "gates": gates.evaluate_gates(wanted, figures),
        "decisions": _describe_decisions(layer, labels=len(dataset.labels)),
        "unkept": list(unkept),
        "fallbacks": list(fallbacks),
        "overanswered": _list_overused_labels(dataset, outcomes),
        "calibration": _measure_calibration(dataset, layer, test, losses or {}),
        "coverage": _trace_coverage(layer, test),
        "sets": _measure_sets(layer, test),
        "thresholds": _trace_thresholds(dataset, layer, test),
        "history": history or TrainingHistory(),
        "mistakes": _add_explanations(
            predictor, error_analysis.find_confident_errors(dataset, test.split, test.answers)
        ),
        "confusions": error_analysis.find_confused_pairs(dataset, test.split, test.answers),
        "suspects": error_analysis.list_suspects(dataset, held_out),
        "gravely_doubted": error_analysis.count_grave_suspects(held_out),
        "slices": _describe_slices(dataset, test),
        "runtime": runtime,
        "exports": dict(exports or {}),
        "data": describe_data(dataset),
        "findings": describe_findings(findings),
        "advice": [],
    }
    return _with_advice(Report.model_validate(facts))


def _with_advice(report: Report) -> Report:
    return report.model_copy(update={"advice": advice.next_steps(report)})


def _count_unknown_label_rows(dataset: Dataset, layer: DecisionLayer, split: Split) -> int:
    """Count rows with a label that no training row has or, on other data, that the bundle does not have."""
    if len(dataset.splits["train"]):
        return len(checks.rows_of_unknown_labels(dataset)["test"])
    known = len(layer.labels)
    return int(
        (split.targets >= known).sum() if split.targets.ndim == 1 else split.targets[:, known:].any(axis=1).sum()
    )


def _describe_decisions(layer: DecisionLayer, *, labels: int) -> dict[str, Any]:
    """Return the decision layer as the manifest stores it; labels unknown to it get a threshold of 1."""
    missing = (1.0,) * (labels - len(layer.labels)) if layer.thresholds else ()
    return replace(layer, thresholds=(*layer.thresholds, *missing)).to_dict()


def pad_answers(answers: Answers, *, labels: int) -> Answers:
    """Extend the answers to more labels, the last of which are never given."""
    missing = labels - answers.scores.shape[1]
    if not missing:
        return answers
    chosen = answers.chosen if answers.chosen.ndim == 1 else np.pad(answers.chosen, ((0, 0), (0, missing)))
    return replace(answers, scores=np.pad(answers.scores, ((0, 0), (0, missing))), chosen=chosen)


def add_learning_curve(report: Report, curve: LearningCurve) -> Report:
    """Return a run's report with the learning curve that was measured after it."""
    return _with_advice(report.model_copy(update={"learning_curve": curve}))


def summarize_history(events: Sequence[Event], *, refits: bool = False) -> TrainingHistory:
    """Return the losses and evaluations among a run's events, thinned to what a chart can show.

    For a family that refits with the best value of a setting, `tried` names that setting, if its steps differ in one
    alone: each step is then a separate model, not a step of the same one.
    """
    steps = [event for event in events if isinstance(event, StepEvent)]
    evaluations = [event for event in events if isinstance(event, EvaluationEvent)]
    if refits and (tried := _find_tried_setting(steps)):
        return _summarize_trials(steps, evaluations, tried)
    kept = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MOST_POINTS)).round().astype(int)) if steps else ()
    return TrainingHistory(
        steps=[LossPoint(step=steps[i].step, loss=steps[i].loss, stage=steps[i].stage) for i in kept],
        evaluations=[
            EvaluationPoint(step=event.step, value=event.value, kept=event.best)
            for event in evaluations
            if event.value is not None
        ],
        monitor=_monitor(evaluations),
    )


def _monitor(evaluations: Sequence[EvaluationEvent]) -> str:
    return evaluations[0].monitor if evaluations else ""


def _find_tried_setting(steps: Sequence[StepEvent]) -> str:
    """Return the one setting that all steps have; empty if they have none or several, or go through stages."""
    names = {tuple(event.settings) for event in steps}
    if any(event.stage for event in steps) or len(names) != 1:
        return ""
    [setting] = names
    return setting[0] if len(setting) == 1 else ""


def _summarize_trials(
    steps: Sequence[StepEvent], evaluations: Sequence[EvaluationEvent], tried: str
) -> TrainingHistory:
    """Return the last loss and the evaluation of each value of the setting."""
    last = {event.settings[tried]: event for event in steps}
    settings = {event.step: event.settings[tried] for event in steps}
    return TrainingHistory(
        steps=[LossPoint(step=event.step, loss=event.loss, stage="", setting=value) for value, event in last.items()],
        evaluations=[
            EvaluationPoint(step=event.step, value=event.value, kept=event.best, setting=settings[event.step])
            for event in evaluations
            if event.value is not None and event.step in settings
        ],
        monitor=_monitor(evaluations),
        tried=tried,
    )


def describe_findings(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return the findings of the checks, each with a few places to look at."""
    return [
        {
            "code": finding.code,
            "severity": finding.severity,
            "message": finding.message,
            "advice": finding.advice,
            "places": [f"{row.file}:{row.line}" for row in finding.rows],
        }
        for finding in findings
    ]


def measure_split(dataset: Dataset, split: Split, answers: Answers) -> Figures:
    """Return the figures of one split, and with abstention coverage and precision."""
    figures = metrics.measure(
        dataset.task, dataset.labels, truth=split.targets, answers=answers.chosen, scores=answers.scores
    )
    if len(split) and answers.abstained.any():
        answered = ~answers.abstained
        right = are_right(answers.chosen, split.targets)[answered]
        figures["coverage"] = float(answered.mean())
        figures["accuracy_of_answered"] = float(right.mean()) if answered.any() else None
        ends = intervals.wilson_interval(int(right.sum()), len(right))
        figures["accuracy_of_answered_interval"] = list(ends) if answered.any() else None
        for number, label in enumerate(dataset.labels):
            has_it = split.targets[:, number].astype(bool) if split.targets.ndim == 2 else split.targets == number
            figures["per_label"][label]["coverage"] = float(answered[has_it].mean()) if has_it.any() else None
    return figures


def describe_data(dataset: Dataset) -> dict[str, Any]:
    """Describe the data as it was read."""
    return {
        "fingerprint": dataset.fingerprint,
        "rows": len(dataset),
        "files": [{"file": s.name, "format": s.format, "encoding": s.encoding.name} for s in dataset.sources],
        "bad_rows": len(dataset.bad_rows),
        "leaked_rows": len(dataset.leaked),
        "unlabelled_rows": sum(rows.count for rows in dataset.unlabelled.values()),
        "split_totals": dict(dataset.split_totals),
    }


def format_predictions(dataset: Dataset, outcome: SplitPredictions, decisions: DecisionLayer) -> list[str]:
    """Format each row of a split as a JSON line: text, truth, and the answer as `predict` gives it."""
    lines = []
    answers = decisions.predictions(outcome.answers)
    for row, text, answer in zip(outcome.split.rows, outcome.split.texts, answers, strict=True):
        truth = dataset.label_names(int(row))
        labelled = {"truth": truth[0]} if dataset.task == "single" else {"truth": list(truth)}
        file, line = dataset.place(int(row))
        fields = {"text": text, **labelled, **answer.to_dict(), "file": file, "line": line}
        lines.append(json.dumps(fields, ensure_ascii=False))
    return lines


def _measure_calibration(
    dataset: Dataset, layer: DecisionLayer, test: SplitPredictions, losses: Mapping[str, float]
) -> Figures:
    """Measure the scores before and after calibration, on test."""
    if not len(test.split):
        return {}
    uncalibrated = pad_answers(replace(layer, calibration=AS_THEY_ARE).answers(test.raw), labels=len(dataset.labels))
    parts = {"before": uncalibrated, "after": test.answers}
    figures = {
        when: metrics.measure_calibration(
            dataset.task, truth=test.split.targets, answers=answers.chosen, scores=answers.scores
        )
        for when, answers in parts.items()
    }
    return {
        "method": layer.calibration.method,
        "losses": dict(losses),
        "ece_by_chance": _measure_chance_error(test.answers),
        **figures,
        "reliability": {when: _bin_reliability(test.split, answers) for when, answers in parts.items()},
    }


def _measure_chance_error(answers: Answers) -> float:
    if answers.chosen.ndim == 1:
        return metrics.chance_calibration_error(answers.scores.max(axis=1))
    return float(np.mean([metrics.chance_calibration_error(of_label) for of_label in answers.scores.T]))


def _bin_reliability(split: Split, answers: Answers) -> list[dict[str, float]]:
    if split.targets.ndim == 2:
        return metrics.reliability_bins(answers.scores.ravel(), split.targets.ravel())
    return metrics.reliability_bins(answers.scores.max(axis=1), answers.chosen == split.targets)


def _trace_coverage(layer: DecisionLayer, test: SplitPredictions) -> list[dict[str, float]]:
    """Return coverage and precision on test when abstaining below each of some scores.

    The score below which the bundle itself abstains is one of them, so that pages show one figure for it.
    """
    if not len(test.split):
        return []
    confidence = layer.confidence(test.answers.scores.round(DIGITS), test.answers.chosen)
    order = np.argsort(-confidence, kind="stable")
    right = np.cumsum(are_right(test.answers.chosen, test.split.targets)[order])
    rows = len(order)
    ends = np.unique(np.linspace(0, rows - 1, min(rows, COVERAGE_POINTS)).round().astype(int))
    # Equal scores are answered together: each point stands at the last row with its score.
    ends = np.unique(np.searchsorted(-confidence[order], -confidence[order][ends], side="right") - 1)
    thresholds = {_round_threshold(float(confidence[order][end])) for end in ends}
    at_ends = {below: int((confidence >= below).sum()) for below in thresholds}
    if own_count := int((confidence >= layer.abstain_below).sum()) if layer.abstain_below else 0:
        at_ends[layer.abstain_below] = own_count
    return [
        {
            "below": below,
            "coverage": round(answered / rows, DIGITS),
            "right": round(float(right[answered - 1] / answered), DIGITS),
        }
        for below, answered in sorted(at_ends.items(), reverse=True)
    ]


def _round_threshold(score: float) -> float:
    """Round down a score to abstain below, so that a page can show it in full and its own row is answered."""
    return math.floor(score * 1000) / 1000 if score < advice.NEARLY_SURE else round(score, DIGITS)


def _list_overused_labels(dataset: Dataset, outcomes: Mapping[str, SplitPredictions]) -> list[dict[str, Any]]:
    """Return labels given to far more test texts than have them in training or, on other data, in that data.

    With too few test rows, validation rows are used.
    """
    train_targets = dataset.splits["train"].targets
    for outcome in outcomes.values():
        shares = label_shares(train_targets if len(train_targets) else outcome.split.targets, len(dataset.labels))
        if overused := find_overused_labels(outcome.answers.chosen, dataset.labels, shares=shares):
            return overused
    return []


def overanswer_sentence(label: OveransweredLabel) -> str:
    """Write how often a label is answered, and how often it occurs."""
    answered, expected = (f"{100 * share:.3g} %" for share in (label.answered, label.expected))
    return f"{label.label} is answered for {answered} of the texts, though {expected} of the training rows have it"


def _measure_sets(layer: DecisionLayer, test: SplitPredictions) -> list[dict[str, float]]:
    """Return the coverage of prediction sets reached on test, and their sizes, for some promised coverages."""
    if not layer.floors or not len(test.split):
        return []
    coverages = []
    for promised in SET_COVERAGES:
        sets = layer.prediction_sets(test.answers, coverage=promised)
        truth = test.split.targets
        covered = sets[np.arange(len(truth)), truth] if truth.ndim == 1 else (sets | ~truth.astype(bool)).all(axis=1)
        coverages.append(
            {"promised": promised, "reached": float(covered.mean()), "labels": float(sets.sum(axis=1).mean())}
        )
    return coverages


def _trace_thresholds(dataset: Dataset, layer: DecisionLayer, test: SplitPredictions) -> dict[str, Any]:
    """Return precision, recall and F1 on test over the threshold, for each label of task `multi` that has one."""
    if dataset.task == "single" or not len(test.split):
        return {}
    truth = test.split.targets.astype(bool)
    by_threshold = [
        metrics.precision_recall_f1(
            (truth & (test.answers.scores >= at)).sum(axis=0),
            truth.sum(axis=0),
            (test.answers.scores >= at).sum(axis=0),
        )
        for at in THRESHOLDS
    ]
    names = ("precision", "recall", "f1")
    return {
        "at": list(THRESHOLDS),
        "labels": {
            label: {name: [round(float(parts[k][i]), 3) for parts in by_threshold] for k, name in enumerate(names)}
            for i, label in enumerate(dataset.labels)
            if label != layer.none_label
        },
    }


def _describe_slices(dataset: Dataset, test: SplitPredictions) -> list[dict[str, Any]]:
    if not len(test.split):
        return []
    compared = slices.find_slices(dataset, test.split, are_right(test.answers.chosen, test.split.targets))
    return [asdict(each) | {"is_worse": each.is_worse} for each in compared]


def _add_explanations(predictor: Predictor, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add attributions of the wrong answer to the first rows."""
    budget = EXPLAINED_CHARACTERS
    for row in rows[:EXPLAINED]:
        text = row["text"] if isinstance(row["text"], str) else (row["text"][0], row["text"][1])
        size = length_of(text)
        budget -= size * min(size // 5 + 1, attribution.MOST_PIECES)
        if budget < 0:
            break
        if label := next((name for name in row["answer"] if name not in row["truth"]), None):
            row["pushed_to"] = label
            row["pushes"] = [
                [push.start, push.end, round(push.weight, 3), push.side] for push in predictor.explain(text, label)
            ]
    return rows
