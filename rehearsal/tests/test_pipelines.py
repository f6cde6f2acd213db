"""Pipeline jobs of the rehearsal: compiled by kfp, submitted by aiplatform_v1, both unmodified."""

import json
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, List  # noqa: UP035

import pytest
import yaml
from kfp import compiler, dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from rehearsing import IMAGE, PARENT, Rehearsal, rehearsing, until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount the buckets at /gcs")
ENDED = ("PIPELINE_STATE_SUCCEEDED", "PIPELINE_STATE_FAILED", "PIPELINE_STATE_CANCELLED")
HERE = {"base_image": "python:3.11", "install_kfp_package": False}


@dsl.component(**HERE)
def make(count: int, rows: Output[Dataset]) -> int:
    with open(rows.path, "w") as file:  # noqa: PTH123
        file.write("row\n" * count)
    rows.metadata["count"] = count
    return count * 2


@dsl.component(base_image="python:3.11")
def train(rows: Input[Dataset], rate: float, model: Output[Model], metrics: Output[Metrics]) -> str:
    with open(rows.path) as file, open(model.path, "w") as out:  # noqa: PTH123
        out.write(file.read().upper())
    print("rows know", rows.metadata["count"])
    metrics.log_metric("accuracy", 0.5)
    return "good" if rate > 0.1 else "bad"


@dsl.component(**HERE)
def double(number: int) -> int:
    return number * 2


@dsl.component(**HERE)
def add(numbers: list) -> int:
    return sum(numbers)


@dsl.component(**HERE)
def fail(word: str):
    import sys

    sys.exit(f"{word} went wrong")


@dsl.component(**HERE)
def sleep():
    import time

    time.sleep(600)


@dsl.component(**HERE)
def conclude(status: dsl.PipelineTaskFinalStatus):
    print("it ended", status.state, status.error_message)


@dsl.container_component
def box(text: str, out: dsl.OutputPath(str)):  # type: ignore[valid-type]
    script = 'mkdir -p "$(dirname "$1")" && printf %s "boxed $0" > "$1"'
    return dsl.ContainerSpec(image=IMAGE, command=["sh", "-c", script], args=[text, out])


@dsl.pipeline(name="boxes")
def boxes(word: str):
    box(text=word)


@dsl.pipeline(name="the-way")
def way(count: int = 3, rate: float = 0.5, word: str = "hello") -> int:
    made = make(count=count)
    trained = train(rows=made.outputs["rows"], rate=rate)
    with dsl.If(trained.outputs["Output"] == "good"):
        box(text=f"{word} world")
    with dsl.Else():
        fail(word="a branch that is not taken")
    with dsl.ParallelFor([1, 2]) as number:
        each = double(number=number)
    return add(numbers=dsl.Collected(each.output)).output


@dsl.component(**HERE)
def pairs() -> List[dict]:  # noqa: UP006
    return [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


@dsl.component(**HERE)
def write(a: int, b: str, part: Output[Dataset]) -> float:
    with open(part.path, "w") as file:  # noqa: PTH123
        file.write(f"{a}{b}")
    return float("nan")


@dsl.component(**HERE)
def join(parts: Input[List[Dataset]], more: Input[Dataset], word: str) -> str:  # noqa: UP006
    texts = []
    for part in [*parts, more]:
        with open(part.path) as file:  # noqa: PTH123
            texts.append(file.read())
    return " ".join([*texts, more.metadata["kind"], word])


@dsl.component(**HERE)
def flaky(word: str, mark: str) -> str:
    import os
    import sys

    if not os.path.exists(mark):  # noqa: PTH110
        os.mkdir(mark)  # noqa: PTH102
        sys.exit(1)
    return word


@dsl.pipeline(name="inner")
def inner(word: str) -> str:
    return flaky(word=word, mark="/gcs/pipes/tried").set_retry(num_retries=1, backoff_duration="0s").output


@dsl.pipeline(name="wide")
def wide(which: str = "left"):
    with dsl.ParallelFor(pairs().output, parallelism=1) as pair:
        written = write(a=pair.a, b=pair.b)
    with dsl.If(which == "left", name="left"):
        left = inner(word="from the left")
    with dsl.Else(name="right"):
        right = inner(word="from the right")
    there = dsl.importer(artifact_uri="gs://pipes/there.txt", artifact_class=Dataset, metadata={"kind": "imported"})
    word = dsl.OneOf(left.output, right.output)
    join(parts=dsl.Collected(written.outputs["part"]), more=there.output, word=word)


@dsl.pipeline(name="breaks")
def breaks(word: str):
    with dsl.ExitHandler(conclude()):
        failed = fail(word=word)
        double(number=1).after(failed)


@dsl.pipeline(name="sleeps")
def sleeps():
    double(number=1).after(sleep())


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], dict[str, Any]]:
    """A pipeline as the compiler writes it."""

    def compile_it(pipeline: Any) -> dict[str, Any]:
        path = tmp_path_factory.mktemp("compiled") / "pipeline.yaml"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiler.Compiler().compile(pipeline, str(path))
        return dict(yaml.safe_load(path.read_text()))

    return compile_it


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with rehearsing(tmp_path_factory.mktemp("rehearsal") / "here", "--grace", "1") as found:
        (found.directory / "buckets" / "pipes").mkdir()
        yield found
        assert found.processes() == set()
        assert not list((found.directory / "jobs").glob("*/*/environment"))


def pipeline_job(spec: dict[str, Any] | None, **parameters: Any) -> dict[str, Any]:
    """A pipeline job's JSON."""
    config = {"gcsOutputDirectory": "gs://pipes/out", "parameterValues": parameters}
    return {"runtimeConfig": config, **({"pipelineSpec": spec} if spec else {})}


def submit(rehearsal: Rehearsal, job: dict[str, Any], number: str = "") -> str:
    query = f"?pipelineJobId={number}" if number else ""
    status, answer = rehearsal.http("POST", f"/v1/{PARENT}/pipelineJobs{query}", job)
    assert status == 200, answer
    return str(answer["name"])


def tasks_of(job: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {task["taskName"]: task for task in job.get("jobDetail", {}).get("taskDetails", [])}


def test_a_pipeline_by_googles_client(rehearsal: Rehearsal, compiled: Any) -> None:
    from google.cloud.aiplatform_v1 import PipelineJob, PipelineState

    client = rehearsal.client("PipelineServiceClient")
    wish = PipelineJob.from_json(json.dumps(pipeline_job(compiled(way), count=2)))
    created = client.create_pipeline_job(parent=PARENT, pipeline_job=wish, pipeline_job_id="the-first")
    assert created.name == f"{PARENT}/pipelineJobs/the-first"
    found = until(lambda: (job := client.get_pipeline_job(name=created.name)).end_time and job, "the pipeline's end")
    assert found.state == PipelineState.PIPELINE_STATE_SUCCEEDED, found.error
    assert found.display_name == "the-way"
    tasks = tasks_of(json.loads(PipelineJob.to_json(found, use_integers_for_enums=False)))
    assert {name: task["state"] for name, task in tasks.items()} == dict.fromkeys(
        (
            "make",
            "train",
            "condition-branches-1",
            "condition-2",
            "box",
            "for-loop-5",
            "for-loop-5-0",
            "for-loop-5-1",
            "double",
            "add",
        ),
        "SUCCEEDED",
    ) | {"condition-3": "NOT_TRIGGERED"}
    assert tasks["make"]["execution"]["metadata"] == {"input:count": 2, "output:Output": 4}
    assert tasks["box"]["execution"]["metadata"]["output:out"] == "boxed hello world"
    assert tasks["add"]["execution"]["metadata"] == {"input:numbers": [2, 4], "output:Output": 6}
    assert tasks["box"]["parentTaskId"] == tasks["condition-2"]["taskId"]
    (model,) = tasks["train"]["outputs"]["model"]["artifacts"]
    assert model["uri"] == f"gs://pipes/out/the-first/{tasks['train']['taskId']}/model"
    assert (rehearsal.directory / "buckets" / model["uri"].removeprefix("gs://")).read_text() == "ROW\nROW\n"
    (metrics,) = tasks["train"]["outputs"]["metrics"]["artifacts"]
    assert (metrics["schemaTitle"], metrics["metadata"]) == ("system.Metrics", {"accuracy": 0.5})
    assert "rows know 2" in rehearsal.said(tasks["train"]["executorDetail"]["containerDetail"]["mainJob"])
    for condition in (
        'pipeline_name="the-way" AND create_time>"2026-01-01T00:00:00Z"',
        'pipeline_job_user_id:"the-fi*"',
        'display_name:"the*" AND state=PIPELINE_STATE_SUCCEEDED',
    ):
        asked = {"parent": PARENT, "filter": condition, "order_by": "end_time desc"}
        (listed,) = client.list_pipeline_jobs(request=asked)
        assert (listed.name, listed.job_detail) == (created.name, found.job_detail), condition
    assert not list(client.list_pipeline_jobs(request={"parent": PARENT, "filter": 'pipeline_name="another"'}))
    client.delete_pipeline_job(name=created.name).result(timeout=60)
    assert rehearsal.http("GET", f"/v1/{created.name}")[0] == 404


def test_a_pipeline_by_the_high_level_package(
    rehearsal: Rehearsal, compiled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into a bucket that it makes, for an account that is named: else it asks Google itself, for a minute."""
    from google.cloud import aiplatform

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", rehearsal.keyed_address)
    where = {"project": "demo", "location": "us-central1", "credentials": rehearsal.credentials}
    aiplatform.init(api_endpoint=rehearsal.address, api_transport="rest", **where)
    (tmp_path / "pipeline.yaml").write_text(yaml.safe_dump(compiled(boxes)))
    job = aiplatform.PipelineJob(
        display_name="high",
        template_path=str(tmp_path / "pipeline.yaml"),
        pipeline_root="gs://made-for-pipes/out",
        parameter_values={"word": "high"},
        enable_caching=False,
    )
    job.submit(service_account="me@demo.iam.gserviceaccount.com")
    policy = rehearsal.http("GET", "/storage/v1/b/made-for-pipes/iam")[1]
    assert ["serviceAccount:me@demo.iam.gserviceaccount.com"] in [each["members"] for each in policy["bindings"]]
    rehearsal.wait(job.resource_name, *ENDED)
    job.wait()
    assert job.state.name == "PIPELINE_STATE_SUCCEEDED"
    (task,) = job.task_details
    assert task.execution.metadata["output:out"] == "boxed high"
    with pytest.warns(DeprecationWarning, match="warn"):  # of the package's own making
        (listed,) = aiplatform.PipelineJob.list(
            filter='display_name="high"', order_by="create_time", enable_simple_view=True
        )
    assert listed.resource_name == job.resource_name
    assert listed.gca_resource.pipeline_spec["pipelineInfo"]["name"] == "boxes"
    assert not listed.gca_resource.runtime_config.gcs_output_directory, "not in the simple view"
    job.delete()
    assert rehearsal.http("GET", f"/v1/{job.resource_name}")[0] == 404


def test_loops_branches_importers_retries_and_pipelines_in_pipelines(rehearsal: Rehearsal, compiled: Any) -> None:
    (rehearsal.directory / "buckets" / "pipes" / "there.txt").write_text("three")
    job = rehearsal.wait(submit(rehearsal, pipeline_job(compiled(wide))), *ENDED)
    assert job["state"] == "PIPELINE_STATE_SUCCEEDED", job["error"]
    tasks = tasks_of(job)
    joined = tasks["join"]["execution"]["metadata"]["output:Output"]
    assert joined == "1x 2y three imported from the left"
    assert tasks["write"]["execution"]["metadata"]["output:Output"] == "nan"
    (both,) = (task["taskId"] for name, task in tasks.items() if name.startswith("condition-branches"))
    branches = [task["state"] for task in tasks.values() if task.get("parentTaskId") == both]
    assert sorted(branches) == ["NOT_TRIGGERED", "SUCCEEDED"]


def test_both_failure_policies(rehearsal: Rehearsal) -> None:
    go = rehearsal.directory / "buckets" / "pipes" / "go"
    commands = {"fail": "exit 1", "wait": "until [ -e /gcs/pipes/go ]; do sleep 0.02; done", "last": "true"}
    spec = {
        "schemaVersion": "2.1.0",
        "pipelineInfo": {"name": "policies"},
        "components": {name: {"executorLabel": name} for name in commands},
        "deploymentSpec": {
            "executors": {
                name: {"container": {"image": IMAGE, "command": ["sh", "-c", command]}}
                for name, command in commands.items()
            }
        },
        "root": {
            "dag": {
                "tasks": {
                    name: {"componentRef": {"name": name}, "dependentTasks": ["wait"] if name == "last" else []}
                    for name in commands
                }
            }
        },
    }
    names = {}
    for policy, expected in (("FAIL_SLOW", "SUCCEEDED"), ("FAIL_FAST", "NOT_TRIGGERED")):
        job = pipeline_job(spec)
        job["runtimeConfig"]["failurePolicy"] = f"PIPELINE_FAILURE_POLICY_{policy}"
        names[submit(rehearsal, job)] = expected
    for name in names:
        until(lambda name=name: tasks_of(rehearsal.job(name)).get("fail", {}).get("state") == "FAILED", "a failed task")
    go.touch()
    for name, expected in names.items():
        job = rehearsal.wait(name, *ENDED)
        assert job["state"] == "PIPELINE_STATE_FAILED"
        assert tasks_of(job)["last"]["state"] == expected


def test_a_failure_has_a_name_and_the_exit_handler_runs(rehearsal: Rehearsal, compiled: Any) -> None:
    template = rehearsal.directory / "buckets" / "pipes" / "breaks.yaml"
    template.write_text(yaml.safe_dump(compiled(breaks)))
    name = submit(rehearsal, {**pipeline_job(None, word="everything"), "templateUri": "gs://pipes/breaks.yaml"})
    job = rehearsal.wait(name, *ENDED)
    assert job["state"] == "PIPELINE_STATE_FAILED"
    assert job["error"]["message"].startswith("The DAG failed because some tasks failed. The failed tasks are: [fail].")
    assert "exited with a non-zero status of 1" in job["error"]["message"]
    tasks = tasks_of(job)
    states = {name: task["state"] for name, task in tasks.items()}
    assert states == {"fail": "FAILED", "double": "NOT_TRIGGERED", "exit-handler-1": "FAILED", "conclude": "SUCCEEDED"}
    assert "everything went wrong" in rehearsal.said(tasks["fail"]["executorDetail"]["containerDetail"]["mainJob"])
    said = rehearsal.said(tasks["conclude"]["executorDetail"]["containerDetail"]["mainJob"])
    assert any(line.startswith("it ended FAILED") and "fail: The replica" in line for line in said), said
    wanted = 'resource.type="aiplatform.googleapis.com/PipelineJob" AND resource.labels.pipeline_job_id='
    wish = {"resourceNames": ["projects/demo"], "filter": f'{wanted}"{name.rpartition("/")[2]}"'}
    entries = rehearsal.http("POST", "/v2/entries:list", wish)[1]["entries"]
    assert any(entry["jsonPayload"].get("taskName") == "fail" and entry["severity"] == "ERROR" for entry in entries)


def test_cancelling_ends_the_tasks(rehearsal: Rehearsal, compiled: Any) -> None:
    name = submit(rehearsal, pipeline_job(compiled(sleeps)))

    def is_running() -> bool:
        tasks = rehearsal.job(name).get("jobDetail", {}).get("taskDetails", [])
        return any(task["state"] == "RUNNING" for task in tasks)

    until(is_running, "a task that runs")
    status, answer = rehearsal.http("DELETE", f"/v1/{name}")
    assert (status, answer["error"]["status"]) == (400, "FAILED_PRECONDITION")
    assert rehearsal.http("POST", f"/v1/{name}:cancel", {}) == (200, {})
    job = rehearsal.wait(name, *ENDED)
    assert job["state"] == "PIPELINE_STATE_CANCELLED"
    assert {task["state"] for task in tasks_of(job).values()} == {"CANCELLED"}
    assert rehearsal.processes() == set()


def test_what_is_refused(rehearsal: Rehearsal, compiled: Any) -> None:
    good = compiled(way)

    def refused(job: dict[str, Any], query: str = "") -> tuple[str, str]:
        status, answer = rehearsal.http("POST", f"/v1/{PARENT}/pipelineJobs{query}", job)
        assert status >= 400, answer
        details = answer["error"].get("details")
        return answer["error"]["status"], details[0]["fieldViolations"][0]["field"] if details else ""

    def changed(**change: Any) -> dict[str, Any]:
        return pipeline_job({**good, **change})

    at = "pipeline_job.pipeline_spec"
    parameters = "pipeline_job.runtime_config.parameter_values"
    root = "pipeline_job.runtime_config.gcs_output_directory"
    assert refused({}) == ("INVALID_ARGUMENT", at)
    assert refused(changed(schemaVersion="2.0.0")) == ("UNIMPLEMENTED", f"{at}.schemaVersion")
    assert refused(changed(root={})) == ("INVALID_ARGUMENT", at)
    assert refused(pipeline_job(good, nobody=1)) == ("INVALID_ARGUMENT", parameters)
    assert refused(pipeline_job(good, count="x")) == ("INVALID_ARGUMENT", parameters)
    assert refused(pipeline_job(compiled(breaks))) == ("INVALID_ARGUMENT", parameters)
    assert refused({"pipelineSpec": good}) == ("INVALID_ARGUMENT", root)
    assert refused({"pipelineSpec": good, "runtimeConfig": {"gcsOutputDirectory": "gs://nobody/x"}}) == (
        "NOT_FOUND",
        root,
    )
    assert refused(pipeline_job(good), "?pipelineJobId=Not_an_id") == ("INVALID_ARGUMENT", "pipeline_job_id")
    assert refused({**pipeline_job(None), "templateUri": "gs://pipes/no.yaml"}) == (
        "NOT_FOUND",
        "pipeline_job.template_uri",
    )
    assert refused({**pipeline_job(None), "templateUri": "https://registry/x"})[0] == "UNIMPLEMENTED"
    for number, text in enumerate(("- a list", "{not: closed", "root: 2026-01-01\n")):
        (rehearsal.directory / "buckets" / "pipes" / f"{number}.yaml").write_text(text)
        template = {**pipeline_job(None), "templateUri": f"gs://pipes/{number}.yaml"}
        assert refused(template)[0] == "INVALID_ARGUMENT"
    circle = {
        name: {"componentRef": {"name": "comp-add"}, "dependentTasks": [other]}
        for name, other in (("a", "b"), ("b", "a"))
    }
    assert refused(changed(root={"dag": {"tasks": circle}})) == ("INVALID_ARGUMENT", f"{at}.root.dag.tasks")
    executors = {**good["deploymentSpec"]["executors"], "exec-add": {"customJob": {}}}
    assert refused(changed(deploymentSpec={"executors": executors})) == (
        "UNIMPLEMENTED",
        f"{at}.deploymentSpec.executors",
    )
