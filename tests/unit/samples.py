"""Small data of every task and the steps that tests of the families share: learn for a while, save, compare."""

from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors.torch import load_file

from tagline.data.dataset import Dataset
from tagline.models import Classifier
from tagline.spec import Data

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
ARCHITECTURES = ["bert", "roberta", "deberta-v2", "modernbert", "distilbert", "mpnet"]
DATA = {
    "single": Data(train=str(SUPPORT / "messages.csv"), text="message", labels="topic", fraction=0.15),
    "multi": Data(
        train=str(SUPPORT / "messages-multi.csv"), text="message", labels=("billing", "delivery"), fraction=0.3
    ),
    "pair": Data(train=str(SUPPORT / "pairs.csv"), text=("question", "answer"), labels="verdict", fraction=0.5),
}  # fmt: skip
LONG = "my refund has not arrived and the parcel is lost " * 30
Model = TypeVar("Model", bound=Classifier)


def go_on(model: Model, data: Dataset, *, steps: int = 10_000) -> Model:
    """Learn up to a step, or to the end."""
    for step in model.fit(data.splits["train"], data.splits["validation"], seed=42):
        assert np.isfinite(step.loss)
        if step.number >= steps:
            break
    return model


def bundle(model: Classifier, directory: Path, *, resumable: bool = False) -> Path:
    """Where a model was saved."""
    directory.mkdir()
    model.save(directory, resumable=resumable)
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    """Every file of a directory."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def weights(model: Classifier, directory: Path) -> dict[str, Any]:
    """What a model saves as its weights."""
    return load_file(bundle(model, directory) / "model.safetensors")


def distance(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> float:
    """The largest difference between two sets of weights."""
    assert first.keys() == second.keys()
    return max(float((first[name] - second[name]).abs().max()) for name in first)
