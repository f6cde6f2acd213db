"""report.json as a model: what earlier versions wrote is read, kept and shown."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from tagline import spec as specs
from tagline.errors import RunError
from tagline.evaluation import schema
from tagline.evaluation.schema import Report
from tagline.reports import advice, html, markdown
from tagline.runs.run import Run
from tagline.storage.file_models import FileModel

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = ("single", "several")


def text_of(name: str) -> str:
    return (FIXTURES / f"report-{name}.json").read_text("utf-8")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run that has the report of an earlier version."""
    spec = specs.parse({"data": {"train": "a.csv", "text": "text", "labels": "label"}}, where="a test")
    run = Run.create(tmp_path, spec, {"spec_fingerprint": spec.fingerprint()})
    shutil.copy(FIXTURES / "report-single.json", run.directory / "report.json")
    return run


@pytest.mark.parametrize("name", NAMES)
def test_a_report_is_written_as_it_was_read(name: str) -> None:
    report = Report.model_validate(json.loads(text_of(name)))
    assert json.dumps(report.to_dict(), indent=2, ensure_ascii=False) + "\n" == text_of(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_key_of_a_report_is_a_field(name: str) -> None:
    assert list(unknown_keys(Report.model_validate(json.loads(text_of(name))))) == []


def unknown_keys(value: Any) -> list[str]:
    if isinstance(value, FileModel):
        below = [key for part in dict(value.items()).values() for key in unknown_keys(part)]
        return [*(value.model_extra or {}), *below]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [key for part in parts for key in unknown_keys(part)]


@pytest.mark.parametrize("name", NAMES)
def test_a_report_is_shown(name: str, tmp_path: Path) -> None:
    report = Report.model_validate(json.loads(text_of(name)))
    text, page = markdown.render_markdown_report(report, name=name), html.render_report(report, name=name)
    for label, figures in report.test.per_label.items():
        assert f"| {label} | {figures.precision:.2f} | {figures.recall:.2f} | {figures.f1:.2f} |" in text
        assert f"<bdi>{label}</bdi>" in page
    assert advice.next_steps(report) == report.advice
    html.save_report(report, str(tmp_path / "saved.json"), name=name)
    assert (tmp_path / "saved.json").read_text("utf-8") == text_of(name)


def test_a_value_can_be_looked_up_by_its_name_in_the_file() -> None:
    facts = json.loads(text_of("single"))
    report = Report.model_validate(facts)
    assert report["test"]["macro_f1"] == report.test.macro_f1 == facts["test"]["macro_f1"]
    assert list(report.keys()) == list(facts)
    assert "learning_curve" not in report
    assert report.learning_curve is None
    assert report.get("learning_curve", "none") == "none"
    with pytest.raises(KeyError, match="learning_curve"):
        report["learning_curve"]
    assert {**report.test, "rows": 1}["rows"] == 1


def test_a_report_cannot_be_changed() -> None:
    report = Report.model_validate(json.loads(text_of("single")))
    with pytest.raises(ValidationError, match="frozen"):
        report.family = "encoder"  # type: ignore[misc]


def test_what_a_later_version_adds_is_kept() -> None:
    facts = json.loads(text_of("several"))
    facts["carbon"] = {"grams": 3}
    facts["test"]["keys"] = 0.5
    report = Report.model_validate(facts)
    assert report.to_dict() == facts
    assert report["carbon"] == {"grams": 3}
    assert report.test["keys"] == 0.5


def test_a_report_without_what_was_added_since_is_read(run: Run) -> None:
    facts = json.loads(text_of("single"))
    needed = {name for name, field in Report.model_fields.items() if field.is_required()}
    (run.directory / "report.json").write_text(json.dumps({name: facts[name] for name in needed}))
    report = run.report()
    assert report is not None
    assert report.fallbacks == []
    assert not report.calibration
    assert "single" in html.render_report(report, name="single")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"labels": "billing"}, "labels: Input should be a valid list"),
        ({"task": "both"}, "task: Input should be 'single' or 'multi'"),
        ({"test": {"accuracy": "high"}}, "test.accuracy: Input should be a valid number"),
        ({"test": {"rows": -1}}, "test.rows: Input should be greater than or equal to 0"),
        ({"test": {"intervals": {"accuracy": [0.5]}}}, "test.intervals.accuracy: List should have at least 2 items"),
        ({"gates": [{"gate": "accuracy"}]}, "gates.0.at_most: Field required"),
    ],
)
def test_what_is_wrong_with_a_damaged_report_is_said(run: Run, change: dict[str, Any], problem: str) -> None:
    path = run.directory / "report.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RunError, match=rf"report\.json is damaged: {re.escape(problem)}"):
        run.report()


def test_every_field_has_a_meaning() -> None:
    models = [each for each in vars(schema).values() if isinstance(each, type) and issubclass(each, BaseModel)]
    assert len(models) > 20
    unexplained = [
        f"{model.__name__}.{name}"
        for model in models
        for name, field in model.model_fields.items()
        if not field.description
    ]
    assert unexplained == []
