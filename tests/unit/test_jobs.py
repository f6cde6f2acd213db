"""What is told of a job: its page, and what it has cost."""

from datetime import UTC, datetime

import pytest

from tagline.errors import RunError
from tagline.jobs import prices, records
from tagline.jobs.launchers import JobDescription, JobState

HANDLE = "projects/my-project/locations/europe-west4/customJobs/123"
NOW = datetime(2026, 11, 18, 14, tzinfo=UTC)


@pytest.mark.usefixtures("signed_out")
def test_the_page_of_a_job_is_that_of_the_console() -> None:
    launcher = records.find_launcher("vertex")
    # As google-cloud-aiplatform 2.6 prints it (jobs.py, _dashboard_uri).
    at = "https://console.cloud.google.com/agent-platform/locations/europe-west4/training/123?project=my-project"
    assert records.get_page_url(launcher, HANDLE) == at
    with pytest.raises(RunError, match="is no job of Vertex AI"):
        records.get_page_url(launcher, "123")
    assert records.get_page_url(records.find_launcher("local"), "runs/x") == ""


@pytest.mark.parametrize(("started", "ended", "hours"), [
    ("", "", 0.0), ("2026-11-18T12:00:00+00:00", "", 2.0),
    ("2026-11-18T12:00:00+00:00", "2026-11-18T12:30:00+00:00", 0.5), ("2026-11-18T14:00:01+00:00", "", 0.0),
])  # fmt: skip
def test_cost_grows_from_the_start_to_the_end(started: str, ended: str, hours: float) -> None:
    told = JobDescription(("1 x n1-standard-8",), (), per_hour=3.0)
    cost = records.estimate_cost(told, JobState("running", started=started, ended=ended), now=NOW)
    assert (cost["hours"], cost["so_far"]) == (hours, 3.0 * hours)
    sentence = records.format_cost(cost, is_rehearsed=False)
    assert sentence.startswith(f"about ${3 * hours:.2f} for {60 * hours:.0f} minutes at $3.00 an hour (an estimate")


def test_a_cost_that_is_not_known_is_said_to_be_so() -> None:
    per_hour, remark = prices.hourly_price_of_pools([("c3-highcpu-8", "", 0, 2)], spot=False)
    cost = records.estimate_cost(JobDescription((), (), per_hour=per_hour, remark=remark), JobState("running"), now=NOW)
    assert cost["so_far"] is None
    assert records.format_cost(cost, is_rehearsed=False) == "not known: the price of c3-highcpu-8 is not known here"


def test_every_pool_counts() -> None:
    pools = [("n1-standard-4", "NVIDIA_TESLA_T4", 1, 1), ("n1-standard-4", "NVIDIA_TESLA_T4", 1, 3)]
    per_hour, remark = prices.hourly_price_of_pools(pools, spot=False)
    assert per_hour == pytest.approx(4 * (0.2185 + 0.4025), abs=0.001)
    assert remark == ""
