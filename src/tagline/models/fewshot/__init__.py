"""A pretrained encoder for few examples per label: contrastive fine-tuning, then a linear head on its embeddings.

Files, in the order of their imports:

- contrastive.py: Contrastive fine-tuning of sentence embeddings, as in SetFit, and a linear head on them.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, cast

import numpy as np
from pydantic import Field

from tagline.errors import SpecError
from tagline.models import Scores, Step, model_files
from tagline.models.nn import tokens
from tagline.models.nn.learner import Learner, compute_repeatably, write_tensors
from tagline.models.nn.tokens import Reading, TokenPreprocessor
from tagline.spec import ModelOptions, Training

if TYPE_CHECKING:
    from torch import nn

    from tagline.data.checks import Finding
    from tagline.data.dataset import Split, Task
    from tagline.data.texts import Text
    from tagline.models.fewshot.contrastive import ContrastiveTuning, FewShotExamples
    from tagline.models.nn.loop import LoopState
    from tagline.models.nn.networks import Network
    from tagline.models.nn.pretrained import Pooling

LEARNING_RATE = 1e-4
"""The learning rate of the contrastive steps; tried with MiniLM alone, where 2e-4 did no better."""
PASSES, FEWEST_STEPS, MOST_STEPS = 4, 20, 300
"""Passes over the rows in the contrastive steps. With 16 and 40 rows of SST, 40 steps did no better than 20."""
MANY_ROWS = 64
"""With more rows per label (the median) the encoder is not tuned: not what the family is for, and not measured."""


class FewShotOptions(ModelOptions):
    """The options of `[model]` for family `fewshot`."""

    family: Literal["fewshot"] = Field("fewshot", description="a pretrained encoder for 8 to 64 examples a label")
    pretrained: str = Field(
        "minilm", min_length=1, description="packaged, offline; or a name on the Hugging Face hub, a directory, gs://"
    )
    max_tokens: int = Field(256, ge=8, description="of a text that are read; what follows is not")
    pooling: Literal["auto", "mean", "first"] = Field(
        "auto", description="of the tokens' states: mean or first; auto: as the encoder was made for"
    )
    tuning_steps: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto", description="before the head is fitted; 0: the encoder stays as it is; auto: the better of both"
    )
    freeze: Literal["none", "embeddings"] | Annotated[int, Field(ge=1)] = Field(
        "embeddings", description='what is not tuned; "none", or 4: the embeddings and the first 4 layers'
    )
    temperature: float = Field(0.1, gt=0, description="of the contrast; the lower, the more the nearest texts count")
    strength: float = Field(16.0, gt=0, description="of the head: trust in the data against smoothness (C)")
    max_batch_tokens: int = Field(8192, ge=8, description="embedded at once")


class FewShot:
    """The family `fewshot`."""

    Options: ClassVar = FewShotOptions
    uses: ClassVar[frozenset[str]] = frozenset({
        "batch_size", "learning_rate", "weight_decay", "warmup_share", "class_weights",
    })  # fmt: skip
    uses_device: ClassVar[bool] = True
    refits: ClassVar[bool] = True  # with eight rows per label, one held out is an eighth of the data

    def __init__(self, options: FewShotOptions, embedder: "Network", learner: Learner, *, pooling: "Pooling") -> None:
        self.options = options
        self.pooling = pooling
        self.embedder = embedder
        self.learner = learner
        self.done = 0
        self.has_head = False
        """Whether the head was fitted to the encoder's current weights."""
        self._examples: FewShotExamples | None = None
        self._tuning: ContrastiveTuning | None = None
        self._restored: LoopState | None = None

    @classmethod
    def create(
        cls, options: FewShotOptions, *, training: Training, task: "Task", labels: Sequence[str], pair: bool
    ) -> Self:
        """Create the pretrained encoder with an untrained head."""
        from tagline.models.nn import pretrained
        from tagline.models.nn.networks import layer_count

        loaded = pretrained.load(options.pretrained, dropout=0.0, max_tokens=options.max_tokens)
        layers = layer_count(loaded.encoder)
        if isinstance(options.freeze, int) and options.freeze >= layers and options.tuning_steps != 0:
            problem = f"model.freeze: the encoder has {layers} layers, and with all of them frozen none is tuned"
            raise SpecError(problem, hint="lower it; or, to leave the encoder as it is, model.tuning_steps=0")
        types = pair and loaded.has_types
        reading = Reading(task, len(labels), pair, options.max_tokens, "start", loaded.pad, types)
        pooling = loaded.pooling if options.pooling == "auto" else options.pooling
        return cls._from_parts(options, loaded.encoder, loaded.tokenizer, reading, training=training, pooling=pooling)

    @classmethod
    def _from_parts(
        cls,
        options: FewShotOptions,
        encoder: Any,
        tokenizer: Any,
        reading: Reading,
        *,
        training: Training,
        pooling: "Pooling",
    ) -> Self:
        from tagline.models.fewshot.contrastive import create_views

        embedder, classifier = create_views(encoder, labels=reading.labels, pooling=pooling)
        learner = Learner(classifier, tokenizer, reading, training=training, most_tokens=options.max_batch_tokens)
        return cls(options, embedder, learner, pooling=pooling)

    @classmethod
    def check_texts(cls, options: FewShotOptions, texts: Iterable["Text"]) -> "Iterator[Finding]":
        """Yield a finding if the encoder is known not to have been pretrained on the language of the texts."""
        from tagline.data import language_check

        return language_check.check_language(options.pretrained, texts)

    def fit(self, train: "Split", validation: "Split", *, seed: int) -> Iterator[Step]:
        """Fine-tune the encoder contrastively, then fit the head.

        With `tuning_steps = "auto"` a head is first fitted on the untuned encoder: the validation rows decide which of
        the two is kept.
        """
        steps = self._count_steps(train)
        tries_both = self.options.tuning_steps == "auto" and steps > 0 and len(validation) > 0
        total = steps + 1 + tries_both
        if self.done == total:
            return
        hint = "start anew with a lower training.batch_size or model.max_tokens"
        with compute_repeatably(self.learner.context.device, hint=hint):
            self._examples = self._read_examples(train)
            if tries_both and not self.done:
                yield self._head_step(self._examples, number=1, total=total, tuned=0)
            if steps:
                self._tuning = self._create_tuning(self._examples, steps=steps, seed=seed)
                for loss in self._tuning.losses():
                    self.done, self.has_head = tries_both + self._tuning.done, False
                    yield Step(self.done, total, loss, stage="contrast")
            yield self._head_step(self._examples, number=total, total=total, tuned=steps)

    def _head_step(self, examples: "FewShotExamples", *, number: int, total: int, tuned: int) -> Step:
        loss = self._fit_head(examples)
        self.done = number
        return Step(number, total, loss, evaluate=True, settings={"tuning_steps": tuned}, stage="head")

    def _count_steps(self, train: "Split") -> int:
        """Return the number of contrastive steps; 0 where no two rows share a label, or all have the same one."""
        setting, task = self.options.tuning_steps, self.learner.reading.task
        if setting != "auto":
            return setting
        counts = train.targets.sum(axis=0) if task == "multi" else np.bincount(train.targets)
        if (counts > 0).sum() < 2 or counts.max() < 2 or np.median(counts[counts > 0]) > MANY_ROWS:
            return 0
        return min(max(FEWEST_STEPS, math.ceil(PASSES * len(train) / self.learner.training.batch_size)), MOST_STEPS)

    def _read_examples(self, train: "Split") -> "FewShotExamples":
        """Return the training texts as tokens on disk, with their targets."""
        from tagline.models.fewshot.contrastive import FewShotExamples
        from tagline.models.nn.loop import Loss

        reading, learner = self.learner.reading, self.learner
        sequences = tokens.on_disk(
            learner.preprocessor.reader.read(train.texts),
            with_types=reading.types,
            vocabulary=learner.tokenizer.get_vocab_size(),
        )
        loss = Loss(
            train.targets,
            task=reading.task,
            labels=reading.labels,
            smoothing=0.0,
            balanced=learner.training.class_weights == "balanced",
        )
        return FewShotExamples(sequences, train.targets, loss, reading.pad)

    def _create_tuning(self, examples: "FewShotExamples", *, steps: int, seed: int) -> "ContrastiveTuning":
        """Create the contrastive fine-tuning, or resume it if a checkpoint was loaded."""
        from tagline.models.fewshot.contrastive import ContrastiveTuning
        from tagline.models.nn.networks import group_parameters

        training, freeze = self.learner.training, self.options.freeze
        frozen = {"none": -1, "embeddings": 0}[freeze] if isinstance(freeze, str) else freeze
        rate = LEARNING_RATE if training.learning_rate == "auto" else training.learning_rate
        tuning = ContrastiveTuning(
            self.embedder,
            group_parameters(self.embedder, frozen=frozen, layer_decay=1.0),
            examples,
            context=self.learner.context,
            steps=steps,
            learning_rate=rate,
            temperature=self.options.temperature,
            training=training,
            seed=seed,
        )
        if self._restored:
            tuning.restore(self._restored)
            self._restored = None
        return tuning

    def _fit_head(self, examples: "FewShotExamples") -> float:
        """Fit the head on the embeddings of all rows; returns its loss."""
        from tagline.models.fewshot.contrastive import fit_head, set_head

        embeddings = examples.embed_rows(self.embedder, self.learner.context)
        weights, constants, loss = fit_head(embeddings, examples, strength=self.options.strength)
        set_head(self.network, weights, constants)
        self.has_head = True
        return loss

    @property
    def network(self) -> "Network":
        """The encoder with its head."""
        return cast("Network", self.learner.network)

    def scores(self, texts: Sequence["Text"]) -> Scores:
        """Return the score of every label for every text; between contrastive steps a head is fitted for it."""
        self._ensure_head()
        return self.learner.scores(texts)

    def _ensure_head(self) -> None:
        if self.has_head:
            return
        if self._examples is None:
            raise RuntimeError("scores of a model whose head was not fitted")
        self._fit_head(self._examples)

    def graph(self) -> "nn.Module":
        """Return a copy of the encoder with its head, to be exported."""
        from tagline.models.nn.networks import make_traceable

        self._ensure_head()
        return make_traceable(self.network)

    @classmethod
    def load_preprocessor(cls, directory: Path) -> TokenPreprocessor:
        """Load the graph's preprocessor from the files that `save` wrote."""
        return TokenPreprocessor.load(directory, "fewshot.json")

    def save(self, directory: Path, *, resumable: bool = False) -> None:
        """Write the weights as safetensors under transformers' names, the tokenizer, and the rest as JSON."""
        from tagline.models.nn.networks import as_transformers
        from tagline.models.nn.pretrained import write_config

        facts: dict[str, Any] = {
            "options": self.options.model_dump(),
            "reading": asdict(self.learner.reading),
            "pooling": self.pooling,
        }
        # At the time limit, a checkpoint becomes the final model.
        if self._examples is not None or not resumable:
            self._ensure_head()
        if resumable:
            facts |= {"training": self.learner.training.model_dump(), "done": self.done, "has_head": self.has_head}
            if self._tuning is not None:
                tensors, facts["tuning"] = self._tuning.state()
                write_tensors(tensors, directory / "optimizer.safetensors")
        weights = self.network.state_dict()
        write_tensors(as_transformers(weights), directory / "model.safetensors")
        write_config(self.network.encoder, directory)
        (directory / "tokenizer.json").write_text(self.learner.tokenizer.to_str(pretty=True), "utf-8")
        (directory / "fewshot.json").write_text(json.dumps(facts, indent=2) + "\n", "utf-8")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Load the files that `save` wrote."""
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        from tagline.models.nn import pretrained
        from tagline.models.nn.networks import as_network

        with model_files.translate_errors(directory / "fewshot.json"):
            facts = model_files.read_json(directory / "fewshot.json")
            options, reading = FewShotOptions(**facts["options"]), Reading(**facts["reading"])
            training, pooling = Training(**facts.get("training", {})), facts["pooling"]
        with model_files.translate_errors(directory / "config.json"):
            encoder = pretrained.from_config(directory)
        with model_files.translate_errors(directory / "tokenizer.json"):
            tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
            model = cls._from_parts(options, encoder, tokenizer, reading, training=training, pooling=pooling)
        with model_files.translate_errors(directory / "model.safetensors"):
            model.network.load_state_dict(as_network(load_file(directory / "model.safetensors")))
        model.done, model.has_head = facts.get("done", 0), facts.get("has_head", True)
        if "tuning" in facts:
            with model_files.translate_errors(directory / "optimizer.safetensors"):
                model._restored = load_file(directory / "optimizer.safetensors"), facts["tuning"]
        return model
