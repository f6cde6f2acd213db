"""The contract of a model family: a classifier that yields steps while it trains, and its predictions.

Files, in the order of their imports:

- model_files.py: Reading the files of a saved model; damaged content is an error that names the file.
- nn/: Shared parts of the torch families: devices, tokens, batches, networks, the training loop.
- linear/: TF-IDF of words and characters with logistic regression: the baseline, trained in seconds, predicting
  with numpy.
- lstm.py: A bidirectional LSTM, trained from scratch, with a vocabulary of the training texts or pretrained word
  vectors.
- encoder.py: A pretrained transformer encoder, fine-tuned: BERT, RoBERTa, DeBERTa, ModernBERT and their kin.
- fewshot/: A pretrained encoder for few examples per label: contrastive fine-tuning, then a linear head on its
  embeddings.
- ulmfit/: ULMFiT: an AWD-LSTM language model is fine-tuned on the texts, then turned into a classifier.
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
"""One row per text and one column per label, each between 0 and 1; for task `single` a row sums to 1."""


def scores_of(logits: Scores, *, task: "Task") -> Scores:
    """Return the scores of logits: the softmax for task `single`, the sigmoid of each label for task `multi`."""
    if task == "multi":
        with np.errstate(over="ignore"):  # a very small logit is a score of 0
            return np.asarray(1 / (1 + np.exp(-logits)), np.float32)
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(exponents / exponents.sum(axis=1, keepdims=True), np.float32)


@dataclass(frozen=True, slots=True)
class Step:
    """One training step. `evaluate` marks a step after which the model is to be evaluated on validation."""

    number: int
    total: int
    loss: float
    evaluate: bool = False
    settings: Mapping[str, float] = field(default_factory=dict)
    """Values that vary from step to step, such as the learning rate; for a family that refits, its own options."""
    rows: int = 0
    """Training rows seen so far, counted again in each epoch; 0 where a step is not made of rows."""
    stage: str = ""
    """The current stage, for a family that is trained in several stages."""
    scores_before_update: tuple[NDArray[np.int64], Scores] | None = field(default=None, compare=False, repr=False)
    """For a family that learns from rows: the rows of this step, as indices into the split, and the scores that the
    model gave them just before the update; with several workers, those of this worker."""

    def insist_on_loss(self) -> None:
        """Raise RunError if the loss is not finite."""
        if not math.isfinite(self.loss):
            raise RunError(f"the loss is {self.loss} at step {self.number}", hint="lower training.learning_rate")


@dataclass(frozen=True, slots=True)
class Prediction:
    """A prediction: for task `single` a label and its score, for task `multi` the labels; all scores either way."""

    scores: Mapping[str, float]
    label: str | None = None
    score: float | None = None
    labels: tuple[str, ...] | None = None
    abstained: bool = False
    set: tuple[str, ...] | None = None
    """The conformal prediction set, if requested: labels that hold the truth with that probability, likeliest first."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form that the command line, prediction files and the server use."""
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
    """A span of a text and how far it moves the prediction towards a label, in log-odds."""

    start: int
    end: int
    weight: float
    side: int = 0
    """The text of a pair: 0 for the first, 1 for the second."""


class Scorer(Protocol):
    """Anything that scores texts."""

    def scores(self, texts: Sequence["Text"]) -> Scores:
        """Return the score of every label for every text."""


class Classifier(Protocol):
    """A model family. It touches no run, terminal or cloud; the caller logs, saves checkpoints and stops early."""

    Options: ClassVar[type["BaseModel"]]
    """The options that `[model]` accepts for this family."""

    uses: ClassVar[frozenset[str]]
    """The keys of `[training]` that this family reads; the user is warned that others have no effect."""

    refits: ClassVar[bool]
    """Whether the best model is refitted on train and validation together, with the best settings."""

    uses_device: ClassVar[bool]
    """Whether it computes on the best device that torch finds, rather than on the CPU."""

    @classmethod
    def create(cls, options: Any, *, training: "Training", task: "Task", labels: Sequence[str], pair: bool) -> Self:
        """Create an untrained model."""

    def fit(self, train: "Split", validation: "Split", *, seed: int) -> Iterator[Step]:
        """Train, yielding every step; a model loaded from a checkpoint resumes where the checkpoint was written."""

    def scores(self, texts: Sequence["Text"]) -> Scores:
        """Return the score of every label for every text."""

    def save(self, directory: Path, *, resumable: bool = False) -> None:
        """Write the files that `load` needs to predict; `resumable` adds what `fit` needs to resume. No pickle."""

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Load the files that `save` wrote, without anything that only training needs."""


@runtime_checkable
class ValidatesTexts(Protocol):
    """A family whose options may name a pretrained model, which suits some texts and not others."""

    @classmethod
    def check_texts(cls, options: Any, texts: Iterable["Text"]) -> Iterator["Finding"]:
        """Yield findings where the options do not suit these texts; `create` raises if a model cannot be read."""


class Inputs(Protocol):
    """Preprocessed texts, of which any subset can be one batch; a text is one sequence or several."""

    @property
    def lengths(self) -> NDArray[np.int32]:
        """The length of each sequence."""

    def arrays(self, numbers: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return the graph's inputs for these sequences, by name, with axes sequence and position."""

    def pooled(self, scores: Scores, *, texts: int) -> Scores:
        """Return the scores of the texts, pooled from the scores of their sequences."""


class Preprocessor(Protocol):
    """Turns texts into a graph's inputs. It needs no torch."""

    task: "Task"
    labels: int
    pair: bool

    def read(self, texts: Sequence["Text"]) -> Inputs:
        """Preprocess some texts, in memory."""


@runtime_checkable
class Exportable(Protocol):
    """A classifier that can be exported as a graph, which runs without the libraries that trained it."""

    def graph(self) -> "nn.Module":
        """Return a network to trace: it takes the preprocessor's arrays by name and returns logits (labels last).

        Logits of several models, whose scores are to be averaged, are stacked along a leading axis.
        """

    @classmethod
    def load_preprocessor(cls, directory: Path) -> Preprocessor:
        """Load the graph's preprocessor from the files that `save` wrote."""


@runtime_checkable
class Explainable(Protocol):
    """A classifier that computes attributions exactly; for others they are estimated by leaving out words."""

    def attribute_characters(self, text: "Text", label: int) -> list[NDArray[np.float64]]:
        """Return what each character that is read adds to a label's log-odds; with the bias, they sum to them.

        The result is one array for the text, or one for each text of a pair.
        """
