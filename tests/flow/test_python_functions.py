"""The commands as Python functions, on files and runs of this machine."""

from pathlib import Path

import pytest

import tagline
from tagline import spec as specs

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
LINEAR = ("model.family=linear", "model.max_features=500", "model.strength=4.0", "model.characters=0")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tagline.Run:
    return tagline.train(SUPPORT / "messages.csv", *LINEAR, runs=tmp_path_factory.mktemp("runs"), name="first")


def test_check_says_what_the_command_says(tmp_path: Path) -> None:
    found = tagline.check(SUPPORT / "messages.csv", *LINEAR, "training.epochs=3", runs=tmp_path)
    assert found.is_ready
    assert found.price is None
    assert "unused-setting" in {finding.code for finding in found.findings}
    assert sum(found.rows.values()) == len(found.data)
    assert found.to_dict()["ok"] is True
    assert "label_errors" not in found.to_dict()
    (tmp_path / "one.csv").write_text("text,label\n" + "".join(f"text {i},same\n" for i in range(30)))
    assert not tagline.check(tmp_path / "one.csv", *LINEAR).is_ready


def test_predict_answers_texts_and_files(run: tagline.Run, tmp_path: Path) -> None:
    [answer] = tagline.predict(run.bundle, ["where is my parcel?"], sets=0.9)
    assert answer.label == "delivery"
    assert answer.set is not None
    (tmp_path / "new.csv").write_text("message\nwhere is my parcel?\n")
    [row] = tagline.predict("last", input=str(tmp_path / "new.csv"), runs=run.directory.parent)
    assert row["message"] == "where is my parcel?"
    told = tagline.predict(run.bundle, input=str(tmp_path / "new.csv"), output=tmp_path / "out.jsonl")
    assert told["rows"] == 1
    assert "event" not in told
    assert (tmp_path / "out.jsonl").exists()
    with pytest.raises(tagline.TaglineError, match="no text to answer"):
        tagline.predict(run.bundle)  # type: ignore[call-overload]


def test_runs_are_listed_shown_reported_and_deleted(run: tagline.Run, tmp_path: Path) -> None:
    runs = run.directory.parent
    other = tagline.train(SUPPORT / "messages.csv", *LINEAR, "model.characters=0", runs=runs, name="second")
    assert [each["name"] for each in tagline.runs.list(runs=runs)] == ["first", "second"]
    assert tagline.runs.show("first", runs=runs).state.name == "succeeded"
    report = tagline.runs.report("second", output=tmp_path / "report.md", runs=runs)
    assert report["family"] == "linear"
    assert (tmp_path / "report.md").exists()
    assert tagline.compare("first", "second", html=tmp_path / "page.html", runs=runs)["rows"] > 0
    assert (tmp_path / "page.html").exists()
    assert tagline.runs.delete(other.directory, runs=runs) == ["second"]
    assert not other.directory.exists()
    assert tagline.jobs.list(runs=runs) == []


def test_init_writes_a_spec_that_trains(tmp_path: Path) -> None:
    resolved = tagline.init(SUPPORT / "messages.csv", *LINEAR, output=tmp_path / "tagline.toml")
    assert resolved.guesses
    assert specs.load(tmp_path / "tagline.toml") == resolved.spec
    with pytest.raises(tagline.TaglineError, match="already there"):
        tagline.init(SUPPORT / "messages.csv", output=tmp_path / "tagline.toml")
    assert tagline.train(tmp_path / "tagline.toml", runs=tmp_path / "runs").state().name == "succeeded"


def test_a_run_is_resumed_by_name_or_as_the_source(run: tagline.Run) -> None:
    for arguments, resume in (((), "first"), ((run.directory,), True)):
        with pytest.raises(tagline.TaglineError, match="run first is complete"):
            tagline.train(*arguments, resume=resume, runs=run.directory.parent)
    with pytest.raises(tagline.TaglineError, match="one of them"):
        tagline.train(run.directory, resume="first")
    with pytest.raises(tagline.TaglineError, match="one of them"):
        tagline.train(resume=True)
    with pytest.raises(tagline.TaglineError, match="keeps its name"):
        tagline.train(run.directory, resume=True, name="other")


def test_workers_train_what_python_asks_for(tmp_path: Path) -> None:
    tables = {
        "data": {"train": str(SUPPORT / "messages.csv"), "fraction": 0.3},
        "model": {"family": "lstm", "hidden": 8},
        "training": {"epochs": 1, "baseline": False, "export": False},
    }
    run = tagline.train(tables, workers=2, runs=tmp_path)
    assert run.state().name == "succeeded"
    assert run.lock()["workers"] == 2


def test_a_training_is_left_to_itself(tmp_path: Path) -> None:
    run = tagline.train(SUPPORT / "messages.csv", *LINEAR, detach=True, runs=tmp_path)
    assert [line.replica for line in tagline.jobs.logs(run.name, follow=True, runs=tmp_path)]
    assert tagline.jobs.show(run.name, runs=tmp_path).state.name == "succeeded"


def test_info_names_versions_and_places() -> None:
    found = tagline.info()
    assert {"local", "rehearsal", "vertex"} <= set(found["places"])
    assert found["versions"]["tagline"] == tagline.__version__
