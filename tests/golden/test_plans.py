"""The jobs that the five tutorials become, compared as a whole, and understood by Google's own client."""

import io
import json
import re
import shlex
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tagline.cli import run

Golden = Callable[[str, str], None]
SPECS = Path(__file__).parents[2] / "examples" / "vertex"
NO_RUNS = str(Path(__file__).parent / "no-runs")
"""What has run here before says how long a job may take; here nothing has."""
TUTORIALS = ("happydb", "mnli", "multinli", "french", "financial")


@cache
def printed_plan(name: str, *overrides: str) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        code = run(
            ["train", str(SPECS / f"{name}.toml"), *overrides, "--on", "vertex", "--plan", "--json", "--runs", NO_RUNS]
        )
    assert code == 0
    return printed.getvalue()


def planned(name: str, *overrides: str) -> dict[str, Any]:
    """A plan without what is new each time: the name of the run, the submission, and the code's own hash."""
    text = re.sub(r"\d{8}-\d{6}-[a-z]+", "20260101-000000-name", printed_plan(name, *overrides))
    text = re.sub(r"(tagline-training:)[0-9a-f]{16}", r"\1HASH", text)
    text = re.sub(r"tagline-[0-9.]+\+[0-9a-f]{12}\.tar\.gz", "tagline-VERSION+HASH.tar.gz", text)
    text = re.sub(r'("tagline-submission": "|tagline-submission=)[0-9a-f]{12}', r"\g<1>000000000000", text)
    text = re.sub(r'("tagline-version": "|tagline-version=)[0-9a-z-]+', r"\g<1>0-0-0", text)
    found_plan: dict[str, Any] = json.loads(text)
    return found_plan


@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorials_job(golden: Golden, name: str) -> None:
    plan = planned(name)
    golden(f"plan-{name}.json", json.dumps(plan, indent=2, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("name", TUTORIALS)
def test_google_and_gcloud_understand_it(name: str) -> None:
    from google.cloud import aiplatform_v1
    from google.protobuf.json_format import ParseDict

    plan = planned(name)
    message = ParseDict(plan["job"], aiplatform_v1.CustomJob.pb(aiplatform_v1.CustomJob()), ignore_unknown_fields=False)
    assert len(message.job_spec.worker_pool_specs) >= 1
    command, _, rest = plan["gcloud"].partition(" <<'JSON'\n")
    words = shlex.split(command)
    assert words[:4] == ["gcloud", "ai", "custom-jobs", "create"]
    flags = dict(word[2:].split("=", 1) for word in words[4:])
    assert f"projects/{flags['project']}/locations/{flags['region']}" == plan["parent"]
    assert flags["display-name"] == plan["job"]["displayName"]
    assert dict(pair.split("=") for pair in flags["labels"].split(",")) == plan["job"]["labels"]
    assert json.loads(rest.removesuffix("\nJSON")) == plan["job"]["jobSpec"]


def test_ours_is_an_image_named_for_what_goes_into_it() -> None:
    own = 'vertex.image=""'
    plans = [printed_plan("happydb", own, *more) for more in ((), ("training.epochs=9",), ("vertex.accelerators=0",))]
    pools = [json.loads(plan)["job"]["jobSpec"]["workerPoolSpecs"][0] for plan in plans]
    same, other, without_gpu = (pool["containerSpec"]["imageUri"] for pool in pools)
    assert re.fullmatch(r"us-central1-docker\.pkg\.dev/my-project/tagline/tagline-training:[0-9a-f]{16}", same)
    assert other == same
    assert without_gpu != same
    assert pools[2]["machineSpec"] == {"machineType": "n1-standard-8"}
