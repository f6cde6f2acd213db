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
"""Of the experiment and the tensorboard, where none are named."""
EXPERIMENT = re.compile(r"[a-z0-9][a-z0-9-]{3,79}")
MAX_ID_LENGTH = 121
"""Of an experiment and a run together: what belongs to the run has seven more, and 128 are allowed."""
SCHEMA_VERSION = "0.0.1"
STATES = {"succeeded": "COMPLETE", "failed": "FAILED", "cancelled": "CANCELLED"}
MAX_VALUE_LENGTH = 6000
PARAMETERS_ROOM, FIGURES_ROOM = 100_000, 80_000
"""In bytes: the metadata of a run may have 200 KB."""
MAX_SERIES_NAME_LENGTH = 128
SERIES_IN_BATCH = 1000
POINTS_IN_BATCH = 5000
PAUSE_S = 1.0
"""From one writing of points to the next, for the sake of the quota: what piles up meanwhile is one request."""
ANSWER_TIMEOUT_S = 30.0
MADE_TIMEOUT_S = 55.0
"""How long a store or a tensorboard may take to be made."""


class VertexExperiments:
    """Records as Google's SDK does (`aiplatform.start_run`, `log_params`, ...), which can read it back."""

    def __init__(self) -> None:
        gcp.require_clients("tracker vertex")

    def begin(self, run: Run, *, resumed_at: int) -> None:  # noqa: ARG002 - asks the tensorboard what it has
        """A run of the experiment, with a run of the tensorboard that stands behind it; or those that it has."""
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
        called = _make_run_id(name, record_id(run))
        self._context = self._create_run_context(experiment, f"{name}-{called}", called, list_parameters(spec))
        self._group = self._create_board_experiment(self._find_board(experiment), name)
        self._run = self._create_board_run(called)
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
        """Points of time series in batches, without the steps that an earlier attempt has recorded."""
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
        """The report's figures as summary metrics, the report and the bundle as artifacts, the state."""
        state = run.state().name
        known: dict[str, Any] = {"_state": STATES.get(state, "FAILED")}
        if state == "succeeded":
            figures = report_figures(run)
            self._written = -math.inf  # nothing follows that a pause would gather
            self.record([Point(last_step(run), time.time(), figures)])
            of_labels_last = sorted(figures.items(), key=lambda item: item[0].count("/"))
            known["_metrics"] = _fit_values({k: v for k, v in of_labels_last if math.isfinite(v)}, room=FIGURES_ROOM)
            bundle = run.bundle_address
            self._attach_artifact("report", "system.Artifact", _to_uri(f"{bundle.rpartition('/')[0]}/report.json"))
            self._attach_artifact("bundle", "system.Model", _to_uri(bundle))
        self._update_metadata(self._context, known)

    def _get_experiment(self, name: str) -> Any:
        """The context of the experiment, in the default store."""
        if not EXPERIMENT.fullmatch(name):
            hint = "4 to 80 of a-z, 0-9 and -, no - first"
            raise PlaceError(f'no experiment can have the name in TAGLINE_EXPERIMENT, "{name}"', hint=hint)
        asked = {"parent": self._parent, "metadata_store": {}, "metadata_store_id": "default"}
        gcp.get_or_create(
            WHAT,
            _prepare_call(self._nodes.get_metadata_store, name=self._store),
            lambda: _prepare_call(self._nodes.create_metadata_store, **asked)().result(timeout=MADE_TIMEOUT_S),
        )
        found = self._get_or_create_node(
            "context",
            name,
            {
                "display_name": name,
                "schema_title": "system.Experiment",
                "schema_version": SCHEMA_VERSION,
                "metadata": {"experiment_deleted": False},
            },
        )
        if found.schema_title != "system.Experiment":
            hint = "set TAGLINE_EXPERIMENT to another name"
            raise PlaceError(f"{found.name} is no experiment but a {found.schema_title}", hint=hint)
        return found

    def _find_board(self, experiment: Any) -> str:
        """The tensorboard: of TAGLINE_TENSORBOARD, of the experiment, the oldest one that is ours, or a new one."""
        of_experiment = str(_read_metadata(experiment).get("backing_tensorboard_resource") or "")
        is_there = of_experiment and gcp.get_or_none(
            WHAT, _prepare_call(self._boards.get_tensorboard, name=of_experiment)
        )
        if named := os.environ.get("TAGLINE_TENSORBOARD"):
            board = str(self._send_request(self._boards.get_tensorboard, name=named).name)
        else:
            board = of_experiment if is_there else self._find_own_board()
        if not is_there:
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

    def _create_run_context(self, experiment: Any, run_id: str, called: str, values: Mapping[str, Any]) -> str:
        """The context of the run, a child of the experiment's."""
        plain = {
            key: value if isinstance(value, int | float) else format_parameter(value) for key, value in values.items()
        }
        known = {
            "_params": _fit_values(plain, room=PARAMETERS_ROOM),
            "_metrics": {},
            "_state": "RUNNING",
        } | self._describe_job()
        found = self._get_or_create_node(
            "context",
            run_id,
            {
                "display_name": called,
                "schema_title": "system.ExperimentRun",
                "schema_version": SCHEMA_VERSION,
                "metadata": known,
            },
        )
        self._send_request(self._nodes.add_context_children, context=experiment.name, child_contexts=[found.name])
        if _read_metadata(found).get("_state") != "RUNNING":  # it goes on
            self._update_metadata(found.name, {"_state": "RUNNING"})
        return str(found.name)

    def _describe_job(self) -> dict[str, Any]:
        """The custom job that this is, where it is one."""
        if not (job := os.environ.get("CLOUD_ML_JOB_ID")):
            return {}
        _, project, _, region = self._parent.split("/")
        page = f"https://console.cloud.google.com/agent-platform/locations/{region}/training/{job}?project={project}"
        name = f"{self._parent}/customJobs/{job}"
        return {"_custom_jobs": [{"custom_job_resource_name": name, "custom_job_console_uri": page}]}

    def _create_board_experiment(self, board: str, called: str) -> str:
        labels = {"vertex_tensorboard_experiment_source": "vertex_experiment"}
        make = {"display_name": called, "labels": labels}
        found = gcp.get_or_create(
            WHAT,
            _prepare_call(self._boards.get_tensorboard_experiment, name=f"{board}/experiments/{called}"),
            _prepare_call(
                self._boards.create_tensorboard_experiment,
                parent=board,
                tensorboard_experiment_id=called,
                tensorboard_experiment=make,
            ),
        )
        return str(found.name)

    def _create_board_run(self, called: str) -> str:
        found = gcp.get_or_create(
            WHAT,
            _prepare_call(self._boards.get_tensorboard_run, name=f"{self._group}/runs/{called}"),
            _prepare_call(
                self._boards.create_tensorboard_run,
                parent=self._group,
                tensorboard_run_id=called,
                tensorboard_run={"display_name": called},
            ),
        )
        return str(found.name)

    def _list_series(self) -> tuple[dict[str, str], dict[str, int]]:
        """The id of each time series that is there, and the last step of those that have points."""
        list_all = _prepare_call(self._boards.list_tensorboard_time_series, parent=self._run, page_size=SERIES_IN_BATCH)
        found = gcp.with_retries(WHAT, lambda: list(list_all()))
        ids = {series.display_name: series.name.rpartition("/")[2] for series in found}
        return ids, {series.display_name: last for series in found if (last := series.metadata.max_step)}

    def _make_series(self, keys: Iterable[str]) -> None:
        """New time series; those that a request made whose answer was lost are found."""

        def make() -> None:
            self._series, _ = self._list_series()
            missing = sorted(wanted - self._series.keys())
            for start in range(0, len(missing), SERIES_IN_BATCH):
                new = [
                    {"display_name": key, "value_type": "SCALAR", "plugin_name": "scalars"}
                    for key in missing[start : start + SERIES_IN_BATCH]
                ]
                requests = [{"parent": self._run, "tensorboard_time_series": series} for series in new]
                made = _prepare_call(
                    self._boards.batch_create_tensorboard_time_series, parent=self._group, requests=requests
                )()
                for series in made.tensorboard_time_series:
                    self._series[series.display_name] = series.name.rpartition("/")[2]

        if wanted := set(keys):
            gcp.with_retries(WHAT, make)

    def _get_or_create_node(self, kind: str, called: str, content: Mapping[str, Any]) -> Any:
        """A context or an artifact, which is made if it is not there."""
        get, create = getattr(self._nodes, f"get_{kind}"), getattr(self._nodes, f"create_{kind}")
        new = {"parent": self._store, kind: content, f"{kind}_id": called}
        return gcp.get_or_create(
            WHAT, _prepare_call(get, name=f"{self._store}/{kind}s/{called}"), _prepare_call(create, **new)
        )

    def _attach_artifact(self, part: str, schema: str, uri: str, *, metadata: Mapping[str, Any] | None = None) -> None:
        """An artifact of the run."""
        called = f"{self._context.rpartition('/')[2]}-{part}"
        artifact = self._get_or_create_node(
            "artifact",
            called,
            {
                "display_name": called,
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
        """Add to a context's metadata, and to its sections, keeping what others have added."""

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
        """The name of a time series, cut if it is too long, and marked where two would become the same."""
        if name not in self._keys:
            key, number = name[:MAX_SERIES_NAME_LENGTH], 1
            while key in self._keys.values():
                number += 1
                key = f"{name[: MAX_SERIES_NAME_LENGTH - 8]} ({number})"
            self._keys[name] = key
        return self._keys[name]


def _prepare_call(method: Any, **request: Any) -> Any:
    """One request, to be made later."""
    return partial(method, request=request, timeout=ANSWER_TIMEOUT_S)


def _read_metadata(context: Any) -> dict[str, Any]:
    found: dict[str, Any] = type(context).to_dict(context).get("metadata") or {}
    return found


def _make_run_id(experiment: str, tag: str) -> str:
    """The tag of a run as an id; of a long one the end, which tells runs apart."""
    plain = re.sub(r"[^a-z0-9]+", "-", tag.lower())
    return plain[-(MAX_ID_LENGTH - len(experiment) - 1) :].strip("-")


def _fit_values(values: Mapping[str, Any], *, room: int) -> dict[str, Any]:
    """The values, long texts cut, for which there is room; and how many others there are."""
    fitting: dict[str, Any] = {}
    for key, value in values.items():
        held = value[:MAX_VALUE_LENGTH] if isinstance(value, str) else value
        room -= len(key.encode()) + (len(held.encode()) if isinstance(held, str) else 8) + 24
        if room < 0:
            return fitting | {"left_out": len(values) - len(fitting)}
        fitting[key] = held
    return fitting


def _to_timestamp(seconds: float) -> dict[str, int]:
    whole = int(seconds)
    return {"seconds": whole, "nanos": int(1e9 * (seconds - whole))}


def _to_uri(address: str) -> str:
    return address if address.startswith(gcp.SCHEME) else Path(address).as_uri()
