"""LSTMs that read a text in both directions, what makes one state of all of theirs, and the networks made of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

Pooling = Literal["max", "mean", "max+mean", "attention"]


@contextmanager
def seed_layers(seed: int) -> Iterator[None]:
    """Let new layers, which draw from torch's own generator, start as this seed says; others do not notice."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


class BidirectionalLstm(nn.Module):
    """A layer of two LSTMs, one from each end of a text.

    The text is turned round, without its padding, for the second one. Packed sequences give the same states, in two to
    four times the time on a CPU.
    """

    def __init__(self, size: int, hidden: int) -> None:
        super().__init__()
        self.onwards = nn.LSTM(size, hidden, batch_first=True)
        self.backwards = nn.LSTM(size, hidden, batch_first=True)
        for name, parameter in self.named_parameters():
            if "bias" in name:
                nn.init.zeros_(parameter)
            if "bias_ih" in name:
                nn.init.ones_(parameter[hidden : 2 * hidden])  # it remembers until it learns to forget
            if "weight_hh" in name:
                nn.init.orthogonal_(parameter)

    def forward(self, states: Tensor, turned: Tensor) -> Tensor:
        """The states of both LSTMs, side by side; `turned` says where each token stands from the other end."""
        there, _ = self.onwards(states)
        back, _ = self.backwards(_reorder_states(states, turned))
        return torch.cat([there, _reorder_states(back, turned)], dim=-1)


def _reorder_states(states: Tensor, places: Tensor) -> Tensor:
    return states.gather(1, places.unsqueeze(-1).expand(-1, -1, states.shape[-1]))


class PoolingLayer(nn.Module):
    """One state of a text from those of its tokens."""

    def __init__(self, size: int, how: Pooling) -> None:
        super().__init__()
        self.how = how
        self.size = 2 * size if how == "max+mean" else size
        self.attention = nn.Linear(size, 1, bias=False) if how == "attention" else None

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """The pooled states of a batch."""
        is_there = mask.bool().unsqueeze(-1)
        found = []
        if self.attention is not None:
            shares = self.attention(states).masked_fill(~is_there, float("-inf")).softmax(dim=1)
            found.append((states * shares).sum(dim=1))
        if self.how.startswith("max"):
            found.append(states.masked_fill(~is_there, float("-inf")).amax(dim=1))
        if self.how.endswith("mean"):
            found.append(states.masked_fill(~is_there, 0.0).sum(dim=1) / is_there.sum(dim=1))
        return torch.cat(found, dim=-1)


class RecurrentHead(nn.Module):
    """Layers of LSTMs over the states of tokens, pooled, and logits of that: whatever the padding."""

    def __init__(
        self,
        size: int,
        labels: int,
        *,
        hidden: int,
        layers: int = 1,
        dropout: float = 0.0,
        pooling: Pooling = "max+mean",
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            BidirectionalLstm(2 * hidden if number else size, hidden) for number in range(layers)
        )
        self.dropout = nn.Dropout(dropout)
        self.pool = PoolingLayer(2 * hidden, pooling)
        self.output = nn.Linear(self.pool.size, labels)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """The logits of a batch."""
        lengths, places = mask.sum(dim=1, keepdim=True), torch.arange(mask.shape[1], device=mask.device)
        turned = torch.where(places < lengths, lengths - 1 - places, places)
        # Always float32: in bfloat16 it took two to four times as long on a CPU that has to emulate that; where the
        # hardware has it nobody has measured.
        with torch.autocast(states.device.type, enabled=False):
            states = states.float()
            for number, layer in enumerate(self.layers):
                states = layer(self.dropout(states) if number else states, turned)
            logits: Tensor = self.output(self.dropout(self.pool(states, mask)))
        return logits


class TokenNetwork(nn.Module):
    """Embeddings of tokens, LSTMs over them, and logits."""

    def __init__(
        self,
        vocabulary: int,
        labels: int,
        *,
        size: int,
        spread: float,
        hidden: int,
        layers: int,
        dropout: float,
        word_dropout: float,
        pooling: Pooling,
        types: bool,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size)
        self.types = nn.Embedding(2, size) if types else None
        for table in (self.embedding, self.types):
            if table is not None:
                nn.init.normal_(table.weight, std=spread)
        self.word_dropout = word_dropout
        self.dropout = nn.Dropout1d(dropout)
        self.head = RecurrentHead(size, labels, hidden=hidden, layers=layers, dropout=dropout, pooling=pooling)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """The logits of a batch; while it learns, some of the words are not there, and some of what words are."""
        states = self.embedding(input_ids)
        if self.training and self.word_dropout:
            is_read = torch.rand(input_ids.shape, device=states.device) >= self.word_dropout
            states = states * is_read.unsqueeze(-1)
        if self.types is not None and token_type_ids is not None:
            states = states + self.types(token_type_ids)
        # The same parts of every word of a text: one that is missing here and there would be guessed from the others.
        states = self.dropout(states.transpose(1, 2)).transpose(1, 2)
        logits: Tensor = self.head(states, attention_mask)
        return logits
