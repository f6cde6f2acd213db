"""The few-shot family: its batches, its contrast, its head, and what is in its bundle."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from samples import ARCHITECTURES, DATA, bundle, distance, go_on, weights
from sklearn.linear_model import LogisticRegression

from tagline.data import dataset
from tagline.data.dataset import Dataset
from tagline.errors import SpecError
from tagline.models.fewshot import FewShot, FewShotOptions
from tagline.models.fewshot.contrastive import FewShotExamples, contrastive_loss, fit_head
from tagline.models.nn.loop import Loss
from tagline.models.nn.tokens import Sequences
from tagline.spec import Training

pytestmark = pytest.mark.trains

Checkpoint = Callable[[str], Path]


@pytest.fixture(scope="module")
def single() -> Dataset:
    return dataset.load(DATA["single"])


@pytest.fixture(scope="module")
def bert(checkpoint: Checkpoint) -> Path:
    return checkpoint("bert")


def new(directory: Path, data: Dataset, *, training: dict[str, Any] | None = None, **options: Any) -> FewShot:
    settings = Training(**{"batch_size": 16, "learning_rate": 3e-3, **(training or {})})
    chosen = FewShotOptions(
        **{"pretrained": str(directory), "max_tokens": 32, "pooling": "mean", "tuning_steps": 3, **options}
    )
    return FewShot.create(chosen, training=settings, task=data.task, labels=data.labels, pair=data.pair)


def learned(directory: Path, data: Dataset, *, steps: int = 10_000, **settings: Any) -> FewShot:
    return go_on(new(directory, data, **settings), data, steps=steps)


def shots(targets: Any, *, labels: int, balanced: bool = False) -> FewShotExamples:
    """Rows of some labels, each a sequence of one token."""
    rows = np.asarray(targets)
    task = "multi" if rows.ndim == 2 else "single"
    sequences = Sequences(np.ones(len(rows), np.int64), None, np.arange(len(rows) + 1), np.arange(len(rows), dtype="i"))
    return FewShotExamples(sequences, rows, Loss(rows, task=task, labels=labels, balanced=balanced, smoothing=0.0), 0)


def test_a_batch_holds_several_rows_of_several_labels_and_follows_from_its_number() -> None:
    many = shots(np.repeat(np.arange(20), 30), labels=20)
    drawn = [many.draw_rows(batch_size=32, seed=7, step=step) for step in range(50)]
    for rows in drawn:
        assert len(rows) == len(set(rows)) == 32
        assert sorted(np.unique(many.targets[rows], return_counts=True)[1]) == [4] * 8
    assert np.array_equal(drawn[3], many.draw_rows(batch_size=32, seed=7, step=3))
    assert not np.array_equal(drawn[3], many.draw_rows(batch_size=32, seed=8, step=3))
    assert set(np.concatenate(drawn)) > set(range(0, 600, 100))


def test_with_few_labels_the_whole_batch_is_theirs() -> None:
    two = shots([0, 1] * 40, labels=3)
    rows = two.draw_rows(batch_size=32, seed=0, step=0)
    assert np.bincount(two.targets[rows]).tolist() == [16, 16]


def test_a_label_of_one_row_and_rows_without_a_label_are_drawn_too() -> None:
    truth = np.array([[1, 0], [1, 0], [1, 1], [0, 0]], bool)
    rows = [shots(truth, labels=2).draw_rows(batch_size=32, seed=0, step=step) for step in range(5)]
    assert all(sorted(some) == [0, 1, 2, 3] for some in rows)


def test_the_contrast_falls_when_texts_of_a_label_come_together() -> None:
    truth = torch.eye(2)[[0, 0, 1, 1]]
    apart = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.1, 1.0]]), dim=1)
    together = apart[[0, 2, 1, 3]]
    assert contrastive_loss(together, truth, temperature=0.1) < 0.1 < contrastive_loss(apart, truth, temperature=0.1)


def test_the_contrast_is_that_of_the_paper() -> None:
    random = torch.Generator().manual_seed(0)
    embeddings = torch.nn.functional.normalize(torch.randn(6, 4, generator=random), dim=1)
    truth = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 0]], dtype=torch.float32)
    losses = []
    for i in range(6):
        others = [j for j in range(6) if j != i]
        partners = [j for j in others if truth[i] @ truth[j] > 0]
        below = sum(torch.exp(embeddings[i] @ embeddings[j] / 0.3) for j in others)
        if partners:
            each = [-torch.log(torch.exp(embeddings[i] @ embeddings[j] / 0.3) / below) for j in partners]
            losses.append(sum(each) / len(partners))
    assert contrastive_loss(embeddings, truth, temperature=0.3) == pytest.approx(
        float(sum(losses) / len(losses)), rel=1e-5
    )


def test_without_anything_to_bring_together_the_contrast_is_0_and_pulls_nowhere() -> None:
    embeddings = torch.eye(3, requires_grad=True)
    loss = contrastive_loss(embeddings, torch.eye(3), temperature=0.1)
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == 0
    assert embeddings.grad is not None
    assert not embeddings.grad.any()


@pytest.mark.parametrize("balanced", [False, True])
def test_the_head_is_logistic_regression(balanced: bool) -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(90, 5)).astype(np.float32)
    targets = (rows[:, 0] > 0.5).astype(int) + (rows[:, 1] + random.normal(size=90) > 0)
    found, constants, _ = fit_head(torch.from_numpy(rows), shots(targets, labels=3, balanced=balanced), strength=2.0)
    theirs = LogisticRegression(C=2.0, class_weight="balanced" if balanced else None, tol=1e-8, max_iter=1000)
    theirs.fit(rows, targets)
    assert np.allclose(found.numpy(), theirs.coef_, atol=1e-3)
    assert np.allclose((constants - constants.mean()).numpy(), theirs.intercept_ - theirs.intercept_.mean(), atol=1e-3)


def test_of_several_labels_each_has_a_regression_of_its_own() -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(90, 5)).astype(np.float32)
    targets = np.stack([rows[:, 0] > 0.2, rows[:, 1] + random.normal(size=90) > 0], axis=1)
    found, constants, _ = fit_head(torch.from_numpy(rows), shots(targets, labels=2), strength=2.0)
    for label in (0, 1):
        theirs = LogisticRegression(C=2.0, tol=1e-8, max_iter=1000).fit(rows, targets[:, label])
        assert np.allclose(found[label].numpy(), theirs.coef_[0], atol=1e-3)
        assert float(constants[label]) == pytest.approx(theirs.intercept_[0], abs=1e-3)


@pytest.mark.parametrize("task", list(DATA))
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_learns_and_is_saved_and_loaded_again(
    checkpoint: Checkpoint, tmp_path: Path, architecture: str, task: str
) -> None:
    data = dataset.load(DATA[task])
    texts = list(data.splits["test"].texts)
    model = learned(checkpoint(architecture), data)
    scores = model.scores(texts)
    model.save(tmp_path)
    assert np.array_equal(FewShot.load(tmp_path).scores(texts), scores)


def test_the_bundle_holds_what_predicting_needs_and_no_more(bert: Path, single: Dataset, tmp_path: Path) -> None:
    model = learned(bert, single, steps=1)
    names = {path.name for path in bundle(model, tmp_path / "bundle").iterdir()}
    assert names == {"model.safetensors", "config.json", "tokenizer.json", "fewshot.json"}
    names = {path.name for path in bundle(model, tmp_path / "checkpoint", resumable=True).iterdir()}
    assert "optimizer.safetensors" in names
    assert str(bert.parent) not in json.dumps(json.loads((tmp_path / "bundle" / "config.json").read_text()))


def test_embeddings_have_length_1_and_the_head_sees_nothing_else(bert: Path, single: Dataset) -> None:
    model = learned(bert, single)
    [(ids, _)] = next(iter(model.learner.preprocessor.reader.read(["where is my refund"])))
    inputs = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
    with torch.inference_mode():
        embedding = model.embedder(**inputs)
        logits = embedding @ model.network.head[1].weight.T + model.network.head[1].bias
    assert float(embedding.norm()) == pytest.approx(1)
    assert np.allclose(torch.softmax(logits, dim=1).numpy(), model.scores(["where is my refund"]), atol=1e-5)


def test_without_tuning_the_encoder_stays_to_the_byte(bert: Path, single: Dataset, tmp_path: Path) -> None:
    before = load_file(bert / "model.safetensors")
    model = new(bert, single, tuning_steps=0)
    [step] = model.fit(single.splits["train"], single.splits["validation"], seed=42)
    assert (step.number, step.total, step.evaluate) == (1, 1, True)
    for name, tensor in weights(model, tmp_path / "frozen").items():
        assert name.startswith("head.") or torch.equal(before[name], tensor), name


@pytest.mark.parametrize(("freeze", "learns"), [("none", {0, 1, 2}), ("embeddings", {1, 2}), (1, {2})])
def test_what_is_frozen_stays_and_all_else_is_tuned(
    bert: Path, single: Dataset, tmp_path: Path, freeze: Any, learns: set[int]
) -> None:
    before = load_file(bert / "model.safetensors")
    for name, tensor in weights(learned(bert, single, freeze=freeze), tmp_path / "tuned").items():
        if not name.startswith("head."):
            depth = 0 if name.startswith("embeddings.") else 1 + int(name.split(".")[2])
            assert torch.equal(before[name], tensor) == (depth not in learns), name


@pytest.mark.parametrize("stopped_after", [1, 3, 4])
def test_stopped_after_any_step_it_goes_on_to_the_same_bits(
    bert: Path, single: Dataset, tmp_path: Path, stopped_after: int
) -> None:
    whole = weights(learned(bert, single), tmp_path / "whole")
    stopped = learned(bert, single, steps=stopped_after)
    resumed = FewShot.load(bundle(stopped, tmp_path / "stopped", resumable=True))
    assert distance(weights(go_on(resumed, single), tmp_path / "resumed"), whole) == 0


def test_measured_or_saved_between_two_steps_it_ends_the_same(bert: Path, single: Dataset, tmp_path: Path) -> None:
    whole = weights(learned(bert, single), tmp_path / "whole")
    model = new(bert, single)
    for step in model.fit(single.splits["train"], single.splits["validation"], seed=42):
        assert np.isfinite(model.scores(["measured in between"])).all()
        bundle(model, tmp_path / f"checkpoint-{step.number}", resumable=True)
        bundle(model, tmp_path / f"bundle-{step.number}")
    assert distance(weights(model, tmp_path / "saved"), whole) == 0


def test_a_checkpoint_between_two_steps_predicts_too(bert: Path, single: Dataset, tmp_path: Path) -> None:
    """It is all there is where time was over, and without validation rows nobody has asked for a head."""
    stopped = learned(bert, single, steps=2)
    loaded = FewShot.load(bundle(stopped, tmp_path / "checkpoint", resumable=True))
    bundle(loaded, tmp_path / "bundle")
    assert np.array_equal(loaded.scores(["where is my parcel"]), stopped.scores(["where is my parcel"]))


def test_where_every_layer_is_frozen_there_is_nothing_to_tune(bert: Path, single: Dataset) -> None:
    with pytest.raises(SpecError, match=r"model\.freeze: the encoder has 2 layers") as error:
        new(bert, single, freeze=2)
    assert "model.tuning_steps=0" in error.value.hint
    assert learned(bert, single, freeze=2, tuning_steps=0).has_head


def test_a_head_that_was_never_fitted_gives_no_scores(bert: Path, single: Dataset) -> None:
    with pytest.raises(RuntimeError, match="head"):
        new(bert, single).scores(["hello"])


def test_a_pair_is_read_as_one_sequence_and_its_sides_are_told_apart(bert: Path) -> None:
    model = learned(bert, dataset.load(DATA["pair"]))
    one, other = model.scores([("refund", "parcel"), ("parcel", "refund")])
    assert not np.allclose(one, other, atol=1e-6)


def test_a_label_that_no_row_has_gets_the_lowest_score(bert: Path, single: Dataset) -> None:
    chosen = FewShotOptions(pretrained=str(bert), max_tokens=32, pooling="mean", tuning_steps=1)
    labels = (*single.labels, "never seen")
    model = FewShot.create(chosen, training=Training(), task="single", labels=labels, pair=False)
    scores = go_on(model, single).scores(list(single.splits["test"].texts))
    assert (scores.argmin(axis=1) == len(single.labels)).all()


def test_more_tokens_than_the_encoder_reads_are_refused(bert: Path, single: Dataset) -> None:
    with pytest.raises(SpecError, match=r"model\.max_tokens: .* reads 64 tokens at most"):
        new(bert, single, max_tokens=65)


def test_how_many_tokens_are_computed_at_once_changes_nothing(bert: Path, single: Dataset) -> None:
    texts = list(single.splits["test"].texts)
    large, small = (learned(bert, single, max_batch_tokens=most).scores(texts) for most in (8192, 40))
    assert np.allclose(large, small, atol=1e-4)


def test_left_to_itself_it_is_measured_with_and_without_tuning(bert: Path, single: Dataset) -> None:
    splits = single.splits
    steps = list(new(bert, single, tuning_steps="auto").fit(splits["train"], splits["validation"], seed=42))
    assert [dict(step.settings) for step in steps if step.evaluate] == [{"tuning_steps": 0}, {"tuning_steps": 24}]
    assert [step.number for step in steps] == list(range(1, 27))
    without = list(new(bert, single, tuning_steps="auto").fit(splits["train"], single.select(), seed=42))
    assert len(without) == 25  # there is nothing to measure it on


@pytest.mark.parametrize("stopped_after", [1, 5, 26])
def test_left_to_itself_it_goes_on_to_the_same_bits(
    bert: Path, single: Dataset, tmp_path: Path, stopped_after: int
) -> None:
    whole = weights(learned(bert, single, tuning_steps="auto"), tmp_path / "whole")
    stopped = learned(bert, single, steps=stopped_after, tuning_steps="auto")
    resumed = go_on(FewShot.load(bundle(stopped, tmp_path / "stopped", resumable=True)), single)
    assert distance(weights(resumed, tmp_path / "resumed"), whole) == 0
