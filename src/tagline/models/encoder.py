"""A pretrained transformer encoder, fine-tuned: BERT, RoBERTa, DeBERTa, ModernBERT and their kin."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import Field, model_validator

from tagline.errors import PlaceError, SpecError, first_line
from tagline.models import Scores, Step, model_files
from tagline.models.nn.learner import USES, Learner, smoothing_of, write_tensors
from tagline.models.nn.tokens import LongTexts, Reading, TokenPreprocessor
from tagline.spec import ModelOptions, Training

if TYPE_CHECKING:
    from torch import nn

    from tagline.data.checks import Finding
    from tagline.data.dataset import Split, Task
    from tagline.data.texts import Text
    from tagline.models.nn.networks import Network
    from tagline.models.nn.pretrained import Pooling

SMALLEST = 10_600_000
"""Parameters of MiniLM without its embeddings; smaller encoders get the same learning rate."""
LORA_SCALE = 10.0
"""The learning rate of LoRA updates, relative to pretrained layers: like a head they start from nothing."""


class EncoderOptions(ModelOptions):
    """The options of `[model]` for family `encoder`."""

    family: Literal["encoder"] = Field("encoder", description="a pretrained transformer, fine-tuned")
    pretrained: str = Field(
        "minilm", min_length=1, description="packaged, offline; or a name on the Hugging Face hub, a directory, gs://"
    )
    head: Literal["linear", "lstm"] = Field(
        "linear", description='what makes scores of the encoder\'s states; or "lstm": one that reads all of them'
    )
    max_tokens: int = Field(256, ge=8, description="of a text that are read at once")
    long_texts: LongTexts = Field("start", description='what is read of a longer one; or "ends", or all in "windows"')
    pooling: Literal["auto", "mean", "first"] = Field(
        "auto", description="of the tokens' states: mean or first; auto: as the encoder was made for"
    )
    freeze: Literal["auto", "none", "embeddings"] | Annotated[int, Field(ge=1)] = Field(
        "auto", description="what does not learn; auto: the embeddings and, unless for pairs, the first third of layers"
    )
    lora: int = Field(0, ge=0, description="rank of low-rank updates that learn in place of the layers; 0: off")
    layer_decay: float = Field(1.0, gt=0, le=1, description="of the learning rate, from each layer to the one below")
    dropout: float = Field(0.0, ge=0, lt=1, description="inside the encoder; it costs half the speed on a CPU")
    max_batch_tokens: int = Field(8192, ge=8, description="computed at once; a larger batch is taken in parts")
    gradient_checkpointing: bool = Field(False, description="less memory, a third more time")
    compile: bool = Field(False, description="with torch.compile: for long runs on a GPU")

    @model_validator(mode="after")
    def _check_pooling(self) -> Self:
        if self.head == "lstm" and self.pooling != "auto":
            raise ValueError('head = "lstm" reads all states; leave pooling at "auto"')
        return self


class Encoder:
    """The family `encoder`."""

    Options: ClassVar = EncoderOptions
    uses: ClassVar[frozenset[str]] = USES
    refits: ClassVar[bool] = False
    uses_device: ClassVar[bool] = True

    def __init__(self, options: EncoderOptions, learner: Learner, *, pooling: "Pooling") -> None:
        self.options = options
        self.pooling = pooling
        self.learner = learner

    @classmethod
    def create(
        cls, options: EncoderOptions, *, training: Training, task: "Task", labels: Sequence[str], pair: bool
    ) -> Self:
        """Create the pretrained encoder with an untrained head."""
        from tagline.models.nn import pretrained
        from tagline.models.nn.networks import Network, with_lora

        if pair and options.long_texts != "start":
            raise SpecError(f'model.long_texts: "{options.long_texts}" is for single texts; leave it at "start"')
        loaded = pretrained.load(options.pretrained, dropout=options.dropout, max_tokens=options.max_tokens)
        if options.gradient_checkpointing and not loaded.encoder.supports_gradient_checkpointing:
            problem = f"model.gradient_checkpointing: {type(loaded.encoder).__name__} does not support it"
            raise SpecError(problem, hint="a lower model.max_batch_tokens takes less memory too")
        pooling = loaded.pooling if options.pooling == "auto" else options.pooling
        encoder = with_lora(loaded.encoder, rank=options.lora, seed=training.seed) if options.lora else loaded.encoder
        network = Network(encoder, head=options.head, labels=len(labels), pooling=pooling, seed=training.seed)
        types = pair and loaded.has_types
        reading = Reading(task, len(labels), pair, options.max_tokens, options.long_texts, loaded.pad, types)
        learner = Learner(network, loaded.tokenizer, reading, training=training, most_tokens=options.max_batch_tokens)
        return cls(options, learner, pooling=pooling)

    @property
    def network(self) -> "Network":
        """The encoder with its head."""
        return cast("Network", self.learner.network)

    @classmethod
    def check_texts(cls, options: EncoderOptions, texts: Iterable["Text"]) -> "Iterator[Finding]":
        """Yield a finding if the encoder is known not to have been pretrained on the language of the texts."""
        from tagline.data import language_check

        return language_check.check_language(options.pretrained, texts)

    def fit(self, train: "Split", validation: "Split", *, seed: int) -> Iterator[Step]:  # noqa: ARG002 - part of the contract
        """Train on batches of similar length, epoch by epoch."""
        from tagline.models.nn.networks import group_parameters

        options, training = self.options, self.learner.training
        if options.gradient_checkpointing:
            self.network.encoder.gradient_checkpointing_enable({"use_reentrant": False})
        if options.compile:
            self.network.encoder.compile(dynamic=True)
        with _translate_compile_errors() if options.compile else nullcontext():
            yield from self.learner.learn(
                train,
                group_parameters(self.network, frozen=self._last_frozen_layer(), layer_decay=options.layer_decay),
                seed=seed,
                output=self.network.output,
                learning_rate=self._learning_rate(),
                smoothing=smoothing_of(training, task=self.learner.reading.task),
            )

    def _last_frozen_layer(self) -> int:
        """Return the last frozen layer: 0 for the embeddings, -1 for none.

        With the first third frozen it did better and was a third faster. For pairs only the embeddings are frozen: an
        encoder pretrained on single texts has to learn in its lowest layers how the two texts relate.
        """
        from tagline.models.nn.networks import layer_count

        if isinstance(self.options.freeze, int):
            return self.options.freeze
        third = 0 if self.learner.reading.pair or self.options.lora else layer_count(self.network.encoder) // 3
        return {"none": -1, "embeddings": 0, "auto": third}[self.options.freeze]

    def _learning_rate(self) -> float:
        setting = self.learner.training.learning_rate
        if setting != "auto":
            return setting
        rate = auto_rate(sum(p.numel() for name, p in self.network.named_parameters() if "embed" not in name))
        return rate * LORA_SCALE if self.options.lora else rate

    def scores(self, texts: Sequence["Text"]) -> Scores:
        """Return the score of every label for every text."""
        return self.learner.scores(texts)

    def graph(self) -> "nn.Module":
        """Return a copy of the encoder with its head, to be exported."""
        from tagline.models.nn.networks import make_traceable

        return make_traceable(self.network)

    @classmethod
    def load_preprocessor(cls, directory: Path) -> TokenPreprocessor:
        """Load the graph's preprocessor from the files that `save` wrote."""
        return TokenPreprocessor.load(directory, "encoder.json")

    def save(self, directory: Path, *, resumable: bool = False) -> None:
        """Write the weights as safetensors under transformers' names, the tokenizer, and the rest as JSON."""
        from tagline.models.nn.networks import as_transformers, merge_lora
        from tagline.models.nn.pretrained import write_config

        network, weights = self.network, self.learner.weights()
        state = self.learner.save_state(directory) if resumable else {}
        if not self.learner.context.world.is_main:
            return
        if not resumable and any(".lora_" in name for name in weights):
            network = merge_lora(network, weights)
            weights = network.state_dict()
        facts: dict[str, Any] = {
            "options": self.options.model_dump(),
            "reading": asdict(self.learner.reading),
            "pooling": self.pooling,
        }
        if resumable:
            facts |= {"training": self.learner.training.model_dump(), **state}
        write_tensors(as_transformers(weights), directory / "model.safetensors")
        write_config(network.encoder, directory)
        (directory / "tokenizer.json").write_text(self.learner.tokenizer.to_str(pretty=True), "utf-8")
        (directory / "encoder.json").write_text(json.dumps(facts, indent=2) + "\n", "utf-8")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Load the files that `save` wrote."""
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        from tagline.models.nn import pretrained
        from tagline.models.nn.networks import Network, as_network, with_lora

        with model_files.translate_errors(directory / "encoder.json"):
            facts = model_files.read_json(directory / "encoder.json")
            options, reading = EncoderOptions(**facts["options"]), Reading(**facts["reading"])
            training = Training(**facts.get("training", {}))
            pooling = facts["pooling"]
        with model_files.translate_errors(directory / "model.safetensors"):
            weights = load_file(directory / "model.safetensors")
        with model_files.translate_errors(directory / "config.json"):
            encoder = pretrained.from_config(directory)
        if any(".lora_" in name for name in weights):
            encoder = with_lora(encoder, rank=options.lora, seed=training.seed)
        with model_files.translate_errors(directory / "model.safetensors"):
            network = Network(encoder, head=options.head, labels=reading.labels, pooling=pooling, seed=training.seed)
            network.load_state_dict(as_network(weights))
        with model_files.translate_errors(directory / "tokenizer.json"):
            tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
            learner = Learner(network, tokenizer, reading, training=training, most_tokens=options.max_batch_tokens)
        learner.restore_state(directory, facts)
        return cls(options, learner, pooling=pooling)


@contextmanager
def _translate_compile_errors() -> Iterator[None]:
    """Translate errors of torch.compile into a PlaceError; as a rule there is no C++ compiler."""
    from torch._dynamo.exc import TorchDynamoException

    try:
        yield
    except TorchDynamoException as error:
        cause = first_line(getattr(error, "inner_exception", error))
        problem = f"model.compile: torch cannot compile the encoder here: {cause}"
        raise PlaceError(problem, hint="install a C++ compiler such as g++, or leave out model.compile") from error


def auto_rate(parameters: int) -> float:
    """Return the learning rate for an encoder with so many parameters, embeddings not counted.

    2e-4 did better than 1e-4 for MiniLM. The slope is not measured: it gives the usual values, 4.7e-5 for a base-size
    encoder and 1.9e-5 for a large one.
    """
    return float(f"{2e-4 * (SMALLEST / max(parameters, SMALLEST)) ** 0.7:.2g}")
