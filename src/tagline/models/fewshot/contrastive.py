"""Contrastive fine-tuning of sentence embeddings, as in SetFit, and a linear head on them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import linear, log_softmax, normalize

from tagline.models.nn import batches
from tagline.models.nn.loop import (
    LARGEST_GRADIENT,
    LoopState,
    Loss,
    ParameterGroup,
    optimizer_tensors,
    rate_at,
    restore_optimizer,
)
from tagline.models.nn.networks import Network
from tagline.models.nn.pretrained import Pooling
from tagline.models.nn.tokens import Ints, Sequences
from tagline.models.nn.workers import ComputeContext
from tagline.spec import Training

ROWS_A_LABEL = 4
"""Rows per label in a batch: each has three positives, and the batch still holds several labels."""
ROWS_A_PART = 12
"""Rows of similar length that are encoded together: on a CPU padding costs more than calls do."""
MOST_ITERATIONS = 500
"""L-BFGS iterations of the head, where 30 to 150 are usual."""


class UnitNorm(nn.Module):
    """Normalises a pooled state to length 1, so that the dot product of two is their cosine."""

    def forward(self, pooled: Tensor) -> Tensor:
        """Return the embeddings of a batch."""
        return normalize(pooled, dim=1)


def create_views(encoder: Any, *, labels: int, pooling: Pooling) -> tuple[Network, Network]:
    """Return two networks that share an encoder: one that returns embeddings, and one with a linear head on them."""
    embedder, classifier = (Network(encoder, head="linear", labels=labels, pooling=pooling, seed=0) for _ in range(2))
    embedder.head = UnitNorm()
    classifier.head = nn.Sequential(UnitNorm(), nn.Linear(encoder.config.hidden_size, labels))
    return embedder, classifier


def set_head(classifier: Network, weights: Tensor, constants: Tensor) -> None:
    """Set the weights of the classifier's head."""
    linear_head = cast("nn.Linear", classifier.head[1])  # type: ignore[index]
    with torch.no_grad():
        linear_head.weight.copy_(weights)
        linear_head.bias.copy_(constants)


@dataclass(frozen=True)
class FewShotExamples:
    """The training rows as tokens, with their targets and the loss."""

    sequences: Sequences
    targets: NDArray[Any]
    loss: Loss
    pad: int

    @cached_property
    def truth(self) -> NDArray[np.bool_]:
        """Whether each row has each label."""
        return self.targets.astype(bool) if self.loss.is_multi else np.eye(self.labels, dtype=bool)[self.targets]

    @property
    def labels(self) -> int:
        """The number of labels."""
        return len(self.loss.label_weights)

    def __len__(self) -> int:
        return len(self.targets)

    def draw_rows(self, *, batch_size: int, seed: int, step: int) -> Ints:
        """Draw a batch, some rows of some labels, the shortest first; it depends on the seed and the step alone."""
        random = np.random.default_rng([seed, step])
        groups = [np.flatnonzero(has_it) for has_it in self.truth.T if has_it.any()]
        if len(without := np.flatnonzero(~self.truth.any(axis=1))):  # they have no positives, and serve as negatives
            groups.append(without)
        count = min(len(groups), max(2, batch_size // ROWS_A_LABEL))
        drawn = [
            random.choice(groups[number], min(len(groups[number]), max(2, batch_size // count)), replace=False)
            for number in random.choice(len(groups), count, replace=False)
        ]
        rows = np.unique(np.concatenate(drawn))  # a row with several labels can be drawn for each of them
        return rows[np.argsort(self.sequences.lengths[rows], kind="stable")]

    def embed_rows(self, embedder: Network, context: ComputeContext) -> Tensor:
        """Return the embeddings of all rows, in main memory."""
        embeddings = torch.zeros(len(self), embedder.encoder.config.hidden_size)
        numbers, lengths = np.arange(len(self)), self.sequences.lengths
        embedder.eval()
        with torch.no_grad():
            for part in batches.within_budget(numbers, lengths, most_tokens=context.most_tokens):
                inputs = context.to_tensors(self.sequences.pad_batch(part, pad=self.pad))
                embeddings[torch.from_numpy(part)] = embedder(**inputs).cpu()
        return embeddings


def contrastive_loss(embeddings: Tensor, truth: Tensor, *, temperature: float) -> Tensor:
    """Return the supervised contrastive loss of a batch (Khosla et al. 2020, L-out)."""
    itself = torch.eye(len(truth), dtype=torch.bool, device=truth.device)
    positives = (truth @ truth.T > 0) & ~itself
    cosines = embeddings @ embeddings.T
    shares = log_softmax((cosines / temperature).masked_fill(itself, float("-inf")), dim=1)
    partners = positives.sum(dim=1)
    losses = -shares.masked_fill(~positives, 0.0).sum(dim=1) / partners.clamp(min=1)
    return losses.sum() / (partners > 0).sum().clamp(min=1)


class ContrastiveTuning:
    """The contrastive fine-tuning of an encoder; its steps and memory do not depend on the number of pairs."""

    def __init__(
        self,
        embedder: Network,
        groups: Sequence[ParameterGroup],
        examples: FewShotExamples,
        *,
        steps: int,
        learning_rate: float,
        temperature: float,
        training: Training,
        seed: int,
        context: ComputeContext,
    ) -> None:
        self.embedder, self.examples, self.context = embedder, examples, context
        self.training, self.seed = training, seed
        self.total = steps
        self.learning_rate = learning_rate
        self.temperature = temperature
        self.done = 0
        named = dict(embedder.named_parameters())
        self.optimizer = torch.optim.AdamW(
            [
                {
                    "params": [named[name] for name in group.names],
                    "weight_decay": training.weight_decay if group.decays else 0.0,
                }
                for group in groups
            ],
            lr=learning_rate,
            fused=context.device.kind != "mps",
        )

    def losses(self) -> Iterator[float]:
        """Run the remaining steps, yielding the loss of each."""
        while self.done < self.total:
            loss = self._run_step()
            self.done += 1
            yield loss

    def _run_step(self) -> float:
        rate = rate_at(self.done, total=self.total, warmup_share=self.training.warmup_share)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * self.learning_rate
        rows = self.examples.draw_rows(batch_size=self.training.batch_size, seed=self.seed, step=self.done)
        # The loss compares all rows of a batch, so all activations are held until the backward pass: parts only save
        # padding.
        parts = [rows[first : first + ROWS_A_PART] for first in range(0, len(rows), ROWS_A_PART)]
        self.embedder.train()
        embeddings = torch.cat([self._embed_part(part) for part in parts])
        truth = torch.from_numpy(self.examples.truth[rows]).to(embeddings)
        loss = contrastive_loss(embeddings, truth, temperature=self.temperature)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.embedder.parameters(), LARGEST_GRADIENT)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(loss.detach())

    def _embed_part(self, part: Ints) -> Tensor:
        embeddings: Tensor = self.embedder(
            **self.context.to_tensors(self.examples.sequences.pad_batch(part, pad=self.examples.pad))
        )
        return embeddings

    def state(self) -> LoopState:
        """Return the state that `restore` needs to resume."""
        return optimizer_tensors(self.optimizer), {"done": self.done}

    def restore(self, state: LoopState) -> None:
        """Resume from a state."""
        tensors, values = state
        restore_optimizer(self.optimizer, tensors)
        self.done = values["done"]


def fit_head(embeddings: Tensor, examples: FewShotExamples, *, strength: float) -> tuple[Tensor, Tensor, float]:
    """Fit a logistic regression; returns the weights and biases of every label, and the loss.

    It is multinomial for task `single`, else one regression per label; in float64, so that it converges.
    """
    rows, labels = embeddings.double(), examples.labels
    loss, targets = examples.loss, torch.from_numpy(examples.targets)
    counts = loss.weights(targets).double() * (labels if loss.is_multi else 1)  # the loss is a mean over the labels
    weights = torch.zeros(labels, rows.shape[1], dtype=torch.float64, requires_grad=True)
    constants = torch.zeros(labels, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weights, constants], max_iter=MOST_ITERATIONS, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
    )

    def total() -> Tensor:
        optimizer.zero_grad()
        data_loss = (loss(linear(rows, weights, constants), targets) * counts).mean()
        value = data_loss + (weights**2).sum() / (2 * strength * len(rows))
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(total)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        value = float((loss(linear(rows, weights, constants), targets) * counts).mean())
    return weights.detach().float(), constants.detach().float(), value
