"""The dataset: tasks, labels in a fixed order, splits that share no text, and a fingerprint of the content."""

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tagline import spec as specs
from tagline.data import checks, readers
from tagline.data import dataset as datasets
from tagline.data.dataset import SPLITS, Dataset, normalise_text
from tagline.errors import DataError, SpecError

Rows = Sequence[Sequence[object]]


def csv_of(*rows: Sequence[object], separator: str = ",") -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=separator, lineterminator="\n").writerows(rows)
    return out.getvalue()


def load(train: Any, **data: Any) -> Dataset:
    """A dataset of a `text` and a `label` column, unless other settings are given."""
    raw = {"train": str(train) if isinstance(train, Path) else train, "text": "text", "labels": "label", **data}
    return datasets.load(specs.defaults(raw).data)


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Write a file and return its path."""

    def save_one(content: str | bytes, name: str = "d.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return save_one


def plain(count: int = 60, labels: int = 3) -> list[list[object]]:
    return [["text", "label"], *([f"text number {row}", f"label {row % labels}"] for row in range(count))]


def labels_of(data: Dataset) -> list[tuple[str, ...]]:
    return [data.label_names(row) for row in range(len(data))]


# Tasks and labels


def test_one_label_a_row_is_task_single(save: Any) -> None:
    data = load(save(csv_of(["text", "label"], ["a", "x"], ["b", " y "], ["c", "x"])))
    assert (data.task, data.labels, data.pair) == ("single", ("x", "y"), False)
    assert labels_of(data) == [("x",), ("y",), ("x",)]


def test_columns_of_0_and_1_are_task_multi_in_the_order_given(save: Any) -> None:
    rows = csv_of(["text", "b", "a"], ["one", 1, 0], ["both", "True", " 1 "], ["none", "false", "FALSE"])
    data = load(save(rows), labels=["b", "a"])
    assert (data.task, data.labels) == ("multi", ("b", "a"))
    assert labels_of(data) == [("b",), ("b", "a"), ()]


def test_separated_labels_are_task_multi(save: Any) -> None:
    data = load(save(csv_of(["text", "label"], ["a", "y| x"], ["b", "x|x|"], ["c", ""])), label_separator="|")
    assert (data.task, data.labels, labels_of(data)) == ("multi", ("x", "y"), [("x", "y"), ("x",), ()])


def test_lists_of_labels_are_task_multi_unless_each_has_one(save: Any) -> None:
    def lines(*labels: object) -> Path:
        return save(
            "".join(json.dumps({"text": f"t{i}", "label": value}) + "\n" for i, value in enumerate(labels)), "d.jsonl"
        )

    assert labels_of(load(lines(["b", "a"], [], "a", [1, True]))) == [("a", "b"), (), ("a",), ("1", "true")]
    assert load(lines(["b"], ["a"])).task == "single"


def test_lists_that_are_written_out_are_task_multi(save: Any) -> None:
    rows = (["a", "['y', 'x']"], ["b", '["x", "x"]'], ["c", "[]"], ["d", ""], ["e", "['z']"], ["f", "['y' 'z']"])
    data = load(save(csv_of(["text", "label"], *rows)), label_separator="list")
    assert (data.task, data.labels) == ("multi", ("x", "y", "z"))
    assert labels_of(data) == [("x", "y"), ("x",), (), (), ("z",), ("y", "z")]


def test_a_cell_that_is_no_list_is_named_by_file_and_line(save: Any) -> None:
    path = save(csv_of(["text", "label"], ["a", "['y']"], ["b", "['x'"], ["c", "x" * 99]))
    with pytest.raises(DataError, match="2 bad rows") as caught:
        load(path, label_separator="list")
    assert f"{path}:3: the labels are ['x', which is no list of names" in caught.value.message
    assert f"{path}:4: the labels are {'x' * 60}..., which is no list of names" in caught.value.message


@pytest.mark.parametrize("settings", [{}, {"label_separator": ","}, {"none_label": "none"}])
def test_lists_are_not_taken_for_names(save: Any, settings: dict[str, Any]) -> None:
    path = save(csv_of(["text", "label"], ["a", "['y', 'x']"], ["b", "['x']"]))
    with pytest.raises(DataError, match="2 bad rows") as caught:
        load(path, **settings)
    told = "the labels are a list, ['y', 'x']; data.label_separator = \"list\" reads it"
    assert f"{path}:2: {told}" in caught.value.message


@pytest.mark.parametrize("label", ["[spam]", "[1]", "[]", "['open"])
def test_a_label_in_brackets_is_a_label(save: Any, label: str) -> None:
    assert load(save(csv_of(["text", "label"], ["a", label], ["b", "x"]))).labels == tuple(sorted((label, "x")))


@pytest.mark.parametrize(
    ("header", "rows", "settings", "labels", "expected"),
    [
        ("text,a,b", ("x,0,0", "y,1,0"), {"labels": ["a", "b"]}, ("a", "b", "none"), [("none",), ("a",)]),
        ("text,a,none", ("x,0,0", "y,1,0"), {"labels": ["a", "none"]}, ("a", "none"), [("none",), ("a",)]),
        ("text,label", ("x,", "y,a|b"), {"label_separator": "|"}, ("a", "b", "none"), [("none",), ("a", "b")]),
        ("text,label", ("x,", "y,a"), {}, ("a", "none"), [("none",), ("a",)]),
    ],
)
def test_a_row_with_no_label_can_be_given_one(
    save: Any, header: str, rows: tuple[str, ...], settings: dict[str, Any], labels: tuple[str, ...], expected: Any
) -> None:
    data = load(save("\n".join([header, *rows, ""])), none_label="none", header=True, **settings)
    assert (data.task, data.labels, labels_of(data)) == ("multi", labels, expected)


def test_a_label_for_none_beside_another_does_not_count_and_is_said(save: Any) -> None:
    rows = ["x,a|none", "y,none", "z,a", "u,b", "v,b|a"]
    data = load(save("\n".join(["text,label", *rows, ""])), none_label="none", label_separator="|", header=True)
    assert labels_of(data) == [("a",), ("none",), ("a",), ("b",), ("a", "b")]
    [finding] = [each for each in checks.examine(data) if each.code == "none-beside-another"]
    assert finding.message == "1 row with none (data.none_label) beside another label: the others count"
    assert [row.line for row in finding.rows] == [2]


@pytest.mark.parametrize("separator", ["|", ", "])
def test_separated_labels_of_which_there_is_none_are_refused(save: Any, separator: str) -> None:
    with pytest.raises(DataError, match="no row has a label"):
        load(save("text,label\nx,\ny,\nz,\n"), label_separator=separator, header=True)


def test_two_texts_are_a_pair(save: Any) -> None:
    data = load(save(csv_of(["text", "b", "label"], ["x", "y", 1], ["z", "", 0])), text=["text", "b"])
    assert data.pair
    assert list(data.texts(np.arange(2))) == [("x", "y"), ("z", "")]
    assert data.example(0).text == ("x", "y")


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (("10", "2", "1"), ("1", "2", "10")),
        (("1", "-1", "0", "0.5"), ("-1", "0", "0.5", "1")),
        (("b", "2", "a", "10"), ("2", "10", "a", "b")),
        (("nan", "b", "a", "inf", "3"), ("3", "a", "b", "inf", "nan")),
        (("a", "nan", "b", "3", "inf"), ("3", "a", "b", "inf", "nan")),
        (("é", "z", "A", "a"), ("A", "a", "z", "é")),
    ],
)
def test_labels_have_a_natural_order_whatever_comes_first(save: Any, names: Sequence[str], order: Any) -> None:
    for shown in (names, names[::-1]):
        assert load(save(csv_of(["text", "label"], *([f"t{name}", name] for name in shown)))).labels == order


def test_a_row_without_a_label_is_named_by_file_and_line(save: Any) -> None:
    path = save('text,label\n"two\nlines",x\nb,\nc,y\nd,  \n')
    with pytest.raises(DataError, match="2 bad rows") as caught:
        load(path)
    assert f"{path}:4: no label\n  {path}:6: no label" in caught.value.message
    data = load(path, bad_rows="skip")
    assert [str(row) for row in data.bad_rows] == [f"{path}:4: no label", f"{path}:6: no label"]
    assert [data.example(row).line for row in range(len(data))] == [2, 5]


def test_a_cell_that_is_neither_0_nor_1_is_named_by_file_line_and_column(save: Any) -> None:
    path = save("text,a,b\nx,1,0\ny,2,0\nz,1,\n")
    with pytest.raises(DataError) as caught:
        load(path, labels=["a", "b"])
    assert f'{path}:3: a is "2"; it may be 0, 1, true or false' in caught.value.message
    assert f'{path}:4: b is ""; it may be 0, 1, true or false' in caught.value.message


def test_a_file_of_bad_rows_only_leaves_nothing_to_use(save: Any) -> None:
    with pytest.raises(DataError, match="no usable row"):
        load(save("text,label\na,\nb,\n"), bad_rows="skip")


def test_a_column_that_a_file_lacks_is_named(save: Any) -> None:
    with pytest.raises(DataError, match='has no column "nope"; it has: text, label'):
        load(save(csv_of(*plain(3))), text="nope")


@pytest.mark.parametrize("settings", [{}, {"labels": "column_2", "text": "column_1", "header": False}])
def test_columns_that_are_named_are_looked_for_in_the_first_row(save: Any, settings: dict[str, Any]) -> None:
    path = save("text,label\nmy text,label\nno text,none\n")  # "label" is a label, so it could be no header
    assert len(load(path, **settings)) == (3 if settings else 2)


# Splits


def splits_of(data: Dataset) -> dict[str, list[int]]:
    return {name: data.splits[name].rows.tolist() for name in SPLITS}


def test_every_row_stands_in_exactly_one_split_in_file_order(save: Any) -> None:
    data = load(save(csv_of(*plain(100))))
    splits = splits_of(data)
    assert sorted(row for rows in splits.values() for row in rows) == list(range(100))
    assert all(rows == sorted(rows) for rows in splits.values())
    assert list(map(len, splits.values())) == [82, 9, 9]  # 3 of each label's 33 or 34


@pytest.mark.parametrize("seed", range(5))
def test_a_label_of_three_texts_stands_in_every_split(save: Any, seed: int) -> None:
    data = load(save(csv_of(*plain(60), *([f"rare {row}", "rare"] for row in range(3)))), seed=seed)
    rare = data.labels.index("rare")
    assert [(split.targets == rare).sum() for split in data.splits.values()] == [1, 1, 1]


def test_a_split_holds_its_texts_and_targets(save: Any) -> None:
    data = load(save(csv_of(*plain(50))))
    for split in data.splits.values():
        assert list(split.texts) == [f"text number {row}" for row in split.rows]
        assert split.targets.tolist() == [row % 3 for row in split.rows]
        assert len(split) == len(split.texts) == len(split.targets)


def test_the_seed_decides_the_splits(save: Any) -> None:
    path = save(csv_of(*plain(100)))
    assert splits_of(load(path)) == splits_of(load(path))
    assert splits_of(load(path, seed=1)) != splits_of(load(path, seed=2))
    assert load(path, seed=1).fingerprint == load(path, seed=2).fingerprint


def test_the_splits_are_the_same_in_every_process(save: Any) -> None:
    path = save(csv_of(*plain(200), *([f"Text  Number {row}", f"label {row % 3}"] for row in range(0, 200, 7))))
    code = (
        "import sys; from tagline.data import dataset; from tagline import spec; "
        "d = dataset.load(spec.defaults({'train': sys.argv[1], 'text': 'text', 'labels': 'label'}).data); "
        "print(d.fingerprint, {n: s.rows.tolist() for n, s in d.splits.items()})"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code, str(path)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "12345")
    }
    here = load(path)
    assert outputs == {f"{here.fingerprint} {splits_of(here)}\n"}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rows=st.lists(st.tuples(st.text("aAbB ", min_size=1, max_size=4), st.sampled_from("xyz")), min_size=1, max_size=80),
    shares=st.sampled_from([(0.1, 0.1), (0.0, 0.2), (0.3, 0.3), (0.2, 0.0)]),
    seed=st.integers(0, 1000),
)
def test_no_text_ever_stands_in_two_splits(
    tmp_path: Path, rows: list[tuple[str, str]], shares: tuple[float, float], seed: int
) -> None:
    path = tmp_path / "d.csv"
    path.write_text(csv_of(["text", "label"], *rows))
    data = load(path, validation_share=shares[0], test_share=shares[1], seed=seed, header=True)
    seen = [{normalise_text(str(text)) for text in data.splits[name].texts} for name in SPLITS]
    assert sum(map(len, seen)) == len(set.union(*seen)) == len({normalise_text(text) for text, _ in rows})
    assert sum(len(split) for split in data.splits.values()) == len(rows)
    assert not len(data.leaked)
    by_text: dict[str, set[str]] = {}
    for text, label in rows:
        by_text.setdefault(normalise_text(text), set()).add(label)
    if all(len(labels) == 1 for labels in by_text.values()):
        for label, count in Counter(next(iter(labels)) for labels in by_text.values()).items():
            number = data.labels.index(label)
            for name, share in zip(SPLITS, (1.0, *shares), strict=True):
                assert count < 3 or not share or number in data.splits[name].targets, (label, name)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Hello  World", " hello world\n"),
        ("ＡＢＣ", "abc"),
        ("straße", "STRASSE"),
        ("ﬁne", "fine"),
        ("a\u00a0b", "a b"),
    ],
)
def test_texts_that_differ_in_case_width_or_space_are_the_same_text(one: str, other: str) -> None:
    assert normalise_text(one) == normalise_text(other)
    assert normalise_text(one) != normalise_text(other + "!")


@pytest.mark.parametrize(
    ("given_splits", "sizes"),
    [
        ({"test": "test.csv"}, [54, 6, 10]),
        ({"validation": "test.csv"}, [54, 10, 6]),
        ({"validation": "validation.csv", "test": "test.csv"}, [60, 5, 10]),
        ({"test": "test.csv", "validation_share": 0}, [60, 0, 10]),
    ],
)
def test_given_splits_are_kept_and_only_the_missing_made(
    save: Any, tmp_path: Path, given_splits: dict[str, Any], sizes: list[int]
) -> None:
    train = save(csv_of(*plain(60)))
    for name, count in (("test", 10), ("validation", 5)):
        rows = ([f"{name} {row}", f"label {row % 3}"] for row in range(count))
        save(csv_of(["text", "label"], *rows), f"{name}.csv")
    named = {key: str(tmp_path / value) if isinstance(value, str) else value for key, value in given_splits.items()}
    assert [len(load(train, **named).splits[name]) for name in SPLITS] == sizes


@pytest.mark.parametrize("name", ["validation", "test"])
@pytest.mark.parametrize("bad", ["", "no label here,\n"])
def test_a_given_split_without_rows_is_not_made_of_training_rows(save: Any, name: str, bad: str) -> None:
    given = save(f"text,label\n{bad}", f"{name}.csv")
    with pytest.raises(DataError, match=rf"data\.{name}: .*{name}\.csv has no row") as error:
        load(save(csv_of(*plain(60))), bad_rows="skip", **{name: str(given)})
    assert f"leave out data.{name}" in (error.value.hint or "")


def test_a_text_of_a_later_given_split_is_left_out_of_the_earlier_one(save: Any) -> None:
    train = save("text,label\nsame,x\nvalid,x\nown,y\nSAME ,x\n", "train.csv")
    validation = save("text,label\nVALID,x\nsame,x\n", "validation.csv")
    test = save("text,label\nSame,x\nlast,y\nlast,y\n", "test.csv")
    data = load(train, validation=str(validation), test=str(test))
    shown = {name: list(split.texts) for name, split in data.splits.items()}
    assert shown == {"train": ["own"], "validation": ["VALID"], "test": ["Same", "last", "last"]}
    assert [(data.example(row).file, data.example(row).line) for row in data.leaked] == [
        (str(train), 2),
        (str(train), 3),
        (str(train), 5),
        (str(validation), 3),
    ]


def test_a_pair_leaks_only_as_a_whole(save: Any) -> None:
    train = save("text,b,label\none,two,x\none,three,x\ntwo,one,y\n", "train.csv")
    test = save("text,b,label\nOne,Two,x\n", "test.csv")
    data = load(train, text=["text", "b"], test=str(test), validation_share=0)
    assert list(data.splits["train"].texts) == [("one", "three"), ("two", "one")]


def test_a_column_can_say_the_split_of_each_row(save: Any) -> None:
    words = ("train", "Dev", " TEST ", "validation", "training", "", "unassigned")
    path = save(csv_of(["text", "label", "usage"], *([f"t{i}", "xy"[i % 2], word] for i, word in enumerate(words))))
    assert splits_of(load(path, split="usage")) == {"train": [0, 4, 5, 6], "validation": [1, 3], "test": [2]}


USES = "text,label,usage\na,x,train\nb,y,Dev\nc,x,holdout\nd,y,holdout\ne,x,TEST\n"


def test_unknown_words_in_the_split_column_are_named_with_what_to_do(save: Any) -> None:
    path = save(USES)
    with pytest.raises(DataError, match='the column "usage" says more than train, validation and test') as caught:
        load(path, split="usage")
    assert f'"holdout" in 2 rows, first {path}:4' in caught.value.message
    assert 'data.split_values = { "holdout" = "test" }' in caught.value.hint


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"split_values": {"holdout": "test"}}, {"train": [0], "validation": [1], "test": [2, 3, 4]}),
        ({"split_values": {"holdout": "none"}}, {"train": [0], "validation": [1], "test": [2]}),
        ({"split_values": {"holdout": "test", "dev": "train"}}, {"train": [0, 1], "test": [2, 3, 4], "validation": []}),
        ({"bad_rows": "skip"}, {"train": [0], "validation": [1], "test": [2]}),
    ],
)
def test_words_in_the_split_column_are_given_a_meaning(save: Any, settings: Any, expected: Any) -> None:
    data = load(save(USES), split="usage", validation_share=0, **settings)
    assert splits_of(data) == expected


def test_what_the_split_column_says_is_told(save: Any) -> None:
    findings = found_in(load(save(USES), split="usage", split_values={"holdout": "none"}))
    assert findings["split-words"].message == 'in the column of splits, read "Dev" as validation (1 row)'
    assert '"holdout" (2 rows, first ' in findings["split-left-out"].message


def found_in(data: Dataset) -> dict[str, checks.Finding]:
    return {finding.code: finding for finding in checks.examine(data)}


def test_a_dash_among_words_is_no_label(save: Any) -> None:
    rows = [[f"premise {row}", ("entailment", "neutral", "contradiction", "-")[row % 4]] for row in range(40)]
    path = save(csv_of(["text", "label"], *rows))
    data = load(path)
    assert data.labels == ("contradiction", "entailment", "neutral")
    assert len(data) == 30
    finding = found_in(data)["unlabelled-values"]
    assert finding.severity == "warning"
    assert f'10 rows with the label "-", which means none, left out ({path}:5, {path}:9, ' in finding.message
    kept = load(path, unlabelled=[])
    assert (len(kept), kept.labels[0]) == (40, "-")
    assert "unlabelled-values" not in found_in(kept)
    assert load(path, unlabelled=["neutral", "-"]).labels == ("contradiction", "entailment")


@pytest.mark.parametrize(
    ("labels", "unlabelled"),
    [
        (["-", "+"], ()), (["-", "+", "0"], ()), (["-", "yes"], ()), (["-", "yes", "no"], ("-",)),
        (["-1", "0", "1"], ()), (["-1", "0", "1", "2"], ("-1",)), (["-2", "-1", "0", "1", "2"], ()),
        (["-1", "1"], ()), (["yes", "no"], ()), ([], ()),
    ],
)  # fmt: skip
def test_what_stands_for_no_label_is_told_from_the_other_labels(labels: list[str], unlabelled: tuple[str, ...]) -> None:
    assert datasets.unlabelled_among(labels) == unlabelled


def test_a_test_file_whose_labels_are_hidden_has_no_row_to_measure_on(save: Any) -> None:
    train, test = save(csv_of(*plain())), save("text,label\na,-\nb,-\n", "test.csv")
    with pytest.raises(DataError, match='has no row with a label other than "-", which means none'):
        load(train, test=str(test))


@pytest.mark.parametrize("names", [["bad", "middling", "good"], {"0": "bad", "1": "middling", "2": "good"}])
def test_labels_that_are_numbers_are_given_names(save: Any, names: Any) -> None:
    rows = [[f"text {row}", row % 3] for row in range(30)]
    path, test = save(csv_of(["text", "label"], *rows)), save("text,label\nx,2\ny,bad\n", "test.csv")
    data = load(path, test=str(test), label_names=names)
    assert data.labels == ("bad", "middling", "good")
    assert labels_of(data)[:3] == [("bad",), ("middling",), ("good",)]
    assert [data.label_names(int(row)) for row in data.splits["test"].rows] == [("good",), ("bad",)]
    assert "numbered-labels" in found_in(load(path))
    assert "numbered-labels" not in found_in(data)


def test_several_labels_in_a_cell_and_columns_of_labels_are_given_names_too(save: Any) -> None:
    path = save("text,label\na,0|2\nb,1\nc,\n")
    data = load(path, label_separator="|", label_names=["x", "y", "z"], validation_share=0, test_share=0)
    assert labels_of(data) == [("x", "z"), ("y",), ()]
    path = save("text,c0,c1\na,1,0\nb,1,1\n", "hot.csv")
    data = load(path, labels=["c0", "c1"], label_names={"c1": "urgent"}, validation_share=0, test_share=0)
    assert labels_of(data) == [("c0",), ("c0", "urgent")]


def test_labels_without_a_name_and_names_without_a_label_are_said(save: Any) -> None:
    path = save(csv_of(["text", "label"], *([f"text {row}", row % 4] for row in range(40))))
    with pytest.raises(SpecError, match='no name for the labels "2", "3" of the data; no row has "7"'):
        load(path, label_names={"0": "a", "1": "b", "7": "c"})
    data = load(path, label_names=["a", "b", "c", "d", "e"])
    assert data.labels == ("a", "b", "c", "d")
    assert found_in(data)["names-without-rows"].message.endswith("values that no row has: 4")


def test_the_split_column_is_not_needed_in_the_files_of_other_splits(save: Any) -> None:
    train = save("text,label,usage\na,x,train\nb,y,validation\n", "train.csv")
    test = save("text,label\nc,x\n", "test.csv")
    assert splits_of(load(train, split="usage", test=str(test))) == {"train": [0], "validation": [1], "test": [2]}


def test_a_fraction_thins_out_every_split_and_keeps_every_label(save: Any) -> None:
    rows = plain(300)
    rows.append(["a rare text", "rare"])
    path = save(csv_of(*rows))
    whole, part, tiny = load(path), load(path, fraction=0.5), load(path, fraction=0.001)
    for name in SPLITS:
        assert set(part.splits[name].rows) < set(whole.splits[name].rows)
    assert Counter(part.splits["train"].targets.tolist()) == {0: 40, 1: 40, 2: 40, 3: 1}
    for name in ("validation", "test"):
        assert Counter(part.splits[name].targets.tolist()) == {0: 5, 1: 5, 2: 5}
        assert Counter(tiny.splits[name].targets.tolist()) == {0: 1, 1: 1, 2: 1}
    assert Counter(tiny.splits["train"].targets.tolist()) == {0: 1, 1: 1, 2: 1, 3: 1}
    assert part.fingerprint == whole.fingerprint
    assert part.split_fingerprint == load(path, fraction=0.5).split_fingerprint != whole.split_fingerprint
    said = found_in(part)["fraction"].message
    assert said.endswith("121 of 241 train rows, 15 of 30 validation rows, 15 of 30 test rows")
    assert "fraction" not in found_in(whole)


def test_a_fraction_is_of_given_splits_too(save: Any) -> None:
    files = {name: str(save(csv_of(*plain(90, 3), [f"of {name}", "label 0"]), f"{name}.csv")) for name in SPLITS}
    for name in ("validation", "test"):
        texts = [[f"{name} text {row}", f"label {row % 3}"] for row in range(90)]
        save(csv_of(["text", "label"], *texts), f"{name}.csv")
    part = load(files["train"], validation=files["validation"], test=files["test"], fraction=0.1)
    assert {name: len(part.splits[name]) for name in SPLITS} == {"train": 9, "validation": 9, "test": 9}


def test_a_learning_fraction_leaves_test_whole(save: Any) -> None:
    path = save(csv_of(*plain(300)))
    half, point = load(path, fraction=0.5), load(path, fraction=0.5, learning_fraction=0.5)
    sizes = {name: (len(half.splits[name]), len(point.splits[name])) for name in SPLITS}
    assert sizes == {"train": (120, 60), "validation": (15, 9), "test": (15, 15)}
    assert half.splits["test"].rows.tolist() == point.splits["test"].rows.tolist()


# The fingerprint

BASE = [["text", "label", "use"], ["alpha", "x", "train"], ["beta", "y", "train"], ["gamma", "x", "test"]]


def changed(row: int, column: int, value: str) -> list[list[str]]:
    rows = [list(cells) for cells in BASE]
    rows[row][column] = value
    return rows


@pytest.mark.parametrize(
    "rows",
    [
        changed(1, 0, "alphb"),
        changed(1, 0, "Alpha"),
        changed(1, 0, "alpha "),
        changed(1, 0, ""),
        changed(1, 1, "y"),
        changed(1, 1, "z"),
        changed(1, 2, "test"),
        [*BASE, ["delta", "x", "train"]],
        BASE[:-1],
        [*BASE, BASE[-1]],
        [BASE[0], BASE[2], BASE[1], BASE[3]],
        [BASE[0], ["alphab", "x", "train"], ["eta", "y", "train"], BASE[3]],
        [BASE[0], ["alph", "x", "train"], ["abeta", "y", "train"], BASE[3]],
    ],
    ids=[
        "letter", "case", "space", "emptied", "label", "new label", "given split", "row added", "row removed",
        "row repeated", "order", "character moved up", "character moved down",
    ],
)  # fmt: skip
def test_the_fingerprint_changes_with_any_content(save: Any, rows: Rows) -> None:
    before = load(save(csv_of(*BASE)), split="use").fingerprint
    assert load(save(csv_of(*rows), "other.csv"), split="use").fingerprint != before


def test_the_fingerprint_of_a_pair_knows_where_the_first_text_ends(save: Any) -> None:
    fingerprints = {
        load(save(csv_of(["text", "b", "label"], row, ["c", "d", "y"]), "p.csv"), text=columns).fingerprint
        for row in (["ab", "c", "x"], ["a", "bc", "x"], ["abc", "", "x"], ["", "abc", "x"])
        for columns in (["text", "b"], ["b", "text"])
    }
    assert len(fingerprints) == 8


def test_the_fingerprint_tells_tasks_apart(save: Any) -> None:
    path = save(csv_of(["text", "label"], ["a", "x"], ["b", "y"]))
    assert load(path).fingerprint != load(path, label_separator="|").fingerprint


def test_the_fingerprint_follows_content_not_files(save: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [["text", "label"], *([f"naïve text, “{i}”\nand more", f"label {i % 3}"] for i in range(50))]
    text = csv_of(*rows)
    objects = [json.dumps(dict(zip(rows[0], row, strict=True))) for row in rows[1:]]
    once = load(save(text))
    variants = {
        "name": save(text, "another name.csv"),
        "gzip": save(gzip.compress(text.encode()), "d.csv.gz"),
        "utf-8 with a mark": save(text.encode("utf-8-sig"), "bom.csv"),
        "utf-16": save(text.encode("utf-16"), "16.csv"),
        "cp1252": save(text.encode("cp1252"), "1252.csv"),
        "semicolons": save(csv_of(*rows, separator=";"), "s.csv"),
        "jsonl": save("\n".join(objects), "d.jsonl"),
        "more columns": save(csv_of([*rows[0], "n"], *([*row, i] for i, row in enumerate(rows[1:]))), "more.csv"),
        "in two": [str(save(csv_of(*rows[:20]), "a.csv")), str(save(csv_of(rows[0], *rows[20:]), "b.csv"))],
    }
    assert {name: load(path).fingerprint for name, path in variants.items()} == dict.fromkeys(
        variants, once.fingerprint
    )
    monkeypatch.setattr(readers, "BATCH_ROWS", 7)
    assert load(save(text)).fingerprint == once.fingerprint


# Texts


@pytest.fixture
def chunked(save: Any, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """A dataset in many small chunks."""
    monkeypatch.setattr(readers, "BATCH_ROWS", 4)
    return load(save(csv_of(*plain(30))))


@pytest.mark.parametrize(
    "rows", [list(range(30)), [29, 0, 13, 13, 4, 3, 8], [], [7], list(range(0, 30, 5)), list(range(29, -1, -1))]
)
def test_iteration_over_several_chunks_equals_indexing(chunked: Dataset, rows: list[int]) -> None:
    texts = chunked.texts(np.array(rows, dtype=np.int64))
    expected = [f"text number {row}" for row in rows]
    assert list(texts) == [texts[i] for i in range(len(texts))] == expected
    assert len(texts) == len(rows)
    assert list(reversed(texts)) == expected[::-1]


@pytest.mark.parametrize("part", [slice(3), slice(2, -2), slice(None, None, -1), slice(1, 20, 6), slice(50, 60)])
def test_a_slice_of_texts_is_texts(chunked: Dataset, part: slice) -> None:
    rows = np.arange(30)[::-1]
    texts = chunked.texts(rows)
    assert list(texts[part]) == [f"text number {row}" for row in rows[part]]
    assert isinstance(texts[part], datasets.Texts)


def test_texts_count_from_the_end_and_end_somewhere(chunked: Dataset) -> None:
    texts = chunked.splits["train"].texts
    assert texts[-1] == list(texts)[-1]
    assert texts[np.int64(0)] == next(iter(texts))
    for index in (len(texts), -len(texts) - 1):
        with pytest.raises(IndexError):
            texts[index]


def test_a_row_knows_its_file_and_line(save: Any) -> None:
    first = save('text,label\n"a\nb",x\nc,y\n', "a.csv")
    second = save("\n\ntext,label\n\nd,x\n", "b.csv")
    data = load([str(first), str(second)])
    places = [(data.example(row).file, data.example(row).line, data.example(row).text) for row in range(3)]
    assert places == [(str(first), 2, "a\nb"), (str(first), 4, "c"), (str(second), 5, "d")]


def test_a_dataset_cannot_be_changed(save: Any) -> None:
    data = load(save(csv_of(*plain(5))))
    with pytest.raises(AttributeError):
        data.task = "multi"  # type: ignore[misc]


def test_far_too_many_labels_for_task_multi_are_refused(save: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "MOST_MULTI_CELLS", 100)
    with pytest.raises(DataError, match="20 different labels are too many") as caught:
        load(save(csv_of(["text", "label"], *([f"t{i}", f"a|l{i}"] for i in range(19)))), label_separator="|")
    assert "data.label_separator" in caught.value.hint
