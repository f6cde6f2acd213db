"""Reads the metrics that trials report through cloudml-hypertune; decides on early stopping."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from vertex_rehearsal.api.messages import v1

MINIMIZE = 2
BEST_MEASUREMENT = 2


class MetricFile:
    """The metric file of one trial, rewritten with each report and limited to the last hundred."""

    def __init__(self, path: Path, metrics: Sequence[str]) -> None:
        self._path = path
        self._metrics = metrics
        self._seen: set[str] = set()
        self.began_s = 0.0
        """The trial's start time, in seconds since 1970."""
        self.measurements: list[Any] = []
        self.not_numbers: set[str] = set()
        """Metrics that were reported with a value other than a finite number."""

    def read(self) -> bool:
        """Read new reports; return whether there were any."""
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return False
        before = len(self._seen)
        for line in text.splitlines(keepends=True):
            if line.endswith("\n") and line not in self._seen:  # an incomplete line is still being written
                self._parse_line(line)
        return len(self._seen) > before

    def _parse_line(self, line: str) -> None:
        try:
            report = json.loads(line)
            step = int(report.get("global_step", 0))
            moment_s = float(report.get("timestamp", 0.0))
        except (ValueError, TypeError, AttributeError):
            return
        self._seen.add(line)
        for metric in self._metrics:
            if metric in report:
                self._add_value(metric, report[metric], step, moment_s - self.began_s)

    def _add_value(self, metric: str, said: Any, step: int, elapsed_s: float) -> None:
        try:
            value = float(said)
        except (ValueError, TypeError):
            value = math.nan
        if not math.isfinite(value):
            self.not_numbers.add(metric)
            return
        last = self.measurements[-1] if self.measurements else None
        if last is None or last.step_count != step or any(one.metric_id == metric for one in last.metrics):
            last = v1.Measurement(step_count=step)
            last.elapsed_duration.FromNanoseconds(round(max(0.0, elapsed_s) * 1e9))
            self.measurements.append(last)
        last.metrics.add(metric_id=metric, value=value)


def get_metric_value(measurement: Any, metric: str) -> float | None:
    """Return the value of a metric in a measurement."""
    return next((one.value for one in measurement.metrics if one.metric_id == metric), None)


def select_final(measurements: Sequence[Any], spec: Any) -> Any | None:
    """Return a trial's final measurement: the last with every metric, or the best by the first metric."""
    names = [metric.metric_id for metric in spec.metrics]
    whole = [one for one in measurements if all(get_metric_value(one, name) is not None for name in names)]
    if not whole:
        return None
    if spec.measurement_selection_type == BEST_MEASUREMENT:
        return max(whole, key=lambda one: _score_measurement(one, spec))
    return whole[-1]


def _score_measurement(measurement: Any, spec: Any) -> float:
    value = get_metric_value(measurement, spec.metrics[0].metric_id)
    if value is None:
        return -math.inf
    return -value if spec.metrics[0].goal == MINIMIZE else value


def is_hopeless(measurements: Sequence[Any], completed: Sequence[Sequence[Any]], spec: Any) -> bool:
    """Whether a trial should stop early by the median rule: its best is below the completed trials' median."""
    if not measurements or not completed:
        return False
    by_time = spec.median_automated_stopping_spec.use_elapsed_duration

    def measure_progress(one: Any) -> int:
        return int(one.elapsed_duration.ToNanoseconds() if by_time else one.step_count)

    last = measure_progress(measurements[-1])
    averages = [
        fmean(by_then)
        for others in completed
        if (by_then := [_score_measurement(one, spec) for one in others if measure_progress(one) <= last])
    ]
    return bool(averages) and max(_score_measurement(one, spec) for one in measurements) < median(averages)
