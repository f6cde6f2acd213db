"""A file of texts in, the same rows with answers out: every format, every column kept, whole or not at all."""

import csv
import gzip
import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import tagline
from tagline.data import writers
from tagline.errors import DataError, PlaceError, RunError, SpecError
from tagline.prediction import files
from tagline.prediction.bundle import Bundle

pytestmark = pytest.mark.trains

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
FORMATS = ["jsonl", "csv", "tsv", "parquet"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A small bundle of the support messages."""
    small = ("model.family=linear", "model.max_features=2000", "model.strength=4.0", "model.characters=0")
    run = tagline.train(SUPPORT / "messages.csv", *small, runs=tmp_path_factory.mktemp("runs"))
    return Bundle.load(run.bundle)


@pytest.fixture(scope="module")
def multi_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A small bundle of task `multi`."""
    small = (
        "model.family=linear",
        "model.max_features=2000",
        "model.strength=4.0",
        "model.characters=0",
        "data.fraction=0.3",
    )
    run = tagline.train(SUPPORT / "messages-multi.csv", *small, runs=tmp_path_factory.mktemp("runs"))
    return Bundle.load(run.bundle)


@pytest.fixture(scope="module")
def pair_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A small bundle that reads pairs."""
    small = ("model.family=linear", "model.max_features=2000", "model.strength=4.0", "model.characters=0")
    run = tagline.train(SUPPORT / "pairs.csv", *small, runs=tmp_path_factory.mktemp("runs"))
    return Bundle.load(run.bundle)


def read_back(path: Path) -> list[dict[str, Any]]:
    """What was written, without help from the code under test."""
    if path.suffix == ".parquet":
        return list(parquet.read_table(path).to_pylist())
    text = path.read_bytes().decode()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.split("\n")[:-1]]
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True))


def written(directory: Path, content: str, name: str = "in.csv") -> str:
    (directory / name).write_bytes(content.encode())
    return str(directory / name)


def answers(bundle: Bundle, source: str, output: Path, **options: Any) -> list[dict[str, Any]]:
    files.predict_file(bundle, source, output, **options)
    return read_back(output)


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_keeps_the_input_and_adds_the_answer(suffix: str, bundle: Bundle, tmp_path: Path) -> None:
    source = SUPPORT / "new-messages.csv"
    rows = answers(bundle, str(source), tmp_path / f"out.{suffix}")
    with source.open(encoding="utf-8", newline="") as file:
        given = list(csv.DictReader(file))
    assert [(row["id"], row["message"]) for row in rows] == [(row["id"], row["message"]) for row in given]
    assert {row["label"] for row in rows} <= set(bundle.manifest.labels)
    assert all(0 <= float(row["score"]) <= 1 for row in rows)


def test_all_formats_give_the_same_answers(bundle: Bundle, tmp_path: Path) -> None:
    source = str(SUPPORT / "new-messages.csv")
    found = [
        [(row["label"], round(float(row["score"]), 5)) for row in answers(bundle, source, tmp_path / f"out.{suffix}")]
        for suffix in FORMATS
    ]
    assert found == [found[0]] * len(FORMATS)


def test_json_lines_hold_all_scores(bundle: Bundle, tmp_path: Path) -> None:
    row = answers(bundle, written(tmp_path, "message\nwhere is my parcel?\n"), tmp_path / "out.jsonl")[0]
    assert list(row) == ["message", "label", "score", "scores"]
    assert set(row["scores"]) == set(bundle.manifest.labels)
    assert row["score"] == row["scores"][row["label"]] == max(row["scores"].values())


@pytest.mark.parametrize("suffix", FORMATS)
def test_columns_named_like_an_answer_are_kept_under_another_name(suffix: str, bundle: Bundle, tmp_path: Path) -> None:
    content = "message,label,score,scores,abstained,labels,input_label\nhelp,mine,7,s,no,l,older\n"
    row = answers(bundle, written(tmp_path, content), tmp_path / f"out.{suffix}")[0]
    kept = {name: row[name] for name in row if name.startswith("input_")}
    assert kept == {
        "input_label": "older",
        "input_input_label": "mine",
        "input_score": "7",
        "input_scores": "s",
        "input_abstained": "no",
        "input_labels": "l",
    }
    assert row["label"] in bundle.manifest.labels


@pytest.mark.parametrize("suffix", FORMATS)
def test_hard_texts_come_back_as_they_were(suffix: str, bundle: Bundle, tmp_path: Path) -> None:
    texts = ["two\nlines", "a\rlone return", 'a "quote"', "tab\there", "", " space ", "zero\0", "😀é\u2028", "=cmd()"]
    lines = "".join(json.dumps({"message": text, "n": i}) + "\n" for i, text in enumerate(texts))
    rows = answers(bundle, written(tmp_path, lines, "in.jsonl"), tmp_path / f"out.{suffix}")
    assert [row["message"] for row in rows] == texts


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_written_tables_are_read_by_us_again(suffix: str, bundle: Bundle, tmp_path: Path) -> None:
    lines = "".join(json.dumps({"message": text}) + "\n" for text in ['say "hi"', "two\nlines", "a\rb", "plain"])
    first = tmp_path / f"first.{suffix}"
    files.predict_file(bundle, written(tmp_path, lines, "in.jsonl"), first)
    rows = answers(bundle, str(first), tmp_path / "second.jsonl")
    assert [row["message"] for row in rows] == ['say "hi"', "two\nlines", "a\rb", "plain"]
    assert [row["label"] for row in rows] == [row["input_label"] for row in rows]


@pytest.mark.parametrize("suffix", FORMATS)
def test_half_a_character_does_not_stop_the_writing(suffix: str, bundle: Bundle, tmp_path: Path) -> None:
    source = written(tmp_path, '{"message": "cut off \\ud83d", "\\udc00": "\\ud800"}\n', "in.jsonl")
    row = answers(bundle, source, tmp_path / f"out.{suffix}")[0]
    assert (row["message"], row["\ufffd"]) == ("cut off \ufffd", "\ufffd")


@pytest.mark.parametrize("suffix", FORMATS)
def test_bad_rows_are_listed_beside_the_answers_of_the_others(suffix: str, bundle: Bundle, tmp_path: Path) -> None:
    source = written(tmp_path, "id,message\n" + "1,fine\n" * 3000 + "only one field\n" + "2,good\n")
    output = tmp_path / "out" / f"out.{suffix}"
    found = files.predict_file(bundle, source, output)
    assert (found["rows"], found["bad_rows"]) == (3001, 1)
    assert [row["id"] for row in read_back(output)] == ["1"] * 3000 + ["2"]
    bad = [json.loads(line) for line in Path(found["bad_rows_in"]).read_text().splitlines()]
    assert bad == [{"file": source, "line": 3002, "reason": "1 field where 2 are expected"}]
    assert sorted(path.name for path in output.parent.iterdir()) == [output.name, f"{output.name}.bad.jsonl"]
    files.predict_file(bundle, written(tmp_path, "message\nfine\n", "good.csv"), output)
    assert [path.name for path in output.parent.iterdir()] == [output.name], "what is no longer true is gone"


def test_columns_that_only_later_rows_have_are_named(bundle: Bundle, tmp_path: Path) -> None:
    lines = ['{"message": "fine"}'] * 5000 + ['{"message": "late", "note": 1, "more": {"of": "it"}}']
    found = files.predict_file(bundle, written(tmp_path, "\n".join(lines) + "\n", "in.jsonl"), tmp_path / "out.csv")
    assert found["left_out"] == ["more.of", "note"]
    found = files.predict_file(bundle, written(tmp_path, lines[-1] + "\n", "few.jsonl"), tmp_path / "few.csv")
    assert "left_out" not in found


def test_an_encoding_in_doubt_is_said_at_the_end(bundle: Bundle, tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_bytes("message\nhow naïve\n".encode("latin-1"))
    found = files.predict_file(bundle, str(source), tmp_path / "out.csv")
    assert found["encoding"].startswith("is read as latin-1 (how naïve); it could be cp1250 (how naďve) or ")
    source.write_text("message\nhow naïve\n", "utf-8")
    assert "encoding" not in files.predict_file(bundle, str(source), tmp_path / "out.csv")


def test_on_standard_output_a_bad_row_stops_it(bundle: Bundle, tmp_path: Path) -> None:
    source = written(tmp_path, "id,message\n" + "1,fine\n" * 9 + "only one field\n")
    with pytest.raises(DataError, match=r"in\.csv:11: 1 field where 2 are expected") as error:
        list(files.predict_rows(bundle, source))
    assert "--output" in error.value.hint


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_without_rows_is_an_error_and_writes_nothing(suffix: str, bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no row to answer"):
        files.predict_file(bundle, written(tmp_path, "id,message\n"), tmp_path / f"out.{suffix}")
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_where_every_row_is_bad_their_reasons_are_said(bundle: Bundle, tmp_path: Path) -> None:
    source = written(tmp_path, 'id,message\n1,"never closed\n2,and on it goes\n')
    with pytest.raises(DataError, match=r"in\.csv:2: .*quote") as error:
        files.predict_file(bundle, source, tmp_path / "out.csv")
    assert "mend them" in error.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_the_output_does_not_take_the_place_of_the_input(bundle: Bundle, tmp_path: Path) -> None:
    source = written(tmp_path, "message\nwhere is it?\n")
    with pytest.raises(SpecError, match="is also the input"):
        files.predict_file(bundle, source, source)
    assert Path(source).read_text() == "message\nwhere is it?\n"


def test_a_text_taken_for_a_header_is_not_lost_in_silence(bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="it has: Where is my parcel"):
        files.predict_file(bundle, written(tmp_path, "Where is my parcel\nI was charged\n"), tmp_path / "out.csv")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_several_labels_stand_between_bars_in_a_table(suffix: str, multi_bundle: Bundle, tmp_path: Path) -> None:
    source = str(SUPPORT / "messages-multi.csv")
    table = answers(multi_bundle, source, tmp_path / f"out.{suffix}", text=["message"])
    lines = answers(multi_bundle, source, tmp_path / "out.jsonl", text=["message"])
    assert [row["labels"] for row in table] == ["|".join(row["labels"]) for row in lines]
    assert any("|" in row["labels"] for row in table)
    assert table[0]["billing"] in ("0", "1")


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_lists_in_the_input_are_kept(suffix: str, bundle: Bundle, tmp_path: Path) -> None:
    source = written(tmp_path, '{"message": "help", "tags": ["a", "b"], "meta": {"k": 1}, "gone": null}\n', "in.jsonl")
    row = answers(bundle, source, tmp_path / f"out.{suffix}")[0]
    assert row["tags"] == (["a", "b"] if suffix == "jsonl" else "a|b")
    assert row["meta.k"] == (1 if suffix == "jsonl" else "1")
    assert row["gone"] in (None, "")


def test_numbers_and_truth_values_stay_what_they_are(bundle: Bundle, tmp_path: Path) -> None:
    """So that the answers can be joined with the rest by a key."""
    given = {
        "message": ["help", "hello"],
        "id": [2**53 + 1, None],
        "price": [1.5, float("nan")],
        "is_new": [True, False],
        "day": [date(2026, 1, 2)] * 2,
        "tags": [[1, 2], []],
    }
    parquet.write_table(pa.table(given), tmp_path / "in.parquet")
    lines = answers(bundle, str(tmp_path / "in.parquet"), tmp_path / "out.jsonl")
    kept = [{name: row[name] for name in given} for row in lines]
    assert kept == [
        {"message": "help", "id": 2**53 + 1, "price": 1.5, "is_new": True, "day": "2026-01-02", "tags": [1, 2]},
        {"message": "hello", "id": None, "price": None, "is_new": False, "day": "2026-01-02", "tags": []},
    ]
    assert answers(bundle, str(tmp_path / "out.jsonl"), tmp_path / "again.jsonl")[0]["input_score"] == lines[0]["score"]
    files.predict_file(bundle, str(tmp_path / "in.parquet"), tmp_path / "out.parquet")
    types = {field.name: str(field.type) for field in parquet.read_schema(tmp_path / "out.parquet")}
    assert types == {
        "message": "string",
        "id": "int64",
        "price": "double",
        "is_new": "bool",
        "day": "string",
        "tags": "string",
        "label": "string",
        "score": "double",
        "abstained": "bool",
    }
    [row, _] = answers(bundle, str(tmp_path / "in.parquet"), tmp_path / "out.csv")
    assert [row[name] for name in given] == ["help", str(2**53 + 1), "1.5", "true", "2026-01-02", "1|2"]


def test_parquet_may_be_packed(bundle: Bundle, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"message": ["hello"]}), tmp_path / "in.parquet")
    (tmp_path / "in.parquet.gz").write_bytes(gzip.compress((tmp_path / "in.parquet").read_bytes()))
    assert len(answers(bundle, str(tmp_path / "in.parquet.gz"), tmp_path / "out.csv")) == 1


def test_parquet_goes_in_and_out_over_several_row_groups(bundle: Bundle, tmp_path: Path) -> None:
    count = files.ROWS_A_PART + 1
    parquet.write_table(pa.table({"n": list(range(count)), "message": ["hello"] * count}), tmp_path / "in.parquet")
    rows = answers(bundle, str(tmp_path / "in.parquet"), tmp_path / "out.parquet")
    assert [row["n"] for row in rows] == list(range(count))
    schema = parquet.read_schema(tmp_path / "out.parquet")
    assert (schema.field("score").type, schema.field("abstained").type) == (pa.float64(), pa.bool_())


def test_pairs_are_read_from_two_columns(pair_bundle: Bundle, tmp_path: Path) -> None:
    source = written(tmp_path, "b,a\nIt is open until six.,When do you close?\n")
    with pytest.raises(SpecError, match='no column "question"'):
        files.predict_file(pair_bundle, written(tmp_path, "a,b,c\nx,y,z\n", "three.csv"), tmp_path / "out.jsonl")
    named = answers(pair_bundle, source, tmp_path / "named.jsonl", text=["a", "b"])
    expected = tagline.load(pair_bundle.directory).predict([("When do you close?", "It is open until six.")])
    assert named[0]["label"] == expected[0].label
    assert named[0]["score"] == pytest.approx(expected[0].score)


def test_a_pair_from_json_is_a_pair(pair_bundle: Bundle) -> None:
    predictor = tagline.load(pair_bundle.directory)
    pair = ("When do you close?", "It is open until six.")
    assert predictor.predict([list(pair)]) == predictor.predict([pair]) == predictor.predict(pair)
    for wrong in (["only one"], ["a", "b", "c"], ["a", 2]):
        with pytest.raises(DataError, match="text 1: this bundle reads pairs of texts"):
            predictor.predict([wrong])


def test_as_many_columns_are_named_as_the_bundle_reads(bundle: Bundle, pair_bundle: Bundle, tmp_path: Path) -> None:
    source = written(tmp_path, "a,b\nhello,there\n")
    with pytest.raises(SpecError, match="reads one text a row; 2 columns are named"):
        answers(bundle, source, tmp_path / "out.csv", text=["a", "b"])
    with pytest.raises(SpecError, match="reads pairs of texts; 1 columns are named"):
        answers(pair_bundle, source, tmp_path / "out.csv", text=["a"])


def test_the_only_column_holds_the_text_whatever_its_name(bundle: Bundle, tmp_path: Path) -> None:
    assert answers(bundle, written(tmp_path, "body\nwhere is it?\n"), tmp_path / "out.jsonl")[0]["body"]
    assert answers(bundle, written(tmp_path, "where is it?\nand that?\n", "in.txt"), tmp_path / "o.jsonl")[1]["text"]


def test_the_only_two_columns_are_not_taken_for_a_pair(pair_bundle: Bundle, tmp_path: Path) -> None:
    """One of them may be a label, and nobody knows which comes first."""
    with pytest.raises(SpecError, match='no column "question"; it has: text, label') as error:
        answers(pair_bundle, written(tmp_path, "text,label\nwhere is it?,delivery\n"), tmp_path / "out.jsonl")
    assert "twice for a pair" in error.value.hint


@pytest.mark.parametrize("text", [(), ("mesage",)])
def test_a_missing_text_column_is_named_with_those_there_are(
    text: tuple[str, ...], bundle: Bundle, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match="it has: id, body") as error:
        files.predict_file(bundle, written(tmp_path, "id,body\n1,x\n"), tmp_path / "out.csv", text=text)
    assert "--text" in error.value.hint


@pytest.mark.parametrize("name", ["out.xlsx", "out", "out.json", "out.csv.gz"])
def test_an_unknown_format_is_refused_with_those_there_are(name: str, bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such format") as error:
        files.predict_file(bundle, written(tmp_path, "message\nx\n"), tmp_path / name)
    assert ".jsonl, .csv, .tsv, .parquet" in error.value.hint


def test_an_output_that_cannot_be_written_is_an_error_of_the_place(bundle: Bundle, tmp_path: Path) -> None:
    source = written(tmp_path, "message\nx\n")
    (tmp_path / "taken.csv").mkdir()
    for output in (Path(source) / "below.csv", tmp_path / "taken.csv"):
        with pytest.raises(PlaceError, match="cannot write"):
            files.predict_file(bundle, source, output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "taken.csv"]


def test_a_file_that_changes_while_it_is_answered_writes_nothing(bundle: Bundle, tmp_path: Path) -> None:
    source = written(tmp_path, "message\n" + "hello\n" * 9000)
    rows: Iterator[dict[str, Any]] = files.predict_rows(bundle, source)
    next(rows)
    with Path(source).open("a") as file:
        file.write("late\n")
    with pytest.raises(DataError, match="changed while"):
        list(rows)


def test_several_processes_give_what_one_gives(bundle: Bundle, tmp_path: Path) -> None:
    rows = "".join(f"{n},where is parcel {n}\n" for n in range(2 * files.ROWS_A_PART + 5))
    source = written(tmp_path, "id,message\n" + rows + "bad\n")
    outputs = [tmp_path / "one.jsonl", tmp_path / "three.jsonl"]
    for output, workers in zip(outputs, (1, 3), strict=True):
        assert files.predict_file(bundle, source, output, workers=workers)["bad_rows"] == 1
    assert outputs[0].read_bytes() == outputs[1].read_bytes()


@pytest.mark.parametrize("suffix", FORMATS)
def test_stopped_it_goes_on_with_the_parts_that_are_missing(suffix: str, bundle: Bundle, tmp_path: Path) -> None:
    source = written(tmp_path, "id,message\n" + "".join(f"{n},parcel {n}\n" for n in range(3 * files.ROWS_A_PART)))
    whole, output = tmp_path / f"whole.{suffix}", tmp_path / f"out.{suffix}"
    files.predict_file(bundle, source, whole)
    events = files.predict_file_events(bundle, source, output)
    assert [next(events)["event"] for _ in range(2)] == ["started", "part"]
    events.close()
    assert not output.exists()
    events = files.predict_file_events(bundle, source, output)
    assert next(events)["done_before"] == 1
    assert [event["part"] for event in events if event["event"] == "part"] == [1, 2]
    assert read_back(output) == read_back(whole)
    assert not (tmp_path / f"out.{suffix}.parts").exists()


def test_parts_of_other_work_are_not_used(bundle: Bundle, tmp_path: Path) -> None:
    source = written(tmp_path, "message\n" + "hello\n" * (2 * files.ROWS_A_PART))
    output = tmp_path / "out.jsonl"
    events = files.predict_file_events(bundle, source, output)
    assert [next(events)["event"] for _ in range(2)] == ["started", "part"]
    events.close()
    written(tmp_path, "message\n" + "goodbye\n" * (2 * files.ROWS_A_PART))
    events = files.predict_file_events(bundle, source, output)
    assert next(events)["done_before"] == 0
    for _ in events:
        pass
    assert {row["message"] for row in read_back(output)} == {"goodbye"}


def test_two_cannot_answer_into_the_same_file_at_once(bundle: Bundle, tmp_path: Path) -> None:
    source = written(tmp_path, "message\n" + "hello\n" * (2 * files.ROWS_A_PART))
    events = files.predict_file_events(bundle, source, tmp_path / "out.jsonl")
    assert [next(events)["event"] for _ in range(2)] == ["started", "part"]
    with pytest.raises(RunError, match="in use by process"):
        files.predict_file(bundle, source, tmp_path / "out.jsonl")
    for _ in events:
        pass
    assert len(read_back(tmp_path / "out.jsonl")) == 2 * files.ROWS_A_PART


FORMULAS = ["=cmd()", "@x", "+x", "-2+3", "\tx", "\rx", "＝1", "'=cmd()", "''+x"]
PLAIN = ["-1", "+1.5", "-", "a=b", "", "'x", "12", "-1.5e3"]


@pytest.mark.parametrize("cell", FORMULAS + PLAIN)
def test_an_escaped_cell_is_no_formula_and_comes_back(cell: str) -> None:
    escaped = writers.escape_formula(cell)
    assert (escaped == cell) == (cell in PLAIN)
    assert escaped[:1] not in set("=@+\t\r＝") or cell in PLAIN
    assert writers.unescape_formula(escaped) == cell


@pytest.fixture(scope="module")
def formula_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bundle of which a label is a formula."""
    directory = tmp_path_factory.mktemp("formulas")
    rows = [f"refund card {n},=cmd()\nparcel door {n},delivery" for n in range(20)]
    (directory / "train.csv").write_text("\n".join(["text,label", *rows, ""]))
    small = ("model.family=linear", "model.max_features=100", "model.strength=4.0")
    return Bundle.load(tagline.train(directory / "train.csv", *small, runs=directory / "runs").bundle)


@pytest.mark.parametrize(
    ("options", "label", "note"),
    [
        ({}, "'=cmd()", "=1+1"),
        ({"escape_formulas": "all"}, "'=cmd()", "'=1+1"),
        ({"escape_formulas": "none"}, "=cmd()", "=1+1"),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_formulas_in_labels_are_escaped_and_in_own_columns_if_asked(
    suffix: str, options: Any, label: str, note: str, formula_bundle: Bundle, tmp_path: Path
) -> None:
    source = written(tmp_path, "text,=note\nrefund card,=1+1\n")
    [row] = answers(formula_bundle, source, tmp_path / f"out.{suffix}", **options)
    header = "'=note" if options.get("escape_formulas") == "all" else "=note"
    if suffix == "jsonl":
        label, note, header = "=cmd()", "=1+1", "=note"
    assert (row["label"], row[header]) == (label, note)


def test_other_formula_options_do_not_go_on_with_parts_written_before(
    formula_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = written(tmp_path, "text,note\nrefund card,=1+1\n"), tmp_path / "out.csv"
    monkeypatch.setattr(files._FilePrediction, "finish", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        files.predict_file(formula_bundle, source, output)
    monkeypatch.undo()
    assert answers(formula_bundle, source, output, escape_formulas="all")[0]["note"] == "'=1+1"
