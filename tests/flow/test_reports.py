"""Reports, gates, comparisons and learning curves from the command line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tagline as library
from tagline.runs.run import Run

MESSAGES = str(Path(__file__).parents[2] / "examples" / "support" / "messages.csv")
LINEAR = ("model.family=linear", "model.characters=0")

Tagline = Callable[..., Any]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that has ended, for those who would all make the same."""
    return library.train(MESSAGES, *LINEAR, runs=tmp_path_factory.mktemp("trained"))


@pytest.fixture
def ran(here: None, trained: Run) -> Run:
    """A copy of that run, the only one here."""
    return Run(shutil.copytree(trained.directory, Path("runs") / trained.name))


def test_a_gate_that_is_not_reached_ends_with_1_after_everything_is_saved(tagline: Tagline) -> None:
    done = tagline("train", MESSAGES, *LINEAR, "gates.macro_f1=0.99", "gates.per_label_recall.billing=0.1")
    assert done.code == 1
    assert "1 gate of 2 not passed" in done.err
    assert "macro_f1 is 0." in done.err
    assert "everything is saved: runs/" in done.err
    assert tagline("predict", "last", "where is my parcel").code == 0
    shown = json.loads(tagline("runs", "show", "last", "--json").out)
    assert shown["state"] == "succeeded"
    assert [gate["passed"] for gate in shown["report"]["gates"]] == [False, True]
    assert tagline("evaluate", "last", MESSAGES).code == 1, "the bundle's gates hold there too"
    assert tagline("evaluate", "last", MESSAGES, "gates.macro_f1=0.5").code == 0


def test_a_gate_on_an_unknown_label_is_refused_before_anything_is_spent(tagline: Tagline) -> None:
    done = tagline("train", MESSAGES, *LINEAR, "gates.per_label_recall.biling=0.9")
    assert done.code == 2
    assert 'no label "biling"' in done.err
    assert not Path("runs").exists()


@pytest.mark.usefixtures("ran")
def test_runs_are_compared_and_the_page_is_written(tagline: Tagline) -> None:
    tagline("train", MESSAGES, "model.family=linear", "model.words=0", "model.characters=1")
    names = [run["name"] for run in json.loads(tagline("runs", "list", "--json").out)]
    done = tagline("compare", *names, "--html", "both.html")
    assert done.code == 0
    assert f"{names[0]} is better than {names[1]}" in done.out
    assert "page     both.html" in done.out
    assert names[1] in Path("both.html").read_text()
    found = json.loads(tagline("compare", *names, "--json").out)
    assert found["differences"][0]["is_real"]
    assert tagline("compare", names[0]).code == 2
    assert tagline("compare", names[0], "nonsense").code == 4


@pytest.mark.usefixtures("ran")
def test_a_report_is_shown_and_saved_in_every_form(tagline: Tagline) -> None:
    done = tagline("runs", "report")
    assert done.code == 0
    assert Path(done.out.strip()).is_file()
    for form in ("md", "html", "json"):
        assert tagline("runs", "report", "last", "--output", f"report.{form}").code == 0
        assert tagline("evaluate", "last", MESSAGES, "--output", f"evaluation.{form}").code == 0
    assert "## What to do next" in Path("report.md").read_text()
    assert json.loads(Path("report.json").read_text()) == json.loads(tagline("runs", "report", "--json").out)
    assert "Errors worth reading" in Path("evaluation.html").read_text()
    done = tagline("evaluate", "last", MESSAGES, "--output", "evaluation.pdf")
    assert done.code == 2
    assert "no such form" in done.err


def test_a_learning_curve_is_made_with_a_run_or_after_it(tagline: Tagline) -> None:
    done = tagline("train", MESSAGES, *LINEAR, "--learning-curve")
    assert done.code == 0
    assert "rows, " in done.out
    report = json.loads(tagline("runs", "report", "--json").out)
    assert len(report["learning_curve"]["points"]) == 4
    assert report["learning_curve"]["sentence"] in report["advice"]
    tagline("train", MESSAGES, *LINEAR)
    assert "learning_curve" not in json.loads(tagline("runs", "report", "--json").out)
    assert tagline("train", "--resume", "last", "--learning-curve").code == 0
    assert "learning_curve" in json.loads(tagline("runs", "report", "--json").out)
    assert len(json.loads(tagline("runs", "list", "--json").out)) == 2, "its parts are no runs of their own"


@pytest.mark.usefixtures("ran")
def test_sets_are_refused_where_they_promise_nothing(tagline: Tagline) -> None:
    assert tagline("predict", "last", "a text", "--sets", "1.5").code == 2
    assert "{" in tagline("predict", "last", "where is my parcel", "--sets", "0.9").out
    tagline("train", MESSAGES, *LINEAR, "data.validation_share=0")
    done = tagline("predict", "last", "a text", "--sets", "0.9")
    assert done.code == 2
    assert "promises no coverage" in done.err


@pytest.mark.parametrize("column", ["channel", "nonsense"])
def test_any_column_is_looked_at_for_texts_that_do_worse(tagline: Tagline, column: str) -> None:
    done = tagline("train", MESSAGES, *LINEAR, f'data.slices=["{column}"]', "--json")
    if column == "nonsense":
        assert done.code in (2, 3)
        assert 'no column "nonsense"' in done.err
    else:
        assert column in {each["by"] for each in json.loads(done.out)["report"]["slices"]}


def test_with_json_a_gate_that_is_not_reached_leaves_one_document(tagline: Tagline) -> None:
    done = tagline("train", MESSAGES, *LINEAR, "gates.macro_f1=0.999", "--json")
    assert done.code == 1
    assert not json.loads(done.out)["report"]["gates"][0]["passed"]
    assert tagline("check", MESSAGES, *LINEAR, "gates.per_label_recall.zzz=0.9").code == 2


def test_rows_without_any_label_are_measured_as_far_as_they_can_be(tagline: Tagline) -> None:
    labels = ("a", "b", "a|b", "")
    Path("multi.csv").write_text("text,label\n" + "".join(f"word{n % 7} here {n},{labels[n % 4]}\n" for n in range(80)))
    Path("none.csv").write_text("text,label\n" + "".join(f"nothing of the kind {n},\n" for n in range(20)))
    settings = ("data.text=text", "data.labels=label", "data.label_separator=|", "decisions.thresholds=0.999")
    done = tagline("train", "multi.csv", *LINEAR, *settings, "data.test=none.csv")
    assert done.code == 0, done.err
    assert (
        "no F1 to measure" in tagline("evaluate", "last", "none.csv", "--output", "x.md").out + Path("x.md").read_text()
    )


def test_a_report_of_another_version_is_said_to_be_one(tagline: Tagline, ran: Run) -> None:
    path = ran.directory / "report.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 1}))
    for command in (("runs", "show"), ("runs", "report"), ("compare", ran.name, ran.name)):
        done = tagline(*command)
        assert done.code in (2, 4)
        assert "bug" not in done.err
    assert tagline("runs", "list").code == 0


def test_a_learning_curve_takes_one_process(tagline: Tagline) -> None:
    done = tagline("train", MESSAGES, "model.family=lstm", "--workers", "2", "--learning-curve")
    assert done.code == 2
    assert "takes one process" in done.err
