"""Vertex AI TensorBoard: tensorboards, experiments, runs, time series and their data points."""

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vertex_rehearsal import filters
from vertex_rehearsal.api.errors import ApiError, invalid_argument
from vertex_rehearsal.api.messages import as_dict, protobuf, v1
from vertex_rehearsal.operations import new_id
from vertex_rehearsal.prediction import models
from vertex_rehearsal.training import validation

if TYPE_CHECKING:
    from vertex_rehearsal.context import Context

ID = re.compile(r"[a-z0-9][a-z0-9-]{0,127}")
MOST_POINTS = 5000
"""Limit of data points in one write request."""
MOST_IN_BATCH = 1000
MOST_READ = 10_000
READ = {"SCALAR": 1000, "TENSOR": 100, "BLOB_SEQUENCE": 100}
"""Default limit of data points read from a time series, by value type."""
VALUES = {"SCALAR": "scalar", "TENSOR": "tensor", "BLOB_SEQUENCE": "blobs"}
ORDERS = ("", "step", "step desc")


class Tensorboards:
    """The RPCs of google.cloud.aiplatform.v1.TensorboardService."""

    LOOKUPS = {"TensorboardExperiment": 50, "TensorboardRun": 50, "TensorboardTimeSeries": 50}  # noqa: RUF012
    LIMITS = {  # noqa: RUF012
        "CreateTensorboard": "Encryption has no effect, and there is no bucket for blobs.",
        "ExportTensorboardTimeSeriesData": "order_by: step or step desc, and by step where it is not given.",
    }

    def __init__(self, context: "Context") -> None:
        self._context = context
        self._database = context.database

    def create_tensorboard(self, request: Any) -> Any:
        """Create an empty tensorboard."""
        validation.check_parent(request.parent)
        validation.check_name_and_labels(request.tensorboard, "tensorboard")
        with self._database.lock:
            board = self._add_resource(request.tensorboard, f"{request.parent}/tensorboards/{new_id()}")
            self._keep_one_default(board)
        return self._context.operations.done(board.name, v1.CreateTensorboardOperationMetadata(), lambda: board)

    def get_tensorboard(self, request: Any) -> Any:
        """Return a tensorboard with its number of runs."""
        return self._with_run_count(self._database.get(request.name))

    def list_tensorboards(self, request: Any) -> Any:
        """Return a page of tensorboards, newest first."""
        validation.check_parent(request.parent)
        page, token = self._database.list_page(f"{request.parent}/tensorboards", request)
        boards = [self._with_run_count(board) for board in page]
        return v1.ListTensorboardsResponse(tensorboards=boards, next_page_token=token)

    def update_tensorboard(self, request: Any) -> Any:
        """Update the fields in the mask."""
        changes = request.tensorboard
        with self._database.lock:
            board = self._update_resource(
                changes, request, "tensorboard", ("display_name", "description", "labels", "is_default")
            )
            validation.check_name_and_labels(board, "tensorboard")
            self._keep_one_default(board)
        metadata = v1.UpdateTensorboardOperationMetadata()
        return self._context.operations.done(board.name, metadata, lambda: self._with_run_count(board))

    def delete_tensorboard(self, request: Any) -> Any:
        """Delete a tensorboard and everything in it."""
        return self._delete_resource(request)

    def create_tensorboard_experiment(self, request: Any) -> Any:
        """Create an empty experiment."""
        self._database.get(request.parent)
        experiment_id = _check_id(request.tensorboard_experiment_id, "tensorboard_experiment_id")
        experiment = request.tensorboard_experiment
        _check_labels(experiment, "tensorboard_experiment")
        return self._add_resource(experiment, f"{request.parent}/experiments/{experiment_id}")

    def update_tensorboard_experiment(self, request: Any) -> Any:
        """Update the fields in the mask."""
        changes = request.tensorboard_experiment
        _check_labels(changes, "tensorboard_experiment")
        return self._update_resource(
            changes, request, "tensorboard_experiment", ("display_name", "description", "labels")
        )

    def delete_tensorboard_experiment(self, request: Any) -> Any:
        """Delete an experiment and everything in it."""
        return self._delete_resource(request)

    def create_tensorboard_run(self, request: Any) -> Any:
        """Create an empty run."""
        return self._create_runs([request])[0]

    def batch_create_tensorboard_runs(self, request: Any) -> Any:
        """Create runs of one experiment, all or none."""
        _check_batch(request.requests)
        for number, run_request in enumerate(request.requests):
            if self._context.resolve_name(run_request.parent) != request.parent:
                raise invalid_argument(
                    f"requests[{number}].parent", f'"{run_request.parent}" is not the parent of the batch.'
                )
        return v1.BatchCreateTensorboardRunsResponse(tensorboard_runs=self._create_runs(request.requests))

    def update_tensorboard_run(self, request: Any) -> Any:
        """Update the fields in the mask."""
        changes = request.tensorboard_run
        _check_labels(changes, "tensorboard_run")
        return self._update_resource(changes, request, "tensorboard_run", ("display_name", "description", "labels"))

    def delete_tensorboard_run(self, request: Any) -> Any:
        """Delete a run and everything in it."""
        return self._delete_resource(request)

    def create_tensorboard_time_series(self, request: Any) -> Any:
        """Create an empty time series."""
        return self._create_series([request])[0]

    def batch_create_tensorboard_time_series(self, request: Any) -> Any:
        """Create time series in runs of one experiment, all or none."""
        _check_batch(request.requests)
        for number, series_request in enumerate(request.requests):
            if not self._context.resolve_name(series_request.parent).startswith(f"{request.parent}/runs/"):
                raise invalid_argument(
                    f"requests[{number}].parent", f'"{series_request.parent}" is no run of {request.parent}.'
                )
        series = self._create_series(request.requests)
        return v1.BatchCreateTensorboardTimeSeriesResponse(tensorboard_time_series=series)

    def update_tensorboard_time_series(self, request: Any) -> Any:
        """Update the fields in the mask."""
        changes = request.tensorboard_time_series
        return self._update_resource(
            changes, request, "tensorboard_time_series", ("display_name", "description", "plugin_data")
        )

    def delete_tensorboard_time_series(self, request: Any) -> Any:
        """Delete a time series and its data points."""
        return self._delete_resource(request)

    def write_tensorboard_run_data(self, request: Any) -> Any:
        """Write data points to the time series of a run; a point at an existing step replaces it."""
        with self._database.lock:
            self._write_points(self._check_points(request.tensorboard_run, request.time_series_data))
        return v1.WriteTensorboardRunDataResponse()

    def write_tensorboard_experiment_data(self, request: Any) -> Any:
        """Write data points to the time series of several runs, all or none."""
        self._database.get(request.tensorboard_experiment)
        with self._database.lock:
            points = []
            for number, run_request in enumerate(request.write_run_data_requests):
                run = self._context.resolve_name(run_request.tensorboard_run)
                if not run.startswith(f"{request.tensorboard_experiment}/runs/"):
                    text = f'"{run}" is no run of {request.tensorboard_experiment}.'
                    raise invalid_argument(f"write_run_data_requests[{number}].tensorboard_run", text)
                points += self._check_points(run, run_request.time_series_data)
            self._write_points(points)
        return v1.WriteTensorboardExperimentDataResponse()

    def read_tensorboard_time_series_data(self, request: Any) -> Any:
        """Return the data points of a time series by step; a sample if there are more than requested."""
        requested = request.max_data_points
        if not -1 <= requested <= MOST_READ:
            text = f"max_data_points must be positive, at most {MOST_READ:,}, or -1 for all of them: {requested}."
            raise invalid_argument("max_data_points", text)
        series = self._database.get(request.tensorboard_time_series)
        limit = len(self._read_points(series.name)) if requested == -1 else requested
        return v1.ReadTensorboardTimeSeriesDataResponse(time_series_data=self._read_data(series, limit, request.filter))

    def batch_read_tensorboard_time_series_data(self, request: Any) -> Any:
        """Return the data points of several time series of a tensorboard."""
        self._database.get(request.tensorboard)
        series_data = []
        for number, series_name in enumerate(request.time_series):
            name = self._context.resolve_name(series_name)
            if not name.startswith(f"{request.tensorboard}/"):
                raise invalid_argument(
                    f"time_series[{number}]", f'"{series_name}" is no time series of {request.tensorboard}.'
                )
            series_data.append(self._read_data(self._database.get(name)))
        return v1.BatchReadTensorboardTimeSeriesDataResponse(time_series_data=series_data)

    def export_tensorboard_time_series_data(self, request: Any) -> Any:
        """Return a page of all data points of a time series."""
        if request.order_by not in ORDERS:
            raise invalid_argument("order_by", f'"{request.order_by}" is no order: step and step desc are.')
        if request.page_size < 0 or not re.fullmatch(r"\d*", request.page_token):
            raise invalid_argument("page_token" if request.page_size >= 0 else "page_size", "The page is invalid.")
        series = self._database.get(request.tensorboard_time_series)
        points = _filter_points(self._read_points(series.name), request.filter)
        if request.order_by == "step desc":
            points.reverse()
        start = int(request.page_token or 0)
        end = start + min(request.page_size or 1000, MOST_READ)
        token = str(end) if end < len(points) else ""
        return v1.ExportTensorboardTimeSeriesDataResponse(
            time_series_data_points=points[start:end], next_page_token=token
        )

    def read_tensorboard_size(self, request: Any) -> Any:
        """Return the size in bytes of a tensorboard's data points."""
        name = self._database.get(request.tensorboard).name
        statement = "SELECT coalesce(sum(length(content)), 0) FROM points WHERE series > ? AND series < ?"
        return v1.ReadTensorboardSizeResponse(
            storage_size_byte=self._database.run(statement, (f"{name}/", f"{name}0"))[0][0]
        )

    def _add_resource(self, template: Any, name: str) -> Any:
        resource = type(template)()
        resource.CopyFrom(template)
        resource.name = name
        resource.create_time.GetCurrentTime()
        resource.update_time.CopyFrom(resource.create_time)
        self._database.add(resource)
        return resource

    def _update_resource(self, changes: Any, request: Any, at: str, allowed: Sequence[str]) -> Any:
        fields = list(request.update_mask.paths) or [
            field.name for field, _ in changes.ListFields() if field.name in allowed
        ]
        for field in fields:
            if field not in allowed:
                raise invalid_argument(
                    "update_mask", f'"{field}" of a {at} cannot be changed; {", ".join(allowed)} can.'
                )
        name = self._context.resolve_name(changes.name)
        with self._database.change(name) as stored:
            validation.check_etag(changes, stored)
            for field in fields:
                models.copy_field_value(stored, changes, field)
            if not stored.display_name and at != "tensorboard_experiment":
                raise invalid_argument(f"{at}.display_name", "Required field is not set: display_name.")
            if "display_name" in fields and at in ("tensorboard_run", "tensorboard_time_series"):
                _check_unique(stored, self._list_display_names(name.rpartition("/")[0]))
        return self._database.get(name)

    def _delete_resource(self, request: Any) -> Any:
        self._database.get(request.name)
        self._database.remove_all(request.name)
        return self._context.operations.done(request.name, v1.DeleteOperationMetadata(), protobuf.Empty)

    def _create_runs(self, requests: Iterable[Any]) -> list[Any]:
        runs = []
        for request in requests:
            run = v1.TensorboardRun()
            run.CopyFrom(request.tensorboard_run)
            validation.check_name_and_labels(run, "tensorboard_run")
            run_id = _check_id(request.tensorboard_run_id, "tensorboard_run_id")
            run.name = f"{self._context.resolve_name(request.parent)}/runs/{run_id}"
            runs.append(run)
        return self._add_all(runs)

    def _create_series(self, requests: Iterable[Any]) -> list[Any]:
        all_series = []
        for request in requests:
            series = v1.TensorboardTimeSeries()
            series.CopyFrom(request.tensorboard_time_series)
            series.ClearField("metadata")
            for field in ("display_name", "value_type"):
                if not getattr(series, field):
                    raise invalid_argument(f"tensorboard_time_series.{field}", f"Required field is not set: {field}.")
            requested_id = request.tensorboard_time_series_id
            series_id = _check_id(requested_id, "tensorboard_time_series_id") if requested_id else new_id()
            series.name = f"{self._context.resolve_name(request.parent)}/timeSeries/{series_id}"
            all_series.append(series)
        return self._add_all(all_series)

    def _add_all(self, resources: Sequence[Any]) -> list[Any]:
        """Add resources whose names are set: all of them, or none if one is refused."""
        with self._database.lock:
            names_by_collection: dict[str, dict[str, str]] = {}
            names: set[str] = set()
            for resource in resources:
                collection = resource.name.rpartition("/")[0]
                self._database.get(collection.rpartition("/")[0])
                if self._database.has_resource(resource.name) or resource.name in names:
                    raise ApiError("ALREADY_EXISTS", f"The resource '{resource.name}' already exists.")
                if collection not in names_by_collection:
                    names_by_collection[collection] = self._list_display_names(collection)
                _check_unique(resource, names_by_collection[collection])
                names_by_collection[collection][resource.display_name] = resource.name
                names.add(resource.name)
            return [self._add_resource(resource, resource.name) for resource in resources]

    def _list_display_names(self, collection: str) -> dict[str, str]:
        """Return the resource name of each display name in a collection."""
        rows = self._database.run("SELECT name FROM resources WHERE collection = ?", (collection,))
        return {self._database.get(name).display_name: name for (name,) in rows}

    def _keep_one_default(self, board: Any) -> None:
        """Make a default tensorboard the only default of its project and region."""
        collection = board.name.rpartition("/")[0]
        for other in self._database.list_all(board.DESCRIPTOR.full_name) if board.is_default else ():
            if other.name != board.name and other.is_default and other.name.rpartition("/")[0] == collection:
                with self._database.change(other.name) as stored:
                    stored.is_default = False

    def _with_run_count(self, board: Any) -> Any:
        statement = "SELECT count(*) FROM resources WHERE name > ? AND name < ? AND type = ?"
        kind = v1.TensorboardRun.DESCRIPTOR.full_name
        board.run_count = self._database.run(statement, (f"{board.name}/", f"{board.name}0", kind))[0][0]
        return board

    def _check_points(self, run: str, data: Sequence[Any]) -> list[tuple[str, Any]]:
        """Validate data points and return each with the name of its time series."""
        self._database.get(run)
        count = sum(len(series_data.values) for series_data in data)
        if count > MOST_POINTS:
            raise invalid_argument(
                "time_series_data", f"There are {count:,} data points; the most is {MOST_POINTS:,} at once."
            )
        points = []
        for number, series_data in enumerate(data):
            series = self._database.get(f"{run}/timeSeries/{series_data.tensorboard_time_series_id}")
            kind = v1.TensorboardTimeSeries.ValueType.Name(series.value_type)
            at = f"time_series_data[{number}]"
            if series_data.value_type != series.value_type:
                raise invalid_argument(
                    f"{at}.value_type", f"The time series {series.name} is of the value type {kind}."
                )
            for point in series_data.values:
                if point.WhichOneof("value") != VALUES[kind]:
                    raise invalid_argument(f"{at}.values", f"A point of the value type {kind} has a value of another.")
                points.append((series.name, point))
        return points

    def _write_points(self, points: Sequence[tuple[str, Any]]) -> None:
        self._database.run_many(
            "INSERT OR REPLACE INTO points (series, step, content) VALUES (?, ?, ?)",
            [(name, point.step, point.SerializeToString()) for name, point in points],
        )
        by_series: dict[str, list[Any]] = {}
        for name, point in points:
            by_series.setdefault(name, []).append(point)
        for name, series_points in by_series.items():
            with self._database.change(name) as series:
                for point in series_points:
                    _extend_metadata(series.metadata, point)

    def _read_points(self, series: str) -> list[Any]:
        rows = self._database.run("SELECT content FROM points WHERE series = ? ORDER BY step", (series,))
        return [v1.TimeSeriesDataPoint.FromString(content) for (content,) in rows]

    def _read_data(self, series: Any, limit: int = 0, condition: str = "") -> Any:
        points = _filter_points(self._read_points(series.name), condition)
        limit = limit or READ[v1.TensorboardTimeSeries.ValueType.Name(series.value_type)]
        if len(points) > limit:  # a random sample, the same one each time
            chosen = random.Random(series.name).sample(range(len(points)), limit)  # noqa: S311
            points = [points[number] for number in sorted(chosen)]
        return v1.TimeSeriesData(
            tensorboard_time_series_id=series.name.rpartition("/")[2], value_type=series.value_type, values=points
        )


def _check_unique(resource: Any, taken: Mapping[str, str]) -> None:
    """Refuse a display name that another resource of the same parent has."""
    if taken.get(resource.display_name, resource.name) != resource.name:
        text = f'"{resource.display_name}" is the display name of {taken[resource.display_name]} already.'
        raise ApiError("ALREADY_EXISTS", text)


def _extend_metadata(metadata: Any, point: Any) -> None:
    metadata.max_step = max(metadata.max_step, point.step)
    if point.wall_time.ToNanoseconds() > metadata.max_wall_time.ToNanoseconds():
        metadata.max_wall_time.CopyFrom(point.wall_time)
    metadata.max_blob_sequence_length = max(metadata.max_blob_sequence_length, len(point.blobs.values))


def _filter_points(points: list[Any], condition: str) -> list[Any]:
    if not condition:
        return points
    test = filters.parse_filter(condition)
    return [point for point in points if test(as_dict(point) | {"step": point.step})]


def _check_id(requested_id: str, at: str) -> str:
    if not ID.fullmatch(requested_id):
        raise invalid_argument(at, f'"{requested_id}" is no id: 1 to 128 of a-z, 0-9 and - are, no - first.')
    return requested_id


def _check_batch(requests: Sequence[Any]) -> None:
    if not 0 < len(requests) <= MOST_IN_BATCH:
        raise invalid_argument(
            "requests", f"There are {len(requests):,} requests in the batch; it may have 1 to {MOST_IN_BATCH:,}."
        )


def _check_labels(resource: Any, at: str) -> None:
    validation.check_name_and_labels(
        type(resource)(display_name=resource.display_name or "-", labels=resource.labels), at
    )
