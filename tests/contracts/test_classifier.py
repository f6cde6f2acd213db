"""The contract of a model family, over every family there is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tagline import registry
from tagline import spec as specs
from tagline.data import dataset
from tagline.data.dataset import Dataset, Split
from tagline.models import Classifier, Step
from tagline.spec import Data, Training

pytestmark = pytest.mark.trains

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
TASKS = {
    "single": Data(train=str(SUPPORT / "messages.csv"), text="message", labels="topic"),
    "multi": Data(
        train=str(SUPPORT / "messages-multi.csv"), text="message",
        labels=("billing", "delivery", "technical", "account", "returns", "urgent"),
    ),
    "pair": Data(train=str(SUPPORT / "pairs.csv"), text=("question", "answer"), labels="verdict"),
}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """A family, set up so that it is quick enough to test and still learns the sample data."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    brief: Mapping[str, Any] = field(default_factory=dict)
    """Options to learn less with, where fewer epochs do not."""

    @property
    def briefly(self) -> "Family":
        """The same for what holds however little is learned: an epoch ends and another begins."""
        return replace(self, options={**self.options, **self.brief}, training={**self.training, "epochs": 2})

    @property
    def kind(self) -> Any:
        return registry.find("models", self.name)


SMALL = {
    "encoder": Family(
        "encoder",
        options={"max_tokens": 40, "freeze": "none", "pooling": "mean"},
        training={"epochs": 8, "learning_rate": 5e-3},
    ),
    "encoder with an LSTM": Family(
        "encoder",
        options={"max_tokens": 40, "freeze": "none", "head": "lstm"},
        training={"epochs": 8, "learning_rate": 4e-3},
    ),
    "fewshot": Family(
        "fewshot",
        options={"max_tokens": 40, "freeze": "none", "pooling": "mean", "tuning_steps": 60, "temperature": 0.5},
        training={"learning_rate": 5e-3, "batch_size": 64},
        brief={"tuning_steps": 12},
    ),
    "linear": Family("linear", options={"max_features": 2000}),
    "lstm": Family(
        "lstm",
        options={"max_tokens": 40, "vocabulary_size": 500, "embedding": 32, "hidden": 32},
        training={"epochs": 12, "learning_rate": 1e-2},
    ),
    "ulmfit": Family(
        "ulmfit",
        options={"embedding_size": 48, "hidden_size": 64, "layers": 2, "lm_epochs": 1, "drop_mult": 0.1},
        training={"epochs": 12, "learning_rate": 0.02},
    ),
}


@pytest.fixture(params=sorted({*registry.list_names("models"), *SMALL}), scope="module")
def family(request: pytest.FixtureRequest, checkpoint: Callable[[str], Path]) -> Family:
    small = SMALL.get(request.param, Family(request.param))
    if small.name in ("encoder", "fewshot"):
        return replace(small, options={**small.options, "pretrained": str(checkpoint("bert"))})
    return small


@pytest.fixture(params=list(TASKS), scope="module")
def task(request: pytest.FixtureRequest) -> Data:
    return TASKS[request.param]


@pytest.fixture(scope="module")
def data(task: Data) -> Dataset:
    return dataset.load(task)


@pytest.fixture(scope="module")
def few(task: Data) -> Dataset:
    """A part of the rows, for what holds however few there are: seven batches and more."""
    return dataset.load(task.model_copy(update={"fraction": 0.4}))


@pytest.fixture(scope="module")
def course(family: Family, data: Dataset) -> tuple[Classifier, list[Step]]:
    """A model that has learned to the end, and its steps on the way there."""
    model = new(family, data)
    return model, list(model.fit(data.splits["train"], data.splits["validation"], seed=42))


@pytest.fixture(scope="module")
def model(course: tuple[Classifier, list[Step]]) -> Classifier:
    """A model that has learned to the end."""
    return course[0]


@pytest.fixture(scope="module")
def brief(family: Family, few: Dataset) -> Classifier:
    """A model that has learned briefly."""
    return learned(family.briefly, few)


def new(family: Family, data: Dataset, **training: Any) -> Classifier:
    options = specs.options_of(family.name)(family=family.name, **family.options)
    settings = Training(**{**family.training, **training})
    model: Classifier = family.kind.create(
        options, training=settings, task=data.task, labels=data.labels, pair=data.pair
    )
    return model


def learned(family: Family, data: Dataset, *, seed: int = 42, steps: int = 10_000, **training: Any) -> Classifier:
    model = new(family, data, **training)
    for number, _ in enumerate(model.fit(data.splits["train"], data.splits["validation"], seed=seed), start=1):
        if number == steps:
            break
    return model


def test_steps_count_up_to_their_total_and_end_worth_measuring(course: tuple[Classifier, list[Step]]) -> None:
    steps = course[1]
    numbers = [step.number for step in steps]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == steps[-1].total
    assert steps[-1].evaluate
    assert all(np.isfinite(step.loss) for step in steps)


def test_scores_are_probabilities_and_fit_what_was_learned(model: Classifier, data: Dataset) -> None:
    train = data.splits["train"]
    scores = model.scores(list(train.texts))
    assert scores.shape == (len(train), len(data.labels))
    assert scores.dtype == np.float32
    assert ((scores >= 0) & (scores <= 1)).all()
    if data.task == "single":
        assert np.allclose(scores.sum(axis=1), 1, atol=1e-5)
        assert (scores.argmax(axis=1) == train.targets).mean() > 0.8
    else:
        assert ((scores >= 0.5) == train.targets).mean() > 0.8


def test_a_score_does_not_depend_on_what_else_is_asked(model: Classifier, data: Dataset) -> None:
    texts = list(data.splits["test"].texts)
    together = model.scores(texts)
    alone = np.concatenate([model.scores([text]) for text in texts[:10]])
    assert np.allclose(together[:10], alone, atol=1e-6)
    assert model.scores([]).shape == (0, len(data.labels))


def test_odd_texts_get_scores_too(model: Classifier, data: Dataset) -> None:
    odd = ["", " ", "\0", "ÿ" * 5, "👩‍👩‍👧 ✨", "a" * 50_000, "שלום עולם", "한국어 日本語"]
    texts: list[Any] = [(text, text) for text in odd] if data.pair else odd
    assert np.isfinite(model.scores(texts)).all()


def test_saved_and_loaded_it_scores_the_same_and_no_file_is_a_pickle(
    family: Family, model: Classifier, data: Dataset, tmp_path: Path
) -> None:
    texts = list(data.splits["test"].texts)
    model.save(tmp_path)
    loaded = family.kind.load(tmp_path)
    assert np.array_equal(loaded.scores(texts), model.scores(texts))
    for path in tmp_path.rglob("*"):
        assert path.suffix in (".json", ".safetensors", ".txt", ".model"), path
        assert not path.read_bytes().startswith(b"\x80"), path


def test_saving_what_was_loaded_gives_the_same_files(family: Family, model: Classifier, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    model.save(tmp_path / "first")
    family.kind.load(tmp_path / "first").save(tmp_path / "second")
    assert contents(tmp_path / "first") == contents(tmp_path / "second")


def test_the_same_seed_gives_the_same_weights(family: Family, brief: Classifier, few: Dataset, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    brief.save(tmp_path / "first")
    learned(family.briefly, few).save(tmp_path / "second")
    assert contents(tmp_path / "first") == contents(tmp_path / "second")


@pytest.mark.parametrize("stopped_after", [1, 2, 4])
def test_stopped_and_resumed_it_ends_with_the_same_weights(
    family: Family, brief: Classifier, few: Dataset, tmp_path: Path, stopped_after: int
) -> None:
    for name in ("whole", "stopped", "resumed"):
        (tmp_path / name).mkdir()
    brief.save(tmp_path / "whole")
    learned(family.briefly, few, steps=stopped_after).save(tmp_path / "stopped", resumable=True)
    resumed = family.kind.load(tmp_path / "stopped")
    for _ in resumed.fit(few.splits["train"], few.splits["validation"], seed=42):
        pass
    resumed.save(tmp_path / "resumed")
    assert contents(tmp_path / "whole") == contents(tmp_path / "resumed")


def test_without_validation_rows_it_learns_all_the_same(family: Family, few: Dataset) -> None:
    model = new(family.briefly, few)
    steps = list(model.fit(few.select("train", "validation"), few.select(), seed=42))
    assert steps[-1].evaluate
    assert model.scores(list(few.splits["test"].texts)).shape[0] == len(few.splits["test"])


def test_balanced_class_weights_help_the_rare_label(family: Family, data: Dataset) -> None:
    if "class_weights" not in family.kind.uses:
        pytest.skip(f"{family.name} does not read class_weights")
    train, texts = with_a_rare_label(data), list(data.splits["test"].texts)
    means = {}
    for setting in ("none", "balanced"):
        model = new(family.briefly, data, class_weights=setting)  # a row that is known by heart needs no weight
        for _ in model.fit(train, data.splits["validation"], seed=42):
            pass
        means[setting] = model.scores(texts)[:, 0].mean()
    assert means["balanced"] > means["none"]


def with_a_rare_label(data: Dataset) -> Split:
    """The training rows, of those with the first label only every fifth."""
    rows = data.splits["train"].rows
    has_it = data.targets[rows] == 0 if data.task == "single" else data.targets[rows][:, 0]
    kept = rows[~has_it | (np.cumsum(has_it) % 5 == 0)]
    return Split(data.texts(kept), data.targets[kept], kept)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}
