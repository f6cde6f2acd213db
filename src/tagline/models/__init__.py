"""The contract of a model family: a classifier that yields steps while it learns, and its predictions.

Files, in the order of their imports:

- model_files.py: The files of a saved model, read so that whatever they hold is an error that names the file.
- nn/: What the torch families share: devices, tokens, batches, networks, the training loop.
- linear/: TF-IDF of words and characters with logistic regression: the baseline, trained in seconds, predicting
  with numpy.
- lstm.py: An LSTM that reads both ways, learned from scratch: its vocabulary from the training texts, or vectors of
  others.
- encoder.py: A pretrained transformer encoder, fine-tuned: BERT, RoBERTa, DeBERTa, ModernBERT and their kin.
- fewshot/: A pretrained encoder for few examples a label: tuned by contrast, then a linear head on its sentence
  embeddings.
- ulmfit/: ULMFiT: a language model of AWD-LSTM layers is fine-tuned on the texts, and becomes a classifier.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tagline.errors import RunError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from torch import nn

    from tagline.data.checks import Finding
    from tagline.data.dataset import Split, Task
    from tagline.data.texts import Text
    from tagline.spec import Training

Scores = NDArray[np.float32]
"""A row a text, a column a label, each between 0 and 1; for task `single` a row adds up to 1."""


def scores_of(logits: Scores, *, task: "Task") -> Scores:
    """What a model computes as numbers between 0 and 1: each label by itself, or for task `single` all together."""
    if task == "multi":
        with np.errstate(over="ignore"):  # a very small logit is a score of 0
            return np.asarray(1 / (1 + np.exp(-logits)), np.float32)
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(exponents / exponents.sum(axis=1, keepdims=True), np.float32)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of learning. `evaluate` says that the model as it is now is worth measuring."""

    number: int
    total: int
    loss: float
    evaluate: bool = False
    settings: Mapping[str, float] = field(default_factory=dict)
    """What varies from step to step, such as the learning rate; of a family that refits, options of its own."""
    rows: int = 0
    """Training rows seen so far, each epoch anew; 0 where a step is not made of rows."""
    stage: str = ""
    """What is learned now, of a family that learns several things one after the other."""
    scores_before_update: tuple[NDArray[np.int64], Scores] | None = field(default=None, compare=False, repr=False)
    """Of a family that learns from rows: those of this step, by their place in the split, and the scores that the model
    gave them just before it learned from them; with several workers, this one's."""

    def insist_on_loss(self) -> None:
        """Refuse to go on from a loss that is no number."""
        if not math.isfinite(self.loss):
            raise RunError(f"the loss is {self.loss} at step {self.number}", hint="lower training.learning_rate")


@dataclass(frozen=True, slots=True)
class Prediction:
    """An answer: for task `single` a label and its score, for task `multi` the labels; all scores either way."""

    scores: Mapping[str, float]
    label: str | None = None
    score: float | None = None
    labels: tuple[str, ...] | None = None
    abstained: bool = False
    set: tuple[str, ...] | None = None
    """Where asked for: the labels that together hold the truth with the stated probability, the likeliest first."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it, on the command line, in files and on the wire."""
        answer: dict[str, Any] = (
            {"labels": list(self.labels)}
            if self.labels is not None
            else {
                "label": self.label,
                "score": self.score,
            }
        )
        answer["scores"] = dict(self.scores)
        answer |= {"abstained": True} if self.abstained else {}
        return answer | ({"set": list(self.set)} if self.set is not None else {})


@dataclass(frozen=True, slots=True)
class Attribution:
    """A piece of a text and how far it moves the answer towards a label, in log-odds."""

    start: int
    end: int
    weight: float
    side: int = 0
    """Of a pair: which text."""


class Scorer(Protocol):
    """What can score texts, in whatever form."""

    def scores(self, texts: Sequence["Text"]) -> Scores:
        """The score of every label for every text."""


class Classifier(Protocol):
    """A family. It touches no run, screen or cloud while it learns; its caller logs, keeps and stops."""

    Options: ClassVar[type["BaseModel"]]
    """What `[model]` may hold for this family."""

    uses: ClassVar[frozenset[str]]
    """The keys of `[training]` that this family reads; others have no effect on it, and the user is told so."""

    refits: ClassVar[bool]
    """Whether the best model is learned once more, from train and validation together, with the settings that won."""

    uses_device: ClassVar[bool]
    """Whether it computes on the best device that torch finds; else on the CPU."""

    @classmethod
    def create(cls, options: Any, *, training: "Training", task: "Task", labels: Sequence[str], pair: bool) -> Self:
        """A model that has learned nothing yet."""

    def fit(self, train: "Split", validation: "Split", *, seed: int) -> Iterator[Step]:
        """Learn, step by step; a model loaded from a checkpoint goes on where that was written."""

    def scores(self, texts: Sequence["Text"]) -> Scores:
        """The score of every label for every text."""

    def save(self, directory: Path, *, resumable: bool = False) -> None:
        """Write what `load` needs to predict; `resumable` adds what `fit` needs to go on. No pickle."""

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read what `save` wrote, without anything that only learning needs."""


@runtime_checkable
class ValidatesTexts(Protocol):
    """A family whose options may name what others have made, which suits some texts and not others."""

    @classmethod
    def doubts(cls, options: Any, texts: Iterable["Text"]) -> Iterator["Finding"]:
        """What is doubtful about these options for such texts; what cannot be read at all is refused by `create`."""


class Inputs(Protocol):
    """Texts as numbers, of which any part can be computed at once; a text is one sequence, or several."""

    @property
    def lengths(self) -> NDArray[np.int32]:
        """How long each sequence is."""

    def arrays(self, numbers: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """What a graph takes for these sequences, by name; the first axis is the sequences, the second their length."""

    def pooled(self, scores: Scores, *, texts: int) -> Scores:
        """The scores of the texts that the sequences are from."""


class Preprocessor(Protocol):
    """What makes a graph's inputs of texts. It needs no torch."""

    task: "Task"
    labels: int
    pair: bool

    def read(self, texts: Sequence["Text"]) -> Inputs:
        """Some texts, in memory."""


@runtime_checkable
class Exportable(Protocol):
    """A classifier that can be written down as a graph, and computed without what it was learned with."""

    def graph(self) -> "nn.Module":
        """A network to be traced: it takes the intake's arrays by name, and returns logits (labels last).

        Where there are several answers to be averaged, they stand along an axis before the others.
        """

    @classmethod
    def intake(cls, directory: Path) -> Preprocessor:
        """What reads texts for the graph, from the files that `save` wrote."""


@runtime_checkable
class Explainable(Protocol):
    """A classifier that knows what a text's characters add to an answer; of others it is tried out (`words`)."""

    def added(self, text: "Text", label: int) -> list[NDArray[np.float64]]:
        """What each character that is read adds to the log-odds of a label; with its constant they are all of it.

        An array for the text, or one for each text of a pair.
        """
