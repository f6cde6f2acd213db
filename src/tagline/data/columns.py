"""Completing a spec from what the user typed: guesses, with reasons, which columns hold the text and the labels."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from tagline import spec as specs
from tagline.data import dataset
from tagline.data.column_profiles import (
    DECIDED_WORDS,
    HEADINGS,
    LABEL_NUMBER_WORDS,
    LABEL_WORDS,
    LIST_SEPARATOR,
    MEASURE_WORDS,
    METADATA_WORDS,
    NOTED_WORDS,
    TEXT_WORDS,
    ColumnProfile,
    are_equivalent,
    split_name,
)
from tagline.data.dataset import SPLITS, layout_of, sources_of, split_of
from tagline.data.readers import BadRows, Batch, Cell, Source, inspect, read_batches, sample_source
from tagline.errors import DataError, SpecError
from tagline.spec import Data, Spec
from tagline.storage.addresses import fetch_copy
from tagline.storage.inputs import expand_globs

SPLIT_NAMES = ("split", "usage", "ml_use", "fold", "partition", "set", "subset")
COUNTERPARTS = frozenset((
    ("1", "2"), ("0", "1"), ("a", "b"), ("first", "second"), ("left", "right"), ("premise", "hypothesis"),
    ("question", "answer"), ("question", "sentence"), ("question", "passage"), ("question", "context"),
    ("query", "passage"), ("query", "document"), ("claim", "evidence"), ("context", "response"),
    ("context", "hypothesis"), ("passage", "hypothesis"), ("text", "hypothesis"),
))  # fmt: skip
"""Words that distinguish the column names of the two texts of a pair."""
CLEANED_WORDS = ("clean", "cleaned", "processed", "normalized", "normalised")
"""Words for the preferred one of two versions of a text."""
LEAST_LANGUAGE = 0.3
"""The least language score of a text column: one word in two cells."""
PAIR_SHARE = 0.25
"""The least language score of the second text of a pair, relative to the best column's."""
CLOSE_TEXTS = 0.75
MENTIONED_TEXTS = 0.45
"""Scores relative to the best text column's: close enough to ask the user; good enough to mention."""
CLEAR_LEAD = 1.0
MENTIONED_LEAD = 3.0
"""Points between the best and the next label column: with a lesser lead the user is asked; the next is mentioned."""
JUDGED_WORDS = ("confidence", "gold")
"""Suffixes of columns beside one that annotators filled: gender and gender:confidence."""
MANY_NUMBERS = 30
MOST_SPLIT_WORDS = 10


@dataclass(frozen=True)
class ResolvedSpec:
    """A complete spec, and what was guessed to complete it."""

    spec: Spec
    guesses: tuple[str, ...] = ()


@dataclass(frozen=True)
class LabelCandidate:
    """A column, or several 0/1 columns, that may hold the labels, with its score in points."""

    columns: tuple[ColumnProfile, ...]
    points: float
    why: str

    @property
    def value(self) -> str | tuple[str, ...]:
        """The value of `data.labels` that chooses this candidate."""
        return self.columns[0].name if len(self.columns) == 1 else tuple(column.name for column in self.columns)

    @property
    def display_name(self) -> str:
        """The name to show in a sentence."""
        first, last = self.columns[0].name, self.columns[-1].name
        return first if len(self.columns) == 1 else f"{first} ... {last} ({len(self.columns)} columns)"


def resolve(source: str, overrides: Sequence[str] = ()) -> ResolvedSpec:
    """Return the spec in a TOML file, or one for a data file; every problem of either is reported at once."""
    if source.endswith(".toml") or Path(source).name == "tagline.toml":
        return complete_spec(specs.read(fetch_copy(source), overrides), where=source)
    return complete_spec(specs.apply_overrides({"data": {"train": source}}, overrides), where=f"the spec for {source}")


def complete_spec(raw: Mapping[str, Any], *, where: str) -> ResolvedSpec:
    """Validate raw tables together with the columns of their data, guessing columns that are not named."""
    spec, problems = specs.try_parse(raw)
    data = spec.data if spec else specs.check_section("data", raw, [])
    guesses: list[str] = []
    if data is not None:
        try:
            guessed, guesses = guess_columns(data)
            problems += missing_columns(data.model_copy(update=guessed))
            raw = {**raw, "data": {**raw["data"], **guessed}}
        except (DataError, SpecError) as error:
            if not problems:
                raise
            problems.append(f"data: {error.message}")
    if problems:
        raise SpecError.from_problems(where, problems)
    return ResolvedSpec(specs.parse(raw, where=where), tuple(guesses))


def missing_columns(data: Data) -> list[str]:
    """Return a problem for each column that the spec names and a file lacks."""
    return [
        problem
        for split in SPLITS
        for source in sources_of(data, split)
        for problem in dataset.missing_columns(data, source, split)
    ]


def guess_columns(data: Data) -> tuple[dict[str, Any], list[str]]:
    """Return the settings of `[data]` that the user left open, and the reason for each guess."""
    if data.text and data.labels:
        return {}, []
    source = inspect(expand_globs(data.list_addresses("train"))[0], layout_of(data))
    batch = sample_rows(source)
    columns = profile_columns(source, batch)
    guessed: dict[str, Any] = {}
    reasons: list[str] = []
    if source.encoding.readings:
        other = source.encoding.readings[1][0]
        reasons.append(f"encoding: {source.name} {source.encoding.describe_readings()}: data.encoding={other}")
    if not data.text:
        guessed["text"], why = _guess_text(source, columns, taken=(*data.label_columns, data.split))
        reasons.append(_format_guess("text", guessed["text"], why))
    text = guessed.get("text", data.text)
    texts = (text,) if isinstance(text, str) else text
    taken = {data.split, *data.label_columns, *texts}
    free = [column for column in columns if column.name not in taken and column.values]
    split = next((column for column in free if _is_split(column, data)), None)
    if split and not data.split and not source.split_column:
        guessed["split"] = split.name
        reasons.append(_format_guess("split", split.name, f"its values are {', '.join(sorted(split.distinct))}"))
        free.remove(split)
    if not data.labels:
        guessed |= _guess_labels(source, batch, free, data, reasons, texts=texts)
    if not split and not data.split:
        chosen = guessed.get("labels", data.labels)
        reasons += [
            _format_guess("split", "", why)
            for column in free
            if column.name != chosen
            for why in _explain_unread_split(column)
        ]
    return guessed, reasons


def _explain_unread_split(column: ColumnProfile) -> Iterator[str]:
    """Yield why a column with the name of a split column is not used as one."""
    if column.name.lower() in SPLIT_NAMES and len(column.distinct) <= MOST_SPLIT_WORDS:
        words = ", ".join(sorted(column.distinct))
        yield f'the column "{column.name}" says {words}; data.split and data.split_values make splits of them'


def sample_rows(source: Source) -> Batch:
    """Return rows sampled from the whole file; raise an error if it has none."""
    batch = sample_source(source)
    if not batch.lines:
        raise _no_rows_error(source)
    return batch


def profile_columns(source: Source, batch: Batch) -> list[ColumnProfile]:
    """Return a profile of each column in these rows; the items of a list count one by one."""
    is_named = source.format not in ("csv", "tsv") or source.header
    profiles = []
    for name in source.columns:
        cells = [tuple(value for value in _list_values(cell) if value) for cell in batch.columns[name]]
        values = tuple(value for cell in cells for value in cell)
        profiles.append(
            ColumnProfile(name, values, rows=len(cells), filled_rows=sum(map(bool, cells)), is_named=is_named)
        )
    return profiles


def _no_rows_error(source: Source) -> DataError:
    """Return the error for a file without usable rows: every row is bad, or there is none."""
    bad = BadRows()
    for _ in read_batches(source, bad=bad):
        pass
    bad.raise_if_bad()
    return DataError(f"{source.name} has a header and no rows" if source.header else f"{source.name} has no rows")


def _list_values(cell: Cell) -> tuple[str, ...]:
    return cell if isinstance(cell, tuple) else (cell or "",)


def choose_text_column(source: Source) -> str:
    """Return the text column of a file without labels."""
    guessed, _ = _guess_text(source, profile_columns(source, sample_rows(source)), taken=())
    return guessed if isinstance(guessed, str) else guessed[0]


def _guess_text(
    source: Source, columns: list[ColumnProfile], *, taken: Sequence[str]
) -> tuple[str | tuple[str, ...], str]:
    free = [column for column in columns if column.name not in taken and column.values]
    ranked = sorted(free, key=_text_weight, reverse=True)
    if not ranked or _text_weight(ranked[0]) < LEAST_LANGUAGE:
        named = next((column for column in free if column.name.lower() in TEXT_WORDS), None)
        if named is None or named.is_numeric:
            raise _ambiguity_error("text", source)
        return named.name, "its name"
    best = ranked[0]
    if pair := _find_pair(ranked):
        first, second = pair
        why = f"a pair, by their names; for one text: data.text={first.name}"
        return (first.name, second.name), why
    others = [column for column in ranked[1:] if _text_weight(column) >= MENTIONED_TEXTS * _text_weight(best)]
    others = [column for column in others if not column.repeats]
    close = [column for column in others if _text_weight(column) >= CLOSE_TEXTS * _text_weight(best)]
    if versions := [column for column in close if _are_versions(best, column)]:
        best = next((each for each in (best, *versions) if set(each.words) & set(CLEANED_WORDS)), best)
        others = [column for column in ranked if column in (*others, ranked[0]) and column is not best]
        close = [column for column in close if column not in versions and column is not best]
    if close and not _is_text_name(best):
        raise _ambiguity_error("text", source, [best, *close])
    why = "its name" if _is_text_name(best) else f"the most language, {best.words_a_value:.0f} words in a value"
    return best.name, why + _mention_others([column.name for column in others], "text")


def _text_weight(column: ColumnProfile) -> float:
    """Return a column's language score, higher if its name suggests text, lower if it suggests otherwise."""
    if column.name.lower() in TEXT_WORDS:
        return (3.0 if column.name.lower() == "text" else 2.0) * column.language
    if column.head in TEXT_WORDS:
        return 1.5 * column.language
    words = set(column.words)
    if column.is_measure or words & METADATA_WORDS or column.name.lower() in LABEL_WORDS:
        return 0.4 * column.language
    if words & TEXT_WORDS:
        return 1.3 * column.language
    return column.language


def _is_text_name(column: ColumnProfile) -> bool:
    return column.head in TEXT_WORDS


def _are_versions(first: ColumnProfile, second: ColumnProfile) -> bool:
    """Return whether two columns hold mostly the same texts, such as before and after cleaning."""
    if len(first.values) != len(second.values):
        return False
    same = sum(one.split() == other.split() for one, other in zip(first.values, second.values, strict=True))
    return same > len(first.values) / 2


def _find_pair(ranked: Sequence[ColumnProfile]) -> tuple[ColumnProfile, ColumnProfile] | None:
    """Return two columns of language whose names are counterparts, such as question1 and question2."""
    least = max(LEAST_LANGUAGE, PAIR_SHARE * _text_weight(ranked[0]))
    texts = [column for column in ranked if _text_weight(column) >= least]
    for one, other in combinations(texts, 2):
        for first, second in ((one, other), (other, one)):
            if _are_counterparts(first.words, second.words) and not _is_series(first, second, texts):
                return first, second
    return None


def _is_series(first: ColumnProfile, second: ColumnProfile, texts: Sequence[ColumnProfile]) -> bool:
    """Return whether there is a third such text: choice1, choice2 and choice3 are no pair."""
    position = next((i for i, word in enumerate(first.words[: len(second.words)]) if word != second.words[i]), -1)
    if position < 0 or first.words[position] not in ("0", "1", "a", "first"):
        return False
    rest = (*first.words[:position], *first.words[position + 1 :])
    siblings = [column for column in texts if (*column.words[:position], *column.words[position + 1 :]) == rest]
    return any(len(column.words) == len(first.words) for column in siblings if column not in (first, second))


def _are_counterparts(first: Sequence[str], second: Sequence[str]) -> bool:
    """Return whether two names differ in one word, and that by counterparts that distinguish the texts of a pair."""
    if (*first, "pair") == tuple(second):
        return True
    differing = [words for words in zip(first, second, strict=False) if words[0] != words[1]]
    return len(first) == len(second) and len(differing) == 1 and differing[0] in COUNTERPARTS


def _guess_labels(
    source: Source,
    batch: Batch,
    columns: list[ColumnProfile],
    data: Data,
    reasons: list[str],
    *,
    texts: Sequence[str],
) -> dict[str, Any]:
    """Guess the labels, and their separator, among the columns that are neither text nor split."""
    candidates = _rank_labels(source, batch, columns, texts=texts)
    best = candidates[0] if candidates else None
    if len(source.columns) == 2 and columns and columns[0].is_continuous:
        raise _no_classes_error(source, columns[0])
    if best is None or best.points < 0 or _why_no_labels(best):
        raise _ambiguity_error("labels", source, candidates)
    # If a column is chosen by its name alone, one whose values look like labels is a rival.
    lead = MENTIONED_LEAD if any(column.is_too_varied for column in best.columns) else CLEAR_LEAD
    rivals = [candidate for candidate in candidates[1:] if candidate.points > best.points - lead]
    if rivals:
        raise _ambiguity_error("labels", source, [best, *rivals])
    others = [
        candidate
        for candidate in candidates[1:]
        if candidate.points >= best.points - MENTIONED_LEAD or _is_continuous(candidate)
    ]
    mention = _mention_others([candidate.display_name for candidate in others], "labels")
    if len(best.columns) > 1:
        reasons.append(_format_guess("labels", best.value, best.why + mention))
        return {"labels": best.value}
    chosen = best.columns[0]
    separator = "" if data.label_separator or source.format == "automl" else chosen.label_separator
    count = len(chosen.label_names(data.label_separator or separator))
    summary = f"{count} label{'s' * (count != 1)} in {chosen.rows:,} row{'s' * (chosen.rows != 1)}"
    reasons.append(_format_guess("labels", chosen.name, f"{best.why}; {summary}{mention}"))
    if not separator:
        return {"labels": chosen.name}
    form = "a list in each cell" if separator == LIST_SEPARATOR else "several labels in one cell"
    reasons.append(_format_guess("label_separator", separator, f"{form}: task multi"))
    return {"labels": chosen.name, "label_separator": separator}


def _rank_labels(
    source: Source, batch: Batch, columns: list[ColumnProfile], *, texts: Sequence[str]
) -> list[LabelCandidate]:
    """Return every column and group of columns that may hold the labels, the most likely first."""
    group = _find_label_group(source, columns)
    single = [column for column in columns if column not in group]
    by_words = {column.words: column for column in columns}
    judged = [column for column in columns if _is_judged(column, by_words)]
    judgement_columns = {(*column.words, word) for column in judged for word in JUDGED_WORDS}
    flags = [column for column in columns if column.is_flag]
    candidates = [
        LabelCandidate((column,), *_score_label(column, texts=texts, is_judged=column in judged))
        for column in single
        if _may_be_label(column) and column.words not in judgement_columns
    ]
    if len(flags) > 1:  # known facts about each row, rather than labels to predict
        candidates = [
            replace(candidate, points=candidate.points - 3.0 * (candidate.columns[0] in flags))
            for candidate in candidates
        ]
    # A constant column is no label; if it is the only candidate, the checks report what is wrong with it.
    candidates = [candidate for candidate in candidates if len(candidate.columns[0].distinct) > 1] or candidates
    if group:
        named = any(LABEL_WORDS & set(column.words) for column in group)
        points = (2.0 if len(group) == 2 else 4.0) + 2.0 * named
        points -= 3.0 * any(column.is_flag for column in group)  # metadata of a row rather than its meaning
        why = f"{len(group)} columns of 0 and 1: task multi"
        candidates.append(LabelCandidate(group, points, why))
    elif len(source.columns) == 2 and not any(candidate.points >= 0 for candidate in candidates):
        # The other column is the text, so this is the label if it can be one.
        eligible = [column for column in single if not column.is_measure and not column.is_structured]
        fitting = [column for column in eligible if 1 < len(column.distinct) < len(column.values)]
        fitting = [column for column in fitting if not column.is_continuous]
        candidates = [LabelCandidate((column,), 1.0, "the only other column") for column in fitting] or candidates
    ranked = sorted(candidates, key=lambda candidate: candidate.points, reverse=True)
    return _drop_equivalents(batch, ranked)


def _find_label_group(source: Source, columns: list[ColumnProfile]) -> tuple[ColumnProfile, ...]:
    """Return the longest run of adjacent one-hot columns (0/1 or true/false), at least two."""
    by_name = {column.name: column for column in columns}
    runs: list[list[ColumnProfile]] = [[]]
    for name in source.columns:
        column = by_name.get(name)
        if column is None or not _may_be_grouped(column):
            runs.append([])
        elif runs[-1] and _is_binary(column) != _is_binary(runs[-1][-1]):  # written by another tool
            runs.append([column])
        else:
            runs[-1].append(column)
    longest = max(runs, key=len)
    return tuple(longest) if len(longest) >= 2 else ()


def _may_be_grouped(column: ColumnProfile) -> bool:
    """Return whether a one-hot column may be one label of several: not the label itself, a measure or tool metadata."""
    is_other = column.is_measure or column.is_tool_metadata or column.name.lower() in LABEL_WORDS
    return column.is_one_hot and not is_other


def _is_binary(column: ColumnProfile) -> bool:
    return column.truth_words <= {"0", "1"}


def _is_judged(column: ColumnProfile, by_words: Mapping[tuple[str, ...], ColumnProfile]) -> bool:
    """Return whether the data has a confidence or a few gold answers for a column, as crowdsourced labels have."""
    gold = by_words.get((*column.words, "gold"))
    if not column.words or (gold is not None and gold.filled_share >= 0.5):
        return False
    return any((*column.words, word) in by_words for word in JUDGED_WORDS)


def _may_be_label(column: ColumnProfile) -> bool:
    """Return whether a column is a candidate: named so, or with short repeating values and no id, date or measure."""
    words = set(column.words)
    if column.holds_dates:
        return False
    if column.name.lower() in LABEL_WORDS:
        return True
    if words & (MEASURE_WORDS - LABEL_NUMBER_WORDS):
        return False
    if column.is_measure or column.has_decimals:
        return (column.repeats or column.is_continuous) and bool(LABEL_WORDS & words)
    return column.repeats and len(column.distinct) >= 2


def _score_label(column: ColumnProfile, *, texts: Sequence[str], is_judged: bool) -> tuple[float, str]:
    """Return the points of a column as labels, by its name and by its values, and the stronger reason of the two."""
    by_name, by_values = _score_name(column, is_judged=is_judged), _score_values(column)
    if len(column.words) > 1 and any(column.words[:1] == split_name(text)[:1] for text in texts):
        by_name += 0.5  # review_text and review_score, rather than product_category
    if column.is_nearly_constant and column.name.lower() not in LABEL_WORDS:
        by_name = min(by_name, 0.0)
    if is_judged and by_name > 0:
        return by_name + by_values, "its confidence stands beside it"
    return by_name + by_values, "its name" if by_name > max(0.0, by_values) else "few and short values"


def _score_name(column: ColumnProfile, *, is_judged: bool) -> float:
    words = set(column.words)
    if column.is_tool_metadata:
        return -2.0
    if column.name.lower() in LABEL_WORDS:
        points = 5.0 if column.name.lower() in ("label", "labels") else 4.0
    elif words & LABEL_WORDS:
        points = 3.0 if column.head in LABEL_WORDS else 2.5
        points -= 1.0 * any(word.isdigit() for word in words)  # label1 ... label5 are single annotators' labels
        points += 1.0 * bool(words & DECIDED_WORDS)
    else:
        points = 0.5 * bool(words & DECIDED_WORDS)
    if is_judged:
        return points + 2.0
    points -= 2.0 * bool(words & NOTED_WORDS)
    points -= 2.0 * (column.head in TEXT_WORDS | (HEADINGS - {"subject"}) and not words & NOTED_WORDS)
    return points


def _score_values(column: ColumnProfile) -> float:
    points = 1.0 if column.is_one_hot or column.is_scale or not column.is_numeric else 0.0
    points -= 0.5 * column.is_flag  # prefer words to flags
    points -= 1.5 * (column.is_code and not column.is_numeric)
    points -= 6.0 * column.is_structured
    if column.is_numeric and not column.has_decimals and len(column.distinct) > MANY_NUMBERS:
        points -= 2.0
    if column.filled_share < 0.9:
        points -= 1.0 if column.filled_share >= 0.5 else 3.0 if column.filled_share >= 0.3 else 5.0
    names = len(column.label_names(column.label_separator))
    if column.is_continuous or column.is_too_varied:
        points -= 3.0
    elif names > 10 and names > len(column.values) / 5:
        points -= 1.0
    return points


def _drop_equivalents(batch: Batch, ranked: list[LabelCandidate]) -> list[LabelCandidate]:
    """Drop columns equivalent to a better candidate: of label and label_num, the words are kept."""
    kept: list[LabelCandidate] = []
    for candidate in ranked:
        cells = [batch.columns[column.name] for column in candidate.columns]
        twins = [other for other in kept if len(other.columns) == len(candidate.columns) == 1]
        if not any(are_equivalent(batch.columns[other.columns[0].name], cells[0]) for other in twins):
            kept.append(candidate)
    return kept


def _is_split(column: ColumnProfile, data: Data) -> bool:
    """Return whether a column says which split a row belongs to; unknown words in it are reported when it is read."""
    if column.name.lower() not in SPLIT_NAMES:
        return False
    splits = {split_of(value.strip(), data.split_values) for value in column.distinct}
    return "" not in splits or ("train" in splits and len(column.distinct) <= MOST_SPLIT_WORDS)


def _mention_others(names: Sequence[str], key: str) -> str:
    """Return a clause that names the columns not chosen, with the override that chooses one."""
    if not names:
        return ""
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"; it could be {shown} as well (data.{key}=COLUMN)"


def _ambiguity_error(key: str, source: Source, candidates: Sequence[LabelCandidate | ColumnProfile] = ()) -> SpecError:
    shown = [each.name if isinstance(each, ColumnProfile) else each.display_name for each in candidates]
    could = f"it could be {' or '.join(shown)}" if shown else f"it has: {', '.join(source.columns)}"
    unfit = [(name, why) for name, each in zip(shown, candidates, strict=True) if (why := _why_no_labels(each))]
    if key == "labels" and unfit:
        could += f" ({unfit[0][0]} holds {unfit[0][1]})"
    single = [name for name in shown if name in source.columns]
    hint = f"say which: data.{key}={single[0] if single else 'COLUMN'}"
    if key == "text" and len(single) == 2:
        hint += f', or both as a pair: data.text=["{single[0]}","{single[1]}"]'
    return SpecError(f"cannot tell which column of {source.name} holds the {key}; {could}", hint=hint)


def _no_classes_error(source: Source, column: ColumnProfile) -> SpecError:
    """Return the error for data whose only column beside the text is continuous."""
    what = f"{source.name}: {column.name} holds numbers with decimals, which are no classes"
    hint = "make a column of classes from them first, such as low, middle and high, and name it: data.labels=COLUMN"
    return SpecError(f"{what} ({len(column.distinct):,} different ones in {column.rows:,} rows)", hint=hint)


def _why_no_labels(candidate: LabelCandidate | ColumnProfile) -> str:
    """Return what a column holds that cannot be labels, whatever its name; "" if it can be labels."""
    if _is_continuous(candidate):
        return "numbers with decimals, which are no classes"
    columns = (candidate,) if isinstance(candidate, ColumnProfile) else candidate.columns
    if any(column.is_structured for column in columns):
        return "tags or objects in each cell, which are no names of labels"
    return ""


def _is_continuous(candidate: LabelCandidate | ColumnProfile) -> bool:
    columns = (candidate,) if isinstance(candidate, ColumnProfile) else candidate.columns
    return any(column.is_continuous for column in columns)


def _format_guess(key: str, value: object, why: str) -> str:
    if isinstance(value, str):
        shown = f'"{value}"'
    else:
        names = [f'"{name}"' for name in value]  # type: ignore[attr-defined]
        shown = "[" + ", ".join(names if len(names) <= 4 else [*names[:2], "...", names[-1]]) + "]"
    return f"{key} = {shown}: {why}"
