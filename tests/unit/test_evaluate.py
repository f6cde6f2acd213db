"""A bundle measured on files whose labels are not all its own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tagline
from tagline import training
from tagline.data import dataset
from tagline.data.dataset import Split
from tagline.errors import DataError, RunError
from tagline.evaluation import baselines
from tagline.models import Step
from tagline.models.linear import Linear
from tagline.reports import advice, evaluate, html
from tagline.runs.run import Run
from tagline.training import spec_sources

pytestmark = pytest.mark.trains

QUICK = (
    "model.family=linear",
    "model.max_features=500",
    "model.strength=4.0",
    "model.characters=0",
    "training.baseline=false",
)
WORDS = (("parcel", "courier", "door"), ("refund", "invoice", "card"), ("login", "password", "account"))
TEXTS = [
    (f"{words[row % 3]} {words[(row + 1) % 3]} number {row}", label)
    for label, words in enumerate(WORDS)
    for row in range(24)
]


def write(path: Path, rows: list[tuple[str, Any]]) -> Path:
    path.write_text("\n".join(["text,label", *(f"{text},{label}" for text, label in rows)]) + "\n")
    return path


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on labels 0, 1 and 2 with names."""
    directory = tmp_path_factory.mktemp("named")
    names = 'data.label_names=["delivery", "billing", "access"]'
    return tagline.train(write(directory / "train.csv", TEXTS), names, *QUICK, runs=directory / "runs")


def test_names_of_labels_stand_in_bundle_report_and_answers(named: Run) -> None:
    report: Any = named.report()
    assert report["labels"] == ["delivery", "billing", "access"]
    assert set(report["test"]["per_label"]) == set(report["labels"])
    [answer] = tagline.load(named.bundle).predict(["the parcel and the courier"])
    assert answer.label == "delivery"


def test_a_file_is_measured_by_values_or_by_names(named: Run, tmp_path: Path) -> None:
    by_value = write(tmp_path / "values.csv", [("parcel courier", 0), ("login password", 2)])
    by_name = write(tmp_path / "names.csv", [("parcel courier", "delivery"), ("login password", "access")])
    for path in (by_value, by_name):
        assert evaluate.evaluate(named.bundle, path)["test"]["accuracy"] == 1.0


def test_rows_of_unknown_labels_are_named_and_count_as_wrong(named: Run, tmp_path: Path) -> None:
    rows = [("parcel courier", "0"), ("rain and sun", "weather"), ("more rain", "weather"), ("login password", "2")]
    path = write(tmp_path / "odd.csv", rows)
    report = evaluate.evaluate(named.bundle, path)
    [finding] = [each for each in report["findings"] if each["code"] == "unknown-label"]
    assert f'no label "weather": no answer to 2 rows ({path}:3, {path}:4) can be right' in finding["message"]
    assert report["test"]["accuracy"] == 0.5
    assert report["test"]["unknown_label_rows"] == 2
    assert report["test"]["per_label"]["weather"]["recall"] == 0
    assert "2 of them have labels that it never learned" in " ".join(report["advice"] + advice.write_verdict(report))
    html.save_report(report, str(tmp_path / "report.html"), name="odd")
    assert "weather" in (tmp_path / "report.html").read_text()


def test_a_file_without_one_known_label_is_refused(named: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "odd.csv", [("rain", "weather"), ("goal", "sport")])
    with pytest.raises(DataError) as caught:
        evaluate.evaluate(named.bundle, path)
    assert f"no label of {path} is one of the bundle: it has sport, weather; the bundle has" in caught.value.message


def test_rows_without_a_label_are_left_out_of_an_evaluation(named: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "some.csv", [("parcel courier", "0"), ("who knows", "-"), ("who knows better", "-1")])
    report = evaluate.evaluate(named.bundle, path)
    assert report["test"]["rows"] == 1
    assert [each["code"] for each in report["findings"]] == ["unlabelled-values"]


def test_several_labels_a_text_some_of_them_unknown(tmp_path: Path) -> None:
    rows = [(text, f"{label}|urgent" if number % 2 else label) for number, (text, label) in enumerate(TEXTS)]
    path = write(tmp_path / "train.csv", rows)
    run = tagline.train(path, "data.label_separator=|", *QUICK, runs=tmp_path / "runs")
    odd = write(tmp_path / "odd.csv", [("parcel courier", "0|spam"), ("login password", "2")])
    report = evaluate.evaluate(run.bundle, odd)
    assert report["labels"] == ["0", "1", "2", "urgent", "spam"]
    assert report["test"]["unknown_label_rows"] == 1
    html.save_report(report, str(tmp_path / "report.html"), name="odd")


def test_a_test_file_of_other_labels_is_refused_before_anything_is_learned(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", TEXTS)
    test = write(tmp_path / "test.csv", [("parcel", "delivery"), ("refund", "billing")])
    with pytest.raises(DataError) as caught:
        tagline.train(train, f"data.test={test}", *QUICK, runs=tmp_path / "runs")
    said = f"no label of the test rows ({test}) has a training row: they have billing, delivery; training has 0, 1, 2"
    assert said in caught.value.message
    assert not list((tmp_path / "runs").glob("*"))


def test_a_training_says_which_test_rows_it_cannot_answer(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", TEXTS)
    test = write(tmp_path / "test.csv", [("a parcel", "0"), ("a refund", "1"), ("rain", "weather")])
    run = tagline.train(train, f"data.test={test}", "data.fraction=0.5", *QUICK, runs=tmp_path / "runs")
    report: Any = run.report()
    assert report["test"]["unknown_label_rows"] == 1
    said = [event["message"] for event in run.events() if event["event"] == "warning"]
    assert f"labels without a training row: weather; no answer to 1 row of test ({test}:4) can be right" in said
    assert any(message.startswith("a part of the data is used: 33 of 66 train rows") for message in said)


# A run that was begun by a version before these settings


def cancelled(tmp_path: Path, *settings: str) -> Run:
    """A run that was stopped after its first checkpoint."""
    spec = spec_sources.resolve_spec(str(write(tmp_path / "train.csv", TEXTS)), (*QUICK, *settings))
    events = training.start_run(spec, runs=tmp_path / "runs", command="test")
    run = Run(Path(next(events)["run"]))
    for event in events:
        if event["event"] == "evaluation":
            break
    next(events)
    events.close()  # type: ignore[attr-defined]
    return run


def as_of_before(run: Run) -> None:
    """The files of a run as a version wrote them that did not know the newer settings."""
    newer = ("label_names", "unlabelled", "split_values", "learning_fraction")
    lock = run.lock()
    del lock["split_fingerprint"]
    lock["settings"] = {key: value for key, value in lock["settings"].items() if not key.endswith(newer)}
    lock["spec_fingerprint"] = "of fewer settings"
    (run.directory / "lock.json").write_text(json.dumps(lock))
    spec = (run.directory / "spec.toml").read_text().splitlines()
    (run.directory / "spec.toml").write_text("\n".join(line for line in spec if not line.startswith(newer)) + "\n")


def test_a_run_of_an_older_version_is_resumed(tmp_path: Path) -> None:
    run = cancelled(tmp_path)
    as_of_before(run)
    assert [*training.resume_run(run)][-1]["event"] == "finished"


def test_a_run_of_an_older_version_on_a_fraction_says_why_it_is_not_resumed(tmp_path: Path) -> None:
    run = cancelled(tmp_path, "data.fraction=0.5")
    as_of_before(run)
    with pytest.raises(RunError, match=r"data\.fraction left out training rows alone"):
        next(iter(training.resume_run(run)))


# Like with like


def test_rivals_learn_from_the_rows_that_the_model_learns_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[int] = []

    class Watched(Linear):
        def fit(self, train: Split, validation: Split, *, seed: int) -> Iterator[Step]:
            learned.append(len(train))
            return super().fit(train, validation, seed=seed)

    monkeypatch.setattr("tagline.models.linear.Linear", Watched)
    path = write(tmp_path / "train.csv", TEXTS)
    for family, refits in (("lstm", False), ("fewshot", True)):
        spec = spec_sources.resolve_spec(str(path), [f"model.family={family}", "data.fraction=0.5"])
        data = dataset.load(spec.data)
        learned.clear()
        baselines.measure_linear(spec, data)
        train, both = len(data.splits["train"]), len(data.select("train", "validation"))
        assert learned[0] == train
        assert learned[-1] == (both if refits else train)
        assert (len(learned) > 1) == refits
        assert (train, both) == (30, 33)
