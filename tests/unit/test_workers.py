"""The pure parts of how workers find each other."""

import json
from pathlib import Path

import numpy as np
import pytest

from tagline import workers
from tagline.errors import PlaceError, SpecError
from tagline.workers import Cluster, World

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
    found = Cluster.of(said(POOLS, {"type": pool, "index": index}))
    assert found == Cluster(machines=3, number=number, main="main:2222", own_name=own_name)


def test_reduction_servers_are_no_workers() -> None:
    pools = {name: POOLS[name] for name in ("workerpool0", "workerpool2")}
    assert Cluster.of(said(pools, {"type": "workerpool0", "index": 0})).machines == 1


@pytest.mark.parametrize("environment", [{}, {"CLUSTER_SPEC": ""}])
def test_without_a_cluster_a_machine_is_alone(environment: dict[str, str]) -> None:
    assert Cluster.of(environment) == Cluster(machines=1)


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
        Cluster.of(environment)


@pytest.mark.parametrize(
    ("asked", "machines", "started"), [(1, 1, 0), (2, 1, 2), (1, 2, 1), (3, 2, 3)]
)  # fmt: skip
def test_one_worker_alone_needs_no_launcher(asked: int, machines: int, started: int) -> None:
    assert workers.are_needed(asked, Cluster(machines=machines), can_share=True) == started


def test_without_a_number_there_is_a_worker_for_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "gpu_count", lambda: 4)
    assert workers.are_needed(None, Cluster(), can_share=True) == 4
    assert workers.are_needed(None, Cluster(), can_share=False) == 0


def test_a_worker_starts_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    assert workers.are_needed(2, Cluster(machines=2), can_share=True) == 0


def test_a_job_has_one_name_for_all_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (workers.JOB, "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    assert workers.job() == ""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    under_torchrun = workers.job()
    assert under_torchrun
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert workers.job() == under_torchrun
    monkeypatch.setenv(workers.JOB, "ours")
    assert workers.job() == "ours"


@pytest.mark.parametrize("total", [0, 1, 2, 5, 6])
def test_rows_that_workers_took_in_turns_come_together_in_their_order(
    total: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.arange(2 * total, dtype=np.float32).reshape(total, 2)
    parts = [rows[rank::3] for rank in range(3)]
    monkeypatch.setattr(World, "gather", lambda self, mine: parts)
    np.testing.assert_array_equal(World(rank=1, size=3).interleaved(parts[1], total=total), rows)


def test_a_world_of_one_agrees_with_itself() -> None:
    alone = World()
    assert alone.is_main
    assert alone.any(True, False) == (True, False)
    assert (alone.sum(2.5), alone.most(2.5), alone.share("x")) == (2.5, 2.5, "x")
    assert alone.interleaved(np.ones(3), total=3).tolist() == [1, 1, 1]


def test_a_word_that_was_left_is_the_same_error_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workers.WORDS, str(tmp_path))
    monkeypatch.delenv("RANK", raising=False)
    assert not workers.leave_word(PlaceError("nobody to tell"))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    assert workers.leave_word(PlaceError("the disk is full", hint="free some space"))
    [found] = workers._words(tmp_path)
    assert isinstance(found, PlaceError)
    assert (found.message, found.hint) == ("the disk is full", "free some space")


def test_only_a_training_joins_other_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of several processes may load a bundle in each of them."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert workers.world() == World()


def test_workers_without_a_gpu_of_their_own_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "gpu_count", lambda: 1)
    with pytest.raises(SpecError, match="2 workers need as many GPUs; there are 1"):
        workers.are_needed(2, Cluster(), can_share=True)
