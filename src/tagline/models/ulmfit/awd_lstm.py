"""AWD-LSTM as published: a language model of LSTM layers with five kinds of dropout, and a classifier on top of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, dropout, embedding, linear

State = list[tuple[Tensor, Tensor]]
"""For each layer what it remembers of the tokens so far."""
HEAD_WIDTH, HEAD_DROPOUT = 50, 0.1
START_RANGE = 0.1
OTHERS = 2000
"""Tokens that are drawn at each step of a language model, to stand for all that do not come next in its windows."""


@dataclass(frozen=True)
class Shape:
    """The sizes of an AWD-LSTM, and how much of it is dropped while it learns; the names are fastai's."""

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
        """The same with every dropout so many times as strong."""
        scaled = {name: min(0.9, value * times) for name, value in asdict(self).items() if name.endswith("_p")}
        return replace(self, **scaled)


class WeightDropLstm(nn.Module):
    """One LSTM layer; while it learns, single weights between its own states are dropped, anew at every window."""

    def __init__(self, width: int, states: int, *, drop: float) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, states, batch_first=True)
        self.drop = drop

    def forward(self, inputs: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Outputs at every place, and the state after the last."""
        if not self.training or not self.drop:
            found: tuple[Tensor, tuple[Tensor, Tensor]] = self.lstm(inputs, state)
            return found
        weights = dropout(self.lstm.get_parameter("weight_hh_l0"), self.drop)
        dropped: tuple[Tensor, tuple[Tensor, Tensor]] = functional_call(
            self.lstm, {"weight_hh_l0": weights}, (inputs, state)
        )
        return dropped


class AwdLstm(nn.Module):
    """The layers: token numbers and a state in, the last layer's outputs and the new state out."""

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
        """What every layer remembers before the first token: nothing."""
        like = self.embedding.weight
        return [(like.new_zeros(1, rows, size), like.new_zeros(1, rows, size)) for size in self.sizes]

    def forward(self, ids: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """The last layer's outputs, the same as the next stage sees them (some dropped), and the new state."""
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
        """Vectors of the tokens; while it learns, some words are dropped wherever they stand."""
        table = self.embedding.weight
        vectors = embedding(ids, table)
        if not self.training or not self.shape.embed_p:
            return vectors
        return vectors * dropout(table.new_ones(len(table), 1), self.shape.embed_p)[ids]

    def _locked_dropout(self, values: Tensor, drop: float) -> Tensor:
        """Values of which some are dropped, the same ones at every place of a sequence."""
        if not self.training or not drop:
            return values
        return values * dropout(values.new_ones(len(values), 1, values.shape[2]), drop)


class LanguageModel(nn.Module):
    """Says which token comes next, with the embedding as its last layer."""

    def __init__(self, shape: Shape, *, tokens: int) -> None:
        super().__init__()
        self.encoder = AwdLstm(shape, tokens=tokens)
        self.matrix = None if shape.tie_weights else nn.Parameter(self.encoder.embedding.weight.detach().clone())
        self.bias = nn.Parameter(torch.zeros(tokens)) if shape.out_bias else None

    def forward(self, ids: Tensor, state: State) -> tuple[Tensor, Tensor, Tensor, State]:
        """Logits of the next token at every place, the outputs behind them, whole and dropped, and the new state."""
        raw, dropped, state = self.encoder(ids, state)
        return linear(dropped, self._output_weights(), self.bias), raw, dropped, state

    def loss(self, outputs: Tensor, following: Tensor) -> Tensor:
        """The cross-entropy of the tokens that follow; while it learns, an estimate of it where there are many tokens.

        The softmax then sums over the tokens that follow anywhere in the batch and over some of the others, which count
        for all of those: the expected sum is the whole one. With 25,000 tokens a step takes less than half of the time.
        """
        table, bias = self._output_weights(), self.bias
        following, places = following.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        others = len(table) - len(following)
        if not self.training or others <= OTHERS:
            return cross_entropy(linear(outputs, table, bias).flatten(0, 1), following[places].flatten())
        is_other = torch.ones(len(table), dtype=torch.bool)
        is_other[following.cpu()] = False
        drawn = is_other.nonzero().squeeze(1)[torch.randperm(others)[:OTHERS]].to(following.device)
        some = torch.cat([following, drawn])
        logits = linear(outputs, table[some], None if bias is None else bias[some])
        logits[..., len(following) :] += math.log(others / OTHERS)
        return cross_entropy(logits.flatten(0, 1), places.flatten())

    def _output_weights(self) -> Tensor:
        return self.encoder.embedding.weight if self.matrix is None else self.matrix


class AwdLstmClassifier(nn.Module):
    """The layers read a text in windows; of their outputs the last, the largest and the mean make its logits."""

    usual: Tensor
    """The logits where nothing is known of a text, to which those of its outputs are added; fastai has none."""

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
        """Logits, and for the regularisation the outputs behind them, whole and dropped.

        Gradients stop between windows, as fastai has it. Of a text that is longer than `most` the windows before the
        ones that count are read for the state they leave alone, without gradients: memory grows with `most`, and not
        with the longest text.
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
        raw, dropped = (torch.cat(whole, dim=1) for whole in zip(*parts, strict=True))
        return self.usual + self.head(_pool_outputs(dropped, torch.zeros_like(first), lengths)), raw, dropped

    def _warm_up_state(self, input_ids: Tensor, first: Tensor) -> State:
        """What every layer remembers of each text where it begins to count."""
        state = self.encoder.start(len(input_ids))
        for start in range(0, int(first.max()), self.window):
            goes_on = (start < first)[None, :, None]
            with torch.no_grad():
                _, _, after = self.encoder(input_ids[:, start : start + self.window], state)
            state = [
                (torch.where(goes_on, new[0], old[0]), torch.where(goes_on, new[1], old[1]))
                for new, old in zip(after, state, strict=True)
            ]
        return state

    def _first_place(self, lengths: Tensor) -> Tensor:
        """The place in each text from which it counts: where a window starts, at most `most` tokens from its end."""
        # Rounded up by what is positive: a graph rounds what is negative towards zero.
        return ((lengths - self.most).clamp(min=0) + self.window - 1) // self.window * self.window

    def read_at_once(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The logits alone, each text read in one go: where nothing is learned, windows make no difference."""
        outputs, _, _ = self.encoder(input_ids, self.encoder.start(input_ids.shape[0]))
        lengths = attention_mask.sum(dim=1)
        logits: Tensor = self.usual + self.head(_pool_outputs(outputs, self._first_place(lengths), lengths))
        return logits


def _pool_outputs(outputs: Tensor, first: Tensor, lengths: Tensor) -> Tensor:
    """The last, the largest and the mean output of each text, wherever it ends, whatever else is in the batch."""
    places = torch.arange(outputs.shape[1], device=outputs.device)
    counts = ((places < lengths[:, None]) & (places >= first[:, None])).unsqueeze(-1)
    last = outputs[torch.arange(outputs.shape[0], device=outputs.device), lengths - 1]
    largest = outputs.masked_fill(~counts, -torch.inf).amax(dim=1)
    mean = (outputs * counts).sum(dim=1) / counts.sum(dim=1)
    return torch.cat([last, largest, mean], dim=1)


class DirectionEnsemble(nn.Module):
    """The classifiers of one or both directions, side by side: what is written down as a graph."""

    def __init__(self, classifiers: Mapping[str, AwdLstmClassifier]) -> None:
        super().__init__()
        self.inputs = [f"{direction}_ids" for direction in classifiers]
        self.classifiers = nn.ModuleList(classifiers.values())

    def forward(self, attention_mask: Tensor, **ids: Tensor) -> Tensor:
        """The logits of each direction, given what it reads as `forward_ids` or `backward_ids`."""
        both = zip(self.inputs, self.classifiers, strict=True)
        return torch.stack([each.read_at_once(ids[name], attention_mask) for name, each in both])  # type: ignore[operator]


def layer_groups(network: LanguageModel | AwdLstmClassifier) -> Sequence[Sequence[str]]:
    """The parameters' names, by the group that is unfrozen and given a learning rate together; the last learns first.

    A language model's embedding stands last, since it is also what makes its logits; a classifier's stands first.
    """
    layers = [
        [name for name, _ in network.named_parameters() if name.startswith(f"encoder.layers.{number}.")]
        for number in range(network.encoder.shape.n_layers)
    ]
    table = ["encoder.embedding.weight"]
    if isinstance(network, AwdLstmClassifier):
        return [table, *layers, [name for name, _ in network.named_parameters() if name.startswith("head.")]]
    return [*layers, table + [name for name in ("matrix", "bias") if getattr(network, name) is not None]]
