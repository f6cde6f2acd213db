"""What a build may say before anything is built, and how its log is listed cheaply."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.database import Database
from vertex_rehearsal.filters import parse_filter
from vertex_rehearsal.logging.store import Logs
from vertex_rehearsal.other_services.build_specs import read_logging, validate_build

STEP = {"name": "gcr.io/cloud-builders/docker", "args": ["build", "-t", "$_IMAGE", "."]}
KNOWN = {"PROJECT_ID": "demo", "BUILD_ID": "1"}


def spec(**more: Any) -> dict[str, Any]:
    return {"steps": [STEP], "substitutions": {"_IMAGE": "us-docker.pkg.dev/demo/r/i:1"}, **more}


def test_substitutions_are_made() -> None:
    step = STEP | {"args": ["build", "-t", "a/$PROJECT_ID/${_IMAGE}:$$1"], "env": ["ID=${BUILD_ID}"]}
    build = validate_build(spec(steps=[step], images=["$_IMAGE"]), KNOWN)
    assert build["steps"][0]["args"] == ["build", "-t", "a/demo/us-docker.pkg.dev/demo/r/i:1:$1"]
    assert build["steps"][0]["env"] == ["ID=1"]
    assert build["images"] == ["us-docker.pkg.dev/demo/r/i:1"]
    assert build["timeout"] == "3600s"


@pytest.mark.parametrize(
    ("more", "code", "field"),
    [
        ({"steps": []}, "INVALID_ARGUMENT", "build.steps"),
        ({"steps": ["x"]}, "INVALID_ARGUMENT", "build.steps[0]"),
        ({"steps": [{"name": "ubuntu", "args": ["ls"]}]}, "UNIMPLEMENTED", "build.steps[0].name"),
        ({"steps": [STEP | {"script": "ls"}]}, "UNIMPLEMENTED", "build.steps[0].script"),
        ({"steps": [STEP | {"entrypoint": "bash"}]}, "UNIMPLEMENTED", "build.steps[0].entrypoint"),
        ({"steps": [STEP | {"args": ["run", "x"]}]}, "UNIMPLEMENTED", "build.steps[0].args"),
        ({"steps": [STEP | {"args": "build ."}]}, "INVALID_ARGUMENT", "build.steps[0].args"),
        ({"steps": [STEP | {"args": ["build", "$_OTHER"]}]}, "INVALID_ARGUMENT", "build.steps[0].args"),
        ({"steps": [STEP | {"dir": "../up"}]}, "UNIMPLEMENTED", "build.steps[0].dir"),
        ({"steps": [STEP | {"env": ["A"]}]}, "INVALID_ARGUMENT", "build.steps[0].env"),
        ({"substitutions": {"IMAGE": "x"}}, "INVALID_ARGUMENT", "build.substitutions"),
        ({"source": {"repoSource": {}}}, "UNIMPLEMENTED", "build.source"),
        ({"source": {"storageSource": {"bucket": "b"}}}, "INVALID_ARGUMENT", "build.source.storage_source.object"),
        (
            {"source": {"storageSource": {"bucket": "b", "object": "a.txt"}}},
            "INVALID_ARGUMENT",
            "build.source.storage_source.object",
        ),
        ({"timeout": "10 minutes"}, "INVALID_ARGUMENT", "build.timeout"),
        ({"timeout": "90000s"}, "INVALID_ARGUMENT", "build.timeout"),
        ({"serviceAccount": "projects/demo/serviceAccounts/me"}, "INVALID_ARGUMENT", "build.logs_bucket"),
    ],
)
def test_builds_that_are_refused(more: dict[str, Any], code: str, field: str) -> None:
    with pytest.raises(ApiError) as raised:
        validate_build(spec(**more), KNOWN)
    assert (raised.value.code, raised.value.field) == (code, field)


@pytest.mark.parametrize(
    ("given", "found"), [(None, "LEGACY"), (2, "GCS_ONLY"), ("STACKDRIVER_ONLY", "CLOUD_LOGGING_ONLY")]
)
def test_where_the_log_goes(given: Any, found: str) -> None:
    options = {} if given is None else {"logging": given}
    build = validate_build(spec(serviceAccount="me", options=options, logsBucket="gs://b"), KNOWN)
    assert read_logging(build) == found


def test_a_poll_from_the_last_moment_reads_no_more_than_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = (f"2026-01-01T00:00:00.{number:06d}Z" for number in itertools.count())  # no two lines have the same
    monkeypatch.setattr("vertex_rehearsal.logging.store._format_now", lambda: next(moments))
    database = Database(tmp_path / "x.sqlite")
    logs = Logs(database)
    for job in ("1", "2"):
        for _ in range(3):
            logs.write_lines(
                [f"line {n}" for n in range(1000)],
                job=job,
                task="workerpool0-0",
                project="demo",
                region="us-central1",
                severity="INFO",
            )
    last = database.run("SELECT max(moment) FROM entries WHERE job = '1'")[0][0]
    read: list[int] = []
    steps = [0]

    def count() -> int:
        steps[0] += 1
        return 0

    database._connection.set_progress_handler(count, 10)
    run = database.run
    database.run = lambda *asked: [read.append(len(rows := run(*asked))), rows][1]  # type: ignore[method-assign,func-returns-value]
    wanted = f'resource.type="ml_job" AND resource.labels.job_id="1" AND timestamp>="{last}"'
    found = list(logs.find_entries(parse_filter(wanted), ["projects/demo"], newest_first=False, after=None))
    assert [entry["jsonPayload"]["message"] for _, entry in found] == ["line 999"]
    assert read == [1]
    assert steps[0] < 20, "SQLite has looked at far more than the rows it gave"
    database.close()
