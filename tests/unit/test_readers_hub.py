"""Datasets of the hub, read through an object with the API of the package `datasets`."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from tagline.data.readers import BadRows, hub, inspect, read_batches
from tagline.errors import DataError, PlaceError


@dataclass
class ClassLabel:
    """Numbers with names."""

    names: list[str]

    def int2str(self, value: int) -> str:
        return self.names[value]


@dataclass
class Listed:
    """A list of another feature."""

    feature: Any


@dataclass
class Table:
    """Rows as `datasets.Dataset` gives them."""

    features: dict[str, Any]
    rows: list[dict[str, Any]]

    @property
    def column_names(self) -> list[str]:
        return list(self.features)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(dict, self.rows)


Install = Callable[[Callable[..., Any]], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a `load_dataset` where the package `datasets` would be."""

    def put(load_dataset: Callable[..., Any]) -> None:
        module = ModuleType("datasets")
        module.load_dataset = load_dataset  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "datasets", module)

    hub._load_splits.cache_clear()
    yield put
    hub._load_splits.cache_clear()


def rows(name: str) -> list[tuple[Any, ...]]:
    source = inspect(name)
    found = read_batches(source, bad=BadRows("stop"))
    return [row for batch in found for row in zip(batch.lines, *batch.columns.values(), strict=True)]


def labelled(*labels: int) -> Table:
    features = {"text": "string", "label": ClassLabel(["neg", "pos"])}
    return Table(features, [{"text": f"text {label}", "label": label} for label in labels])


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    hub._load_splits.cache_clear()
    with pytest.raises(PlaceError, match="not installed") as error:
        inspect("hf://glue/mnli")
    assert "pip install datasets" in error.value.hint


def test_numbers_become_names_and_splits_a_column(install: Install) -> None:
    install(lambda path, config: {"train": labelled(0, 1), "dev": labelled(1), "test": labelled(0)})
    assert rows("hf://owner/name") == [
        (1, "text 0", "neg", "train"),
        (2, "text 1", "pos", "train"),
        (3, "text 1", "pos", "validation"),
        (4, "text 0", "neg", "test"),
    ]
    assert inspect("hf://owner/name").split_column == "split"


def test_two_validation_splits_are_both_read(install: Install) -> None:
    install(lambda path, config: {"validation_matched": labelled(0), "validation_mismatched": labelled(1)})
    assert [row[2:] for row in rows("hf://glue/mnli")] == [("neg", "validation"), ("pos", "validation")]


def test_a_split_with_hidden_labels_is_left_out(install: Install) -> None:
    install(lambda path, config: {"train": labelled(0, 1), "test": labelled(-1, -1)})
    assert {row[3] for row in rows("hf://owner/name")} == {"train"}


def test_one_hidden_label_is_a_missing_one(install: Install) -> None:
    install(lambda path, config: {"train": labelled(0, -1, 1)})
    assert [row[2] for row in rows("hf://owner/name")] == ["neg", None, "pos"]


def test_a_dataset_with_nothing_but_hidden_labels_is_an_error(install: Install) -> None:
    install(lambda path, config: {"test": labelled(-1, -1)})
    with pytest.raises(DataError, match="no labelled rows"):
        inspect("hf://owner/name")


def test_a_list_of_class_labels_becomes_several_names(install: Install) -> None:
    features = {"text": "string", "labels": Listed(ClassLabel(["a", "b", "c"]))}
    table = Table(features, [{"text": "x", "labels": [0, 2]}, {"text": "y", "labels": []}])
    install(lambda path, config: {"train": table})
    assert [row[2] for row in rows("hf://go_emotions")] == [("a", "c"), ()]


def test_a_column_named_split_is_kept_beside_ours(install: Install) -> None:
    install(lambda path, config: {"test": Table({"text": "string", "split": "string"}, [{"text": "x", "split": "7"}])})
    source = inspect("hf://owner/name")
    assert source.columns == ("text", "split", "split_3")
    assert rows("hf://owner/name") == [(1, "x", "7", "test")]
    assert source.split_column == "split_3"


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("hf://imdb", ("imdb", None)),
        ("hf://glue/mnli", ("glue", "mnli")),
        ("hf://owner/name", ("owner/name", None)),
        ("hf://owner/name/config", ("owner/name", "config")),
        ("hf:///a/local/directory", ("/a/local/directory", None)),
        ("hf://./beside", ("./beside", None)),
    ],
)
def test_a_name_says_which_dataset_and_which_config(name: str, asked: tuple[str, str | None], install: Install) -> None:
    calls = []

    def load_dataset(*arguments: Any) -> dict[str, Table]:
        calls.append(arguments)
        return {"train": labelled(0)}

    install(load_dataset)
    inspect(name)
    assert calls == [asked]


@pytest.mark.parametrize("message", ["no such dataset\nand more", ""])
def test_what_the_package_says_is_passed_on(message: str, install: Install) -> None:
    def load_dataset(path: str, config: str | None) -> None:
        raise ConnectionError(message)

    install(load_dataset)
    with pytest.raises(DataError, match=r"cannot load hf://owner/name: (no such dataset|ConnectionError)") as error:
        inspect("hf://owner/name")
    assert "network" in error.value.hint
