"""Rows longer than any text: refused with file and line, in memory that does not grow with them."""

import gzip
import io
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tagline.cli import predict
from tagline.data.readers import BATCH_CHARACTERS, LONGEST_RECORD, BadRows, group_into_blocks, inspect, read_batches
from tagline.data.readers import parquet as parquet_reader
from tagline.errors import DataError

pytestmark = pytest.mark.trains

LONG = LONGEST_RECORD + (1 << 20)
PART = 1 << 24
MANY = 8
MEASURE = """
import resource, sys
from tagline.errors import DataError
from tagline.data.readers import BadRows, read_batches, inspect

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

inspect(sys.argv[1])
before = peak()
for name in sys.argv[2:]:
    try:
        for batch in read_batches(inspect(name), bad=BadRows("skip")):
            pass
    except DataError as error:
        print(error.message)
print(peak() - before)
"""


def read_all(path: Path) -> list[int]:
    return [line for batch in read_batches(inspect(str(path)), bad=BadRows("skip")) for line in batch.lines]


@pytest.mark.parametrize(
    ("name", "start", "end"),
    [
        ("a.csv", "text,label\nshort,a\nbrief,b\n", ",a\n"),
        ("a.csv", 'text,label\nshort,a\nbrief,b\n"', '",a\n'),
        ("a.tsv", 'text\tlabel\nshort\ta\n"brief"\tb\n', "\ta\n"),
        ("a.jsonl", '{"text": "short", "label": "a"}\n{"text": "brief"}\n\n{"text": "', '", "label": "b"}\n'),
        ("a.txt", "short@a\nbrief@b\nterse@a\n", "@b\n"),
        ("a.csv", "train,short,a\ntest,brief,b\n,terse,a\ntrain,", ",a\n"),
        ("a.jsonl", '{"textContent": "short"}\n\n\n{"textContent": "', '"}\n'),
    ],
    ids=["csv", "quoted", "tsv", "jsonl", "lines", "automl-csv", "automl-jsonl"],
)
def test_a_row_that_is_too_long_is_named_with_its_line(tmp_path: Path, name: str, start: str, end: str) -> None:
    path = tmp_path / name
    path.write_text(start + "x" * LONG + end)
    with pytest.raises(DataError) as caught:
        read_all(path)
    assert caught.value.message == f"{path}:4: a row of more than {LONGEST_RECORD:,} characters"


def test_a_row_of_many_lines_is_too_long_too(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = [f"text {row},a" for row in range(30_000)]
    path.write_text("\n".join(["text,label", *rows, '"' + ("x" * 999 + "\n") * (LONG // 1000)]))
    with pytest.raises(DataError, match=rf"{path}:30002: a row of more than"):
        read_all(path)


def test_a_row_as_long_as_may_be_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    many = 10_000
    path.write_text("text,label\n" + "short,a\n" * many + "x" * (LONGEST_RECORD - 10) + ",b\nshort,c\n")
    assert read_all(path) == list(range(2, many + 4))


def test_a_cell_of_parquet_that_is_too_long_is_named_by_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_reader, "LONGEST_RECORD", 1 << 16)
    path = tmp_path / "a.parquet"
    texts = ["short", "x" * (4 * (1 << 16) + 1), "brief"]
    parquet.write_table(pa.table({"text": texts, "label": ["a", "b", "a"]}), path)
    with pytest.raises(DataError, match=rf"{path}:2: a row of more than"):
        read_all(path)
    parquet.write_table(pa.table({"text": texts[1:2], "label": ["a"]}), path, use_dictionary=False)
    with pytest.raises(DataError, match=rf"{path}:1: a row of more than"):
        read_all(path)


def test_a_batch_of_long_rows_is_cut_before_it_fills_the_memory() -> None:
    text = "x" * (BATCH_CHARACTERS // 4)
    rows = [(line, (text, ("a", "b"), None)) for line in range(10)]
    assert [len(lines) for lines, _ in group_into_blocks(rows)] == [4, 4, 2]


def test_memory_does_not_grow_with_a_row_that_is_refused(tmp_path: Path) -> None:
    """128 MiB in one cell, from a file of half a megabyte."""
    part = gzip.compress(b"x" * PART, 1)
    starts = {
        "a.csv.gz": b"text,label\nshort,a\n",
        "b.jsonl.gz": b'{"text": "short", "label": "a"}\n{"text": "',
        "d.csv.gz": b"text,label\ncaf\xe9,a\n",
        "e.csv.gz": b"text,label\n" + b"short,a\n" * 20_000,
    }
    for name, start in starts.items():
        (tmp_path / name).write_bytes(gzip.compress(start) + MANY * part)
    (tmp_path / "short.csv").write_bytes(starts["a.csv.gz"])
    names = ["short.csv", *starts]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *names], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    *said, grown = done.stdout.splitlines()
    places = [line.split(": ")[0] for line in said]
    assert places == ["a.csv.gz:3", "b.jsonl.gz:2", "d.csv.gz:3", "e.csv.gz:20002"]
    assert int(grown) < MANY * PART // 2


def test_a_line_of_standard_input_is_no_longer_than_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "a text\nanother\r\n" + "x" * LONG
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    found = predict._read_lines()
    assert [next(found), next(found)] == ["a text", "another"]
    with pytest.raises(DataError, match="standard input:3: a row of more than"):
        next(found)
