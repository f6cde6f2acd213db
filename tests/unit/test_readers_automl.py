"""Google AutoML Text's import files: both kinds, their splits, their labels and their bad rows."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tagline.data import dataset
from tagline.data.readers import BadRows, Layout, Source, inspect, read_batches
from tagline.errors import DataError
from tagline.spec import Data

ML_USE = "aiplatform.googleapis.com/ml_use"
AUTO = Layout()


def read(path: Path, layout: Layout = AUTO) -> tuple[Source, list[tuple[Any, ...]], list[tuple[int, str]]]:
    """The source, its rows as (line, use, text, labels), and its bad rows as (line, reason)."""
    source, bad = inspect(str(path), layout), BadRows("skip")
    rows = [
        row for batch in read_batches(source, bad=bad) for row in zip(batch.lines, *batch.columns.values(), strict=True)
    ]
    return source, rows, [(row.line, row.reason) for row in bad.rows]


def item(text: str | None = "a text", use: str = "", **fields: Any) -> dict[str, Any]:
    """A line of an import file."""
    found: dict[str, Any] = {} if text is None else {"textContent": text}
    if use:
        found["dataItemResourceLabels"] = {ML_USE: use}
    return found | fields


def written(directory: Path, *items: Any, name: str = "import.jsonl") -> Path:
    path = directory / name
    path.write_text("".join(f"{json.dumps(item)}\n" for item in items))
    return path


def test_csv_rows_give_use_text_and_any_number_of_labels(tmp_path: Path) -> None:
    path = tmp_path / "import.csv"
    path.write_text('TRAIN,"two\nlines",a\nVALIDATION,fine,a,b\nTEST,none\nUNASSIGNED,"a, b",c,,\ntraining,low,a\n')
    source, rows, bad = read(path)
    assert (source.format, source.columns, source.split_column) == ("automl", ("ml_use", "text", "labels"), "ml_use")
    assert rows == [
        (1, "train", "two\nlines", ("a",)),
        (3, "validation", "fine", ("a", "b")),
        (4, "test", "none", ()),
        (5, "", "a, b", ("c",)),
        (6, "train", "low", ("a",)),
    ]
    assert bad == []


def test_csv_rows_without_a_use_need_the_format_named(tmp_path: Path) -> None:
    path = tmp_path / "import.csv"
    path.write_text("fine text,a\n,with an empty use,b\nTEST,mixed,a\n")
    _, rows, bad = read(path, Layout(format="automl"))
    assert [row[1:] for row in rows] == [
        ("", "fine text", ("a",)),
        ("", "with an empty use", ("b",)),
        ("test", "mixed", ("a",)),
    ]
    assert bad == []


def test_an_ordinary_csv_is_not_taken_for_an_import_file(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("split,text,label\ntrain,fine,a\ntest,bad,b\n")
    assert read(path)[0].format == "csv"


def test_bad_csv_rows_are_named(tmp_path: Path) -> None:
    path = tmp_path / "import.csv"
    path.write_text('TRAIN,"two\nlines",a\nTRAIN,gs://bucket/a.txt,a\nTEST\nTRAIN,"open,a\n')
    _, rows, bad = read(path, Layout(format="automl"))
    assert len(rows) == 1
    assert bad == [
        (3, "the text stands in another file, gs://bucket/a.txt, which cannot be read from here"),
        (4, "an ml_use and no text"),
        (5, "a quote opened here is never closed"),
    ]


def test_json_lines_give_use_text_and_labels_in_all_their_forms(tmp_path: Path) -> None:
    one, two = {"displayName": "a"}, {"displayName": " b ", "annotationResourceLabels": {}}
    path = written(
        tmp_path,
        item("single", "training", classificationAnnotation=one),
        item("plural", "validation", classificationAnnotations=[one, two]),
        item("listed", "test", classificationAnnotation=[one]),
        item("none", "TEST", classificationAnnotations=[]),
        item("no use", classificationAnnotation=two),
    )
    source, rows, bad = read(path)
    assert (source.format, source.split_column) == ("automl", "ml_use")
    assert rows == [
        (1, "train", "single", ("a",)),
        (2, "validation", "plural", ("a", "b")),
        (3, "test", "listed", ("a",)),
        (4, "test", "none", ()),
        (5, "", "no use", ("b",)),
    ]
    assert bad == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (item(None, textGcsUri="gs://bucket/a.txt"), "the text stands in another file, gs://bucket/a.txt"),
        (item(None), "no textContent"),
        (item(use="holdout"), 'ml_use is "holdout"; it may be training, validation or test'),
        ({"textContent": ["a"]}, "no textContent"),
        ({"textContent": None}, "no textContent"),
        ([1], "not a JSON object"),
    ],
)
def test_a_bad_json_line_is_named(line: Any, reason: str, tmp_path: Path) -> None:
    _, rows, bad = read(written(tmp_path, item(), line, item()))
    assert [row[0] for row in rows] == [1, 3]
    assert [number for number, _ in bad] == [2]
    assert reason in bad[0][1]


@pytest.mark.parametrize("annotation", [7, "a", ["a"], {"displayName": 7}, {"name": "a"}, [None]])
def test_an_annotation_of_another_form_is_a_bad_row(annotation: Any, tmp_path: Path) -> None:
    _, rows, bad = read(written(tmp_path, item(classificationAnnotation=annotation)))
    assert (rows, bad) == ([], [(1, 'an annotation that is not of the form {"displayName": "LABEL"}')])


@pytest.mark.parametrize("annotation", [{}, [], None, {"displayName": " "}])
def test_an_empty_annotation_is_no_label(annotation: Any, tmp_path: Path) -> None:
    assert read(written(tmp_path, item(classificationAnnotation=annotation)))[1] == [(1, "", "a text", ())]


@pytest.mark.parametrize("labels", [7, "training", [], None])
def test_resource_labels_of_another_form_give_no_use(labels: Any, tmp_path: Path) -> None:
    _, rows, _ = read(written(tmp_path, item(dataItemResourceLabels=labels)))
    assert rows == [(1, "", "a text", ())]


def test_a_first_text_longer_than_the_sample_is_recognised(tmp_path: Path) -> None:
    long = "word " * 50_000
    source, rows, _ = read(written(tmp_path, item(long), name="import.json"))
    assert (source.format, rows[0][2]) == ("automl", long)


def test_a_zipped_import_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "import.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(item("zipped", "test")).encode()))
    assert read(path)[1] == [(1, "test", "zipped", ())]


def test_the_uses_become_the_splits_of_the_dataset(tmp_path: Path) -> None:
    items = [
        item(f"text number {i}", use, classificationAnnotation={"displayName": "ab"[i % 2]})
        for i, use in enumerate(["training"] * 6 + ["validation"] * 2 + ["test"] * 2)
    ]
    found = dataset.load(Data(train=str(written(tmp_path, *items)), text="text", labels="labels"))
    assert found.task == "single"
    assert {name: len(split) for name, split in found.splits.items()} == {"train": 6, "validation": 2, "test": 2}


def test_several_labels_an_item_make_the_task_multi(tmp_path: Path) -> None:
    both = [{"displayName": "a"}, {"displayName": "b"}]
    items = [item(f"text {i}", classificationAnnotations=both[: i % 3]) for i in range(30)]
    found = dataset.load(Data(train=str(written(tmp_path, *items)), text="text", labels="labels"))
    assert (found.task, found.labels) == ("multi", ("a", "b"))


def test_a_text_in_a_bucket_stops_the_reading_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, item(), item(None, textGcsUri="gs://bucket/a.txt"))
    with pytest.raises(DataError, match=rf"{path.name}:2: the text stands in another file"):
        dataset.load(Data(train=str(path), text="text", labels="labels"))
