"""Language models that fastai wrote: the same numbers, other layouts, and files that are hostile or damaged."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tagline.errors import SpecError
from tagline.models.ulmfit import checkpoints
from tagline.models.ulmfit.awd_lstm import AwdLstm, AwdLstmClassifier, LanguageModel, Shape, layer_groups
from tagline.models.ulmfit.one_cycle import (
    Cycle,
    find_valley,
    one_cycle,
    range_test,
    smooth_losses,
    spread_rates,
    suggest_rate,
)
from tagline.models.ulmfit.stages import activation_penalty

pytestmark = pytest.mark.trains

Fixture = Callable[[str], Path]
MODELS = ("en_forward", "en_backward", "ja_forward")
CLOSE = 1e-4


def model_in(directory: Path) -> LanguageModel:
    found = checkpoints.read(str(directory))
    model = LanguageModel(found.shape, tokens=len(found.lexicon))
    model.load_state_dict(dict(found.weights))
    return model.eval()


def ids_of(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.atleast_2d(array).astype(np.int64))


@pytest.mark.parametrize("name", MODELS)
def test_fastai_computes_the_same(fastai: Fixture, name: str) -> None:
    model, expected = model_in(fastai(name)), np.load(fastai(name) / "expected.npz")
    with torch.inference_mode():
        for number in range(7):
            prefix = f"seq{number}_"
            logits, outputs, _, state = model(ids_of(expected[prefix + "ids"]), model.encoder.start(1))
            assert np.allclose(logits[0, :, :20], expected[prefix + "logits20"], atol=CLOSE)
            assert np.allclose(logits[0, -1], expected[prefix + "last_logits_full"], atol=CLOSE)
            assert np.allclose(torch.logsumexp(logits[0], dim=1), expected[prefix + "lse"], atol=CLOSE)
            assert np.allclose(outputs[0], expected[prefix + "hidden"], atol=CLOSE)
            for layer, (hidden, cell) in enumerate(state):
                assert np.allclose(hidden[0], expected[f"{prefix}h{layer}"], atol=CLOSE)
                assert np.allclose(cell[0], expected[f"{prefix}c{layer}"], atol=CLOSE)
        batch = ids_of(expected["batch_ids"])
        _, first, _, state = model(batch, model.encoder.start(len(batch)))
        _, second, _, _ = model(batch, state)
        assert np.allclose(first, expected["batch_hidden"], atol=CLOSE)
        assert np.allclose(second, expected["batch_second_call_hidden"], atol=CLOSE)


@pytest.mark.parametrize("name", ["en_forward", "ja_forward"])
def test_another_vocabulary_is_matched_as_fastai_does(fastai: Fixture, name: str) -> None:
    vocabulary = json.loads((fastai(name) / "vocab_match.json").read_text("utf-8"))["new_vocab"]
    expected, found = np.load(fastai(name) / "vocab_match.npz"), checkpoints.read(str(fastai(name)))
    weights = checkpoints.extend_weights(found, vocabulary)
    assert np.allclose(weights["encoder.embedding.weight"], expected["emb"], atol=1e-6)
    assert np.allclose(weights["bias"], expected["bias"], atol=1e-6)
    model = LanguageModel(found.shape, tokens=len(vocabulary)).eval()
    model.load_state_dict(weights)
    with torch.inference_mode():
        logits, *_ = model(ids_of(expected["ids"]), model.encoder.start(1))
    assert np.allclose(logits[0], expected["logits"], atol=CLOSE)


def classifier_weights(path: Path) -> dict[str, torch.Tensor]:
    """fastai's classifier under our names; it leaves out a dropout of 0, so that its layers are numbered anew."""
    found = torch.load(path, weights_only=True)
    weights = {"encoder.embedding.weight": found["0.module.encoder.weight"], "usual": torch.zeros(3)}
    shift = "1.layers.0.1.weight" in found
    for name, tensor in found.items():
        parts = name.split(".")
        if parts[2] == "rnns":
            weights[f"encoder.layers.{parts[3]}.lstm.{parts[-1].removesuffix('_raw')}"] = tensor
        elif parts[0] == "1":
            place = "2" if shift and parts[3] == "1" else parts[3]
            weights[f"head.{parts[2]}.{place}.{parts[4]}"] = tensor
    return weights


@pytest.mark.parametrize(
    ("key", "window", "most"),
    [("alone", 72, 1440), ("alone_seq72_max144", 72, 144), ("alone_seq50_max100", 50, 100),
     ("alone_seq72_maxNone", 72, 10**9)],
)  # fmt: skip
def test_its_classifier_answers_the_same_whatever_else_is_in_the_batch(
    fastai: Fixture, key: str, window: int, most: int
) -> None:
    directory = fastai("clf_multilabel")
    config, expected = json.loads((directory / "config.json").read_text()), np.load(directory / "expected.npz")
    shape = Shape(**{name: value for name, value in config.items() if name not in ("pad_token", "bidir")})
    network = AwdLstmClassifier(AwdLstm(shape, tokens=3104), labels=3, drop=0.1, window=window, most=most).eval()
    network.load_state_dict(classifier_weights(directory / "clf.pth"))
    texts = [text["ids"] for text in json.loads((directory / "expected.json").read_text("utf-8"))["texts"]]
    ids = torch.ones(len(texts), max(map(len, texts)), dtype=torch.long)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = torch.tensor(text)
    mask = (torch.arange(ids.shape[1]) < torch.tensor([len(text) for text in texts])[:, None]).long()
    with torch.inference_mode():
        together, *_ = network(ids, mask)
        alone = torch.cat([network(each, torch.ones_like(each))[0] for each in map(torch.tensor, [[t] for t in texts])])
    assert np.allclose(together, expected[f"{key}_logits"], atol=CLOSE)
    assert np.allclose(alone, expected[f"{key}_logits"], atol=CLOSE)


def golden(fastai: Fixture) -> tuple[Path, Any]:
    directory = fastai("training_golden")
    return directory, json.loads((directory / "expected.json").read_text("utf-8"))


SMALL = Shape(8, 12, 2, output_p=0.0, hidden_p=0.0, input_p=0.0, embed_p=0.0, weight_p=0.0)


def test_a_language_model_learns_step_by_step_as_fastai_has_it(fastai: Fixture, tmp_path: Path) -> None:
    directory, expected = golden(fastai)
    expected = expected["lm"]
    model = LanguageModel(SMALL, tokens=80)
    model.load_state_dict(renamed(directory / "lm_init.pth"))
    pairs = [(torch.tensor(ids), torch.tensor(following)) for ids, following in expected["batches"]]
    phases = [
        ("phase1", "lm_after_frozen.pth", [1e-3, 1e-3, 1e-2], 1, 1),
        ("phase2", "lm_after_unfrozen.pth", spread_rates(1e-2, groups=3, factor=10**0.5), 3, 2),
    ]
    for phase, after, rates, learning, epochs in phases:
        steps = len(pairs) * epochs
        cycle = Cycle(model, layer_groups(model), rates=rates, learning=learning, steps=steps, weight_decay=0.01)
        for number, trace in enumerate(expected[phase]["trace"]):
            if number % len(pairs) == 0:
                state = model.encoder.start(expected["bs"])
            ids, following = pairs[number % len(pairs)]
            logits, raw, dropped, state = model(ids, state)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())
            whole = loss + activation_penalty(raw, dropped)
            assert loss.item() == pytest.approx(trace["loss"], abs=1e-5)
            assert whole.item() == pytest.approx(trace["loss_with_ar_tar"], abs=1e-5)
            assert cycle.rate == pytest.approx(trace["lr"][-1], rel=1e-5)
            cycle.step(whole)
        for name, tensor in renamed(directory / after).items():
            assert torch.allclose(model.state_dict()[name], tensor, atol=1e-6), name


def renamed(path: Path) -> dict[str, torch.Tensor]:
    return checkpoints._rename_weights(torch.load(path, weights_only=True), path, tied=True)


def test_rates_and_momentum_follow_fastais_one_cycle(fastai: Fixture) -> None:
    expected = golden(fastai)[1]["one_cycle_scalar"]
    for step, (rates, momentum) in enumerate(zip(expected["lr"], expected["mom"], strict=True)):
        factor, ours = one_cycle(step / len(expected["lr"]))
        assert factor * 5e-3 == pytest.approx(rates[-1], rel=1e-5)
        assert ours == pytest.approx(momentum, abs=1e-6)


def test_a_range_test_ends_at_the_rate_that_fastai_suggests(fastai: Fixture) -> None:
    directory, expected = golden(fastai)
    model = LanguageModel(SMALL, tokens=80)
    model.load_state_dict(renamed(directory / "lrfind_init.pth"))
    batches = [(torch.tensor(ids), torch.tensor(following)) for ids, following in expected["lm"]["batches"]]
    cycle = Cycle(
        model, layer_groups(model), rates=[1.0] * 3, learning=3, steps=100, weight_decay=0.01, schedule=range_test
    )
    losses = []
    for number in range(100):
        if number % len(batches) == 0:
            state = model.encoder.start(expected["lm"]["bs"])
        ids, following = batches[number % len(batches)]
        logits, raw, dropped, state = model(ids, state)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())
        losses.append(loss.item())
        cycle.step(loss + activation_penalty(raw, dropped))
    assert smooth_losses(losses)[:40] == pytest.approx(expected["lr_find"]["losses"][:40], abs=1e-3)
    found = expected["lr_find"]["suggestions"]
    assert suggest_rate(losses, boldly=False) == pytest.approx(found["valley"], rel=1e-3)
    least = 10 * found["minimum"]
    assert suggest_rate(losses, boldly=True) == pytest.approx((found["valley"] * least) ** 0.5 / 2, rel=1e-3)


def test_a_range_test_that_only_rises_suggests_no_less_boldly() -> None:
    rising = [1.0 + step / 10 for step in range(100)]
    assert suggest_rate(rising, boldly=True) == suggest_rate(rising, boldly=False) == range_test(0.1)[0]
    assert suggest_rate([float("nan")], boldly=True) == range_test(0)[0]


def test_the_valley_of_a_curve_is_where_fastai_sees_it(fastai: Fixture) -> None:
    for curve in golden(fastai)[1]["suggestion_curves"]["curves"].values():
        assert find_valley(curve["losses"]) == curve["valley_index"]


@pytest.fixture
def variant(fastai: Fixture, tmp_path: Path) -> Callable[[str], Path]:
    """A directory with one of the layouts that fastai's files come in."""

    def make(name: str) -> Path:
        source = fastai("layout_variants")
        config = "config_untied_nobias.json" if name.startswith("untied") else "config.json"
        for old, new in ((name, "weights.pth"), ("vocab.pkl", "vocab.pkl"), (config, "config.json")):
            shutil.copyfile(source / old, tmp_path / new)
        return tmp_path

    return make


@pytest.mark.parametrize("name", ["plain", "legacy_module_keys", "untied_nobias"])
def test_every_layout_is_read(fastai: Fixture, variant: Callable[[str], Path], name: str) -> None:
    model, expected = model_in(variant(f"{name}.pth")), np.load(fastai("layout_variants") / "expected.npz")
    with torch.inference_mode():
        logits, outputs, *_ = model(ids_of(expected["ids"]), model.encoder.start(1))
    assert np.allclose(logits[0], expected[f"{name}_logits"], atol=CLOSE)
    assert np.allclose(outputs[0], expected[f"{name}_hidden"], atol=CLOSE)


def test_weights_with_their_optimizer_are_refused_with_how_to_save_them(variant: Callable[[str], Path]) -> None:
    with pytest.raises(SpecError, match="holds its optimizer too") as error:
        checkpoints.read(str(variant("with_opt.pth")))
    assert "with_opt=False" in error.value.hint


class Command:
    """Runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        import os

        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("victim", ["vocab.pkl", "weights.pth"])
def test_a_file_that_would_run_a_command_is_refused_and_runs_none(
    variant: Callable[[str], Path], tmp_path: Path, victim: str
) -> None:
    directory, trace = variant("plain.pth"), tmp_path / "it-ran"
    if victim == "vocab.pkl":
        (directory / victim).write_bytes(pickle.dumps(["xxunk", Command(trace)]))
    else:
        torch.save({"0.encoder.weight": Command(trace)}, directory / victim)
    with pytest.raises(SpecError, match=victim):
        checkpoints.read(str(directory))
    assert not trace.exists()


def broken(directory: Path, name: str) -> None:
    path = directory / name
    match name:
        case "vocab.pkl":
            path.write_bytes(pickle.dumps({"words": 3}))
        case "weights.pth":
            path.write_bytes(path.read_bytes()[:2000])
        case "config.json":
            path.write_text('{"emb_sz": "many"}')


@pytest.mark.parametrize("name", ["vocab.pkl", "weights.pth", "config.json"])
def test_a_damaged_file_is_named(variant: Callable[[str], Path], name: str) -> None:
    directory = variant("plain.pth")
    broken(directory, name)
    with pytest.raises(SpecError, match=name):
        checkpoints.read(str(directory))


@pytest.mark.parametrize("name", ["vocab.pkl", "weights.pth", "config.json"])
def test_a_missing_file_is_named(variant: Callable[[str], Path], name: str) -> None:
    directory = variant("plain.pth")
    (directory / name).unlink()
    with pytest.raises(SpecError, match=r"config\.json|vocabulary|weights\.pth") as error:
        checkpoints.read(str(directory))
    assert "holds config.json" in error.value.hint


def test_a_vocabulary_of_another_size_is_named(variant: Callable[[str], Path]) -> None:
    directory = variant("plain.pth")
    (directory / "vocab.pkl").write_bytes(pickle.dumps(["xxunk", *(f"word{number}" for number in range(89))]))
    with pytest.raises(SpecError, match="bias is 80, and should be 90"):
        checkpoints.read(str(directory))


def test_a_vocabulary_in_another_order_is_named(variant: Callable[[str], Path]) -> None:
    """Words that are not in it would be taken for the one that stands first."""
    directory = variant("plain.pth")
    words = pickle.loads((directory / "vocab.pkl").read_bytes())
    (directory / "vocab.pkl").write_bytes(pickle.dumps(sorted(words)))
    with pytest.raises(SpecError, match=r"vocab\.pkl begins with .*xxunk"):
        checkpoints.read(str(directory))


def test_pieces_without_what_cuts_texts_into_them_are_refused(fastai: Fixture, tmp_path: Path) -> None:
    for name in ("config.json", "vocab.pkl", "weights.pth"):
        shutil.copyfile(fastai("ja_forward") / name, tmp_path / name)
    with pytest.raises(SpecError, match=r"has a vocabulary of pieces, and no spm\.model"):
        checkpoints.read(str(tmp_path))


def test_a_vocabulary_that_would_fill_the_memory_is_refused(variant: Callable[[str], Path]) -> None:
    """A pickle may number an object as it likes, and the reader makes room for all numbers before it."""
    directory = variant("plain.pth")
    (directory / "vocab.pkl").write_bytes(b"\x80\x02]r" + (4_000_000_000).to_bytes(4, "little") + b".")
    with pytest.raises(SpecError, match=r"vocab\.pkl was not read: it numbers more objects"):
        checkpoints.read(str(directory))


@pytest.mark.parametrize(
    ("key", "value"),
    [("emb_sz", 0), ("n_hid", 10**12), ("n_layers", -1), ("n_layers", 1.5), ("output_p", 1.5),
     ("weight_p", float("nan")), ("tie_weights", 1)],
)  # fmt: skip
def test_a_size_that_no_model_has_is_named(variant: Callable[[str], Path], key: str, value: Any) -> None:
    directory = variant("plain.pth")
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {key: value}))
    with pytest.raises(SpecError, match=rf"config\.json: {key} cannot be"):
        checkpoints.read(str(directory))


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("config.json", "[" * 100_000, "is not JSON"),
        ("words.json", '{"patterns": {"prefix": "("}}', "is damaged"),
        ("words.json", "[1, 2]", "is damaged"),
        ("words.json", "{", "is damaged"),
        ("weights.pth", "version https://git-lfs.github.com/spec/v1\n", "no file of torch.save"),
        ("weights.pth", "<!doctype html><title>Sign in</title>", "no file of torch.save"),
        ("model.safetensors", "version https://git-lfs.github.com/spec/v1\n", "is damaged"),
    ],
)
def test_a_file_that_is_something_else_is_named(
    variant: Callable[[str], Path], name: str, content: str, complaint: str
) -> None:
    directory = variant("plain.pth")
    (directory / name).write_text(content, "utf-8")
    with pytest.raises(SpecError, match=f"{name}.*{complaint}") as error:
        checkpoints.read(str(directory))
    assert ("git lfs pull" in error.value.hint) == (name in checkpoints.WEIGHTS)


def test_a_name_that_no_directory_can_have_is_refused() -> None:
    with pytest.raises(SpecError, match=r"model\.pretrained: there is no directory"):
        checkpoints.read("x" * 300)


@pytest.mark.parametrize("name", ["0.encoder.weight", "1.decoder.bias"])
def test_weights_that_are_no_numbers_are_named(variant: Callable[[str], Path], name: str) -> None:
    directory = variant("plain.pth")
    weights = torch.load(directory / "weights.pth", weights_only=True)
    weights[name].flatten()[3] = float("nan")
    torch.save(weights, directory / "weights.pth")
    with pytest.raises(SpecError, match=r"weights\.pth: .* not finite"):
        checkpoints.read(str(directory))


def test_a_decoder_of_its_own_may_equal_the_embedding(variant: Callable[[str], Path]) -> None:
    directory = variant("untied_nobias.pth")
    weights = torch.load(directory / "weights.pth", weights_only=True)
    weights["1.decoder.weight"] = weights["0.encoder.weight"].clone()
    torch.save(weights, directory / "weights.pth")
    found = checkpoints.read(str(directory)).weights
    assert torch.equal(found["matrix"], found["encoder.embedding.weight"])


def test_an_object_in_place_of_the_words_is_refused_with_how_to_save_them(fastai: Fixture, tmp_path: Path) -> None:
    shutil.copytree(fastai("layout_variants"), tmp_path / "copy")
    shutil.copyfile(fastai("clf_multilabel") / "vocab_fastai.pkl", tmp_path / "copy" / "vocab.pkl")
    with pytest.raises(SpecError, match="fastcore") as error:
        checkpoints.read(str(tmp_path / "copy"))
    assert "list(dls.vocab)" in error.value.hint


def test_bidirectional_and_qrnn_models_are_refused(variant: Callable[[str], Path]) -> None:
    directory = variant("plain.pth")
    config = json.loads((directory / "config.json").read_text())
    for key in ("bidir", "qrnn"):
        (directory / "config.json").write_text(json.dumps(config | {key: True}))
        with pytest.raises(SpecError, match="no bidirectional ones and no QRNN"):
            checkpoints.read(str(directory))
