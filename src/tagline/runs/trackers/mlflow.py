"""MLflow: a run in the store of MLFLOW_TRACKING_URI, else in `mlflow.db` beside the runs."""

import logging
import os
import re
import time
import warnings
from collections.abc import Sequence

# No network calls by default. MLflow reads this when it is imported.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

# Users cannot fix its deprecation warnings. The store is imported here and not when it is first used, which is in a
# thread, where filters would touch the whole process.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import mlflow.store.tracking.sqlalchemy_store  # noqa: F401
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.utils.validation import MAX_METRICS_PER_BATCH, MAX_PARAM_VAL_LENGTH, MAX_PARAMS_TAGS_PER_BATCH

from tagline.runs.run import Run
from tagline.runs.trackers import Point, format_parameter, last_step, list_parameters, record_id, report_figures

ILLEGAL = re.compile(r"[^\w\-. /:]|(?<=/)/|/$|(?<=/)\.{1,2}(?=/|$)")
"""What a metric's name may not contain: most punctuation, and parts that do not form a plain path."""
MAX_NAME_LENGTH = 240
STATUS = {"succeeded": "FINISHED", "failed": "FAILED", "cancelled": "KILLED"}


class MLflow:
    """Records with MLflow's client; its fluent functions would keep global state and collect more."""

    def begin(self, run: Run, *, resumed_at: int) -> None:  # noqa: ARG002 - the store knows its last step
        """Get or create a run in the experiment of MLFLOW_EXPERIMENT_NAME, else `tagline`, by a tag."""
        for logger in ("mlflow", "alembic"):  # a new local store logs every table that it creates
            logging.getLogger(logger).setLevel(logging.ERROR)
        runs = run.tracker_dir
        address = os.environ.get("MLFLOW_TRACKING_URI")
        self._client = MlflowClient(tracking_uri=address or f"sqlite:///{runs / 'mlflow.db'}")
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "tagline"
        experiment = self._get_experiment(name, artifacts=None if address else str(runs / "mlartifacts"))
        self._known: dict[str, int] = {}
        self._keys: dict[str, str] = {}
        tag = record_id(run)
        if existing := self._client.search_runs([experiment], filter_string=f"tags.`tagline.run` = '{tag}'"):
            self._id: str = existing[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            for metric in existing[0].data.metrics:
                self._known[metric] = max(point.step for point in self._client.get_metric_history(self._id, metric))
            return
        self._id = self._client.create_run(experiment, run_name=run.name, tags={"tagline.run": tag}).info.run_id
        values = [
            Param(key, format_parameter(value)[:MAX_PARAM_VAL_LENGTH])
            for key, value in list_parameters(run.spec()).items()
        ]
        for start in range(0, len(values), MAX_PARAMS_TAGS_PER_BATCH):
            self._client.log_batch(self._id, params=values[start : start + MAX_PARAMS_TAGS_PER_BATCH])

    def record(self, points: Sequence[Point]) -> None:
        """Log metrics in batches, without the steps that an earlier attempt has recorded."""
        metrics = [
            Metric(key, value, int(1000 * point.time), point.step)
            for point in points
            for name, value in point.figures.items()
            if point.step > self._known.get(key := self._metric_key(name), -1)
        ]
        for start in range(0, len(metrics), MAX_METRICS_PER_BATCH):
            self._client.log_batch(self._id, metrics=metrics[start : start + MAX_METRICS_PER_BATCH])

    def end(self, run: Run) -> None:
        """Log the report's figures as metrics, the report as an artifact, and the bundle's address as a tag."""
        state = run.state().name
        if state == "succeeded":
            self.record([Point(last_step(run), time.time(), report_figures(run))])
            self._client.log_artifact(self._id, str(run.directory / "report.json"))
            self._client.log_batch(self._id, tags=[RunTag("tagline.bundle", run.bundle_address)])
        self._client.set_terminated(self._id, status=STATUS.get(state, "FAILED"))

    def _get_experiment(self, name: str, *, artifacts: str | None) -> str:
        if (existing := self._client.get_experiment_by_name(name)) is not None:
            return str(existing.experiment_id)
        return str(self._client.create_experiment(name, artifact_location=artifacts))

    def _metric_key(self, name: str) -> str:
        """Return a metric's name with `_` for what MLflow does not allow, and one more where two would collide."""
        if name not in self._keys:
            key = ILLEGAL.sub("_", name)[:MAX_NAME_LENGTH]
            while key in self._keys.values():
                key += "_"
            self._keys[name] = key
        return self._keys[name]
