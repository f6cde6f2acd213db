"""Lists: every field that the reference lets them be filtered by, their orders, pages and masks."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from vertex_rehearsal import listing
from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.api.messages import fill_message, message_class, v1
from vertex_rehearsal.api.methods import load_methods
from vertex_rehearsal.database import Database

PARENT = "projects/demo/locations/us-central1"
BULLET = re.compile(r"^- ``([\w.]+)``:? (.*(?:\n(?!- |\n).*)*)", re.M)
OPERATOR = re.compile(r"``(:\*|!=|<=|>=|=|<|>|:)``")
SINCE = "2026-03-01T12:00:00Z"
SOON, LATER = "2026-03-01T12:00:01Z", "2026-03-01T12:00:02Z"
LABELS = {"team": "text", "a key": "x"}
RESOURCES: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "CustomJobs": ("CustomJob", "customJobs/1", {"state": "JOB_STATE_RUNNING"}),
    "HyperparameterTuningJobs": (
        "HyperparameterTuningJob", "hyperparameterTuningJobs/1", {"state": "JOB_STATE_RUNNING"},
    ),
    "BatchPredictionJobs": ("BatchPredictionJob", "batchPredictionJobs/1", {"state": "JOB_STATE_RUNNING"}),
    "TrainingPipelines": (
        "TrainingPipeline", "trainingPipelines/1",
        {"state": "PIPELINE_STATE_RUNNING", "trainingTaskDefinition": "gs://schemas/custom_task_1.0.0.yaml"},
    ),
    "PipelineJobs": (
        "PipelineJob", "pipelineJobs/train-1",
        {
            "state": "PIPELINE_STATE_RUNNING", "updateTime": SOON, "endTime": LATER, "startTime": SINCE,
            "templateUri": "gs://templates/train.yaml", "templateMetadata": {"version": "v1"},
            "pipelineSpec": {"pipelineInfo": {"name": "train"}}, "scheduleName": f"{PARENT}/schedules/7",
        },
    ),
    "Schedules": (
        "Schedule", "schedules/1",
        {
            "state": "ACTIVE", "startTime": SOON, "endTime": LATER, "nextRunTime": LATER,
            "createPipelineJobRequest": {"pipelineJobId": "train-1"},
        },
    ),
    "Models": (
        "Model", "models/m1@1", {"baseModelSource": {"modelGardenSource": {"publicModelName": "a/b/gemma@2"}}}
    ),
    "ModelVersions": ("Model", "models/m1@1", {}),
    "Endpoints": ("Endpoint", "endpoints/5", {}),
    "Contexts": ("Context", "contexts/c1", {"updateTime": SOON}),
    "Artifacts": ("Artifact", "artifacts/a1", {"updateTime": SOON, "uri": "gs://b/x", "state": "LIVE"}),
    "Executions": ("Execution", "executions/e1", {"updateTime": SOON, "state": "RUNNING"}),
}  # fmt: skip
"""One resource of each kind: its message, its name and what it holds."""
NODES = ("Contexts", "Artifacts", "Executions")
VALUES = {
    "name": "*", "state": "*", "create_pipeline_job_request": "*", "model": "m1", "endpoint": "5",
    "pipeline_name": "train",
    "pipeline_job_user_id": "train-1", "model_display_name": "the model", "schema_title": "system.Run",
    "base_model_name": "gemma",
}  # fmt: skip
"""What filters compare with where it does not stand in the resource under the same name; * is looked up there."""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    load_methods()
    database = Database(tmp_path_factory.mktemp("lists") / "lists.sqlite")
    for name in RESOURCES:
        if name != "ModelVersions":
            _add(database, name)
    yield database
    database.close()


def _add(database: Database, listed: str, **more: Any) -> None:
    kind, path, fields = RESOURCES[listed]
    below = f"{PARENT}/metadataStores/default" if listed in NODES else PARENT
    content = {"name": f"{below}/{path}", "displayName": "my job", "createTime": SINCE, **fields, **more}
    if listed in NODES:
        content |= {"schemaTitle": "system.Run", "metadata": {"score": 0.5}}
    if listed != "Schedules":
        content["labels"] = LABELS
    database.add(fill_message(message_class(f"google.cloud.aiplatform.v1.{kind}")(), content))
    if listed == "BatchPredictionJobs":
        database.add_note(content["name"], "model_display_name", "the model")
    if listed == "Endpoints":
        database.add_note(content["name"], "base_model_name", "gemma")


def _list(database: Database, listed: str, **asked: Any) -> list[str]:
    request = message_class(f"google.cloud.aiplatform.v1.List{listed}Request")(**asked)
    below = f"{PARENT}/metadataStores/default" if listed in NODES else PARENT
    collection = f"{below}/{RESOURCES[listed][1].partition('/')[0]}"
    return [resource.name.rpartition("/")[2] for resource in database.list_page(collection, request)[0]]


def _documented() -> Iterator[tuple[str, str, set[str]]]:
    """List, field and operators, as the request messages of Google's library describe them."""
    from google.cloud import aiplatform_v1

    for listed in listing.LISTS:
        text = str(getattr(aiplatform_v1, f"List{listed}Request").__doc__)
        parts = re.split(r"\n        (?=\w+ \()", text)
        about = next(part for part in parts if part.strip().startswith("filter ("))
        about = re.sub(r"\\", "", re.sub(r"^ +", "", about, flags=re.M))
        for name, rules in BULLET.findall(about):
            operators = set(OPERATOR.findall(rules))
            if name == "labels":
                operators = {"=", ":"}  # key:value equality, and key existence
            yield listed, name, {":" if one == ":*" else one for one in operators}
        if prose := re.search(r"Supported fields include[^.]*\.", about):  # of nodes of metadata
            for name in re.findall(r"``(\w+)``", prose[0]):
                yield listed, name, set()


def test_the_table_is_what_the_reference_says() -> None:
    documented = list(_documented())
    assert len(documented) == 62, "the documentation of Google's library is written otherwise now"
    for listed, name, operators in documented:
        if name == "request":  # of a schedule: the one kind of request that it may hold
            name, operators = "create_pipeline_job_request", {":"}
        fields = listing.LISTS[listed].fields
        assert fields is not None
        assert name in fields, (listed, name)
        if name in ("labels",):
            assert operators <= set(fields[name].operators)
        elif operators:
            assert set(fields[name].operators) == operators, (listed, name)


CASES = [
    (listed, name, operator)
    for listed, rules in listing.LISTS.items()
    for name, field in (rules.fields or {}).items()
    for operator in field.operators
]


def _get_value(listed: str, name: str) -> str:
    _, path, fields = RESOURCES[listed]
    known = {"display_name": "my job", "create_time": SINCE} | fields
    camel = re.sub(r"_([a-z])", lambda found: found[1].upper(), name)
    if name == "name":
        return f"{PARENT}/metadataStores/default/{path}"
    if name == "template_metadata.version":
        return "v1"
    if VALUES.get(name, "*") != "*":
        return VALUES[name]
    return str(known.get(camel, known.get(name)))


@pytest.mark.parametrize(("listed", "name", "operator"), CASES)
def test_every_field_is_found_and_its_opposite_is_not(
    database: Database, listed: str, name: str, operator: str
) -> None:
    if name in ("labels", "metadata"):
        field, value = ("labels.team", "text") if name == "labels" else ("metadata.score", "0.5")
    elif name == "create_pipeline_job_request":
        field, value = name, "*"
    else:
        field, value = name, _get_value(listed, name)
    if field.endswith("_time") and operator == ":":
        value = "*"
    passes = operator in ("=", "<=", ">=", ":")
    found = _list(database, listed, filter=f'{field}{operator}"{value}"')
    assert bool(found) == passes, (field, operator, value)
    assert bool(_list(database, listed, filter=f'NOT {field}{operator}"{value}"')) != passes
    if operator == ":" and value != "*":
        assert _list(database, listed, filter=f'{field}:"{value[:2]}*"')
        assert not _list(database, listed, filter=f'{field}:"{value[1:2]}*{value[-1:]}x"')
    if operator in ("<", ">"):
        beyond = "2026-03-02T00:00:00+01:00" if operator == "<" else "2026-02-28T23:59:59.5Z"
        beyond = beyond if field.endswith("_time") else {"<": "~", ">": "!"}[operator]
        if name != "metadata":
            assert _list(database, listed, filter=f'{field}{operator}"{beyond}"'), (field, operator, beyond)


@pytest.mark.parametrize("listed", listing.LISTS)
@pytest.mark.parametrize(
    "text",
    ["nonsense=1", "display_nam=x", "description=x", "=~x", "my", "error.code=5", "NOT nobody:*", "in_project(1)"],
)
def test_what_cannot_be_asked_is_refused_even_of_an_empty_list(tmp_path: Path, listed: str, text: str) -> None:
    load_methods()
    database = Database(tmp_path / "lists.sqlite")
    with pytest.raises(ApiError, match=r"[Ff]ilter") as caught:
        _list(database, listed, filter=text)
    assert (caught.value.code, caught.value.field) == ("INVALID_ARGUMENT", "filter")
    database.close()


@pytest.mark.parametrize(
    ("listed", "text", "problem"),
    [
        ("CustomJobs", "state=SUCCEEDED", 'no state; JOB_STATE_UNSPECIFIED, JOB_STATE_QUEUED'),
        ("CustomJobs", "state>JOB_STATE_QUEUED", "cannot be compared by >; = != can"),
        ("CustomJobs", 'create_time>"2026-03-01"', "no time as RFC 3339"),
        ("CustomJobs", 'create_time>"2026-13-01T00:00:00Z"', "no timestamp"),
        ("CustomJobs", "display_name=~x", "cannot be compared by =~"),
        ("Models", 'display_name:"x*"', "cannot be compared by :"),
        ("ModelVersions", 'display_name="x"', 'cannot be filtered by "display_name"; by labels.'),
        ("PipelineJobs", "template_metadata.nonsense=1", "cannot be filtered by"),
        ("Tensorboards", "nonsense=1", 'Tensorboard has no field "nonsense"'),
    ],
)  # fmt: skip
def test_a_value_or_an_operator_that_means_nothing_is_refused(
    database: Database, listed: str, text: str, problem: str
) -> None:
    request = message_class(f"google.cloud.aiplatform.v1.List{listed}Request")(filter=text)
    with pytest.raises(ApiError, match=re.escape(problem)) as caught:
        database.list_page("nothing", request)
    assert caught.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("displayName='my job'", True), ('labels."a key"=x', True), ("labels:team", True), ("labels:nobody", False),
        ("labels.team:*", True), ("labels.nobody:*", False),
        ('display_name:"*job"', True), ('display_name:"*jo"', False),
        ('display_name:"my"', True), ("state=JOB_STATE_FAILED OR state=JOB_STATE_RUNNING AND display_name=x", False),
        ('display_name="my job" OR display_name=x AND state=JOB_STATE_RUNNING', True),
        ("-state=JOB_STATE_FAILED", True),
    ],
)  # fmt: skip
def test_the_language_of_filters(database: Database, text: str, passes: bool) -> None:
    assert bool(_list(database, "CustomJobs", filter=text)) == passes


def test_a_default_is_a_value_too(tmp_path: Path) -> None:
    load_methods()
    database = Database(tmp_path / "lists.sqlite")
    database.add(v1.Tensorboard(name=f"{PARENT}/tensorboards/1", display_name="x"))
    for text, count in (("is_default=false", 1), ("is_default=true", 0), ("description:*", 0), ("run_count=0", 1)):
        request = v1.ListTensorboardsRequest(filter=text)
        assert len(database.list_page(f"{PARENT}/tensorboards", request)[0]) == count, text
    database.close()


def test_orders_hold_over_pages_while_resources_come_and_go(tmp_path: Path) -> None:
    load_methods()
    database = Database(tmp_path / "lists.sqlite")
    for number, name in enumerate(["b", "a", "c", "a", "b"]):
        end = {"endTime": f"2026-03-01T12:00:0{number}Z"} if number != 2 else {"endTime": None}
        _add(database, "PipelineJobs", name=f"{PARENT}/pipelineJobs/{name}{number}", displayName=name, **end)
    assert _list(database, "PipelineJobs") == ["b4", "a3", "c2", "a1", "b0"]
    assert _list(database, "PipelineJobs", order_by="end_time") == ["c2", "b0", "a1", "a3", "b4"]
    assert _list(database, "PipelineJobs", order_by="create_time desc, endTime desc") == ["b4", "a3", "a1", "b0", "c2"]

    def ask(token: str, **asked: Any) -> tuple[list[str], str]:
        request = v1.ListPipelineJobsRequest(order_by="end_time desc", page_size=2, page_token=token, **asked)
        found, more = database.list_page(f"{PARENT}/pipelineJobs", request)
        return [job.name.rpartition("/")[2] for job in found], more

    first, token = ask("")
    assert first == ["b4", "a3"]
    database.remove(f"{PARENT}/pipelineJobs/a3")
    _add(database, "PipelineJobs", name=f"{PARENT}/pipelineJobs/late", endTime="2026-03-01T13:00:00Z")
    second, token = ask(token)
    assert second == ["a1", "b0"]
    assert ask(token) == (["c2"], "")
    for bad in ("zz", "00", b"[[],1]".hex(), b'[[["x"]],"y"]'.hex(), "12"):
        with pytest.raises(ApiError, match="page token"):
            ask(bad)
    for listed, order in (
        ("PipelineJobs", "display_name"), ("Models", "state"), ("Models", "display_name up"), ("Models", ","),
        ("ModelVersions", "display_name"), ("Artifacts", "nonsense"), ("Endpoints", "create_time desc desc"),
    ):  # fmt: skip
        with pytest.raises(ApiError, match="order") as caught:
            _list(database, listed, order_by=order)
        assert (caught.value.code, caught.value.field) == ("INVALID_ARGUMENT", "order_by")
    database.close()


def test_orders_of_nodes_may_be_of_what_they_hold(database: Database) -> None:
    assert _list(database, "Artifacts", order_by="metadata.score desc, display_name") == ["a1"]


def test_masks_leave_what_they_name() -> None:
    load_methods()
    job = fill_message(v1.PipelineJob(), {
        "name": "n", "displayName": "d", "labels": LABELS, "createTime": SINCE, "serviceAccount": "a",
        "pipelineSpec": {"pipelineInfo": {"name": "train"}, "root": {"dag": {}}},
        "jobDetail": {"taskDetails": [{"taskName": "t"}], "pipelineContext": {"name": "c"}},
        "templateMetadata": {"version": "v1"}, "runtimeConfig": {"parameterValues": {"x": 1, "y": 2}},
    })  # fmt: skip

    def mask(*paths: str) -> Any:
        request = v1.ListPipelineJobsRequest(read_mask={"paths": paths})
        listing.check_read_mask(request)
        response = v1.ListPipelineJobsResponse(pipeline_jobs=[job], next_page_token="t")
        listing.apply_read_mask(request, response)
        assert response.next_page_token == "t"
        return response.pipeline_jobs[0]

    assert mask("*") == job
    assert mask("name", "display_name") == v1.PipelineJob(name="n", display_name="d")
    assert mask("pipeline_spec.pipeline_info") == fill_message(
        v1.PipelineJob(), {"pipelineSpec": {"pipelineInfo": {"name": "train"}}}
    )
    assert mask("job_detail.pipeline_context.name", "labels.team", "end_time") == fill_message(
        v1.PipelineJob(), {"jobDetail": {"pipelineContext": {"name": "c"}}, "labels": {"team": "text"}}
    )
    assert mask("runtime_config.parameter_values.x", "labels.nobody") == fill_message(
        v1.PipelineJob(), {"runtimeConfig": {"parameterValues": {"x": 1}}}
    )
    for bad in ("nonsense", "name.first", "job_detail.task_details.task_name", "create_time.nonsense"):
        with pytest.raises(ApiError, match="has no field") as caught:
            mask(bad)
        assert caught.value.field == "read_mask"
