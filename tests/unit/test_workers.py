"""What a worker knows of the others."""

import numpy as np
import pytest

from tagline.models.nn import workers
from tagline.models.nn.workers import World


@pytest.mark.parametrize("total", [0, 1, 2, 5, 6])
def test_rows_that_workers_took_in_turns_come_together_in_their_order(
    total: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.arange(2 * total, dtype=np.float32).reshape(total, 2)
    parts = [rows[rank::3] for rank in range(3)]
    monkeypatch.setattr(World, "gather", lambda self, mine: parts)
    np.testing.assert_array_equal(World(rank=1, size=3).interleave_rows(parts[1], total=total), rows)


def test_a_world_of_one_agrees_with_itself() -> None:
    alone = World()
    assert alone.is_main
    assert alone.any(True, False) == (True, False)
    assert (alone.sum(2.5), alone.max(2.5), alone.share("x")) == (2.5, 2.5, "x")
    assert alone.interleave_rows(np.ones(3), total=3).tolist() == [1, 1, 1]


def test_only_a_training_joins_other_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of several processes may load a bundle in each of them."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert workers.world() == World()


def test_a_machine_of_several_is_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vertex AI sets the ranks of machines, of which the one that trains may be the only one."""
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", "CLUSTER_SPEC": '{"cluster": {}}'}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    workers.join_workers.cache_clear()
    assert workers.join_workers() == World()
    workers.join_workers.cache_clear()
