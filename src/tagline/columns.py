"""From what the user typed to a complete spec: which columns hold the text and the labels, guessed with reasons."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tagline import dataset
from tagline import spec as specs
from tagline.dataset import ONE_HOT, SPLIT_WORDS, SPLITS, layout_of, sources_of
from tagline.errors import DataError, SpecError
from tagline.readers import BadRows, Cell, Source, batches, inspect, sampled
from tagline.spec import Data, Spec
from tagline.storage import expand, fetched

SAMPLE_ROWS = 2000
PAIRS = (
    ("text_a", "text_b"), ("premise", "hypothesis"), ("sentence1", "sentence2"), ("sentence_1", "sentence_2"),
    ("question1", "question2"), ("question", "answer"), ("question", "sentence"), ("query", "passage"),
    ("text", "text_pair"), ("text1", "text2"),
)  # fmt: skip
TEXT_WORDS = ("text", "message", "review", "sentence", "comment", "document", "body", "content", "description", "tweet",
              "utterance", "title", "question", "query")  # fmt: skip
LABEL_WORDS = ("label", "labels", "category", "categories", "class", "target", "topic", "topics", "sentiment", "intent",
               "emotion", "tag", "tags", "verdict", "rating", "stars", "score")  # fmt: skip
SPLIT_NAMES = ("split", "usage", "ml_use", "fold", "partition", "set", "subset")
NEVER_GUESSED = frozenset((
    "id", "ids", "uuid", "guid", "index", "number", "count", "num", "date", "time", "datetime", "timestamp", "created",
    "updated", "received", "year", "month", "day", "url", "price", "amount", "length",
))  # fmt: skip
DATE = re.compile(r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}|\d{1,2}:\d{2}).{0,20}")
SEPARATORS = ("|", ";", ",", "/")
LONGEST_LABEL = 60


@dataclass(frozen=True)
class Resolved:
    """A complete spec, and what was guessed to complete it."""

    spec: Spec
    guesses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Column:
    """What the first rows say about a column."""

    name: str
    values: tuple[str, ...]

    @property
    def distinct(self) -> set[str]:
        """Its different values."""
        return set(self.values)

    @property
    def mean_length(self) -> float:
        """Characters, on average."""
        return sum(map(len, self.values)) / max(1, len(self.values))

    @property
    def is_one_hot(self) -> bool:
        """Whether it holds nothing but 0/1 or true/false."""
        return {value.strip().lower() for value in self.distinct} <= ONE_HOT.keys()

    @property
    def is_numeric(self) -> bool:
        """Whether it holds nothing but numbers."""
        return all(re.fullmatch(r"[-+]?\d+(\.\d+)?", value.strip()) for value in self.distinct)

    @property
    def repeats(self) -> bool:
        """Whether its values are short and come back, as labels do and ids and texts do not."""
        few = 1 <= len(self.distinct) <= max(2, len(self.values) // 2)
        return few and max(map(len, self.distinct)) <= LONGEST_LABEL

    @property
    def could_be_labels(self) -> bool:
        """Whether its name and values would do for labels: no date, no id, no measure."""
        return self.repeats and len(self.distinct) >= 2 and not self.is_beside_the_point

    @property
    def is_beside_the_point(self) -> bool:
        """Whether it is an id, a date or a measure, by its name or its values."""
        if NEVER_GUESSED & set(_words(self.name)):
            return True
        return all(DATE.fullmatch(value.strip()) or re.fullmatch(r"[-+]?\d*\.\d+", value) for value in self.distinct)


def resolve(source: str, overrides: Sequence[str] = ()) -> Resolved:
    """The spec in a TOML file, or one for a data file; every problem of either at once."""
    if source.endswith(".toml") or Path(source).name == "tagline.toml":
        return complete(specs.read(fetched(source), overrides), where=source)
    return complete(specs.override({"data": {"train": source}}, overrides), where=f"the spec for {source}")


def complete(raw: Mapping[str, Any], *, where: str) -> Resolved:
    """Check raw tables together with the columns of the data they name, guessing columns that are not named."""
    spec, problems = specs.examine(raw)
    data = spec.data if spec else specs.check_section("data", raw, [])
    guesses: list[str] = []
    if data is not None:
        try:
            guessed, guesses = guess(data)
            problems += missing_columns(data.model_copy(update=guessed))
            raw = {**raw, "data": {**raw["data"], **guessed}}
        except (DataError, SpecError) as error:
            if not problems:
                raise
            problems.append(f"data: {error.message}")
    if problems:
        raise SpecError.listing(where, problems)
    return Resolved(specs.parse(raw, where=where), tuple(guesses))


def missing_columns(data: Data) -> list[str]:
    """Columns that the spec names and a file lacks."""
    return [
        problem
        for split in SPLITS
        for source in sources_of(data, split)
        for problem in dataset.missing_columns(data, source, split)
    ]


def guess(data: Data) -> tuple[dict[str, Any], list[str]]:
    """The settings of `[data]` that the user left open, and why each was guessed so."""
    if data.text and data.labels:
        return {}, []
    source = inspect(expand(data.addresses("train"))[0], layout_of(data))
    columns = columns_of(source)
    guessed: dict[str, Any] = {}
    reasons: list[str] = []
    if not data.text:
        guessed["text"], why = _guess_text(source, columns, taken=(*data.label_columns, data.split))
        reasons.append(_said("text", guessed["text"], why))
    text = guessed.get("text", data.text)
    taken = {data.split, *data.label_columns, *((text,) if isinstance(text, str) else text)}
    free = [column for column in columns if column.name not in taken and column.values]
    split = next((column for column in free if _is_split(column)), None)
    if split and not data.split and not source.split_column:
        guessed["split"] = split.name
        reasons.append(_said("split", split.name, f"its values are {', '.join(sorted(split.distinct))}"))
        free.remove(split)
    if not data.labels:
        guessed |= _guess_labels(source, free, data, reasons)
    return guessed, reasons


def columns_of(source: Source) -> list[Column]:
    """Each column with its values in the first rows; a list's items count one by one."""
    batch = sampled(source, SAMPLE_ROWS)
    if not batch.lines:
        raise _rowless(source)
    return [
        Column(name, tuple(value for cell in batch.columns[name] for value in _values(cell) if value))
        for name in source.columns
    ]


def _rowless(source: Source) -> DataError:
    """Why there is nothing to look at: every row is bad, or there is none."""
    bad = BadRows()
    for _ in batches(source, bad=bad):
        pass
    bad.settle()
    return DataError(f"{source.name} has a header and no rows" if source.header else f"{source.name} has no rows")


def _values(cell: Cell) -> tuple[str, ...]:
    return cell if isinstance(cell, tuple) else (cell or "",)


def text_column(source: Source, columns: list[Column]) -> str:
    """The column of a file without labels that holds its texts."""
    guessed, _ = _guess_text(source, columns, taken=())
    return guessed if isinstance(guessed, str) else guessed[0]


def _guess_text(source: Source, columns: list[Column], *, taken: Sequence[str]) -> tuple[str | tuple[str, ...], str]:
    free = [column for column in columns if column.name not in taken and column.values]
    by_name = {column.name.lower(): column for column in free}
    for first, second in PAIRS:
        if first in by_name and second in by_name:
            return (by_name[first].name, by_name[second].name), "the names of a pair"
    for word in TEXT_WORDS:
        if word in by_name and not by_name[word].is_numeric:
            return by_name[word].name, "its name"
    words = [column for column in free if not column.is_numeric]
    texts = [column for column in words if not column.is_beside_the_point]
    longest = max(texts or words, key=lambda column: column.mean_length, default=None)
    if longest is None or longest.mean_length < 3:
        raise _undecided("text", source)
    return longest.name, f"the longest texts, {longest.mean_length:.0f} characters on average"


def _guess_labels(source: Source, columns: list[Column], data: Data, reasons: list[str]) -> dict[str, Any]:
    """The labels among the columns that are neither text nor split, and with them a separator."""
    exact = (column for word in LABEL_WORDS for column in columns if column.name.lower() == word)
    named = next((column for column in exact if column.repeats or not column.is_numeric), None)
    one_hot = [column for column in columns if column.is_one_hot]
    if len(one_hot) >= 2 and not named:
        names = tuple(column.name for column in one_hot)
        reasons.append(_said("labels", names, f"{len(one_hot)} columns of 0 and 1: task multi"))
        return {"labels": names}
    if chosen := named or _named_alike(columns):
        why = "its name"
    else:
        chosen, why = _by_values(source, columns), "few and short values"
    guessed = {"labels": chosen.name}
    separator = "" if data.label_separator or source.format == "automl" else _label_separator(chosen)
    between = data.label_separator or separator
    parts = {part.strip() for value in chosen.distinct for part in (value.split(between) if between else (value,))}
    found = f"{len(parts)} label{'s' * (len(parts) != 1)} in the first rows"
    reasons.append(_said("labels", chosen.name, f"{why}; {found}"))
    if separator:
        guessed["label_separator"] = separator
        reasons.append(_said("label_separator", separator, "several labels in one cell: task multi"))
    return guessed


def _named_alike(columns: Sequence[Column]) -> Column | None:
    """A column with a word in its name that labels have, and with values that would do."""
    alike = (column for word in LABEL_WORDS for column in columns if word in _words(column.name))
    return next((column for column in alike if column.could_be_labels), None)


def _by_values(source: Source, columns: Sequence[Column]) -> Column:
    """The one column with few, short values that come back; words before numbers."""
    candidates = [column for column in columns if column.could_be_labels]
    candidates = [column for column in candidates if not column.is_numeric] or candidates
    if len(candidates) != 1:
        raise _undecided("labels", source, candidates)
    return candidates[0]


def _words(name: str) -> list[str]:
    """`predictedCategory`, `predicted_category` and `Predicted Category` as words."""
    return re.split(r"[\W_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


def _is_split(column: Column) -> bool:
    words = {value.strip().lower() for value in column.distinct}
    return column.name.lower() in SPLIT_NAMES and bool(words) and words <= SPLIT_WORDS.keys()


def _label_separator(column: Column) -> str:
    """The separator that turns many combinations into few labels, of which some cells have more than others."""
    for separator in SEPARATORS:
        joined = [value for value in column.values if separator in value]
        parts = {part.strip() for value in column.distinct for part in value.split(separator)}
        # Cells that all have as many parts are names in levels, such as billing/refund.
        uneven = len({value.count(separator) for value in column.distinct}) > 1
        if len(joined) >= 0.05 * len(column.values) and len(parts) < len(column.distinct) and uneven:
            return separator
    return ""


def _undecided(key: str, source: Source, candidates: Sequence[Column] = ()) -> SpecError:
    names = [column.name for column in candidates]
    could = f"it could be {' or '.join(names)}" if names else f"it has: {', '.join(source.columns)}"
    hint = f"say which: data.{key}={names[0] if names else 'COLUMN'}"
    return SpecError(f"cannot tell which column of {source.name} holds the {key}; {could}", hint=hint)


def _said(key: str, value: object, why: str) -> str:
    if isinstance(value, str):
        shown = f'"{value}"'
    else:
        names = [f'"{name}"' for name in value]  # type: ignore[attr-defined]
        shown = "[" + ", ".join(names if len(names) <= 4 else [*names[:2], "...", names[-1]]) + "]"
    return f"{key} = {shown}: {why}"
