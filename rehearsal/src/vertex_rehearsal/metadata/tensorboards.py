"""Vertex AI TensorBoard: tensorboards, their experiments, runs and time series, and the points of those."""

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
"""In a request that writes."""
MOST_IN_BATCH = 1000
MOST_READ = 10_000
READ = {"SCALAR": 1000, "TENSOR": 100, "BLOB_SEQUENCE": 100}
"""So many points are read of a time series at most, unless more are asked for."""
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
        """A new tensorboard, without experiments."""
        validation.check_parent(request.parent)
        validation.check_name_and_labels(request.tensorboard, "tensorboard")
        with self._database.lock:
            made = self._add_resource(request.tensorboard, f"{request.parent}/tensorboards/{new_id()}")
            self._keep_one_default(made)
        return self._context.operations.done(made.name, v1.CreateTensorboardOperationMetadata(), lambda: made)

    def get_tensorboard(self, request: Any) -> Any:
        """A tensorboard, and how many runs it has."""
        return self._with_run_count(self._database.get(request.name))

    def list_tensorboards(self, request: Any) -> Any:
        """A page of tensorboards, newest first."""
        validation.check_parent(request.parent)
        found, token = self._database.list_page(f"{request.parent}/tensorboards", request)
        boards = [self._with_run_count(board) for board in found]
        return v1.ListTensorboardsResponse(tensorboards=boards, next_page_token=token)

    def update_tensorboard(self, request: Any) -> Any:
        """Change what the mask names."""
        given = request.tensorboard
        with self._database.lock:
            changed = self._update_resource(
                given, request, "tensorboard", ("display_name", "description", "labels", "is_default")
            )
            validation.check_name_and_labels(changed, "tensorboard")
            self._keep_one_default(changed)
        metadata = v1.UpdateTensorboardOperationMetadata()
        return self._context.operations.done(changed.name, metadata, lambda: self._with_run_count(changed))

    def delete_tensorboard(self, request: Any) -> Any:
        """Forget a tensorboard and all that is in it."""
        return self._delete_resource(request)

    def create_tensorboard_experiment(self, request: Any) -> Any:
        """A new experiment, without runs."""
        self._database.get(request.parent)
        wanted = _check_id(request.tensorboard_experiment_id, "tensorboard_experiment_id")
        given = request.tensorboard_experiment
        _check_labels(given, "tensorboard_experiment")
        return self._add_resource(given, f"{request.parent}/experiments/{wanted}")

    def update_tensorboard_experiment(self, request: Any) -> Any:
        """Change what the mask names."""
        given = request.tensorboard_experiment
        _check_labels(given, "tensorboard_experiment")
        return self._update_resource(
            given, request, "tensorboard_experiment", ("display_name", "description", "labels")
        )

    def delete_tensorboard_experiment(self, request: Any) -> Any:
        """Forget an experiment and all that is in it."""
        return self._delete_resource(request)

    def create_tensorboard_run(self, request: Any) -> Any:
        """A new run, without time series."""
        return self._create_runs([request])[0]

    def batch_create_tensorboard_runs(self, request: Any) -> Any:
        """New runs of one experiment, all or none."""
        _check_batch(request.requests)
        for number, one in enumerate(request.requests):
            if self._context.resolve_name(one.parent) != request.parent:
                raise invalid_argument(f"requests[{number}].parent", f'"{one.parent}" is not the parent of the batch.')
        return v1.BatchCreateTensorboardRunsResponse(tensorboard_runs=self._create_runs(request.requests))

    def update_tensorboard_run(self, request: Any) -> Any:
        """Change what the mask names."""
        given = request.tensorboard_run
        _check_labels(given, "tensorboard_run")
        return self._update_resource(given, request, "tensorboard_run", ("display_name", "description", "labels"))

    def delete_tensorboard_run(self, request: Any) -> Any:
        """Forget a run and all that is in it."""
        return self._delete_resource(request)

    def create_tensorboard_time_series(self, request: Any) -> Any:
        """A new time series, without points."""
        return self._create_series([request])[0]

    def batch_create_tensorboard_time_series(self, request: Any) -> Any:
        """New time series in runs of one experiment, all or none."""
        _check_batch(request.requests)
        for number, one in enumerate(request.requests):
            if not self._context.resolve_name(one.parent).startswith(f"{request.parent}/runs/"):
                raise invalid_argument(f"requests[{number}].parent", f'"{one.parent}" is no run of {request.parent}.')
        made = self._create_series(request.requests)
        return v1.BatchCreateTensorboardTimeSeriesResponse(tensorboard_time_series=made)

    def update_tensorboard_time_series(self, request: Any) -> Any:
        """Change what the mask names."""
        given = request.tensorboard_time_series
        return self._update_resource(
            given, request, "tensorboard_time_series", ("display_name", "description", "plugin_data")
        )

    def delete_tensorboard_time_series(self, request: Any) -> Any:
        """Forget a time series and its points."""
        return self._delete_resource(request)

    def write_tensorboard_run_data(self, request: Any) -> Any:
        """Add points to the time series of a run; one at a step that has one takes its place."""
        with self._database.lock:
            self._write_points(self._check_points(request.tensorboard_run, request.time_series_data))
        return v1.WriteTensorboardRunDataResponse()

    def write_tensorboard_experiment_data(self, request: Any) -> Any:
        """Add points to the time series of many runs, all or none."""
        self._database.get(request.tensorboard_experiment)
        with self._database.lock:
            points = []
            for number, one in enumerate(request.write_run_data_requests):
                run = self._context.resolve_name(one.tensorboard_run)
                if not run.startswith(f"{request.tensorboard_experiment}/runs/"):
                    text = f'"{run}" is no run of {request.tensorboard_experiment}.'
                    raise invalid_argument(f"write_run_data_requests[{number}].tensorboard_run", text)
                points += self._check_points(run, one.time_series_data)
            self._write_points(points)
        return v1.WriteTensorboardExperimentDataResponse()

    def read_tensorboard_time_series_data(self, request: Any) -> Any:
        """The points of a time series by their steps; some of them where there are more than wanted."""
        wanted = request.max_data_points
        if not -1 <= wanted <= MOST_READ:
            text = f"max_data_points must be positive, at most {MOST_READ:,}, or -1 for all of them: {wanted}."
            raise invalid_argument("max_data_points", text)
        series = self._database.get(request.tensorboard_time_series)
        most = len(self._read_points(series.name)) if wanted == -1 else wanted
        return v1.ReadTensorboardTimeSeriesDataResponse(time_series_data=self._read_data(series, most, request.filter))

    def batch_read_tensorboard_time_series_data(self, request: Any) -> Any:
        """The points of several time series of a tensorboard."""
        self._database.get(request.tensorboard)
        found = []
        for number, given in enumerate(request.time_series):
            name = self._context.resolve_name(given)
            if not name.startswith(f"{request.tensorboard}/"):
                raise invalid_argument(
                    f"time_series[{number}]", f'"{given}" is no time series of {request.tensorboard}.'
                )
            found.append(self._read_data(self._database.get(name)))
        return v1.BatchReadTensorboardTimeSeriesDataResponse(time_series_data=found)

    def export_tensorboard_time_series_data(self, request: Any) -> Any:
        """A page of all points of a time series."""
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
        """How many bytes the points of a tensorboard have."""
        name = self._database.get(request.tensorboard).name
        statement = "SELECT coalesce(sum(length(content)), 0) FROM points WHERE series > ? AND series < ?"
        return v1.ReadTensorboardSizeResponse(
            storage_size_byte=self._database.run(statement, (f"{name}/", f"{name}0"))[0][0]
        )

    def _add_resource(self, given: Any, name: str) -> Any:
        made = type(given)()
        made.CopyFrom(given)
        made.name = name
        made.create_time.GetCurrentTime()
        made.update_time.CopyFrom(made.create_time)
        self._database.add(made)
        return made

    def _update_resource(self, given: Any, request: Any, at: str, allowed: Sequence[str]) -> Any:
        fields = list(request.update_mask.paths) or [
            field.name for field, _ in given.ListFields() if field.name in allowed
        ]
        for field in fields:
            if field not in allowed:
                raise invalid_argument(
                    "update_mask", f'"{field}" of a {at} cannot be changed; {", ".join(allowed)} can.'
                )
        name = self._context.resolve_name(given.name)
        with self._database.change(name) as kept:
            validation.check_etag(given, kept)
            for field in fields:
                models.copy_field_value(kept, given, field)
            if not kept.display_name and at != "tensorboard_experiment":
                raise invalid_argument(f"{at}.display_name", "Required field is not set: display_name.")
            if "display_name" in fields and at in ("tensorboard_run", "tensorboard_time_series"):
                _check_unique(kept, self._list_display_names(name.rpartition("/")[0]))
        return self._database.get(name)

    def _delete_resource(self, request: Any) -> Any:
        self._database.get(request.name)
        self._database.remove_all(request.name)
        return self._context.operations.done(request.name, v1.DeleteOperationMetadata(), protobuf.Empty)

    def _create_runs(self, requests: Iterable[Any]) -> list[Any]:
        made = []
        for request in requests:
            run = v1.TensorboardRun()
            run.CopyFrom(request.tensorboard_run)
            validation.check_name_and_labels(run, "tensorboard_run")
            wanted = _check_id(request.tensorboard_run_id, "tensorboard_run_id")
            run.name = f"{self._context.resolve_name(request.parent)}/runs/{wanted}"
            made.append(run)
        return self._add_all(made)

    def _create_series(self, requests: Iterable[Any]) -> list[Any]:
        made = []
        for request in requests:
            series = v1.TensorboardTimeSeries()
            series.CopyFrom(request.tensorboard_time_series)
            series.ClearField("metadata")
            for field in ("display_name", "value_type"):
                if not getattr(series, field):
                    raise invalid_argument(f"tensorboard_time_series.{field}", f"Required field is not set: {field}.")
            given = request.tensorboard_time_series_id
            wanted = _check_id(given, "tensorboard_time_series_id") if given else new_id()
            series.name = f"{self._context.resolve_name(request.parent)}/timeSeries/{wanted}"
            made.append(series)
        return self._add_all(made)

    def _add_all(self, made: Sequence[Any]) -> list[Any]:
        """Resources whose names are chosen: all of them, or none if one is refused."""
        with self._database.lock:
            taken: dict[str, dict[str, str]] = {}
            names: set[str] = set()
            for one in made:
                collection = one.name.rpartition("/")[0]
                self._database.get(collection.rpartition("/")[0])
                if self._database.has_resource(one.name) or one.name in names:
                    raise ApiError("ALREADY_EXISTS", f"The resource '{one.name}' already exists.")
                if collection not in taken:
                    taken[collection] = self._list_display_names(collection)
                _check_unique(one, taken[collection])
                taken[collection][one.display_name] = one.name
                names.add(one.name)
            return [self._add_resource(one, one.name) for one in made]

    def _list_display_names(self, collection: str) -> dict[str, str]:
        """Who has which display name."""
        rows = self._database.run("SELECT name FROM resources WHERE collection = ?", (collection,))
        return {self._database.get(name).display_name: name for (name,) in rows}

    def _keep_one_default(self, board: Any) -> None:
        """At most one tensorboard of a project and region is the default one: the last that was made so."""
        collection = board.name.rpartition("/")[0]
        for other in self._database.list_all(board.DESCRIPTOR.full_name) if board.is_default else ():
            if other.name != board.name and other.is_default and other.name.rpartition("/")[0] == collection:
                with self._database.change(other.name) as kept:
                    kept.is_default = False

    def _with_run_count(self, board: Any) -> Any:
        statement = "SELECT count(*) FROM resources WHERE name > ? AND name < ? AND type = ?"
        kind = v1.TensorboardRun.DESCRIPTOR.full_name
        board.run_count = self._database.run(statement, (f"{board.name}/", f"{board.name}0", kind))[0][0]
        return board

    def _check_points(self, run: str, data: Sequence[Any]) -> list[tuple[str, Any]]:
        """Points, each with the name of its time series, that may be written."""
        self._database.get(run)
        count = sum(len(one.values) for one in data)
        if count > MOST_POINTS:
            raise invalid_argument(
                "time_series_data", f"There are {count:,} data points; the most is {MOST_POINTS:,} at once."
            )
        found = []
        for number, one in enumerate(data):
            series = self._database.get(f"{run}/timeSeries/{one.tensorboard_time_series_id}")
            kind = v1.TensorboardTimeSeries.ValueType.Name(series.value_type)
            at = f"time_series_data[{number}]"
            if one.value_type != series.value_type:
                raise invalid_argument(
                    f"{at}.value_type", f"The time series {series.name} is of the value type {kind}."
                )
            for point in one.values:
                if point.WhichOneof("value") != VALUES[kind]:
                    raise invalid_argument(f"{at}.values", f"A point of the value type {kind} has a value of another.")
                found.append((series.name, point))
        return found

    def _write_points(self, points: Sequence[tuple[str, Any]]) -> None:
        self._database.run_many(
            "INSERT OR REPLACE INTO points (series, step, content) VALUES (?, ?, ?)",
            [(name, point.step, point.SerializeToString()) for name, point in points],
        )
        by_series: dict[str, list[Any]] = {}
        for name, point in points:
            by_series.setdefault(name, []).append(point)
        for name, of_series in by_series.items():
            with self._database.change(name) as series:
                for point in of_series:
                    _extend_metadata(series.metadata, point)

    def _read_points(self, series: str) -> list[Any]:
        rows = self._database.run("SELECT content FROM points WHERE series = ? ORDER BY step", (series,))
        return [v1.TimeSeriesDataPoint.FromString(content) for (content,) in rows]

    def _read_data(self, series: Any, most: int = 0, condition: str = "") -> Any:
        points = _filter_points(self._read_points(series.name), condition)
        most = most or READ[v1.TensorboardTimeSeries.ValueType.Name(series.value_type)]
        if len(points) > most:  # some of them at random, and the same ones each time
            chosen = random.Random(series.name).sample(range(len(points)), most)  # noqa: S311
            points = [points[number] for number in sorted(chosen)]
        return v1.TimeSeriesData(
            tensorboard_time_series_id=series.name.rpartition("/")[2], value_type=series.value_type, values=points
        )


def _check_unique(one: Any, taken: Mapping[str, str]) -> None:
    """No other has the display name in the same parent."""
    if taken.get(one.display_name, one.name) != one.name:
        text = f'"{one.display_name}" is the display name of {taken[one.display_name]} already.'
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


def _check_id(wanted: str, at: str) -> str:
    if not ID.fullmatch(wanted):
        raise invalid_argument(at, f'"{wanted}" is no id: 1 to 128 of a-z, 0-9 and - are, no - first.')
    return wanted


def _check_batch(requests: Sequence[Any]) -> None:
    if not 0 < len(requests) <= MOST_IN_BATCH:
        raise invalid_argument(
            "requests", f"There are {len(requests):,} requests in the batch; it may have 1 to {MOST_IN_BATCH:,}."
        )


def _check_labels(given: Any, at: str) -> None:
    validation.check_name_and_labels(type(given)(display_name=given.display_name or "-", labels=given.labels), at)
