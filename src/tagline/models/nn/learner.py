"""A network that reads tokens, its tokenizer and its seat: what every torch family learns, scores and saves with."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tagline.errors import RunError
from tagline.models import Scores, Step, model_files, scores_of
from tagline.models.nn import batches, devices, tokens
from tagline.models.nn.tokens import Reading
from tagline.models.nn.workers import ComputeContext, World, world
from tagline.spec import Training

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor, nn

    from tagline.data.dataset import Split, Task
    from tagline.data.texts import Text
    from tagline.models.nn.loop import Examples, Kept, Loss, ParameterGroup, TrainingLoop


USES = frozenset({
    "epochs", "batch_size", "learning_rate", "weight_decay", "warmup_share", "class_weights", "label_smoothing",
    "precision", "evaluate_every", "sharding", "averaging",
})  # fmt: skip
"""What a family that learns with a `Learner` reads of `[training]`."""


class Learner:
    """One network on one seat; it is given token ids and a mask, and answers with logits."""

    def __init__(
        self, network: "nn.Module", tokenizer: "Tokenizer", reading: Reading, *, training: Training, most_tokens: int
    ) -> None:
        self.reading = reading
        self.training = training
        self.tokenizer = tokenizer
        self.intake = tokens.TokenPreprocessor(tokenizer, reading)
        device = devices.choose_device(devices.find_devices(), local_rank=world().local_rank)
        self.seat = ComputeContext(device, devices.precision_of(training.precision, device), world(), most_tokens)
        # A network that workers split between them goes to its device in parts, or it might not fit there.
        self._is_split = training.sharding == "full" and world().size > 1
        self.network = network if self._is_split else network.to(device.address)
        self._loop: TrainingLoop | None = None
        self._kept: Kept | None = None

    def learn(
        self,
        train: "Split",
        groups: "Sequence[ParameterGroup]",
        *,
        output: "nn.Linear",
        learning_rate: float,
        smoothing: float,
        seed: int,
        usual_epochs: int = 3,
    ) -> Iterator[Step]:
        """Learn from batches of similar length, epoch by epoch; from where it stood, if it was loaded.

        The network's logits are those of `output`.
        """
        from tagline.models.nn.loop import TrainingLoop

        seat, epochs = self.seat, self.training.epochs
        examples, loss = self._tokenise_examples(train, smoothing=smoothing)
        if self.reading.task == "multi" and not self._kept:
            # Most labels are rare: logits that begin at 0 take an epoch to learn no more than that.
            output.bias.data.copy_(loss.best_constant())
        if self._is_split:  # else the main worker's weights, maybe of a checkpoint, reach the others anyway
            self.network.load_state_dict(seat.world.share(self.network.state_dict()))
        self._loop = TrainingLoop(
            self.network,
            groups,
            examples,
            loss,
            learning_rate=learning_rate,
            training=self.training,
            seed=seed,
            seat=seat,
            epochs=usual_epochs if epochs == "auto" else epochs,
        )
        if kept := seat.world.share(self._kept):
            self._loop.restore(kept)
        self._kept = kept = None
        with compute_repeatably(
            seat.device, hint="start anew with a lower model.max_batch_tokens: the result stays the same"
        ):
            yield from self._loop.steps()

    def _tokenise_examples(self, train: "Split", *, smoothing: float) -> "tuple[Examples, Loss]":
        """The training texts as tokens on disk, with their targets and what each of them counts."""
        import torch

        from tagline.models.nn.loop import Examples, Loss

        reading = self.reading
        sequences = tokens.on_disk(
            self.intake.reader.read(train.texts), with_types=reading.types, vocabulary=self.tokenizer.get_vocab_size()
        )
        loss = Loss(
            train.targets,
            task=reading.task,
            labels=reading.labels,
            balanced=self.training.class_weights == "balanced",
            smoothing=smoothing,
        )
        targets = torch.from_numpy(train.targets[sequences.rows])
        weights = loss.weights(targets)
        if len(sequences) > len(train):  # the windows of a text count together as much as a short text
            weights /= torch.from_numpy(np.bincount(sequences.rows)[sequences.rows])
        return Examples(sequences, targets, weights, reading.pad), loss

    def scores(self, texts: Sequence["Text"]) -> Scores:
        """The score of every label for every text; of a text in windows, their mean. In float32, wherever it runs."""
        import torch

        reading = self.reading
        inputs = self.intake.read(texts)
        logits = np.zeros((len(inputs.lengths), reading.labels), np.float32)
        every = np.arange(len(logits))
        self.network.eval()
        with self._loop.use_average() if self._loop else nullcontext(), torch.inference_mode():
            parts = list(batches.within_budget(every, inputs.lengths, most_tokens=self.seat.most_tokens))
            others = self.seat.world if self._is_split else World()
            for part, is_real in others.pad_parts(parts, filler=every[:1]):
                found = self.network(**self.seat.to_tensors(inputs.arrays(part))).cpu().numpy()
                if is_real:
                    logits[part] = found
        return inputs.pooled(scores_of(logits, task=reading.task), texts=len(texts))

    def weights(self) -> "dict[str, Tensor]":
        """The network's weights, whole; in every worker at once."""
        return self._loop.weights() if self._loop else self.network.state_dict()

    def save_state(self, directory: Path) -> dict[str, Any]:
        """Write the optimizer's state, in every worker at once; returns the rest of what `restore_state` needs."""
        if self._loop is None:
            return {}
        tensors, values = self._loop.state()
        if self.seat.world.is_main:
            write_tensors(tensors, directory / "optimizer.safetensors")
        return {"loop": values}

    def restore_state(self, directory: Path, facts: Mapping[str, Any]) -> None:
        """Learn from where `save_state` was called, when it learns again."""
        from safetensors.torch import load_file

        if "loop" in facts:
            with model_files.translate_errors(directory / "optimizer.safetensors"):
                self._kept = load_file(directory / "optimizer.safetensors"), facts["loop"]


@contextmanager
def compute_repeatably(device: devices.Device, *, hint: str) -> Iterator[None]:
    """Learn so that the same work gives the same bits; a device whose memory is too small is an error of the run."""
    from torch import OutOfMemoryError

    try:
        with devices.use_deterministic(device):
            yield
    except OutOfMemoryError as error:
        raise RunError(f"out of memory on {device.name}", hint=hint) from error


def write_tensors(tensors: "Mapping[str, Tensor]", path: Path) -> None:
    """Tensors as safetensors; a disk that refuses them is an error of the system, as for any other file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        if number := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from error
        raise


def smoothing_of(training: Training, *, task: "Task") -> float:
    """Labels are never all right; with 0.1 the higher learning rate did better than the lower one without."""
    if training.label_smoothing != "auto":
        return training.label_smoothing
    return 0.1 if task == "single" else 0.0
