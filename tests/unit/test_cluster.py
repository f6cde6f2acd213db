"""The pure parts of how workers find each other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tagline.errors import PlaceError, SpecError
from tagline.jobs.diagnosis import log
from tagline.jobs.diagnosis.log import Line
from tagline.models.nn import devices
from tagline.training import cluster
from tagline.training.cluster import Cluster

SUPPORT = Path(__file__).parents[2] / "examples" / "support" / "messages.csv"

POOLS = {"workerpool0": ["main:2222"], "workerpool1": ["a:2223", "b:2224"], "workerpool2": ["reducer:2225"]}


def said(cluster: object, task: object) -> dict[str, str]:
    return {"CLUSTER_SPEC": json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})}


@pytest.mark.parametrize(
    ("pool", "index", "number", "own_name"),
    [
        ("workerpool0", 0, 0, "main"),
        ("workerpool1", 0, 1, "a"),
        ("workerpool1", 1, 2, "b"),
        ("workerpool1", "1", 2, "b"),
    ],
)
def test_a_cluster_is_read_from_what_vertex_says(pool: str, index: int | str, number: int, own_name: str) -> None:
    found = Cluster.from_environment(said(POOLS, {"type": pool, "index": index}))
    assert found == Cluster(machines=3, number=number, main="main:2222", own_name=own_name)


def test_reduction_servers_are_no_workers() -> None:
    pools = {name: POOLS[name] for name in ("workerpool0", "workerpool2")}
    assert Cluster.from_environment(said(pools, {"type": "workerpool0", "index": 0})).machines == 1


@pytest.mark.parametrize("environment", [{}, {"CLUSTER_SPEC": ""}])
def test_without_a_cluster_a_machine_is_alone(environment: dict[str, str]) -> None:
    assert Cluster.from_environment(environment) == Cluster(machines=1)


@pytest.mark.parametrize(
    "environment",
    [
        {"CLUSTER_SPEC": "main:2222"},
        {"CLUSTER_SPEC": "[]"},
        {"CLUSTER_SPEC": "{}"},
        said(POOLS, None),
        said(POOLS, {"type": "workerpool0"}),
        said(POOLS, {"type": "workerpool0", "index": "first"}),
        said(POOLS, {"type": "workerpool1", "index": 2}),
        said(POOLS, {"type": "workerpool2", "index": 0}),
        said([], {"type": "workerpool0", "index": 0}),
        said({"workerpool0": 7}, {"type": "workerpool0", "index": 0}),
        said({"workerpool0": ["main"], "workerpool1": ["a:1"]}, {"type": "workerpool0", "index": 0}),
        said({"workerpool0": [7], "workerpool1": ["a:1"]}, {"type": "workerpool0", "index": 0}),
    ],
)
def test_a_cluster_that_cannot_be_understood_is_an_error_of_the_place(environment: dict[str, str]) -> None:
    with pytest.raises(PlaceError, match="cannot understand CLUSTER_SPEC"):
        Cluster.from_environment(environment)


@pytest.mark.parametrize(
    ("asked", "machines", "started"), [(1, 1, 0), (2, 1, 2), (1, 2, 1), (3, 2, 3)]
)  # fmt: skip
def test_one_worker_alone_needs_no_launcher(asked: int, machines: int, started: int) -> None:
    assert cluster.count_workers(asked, Cluster(machines=machines), can_share=True) == started


def test_without_a_number_there_is_a_worker_for_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "gpu_count", lambda: 4)
    assert cluster.count_workers(None, Cluster(), can_share=True) == 4
    assert cluster.count_workers(None, Cluster(), can_share=False) == 0


def test_a_worker_starts_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    assert cluster.count_workers(2, Cluster(machines=2), can_share=True) == 0
    monkeypatch.setenv("CLUSTER_SPEC", '{"a machine": "of Vertex AI"}')
    assert cluster.count_workers(2, Cluster(machines=2), can_share=True) == 2, "its rank is the machine's"
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert cluster.count_workers(2, Cluster(machines=2), can_share=True) == 0


def test_a_job_has_one_name_for_all_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (cluster.JOB, "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    assert cluster.job() == ""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    under_torchrun = cluster.job()
    assert under_torchrun
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert cluster.job() == under_torchrun
    monkeypatch.setenv(cluster.JOB, "ours")
    assert cluster.job() == "ours"


def test_a_word_that_was_left_is_the_same_error_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cluster.WORDS, str(tmp_path))
    monkeypatch.delenv("RANK", raising=False)
    assert not cluster.report_to_launcher(PlaceError("nobody to tell"))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    assert cluster.report_to_launcher(PlaceError("the disk is full", hint="free some space"))
    [found] = cluster._read_worker_errors(tmp_path)
    assert isinstance(found, PlaceError)
    assert (found.message, found.hint) == ("the disk is full", "free some space")


def test_workers_without_a_gpu_of_their_own_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "gpu_count", lambda: 1)
    with pytest.raises(SpecError, match="2 workers need as many GPUs; there are 1"):
        cluster.count_workers(2, Cluster(), can_share=True)


@pytest.mark.parametrize(
    ("machines", "is_alone"), [(Cluster(), True), (Cluster(2, 0, "localhost:29500", "localhost"), False)]
)
def test_no_heart_beats_where_no_other_machine_could_hear_it(
    monkeypatch: pytest.MonkeyPatch, machines: Cluster, is_alone: bool
) -> None:
    """Told to stop while it beat, torch wrote a traceback over what was said."""
    from torch.distributed.launcher import api

    started: list[api.LaunchConfig] = []
    monkeypatch.setattr(api, "elastic_launch", lambda config, _: lambda *_: started.append(config))
    assert list(cluster.launch_workers(["info"], count=2, cluster=machines)) == []
    assert ("keep_alive_interval" in started[0].rdzv_configs) == is_alone


@pytest.mark.parametrize(("asked", "uses_device", "rehearsal", "result"), [
    ("1", True, "", "refused"), ("4", True, "", "refused"), ("1", True, "http://127.0.0.1:1", "warned"),
    ("1", False, "", ""), ("0", True, "", ""), ("", True, "", ""), (None, True, "", ""),
])  # fmt: skip
def test_a_job_that_asked_for_a_gpu_and_finds_none_does_not_go_on(
    asked: str | None, uses_device: bool, rehearsal: str, result: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "gpu_count", lambda: 0)
    monkeypatch.setenv("REHEARSAL_ADDRESS", rehearsal)
    environment = {} if asked is None else {"TAGLINE_ACCELERATORS": asked}
    if result == "refused":
        with pytest.raises(PlaceError, match="and torch finds none") as refused:
            cluster.check_accelerators(environment, uses_device=uses_device)
        assert "vertex.accelerators=0" in refused.value.hint
    else:
        warning = cluster.check_accelerators(environment, uses_device=uses_device)
        assert bool(warning) == (result == "warned")


def test_a_job_with_a_gpu_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "gpu_count", lambda: 1)
    assert cluster.check_accelerators({"TAGLINE_ACCELERATORS": "4"}, uses_device=True) == ""


@pytest.mark.skipif(devices.gpu_count() > 0, reason="there is a GPU here")
def test_a_job_without_its_gpu_ends_with_exit_5_and_is_explained(tmp_path: Path) -> None:
    environment = {**os.environ, "TAGLINE_ACCELERATORS": "1", "CLOUD_ML_JOB_ID": "7", "OMP_NUM_THREADS": "1"}
    environment.pop("REHEARSAL_ADDRESS", None)
    words = [sys.executable, "-m", "tagline", "train", str(SUPPORT), "model.family=lstm", "--runs", str(tmp_path)]
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 5, ran.stderr
    assert list(tmp_path.iterdir()) == []
    lines = [
        Line(f"2026-11-18T12:00:{n:02}Z", "workerpool0-0", "ERROR", text)
        for n, text in enumerate(ran.stderr.splitlines())
    ]
    found = log.diagnose_log(lines, message="The replica workerpool0-0 exited with a non-zero status of 5.")
    assert found.cause == "no-gpu"
    assert "vertex.accelerators=0" in found.command
