"""Bidirectional LSTM layers, pooling over their states, and the networks built from them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

Pooling = Literal["max", "mean", "max+mean", "attention"]


@contextmanager
def seed_layers(seed: int) -> Iterator[None]:
    """Seed the initialisation of new layers, and restore torch's global generator afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


class BidirectionalLstm(nn.Module):
    """A layer of two LSTMs, one in each direction.

    The text is reversed, without its padding, for the second one. Packed sequences give the same states, in two to
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
                nn.init.ones_(parameter[hidden : 2 * hidden])  # a forget gate that starts open
            if "weight_hh" in name:
                nn.init.orthogonal_(parameter)

    def forward(self, states: Tensor, reversal: Tensor) -> Tensor:
        """Return the states of both LSTMs, concatenated; `reversal` is each token's place in the reversed text."""
        forward_states, _ = self.onwards(states)
        backward_states, _ = self.backwards(_reorder_states(states, reversal))
        return torch.cat([forward_states, _reorder_states(backward_states, reversal)], dim=-1)


def _reorder_states(states: Tensor, places: Tensor) -> Tensor:
    return states.gather(1, places.unsqueeze(-1).expand(-1, -1, states.shape[-1]))


class PoolingLayer(nn.Module):
    """Pools the states of a text's tokens into one."""

    def __init__(self, size: int, how: Pooling) -> None:
        super().__init__()
        self.how = how
        self.size = 2 * size if how == "max+mean" else size
        self.attention = nn.Linear(size, 1, bias=False) if how == "attention" else None

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return the pooled states of a batch."""
        is_token = mask.bool().unsqueeze(-1)
        pooled = []
        if self.attention is not None:
            shares = self.attention(states).masked_fill(~is_token, float("-inf")).softmax(dim=1)
            pooled.append((states * shares).sum(dim=1))
        if self.how.startswith("max"):
            pooled.append(states.masked_fill(~is_token, float("-inf")).amax(dim=1))
        if self.how.endswith("mean"):
            pooled.append(states.masked_fill(~is_token, 0.0).sum(dim=1) / is_token.sum(dim=1))
        return torch.cat(pooled, dim=-1)


class RecurrentHead(nn.Module):
    """Bidirectional LSTM layers over token states, pooling, and a linear output; independent of padding."""

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
        """Return the logits of a batch."""
        lengths, places = mask.sum(dim=1, keepdim=True), torch.arange(mask.shape[1], device=mask.device)
        reversal = torch.where(places < lengths, lengths - 1 - places, places)
        # Always float32: in bfloat16 it took two to four times as long on a CPU that emulates it; hardware bfloat16 has
        # not been measured.
        with torch.autocast(states.device.type, enabled=False):
            states = states.float()
            for number, layer in enumerate(self.layers):
                states = layer(self.dropout(states) if number else states, reversal)
            logits: Tensor = self.output(self.dropout(self.pool(states, mask)))
        return logits


class TokenNetwork(nn.Module):
    """Token embeddings with a recurrent head."""

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
        """Return the logits of a batch; in training, with word dropout and spatial dropout of the embeddings."""
        states = self.embedding(input_ids)
        if self.training and self.word_dropout:
            is_read = torch.rand(input_ids.shape, device=states.device) >= self.word_dropout
            states = states * is_read.unsqueeze(-1)
        if self.types is not None and token_type_ids is not None:
            states = states + self.types(token_type_ids)
        # Spatial dropout: a feature dropped only at some words of a text could be inferred from the others.
        states = self.dropout(states.transpose(1, 2)).transpose(1, 2)
        logits: Tensor = self.head(states, attention_mask)
        return logits
