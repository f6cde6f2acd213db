"""AWD-LSTM as published: an LSTM language model with five kinds of dropout, and a classifier on top of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, dropout, embedding, linear

State = list[tuple[Tensor, Tensor]]
"""The hidden and cell state of each layer."""
HEAD_WIDTH, HEAD_DROPOUT = 50, 0.1
START_RANGE = 0.1
NEGATIVE_SAMPLES = 2000
"""Tokens of the sampled softmax, drawn in each step from those that are not a next token anywhere in the batch."""


@dataclass(frozen=True)
class Shape:
    """The layer sizes and dropouts of an AWD-LSTM, under fastai's names."""

    emb_sz: int = 400
    n_hid: int = 1152
    n_layers: int = 3
    output_p: float = 0.1
    hidden_p: float = 0.15
    input_p: float = 0.25
    embed_p: float = 0.02
    weight_p: float = 0.2
    tie_weights: bool = True
    out_bias: bool = True

    def scale_dropout(self, times: float) -> "Shape":
        """Return the shape with every dropout multiplied by a factor, to at most 0.9."""
        scaled = {name: min(0.9, value * times) for name, value in asdict(self).items() if name.endswith("_p")}
        return replace(self, **scaled)


class WeightDropLstm(nn.Module):
    """An LSTM layer with weight dropout: in training, recurrent weights are dropped, drawn anew for each window."""

    def __init__(self, width: int, states: int, *, drop: float) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, states, batch_first=True)
        self.drop = drop

    def forward(self, inputs: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return the outputs at every place, and the last state."""
        if not self.training or not self.drop:
            whole: tuple[Tensor, tuple[Tensor, Tensor]] = self.lstm(inputs, state)
            return whole
        weights = dropout(self.lstm.get_parameter("weight_hh_l0"), self.drop)
        dropped: tuple[Tensor, tuple[Tensor, Tensor]] = functional_call(
            self.lstm, {"weight_hh_l0": weights}, (inputs, state)
        )
        return dropped


class AwdLstm(nn.Module):
    """The encoder: token numbers and a state in, the last layer's outputs and the new state out."""

    def __init__(self, shape: Shape, *, tokens: int) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(tokens, shape.emb_sz)
        nn.init.uniform_(self.embedding.weight, -START_RANGE, START_RANGE)
        sizes = [shape.emb_sz, *[shape.n_hid] * (shape.n_layers - 1), shape.emb_sz]
        self.sizes = sizes[1:]
        self.layers = nn.ModuleList(
            WeightDropLstm(width, states, drop=shape.weight_p) for width, states in pairwise(sizes)
        )

    def start(self, rows: int) -> State:
        """Return the initial state, all zero."""
        like = self.embedding.weight
        return [(like.new_zeros(1, rows, size), like.new_zeros(1, rows, size)) for size in self.sizes]

    def forward(self, ids: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """Return the last layer's outputs before and after dropout, and the new state."""
        shape = self.shape
        outputs = self._locked_dropout(self._embed_tokens(ids), shape.input_p)
        states: State = []
        for number, (layer, before) in enumerate(zip(self.layers, state, strict=True)):
            if number:
                outputs = self._locked_dropout(outputs, shape.hidden_p)
            outputs, after = layer(outputs, before)
            states.append((after[0].detach(), after[1].detach()))
        return outputs, self._locked_dropout(outputs, shape.output_p), states

    def _embed_tokens(self, ids: Tensor) -> Tensor:
        """Return the tokens' embeddings; in training with embedding dropout, which drops a word wherever it occurs."""
        table = self.embedding.weight
        vectors = embedding(ids, table)
        if not self.training or not self.shape.embed_p:
            return vectors
        return vectors * dropout(table.new_ones(len(table), 1), self.shape.embed_p)[ids]

    def _locked_dropout(self, values: Tensor, drop: float) -> Tensor:
        """Apply variational dropout: the same features are dropped at every place of a sequence."""
        if not self.training or not drop:
            return values
        return values * dropout(values.new_ones(len(values), 1, values.shape[2]), drop)


class LanguageModel(nn.Module):
    """Predicts the next token; its output weights are tied to the embedding unless the shape says otherwise."""

    def __init__(self, shape: Shape, *, tokens: int) -> None:
        super().__init__()
        self.encoder = AwdLstm(shape, tokens=tokens)
        self.matrix = None if shape.tie_weights else nn.Parameter(self.encoder.embedding.weight.detach().clone())
        self.bias = nn.Parameter(torch.zeros(tokens)) if shape.out_bias else None

    def forward(self, ids: Tensor, state: State) -> tuple[Tensor, Tensor, Tensor, State]:
        """Return the logits of the next token, the outputs before and after dropout, and the new state."""
        raw, dropped, state = self.encoder(ids, state)
        return linear(dropped, self._output_weights(), self.bias), raw, dropped, state

    def loss(self, outputs: Tensor, following: Tensor) -> Tensor:
        """Return the cross-entropy of the next tokens; in training with a large vocabulary, by sampled softmax.

        The softmax then sums over the next tokens of the batch and over a sample of the others, scaled up so that the
        expected sum is the full one. With 25,000 tokens a step takes less than half of the time.
        """
        table, bias = self._output_weights(), self.bias
        following, places = following.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        others = len(table) - len(following)
        if not self.training or others <= NEGATIVE_SAMPLES:
            return cross_entropy(linear(outputs, table, bias).flatten(0, 1), following[places].flatten())
        is_other = torch.ones(len(table), dtype=torch.bool)
        is_other[following.cpu()] = False
        drawn = is_other.nonzero().squeeze(1)[torch.randperm(others)[:NEGATIVE_SAMPLES]].to(following.device)
        sampled = torch.cat([following, drawn])
        logits = linear(outputs, table[sampled], None if bias is None else bias[sampled])
        logits[..., len(following) :] += math.log(others / NEGATIVE_SAMPLES)
        return cross_entropy(logits.flatten(0, 1), places.flatten())

    def _output_weights(self) -> Tensor:
        return self.encoder.embedding.weight if self.matrix is None else self.matrix


class AwdLstmClassifier(nn.Module):
    """A classifier that reads texts in windows, with concat pooling: the last, the largest and the mean output."""

    usual: Tensor
    """Constant logits that are added to those of the head; fastai has none."""

    def __init__(self, encoder: AwdLstm, *, labels: int, drop: float, window: int, most: int) -> None:
        super().__init__()
        self.encoder = encoder
        width = 3 * encoder.shape.emb_sz
        self.head = nn.Sequential(
            nn.Sequential(nn.BatchNorm1d(width), nn.Dropout(drop), nn.Linear(width, HEAD_WIDTH, bias=False), nn.ReLU()),
            nn.Sequential(
                nn.BatchNorm1d(HEAD_WIDTH), nn.Dropout(HEAD_DROPOUT), nn.Linear(HEAD_WIDTH, labels, bias=False)
            ),
        )
        for module in self.head.modules():
            if isinstance(module, nn.BatchNorm1d):
                nn.init.constant_(module.bias, 1e-3)
            elif isinstance(module, nn.Linear):
                nn.init.kaiming_normal_(module.weight)
        self.register_buffer("usual", torch.zeros(labels))
        self.window = window
        self.most = most

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the logits, and for regularisation the outputs before and after dropout.

        Gradients stop between windows, as in fastai. In a text longer than `most`, the windows before the ones that
        count are read without gradients, only for their final state: memory grows with `most`, and not with the
        longest text.
        """
        lengths = attention_mask.sum(dim=1)
        first = self._first_place(lengths)
        state = self._warm_up_state(input_ids, first)
        lengths = lengths - first
        places = first[:, None] + torch.arange(int(lengths.max()), device=input_ids.device)
        ids = input_ids.gather(1, places.clamp(max=input_ids.shape[1] - 1))
        parts: list[tuple[Tensor, Tensor]] = []
        for start in range(0, ids.shape[1], self.window):
            raw, dropped, state = self.encoder(ids[:, start : start + self.window], state)
            parts.append((raw, dropped))
        raw, dropped = (torch.cat(windows, dim=1) for windows in zip(*parts, strict=True))
        return self.usual + self.head(_pool_outputs(dropped, torch.zeros_like(first), lengths)), raw, dropped

    def _warm_up_state(self, input_ids: Tensor, first: Tensor) -> State:
        """Return the state of each text at the place from which it counts."""
        state = self.encoder.start(len(input_ids))
        for start in range(0, int(first.max()), self.window):
            is_warming_up = (start < first)[None, :, None]
            with torch.no_grad():
                _, _, after = self.encoder(input_ids[:, start : start + self.window], state)
            state = [
                (torch.where(is_warming_up, new[0], old[0]), torch.where(is_warming_up, new[1], old[1]))
                for new, old in zip(after, state, strict=True)
            ]
        return state

    def _first_place(self, lengths: Tensor) -> Tensor:
        """Return the place from which each text counts: a window's start, at most `most` tokens from its end."""
        # Rounded up with positive numbers only: a graph rounds a negative quotient towards zero.
        return ((lengths - self.most).clamp(min=0) + self.window - 1) // self.window * self.window

    def read_at_once(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the logits alone, without windows, which make no difference outside training."""
        outputs, _, _ = self.encoder(input_ids, self.encoder.start(input_ids.shape[0]))
        lengths = attention_mask.sum(dim=1)
        logits: Tensor = self.usual + self.head(_pool_outputs(outputs, self._first_place(lengths), lengths))
        return logits


def _pool_outputs(outputs: Tensor, first: Tensor, lengths: Tensor) -> Tensor:
    """Return the last, the largest and the mean output of each text, independent of padding."""
    places = torch.arange(outputs.shape[1], device=outputs.device)
    counts = ((places < lengths[:, None]) & (places >= first[:, None])).unsqueeze(-1)
    last = outputs[torch.arange(outputs.shape[0], device=outputs.device), lengths - 1]
    largest = outputs.masked_fill(~counts, -torch.inf).amax(dim=1)
    mean = (outputs * counts).sum(dim=1) / counts.sum(dim=1)
    return torch.cat([last, largest, mean], dim=1)


class DirectionEnsemble(nn.Module):
    """The classifiers of one or both directions as one network, which is exported as a graph."""

    def __init__(self, classifiers: Mapping[str, AwdLstmClassifier]) -> None:
        super().__init__()
        self.inputs = [f"{direction}_ids" for direction in classifiers]
        self.classifiers = nn.ModuleList(classifiers.values())

    def forward(self, attention_mask: Tensor, **ids: Tensor) -> Tensor:
        """Return the logits of each direction, whose input is `forward_ids` or `backward_ids`."""
        directions = zip(self.inputs, self.classifiers, strict=True)
        return torch.stack([each.read_at_once(ids[name], attention_mask) for name, each in directions])  # type: ignore[operator]


def layer_groups(network: LanguageModel | AwdLstmClassifier) -> Sequence[Sequence[str]]:
    """Return the names of the parameters by layer group, which share a learning rate; the last group is unfrozen first.

    A language model's embedding is in the last group, since it is tied to the output; a classifier's is the first.
    """
    layers = [
        [name for name, _ in network.named_parameters() if name.startswith(f"encoder.layers.{number}.")]
        for number in range(network.encoder.shape.n_layers)
    ]
    table = ["encoder.embedding.weight"]
    if isinstance(network, AwdLstmClassifier):
        return [table, *layers, [name for name, _ in network.named_parameters() if name.startswith("head.")]]
    return [*layers, table + [name for name in ("matrix", "bias") if getattr(network, name) is not None]]
