"""What the rehearsal's page is told, of a thousand jobs and a hundred thousand lines."""

import json
from collections.abc import Iterator

import pytest

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.api.messages import fill_message, v1
from vertex_rehearsal.api.methods import load_methods
from vertex_rehearsal.console.api import ConsoleApi, iter_machines
from vertex_rehearsal.context import Context
from vertex_rehearsal.settings import Settings
from vertex_rehearsal.training.service import create_queue

PARENT = "projects/demo/locations/us-central1"


@pytest.fixture(scope="module")
def browsing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleApi]:
    load_methods()
    context = Context.create(Settings(directory=tmp_path_factory.mktemp("rehearsal")))
    for number in range(1000):
        where = PARENT if number % 2 else "projects/other/locations/europe-west4"
        state = "JOB_STATE_FAILED" if number == 7 else "JOB_STATE_SUCCEEDED"
        job = {"name": f"{where}/customJobs/{number}", "displayName": f"job {number}", "state": state}
        context.database.add(fill_message(v1.CustomJob(), job))
    context.database.add(fill_message(v1.Model(), {"name": f"{PARENT}/models/1", "displayName": "a model"}))
    for version in ("1", "2"):
        context.database.add(fill_message(v1.Model(), {"name": f"{PARENT}/models/2@{version}", "versionId": version}))
    statement = "INSERT INTO entries (log, job, moment, insert_id, content) VALUES (?, ?, ?, ?, ?)"
    context.database.run_many(statement, [_row(number) for number in range(100_000)])
    yield ConsoleApi(context, create_queue(context))
    context.close()


def _row(number: int) -> tuple[str, ...]:
    """A log entry as it is kept."""
    log, job = "projects/demo/logs/workerpool0-0", str(number % 10)
    labels = {"job_id": job, "task_name": "workerpool0-0"}
    if number == 50_000:
        job, labels = "", {"endpoint_id": "77"}
    entry = {
        "logName": log,
        "severity": "ERROR" if number == 100 else "INFO",
        "resource": {"labels": labels},
        "jsonPayload": {"message": f'line {number} "quoted" Grüße'},
    }
    return log, job, f"2026-01-01T00:00:00.{number:06d}Z", str(number), json.dumps(entry)


def test_every_job_is_on_one_page_newest_first(browsing: ConsoleApi) -> None:
    seen: list[str] = []
    before = None
    while True:
        page = browsing.list_resources("customJobs", before=before)
        seen += [item["displayName"] for item in page["items"]]
        before = page["next"]
        if before is None:
            break
    assert seen == [f"job {number}" for number in reversed(range(1000))]


def test_a_search_looks_at_names_and_states(browsing: ConsoleApi) -> None:
    assert [item["displayName"] for item in browsing.list_resources("customJobs", text="failed")["items"]] == ["job 7"]
    assert browsing.list_resources("customJobs", text="Job 99")["items"][0]["displayName"] == "job 999"
    assert browsing.list_resources("models", text="a MODEL")["items"][0]["name"] == f"{PARENT}/models/1"
    assert browsing.list_resources("nothing") == {"items": [], "next": None}


def test_of_a_long_log_the_end_is_shown(browsing: ConsoleApi) -> None:
    found = browsing.list_entries()
    assert [entry["text"][:10] for entry in found["entries"]][-1] == "line 99999"
    assert len(found["entries"]) == 500
    assert found["more"]
    for job in ("1", ""):
        assert browsing.list_entries(about=job, after=found["last"])["entries"] == []


def test_lines_are_chosen_by_job_severity_and_text(browsing: ConsoleApi) -> None:
    assert {entry["job"] for entry in browsing.list_entries(about="3")["entries"]} == {"3"}
    (wrong,) = browsing.list_entries(severity="WARNING")["entries"]
    assert (wrong["severity"], wrong["text"]) == ("ERROR", 'line 100 "quoted" Grüße')
    (one,) = browsing.list_entries(text='LINE 4321 "quoted" Grüße')["entries"]
    assert one["job"] == "1"
    (served,) = browsing.list_entries(about="77")["entries"]
    assert served["text"].startswith("line 50000 ")
    with pytest.raises(ApiError, match="LOUD is no severity"):
        browsing.list_entries(severity="LOUD")


def test_earlier_lines_join_without_a_gap(browsing: ConsoleApi) -> None:
    newest = browsing.list_entries(about="4")["entries"]
    first = newest[0]
    earlier = browsing.list_entries(about="4", before=(first["moment"], first["number"]))["entries"]
    assert int(earlier[-1]["text"].split()[1]) + 10 == int(first["text"].split()[1])


def test_machines_are_found_wherever_they_are_named() -> None:
    inputs = {"worker_pool_specs": [{"machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 2.0}]}
    deployed = [{"dedicatedResources": {"machineSpec": {"machineType": "e2-standard-2"}, "minReplicaCount": 3}}]
    found = list(iter_machines(json.loads(json.dumps({"trainingTaskInputs": inputs, "deployedModels": deployed}))))
    assert found == [
        {"count": "2", "machineType": "n1-standard-4"},
        {"count": "3", "machineType": "e2-standard-2"},
    ]


def test_a_resource_is_found_by_its_name_or_as_its_newest_version(browsing: ConsoleApi) -> None:
    assert browsing.get_resource(f"{PARENT}/models/1")["content"]["displayName"] == "a model"
    assert browsing.get_resource(f"{PARENT}/models/2")["content"]["versionId"] == "2"
    assert browsing.get_resource(f"{PARENT}/models/2@1")["content"]["versionId"] == "1"


def test_a_name_that_is_not_there_is_said(browsing: ConsoleApi) -> None:
    with pytest.raises(ApiError, match="was not found"):
        browsing.get_resource(f"{PARENT}/customJobs/1000000")
