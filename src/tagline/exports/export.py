"""Export of another form into a bundle, checked on its measured rows before it is used."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tagline import registry
from tagline.errors import RunError
from tagline.evaluation import metrics
from tagline.models import Classifier, Scorer, Scores
from tagline.prediction import bundle
from tagline.prediction.bundle import CARD, Bundle, load_classifier
from tagline.prediction.decisions import DecisionLayer, are_right
from tagline.prediction.predictor import score_texts
from tagline.reports import markdown

if TYPE_CHECKING:
    from tagline.data.texts import Text

MOST_LOST = 0.003
"""The loss of macro-F1 up to which a smaller and faster form is used."""


@dataclass(frozen=True)
class MeasuredRows:
    """Rows with their truth, and the measured answers of the original form."""

    texts: "Sequence[Text]"
    truth: Any
    chosen: Any
    scores: NDArray[np.floating[Any]]
    """Calibrated."""

    @classmethod
    def from_rows(cls, rows: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> "MeasuredRows":
        """Create from the lines of a run's predictions.jsonl."""
        try:
            return cls(
                [row["text"] if isinstance(row["text"], str) else tuple(row["text"]) for row in rows],
                metrics.encode_targets([row["truth"] for row in rows], labels),
                metrics.encode_targets([row.get("label", row.get("labels")) for row in rows], labels),
                np.array([[row["scores"][label] for label in labels] for row in rows], np.float64),
            )
        except (LookupError, TypeError, ValueError) as error:
            hint = "name the run that made the bundle, or train it again"
            problem = f"predictions.jsonl does not belong to this bundle: {type(error).__name__}: {error}"
            raise RunError(problem, hint=hint) from error


@dataclass(frozen=True)
class ExportedForms:
    """Other forms of a model, by name, with their raw scores of the measured rows and their comparisons."""

    scorers: Mapping[str, Scorer] = field(default_factory=dict)
    scores: Mapping[str, Scores] = field(default_factory=dict)
    checks: dict[str, dict[str, float]] = field(default_factory=dict)
    runtime: Literal["", "float32", "int8"] = ""
    """The form used for prediction; empty: the model's own."""


def add_forms(
    classifier: Classifier,
    directory: Path,
    *,
    to: str,
    family: str,
    layer: DecisionLayer,
    measured: MeasuredRows,
    samples: "Sequence[Text]",
) -> ExportedForms:
    """Write a model's other forms beside it, calibrated with sample texts, and check each on the measured rows."""
    exporter = registry.find("exports", to)()
    exporter.write(classifier, directory, family=family, samples=samples)
    scorers: Mapping[str, Scorer] = exporter.forms(directory, family=family)
    scores = {name: score_texts(each, measured.texts, labels=len(layer.labels)) for name, each in scorers.items()}
    checks = {name: _compare_answers(each, layer, measured) for name, each in scores.items()}
    return ExportedForms(scorers, scores, checks, choose_form(checks) if classifier.uses_device else "")


def export(directory: Path, to: str, *, measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add a form to a bundle, in place and atomically; return the result of the check and the form used now.

    `measured` are the test rows of the run that made the bundle, with truth and answer.
    """
    loaded = Bundle.load(directory)
    if not measured:
        hint = "name the run that made it: its predictions.jsonl holds the rows to check with"
        raise RunError(f"{directory} has no test rows beside it, so that an export could not be checked", hint=hint)
    family, layer = loaded.manifest.family, loaded.decisions
    exported: list[ExportedForms] = []

    def fill(scratch: Path) -> dict[str, Any]:
        for name in loaded.manifest.files:
            if name != CARD:
                (scratch / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(directory / name, scratch / name)
        rows = MeasuredRows.from_rows(measured, layer.labels)
        model = load_classifier(family, directory)
        # The training texts are not available; the labels of these are not used.
        forms = add_forms(model, scratch, to=to, family=family, layer=layer, measured=rows, samples=rows.texts)
        exported.append(forms)
        fields = loaded.manifest.model_dump(exclude={"format", "files", "sha256"})
        return fields | {"exports": forms.checks, "runtime": forms.runtime}

    card = (directory / CARD).read_text("utf-8")
    bundle.replace(directory, fill=fill, card=lambda manifest: markdown.update_form_section(card, manifest))
    return {"bundle": str(directory), "exports": exported[0].checks, "runtime": exported[0].runtime}


def choose_form(checks: Mapping[str, Mapping[str, float]]) -> Literal["", "float32", "int8"]:
    """Return int8 if it loses next to nothing, else float32 if that does, else empty."""
    lossless = [name for name, check in checks.items() if check["macro_f1"] >= -MOST_LOST]
    return "int8" if "int8" in lossless else "float32" if "float32" in lossless else ""


def _compare_answers(scores: Scores, layer: DecisionLayer, measured: MeasuredRows) -> dict[str, float]:
    """Compare a form's answers with the measured ones."""
    answers = layer.answers(scores)
    before, after = (
        metrics.measure(layer.task, layer.labels, truth=measured.truth, answers=chosen, scores=form_scores)
        for chosen, form_scores in ((measured.chosen, measured.scores), (answers.chosen, answers.scores))
    )
    changes = {name: (after[name] or 0.0) - (before[name] or 0.0) for name in metrics.SIDE_BY_SIDE}
    return {
        "rows": len(measured.texts),
        "equal_answers": float(are_right(answers.chosen, measured.chosen).mean()),
        "largest_difference": float(np.abs(answers.scores - measured.scores).max()),
        **changes,
    }
