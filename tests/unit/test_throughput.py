"""How fast earlier runs have learned, and the plans that rest on it."""

import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tagline import spec as specs
from tagline.cli import run as tagline
from tagline.jobs import prices, records, throughput
from tagline.runs.events import StepEvent
from tagline.runs.formats import ATTEMPTS, AttemptRecord
from tagline.runs.run import Run
from tagline.spec import Spec

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
CPU = {"device": "cpu: a processor", "processors": 4, "workers": 1}


def spec_of(train: str = "a.csv", *, fraction: float = 1.0, vertex: dict[str, Any] | None = None, **model: Any) -> Spec:
    raw = {
        "data": {"train": train, "text": "t", "labels": "l", "fraction": fraction},
        "model": {"family": "encoder", "pretrained": "minilm", **model},
        "vertex": vertex or {},
    }
    return specs.parse(raw, where="a test")


def learned(
    runs: Path,
    spec: Spec,
    *,
    lock: dict[str, Any] = CPU,
    starts: tuple[int, ...] = (0,),
    steps: tuple[tuple[int, int], ...] = ((10, 100), (20, 200), (40, 400)),
    name: str = "",
    **extra: Any,
) -> Run:
    """A run whose steps came at these seconds, with so many rows seen by then."""
    run = Run.create(runs, spec, {"spec_fingerprint": spec.fingerprint(), **lock}, name=name)
    for second, rows in steps:
        time = (BEGIN + timedelta(seconds=second)).isoformat()
        run.append_event(StepEvent(time=time, step=rows, total=400, rows=rows, **extra))
    begun = [AttemptRecord((BEGIN + timedelta(seconds=second)).isoformat(), "host") for second in starts]
    run.write_lines(ATTEMPTS, [json.dumps(asdict(each)) for each in begun])
    return run


def test_a_run_of_the_same_tells_its_rate(tmp_path: Path) -> None:
    assert throughput.find_earlier_rate(spec_of(), str(tmp_path / "nowhere")) is None
    run = learned(tmp_path, spec_of(fraction=0.1))
    found = throughput.find_earlier_rate(spec_of(vertex={"region": "us-east1"}), str(tmp_path))
    assert found == prices.Rate(10.0, prices.estimate_processor_flops(4), run.name, "4 processors")


@pytest.mark.parametrize("other", [
    spec_of("b.csv"), spec_of(max_tokens=64), spec_of(pretrained="bert-base-uncased"), spec_of(head="lstm"),
])  # fmt: skip
def test_a_run_of_something_else_does_not(tmp_path: Path, other: Spec) -> None:
    learned(tmp_path, other)
    assert throughput.find_earlier_rate(spec_of(), str(tmp_path)) is None


def test_what_was_taken_to_a_bucket_is_the_same(tmp_path: Path) -> None:
    there = spec_of(
        "gs://b/tagline/data/0123456789abcdef/a.csv", pretrained="gs://b/tagline/pretrained/hub/google-bert/bert-base"
    )
    learned(tmp_path, there)
    assert (
        throughput.find_earlier_rate(spec_of("data/a.csv", pretrained="google-bert/bert-base"), str(tmp_path))
        is not None
    )


def test_the_newest_run_that_tells_is_taken(tmp_path: Path) -> None:
    learned(tmp_path, spec_of(), name="20260101-000000-oak", steps=((10, 100), (20, 300)))
    learned(tmp_path, spec_of(), name="20260102-000000-oak")
    learned(tmp_path, spec_of(), name="20260103-000000-oak", steps=((10, 100),))
    damaged = learned(tmp_path, spec_of(), name="20260104-000000-oak")
    (damaged.directory / "spec.toml").write_text("[data")
    found = throughput.find_earlier_rate(spec_of(), str(tmp_path))
    assert found is not None
    assert (found.run, found.rows_per_s) == ("20260102-000000-oak", 10.0)


def test_the_time_in_which_nobody_worked_does_not_count(tmp_path: Path) -> None:
    learned(tmp_path, spec_of(), starts=(0, 3000), steps=((10, 100), (20, 200), (3010, 300), (3020, 400)))
    found = throughput.find_earlier_rate(spec_of(), str(tmp_path))
    assert found is not None
    assert found.rows_per_s == 10.0


@pytest.mark.parametrize(("lock", "flops", "machine"), [
    ({"device": "cuda: Tesla T4", "workers": 2, "processors": 8}, 2 * prices.FLOPS["NVIDIA_TESLA_T4"], "2 x Tesla T4"),
    ({"device": "cuda: NVIDIA GeForce RTX 3090", "workers": 1, "processors": 8}, 0, ""),
    ({"device": "mps: Apple GPU", "workers": 1, "processors": 8}, 0, ""),
    ({"device": "cpu: a processor", "workers": 3, "processors": 8}, prices.estimate_processor_flops(8), "8 processors"),
    ({}, 0, ""),
])  # fmt: skip
def test_what_it_ran_on_is_known_from_its_lock(
    tmp_path: Path, lock: dict[str, Any], flops: float, machine: str
) -> None:
    learned(tmp_path, spec_of(), lock=lock)
    found = throughput.find_earlier_rate(spec_of(), str(tmp_path))
    assert (found.flops, found.machine) == (flops, machine) if found else flops == 0


def test_a_run_of_the_cloud_ran_on_the_machines_it_asked_for(tmp_path: Path) -> None:
    place = {"machine": "n1-standard-16", "accelerators": 0, "workers": 2}
    run = learned(tmp_path, spec_of(vertex=place))
    records.save_record(
        run, records.Record("vertex", "projects/p/locations/r/customJobs/1", "gs://b/tagline/runs/x", "")
    )
    found = throughput.find_earlier_rate(spec_of(), str(tmp_path))
    assert found is not None
    assert (found.flops, found.machine) == (prices.estimate_processor_flops(32), "32 processors")


def test_steps_that_are_not_made_of_rows_tell_nothing(tmp_path: Path) -> None:
    learned(tmp_path, spec_of(), steps=((10, 0), (20, 0)))
    learned(tmp_path, spec_of(), stage="language model")
    assert throughput.find_earlier_rate(spec_of(), str(tmp_path)) is None


def test_a_plan_rests_on_what_was_measured_here_and_still_asks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("t,l\n" + "".join(f"text number {n},{'ab'[n % 2]}\n" for n in range(200)))
    spec = spec_of()
    Path("tagline.toml").write_text(specs.to_toml(spec))
    run = learned(Path("earlier"), spec)

    def planned(runs: str) -> dict[str, Any]:
        words = ["train", "tagline.toml", "--on", "vertex", "--plan", "--json", "--runs", runs]
        assert tagline(words) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)["price"]
        return found

    there, nowhere, far = planned("earlier"), planned("nowhere"), planned("gs://bucket/runs")
    assert f"10 rows/s of run {run.name} on 4 processors" in there["assumption"]
    assert "160 rows, 4 epochs" in there["assumption"]
    assert "assumed 128 tokens" in nowhere["assumption"]
    assert far == nowhere
    assert there["is_estimate"]
    assert there["date"]
