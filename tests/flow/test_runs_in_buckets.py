"""Runs in Cloud Storage: begun, stopped, gone on with elsewhere, looked at and removed, against a real rehearsal."""

import json
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from attempts import SMALL, SUPPORT, Attempt, contents, events, start, start_workers, touched
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage as google_storage

import tagline as library
from tagline import cli, gcp, training
from tagline.errors import Conflict, PlaceError, RunError, SpecError
from tagline.gcp import cloud_storage
from tagline.runs import lock as locks
from tagline.runs import lookup
from tagline.runs.checkpoints import PROGRESS, Progress
from tagline.runs.run import Run
from tagline.training import spec_sources

sys.path.insert(0, str(Path(__file__).parents[1]))
from rehearsing import rehearsing

MESSAGES = str(SUPPORT / "messages.csv")
LINEAR = ("model.family=linear", "model.max_features=800", "model.strength=4.0", "model.characters=0")
STEPS = ("model.family=linear", "model.max_features=300", "data.fraction=0.2", "training.log_every=1")
"""Evaluated, and kept, at the steps 8, 16 and 24."""
LSTM = (*SMALL, "model.family=lstm", "model.hidden=16", "model.embedding=16")
Command = Callable[..., Any]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Google's own client, of a rehearsal that this process and those it starts take for Google; no cache is shared."""
    patch = pytest.MonkeyPatch()
    with rehearsing(tmp_path_factory.mktemp("rehearsal")) as rehearsal:
        patch.setenv("STORAGE_EMULATOR_HOST", rehearsal.keyed_address)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        gcp.storage_client.cache_clear()
        yield google_storage.Client(project="demo", credentials=AnonymousCredentials())
    patch.undo()
    gcp.storage_client.cache_clear()


@dataclass(frozen=True)
class Result:
    """What a command printed."""

    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be one JSON document."""
        return json.loads(self.out)


@pytest.fixture
def tagline(capfd: pytest.CaptureFixture[str]) -> Command:
    """Run `tagline ARGUMENTS...` in this process: what is loaded once need not be loaded again."""

    def run(*arguments: str, code: int = 0) -> Result:
        capfd.readouterr()
        ended = cli.run(arguments)
        result = Result(*capfd.readouterr())
        assert ended == code, result.err
        return result

    return run


@pytest.fixture
def runs(client: Any, request: pytest.FixtureRequest) -> str:
    """Where a test keeps its runs: in a bucket of its own."""
    name = "".join(part[0] for part in request.node.name.split("_"))[:20] + f"-{id(request):x}"
    client.create_bucket(name)
    return f"gs://{name}/tagline/runs"


@pytest.fixture(scope="module")
def whole(client: Any, tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    """A run of family lstm on this machine that was never stopped."""
    attempt = start("train", MESSAGES, *LSTM, cwd=tmp_path_factory.mktemp("whole"))
    assert attempt.end() == 0, attempt.err
    return attempt


def elsewhere(cwd: Path) -> dict[str, str]:
    """Another machine: nothing of what this one keeps."""
    return {"XDG_CACHE_HOME": str(cwd / "cache"), "HOME": str(cwd / "home"), "TMPDIR": str(_made(cwd / "scratch"))}


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def on_machine(cwd: Path, *arguments: str, dies_at: int = 0, sends: int = 0) -> Attempt:
    return start(*arguments, cwd=_made(cwd), environment=elsewhere(cwd), dies_at=dies_at, sends=sends)


def only(runs: str) -> Run:
    [run] = lookup.list_runs(runs)
    return run


def is_the_same(run: Run, whole: Run, home: Path) -> None:
    """A run in a bucket has come to the same end as one that was never stopped."""
    brought = lookup.download_run(run.address, home)
    assert contents(brought) == contents(whole)
    assert events(brought) == events(whole)
    assert brought.state().name == "succeeded"


def names(client: Any, runs: str) -> list[str]:
    bucket = runs.removeprefix("gs://").partition("/")[0]
    return [blob.name.removeprefix("tagline/runs/").partition("/")[2] for blob in client.list_blobs(bucket)]


def test_every_command_takes_a_run_in_a_bucket(
    runs: str, client: Any, tagline: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    here = tagline("train", MESSAGES, *LINEAR, "--json").json
    there = tagline("train", MESSAGES, *LINEAR, 'tracking.to=["tensorboard"]', "--runs", runs, "--json").json
    assert there["report"] == here["report"]
    address = there["run"]
    run = only(runs)
    assert address == run.address
    assert any(name.startswith("tensorboard/events") for name in names(client, runs))

    [listed] = tagline("runs", "list", "--runs", runs, "--json").json
    assert (listed["directory"], listed["state"]) == (address, "succeeded")
    shown = tagline("runs", "show", "last", "--runs", runs)
    assert f"{address}/bundle/" in shown.out
    tagline("runs", "report", address, "--output", f"{runs}/page.html")
    assert b"<html" in cloud_storage.read_bytes(cloud_storage.list_objects(f"{runs}/page.html")[0])
    assert "delivery" in tagline("predict", address, "where is my parcel").out
    assert tagline("evaluate", address, MESSAGES, "--output", f"{runs}/e.json", "--json").json["test"]["rows"] == 769
    assert cloud_storage.object_at(f"{runs}/e.json")
    compared = tagline("compare", address, here["run"], "--html", f"{runs}/c.html", "--json").json
    assert {each["directory"] for each in compared["runs"]} == {address, here["run"]}
    packed = tagline("export", address, "--to", "torchserve", "--output", f"{runs}/served", "--json").json
    assert {
        each.address.removeprefix(f"{runs}/served/") for each in cloud_storage.list_objects(f"{runs}/served")
    } == set(packed["files"])
    for refused, said, code in (
        (("train", "--resume", address), "is complete", 4),
        (("export", address), "is not changed", 2),
        (("export", address, "--to", "torchserve", "--output", f"{runs}/served"), "there already", 2),
        (("predict", f"{runs}/nothing", "a text"), "there is nothing at", 3),
        (("predict", "gs://no-such-bucket-anywhere/run", "a text"), "no", 3),
    ):
        result = tagline(*refused, code=code)
        assert said in result.err
    tagline("runs", "delete", run.name, "--runs", runs, "--yes")
    assert lookup.list_runs(runs) == []
    assert not [name for name in names(client, runs) if name.startswith(run.name)]
    assert "is not a run" in tagline("runs", "show", address, code=4).err


def test_a_learning_curve_is_added_to_a_run_in_a_bucket(runs: str, tagline: Command) -> None:
    address = tagline("train", MESSAGES, *LINEAR, "data.fraction=0.3", "--runs", runs, "--json").json["run"]
    report = tagline("train", "--resume", address, "--learning-curve", "--json").json["report"]
    assert len(report["learning_curve"]["points"]) == 4
    assert only(runs).report().to_dict() == report


def test_a_spec_is_written_to_a_bucket_and_read_from_it(runs: str, tagline: Command) -> None:
    spec = f"{runs}/tagline.toml"
    tagline("init", MESSAGES, *LINEAR, "--output", spec)
    assert "already there" in tagline("init", MESSAGES, "--output", spec, code=2).err
    assert "ready to train" in tagline("check", spec).out


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_killed_at_any_moment_it_goes_on_elsewhere_to_the_very_same_end(
    runs: str, whole: Attempt, undisturbed: Attempt, tmp_path: Path, share: float
) -> None:
    at = int(share * touched(undisturbed))
    first = on_machine(tmp_path / "a", "train", MESSAGES, *LSTM, "--runs", runs, dies_at=at)
    assert first.end() == -signal.SIGKILL
    run = only(runs)
    resumed = on_machine(tmp_path / "b", "train", "--resume", run.address)
    assert resumed.end() == 0, resumed.err
    is_the_same(run, whole.run, tmp_path / "home")
    run.refresh()
    assert [attempt.host for attempt in run.attempts()] == [socket.gethostname()] * 2
    restarts, lost_minutes = run.restarts()
    assert restarts == 1
    assert 0 <= lost_minutes < 1


@pytest.fixture(scope="module")
def undisturbed(client: Any, whole: Attempt, tmp_path_factory: pytest.TempPathFactory) -> Attempt:
    """The same run in a bucket, never stopped either."""
    client.create_bucket("undisturbed")
    cwd = tmp_path_factory.mktemp("undisturbed")
    attempt = on_machine(cwd, "train", MESSAGES, *LSTM, "--runs", "gs://undisturbed/runs")
    assert attempt.end() == 0, attempt.err
    is_the_same(only("gs://undisturbed/runs"), whole.run, cwd / "home")
    return attempt


def test_told_to_stop_it_saves_to_the_bucket_first(
    runs: str, whole: Attempt, undisturbed: Attempt, tmp_path: Path
) -> None:
    at = touched(undisturbed) // 3
    stopped = on_machine(tmp_path / "a", "train", MESSAGES, *LSTM, "--runs", runs, dies_at=at, sends=signal.SIGTERM)
    assert stopped.end() == 143
    run = only(runs)
    assert f"next: tagline train --resume {run.address}" in stopped.err
    assert run.state().name == "cancelled"
    assert int(run.progress().last) == max(event["step"] for event in run.events() if event["event"] == "step")
    assert on_machine(tmp_path / "b", "train", "--resume", run.address).end() == 0
    is_the_same(run, whole.run, tmp_path / "home")
    run.refresh()
    assert run.restarts() == (1, pytest.approx(0.0, abs=0.02))


def test_a_planned_run_is_begun_and_gone_on_with_by_two_workers(
    runs: str, undisturbed: Attempt, tmp_path: Path
) -> None:
    spec = spec_sources.resolve_spec(MESSAGES, LSTM)
    planned = Run.create(runs, spec, locks.lock_before_start(spec, command="a test"), name="support-1")
    assert planned.state().name == "waiting"
    with pytest.raises(RunError, match="there is a run support-1"):
        Run.create(runs, spec, {}, name="support-1")
    with pytest.raises(SpecError, match="cannot name a run"):
        Run.create(runs, spec, {}, name="Support/1")
    job = {**elsewhere(tmp_path / "a"), "CLOUD_ML_JOB_ID": "17"}
    command = ("train", "--resume", planned.address)
    main, other = start_workers(*command, cwd=tmp_path / "a", environment=job, dies_at=touched(undisturbed) // 2)
    assert main.end() == -signal.SIGKILL
    other.process.wait(60)
    planned.refresh()
    assert planned.progress().last
    two = start_workers(*command, cwd=tmp_path / "a", environment=job)
    assert [each.end() for each in two] == [0, 0], two[0].err + two[1].err
    whole = start_workers("train", MESSAGES, *LSTM, cwd=tmp_path / "whole")
    assert [each.end() for each in whole] == [0, 0]
    is_the_same(planned, whole[0].run, tmp_path / "home")
    lock = only(runs).lock()
    assert lock["data_fingerprint"] == whole[0].run.lock()["data_fingerprint"]
    assert (lock["command"], lock["workers"], lock["job"]) == ("a test", 2, "17")
    again = start(*command, cwd=tmp_path / "a", environment=job)
    assert again.end() == 0, "a job that is started again after its run was complete has nothing left to do"
    assert on_machine(tmp_path / "b", *command).end() == 4


def test_a_planned_run_that_cannot_begin_says_why(runs: str, tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text(Path(MESSAGES).read_text())
    spec = spec_sources.resolve_spec(str(data), LINEAR)
    planned = Run.create(runs, spec, locks.lock_before_start(spec, command="a test"), name="no-data")
    data.unlink()
    refused = on_machine(tmp_path / "a", "train", "--resume", planned.address)
    assert refused.end() == 3
    planned.refresh()
    assert planned.state().name == "failed"
    assert planned.state().reason == f"there is no file {data}"


@pytest.fixture(scope="module")
def stepwise(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run on this machine that `begun` would come to."""
    return library.train(MESSAGES, *STEPS, runs=tmp_path_factory.mktemp("stepwise"))


@pytest.fixture
def begun(runs: str) -> Iterator[Iterator[dict[str, Any]]]:
    """A training in this process that has kept its first checkpoint, and goes on when it is asked to."""
    spec = spec_sources.resolve_spec(MESSAGES, STEPS)
    with closing(training.start_run(spec, runs=runs, command="a test")) as events:  # type: ignore[type-var]
        assert any(event.get("step") == 9 for event in events)
        yield events


def test_of_two_processes_that_work_on_a_run_the_later_one_has_it(
    runs: str, begun: Iterator[Any], stepwise: Run, tmp_path: Path
) -> None:
    run = only(runs)
    assert run.progress().last == "000008"
    assert run.state().name == "running"
    assert "last heard of" in run.state().reason
    with pytest.raises(RunError, match="is in use"):
        run.delete()
    later = on_machine(tmp_path / "b", "train", "--resume", run.address)
    assert later.end() == 0, later.err
    with pytest.raises(Conflict, match="has taken over run"):
        list(begun)
    is_the_same(run, stepwise, tmp_path / "home")


def test_the_earlier_of_two_processes_damages_nothing_while_the_later_one_works(
    runs: str, begun: Iterator[Any], stepwise: Run, tmp_path: Path
) -> None:
    later = training.resume_run(only(runs))
    assert any(event.get("step") == 16 for event in later)
    with pytest.raises(Conflict, match="has taken over run"):
        list(begun)
    list(later)
    is_the_same(only(runs), stepwise, tmp_path / "home")


def test_of_two_processes_that_take_a_run_over_at_once_one_goes_on(runs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_sources.resolve_spec(MESSAGES, STEPS)
    first = Run.create(runs, spec, locks.lock_before_start(spec, command="a test"), name="contested")
    second = Run.open(first.address)
    really = cloud_storage.object_at
    taken = ExitStack()

    def in_between(address: str) -> Any:
        if address.endswith(PROGRESS):
            monkeypatch.setattr(cloud_storage, "object_at", really)
            taken.enter_context(second.held())
        return really(address)

    monkeypatch.setattr(cloud_storage, "object_at", in_between)
    with pytest.raises(Conflict, match="has taken over"), first.held():
        pass
    second.set_state("running")
    second.checkpoint("000001").mkdir(parents=True)
    (second.checkpoint("000001") / "weights").write_text("w")
    second.write_progress(Progress(last="000001"))
    taken.close()
    seen = Run.open(first.address)
    assert (seen.state().name, seen.progress().last) == ("running", "000001")
    with pytest.raises(Conflict):
        first.write_text("report.html", "of a process that lost the run")


def test_a_bucket_that_is_removed_midway_is_said(runs: str, begun: Iterator[Any], client: Any) -> None:
    bucket = client.bucket(runs.removeprefix("gs://").partition("/")[0])
    bucket.delete(force=True)
    with pytest.raises(PlaceError, match=f"there is no bucket {bucket.name}"):
        list(begun)


def test_a_run_comes_home_whole_and_again_once_it_has_gone_on(runs: str, begun: Iterator[Any], tmp_path: Path) -> None:
    run = only(runs)
    begun.close()  # type: ignore[attr-defined]
    home = lookup.download_run(run.address, tmp_path)
    assert home.state().name == "cancelled"
    assert not (home.directory / "checkpoints").exists()
    inode = home.directory.stat().st_ino
    assert lookup.download_run(run.address, tmp_path).directory.stat().st_ino == inode, "it was there already"
    library.train(run.address, resume=True)
    assert lookup.download_run(run.address, tmp_path).state().name == "succeeded"
    assert [path.name for path in tmp_path.iterdir()] == [run.name]
    (home.directory / "state.json").write_text(json.dumps({"name": "succeeded", "created": "another"}))
    with pytest.raises(RunError, match="is another run"):
        lookup.download_run(run.address, tmp_path)
