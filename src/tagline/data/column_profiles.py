"""Profiles of columns, from their names and sampled values: language, labels, ids, dates and measures."""

import ast
import math
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

ONE_HOT = {"0": False, "1": True, "false": False, "true": True}
"""The values of a one-hot label column."""
LONGEST_LABEL = 60
LABEL_SEPARATORS = ("|", ";", ",", "/")
LIST_SEPARATOR = "list"
"""In place of a separator: each cell is a list, such as ['Drama', 'Comedy']."""
LONGEST_LIST = 10_000
"""The longest cell, in characters, that is parsed as a list."""
NEARLY_CONSTANT = 0.98
FLAG_WORDS = frozenset(("is", "has"))
TEXT_WORDS = frozenset((
    "text", "texts", "message", "review", "sentence", "comment", "document", "body", "content", "description", "tweet",
    "utterance", "question", "query", "narrative", "abstract", "post", "article", "excerpt", "passage", "statement",
    "phrase", "transcript", "email", "complaint", "note", "feedback", "prompt", "premise", "hypothesis", "paragraph",
))  # fmt: skip
HEADINGS = frozenset(("title", "headline", "subject", "summary", "heading", "name"))
"""Names of headings: they may be classified, but seldom if the text itself is in another column."""
LABEL_WORDS = frozenset((
    "label", "labels", "category", "categories", "class", "classes", "target", "targets", "topic", "topics",
    "sentiment", "intent", "intents", "emotion", "emotions", "tag", "tags", "verdict", "rating", "stars", "score",
    "polarity", "judgment", "judgement", "stance",
))  # fmt: skip
DECIDED_WORDS = frozenset(("gold", "final", "majority", "consensus"))
"""Words for the agreed label, as opposed to those of single annotators."""
MEASURE_WORDS = frozenset((
    "id", "ids", "uuid", "guid", "index", "idx", "number", "count", "num", "date", "time", "datetime", "timestamp",
    "created", "updated", "received", "year", "month", "day", "url", "link", "price", "amount", "length", "votes",
))  # fmt: skip
LABEL_NUMBER_WORDS = frozenset(("id", "ids", "index", "idx", "number", "num"))
"""Measure words that may number the labels: label_id, class index."""
METADATA_WORDS = frozenset((
    "user", "username", "author", "authors", "speaker", "name", "location", "place", "country", "city", "state",
    "region", "zip", "zone", "timezone", "source", "file", "filename", "page", "version", "device", "age", "gender",
    "template", "publisher", "confidence", "probability", "annotator", "annotators", "worker", "rater", "judge",
    "judges", "company", "license", "error", "parse", "html", "verified", "platform",
))  # fmt: skip
"""Words for who, where, when and how: known facts about a row, rather than a label to predict."""
SHARING_WORDS = frozenset(
    ("retweet", "retweeted", "reply", "quote", "quoted", "edited", "deleted", "pinned", "truncated")
)
NOTED_WORDS = METADATA_WORDS | SHARING_WORDS | {"language", "lang", "locale"}
"""Metadata words for short values: a column called quote or reply may well be the text."""
COLUMN_WORDS = TEXT_WORDS | HEADINGS | LABEL_WORDS | MEASURE_WORDS | METADATA_WORDS
"""Common words in column names."""

NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
DECIMAL = re.compile(r"[-+]?\d*\.\d*[1-9]\d*|[-+]?\d+(\.\d+)?[eE]-\d+")
DATE = re.compile(
    r"(\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}|\d{1,2}:\d{2}).{0,20}"
    r"|(mon|tue|wed|thu|fri|sat|sun)[a-z]*,? .{0,15}\d{1,2}:\d{2}.{0,16}"
    r"|(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.? \d{1,2},? \d{4}.{0,9}"
    r"|\d{1,2}[- ](jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[- ]\d{2,4}.{0,20}",
    re.IGNORECASE,
)
WEB = re.compile(r"(https?://|www\.|gs://|s3://)\S+")
MARKUP = re.compile(r"[()\[\]{}<>|=\\]")
LETTERS = re.compile(r"[^\W\d_]+")
UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
"""Scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana and Chinese characters."""
LIST_ITEM = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|-?\d+""", re.DOTALL)
LIST = re.compile(
    rf"\[\s*(?:(?:{LIST_ITEM.pattern})(?:(?:\s*,\s*|\s+)(?:{LIST_ITEM.pattern}))*\s*(?:,\s*)?)?\]", re.DOTALL
)
"""A list as Python, JSON and numpy write it; numpy omits commas, and Python would concatenate adjacent strings."""
STRUCTURE = re.compile(r"\[.*\]|\{.*\}|\(.*\)|(<[^<>]+>)+", re.DOTALL)
STRUCTURE_SIGN = re.compile(r"""['",:]|><""")
CODE = re.compile(r"(?=\S*\d)(?=\S*[^\W\d_])\S+")
"""Letters and digits in one word."""


@dataclass(frozen=True)
class ColumnProfile:
    """A column's name, and its cells in rows sampled from the whole file; the items of a list count one by one."""

    name: str
    values: tuple[str, ...]
    rows: int
    filled_rows: int
    is_named: bool = True
    """Whether the name comes from the file."""

    @cached_property
    def distinct(self) -> frozenset[str]:
        """Its distinct values."""
        return frozenset(self.values)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words of its name."""
        return split_name(self.name) if self.is_named else ()

    @property
    def head(self) -> str:
        """The head word of its name: the last one that is not a number or a single letter."""
        return next((word for word in reversed(self.words) if not word.isdigit() and len(word) > 1), "")

    @property
    def filled_share(self) -> float:
        """The share of rows with a value."""
        return self.filled_rows / max(1, self.rows)

    @property
    def variety(self) -> float:
        """The ratio of distinct values to all values: 1 if none repeats."""
        return len(self.distinct) / max(1, len(self.values))

    @cached_property
    def is_numeric(self) -> bool:
        """Whether it holds only numbers."""
        return all(NUMBER.fullmatch(value.strip()) for value in self.distinct)

    @cached_property
    def has_decimals(self) -> bool:
        """Whether its numbers are measured rather than counted: 3.5, but not 3.0."""
        return self.is_numeric and any(DECIMAL.fullmatch(value.strip()) for value in self.distinct)

    @cached_property
    def has_half_steps(self) -> bool:
        """Whether it holds whole and half numbers from 0 to 10, as ratings do."""
        if not self.has_decimals:
            return False
        steps = {2 * float(value) for value in self.distinct}
        return all(step.is_integer() and 0 <= step <= 20 for step in steps) and any(step % 2 == 0 for step in steps)

    @property
    def is_continuous(self) -> bool:
        """Whether its numbers are continuous, so that they are no classes."""
        return self.has_decimals and not self.has_half_steps

    @cached_property
    def is_nearly_constant(self) -> bool:
        """Whether almost all of its values are the same."""
        return bool(self.values) and Counter(self.values).most_common(1)[0][1] >= NEARLY_CONSTANT * len(self.values)

    @property
    def is_tool_metadata(self) -> bool:
        """Whether its name starts with an underscore, as in metadata added by tools: _unit_id, _golden."""
        return self.is_named and self.name.startswith("_")

    @cached_property
    def is_one_hot(self) -> bool:
        """Whether it holds only 0/1 or true/false."""
        return bool(self.values) and self.truth_words <= ONE_HOT.keys()

    @property
    def is_flag(self) -> bool:
        """Whether its name says that it is a flag: is_retweet, hasLogo."""
        return bool(FLAG_WORDS & set(self.words)) and len(self.distinct) <= 2

    @cached_property
    def is_scale(self) -> bool:
        """Whether it holds the numbers from 1 to n, n from 3 to 10, as star ratings do; counts begin with 0."""
        if not self.is_numeric or not 3 <= len(self.distinct) <= 10:
            return False
        return sorted(float(value) for value in self.distinct) == list(range(1, len(self.distinct) + 1))

    @cached_property
    def truth_words(self) -> frozenset[str]:
        """Its distinct values in the form in which truth values are compared."""
        return frozenset(value.strip().lower() for value in self.distinct)

    @cached_property
    def is_measure(self) -> bool:
        """Whether it is an id, a date, an address or a count, by its name or its values."""
        return bool(MEASURE_WORDS & set(self.words)) or self.holds_dates

    @cached_property
    def holds_dates(self) -> bool:
        """Whether its values are dates, times or addresses."""
        matching = sum(bool(DATE.fullmatch(v.strip()) or WEB.fullmatch(v.strip())) for v in self.distinct)
        return bool(self.values) and matching >= 0.9 * len(self.distinct)

    @cached_property
    def lists(self) -> tuple[tuple[str, ...], ...]:
        """Its distinct cells parsed as lists; none if more than a few are not lists, or if all are empty."""
        parsed = [parse_list(value) for value in self.distinct]
        lists = tuple(items for items in parsed if items is not None)
        return lists if any(lists) and len(lists) >= 0.9 * len(parsed) else ()

    @cached_property
    def is_structured(self) -> bool:
        """Whether its cells are tags, objects or lists that are not labels: <a><b>, [{"id": 1}], (1, 2)."""
        if self.label_separator == LIST_SEPARATOR:
            return False
        has_brackets = all(STRUCTURE.fullmatch(value.strip()) for value in self.distinct)
        return has_brackets and any(STRUCTURE_SIGN.search(value) for value in self.distinct)

    @cached_property
    def is_code(self) -> bool:
        """Whether most values are one word of letters and digits, as file names and identifiers are."""
        return sum(CODE.fullmatch(value.strip()) is not None for value in self.distinct) > len(self.distinct) / 2

    @cached_property
    def words_a_value(self) -> float:
        """Mean number of natural-language words per value; two characters of a script without spaces count as one."""
        return sum(map(_count_words, self.distinct)) / max(1, len(self.distinct))

    @cached_property
    def language(self) -> float:
        """A score for how much natural language it holds: words per value, variety of values, and share of words."""
        if not self.values or self.is_numeric:
            return 0.0
        is_language = sum(map(_is_language, self.distinct)) / len(self.distinct)
        # The root: a premise repeated with three hypotheses is a text, a template repeated forty times is none.
        return (
            math.log2(1 + self.words_a_value) * math.sqrt(self.variety) * is_language * min(1.0, 2 * self.filled_share)
        )

    @property
    def mean_length(self) -> float:
        """Mean number of characters per value."""
        return sum(map(len, self.values)) / max(1, len(self.values))

    @cached_property
    def label_separator(self) -> str:
        """The separator that reduces many combinations to few labels, if cells differ in their number of labels."""
        if self.lists:  # token tags repeat within a text, labels do not
            repeating = sum(len(set(items)) < len(items) for items in self.lists)
            return LIST_SEPARATOR if repeating <= 0.1 * len(self.lists) else ""
        if not self.distinct or max(map(len, self.distinct)) > 4 * LONGEST_LABEL:
            return ""
        for separator in LABEL_SEPARATORS:
            joined = sum(separator in value for value in self.values)
            parts = {part.strip() for value in self.distinct for part in value.split(separator)}
            # Cells that all have the same number of parts are hierarchical names, such as billing/refund.
            uneven = len({value.count(separator) for value in self.distinct}) > 1
            if joined >= 0.05 * len(self.values) and len(parts) < len(self.distinct) and uneven:
                return separator
        return ""

    def label_names(self, separator: str) -> frozenset[str]:
        """Return its distinct labels, with this separator between several in a cell."""
        if not separator:
            return self.distinct
        if separator == LIST_SEPARATOR:
            return frozenset(name for items in self.lists for name in items)
        return frozenset(part.strip() for value in self.distinct for part in value.split(separator))

    @cached_property
    def repeats(self) -> bool:
        """Whether its values are short and repeat, as those of labels do, unlike ids and texts."""
        names = self.label_names(self.label_separator)
        few = 1 <= len(names) <= max(2, len(self.values) // 2)
        return few and max(map(len, names)) <= LONGEST_LABEL

    @cached_property
    def is_too_varied(self) -> bool:
        """Whether its values are too many or too long for labels; False for at most 10 values."""
        names = len(self.label_names(self.label_separator))
        return len(self.values) > 10 and (not self.repeats or (names > 10 and names > len(self.values) / 3))


def parse_list(cell: str) -> tuple[str, ...] | None:
    """Parse a list of strings and whole numbers as Python, JSON or numpy write it; return None for any other cell."""
    cell = cell.strip()
    if not cell.startswith("[") or len(cell) > LONGEST_LIST or not LIST.fullmatch(cell):
        return None
    try:
        return tuple(_read_list_item(item) for item in LIST_ITEM.findall(cell))
    except (SyntaxError, ValueError):
        return None


def _read_list_item(item: str) -> str:
    """Return a number, or a string without its quotes; raise an error if its escapes are invalid."""
    if item[0] not in "'\"":
        return item
    if "\\" not in item:
        return item[1:-1].strip()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unknown escapes are kept as they are
        text = str(ast.literal_eval(item.replace("\\/", "/")))
    # JSON writes characters beyond the first plane as two escapes.
    return text.encode("utf-16", "surrogatepass").decode("utf-16").strip()


def split_name(name: str) -> tuple[str, ...]:
    """Split `predictedCategory2`, `predicted_category 2` or `#2 Predicted Category` into words and numbers."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[a-zA-Z])(?=\d)|(?<=\d)(?=[a-zA-Z])", " ", name)
    return tuple(word for word in re.split(r"[\W_]+", spaced.lower()) if word)


def are_equivalent(first: Sequence[object], second: Sequence[object]) -> bool:
    """Return whether two columns correspond one to one, row by row: spam and ham, 1 and 0."""
    pairs = set(zip(first, second, strict=True))
    return len(pairs) == len(set(first)) == len(set(second)) and len(pairs) > 1


def _count_words(value: str) -> float:
    unspaced = len(UNSPACED.findall(value))
    return len(LETTERS.findall(UNSPACED.sub(" ", value) if unspaced else value)) + unspaced / 2


def _is_language(value: str) -> bool:
    """Return whether a value is words, rather than an address, a code, a date or a parse tree."""
    value = value.strip()
    if not value or WEB.fullmatch(value) or DATE.fullmatch(value) or CODE.fullmatch(value):
        return False
    letters = sum(map(len, LETTERS.findall(value)))
    return letters >= 0.4 * len(value) and len(MARKUP.findall(value)) <= 0.08 * len(value)
