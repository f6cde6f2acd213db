"""The encoder family: each of its options, every architecture, and what is in its bundle."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from samples import ARCHITECTURES, DATA, LONG, bundle, distance, go_on, weights

from tagline.data import dataset
from tagline.data.dataset import Dataset
from tagline.errors import PlaceError, SpecError
from tagline.models.encoder import Encoder, EncoderOptions, auto_rate
from tagline.models.nn import networks, pretrained
from tagline.spec import Training

pytestmark = pytest.mark.trains

Checkpoint = Callable[[str], Path]


@pytest.fixture(scope="module")
def single() -> Dataset:
    return dataset.load(DATA["single"])


@pytest.fixture(scope="module")
def bert(checkpoint: Checkpoint) -> Path:
    return checkpoint("bert")


def new(directory: Path, data: Dataset, *, training: dict[str, Any] | None = None, **options: Any) -> Encoder:
    settings = Training(
        **{"epochs": 2, "batch_size": 16, "learning_rate": 3e-3, "precision": "float32", **(training or {})}
    )
    chosen = EncoderOptions(**{"pretrained": str(directory), "max_tokens": 32, "freeze": "none", **options})
    return Encoder.create(chosen, training=settings, task=data.task, labels=data.labels, pair=data.pair)


def learned(directory: Path, data: Dataset, *, steps: int = 10_000, **settings: Any) -> Encoder:
    return go_on(new(directory, data, **settings), data, steps=steps)


@pytest.mark.parametrize("task", list(DATA))
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_learns_and_is_saved_and_loaded_again(
    checkpoint: Checkpoint, tmp_path: Path, architecture: str, task: str
) -> None:
    data = dataset.load(DATA[task])
    texts = list(data.splits["test"].texts)
    model = new(checkpoint(architecture), data)
    before = model.scores(texts)
    go_on(model, data)
    after = model.scores(texts)
    assert not np.allclose(before, after, atol=1e-3)
    model.save(tmp_path)
    assert np.array_equal(Encoder.load(tmp_path).scores(texts), after)


@pytest.mark.parametrize("head", ["linear", "lstm"])
def test_where_labels_are_rare_it_begins_with_how_rare_they_are(bert: Path, head: str) -> None:
    data = dataset.load(DATA["multi"])
    train = data.splits["train"]
    model = new(bert, data, head=head)
    first = next(model.fit(train, data.splits["validation"], seed=1))
    assert first.scores_before_update is not None
    assert np.abs(first.scores_before_update[1].mean(axis=0) - train.targets.mean(axis=0)).max() < 0.1


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_scores_do_not_depend_on_padding(checkpoint: Checkpoint, single: Dataset, architecture: str) -> None:
    model = new(checkpoint(architecture), single)
    short = "hello"
    assert np.allclose(model.scores([short, LONG])[0], model.scores([short])[0], atol=1e-6)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_transformers_reads_the_encoder_of_a_bundle(
    checkpoint: Checkpoint, single: Dataset, tmp_path: Path, architecture: str
) -> None:
    from transformers import AutoModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    model = learned(checkpoint(architecture), single, steps=2)
    model.save(tmp_path)
    theirs, info = AutoModel.from_pretrained(
        tmp_path, config=pretrained.read_config(tmp_path), output_loading_info=True
    )
    assert [key for key in info["missing_keys"] if not key.startswith("pooler.")] == []
    assert sorted(info["unexpected_keys"]) == ["head.bias", "head.weight"]
    ids = torch.tensor([model.learner.tokenizer.encode("where is my refund").ids])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    ours = Encoder.load(tmp_path).network.eval()
    with torch.inference_mode():
        assert torch.equal(theirs.eval()(**inputs).last_hidden_state, ours.encoder(**inputs).last_hidden_state)


def test_the_bundle_holds_what_predicting_needs_and_no_more(bert: Path, single: Dataset, tmp_path: Path) -> None:
    model = learned(bert, single, steps=1)
    names = {path.name for path in bundle(model, tmp_path / "bundle").iterdir()}
    assert names == {"model.safetensors", "config.json", "tokenizer.json", "encoder.json"}
    names = {path.name for path in bundle(model, tmp_path / "checkpoint", resumable=True).iterdir()}
    assert "optimizer.safetensors" in names
    assert str(bert.parent) not in json.dumps(json.loads((tmp_path / "bundle" / "config.json").read_text()))


def test_a_bundle_needs_the_pretrained_directory_no_more(bert: Path, single: Dataset, tmp_path: Path) -> None:
    copy = tmp_path / "pretrained"
    shutil.copytree(bert, copy)
    model = learned(copy, single, steps=1)
    model.save(bundle(model, tmp_path / "checkpoint", resumable=True))
    bundle(model, tmp_path / "bundle")
    shutil.rmtree(copy)
    assert np.array_equal(Encoder.load(tmp_path / "bundle").scores(["hello"]), model.scores(["hello"]))
    go_on(Encoder.load(tmp_path / "checkpoint"), single)


@pytest.mark.parametrize("task", list(DATA))
def test_how_many_tokens_are_computed_at_once_changes_nothing(bert: Path, tmp_path: Path, task: str) -> None:
    data = dataset.load(DATA[task])
    training = {"class_weights": "balanced", "label_smoothing": 0.1}
    large = learned(bert, data, training=training)
    small = learned(bert, data, training=training, max_batch_tokens=40)
    assert distance(weights(large, tmp_path / "large"), weights(small, tmp_path / "small")) < 1e-4
    texts = list(data.splits["test"].texts)
    assert np.allclose(large.scores(texts), small.scores(texts), atol=1e-4)


def test_gradient_checkpointing_changes_nothing(bert: Path, single: Dataset, tmp_path: Path) -> None:
    plain, sparing = (
        weights(learned(bert, single, dropout=0.1, gradient_checkpointing=on), tmp_path / str(on))
        for on in (False, True)
    )
    assert distance(plain, sparing) < 1e-5


@pytest.mark.parametrize("architecture", ["mpnet", "albert"])
def test_an_encoder_without_gradient_checkpointing_is_refused_before_it_learns(
    checkpoint: Checkpoint, single: Dataset, architecture: str
) -> None:
    with pytest.raises(SpecError, match=r"model\.gradient_checkpointing: \w+Model does not support it") as error:
        new(checkpoint(architecture), single, gradient_checkpointing=True)
    assert "model.max_batch_tokens" in (error.value.hint or "")


def test_where_nothing_can_be_compiled_that_is_said(
    bert: Path, single: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most slim images have no C++ compiler."""

    def fails(*_: Any) -> Any:
        raise RuntimeError("No working C++ compiler found\nSet TORCHDYNAMO_VERBOSE=1 for more")

    compiles = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **options: compiles(self, backend=fails, **options))
    with pytest.raises(PlaceError, match=r"model\.compile: .*No working C\+\+ compiler found$") as error:
        learned(bert, single, compile=True, steps=1)
    assert "leave out model.compile" in (error.value.hint or "")


def depth(name: str) -> int:
    """Of a weight of the small BERT: 0 the embeddings, 1 and 2 the layers, 3 the head."""
    if name.startswith("embeddings."):
        return 0
    return 3 if name.startswith("head.") else 1 + int(name.split(".")[2])


@pytest.mark.parametrize(("freeze", "last"), [("none", -1), ("embeddings", 0), (1, 1), (2, 2)])
def test_what_is_frozen_stays_to_the_byte_and_all_else_learns(
    bert: Path, single: Dataset, tmp_path: Path, freeze: Any, last: int
) -> None:
    before = new(bert, single).network.state_dict()
    for name, tensor in weights(learned(bert, single, freeze=freeze), tmp_path / "after").items():
        was = before[name if name.startswith("head.") else f"encoder.{name}"]
        assert torch.equal(was, tensor) == (depth(name) <= last), name


@pytest.mark.parametrize(
    ("task", "options", "frozen"),
    [("single", {}, 2), ("multi", {}, 2), ("pair", {}, 0), ("single", {"lora": 4}, 0), ("single", {"freeze": 5}, 5)],
)
def test_unless_told_otherwise_the_first_third_is_frozen(
    bert: Path, task: str, options: dict[str, Any], frozen: int
) -> None:
    model = new(bert, dataset.load(DATA[task]), **{"freeze": "auto", **options})
    _, layers = networks._find_layers(model.network.encoder)
    layers.extend([*layers, *layers])
    assert model._last_frozen_layer() == frozen


def test_an_encoder_that_goes_many_times_through_one_layer_learns_it(checkpoint: Checkpoint, single: Dataset) -> None:
    model = learned(checkpoint("albert"), single, steps=1, freeze="auto")
    learns = {name for name, parameter in model.network.named_parameters() if parameter.requires_grad}
    assert any("albert_layer_groups.0" in name for name in learns)
    assert not any("embeddings" in name for name in learns)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_frozen_embeddings_are_those_of_every_architecture(
    checkpoint: Checkpoint, single: Dataset, architecture: str
) -> None:
    model = learned(checkpoint(architecture), single, steps=1, freeze="embeddings")
    frozen = {name for name, parameter in model.network.named_parameters() if not parameter.requires_grad}
    assert any("embeddings" in name for name in frozen)
    assert not any("layer" in name.lower() and ".0." in name for name in frozen)


def test_more_frozen_layers_than_there_are_leave_the_head_to_learn(bert: Path, single: Dataset) -> None:
    model = learned(bert, single, steps=1, freeze=99)
    learns = {name for name, parameter in model.network.named_parameters() if parameter.requires_grad}
    assert learns == {"head.weight", "head.bias"}


def test_with_layer_decay_lower_layers_learn_less(bert: Path, single: Dataset, tmp_path: Path) -> None:
    before = new(bert, single).network.state_dict()
    settings = {"training": {"weight_decay": 0.0}}
    moved = {}
    for decay in (1.0, 0.1):
        found = weights(learned(bert, single, layer_decay=decay, **settings), tmp_path / str(decay))
        names = [f"encoder.layer.{layer}.output.dense.weight" for layer in (0, 1)]
        moved[decay] = [float((found[name] - before[f"encoder.{name}"]).abs().mean()) for name in names]
    assert moved[0.1][1] == pytest.approx(moved[1.0][1], rel=0.5)
    assert moved[0.1][0] < 0.2 * moved[1.0][0]


def test_label_smoothing_makes_it_less_sure(bert: Path, single: Dataset) -> None:
    texts = list(single.splits["train"].texts)
    sure, unsure = (
        learned(bert, single, training={"label_smoothing": smoothing, "epochs": 15}, pooling="mean").scores(texts)
        for smoothing in (0.0, 0.6)
    )
    assert unsure.max(axis=1).mean() < 0.8 * sure.max(axis=1).mean()


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_half_precision_learns_like_float32(
    checkpoint: Checkpoint, single: Dataset, architecture: str, precision: str
) -> None:
    texts = list(single.splits["train"].texts)
    half, full = (
        learned(checkpoint(architecture), single, training={"precision": chosen}) for chosen in (precision, "float32")
    )
    assert {parameter.dtype for parameter in half.network.parameters()} == {torch.float32}
    assert np.abs(half.scores(texts) - full.scores(texts)).mean() < 0.05


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_lora_learns_beside_the_layers_and_is_merged_in_the_bundle(
    checkpoint: Checkpoint, single: Dataset, tmp_path: Path, architecture: str
) -> None:
    texts = list(single.splits["test"].texts)
    fresh = weights(new(checkpoint(architecture), single), tmp_path / "fresh")
    model = new(checkpoint(architecture), single, lora=4)
    before = {name: tensor.clone() for name, tensor in model.network.state_dict().items()}
    go_on(model, single)
    changed = {name for name, tensor in model.network.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed
    assert all(".lora_" in name or name.startswith("head.") for name in changed)
    merged = bundle(model, tmp_path / "bundle")
    found = load_file(merged / "model.safetensors")
    assert found.keys() == fresh.keys()
    assert distance(found, fresh) > 1e-4
    assert np.abs(Encoder.load(merged).scores(texts) - model.scores(texts)).max() < 1e-5
    assert "lora" not in (merged / "config.json").read_text()


def test_frozen_layers_have_no_lora_that_learns(bert: Path, single: Dataset) -> None:
    model = learned(bert, single, steps=1, lora=4, freeze=1)
    learns = [name for name, parameter in model.network.named_parameters() if parameter.requires_grad]
    assert any("layer.1." in name for name in learns)
    assert not any("layer.0." in name for name in learns)


@pytest.mark.parametrize(
    "settings",
    [
        {"dropout": 0.2},
        {"head": "lstm"},
        {"lora": 4},
        {"freeze": 1},
        {"long_texts": "windows", "max_tokens": 8},
        {"gradient_checkpointing": True},
        {"training": {"precision": "bfloat16"}},
        {"training": {"precision": "float16"}},
        {"training": {"class_weights": "balanced", "label_smoothing": 0.1, "evaluate_every": 2}},
    ],
    ids=lambda settings: "-".join(f"{key}" for key in settings.get("training", settings)),
)
def test_stopped_in_the_middle_of_an_epoch_it_goes_on_to_the_same_bits(
    bert: Path, single: Dataset, tmp_path: Path, settings: dict[str, Any]
) -> None:
    whole = weights(learned(bert, single, **settings), tmp_path / "whole")
    stopped = learned(bert, single, steps=3, **settings)
    resumed = Encoder.load(bundle(stopped, tmp_path / "stopped", resumable=True))
    assert distance(weights(go_on(resumed, single), tmp_path / "resumed"), whole) == 0


def test_saving_a_checkpoint_changes_nothing_about_what_follows(bert: Path, single: Dataset, tmp_path: Path) -> None:
    whole = weights(learned(bert, single, lora=4, dropout=0.1), tmp_path / "whole")
    model = new(bert, single, lora=4, dropout=0.1)
    for step in model.fit(single.splits["train"], single.splits["validation"], seed=42):
        model.scores(["measured in between"])
        bundle(model, tmp_path / f"checkpoint-{step.number}", resumable=True)
        bundle(model, tmp_path / f"bundle-{step.number}")
    assert distance(weights(model, tmp_path / "saved"), whole) == 0


def test_of_a_text_in_windows_the_mean_of_their_scores_counts(bert: Path, single: Dataset) -> None:
    model = new(bert, single, long_texts="windows", max_tokens=16)
    [sequences] = model.learner.preprocessor.reader.read([LONG])
    assert len(sequences) > 5
    with torch.inference_mode():
        logits = [
            model.network(
                **model.learner.context.to_tensors(
                    {
                        "input_ids": np.array([ids]),
                        "attention_mask": np.ones((1, len(ids)), np.int64),
                    }
                )
            )
            for ids, _ in sequences
        ]
    expected = torch.softmax(torch.cat(logits), dim=1).mean(dim=0).numpy()
    found = model.scores(["hello", LONG, "", LONG])
    assert np.allclose(found[1], expected, atol=1e-5)
    assert np.allclose(found[3], expected, atol=1e-5)
    assert np.allclose(found[0], model.scores(["hello"])[0], atol=1e-6)
    assert np.allclose(found.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("long_texts", "sees"),
    [
        ("start", {"start": True, "middle": False, "end": False}),
        ("ends", {"start": True, "middle": False, "end": True}),
        ("windows", {"start": True, "middle": True, "end": True}),
    ],
)
def test_where_texts_are_cut_decides_what_is_seen(
    bert: Path, single: Dataset, long_texts: str, sees: dict[str, bool]
) -> None:
    model = new(bert, single, long_texts=long_texts, max_tokens=16, pooling="mean")
    many = ["hello"] * 101
    plain = model.scores([" ".join(many)])[0]
    for name, place in (("start", 0), ("middle", 50), ("end", 100)):
        changed = " ".join(["refund" if number == place else word for number, word in enumerate(many)])
        assert (np.abs(model.scores([changed])[0] - plain).max() > 1e-6) == sees[name], name


@pytest.mark.parametrize("long_texts", ["ends", "windows"])
def test_only_the_start_of_a_pair_can_be_read(bert: Path, long_texts: str) -> None:
    data = dataset.load(DATA["pair"])
    with pytest.raises(SpecError, match=r"model\.long_texts.*single texts"):
        new(bert, data, long_texts=long_texts)


def test_the_two_texts_of_a_pair_are_told_apart(bert: Path) -> None:
    model = new(bert, dataset.load(DATA["pair"]))
    one, other = model.scores([("refund", "parcel"), ("parcel", "refund")])
    assert not np.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (None, "first"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first"),
    ],
)
def test_states_are_pooled_as_the_makers_wrote_down(
    bert: Path, single: Dataset, tmp_path: Path, written: Any, expected: str
) -> None:
    copy = tmp_path / "pretrained"
    shutil.copytree(bert, copy)
    if written:
        (copy / "1_Pooling").mkdir()
        (copy / "1_Pooling" / "config.json").write_text(json.dumps(written))
    assert new(copy, single).pooling == expected
    assert new(copy, single, pooling="mean").pooling == "mean"
    assert new(copy, single, pooling="first").pooling == "first"


def test_the_seed_of_the_spec_decides_the_head(bert: Path, single: Dataset) -> None:
    heads = [new(bert, single, training={"seed": seed}).network.head.weight for seed in (1, 1, 2)]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])


@pytest.mark.parametrize("lora", [0, 4])
@pytest.mark.parametrize("head", ["linear", "lstm"])
def test_what_is_drawn_follows_from_the_seed_whatever_was_drawn_before(
    bert: Path, single: Dataset, lora: int, head: str
) -> None:
    found = []
    for before in (1, 2):
        torch.manual_seed(before)
        np.random.seed(before)
        found.append(learned(bert, single, dropout=0.2, lora=lora, head=head).scores(["hello"]))
    assert np.array_equal(found[0], found[1])


@pytest.mark.parametrize("settings", [{}, {"lora": 4}, {"freeze": 2}, {"long_texts": "windows", "max_tokens": 8}])
@pytest.mark.parametrize("task", ["single", "multi", "pair"])
def test_a_head_that_is_an_lstm_learns_and_is_saved_under_its_name(
    bert: Path, tmp_path: Path, settings: dict[str, Any], task: str
) -> None:
    if task == "pair" and "long_texts" in settings:
        pytest.skip("only the start of a pair can be read")
    data = dataset.load(DATA[task])
    texts = [*data.splits["test"].texts]
    model = new(bert, data, head="lstm", **settings)
    before = {name: tensor.clone() for name, tensor in model.network.head.state_dict().items()}
    go_on(model, data)
    assert not any(torch.equal(before[name], tensor) for name, tensor in model.network.head.state_dict().items())
    found = bundle(model, tmp_path / "bundle")
    names = {name for name in load_file(found / "model.safetensors") if name.startswith("head.")}
    assert names == {f"head.{name}" for name in before}
    assert np.abs(Encoder.load(found).scores(texts) - model.scores(texts)).max() < 1e-5


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_scores_of_a_head_that_is_an_lstm_do_not_depend_on_padding(
    checkpoint: Checkpoint, single: Dataset, architecture: str
) -> None:
    model = new(checkpoint(architecture), single, head="lstm")
    assert np.allclose(model.scores(["hello", LONG])[0], model.scores(["hello"])[0], atol=1e-6)


def test_transformers_reads_a_bundle_whose_head_is_an_lstm(bert: Path, single: Dataset, tmp_path: Path) -> None:
    from transformers import AutoModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    learned(bert, single, steps=1, head="lstm").save(tmp_path)
    _, info = AutoModel.from_pretrained(tmp_path, config=pretrained.read_config(tmp_path), output_loading_info=True)
    assert all(key.startswith("pooler.") for key in info["missing_keys"])
    assert all(key.startswith("head.") for key in info["unexpected_keys"])


def test_a_head_that_reads_all_states_takes_no_pooling() -> None:
    with pytest.raises(ValidationError, match=r'head = "lstm" reads all states; leave pooling at "auto"'):
        EncoderOptions(head="lstm", pooling="mean")


def test_the_larger_the_encoder_the_smaller_its_rate() -> None:
    sizes = [10_600_000, 86_000_000, 303_000_000]
    rates = [auto_rate(size) for size in sizes]
    assert rates == sorted(set(rates), reverse=True)
    assert all(1e-6 < rate < 1e-3 for rate in rates)


def test_a_rate_of_the_users_own_is_taken(bert: Path, single: Dataset) -> None:
    for rate in (1e-3, "auto"):
        model = new(bert, single, training={"learning_rate": rate, "warmup_share": 0.0})
        step = next(iter(model.fit(single.splits["train"], single.splits["validation"], seed=42)))
        expected = 1e-3 if rate != "auto" else model._learning_rate()
        assert step.settings["learning_rate"] == expected
