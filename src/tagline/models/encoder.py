"""A pretrained transformer encoder, fine-tuned: BERT, RoBERTa, DeBERTa, ModernBERT and their kin."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from tagline import batches, devices, tokens
from tagline.errors import RunError, SpecError
from tagline.models import Scores, Step, scores_of
from tagline.spec import Section, Training
from tagline.tokens import LongTexts
from tagline.workers import Seat, World, world

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

    from tagline.dataset import Split, Task
    from tagline.models.loop import Examples, Kept, Loop, Loss
    from tagline.models.networks import Network
    from tagline.texts import Text

SMALLEST = 10_600_000
"""Parameters of MiniLM without its embeddings; one that is smaller still learns at the same rate."""
LORA_SCALE = 10.0
"""Low-rank updates start from nothing, as a head does, so they learn faster than what is pretrained."""


class EncoderOptions(Section):
    """What `[model]` may hold for family `encoder`."""

    family: Literal["encoder"] = Field("encoder", description="a pretrained transformer, fine-tuned")
    pretrained: str = Field(
        "minilm", min_length=1, description="packaged, offline; or a name on the Hugging Face hub, or a directory"
    )
    head: Literal["linear"] = Field("linear", description="what makes scores of the encoder's states")
    max_tokens: int = Field(256, ge=8, description="of a text that are read at once")
    long_texts: LongTexts = Field("start", description='what is read of a longer one; or "ends", or all in "windows"')
    pooling: Literal["auto", "mean", "first"] = Field(
        "auto", description="of the tokens' states: mean or first; auto: as the encoder was made for"
    )
    freeze: Literal["none", "embeddings"] | Annotated[int, Field(ge=1)] = Field(
        "embeddings", description='what does not learn; "none", or 4: the embeddings and the first 4 layers'
    )
    lora: int = Field(0, ge=0, description="rank of low-rank updates that learn in place of the layers; 0: off")
    layer_decay: float = Field(1.0, gt=0, le=1, description="of the learning rate, from each layer to the one below")
    dropout: float = Field(0.0, ge=0, lt=1, description="inside the encoder; it costs half the speed on a CPU")
    max_batch_tokens: int = Field(8192, ge=8, description="computed at once; a larger batch is taken in parts")
    gradient_checkpointing: bool = Field(False, description="less memory, a third more time")
    compile: bool = Field(False, description="with torch.compile: for long runs on a GPU")


@dataclass(frozen=True)
class Nature:
    """What a fine-tuned encoder is beside its weights and its options."""

    task: "Task"
    labels: int
    pair: bool
    pooling: Literal["mean", "first"]
    pad: int
    types: bool
    """Whether it is told which text of a pair a token is from."""


class Encoder:
    """Family `encoder`."""

    Options: ClassVar = EncoderOptions
    uses: ClassVar[frozenset[str]] = frozenset({
        "epochs", "batch_size", "learning_rate", "weight_decay", "warmup_share", "class_weights", "label_smoothing",
        "precision", "evaluate_every", "sharding",
    })  # fmt: skip
    refits: ClassVar[bool] = False

    def __init__(
        self, options: EncoderOptions, nature: Nature, network: "Network", tokenizer: "Tokenizer", *, training: Training
    ) -> None:  # fmt: skip
        self.options = options
        self.nature = nature
        self.training = training
        self.tokenizer = tokenizer
        self.reader = tokens.Reader(tokenizer, max_tokens=options.max_tokens, long_texts=options.long_texts)
        device = devices.choose(devices.found(), local_rank=world().local_rank)
        self.seat = Seat(device, devices.precision_of(training.precision, device), world(), options.max_batch_tokens)
        # A network that workers split between them goes to its device in parts, or it might not fit there.
        self._is_split = training.sharding == "full" and world().size > 1
        self.network = network if self._is_split else network.to(device.address)
        self._loop: Loop | None = None
        self._kept: Kept | None = None

    @classmethod
    def create(
        cls, options: EncoderOptions, *, training: Training, task: "Task", labels: Sequence[str], pair: bool
    ) -> Self:  # fmt: skip
        """The pretrained encoder with a head that has learned nothing yet."""
        from tagline.models import pretrained
        from tagline.models.networks import Network, with_lora

        if pair and options.long_texts != "start":
            raise SpecError(f'model.long_texts: "{options.long_texts}" is for single texts; leave it at "start"')
        found = pretrained.load(options.pretrained, dropout=options.dropout)
        if options.max_tokens > found.most_tokens:
            problem = f"model.max_tokens: {options.pretrained} reads {found.most_tokens} tokens at most"
            raise SpecError(problem, hint=f"set model.max_tokens={found.most_tokens}")
        pooling = found.pooling if options.pooling == "auto" else options.pooling
        encoder = with_lora(found.encoder, rank=options.lora, seed=training.seed) if options.lora else found.encoder
        network = Network(encoder, head=options.head, labels=len(labels), pooling=pooling, seed=training.seed)
        types = pair and getattr(found.encoder.config, "type_vocab_size", 0) > 1
        nature = Nature(task, len(labels), pair, pooling, found.pad, types)
        return cls(options, nature, network, found.tokenizer, training=training)

    def fit(self, train: "Split", validation: "Split", *, seed: int) -> Iterator[Step]:  # noqa: ARG002 - nobody looks
        """Learn from batches of similar length, epoch by epoch."""
        from torch import OutOfMemoryError

        from tagline.models.loop import Loop
        from tagline.models.networks import groups

        options, seat = self.options, self.seat
        frozen = {"none": -1, "embeddings": 0}[options.freeze] if isinstance(options.freeze, str) else options.freeze
        if options.gradient_checkpointing:
            self.network.encoder.gradient_checkpointing_enable({"use_reentrant": False})
        if options.compile:
            self.network.encoder.compile(dynamic=True)
        if self._is_split:  # else the main worker's weights, maybe of a checkpoint, reach the others anyway
            self.network.load_state_dict(seat.world.share(self.network.state_dict()))
        examples, loss = self._examples(train)
        self._loop = Loop(
            self.network, groups(self.network, frozen=frozen, layer_decay=options.layer_decay), examples, loss,
            learning_rate=self._learning_rate(), training=self.training, seed=seed, seat=seat,
        )  # fmt: skip
        if kept := seat.world.share(self._kept):
            self._loop.restore(kept)
        self._kept = kept = None
        try:
            with devices.repeatable(seat.device):
                yield from self._loop.steps()
        except OutOfMemoryError as error:
            hint = "start anew with a lower model.max_batch_tokens: the result stays the same"
            raise RunError(f"out of memory on {seat.device.name}", hint=hint) from error

    def _examples(self, train: "Split") -> tuple["Examples", "Loss"]:
        """The training texts as tokens on disk, with their targets and what each of them counts."""
        import torch

        from tagline.models.loop import Examples, Loss

        sequences = tokens.on_disk(
            self.reader.read(train.texts), with_types=self.nature.types,
            vocabulary=self.tokenizer.get_vocab_size(),
        )  # fmt: skip
        loss = Loss(
            train.targets, task=self.nature.task, labels=self.nature.labels,
            balanced=self.training.class_weights == "balanced", smoothing=self._smoothing(),
        )  # fmt: skip
        targets = torch.from_numpy(train.targets[sequences.rows])
        weights = loss.weights(targets)
        if len(sequences) > len(train):  # the windows of a text count together as much as a short text
            weights /= torch.from_numpy(np.bincount(sequences.rows)[sequences.rows])
        return Examples(sequences, targets, weights, self.nature.pad), loss

    def _smoothing(self) -> float:
        """Labels are never all right; with 0.1 the higher learning rate did better than the lower one without."""
        if self.training.label_smoothing != "auto":
            return self.training.label_smoothing
        return 0.1 if self.nature.task == "single" else 0.0

    def _learning_rate(self) -> float:
        if self.training.learning_rate != "auto":
            return self.training.learning_rate
        rate = auto_rate(sum(p.numel() for name, p in self.network.named_parameters() if "embed" not in name))
        return rate * LORA_SCALE if self.options.lora else rate

    def scores(self, texts: Sequence["Text"]) -> Scores:
        """The score of every label for every text; of a text in windows, their mean. In float32, wherever it runs."""
        import torch

        sequences = tokens.in_memory(self.reader.read(texts), with_types=self.nature.types)
        logits = np.zeros((len(sequences), self.nature.labels), np.float32)
        every = np.arange(len(sequences))
        self.network.eval()
        with torch.inference_mode():
            parts = list(batches.within_budget(every, sequences.lengths, most_tokens=self.seat.most_tokens))
            others = self.seat.world if self._is_split else World()
            for part, is_real in others.evened(parts, filler=every[:1]):
                inputs = self.seat.tensors(sequences.padded(part, pad=self.nature.pad))
                found = self.network(**inputs).cpu().numpy()
                if is_real:
                    logits[part] = found
        scores = scores_of(logits, task=self.nature.task)
        if len(sequences) == len(texts):
            return scores
        starts = np.flatnonzero(np.diff(sequences.rows, prepend=-1))
        return np.asarray(np.add.reduceat(scores, starts) / np.bincount(sequences.rows)[:, None], np.float32)

    def save(self, directory: Path, *, resumable: bool = False) -> None:
        """Weights as safetensors under the names that transformers gives them, the tokenizer, and the rest as JSON."""
        from tagline.models.networks import merged

        network, weights = self.network, self._loop.weights() if self._loop else self.network.state_dict()
        kept = self._loop.state() if self._loop and resumable else None
        if not self.seat.world.is_main:
            return
        if not resumable and any(".lora_" in name for name in weights):
            network = merged(network, weights)
            weights = network.state_dict()
        facts: dict[str, Any] = {"options": self.options.model_dump(), "nature": asdict(self.nature)}
        if kept is not None:
            tensors, values = kept
            _write(tensors, directory / "optimizer.safetensors")
            facts |= {"training": self.training.model_dump(), "loop": values}
        plain = {name.removeprefix("encoder."): tensor.cpu().contiguous() for name, tensor in weights.items()}
        _write(plain, directory / "model.safetensors")
        network.encoder.config.to_json_file(directory / "config.json")
        (directory / "tokenizer.json").write_text(self.tokenizer.to_str(pretty=True), "utf-8")
        (directory / "encoder.json").write_text(json.dumps(facts, indent=2) + "\n", "utf-8")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote."""
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        from tagline.models import pretrained
        from tagline.models.networks import Network, with_lora

        facts = json.loads((directory / "encoder.json").read_text("utf-8"))
        options, nature = EncoderOptions(**facts["options"]), Nature(**facts["nature"])
        training = Training(**facts.get("training", {}))
        weights = load_file(directory / "model.safetensors")
        encoder = pretrained.from_config(directory)
        if any(".lora_" in name for name in weights):
            encoder = with_lora(encoder, rank=options.lora, seed=training.seed)
        network = Network(
            encoder, head=options.head, labels=nature.labels, pooling=nature.pooling, seed=training.seed
        )  # fmt: skip
        network.load_state_dict({
            name if name.startswith("head.") else f"encoder.{name}": tensor for name, tensor in weights.items()
        })  # fmt: skip
        model = cls(options, nature, network, Tokenizer.from_file(str(directory / "tokenizer.json")), training=training)
        if "loop" in facts:
            model._kept = load_file(directory / "optimizer.safetensors"), facts["loop"]
        return model


def _write(tensors: "dict[str, Tensor]", path: Path) -> None:
    """Tensors as safetensors; a disk that refuses them is an error of the system, as for any other file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(tensors, path)
    except SafetensorError as error:
        if number := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from error
        raise


def auto_rate(parameters: int) -> float:
    """The learning rate for an encoder of this size, embeddings not counted: the larger, the smaller.

    2e-4 did better than 1e-4 for MiniLM. The slope is not measured: it leads to what is usual, 4.7e-5 for a base-size
    encoder and 1.9e-5 for a large one.
    """
    return float(f"{2e-4 * (SMALLEST / max(parameters, SMALLEST)) ** 0.7:.2g}")
