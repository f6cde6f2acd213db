"""Slices that do worse than the rest."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import fisher_exact

from tagline import spec as specs
from tagline.data import dataset
from tagline.data.dataset import Dataset
from tagline.evaluation import slices


def loaded(path: Path, rows: list[str], **data: object) -> Dataset:
    path.write_text("text,label,shop\n" + "".join(rows))
    given = {"train": str(path), "text": "text", "labels": "label", "slices": ["shop"], "test_share": 0.5}
    return dataset.load(specs.defaults({**given, "validation_share": 0.0, **data}).data)


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    shops = ("north", "south")
    words = ["hello world", "привет мир где моя посылка", "hello there"]
    rows = [
        f"message {'of order' if n % 3 else f'q{n}'} {'x' * (n % 11)} {words[n % 7 % 3]},{n % 2},{shops[n % 4 == 0]}\n"
        for n in range(1200)
    ]
    return loaded(tmp_path / "rows.csv", rows)


def test_a_column_whose_rows_do_worse_is_named_and_no_other(data: Dataset) -> None:
    split = data.splits["test"]
    shop = data.columns["shop"]
    is_south = np.array([shop.values[number] == "south" for number in shop.numbers[split.rows]])
    right = np.random.default_rng(2).random(len(split)) < np.where(is_south, 0.6, 0.9)
    found = slices.find_slices(data, split, right)
    assert [(each.by, each.name) for each in found if each.is_worse] == [("shop", "south")]
    worst = found[0]
    assert worst.rows == is_south.sum()
    assert worst.accuracy == pytest.approx(right[is_south].mean())
    assert worst.accuracy_of_rest == pytest.approx(right[~is_south].mean())


def test_nothing_is_named_where_errors_are_chance(data: Dataset) -> None:
    split = data.splits["test"]
    named = 0
    for seed in range(20):
        right = np.random.default_rng(seed).random(len(split)) < 0.8
        named += any(each.is_worse for each in slices.find_slices(data, split, right))
    assert named <= 3  # at a level of 0.05, one in twenty tries is expected


def test_scripts_lengths_and_unknown_words_are_looked_at(data: Dataset) -> None:
    split = data.splits["test"]
    found = {(each.by, each.name) for each in slices.find_slices(data, split, np.ones(len(split), dtype=bool))}
    assert {("script", "CYRILLIC"), ("script", "LATIN"), ("shop", "north")} <= found
    assert {by for by, _ in found} == {"length", "script", "shop", "words"}


def test_rows_that_are_new_are_told_from_near_copies_of_training_texts(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    texts = [" ".join(f"w{number}" for number in chance.integers(0, 5000, 24)) for _ in range(150)]
    copied = [f"{text} {end}" for text in texts[:60] for end in ("please answer", "thanks", "cheers", "bye")]
    data = loaded(tmp_path / "rows.csv", [f"{text},a,x\n" for text in [*texts, *copied]])
    split, train = data.splits["test"], "\n".join(data.splits["train"].texts)
    is_copy = np.array([" ".join(text.split()[:24]) in train for text in split.texts])
    [found] = [each for each in slices.find_slices(data, split, is_copy) if each.by == "likeness"]
    assert (found.name, found.is_worse) == ("unlike any training text", True)
    assert (found.rows, found.accuracy, found.accuracy_of_rest) == ((~is_copy).sum(), 0.0, 1.0)


@pytest.mark.parametrize(
    "table",
    [[[18, 12], [60, 10]], [[0, 30], [70, 0]], [[30, 0], [60, 10]], [[0, 0], [6, 4]], [[900, 600], [9000, 4500]]],
)
def test_the_p_value_is_fishers(table: list[list[int]]) -> None:
    """Each row of the table: how many are right, how many wrong, first inside and then outside."""
    inside = np.repeat([True, False], [sum(counts) for counts in table])
    right = np.concatenate([np.repeat([True, False], counts) for counts in table])
    assert slices._p_value(inside, right) == pytest.approx(fisher_exact(table, alternative="less").pvalue)


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("hello", "LATIN"),
        ("привет hello мир", "CYRILLIC"),
        ("ホテル", "KATAKANA"),
        ("酒店很好", "CJK"),
        ("12!", "no letters"),
    ],
)
def test_the_main_script_of_a_text(text: str, script: str) -> None:
    assert slices.main_script(text) == script


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r'data\.slices: .* has no column "region"'):
        loaded(tmp_path / "rows.csv", ["a,b,c\n"], slices=["region"])
