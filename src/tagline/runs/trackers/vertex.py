"""Vertex AI Experiments: a run in the experiment of TAGLINE_EXPERIMENT, its steps in Vertex AI TensorBoard."""

import math
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tagline import gcp
from tagline.errors import PlaceError
from tagline.runs.run import Run
from tagline.runs.trackers import Point, format_parameter, last_step, list_parameters, record_id, report_figures

WHAT = "Vertex AI Experiments"
NAME = "tagline"
"""The default name of the experiment and of the tensorboard."""
EXPERIMENT = re.compile(r"[a-z0-9][a-z0-9-]{3,79}")
MAX_ID_LENGTH = 121
"""Of an experiment and a run together: the run's artifacts have seven characters more, and 128 are allowed."""
SCHEMA_VERSION = "0.0.1"
STATES = {"succeeded": "COMPLETE", "failed": "FAILED", "cancelled": "CANCELLED"}
MAX_VALUE_LENGTH = 6000
PARAMETERS_ROOM, FIGURES_ROOM = 100_000, 80_000
"""In bytes: the metadata of a run may hold 200 KB."""
MAX_SERIES_NAME_LENGTH = 128
SERIES_IN_BATCH = 1000
POINTS_IN_BATCH = 5000
PAUSE_S = 1.0
"""Pause between requests that write points, because of the quota: points queued meanwhile share one request."""
ANSWER_TIMEOUT_S = 30.0
MADE_TIMEOUT_S = 55.0
"""How long the creation of a store or a tensorboard may take."""


class VertexExperiments:
    """Records as Google's SDK does (`aiplatform.start_run`, `log_params`, ...), which can read it back."""

    def __init__(self) -> None:
        gcp.require_clients("tracker vertex")

    def begin(self, run: Run, *, resumed_at: int) -> None:  # noqa: ARG002 - the tensorboard knows its last step
        """Get or create a run of the experiment, and a run of the tensorboard behind it."""
        spec = run.spec()
        region = os.environ.get("CLOUD_ML_REGION") or spec.vertex.region
        project = os.environ.get("CLOUD_ML_PROJECT_ID") or gcp.find_project(spec.vertex.project)
        self._parent = f"projects/{project}/locations/{region}"
        self._store = f"{self._parent}/metadataStores/default"
        self._nodes = gcp.vertex_client("MetadataServiceClient", region)
        self._boards = gcp.vertex_client("TensorboardServiceClient", region)
        self._keys: dict[str, str] = {}
        self._written = -math.inf
        name = os.environ.get("TAGLINE_EXPERIMENT") or NAME
        experiment = self._get_experiment(name)
        run_id = _make_run_id(name, record_id(run))
        self._context = self._create_run_context(experiment, f"{name}-{run_id}", run_id, list_parameters(spec))
        self._group = self._create_board_experiment(self._find_board(experiment), name)
        self._run = self._create_board_run(run_id)
        self._attach_artifact(
            "tb-run",
            "google.VertexTensorboardRun",
            self._resource_url(self._run),
            metadata={
                "resourceName": self._run,
                "vertex_experiment_tracking": True,
            },
        )
        self._series, self._known = self._list_series()

    def record(self, points: Sequence[Point]) -> None:
        """Write points of time series in batches, without the steps that an earlier attempt has recorded."""
        new = [
            (key, {"scalar": {"value": value}, "step": point.step, "wall_time": _to_timestamp(point.time)})
            for point in points
            for name, value in point.figures.items()
            if point.step > self._known.get(key := self._series_key(name), -1)
        ]
        self._make_series({key for key, _ in new} - self._series.keys())
        for start in range(0, len(new), POINTS_IN_BATCH):
            values: dict[str, list[Any]] = defaultdict(list)
            for key, point in new[start : start + POINTS_IN_BATCH]:
                values[key].append(point)
            data = [
                {"tensorboard_time_series_id": self._series[key], "value_type": "SCALAR", "values": of_key}
                for key, of_key in values.items()
            ]
            time.sleep(max(0.0, self._written + PAUSE_S - time.monotonic()))
            self._send_request(
                self._boards.write_tensorboard_run_data, tensorboard_run=self._run, time_series_data=data
            )
            self._written = time.monotonic()

    def end(self, run: Run) -> None:
        """Record the report's figures as summary metrics, the report and the bundle as artifacts, and the state."""
        state = run.state().name
        metadata: dict[str, Any] = {"_state": STATES.get(state, "FAILED")}
        if state == "succeeded":
            figures = report_figures(run)
            self._written = -math.inf  # no pause before the last points
            self.record([Point(last_step(run), time.time(), figures)])
            of_labels_last = sorted(figures.items(), key=lambda item: item[0].count("/"))
            metadata["_metrics"] = _fit_values({k: v for k, v in of_labels_last if math.isfinite(v)}, room=FIGURES_ROOM)
            bundle = run.bundle_address
            self._attach_artifact("report", "system.Artifact", _to_uri(f"{bundle.rpartition('/')[0]}/report.json"))
            self._attach_artifact("bundle", "system.Model", _to_uri(bundle))
        self._update_metadata(self._context, metadata)

    def _get_experiment(self, name: str) -> Any:
        """Get or create the context of the experiment, in the default store."""
        if not EXPERIMENT.fullmatch(name):
            hint = "4 to 80 of a-z, 0-9 and -, no - first"
            raise PlaceError(f'no experiment can have the name in TAGLINE_EXPERIMENT, "{name}"', hint=hint)
        store = {"parent": self._parent, "metadata_store": {}, "metadata_store_id": "default"}
        gcp.get_or_create(
            WHAT,
            _prepare_call(self._nodes.get_metadata_store, name=self._store),
            lambda: _prepare_call(self._nodes.create_metadata_store, **store)().result(timeout=MADE_TIMEOUT_S),
        )
        experiment = self._get_or_create_node(
            "context",
            name,
            {
                "display_name": name,
                "schema_title": "system.Experiment",
                "schema_version": SCHEMA_VERSION,
                "metadata": {"experiment_deleted": False},
            },
        )
        if experiment.schema_title != "system.Experiment":
            hint = "set TAGLINE_EXPERIMENT to another name"
            raise PlaceError(f"{experiment.name} is no experiment but a {experiment.schema_title}", hint=hint)
        return experiment

    def _find_board(self, experiment: Any) -> str:
        """Return the tensorboard: of TAGLINE_TENSORBOARD, of the experiment, Tagline's oldest, or a new one."""
        of_experiment = str(_read_metadata(experiment).get("backing_tensorboard_resource") or "")
        exists = of_experiment and gcp.get_or_none(
            WHAT, _prepare_call(self._boards.get_tensorboard, name=of_experiment)
        )
        if named := os.environ.get("TAGLINE_TENSORBOARD"):
            board = str(self._send_request(self._boards.get_tensorboard, name=named).name)
        else:
            board = of_experiment if exists else self._find_own_board()
        if not exists:
            self._update_metadata(experiment.name, {"backing_tensorboard_resource": board})
        return board

    def _find_own_board(self) -> str:
        list_all = _prepare_call(self._boards.list_tensorboards, parent=self._parent)
        boards = gcp.with_retries(WHAT, lambda: list(list_all()))
        if ours := [board for board in boards if board.display_name == NAME or NAME in board.labels]:
            return str(min(ours, key=lambda board: board.create_time).name)
        new = {"display_name": NAME, "description": "Runs of Tagline", "labels": {NAME: "experiments"}}
        make = _prepare_call(self._boards.create_tensorboard, parent=self._parent, tensorboard=new)
        return str(gcp.with_retries(WHAT, lambda: make().result(timeout=MADE_TIMEOUT_S)).name)

    def _create_run_context(self, experiment: Any, run_id: str, display_name: str, values: Mapping[str, Any]) -> str:
        """Get or create the context of the run, a child of the experiment's."""
        parameters = {
            key: value if isinstance(value, int | float) else format_parameter(value) for key, value in values.items()
        }
        metadata = {
            "_params": _fit_values(parameters, room=PARAMETERS_ROOM),
            "_metrics": {},
            "_state": "RUNNING",
        } | self._describe_job()
        context = self._get_or_create_node(
            "context",
            run_id,
            {
                "display_name": display_name,
                "schema_title": "system.ExperimentRun",
                "schema_version": SCHEMA_VERSION,
                "metadata": metadata,
            },
        )
        self._send_request(self._nodes.add_context_children, context=experiment.name, child_contexts=[context.name])
        if _read_metadata(context).get("_state") != "RUNNING":  # it was resumed
            self._update_metadata(context.name, {"_state": "RUNNING"})
        return str(context.name)

    def _describe_job(self) -> dict[str, Any]:
        """Return the metadata of the custom job that this process runs in, if any."""
        if not (job := os.environ.get("CLOUD_ML_JOB_ID")):
            return {}
        _, project, _, region = self._parent.split("/")
        page = f"https://console.cloud.google.com/agent-platform/locations/{region}/training/{job}?project={project}"
        name = f"{self._parent}/customJobs/{job}"
        return {"_custom_jobs": [{"custom_job_resource_name": name, "custom_job_console_uri": page}]}

    def _create_board_experiment(self, board: str, name: str) -> str:
        labels = {"vertex_tensorboard_experiment_source": "vertex_experiment"}
        content = {"display_name": name, "labels": labels}
        experiment = gcp.get_or_create(
            WHAT,
            _prepare_call(self._boards.get_tensorboard_experiment, name=f"{board}/experiments/{name}"),
            _prepare_call(
                self._boards.create_tensorboard_experiment,
                parent=board,
                tensorboard_experiment_id=name,
                tensorboard_experiment=content,
            ),
        )
        return str(experiment.name)

    def _create_board_run(self, run_id: str) -> str:
        board_run = gcp.get_or_create(
            WHAT,
            _prepare_call(self._boards.get_tensorboard_run, name=f"{self._group}/runs/{run_id}"),
            _prepare_call(
                self._boards.create_tensorboard_run,
                parent=self._group,
                tensorboard_run_id=run_id,
                tensorboard_run={"display_name": run_id},
            ),
        )
        return str(board_run.name)

    def _list_series(self) -> tuple[dict[str, str], dict[str, int]]:
        """Return the id of each existing time series, and the last step of those that have points."""
        list_all = _prepare_call(self._boards.list_tensorboard_time_series, parent=self._run, page_size=SERIES_IN_BATCH)
        listed = gcp.with_retries(WHAT, lambda: list(list_all()))
        ids = {series.display_name: series.name.rpartition("/")[2] for series in listed}
        return ids, {series.display_name: last for series in listed if (last := series.metadata.max_step)}

    def _make_series(self, keys: Iterable[str]) -> None:
        """Create time series; on a retry, those that a request with a lost answer has created are found."""

        def make() -> None:
            self._series, _ = self._list_series()
            missing = sorted(wanted - self._series.keys())
            for start in range(0, len(missing), SERIES_IN_BATCH):
                new = [
                    {"display_name": key, "value_type": "SCALAR", "plugin_name": "scalars"}
                    for key in missing[start : start + SERIES_IN_BATCH]
                ]
                requests = [{"parent": self._run, "tensorboard_time_series": series} for series in new]
                created = _prepare_call(
                    self._boards.batch_create_tensorboard_time_series, parent=self._group, requests=requests
                )()
                for series in created.tensorboard_time_series:
                    self._series[series.display_name] = series.name.rpartition("/")[2]

        if wanted := set(keys):
            gcp.with_retries(WHAT, make)

    def _get_or_create_node(self, kind: str, node_id: str, content: Mapping[str, Any]) -> Any:
        """Get or create a context or an artifact."""
        get, create = getattr(self._nodes, f"get_{kind}"), getattr(self._nodes, f"create_{kind}")
        new = {"parent": self._store, kind: content, f"{kind}_id": node_id}
        return gcp.get_or_create(
            WHAT, _prepare_call(get, name=f"{self._store}/{kind}s/{node_id}"), _prepare_call(create, **new)
        )

    def _attach_artifact(self, part: str, schema: str, uri: str, *, metadata: Mapping[str, Any] | None = None) -> None:
        """Get or create an artifact of the run."""
        artifact_id = f"{self._context.rpartition('/')[2]}-{part}"
        artifact = self._get_or_create_node(
            "artifact",
            artifact_id,
            {
                "display_name": artifact_id,
                "schema_title": schema,
                "schema_version": SCHEMA_VERSION,
                "uri": uri,
                "state": "LIVE",
                "metadata": metadata or {},
            },
        )
        if artifact.uri != uri:  # the run, or the tensorboard, is elsewhere now
            artifact.uri, artifact.metadata = uri, metadata or {}
            self._send_request(self._nodes.update_artifact, artifact=artifact)
        self._send_request(
            self._nodes.add_context_artifacts_and_executions, context=self._context, artifacts=[artifact.name]
        )

    def _update_metadata(self, name: str, values: Mapping[str, Any]) -> None:
        """Merge values into a context's metadata and its sections, keeping what others have added."""

        def rewrite() -> None:
            context = _prepare_call(self._nodes.get_context, name=name)()
            metadata = _read_metadata(context)
            for key, value in values.items():
                metadata[key] = metadata.get(key, {}) | value if isinstance(value, dict) else value
            context.metadata = metadata
            _prepare_call(self._nodes.update_context, context=context)()

        gcp.with_retries(WHAT, rewrite)

    def _resource_url(self, name: str) -> str:
        region = self._parent.rpartition("/")[2]
        return f"{gcp.find_rehearsal() or f'https://{region}-aiplatform.googleapis.com'}/v1/{name}"

    def _send_request(self, method: Any, **request: Any) -> Any:
        return gcp.with_retries(WHAT, _prepare_call(method, **request))

    def _series_key(self, name: str) -> str:
        """Return the name of a time series, cut if it is too long, and numbered where two would collide."""
        if name not in self._keys:
            key, number = name[:MAX_SERIES_NAME_LENGTH], 1
            while key in self._keys.values():
                number += 1
                key = f"{name[: MAX_SERIES_NAME_LENGTH - 8]} ({number})"
            self._keys[name] = key
        return self._keys[name]


def _prepare_call(method: Any, **request: Any) -> Any:
    """Return a function that makes one request."""
    return partial(method, request=request, timeout=ANSWER_TIMEOUT_S)


def _read_metadata(context: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = type(context).to_dict(context).get("metadata") or {}
    return metadata


def _make_run_id(experiment: str, tag: str) -> str:
    """Return the tag of a run as an id; of a long one the end, which is unique."""
    slug = re.sub(r"[^a-z0-9]+", "-", tag.lower())
    return slug[-(MAX_ID_LENGTH - len(experiment) - 1) :].strip("-")


def _fit_values(values: Mapping[str, Any], *, room: int) -> dict[str, Any]:
    """Return the values that fit, with long texts cut, and the number of those left out."""
    fitting: dict[str, Any] = {}
    for key, value in values.items():
        fitted = value[:MAX_VALUE_LENGTH] if isinstance(value, str) else value
        room -= len(key.encode()) + (len(fitted.encode()) if isinstance(fitted, str) else 8) + 24
        if room < 0:
            return fitting | {"left_out": len(values) - len(fitting)}
        fitting[key] = fitted
    return fitting


def _to_timestamp(seconds: float) -> dict[str, int]:
    whole = int(seconds)
    return {"seconds": whole, "nanos": int(1e9 * (seconds - whole))}


def _to_uri(address: str) -> str:
    return address if address.startswith(gcp.SCHEME) else Path(address).as_uri()
