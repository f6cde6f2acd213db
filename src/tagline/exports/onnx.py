"""ONNX: a network as a graph that onnxruntime runs without torch, in float32 and with weights of eight bits."""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tagline import tokens
from tagline.compiled import DIRECTORY, FILES, READING, Compiled
from tagline.errors import SpecError
from tagline.models import Classifier

OPSET = 17
EXAMPLES = ("a short text", "a text that is somewhat longer than the short one")


class Onnx:
    """Export `onnx`."""

    def write(self, classifier: Classifier, directory: Path) -> None:
        """The graph in both precisions, and what its inputs mean."""
        learner: Any = getattr(classifier, "learner", None)
        if learner is None:
            families = "encoder, lstm and fewshot"
            raise SpecError(f"{type(classifier).__name__} has no ONNX form yet", hint=f"families that have: {families}")
        place = directory / DIRECTORY
        place.mkdir(exist_ok=True)
        with _quiet():
            _graph(learner, place / FILES["float32"])
            _eight_bits(place / FILES["float32"], place / FILES["int8"])
        (place / READING).write_text(json.dumps(asdict(learner.reading), indent=2) + "\n", "utf-8")

    def forms(self, directory: Path) -> dict[str, Any]:
        """Both precisions."""
        return {precision: Compiled(directory, precision) for precision in FILES}  # type: ignore[arg-type]


def _graph(learner: Any, path: Path) -> None:
    """Trace the network on two texts of different lengths; rows and tokens stay free."""
    import torch

    reading = learner.reading
    texts = [(text, text) for text in EXAMPLES] if reading.pair else EXAMPLES
    sequences = tokens.in_memory(learner.reader.read(texts), with_types=reading.types)
    inputs = sequences.padded(np.arange(2), pad=reading.pad)
    names = list(inputs)

    class ByPosition(torch.nn.Module):
        """The exporter hands over inputs without their names."""

        def __init__(self, network: torch.nn.Module) -> None:
            super().__init__()
            self.network = network

        def forward(self, *values: torch.Tensor) -> Any:
            """The logits of a batch."""
            return self.network(**dict(zip(names, values, strict=True)))

    network = learner.network.cpu().eval()
    free = {name: {0: "rows", 1: "tokens"} for name in names} | {"logits": {0: "rows"}}
    torch.onnx.export(
        ByPosition(network), tuple(torch.from_numpy(value) for value in inputs.values()), str(path), dynamo=False,
        input_names=names, output_names=["logits"], dynamic_axes=free, opset_version=OPSET,
    )  # fmt: skip


def _eight_bits(source: Path, target: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(source, target, weight_type=QuantType.QInt8, per_channel=True)


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporters speak of what concerns their authors."""
    before = logging.root.level
    logging.root.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.root.setLevel(before)
