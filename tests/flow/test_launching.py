"""`tagline train --on rehearsal`: the same command elsewhere, through Google's own clients."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from google.api_core.exceptions import Conflict, NotFound

import tagline as product
from tagline import gcp
from tagline import spec as specs
from tagline.errors import RunError
from tagline.gcp import cloud_storage
from tagline.jobs import custom_job, emulator
from tagline.jobs import uploads as staging
from tagline.jobs.launchers import Job
from tagline.jobs.records import Record, find_launcher, find_or_create_run, save_record
from tagline.runs import names
from tagline.runs import run as runs
from tagline.runs.run import Run
from tagline.storage import atomic
from tagline.training import spec_sources
from vertex_rehearsal.execution import containers

sys.path.insert(0, str(Path(__file__).parents[1]))
from launching import BUCKET, LINEAR, TINY, command, google
from rehearsing import Rehearsal, rehearsing, until

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
EXAMPLES = Path(__file__).parents[2] / "examples" / "vertex"
JOBS = "/v1/projects/rehearsal/locations/{region}/customJobs"


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with google(tmp_path_factory.mktemp("google")) as found:
        yield found


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rehearsal: Rehearsal) -> Iterator[None]:
    """A directory of its own; nothing of a test is left for the next one: no job, no lack and no fault."""
    monkeypatch.chdir(tmp_path)
    yield
    (rehearsal.directory / "project.json").unlink(missing_ok=True)
    for job in [job for region in ("us-central1", "us-east1", "us-west1") for job in jobs(rehearsal, region)]:
        rehearsal.http("POST", f"/v1/{job['name']}:cancel", {})  # of those that have ended nothing changes
    for fault in rehearsal.http("GET", "/-/status")[1]["faults"]:
        rehearsal.http("POST", "/-/fail", {"method": fault["method"], "times": 0})
    rehearsal.wait_until_idle()


def jobs(rehearsal: Rehearsal, region: str = "us-central1") -> list[dict[str, Any]]:
    return list(rehearsal.http("GET", JOBS.format(region=region))[1].get("customJobs", []))


class StoppedClock(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "StoppedClock":
        return cls(2026, 11, 18, 3, 42, 18, tzinfo=tz or UTC)


def figures(run: Path) -> dict[str, float]:
    found = Run(run).report()
    assert found is not None
    return {name: value for name, value in found["test"].items() if isinstance(value, float)}


def test_the_run_that_comes_home_is_the_one_that_would_be_made_here(rehearsal: Rehearsal) -> None:
    done = command("train", SUPPORT / "messages.csv", *LINEAR, "--on", "rehearsal", "--json").json
    here = product.train(SUPPORT / "messages.csv", *LINEAR, runs="here")
    assert figures(Path(done["run"])) == figures(here.directory)
    assert command("predict", done["run"], "where is my parcel?", "--json").json[0]["label"] == "delivery"
    name = Path(done["run"]).name
    assert command("runs", "list", "--json").json[0]["state"] == "succeeded"
    [listed] = command("jobs", "list", "--json").json
    assert (listed["run"], listed["state"], listed["place"]) == (name, "succeeded", "rehearsal")
    assert name in {each["run"] for each in command("jobs", "list", "--on", "rehearsal", "--json").json}
    shown = command("jobs", "show", "--json").json
    assert shown["run"] == f"gs://{BUCKET}/tagline/runs/{name}"
    assert shown["machines"] == ["1 x n1-standard-8"]
    assert shown["arguments"] == ["train", "--resume", shown["run"]]
    assert shown["page"] == f"{rehearsal.address}/#resource?name={quote(shown['job'], safe='')}"
    assert shown["cost"]["per_hour"] == pytest.approx(0.437, abs=0.001)
    assert shown["cost"]["so_far"] == pytest.approx(0.437 * shown["cost"]["hours"], abs=0.001)
    assert shown["cost"]["hours"] > 0
    assert shown["usage"]["memory"]["most_bytes"] > 0
    text = command("jobs", "show").out
    assert "use       processor " in text
    assert "machines  1 x n1-standard-8" in text
    assert f"page      {shown['page']}" in text
    assert f"arguments train --resume {shown['run']}" in text
    assert "cost      nothing, at a rehearsal; on Vertex AI $0.0" in text
    assert "workerpool0-0 INFO: measuring" in command("jobs", "logs", name).out
    cancelled = command("jobs", "cancel", name)
    assert cancelled.code == 4
    assert "the job has ended already, it succeeded" in cancelled.err
    before = len(jobs(rehearsal))
    resumed = command("train", "--resume", name, "--on", "rehearsal", "--detach")
    assert (resumed.code, len(jobs(rehearsal))) == (4, before)
    assert f"run {name} is complete" in resumed.err
    Run.create(Path("runs"), Run(Path(done["run"])).spec(), {"spec_fingerprint": ""}, name="99990101-000000-here")
    assert command("jobs", "show", "--json").json == shown, "a run that is no job is not the last job"
    assert command("jobs", "show", "99990101-000000-here").code == 4
    atomic.remove_directory(Path("runs/99990101-000000-here"))
    again = command("train", SUPPORT / "messages.csv", *LINEAR, "--on", "rehearsal", "--detach")
    assert "uploaded" not in again.err
    assert command("jobs", "logs", "last", "--follow").code == 0


@pytest.mark.parametrize("bucket", [BUCKET, "no-such-bucket"])
def test_a_run_that_is_not_there_costs_no_job(rehearsal: Rehearsal, bucket: str) -> None:
    cloud_storage.make_bucket(BUCKET, project="rehearsal", region="us-central1")
    data = {"train": str(SUPPORT / "messages.csv"), "text": "message", "labels": "topic"}
    run = Run.create(Path("runs"), specs.defaults(data), {"spec_fingerprint": ""})
    handle = "projects/rehearsal/locations/us-central1/customJobs/1"
    save_record(run, Record("rehearsal", handle, f"gs://{bucket}/tagline/runs/{run.name}", "", rehearsal.address))
    before = len(jobs(rehearsal))
    ran = command("train", "--resume", run.name, "--on", "rehearsal", "--detach")
    assert ran.code == 4, ran.err
    assert f"there is no run to resume at gs://{bucket}/tagline/runs/{run.name}" in ran.err
    assert "nothing was submitted" in ran.err
    assert len(jobs(rehearsal)) == before


def test_what_plan_prints_for_gcloud_needs_nothing_else(rehearsal: Rehearsal) -> None:
    """The very command, as gcloud makes a request of it, in a bucket that holds the data and nothing else."""
    from google.cloud import aiplatform_v1

    cloud_storage.make_bucket("by-gcloud", project="rehearsal", region="us-central1")
    cloud_storage.upload(SUPPORT / "messages.csv", "gs://by-gcloud/messages.csv")
    data = {"train": "gs://by-gcloud/messages.csv", "text": "message", "labels": "topic"}
    Path("tagline.toml").write_text(specs.to_toml(specs.defaults(data)))
    image = "vertex.image=us-docker.pkg.dev/demo/repository/tagline-own:1"
    settings = (*LINEAR, image, "vertex.bucket=by-gcloud")
    plan = command("train", "tagline.toml", *settings, "--on", "rehearsal", "--plan", "--json").json
    typed, _, config = plan["gcloud"].partition(" <<'JSON'\n")
    flags = dict(word[2:].split("=", 1) for word in shlex.split(typed)[4:])
    labels = dict(pair.split("=") for pair in flags["labels"].split(","))
    spec = json.loads(config.removesuffix("\nJSON"))
    asked = {"displayName": flags["display-name"], "labels": labels, "jobSpec": spec}
    name = rehearsal.rest.create_custom_job(
        parent=f"projects/{flags['project']}/locations/{flags['region']}",
        custom_job=aiplatform_v1.CustomJob.from_json(json.dumps(asked)),
    ).name
    assert rehearsal.wait(name)["state"] == "JOB_STATE_SUCCEEDED", rehearsal.said(name)
    made = Run.open(f"gs://by-gcloud/tagline/runs/{labels['tagline-run']}")
    assert made.state().name == "succeeded"
    assert made.spec() == specs.load(Path("tagline.toml"), [*settings, "vertex.project=rehearsal"])


def test_the_workers_of_a_job_make_its_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud_storage.make_bucket(BUCKET, project="rehearsal", region="us-central1")
    spec = specs.defaults({"train": f"gs://{BUCKET}/none.csv", "text": "message", "labels": "topic"})
    monkeypatch.setenv(custom_job.SPEC, json.dumps(spec.without_defaults()))
    address = f"gs://{BUCKET}/tagline/runs/made-once"
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda _: find_or_create_run(address, "runs"), range(6)))
    assert {run.address for run in found} == {address}
    assert {run.state().created for run in found} == {found[0].state().created}
    assert all(run.spec() == spec for run in found)


def test_a_run_whose_rehearsal_has_ended_waits_no_more(tmp_path: Path) -> None:
    options = ("--grace", "1", *emulator.start_options())
    with rehearsing(tmp_path / "there", *options) as first, gcp.use_rehearsal(first.address, first.token):
        ran = command("train", SUPPORT / "messages.csv", *LINEAR, "--on", "rehearsal", "--detach", "--json").json
        assert command("runs", "list", "--json").json[0]["state"] in ("waiting", "running")
    [listed] = command("runs", "list", "--json").json
    assert listed["state"] == "failed"
    assert listed["reason"] == f"its rehearsal in {tmp_path / 'there'} has ended"
    assert [each["state"] for each in command("jobs", "list", "--json").json] == ["failed"]
    shown = command("jobs", "show")
    assert shown.code == 5
    assert "does not run any more" in shown.err
    with rehearsing(tmp_path / "there", *options):  # on other ports, and not in the directory that is looked in
        assert command("jobs", "logs", Path(ran["run"]).name, "--follow").code in (0, 5), "it is found again"
        assert command("jobs", "show", "--json").json["state"] in ("failed", "succeeded")


def test_the_report_is_shown_once_and_the_log_has_its_first_line(rehearsal: Rehearsal) -> None:
    ran = command("train", SUPPORT / "messages.csv", *LINEAR, "--on", "rehearsal")
    assert ran.code == 0, ran.err
    first = next(line for line in ran.out.splitlines() if line.startswith("test, 76 rows:  accuracy"))
    for words in ("precision  recall", "try it   tagline predict", "next     "):
        assert words in ran.out
        assert words not in ran.err
    name = Path(next(line for line in ran.out.splitlines() if line.startswith("bundle"))).parent.name
    said = [line.partition("INFO: ")[2] for line in command("jobs", "logs", name).out.splitlines()]
    at = said.index(first)
    report = Run(Path("runs") / name).report() or {}
    per_label = [
        f"label {label}: precision {f['precision']:.3f}, recall {f['recall']:.3f}, f1 {f['f1']:.3f}, "
        f"{f['support']} rows"
        for label, f in report["test"]["per_label"].items()
    ]
    assert len(per_label) == 6
    address = f"report   gs://{BUCKET}/tagline/runs/{name}/report.html"
    assert said[at : at + 8] == [first, *per_label, address]
    assert said[at - 1].startswith("use: processor ")
    assert said[at - 2] == "measuring"
    assert any(line.endswith("; device cpu") for line in said)


def test_on_this_machine_too_a_training_can_be_left_to_itself() -> None:
    left = command("train", SUPPORT / "messages.csv", *LINEAR, "--detach", "--json").json
    assert command("jobs", "logs", "last", "--follow").code == 0
    assert command("jobs", "show", "--json").json["state"] == "succeeded"
    assert Run(Path(left["run"])).report() is not None
    long = ("model.family=lstm", "training.epochs=500", "training.export=false", "training.baseline=false")
    command("train", SUPPORT / "messages.csv", *long, "--detach")
    until(lambda: command("jobs", "show", "--json").json["state"] == "running", "it to begin")
    end_job("last")
    until(lambda: command("jobs", "show", "--json").json["state"] == "cancelled", "it to end")


def test_three_replicas_learn_what_three_workers_learn(checkpoint: Callable[[str], Path]) -> None:
    settings = (*TINY, f"model.pretrained={checkpoint('bert')}")
    there = command(
        "train", SUPPORT / "messages.csv", *settings, "vertex.workers=3", "--on", "rehearsal", "--json"
    ).json["run"]
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "tagline",
            "train",
            SUPPORT / "messages.csv",
            *settings,
            "--workers",
            "3",
            "--json",
            "--runs",
            "here",
        ],
        capture_output=True,
        check=True,
    )
    here = json.loads(run.stdout)["run"]
    assert Run(Path(there)).lock()["workers"] == 3
    assert figures(Path(there)) == pytest.approx(figures(Path(here)), abs=1e-6)


def test_a_spot_job_that_is_preempted_ends_in_the_very_same_weights(
    rehearsal: Rehearsal, checkpoint: Callable[[str], Path]
) -> None:
    settings = (
        *TINY,
        "training.epochs=6",
        "training.evaluate_every=2",
        "training.log_every=1",
        "data.fraction=1.0",
        f"model.pretrained={checkpoint('bert')}",
        "vertex.machine=n1-standard-4",
    )
    whole = product.train(SUPPORT / "messages.csv", *settings, runs="here")
    data = SUPPORT / "messages.csv"
    left = command("train", data, *settings, "vertex.spot=true", "--on", "rehearsal", "--detach", "--json").json
    progress = rehearsal.directory / "buckets" / BUCKET / "tagline" / "runs" / Path(left["run"]).name / "checkpoints"
    until(lambda: list(progress.glob("0*/*")), "a checkpoint in the bucket")
    assert rehearsal.http("POST", "/-/preempt", {"job": left["job"]})[0] == 200
    ran = command("jobs", "logs", "last", "--follow")
    assert ran.code == 0, ran.err
    assert "started again 1 times" in ran.err, ran.err
    weights = [Path(run) / "bundle" / "model.safetensors" for run in (whole.directory, left["run"])]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert figures(whole.directory) == figures(Path(left["run"]))


@pytest.mark.parametrize("fault", [("--status", "500", "--after-effect"), ("--status", "503"), ("--drop",)])
def test_one_command_is_one_job_whatever_the_answer(rehearsal: Rehearsal, fault: tuple[str, ...]) -> None:
    before = len(jobs(rehearsal))
    directory = str(rehearsal.directory)
    assert command("rehearsal", "fail", "CreateCustomJob", *fault, "--directory", directory).code == 0
    ran = command("train", SUPPORT / "messages.csv", *LINEAR, "--on", "rehearsal", "--detach")
    assert ran.code == 0, ran.err
    assert len(jobs(rehearsal)) == before + 1
    end_job("last")


def test_a_model_that_would_be_refused_there_is_refused_here(rehearsal: Rehearsal, tmp_path: Path) -> None:
    data, settings = SUPPORT / "messages.csv", ("model.family=ulmfit", f"model.pretrained={tmp_path / 'none'}")
    before = [job["name"] for job in jobs(rehearsal)]
    for way in (["--on", "rehearsal"], ["--detach"]):
        refused = command("train", data, *settings, *way)
        assert refused.code == 5, refused.err
        assert f"it would fail there:\n  model.pretrained: there is no directory {tmp_path / 'none'}" in refused.err
    assert [job["name"] for job in jobs(rehearsal)] == before
    assert command("check", data, *settings, "--on", "rehearsal").code == 1
    elsewhere = command(
        "check", data, "model.pretrained=nobody/nothing", "--on", "rehearsal"
    )  # no hub is asked in tests
    assert elsewhere.code == 0, elsewhere.err
    assert "warning  cannot fetch nobody/nothing" in elsewhere.err


def end_job(name: str, *more: Any) -> None:
    """Cancel a job that a test is done with; so small a one may have ended by itself."""
    ended = command("jobs", "cancel", name, *more)
    assert ended.code == 0 or "the job has ended already" in ended.err, ended.err


def test_one_plan_is_one_job_however_often_it_is_submitted(rehearsal: Rehearsal) -> None:
    launcher = find_launcher("rehearsal")
    spec = spec_sources.resolve_spec(SUPPORT / "messages.csv", (*LINEAR, f"vertex.bucket={BUCKET}"))
    there, uploads = staging.stage_uploads(spec, BUCKET)
    cloud_storage.make_bucket(BUCKET, project="rehearsal", region="us-central1")
    job = Job("twice", there, f"gs://{BUCKET}/tagline/runs", "rehearsal", uploads=uploads, submission="0123456789ab")
    before = len(jobs(rehearsal))
    first, second = (launcher.submit(launcher.plan(job)) for _ in range(2))
    resumed = launcher.submit(launcher.plan(replace(job, is_resumed=True)))
    assert first == second == resumed
    with pytest.raises(RunError, match="there is a run twice"):
        launcher.submit(launcher.plan(replace(job, submission="another")))
    assert len(jobs(rehearsal)) == before + 1
    launcher.cancel(first)


def test_a_name_that_somebody_takes_in_the_same_second_costs_nothing_but_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when ten trainings are started at once, by one person or by a team that shares a bucket."""
    monkeypatch.setattr(names, "WORDS", ("one", "two"))
    monkeypatch.setattr(names, "datetime", StoppedClock)
    monkeypatch.setattr(runs, "list_names", lambda _: [])  # nothing was there yet when each looked
    left = []
    for number, place in enumerate((("--on", "rehearsal"), ("--on", "rehearsal"), (), ())):
        ran = command(
            "train", SUPPORT / "messages.csv", *LINEAR, *place, "--detach", "--json", "--runs", f"{number // 2}"
        )
        assert ran.code == 0, ran.err
        left.append(Path(ran.json["run"]))
    assert [run.name for run in left] == ["20261118-034218-one", "20261118-034218-two"] * 2
    for run in left:
        end_job(run.name, "--runs", run.parent)


def test_a_run_and_its_job_have_the_name_that_was_asked_for(rehearsal: Rehearsal, tmp_path: Path) -> None:
    asked = ("train", SUPPORT / "messages.csv", *LINEAR, "--name", "baseline-v2")
    here = command(*asked, "--json", "--runs", "here").json
    assert Path(here["run"]) == Path("here/baseline-v2")
    again = command(*asked, "--runs", "here")
    assert again.code == 4
    assert "there is a run baseline-v2 in here already" in again.err
    assert command(*asked, "--runs", "here", "--detach").code == 4
    left = command(*asked, "--on", "rehearsal", "--detach", "--json").json
    assert Path(left["run"]).name == "baseline-v2"
    assert rehearsal.job(left["job"])["displayName"] == "baseline-v2"
    before = len(jobs(rehearsal))
    for runs_here, where in (("runs", "runs"), ("other", f"gs://{BUCKET}/tagline/runs")):
        taken = command(*asked, "--on", "rehearsal", "--runs", runs_here)
        assert taken.code == 4, taken.err
        assert f"there is a run baseline-v2 in {where} already" in taken.err
    assert len(jobs(rehearsal)) == before
    end_job("baseline-v2")
    for wrong in (("--name", "Not This"), ("--resume", "last", "--name", "x")):
        words = ("train", *wrong) if "--resume" in wrong else ("train", SUPPORT / "messages.csv", *wrong)
        assert command(*words).code == 2
    plan = command(*asked, "--on", "vertex", "--plan", "--json").json
    assert plan["job"]["displayName"] == "baseline-v2"
    assert "--display-name=baseline-v2 " in plan["gcloud"]


def test_credentials_that_expire_on_the_way_cost_nothing_but_a_login(rehearsal: Rehearsal) -> None:
    long = ("model.family=lstm", "training.epochs=500", "vertex.accelerators=0")
    name = Path(
        command("train", SUPPORT / "messages.csv", *long, "--on", "rehearsal", "--detach", "--json").json["run"]
    ).name
    fail = ("rehearsal", "fail", "GetCustomJob", "--status", "401", "--directory", rehearsal.directory)
    assert command(*fail).code == 0
    ran = command("jobs", "logs", name, "--follow")
    assert ran.code == 5
    assert "needs Google credentials" in ran.err
    assert "gcloud auth application-default login" in ran.err
    assert f"the job goes on without you; come back: tagline jobs logs {name} --follow" in ran.err
    assert command("jobs", "show", name, "--json").json["state"] in ("waiting", "running")
    end_job(name)


def test_a_bucket_that_is_deleted_midway_is_named(rehearsal: Rehearsal) -> None:
    long = ("model.family=lstm", "training.epochs=500", "training.evaluate_every=5", "vertex.accelerators=0")
    data = SUPPORT / "messages.csv"
    asked = ("train", data, *long, "vertex.bucket=soon-gone", "--on", "rehearsal", "--detach", "--json")
    left = command(*asked).json
    there = rehearsal.directory / "buckets" / "soon-gone" / "tagline" / "runs" / Path(left["run"]).name
    until(lambda: list(there.glob("checkpoints/0*/*")), "a checkpoint in the bucket")

    def is_gone() -> bool:
        with suppress(Conflict, NotFound):  # the job goes on writing meanwhile
            gcp.storage_client().bucket("soon-gone").delete(force=True)
        return cloud_storage.find_bucket("soon-gone") is None

    until(is_gone, "the bucket to be gone")
    ran = command("jobs", "logs", "last", "--follow")
    assert ran.code == 5
    told = ran.err.rpartition("error:")[2]
    assert "the job failed (workerpool0-0): " in told
    assert "soon-gone" in told
    assert "was it removed" in told
    assert "next: gcloud storage ls gs://soon-gone" in told
    failure = command("jobs", "show", "--json").json["failure"]
    assert failure["cause"] == "not-found"
    assert failure["sentence"] in told
    by_handle = command("jobs", "logs", left["job"], "--follow")
    assert "soon-gone" in by_handle.err.rpartition("error:")[2]


def test_a_service_that_is_away_for_a_while_is_waited_for(rehearsal: Rehearsal) -> None:
    for method in ("GetCustomJob", "ListLogEntries", "storage.objects.get"):
        assert command("rehearsal", "fail", method, "--times", "2", "--directory", rehearsal.directory).code == 0
    ran = command("train", SUPPORT / "messages.csv", *LINEAR, "--on", "rehearsal")
    assert ran.code == 0, ran.err


def test_what_would_fail_there_is_said_before_anything_is_submitted(rehearsal: Rehearsal) -> None:
    before = len(jobs(rehearsal))
    (rehearsal.directory / "project.json").write_text(
        json.dumps(
            {
                "quotas": {"custom_model_training_nvidia_t4_gpus": {"us-central1": 0}},
                "denied_permissions": ["aiplatform.customJobs.create"],
                "disabled_services": ["artifactregistry.googleapis.com"],
            }
        )
    )
    data = SUPPORT / "messages.csv"
    ran = command("train", data, "model.family=linear", "--on", "rehearsal")
    assert ran.code == 5
    for told in ("quota of NVIDIA_TESLA_T4 in us-central1 is 0", "aiplatform.customJobs.create", "artifactregistry"):
        assert told in ran.err
    assert len(jobs(rehearsal)) == before
    found = command(
        "check", data, "model.family=linear", "vertex.machine=n1-standard-96", "--on", "rehearsal", "--json"
    )
    assert found.code == 1
    codes = {each["code"] for each in json.loads(found.out)["findings"] if each["severity"] == "error"}
    assert codes == {"quota", "permission", "api", "machine"}
    over = command("train", data, *LINEAR, "vertex.budget=1", "--on", "rehearsal")
    assert over.code == 5
    assert "vertex.max_hours=" in over.err


ACCOUNT = "trainer@demo.iam.gserviceaccount.com"


@pytest.mark.parametrize(("lacks", "code", "told", "advice"), [
    ({"denied_permissions": ["iam.serviceAccounts.actAs"]}, "act-as",
     f"you lack iam.serviceAccounts.actAs on {ACCOUNT}",
     f"gcloud iam service-accounts add-iam-policy-binding {ACCOUNT} --member=user:YOU "
     "--role=roles/iam.serviceAccountUser --project=demo"),
    ({"denied_permissions": ["iam.*"], "missing_accounts": [ACCOUNT]}, "act-as", "you lack",
     "roles/iam.serviceAccountUser"),
    ({"missing_accounts": [ACCOUNT]}, "account", f"there is no account {ACCOUNT}",
     "gcloud iam service-accounts list --project=demo"),
    ({"disabled_services": ["iam.googleapis.com"]}, "unanswered", "the service account: iam may not be used",
     "gcloud services enable iam.googleapis.com"),
    ({}, "", "", ""),
])  # fmt: skip
def test_a_service_account_that_may_not_be_used_is_said_before(
    rehearsal: Rehearsal, lacks: dict[str, Any], code: str, told: str, advice: str
) -> None:
    (rehearsal.directory / "project.json").write_text(json.dumps(lacks))
    asked = (SUPPORT / "messages.csv", *LINEAR, f"vertex.service_account={ACCOUNT}", "--on", "rehearsal")
    ran = command("check", *asked, "--json")
    found = [each for each in json.loads(ran.out)["findings"] if each["code"] in ("account", "act-as", "unanswered")]
    assert [each["code"] for each in found] == ([code] if code else []), found
    if code:
        assert told in found[0]["message"]
        assert advice in found[0]["advice"]
    if code in ("account", "act-as"):
        before = len(jobs(rehearsal))
        refused = command("train", *asked)
        assert refused.code == 5
        assert advice in refused.err
        assert len(jobs(rehearsal)) == before


def test_where_there_is_no_room_it_goes_elsewhere(rehearsal: Rehearsal) -> None:
    (rehearsal.directory / "project.json").write_text(json.dumps({"no_capacity": ["us-central1/NVIDIA_TESLA_V100"]}))
    ran = command(
        "train",
        SUPPORT / "messages.csv",
        "model.family=linear",
        "vertex.accelerator=NVIDIA_TESLA_V100",
        'vertex.fallbacks=[{region="us-east1"}]',
        "--on",
        "rehearsal",
    )
    assert ran.code == 0, ran.err
    assert "going on in us-east1" in ran.err
    quota = {"quotas": {"custom_model_training_nvidia_t4_gpus": {"us-central1": 0}}}
    (rehearsal.directory / "project.json").write_text(json.dumps(quota))
    ran = command(
        "train",
        SUPPORT / "messages.csv",
        "model.family=linear",
        'vertex.fallbacks=[{region="us-west1"}]',
        "--on",
        "rehearsal",
        "--detach",
    )
    assert ran.code == 0, ran.err
    assert "going on in us-west1" in ran.err
    end_job("last")


def test_a_job_that_fails_is_explained(rehearsal: Rehearsal) -> None:
    ran = command(
        "train",
        SUPPORT / "messages.csv",
        "model.family=lstm",
        "training.learning_rate=1e30",
        "training.export=false",
        "training.baseline=false",
        "vertex.accelerators=0",
        "--on",
        "rehearsal",
    )
    assert ran.code == 5
    assert "the loss is" in ran.err.rpartition("error:")[2]
    assert "learning_rate" in ran.err.rpartition("next:")[2]
    shown = command("jobs", "show", "--json").json
    assert shown["failure"]["cause"] == "nan"
    assert shown["failure"]["command"].startswith(f"tagline train {SUPPORT / 'messages.csv'} model.family=lstm ")
    assert Run(Path(shown["directory"])).state().name == "failed"


def test_a_job_that_is_killed_leaves_no_run_that_seems_to_run(rehearsal: Rehearsal) -> None:
    long = ("model.family=lstm", "training.epochs=500", "training.export=false", "training.baseline=false")
    data = SUPPORT / "messages.csv"
    left = command("train", data, *long, "vertex.accelerators=0", "--on", "rehearsal", "--detach", "--json").json
    there = rehearsal.directory / "buckets" / BUCKET / "tagline" / "runs" / Path(left["run"]).name / "state.json"
    until(lambda: json.loads(there.read_text())["name"] == "running", "it to begin")
    for pid in rehearsal.processes(left["job"]):
        with suppress(ProcessLookupError):  # it ended with another one
            os.kill(pid, signal.SIGKILL)
    until(lambda: rehearsal.job(left["job"])["state"] == "JOB_STATE_FAILED", "the job to fail")
    shown = command("jobs", "show", "--json").json
    assert shown["failure"]["cause"] == "host-memory"
    assert Run(Path(left["run"])).state().name == "failed"


def test_interrupted_it_leaves_the_job_to_itself(rehearsal: Rehearsal) -> None:
    data = SUPPORT / "messages.csv"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tagline",
            "train",
            data,
            "model.family=lstm",
            "training.epochs=500",
            "--on",
            "rehearsal",
            "vertex.accelerators=0",
        ],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ.copy(),
    )
    assert process.stderr is not None
    said = ""
    while "job running" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(timeout=60) == 130, rest
    process.stderr.close()
    assert "the job goes on without you" in rest
    assert command("jobs", "list", "--json").json[0]["state"] == "running"
    end_job("last")
    until(lambda: command("jobs", "show", "--json").json["state"] == "cancelled", "the job to end")


def test_secrets_are_nowhere_but_in_the_job(rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch) -> None:
    value = "w4ndb-" + "0123456789abcdef" * 2
    reference = "projects/rehearsal/secrets/wandb/versions/latest"
    monkeypatch.setenv("WANDB_API_KEY", value)
    (rehearsal.directory / "project.json").write_text(json.dumps({"secrets": {"wandb": value}}))
    asked = f"vertex.secrets.WANDB_API_KEY={reference}"
    ran = command("train", SUPPORT / "messages.csv", *LINEAR, asked, "--on", "rehearsal")
    assert ran.code == 0, ran.err
    monkeypatch.delenv("WANDB_API_KEY")
    assert value not in ran.out + ran.err
    for path in [*rehearsal.directory.rglob("*"), *Path().rglob("*")]:
        if path.is_file() and path.name != "project.json":
            assert value.encode() not in path.read_bytes(), path
    environment = {"TAGLINE_SECRETS": json.dumps({"WANDB_API_KEY": reference})}
    gcp.reveal_secrets(environment)
    assert environment["WANDB_API_KEY"] == value
    refused = command("train", SUPPORT / "messages.csv", *LINEAR, f"vertex.secrets.KEY={value}", "--on", "rehearsal")
    assert refused.code == 2
    assert value not in refused.err


def test_a_secret_that_does_not_exist_is_found_before_anything_is_submitted(rehearsal: Rehearsal) -> None:
    (rehearsal.directory / "project.json").write_text(json.dumps({"secrets": {"wandb": "a-value"}}))
    before = [job["name"] for job in jobs(rehearsal)]
    there = "vertex.secrets.WANDB_API_KEY=projects/rehearsal/secrets/wandb/versions/latest"
    assert command("check", SUPPORT / "messages.csv", *LINEAR, there, "--on", "rehearsal").code == 0
    for missing in ("projects/rehearsal/secrets/wandbb/versions/latest", "projects/rehearsal/secrets/wandb/versions/7"):
        settings = (SUPPORT / "messages.csv", *LINEAR, f"vertex.secrets.WANDB_API_KEY={missing}", "--on", "rehearsal")
        checked = command("check", *settings)
        assert checked.code == 1, checked.err
        assert f"vertex.secrets: WANDB_API_KEY: there is no {missing}" in checked.err
        refused = command("train", *settings)
        assert refused.code == 5, refused.err
        assert f"it would fail there:\n  vertex.secrets: WANDB_API_KEY: there is no {missing}" in refused.err
    assert [job["name"] for job in jobs(rehearsal)] == before


def test_a_check_refuses_the_image_that_a_training_at_a_rehearsal_would_refuse(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path.cwd()))  # where there is no podman and no docker
    containers.find_engine.cache_clear()
    before = [job["name"] for job in jobs(rehearsal)]
    own = ("vertex.image=europe-west4-docker.pkg.dev/me/images/own:1", "--on", "rehearsal")
    said = "vertex.image: europe-west4-docker.pkg.dev/me/images/own:1 cannot run here: neither podman nor docker works"
    checked = command("check", SUPPORT / "messages.csv", *LINEAR, *own)
    trained = command("train", SUPPORT / "messages.csv", *LINEAR, *own)
    monkeypatch.undo()
    containers.find_engine.cache_clear()
    assert (checked.code, trained.code) == (1, 5), checked.err + trained.err
    assert said in checked.err
    assert f"it would fail there:\n  {said}" in trained.err
    assert [job["name"] for job in jobs(rehearsal)] == before


PAIRS = ("data.validation=", "data.test=", 'data.text=["question", "answer"]', "data.labels=verdict")
SMALL: dict[str, tuple[str, ...]] = {
    "happydb": ("data.text=message", "data.labels=topic"),
    "mnli": PAIRS,
    "multinli": PAIRS,
    "financial": ("data.header=auto", "data.text=message", "data.labels=topic", "training.patience=1"),
}


@pytest.mark.parametrize("name", SMALL)
def test_the_tutorials_with_encoders_run_small(
    rehearsal: Rehearsal, checkpoint: Callable[[str], Path], name: str
) -> None:
    data = SUPPORT / ("pairs.csv" if "nli" in name else "messages.csv")
    kind = "roberta" if name == "multinli" else "bert"
    image = () if name == "happydb" else ("vertex.image=us-central1-docker.pkg.dev/my-project/tagline/tagline-own:1",)
    ran = command(
        "train",
        EXAMPLES / f"{name}.toml",
        f"data.train={data}",
        *SMALL[name],
        f"model.pretrained={checkpoint(kind)}",
        "model.max_tokens=16",
        "data.fraction=0.3",
        "training.epochs=1",
        "training.batch_size=32",
        "training.export=false",
        "training.baseline=false",
        "vertex.environment.WANDB_MODE=offline",
        "vertex.project=rehearsal",
        "vertex.bucket=my-bucket",
        "vertex.secrets={}",
        *image,
        "--on",
        "rehearsal",
        "--json",
    )
    assert ran.json["report"]["test"]["rows"] > 0


def test_the_tutorial_in_french_runs_small(rehearsal: Rehearsal) -> None:
    rows = [
        ("Le colis est arrivé en retard", 0, 1, 0, 0),
        ("Trop cher pour ce que c'est", 1, 0, 0, 0),
        ("Le vendeur a répondu très vite", 0, 0, 1, 0),
        ("Bon produit mais livraison lente", 0, 1, 0, 1),
        ("Rien à dire", 0, 0, 0, 0),
    ]
    lines = [f"{text} {number},{','.join(map(str, labels))}" for number in range(24) for text, *labels in rows]
    Path("avis.csv").write_text("avis,prix,livraison,service,produit\n" + "\n".join(lines), "utf-8")
    ran = command(
        "train",
        EXAMPLES / "french.toml",
        "data.train=avis.csv",
        "model.pretrained=",
        "model.pretrained_backward=",
        "model.embedding_size=16",
        "model.hidden_size=16",
        "model.layers=1",
        "training.epochs=1",
        "vertex.region=us-central1",
        "vertex.image=us-central1-docker.pkg.dev/my-project/tagline/tagline-own:1",
        "vertex.project=rehearsal",
        "vertex.bucket=my-bucket",
        "--on",
        "rehearsal",
        "--json",
    )
    assert "autre" in ran.json["report"]["labels"]
