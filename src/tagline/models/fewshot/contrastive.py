"""Sentence embeddings: an encoder tuned until texts of one label lie close together, and a linear head on them."""

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
    Kept,
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
"""In a batch: each of them has three to come close to, and the batch still holds several labels."""
ROWS_A_PART = 12
"""Of a batch, of similar length, that go through the encoder together: on a CPU padding costs more than calls do."""
MOST_ITERATIONS = 500
"""Of the head, where 30 to 150 are usual."""


class UnitNorm(nn.Module):
    """A pooled state brought to length 1, so that a product of two of them is their cosine."""

    def forward(self, pooled: Tensor) -> Tensor:
        """The embeddings of a batch."""
        return normalize(pooled, dim=1)


def create_views(encoder: Any, *, labels: int, pooling: Pooling) -> tuple[Network, Network]:
    """One encoder seen twice: ending in embeddings, and in the logits of a linear head on these."""
    embedder, classifier = (Network(encoder, head="linear", labels=labels, pooling=pooling, seed=0) for _ in range(2))
    embedder.head = UnitNorm()
    classifier.head = nn.Sequential(UnitNorm(), nn.Linear(encoder.config.hidden_size, labels))
    return embedder, classifier


def set_head(classifier: Network, weights: Tensor, constants: Tensor) -> None:
    """Give the classifier the head that was fitted."""
    linear_head = cast("nn.Linear", classifier.head[1])  # type: ignore[index]
    with torch.no_grad():
        linear_head.weight.copy_(weights)
        linear_head.bias.copy_(constants)


@dataclass(frozen=True)
class FewShotExamples:
    """The training rows: their tokens and targets, and how wrong logits of them are."""

    sequences: Sequences
    targets: NDArray[Any]
    loss: Loss
    pad: int

    @cached_property
    def truth(self) -> NDArray[np.bool_]:
        """For each row and label whether the row has it."""
        return self.targets.astype(bool) if self.loss.is_multi else np.eye(self.labels, dtype=bool)[self.targets]

    @property
    def labels(self) -> int:
        """How many there are."""
        return len(self.loss.label_weights)

    def __len__(self) -> int:
        return len(self.targets)

    def draw_rows(self, *, batch_size: int, seed: int, step: int) -> Ints:
        """Some rows of some labels, the shortest first; which ones follows from the seed and the step alone."""
        random = np.random.default_rng([seed, step])
        groups = [np.flatnonzero(has_it) for has_it in self.truth.T if has_it.any()]
        if len(without := np.flatnonzero(~self.truth.any(axis=1))):  # they are near to nothing, which is to be learned
            groups.append(without)
        count = min(len(groups), max(2, batch_size // ROWS_A_LABEL))
        found = [
            random.choice(groups[number], min(len(groups[number]), max(2, batch_size // count)), replace=False)
            for number in random.choice(len(groups), count, replace=False)
        ]
        rows = np.unique(np.concatenate(found))  # with several labels a row can be drawn for each of them
        return rows[np.argsort(self.sequences.lengths[rows], kind="stable")]

    def embed_rows(self, embedder: Network, seat: ComputeContext) -> Tensor:
        """The embeddings of all rows, in main memory."""
        found = torch.zeros(len(self), embedder.encoder.config.hidden_size)
        every, lengths = np.arange(len(self)), self.sequences.lengths
        embedder.eval()
        with torch.no_grad():
            for part in batches.within_budget(every, lengths, most_tokens=seat.most_tokens):
                inputs = seat.to_tensors(self.sequences.pad_batch(part, pad=self.pad))
                found[torch.from_numpy(part)] = embedder(**inputs).cpu()
        return found


def contrastive_loss(embeddings: Tensor, truth: Tensor, *, temperature: float) -> Tensor:
    """How far texts that share a label are from each other, against all others (Khosla et al. 2020, their L-out)."""
    itself = torch.eye(len(truth), dtype=torch.bool, device=truth.device)
    related = (truth @ truth.T > 0) & ~itself
    cosines = embeddings @ embeddings.T
    shares = log_softmax((cosines / temperature).masked_fill(itself, float("-inf")), dim=1)
    partners = related.sum(dim=1)
    losses = -shares.masked_fill(~related, 0.0).sum(dim=1) / partners.clamp(min=1)
    return losses.sum() / (partners > 0).sum().clamp(min=1)


class ContrastiveTuning:
    """The contrastive steps of one encoder. Their number and their memory depend on no number of pairs."""

    def __init__(
        self,
        embedder: Network,
        groups: Sequence[ParameterGroup],
        shots: FewShotExamples,
        *,
        steps: int,
        learning_rate: float,
        temperature: float,
        training: Training,
        seed: int,
        seat: ComputeContext,
    ) -> None:
        self.embedder, self.shots, self.training, self.seed, self.seat = embedder, shots, training, seed, seat
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
            fused=seat.device.kind != "mps",
        )

    def losses(self) -> Iterator[float]:
        """Tune from where it stands to the end; the loss of each step."""
        while self.done < self.total:
            loss = self._run_step()
            self.done += 1
            yield loss

    def _run_step(self) -> float:
        rate = rate_at(self.done, total=self.total, warmup_share=self.training.warmup_share)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * self.learning_rate
        rows = self.shots.draw_rows(batch_size=self.training.batch_size, seed=self.seed, step=self.done)
        # A batch is contrasted with itself, so all of it is held until the way back: parts only save padding.
        parts = [rows[first : first + ROWS_A_PART] for first in range(0, len(rows), ROWS_A_PART)]
        self.embedder.train()
        embeddings = torch.cat([self._embed_part(part) for part in parts])
        truth = torch.from_numpy(self.shots.truth[rows]).to(embeddings)
        loss = contrastive_loss(embeddings, truth, temperature=self.temperature)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.embedder.parameters(), LARGEST_GRADIENT)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(loss.detach())

    def _embed_part(self, part: Ints) -> Tensor:
        found: Tensor = self.embedder(**self.seat.to_tensors(self.shots.sequences.pad_batch(part, pad=self.shots.pad)))
        return found

    def state(self) -> Kept:
        """What is needed to go on."""
        return optimizer_tensors(self.optimizer), {"done": self.done}

    def restore(self, kept: Kept) -> None:
        """Go on from there."""
        tensors, values = kept
        restore_optimizer(self.optimizer, tensors)
        self.done = values["done"]


def fit_head(embeddings: Tensor, shots: FewShotExamples, *, strength: float) -> tuple[Tensor, Tensor, float]:
    """Logistic regression: the weights and the constants of every label, and the loss they come to.

    One of all labels together for task `single`, else one a label; in float64, so that it ends where it should.
    """
    rows, labels, loss, targets = embeddings.double(), shots.labels, shots.loss, torch.from_numpy(shots.targets)
    counts = loss.weights(targets).double() * (labels if loss.is_multi else 1)  # the loss is a mean over labels
    weights = torch.zeros(labels, rows.shape[1], dtype=torch.float64, requires_grad=True)
    constants = torch.zeros(labels, dtype=torch.float64, requires_grad=True)
    descent = torch.optim.LBFGS(
        [weights, constants], max_iter=MOST_ITERATIONS, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
    )

    def total() -> Tensor:
        descent.zero_grad()
        wrong = (loss(linear(rows, weights, constants), targets) * counts).mean()
        value = wrong + (weights**2).sum() / (2 * strength * len(rows))
        value.backward()  # type: ignore[no-untyped-call]
        return value

    descent.step(total)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        value = float((loss(linear(rows, weights, constants), targets) * counts).mean())
    return weights.detach().float(), constants.detach().float(), value
