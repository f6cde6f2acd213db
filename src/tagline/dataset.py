"""Example, Split, Dataset: labelled texts in fixed splits, with a fingerprint."""

import gc
import hashlib
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tagline import storage
from tagline.errors import DataError
from tagline.readers import BadRow, BadRows, Batch, Cell, Layout, Source, batches, inspect
from tagline.spec import Data
from tagline.splits import Ints, deal, group_ids
from tagline.texts import Column, Text, Texts

Task = Literal["single", "multi"]
SplitName = Literal["train", "validation", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")
SPLIT_WORDS: dict[str, SplitName] = {
    "": "train", "train": "train", "training": "train", "unassigned": "train",
    "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation",
    "development": "validation", "eval": "validation",
    "test": "test", "testing": "test",
}  # fmt: skip
LEFT_OUT = -1
"""The split of a row that stands in none."""
MOST_MULTI_CELLS = 2_000_000_000
"""Rows times labels, one byte each."""
ONE_HOT = {"0": False, "1": True, "false": False, "true": True}


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled text and where it stands."""

    text: Text
    labels: tuple[str, ...]
    file: str
    line: int


@dataclass(frozen=True)
class Split:
    """The rows of one split. `targets` is a label's number a row, or for task `multi` a row of booleans."""

    texts: Texts
    targets: NDArray[Any]
    rows: Ints
    """Each row's number in the dataset."""

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class ColumnValues:
    """A column that is no text and no label: its different values, and the number of each row's."""

    values: tuple[str, ...]
    numbers: Ints


@dataclass(frozen=True)
class Dataset:
    """Labelled examples with a fixed label order, named splits and a fingerprint."""

    task: Task
    labels: tuple[str, ...]
    pair: bool
    splits: Mapping[SplitName, Split]
    fingerprint: str
    sources: tuple[Source, ...]
    bad_rows: tuple[BadRow, ...] = ()
    leaked: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Rows left out because a given later split holds the same text."""
    columns: Mapping[str, "ColumnValues"] = field(default_factory=dict, repr=False)
    """What the columns of `data.slices` say, row by row."""
    _store: "_Store" = field(repr=False, kw_only=True)

    def __len__(self) -> int:
        return len(self._store.lines)

    @property
    def groups(self) -> Ints:
        """For each row the number of its text, equal for texts that are the same once normalised."""
        return self._store.groups

    @property
    def targets(self) -> NDArray[Any]:
        """The targets of all rows."""
        return self._store.targets

    def texts(self, rows: Ints) -> Texts:
        """The texts of any rows."""
        return Texts(self._store.columns, rows)

    def select(self, *names: SplitName) -> Split:
        """The rows of several splits as one, in file order; of none, no row."""
        rows = np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *(self.splits[name].rows for name in names)]))
        return Split(self.texts(rows), self.targets[rows], rows)

    def place(self, row: int) -> tuple[str, int]:
        """The file and the line of one row."""
        source = int(np.searchsorted(self._store.source_ends, row, side="right"))
        return self.sources[source].name, int(self._store.lines[row])

    def example(self, row: int) -> Example:
        """One row with its labels and where it stands."""
        return Example(self.texts(np.array([row]))[0], self.label_names(row), *self.place(row))

    def label_names(self, row: int) -> tuple[str, ...]:
        """The labels of one row."""
        target = self._store.targets[row]
        if self.task == "single":
            return (self.labels[int(target)],)
        return tuple(self.labels[i] for i in np.flatnonzero(target))


@dataclass(frozen=True)
class _Store:
    """All rows, by column."""

    columns: tuple[Column, ...]
    targets: NDArray[Any]
    groups: Ints
    lines: NDArray[np.int32]
    source_ends: Ints


def normalised(text: str) -> str:
    """What is left of a text when case, width of characters and white space do not count."""
    if text.isascii() and text.isprintable() and "  " not in text and text == text.strip(" "):
        return text.lower()  # the same, and three times faster: most texts are like this
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.casefold().split())


def layout_of(data: Data) -> Layout:
    """What the spec says about how files are read; columns named otherwise than we would have a header."""
    named = [name for name in (*data.text_columns, *data.label_columns, data.split) if name]
    has_names = any(not re.fullmatch(r"column_\d+", name) for name in named)
    header = True if data.header == "auto" and has_names else data.header
    return Layout(format=data.format, separator=data.separator, header=header, encoding=data.encoding)


def sources_of(data: Data, split: SplitName) -> list[Source]:
    """The files given for a split, looked at."""
    return [inspect(address, layout_of(data)) for address in storage.expand(data.addresses(split))]


def missing_columns(data: Data, source: Source, split: SplitName) -> list[str]:
    """A line for each column that the spec names and this file lacks."""
    named = {"text": data.text_columns, "labels": data.label_columns, "slices": data.slices}
    if data.split and split == "train":
        named["split"] = (data.split,)
    return [
        f'data.{key}: {source.name} has no column "{column}"; it has: {", ".join(source.columns)}'
        for key, columns in named.items()
        for column in columns
        if column not in source.columns
    ]


def load(data: Data) -> Dataset:
    """Read, check and split the data of a spec."""
    reading = _Reading(data)
    with _no_collection():
        for split in SPLITS:
            for source in sources_of(data, split):
                reading.read(source, split)
    return reading.dataset()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Rows come and go by the million and hold no cycles: looking for some among them takes a quarter of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Reading:
    """The columns of a dataset while its files are read, batch by batch."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.bad = BadRows(data.bad_rows)
        self.label_set = _label_set(data)
        self.sources: list[Source] = []
        self.source_ends: list[int] = []
        self.texts = tuple(Column() for _ in data.text_columns)
        self.hashes: list[Ints] = []
        self.lines: list[NDArray[np.int32]] = []
        self.given: list[NDArray[np.int8]] = []
        self.slices: dict[str, dict[str, int]] = {name: {} for name in data.slices}
        self.slice_numbers: dict[str, list[Ints]] = {name: [] for name in data.slices}
        self.rows = 0
        self.fingerprint = _Fingerprint(len(data.text_columns))

    def read(self, source: Source, split: SplitName) -> None:
        """Take in one file."""
        if problems := missing_columns(self.data, source, split):
            raise DataError("\n".join(problems))
        for batch in batches(source, bad=self.bad):
            self._add(source, batch, split)
        self.sources.append(source)
        self.source_ends.append(self.rows)

    def _add(self, source: Source, batch: Batch, split: SplitName) -> None:
        given, wrong_split = self._given(source, batch, split)
        wrong_labels = self.label_set.problems([batch.columns[name] for name in self.data.label_columns])
        wrong = wrong_split | wrong_labels
        for index in sorted(wrong):
            self.bad.add(source.name, batch.lines[index], wrong[index])
        kept = [i for i in range(len(batch.lines)) if i not in wrong] if wrong else None
        lines = np.array(_kept(batch.lines, kept), dtype=np.int32)
        if not len(lines):
            return
        texts = [_strings(_kept(batch.columns[name], kept)) for name in self.data.text_columns]
        self.label_set.add([_kept(batch.columns[name], kept) for name in self.data.label_columns])
        for name, seen in self.slices.items():
            cells = _strings(_kept(batch.columns[name], kept))
            self.slice_numbers[name].append(np.array([seen.setdefault(cell, len(seen)) for cell in cells]))
        arrays = [pa.array(column, pa.large_string()) for column in texts]
        for column, array in zip(self.texts, arrays, strict=True):
            column.append(array)
        keys = zip(*(map(normalised, column) for column in texts), strict=True)
        self.hashes.append(np.fromiter(map(hash, keys), np.int64, len(lines)))
        self.lines.append(lines)
        self.given.append(given if kept is None else given[kept])
        self.rows += len(lines)
        self.fingerprint.add(arrays, self.given[-1])

    def _given(self, source: Source, batch: Batch, split: SplitName) -> tuple[NDArray[np.int8], dict[int, str]]:
        """Each row's given split, and the rows that name none that we know."""
        column = self.data.split or (source.split_column if split == "train" else "")
        given = np.full(len(batch.lines), SPLITS.index(split), dtype=np.int8)
        wrong: dict[int, str] = {}
        if column and split == "train":
            for index, cell in enumerate(batch.columns[column]):
                word = SPLIT_WORDS.get(str(cell or "").strip().lower())
                if word is None:
                    wrong[index] = f'{column} is "{cell}"; it may be train, validation or test'
                else:
                    given[index] = SPLITS.index(word)
        return given, wrong

    def dataset(self) -> Dataset:
        """Everything read, split and frozen."""
        self.bad.settle()
        names = ", ".join(source.name for source in self.sources)
        if not self.rows:
            raise DataError(f"{names}: no usable row")
        task, labels, targets = self.label_set.finished()
        groups = group_ids(np.concatenate(self.hashes))
        store = _Store(
            columns=self.texts, targets=targets, groups=groups,
            lines=np.concatenate(self.lines), source_ends=np.array(self.source_ends),
        )  # fmt: skip
        split_rows, leaked = _split(self.data, np.concatenate(self.given), groups, targets)
        splits = {
            name: Split(Texts(store.columns, rows), targets[rows], rows) for name, rows in split_rows.items()
        }  # fmt: skip
        return Dataset(
            task=task, labels=labels, pair=len(self.texts) == 2, splits=splits, leaked=leaked,
            fingerprint=self.fingerprint.finished(task, labels, targets),
            sources=tuple(self.sources), bad_rows=tuple(self.bad.rows), _store=store,
            columns={
                name: ColumnValues(tuple(seen), np.concatenate(self.slice_numbers[name]))
                for name, seen in self.slices.items()
            },
        )  # fmt: skip


def _kept(cells: Sequence[Any], kept: list[int] | None) -> Sequence[Any]:
    """The cells at these places; None means all."""
    return cells if kept is None else [cells[i] for i in kept]


def _strings(cells: Sequence[Cell]) -> list[str]:
    """A text column's cells; a list of texts is one text, a missing one an empty one."""
    return [cell if isinstance(cell, str) else " ".join(cell or ()) for cell in cells]


def _split(
    data: Data, given: NDArray[np.int8], groups: Ints, targets: NDArray[Any]
) -> tuple[dict[SplitName, Ints], Ints]:
    """The rows of each split, in file order, and the rows left out because a later given split has their text."""
    validation, test = (given == SPLITS.index(name) for name in ("validation", "test"))
    for name in SPLITS[1:]:
        files = ", ".join(data.addresses(name))
        if files and not (given == SPLITS.index(name)).any():  # a share of train in its place would go unnoticed
            raise DataError(f"data.{name}: {files} has no row", hint=f"give it rows, or leave out data.{name}")
    later = ~test & np.isin(groups, groups[test])
    later |= ~(validation | test) & np.isin(groups, groups[validation])
    split = np.where(later, LEFT_OUT, given)
    random = np.random.default_rng(data.seed)
    shares = (0 if validation.any() else data.validation_share, 0 if test.any() else data.test_share)
    pool = np.flatnonzero(split == SPLITS.index("train"))
    if any(shares) and targets.ndim == 2 and not targets.shape[1]:  # to be measured on, such rows are good enough
        raise DataError("no row has a label; there is nothing to learn", hint="is data.labels the right column?")
    split[pool] = deal(groups[pool], targets[pool], shares=shares, random=random)
    if data.fraction < 1:
        pool = np.flatnonzero(split == SPLITS.index("train"))
        dropped = deal(groups[pool], targets[pool], shares=(1 - data.fraction,), random=random, cover=False) > 0
        split[pool[dropped]] = LEFT_OUT
    rows = {name: np.flatnonzero(split == number) for number, name in enumerate(SPLITS)}
    return rows, np.flatnonzero(later)


class _Fingerprint:
    """A hash of all content, fed batch by batch and the same however the batches are cut."""

    def __init__(self, columns: int) -> None:
        self._texts = [(hashlib.sha256(), hashlib.sha256()) for _ in range(columns)]
        self._given = hashlib.sha256()

    def add(self, texts: Sequence[pa.Array], given: NDArray[np.int8]) -> None:
        """Take in some rows: the bytes of their texts, where each ends, and their given splits."""
        self._given.update(given.tobytes())
        for (content_hash, length_hash), array in zip(self._texts, texts, strict=True):
            _, offsets, content = array.buffers()
            content_hash.update(content or b"")
            length_hash.update(np.diff(np.frombuffer(offsets, dtype=np.int64)).tobytes())

    def finished(self, task: Task, labels: Sequence[str], targets: NDArray[Any]) -> str:
        """The fingerprint of the whole."""
        total = hashlib.sha256(repr((task, *labels)).encode())
        for part in (self._given, *(part for pair in self._texts for part in pair)):
            total.update(part.digest())
        total.update(np.ascontiguousarray(targets).tobytes())
        return total.hexdigest()


class _LabelSet(Protocol):
    """Labels while rows are read: which cells are wrong, which labels there are, and in the end the targets."""

    def problems(self, columns: Sequence[Sequence[Cell]]) -> dict[int, str]: ...
    def add(self, columns: Sequence[Sequence[Cell]]) -> None: ...
    def finished(self) -> tuple[Task, tuple[str, ...], NDArray[Any]]: ...


class _OneHot:
    """A 0/1 column a label."""

    def __init__(self, names: tuple[str, ...], none_label: str) -> None:
        self._names = names
        self._none_label = none_label
        self._parts: list[NDArray[np.bool_]] = []

    def problems(self, columns: Sequence[Sequence[Cell]]) -> dict[int, str]:
        """Cells that are neither 0, 1, true nor false."""
        found: dict[int, str] = {}
        for name, column in zip(self._names, columns, strict=True):
            if not set(column) <= ONE_HOT.keys():
                for index, cell in enumerate(column):
                    if _one_hot_key(cell) not in ONE_HOT:
                        found.setdefault(index, f'{name} is "{cell or ""}"; it may be 0, 1, true or false')
        return found

    def add(self, columns: Sequence[Sequence[Cell]]) -> None:
        """Take in rows without problems."""
        hot = [[ONE_HOT[_one_hot_key(cell)] for cell in column] for column in columns]
        self._parts.append(np.array(hot, dtype=bool).T)

    def finished(self) -> tuple[Task, tuple[str, ...], NDArray[Any]]:
        """The columns in the order given, and after them the label for none."""
        return "multi", *_with_none_label(self._names, np.concatenate(self._parts), self._none_label)


class _Named:
    """A column of label names: one a row, or several between separators or in a list."""

    def __init__(self, separator: str, none_label: str) -> None:
        self._separator = separator
        self._none_label = none_label
        self._codes: dict[str, int] = {}
        self._flat: list[NDArray[np.int32]] = []
        self._counts: list[NDArray[np.int32]] = []

    def problems(self, columns: Sequence[Sequence[Cell]]) -> dict[int, str]:
        """Rows without a label, where a row needs one."""
        if self._separator or self._none_label:
            return {}
        missing = {cell for cell in set(columns[0]) if cell is None or (isinstance(cell, str) and not cell.strip())}
        return {index: "no label" for index, cell in enumerate(columns[0]) if cell in missing}

    def add(self, columns: Sequence[Sequence[Cell]]) -> None:
        """Take in rows without problems; labels are numbered as they appear."""
        numbers = {cell: self._numbers(cell) for cell in dict.fromkeys(columns[0])}
        rows = [numbers[cell] for cell in columns[0]]
        self._flat.append(np.fromiter(chain.from_iterable(rows), np.int32))
        self._counts.append(np.fromiter(map(len, rows), np.int32, len(rows)))

    def _numbers(self, cell: Cell) -> tuple[int, ...]:
        return tuple(self._codes.setdefault(name, len(self._codes)) for name in self._names_in(cell))

    def _names_in(self, cell: Cell) -> tuple[str, ...]:
        if isinstance(cell, str):
            cell = tuple(cell.split(self._separator)) if self._separator else (cell,)
        return tuple(dict.fromkeys(name for part in cell or () if (name := part.strip())))

    def finished(self) -> tuple[Task, tuple[str, ...], NDArray[Any]]:
        """The names in their natural order, and the targets in its terms."""
        names = tuple(sorted(self._codes, key=_natural))
        position = np.empty(len(names), dtype=np.int32)
        position[[self._codes[name] for name in names]] = np.arange(len(names), dtype=np.int32)
        flat, counts = position[np.concatenate(self._flat)], np.concatenate(self._counts)
        if not self._separator and not self._none_label and (counts == 1).all():
            return "single", names, flat
        if len(names) * len(counts) > MOST_MULTI_CELLS:
            hint = "is data.labels the right column, and data.label_separator right?"
            raise DataError(f"{len(names):,} different labels are too many for task multi", hint=hint)
        hot = np.zeros((len(counts), len(names)), dtype=bool)
        hot[np.repeat(np.arange(len(counts)), counts), flat] = True
        return "multi", *_with_none_label(names, hot, self._none_label)


def _label_set(data: Data) -> _LabelSet:
    if isinstance(data.labels, str):
        return _Named(data.label_separator, data.none_label)
    return _OneHot(data.labels, data.none_label)


def _one_hot_key(cell: Cell) -> str:
    return cell.strip().lower() if isinstance(cell, str) else ""


def _with_none_label(
    names: tuple[str, ...], hot: NDArray[np.bool_], none_label: str
) -> tuple[tuple[str, ...], NDArray[np.bool_]]:
    """A label of its own for the rows that have none, if there is a name for it."""
    if not none_label:
        return names, hot
    nothing = ~hot.any(axis=1)
    if none_label in names:
        hot[:, names.index(none_label)] |= nothing
        return names, hot
    return (*names, none_label), np.column_stack([hot, nothing])


def _natural(name: str) -> tuple[int, float, str]:
    """Numbers by size and before words, words by letter."""
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    return (0, number, name) if math.isfinite(number) else (1, 0.0, name)
