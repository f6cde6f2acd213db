"""A bundle and transformers: never mistaken for a model of its own, and exported to one where that can compute it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tagline.errors import SpecError
from tagline.exports import pack
from tagline.models import scores_of
from tagline.models.encoder import Encoder, EncoderOptions
from tagline.prediction import bundle
from tagline.prediction.decisions import DecisionLayer
from tagline.spec import Training

pytestmark = pytest.mark.trains

LABELS = ("billing", "delivery", "praise")
TEXTS = ["where is my refund", "the parcel is late", "thank you so much", "late " * 60]
Checkpoint = Callable[[str], Path]


def bundle_of(
    model: Any, directory: Path, *, family: str = "encoder", task: Any = "single", pair: bool = False
) -> Path:
    """A bundle of this model, with nothing measured."""
    layer = DecisionLayer(task, LABELS, thresholds=(0.5,) * 3 if task == "multi" else ())

    def fill(scratch: Path) -> dict[str, Any]:
        model.save(scratch)
        return {
            "tagline": "0",
            "task": task,
            "pair": pair,
            "labels": LABELS,
            "family": family,
            "figures": {},
            "spec": {"data": {"text": "text"}},
            "fingerprint": "",
            "decisions": layer.to_dict(),
        }

    bundle.write(directory, fill=fill, card=lambda _: "a card")
    return directory


def encoder(pretrained: Path, *, task: Any = "single", pair: bool = False, **options: Any) -> Encoder:
    """An encoder whose head is large enough to tell texts apart."""
    settings = EncoderOptions(pretrained=str(pretrained), max_tokens=24, **options)
    model = Encoder.create(settings, training=Training(), task=task, labels=LABELS, pair=pair)
    with torch.no_grad():
        model.network.output.weight.mul_(50)
        model.network.output.bias.copy_(torch.tensor([0.3, -0.2, 0.1]))
    return model


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "deberta-v2", "mpnet", "albert"])
def test_transformers_computes_the_scores_of_the_bundle(kind: str, checkpoint: Checkpoint, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = encoder(checkpoint(kind), pooling="first")
    made = pack.pack(bundle_of(model, tmp_path / "bundle"), "transformers", output=tmp_path / "out")
    assert Path(made["output"]) == tmp_path / "out"
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert theirs.config.id2label == dict(enumerate(LABELS))
    with torch.inference_mode():
        logits = theirs(**tokenizer(TEXTS, truncation=True, padding=True, return_tensors="pt")).logits.numpy()
    scores = model.scores(TEXTS)
    assert scores.std() > 0.01
    assert np.abs(scores_of(logits, task="single") - scores).max() < 1e-4
    assert not (tmp_path / "out" / "bundle").exists()
    assert pack.pack(tmp_path / "bundle", "transformers", output=tmp_path / "out")["files"]["model.safetensors"]


def test_pairs_and_several_labels_are_exported_too(checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = encoder(checkpoint("bert"), pooling="first", task="multi", pair=True)
    place = bundle_of(model, tmp_path / "bundle", task="multi", pair=True)
    rows = [{"text": [text, "an answer " * 20]} for text in TEXTS]
    pack.pack(place, "transformers", output=tmp_path / "out", measured=rows)
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["problem_type"] == "multi_label_classification"
    assert "checked on 4 texts" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"pooling": "mean"}, "pools by the mean of all tokens"),
        ({"head": "lstm"}, "its head is an LSTM"),
        ({"pooling": "first", "long_texts": "windows"}, "model.long_texts"),
    ],
)
def test_what_transformers_cannot_compute_is_refused(
    options: dict[str, Any], problem: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    place = bundle_of(encoder(checkpoint("bert"), **options), tmp_path / "bundle")
    with pytest.raises(SpecError, match=problem):
        pack.pack(place, "transformers", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_only_an_earlier_export_is_replaced(checkpoint: Checkpoint, tmp_path: Path) -> None:
    place = bundle_of(encoder(checkpoint("bert"), pooling="first"), tmp_path / "bundle")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(SpecError, match="is there already"):
        pack.pack(place, "transformers", output=tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_modernbert_has_no_such_form(checkpoint: Checkpoint, tmp_path: Path) -> None:
    place = bundle_of(encoder(checkpoint("modernbert"), pooling="first"), tmp_path / "modern")
    with pytest.raises(SpecError, match="computes something else between encoder and logits"):
        pack.pack(place, "transformers", output=tmp_path / "out")


def test_a_bundle_is_not_mistaken_for_a_model_of_transformers(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """It was loaded with a random head and LABEL_0. A further training can start from it all the same."""
    from transformers import AutoModelForSequenceClassification

    model = encoder(checkpoint("bert"))
    place = bundle_of(model, tmp_path / "bundle")
    with pytest.raises(ValueError, match="model type `tagline`"):
        AutoModelForSequenceClassification.from_pretrained(place)
    again = Encoder.create(
        EncoderOptions(pretrained=str(place), max_tokens=24),
        training=Training(),
        task="single",
        labels=LABELS,
        pair=False,
    )
    for name, tensor in model.network.encoder.state_dict().items():
        assert torch.equal(tensor, again.network.encoder.state_dict()[name])


def test_a_bundle_of_an_older_tagline_loads(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Its config.json is the encoder's own."""
    model = encoder(checkpoint("bert"))
    model.save(tmp_path)
    model.network.encoder.config.to_json_file(tmp_path / "config.json")
    assert np.array_equal(Encoder.load(tmp_path).scores(TEXTS), model.scores(TEXTS))
