"""Comparison of runs on the same test rows: the differences, and their significance."""

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tagline.data.checks import Finding
from tagline.data.dataset import Dataset
from tagline.errors import RunError, SpecError
from tagline.evaluation import metrics, paired_tests, resampling
from tagline.evaluation.baselines import RIVALS
from tagline.evaluation.metrics import SIDE_BY_SIDE
from tagline.evaluation.paired_tests import Difference
from tagline.evaluation.schema import Report
from tagline.reports.advice import main_figure
from tagline.runs.lookup import find_run, list_runs
from tagline.runs.run import Run

Comparison = dict[str, Any]


def compare(*names: str | Path, runs: str | Path = "runs") -> Comparison:
    """Compare runs: a table, the best first, and whether each of the others is significantly worse."""
    if len(names) < 2:
        raise SpecError("compare takes two runs or more", hint="tagline runs list shows them")
    measured = [_MeasuredRun.read_run(find_run(str(name), runs)) for name in names]
    names_found = [each.run.name for each in measured]
    if twice := [name for name in names_found if names_found.count(name) > 1]:
        raise SpecError(f"run {twice[0]} is named twice")
    for other in measured[1:]:
        _check_same_rows(measured[0], other)
    figure = "macro_f1"
    rows = {each.run.name: each.to_row() for each in measured}
    ordered = sorted(measured, key=lambda each: -(each.report.test[figure] or 0.0))
    best = ordered[0]
    return {
        "figure": figure,
        "rows": len(best.truth),
        "runs": [rows[each.run.name] for each in ordered],
        "differences": [_describe_difference(best, other, figure) for other in ordered[1:]],
    }


def find_few_shot_result(data: Dataset, *, runs: str | Path = "runs") -> Finding | None:
    """Return how fine-tuning and family fewshot compared in the newest run on the same data; None if no run tells."""
    for run in reversed(list_runs(runs)):
        report = None
        with suppress(RunError):  # of another version, or damaged: skipped
            candidate = run.report()
            report = candidate if candidate and _is_same_data(run, candidate, data) else None
        if not report:
            continue
        family, name = report.family, main_figure(report)
        rival, _ = RIVALS.get(family, ("", {}))
        if rival in report.baselines:
            figures = {family: report.test[name], rival: report.baselines[rival][name]}
            best = max(figures, key=lambda each: figures[each])
            advice = f"use model.family={best}" if min(figures.values()) < figures[best] else "either will do"
            measured = " and ".join(f"{each} {figure:.3f}" for each, figure in figures.items())
            problem = f"few rows a label: on this data run {run.name} measured {measured} ({name}, test)"
            return Finding("few-shots", "note", problem, advice)
    return None


def _is_same_data(run: Run, report: Report, data: Dataset) -> bool:
    """Return whether a run was trained and measured on the same rows."""
    sizes = {name: len(split) for name, split in data.splits.items()}
    return run.lock().get("data_fingerprint") == data.fingerprint and report.splits == sizes


class _MeasuredRun:
    """A run with its test answers as arrays."""

    def __init__(self, run: Run, report: Report, rows: list[dict[str, Any]]) -> None:
        self.run = run
        self.report = report
        self.keys = [(json.dumps(row["text"], ensure_ascii=False), json.dumps(row["truth"])) for row in rows]
        self.truth = metrics.encode_targets([row["truth"] for row in rows], report.labels)
        self.answers = metrics.encode_targets([row.get("label", row.get("labels")) for row in rows], report.labels)

    @classmethod
    def read_run(cls, run: Run) -> "_MeasuredRun":
        """Read a run's report and test answers."""
        report = run.report()
        if report is None:
            state = run.state()
            raise RunError(f"run {run.name} has no report: it is {state.name}", hint=state.reason)
        if not report.test.rows:
            raise RunError(
                f"run {run.name} measured nothing: it has no test row", hint="give data.test and train again"
            )
        rows = run.predictions()
        with run.reading("predictions.jsonl"):
            return cls(run, report, rows)

    def to_row(self) -> dict[str, Any]:
        """Return the run's row of the table."""
        test = self.report.test
        with self.run.reading("report.json"):
            return {
                "name": self.run.name,
                "directory": self.run.address,
                "family": self.report.family,
                "main": main_figure(self.report),
                "figures": {name: test[name] for name in SIDE_BY_SIDE},
                "intervals": test.intervals,
            }


def _check_same_rows(first: _MeasuredRun, other: _MeasuredRun) -> None:
    """Raise RunError if the test rows differ: a difference of the figures may then be due to the rows."""
    if first.report.labels != other.report.labels:
        hint = "train both on the same data"
        raise RunError(f"runs {first.run.name} and {other.run.name} have different labels", hint=hint)
    if first.keys == other.keys:
        return
    common = len(set(first.keys) & set(other.keys))
    raise RunError(
        f"runs {first.run.name} and {other.run.name} were measured on different test rows "
        f"({len(first.keys):,} and {len(other.keys):,}, {common:,} in common), so their figures cannot be compared",
        hint="keep data.test, or data.seed and the shares, the same for both",
    )


def _describe_difference(best: _MeasuredRun, other: _MeasuredRun, figure: str) -> dict[str, Any]:
    task = best.report.task
    difference = paired_tests.compare_models(
        task, truth=best.truth, first=best.answers, second=other.answers, figure=figure
    )
    sentence = _format_difference(difference, best.run.name, other.run.name)
    return {
        "best": best.run.name,
        "other": other.run.name,
        **asdict(difference),
        "is_real": difference.is_real,
        "sentence": sentence,
    }


def _format_difference(difference: Difference, best: str, other: str) -> str:
    """Write whether the difference is significant."""
    low, high = difference.interval
    measured = f"{difference.figure} {difference.gain:+.3f} (95 % interval {low:+.3f} to {high:+.3f})"
    discordant = (
        f"{difference.only_first} rows only the first gets right, {difference.only_second} only the second; "
        f"McNemar's p = {difference.p_value:.2g}"
    )
    if difference.is_real:
        verdict = f"{best} is better than {other}"
    elif difference.is_divided and difference.p_value < 1 - resampling.LEVEL:
        verdict = f"{best} has the better {difference.figure}, but {other} gets more rows right"
    elif difference.leaves_out_zero or difference.p_value < 1 - resampling.LEVEL:
        verdict = f"{best} may be better than {other}, but only one of two tests says so"
    else:
        verdict = f"{best} and {other} cannot be told apart on these rows"
    return f"{verdict}: {measured}; {discordant}."
