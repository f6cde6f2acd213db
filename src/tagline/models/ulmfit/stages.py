"""The stages of a ULMFiT training, resumable at any step: first a language model, then a classifier."""

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
SAMPLE_TEXTS = 200
"""Texts on which the direction of a language model is measured."""
FACTOR = 1.3
"""Between the rates of neighbouring groups. With the usual 2.6, models pretrained on few texts learned too little."""
MOST_RATE = 2e-3
"""For a classifier without frozen groups: at ten times this rate, which range tests suggest, it learned nothing."""
WINDOW = 72
"""Tokens of a window, the length of backpropagation through time."""
Network = LanguageModel | AwdLstmClassifier
ACTIVATION, JUMP = 2.0, 1.0
"""The weights of activation regularisation and temporal activation regularisation (AR and TAR, AWD-LSTM paper)."""


@dataclass(frozen=True)
class TrainingStage:
    """Some epochs of training the last groups of a network; without epochs, a learning-rate range test."""

    part: Literal["language model", "classifier"]
    direction: Direction
    learning: int
    epochs: int = 0
    share: float = 1.0
    """The rate of this stage, as a share of the learning rate."""
    factor: float = 1.0
    """The factor between the rates of neighbouring groups."""

    @property
    def name(self) -> str:
        """The name that the progress display shows."""
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
    """Return the stages of one direction: the language model, then the classifier.

    A pretrained model is trained by gradual unfreezing, from its last group; in the classifier three groups are
    unfrozen one after the other, then all.
    """
    plan: list[TrainingStage] = []
    if pretrained and lm_epochs:
        plan += [TrainingStage("language model", direction, 1)] * search + [
            TrainingStage("language model", direction, 1, epochs=1)
        ]
        plan += [TrainingStage("language model", direction, groups - 1, epochs=lm_epochs, share=0.1)]
    elif lm_epochs:
        plan += [TrainingStage("language model", direction, groups - 1)] * search
        plan += [TrainingStage("language model", direction, groups - 1, epochs=lm_epochs)]
    if not pretrained:  # there is no pretrained knowledge to forget
        plan += [TrainingStage("classifier", direction, groups)] * search
        return [*plan, TrainingStage("classifier", direction, groups, epochs=epochs)]
    plan += [TrainingStage("classifier", direction, 1)] * search
    for learning in range(1, min(groups, 4)):
        plan.append(TrainingStage("classifier", direction, learning, epochs=first_epochs, factor=FACTOR))
    return [*plan, TrainingStage("classifier", direction, groups, epochs=epochs, factor=FACTOR)]


class TrainingObjective(Protocol):
    """The objective of a stage: the loss of every step, and the state carried from one step to the next."""

    carried: State

    def loss(self, step: int) -> tuple[Tensor, Tensor]:
        """Return the loss to report, and the loss to minimise."""

    def rows(self, step: int) -> int:
        """Return the rows seen after this step; 0 where a step is not made of rows."""


class NextTokenObjective:
    """Language modelling: texts, shuffled each epoch and concatenated into a stream, are read in rows by windows."""

    def __init__(self, network: LanguageModel, sequences: Sequences, *, backwards: bool, rows: int, seed: int) -> None:
        self.network, self.sequences, self.backwards, self.seed = network, sequences, backwards, seed
        self.side, self.length = stream_shape(sequences, rows=rows)
        self.steps_an_epoch = count_windows(sequences, rows=rows)
        self.carried: State = []
        self._epoch = -1
        self._order: Ints = np.zeros(0, np.int64)
        self._ends: Ints = np.zeros(0, np.int64)

    def loss(self, step: int) -> tuple[Tensor, Tensor]:
        """Return the cross-entropy of the next tokens in one window of every row."""
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

    def rows(self, step: int) -> int:  # noqa: ARG002 - part of the contract
        """Return 0: a step is made of windows."""
        return 0

    def _read_stream(self, start: int, stop: int) -> Ints:
        """Return tokens of the epoch's stream; with `backwards` each text is reversed."""
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
    """Return the number of rows a stream is cut into, and the number of tokens of a row that have a next one."""
    tokens = int(sequences.starts[-1])
    side = max(1, min(rows, (tokens - 1) // 2))
    return side, (tokens - 1) // side


def count_windows(sequences: Sequences, *, rows: int) -> int:
    """Return the number of steps that read a stream once."""
    return -(-stream_shape(sequences, rows=rows)[1] // WINDOW)


class LabelObjective:
    """Classification: the labelled texts in batches of similar length."""

    carried: State = []  # noqa: RUF012 - always empty

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
        """Return an epoch's batches; batch normalisation needs two rows, so a single row joins another batch."""
        epoch_batches = batches.of_epoch(
            self.sequences.lengths, batch_size=self.batch_size, seed=self.seed, epoch=epoch
        )
        single = [batch for batch in epoch_batches if len(batch) == 1]
        epoch_batches = [batch for batch in epoch_batches if len(batch) > 1]
        return [*epoch_batches[:-1], np.concatenate([epoch_batches[-1], *single])] if epoch_batches else single

    def loss(self, step: int) -> tuple[Tensor, Tensor]:
        """Return the loss of one batch."""
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
        """Return the rows seen after this step."""
        epoch, number = divmod(step, self.steps_an_epoch)
        return epoch * len(self.sequences) + sum(map(len, self._order[: number + 1]))


def steps_an_epoch(rows: int, *, batch_size: int) -> int:
    """Return the number of batches in an epoch; a single row left over makes none."""
    return max(1, -(-rows // batch_size) - (rows % batch_size == 1))


def inputs_of(sequences: Sequences, numbers: Ints, *, pad: int, backwards: bool) -> dict[str, Tensor]:
    """Return some sequences as the inputs of a network."""
    inputs = sequences.pad_batch(numbers, pad=pad, backwards=backwards)
    return {name: torch.from_numpy(array) for name, array in inputs.items()}


def measure_surprise(network: LanguageModel, sequences: Sequences, *, backwards: bool) -> float:
    """Return the mean loss of the next token in some of the texts."""
    objective = NextTokenObjective(network.eval(), sequences.first(SAMPLE_TEXTS), backwards=backwards, rows=16, seed=0)
    with torch.inference_mode():
        return float(np.mean([float(objective.loss(step)[0]) for step in range(min(4, objective.steps_an_epoch))]))


def activation_penalty(raw: Tensor, dropped: Tensor) -> Tensor:
    """Return the activation regularisation, which keeps outputs small and slow to change."""
    cost = ACTIVATION * dropped.pow(2).mean()
    return cost + JUMP * (raw[:, 1:] - raw[:, :-1]).pow(2).mean() if raw.shape[1] > 1 else cost


@dataclass
class StageProgress:
    """The progress of a training: the stage, steps done in it, and the rates that range tests suggested."""

    stage: int = 0
    done: int = 0
    rates: dict[str, float] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)


class StagedTraining:
    """Runs the stages in order. The family creates networks and objectives when a stage needs them."""

    def __init__(
        self,
        plan: Sequence[TrainingStage],
        *,
        steps: Mapping[str, int],
        rate: float | None,
        weight_decay: float,
        seed: int,
        network: Callable[[TrainingStage], Network],
        objective: Callable[[TrainingStage, Network], TrainingObjective],
    ) -> None:
        self.plan = plan
        self.progress = StageProgress()
        self._steps = [steps[stage.part] * stage.epochs if stage.epochs else RANGE_STEPS for stage in plan]
        self._rate, self._weight_decay, self._seed = rate, weight_decay, seed
        self._get_network, self._create_objective = network, objective
        self._cycle: Cycle | None = None
        self._current: TrainingObjective | None = None
        self._before: dict[str, Tensor] = {}
        self._restored: dict[str, dict[str, Tensor]] = {}

    def steps(self) -> Iterator[Step]:
        """Train from the current step to the last."""
        while self.progress.stage < len(self.plan):
            number = self.progress.stage
            yield from self._run_stage(self.plan[number], first=sum(self._steps[:number]), steps=self._steps[number])
            self.progress = StageProgress(number + 1, rates=self.progress.rates)

    def _run_stage(self, stage: TrainingStage, *, first: int, steps: int) -> Iterator[Step]:
        network, progress = self._get_network(stage), self.progress
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
        objective = self._current = self._create_objective(stage, network)
        self._before = {name: tensor.clone() for name, tensor in network.state_dict().items()} if is_search else {}
        self._resume_stage(cycle, objective, device=next(network.parameters()).device)
        network.train()
        while cycle.done < steps:
            # No random state needs saving: the seed of each step follows from its number.
            torch.manual_seed((self._seed * 1_000_003 + first + cycle.done) * 1_009)
            rate_now = cycle.rate
            shown, regularised = objective.loss(cycle.done)
            seen = objective.rows(cycle.done)
            cycle.step(regularised)
            loss = float(shown.detach())
            if is_search:
                progress.losses.append(loss)
                if is_too_high(progress.losses):
                    cycle.done = steps  # ends the range test early
                loss = next((each for each in reversed(progress.losses) if math.isfinite(each)), loss)
            progress.done = cycle.done
            is_evaluated = stage.part == "classifier" and not is_search and self._is_last(stage.direction)
            epoch_ends = not is_search and cycle.done % (steps // stage.epochs) == 0
            yield Step(
                first + cycle.done,
                sum(self._steps),
                loss,
                evaluate=is_evaluated and epoch_ends,
                settings={"learning_rate": rate_now},
                rows=seen,
                stage=stage.name,
            )
            network.train()  # an evaluation may have changed it
        if is_search:
            network.load_state_dict(self._before)
            suggested = suggest_rate(progress.losses, boldly=stage.part == "language model")
            is_whole = stage.part == "classifier" and stage.learning == len(groups)
            progress.rates[f"{stage.direction} {stage.part}"] = min(suggested, MOST_RATE) if is_whole else suggested

    def _is_last(self, direction: Direction) -> bool:
        """Return whether this direction is the last one: the first of two is evaluated together with the second."""
        return direction == self.plan[-1].direction

    def _resume_stage(self, cycle: Cycle, objective: TrainingObjective, *, device: torch.device) -> None:
        """Resume the stage in which the state was saved."""
        if not self._restored:
            return
        cycle.restore(self._restored["optimizer"], done=self.progress.done)
        states = {name: tensor.to(device) for name, tensor in self._restored["carried"].items()}
        objective.carried = [(states[f"{layer}.h"], states[f"{layer}.c"]) for layer in range(len(states) // 2)]
        self._before = self._restored["before"] or self._before
        self._restored = {}

    def state(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        """Return the state that `restore` needs beside the networks' weights: tensors by kind, and plain values."""
        carried: dict[str, Tensor] = {}
        for layer, (output, cell) in enumerate(self._current.carried if self._current else ()):
            carried |= {f"{layer}.h": output, f"{layer}.c": cell}
        optimizer = self._cycle.state() if self._cycle else {}
        return {"optimizer": optimizer, "carried": carried, "before": self._before}, asdict(self.progress)

    def restore(self, tensors: dict[str, dict[str, Tensor]], values: Mapping[str, Any]) -> None:
        """Resume from a state."""
        self._restored, self.progress = tensors, StageProgress(**values)
