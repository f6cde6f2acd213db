"""The lines of events.jsonl as models: what earlier versions wrote is read and kept."""

import json
from pathlib import Path

import pytest

from tagline import spec as specs
from tagline.cli import console
from tagline.errors import RunError
from tagline.reports import report
from tagline.runs import events, resource_usage
from tagline.runs.events import EvaluationEvent, Event, StepEvent, WarningEvent, parse_event
from tagline.runs.run import Run

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = ("single", "several")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    spec = specs.parse({"data": {"train": "a.csv", "text": "text", "labels": "label"}}, where="a test")
    return Run.create(tmp_path, spec, {"spec_fingerprint": spec.fingerprint()})


@pytest.mark.parametrize("name", NAMES)
def test_events_are_written_as_they_were_read(run: Run, name: str) -> None:
    lines = (FIXTURES / f"events-{name}.jsonl").read_bytes()
    (run.directory / "events.jsonl").write_bytes(lines)
    found = run.events()
    assert all(type(event) is events.WRITTEN[event.event] for event in found)
    assert not any(event.model_extra for event in found)
    run.rewind_events(0)
    for event in found:
        run.append_event(event)
    assert (run.directory / "events.jsonl").read_bytes() == lines


@pytest.mark.parametrize("name", NAMES)
def test_events_are_shown_and_summed_up(name: str) -> None:
    lines = (FIXTURES / f"events-{name}.jsonl").read_text("utf-8").splitlines()
    found = [parse_event(json.loads(line)) for line in lines]
    shown = [console._format_event(event) for event in found]
    assert shown[0].startswith(f"run runs/{name}\n    family linear")
    assert shown[1].startswith("step 8/24  loss ")
    assert resource_usage.summarize_usage(found)["samples"] == 1
    facts = json.loads((FIXTURES / f"report-{name}.json").read_text("utf-8"))
    assert report.summarize_history(found, refits=True).to_dict() == facts["history"]


def test_what_another_version_or_package_adds_is_kept() -> None:
    unknown = {"event": "carbon", "time": "2026-01-01T00:00:00+00:00", "step": 3, "grams": 3}
    event = parse_event(unknown)
    assert type(event) is Event
    assert event.to_dict() == unknown
    assert event["grams"] == 3
    more = {"event": "warning", "message": "hot", "degrees": 90}
    assert parse_event(more).to_dict() == more


def test_an_event_of_an_earlier_version_may_lack_what_was_added_since() -> None:
    event = parse_event({"event": "evaluation", "step": 8, "monitor": "macro_f1", "value": 0.5, "best": True})
    assert isinstance(event, EvaluationEvent)
    assert event.gain
    assert "gain" not in event.to_dict()


def test_the_kind_is_written_though_it_was_not_given() -> None:
    assert WarningEvent(message="hot").to_dict() == {"event": "warning", "message": "hot"}
    step = StepEvent(step=1, total=2, loss=0.5, settings={"epochs": 3, "learning_rate": 0.1})
    assert list(step.to_dict()) == ["event", "step", "total", "loss", "settings"]
    assert step["settings"] == {"epochs": 3, "learning_rate": 0.1}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"event": "step", "step": "one"}', "step: Input should be a valid integer"),
        ('{"event": "warning"}', "message: Field required"),
        ('{"event": 3}', "event: Input should be a valid string"),
        ('{"time": "now"}', "event: Field required"),
        ("[1]", ": Input should be a valid dictionary"),
    ],
)
def test_what_is_wrong_with_a_damaged_event_is_said(run: Run, line: str, problem: str) -> None:
    (run.directory / "events.jsonl").write_text(f"{line}\n")
    with pytest.raises(RunError, match=rf"events\.jsonl is damaged: {problem}"):
        run.events()


def test_every_kind_of_event_is_listed_under_its_name() -> None:
    for kind, model in events.KINDS.items():
        assert model.model_fields["event"].default == kind
        assert all(field.description for field in model.model_fields.values())
