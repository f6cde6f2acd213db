"""A bundle given another form, which is checked on the rows that it was measured on before anyone uses it."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tagline import bundle, metrics, registry
from tagline.bundle import CARD, Bundle, load_classifier
from tagline.decisions import DecisionLayer
from tagline.errors import RunError

MOST_LOST = 0.003
"""Of macro-F1, up to which the smaller and faster form is used."""


def export(directory: Path, to: str, *, measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add a form to a bundle, in place and all at once; returns what the check found and which form is used now.

    `measured` are the test rows of the run that made the bundle, with truth and answer.
    """
    if not measured:
        hint = "name the run that made it: its predictions.jsonl holds the rows to check with"
        raise RunError(f"{directory} has no test rows beside it, so that an export could not be checked", hint=hint)
    opened = Bundle.load(directory)
    exporter = registry.find("exports", to)()
    found: dict[str, Any] = {}

    def fill(scratch: Path) -> dict[str, Any]:
        for name in opened.manifest.files:
            if name != CARD:
                (scratch / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(directory / name, scratch / name)
        exporter.write(load_classifier(opened.manifest.family, directory), scratch)
        texts = [row["text"] if isinstance(row["text"], str) else tuple(row["text"]) for row in measured]
        for name, classifier in exporter.forms(scratch).items():
            found[name] = _checked(classifier.scores(texts), opened.decisions, measured)
        fields = opened.manifest.model_dump(exclude={"format", "files", "sha256"})
        return fields | {"exports": found, "runtime": _best(found)}

    card = (directory / CARD).read_text("utf-8")
    bundle.replace(directory, fill=fill, card=lambda _: card)
    return {"bundle": str(directory), "exports": found, "runtime": _best(found)}


def _checked(scores: Any, layer: DecisionLayer, measured: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """How a form's answers compare with those that were measured."""
    truth = metrics.targets([row["truth"] for row in measured], layer.labels)
    before = metrics.targets([row.get("label", row.get("labels")) for row in measured], layer.labels)
    answers = layer.answers(scores)
    old_scores = np.array([[row["scores"][label] for label in layer.labels] for row in measured])
    figures = [
        metrics.measure(layer.task, layer.labels, truth=truth, answers=said, scores=by)
        for said, by in ((before, old_scores), (answers.chosen, answers.scores))
    ]
    changes = {name: (figures[1][name] or 0.0) - (figures[0][name] or 0.0) for name in metrics.SIDE_BY_SIDE}
    return {
        "rows": len(measured), "equal_answers": float(metrics.are_right(answers.chosen, before).mean()),
        "largest_difference": float(np.abs(answers.scores - old_scores).max()), **changes,
    }  # fmt: skip


def _best(found: Mapping[str, Mapping[str, float]]) -> str:
    """The eight-bit form where it loses next to nothing, else the one of full precision."""
    return "int8" if "int8" in found and found["int8"]["macro_f1"] >= -MOST_LOST else "float32"
