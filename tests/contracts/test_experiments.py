"""Vertex ML Metadata and Vertex AI TensorBoard as the rehearsal plays them, and what tracker `vertex` keeps there."""

import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tagline import gcp
from tagline.data.columns import complete_spec
from tagline.errors import PlaceError
from tagline.runs import trackers
from tagline.runs.run import Run
from tagline.runs.trackers import Point
from tagline.runs.trackers import vertex as tracker_module

sys.path.insert(0, str(Path(__file__).parents[1]))
from rehearsing import PARENT, Rehearsal, custom_job, pool, python, rehearsing
from reports import make_label_figures, make_report

pytestmark = pytest.mark.trains

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
STORE = f"{PARENT}/metadataStores/default"
PATIENT = (
    "import sys; from tagline.runs import trackers; trackers.END_TIMEOUT_S = 900.0; "
    "from tagline.cli import run; sys.exit(run(sys.argv[1:]))"
)
"""A command that waits for its trackers, however long their packages take to be loaded on a busy machine."""


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with rehearsing(tmp_path_factory.mktemp("rehearsal") / "here") as found:
        client = found.client("MetadataServiceClient")
        client.create_metadata_store(parent=PARENT, metadata_store={}, metadata_store_id="default").result(timeout=60)
        yield found


@pytest.fixture(params=["rest", "grpc"])
def nodes(request: pytest.FixtureRequest, rehearsal: Rehearsal) -> Any:
    """The client of metadata, over each transport."""
    return rehearsal.client("MetadataServiceClient", request.param)


@pytest.fixture(params=["rest", "grpc"])
def boards(request: pytest.FixtureRequest, rehearsal: Rehearsal) -> Any:
    """The client of tensorboards, over each transport."""
    return rehearsal.client("TensorboardServiceClient", request.param)


@pytest.fixture
def called() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


def refused(ask: Callable[[], Any], code: str, words: str = ".") -> None:
    """The request is refused by an exception of Google's with this canonical code."""
    with pytest.raises(Exception, match=words) as caught:
        ask()
    assert gcp._read_status(caught.value) == code, caught.value


def test_a_node_is_made_found_changed_and_deleted(nodes: Any, called: str) -> None:
    new = {"display_name": called, "schema_title": "system.Experiment", "metadata": {" a ": 1, "b": {"c": "x"}}}
    made = nodes.create_context(parent=STORE, context=new, context_id=called)
    assert made.name == f"{STORE}/contexts/{called}"
    assert dict(made.metadata) == {"a": 1.0, "b": {"c": "x"}}
    refused(lambda: nodes.create_context(parent=STORE, context=new, context_id=called), "ALREADY_EXISTS")
    made.metadata["a"] = 2
    changed = nodes.update_context(context=made)
    assert changed.metadata["a"] == 2
    assert changed.etag > made.etag
    stale = r"Specified Context `etag`: `\d+` does not match server `etag`: `\d+`"
    refused(lambda: nodes.update_context(context=made), "ABORTED", stale)
    masked = {"name": made.name, "description": "new", "display_name": "other"}
    changed = nodes.update_context(context=masked, update_mask={"paths": ["description"]})
    assert (changed.description, changed.display_name, changed.metadata["a"]) == ("new", called, 2)
    unmasked = nodes.update_context(context={"name": made.name, "display_name": "third"})
    assert (unmasked.description, unmasked.display_name) == ("new", "third")
    wrong = {"context": {"name": made.name}, "update_mask": {"paths": ["schema_title"]}}
    refused(lambda: nodes.update_context(request=wrong), "INVALID_ARGUMENT")
    missing = {"context": {"name": f"{made.name}-2", "display_name": "made"}, "allow_missing": True}
    assert nodes.update_context(request=missing).name == f"{made.name}-2"
    refused(lambda: nodes.delete_context(request={"name": made.name, "etag": "1"}), "FAILED_PRECONDITION", "etag")
    nodes.delete_context(name=made.name).result(timeout=60)
    refused(lambda: nodes.get_context(name=made.name), "NOT_FOUND")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"context_id": "Not Allowed"}, "is no id"),
        ({"context_id": "abc"}, "is no id"),
        ({"context": {"metadata": {"a": "x" * 204_800}}}, "the most is 204,800"),
        ({"context": {"labels": {"Upper": "x"}}}, "Label"),
        ({"parent": f"{PARENT}/metadataStores/nowhere"}, "was not found"),
    ],
)
def test_a_node_that_is_refused(rehearsal: Rehearsal, given: dict[str, Any], words: str) -> None:
    client = rehearsal.client("MetadataServiceClient")
    with pytest.raises(Exception, match=words):
        client.create_context(request={"parent": STORE, "context": {"display_name": "x"}} | given)


def test_parents_children_and_filters(nodes: Any, called: str) -> None:
    def context(suffix: str, **more: Any) -> str:
        new = {"display_name": f"{called}{suffix}", "schema_title": "system.ExperimentRun"} | more
        return str(nodes.create_context(parent=STORE, context=new, context_id=f"{called}{suffix}").name)

    def listed(condition: str) -> set[str]:
        return {found.name for found in nodes.list_contexts(request={"parent": STORE, "filter": condition})}

    top, near = context("", schema_title="system.Experiment"), context("-x", schema_title="system.Experiment")
    one, two = context("-1", metadata={"score": 0.5, "odd:key": "v"}), context("-2", metadata={"score": 0.7})
    nodes.add_context_children(context=top, child_contexts=[one, two])
    nodes.add_context_children(context=top, child_contexts=[one])
    nodes.add_context_children(context=near, child_contexts=[two])
    assert list(nodes.get_context(name=one).parent_contexts) == [top]
    assert listed(f'schema_title="system.ExperimentRun" AND parent_contexts:"{top}"') == {one, two}
    assert listed(f'parent_contexts:"{top}","{near}"') == {two}
    assert listed(f'child_contexts:"{two}"') == {top, near}
    assert listed(f'parent_contexts:"{top}" AND metadata.score.number_value > 0.6') == {two}
    assert listed(f'parent_contexts:"{top}" AND metadata."odd:key".string_value = "v"') == {one}
    assert listed(f'(display_name="{called}-1" OR display_name="{called}-2") AND NOT parent_contexts:"{near}"') == {one}
    assert listed(f'display_name="in_context(\\"{top}\\")"') == set()
    assert listed('parent_contexts:"nobody"') == set()
    refused(lambda: nodes.add_context_children(context=two, child_contexts=[top]), "INVALID_ARGUMENT", "circle")
    refused(lambda: nodes.add_context_children(context=two, child_contexts=[two]), "INVALID_ARGUMENT", "circle")
    nodes.remove_context_children(context=top, child_contexts=[one])
    assert listed(f'parent_contexts:"{top}"') == {two}
    nodes.delete_context(name=near).result(timeout=60)
    assert list(nodes.get_context(name=two).parent_contexts) == [top]


def test_a_context_has_at_most_ten_parents(rehearsal: Rehearsal, called: str) -> None:
    nodes = rehearsal.client("MetadataServiceClient")
    parents = [nodes.create_context(parent=STORE, context={}, context_id=f"{called}-{n}").name for n in range(11)]
    child = nodes.create_context(parent=STORE, context={}, context_id=called).name
    for parent in parents[:10]:
        nodes.add_context_children(context=parent, child_contexts=[child])
    refused(
        lambda: nodes.add_context_children(context=parents[10], child_contexts=[child]),
        "INVALID_ARGUMENT",
        "10 parents",
    )
    nodes.add_context_children(context=parents[0], child_contexts=[child])


def test_lineage(nodes: Any, called: str) -> None:
    def node(kind: str, suffix: str) -> str:
        new = {"parent": STORE, kind: {"display_name": suffix}, f"{kind}_id": f"{called}-{suffix}"}
        return str(getattr(nodes, f"create_{kind}")(request=new).name)

    data, model, answers = (node("artifact", suffix) for suffix in ("data", "model", "answers"))
    train, predict = (node("execution", suffix) for suffix in ("train", "predict"))
    context = node("context", "all")
    for execution, read, made in ((train, data, model), (predict, model, answers)):
        events = [{"artifact": read, "type_": "INPUT"}, {"artifact": made, "type_": "OUTPUT"}]
        nodes.add_execution_events(execution=execution, events=events)
        nodes.add_execution_events(execution=execution, events=events[:1])
    nodes.add_context_artifacts_and_executions(context=context, artifacts=[data, model], executions=[train])

    def names(graph: Any) -> tuple[set[str], set[str], int]:
        return {a.name for a in graph.artifacts}, {e.name for e in graph.executions}, len(graph.events)

    assert names(nodes.query_execution_inputs_and_outputs(execution=train)) == ({data, model}, {train}, 2)
    assert names(nodes.query_context_lineage_subgraph(context=context)) == ({data, model}, {train}, 2)
    asked = {"artifact": data}
    everything = ({data, model, answers}, {train, predict}, 4)
    assert names(nodes.query_artifact_lineage_subgraph(request=asked)) == everything
    assert names(nodes.query_artifact_lineage_subgraph(request=asked | {"max_hops": 2})) == ({data, model}, {train}, 2)
    without = nodes.query_artifact_lineage_subgraph(request=asked | {"filter": 'display_name != "model"'})
    assert names(without) == ({data}, {train}, 1)
    inside = nodes.list_artifacts(request={"parent": STORE, "filter": f'in_context("{context}")'})
    assert {artifact.name for artifact in inside} == {data, model}
    nodes.delete_artifact(name=data).result(timeout=60)
    assert names(nodes.query_context_lineage_subgraph(context=context)) == ({model}, {train}, 1)


def test_purging(nodes: Any, called: str) -> None:
    for number in range(3):
        artifact = {"display_name": called, "metadata": {"n": number}}
        nodes.create_artifact(parent=STORE, artifact=artifact, artifact_id=f"{called}-{number}")
    asked = {"parent": STORE, "filter": f'display_name="{called}" AND metadata.n.number_value < 2'}
    seen = nodes.purge_artifacts(request=asked).result(timeout=60)
    assert (seen.purge_count, len(seen.purge_sample)) == (2, 2)
    assert nodes.purge_artifacts(request=asked | {"force": True}).result(timeout=60).purge_count == 2
    left = nodes.list_artifacts(request={"parent": STORE, "filter": f'display_name="{called}"'})
    assert [artifact.name for artifact in left] == [f"{STORE}/artifacts/{called}-2"]
    refused(lambda: nodes.purge_artifacts(parent=STORE), "INVALID_ARGUMENT", "filter")


def board_run(boards: Any, called: str) -> tuple[str, str, str]:
    """A new tensorboard, and the names of an experiment and a run in it."""
    board = boards.create_tensorboard(parent=PARENT, tensorboard={"display_name": called}).result(timeout=60).name
    group = boards.create_tensorboard_experiment(
        request={"parent": board, "tensorboard_experiment_id": "group", "tensorboard_experiment": {}}
    ).name
    run = boards.create_tensorboard_run(
        parent=group, tensorboard_run={"display_name": "first"}, tensorboard_run_id="run"
    ).name
    return board, group, run


def series_of(boards: Any, run: str, name: str, kind: str = "SCALAR") -> str:
    new = {"display_name": name, "value_type": kind}
    return str(boards.create_tensorboard_time_series(parent=run, tensorboard_time_series=new).name)


def scalars(series: str, *steps: int, value: float = 1.0) -> dict[str, Any]:
    values = [{"scalar": {"value": value}, "step": step, "wall_time": {"seconds": 1000 + step}} for step in steps]
    return {"tensorboard_time_series_id": series.rpartition("/")[2], "value_type": "SCALAR", "values": values}


def test_points_are_written_and_read(boards: Any, called: str) -> None:
    board, group, run = board_run(boards, called)
    loss, f1 = series_of(boards, run, "loss"), series_of(boards, run, "f1")
    boards.write_tensorboard_run_data(tensorboard_run=run, time_series_data=[scalars(loss, 9, 10), scalars(f1, 10)])
    boards.write_tensorboard_run_data(tensorboard_run=run, time_series_data=[scalars(loss, 9, value=0.5)])
    read = boards.read_tensorboard_time_series_data(tensorboard_time_series=loss).time_series_data
    assert [(point.step, point.scalar.value) for point in read.values] == [(9, 0.5), (10, 1.0)]
    late = boards.read_tensorboard_time_series_data(request={"tensorboard_time_series": loss, "filter": "step > 9"})
    assert [point.step for point in late.time_series_data.values] == [10]
    both = boards.batch_read_tensorboard_time_series_data(
        request={"tensorboard": board, "time_series": [f1, loss]}
    ).time_series_data
    assert [len(data.values) for data in both] == [1, 2]
    found = boards.get_tensorboard_time_series(name=loss)
    assert (found.metadata.max_step, found.metadata.max_wall_time.second) == (10, 50)
    one = {"tensorboard_run": run, "time_series_data": [scalars(f1, 11)]}
    boards.write_tensorboard_experiment_data(tensorboard_experiment=group, write_run_data_requests=[one])
    assert boards.get_tensorboard_time_series(name=f1).metadata.max_step == 11
    assert boards.read_tensorboard_size(tensorboard=board).storage_size_byte > 0
    found = boards.get_tensorboard(name=board)
    assert found.run_count == 1
    labelled = {"name": board, "labels": {"read": "now"}, "etag": found.etag}
    boards.update_tensorboard(request={"tensorboard": labelled, "update_mask": {"paths": ["labels"]}}).result(
        timeout=60
    )
    refused(lambda: boards.update_tensorboard(request={"tensorboard": labelled}), "ABORTED")
    boards.delete_tensorboard(name=board).result(timeout=60)
    refused(lambda: boards.get_tensorboard_time_series(name=loss), "NOT_FOUND")
    refused(lambda: boards.get_tensorboard_run(name=run), "NOT_FOUND")


def test_points_that_are_refused_leave_nothing(boards: Any, called: str) -> None:
    _, group, run = board_run(boards, called)
    loss, other = series_of(boards, run, "loss"), series_of(boards, run, "histogram", "TENSOR")

    def write(*data: Any) -> Callable[[], Any]:
        return lambda: boards.write_tensorboard_run_data(tensorboard_run=run, time_series_data=data)

    refused(write(scalars(loss, *range(5001))), "INVALID_ARGUMENT", "the most is 5,000")
    refused(write(scalars(loss, 1), scalars(other, 1)), "INVALID_ARGUMENT", "TENSOR")
    refused(write(scalars(loss, 1), scalars(f"{loss}0", 1)), "NOT_FOUND")
    elsewhere = [{"tensorboard_run": f"{group}2/runs/run", "time_series_data": [scalars(loss, 1)]}]
    asked = {"tensorboard_experiment": group, "write_run_data_requests": elsewhere}
    refused(lambda: boards.write_tensorboard_experiment_data(request=asked), "INVALID_ARGUMENT", "is no run of")
    assert not boards.read_tensorboard_time_series_data(tensorboard_time_series=loss).time_series_data.values
    refused(lambda: series_of(boards, run, "loss"), "ALREADY_EXISTS", "display name")
    many = [{"parent": run, "tensorboard_time_series": {"display_name": n, "value_type": 1}} for n in ("new", "loss")]
    refused(lambda: boards.batch_create_tensorboard_time_series(parent=group, requests=many), "ALREADY_EXISTS")
    names = {series.display_name for series in boards.list_tensorboard_time_series(parent=run)}
    assert names == {"loss", "histogram"}
    twins = [{"parent": group, "tensorboard_run": {"display_name": n}, "tensorboard_run_id": n} for n in ("a", "b")]
    assert len(boards.batch_create_tensorboard_runs(parent=group, requests=twins).tensorboard_runs) == 2
    refused(lambda: boards.batch_create_tensorboard_runs(parent=group, requests=twins), "ALREADY_EXISTS")


def test_many_points_are_sampled_or_exported_page_by_page(rehearsal: Rehearsal, called: str) -> None:
    boards = rehearsal.client("TensorboardServiceClient")
    board, _, run = board_run(boards, called)
    loss = series_of(boards, run, "loss")
    boards.write_tensorboard_run_data(tensorboard_run=run, time_series_data=[scalars(loss, *range(2500))])

    def read(**more: Any) -> list[int]:
        found = boards.read_tensorboard_time_series_data(request={"tensorboard_time_series": loss} | more)
        return [point.step for point in found.time_series_data.values]

    assert len(read()) == 1000 == len(set(read()))
    assert read() == sorted(read())
    assert len(read(max_data_points=10)) == 10
    assert read(max_data_points=-1) == list(range(2500))
    refused(lambda: read(max_data_points=10_001), "INVALID_ARGUMENT", "10,000")
    together = boards.batch_read_tensorboard_time_series_data(request={"tensorboard": board, "time_series": [loss]})
    assert len(together.time_series_data[0].values) == 1000
    pager = boards.export_tensorboard_time_series_data(tensorboard_time_series=loss)
    assert [len(page.time_series_data_points) for page in pager.pages] == [1000, 1000, 500]
    newest = {"tensorboard_time_series": loss, "order_by": "step desc", "filter": "step < 5"}
    assert [point.step for point in boards.export_tensorboard_time_series_data(request=newest)] == [4, 3, 2, 1, 0]


def test_one_tensorboard_is_the_default_one(boards: Any, called: str) -> None:
    parent = f"projects/{called}/locations/us-central1"
    first, second = (
        boards.create_tensorboard(parent=parent, tensorboard={"display_name": n, "is_default": True}).result(timeout=60)
        for n in ("first", "second")
    )
    default = {"parent": parent, "filter": "is_default=true"}
    assert [board.name for board in boards.list_tensorboards(request=default)] == [second.name]
    change = {"name": first.name, "is_default": True, "display_name": "not asked for"}
    asked = {"tensorboard": change, "update_mask": {"paths": ["is_default"]}}
    assert boards.update_tensorboard(request=asked).result(timeout=60).display_name == "first"
    assert [board.name for board in boards.list_tensorboards(request=default)] == [first.name]


def test_a_project_may_be_named_by_its_number_everywhere(rehearsal: Rehearsal, called: str) -> None:
    nodes = rehearsal.client("MetadataServiceClient")
    job = rehearsal.run(custom_job(python("import os; print(os.environ['CLOUD_ML_PROJECT_ID'])")))
    number = rehearsal.said(job["name"])[-1]
    numbered = STORE.replace("demo", number)
    top = nodes.create_context(parent=numbered, context={}, context_id=called)
    child = nodes.create_context(parent=numbered, context={}, context_id=f"{called}-1")
    assert top.name == f"{STORE}/contexts/{called}"
    nodes.add_context_children(
        context=top.name.replace("demo", number), child_contexts=[child.name.replace("demo", number)]
    )
    nodes.update_context(context={"name": child.name.replace("demo", number), "description": "changed"})
    condition = f'parent_contexts:"{numbered}/contexts/{called}"'
    found = list(nodes.list_contexts(request={"parent": numbered, "filter": condition}))
    assert [(node.name, node.description) for node in found] == [(child.name, "changed")]


def test_what_is_known_survives_a_kill(tmp_path: Path) -> None:
    with rehearsing(tmp_path / "here") as first:
        boards = first.client("TensorboardServiceClient")
        board, _, run = board_run(boards, "kept")
        loss = series_of(boards, run, "loss")
        boards.write_tensorboard_run_data(tensorboard_run=run, time_series_data=[scalars(loss, 1, 2)])
        first.kill()
    with rehearsing(tmp_path / "here") as second:
        boards = second.client("TensorboardServiceClient")
        read = boards.batch_read_tensorboard_time_series_data(request={"tensorboard": board, "time_series": [loss]})
        assert [point.step for point in read.time_series_data[0].values] == [1, 2]


@pytest.fixture
def sdk(rehearsal: Rehearsal) -> Any:
    """Google's SDK, pointed at the rehearsal."""
    from google.cloud import aiplatform

    aiplatform.init(
        project=gcp.REHEARSED_PROJECT,
        location="us-central1",
        credentials=rehearsal.credentials,
        api_endpoint=rehearsal.address,
        api_transport="rest",
    )
    return aiplatform


def test_an_experiment_by_the_sdk(sdk: Any, called: str) -> None:
    board = sdk.Tensorboard.create(called)
    sdk.init(experiment=called, experiment_tensorboard=board)
    sdk.start_run("run-1")
    sdk.log_params({"rate": 0.1, "name": "x"})
    sdk.log_metrics({"accuracy": 0.5})
    sdk.log_time_series_metrics({"loss": 1.0}, step=1)
    sdk.log_time_series_metrics({"loss": 0.5, "f1": 0.2})
    sdk.log_classification_metrics(labels=["a", "b"], matrix=[[1, 2], [3, 4]], display_name="table")
    with sdk.start_execution(schema_title="system.ContainerExecution", display_name="prepare") as execution:
        read = sdk.Artifact.create(schema_title="system.Dataset", uri=f"gs://b/{called}/data")
        execution.assign_input_artifacts([read])
    assert [artifact.uri for artifact in execution.get_input_artifacts()] == [read.uri]
    sdk.end_run()
    assert sdk.ExperimentRun("run-1", called).get_state() == "COMPLETE"
    assert sdk.start_run("run-1", resume=True).get_state() == "RUNNING"
    sdk.end_run()
    frame = sdk.get_experiment_df()
    row = {
        "run_name": "run-1",
        "state": "COMPLETE",
        "param.rate": 0.1,
        "metric.accuracy": 0.5,
        "time_series_metric.loss": 0.5,
        "time_series_metric.f1": 0.2,
    }
    assert {key: frame[key][0] for key in row} == row
    run = sdk.ExperimentRun("run-1", called)
    assert run.get_classification_metrics()[0]["matrix"] == [[1, 2], [3, 4]]
    assert list(run.get_time_series_data_frame()["step"]) == [1, 2]
    assert [found.display_name for found in run.get_executions()] == ["prepare"]
    assert called in {experiment.name for experiment in sdk.Experiment.list()}
    sdk.Experiment(called).delete(delete_backing_tensorboard_runs=True)
    assert sdk.TensorboardRun.list(f"{board.resource_name}/experiments/{called}") == []


@pytest.fixture
def place(rehearsal: Rehearsal, called: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The rehearsal stands for Google, with an experiment of the test's own, which is answered."""
    for variable in [name for name in os.environ if name.startswith(("CLOUD_ML_", "GOOGLE_CLOUD", "TAGLINE_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("TAGLINE_EXPERIMENT", called)
    monkeypatch.setattr(tracker_module, "PAUSE_S", 0.0)
    with gcp.use_rehearsal(rehearsal.address, rehearsal.token):
        yield called


@pytest.fixture
def run(tmp_path: Path) -> Run:
    raw = {"data": {"train": str(SUPPORT / "messages.csv")}, "model": {"family": "linear"}}
    return Run.create(tmp_path / "runs", complete_spec(raw, where="a test").spec, {})


def begun(run: Run) -> Any:
    tracker: Any = trackers.create_trackers(["vertex"])["vertex"]
    tracker.begin(run, resumed_at=0)
    return tracker


def points(*steps: int, **figures: float) -> list[Point]:
    return [Point(step, time.time(), figures or {"train/loss": 1 / step}) for step in steps]


def test_the_sdk_shows_the_tracked_run(place: str, sdk: Any, run: Run) -> None:
    tracker = begun(run)
    tracker.record(points(1, 2))
    per_label = {"a": make_label_figures(0.5)}
    run.write_json("report.json", make_report({"accuracy": 0.75, "per_label": per_label}))
    run.set_state("succeeded")
    tracker.end(run)
    frame = sdk.Experiment(place).get_data_frame()
    row = {
        "state": "COMPLETE",
        "param.model.family": "linear",
        "metric.report/test/accuracy": 0.75,
        "metric.report/test/f1/a": 0.5,
        "time_series_metric.train/loss": 0.5,
    }
    assert {key: frame[key][0] for key in row} == row
    assert sdk.Experiment(place).get_backing_tensorboard_resource().display_name == "tagline"
    found = sdk.ExperimentRun(frame["run_name"][0], place)
    assert found.get_params()["training.epochs"] == run.spec().training.epochs
    assert {artifact.schema_title for artifact in found.get_artifacts()} == {
        "google.VertexTensorboardRun",
        "system.Artifact",
        "system.Model",
    }


def test_a_run_in_a_bucket_is_named_by_its_address(place: str, sdk: Any, run: Run) -> None:
    class Elsewhere(Run):
        bundle_address = "gs://bucket/tagline/runs/a-run/bundle"

    elsewhere = Elsewhere(run.directory)
    tracker = begun(elsewhere)
    elsewhere.write_json("report.json", make_report({"accuracy": 0.75}))
    elsewhere.set_state("succeeded")
    tracker.end(elsewhere)
    [found] = sdk.ExperimentRun.list(experiment=place)
    uris = {artifact.uri for artifact in found.get_artifacts() if artifact.schema_title.startswith("system.")}
    assert uris == {"gs://bucket/tagline/runs/a-run/bundle", "gs://bucket/tagline/runs/a-run/report.json"}


def test_steps_that_are_known_are_not_sent_again(place: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(run).record(points(1, 2, 3))
    again = begun(run)
    sent: list[int] = []
    write = again._boards.write_tensorboard_run_data

    def watched(request: Any, **more: Any) -> Any:
        sent.extend(point["step"] for data in request["time_series_data"] for point in data["values"])
        return write(request=request, **more)

    monkeypatch.setattr(again._boards, "write_tensorboard_run_data", watched)
    again.record(points(2, 3, 4))
    again.record(points(2, 3))
    assert sent == [4]


def test_requests_keep_to_the_limits(place: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = begun(run)
    tracker.record([Point(1, time.time(), {f"figure {number}": 0.5 for number in range(1001)})])
    tracker.record(points(*range(1, 5002)))
    assert len(tracker._list_series()[0]) == 1002
    assert tracker._list_series()[1]["train/loss"] == 5001
    labels = {f"{number} {'x' * 90}": make_label_figures(0.5) for number in range(1200)}
    run.write_json("report.json", make_report({"accuracy": 0.75, "per_label": labels}))
    monkeypatch.setattr(tracker, "record", lambda _: None)
    run.set_state("succeeded")
    tracker.end(run)
    found = tracker._nodes.get_context(name=tracker._context)
    assert found.metadata["_metrics"]["report/test/accuracy"] == 0.75
    kept = len(found.metadata["_metrics"]) - 1
    assert found.metadata["_metrics"]["left_out"] == 1201 - kept > 0
    assert found.metadata["_state"] == "COMPLETE"


def test_what_others_add_to_the_run_is_kept(place: str, sdk: Any, run: Run) -> None:
    tracker = begun(run)
    sdk.ExperimentRun(tracker._context.rpartition(f"{place}-")[2], place).log_metrics({"by hand": 1.0})
    run.write_json("report.json", make_report({"accuracy": 0.75}))
    run.set_state("succeeded")
    tracker.end(run)
    found = sdk.ExperimentRun(tracker._context.rpartition(f"{place}-")[2], place)
    assert found.get_metrics() == {"by hand": 1.0, "report/test/accuracy": 0.75}


def test_a_change_in_between_is_not_overwritten(place: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = begun(run)
    nodes, update = tracker._nodes, tracker._nodes.update_context
    others = iter([{"_metrics": {"of somebody else": 1.0}}])

    def late(request: Any, **more: Any) -> Any:
        for theirs in others:
            update(request={"context": {"name": tracker._context, "metadata": theirs}})
        return update(request=request, **more)

    monkeypatch.setattr(nodes, "update_context", late)
    tracker._update_metadata(tracker._context, {"_metrics": {"ours": 2.0}})
    assert dict(nodes.get_context(name=tracker._context).metadata["_metrics"]) == {"of somebody else": 1, "ours": 2}


def test_an_answer_that_is_lost_is_asked_for_again(place: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from google.api_core.exceptions import ServiceUnavailable

    tracker = begun(run)
    make, failures = tracker._boards.batch_create_tensorboard_time_series, iter([ServiceUnavailable("gone")])  # type: ignore[no-untyped-call]

    def unlucky(**request: Any) -> Any:
        answer = make(**request)
        for failure in failures:
            raise failure
        return answer

    monkeypatch.setattr(tracker._boards, "batch_create_tensorboard_time_series", unlucky)
    tracker.record(points(1))
    assert set(tracker._list_series()[1]) == {"train/loss"}


def test_the_tensorboard_that_is_named_is_taken(
    place: str, sdk: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = sdk.Tensorboard.create("somebody's own")
    monkeypatch.setenv("TAGLINE_TENSORBOARD", mine.resource_name)
    assert begun(run)._run.startswith(f"{mine.resource_name}/experiments/{place}/runs/")
    monkeypatch.delenv("TAGLINE_TENSORBOARD")
    assert begun(run)._run.startswith(mine.resource_name)  # it is the experiment's now
    other = sdk.Tensorboard.create("another")
    monkeypatch.setenv("TAGLINE_TENSORBOARD", other.resource_name)
    assert begun(run)._run.startswith(other.resource_name)
    assert sdk.Experiment(place).backing_tensorboard_resource_name == mine.resource_name
    monkeypatch.delenv("TAGLINE_TENSORBOARD")
    mine.delete()
    again = begun(run)
    again.record(points(1))
    assert not again._run.startswith((mine.resource_name, other.resource_name))
    [found] = sdk.ExperimentRun.list(experiment=place)  # the SDK goes where the run's artifact leads
    assert list(found.get_time_series_data_frame()["train/loss"]) == [1.0]
    monkeypatch.setenv("TAGLINE_TENSORBOARD", mine.resource_name)
    with pytest.raises(PlaceError, match="was not found"):
        begun(run)


def test_inside_a_job_its_project_region_and_name_are_recorded(
    place: str, rehearsal: Rehearsal, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PROJECT_ID": "elsewhere", "REGION": "europe-west4", "JOB_ID": "7"}.items():
        monkeypatch.setenv(f"CLOUD_ML_{name}", value)
    tracker = begun(run)
    assert tracker._context.startswith("projects/elsewhere/locations/europe-west4/metadataStores/default/contexts/")
    jobs = tracker._nodes.get_context(name=tracker._context).metadata["_custom_jobs"]
    assert jobs[0]["custom_job_resource_name"] == "projects/elsewhere/locations/europe-west4/customJobs/7"


def test_a_training_in_a_job_records_itself(rehearsal: Rehearsal, sdk: Any, called: str, tmp_path: Path) -> None:
    words = (
        "train",
        str(SUPPORT / "messages.csv"),
        "model.family=linear",
        "model.characters=0",
        "model.max_features=500",
        "training.export=false",
        'tracking.to=["vertex"]',
        "--runs",
        str(tmp_path / "runs"),
    )
    environment = [{"name": "TAGLINE_EXPERIMENT", "value": called}]
    job = rehearsal.run(custom_job(pool(sys.executable, "-c", PATIENT, *words, env=environment)))
    assert job["state"] == "JOB_STATE_SUCCEEDED", rehearsal.said(job["name"])
    said = [line for line in rehearsal.said(job["name"]) if not line.startswith("waiting for tracker")]
    assert not [line for line in said if "tracker" in line]
    sdk.init(project="demo")
    frame = sdk.Experiment(called).get_data_frame()
    report = Run.open(next((tmp_path / "runs").iterdir())).report() or {}
    assert frame["metric.report/test/macro_f1"][0] == report["test"]["macro_f1"]
    assert frame["state"][0] == "COMPLETE"
    [logged] = sdk.ExperimentRun(frame["run_name"][0], called).get_logged_custom_jobs()
    assert logged.resource_name == job["name"]


def test_runs_that_begin_at_once_share_an_experiment(place: str, tmp_path: Path, run: Run) -> None:
    runs = [Run.create(tmp_path / f"runs {number}", run.spec(), {}) for number in range(4)]
    begun(run)  # makes the tensorboard, for which Google has no name to agree on
    opened: list[Any] = []
    threads = [threading.Thread(target=lambda one=one: opened.append(begun(one))) for one in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert len({tracker._context for tracker in opened}) == 4
    assert len({tracker._group for tracker in opened}) == 1


def test_without_googles_clients_nothing_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gcp, "find_spec", lambda _: None)
    with pytest.raises(PlaceError, match="tracker vertex needs google-cloud-aiplatform, which is not installed"):
        trackers.create_trackers(["vertex"])


@pytest.mark.parametrize(
    ("name", "words"), [("My Experiment", "no experiment can have the name"), ("taken-name", "is no experiment but a")]
)
def test_a_name_that_cannot_be_used(
    place: str, run: Run, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    begun(run)._get_or_create_node("context", "taken-name", {"schema_title": "system.PipelineRun"})
    monkeypatch.setenv("TAGLINE_EXPERIMENT", name)
    with pytest.raises(PlaceError, match=words):
        begun(run)


def test_schemas_of_metadata(nodes: Any, called: str) -> None:
    text = f"title: {called}\ntype: object\nproperties:\n  score:\n    type: number\n"
    schema = {"schema": text, "schema_version": "0.0.1", "schema_type": "ARTIFACT_TYPE"}
    made = nodes.create_metadata_schema(parent=STORE, metadata_schema=schema, metadata_schema_id=called)
    assert made.name == f"{STORE}/metadataSchemas/{called}"
    assert nodes.get_metadata_schema(name=made.name).schema == text
    wanted = {"parent": STORE, "filter": f'name="{made.name}" AND schema_type=ARTIFACT_TYPE'}
    assert [one.name for one in nodes.list_metadata_schemas(request=wanted)] == [made.name]
    later = nodes.create_metadata_schema(parent=STORE, metadata_schema=schema | {"schema_version": "0.0.2"})
    assert later.name != made.name
    refused(lambda: nodes.create_metadata_schema(parent=STORE, metadata_schema=schema), "ALREADY_EXISTS", called)
    for wrong, words in (
        ({"schema": ""}, "not set"),
        ({"schema": "a: ["}, "no YAML"),
        ({"schema": "type: object"}, "title"),
        ({"schema_version": "1"}, "no version"),
    ):
        ask = {"parent": STORE, "metadata_schema": schema | wrong}
        refused(lambda: nodes.create_metadata_schema(request=ask), "INVALID_ARGUMENT", words)  # noqa: B023
