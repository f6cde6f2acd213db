"""The learner of the torch families: a network, its tokenizer and its device, with training, scoring and saving."""

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
    from tagline.models.nn.loop import Examples, LoopState, Loss, ParameterGroup, TrainingLoop


USES = frozenset({
    "epochs", "batch_size", "learning_rate", "weight_decay", "warmup_share", "class_weights", "label_smoothing",
    "precision", "evaluate_every", "sharding", "averaging",
})  # fmt: skip
"""The keys of `[training]` that a family with a `Learner` reads."""


class Learner:
    """A network on its device; it takes token ids and an attention mask and returns logits."""

    def __init__(
        self, network: "nn.Module", tokenizer: "Tokenizer", reading: Reading, *, training: Training, most_tokens: int
    ) -> None:
        self.reading = reading
        self.training = training
        self.tokenizer = tokenizer
        self.preprocessor = tokens.TokenPreprocessor(tokenizer, reading)
        device = devices.choose_device(devices.find_devices(), local_rank=world().local_rank)
        self.context = ComputeContext(device, devices.precision_of(training.precision, device), world(), most_tokens)
        # A sharded network is moved to the devices in shards, since it might not fit on one.
        self._is_sharded = training.sharding == "full" and world().size > 1
        self.network = network if self._is_sharded else network.to(device.address)
        self._loop: TrainingLoop | None = None
        self._restored: LoopState | None = None

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
        """Train on batches of similar length, epoch by epoch; resume if a state was restored.

        `output` is the layer whose outputs are the logits.
        """
        from tagline.models.nn.loop import TrainingLoop

        context, epochs = self.context, self.training.epochs
        examples, loss = self._tokenise_examples(train, smoothing=smoothing)
        if self.reading.task == "multi" and not self._restored:
            # Most labels are rare: with logits that start at 0, an epoch is spent learning only that.
            output.bias.data.copy_(loss.best_constant())
        if self._is_sharded:  # else DDP broadcasts the main worker's weights, possibly those of a checkpoint
            self.network.load_state_dict(context.world.share(self.network.state_dict()))
        self._loop = TrainingLoop(
            self.network,
            groups,
            examples,
            loss,
            learning_rate=learning_rate,
            training=self.training,
            seed=seed,
            context=context,
            epochs=usual_epochs if epochs == "auto" else epochs,
        )
        if state := context.world.share(self._restored):
            self._loop.restore(state)
        self._restored = state = None
        with compute_repeatably(
            context.device, hint="start anew with a lower model.max_batch_tokens: the result stays the same"
        ):
            yield from self._loop.steps()

    def _tokenise_examples(self, train: "Split", *, smoothing: float) -> "tuple[Examples, Loss]":
        """Return the training texts as tokens on disk, with their targets and weights, and the loss."""
        import torch

        from tagline.models.nn.loop import Examples, Loss

        reading = self.reading
        sequences = tokens.on_disk(
            self.preprocessor.reader.read(train.texts),
            with_types=reading.types,
            vocabulary=self.tokenizer.get_vocab_size(),
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
        if len(sequences) > len(train):  # the windows of a text together weigh as much as a short text
            weights /= torch.from_numpy(np.bincount(sequences.rows)[sequences.rows])
        return Examples(sequences, targets, weights, reading.pad), loss

    def scores(self, texts: Sequence["Text"]) -> Scores:
        """Return the score of every label for every text, averaged over its windows; always computed in float32."""
        import torch

        reading = self.reading
        inputs = self.preprocessor.read(texts)
        logits = np.zeros((len(inputs.lengths), reading.labels), np.float32)
        numbers = np.arange(len(logits))
        self.network.eval()
        with self._loop.use_average() if self._loop else nullcontext(), torch.inference_mode():
            parts = list(batches.within_budget(numbers, inputs.lengths, most_tokens=self.context.most_tokens))
            workers = self.context.world if self._is_sharded else World()
            for part, is_real in workers.pad_parts(parts, filler=numbers[:1]):
                part_logits = self.network(**self.context.to_tensors(inputs.arrays(part))).cpu().numpy()
                if is_real:
                    logits[part] = part_logits
        return inputs.pooled(scores_of(logits, task=reading.task), texts=len(texts))

    def weights(self) -> "dict[str, Tensor]":
        """Return the network's weights, unsharded; a collective call in every worker."""
        return self._loop.weights() if self._loop else self.network.state_dict()

    def save_state(self, directory: Path) -> dict[str, Any]:
        """Write the optimizer's state and return what else `restore_state` needs; a collective call in every worker."""
        if self._loop is None:
            return {}
        tensors, values = self._loop.state()
        if self.context.world.is_main:
            write_tensors(tensors, directory / "optimizer.safetensors")
        return {"loop": values}

    def restore_state(self, directory: Path, facts: Mapping[str, Any]) -> None:
        """Read the state that `save_state` wrote, from which `learn` resumes."""
        from safetensors.torch import load_file

        if "loop" in facts:
            with model_files.translate_errors(directory / "optimizer.safetensors"):
                self._restored = load_file(directory / "optimizer.safetensors"), facts["loop"]


@contextmanager
def compute_repeatably(device: devices.Device, *, hint: str) -> Iterator[None]:
    """Compute bit-exactly, and raise RunError if the device runs out of memory."""
    from torch import OutOfMemoryError

    try:
        with devices.use_deterministic(device):
            yield
    except OutOfMemoryError as error:
        raise RunError(f"out of memory on {device.name}", hint=hint) from error


def write_tensors(tensors: "Mapping[str, Tensor]", path: Path) -> None:
    """Write tensors as safetensors; raise OSError if the disk fails, as for any other file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        if number := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from error
        raise


def smoothing_of(training: Training, *, task: "Task") -> float:
    """Return the label smoothing; `auto` is 0.1 for task `single`.

    Labels are never all right; with 0.1 the higher learning rate did better than the lower one without.
    """
    if training.label_smoothing != "auto":
        return training.label_smoothing
    return 0.1 if task == "single" else 0.0
