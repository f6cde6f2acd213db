"""TF-IDF of words and characters with logistic regression: the baseline, trained in seconds, predicting with numpy.

Files, in the order of their imports:

- tfidf.py: TF-IDF features of family `linear`: n-grams of words and of characters. Needs numpy alone.
- regression.py: Logistic regression on sparse features, fitted by L-BFGS. Needs scipy.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator
from safetensors.numpy import load_file, save

from tagline.models import Scores, Step, scores_of
from tagline.models.linear.regression import Floats, RegressionProblem
from tagline.models.linear.tfidf import FeatureRows, Features, FeatureScope, Sparse
from tagline.models.model_files import read_json, translate_errors
from tagline.spec import ModelOptions, Training

if TYPE_CHECKING:
    from torch import nn

    from tagline.data.dataset import Split, Task
    from tagline.data.texts import Text

MOST_STEPS = 8
"""Steps for each strength: 200 iterations, where 30 to 80 are usual."""
STRENGTHS = (1.0, 4.0, 16.0)
PRODUCTS_AT_ONCE = 1 << 22
"""Products of values and weights held in memory before they are summed: 16 MB."""


class LinearOptions(ModelOptions):
    """The options of `[model]` for family `linear`."""

    family: Literal["linear"] = Field("linear", description="TF-IDF and logistic regression")
    words: int = Field(3, ge=0, le=5, description="longest run of words that is a feature; 0: none")
    characters: int = Field(5, ge=0, le=8, description="longest run of characters inside a word; 0: none")
    min_rows: int = Field(2, ge=1, description="training rows a feature must stand in")
    max_features: int = Field(100_000, ge=1, description="the most frequent are kept")
    max_characters: int = Field(20_000, ge=1, description="of a text that are read")
    strength: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        "auto", description="trust in the data against smoothness (C); auto: the best of three on validation"
    )

    @model_validator(mode="after")
    def _check_features(self) -> Self:
        if not self.words and not self.characters:
            raise ValueError("words and characters are both 0: there is nothing to learn from")
        return self

    def feature_scope(self) -> FeatureScope:
        """Return the longest n-grams and the number of characters that are read."""
        return FeatureScope(self.words, self.characters, self.max_characters)


class Linear:
    """The family `linear`."""

    Options: ClassVar = LinearOptions
    uses: ClassVar[frozenset[str]] = frozenset({"class_weights"})
    refits: ClassVar[bool] = True
    uses_device: ClassVar[bool] = False

    def __init__(self, options: LinearOptions, *, task: "Task", labels: int, pair: bool, class_weights: str) -> None:
        self.options = options
        self.task = task
        self.labels = labels
        self.pair = pair
        self.class_weights = class_weights
        self.features: Features | None = None
        self.weights: Floats | None = None
        """One row per feature and one for the bias, one column per label; in a bundle, in float32."""
        self.progress = FitProgress()

    @classmethod
    def create(
        cls, options: LinearOptions, *, training: Training, task: "Task", labels: Sequence[str], pair: bool
    ) -> Self:
        """Create an untrained model."""
        return cls(options, task=task, labels=len(labels), pair=pair, class_weights=training.class_weights)

    def fit(self, train: "Split", validation: "Split", *, seed: int) -> Iterator[Step]:  # noqa: ARG002 - nothing random
        """Learn the features, then the weights for each strength, each starting from those of the one before."""
        if self.features is None:  # else training resumes, with weights for these features
            self.features = Features.learn(
                train.texts,
                self.options.feature_scope(),
                pair=self.pair,
                min_rows=self.options.min_rows,
                max_features=self.options.max_features,
            )
        truth = train.targets if self.task == "multi" else np.eye(self.labels)[train.targets]
        problem = RegressionProblem(
            self.features,
            train.texts,
            truth.astype(np.float64),
            task=self.task,
            balanced=self.class_weights == "balanced",
        )
        if self.weights is None:
            self.weights = problem.start()
        strengths = STRENGTHS if self.options.strength == "auto" and len(validation) else (self._fixed_strength(),)
        total = len(strengths) * MOST_STEPS
        while self.progress.strength < len(strengths):
            strength = strengths[self.progress.strength]
            self.weights, loss, done = problem.improve(self.weights, strength=strength)
            self.progress = self.progress.advance_step(finished=done)
            yield Step(
                self.progress.number, total, loss, evaluate=self.progress.step == 0, settings={"strength": strength}
            )

    def _fixed_strength(self) -> float:
        return 4.0 if self.options.strength == "auto" else self.options.strength

    def scores(self, texts: Sequence["Text"]) -> Scores:
        """Return the score of every label for every text."""
        if self.features is None or self.weights is None:
            raise RuntimeError("scores of a model that has learned nothing")
        weights = self.weights.astype(np.float32, copy=False)
        parts = [self._score_features(features, weights) for features in self.features.transform_parts(texts)]
        return np.concatenate(parts) if parts else np.zeros((0, weights.shape[1]), dtype=np.float32)

    def _score_features(self, features: Sparse, weights: NDArray[np.float32]) -> Scores:
        starts, columns, values = features
        logits = np.tile(weights[-1], (len(starts) - 1, 1))
        filled = np.flatnonzero(np.diff(starts))
        ends, most = starts[filled + 1], PRODUCTS_AT_ONCE // weights.shape[1]
        done = 0
        while done < len(filled):
            first = starts[filled[done]]
            until = max(done + 1, int(np.searchsorted(ends, first + most, side="right")))
            rows, part = filled[done:until], slice(first, ends[until - 1])
            logits[rows] += np.add.reduceat(weights[columns[part]] * values[part, None], starts[rows] - first)
            done = until
        return scores_of(logits, task=self.task)

    def attribute_characters(self, text: "Text", label: int) -> list[Floats]:
        """Return what each character adds to a label's log-odds: its share of the weighted features.

        For task `single`, the weights are those relative to the mean of the other labels.
        """
        if self.features is None or self.weights is None:
            raise RuntimeError("what is added by a model that has learned nothing")
        weights = self.weights[:, label].astype(np.float64)
        if self.task == "single":
            weights = weights - np.delete(self.weights, label, axis=1).mean(axis=1, dtype=np.float64)
        return self.features.share_by_character(text, weights)

    def graph(self) -> "nn.Module":
        """Return the weighted sum of a text's features as a network, to be exported."""
        import torch

        if self.weights is None:
            raise RuntimeError("the graph of a model that has learned nothing")
        weights = torch.from_numpy(self.weights.astype(np.float32))
        empty = torch.zeros(1, weights.shape[1])

        class WeightedSum(torch.nn.Module):
            """The weighted sum of features, given by number; the last number stands for no feature."""

            def __init__(self) -> None:
                super().__init__()
                self.table = torch.nn.Parameter(torch.cat([weights[:-1], empty]))
                self.constant = torch.nn.Parameter(weights[-1])

            def forward(self, features: torch.Tensor, amounts: torch.Tensor) -> Any:
                """Return the logits of a batch."""
                return (self.table[features] * amounts.unsqueeze(-1)).sum(dim=1) + self.constant

        return WeightedSum()

    @classmethod
    def load_preprocessor(cls, directory: Path) -> "FeaturePreprocessor":
        """Load the graph's preprocessor from the files that `save` wrote."""
        return FeaturePreprocessor(cls.load(directory))

    def save(self, directory: Path, *, resumable: bool = False) -> None:
        """Write the weights as safetensors, the vocabulary and the rest as JSON."""
        config: dict[str, Any] = {
            "options": self.options.model_dump(),
            "task": self.task,
            "labels": self.labels,
            "pair": self.pair,
            "class_weights": self.class_weights,
        }
        if resumable:
            config["progress"] = {"strength": self.progress.strength, "step": self.progress.step}
        tensors: dict[str, NDArray[Any]] = {}
        if self.weights is not None and self.features is not None:
            tensors = {
                "weights": self.weights if resumable else self.weights.astype(np.float32),
                "rarity": self.features.rarity,
            }
            _write_json(directory / "vocabulary.json", [[b.name, b.terms] for b in self.features.blocks])
        _write_json(directory / "config.json", config)
        (directory / "model.safetensors").write_bytes(save(tensors))  # save_file hides the cause of a disk error

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Load the files that `save` wrote."""
        with translate_errors(directory / "config.json"):
            config = _Config.model_validate(read_json(directory / "config.json"))
        options = config.options
        model = cls(
            options, task=config.task, labels=config.labels, pair=config.pair, class_weights=config.class_weights
        )
        model.progress = config.progress
        with translate_errors(directory / "model.safetensors"):
            tensors = load_file(directory / "model.safetensors")
            if "weights" in tensors:
                model.weights = tensors["weights"]
                rarity = tensors["rarity"]
                _check_shapes(model.weights, rarity, labels=config.labels)
        if model.weights is not None:
            with translate_errors(directory / "vocabulary.json"):
                vocabulary = _VOCABULARY.validate_python(read_json(directory / "vocabulary.json"))
                model.features = Features(vocabulary, rarity, options.feature_scope())
        return model


def _check_shapes(weights: NDArray[Any], rarity: NDArray[Any], *, labels: int) -> None:
    """Raise ValueError if the arrays do not belong to one model."""
    is_float = all(each.dtype.kind == "f" for each in (weights, rarity))
    if not is_float or rarity.ndim != 1 or weights.shape != (len(rarity) + 1, labels):
        raise ValueError(f"weights {weights.shape} and rarity {rarity.shape} are not those of {labels} labels")


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), "utf-8")


@dataclass(frozen=True)
class FitProgress:
    """The progress of training: strengths done, and steps on the current one."""

    strength: int = 0
    step: int = 0

    @property
    def number(self) -> int:
        """The steps done, of the most that there can be."""
        return self.strength * MOST_STEPS + self.step

    def advance_step(self, *, finished: bool) -> "FitProgress":
        """Return the progress one step further; a strength is finished by its last step at the latest."""
        if finished or self.step + 1 == MOST_STEPS:
            return FitProgress(self.strength + 1, 0)
        return FitProgress(self.strength, self.step + 1)


class _Config(BaseModel):
    """The content of `config.json`."""

    model_config = ConfigDict(extra="forbid")

    options: LinearOptions
    task: Literal["single", "multi"]
    labels: Annotated[int, Field(ge=1)]
    pair: bool
    class_weights: str
    progress: FitProgress = FitProgress()


_VOCABULARY = TypeAdapter(list[tuple[str, list[str]]])
"""The content of `vocabulary.json`: the kinds of features, each with its terms."""


class FeaturePreprocessor:
    """The preprocessor of a `linear` bundle's graph."""

    def __init__(self, model: Linear) -> None:
        self.task, self.labels, self.pair = model.task, model.labels, model.pair
        if model.features is None:
            raise ValueError("a model that has learned nothing reads no texts")
        self._features = model.features

    def read(self, texts: Sequence["Text"]) -> FeatureRows:
        """Compute the features of some texts."""
        starts, columns, values = self._features.transform_texts(texts)
        return FeatureRows(np.asarray(starts), columns, values, none=len(self._features))
