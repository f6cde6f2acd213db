"""Example, Split, Dataset: labelled texts in fixed splits, with a fingerprint."""

import gc
import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tagline.data.column_profiles import LIST_SEPARATOR, ONE_HOT, parse_list
from tagline.data.readers import BadRow, BadRows, Batch, Cell, Layout, Source, inspect, read_batches
from tagline.data.splits import Ints, group_ids, stratified_split
from tagline.data.texts import ColumnFile, Text, Texts, build_array
from tagline.errors import DataError, SpecError
from tagline.spec import Data
from tagline.storage import inputs

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
"""The split of a row that is in none."""
NO_SPLIT = "none"
"""In `data.split_values`: rows to leave out."""
NO_AGREEMENT, HIDDEN = "-", "-1"
"""Values for no label in files in the format of MNLI and SNLI: annotators did not agree, or it is hidden."""
SHOWN_PLACES = 5
SHOWN_CHARACTERS = 60
MOST_MULTI_CELLS = 2_000_000_000
"""The most rows times labels, at one byte each."""


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled text, with its file and line."""

    text: Text
    labels: tuple[str, ...]
    file: str
    line: int


@dataclass(frozen=True)
class Split:
    """The rows of one split. `targets` has a label's number per row, or for task `multi` a row of booleans."""

    texts: Texts
    targets: NDArray[Any]
    rows: Ints
    """The number of each row in the dataset."""

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class ColumnValues:
    """A column other than text and labels: its distinct values, and for each row the number of its value."""

    values: tuple[str, ...]
    numbers: Ints


@dataclass
class ValueRows:
    """The rows in which a column has one value: their count, and the places of the first of them."""

    count: int = 0
    places: list[tuple[str, int]] = field(default_factory=list)

    def add(self, file: str, line: int) -> None:
        """Count one more row."""
        self.count += 1
        if len(self.places) < SHOWN_PLACES:
            self.places.append((file, line))

    def __str__(self) -> str:
        rows = "1 row" if self.count == 1 else f"{self.count:,} rows"
        return f"{rows}, first {self.places[0][0]}:{self.places[0][1]}"


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
    """Rows left out because of data leakage: a later given split has the same text."""
    none_label: str = ""
    """Task `multi`: the label of rows that have no other; empty if such rows have no label."""
    contradicted: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Rows to which the files give `none_label` beside another label: the other ones count."""
    columns: Mapping[str, "ColumnValues"] = field(default_factory=dict, repr=False)
    """The values of the columns in `data.slices`, row by row."""
    unlabelled: Mapping[str, ValueRows] = field(default_factory=dict)
    """Rows left out because their label means that there is none, by that label."""
    split_words: Mapping[str, tuple[str, ValueRows]] = field(default_factory=dict)
    """Each value of the split column with the split it stands for ("none": left out; "": unknown)."""
    names_without_rows: tuple[str, ...] = ()
    """Values in `data.label_names` that no row has."""
    split_totals: Mapping[SplitName, int] = field(default_factory=dict)
    """Rows of each split before `data.fraction` was applied."""
    _store: "_RowStore" = field(repr=False, kw_only=True)

    def __len__(self) -> int:
        return len(self._store.lines)

    @property
    def groups(self) -> Ints:
        """The group number of each row's text, equal for texts that are the same after normalisation."""
        return self._store.groups

    @property
    def targets(self) -> NDArray[Any]:
        """The targets of all rows."""
        return self._store.targets

    @property
    def split_fingerprint(self) -> str:
        """A hash that changes if a row moves to another split."""
        total = hashlib.sha256()
        for name in SPLITS:
            rows = self.splits[name].rows
            total.update(f"{name} {len(rows)} ".encode() + np.ascontiguousarray(rows, dtype=np.int64).tobytes())
        return total.hexdigest()

    def texts(self, rows: Ints) -> Texts:
        """Return the texts of these rows."""
        return Texts(self._store.columns, rows)

    def select(self, *names: SplitName) -> Split:
        """Return the rows of several splits as one, in file order; an empty split if none are named."""
        rows = np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *(self.splits[name].rows for name in names)]))
        return Split(self.texts(rows), self.targets[rows], rows)

    def place(self, row: int) -> tuple[str, int]:
        """Return the file and the line of one row."""
        source = int(np.searchsorted(self._store.source_ends, row, side="right"))
        return self.sources[source].name, int(self._store.lines[row])

    def example(self, row: int) -> Example:
        """Return one row with its labels, file and line."""
        return Example(self.texts(np.array([row]))[0], self.label_names(row), *self.place(row))

    def label_names(self, row: int) -> tuple[str, ...]:
        """Return the labels of one row."""
        target = self._store.targets[row]
        if self.task == "single":
            return (self.labels[int(target)],)
        return tuple(self.labels[i] for i in np.flatnonzero(target))


@dataclass(frozen=True)
class _RowStore:
    """All rows, by column."""

    columns: tuple[ColumnFile, ...]
    targets: NDArray[Any]
    groups: Ints
    lines: NDArray[np.int32]
    source_ends: Ints


def normalise_text(text: str) -> str:
    """Return a text with case, character width and white space normalised."""
    if text.isascii() and text.isprintable() and "  " not in text and text == text.strip(" "):
        return text.lower()  # a shortcut, three times faster, for most texts
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.casefold().split())


def layout_of(data: Data) -> Layout:
    """Return the spec's settings for reading files; a column name other than column_N implies a header."""
    named = [name for name in (*data.text_columns, *data.label_columns, data.split) if name]
    has_names = any(not re.fullmatch(r"column_\d+", name) for name in named)
    header = True if data.header == "auto" and has_names else data.header
    return Layout(format=data.format, separator=data.separator, header=header, encoding=data.encoding)


def sources_of(data: Data, split: SplitName) -> list[Source]:
    """Inspect the files given for a split."""
    return [inspect(address, layout_of(data)) for address in inputs.expand_globs(data.list_addresses(split))]


def missing_columns(data: Data, source: Source, split: SplitName) -> list[str]:
    """Return a problem for each column that the spec names and this file lacks."""
    named = {"text": data.text_columns, "labels": data.label_columns, "slices": data.slices}
    if data.split and split == "train":
        named["split"] = (data.split,)
    return [
        f'data.{key}: {source.name} has no column "{column}"; it has: {", ".join(source.columns)}'
        for key, columns in named.items()
        for column in columns
        if column not in source.columns
    ]


def load(data: Data, *, every_label_named: bool = True) -> Dataset:
    """Read, check and split the data of a spec; `every_label_named` refuses labels missing from its `label_names`."""
    builder = _read_sources(data, () if data.unlabelled == "auto" else data.unlabelled)
    is_plain = isinstance(data.labels, str) and not data.label_separator
    # Whether "-" is a label can be told only from all other labels; the few files that have it are read a second time.
    if data.unlabelled == "auto" and is_plain and (unlabelled := unlabelled_among(builder.label_values)):
        builder = _read_sources(data, unlabelled)
    if every_label_named:
        builder.require_label_names()
    return builder.build_dataset()


def _read_sources(data: Data, unlabelled: Sequence[str]) -> "_DatasetBuilder":
    builder = _DatasetBuilder(data, unlabelled)
    with _pause_garbage_collection():
        for split in SPLITS:
            for source in sources_of(data, split):
                builder.read(source, split)
    return builder


def unlabelled_among(labels: Iterable[str]) -> tuple[str, ...]:
    """Return which of these labels mean "no label": "-" among words, -1 beside 0, 1, 2 and so on.

    Beside "+", or with one other label only, "-" is a label; so is -1 beside 0 and 1, as in sentiment data.

    """
    distinct = set(labels)
    others = distinct - {NO_AGREEMENT, HIDDEN}
    unlabelled = []
    if NO_AGREEMENT in distinct and len(others) >= 2 and "+" not in others:
        unlabelled.append(NO_AGREEMENT)
    if HIDDEN in distinct and len(others) >= 3 and others == set(map(str, range(len(others)))):
        unlabelled.append(HIDDEN)
    return tuple(unlabelled)


@contextmanager
def _pause_garbage_collection() -> Iterator[None]:
    """Disable garbage collection: rows have no reference cycles, and looking for some takes a quarter of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _DatasetBuilder:
    """Builds the columns of a dataset while its files are read, batch by batch."""

    def __init__(self, data: Data, unlabelled: Sequence[str] = ()) -> None:
        self.data = data
        self.unlabelled = {value: ValueRows() for value in unlabelled}
        self.split_meanings = data.split_values
        self.split_words: dict[str, tuple[str, ValueRows]] = {}
        self.bad = BadRows(data.bad_rows)
        self.label_set = _create_label_set(data)
        self.sources: list[Source] = []
        self.source_ends: list[int] = []
        self.texts = tuple(ColumnFile() for _ in data.text_columns)
        self.hashes: list[Ints] = []
        self.lines: list[NDArray[np.int32]] = []
        self.given_splits: list[NDArray[np.int8]] = []
        self.slices: dict[str, dict[str, int]] = {name: {} for name in data.slices}
        self.slice_numbers: dict[str, list[Ints]] = {name: [] for name in data.slices}
        self.rows = 0
        self.fingerprint = _Fingerprint(len(data.text_columns))

    def read(self, source: Source, split: SplitName) -> None:
        """Read one file."""
        if problems := missing_columns(self.data, source, split):
            raise DataError("\n".join(problems))
        for batch in read_batches(source, bad=self.bad):
            self._add_batch(source, batch, split)
        self.sources.append(source)
        self.source_ends.append(self.rows)

    def _add_batch(self, source: Source, batch: Batch, split: SplitName) -> None:
        given_splits, wrong_split = self._find_given_splits(source, batch, split)
        wrong_labels = self.label_set.find_problems([batch.columns[name] for name in self.data.label_columns])
        wrong = wrong_split | wrong_labels
        for index in sorted(wrong):
            if (
                self.data.bad_rows == "skip" or index not in wrong_split
            ):  # otherwise reported once for each value, at the end
                self.bad.add(source.name, batch.lines[index], wrong[index])
        excluded = {
            *wrong,
            *np.flatnonzero(given_splits == LEFT_OUT).tolist(),
            *self._find_rows_to_leave_out(source, batch),
        }
        kept = [i for i in range(len(batch.lines)) if i not in excluded] if excluded else None
        lines = np.array(_take_cells(batch.lines, kept), dtype=np.int32)
        if not len(lines):
            return
        texts = [_join_cells(_take_cells(batch.columns[name], kept)) for name in self.data.text_columns]
        self.label_set.add([_take_cells(batch.columns[name], kept) for name in self.data.label_columns])
        for name, numbers in self.slices.items():
            cells = _join_cells(_take_cells(batch.columns[name], kept))
            self.slice_numbers[name].append(np.array([numbers.setdefault(cell, len(numbers)) for cell in cells]))
        arrays = [build_array(column) for column in texts]
        for column, array in zip(self.texts, arrays, strict=True):
            column.append(array)
        keys = zip(*(map(normalise_text, column) for column in texts), strict=True)
        self.hashes.append(np.fromiter(map(hash, keys), np.int64, len(lines)))
        self.lines.append(lines)
        self.given_splits.append(given_splits if kept is None else given_splits[kept])
        self.rows += len(lines)
        self.fingerprint.add(arrays, self.given_splits[-1])

    @property
    def label_values(self) -> tuple[str, ...]:
        """The labels as the label column has them."""
        return self.label_set.values()

    def _find_rows_to_leave_out(self, source: Source, batch: Batch) -> Iterator[int]:
        """Yield the rows whose label means that there is none."""
        if not self.unlabelled or len(self.data.label_columns) != 1:
            return
        for index, cell in enumerate(batch.columns[self.data.label_columns[0]]):
            value = cell[0] if isinstance(cell, tuple) and len(cell) == 1 else cell
            if isinstance(value, str) and (rows := self.unlabelled.get(value.strip())) is not None:
                rows.add(source.name, batch.lines[index])
                yield index

    def _find_given_splits(
        self, source: Source, batch: Batch, split: SplitName
    ) -> tuple[NDArray[np.int8], dict[int, str]]:
        """Return each row's given split, `LEFT_OUT` if the spec says so, and the rows whose split is unknown."""
        column = self.data.split or (source.split_column if split == "train" else "")
        given_splits = np.full(len(batch.lines), SPLITS.index(split), dtype=np.int8)
        wrong: dict[int, str] = {}
        if column and split == "train":
            for index, cell in enumerate(batch.columns[column]):
                value = str(cell or "").strip()
                if value not in self.split_words:
                    self.split_words[value] = split_of(value, self.split_meanings), ValueRows()
                word, rows = self.split_words[value]
                rows.add(source.name, batch.lines[index])
                if not word:
                    wrong[index] = f'{column} is "{value}"; it may be train, validation or test'
                given_splits[index] = SPLITS.index(word) if word in SPLITS else LEFT_OUT
        return given_splits, wrong

    def _require_known_splits(self) -> None:
        """Raise DataError if the split column has values of unknown meaning."""
        unknown = {value: rows for value, (word, rows) in self.split_words.items() if not word}
        if not unknown or self.data.bad_rows == "skip":
            return
        listed = "\n".join(
            f'  "{value}" in {rows}' for value, rows in sorted(unknown.items(), key=lambda item: -item[1].count)
        )
        meant = ", ".join(f'{json.dumps(value, ensure_ascii=False)} = "test"' for value in list(unknown)[:SHOWN_PLACES])
        column = self.data.split or next(source.split_column for source in self.sources if source.split_column)
        raise DataError(
            f'the column "{column}" says more than train, validation and test:\n{listed}',
            hint=f"say what it means, or none to leave such rows out: data.split_values = {{ {meant} }}",
        )

    def build_dataset(self) -> Dataset:
        """Return the dataset, with its rows assigned to splits."""
        self.bad.raise_if_bad()
        self._require_known_splits()
        names = ", ".join(source.name for source in self.sources)
        if not self.rows:
            raise DataError(f"{names}: no usable row")
        task, labels, targets = self.label_set.finish()
        none_label = self.data.none_label if task == "multi" else ""
        contradicted = _remove_contradictions(targets, labels, none_label)
        groups = group_ids(np.concatenate(self.hashes))
        store = _RowStore(
            columns=self.texts,
            targets=targets,
            groups=groups,
            lines=np.concatenate(self.lines),
            source_ends=np.array(self.source_ends),
        )
        given_splits = np.concatenate(self.given_splits)
        self._require_given_rows(given_splits)
        split_rows, leaked, totals = _split_rows(self.data, given_splits, groups, targets)
        splits = {name: Split(Texts(store.columns, rows), targets[rows], rows) for name, rows in split_rows.items()}
        return Dataset(
            task=task,
            labels=labels,
            pair=len(self.texts) == 2,
            splits=splits,
            leaked=leaked,
            fingerprint=self.fingerprint.finish(task, labels, targets),
            sources=tuple(self.sources),
            bad_rows=tuple(self.bad.rows),
            _store=store,
            split_totals=totals,
            unlabelled={value: rows for value, rows in self.unlabelled.items() if rows.count},
            split_words=self.split_words,
            names_without_rows=self._find_names_without_rows(),
            none_label=none_label,
            contradicted=contradicted,
            columns={
                name: ColumnValues(tuple(seen), np.concatenate(self.slice_numbers[name]))
                for name, seen in self.slices.items()
            },
        )

    def _require_given_rows(self, given_splits: NDArray[np.int8]) -> None:
        """Raise DataError if a split's files have no row: a share of train would take their place unnoticed."""
        for name in SPLITS[1:]:
            addresses = self.data.list_addresses(name)
            if addresses and not (given_splits == SPLITS.index(name)).any():
                hidden = [value for value, rows in self.unlabelled.items() if rows.count]
                why = f' with a label other than "{hidden[0]}", which means none' if hidden else ""
                hint = f"give it rows{' with labels' if hidden else ''}, or leave out data.{name}"
                raise DataError(f"data.{name}: {', '.join(addresses)} has no row{why}", hint=hint)

    def _find_names_without_rows(self) -> tuple[str, ...]:
        """Return the values in `label_names` that no row has, neither as the value nor as its name."""
        values = set(self.label_values)
        return tuple(
            value for value, name in self.data.names_by_value.items() if value not in values and name not in values
        )

    def require_label_names(self) -> None:
        """Raise SpecError if some labels have names and others have none."""
        names = self.data.names_by_value
        if not names or not isinstance(self.data.labels, str):
            return
        unnamed = [v for v in sorted(self.label_values, key=_natural_key) if v not in names and v not in names.values()]
        if not unnamed:
            return
        listed = ", ".join(map(json.dumps, unnamed[:SHOWN_PLACES])) + (", ..." if len(unnamed) > SHOWN_PLACES else "")
        problem = f"data.label_names: no name for the label{'s' * (len(unnamed) > 1)} {listed} of the data"
        if missing := self._find_names_without_rows():
            problem += f"; no row has {', '.join(map(json.dumps, missing))}"
        form = f'data.label_names = {{ {json.dumps(unnamed[0])} = "NAME", ... }}'
        raise SpecError(problem, hint=f"name every label, each by what the data says: {form}", problems=[problem])


def split_of(value: str, meanings: Mapping[str, str]) -> str:
    """Return the split that a word stands for, by the spec or else by convention; "" if it is unknown."""
    word = value.lower()
    split: str = meanings.get(value, meanings.get(word, SPLIT_WORDS.get(word, "")))
    return split


def _take_cells(cells: Sequence[Any], kept: list[int] | None) -> Sequence[Any]:
    """Return the cells at these positions; None means all."""
    return cells if kept is None else [cells[i] for i in kept]


def _join_cells(cells: Sequence[Cell]) -> list[str]:
    """Return the texts of a column; a list of texts is joined, a missing one is empty."""
    return [cell if isinstance(cell, str) else " ".join(cell or ()) for cell in cells]


def _split_rows(
    data: Data, given: NDArray[np.int8], groups: Ints, targets: NDArray[Any]
) -> tuple[dict[SplitName, Ints], Ints, dict[SplitName, int]]:
    """Return the rows of each split, in file order; the rows left out for data leakage; and each split's size before
    a fraction was taken."""
    validation, test = (given == SPLITS.index(name) for name in ("validation", "test"))
    leaked = ~test & np.isin(groups, groups[test])
    leaked |= ~(validation | test) & np.isin(groups, groups[validation])
    split = np.where(leaked, LEFT_OUT, given)
    random = np.random.default_rng(data.seed)
    shares = (0 if validation.any() else data.validation_share, 0 if test.any() else data.test_share)
    pool = np.flatnonzero(split == SPLITS.index("train"))
    if any(shares) and targets.ndim == 2 and not targets.shape[1]:  # enough for evaluation, not for training
        raise DataError("no row has a label; there is nothing to learn", hint="is data.labels the right column?")
    split[pool] = stratified_split(groups[pool], targets[pool], shares=shares, random=random)
    totals = {name: int((split == number).sum()) for number, name in enumerate(SPLITS)}
    # Training rows are drawn first, so that the choice does not depend on the other splits.
    for fraction, names in ((data.fraction, SPLITS), (data.learning_fraction, SPLITS[:2])):
        for name in names if fraction < 1 else ():
            pool = np.flatnonzero(split == SPLITS.index(name))
            dropped = (
                stratified_split(groups[pool], targets[pool], shares=(1 - fraction,), random=random, cover=False) > 0
            )
            split[pool[dropped]] = LEFT_OUT
    rows = {name: np.flatnonzero(split == number) for number, name in enumerate(SPLITS)}
    return rows, np.flatnonzero(leaked), totals


class _Fingerprint:
    """A hash of all content, updated batch by batch and independent of how the batches are cut."""

    def __init__(self, columns: int) -> None:
        self._texts = [(hashlib.sha256(), hashlib.sha256()) for _ in range(columns)]
        self._given = hashlib.sha256()

    def add(self, texts: Sequence[pa.Array], given: NDArray[np.int8]) -> None:
        """Add rows: the bytes of their texts, the length of each, and their given splits."""
        self._given.update(given.tobytes())
        for (content_hash, length_hash), array in zip(self._texts, texts, strict=True):
            _, offsets, content = array.buffers()
            content_hash.update(content or b"")
            length_hash.update(np.diff(np.frombuffer(offsets, dtype=np.int64)).tobytes())

    def finish(self, task: Task, labels: Sequence[str], targets: NDArray[Any]) -> str:
        """Return the fingerprint of the dataset."""
        total = hashlib.sha256(repr((task, *labels)).encode())
        for part in (self._given, *(part for pair in self._texts for part in pair)):
            total.update(part.digest())
        total.update(np.ascontiguousarray(targets).tobytes())
        return total.hexdigest()


class _LabelSet(Protocol):
    """Labels while rows are read: problems in cells, the labels seen, and finally the targets."""

    def find_problems(self, columns: Sequence[Sequence[Cell]]) -> dict[int, str]: ...
    def add(self, columns: Sequence[Sequence[Cell]]) -> None: ...
    def values(self) -> tuple[str, ...]: ...
    def finish(self) -> tuple[Task, tuple[str, ...], NDArray[Any]]: ...


class _OneHotLabels:
    """Labels with one 0/1 column each."""

    def __init__(self, names: tuple[str, ...], none_label: str, new_names: Mapping[str, str]) -> None:
        self._names = names
        self._new_names = new_names
        self._none_label = none_label
        self._parts: list[NDArray[np.bool_]] = []

    def find_problems(self, columns: Sequence[Sequence[Cell]]) -> dict[int, str]:
        """Return the rows with cells other than 0, 1, true or false."""
        problems: dict[int, str] = {}
        for name, column in zip(self._names, columns, strict=True):
            if not set(column) <= ONE_HOT.keys():
                for index, cell in enumerate(column):
                    if _one_hot_key(cell) not in ONE_HOT:
                        problems.setdefault(index, f'{name} is "{cell or ""}"; it may be 0, 1, true or false')
        return problems

    def add(self, columns: Sequence[Sequence[Cell]]) -> None:
        """Add rows without problems."""
        hot = [[ONE_HOT[_one_hot_key(cell)] for cell in column] for column in columns]
        self._parts.append(np.array(hot, dtype=bool).T)

    def values(self) -> tuple[str, ...]:
        """Return the columns."""
        return self._names

    def finish(self) -> tuple[Task, tuple[str, ...], NDArray[Any]]:
        """Return the task, the columns in the order given, followed by the label for none, and the targets."""
        names = tuple(self._new_names.get(name, name) for name in self._names)
        return "multi", *_with_none_label(names, np.concatenate(self._parts), self._none_label)


class _NamedLabels:
    """Labels in one column: one per row, or several as a list or between separators."""

    def __init__(self, separator: str, none_label: str, new_names: Mapping[str, str]) -> None:
        self._separator = separator
        self._new_names = new_names
        self._none_label = none_label
        self._codes: dict[str, int] = {}
        self._flat: list[NDArray[np.int32]] = []
        self._counts: list[NDArray[np.int32]] = []

    def find_problems(self, columns: Sequence[Sequence[Cell]]) -> dict[int, str]:
        """Return the rows that lack a required label, or whose cells are lists or not, contrary to the spec."""
        wrong = {cell: problem for cell in set(columns[0]) if (problem := self._check_cell(cell))}
        return {index: wrong[cell] for index, cell in enumerate(columns[0]) if cell in wrong} if wrong else {}

    def _check_cell(self, cell: Cell) -> str:
        """Return the problem with one cell; "" if there is none."""
        if cell is None or (isinstance(cell, str) and not cell.strip()):
            return "" if self._separator or self._none_label else "no label"
        if not isinstance(cell, str):
            return ""
        if self._separator == LIST_SEPARATOR:
            is_list = parse_list(cell) is not None
            return "" if is_list else f"the labels are {_shorten_cell(cell)}, which is no list of names"
        if re.match(r"""\s*\[\s*['"]""", cell) and parse_list(cell):
            return f'the labels are a list, {_shorten_cell(cell)}; data.label_separator = "{LIST_SEPARATOR}" reads it'
        return ""

    def add(self, columns: Sequence[Sequence[Cell]]) -> None:
        """Add rows without problems; labels are numbered as they appear."""
        numbers = {cell: self._number_labels(cell) for cell in dict.fromkeys(columns[0])}
        rows = [numbers[cell] for cell in columns[0]]
        self._flat.append(np.fromiter(chain.from_iterable(rows), np.int32))
        self._counts.append(np.fromiter(map(len, rows), np.int32, len(rows)))

    def _number_labels(self, cell: Cell) -> tuple[int, ...]:
        return tuple(self._codes.setdefault(name, len(self._codes)) for name in self._parse_names(cell))

    def _parse_names(self, cell: Cell) -> tuple[str, ...]:
        if isinstance(cell, str) and self._separator == LIST_SEPARATOR:
            cell = parse_list(cell)
        elif isinstance(cell, str):
            cell = tuple(cell.split(self._separator)) if self._separator else (cell,)
        return tuple(dict.fromkeys(name for part in cell or () if (name := part.strip())))

    def values(self) -> tuple[str, ...]:
        """Return the labels as the column has them."""
        return tuple(self._codes)

    def finish(self) -> tuple[Task, tuple[str, ...], NDArray[Any]]:
        """Return the task, the label names in the natural order of the column's values, and the targets."""
        values = sorted(self._codes, key=_natural_key)
        numbers: dict[str, int] = {}
        position = np.empty(len(values), dtype=np.int32)
        for value in values:
            position[self._codes[value]] = numbers.setdefault(self._new_names.get(value, value), len(numbers))
        names = tuple(numbers)
        flat, counts = position[np.concatenate(self._flat)], np.concatenate(self._counts)
        if not self._separator and not self._none_label and (counts == 1).all():
            return "single", names, flat
        if len(names) * len(counts) > MOST_MULTI_CELLS:
            hint = "is data.labels the right column, and data.label_separator right?"
            raise DataError(f"{len(names):,} different labels are too many for task multi", hint=hint)
        hot = np.zeros((len(counts), len(names)), dtype=bool)
        hot[np.repeat(np.arange(len(counts)), counts), flat] = True
        return "multi", *_with_none_label(names, hot, self._none_label)


def _create_label_set(data: Data) -> _LabelSet:
    if isinstance(data.labels, str):
        return _NamedLabels(data.label_separator, data.none_label, data.names_by_value)
    return _OneHotLabels(data.labels, data.none_label, data.names_by_value)


def _shorten_cell(cell: str) -> str:
    return cell if len(cell) <= SHOWN_CHARACTERS else f"{cell[:SHOWN_CHARACTERS]}..."


def _one_hot_key(cell: Cell) -> str:
    return cell.strip().lower() if isinstance(cell, str) else ""


def _with_none_label(
    names: tuple[str, ...], hot: NDArray[np.bool_], none_label: str
) -> tuple[tuple[str, ...], NDArray[np.bool_]]:
    """Add a label for the rows that have none, if there is a name for it."""
    if not none_label:
        return names, hot
    is_unlabelled = ~hot.any(axis=1)
    if none_label in names:
        hot[:, names.index(none_label)] |= is_unlabelled
        return names, hot
    return (*names, none_label), np.column_stack([hot, is_unlabelled])


def _remove_contradictions(targets: NDArray[Any], labels: tuple[str, ...], none_label: str) -> Ints:
    """Remove the label for none from rows that have another one too, and return those rows."""
    if not none_label:
        return np.zeros(0, dtype=np.int64)
    none = labels.index(none_label)
    rows = np.flatnonzero(targets[:, none] & np.delete(targets, none, axis=1).any(axis=1))
    targets[rows, none] = False
    return rows


def _natural_key(name: str) -> tuple[int, float, str]:
    """Return a sort key: numbers by size and before words, words alphabetically."""
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    return (0, number, name) if math.isfinite(number) else (1, 0.0, name)
