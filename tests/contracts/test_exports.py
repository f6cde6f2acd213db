"""Every export of every family that has one: the same answers, without torch."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import tagline
from tagline.errors import BundleError, RunError, SpecError
from tagline.exports import export, pack
from tagline.exports.onnx import Onnx
from tagline.models.encoder import Encoder, EncoderOptions
from tagline.models.ulmfit import Ulmfit, UlmfitOptions
from tagline.models.ulmfit.tokenizer import Lexicon, SpacyTokenizer
from tagline.prediction import onnx_runtime, predictor
from tagline.prediction.bundle import Bundle, load_classifier
from tagline.prediction.onnx_runtime import FILES, OnnxScorer, Precision
from tagline.spec import Training

sys.path.insert(0, str(Path(__file__).parents[1]))
from bare import run_bare

pytestmark = pytest.mark.trains

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
TEXTS = ["where is my parcel", "I was charged twice, and nobody answers", "", "x" * 3000]
SMALL_ULMFIT = ("model.lm_epochs=1", "model.embedding_size=8", "model.hidden_size=12", "training.learning_rate=0.01")
FAMILIES = {
    "encoder": ("messages.csv", "model.max_tokens=24"),
    "encoder, lstm head": ("messages.csv", "model.max_tokens=24", "model.head=lstm"),
    "encoder, lora": ("messages.csv", "model.max_tokens=24", "model.lora=2"),
    "encoder, windows": ("messages.csv", "model.max_tokens=16", "model.long_texts=windows"),
    "encoder, several": ("messages-multi.csv", "model.max_tokens=24"),
    "encoder, pairs": ("pairs.csv", "model.max_tokens=24"),
    "lstm": ("messages.csv", "model.family=lstm", "model.hidden=8", "model.max_tokens=24"),
    "fewshot": ("messages.csv", "model.family=fewshot", "model.max_tokens=24", "model.tuning_steps=2"),
    "ulmfit": ("messages.csv", "model.family=ulmfit", *SMALL_ULMFIT),
    "ulmfit, both": ("messages-multi.csv", "model.family=ulmfit", "model.direction=both", *SMALL_ULMFIT),
    "linear": ("messages.csv", "model.family=linear", "model.characters=0"),
    "linear, pairs": ("pairs.csv", "model.family=linear", "model.characters=0"),
}
PRETRAINED = ("encoder", "fewshot")


@pytest.fixture(scope="module")
def run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, checkpoint: Callable[[str], Path]
) -> tagline.Run:
    """A small model of the family that the test is about, with its test rows."""
    data, *settings = FAMILIES[request.param]
    if request.param.startswith(PRETRAINED):
        settings.append(f"model.pretrained={checkpoint('bert')}")
    if not request.param.startswith(("fewshot", "linear")):
        settings.append("training.epochs=1")
    small = ("data.fraction=0.1", "training.baseline=false")
    return tagline.train(SUPPORT / data, *settings, *small, runs=tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tagline.Run:
    """A run of family linear, which has no form but its own yet."""
    return tagline.train(
        SUPPORT / "messages.csv", "model.family=linear", "model.characters=0", runs=tmp_path_factory.mktemp("trained")
    )


@pytest.fixture
def linear(trained: tagline.Run, tmp_path: Path) -> tagline.Run:
    """A copy of that run, to do with as one likes."""
    return tagline.Run(shutil.copytree(trained.directory, tmp_path / trained.name))


@pytest.mark.parametrize("run", FAMILIES, indirect=True)
def test_what_is_served_without_torch_is_what_was_measured(run: tagline.Run) -> None:
    """Training makes the forms; `linear` predicts with numpy already, and gets them when asked to."""
    if run.report()["family"] == "linear":  # type: ignore[index]
        export.export(run.bundle, "onnx", measured=run.predictions())
    manifest = Bundle.load(run.bundle).manifest
    assert set(manifest.exports) == {"float32", "int8"}
    assert manifest.exports["float32"]["equal_answers"] == 1.0
    assert manifest.exports["float32"]["largest_difference"] < 1e-4
    expected = [{k: v for k, v in row.items() if k not in ("truth", "file", "line")} for row in run.predictions()]
    code = f"""
import json, tagline
texts = [tuple(text) if isinstance(text, list) else text for text in json.loads(sys.argv[1])]
predictor = tagline.load({str(run.bundle)!r})
print(json.dumps([prediction.to_dict() for prediction in predictor.predict(texts)]))
"""
    found = json.loads(run_bare(code, json.dumps([row["text"] for row in expected])))
    for mine, row in zip(found, expected, strict=True):
        assert mine["scores"] == pytest.approx(row["scores"], abs=1e-5)
        assert [mine.get(key) for key in ("label", "labels", "abstained")] == [
            row.get(key) for key in ("label", "labels", "abstained")
        ]


@pytest.mark.parametrize("run", FAMILIES, indirect=True)
@pytest.mark.parametrize("precision", FILES)
def test_a_text_is_answered_alike_alone_and_in_company(run: tagline.Run, precision: Precision) -> None:
    report = run.report()
    if not (run.bundle / "onnx").exists():
        export.export(run.bundle, "onnx", measured=run.predictions())
    texts: list[Any] = [(text, "an answer") for text in TEXTS] if report["pair"] else TEXTS  # type: ignore[index]
    compiled = OnnxScorer(run.bundle, str(report["family"]), precision)  # type: ignore[index]
    together = compiled.scores(texts)
    assert together == pytest.approx(np.concatenate([compiled.scores([text]) for text in texts]), abs=1e-6)
    if precision == "float32":
        own = load_classifier(str(report["family"]), run.bundle).scores(texts)  # type: ignore[index]
        assert together == pytest.approx(own, abs=1e-4)


def test_of_a_long_text_the_same_tokens_count_as_where_it_learned(tmp_path: Path) -> None:
    """With weights so large that every token of the pool tells."""
    random, words = Random(0), ["alpha", "beta", "gamma", "delta", "well", "done", "film", "bad"]
    texts = [" ".join(random.choices(words, k=size)) for size in (30, 71, 72, 100, 130, 143, 144, 180, 400)]
    options = UlmfitOptions(embedding_size=8, hidden_size=12, layers=2, max_tokens=72)
    torch.manual_seed(0)
    model = Ulmfit(options, training=Training(), task="single", labels=3, pair=False)
    model.lexicon = Lexicon.learn(texts, SpacyTokenizer.from_spacy())
    model.classifiers["forward"] = model._create_classifier()
    for parameter in model.classifiers["forward"].parameters():
        parameter.data.mul_(3)
    model.save(tmp_path)
    Onnx().write(model, tmp_path, family="ulmfit", samples=texts)
    assert OnnxScorer(tmp_path, "ulmfit", "float32").scores(texts) == pytest.approx(model.scores(texts), abs=1e-4)


def test_attention_becomes_one_operation_and_weights_bytes(tmp_path: Path, checkpoint: Callable[[str], Path]) -> None:
    import onnx
    from onnx import numpy_helper

    small = ("data.fraction=0.1", "training.baseline=false", "training.epochs=1", "model.max_tokens=16")
    run = tagline.train(SUPPORT / "messages.csv", f"model.pretrained={checkpoint('bert')}", *small, runs=tmp_path)
    for name, fused in (("model.onnx", "Attention"), ("model.int8.onnx", "QAttention")):
        graph = onnx.load(run.bundle / "onnx" / name).graph
        kinds = {node.op_type for node in graph.node}
        assert {fused, "LayerNormalization", "Gelu"} <= kinds
        assert not {"Softmax", "SkipLayerNormalization"} & kinds
        weights = [numpy_helper.to_array(each) for each in graph.initializer if each.data_type == onnx.TensorProto.INT8]
        assert bool(weights) == (fused == "QAttention")
        # 2 x 64 x 255 is the most that 16 bits hold, which is where some processors add
        assert all(abs(each.astype(int)).max() <= 64 for each in weights)


@pytest.mark.parametrize("kind", ["roberta", "deberta-v2", "modernbert", "distilbert", "mpnet"])
def test_every_architecture_has_its_forms(kind: str, tmp_path: Path, checkpoint: Callable[[str], Path]) -> None:
    options = EncoderOptions(pretrained=str(checkpoint(kind)), max_tokens=24)
    model = Encoder.create(options, training=Training(), task="single", labels=["a", "b", "c"], pair=False)
    model.save(tmp_path)
    Onnx().write(model, tmp_path, family="encoder", samples=TEXTS)
    own = model.scores(TEXTS)
    assert OnnxScorer(tmp_path, "encoder", "float32").scores(TEXTS) == pytest.approx(own, abs=1e-4)
    assert OnnxScorer(tmp_path, "encoder", "int8").scores(TEXTS) == pytest.approx(own, abs=0.1)


def test_how_threads_wait_for_each_other_changes_no_bit(
    tmp_path: Path, checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = EncoderOptions(pretrained=str(checkpoint("bert")), max_tokens=24)
    model = Encoder.create(options, training=Training(), task="single", labels=["a", "b", "c"], pair=False)
    model.save(tmp_path)
    Onnx().write(model, tmp_path, family="encoder", samples=TEXTS)
    monkeypatch.setattr(onnx_runtime, "LARGE_BYTES", 0)  # so that two threads work on one text
    asleep = OnnxScorer(tmp_path, "encoder", "float32", threads=2)
    chosen = asleep._session.get_session_options()
    assert chosen.intra_op_num_threads == 2
    assert chosen.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    monkeypatch.setattr(onnx_runtime, "WAITING", {})
    spinning = OnnxScorer(tmp_path, "encoder", "float32", threads=2)
    assert (asleep.scores(TEXTS) == spinning.scores(TEXTS)).all()


@pytest.mark.parametrize(
    ("shares", "rows"), [(("data.test_share=0",), True), (("data.test_share=0", "data.validation_share=0"), False)]
)
def test_without_test_rows_forms_are_checked_on_others_or_not_made(
    shares: tuple[str, ...], rows: bool, tmp_path: Path
) -> None:
    small = ("model.family=lstm", "model.hidden=8", "model.max_tokens=24", "data.fraction=0.2", "training.epochs=1")
    run = tagline.train(SUPPORT / "messages.csv", *small, *shares, "training.baseline=false", runs=tmp_path)
    warnings = [event["message"] for event in run.events() if event["event"] == "warning"]
    assert any("no row to check another form with" in message for message in warnings) is not rows
    assert bool(Bundle.load(run.bundle).manifest.exports) is rows
    assert run.predictions() == []


def test_what_cannot_be_exported_or_checked_is_said_and_the_bundle_stays(linear: tagline.Run, tmp_path: Path) -> None:
    before = (linear.bundle / "tagline.json").read_bytes()
    with pytest.raises(RunError, match="could not be checked"):
        export.export(linear.bundle, "onnx", measured=[])
    with pytest.raises(SpecError, match='no export "onx"; did you mean onnx'):
        export.export(linear.bundle, "onx", measured=linear.predictions())
    with pytest.raises(BundleError, match="is not a bundle"):
        export.export(tmp_path / "nowhere", "onnx", measured=[])
    assert (linear.bundle / "tagline.json").read_bytes() == before
    assert sorted(path.name for path in linear.directory.iterdir() if path.name.startswith("bundle")) == ["bundle"]


def test_a_network_without_a_graph_still_becomes_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: Callable[[str], Path]
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise torch.onnx.errors.UnsupportedOperatorError("aten::peculiar", 17, None)

    monkeypatch.setattr(torch.onnx, "export", refuse)
    small = ("data.fraction=0.1", "training.baseline=false", "training.epochs=1", "model.max_tokens=16")
    run = tagline.train(SUPPORT / "messages.csv", f"model.pretrained={checkpoint('bert')}", *small, runs=tmp_path)
    warnings = [event["message"] for event in run.events() if event["event"] == "warning"]
    assert any("needs torch to predict" in message and "peculiar" in message for message in warnings)
    assert Bundle.load(run.bundle).manifest.runtime == ""
    assert not (run.bundle / "onnx").exists()
    assert "in its own form" in (run.bundle / "README.md").read_text()


@pytest.mark.parametrize(
    ("int8", "float32", "used"), [(-0.002, 0.0, "int8"), (-0.004, 0.0, "float32"), (-0.1, -0.01, "")]
)
def test_the_form_that_loses_next_to_nothing_is_used(int8: float, float32: float, used: str) -> None:
    assert export.choose_form({"int8": {"macro_f1": int8}, "float32": {"macro_f1": float32}}) == used


def test_family_linear_has_no_form_in_transformers(linear: tagline.Run) -> None:
    with pytest.raises(SpecError, match="family linear has no form in transformers"):
        pack.pack(linear.bundle, "transformers")
    assert sorted(path.name for path in linear.directory.iterdir() if path.name.startswith("bundle")) == ["bundle"]


def test_the_card_says_which_form_predicts(linear: tagline.Run) -> None:
    card = (linear.bundle / "README.md").read_text()
    assert "It predicts in its own form." in card
    for _ in range(2):
        export.export(linear.bundle, "onnx", measured=linear.predictions())
    exported = (linear.bundle / "README.md").read_text()
    assert exported.count("## In which form it predicts") == exported.count("| int8 |") == 1
    assert exported.partition("## How to use it")[2] == card.partition("## How to use it")[2]


def test_onnxruntime_tells_nobody(linear: tagline.Run, tmp_path: Path) -> None:
    """Its telemetry would keep an identifier in the home directory, and complain where it cannot."""
    export.export(linear.bundle, "onnx", measured=linear.predictions())
    code = "import sys; from pathlib import Path; from tagline.prediction.onnx_runtime import OnnxScorer; "
    code += "OnnxScorer(Path(sys.argv[1]), 'linear', 'int8')"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ORT_")}
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code, str(linear.bundle)],
        env=environment | {"HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert list(home.rglob("*")) == []


def test_a_damaged_graph_is_said(linear: tagline.Run) -> None:
    (linear.bundle / "onnx").mkdir()
    (linear.bundle / "onnx" / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(BundleError, match="cannot be loaded"):
        OnnxScorer(linear.bundle, "linear", "float32")


def test_it_predicts_where_processes_are_not_bound_to_cores(
    linear: tagline.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS, where `os` has no such function."""
    export.export(linear.bundle, "onnx", measured=linear.predictions())
    monkeypatch.delattr(os, "sched_getaffinity")
    assert OnnxScorer(linear.bundle, "linear", "float32").scores(["where is my parcel"]).shape[0] == 1
    assert predictor.plan_workers(Bundle.load(linear.bundle))[0] >= 1
