"""The contract of a model family, over every family there is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tagline import dataset, registry
from tagline import spec as specs
from tagline.dataset import Dataset
from tagline.models import Classifier
from tagline.spec import Data, Training

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
TASKS = {
    "single": Data(train=str(SUPPORT / "messages.csv"), text="message", labels="topic"),
    "multi": Data(
        train=str(SUPPORT / "messages-multi.csv"), text="message",
        labels=("billing", "delivery", "technical", "account", "returns", "urgent"),
    ),
    "pair": Data(train=str(SUPPORT / "pairs.csv"), text=("question", "answer"), labels="verdict"),
}  # fmt: skip
SMALL: dict[str, dict[str, Any]] = {"linear": {"max_features": 2000}}
"""Options that make a family quick enough to test."""


@pytest.fixture(params=registry.names("models"))
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=list(TASKS), scope="module")
def data(request: pytest.FixtureRequest) -> Dataset:
    return dataset.load(TASKS[request.param])


def new(family: str, data: Dataset, **training: Any) -> Classifier:
    options = specs.options_of(family)(family=family, **SMALL.get(family, {}))
    model: Classifier = registry.find("models", family).create(
        options, training=Training(**training), task=data.task, labels=data.labels, pair=data.pair
    )
    return model


def learned(family: str, data: Dataset, *, seed: int = 42, steps: int = 10_000, **training: Any) -> Classifier:
    model = new(family, data, **training)
    for number, _ in enumerate(model.fit(data.splits["train"], data.splits["validation"], seed=seed), start=1):
        if number == steps:
            break
    return model


def test_steps_count_up_to_their_total_and_end_worth_measuring(family: str, data: Dataset) -> None:
    steps = list(new(family, data).fit(data.splits["train"], data.splits["validation"], seed=42))
    numbers = [step.number for step in steps]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == steps[-1].total
    assert steps[-1].evaluate
    assert all(np.isfinite(step.loss) for step in steps)


def test_scores_are_probabilities_and_fit_what_was_learned(family: str, data: Dataset) -> None:
    model, train = learned(family, data), data.splits["train"]
    scores = model.scores(list(train.texts))
    assert scores.shape == (len(train), len(data.labels))
    assert scores.dtype == np.float32
    assert ((scores >= 0) & (scores <= 1)).all()
    if data.task == "single":
        assert np.allclose(scores.sum(axis=1), 1, atol=1e-5)
        assert (scores.argmax(axis=1) == train.targets).mean() > 0.8
    else:
        assert ((scores >= 0.5) == train.targets).mean() > 0.8


def test_a_score_does_not_depend_on_what_else_is_asked(family: str, data: Dataset) -> None:
    model, texts = learned(family, data), list(data.splits["test"].texts)
    together = model.scores(texts)
    alone = np.concatenate([model.scores([text]) for text in texts[:10]])
    assert np.allclose(together[:10], alone, atol=1e-6)
    assert model.scores([]).shape == (0, len(data.labels))


def test_odd_texts_get_scores_too(family: str, data: Dataset) -> None:
    odd = ["", " ", "\0", "ÿ" * 5, "👩‍👩‍👧 ✨", "a" * 50_000, "שלום עולם", "한국어 日本語"]
    texts: list[Any] = [(text, text) for text in odd] if data.pair else odd
    assert np.isfinite(learned(family, data).scores(texts)).all()


def test_saved_and_loaded_it_scores_the_same_and_no_file_is_a_pickle(
    family: str, data: Dataset, tmp_path: Path
) -> None:  # fmt: skip
    model, texts = learned(family, data), list(data.splits["test"].texts)
    model.save(tmp_path)
    loaded = registry.find("models", family).load(tmp_path)
    assert np.array_equal(loaded.scores(texts), model.scores(texts))
    for path in tmp_path.rglob("*"):
        assert path.suffix in (".json", ".safetensors", ".txt", ".model"), path
        assert not path.read_bytes().startswith(b"\x80"), path


def test_saving_what_was_loaded_gives_the_same_files(family: str, data: Dataset, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    learned(family, data).save(tmp_path / "first")
    registry.find("models", family).load(tmp_path / "first").save(tmp_path / "second")
    assert contents(tmp_path / "first") == contents(tmp_path / "second")


def test_the_same_seed_gives_the_same_weights(family: str, data: Dataset, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        learned(family, data).save(tmp_path / name)
    assert contents(tmp_path / "first") == contents(tmp_path / "second")


@pytest.mark.parametrize("stopped_after", [1, 2, 4])
def test_stopped_and_resumed_it_ends_with_the_same_weights(
    family: str, data: Dataset, tmp_path: Path, stopped_after: int
) -> None:
    for name in ("whole", "stopped", "resumed"):
        (tmp_path / name).mkdir()
    learned(family, data).save(tmp_path / "whole")
    learned(family, data, steps=stopped_after).save(tmp_path / "stopped", resumable=True)
    resumed = registry.find("models", family).load(tmp_path / "stopped")
    for _ in resumed.fit(data.splits["train"], data.splits["validation"], seed=42):
        pass
    resumed.save(tmp_path / "resumed")
    assert contents(tmp_path / "whole") == contents(tmp_path / "resumed")


def test_without_validation_rows_it_learns_all_the_same(family: str, data: Dataset) -> None:
    model = new(family, data)
    steps = list(model.fit(data.select("train", "validation"), data.select(), seed=42))
    assert steps[-1].evaluate
    assert model.scores(list(data.splits["test"].texts)).shape[0] == len(data.splits["test"])


def test_balanced_class_weights_help_the_rare_label(family: str, data: Dataset) -> None:
    if "class_weights" not in registry.find("models", family).uses:
        pytest.skip(f"{family} does not read class_weights")
    rare = int(np.argmin(np.bincount(data.targets) if data.task == "single" else data.targets.sum(axis=0)))
    texts = list(data.splits["test"].texts)
    plain = learned(family, data).scores(texts)[:, rare].mean()
    assert learned(family, data, class_weights="balanced").scores(texts)[:, rare].mean() > plain


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}
