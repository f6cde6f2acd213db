"""Slices of a test split that do worse than the rest: by length, words, likeness, script, file, or any column."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tagline.data import near_duplicates
from tagline.data.dataset import Dataset, Split
from tagline.prediction import attribution

if TYPE_CHECKING:
    from tagline.data.texts import Text, Texts

WORD = re.compile(r"\w+")
UNSPACED = re.compile(f"[{attribution.UNSPACED}]")
FEWEST_ROWS = 20
MOST_VALUES = 50
TRAIN_ROWS_READ = 50_000
"""Training rows that are read: enough for most known words and texts."""
MOST_COMPARED = 10_000
"""The most test rows that are searched for near duplicates in training: a few seconds' work."""
LEVEL = 0.05

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Slice:
    """Rows that have something in common, and their accuracy compared with all others."""

    by: str
    name: str
    rows: int
    accuracy: float
    accuracy_of_rest: float
    p_value: float
    """How often rows drawn at random would do as badly; corrected for multiple comparisons."""

    @property
    def is_worse(self) -> bool:
        """Whether its accuracy is significantly lower."""
        return self.p_value < LEVEL and self.accuracy < self.accuracy_of_rest


def find_slices(dataset: Dataset, split: Split, right: Flags) -> list[Slice]:
    """Return every slice that is large enough to judge, the worst first; the same rows are listed once."""
    candidates = list(_iter_candidates(dataset, split))
    large = [
        (by, name, inside)
        for by, name, inside in {inside.tobytes(): (by, name, inside) for by, name, inside in candidates}.values()
        if inside.sum() >= FEWEST_ROWS and (~inside).sum() >= FEWEST_ROWS
    ]
    p_values = _correct_p_values([_p_value(inside, right) for _, _, inside in large])
    slices = [
        Slice(by, name, int(inside.sum()), float(right[inside].mean()), float(right[~inside].mean()), p_value)
        for (by, name, inside), p_value in zip(large, p_values, strict=True)
    ]
    return sorted(slices, key=lambda each: (each.p_value, each.accuracy - each.accuracy_of_rest))


def _iter_candidates(dataset: Dataset, split: Split) -> Iterator[tuple[str, str, Flags]]:
    yield from _by_length(np.array([len(_join_sides(text)) for text in split.texts]))
    train = _sample_train_texts(dataset)
    yield from _by_unknown_words(train, split)
    yield from _by_likeness(train, split)
    yield from _by_value("script", [main_script(_join_sides(text)) for text in split.texts])
    if len(dataset.sources) > 1:
        yield from _by_value("file", [dataset.place(int(row))[0] for row in split.rows])
    for column, content in dataset.columns.items():
        yield from _by_value(column, [content.values[i] for i in content.numbers[split.rows]])


def _by_length(lengths: NDArray[np.int64]) -> Iterator[tuple[str, str, Flags]]:
    if len(lengths) == 0:
        return
    short, long = np.quantile(lengths, [0.25, 0.75])
    yield "length", f"short: up to {int(short):,} characters", lengths <= short
    yield "length", f"long: {math.ceil(long):,} characters or more", lengths >= long


def _sample_train_texts(dataset: Dataset) -> "Texts":
    rows = dataset.splits["train"].rows
    if len(rows) > TRAIN_ROWS_READ:
        rows = np.sort(np.random.default_rng(0).choice(rows, TRAIN_ROWS_READ, replace=False))
    return dataset.texts(rows)


def _by_unknown_words(train: "Texts", split: Split) -> Iterator[tuple[str, str, Flags]]:
    """Yield texts with words that no training text has; not in scripts without spaces, which are not split here."""
    known: set[str] = set()
    for text in train:
        known.update(WORD.findall(_join_sides(text).casefold()))
    if not known:
        return
    unknown = np.array([_unknown_share(WORD.findall(_join_sides(text).casefold()), known) for text in split.texts])
    yield "words", "with words that no training text has", unknown > 0
    yield "words", "a fifth or more of the words in no training text", unknown >= 0.2


def _by_likeness(train: "Texts", split: Split) -> Iterator[tuple[str, str, Flags]]:
    """Yield texts without a near duplicate in training, whose answers the model cannot have memorised."""
    if len(split) <= MOST_COMPARED:
        unlike = np.ones(len(split), dtype=np.bool_)
        unlike[[row for row, _, _ in near_duplicates.find_pairs(split.texts, train)]] = False
        yield "likeness", "unlike any training text", unlike


def _unknown_share(words: list[str], known: set[str]) -> float:
    spaced = [word for word in words if not UNSPACED.search(word)]
    return sum(word not in known for word in spaced) / len(spaced) if spaced else 0.0


def _by_value(by: str, values: list[str]) -> Iterator[tuple[str, str, Flags]]:
    column = np.array(values, dtype=object)
    most_frequent = Counter(values).most_common(MOST_VALUES)
    if len(most_frequent) > 1:
        for value, _ in most_frequent:
            yield by, value or "(empty)", column == value


def main_script(text: str) -> str:
    """Return the script of most letters of a text, by its Unicode name: LATIN, CYRILLIC, HANGUL."""
    counts = Counter(script for character in text[:500] if (script := _find_script(character)))
    return counts.most_common(1)[0][0] if counts else "no letters"


@lru_cache(maxsize=10_000)
def _find_script(character: str) -> str:
    return unicodedata.name(character, "").split(" ")[0].split("-")[0] if character.isalpha() else ""


def _p_value(inside: Flags, right: Flags) -> float:
    """Return the p-value of Fisher's exact test: how often as few of these rows, or fewer, would be right by chance."""
    rows, drawn, hits = len(right), int(inside.sum()), int(right.sum())
    log_factorials = np.concatenate([[0.0], np.log(np.arange(1, rows + 1)).cumsum()])

    def log_binomial(many: int, some: Any) -> Any:
        return log_factorials[many] - log_factorials[some] - log_factorials[many - some]

    as_few = np.arange(max(0, drawn + hits - rows), int(right[inside].sum()) + 1)
    chances = np.exp(log_binomial(hits, as_few) + log_binomial(rows - hits, drawn - as_few) - log_binomial(rows, drawn))
    return min(1.0, float(chances.sum()))


def _correct_p_values(p_values: Iterable[float]) -> list[float]:
    """Apply Benjamini and Hochberg's correction: of the slices found at a level, at most that share is chance."""
    values = np.array(list(p_values))
    order = np.argsort(values)
    steps = values[order] * len(values) / np.arange(1, len(values) + 1)
    corrected = np.empty_like(values)
    corrected[order] = np.minimum.accumulate(steps[::-1])[::-1]
    return [float(min(1.0, value)) for value in corrected]


def _join_sides(text: "Text") -> Any:
    return text if isinstance(text, str) else " ".join(text)
