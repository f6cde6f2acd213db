"""A launch as events: nothing is submitted before the price is known and somebody has said yes."""

from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import tagline
from tagline.data.checks import Finding
from tagline.data.columns import ResolvedSpec, resolve
from tagline.errors import PlaceError, SpecError
from tagline.jobs import launch, preflight, records
from tagline.jobs.launch import FindingsFound, JobMoved, JobPriced
from tagline.jobs.launchers import Job
from tagline.jobs.prices import Price

SETTINGS = ("model.family=linear", "vertex.project=demo", "vertex.bucket=b", "vertex.accelerators=0")


class RecordingLauncher:
    """Notes what is submitted, and then refuses it."""

    def __init__(self) -> None:
        self.submitted: list[Mapping[str, Any]] = []

    def plan(self, job: Job) -> dict[str, Any]:
        return {"job": {"displayName": job.name}}

    def submit(self, plan: Mapping[str, Any]) -> str:
        self.submitted.append(plan)
        raise PlaceError("nobody is there")


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> RecordingLauncher:
    found = RecordingLauncher()
    monkeypatch.setattr(records, "find_launcher", lambda *_: found)
    monkeypatch.setattr(preflight, "examine_place", lambda _: [])
    return found


@pytest.fixture
def spec(support: Path) -> ResolvedSpec:
    return resolve(str(support / "messages.csv"), SETTINGS)


def read(events: Generator[Any, None, Any]) -> Iterator[str]:
    for event in events:
        yield type(event).__name__


def test_nothing_is_submitted_before_a_yes_which_comes_after_the_price(
    launcher: RecordingLauncher, spec: ResolvedSpec, tmp_path: Path
) -> None:
    seen: list[str] = []
    asked: list[Price] = []

    def refuse(price: Price) -> bool:
        asked.append(price)
        assert seen[-1] == "JobPriced"
        return False

    with pytest.raises(SpecError, match="would spend money"):
        seen.extend(read(launch.launch(spec, on="vertex", confirm=refuse, runs=str(tmp_path))))
    assert len(asked) == 1
    assert launcher.submitted == []
    assert set(seen) <= {"SpecGuessed", "JobPriced"}
    with pytest.raises(PlaceError, match="nobody is there"):
        list(launch.launch(spec, on="vertex", confirm=lambda _: True, runs=str(tmp_path)))
    assert len(launcher.submitted) == 1


def test_python_spends_nothing_without_yes(launcher: RecordingLauncher, spec: ResolvedSpec, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as refused:
        tagline.train(spec.spec, on="vertex", runs=tmp_path)
    assert refused.value.hint == "yes=True spends it"
    assert launcher.submitted == []
    with pytest.raises(PlaceError, match="nobody is there"):
        tagline.train(spec.spec, on="vertex", yes=True, runs=tmp_path)


def test_what_would_fail_there_ends_it_here(
    launcher: RecordingLauncher, spec: ResolvedSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Finding("bucket", "error", "there is no bucket b", "make it")
    monkeypatch.setattr(preflight, "examine_place", lambda _: [wrong])
    seen = []
    with pytest.raises(PlaceError, match="there is no bucket b"):
        seen.extend(launch.launch(spec, on="vertex", confirm=lambda _: True, runs=str(tmp_path)))
    assert seen[-1] == FindingsFound((wrong,))
    assert launcher.submitted == []


def test_a_job_that_lacks_quota_is_priced_where_it_goes(
    launcher: RecordingLauncher, support: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fallback = 'vertex.fallbacks=[{region = "us-east1", machine = "n1-highmem-8"}]'
    spec = resolve(str(support / "messages.csv"), [*SETTINGS, fallback])
    lacking = Finding("quota", "error", "no quota in us-central1.", "ask for it")
    monkeypatch.setattr(
        preflight, "examine_place", lambda job: [lacking] if job.spec.vertex.region == "us-central1" else []
    )
    events = launch.launch(spec, on="vertex", confirm=lambda _: False, runs=str(tmp_path))
    seen = []
    with pytest.raises(SpecError, match="would spend money"):
        seen.extend(events)
    moved, priced = seen[-2:]
    assert moved == JobMoved("no quota in us-central1.", "us-east1", "n1-highmem-8")
    assert isinstance(priced, JobPriced)
    assert "n1-highmem-8" in priced.price.parts[0][0]


def test_a_monitor_that_the_task_has_not_is_refused_before_anything_is_spent(
    launcher: RecordingLauncher, support: Path, tmp_path: Path
) -> None:
    spec = resolve(str(support / "messages.csv"), [*SETTINGS, "training.monitor=subset_accuracy"])
    with pytest.raises(SpecError, match="monitor"):
        list(launch.launch(spec, on="vertex", confirm=lambda _: True, runs=str(tmp_path)))
    assert launcher.submitted == []


def test_a_plan_is_typed_and_prints_what_the_launcher_planned(support: Path, tmp_path: Path) -> None:
    plan = tagline.plan(support / "messages.csv", *SETTINGS, name="ours", runs=tmp_path)
    assert plan.parent == "projects/demo/locations/us-central1"
    assert plan.price is not None
    assert plan.price.expected is not None
    assert plan.uploads[0].source.endswith("messages.csv")
    printed = plan.to_dict()
    assert list(printed) == ["job", "gcloud", "price", "parent", "uploads"]
    assert set(printed["uploads"][0]) == {"from", "to"}
    assert tagline.Plan.of({"job": {}, "extra": 1}).to_dict() == {"job": {}}
