"""The stages of a ULMFiT training, stopped and gone on with anywhere: a language model first, then a classifier."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tagline.models import Step
from tagline.models.nn import batches
from tagline.models.nn.loop import Loss
from tagline.models.nn.tokens import Ints, Sequences
from tagline.models.ulmfit.awd_lstm import AwdLstmClassifier, LanguageModel, State, layer_groups
from tagline.models.ulmfit.one_cycle import (
    RANGE_STEPS,
    Cycle,
    is_too_high,
    one_cycle,
    range_test,
    spread_rates,
    suggest_rate,
)

Direction = Literal["forward", "backward"]
LOOKED_AT = 200
FACTOR = 1.3
"""Between the rates of neighbouring groups. With the usual 2.6 what is pretrained on few texts learned too little."""
MOST_RATE = 2e-3
"""Of a classifier that learns as a whole: a range test may suggest ten times that, with which it learned nothing."""
WINDOW = 72
"""Tokens through which gradients flow."""
Network = LanguageModel | AwdLstmClassifier
ACTIVATION, JUMP = 2.0, 1.0
"""What large outputs cost, and outputs that differ much from the token before: AR and TAR of the AWD-LSTM paper."""


@dataclass(frozen=True)
class TrainingStage:
    """Some epochs of one network, of which some groups learn; or, without epochs, a test of its learning rate."""

    part: Literal["language model", "classifier"]
    direction: Direction
    learning: int
    epochs: int = 0
    share: float = 1.0
    """Of the learning rate."""
    factor: float = 1.0
    """Between the rates of neighbouring groups."""

    @property
    def name(self) -> str:
        """As the progress display has it."""
        return f"{self.direction} {self.part}" + ("" if self.epochs else ": learning rate")


def plan_stages(
    direction: Direction,
    *,
    pretrained: bool,
    groups: int,
    lm_epochs: int,
    first_epochs: int,
    epochs: int,
    search: bool,
) -> list[TrainingStage]:
    """The course of one direction: the language model, then the classifier; what is pretrained learns last group first.

    Of the classifier's groups three are unfrozen one after the other, then all.
    """
    found: list[TrainingStage] = []
    if pretrained and lm_epochs:
        found += [TrainingStage("language model", direction, 1)] * search + [
            TrainingStage("language model", direction, 1, epochs=1)
        ]
        found += [TrainingStage("language model", direction, groups - 1, epochs=lm_epochs, share=0.1)]
    elif lm_epochs:
        found += [TrainingStage("language model", direction, groups - 1)] * search
        found += [TrainingStage("language model", direction, groups - 1, epochs=lm_epochs)]
    if not pretrained:  # nothing that was learned elsewhere could be forgotten
        found += [TrainingStage("classifier", direction, groups)] * search
        return [*found, TrainingStage("classifier", direction, groups, epochs=epochs)]
    found += [TrainingStage("classifier", direction, 1)] * search
    for learning in range(1, min(groups, 4)):
        found.append(TrainingStage("classifier", direction, learning, epochs=first_epochs, factor=FACTOR))
    return [*found, TrainingStage("classifier", direction, groups, epochs=epochs, factor=FACTOR)]


class TrainingObjective(Protocol):
    """What a stage learns: a loss at every step, and what is carried from one step to the next."""

    carried: State

    def loss(self, step: int) -> tuple[Tensor, Tensor]:
        """The loss to show, and the one to go down from."""

    def rows(self, step: int) -> int:
        """Rows seen after this step; 0 where a step is not made of rows."""


class NextTokenObjective:
    """The texts one after the other, in a new order each epoch, cut into rows that are read window by window."""

    def __init__(self, network: LanguageModel, sequences: Sequences, *, backwards: bool, rows: int, seed: int) -> None:
        self.network, self.sequences, self.backwards, self.seed = network, sequences, backwards, seed
        self.side, self.length = stream_shape(sequences, rows=rows)
        self.steps_an_epoch = count_windows(sequences, rows=rows)
        self.carried: State = []
        self._epoch = -1
        self._order: Ints = np.zeros(0, np.int64)
        self._ends: Ints = np.zeros(0, np.int64)

    def loss(self, step: int) -> tuple[Tensor, Tensor]:
        """The cross-entropy of the next tokens in one window of every row."""
        epoch, window = divmod(step, self.steps_an_epoch)
        if epoch != self._epoch:
            self._order = np.random.default_rng([self.seed, epoch]).permutation(len(self.sequences))
            self._ends = np.cumsum(self.sequences.lengths[self._order], dtype=np.int64)
            self._epoch = epoch
        if window == 0:
            self.carried = self.network.encoder.start(self.side)
        start, stop = window * WINDOW, min((window + 1) * WINDOW, self.length)
        ids = np.stack(
            [self._read_stream(row * self.length + start, row * self.length + stop + 1) for row in range(self.side)]
        )
        tokens = torch.from_numpy(ids).to(self.network.encoder.embedding.weight.device)
        raw, dropped, self.carried = self.network.encoder(tokens[:, :-1], self.carried)
        loss = self.network.loss(dropped, tokens[:, 1:])
        return loss, loss + activation_penalty(raw, dropped)

    def rows(self, step: int) -> int:  # noqa: ARG002 - windows are no rows
        """None: a step is made of windows."""
        return 0

    def _read_stream(self, start: int, stop: int) -> Ints:
        """Tokens of the epoch's stream; read backwards each text is turned round by itself."""
        parts: list[Ints] = []
        place = int(np.searchsorted(self._ends, start, side="right"))
        while start < stop:
            number = self._order[place]
            first, last = self.sequences.starts[number], self.sequences.starts[number + 1]
            text = np.asarray(self.sequences.ids[first:last], np.int64)
            before = int(self._ends[place]) - len(text)
            parts.append((text[::-1] if self.backwards else text)[start - before : stop - before])
            start = int(self._ends[place])
            place += 1
        return np.concatenate(parts)


def stream_shape(sequences: Sequences, *, rows: int) -> tuple[int, int]:
    """How many rows a stream is cut into, and how many tokens of each have a next one."""
    tokens = int(sequences.starts[-1])
    side = max(1, min(rows, (tokens - 1) // 2))
    return side, (tokens - 1) // side


def count_windows(sequences: Sequences, *, rows: int) -> int:
    """Steps in which a stream is read once."""
    return -(-stream_shape(sequences, rows=rows)[1] // WINDOW)


class LabelObjective:
    """The labelled texts in batches of similar length."""

    carried: State = []  # noqa: RUF012 - nothing is, ever

    def __init__(
        self,
        network: AwdLstmClassifier,
        sequences: Sequences,
        targets: NDArray[Any],
        loss: Loss,
        *,
        backwards: bool,
        pad: int,
        batch_size: int,
        seed: int,
    ) -> None:
        self.network, self.sequences, self.loss_of = network, sequences, loss
        self.backwards, self.pad, self.batch_size, self.seed = backwards, pad, batch_size, seed
        self.targets = torch.from_numpy(targets)
        self.weights = loss.weights(self.targets)
        self.steps_an_epoch = steps_an_epoch(len(sequences), batch_size=batch_size)
        self._epoch = -1
        self._order: list[Ints] = []

    def _make_batches(self, epoch: int) -> list[Ints]:
        """An epoch's batches. Batch normalisation needs two rows, so one that is left over joins another batch."""
        found = batches.of_epoch(self.sequences.lengths, batch_size=self.batch_size, seed=self.seed, epoch=epoch)
        lone = [batch for batch in found if len(batch) == 1]
        found = [batch for batch in found if len(batch) > 1]
        return [*found[:-1], np.concatenate([found[-1], *lone])] if found else lone

    def loss(self, step: int) -> tuple[Tensor, Tensor]:
        """The loss of one batch."""
        epoch, number = divmod(step, self.steps_an_epoch)
        if epoch != self._epoch:
            self._order, self._epoch = self._make_batches(epoch), epoch
        batch = self._order[number]
        device = self.network.encoder.embedding.weight.device
        read = inputs_of(self.sequences, batch, pad=self.pad, backwards=self.backwards)
        inputs = {name: each.to(device) for name, each in read.items()}
        logits, raw, dropped = self.network(**inputs)
        weights = self.weights[batch].to(device)
        losses = self.loss_of(logits, self.targets[batch].to(device))
        loss = (losses * weights).sum() / (len(batch) * self.weights.mean())
        return loss, loss + activation_penalty(raw, dropped)

    def rows(self, step: int) -> int:
        """Rows seen after this step."""
        epoch, number = divmod(step, self.steps_an_epoch)
        return epoch * len(self.sequences) + sum(map(len, self._order[: number + 1]))


def steps_an_epoch(rows: int, *, batch_size: int) -> int:
    """Batches in an epoch; a row that is left over by itself makes none."""
    return max(1, -(-rows // batch_size) - (rows % batch_size == 1))


def inputs_of(sequences: Sequences, numbers: Ints, *, pad: int, backwards: bool) -> dict[str, Tensor]:
    """Some sequences as a network takes them."""
    inputs = sequences.pad_batch(numbers, pad=pad, backwards=backwards)
    return {name: torch.from_numpy(array) for name, array in inputs.items()}


def measure_surprise(network: LanguageModel, sequences: Sequences, *, backwards: bool) -> float:
    """The mean loss of the next token in some of the texts."""
    work = NextTokenObjective(network.eval(), sequences.first(LOOKED_AT), backwards=backwards, rows=16, seed=0)
    with torch.inference_mode():
        return float(np.mean([float(work.loss(step)[0]) for step in range(min(4, work.steps_an_epoch))]))


def activation_penalty(raw: Tensor, dropped: Tensor) -> Tensor:
    """What is added to a loss so that outputs stay small and change slowly."""
    cost = ACTIVATION * dropped.pow(2).mean()
    return cost + JUMP * (raw[:, 1:] - raw[:, :-1]).pow(2).mean() if raw.shape[1] > 1 else cost


@dataclass
class StageProgress:
    """How far a course has come: the stage, steps done in it, and what range tests found."""

    stage: int = 0
    done: int = 0
    rates: dict[str, float] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)


class StagedTraining:
    """The stages in their order. Networks and work are made by the family, when a stage needs them."""

    def __init__(
        self,
        plan: Sequence[TrainingStage],
        *,
        steps: Mapping[str, int],
        rate: float | None,
        weight_decay: float,
        seed: int,
        network: Callable[[TrainingStage], Network],
        work: Callable[[TrainingStage, Network], TrainingObjective],
    ) -> None:
        self.plan = plan
        self.progress = StageProgress()
        self._steps = [steps[stage.part] * stage.epochs if stage.epochs else RANGE_STEPS for stage in plan]
        self._rate, self._weight_decay, self._seed = rate, weight_decay, seed
        self._network, self._work = network, work
        self._cycle: Cycle | None = None
        self._current: TrainingObjective | None = None
        self._before: dict[str, Tensor] = {}
        self._kept: dict[str, dict[str, Tensor]] = {}

    def steps(self) -> Iterator[Step]:
        """Learn from where it stands to the end."""
        while self.progress.stage < len(self.plan):
            number = self.progress.stage
            yield from self._run_stage(self.plan[number], first=sum(self._steps[:number]), steps=self._steps[number])
            self.progress = StageProgress(number + 1, rates=self.progress.rates)

    def _run_stage(self, stage: TrainingStage, *, first: int, steps: int) -> Iterator[Step]:
        network, progress = self._network(stage), self.progress
        groups, is_search = layer_groups(network), not stage.epochs
        rate = 1.0 if is_search else stage.share * (self._rate or progress.rates[f"{stage.direction} {stage.part}"])
        cycle = self._cycle = Cycle(
            network,
            groups,
            rates=spread_rates(rate, groups=len(groups), factor=stage.factor),
            learning=stage.learning,
            steps=steps,
            weight_decay=self._weight_decay,
            schedule=range_test if is_search else one_cycle,
        )
        work = self._current = self._work(stage, network)
        self._before = {name: tensor.clone() for name, tensor in network.state_dict().items()} if is_search else {}
        self._take_up(cycle, work, device=next(network.parameters()).device)
        network.train()
        while cycle.done < steps:
            # Nothing random needs to be remembered: what a step draws follows from its number.
            torch.manual_seed((self._seed * 1_000_003 + first + cycle.done) * 1_009)
            reached = cycle.rate
            shown, whole = work.loss(cycle.done)
            seen = work.rows(cycle.done)
            cycle.step(whole)
            loss = float(shown.detach())
            if is_search:
                progress.losses.append(loss)
                if is_too_high(progress.losses):
                    cycle.done = steps  # the rest of the test is left out
                loss = next((each for each in reversed(progress.losses) if math.isfinite(each)), loss)
            progress.done = cycle.done
            is_worth_measuring = stage.part == "classifier" and not is_search and self._is_last(stage.direction)
            epoch_ends = not is_search and cycle.done % (steps // stage.epochs) == 0
            yield Step(
                first + cycle.done,
                sum(self._steps),
                loss,
                evaluate=is_worth_measuring and epoch_ends,
                settings={"learning_rate": reached},
                rows=seen,
                stage=stage.name,
            )
            network.train()  # it may have been measured
        if is_search:
            network.load_state_dict(self._before)
            found = suggest_rate(progress.losses, boldly=stage.part == "language model")
            is_whole = stage.part == "classifier" and stage.learning == len(groups)
            progress.rates[f"{stage.direction} {stage.part}"] = min(found, MOST_RATE) if is_whole else found

    def _is_last(self, direction: Direction) -> bool:
        """Whether what learns in this direction completes the model: a first of two is measured with the second."""
        return direction == self.plan[-1].direction

    def _take_up(self, cycle: Cycle, work: TrainingObjective, *, device: torch.device) -> None:
        """Go on with the stage that was under way when the course was kept."""
        if not self._kept:
            return
        cycle.restore(self._kept["optimizer"], done=self.progress.done)
        states = {name: tensor.to(device) for name, tensor in self._kept["carried"].items()}
        work.carried = [(states[f"{layer}.h"], states[f"{layer}.c"]) for layer in range(len(states) // 2)]
        self._before = self._kept["before"] or self._before
        self._kept = {}

    def state(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        """What is needed to go on, beside the networks' weights: tensors by kind, and plain values."""
        carried: dict[str, Tensor] = {}
        for layer, (output, cell) in enumerate(self._current.carried if self._current else ()):
            carried |= {f"{layer}.h": output, f"{layer}.c": cell}
        optimizer = self._cycle.state() if self._cycle else {}
        return {"optimizer": optimizer, "carried": carried, "before": self._before}, asdict(self.progress)

    def restore(self, tensors: dict[str, dict[str, Tensor]], values: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._kept, self.progress = tensors, StageProgress(**values)
