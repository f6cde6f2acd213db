"""The filters of Google's lists."""

from typing import Any

import pytest

from vertex_rehearsal.api.errors import ApiError
from vertex_rehearsal.filters import LOG_FUNCTIONS, parse_filter

ENTRY: dict[str, Any] = {
    "severity": "WARNING",
    "timestamp": "2026-03-01T12:00:00.500000Z",
    "logName": "projects/demo/logs/workerpool0-0",
    "resource": {"type": "ml_job", "labels": {"job_id": "42", "task_name": "workerpool0-0"}},
    "httpRequest": {"remoteIp": "10.1.2.3"},
    "labels": {"ml.googleapis.com/job_id": "42", "team": "text"},
    "jsonPayload": {"message": "Loss went DOWN", "step": 7.0},
    "displayName": "a job (new)",
}


@pytest.mark.parametrize(
    "text",
    [
        "", "  ", 'resource.type="ml_job"', "resource.type=ml_job AND resource.labels.job_id=42",
        'resource.type="ml_job" resource.labels.job_id="42"', "severity>=INFO", "severity>=warning", "severity<ERROR",
        "severity!=ERROR", 'timestamp>="2026-03-01T12:00:00.5Z"', 'timestamp>"2026-03-01"',
        'timestamp<"2026-03-01T14:00:00.500000123+01:00"', 'timestamp<="2026-03-01T12:00:00.500000000Z"',
        "jsonPayload.step>6", "jsonPayload.step=7", 'jsonPayload.message:"went down"',
        'jsonPayload.message=~"^Loss .*N$"',
        'jsonPayload.message!~"^down"', 'labels."ml.googleapis.com/job_id"="42"', "labels.team:*", "labels:team",
        "NOT severity=ERROR", "-severity=ERROR", "severity=ERROR OR severity=WARNING",
        "severity=(ERROR OR WARNING)", "(severity=ERROR OR severity=WARNING) AND resource.labels.job_id=42",
        "down", '"went down"', 'displayName="a job (new)"', 'display_name="a job (new)"', "missing!=3",
        'log_name="projects/demo/logs/workerpool0-0"', "severity=ERROR OR resource.type=ml_job AND down",
        'log_id("workerpool0-0")', "log_id(workerpool0-0) AND severity=warning", 'SEARCH("DOWN loss")',
        'search("text ML_JOB")',
        'SEARCH(jsonPayload.message, "`went down`")', 'SEARCH(jsonPayload, "loss") OR up', "NOT SEARCH(team)",
        'ip_in_net(httpRequest.remoteIp, "10.1.0.0/16")', 'ip_in_net(http_request.remote_ip,"10.1.2.3")',
        "sample(timestamp, 1)", "NOT sample(timestamp, 0.0)", "NOT sample(nobody, 1)",
        'jsonPayload.message="loss went down"',
        '"nobody" OR NOT "nobody" AND NOT "nobody" OR "down"',
    ],
)  # fmt: skip
def test_passes(text: str) -> None:
    assert parse_filter(text, functions=LOG_FUNCTIONS)(ENTRY)


@pytest.mark.parametrize(
    "text",
    [
        'resource.type="gce_instance"', "severity>WARNING", 'timestamp>"2026-03-01T12:00:00.5Z"', "jsonPayload.step>7",
        "missing=3", "missing:*", "labels:nobody", "NOT down", "severity=ERROR OR severity=INFO",
        "(severity=ERROR OR severity=WARNING) AND resource.labels.job_id=43", "up", "severity=WARNING AND NOT down",
        'log_id("workerpool0")', 'SEARCH("los")', 'SEARCH(jsonPayload.message, "`down went`")',
        'SEARCH(labels, "loss")',
        'ip_in_net(httpRequest.remoteIp, "10.2.0.0/16")', 'ip_in_net(logName, "10.0.0.0/8")', "sample(timestamp, 0)",
        "down OR up AND up",
    ],
)  # fmt: skip
def test_does_not_pass(text: str) -> None:
    assert not parse_filter(text, functions=LOG_FUNCTIONS)(ENTRY)


@pytest.mark.parametrize(
    "text",
    [
        "severity=",
        "=3",
        "(severity=ERROR",
        "severity=ERROR)",
        'x="',
        "a AND",
        "x=~(",
        'x=~"("',
        "a=(b c d)",
        "log_id()",
        'log_id("a", "b")',
        "SEARCH(a, b, c)",
        'ip_in_net(a, "10.0.0.0/99")',
        "ip_in_net(a)",
        "sample(a, 2)",
        "sample(a, x)",
        "nonsense(a)",
        "log_id(a",
    ],
)
def test_what_cannot_be_read_is_refused_with_the_field(text: str) -> None:
    with pytest.raises(ApiError, match="Unparseable filter") as caught:
        parse_filter(text, functions=LOG_FUNCTIONS)
    assert caught.value.field == "filter"


@pytest.mark.parametrize("text", ["severity>=LOUD", "timestamp>yesterday"])
def test_a_value_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ApiError, match="Unparseable filter"):
        parse_filter(text)(ENTRY)


def test_what_every_entry_must_pass_is_known_beforehand() -> None:
    always = parse_filter('resource.labels.job_id="42" AND (severity=ERROR OR down) AND NOT up=1').always
    assert [(one.field, one.value) for one in always] == [("resource.labels.job_id", "42")]
    assert parse_filter("a=1 OR b=2").always == ()
