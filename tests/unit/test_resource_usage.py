"""What a training uses of its machine."""

import json
import time
from pathlib import Path

import pytest

import tagline
from tagline.cli import console
from tagline.cli import run as run_command
from tagline.runs import resource_usage
from tagline.runs.events import StartedEvent, UsageEvent, parse_event
from tagline.runs.resource_usage import UsageSampler

pytestmark = pytest.mark.trains

SUPPORT = Path(__file__).parents[2] / "examples" / "support" / "messages.csv"
GIB = 2**30


def work(seconds: float) -> None:
    """Use the processor for so many seconds of its own time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_sample_tells_what_this_process_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_usage, "core_count", lambda: 1)
    sampler = UsageSampler()
    work(0.1)
    busy = sampler.take_sample()
    assert 0 < busy["processor"] <= 1
    assert 10e6 < busy["memory_bytes"] <= busy["peak_memory_bytes"] < busy["machine_memory_bytes"]
    assert not sampler.is_due()
    assert not sampler.is_due(at_evaluation=True)
    monkeypatch.setattr(resource_usage, "INTERVAL_S", 0.0)
    assert sampler.is_due()


def test_where_there_is_no_proc_the_peak_is_told_all_the_same() -> None:
    found = resource_usage.measure_memory("")
    assert "memory_bytes" not in found
    assert found["peak_memory_bytes"] > 10e6


def test_gpus_are_read_from_what_nvidia_smi_prints() -> None:
    printed = "Tesla T4, 87, 9216, 15360\nTesla T4, [N/A], 3, 15360\nno comma\n"
    assert resource_usage.parse_gpus(printed) == [
        {"name": "Tesla T4", "share": 0.87, "memory_bytes": 9 * GIB, "total_memory_bytes": 15 * GIB},
        {"name": "Tesla T4", "memory_bytes": 3 * 2**20, "total_memory_bytes": 15 * GIB},
    ]


def test_samples_are_summed_up_and_said() -> None:
    gpu = {"name": "Tesla T4", "share": 0.5, "memory_bytes": int(4e9), "total_memory_bytes": int(15e9)}
    facts = {"memory_bytes": int(1e9), "peak_memory_bytes": int(2e9), "machine_memory_bytes": int(30e9)}
    first = parse_event({"event": "usage", "processor": 0.4, **facts, "gpus": [gpu]})
    busier = {**gpu, "share": 0.9, "memory_bytes": int(9e9)}
    second = UsageEvent.model_validate({"processor": 0.8, **facts, "gpus": [busier]})
    found = resource_usage.summarize_usage([StartedEvent(), first, second])
    assert found["processor"] == {"mean": 0.6, "most": 0.8}
    assert found["gpus"][0]["mean"] == 0.7
    assert resource_usage.describe_summary(found) == (
        "processor 60% on average, 80% at most; memory 2.0 of 30.0 GB at most; "
        "GPU Tesla T4 70% on average, 9.0 of 15.0 GB at most"
    )
    assert resource_usage.describe_sample(second) == "processor 80%; memory 1.0 of 30.0 GB; GPU 90%, 9.0 of 15.0 GB"
    assert resource_usage.summarize_usage([StartedEvent()]) == {}
    assert resource_usage.describe_summary({}) == ""


def test_a_run_has_its_use_in_events_page_and_commands_but_not_in_what_must_be_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = (
        "model.family=linear",
        "model.max_features=200",
        "model.strength=4.0",
        "model.characters=0",
        "training.baseline=false",
    )
    run = tagline.train(SUPPORT, *settings, runs=tmp_path)
    [event] = [event for event in run.events() if event["event"] == "usage"]
    assert event["memory_bytes"] > 0
    page = (run.directory / "report.html").read_text()
    assert "Use of the machine: processor " in page
    assert "usage" not in json.loads((run.directory / "report.json").read_text())
    assert run_command(["runs", "show", str(run.directory), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["usage"]["samples"] == 1
    assert console._format_event(event) == ""  # at a terminal there are other means
    monkeypatch.setenv(console.JOB_ID_VARIABLE, "7")
    assert console._format_event(event).startswith("use: ")
