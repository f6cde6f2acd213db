"""JSON lines, Parquet and plain lines, and what all formats share: telling them apart, bad rows, files that change."""

import gzip
import json
import os
import re
import threading
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from tagline.data import dataset
from tagline.data.readers import BadRow, BadRows, Batch, Layout, Source, cell, inspect, read_batches, sample_source
from tagline.errors import DataError, TaglineError
from tagline.spec import Data

AUTO = Layout()


def read(path: str | Path, layout: Layout = AUTO) -> tuple[Source, list[tuple[Any, ...]], list[tuple[int, str]]]:
    """The source, its rows as (line, cell, ...), and its bad rows as (line, reason)."""
    source, bad = inspect(str(path), layout), BadRows("skip")
    rows = [
        row for batch in read_batches(source, bad=bad) for row in zip(batch.lines, *batch.columns.values(), strict=True)
    ]
    return source, rows, [(row.line, row.reason) for row in bad.rows]


def written(directory: Path, content: str | bytes, name: str) -> Path:
    path = directory / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_parquet(path: Path, columns: dict[str, Any]) -> Path:
    parquet.write_table(pa.table(columns), path)
    return path


ROWS = [("fine", "a"), ("bad", "b"), ("so so", "a")]
CSV = "text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS)
JSONL = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("name", "content", "format_name"),
    [
        ("data.csv", CSV, "csv"),
        ("DATA.CSV", CSV, "csv"),
        ("data.txt", CSV, "csv"),
        ("data", CSV, "csv"),
        ("data.tsv", CSV.replace(",", "\t"), "tsv"),
        ("data.tab", CSV.replace(",", "\t"), "tsv"),
        ("data.txt", CSV.replace(",", "\t"), "tsv"),
        ("data.csv", CSV.replace(",", ";"), "csv"),
        ("data.jsonl", JSONL, "jsonl"),
        ("data.ndjson", JSONL, "jsonl"),
        ("data.txt", JSONL, "jsonl"),
        ("data.jsonl", JSONL.replace("\n", "\r\n"), "jsonl"),
        ("data.txt", JSONL.replace("\n", "\r"), "jsonl"),
    ],
)
def test_formats_are_told_by_name_or_content_zipped_or_not(
    name: str, content: str, format_name: str, zipped: bool, tmp_path: Path
) -> None:
    raw = content.encode()
    path = written(tmp_path, gzip.compress(raw) if zipped else raw, name + ".gz" * zipped)
    source, rows, bad = read(path)
    assert (source.format, source.columns, bad) == (format_name, ("text", "label"), [])
    assert [row[1:] for row in rows] == ROWS


@pytest.mark.parametrize("name", ["data.parquet", "data.pq", "data", "data.csv.parquet", "data.parquet.gz"])
def test_parquet_is_told_by_name_or_content(name: str, tmp_path: Path) -> None:
    path = write_parquet(tmp_path / name, {"text": [text for text, _ in ROWS], "label": [label for _, label in ROWS]})
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    source, rows, _ = read(path)
    assert (source.format, rows) == ("parquet", [(i, *row) for i, row in enumerate(ROWS, start=1)])


def test_lines_are_split_at_the_last_separator(tmp_path: Path) -> None:
    content = "mail me @ home , they said .@neutral\nprofit rose .@positive\n\nloss .@neutral\nrose again .@positive\n"
    source, rows, bad = read(written(tmp_path, content.encode("latin-1"), "Sentences.txt"))
    assert (source.format, source.columns, source.separator, bad) == ("lines", ("text", "label"), "@", [])
    assert rows[0] == (1, "mail me @ home , they said .", "neutral")
    assert [row[0] for row in rows] == [1, 2, 4, 5]


def test_a_line_without_the_separator_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "good@a\nno label here\nbad@b\n", "data.txt")
    _, rows, bad = read(path, Layout(format="lines", separator="@"))
    assert ([row[0] for row in rows], bad) == ([1, 3], [(2, 'no "@" between text and label')])


def test_a_separator_of_lines_may_be_long(tmp_path: Path) -> None:
    path = written(tmp_path, "a ||| b ||| x\nc ||| y", "data.txt")
    assert read(path, Layout(format="lines", separator=" ||| "))[1] == [(1, "a ||| b", "x"), (2, "c", "y")]


def test_lines_without_a_label_are_texts(tmp_path: Path) -> None:
    path = written(tmp_path, "where is my order?\r\n\r\nI was charged twice\r\n", "messages.txt")
    source, rows, _ = read(path)
    assert (source.format, source.columns) == ("lines", ("text",))
    assert rows == [(1, "where is my order?"), (3, "I was charged twice")]


def test_financial_phrasebank_is_read_as_it_is_published(corpus: Callable[[str], Path]) -> None:
    source, rows, bad = read(corpus("financial_phrasebank/Sentences_50Agree.txt"))
    assert (source.format, source.separator, source.encoding.name, bad) == ("lines", "@", "latin-1", [])
    assert len(rows) == 4846
    assert {row[2] for row in rows} == {"neutral", "positive", "negative"}


@pytest.mark.parametrize(
    ("name", "columns", "count"),
    [
        ("sms_spam/SMSSpamCollection.tsv", ("column_1", "column_2"), 5574),
        ("allocine_tv_fr/train.tsv", ("column_1", "column_2"), None),
        ("nsmc_ko/ratings_train_30k.txt", ("id", "document", "label"), 30_000),
        ("happydb/happydb_ground_truth.csv", ("cleaned_hm", "ground_truth_category"), None),
        ("jrte_ja/pn.csv", ("id", "label", "text", "judges", "usage"), None),
        ("chnsenticorp_htl_zh/ChnSentiCorp_htl_all.csv", ("label", "review"), 7766),
    ],
)
def test_published_tables_are_read_as_they_are(
    name: str, columns: tuple[str, ...], count: int | None, corpus: Callable[[str], Path]
) -> None:
    source, rows, bad = read(corpus(name))
    assert (source.columns, bad) == (columns, [])
    assert len(rows) == count if count else rows


def test_objects_become_rows_by_key(tmp_path: Path) -> None:
    lines = ['{"text": "a", "label": "x"}', "", '{"label": "y", "text": "b", "more": 1}', '{"text": "c"}']
    source, rows, bad = read(written(tmp_path, "\n".join(lines), "data.jsonl"))
    assert source.columns == ("text", "label", "more")
    assert (rows, bad) == ([(1, "a", "x", None), (3, "b", "y", "1"), (4, "c", None, None)], [])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ('{"text": "a",}', "not JSON"),
        ("{'text': 'a'}", "not JSON"),
        ("[1, 2]", "not a JSON object"),
        ("null", "not a JSON object"),
        ('"text"', "not a JSON object"),
        ('{"text": ' + "[" * 100_000, "nested too deeply"),
        ('{"text": "a", "more": ' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "}", "nested too deeply"),
        ('{"text": ' + "9" * 10_000 + "}", "a number of more than 4,300 digits"),
        ('{"text": "a\tb"}', "not JSON"),
    ],
)
def test_a_line_that_is_no_object_is_named(line: str, reason: str, tmp_path: Path) -> None:
    _, rows, bad = read(written(tmp_path, f'{{"text": "a"}}\n{line}\n{{"text": "b"}}\n', "data.jsonl"))
    assert [row[0] for row in rows] == [1, 3]
    assert [number for number, _ in bad] == [2]
    assert reason in bad[0][1]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ('"a\\u2028b\u2028\x85"', "a\u2028b\u2028\x85"),
        ('"half \\ud83d"', "half \ufffd"),
        ('"\\uDE00 half"', "\ufffd half"),
        ('"whole \\ud83d\\ude00"', "whole 😀"),
        ('"zero \\u0000"', "zero \0"),
        ("1", "1"),
        ("1.0", "1"),
        ("-0.5", "-0.5"),
        ("1e400", "inf"),
        ("1e22", "1e+22"),
        ("NaN", None),
        ("null", None),
        ("true", "true"),
        ("9" * 400, "9" * 400),
        ('["a", 1, null, true]', ("a", "1", "true")),
        ("[]", ()),
        ('[{"deep": "é"}]', '[{"deep": "é"}]'),
        ('[["a"], {"b": 1}]', '[["a"], {"b": 1}]'),
    ],
)
def test_json_values_become_cells(value: str, found: object, tmp_path: Path) -> None:
    _, rows, bad = read(written(tmp_path, f'{{"text": {value}, "label": "x"}}\n', "data.jsonl"))
    assert (rows, bad) == ([(1, found, "x")], [])


def test_half_a_character_in_a_key_is_replaced(tmp_path: Path) -> None:
    assert read(written(tmp_path, '{"te\\ud800xt": "a"}\n', "data.jsonl"))[0].columns == ("te\ufffdxt",)


def test_of_two_values_for_a_key_the_last_counts(tmp_path: Path) -> None:
    assert read(written(tmp_path, '{"text": "a", "text": "b"}\n', "data.jsonl"))[1] == [(1, "b")]


def test_a_first_object_longer_than_the_sample_is_read(tmp_path: Path) -> None:
    long = "word " * 50_000
    source, rows, bad = read(written(tmp_path, json.dumps({"text": long, "label": "x"}), "data.jsonl"))
    assert (source.columns, rows, bad) == (("text", "label"), [(1, long, "x")], [])


def test_bytes_that_do_not_decode_name_their_json_line(tmp_path: Path) -> None:
    content = '{"text": "é à ü ö"}\n'.encode() * 3 + b'{"text": "caf\xe9"}\n'
    _, rows, bad = read(written(tmp_path, content, "data.jsonl"))
    assert ([row[0] for row in rows], bad) == ([1, 2, 3], [(4, "byte 0xe9 is not utf-8")])


@pytest.mark.parametrize(
    ("content", "problem"), [('[{"text": "a"}]', "JSON array"), ("{\n}\n", "not begin with a JSON object: not JSON")]
)
def test_json_that_is_not_lines_says_how_to_make_lines(content: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=problem) as error:
        read(written(tmp_path, content, "data.json"))
    assert "jq -c" in error.value.hint


def test_parquet_values_become_cells(tmp_path: Path) -> None:
    columns = {
        "text": ["a", None],
        "stars": pa.array([5, None]),
        "score": pa.array([0.5, float("nan")]),
        "tags": [["x", "y"], []],
        "kind": pa.array(["k", "k"]).dictionary_encode(),
        "day": [date(2026, 1, 5), None],
        "instant": pa.array([1, 2], pa.timestamp("ns")),
        "raw": [b"caf\xc3\xa9", b"\xff"],
        "meta": [{"a": 1}, None],
        "dotted.name": [True, False],
    }
    source, rows, bad = read(write_parquet(tmp_path / "data.parquet", columns))
    assert (source.columns, bad) == (tuple(columns), [])
    instants = [row[7] for row in rows]
    assert instants[0].startswith("1970-01-01")
    assert [row[:7] + row[8:] for row in rows] == [
        (1, "a", "5", "0.5", ("x", "y"), "k", "2026-01-05", "café", '{"a": 1}', "true"),
        (2, None, None, None, (), "k", None, "\ufffd", None, "false"),
    ]


def test_parquet_strings_that_are_not_utf_8_are_read(tmp_path: Path) -> None:
    offsets, content = pa.py_buffer(b"\x00\x00\x00\x00\x04\x00\x00\x00"), pa.py_buffer(b"caf\xe9")
    broken = pa.StringArray.from_buffers(1, offsets, content)
    assert read(write_parquet(tmp_path / "data.parquet", {"text": broken}))[1] == [(1, "caf\ufffd")]


def test_parquet_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    parquet.write_table(pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]), path)
    with pytest.raises(DataError, match='has two columns called "text": column 1 and column 2'):
        read(path)


@pytest.mark.parametrize("content", [b"PAR1 but no more", b"", b"text,label\n"])
def test_what_is_no_parquet_is_named(content: bytes, tmp_path: Path) -> None:
    path = written(tmp_path, content, "data.parquet")
    with pytest.raises(DataError, match=r"data\.parquet is not a readable Parquet") as error:
        read(path)
    assert error.value.hint


def test_a_damaged_parquet_is_named(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "data.parquet", {"text": [f"text {i}" for i in range(5000)]})
    content = bytearray(path.read_bytes())
    content[4:2000] = bytes(1996)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"data\.parquet"):
        read(path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"\n\n  \n\r\n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"PK\x03\x04 and more", "zip or Excel"),
        (b"%PDF-1.7", "a PDF"),
        (b"\x89PNG\r\n", "a picture"),
        (b"SQLite format 3\0", "SQLite"),
        (gzip.compress(gzip.compress(b"text,label\n", mtime=0), mtime=0), "inside a gzip"),
        (b"\n<!DOCTYPE html>\n<html>", "a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"),
        (b"\0" * 1000, "not text"),
        (bytes(range(256)) * 20, "not text"),
        (b"\x7fELF" + bytes(range(32)) * 100, "not text"),
    ],
)
def test_what_is_no_labelled_text_is_refused_with_a_next_step(content: bytes, problem: str, tmp_path: Path) -> None:
    path = written(tmp_path, content, "data.csv")
    with pytest.raises(DataError, match=problem) as error:
        read(path)
    assert str(path) in error.value.message
    assert error.value.hint


@pytest.mark.parametrize("text", ["SQLite is great", "PK is here", "<html> is a tag", "version 2 is out"])
def test_a_text_that_only_begins_like_another_kind_of_file_is_text(text: str, tmp_path: Path) -> None:
    assert read(written(tmp_path, f"{text},a\nother,b\n", "data.csv"))[1]


def test_a_changed_file_is_noticed_before_it_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path, CSV, "data.csv")
    source = inspect(str(path))
    path.write_text(CSV + "late,a\n")
    with pytest.raises(DataError, match="changed while"):
        list(read_batches(source, bad=BadRows()))
    assert len(read(path)[1]) == 4


@pytest.mark.parametrize(("name", "content"), [("data.csv", CSV), ("data.jsonl", JSONL), ("data.txt", "a@x\nb@y\n")])
def test_a_file_that_grows_while_it_is_read_is_noticed_at_the_end(name: str, content: str, tmp_path: Path) -> None:
    path = written(tmp_path, content * 5000, name)
    reading = read_batches(inspect(str(path)), bad=BadRows("skip"))
    next(reading)
    with path.open("a") as file:
        file.write(content)
    with pytest.raises(DataError, match="changed while"):
        list(reading)


def test_a_sample_of_a_small_file_is_all_of_it(tmp_path: Path) -> None:
    path = written(tmp_path, "text,label\nonly one\n" + "fine,a\n" * 20_000, "data.csv")
    batch = sample_source(inspect(str(path)))
    assert batch.lines[:3] == [3, 4, 5]
    assert set(batch.columns["text"]) == {"fine"}
    assert len(batch.lines) == 20_000
    assert sample_source(inspect(str(written(tmp_path, "text,label\n", "empty.csv")))).lines == []


NUMBERED = 40_000


def numbered_rows(separator: str) -> str:
    """A large file whose rows say where they stand, some with line breaks, quotes and separators in their text."""
    texts = (f'"row {n}, it said{separator} ""go""\nand went\nfar away, too"' for n in range(NUMBERED))
    return f"text{separator}label\n" + "".join(f"{text}{separator}k{n // 4_000}\n" for n, text in enumerate(texts))


@pytest.mark.parametrize("separator", [",", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_a_sample_of_a_large_file_is_from_all_over_it(encoding: str, separator: str, tmp_path: Path) -> None:
    content = numbered_rows(separator).encode(encoding)
    assert len(content) > 1 << 20
    source = inspect(str(written(tmp_path, content, "data.csv")))
    check_sample(sample_source(source))


def test_a_sample_of_a_large_zipped_file_is_from_all_over_it(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(numbered_rows(",").encode(), 1), "data.csv.gz")
    check_sample(sample_source(inspect(str(path))))


def check_sample(batch: Batch) -> None:
    """Whole rows, each what it should be, from every part of the file."""
    assert set(batch.columns["label"]) == {f"k{n}" for n in range(10)}
    assert 1_000 < len(batch.lines) < NUMBERED
    for text, label in zip(batch.columns["text"], batch.columns["label"], strict=True):
        found = re.fullmatch(r'row (\d+), it said[,\t] "go"\nand went\nfar away, too', str(text))
        assert found, text
        assert label == f"k{int(found[1]) // 4_000}"


@pytest.mark.parametrize("name", ["data.jsonl", "data.txt"])
def test_a_sample_of_many_lines_is_from_all_over_them(name: str, tmp_path: Path) -> None:
    rows = [(f"this is row {n} of a long file", f"k{n // 10_000}") for n in range(40_000)]
    lines = (json.dumps({"text": t, "label": k}) if name == "data.jsonl" else f"{t}@{k}" for t, k in rows)
    batch = sample_source(inspect(str(written(tmp_path, "\n".join(lines), name))))
    assert set(zip(batch.columns["text"], batch.columns["label"], strict=True)) <= set(rows)
    assert set(batch.columns["label"]) == {"k0", "k1", "k2", "k3"}
    assert len(batch.lines) < len(rows)


def test_a_sample_of_a_large_parquet_file_is_from_all_over_it(tmp_path: Path) -> None:
    table = {"text": [f"row {n}" for n in range(100_000)], "label": [f"k{n // 25_000}" for n in range(100_000)]}
    parquet.write_table(pa.table(table), tmp_path / "data.parquet", row_group_size=60_000)
    batch = sample_source(inspect(str(tmp_path / "data.parquet")))
    assert set(batch.columns["label"]) == {"k0", "k1", "k2", "k3"}
    assert 1_000 < len(batch.lines) < 10_000


def test_large_files_come_in_batches_with_the_right_lines(tmp_path: Path) -> None:
    path = written(tmp_path, "text,label\n" + '"a\nb",x\n' * 100_000, "data.csv")
    found = list(read_batches(inspect(str(path)), bad=BadRows()))
    assert len(found) > 1
    lines = [line for batch in found for line in batch.lines]
    assert lines == list(range(2, 200_002, 2))


def test_a_named_pipe_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(CSV,))
    writer.start()
    source, rows, _ = read(pipe)
    writer.join()
    assert (source.format, [row[1:] for row in rows]) == ("csv", ROWS)


def test_several_files_and_globs_make_one_dataset_with_each_row_at_its_place(tmp_path: Path) -> None:
    content = "text,label\n" + "".join(f"text number {{0}} {i},{'ab'[i % 2]}\n" for i in range(10))
    for number, name in enumerate(["b/2.csv", "b/1.csv", "a.csv"]):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content.format(number))
    data = Data(train=(str(tmp_path / "a.csv"), str(tmp_path / "b" / "*.csv")), text="text", labels="label")
    found = dataset.load(data)
    assert [Path(source.name).name for source in found.sources] == ["a.csv", "1.csv", "2.csv"]
    last = found.example(29)
    assert (Path(last.file).name, last.line, last.text) == ("2.csv", 11, "text number 0 9")


def test_bad_rows_of_several_files_are_listed_in_their_order(tmp_path: Path) -> None:
    written(tmp_path, "text,label\nfine,\na,b,c\nd,x\n", "1.csv")
    written(tmp_path, "text,label\nfine,x\ne,\n", "2.csv")
    with pytest.raises(DataError) as error:
        dataset.load(Data(train=str(tmp_path / "*.csv"), text="text", labels="label"))
    assert [line.split(": ")[0].rpartition("/")[2] for line in error.value.message.splitlines()[1:]] == [
        "1.csv:2",
        "1.csv:3",
        "2.csv:3",
    ]


def test_skipped_rows_are_kept_with_their_reasons(tmp_path: Path) -> None:
    path = written(tmp_path, "text,label\n" + "fine words,x\nother words,y\n" * 10 + "a,b,c\nd,\n", "data.csv")
    found = dataset.load(Data(train=str(path), text="text", labels="label", bad_rows="skip"))
    assert (len(found), [(row.line, row.reason) for row in found.bad_rows]) == (
        20,
        [(22, "3 fields where 2 are expected"), (23, "no label")],
    )


@pytest.mark.parametrize("value", ["2", "yes", "", "0.5"])
def test_a_one_hot_cell_that_is_none_is_named(value: str, tmp_path: Path) -> None:
    path = written(tmp_path, f'text,a,b\n"two\nlines",1,0\nbad,1,{value}\nfine,TRUE,false\n', "data.csv")
    with pytest.raises(DataError, match=r"data\.csv:4: b is .* it may be 0, 1, true or false"):
        dataset.load(Data(train=str(path), text="text", labels=("a", "b")))


def test_a_bad_row_is_shown_on_one_short_line() -> None:
    shown = str(BadRow("data.csv", 3, 'label is "\x1b[31m\n' + "x" * 5000))
    assert shown.startswith('data.csv:3: label is "�[31m�xxx')
    assert len(shown) < 400


def test_values_of_no_format_become_texts() -> None:
    assert cell(date(2026, 1, 5)) == "2026-01-05"
    assert cell(10**400) == str(10**400)
    assert cell(float("-inf")) == "-inf"
    assert cell(False) == "false"


PIECES = st.sampled_from([
    b'"', b",", b";", b"\t", b"@", b"|", b" ", b"\n", b"\r", b"\r\n", b"text", b"label", b"9", b"TRAIN", b"null",
    b"{", b"}", b"[", b"]", b":", b"\\ud800", b'{"text": 1}', b'{"textContent": "x"}', b"\0", b"\xe9", b"\xff\xfe",
    b"\xef\xbb\xbf", b"\x1f\x8b", b"PAR1", "한글".encode("euc-kr"), "日本".encode("shift_jis"), "é".encode(),
])  # fmt: skip
LAYOUTS = st.sampled_from([
    *[AUTO] * 4, *(Layout(format=name) for name in ("csv", "tsv", "automl", "jsonl", "lines", "parquet")),
    Layout(encoding="utf-8"), Layout(encoding="utf-16"), Layout(header=True), Layout(header=False),
])  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.lists(PIECES, max_size=30).map(b"".join),
    name=st.sampled_from(["data.csv", "data.tsv", "data.jsonl", "data.txt", "data", "data.parquet"]),
    layout=LAYOUTS,
)
def test_any_bytes_are_rows_that_can_be_written_or_a_clear_error(
    content: bytes, name: str, layout: Layout, tmp_path: Path
) -> None:
    path = written(tmp_path, content, name)
    try:
        source, rows, bad = read(path, layout)
    except TaglineError as error:
        error.message.encode()
        return
    assert all(len(row) == len(source.columns) + 1 for row in rows)
    json.dumps([source.columns, rows, bad], ensure_ascii=False).encode()
    lines = [row[0] for row in rows]
    assert lines == sorted(set(lines)), "every row stands on a line of its own"
