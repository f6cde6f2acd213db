"""The report: what was measured, as JSON, and the model card."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tagline import metrics
from tagline.bundle import Manifest
from tagline.checks import Finding
from tagline.dataset import SPLITS, Dataset, Split
from tagline.decisions import Answers, DecisionLayer

FORMAT = 1


def build(
    dataset: Dataset,
    decisions: DecisionLayer,
    *,
    family: str,
    findings: Sequence[Finding],
    answers: Mapping[str, Answers],
) -> dict[str, Any]:
    """Everything measured on a dataset. The same spec, data and seed give the same report."""
    return {
        "format": FORMAT,
        "task": dataset.task,
        "pair": dataset.pair,
        "labels": list(dataset.labels),
        "family": family,
        "splits": {name: len(dataset.splits[name]) for name in SPLITS},
        "test": measured(dataset, dataset.splits["test"], answers["test"]),
        "validation": measured(dataset, dataset.splits["validation"], answers["validation"]),
        "baseline": majority(dataset),
        "decisions": decisions.to_dict(),
        "data": described(dataset),
        "findings": listed(findings),
    }


def listed(findings: Sequence[Finding]) -> list[dict[str, str]]:
    """What the checks found, without the rows."""
    return [{"code": f.code, "severity": f.severity, "message": f.message, "advice": f.advice} for f in findings]


def measured(dataset: Dataset, split: Split, answers: Answers) -> dict[str, Any]:
    """The figures of one split, and with abstention how many answers were given and how good those are."""
    figures = metrics.measure(
        dataset.task, dataset.labels, truth=split.targets, answers=answers.chosen, scores=answers.scores
    )  # fmt: skip
    if len(split) and answers.abstained.any():
        given = ~answers.abstained
        right = answers.chosen[given] == split.targets[given]
        figures["coverage"] = float(given.mean())
        figures["accuracy_of_answered"] = (
            float((right if right.ndim == 1 else right.all(1)).mean()) if given.any() else None
        )
    return figures


def majority(dataset: Dataset) -> dict[str, Any]:
    """What answering the most frequent training label everywhere would reach on test."""
    train, test = dataset.splits["train"].targets, dataset.splits["test"].targets
    if not len(train) or not len(test):
        return {}
    if dataset.task == "single":
        most = int(np.bincount(train).argmax())
        return {"label": dataset.labels[most], "accuracy": float((test == most).mean())}
    kinds, counts = np.unique(train, axis=0, return_counts=True)
    usual = kinds[counts.argmax()]
    names = [label for label, hot in zip(dataset.labels, usual, strict=True) if hot]
    return {"labels": names, "accuracy": float((test == usual).all(axis=1).mean())}


def described(dataset: Dataset) -> dict[str, Any]:
    """The data as it was read."""
    return {
        "fingerprint": dataset.fingerprint,
        "rows": len(dataset),
        "files": [{"file": s.name, "format": s.format, "encoding": s.encoding.name} for s in dataset.sources],
        "bad_rows": len(dataset.bad_rows),
        "leaked_rows": len(dataset.leaked),
    }


def predictions(dataset: Dataset, split: Split, answers: Answers, decisions: DecisionLayer) -> list[str]:
    """Each row of a split as a JSON line: text, truth, and the answer as `predict` gives it."""
    lines = []
    for row, text, answer in zip(split.rows, split.texts, decisions.predictions(answers), strict=True):
        truth = dataset.label_names(int(row))
        labelled = {"truth": truth[0]} if dataset.task == "single" else {"truth": list(truth)}
        file, line = dataset.place(int(row))
        found = {"text": text, **labelled, **answer.to_dict(), "file": file, "line": line}
        lines.append(json.dumps(found, ensure_ascii=False))
    return lines


def model_card(manifest: Manifest, report: dict[str, Any]) -> str:
    """The bundle's README: what it is, how good, on what, and how to use it."""
    figures = report["test"]
    rows = [
        f"| {name} | {figures[name]:.3f} |" for name in metrics.HEADLINE[manifest.task] if figures.get(name) is not None
    ]
    per_label = [
        f"| {_markdown(name)} | {f['precision']:.2f} | {f['recall']:.2f} | {f['f1']:.2f} | {f['support']} |"
        for name, f in figures.get("per_label", {}).items()
    ]
    splits = ", ".join(f"{rows} {name}" for name, rows in report["splits"].items())
    warnings = [f"- {_markdown(finding['message'])}" for finding in report["findings"] if finding["severity"] != "note"]
    text = "(first text, second text)" if manifest.pair else '"a text"'
    return "\n".join([
        "# A text classifier made by Tagline",
        "",
        f"Family `{manifest.family}`, task `{manifest.task}`{', pairs of texts' if manifest.pair else ''}, "
        f"{len(manifest.labels)} labels. Rows: {splits}.",
        "",
        "## How good it is",
        "",
        f"Measured on the {report['splits']['test']} rows of the test split, which it never saw in training.",
        "",
        "| figure | test |", "|---|---|", *rows,
        "",
        "| label | precision | recall | F1 | rows |", "|---|---|---|---|---|", *per_label,
        "",
        "## What to know about its data",
        "",
        *(warnings or ["- the checks found nothing to warn about"]),
        f"- fingerprint `{manifest.fingerprint[:16]}`",
        "",
        "## How to use it",
        "",
        "```python", "import tagline", "", 'predictor = tagline.load("bundle")', f"predictor.predict([{text}])", "```",
        "",
        "Its answers are for texts like those it learned from. "
        + ("A text about something else still gets one of its labels, unless abstention is set."
           if manifest.task == "single" else "A text about something else may get labels all the same."),
        "",
    ])  # fmt: skip


def _markdown(text: str) -> str:
    """A text from the data that Markdown shows as it is: no table cell, link or tag comes of it."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~])", r"\\\1", " ".join(text.split()))
