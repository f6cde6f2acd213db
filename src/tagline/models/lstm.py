"""A bidirectional LSTM, trained from scratch, with a vocabulary of the training texts or pretrained word vectors."""

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import Field

from tagline.errors import SpecError
from tagline.models import Scores, Step, model_files
from tagline.models.nn import vocabulary as vocabularies
from tagline.models.nn import word_vectors
from tagline.models.nn.learner import USES, Learner, smoothing_of, write_tensors
from tagline.models.nn.tokens import LongTexts, Reading, TokenPreprocessor
from tagline.spec import ModelOptions, Training

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import nn

    from tagline.data.dataset import Split, Task
    from tagline.data.texts import Text
    from tagline.models.nn.loop import ParameterGroup
    from tagline.models.nn.recurrent import TokenNetwork

STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 1200, 5, 40
LEARNING_RATE = 2e-3
EMBEDDING = 128
SPREAD = 0.1
"""The standard deviation of the initial embeddings."""
SIZES = {"subwords": 8_000, "words": 30_000}
MIN_COUNTS = {"subwords": 10, "words": 2}
"""Rare pieces are better split into smaller ones: on validation 10 did better than 2 on three sets of four."""


class LstmOptions(ModelOptions):
    """The options of `[model]` for family `lstm`."""

    family: Literal["lstm"] = Field("lstm", description="a bidirectional LSTM, learned from scratch")
    vocabulary: vocabularies.Kind = Field(
        "subwords", description='pieces of words; or "words", for languages that put spaces between them'
    )
    vocabulary_size: Annotated[int, Field(ge=10, le=1_000_000)] | Literal["auto"] = Field(
        "auto", description="the most frequent are kept; auto: 8000 pieces, or 30000 words"
    )
    min_count: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="times one must stand in the training texts; auto: 10 for pieces, 2 for words"
    )
    vectors: str = Field("", description="a file of word vectors to start from, as GloVe and word2vec write it")
    embedding: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="numbers a piece or word is made into; auto: 128, or as many as vectors has"
    )
    hidden: int = Field(128, ge=1, description="numbers that each direction remembers")
    layers: int = Field(1, ge=1, le=8, description="LSTMs on top of each other")
    dropout: float = Field(0.3, ge=0, lt=1, description="share of the numbers that are left out while it learns")
    word_dropout: float = Field(0.1, ge=0, lt=1, description="share of the words that are left out while it learns")
    pooling: Literal["max", "mean", "max+mean", "attention"] = Field(
        "max+mean", description="of the states; or max, mean, attention"
    )
    max_tokens: int = Field(256, ge=8, description="of a text that are read at once")
    long_texts: LongTexts = Field("start", description='what is read of a longer one; or "ends", or all in "windows"')
    max_batch_tokens: int = Field(16384, ge=8, description="computed at once; a larger batch is taken in parts")


class Lstm:
    """The family `lstm`."""

    Options: ClassVar = LstmOptions
    uses: ClassVar[frozenset[str]] = USES
    refits: ClassVar[bool] = False
    uses_device: ClassVar[bool] = True

    def __init__(self, options: LstmOptions, reading: Reading, *, training: Training, embedding: int) -> None:
        self.options = options
        self.reading = reading
        self.training = training
        self.embedding = embedding
        self.learner: Learner | None = None
        """None until `fit` has seen the training texts, from which its vocabulary is made."""

    @classmethod
    def create(
        cls, options: LstmOptions, *, training: Training, task: "Task", labels: Sequence[str], pair: bool
    ) -> Self:
        """Create an untrained model, which has no vocabulary yet."""
        if pair and options.long_texts != "start":
            raise SpecError(f'model.long_texts: "{options.long_texts}" is for single texts; leave it at "start"')
        width = word_vectors.read_width(options.vectors) if options.vectors else EMBEDDING
        if options.vectors and options.embedding not in ("auto", width):
            problem = f"model.embedding: {options.vectors} has {width} numbers a word, not {options.embedding}"
            raise SpecError(problem, hint="leave out model.embedding")
        embedding = width if options.embedding == "auto" else options.embedding
        reading = Reading(task, len(labels), pair, options.max_tokens, options.long_texts, pad=0, types=pair)
        return cls(options, reading, training=training, embedding=embedding)

    def fit(self, train: "Split", validation: "Split", *, seed: int) -> Iterator[Step]:  # noqa: ARG002 - part of the contract
        """Train the tokenizer on the training texts, then the network on batches of similar length."""
        if self.learner is None:
            self.learner = self._create_learner(train.texts)
        training, network = self.training, cast("TokenNetwork", self.learner.network)
        yield from self.learner.learn(
            train,
            _group_parameters(network),
            seed=seed,
            output=network.head.output,
            usual_epochs=usual_epochs(len(train), batch_size=training.batch_size),
            learning_rate=LEARNING_RATE if training.learning_rate == "auto" else training.learning_rate,
            smoothing=smoothing_of(training, task=self.reading.task),
        )

    def _create_learner(self, texts: "Sequence[Text]") -> Learner:
        """Create the tokenizer and the network for these texts; the same ones in every worker."""
        options = self.options
        size = SIZES[options.vocabulary] if options.vocabulary_size == "auto" else options.vocabulary_size
        least = MIN_COUNTS[options.vocabulary] if options.min_count == "auto" else options.min_count
        tokenizer = vocabularies.train_tokenizer(texts, options.vocabulary, size=size, min_count=least)
        learner = self._build_learner(tokenizer)
        if options.vectors:
            _load_word_vectors(options.vectors, learner)
        return learner

    def _build_learner(self, tokenizer: "Tokenizer") -> Learner:
        from tagline.models.nn.recurrent import TokenNetwork, seed_layers

        options, reading = self.options, self.reading
        with seed_layers(self.training.seed):
            network = TokenNetwork(
                tokenizer.get_vocab_size(),
                reading.labels,
                size=self.embedding,
                spread=SPREAD,
                hidden=options.hidden,
                layers=options.layers,
                dropout=options.dropout,
                word_dropout=options.word_dropout,
                pooling=options.pooling,
                types=reading.types,
            )
        return Learner(network, tokenizer, reading, training=self.training, most_tokens=options.max_batch_tokens)

    def scores(self, texts: Sequence["Text"]) -> Scores:
        """Return the score of every label for every text."""
        if self.learner is None:
            raise RuntimeError("scores of a model that has learned nothing")
        return self.learner.scores(texts)

    def graph(self) -> "nn.Module":
        """Return a copy of the network, to be exported."""
        if self.learner is None:
            raise RuntimeError("the graph of a model that has learned nothing")
        return copy.deepcopy(self.learner.network).cpu()

    @classmethod
    def load_preprocessor(cls, directory: Path) -> TokenPreprocessor:
        """Load the graph's preprocessor from the files that `save` wrote."""
        return TokenPreprocessor.load(directory, "lstm.json")

    def save(self, directory: Path, *, resumable: bool = False) -> None:
        """Write the weights as safetensors, the tokenizer as `tokenizer.json`, and the rest as JSON."""
        weights = self.learner.weights() if self.learner else {}
        state = self.learner.save_state(directory) if self.learner and resumable else {}
        if self.learner and not self.learner.context.world.is_main:
            return
        facts: dict[str, Any] = {
            "options": self.options.model_dump(),
            "reading": asdict(self.reading),
            "embedding": self.embedding,
        }
        if resumable:
            facts |= {"training": self.training.model_dump(), **state}
        if self.learner:
            write_tensors(weights, directory / "model.safetensors")
            (directory / "tokenizer.json").write_text(self.learner.tokenizer.to_str(pretty=True), "utf-8")
        (directory / "lstm.json").write_text(json.dumps(facts, indent=2) + "\n", "utf-8")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Load the files that `save` wrote."""
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        with model_files.translate_errors(directory / "lstm.json"):
            facts = model_files.read_json(directory / "lstm.json")
            model = cls(
                LstmOptions(**facts["options"]),
                Reading(**facts["reading"]),
                embedding=facts["embedding"],
                training=Training(**facts.get("training", {})),
            )
        if any((directory / name).exists() for name in ("tokenizer.json", "model.safetensors")):  # then both must exist
            with model_files.translate_errors(directory / "tokenizer.json"):
                model.learner = model._build_learner(Tokenizer.from_file(str(directory / "tokenizer.json")))
            with model_files.translate_errors(directory / "model.safetensors"):
                model.learner.network.load_state_dict(load_file(directory / "model.safetensors"))
            model.learner.restore_state(directory, facts)
        return model


def usual_epochs(rows: int, *, batch_size: int) -> int:
    """Return the epochs for `training.epochs = "auto"`: as many as make enough steps to train from scratch."""
    return min(max(round(STEPS * batch_size / rows), FEWEST_EPOCHS), MOST_EPOCHS)


def _group_parameters(network: "nn.Module") -> "list[ParameterGroup]":
    """Return two groups with the same learning rate: weights with weight decay, biases without."""
    from tagline.models.nn.loop import ParameterGroup

    named = list(network.named_parameters())
    return [
        ParameterGroup([name for name, parameter in named if (parameter.ndim > 1) == decays], 1.0, decays)
        for decays in (True, False)
    ]


def _load_word_vectors(path: str, learner: Learner) -> None:
    """Set the embeddings of known words to their pretrained vectors, and scale the others to the same spread."""
    import torch

    numbers: dict[str, list[int]] = {}
    for token, number in learner.tokenizer.get_vocab().items():
        numbers.setdefault(token.removeprefix(vocabularies.WORD_START), []).append(number)
    vectors = word_vectors.read(path, numbers)
    if not vectors:
        raise SpecError(f"model.vectors: {path} has none of the words of the training texts")
    weight = learner.network.get_parameter("embedding.weight")
    with torch.no_grad():
        known = torch.stack([torch.from_numpy(values) for values in vectors.values()])
        weight.mul_(known.std(correction=0) / SPREAD)
        for word, values in vectors.items():
            weight[numbers[word]] = torch.from_numpy(values).to(weight.device)
