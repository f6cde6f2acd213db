"""What family `linear` sees of a text: runs of words and of characters, each by how rare it is. Needs numpy alone."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from tagline.errors import DataError
from tagline.models import Scores

if TYPE_CHECKING:
    from tagline.data.texts import Text

TOKEN = re.compile(r"\w{1,100}|[^\w\s]")
PADDING = " "
"""Stands around a word, so that runs of characters tell its beginning and end from its middle."""
TEXTS_AT_ONCE = 512
CACHED_TOKENS = 200_000

Sparse = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""Row starts, feature numbers and values of some texts, as in a CSR matrix."""


@dataclass(frozen=True)
class FeatureScope:
    """How much of a text is looked at: the longest run of words and of characters, and how far into it."""

    words: int
    characters: int
    max_characters: int


Part = tuple[int, slice]
"""The number of a token, and which of its characters."""


@dataclass
class FeatureBlock:
    """Features of one kind: runs of words or of characters, of one side of a pair or of both."""

    name: str
    longest: int
    terms: list[str] = field(default_factory=list)
    first: int = 0
    """The number of its first feature among all features."""

    def __post_init__(self) -> None:
        self._number = {term: self.first + i for i, term in enumerate(self.terms)}
        self._known_tokens: dict[str, tuple[int, ...]] = {}

    @property
    def kind(self) -> str:
        """`words` or `characters`."""
        return self.name.split(" ")[0]

    def terms_in(self, tokens: Sequence[str]) -> Iterator[str]:
        """Every term of these tokens, as often as it stands there."""
        if self.kind == "characters":
            for token in tokens:
                yield from self._runs_in(token)
        else:
            for length in range(1, self.longest + 1):
                for start in range(len(tokens) - length + 1):
                    yield " ".join(tokens[start : start + length])

    def numbers_in(self, tokens: Sequence[str]) -> Iterator[int]:
        """The numbers of the known terms of these tokens. Most tokens have been seen before, so theirs are kept."""
        if self.kind == "words":
            number = self._number.get
            return (known for term in self.terms_in(tokens) if (known := number(term)) is not None)
        if len(self._known_tokens) > CACHED_TOKENS:
            self._known_tokens.clear()
        return (known for token in tokens for known in self._look_up_runs(token))

    def locate_terms(self, tokens: Sequence[str]) -> Iterator[tuple[int, list[Part]]]:
        """The numbers of the known terms, each with the parts of tokens that it is made of."""
        for length in range(1, self.longest + 1):
            if self.kind == "characters":
                for place, token in enumerate(tokens):
                    padded = f"{PADDING}{token}{PADDING}"
                    for start in range(len(padded) - length + 1):
                        number = self._number.get(padded[start : start + length])
                        if number is not None:
                            yield number, [(place, _own_characters(token, start, length))]
                continue
            for start in range(len(tokens) - length + 1):
                number = self._number.get(" ".join(tokens[start : start + length]))
                if number is not None:
                    yield number, [(place, slice(None)) for place in range(start, start + length)]

    def _look_up_runs(self, token: str) -> tuple[int, ...]:
        numbers = self._known_tokens.get(token)
        if numbers is None:
            runs = self._runs_in(token)
            numbers = self._known_tokens[token] = tuple(self._number[run] for run in runs if run in self._number)
        return numbers

    def _runs_in(self, token: str) -> Iterator[str]:
        padded = f"{PADDING}{token}{PADDING}"
        for length in range(1, self.longest + 1):
            for start in range(len(padded) - length + 1):
                yield padded[start : start + length]


def _own_characters(token: str, start: int, length: int) -> slice:
    """Which characters of a token are in a run of its padded form; all of them if the run is padding alone."""
    first, last = max(start - len(PADDING), 0), min(start - len(PADDING) + length, len(token))
    return slice(first, last) if first < last else slice(None)


class Features:
    """What the model sees of a text: TF-IDF values, each block of features of length 1."""

    def __init__(
        self, vocabulary: Sequence[tuple[str, list[str]]], rarity: NDArray[np.float32], scope: FeatureScope
    ) -> None:
        self.rarity = rarity
        self._scope = scope
        self.blocks: list[FeatureBlock] = []
        first = 0
        for name, terms in vocabulary:
            self.blocks.append(FeatureBlock(name, _longest_run(name, scope), terms, first))
            first += len(terms)
        if first != len(rarity):
            raise ValueError(f"{first} features have names, and {len(rarity)} a rarity")
        self._starts = np.array([block.first for block in self.blocks])

    def __len__(self) -> int:
        return len(self.rarity)

    @classmethod
    def learn(
        cls, texts: Sequence["Text"], scope: FeatureScope, *, pair: bool, min_rows: int, max_features: int
    ) -> Self:
        """The features that stand in enough of these texts, the most frequent ones first if there are too many."""
        blocks = [FeatureBlock(name, _longest_run(name, scope)) for name in _block_names(scope, pair=pair)]
        counts: list[Counter[str]] = [Counter() for _ in blocks]
        for text in texts:
            for block, count, tokens in zip(blocks, counts, _tokenise_blocks(text, blocks, scope), strict=True):
                count.update(set(block.terms_in(tokens)))
        least = max(1, min(min_rows, len(texts) // 2))  # of a handful of rows none would stand in enough
        # Padding alone tells nothing of a word, and would be all that is known of a text in another script: in SMS spam
        # such a text was ham with 0.9998. Vocabularies that have it, from before, are used as they were measured.
        for count in counts:
            count.pop(PADDING, None)
        kept = [(-rows, i, term) for i, count in enumerate(counts) for term, rows in count.items() if rows >= least]
        kept = sorted(kept)[:max_features]
        if not kept:
            hint = "are the texts empty? else lower model.min_rows"
            raise DataError("no word or character stands in enough training texts", hint=hint)
        terms = [sorted(term for _, i, term in kept if i == number) for number in range(len(blocks))]
        frequency = np.array([counts[i][term] for i, block_terms in enumerate(terms) for term in block_terms])
        rarity = np.log((1 + len(texts)) / (1 + frequency)) + 1
        vocabulary = [(block.name, block_terms) for block, block_terms in zip(blocks, terms, strict=True)]
        return cls(vocabulary, rarity.astype(np.float32), scope)

    def transform_texts(self, texts: Sequence["Text"]) -> Sparse:
        """The features of some texts."""
        numbers: list[int] = []
        ends: list[int] = []
        for text in texts:
            for block, tokens in zip(self.blocks, _tokenise_blocks(text, self.blocks, self._scope), strict=True):
                numbers.extend(block.numbers_in(tokens))
            ends.append(len(numbers))
        rows = np.repeat(np.arange(len(texts)), np.diff([0, *ends]))
        keys, counts = np.unique(rows * len(self) + np.array(numbers, dtype=np.int64), return_counts=True)
        rows, columns = np.divmod(keys, len(self))
        values = (1 + np.log(counts)) * self.rarity[columns]
        # Words and characters each count as much as the other, however many there are of them.
        part = rows * len(self.blocks) + np.searchsorted(self._starts, columns, side="right") - 1
        values /= np.sqrt(np.bincount(part, values**2))[part]
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(texts)))])
        return starts, columns, values.astype(np.float32)

    def transform_parts(self, texts: Sequence["Text"]) -> Iterator[Sparse]:
        """The features of any number of texts, some texts at a time."""
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            yield self.transform_texts(texts[start : start + TEXTS_AT_ONCE])

    def share_by_character(self, text: "Text", weights: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """The weighted values of a text's features, shared by the characters of each side that they are made of.

        A run of words is shared by its words alike, a word and a run of characters by their characters.
        """
        _, columns, values = self.transform_texts([text])
        of_feature = dict(zip(columns.tolist(), (values * weights[columns]).tolist(), strict=True))
        sides = (text,) if isinstance(text, str) else text
        spans = [_locate_tokens(side, self._scope) for side in sides]
        shares = [np.zeros(len(side[: self._scope.max_characters])) for side in sides]
        for block in self.blocks:
            side, tokens = _tokens_of_block(block.name, spans)
            places = list(block.locate_terms([token for token, _ in tokens]))
            counts = Counter(number for number, _ in places)
            for number, parts in places:
                for token, part in parts:
                    characters = tokens[token][1][part]
                    share = of_feature[number] / counts[number] / len(parts) / len(characters)
                    for character in characters:
                        shares[side][character] += share
        return shares


@dataclass(frozen=True)
class FeatureRows:
    """The features of some texts, as a graph takes them: side by side, the shorter ones filled up with none."""

    starts: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.float32]
    none: int
    """The number of no feature."""

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Features of each text."""
        return np.diff(self.starts).astype(np.int32)

    def arrays(self, numbers: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """What the graph takes for these texts."""
        shape = (len(numbers), max(int(self.lengths[numbers].max()), 1))
        features, amounts = np.full(shape, self.none, np.int64), np.zeros(shape, np.float32)
        for place, number in enumerate(numbers):
            first, last = self.starts[number], self.starts[number + 1]
            features[place, : last - first] = self.columns[first:last]
            amounts[place, : last - first] = self.values[first:last]
        return {"features": features, "amounts": amounts}

    def pooled(self, scores: Scores, *, texts: int) -> Scores:  # noqa: ARG002 - a text is one row
        """The scores of the texts: a text is one row."""
        return scores


def _block_names(scope: FeatureScope, *, pair: bool) -> list[str]:
    """The kinds of features. Of a pair: each side's own, and the words that both have or only the second has."""
    kinds = ["words"] * (scope.words > 0) + ["characters"] * (scope.characters > 0)
    if not pair:
        return kinds
    return [f"{kind} of {side}" for side in ("first", "second") for kind in kinds] + ["words of both", "words added"]


def _longest_run(name: str, scope: FeatureScope) -> int:
    if name in ("words of both", "words added"):
        return 1
    return scope.words if name.startswith("words") else scope.characters


def _tokenise_blocks(text: "Text", blocks: Sequence[FeatureBlock], scope: FeatureScope) -> list[list[str]]:
    """The tokens that each block looks at."""
    if isinstance(text, str):
        tokens = _tokenise_text(text, scope)
        return [tokens] * len(blocks)
    first, second = (_tokenise_text(side, scope) for side in text)
    known = set(first)
    sides = {
        "first": first,
        "second": second,
        "both": [token for token in second if token in known],
        "added": [token for token in second if token not in known],
    }
    return [sides[block.name.split(" ")[-1]] for block in blocks]


Span = tuple[str, list[int]]
"""A token, and for each of its characters where in the text it comes from."""


def _locate_tokens(text: str, scope: FeatureScope) -> list[Span]:
    """The tokens of a text with their places in it."""
    read = text[: scope.max_characters]
    # The lower case of some letters is two characters, which come from one.
    origin = [place for place, character in enumerate(read) for _ in character.lower()]
    return [(match[0], origin[match.start() : match.end()]) for match in TOKEN.finditer(read.lower())]


def _tokens_of_block(name: str, spans: Sequence[Sequence[Span]]) -> tuple[int, Sequence[Span]]:
    """The side of a pair that a block looks at, and its tokens there."""
    side = 0 if len(spans) == 1 or name.endswith("first") else 1
    known = {token for token, _ in spans[0]} if len(spans) == 2 else set()
    if name.endswith("both"):
        return side, [span for span in spans[side] if span[0] in known]
    if name.endswith("added"):
        return side, [span for span in spans[side] if span[0] not in known]
    return side, spans[side]


def _tokenise_text(text: str, scope: FeatureScope) -> list[str]:
    return TOKEN.findall(text[: scope.max_characters].lower())
