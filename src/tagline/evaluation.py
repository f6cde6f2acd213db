"""A bundle measured on other data."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tagline import dataset, gates, report
from tagline import spec as specs
from tagline.bundle import Bundle
from tagline.checks import Finding, skipped_rows
from tagline.columns import missing_columns
from tagline.dataset import Dataset, Split
from tagline.errors import DataError, SpecError
from tagline.predictor import Predictor
from tagline.spec import Data, Gates

HOW_FILES_ARE_READ = ("format", "separator", "header", "encoding", "split")


def evaluate(bundle: str | Path, data: str | Path, *overrides: str) -> dict[str, Any]:
    """A report of this bundle on that data, every row of it; columns are those the bundle was trained on."""
    opened = Bundle.load(bundle)
    predictor, manifest = Predictor.of(opened), opened.manifest
    settings, wanted = settings_for(opened, str(data), overrides)
    if problems := missing_columns(settings):
        raise SpecError.listing("the evaluation", problems)
    measured = _in_terms_of(dataset.load(settings), manifest.labels, manifest.task)
    gates.check_names(wanted, task=measured.task, labels=measured.labels)
    split = measured.splits["test"]
    raw = predictor.scores(split.texts)
    return report.build(
        measured, predictor, family=manifest.family, wanted=wanted,
        findings=[*skipped_rows(measured), *_seen_before(measured, manifest.fingerprint)],
        test=report.Outcome(split, raw, predictor.decisions.answers(raw)),
        runtime=manifest.runtime, exports=manifest.exports,
    )  # fmt: skip


def _seen_before(measured: Dataset, trained_on: str) -> Iterator[Finding]:
    """A warning where this is the very data that the bundle was trained on."""
    if measured.fingerprint == trained_on:
        message = "this is the data that the bundle was trained on: most of its rows are no test"
        yield Finding("trained-on", "warning", message, "measure it on other rows; the run's report has its test split")


def settings_for(bundle: Bundle, address: str, overrides: Sequence[str]) -> tuple[Data, Gates]:
    """How to read another file for this bundle, its formats and encodings looked at anew, and the bundle's gates."""
    trained = {k: v for k, v in bundle.manifest.spec["data"].items() if k not in HOW_FILES_ARE_READ}
    whole = {
        "train": address,
        "validation": "",
        "test": "",
        "validation_share": 0.0,
        "test_share": 0.0,
        "fraction": 1.0,
        "slices": [],
    }
    raw = specs.override({"data": trained | whole, "gates": bundle.manifest.spec.get("gates", {})}, overrides)
    if unknown := sorted(set(raw) - {"data", "gates"}):
        raise SpecError(f"only data.* and gates.* settings can be changed here, not {unknown[0]}.*")
    problems: list[str] = []
    settings, wanted = (specs.check_section(name, raw, problems) for name in ("data", "gates"))
    if problems:
        raise SpecError.listing("the evaluation", problems)
    return settings, wanted


def _in_terms_of(found: Dataset, labels: tuple[str, ...], task: str) -> Dataset:
    """The same rows with the bundle's labels, as one test split."""
    if unknown := [name for name in found.labels if name not in labels]:
        row = int(np.flatnonzero(_has_label(found, found.labels.index(unknown[0])))[0])
        example = found.example(row)
        raise DataError(
            f'{example.file}:{example.line}: the bundle has no label "{unknown[0]}"; it has: {", ".join(labels)}',
            hint="rename the label in the data, or train on it",
        )
    position = np.array([labels.index(name) for name in found.labels], dtype=np.int64)
    rows = np.arange(len(found))  # every row, whatever split the file or its format deals it to
    if task == "multi":
        targets = np.zeros((len(rows), len(labels)), dtype=bool)
        truth = found.targets if found.task == "multi" else np.eye(len(found.labels), dtype=bool)[found.targets]
        targets[:, position] = truth[rows]
    elif found.task == "multi":
        raise DataError("the bundle gives one label a text; this data has several", hint="see data.labels")
    else:
        targets = position[found.targets[rows]]
    splits = {"train": found.select(), "validation": found.select(), "test": Split(found.texts(rows), targets, rows)}
    return replace(found, task=task, labels=labels, splits=splits)  # type: ignore[arg-type]


def _has_label(found: Dataset, label: int) -> Any:
    return found.targets[:, label] if found.targets.ndim == 2 else found.targets == label
