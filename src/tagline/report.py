"""The report: everything that was measured, as facts for programs and for the pages made of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tagline import advice, gates, intervals, metrics, mistakes, slices, words
from tagline.checks import Finding
from tagline.dataset import SPLITS, Dataset, Split
from tagline.decisions import AS_THEY_ARE, DIGITS, Answers, DecisionLayer, confidence
from tagline.metrics import REPORT_FORMAT, are_right
from tagline.models import Scores
from tagline.predictor import Predictor
from tagline.tokens import length_of

if TYPE_CHECKING:
    from tagline.spec import Gates

SET_COVERAGES = (0.8, 0.9, 0.95, 0.99)
THRESHOLDS = tuple(round(number / 50, 2) for number in range(1, 50))
COVERAGE_POINTS = 100
EXPLAINED = 24
EXPLAINED_CHARACTERS = 200_000
"""To be scored for explanations, so that long texts do not take minutes."""
MOST_POINTS = 400
"""Of the loss curve."""

Figures = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What a model said about a split: its own scores, and the answers made of them."""

    split: Split
    raw: Scores
    answers: Answers


def build(
    dataset: Dataset,
    predictor: Predictor,
    *,
    family: str,
    findings: Sequence[Finding],
    wanted: "Gates",
    test: Outcome,
    validation: Outcome | None = None,
    losses: Mapping[str, float] | None = None,
    unkept: Sequence[str] = (),
    baselines: Mapping[str, Figures] | None = None,
    history: Mapping[str, Any] | None = None,
    runtime: str = "",
    exports: Mapping[str, Mapping[str, float]] | None = None,
) -> dict[str, Any]:
    """Everything measured on a dataset. The same spec, data and seed give the same report."""
    layer = predictor.decisions
    figures = measured(dataset, test.split, test.answers)
    if len(test.split):
        bounds = intervals.bootstrap(dataset.task, truth=test.split.targets, answers=test.answers.chosen)
        figures["intervals"] = {name: list(ends) for name, ends in bounds.items()}
    outcomes = {"test": test} | ({"validation": validation} if validation else {})
    held_out = {name: (each.split, each.answers) for name, each in outcomes.items()}
    report: dict[str, Any] = {
        "format": REPORT_FORMAT,
        "task": dataset.task,
        "pair": dataset.pair,
        "labels": list(dataset.labels),
        "family": family,
        "splits": {name: len(dataset.splits[name]) for name in SPLITS} if validation else {"test": len(test.split)},
        "test": figures,
        **({"validation": measured(dataset, validation.split, validation.answers)} if validation else {}),
        "baselines": dict(baselines or {}),
        "gates": gates.results(wanted, figures),
        "decisions": layer.to_dict(),
        "unkept": list(unkept),
        "calibration": _calibration(dataset, layer, test, losses or {}),
        "coverage": _coverage(test),
        "sets": _sets(layer, test),
        "thresholds": _threshold_curves(dataset, test),
        "history": dict(history or {}),
        "mistakes": _explained(predictor, mistakes.confident(dataset, test.split, test.answers)),
        "confusions": mistakes.confused(dataset, test.split, test.answers),
        "suspects": mistakes.suspects(dataset, held_out),
        "gravely_doubted": mistakes.gravely_doubted(held_out),
        "slices": _slices(dataset, test),
        "runtime": runtime,
        "exports": dict(exports or {}),
        "data": described(dataset),
        "findings": listed(findings),
    }
    return report | {"advice": advice.next_steps(report)}


def with_learning_curve(report: Mapping[str, Any], curve: Mapping[str, Any]) -> dict[str, Any]:
    """The report of a run for which a learning curve was made after it."""
    added = {**report, "learning_curve": dict(curve)}
    return added | {"advice": advice.next_steps(added)}


def history_of(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The losses and evaluations among a run's events, thinned to what a chart can show."""
    steps = [
        {"step": event["step"], "loss": event["loss"], "stage": event.get("stage", "")}
        for event in events
        if event["event"] == "step"
    ]
    kept = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MOST_POINTS)).round().astype(int))
    evaluations = [
        {"step": event["step"], "value": event["value"], "kept": event["best"]}
        for event in events
        if event["event"] == "evaluation" and event["value"] is not None
    ]
    monitor = next((event["monitor"] for event in events if event["event"] == "evaluation"), "")
    return {"steps": [steps[i] for i in kept] if steps else [], "evaluations": evaluations, "monitor": monitor}


def listed(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """What the checks found, each with a few places to look at."""
    return [
        {
            "code": finding.code, "severity": finding.severity, "message": finding.message, "advice": finding.advice,
            "places": [f"{row.file}:{row.line}" for row in finding.rows],
        }
        for finding in findings
    ]  # fmt: skip


def measured(dataset: Dataset, split: Split, answers: Answers) -> Figures:
    """The figures of one split, and with abstention how many answers were given and how good those are."""
    figures = metrics.measure(
        dataset.task, dataset.labels, truth=split.targets, answers=answers.chosen, scores=answers.scores
    )  # fmt: skip
    if len(split) and answers.abstained.any():
        given = ~answers.abstained
        right = are_right(answers.chosen, split.targets)[given]
        figures["coverage"] = float(given.mean())
        figures["accuracy_of_answered"] = float(right.mean()) if given.any() else None
        ends = intervals.share_interval(int(right.sum()), len(right))
        figures["accuracy_of_answered_interval"] = list(ends) if given.any() else None
        for number, label in enumerate(dataset.labels):
            has_it = split.targets[:, number].astype(bool) if split.targets.ndim == 2 else split.targets == number
            figures["per_label"][label]["coverage"] = float(given[has_it].mean()) if has_it.any() else None
    return figures


def described(dataset: Dataset) -> dict[str, Any]:
    """The data as it was read."""
    return {
        "fingerprint": dataset.fingerprint,
        "rows": len(dataset),
        "files": [{"file": s.name, "format": s.format, "encoding": s.encoding.name} for s in dataset.sources],
        "bad_rows": len(dataset.bad_rows),
        "leaked_rows": len(dataset.leaked),
    }


def predictions(dataset: Dataset, outcome: Outcome, decisions: DecisionLayer) -> list[str]:
    """Each row of a split as a JSON line: text, truth, and the answer as `predict` gives it."""
    lines = []
    answers = decisions.predictions(outcome.answers)
    for row, text, answer in zip(outcome.split.rows, outcome.split.texts, answers, strict=True):
        truth = dataset.label_names(int(row))
        labelled = {"truth": truth[0]} if dataset.task == "single" else {"truth": list(truth)}
        file, line = dataset.place(int(row))
        found = {"text": text, **labelled, **answer.to_dict(), "file": file, "line": line}
        lines.append(json.dumps(found, ensure_ascii=False))
    return lines


def _calibration(dataset: Dataset, layer: DecisionLayer, test: Outcome, losses: Mapping[str, float]) -> Figures:
    """How far scores could be believed before and after, on test."""
    if not len(test.split):
        return {}
    plain = replace(layer, calibration=AS_THEY_ARE).answers(test.raw)
    parts = {"before": plain, "after": test.answers}
    figures = {
        when: metrics.belief(dataset.task, truth=test.split.targets, answers=answers.chosen, scores=answers.scores)
        for when, answers in parts.items()
    }
    return {
        "method": layer.calibration.method,
        "losses": dict(losses),
        "ece_by_chance": _chance_error(test.answers),
        **figures,
        "reliability": {when: _reliability(test.split, answers) for when, answers in parts.items()},
    }


def _chance_error(answers: Answers) -> float:
    if answers.chosen.ndim == 1:
        return metrics.chance_error(answers.scores.max(axis=1))
    return float(np.mean([metrics.chance_error(of_label) for of_label in answers.scores.T]))


def _reliability(split: Split, answers: Answers) -> list[dict[str, float]]:
    if split.targets.ndim == 2:
        return metrics.reliability(answers.scores.ravel(), split.targets.ravel())
    return metrics.reliability(answers.scores.max(axis=1), answers.chosen == split.targets)


def _coverage(test: Outcome) -> list[dict[str, float]]:
    """What abstaining below each of some scores would come to on test: texts answered, and how many of them right."""
    if not len(test.split):
        return []
    sure = confidence(test.answers.scores.round(DIGITS), test.answers.chosen)
    order = np.argsort(-sure, kind="stable")
    right = np.cumsum(are_right(test.answers.chosen, test.split.targets)[order])
    rows = len(order)
    ends = np.unique(np.linspace(0, rows - 1, min(rows, COVERAGE_POINTS)).round().astype(int))
    # Equal scores are answered together: each point stands at the last row with its score.
    ends = np.unique(np.searchsorted(-sure[order], -sure[order][ends], side="right") - 1)
    return [
        {
            "below": round(float(sure[order][end]), DIGITS), "coverage": round(float(answered / rows), DIGITS),
            "right": round(float(right[end] / answered), DIGITS),
        }
        for end, answered in zip(ends, ends + 1, strict=True)
    ]  # fmt: skip


def _sets(layer: DecisionLayer, test: Outcome) -> list[dict[str, float]]:
    """For some promises of coverage what was kept on test, and how many labels it took."""
    if not layer.floors or not len(test.split):
        return []
    found = []
    for promised in SET_COVERAGES:
        sets = layer.sets(test.answers, coverage=promised)
        truth = test.split.targets
        covered = sets[np.arange(len(truth)), truth] if truth.ndim == 1 else (sets | ~truth.astype(bool)).all(axis=1)
        found.append({"promised": promised, "reached": float(covered.mean()), "labels": float(sets.sum(axis=1).mean())})
    return found


def _threshold_curves(dataset: Dataset, test: Outcome) -> dict[str, Any]:
    """Task `multi`: precision, recall and F1 of each label on test over the threshold."""
    if dataset.task == "single" or not len(test.split):
        return {}
    truth = test.split.targets.astype(bool)
    by_threshold = [
        metrics.per_label_parts(
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
        },
    }


def _slices(dataset: Dataset, test: Outcome) -> list[dict[str, Any]]:
    if not len(test.split):
        return []
    found = slices.find(dataset, test.split, are_right(test.answers.chosen, test.split.targets))
    return [asdict(each) | {"is_worse": each.is_worse} for each in found]


def _explained(predictor: Predictor, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same rows, the first of them with the words that pushed the wrong answer."""
    left = EXPLAINED_CHARACTERS
    for row in rows[:EXPLAINED]:
        text = row["text"] if isinstance(row["text"], str) else (row["text"][0], row["text"][1])
        size = length_of(text)
        left -= size * min(size // 5 + 1, words.MOST_PIECES)
        if left < 0:
            break
        if label := next((name for name in row["answer"] if name not in row["truth"]), None):
            row["pushed_to"] = label
            row["pushes"] = [
                [push.start, push.end, round(push.weight, 3), push.side] for push in predictor.explain(text, label)
            ]
    return rows
