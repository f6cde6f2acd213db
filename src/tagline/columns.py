"""From what the user typed to a complete spec: which columns hold the text and the labels, guessed with reasons."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tagline import spec as specs
from tagline.dataset import ONE_HOT, SPLIT_WORDS, SPLITS, layout_of, sources_of
from tagline.errors import DataError, SpecError
from tagline.readers import Source, inspect, sampled
from tagline.spec import Data, Spec
from tagline.storage import expand

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


def resolve(source: str, overrides: Sequence[str] = ()) -> Resolved:
    """The spec in a TOML file, or one for a data file; every problem of either at once."""
    if source.endswith(".toml") or Path(source).name == "tagline.toml":
        return complete(specs.read(Path(source), overrides), where=source)
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
    problems: list[str] = []
    for split in SPLITS:
        for source in sources_of(data, split):
            for key, columns in (("text", data.text_columns), ("labels", data.label_columns), ("split", (data.split,))):
                if key == "split" and (not data.split or split != "train"):
                    continue
                problems += [no_column(f"data.{key}", name, source) for name in columns if name not in source.columns]
    return list(dict.fromkeys(problems))


def no_column(key: str, name: str, source: Source) -> str:
    """The sentence for a column that is not there."""
    close = get_close_matches(name, source.columns, n=1)
    meant = f' (did you mean "{close[0]}"?)' if close else ""
    return f'{key}: {source.name} has no column "{name}"{meant}; it has: {", ".join(source.columns)}'


def guess(data: Data) -> tuple[dict[str, Any], list[str]]:
    """The settings of `[data]` that the user left open, and why each was guessed so."""
    if data.text and data.labels:
        return {}, []
    source = inspect(expand(data.addresses("train"))[0], layout_of(data))
    columns = columns_of(source)
    guessed: dict[str, Any] = {}
    reasons: list[str] = []
    if not data.text:
        guessed["text"], why = _guess_text(source, columns, taken=data.label_columns)
        reasons.append(_said("text", guessed["text"], why))
    text = guessed.get("text", data.text)
    if not data.labels:
        taken = (text,) if isinstance(text, str) else text
        guessed |= _guess_labels(source, [c for c in columns if c.name not in taken], data, reasons)
    return guessed, reasons


def columns_of(source: Source) -> list[Column]:
    """Each column with its values in the first rows."""
    batch = sampled(source, SAMPLE_ROWS)
    cells = {name: batch.columns[name] for name in source.columns}
    return [
        Column(name, tuple("|".join(cell) if isinstance(cell, tuple) else cell for cell in column if cell))
        for name, column in cells.items()
    ]


def _guess_text(source: Source, columns: list[Column], *, taken: Sequence[str]) -> tuple[str | tuple[str, ...], str]:
    free = [column for column in columns if column.name not in taken and column.values]
    by_name = {column.name.lower(): column for column in free}
    for first, second in PAIRS:
        if first in by_name and second in by_name:
            return (by_name[first].name, by_name[second].name), "the names of a pair"
    for word in TEXT_WORDS:
        if word in by_name and not by_name[word].is_numeric:
            return by_name[word].name, "its name"
    longest = max(free, key=lambda column: column.mean_length, default=None)
    if longest is None or longest.mean_length < 3:
        raise _undecided("text", source)
    return longest.name, f"the longest texts, {longest.mean_length:.0f} characters on average"


def _guess_labels(source: Source, columns: list[Column], data: Data, reasons: list[str]) -> dict[str, Any]:
    """The labels among the columns that are not text, and with them a separator and a split column."""
    guessed: dict[str, Any] = {}
    split = next((column for column in columns if _is_split(column)), None)
    if split and not data.split and not source.split_column:
        guessed["split"] = split.name
        reasons.append(_said("split", split.name, f"its values are {', '.join(sorted(split.distinct))}"))
        columns = [column for column in columns if column is not split]
    named = _by_name(columns)
    one_hot = [column for column in columns if column.values and column.is_one_hot]
    if len(one_hot) >= 2 and (named is None or named in one_hot):
        guessed["labels"] = tuple(column.name for column in one_hot)
        reasons.append(_said("labels", guessed["labels"], f"{len(one_hot)} columns of 0 and 1: task multi"))
        return guessed
    chosen = named or _by_values(columns)
    if chosen is None:
        raise _undecided("labels", source)
    guessed["labels"] = chosen.name
    separator = "" if data.label_separator or source.format == "automl" else _label_separator(chosen)
    parts = {part for value in chosen.distinct for part in (value.split(separator) if separator else (value,))}
    why = "its name" if chosen is named else "few and short values"
    reasons.append(_said("labels", chosen.name, f"{why}; {len(parts)} different ones in the first rows"))
    if separator:
        guessed["label_separator"] = separator
        reasons.append(_said("label_separator", separator, "several labels in one cell: task multi"))
    return guessed


def _by_name(columns: Sequence[Column]) -> Column | None:
    """A column whose whole name, or else a word of it, is one that labels have."""
    for word in LABEL_WORDS:
        for column in columns:
            if column.name.lower() == word and column.values:
                return column
    for word in LABEL_WORDS:
        for column in columns:
            if word in re.split(r"[\W_]+", column.name.lower()) and column.values and _could_be_labels(column):
                return column
    return None


def _by_values(columns: Sequence[Column]) -> Column | None:
    """The column with few, short values that are repeated; words before numbers, then fewer values."""
    candidates = [column for column in columns if column.values and _could_be_labels(column)]
    return min(candidates, key=lambda column: (column.is_numeric, len(column.distinct)), default=None)


def _could_be_labels(column: Column) -> bool:
    repeated = 2 <= len(column.distinct) <= max(2, len(column.values) // 2)
    return repeated and max(map(len, column.distinct)) <= LONGEST_LABEL


def _is_split(column: Column) -> bool:
    words = {value.strip().lower() for value in column.distinct}
    return column.name.lower() in SPLIT_NAMES and bool(words) and words <= SPLIT_WORDS.keys()


def _label_separator(column: Column) -> str:
    """The separator that turns many combinations into few labels."""
    for separator in SEPARATORS:
        joined = [value for value in column.values if separator in value]
        parts = {part.strip() for value in column.distinct for part in value.split(separator)}
        if len(joined) >= 0.05 * len(column.values) and len(parts) < len(column.distinct):
            return separator
    return ""


def _undecided(key: str, source: Source) -> SpecError:
    listed = ", ".join(source.columns)
    hint = f"say which: data.{key}=COLUMN"
    return SpecError(f"cannot tell which column of {source.name} holds the {key}; it has: {listed}", hint=hint)


def _said(key: str, value: object, why: str) -> str:
    if isinstance(value, str):
        shown = f'"{value}"'
    else:
        names = [f'"{name}"' for name in value]  # type: ignore[attr-defined]
        shown = "[" + ", ".join(names if len(names) <= 4 else [*names[:2], "...", names[-1]]) + "]"
    return f"{key} = {shown}: {why}"
