"""Checks of a dataset before training: duplicates, data leakage, label problems, encodings and more."""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tagline.data import near_duplicates as near
from tagline.data.dataset import SPLITS, Dataset, Example, SplitName, normalise_text
from tagline.data.splits import Ints
from tagline.data.texts import Text

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

SHOWN_ROWS = 5
FEW_ROWS = 10
"""With fewer rows a label's metrics say little."""
FEWEST_FOR_SPLIT = 3
"""With fewer rows a label cannot be in train, validation and test."""
FEW_SHOTS = 64
"""Training rows per label up to which family `fewshot` may be the better choice."""
LONG_CHARACTERS = 10_000
IMBALANCE = 10
"""The ratio of the most frequent label's rows to the rarest label's from which labels count as imbalanced."""
OFTEN = 0.01
"""The share of texts with a problem above which it is a warning."""
MOST_NUMBERED = 20
"""The most labels 0, 1, 2, ... for which names are suggested."""
NEAR_TRAIN_ROWS = 100_000
NEAR_TEST_ROWS = 20_000
"""Rows searched for near duplicates: half a minute's work at most."""
NEAR_SHARE = 0.01
# UTF-8 that was decoded as Latin-1 or cp1252, the replacement character, and control characters.
MOJIBAKE = re.compile(r"Ã[\x80-\xbf©¨¤¶¼ª«¢®´±ŸŠ€‰]|â€[™œ\x9d“”¦˜]|ï»¿|\ufffd|[\x00-\x08\x0e-\x1f\x80-\x9f]")
MISSING = frozenset(("null", "nan", "n/a", "#n/a", "na", "nil", "<na>", "\\n"))
ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,30});")
ESCAPE = re.compile(r"\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}")
FORMULA = re.compile(r"[=@]|[-+]\D")


@dataclass(frozen=True)
class Finding:
    """A finding about the data: what it is, its severity, the rows, and what to do."""

    code: str
    severity: Severity
    message: str
    advice: str
    rows: tuple[Example, ...] = field(default=(), repr=False)


def examine(dataset: Dataset) -> list[Finding]:
    """Return every finding, the most severe first."""
    findings = [finding for check in CHECKS for finding in check(dataset)]
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def check_empty_texts(dataset: Dataset) -> Iterator[Finding]:
    """Find empty texts."""
    yield from _report_texts(
        dataset,
        lambda text: not text.strip(),
        code="empty-texts",
        severity="warning",
        message="{count} with an empty text",
        advice="remove them, or look whether data.text is the right column",
    )


def check_long_texts(dataset: Dataset) -> Iterator[Finding]:
    """Find texts far longer than a model reads."""
    yield from _report_texts(
        dataset,
        lambda text: len(text) > LONG_CHARACTERS,
        code="long-texts",
        severity="warning",
        message=f"{{count}} with a text of more than {LONG_CHARACTERS:,} characters",
        advice="a model reads only the beginning; is a quote left open, or is this a whole document?",
    )


def check_odd_characters(dataset: Dataset) -> Iterator[Finding]:
    """Find texts that were decoded with the wrong encoding, or that contain control characters."""
    yield from _report_texts(
        dataset,
        lambda text: MOJIBAKE.search(text) is not None,
        code="odd-characters",
        severity="warning",
        message="{count} with characters that look like a wrong encoding (Ã©, â€™, \\ufffd) or are control characters",
        advice="name the right data.encoding, or mend the file where it was written",
    )


def check_escaped_texts(dataset: Dataset) -> Iterator[Finding]:
    """Find texts with HTML entities (`&amp;`) or escapes (`\\u2019`) in place of the characters themselves."""
    entities, escapes = [], []
    for row, text in enumerate(dataset.texts(np.arange(len(dataset)))):
        if _any_side(text, _has_entity):
            entities.append(row)
        if _any_side(text, _has_escape):
            escapes.append(row)
    for code, where, what, how in (
        (
            "html-entities",
            entities,
            "HTML entities (&amp;, &#39;)",
            "turn them into characters (Python: html.unescape)",
        ),
        ("escapes", escapes, "escapes (\\u2019) in place of characters", "decode them, as a JSON string is"),
    ):
        if where:
            severity: Severity = "warning" if len(where) > OFTEN * len(dataset) else "note"
            message, advice = (
                f"{_format_row_count(len(where))} with {what}",
                f"{how}, here and in the texts to be answered",
            )
            yield Finding(code, severity, message, advice, _collect_examples(dataset, *where))


def _has_entity(text: str) -> bool:
    return "&" in text and any(html.unescape(found) != found for found in ENTITY.findall(text))


def _has_escape(text: str) -> bool:
    return "\\" in text and ESCAPE.search(text) is not None


def check_uncertain_encodings(dataset: Dataset) -> Iterator[Finding]:
    """Find files of uncertain encoding, with a row as the likeliest encodings read it."""
    doubtful = [source for source in dataset.sources if source.encoding.readings]
    if doubtful:
        source = doubtful[0]
        others = f" (and {len(doubtful) - 1} more)" if len(doubtful) > 1 else ""
        yield Finding(
            "uncertain-encoding",
            "warning",
            f"{source.name}{others} {source.encoding.describe_readings()}",
            f"name the one that reads right: data.encoding={source.encoding.readings[1][0]}, or save the file as UTF-8",
        )


def check_constant_text(dataset: Dataset) -> Iterator[Finding]:
    """Find a text column that is constant."""
    if len(dataset) > 1 and int(dataset.groups.max()) == 0:
        yield Finding(
            "one-text",
            "error",
            "all texts are the same",
            "is data.text the right column?",
            _collect_examples(dataset, 0),
        )


def check_duplicates(dataset: Dataset) -> Iterator[Finding]:
    """Find duplicates: texts that occur more than once with the same labels."""
    again = _find_repeats(dataset) & ~_find_contradictions(dataset)
    if again.any():
        where = np.flatnonzero(again)
        yield Finding(
            "duplicates",
            "note",
            f"{_format_row_count(len(where))} with the text and the labels of an earlier one",
            "they are kept together in one split; remove them if they are copies rather than frequent",
            _collect_examples(dataset, *_sort_by_text(dataset, np.isin(dataset.groups, dataset.groups[where]))),
        )


def check_contradictions(dataset: Dataset) -> Iterator[Finding]:
    """Find contradictions: the same text with different labels."""
    where = np.flatnonzero(_find_contradictions(dataset))
    if len(where):
        texts = len(np.unique(dataset.groups[where]))
        one_of_them = "decide on one label, or use task multi if both are true"
        advice = one_of_them if dataset.task == "single" else "give the same text the same labels"
        yield Finding(
            "contradictions",
            "warning",
            f"{texts} text{'s' * (texts > 1)} with different labels, in {_format_row_count(len(where))}",
            advice,
            _collect_examples(dataset, *_sort_by_text(dataset, _find_contradictions(dataset))),
        )


def check_leaks(dataset: Dataset) -> Iterator[Finding]:
    """Find data leakage: texts shared by the given splits, which were left out of the earlier split."""
    if len(dataset.leaked):
        yield Finding(
            "leaks",
            "warning",
            f"{_format_row_count(len(dataset.leaked))} with a text that a later split has too: "
            "left out of the earlier one",
            "figures measured with such rows in training are too good; mend the files to silence this",
            _collect_examples(dataset, *dataset.leaked),
        )


def check_near_duplicates(dataset: Dataset) -> Iterator[Finding]:
    """Find near duplicates: texts of validation or test that are nearly the same as a training text."""
    train = _sample_rows(dataset.splits["train"].rows, NEAR_TRAIN_ROWS)
    held_out = _sample_rows(dataset.select("validation", "test").rows, NEAR_TEST_ROWS)
    pairs = near.find_pairs(dataset.texts(held_out), dataset.texts(train))
    if pairs:
        rows = [row for number, other, _ in pairs for row in (held_out[number], train[other])]
        held_out_rows = len(dataset.splits["validation"]) + len(dataset.splits["test"])
        searched = f" (looked at {len(held_out):,} of {held_out_rows:,})" if len(held_out) < held_out_rows else ""
        yield Finding(
            "near-duplicates",
            "warning" if len(pairs) > NEAR_SHARE * len(held_out) else "note",
            f"{_format_row_count(len(pairs))} of validation and test nearly the same as a training text{searched}",
            "figures may be too good: keep variants of a text in one split, or remove them",
            _collect_examples(dataset, *rows),
        )


def _sample_rows(rows: Ints, most: int) -> Ints:
    """Return at most this many rows, drawn with a fixed seed."""
    return rows if len(rows) <= most else np.sort(np.random.default_rng(0).choice(rows, most, replace=False))


def check_label_count(dataset: Dataset) -> Iterator[Finding]:
    """Find a single label, or nearly as many labels as rows."""
    counts = _count_all_labels(dataset)
    used = int((counts > 0).sum())
    if dataset.task == "single" and used < 2:
        yield Finding(
            "one-label",
            "error",
            f'every row has the label "{dataset.labels[0]}"; there is nothing to learn',
            "is data.labels the right column?",
            _collect_examples(dataset, 0),
        )
    elif used == 0:
        yield Finding(
            "no-label",
            "error",
            "no row has a label; there is nothing to learn",
            "are data.labels the right columns?",
            _collect_examples(dataset, 0, 1, 2),
        )
    elif used > max(20, len(dataset) // 3):
        yield Finding(
            "labels-look-like-text",
            "error",
            f"{used:,} different labels in {len(dataset):,} rows: that is free text or an id, not a label",
            "is data.labels the right column? several labels in one cell need data.label_separator",
            _collect_examples(dataset, 0, 1, 2),
        )


def check_unlabelled_rows(dataset: Dataset) -> Iterator[Finding]:
    """Find rows of task `multi` without any label: none may apply, or they may not have been annotated."""
    if dataset.task == "multi" and dataset.targets.any():
        where = np.flatnonzero(~dataset.targets.any(axis=1))
        if len(where):
            yield Finding(
                "unlabelled-rows",
                "note",
                f"{_format_row_count(len(where))} without a label",
                "fine where none applies; data.none_label gives them a label of their own",
                _collect_examples(dataset, *where),
            )


def check_contradicted_rows(dataset: Dataset) -> Iterator[Finding]:
    """Find rows that have `none_label` together with another label."""
    if len(dataset.contradicted):
        count, name = _format_row_count(len(dataset.contradicted)), dataset.none_label
        yield Finding(
            "none-beside-another",
            "warning",
            f"{count} with {name} (data.none_label) beside another label: the others count",
            "remove one or the other; a label that may stand beside others is no data.none_label",
            _collect_examples(dataset, *dataset.contradicted),
        )


def check_rare_labels(dataset: Dataset) -> Iterator[Finding]:
    """Find labels with too few rows to split, or to measure."""
    counts = _count_all_labels(dataset)
    if (counts > 0).sum() > max(20, len(dataset) // 3):
        return  # reported already, as labels that look like text
    fewest = [(name, int(n)) for name, n in zip(dataset.labels, counts, strict=True) if n < FEWEST_FOR_SPLIT]
    few = [(name, int(n)) for name, n in zip(dataset.labels, counts, strict=True) if FEWEST_FOR_SPLIT <= n < FEW_ROWS]
    for code, what, names in (
        ("labels-too-rare", "too few rows to stand in every split", fewest),
        ("rare-labels", f"fewer than {FEW_ROWS} rows, so that their figures say little", few),
    ):
        if names:
            listed = ", ".join(f"{name} ({n})" for name, n in names[:SHOWN_ROWS])
            more = f" and {len(names) - SHOWN_ROWS} more" if len(names) > SHOWN_ROWS else ""
            advice = "collect more of them, or merge them into another label"
            yield Finding(code, "warning", f"labels with {what}: {listed}{more}", advice)


def check_untrained_labels(dataset: Dataset) -> Iterator[Finding]:
    """Find labels that occur only in validation or test, which cannot be learned; an error if a split has no others."""
    train = dataset.splits["train"]
    if not len(train):
        return
    is_known = _count_labels(train.targets, labels=len(dataset.labels)) > 0
    trained = _format_names([name for name, known in zip(dataset.labels, is_known, strict=True) if known])
    for name in SPLITS[1:]:
        split = dataset.splits[name]
        counts = _count_labels(split.targets, labels=len(dataset.labels))
        if counts.any() and not (counts > 0)[is_known].any():
            split_labels = _format_names([label for label, n in zip(dataset.labels, counts, strict=True) if n])
            message = f"no label of the {name} rows ({_list_files(dataset, split.rows)}) has a training row"
            message += f": they have {split_labels}; training has {trained}"
            advice = "is data.labels the right column? data.label_names gives values of both files the same names"
            yield Finding(
                f"no-known-label-in-{name}", "error", message, advice, _collect_examples(dataset, *split.rows)
            )
    unknown = rows_of_unknown_labels(dataset)
    missing = [label for label, known in zip(dataset.labels, is_known, strict=True) if not known]
    if missing:
        where = np.concatenate([np.zeros(0, dtype=np.int64), *unknown.values()])
        counted = " and ".join(
            f"{_format_row_count(len(rows))} of {name}" for name, rows in unknown.items() if len(rows)
        )
        places = ", ".join(f"{file}:{line}" for file, line in map(dataset.place, map(int, where[:SHOWN_ROWS])))
        message = f"labels without a training row: {_format_names(missing)}"
        if counted:
            places += ", ..." if len(where) > SHOWN_ROWS else ""
            message += f"; no answer to {counted} ({places}) can be right"
        advice = "add rows, or remove the label; it will never be answered"
        yield Finding("labels-not-in-train", "warning", message, advice, _collect_examples(dataset, *where))


def rows_of_unknown_labels(dataset: Dataset) -> dict[SplitName, Ints]:
    """Return the rows of validation and test whose label has no training row, so that no prediction can be right."""
    is_unknown = _count_labels(dataset.splits["train"].targets, labels=len(dataset.labels)) == 0
    rows: dict[SplitName, Ints] = {}
    for name in SPLITS[1:]:
        split = dataset.splits[name]
        has_one = is_unknown[split.targets] if split.targets.ndim == 1 else split.targets[:, is_unknown].any(axis=1)
        rows[name] = split.rows[has_one]
    return rows


def _format_names(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = f" and {len(names) - SHOWN_ROWS:,} more" if len(names) > SHOWN_ROWS else ""
    return ", ".join(names[:SHOWN_ROWS]) + more


def _list_files(dataset: Dataset, rows: Ints) -> str:
    """Return the names of the first and the last file of these rows, which are in file order."""
    return ", ".join(dict.fromkeys(dataset.place(int(row))[0] for row in (*rows[:1], *rows[-1:])))


def check_unlabelled_values(dataset: Dataset) -> Iterator[Finding]:
    """Find rows left out because their label means "no label", as "-" does in files in the format of MNLI."""
    if dataset.unlabelled:
        count = sum(rows.count for rows in dataset.unlabelled.values())
        values = " or ".join(f'"{value}"' for value in dataset.unlabelled)
        places = [place for rows in dataset.unlabelled.values() for place in rows.places][:SHOWN_ROWS]
        listed = ", ".join(f"{file}:{line}" for file, line in places) + ", ..." * (count > len(places))
        message = f"{_format_row_count(count)} with the label {values}, which means none, left out ({listed})"
        advice = "nothing to do if that is so; data.unlabelled = [] makes it a label like others"
        yield Finding("unlabelled-values", "warning", message, advice)


def check_split_words(dataset: Dataset) -> Iterator[Finding]:
    """Find values of the split column other than train, validation and test, and how they were interpreted."""
    interpretations = {
        value: interpretation for value, interpretation in dataset.split_words.items() if value.lower() not in SPLITS
    }
    assigned = [
        f'"{value}" as {word} ({_format_row_count(rows.count)})'
        for value, (word, rows) in interpretations.items()
        if word in SPLITS
    ]
    if assigned:
        advice = "data.split_values says otherwise where that is wrong"
        yield Finding("split-words", "note", f"in the column of splits, read {', '.join(assigned)}", advice)
    left_out = [f'"{value}" ({rows})' for value, (word, rows) in interpretations.items() if word not in SPLITS]
    if left_out:
        advice = "data.split_values says which split they belong to"
        yield Finding("split-left-out", "warning", f"left out by their split: {', '.join(left_out)}", advice)


def check_fractions(dataset: Dataset) -> Iterator[Finding]:
    """Find splits of which only a fraction is used, so that metrics are those of a quick try."""
    parts = [
        f"{len(dataset.splits[name]):,} of {total:,} {name} rows"
        for name, total in dataset.split_totals.items()
        if len(dataset.splits[name]) < total
    ]
    if parts:
        advice = "for figures to rely on leave out data.fraction"
        yield Finding("fraction", "note", f"a part of the data is used: {', '.join(parts)}", advice)


def check_numbered_labels(dataset: Dataset) -> Iterator[Finding]:
    """Find labels that are the numbers 0, 1, 2, ... rather than names."""
    count = len(dataset.labels)
    if dataset.task == "single" and 2 <= count <= MOST_NUMBERED and dataset.labels == tuple(map(str, range(count))):
        names = ", ".join(f'"NAME {number}"' for number in range(count))
        message = f"labels are the numbers 0 to {count - 1}"
        yield Finding("numbered-labels", "note", message, f"give them names: data.label_names = [{names}]")
    if dataset.names_without_rows:
        listed = _format_names(dataset.names_without_rows)
        message = f"data.label_names has names for values that no row has: {listed}"
        yield Finding("names-without-rows", "warning", message, "is a value misspelt?")


def check_few_shots(dataset: Dataset) -> Iterator[Finding]:
    """Find data with so few training rows per label that fine-tuning may not do well."""
    if has_few_shots(dataset):
        yield Finding(
            "few-shots",
            "note",
            f"half of the labels have {_usual_rows(dataset):g} training rows or fewer",
            "family fewshot may do better than fine-tuning an encoder: a run of either compares the two on this data",
        )


def has_few_shots(dataset: Dataset) -> bool:
    """Return whether labels have so few training rows that family `fewshot` may be the better choice."""
    return 2 <= _usual_rows(dataset) <= FEW_SHOTS


def _usual_rows(dataset: Dataset) -> float:
    counts = _count_labels(dataset.splits["train"].targets, labels=len(dataset.labels))
    return float(np.median(counts[counts > 0])) if counts.any() else 0.0


def check_imbalance(dataset: Dataset) -> Iterator[Finding]:
    """Find class imbalance: a label far more frequent than another."""
    counts = _count_all_labels(dataset)
    used = counts[counts > 0]
    if len(used) > 1 and used.max() >= IMBALANCE * used.min():
        most, least = (
            dataset.labels[int(counts.argmax())],
            dataset.labels[int(np.where(counts > 0, counts, 1e18).argmin())],
        )
        yield Finding(
            "imbalance",
            "note",
            f"{most} has {int(used.max()):,} rows, {least} only {int(used.min()):,}: "
            f"{used.max() / used.min():.0f} to 1",
            'judge by macro_f1, and try training.class_weights = "balanced"',
        )


def check_missing_values(dataset: Dataset) -> Iterator[Finding]:
    """Find labels and texts that look like missing values: NULL, nan, n/a."""
    names = [name for name in dataset.labels if name.casefold() in MISSING]
    if names:
        rows = [row for name in names for row in _find_rows_with(dataset, dataset.labels.index(name))]
        advice = "leave the cell empty, so that the row is bad and can be skipped, or remove such rows"
        message = f"labels that look like a missing value: {', '.join(names)} ({_format_row_count(len(rows))})"
        yield Finding("missing-labels", "warning", message, advice, _collect_examples(dataset, *rows))
    yield from _report_texts(
        dataset,
        lambda text: text.strip().casefold() in MISSING,
        code="missing-texts",
        severity="warning",
        message="{count} with a text that looks like a missing value",
        advice="remove them",
    )


def check_alike_labels(dataset: Dataset) -> Iterator[Finding]:
    """Find labels that differ only in case, or in the separators between their words."""
    by_key: dict[str, list[str]] = {}
    for name in dataset.labels:
        by_key.setdefault(re.sub(r"(?<=\w)[\s_-]+(?=\w)", " ", normalise_text(name)), []).append(name)
    alike = [" / ".join(names) for names in by_key.values() if len(names) > 1]
    if alike:
        listed = ", ".join(alike[:SHOWN_ROWS])
        yield Finding("alike-labels", "warning", f"labels that are nearly the same: {listed}", "write them one way")


def check_formula_labels(dataset: Dataset) -> Iterator[Finding]:
    """Find labels that a spreadsheet would run as a formula."""
    names = [name for name in dataset.labels if FORMULA.match(name)]
    if names:
        listed = ", ".join(names[:SHOWN_ROWS])
        advice = (
            "rename them: in answers written as CSV they have a quote before them, so that no spreadsheet runs them"
        )
        yield Finding("formula-labels", "warning", f"labels that a spreadsheet takes for a formula: {listed}", advice)


def check_split_sizes(dataset: Dataset) -> Iterator[Finding]:
    """Find splits that are empty."""
    sizes = {name: len(dataset.splits[name]) for name in SPLITS}
    if not sizes["train"]:
        shared = "every training text is given for validation or test too: name other files"
        advice = shared if len(dataset.leaked) else "lower the shares, or add data"
        yield Finding("no-train", "error", "no row is left to train on", advice)
    for name, advice in (
        ("validation", "the model cannot be chosen or calibrated; give data.validation or raise data.validation_share"),
        ("test", "nothing will be measured; give data.test or raise data.test_share"),
    ):
        if not sizes[name]:  # type: ignore[index]
            yield Finding(f"no-{name}", "warning", f"the {name} split is empty", advice)


def check_skipped_rows(dataset: Dataset) -> Iterator[Finding]:
    """Find bad rows that were skipped because the spec says so."""
    if dataset.bad_rows:
        shown = "; ".join(map(str, dataset.bad_rows[:SHOWN_ROWS]))
        yield Finding(
            "bad-rows",
            "warning",
            f"{_format_row_count(len(dataset.bad_rows))} skipped: {shown}",
            "mend them in the file",
        )


CHECKS: tuple[Callable[[Dataset], Iterator[Finding]], ...] = (
    check_split_sizes,
    check_label_count,
    check_constant_text,
    check_skipped_rows,
    check_split_words,
    check_unlabelled_values,
    check_fractions,
    check_empty_texts,
    check_long_texts,
    check_odd_characters,
    check_escaped_texts,
    check_uncertain_encodings,
    check_contradictions,
    check_leaks,
    check_near_duplicates,
    check_unlabelled_rows,
    check_contradicted_rows,
    check_rare_labels,
    check_untrained_labels,
    check_few_shots,
    check_missing_values,
    check_alike_labels,
    check_formula_labels,
    check_numbered_labels,
    check_duplicates,
    check_imbalance,
)


def _report_texts(
    dataset: Dataset, condition: Callable[[str], bool], *, code: str, severity: Severity, message: str, advice: str
) -> Iterator[Finding]:
    """Yield one finding for all texts that meet a condition."""
    where = [row for row, text in enumerate(dataset.texts(np.arange(len(dataset)))) if _any_side(text, condition)]
    if where:
        message = message.format(count=_format_row_count(len(where)))
        yield Finding(code, severity, message, advice, _collect_examples(dataset, *where))


def _any_side(text: Text, condition: Callable[[str], bool]) -> bool:
    return condition(text) if isinstance(text, str) else condition(text[0]) or condition(text[1])


def _collect_examples(dataset: Dataset, *rows: int) -> tuple[Example, ...]:
    return tuple(dataset.example(int(row)) for row in rows[:SHOWN_ROWS] if row < len(dataset))


def _find_rows_with(dataset: Dataset, label: int) -> list[int]:
    targets = dataset.targets
    return [int(row) for row in np.flatnonzero(targets[:, label] if targets.ndim == 2 else targets == label)]


def _format_row_count(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


def _count_all_labels(dataset: Dataset) -> NDArray[np.int64]:
    return _count_labels(dataset.targets, labels=len(dataset.labels))


def _count_labels(targets: NDArray[Any], *, labels: int) -> NDArray[np.int64]:
    """Return the number of rows of each label."""
    if targets.ndim == 2:
        return np.asarray(targets.sum(axis=0), dtype=np.int64)
    return np.bincount(targets, minlength=labels)


def _find_repeats(dataset: Dataset) -> NDArray[np.bool_]:
    """Return a mask of rows whose text occurs in an earlier row."""
    first = np.zeros(len(dataset), dtype=bool)
    first[np.unique(dataset.groups, return_index=True)[1]] = True
    return ~first


def _find_contradictions(dataset: Dataset) -> NDArray[np.bool_]:
    """Return a mask of rows whose text occurs elsewhere with other labels."""
    targets = dataset.targets
    codes = targets if targets.ndim == 1 else np.unique(np.packbits(targets, axis=1), axis=0, return_inverse=True)[1]
    codes = np.asarray(codes).reshape(-1).astype(np.int64)
    groups = dataset.groups
    lowest = np.full(int(groups.max()) + 1, np.iinfo(np.int64).max)
    highest = np.full(int(groups.max()) + 1, -1)
    np.minimum.at(lowest, groups, codes)
    np.maximum.at(highest, groups, codes)
    return np.asarray((lowest != highest)[groups])


def _sort_by_text(dataset: Dataset, chosen: NDArray[np.bool_]) -> Ints:
    """Return the chosen rows with equal texts next to each other."""
    rows = np.flatnonzero(chosen)
    return rows[np.argsort(dataset.groups[rows], kind="stable")]
