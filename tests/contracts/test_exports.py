"""Every export of every family that has one: the same answers, without torch."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tagline
from tagline import exporting
from tagline.bundle import Bundle, load_classifier
from tagline.compiled import Compiled
from tagline.errors import BundleError, RunError, SpecError

sys.path.insert(0, str(Path(__file__).parents[1]))
from bare import run_bare

SUPPORT = Path(__file__).parents[2] / "examples" / "support"
TEXTS = ["where is my parcel", "I was charged twice, and nobody answers", "", "x" * 3000]
FAMILIES = {
    "encoder": ("messages.csv", "model.max_tokens=24"),
    "encoder, lstm head": ("messages.csv", "model.max_tokens=24", "model.head=lstm"),
    "encoder, lora": ("messages.csv", "model.max_tokens=24", "model.lora=2"),
    "encoder, windows": ("messages.csv", "model.max_tokens=16", "model.long_texts=windows"),
    "encoder, several": ("messages-multi.csv", "model.max_tokens=24"),
    "encoder, pairs": ("pairs.csv", "model.max_tokens=24"),
    "lstm": ("messages.csv", "model.family=lstm", "model.hidden=8", "model.max_tokens=24"),
    "fewshot": ("messages.csv", "model.family=fewshot", "model.max_tokens=24", "model.tuning_steps=2"),
}


@pytest.fixture(scope="module")
def run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, checkpoint: Callable[[str], Path]
) -> tagline.Run:
    """A small model of the family that the test is about, with its test rows."""
    data, *settings = FAMILIES[request.param]
    pretrained = [] if request.param == "lstm" else [f"model.pretrained={checkpoint('bert')}"]
    small = ["data.fraction=0.1", "training.baseline=false"] + (
        [] if request.param == "fewshot" else ["training.epochs=1"]
    )
    return tagline.train(SUPPORT / data, *settings, *pretrained, *small, runs=tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("run", FAMILIES, indirect=True)
def test_the_exported_form_gives_the_measured_answers_without_torch(run: tagline.Run) -> None:
    pair = run.report()["pair"]  # type: ignore[index]
    texts: list[Any] = [(text, "an answer") for text in TEXTS] if pair else TEXTS
    found = exporting.export(run.bundle, "onnx", measured=run.predictions())
    check = found["exports"]["float32"]
    assert check["equal_answers"] == 1.0
    assert check["largest_difference"] < 1e-4
    assert Bundle.load(run.bundle).manifest.exports == found["exports"]
    printed = run_bare(
        f"""
import json, tagline
texts = [tuple(text) if isinstance(text, list) else text for text in json.loads(sys.argv[1])]
print(json.dumps([prediction.to_dict() for prediction in tagline.load({str(run.bundle)!r}).predict(texts, sets=0.9)]))
""",
        json.dumps(texts),
    )
    after = [prediction.to_dict() for prediction in tagline.load(run.bundle).predict(texts, sets=0.9)]
    assert json.loads(printed) == after
    exported = Compiled(run.bundle, "float32").scores(texts)
    assert exported == pytest.approx(load_classifier(str(run.report()["family"]), run.bundle).scores(texts), abs=1e-4)  # type: ignore[index]


def test_what_cannot_be_exported_or_checked_is_said_and_the_bundle_stays(tmp_path: Path) -> None:
    run = tagline.train(SUPPORT / "messages.csv", "model.family=linear", runs=tmp_path)
    before = (run.bundle / "tagline.json").read_bytes()
    with pytest.raises(SpecError, match="no ONNX form yet"):
        exporting.export(run.bundle, "onnx", measured=run.predictions())
    with pytest.raises(RunError, match="could not be checked"):
        exporting.export(run.bundle, "onnx", measured=[])
    with pytest.raises(SpecError, match='no export "onx"; did you mean onnx'):
        exporting.export(run.bundle, "onx", measured=run.predictions())
    assert (run.bundle / "tagline.json").read_bytes() == before
    assert sorted(path.name for path in run.directory.iterdir() if path.name.startswith("bundle")) == ["bundle"]


def test_a_damaged_graph_is_said(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    reading = {"task": "single", "labels": 2, "pair": False, "max_tokens": 8, "long_texts": "start", "pad": 0}
    (tmp_path / "onnx" / "reading.json").write_text(json.dumps(reading))
    (tmp_path / "onnx" / "model.onnx").write_bytes(b"no graph")
    tokenizer = {"version": "1.0", "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(BundleError, match="cannot be loaded"):
        Compiled(tmp_path, "float32")
