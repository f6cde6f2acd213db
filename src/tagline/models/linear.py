"""TF-IDF of words and characters with logistic regression: the baseline, trained in seconds, predicting with numpy."""

import json
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from safetensors.numpy import load_file, save

from tagline.errors import DataError
from tagline.models import Scores, Step, scores_of
from tagline.spec import Section, Training

if TYPE_CHECKING:
    from torch import nn

    from tagline.dataset import Split, Task
    from tagline.texts import Text

TOKEN = re.compile(r"\w{1,100}|[^\w\s]")
PADDING = " "
"""Stands around a word, so that runs of characters tell its beginning and end from its middle."""
TEXTS_AT_ONCE = 512
ITERATIONS_A_STEP = 25
MOST_STEPS = 8
"""For each strength: 200 iterations, where 30 to 80 are usual."""
STRENGTHS = (1.0, 4.0, 16.0)
CACHED_TOKENS = 200_000
PAST_STEPS = 10

Floats = NDArray[np.float64]
Sparse = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
"""Row starts, feature numbers and values of some texts, as in a CSR matrix."""


class LinearOptions(Section):
    """What `[model]` may hold for family `linear`."""

    family: Literal["linear"] = Field("linear", description="TF-IDF and logistic regression")
    words: int = Field(3, ge=0, le=5, description="longest run of words that is a feature; 0: none")
    characters: int = Field(5, ge=0, le=8, description="longest run of characters inside a word; 0: none")
    min_rows: int = Field(2, ge=1, description="training rows a feature must stand in")
    max_features: int = Field(100_000, ge=1, description="the most frequent are kept")
    max_characters: int = Field(20_000, ge=1, description="of a text that are read")
    strength: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        "auto", description="trust in the data against smoothness (C); auto: the best of three on validation"
    )

    @model_validator(mode="after")
    def _sees_something(self) -> Self:
        if not self.words and not self.characters:
            raise ValueError("words and characters are both 0: there is nothing to learn from")
        return self


class Linear:
    """Family `linear`."""

    Options: ClassVar = LinearOptions
    uses: ClassVar[frozenset[str]] = frozenset({"class_weights"})
    refits: ClassVar[bool] = True
    uses_device: ClassVar[bool] = False

    def __init__(self, options: LinearOptions, *, task: "Task", labels: int, pair: bool, class_weights: str) -> None:
        self.options = options
        self.task = task
        self.labels = labels
        self.pair = pair
        self.class_weights = class_weights
        self.features: Features | None = None
        self.weights: Floats | None = None
        """A row a feature and one for the constant, a column a label."""
        self.progress = Progress()

    @classmethod
    def create(
        cls, options: LinearOptions, *, training: Training, task: "Task", labels: Sequence[str], pair: bool
    ) -> Self:  # fmt: skip
        """A model that has learned nothing yet."""
        return cls(options, task=task, labels=len(labels), pair=pair, class_weights=training.class_weights)

    def fit(self, train: "Split", validation: "Split", *, seed: int) -> Iterator[Step]:  # noqa: ARG002 - nothing random
        """Learn the features, then one set of weights a strength, each starting from the one before."""
        if self.features is None:  # else learning goes on, with weights of these features
            self.features = Features.learn(train.texts, self.options, pair=self.pair)
        truth = train.targets if self.task == "multi" else np.eye(self.labels)[train.targets]
        problem = Problem(
            self.features,
            train.texts,
            truth.astype(np.float64),
            task=self.task,
            balanced=self.class_weights == "balanced",
        )
        if self.weights is None:
            self.weights = problem.start()
        strengths = STRENGTHS if self.options.strength == "auto" and len(validation) else (self._one_strength(),)
        total = len(strengths) * MOST_STEPS
        while self.progress.strength < len(strengths):
            strength = strengths[self.progress.strength]
            self.weights, loss, done = problem.improve(self.weights, strength=strength)
            self.progress = self.progress.next(finished=done)
            yield Step(
                self.progress.number, total, loss, evaluate=self.progress.step == 0, settings={"strength": strength}
            )

    def _one_strength(self) -> float:
        return 4.0 if self.options.strength == "auto" else self.options.strength

    def scores(self, texts: Sequence["Text"]) -> Scores:
        """The score of every label for every text."""
        if self.features is None or self.weights is None:
            raise RuntimeError("scores of a model that has learned nothing")
        weights = self.weights.astype(np.float32)
        parts = [self._scores(texts[i : i + TEXTS_AT_ONCE], weights) for i in range(0, len(texts), TEXTS_AT_ONCE)]
        return np.concatenate(parts) if parts else np.zeros((0, weights.shape[1]), dtype=np.float32)

    def _scores(self, texts: Sequence["Text"], weights: NDArray[np.float32]) -> Scores:
        assert self.features is not None
        starts, columns, values = self.features.of(texts)
        logits = np.tile(weights[-1], (len(texts), 1))
        filled = np.flatnonzero(np.diff(starts))
        if len(filled):
            logits[filled] += np.add.reduceat(weights[columns] * values[:, None], starts[filled])
        return scores_of(logits, task=self.task)

    def added(self, text: "Text", label: int) -> list[Floats]:
        """What each character adds to a label's log-odds: its features' values times their weights, taken apart.

        Task `single`: against the mean of the other labels. A run of words is shared by its words alike, a word and a
        run of characters by their characters.
        """
        if self.features is None or self.weights is None:
            raise RuntimeError("what is added by a model that has learned nothing")
        weights = self.weights[:, label]
        if self.task == "single":
            weights = weights - np.delete(self.weights, label, axis=1).mean(axis=1)
        _, columns, values = self.features.of([text])
        of_feature = dict(zip(columns.tolist(), (values * weights[columns]).tolist(), strict=True))
        sides = (text,) if isinstance(text, str) else text
        spans = [_spans(side, self.options) for side in sides]
        added = [np.zeros(len(side[: self.options.max_characters])) for side in sides]
        for block in self.features.blocks:
            side, tokens = _tokens_of_block(block.name, spans)
            places = list(block.placed([token for token, _ in tokens]))
            counts = Counter(number for number, _ in places)
            for number, parts in places:
                for token, part in parts:
                    characters = tokens[token][1][part]
                    share = of_feature[number] / counts[number] / len(parts) / len(characters)
                    for character in characters:
                        added[side][character] += share
        return added

    def graph(self) -> "nn.Module":
        """The weighted sum of a text's features."""
        import torch

        if self.weights is None:
            raise RuntimeError("the graph of a model that has learned nothing")
        weights = torch.from_numpy(self.weights.astype(np.float32))
        empty = torch.zeros(1, weights.shape[1])

        class WeightedSum(torch.nn.Module):
            """Features by number, the last one standing for none, and how much of each."""

            def __init__(self) -> None:
                super().__init__()
                self.table = torch.nn.Parameter(torch.cat([weights[:-1], empty]))
                self.constant = torch.nn.Parameter(weights[-1])

            def forward(self, features: torch.Tensor, amounts: torch.Tensor) -> Any:
                """The logits of a batch."""
                return (self.table[features] * amounts.unsqueeze(-1)).sum(dim=1) + self.constant

        return WeightedSum()

    @classmethod
    def intake(cls, directory: Path) -> "FeatureIntake":
        """What reads texts for the graph."""
        return FeatureIntake(cls.load(directory))

    def save(self, directory: Path, *, resumable: bool = False) -> None:
        """Weights as safetensors, the vocabulary and the rest as JSON."""
        config: dict[str, Any] = {
            "options": self.options.model_dump(), "task": self.task, "labels": self.labels, "pair": self.pair,
            "class_weights": self.class_weights,
        }  # fmt: skip
        if resumable:
            config["progress"] = {"strength": self.progress.strength, "step": self.progress.step}
        tensors: dict[str, NDArray[Any]] = {}
        if self.weights is not None and self.features is not None:
            tensors = {
                "weights": self.weights if resumable else self.weights.astype(np.float32),
                "rarity": self.features.rarity,
            }
            _write_json(directory / "vocabulary.json", [[b.name, b.terms] for b in self.features.blocks])
        _write_json(directory / "config.json", config)
        (directory / "model.safetensors").write_bytes(save(tensors))  # save_file hides why a disk refuses

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        config = json.loads((directory / "config.json").read_text("utf-8"))
        options, progress = LinearOptions(**config.pop("options")), config.pop("progress", {})
        model = cls(options, **config)
        tensors = load_file(directory / "model.safetensors")
        if "weights" in tensors:
            vocabulary = json.loads((directory / "vocabulary.json").read_text("utf-8"))
            model.features = Features(vocabulary, tensors["rarity"], model.options)
            model.weights = tensors["weights"].astype(np.float64)
        model.progress = Progress(**progress)
        return model


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), "utf-8")


@dataclass(frozen=True)
class Progress:
    """How far learning has come: strengths done, and steps on the current one."""

    strength: int = 0
    step: int = 0

    @property
    def number(self) -> int:
        """Steps done of all that there can be."""
        return self.strength * MOST_STEPS + self.step

    def next(self, *, finished: bool) -> "Progress":
        """One step further; the last step a strength is given finishes it."""
        if finished or self.step + 1 == MOST_STEPS:
            return Progress(self.strength + 1, 0)
        return Progress(self.strength, self.step + 1)


Part = tuple[int, slice]
"""The number of a token, and which of its characters."""


@dataclass
class Block:
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
        return (known for token in tokens for known in self._known_token(token))

    def placed(self, tokens: Sequence[str]) -> Iterator[tuple[int, list[Part]]]:
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

    def _known_token(self, token: str) -> tuple[int, ...]:
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
        self, vocabulary: Sequence[tuple[str, list[str]]], rarity: NDArray[np.float32], options: LinearOptions
    ) -> None:
        self.rarity = rarity
        self._options = options
        self.blocks: list[Block] = []
        first = 0
        for name, terms in vocabulary:
            self.blocks.append(Block(name, _longest(name, options), terms, first))
            first += len(terms)
        self._starts = np.array([block.first for block in self.blocks])

    def __len__(self) -> int:
        return len(self.rarity)

    @classmethod
    def learn(cls, texts: Sequence["Text"], options: LinearOptions, *, pair: bool) -> Self:
        """The features that stand in enough of these texts, the most frequent ones first if there are too many."""
        blocks = [Block(name, _longest(name, options)) for name in _block_names(options, pair=pair)]
        counts: list[Counter[str]] = [Counter() for _ in blocks]
        for text in texts:
            for block, count, tokens in zip(blocks, counts, _tokens(text, blocks, options), strict=True):
                count.update(set(block.terms_in(tokens)))
        least = max(1, min(options.min_rows, len(texts) // 2))  # of a handful of rows none would stand in enough
        # Padding alone tells nothing of a word, and would be all that is known of a text in another script: in SMS spam
        # such a text was ham with 0.9998. Vocabularies that have it, from before, are used as they were measured.
        for count in counts:
            count.pop(PADDING, None)
        kept = [(-rows, i, term) for i, count in enumerate(counts) for term, rows in count.items() if rows >= least]
        kept = sorted(kept)[: options.max_features]
        if not kept:
            hint = "are the texts empty? else lower model.min_rows"
            raise DataError("no word or character stands in enough training texts", hint=hint)
        terms = [sorted(term for _, i, term in kept if i == number) for number in range(len(blocks))]
        frequency = np.array([counts[i][term] for i, block_terms in enumerate(terms) for term in block_terms])
        rarity = np.log((1 + len(texts)) / (1 + frequency)) + 1
        vocabulary = [(block.name, block_terms) for block, block_terms in zip(blocks, terms, strict=True)]
        return cls(vocabulary, rarity.astype(np.float32), options)

    def of(self, texts: Sequence["Text"]) -> Sparse:
        """The features of some texts."""
        numbers: list[int] = []
        ends: list[int] = []
        for text in texts:
            for block, tokens in zip(self.blocks, _tokens(text, self.blocks, self._options), strict=True):
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


class FeatureIntake:
    """Reads texts for the graph of a `linear` bundle."""

    def __init__(self, model: Linear) -> None:
        self.task, self.labels, self.pair = model.task, model.labels, model.pair
        assert model.features is not None
        self._features = model.features

    def read(self, texts: Sequence["Text"]) -> FeatureRows:
        """The features of some texts."""
        starts, columns, values = self._features.of(texts)
        return FeatureRows(np.asarray(starts), columns, values, none=len(self._features))


def _block_names(options: LinearOptions, *, pair: bool) -> list[str]:
    """The kinds of features. Of a pair: each side's own, and the words that both have or only the second has."""
    kinds = ["words"] * (options.words > 0) + ["characters"] * (options.characters > 0)
    if not pair:
        return kinds
    return [f"{kind} of {side}" for side in ("first", "second") for kind in kinds] + ["words of both", "words added"]


def _longest(name: str, options: LinearOptions) -> int:
    if name in ("words of both", "words added"):
        return 1
    return options.words if name.startswith("words") else options.characters


def _tokens(text: "Text", blocks: Sequence[Block], options: LinearOptions) -> list[list[str]]:
    """The tokens that each block looks at."""
    if isinstance(text, str):
        tokens = _tokenised(text, options)
        return [tokens] * len(blocks)
    first, second = (_tokenised(side, options) for side in text)
    known = set(first)
    sides = {
        "first": first, "second": second,
        "both": [token for token in second if token in known],
        "added": [token for token in second if token not in known],
    }  # fmt: skip
    return [sides[block.name.split(" ")[-1]] for block in blocks]


Span = tuple[str, list[int]]
"""A token, and for each of its characters where in the text it comes from."""


def _spans(text: str, options: LinearOptions) -> list[Span]:
    """The tokens of a text with their places in it."""
    read = text[: options.max_characters]
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


def _tokenised(text: str, options: LinearOptions) -> list[str]:
    return TOKEN.findall(text[: options.max_characters].lower())


class Problem:
    """The loss of some weights on the training rows, and its way down. The only part that needs scipy."""

    def __init__(
        self, features: Features, texts: Sequence["Text"], truth: Floats, *, task: "Task", balanced: bool
    ) -> None:
        from scipy.sparse import csr_matrix, vstack

        parts = []
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            some = list(texts[start : start + TEXTS_AT_ONCE])
            starts, columns, values = features.of(some)
            parts.append(csr_matrix((values.astype(np.float64), columns, starts), shape=(len(some), len(features))))
        self._rows = vstack(parts, format="csr")
        self._columns = self._rows.T.tocsr()
        self._truth = truth
        self._task = task
        self._row_weights = _row_weights(truth, task=task) if balanced else np.ones((1, 1))

    def start(self) -> Floats:
        """All zeros."""
        return np.zeros((self._rows.shape[1] + 1, self._truth.shape[1]))

    def improve(self, weights: Floats, *, strength: float) -> tuple[Floats, float, bool]:
        """Some iterations of descent: better weights, their loss, and whether there is nothing left to gain."""
        from threadpoolctl import threadpool_limits

        pull = 1 / (strength * len(self._truth))
        tolerance = 1e-4 / strength**0.5
        # One thread: the same sums on any number of cores, and no waiting for one that is busy. With both cores of a
        # small machine busy, a run on the sample data took 3 s this way and 19 s with two threads.
        with threadpool_limits(limits=1, user_api="blas"):
            found, loss, done = descend(
                lambda flat: self._loss(flat, pull), weights.ravel(), iterations=ITERATIONS_A_STEP, tolerance=tolerance
            )
        return found.reshape(weights.shape), loss, done

    def _loss(self, flat: Floats, pull: float) -> tuple[float, Floats]:
        weights = flat.reshape(-1, self._truth.shape[1])
        logits = self._rows @ weights[:-1] + weights[-1]
        if self._task == "multi":
            loss = np.logaddexp(0, logits) - self._truth * logits
            scores = 1 / (1 + np.exp(-logits))
        else:
            logits -= logits.max(axis=1, keepdims=True)
            logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
            loss = -self._truth * logits
            scores = np.exp(logits)
        slope = self._row_weights * (scores - self._truth) / len(self._truth)
        total = (self._row_weights * loss).sum() / len(self._truth) + pull / 2 * (weights[:-1] ** 2).sum()
        gradient = np.empty_like(weights)
        gradient[:-1] = self._columns @ slope
        gradient[:-1] += pull * weights[:-1]
        gradient[-1] = slope.sum(axis=0)
        return float(total), gradient.ravel()


def descend(
    loss: Callable[[Floats], tuple[float, Floats]], start: Floats, *, iterations: int, tolerance: float
) -> tuple[Floats, float, bool]:
    """L-BFGS for a smooth convex loss: where it got to, the loss there, and whether the slope is within tolerance.

    scipy's L-BFGS-B also carries bounds, and on a few hundred thousand weights spends more time on them than the loss
    itself takes.
    """
    point, (value, gradient) = start, loss(start)
    past: deque[tuple[Floats, Floats, float]] = deque(maxlen=PAST_STEPS)
    for _ in range(iterations):
        if np.abs(gradient).max() <= tolerance:
            return point, value, True
        direction = _direction(gradient, past)
        slope = float(gradient @ direction)
        size = 1.0 if past else 1 / float(np.linalg.norm(gradient))
        while True:
            next_point = point + size * direction
            next_value, next_gradient = loss(next_point)
            if next_value <= value + 1e-4 * size * slope:
                break
            size /= 2
            if size < 1e-12:  # the loss cannot be told apart from its neighbours any more
                return point, value, True
        moved, bent = next_point - point, next_gradient - gradient
        curvature = float(moved @ bent)
        if curvature > 0:
            past.append((moved, bent, curvature))
        point, value, gradient = next_point, next_value, next_gradient
    return point, value, False


def _direction(gradient: Floats, past: Sequence[tuple[Floats, Floats, float]]) -> Floats:
    """Downhill, corrected by the curvature that the past steps have met (the two loops of Nocedal, 1980)."""
    direction = -gradient
    shares: list[float] = []
    for moved, bent, curvature in reversed(past):
        shares.append(float(moved @ direction) / curvature)
        direction -= shares[-1] * bent
    if past:
        _, bent, curvature = past[-1]
        direction *= curvature / float(bent @ bent)
    for (moved, bent, curvature), share in zip(past, reversed(shares), strict=True):
        direction += (share - float(bent @ direction) / curvature) * moved
    return direction


def _row_weights(truth: Floats, *, task: "Task") -> Floats:
    """How much each row counts, or for task `multi` each label of each row, so that rare labels weigh as much."""
    rows, labels = truth.shape
    frequency = np.maximum(truth.sum(axis=0), 1)
    if task == "single":
        weights: Floats = truth @ (rows / (labels * frequency))
        return weights[:, None]
    if_there, if_not = rows / (2 * frequency), rows / (2 * np.maximum(rows - frequency, 1))
    return np.asarray(np.where(truth > 0, if_there, if_not))
