"""`tagline init` and `tagline check` as whole commands: what they print, write and return."""

import json
import shutil
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from tagline import spec as specs
from tagline import training
from tagline.training import spec_sources

LABELLED = "text,label\n" + "".join(f"message number {row},{'xyz'[row % 3]}\n" for row in range(60))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A clean file in the directory in which commands run."""
    path = tmp_path / "data.csv"
    path.write_text(LABELLED)
    return path


def test_init_writes_a_spec_that_check_and_spec_take(tagline: Any, data: Path, tmp_path: Path) -> None:
    made = tagline("init", "data.csv")
    assert made.code == 0
    assert made.out == "wrote tagline.toml; next: tagline check tagline.toml\n"
    assert made.err == 'guessed text = "text": its name\nguessed labels = "label": its name; 3 labels in 60 rows\n'
    spec = specs.load(tmp_path / "tagline.toml")
    assert (spec.data.train, spec.data.text, spec.data.labels) == ("data.csv", "text", "label")
    checked = tagline("check", "tagline.toml")
    assert checked.code == 0
    assert checked.err.startswith("· note  half of the labels have 16 training rows or fewer")
    assert checked.err.count("\n") == 2
    assert "60 rows, task single, 3 labels; 48 train, 6 validation, 6 test\nready to train\n" in checked.out


@pytest.mark.parametrize("name", ["messages.csv", "messages-multi.csv", "pairs.csv"])
def test_the_sample_data_needs_no_settings(tagline: Any, support: Path, tmp_path: Path, name: str) -> None:
    shutil.copy(support / name, tmp_path)
    assert tagline("init", name).code == 0
    assert tagline("check", "tagline.toml").code == 0


def test_settings_without_effect_are_said(tagline: Any, data: Path) -> None:
    checked = tagline("check", "data.csv", "model.family=linear", "training.epochs=9", "tuning.trials=3")
    assert checked.code == 0
    assert "! warning  training.epochs has no effect on family linear" in checked.err
    assert "! warning  tuning.trials has no effect: this version trains once and tunes nothing" in checked.err


def test_init_keeps_a_spec_that_is_there(tagline: Any, data: Path, tmp_path: Path) -> None:
    spec = tmp_path / "tagline.toml"
    spec.write_text("mine")
    refused = tagline("init", "data.csv")
    assert (refused.code, refused.out) == (2, "")
    assert "tagline.toml is already there" in refused.err
    assert "--force" in refused.err
    assert spec.read_text() == "mine"
    assert tagline("init", "data.csv", "--output", "sub dir/my.toml").out.endswith("tagline check 'sub dir/my.toml'\n")
    assert tagline("check", "sub dir/my.toml").code == 0
    assert tagline("init", "data.csv", "--force").code == 0
    assert spec.read_text().startswith("[data]")


def test_init_begins_with_the_settings_it_is_given(tagline: Any, data: Path, tmp_path: Path) -> None:
    result = tagline("init", "data.csv", "data.text=text", "training.seed=7", "--json")
    assert result.json["spec"] == "tagline.toml"
    assert result.json["guesses"] == ['labels = "label": its name; 3 labels in 60 rows']
    assert result.json["data"]["labels"] == "label"
    assert specs.load(tmp_path / "tagline.toml").training.seed == 7


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("no.csv",), 3, "there is no file no.csv"),
        (("dta.csv",), 3, "did you mean data.csv?"),
        (("data.csv", "epochs=3"), 2, "did you mean training.epochs=3?"),
        (("data.csv", "training.epoch=3"), 2, "training.epoch: no such setting; did you mean epochs?"),
        (("*.tsv",), 3, "no file matches *.tsv"),
        ((".",), 3, "is a directory"),
    ],
)
def test_init_that_cannot_be_done_writes_nothing(
    tagline: Any, data: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    result = tagline("init", *arguments)
    assert (result.code, result.out) == (code, "")
    assert says in result.err
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_init_and_check_read_standard_input(tagline: Any, tmp_path: Path) -> None:
    assert tagline("init", "-", stdin=LABELLED).code == 0
    assert 'train = "-"' in (tmp_path / "tagline.toml").read_text()
    assert "60 rows" in tagline("check", "tagline.toml", stdin=LABELLED).out


def test_check_with_errors_ends_with_1_and_says_so(tagline: Any, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("text,label\na,x\nb,x\nc,x\n")
    result = tagline("check", "data.csv")
    assert result.code == 1
    assert '✗ error  every row has the label "x"; there is nothing to learn' in result.err
    assert "data.csv:2  [x]  a" in result.err
    assert result.out.endswith("this cannot be trained on\n")


def test_check_with_warnings_ends_with_0(tagline: Any, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(LABELLED + ",x\n")
    result = tagline("check", "data.csv")
    assert result.code == 0
    assert "! warning  1 row with an empty text\n    data.csv:62  [x]" in result.err
    assert result.out.endswith("ready to train\n")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (["model.pretrained=./encoders/none"], "model.pretrained: there is no directory ./encoders/none"),
        (["model.family=ulmfit", "model.pretrained=lm-fr"], "model.pretrained: there is no directory lm-fr"),
        (["model.family=ulmfit", 'model.unlabelled=["more/*.txt"]'], "no file matches more/*.txt"),
        (["model.family=lstm", "model.vectors=glove.txt"], "model.vectors: cannot read glove.txt"),
        (["model.family=lstm", "model.vectors=data.csv"], "model.vectors: data.csv:1 is no word with its numbers"),
    ],
)
def test_check_opens_what_the_model_is_made_of(tagline: Any, data: Path, settings: list[str], problem: str) -> None:
    result = tagline("check", "data.csv", *settings)
    assert result.code == 1
    assert f"error  {problem}" in result.err
    assert result.out.endswith("this cannot be trained on\n")
    finding = tagline("check", "data.csv", *settings, "--json").json["findings"][-1]
    assert (finding["code"], finding["severity"]) == ("model", "error")
    assert finding["advice"]


def test_what_the_encoder_has_not_read_is_said_by_check_and_by_a_training(tagline: Any, tmp_path: Path) -> None:
    good, bad = "방이 정말 깨끗하고 직원들이 친절했어요 {}", "배송이 너무 늦고 포장도 엉망이었어요 {}"
    rows = [f"{good.format(n)},x\n{bad.format(n)},y\n" for n in range(60)]
    (tmp_path / "data.csv").write_text("text,label\n" + "".join(rows))
    doubt = "minilm has read English, and these texts do not look English"
    checked = tagline("check", "data.csv")
    assert checked.code == 0
    assert f"! warning  {doubt}" in checked.err
    assert "model.pretrained=xlm-roberta-base" in checked.err
    assert doubt not in tagline("check", "data.csv", "model.family=linear").err
    events = training.start_run(
        spec_sources.resolve_spec(tmp_path / "data.csv"), runs=tmp_path / "runs", command="a test"
    )
    first = list(takewhile(lambda event: event["event"] in ("started", "warning"), events))
    events.close()  # type: ignore[attr-defined]
    assert doubt in [event.get("message") for event in first]


def test_check_gives_one_json_document(tagline: Any, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_bytes((LABELLED + "naïve,x\n,x\nNAÏVE,y\n").encode("latin-1"))
    result = tagline("check", "data.csv", "--json")
    document = result.json
    assert result.code == 0
    assert document["ok"] is True
    assert (document["task"], document["labels"]) == ("single", ["x", "y", "z"])
    assert sum(document["splits"].values()) == 63
    assert len(document["fingerprint"]) == 64
    assert document["files"] == [{"file": "data.csv", "format": "csv", "encoding": "latin-1"}]
    assert [guess.split()[0] for guess in document["guesses"]] == ["encoding:", "text", "labels"]
    findings = {finding["code"]: finding for finding in document["findings"]}
    assert findings.keys() == {"empty-texts", "contradictions", "few-shots", "uncertain-encoding"}
    assert findings["empty-texts"]["severity"] == "warning"
    assert findings["empty-texts"]["advice"]
    assert findings["contradictions"]["rows"] == [
        {"text": "naïve", "labels": ["x"], "file": "data.csv", "line": 62},
        {"text": "NAÏVE", "labels": ["y"], "file": "data.csv", "line": 64},
    ]


def test_check_gives_json_for_errors_too(tagline: Any, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("text,label\na,x\nb,x\n")
    failed = tagline("check", "one.csv", "--json")
    assert (failed.code, failed.json["ok"]) == (1, False)
    (tmp_path / "bad.csv").write_text("text,label\na,x\nb\n")
    unreadable = tagline("check", "bad.csv", "--json")
    assert unreadable.code == unreadable.json["error"]["exit_code"] == 3
    assert "bad.csv:3" in unreadable.json["error"]["message"]


def test_check_names_the_problems_of_spec_and_data_in_one_listing(tagline: Any, tmp_path: Path) -> None:
    (tmp_path / "reviews.csv").write_text("review,sentiment,date\nfine,good,2026-01-01\nawful,bad,2026-01-02\n")
    (tmp_path / "tagline.toml").write_text(
        '[data]\ntrain = "reviews.csv"\ntext = "review"\nlabels = "sentimant"\n[training]\nlearning_rat = 0.1\n'
    )
    result = tagline("check", "tagline.toml")
    assert (result.code, result.out) == (2, "")
    assert result.err.endswith(
        "tagline.toml has 2 problems:\n"
        "  training.learning_rat: no such setting; did you mean learning_rate?\n"
        '  data.labels: reviews.csv has no column "sentimant"; it has: review, sentiment, date\n'
    )


def test_a_spec_written_by_init_gives_the_same_data_as_the_file_alone(
    tagline: Any, support: Path, tmp_path: Path
) -> None:
    shutil.copy(support / "messages.csv", tmp_path)
    tagline("init", "messages.csv")
    first, second = (tagline("check", name, "--json").json for name in ("messages.csv", "tagline.toml"))
    assert {**first, "guesses": []} == {**second, "guesses": []}


def test_a_file_name_that_is_no_utf_8_is_an_error_and_no_crash(tagline: Any, data: Path, tmp_path: Path) -> None:
    result = tagline("check", "data\udcff.csv", "--json")
    assert result.code in (2, 3)
    assert json.loads(result.out)["error"]["message"]
