"""transformers: a directory that `AutoModelForSequenceClassification` loads with the right head and labels."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tagline.errors import PlaceError, RunError, SpecError
from tagline.exports import SIGNATURE
from tagline.models import scores_of
from tagline.prediction.bundle import Bundle, load_classifier
from tagline.storage import atomic

if TYPE_CHECKING:
    from torch import nn

    from tagline.data.texts import Text

CARD = "README.md"
FAMILIES = ("encoder", "fewshot")
HEADS = {
    "albert": ("albert.pooler", "tanh", "classifier"),
    "bert": ("bert.pooler.dense", "tanh", "classifier"),
    "camembert": ("classifier.dense", "tanh", "classifier.out_proj"),
    "deberta": ("pooler.dense", "gelu", "classifier"),
    "deberta-v2": ("pooler.dense", "gelu", "classifier"),
    "distilbert": ("pre_classifier", "relu", "classifier"),
    "electra": ("classifier.dense", "gelu", "classifier.out_proj"),
    "mpnet": ("classifier.dense", "tanh", "classifier.out_proj"),
    "roberta": ("classifier.dense", "tanh", "classifier.out_proj"),
    "xlm-roberta": ("classifier.dense", "tanh", "classifier.out_proj"),
}
"""By model type: the layer between the first token's state and the last layer, its activation, and the last layer."""
SMALL = 2.0**-12
"""Scale of logits before a tanh, which changes numbers that small by less than float32's precision."""
CLOSE = 1e-4
"""The largest difference allowed between scores of the directory and the bundle's."""
READ_ME = """{signature}: a model for transformers

```python
from transformers import pipeline

classify = pipeline("text-classification", {place!r}, top_k=None, truncation=True)
```

Labels and scores are those of the bundle's model, checked on {rows} texts. Its decision layer is not part of this
directory: scores are not calibrated, and nothing here knows the bundle's thresholds, abstention and sets.
"""


class Transformers:
    """The export `transformers`."""

    signed: ClassVar[str] = CARD
    needs_weights: ClassVar[bool] = True

    def pack(self, directory: Path) -> None:
        """Save model and tokenizer in the format of transformers, without the bundle itself."""
        bundle = directory / "bundle"
        loaded = Bundle.load(bundle)
        try:
            _convert_model(loaded, directory)
        except ImportError as error:
            hint = 'pip install "tagline[train]"'
            raise PlaceError(
                f"an export to transformers needs {error.name}, which is not installed", hint=hint
            ) from error
        atomic.remove_directory(bundle)
        (directory / CARD).write_text(f"{SIGNATURE}\n", "utf-8")

    def check(self, directory: Path, bundle: Bundle, texts: "Sequence[Text]") -> None:
        """Raise RunError if the directory, loaded by transformers, gives other scores than the bundle's own model."""
        expected = load_classifier(bundle.manifest.family, bundle.directory).scores(texts)
        logits, names = _load_and_score(directory, texts)
        largest = float(np.abs(scores_of(logits, task=bundle.manifest.task) - expected).max())
        if names != list(bundle.manifest.labels) or not largest < CLOSE:
            raise RunError(f"what was written for transformers gives other scores (by up to {largest:.2g})")
        text = READ_ME.format(signature=SIGNATURE, place=directory.name, rows=len(texts))
        (directory / CARD).write_text(text, "utf-8")

    def deliver(self, directory: Path) -> dict[str, str]:
        """Return a command that classifies a text."""
        code = f'from transformers import pipeline; print(pipeline("text-classification", "{directory}")("a text"))'
        return {"next": f"python -c {quote(code)}"}


def _convert_model(bundle: Bundle, target: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast

    manifest = bundle.manifest
    if manifest.family not in FAMILIES:
        hint = f"those that have: {', '.join(FAMILIES)}; tagline export --to onnx runs anywhere"
        raise SpecError(f"family {manifest.family} has no form in transformers", hint=hint)
    model: Any = load_classifier(manifest.family, bundle.directory)
    network, reading = model.network, model.learner.reading
    config = network.encoder.config
    _check_form(network, reading, config.model_type, family=manifest.family, labels=len(manifest.labels))
    config.id2label = dict(enumerate(manifest.labels))
    config.label2id = {name: number for number, name in enumerate(manifest.labels)}
    is_multi = manifest.task == "multi"
    config.problem_type = "multi_label_classification" if is_multi else "single_label_classification"
    converted = AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    problems = converted.base_model.load_state_dict(network.encoder.state_dict(), strict=False)
    if problems.unexpected_keys or any("pooler" not in key for key in problems.missing_keys):
        raise SpecError(f"{type(converted).__name__} does not hold this encoder", hint="tagline export --to onnx does")
    _set_head(converted, network.head, config.model_type)
    converted.save_pretrained(target)
    tokenizer = model.learner.tokenizer
    inputs = ["input_ids", "attention_mask", *(["token_type_ids"] if reading.types else [])]
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        model_max_length=reading.max_tokens,
        pad_token=tokenizer.id_to_token(reading.pad),
        model_input_names=inputs,
    ).save_pretrained(target)


def _check_form(network: Any, reading: Any, model_type: str, *, family: str, labels: int) -> None:
    """Raise SpecError for a network that no class of transformers computes."""
    from torch import nn

    problem = ""
    hint = "tagline export --to onnx gives its answers anywhere"
    if not isinstance(network.head, nn.Linear):
        kind = "is an LSTM" if family == "encoder" else "reads embeddings of length 1"
        problem = f"its head {kind}, which no class of transformers has"
    elif network.pooling != "first":
        problem = "it pools by the mean of all tokens, and transformers' classes read the first token alone"
        hint = f"train with model.pooling=first; {hint}"
    elif reading.long_texts != "start":
        problem = (
            f'it reads long texts by model.long_texts = "{reading.long_texts}", and transformers their start alone'
        )
    elif model_type not in HEADS:
        problem = f"transformers' class for {model_type} computes something else between encoder and logits"
    elif labels * 2 > network.head.in_features:
        problem = f"transformers' class for {model_type} has no room for {labels} labels"
    if problem:
        raise SpecError(f"this bundle has no form in transformers: {problem}", hint=hint)


def _set_head(converted: "nn.Module", head: "nn.Linear", model_type: str) -> None:
    """Set the two layers around an activation so that they compute what the one layer of the bundle does.

    For an activation f with f(x) - f(-x) = x the first layer computes the logits and their negatives; the tanh of a
    small number is that number.
    """
    import torch

    inner_name, activation, outer_name = HEADS[model_type]
    inner: Any = converted.get_submodule(inner_name)
    outer: Any = converted.get_submodule(outer_name)
    labels = head.out_features
    signs = {0: SMALL} if activation == "tanh" else {0: 1.0, labels: -1.0}
    with torch.no_grad():
        for parameter in (inner.weight, inner.bias, outer.weight, outer.bias):
            parameter.zero_()
        for start, scale in signs.items():
            inner.weight[start : start + labels] = scale * head.weight
            inner.bias[start : start + labels] = scale * head.bias
            outer.weight[:, start : start + labels] = torch.eye(labels) / scale


def _load_and_score(directory: Path, texts: "Sequence[Text]") -> tuple[Any, list[str]]:
    """Return the logits that transformers computes from this directory alone, and its labels."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(directory, local_files_only=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    logits = []
    with torch.inference_mode():
        for text in texts:
            sides = (text,) if isinstance(text, str) else text
            logits.append(model(**tokenizer(*sides, truncation=True, return_tensors="pt")).logits.numpy())
    return np.concatenate(logits), [model.config.id2label[number] for number in range(model.config.num_labels)]
