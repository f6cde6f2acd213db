"""TF-IDF features of family `linear`: n-grams of words and of characters. Needs numpy alone."""

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
"""Added around a word, so that character n-grams at its beginning and end differ from those in its middle."""
TEXTS_AT_ONCE = 512
CACHED_TOKENS = 200_000

Sparse = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""The row starts, feature numbers and values of some texts, as in a CSR matrix."""


@dataclass(frozen=True)
class FeatureScope:
    """The longest n-grams of words and of characters, and the number of characters of a text that are read."""

    words: int
    characters: int
    max_characters: int


Part = tuple[int, slice]
"""The index of a token, and a slice of its characters."""


@dataclass
class FeatureBlock:
    """Features of one kind: n-grams of words or of characters, of one text of a pair or of both."""

    name: str
    longest: int
    terms: list[str] = field(default_factory=list)
    first: int = 0
    """The number of its first feature, counted over all blocks."""

    def __post_init__(self) -> None:
        self._number = {term: self.first + i for i, term in enumerate(self.terms)}
        self._known_tokens: dict[str, tuple[int, ...]] = {}

    @property
    def kind(self) -> str:
        """`words` or `characters`."""
        return self.name.split(" ")[0]

    def terms_in(self, tokens: Sequence[str]) -> Iterator[str]:
        """Yield every term of these tokens, as often as it occurs."""
        if self.kind == "characters":
            for token in tokens:
                yield from self._runs_in(token)
        else:
            for length in range(1, self.longest + 1):
                for start in range(len(tokens) - length + 1):
                    yield " ".join(tokens[start : start + length])

    def numbers_in(self, tokens: Sequence[str]) -> Iterator[int]:
        """Return the numbers of the known terms of these tokens; they are cached by token, since most tokens recur."""
        if self.kind == "words":
            number = self._number.get
            return (known for term in self.terms_in(tokens) if (known := number(term)) is not None)
        if len(self._known_tokens) > CACHED_TOKENS:
            self._known_tokens.clear()
        return (known for token in tokens for known in self._look_up_runs(token))

    def locate_terms(self, tokens: Sequence[str]) -> Iterator[tuple[int, list[Part]]]:
        """Yield the number of each known term, with the parts of tokens that it consists of."""
        for length in range(1, self.longest + 1):
            if self.kind == "characters":
                for place, token in enumerate(tokens):
                    padded = f"{PADDING}{token}{PADDING}"
                    for start in range(len(padded) - length + 1):
                        number = self._number.get(padded[start : start + length])
                        if number is not None:
                            yield number, [(place, _covered_characters(token, start, length))]
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


def _covered_characters(token: str, start: int, length: int) -> slice:
    """Return the characters of a token that an n-gram of its padded form covers; all if it is padding alone."""
    first, last = max(start - len(PADDING), 0), min(start - len(PADDING) + length, len(token))
    return slice(first, last) if first < last else slice(None)


class Features:
    """TF-IDF features, with each block of a text normalised to length 1."""

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
        """Select the features that occur in enough of these texts; if there are too many, the most frequent ones."""
        blocks = [FeatureBlock(name, _longest_run(name, scope)) for name in _block_names(scope, pair=pair)]
        counts: list[Counter[str]] = [Counter() for _ in blocks]
        for text in texts:
            for block, count, tokens in zip(blocks, counts, _tokenise_blocks(text, blocks, scope), strict=True):
                count.update(set(block.terms_in(tokens)))
        least = max(1, min(min_rows, len(texts) // 2))  # in a handful of rows no term would be frequent enough
        # Padding alone says nothing about a word, and would be the only feature of a text in another script: in SMS
        # spam such a text was ham with 0.9998. Older vocabularies that have it are used as they were evaluated.
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
        """Compute the features of some texts."""
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
        # Normalised by block, so that words and characters count alike, however many there are.
        part = rows * len(self.blocks) + np.searchsorted(self._starts, columns, side="right") - 1
        values /= np.sqrt(np.bincount(part, values**2))[part]
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(texts)))])
        return starts, columns, values.astype(np.float32)

    def transform_parts(self, texts: Sequence["Text"]) -> Iterator[Sparse]:
        """Compute the features of any number of texts, in parts."""
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            yield self.transform_texts(texts[start : start + TEXTS_AT_ONCE])

    def share_by_character(self, text: "Text", weights: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Return a text's weighted features, distributed over the characters that they consist of.

        The result has one array for each text of a pair. An n-gram of words is split equally between its words, a word
        or an n-gram of characters between its characters.
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
    """The features of some texts as a graph takes them: batches padded with the number of no feature."""

    starts: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.float32]
    none: int
    """The number that stands for no feature."""

    @property
    def lengths(self) -> NDArray[np.int32]:
        """The number of features of each text."""
        return np.diff(self.starts).astype(np.int32)

    def arrays(self, numbers: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return the graph's inputs for these texts."""
        shape = (len(numbers), max(int(self.lengths[numbers].max()), 1))
        features, amounts = np.full(shape, self.none, np.int64), np.zeros(shape, np.float32)
        for place, number in enumerate(numbers):
            first, last = self.starts[number], self.starts[number + 1]
            features[place, : last - first] = self.columns[first:last]
            amounts[place, : last - first] = self.values[first:last]
        return {"features": features, "amounts": amounts}

    def pooled(self, scores: Scores, *, texts: int) -> Scores:  # noqa: ARG002 - a text is one row
        """Return the scores unchanged: a text is one row."""
        return scores


def _block_names(scope: FeatureScope, *, pair: bool) -> list[str]:
    """Return the kinds of features; for a pair those of each text, and the words that both or only the second have."""
    kinds = ["words"] * (scope.words > 0) + ["characters"] * (scope.characters > 0)
    if not pair:
        return kinds
    return [f"{kind} of {side}" for side in ("first", "second") for kind in kinds] + ["words of both", "words added"]


def _longest_run(name: str, scope: FeatureScope) -> int:
    if name in ("words of both", "words added"):
        return 1
    return scope.words if name.startswith("words") else scope.characters


def _tokenise_blocks(text: "Text", blocks: Sequence[FeatureBlock], scope: FeatureScope) -> list[list[str]]:
    """Return the tokens of each block."""
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
"""A token, and the place in the text of each of its characters."""


def _locate_tokens(text: str, scope: FeatureScope) -> list[Span]:
    """Return the tokens of a text with their places in it."""
    read = text[: scope.max_characters]
    # The lower case of some letters is two characters.
    origin = [place for place, character in enumerate(read) for _ in character.lower()]
    return [(match[0], origin[match.start() : match.end()]) for match in TOKEN.finditer(read.lower())]


def _tokens_of_block(name: str, spans: Sequence[Sequence[Span]]) -> tuple[int, Sequence[Span]]:
    """Return the side of a pair that a block reads, and its tokens."""
    side = 0 if len(spans) == 1 or name.endswith("first") else 1
    known = {token for token, _ in spans[0]} if len(spans) == 2 else set()
    if name.endswith("both"):
        return side, [span for span in spans[side] if span[0] in known]
    if name.endswith("added"):
        return side, [span for span in spans[side] if span[0] not in known]
    return side, spans[side]


def _tokenise_text(text: str, scope: FeatureScope) -> list[str]:
    return TOKEN.findall(text[: scope.max_characters].lower())
