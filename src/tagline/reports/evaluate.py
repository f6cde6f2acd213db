"""Evaluation of a bundle on other data."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tagline import spec as specs
from tagline.data import dataset
from tagline.data.checks import SHOWN_ROWS, Finding, check_skipped_rows, check_unlabelled_values
from tagline.data.columns import missing_columns
from tagline.data.dataset import Dataset, Split
from tagline.errors import DataError, SpecError
from tagline.evaluation import gates
from tagline.evaluation.schema import Report
from tagline.prediction.bundle import Bundle
from tagline.prediction.predictor import Predictor
from tagline.reports import report
from tagline.spec import Data, Gates
from tagline.system import extras

MOST_NAMED = 20
HOW_FILES_ARE_READ = ("format", "separator", "header", "encoding", "split")


@extras.explain_missing_packages()
def evaluate(bundle: str | Path, data: str | Path, *overrides: str) -> Report:
    """Evaluate a bundle on every row of other data; the columns are those that it was trained on."""
    opened = Bundle.load(bundle)
    predictor, manifest = Predictor.of(opened), opened.manifest
    settings, wanted = resolve_settings(opened, str(data), overrides)
    if problems := missing_columns(settings):
        raise SpecError.from_problems("the evaluation", problems)
    loaded = dataset.load(settings, every_label_named=False)
    measured = _map_labels(loaded, manifest.labels, manifest.task)
    gates.check_names(wanted, task=measured.task, labels=measured.labels)
    split = measured.splits["test"]
    raw = predictor.scores(split.texts)
    findings = [
        *check_skipped_rows(measured),
        *check_unlabelled_values(measured),
        *_warn_unknown_labels(measured, manifest.labels),
        *_warn_trained_on(measured, manifest.fingerprint),
    ]
    answers = report.pad_answers(predictor.decisions.answers(raw), labels=len(measured.labels))
    return report.build_report(
        measured,
        predictor,
        family=manifest.family,
        wanted=wanted,
        findings=findings,
        test=report.SplitPredictions(split, raw, answers),
        runtime=manifest.runtime,
        exports=manifest.exports,
    )


def _warn_trained_on(measured: Dataset, trained_on: str) -> Iterator[Finding]:
    """Yield a warning if this is the data that the bundle was trained on (data leakage)."""
    if measured.fingerprint == trained_on:
        message = "this is the data that the bundle was trained on: most of its rows are no test"
        yield Finding("trained-on", "warning", message, "measure it on other rows; the run's report has its test split")


def resolve_settings(bundle: Bundle, address: str, overrides: Sequence[str]) -> tuple[Data, Gates]:
    """Return the data settings for another file, with format and encoding detected anew, and the bundle's gates."""
    trained = {k: v for k, v in bundle.manifest.spec["data"].items() if k not in HOW_FILES_ARE_READ}
    whole = {
        "train": address,
        "validation": "",
        "test": "",
        "validation_share": 0.0,
        "test_share": 0.0,
        "fraction": 1.0,
        "learning_fraction": 1.0,
        "slices": [],
    }
    raw = specs.apply_overrides({"data": trained | whole, "gates": bundle.manifest.spec.get("gates", {})}, overrides)
    if unknown := sorted(set(raw) - {"data", "gates"}):
        raise SpecError(f"only data.* and gates.* settings can be changed here, not {unknown[0]}.*")
    problems: list[str] = []
    settings, wanted = (specs.check_section(name, raw, problems) for name in ("data", "gates"))
    if problems:
        raise SpecError.from_problems("the evaluation", problems)
    return settings.model_copy(update={"unlabelled": _find_unlabelled_values(settings, bundle.manifest.labels)}), wanted


def _find_unlabelled_values(settings: Data, labels: Sequence[str]) -> tuple[str, ...]:
    """Return the values that mean no label, by the labels of the bundle: this file may lack some of them."""
    if settings.unlabelled != "auto":
        return settings.unlabelled
    values = set(settings.names_by_value or labels)
    if settings.label_separator:
        return ()
    unlabelled = dataset.unlabelled_among({*values, dataset.NO_AGREEMENT, dataset.HIDDEN})
    return tuple(value for value in unlabelled if value not in values)


def _map_labels(data: Dataset, labels: tuple[str, ...], task: str) -> Dataset:
    """Return the same rows with the bundle's labels, as one test split."""
    used = [name for number, name in enumerate(data.labels) if _has_label(data, number).any()]
    unknown = [name for name in used if name not in labels]
    if unknown and len(unknown) == len(used):
        files = ", ".join(source.name for source in data.sources)
        raise DataError(
            f"no label of {files} is one of the bundle: it has {_join_names(used)}; "
            f"the bundle has {_join_names(labels)}",
            hint="is data.labels the right column? data.label_names gives values the names that the bundle knows",
        )
    labels = (*labels, *unknown)
    position = np.array([labels.index(name) if name in labels else -1 for name in data.labels], dtype=np.int64)
    rows = np.arange(len(data))  # every row, whatever split the file or its format assigns it to
    if task == "multi":
        targets = np.zeros((len(rows), len(labels)), dtype=bool)
        truth = data.targets if data.task == "multi" else np.eye(len(data.labels), dtype=bool)[data.targets]
        targets[:, position[position >= 0]] = truth[:, position >= 0]
    elif data.task == "multi":
        raise DataError("the bundle gives one label a text; this data has several", hint="see data.labels")
    else:
        targets = position[data.targets[rows]]
    splits = {"train": data.select(), "validation": data.select(), "test": Split(data.texts(rows), targets, rows)}
    return replace(data, task=task, labels=labels, splits=splits)  # type: ignore[arg-type]


def _warn_unknown_labels(measured: Dataset, known: Sequence[str]) -> Iterator[Finding]:
    """Yield a warning for each label that the bundle lacks: its rows are measured, and no answer is right."""
    for number in range(len(known), len(measured.labels)):
        targets = measured.splits["test"].targets
        rows = np.flatnonzero(targets[:, number] if targets.ndim == 2 else targets == number)
        places = ", ".join(f"{file}:{line}" for file, line in map(measured.place, map(int, rows[:SHOWN_ROWS])))
        more = ", ..." if len(rows) > SHOWN_ROWS else ""
        count = "1 row" if len(rows) == 1 else f"{len(rows):,} rows"
        message = f'the bundle has no label "{measured.labels[number]}"'
        message += f": no answer to {count} ({places}{more}) can be right"
        yield Finding("unknown-label", "warning", message, "rename the label in the data, or train on it")


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _has_label(data: Dataset, label: int) -> Any:
    return data.targets[:, label] if data.targets.ndim == 2 else data.targets == label
