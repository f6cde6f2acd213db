"""ONNX: a network as a graph that onnxruntime runs without torch, in float32 and with weights of eight bits."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tagline import registry
from tagline.errors import PlaceError, RunError, SpecError, first_line
from tagline.exports import int8
from tagline.models import Classifier, Exportable, Preprocessor, Scorer
from tagline.prediction.onnx_runtime import DIRECTORY, FILES, OnnxScorer

if TYPE_CHECKING:
    from torch import nn

    from tagline.data.texts import Text

OPSET = 17
EXAMPLES = ("a short text", "a text that is somewhat longer than the short one")
CLOSE = 1e-3
"""Logits of a graph whose operations were fused are within this of those of the network, or it is not used."""
SAMPLES = 128
"""Texts that show how large the numbers in a network are."""


class Onnx:
    """Export `onnx`."""

    def write(self, classifier: Classifier, directory: Path, *, family: str, samples: "Sequence[Text]") -> None:
        """The graph in both precisions."""
        if not isinstance(classifier, Exportable):
            raise SpecError(f"family {family} has no ONNX form")
        place = directory / DIRECTORY
        place.mkdir(exist_ok=True)
        preprocessor = registry.find("models", family).load_preprocessor(directory)
        examples = [(text, text) for text in EXAMPLES] if preprocessor.pair else EXAMPLES
        inputs = preprocessor.read(examples).arrays(np.arange(2))
        with _silence_exporters():
            try:
                network = classifier.graph()
                expected = _trace_network(network, inputs, place / FILES["float32"])
                _fuse_operations(place / FILES["float32"], inputs, expected, **_read_attention_sizes(network))
                alone = _sample_inputs(preprocessor, samples if len(samples) else examples)
                int8.write_int8(place / FILES["float32"], place / FILES["int8"], alone)
            except ImportError as error:
                hint = 'pip install "tagline[train]"'
                raise PlaceError(f"an ONNX export needs {error.name}, which is not installed", hint=hint) from error
            except Exception as error:  # those of torch, onnx and onnxruntime have nothing in common
                problem = f"this {family} network has no ONNX form: {first_line(error)}"
                raise RunError(problem, hint="it predicts as it is, with torch") from error

    def forms(self, directory: Path, *, family: str) -> Mapping[str, Scorer]:
        """Both precisions."""
        return {precision: OnnxScorer(directory, family, precision) for precision in FILES}


def _trace_network(network: "nn.Module", inputs: Mapping[str, NDArray[Any]], path: Path) -> NDArray[np.float32]:
    """Write a network's graph, in which rows and lengths stay free; returns its logits of the examples."""
    import torch

    names = list(inputs)

    class ByPosition(torch.nn.Module):
        """The exporter hands over inputs without their names."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *values: torch.Tensor) -> Any:
            """The logits of a batch."""
            return self.network(**dict(zip(names, values, strict=True)))

    whole = ByPosition().cpu().eval()
    values = tuple(torch.from_numpy(value) for value in inputs.values())
    with torch.inference_mode():
        logits: NDArray[np.float32] = whole(*values).numpy()
    free = {name: {0: "rows", 1: "length"} for name in names} | {"logits": {logits.ndim - 2: "rows"}}
    torch.onnx.export(
        whole,
        values,
        str(path),
        dynamo=False,
        input_names=names,
        output_names=["logits"],
        dynamic_axes=free,
        opset_version=OPSET,
    )
    return logits


def _read_attention_sizes(network: "nn.Module") -> dict[str, int]:
    """How many heads its attention has, and how wide they are together; zeros where it has none, or does not say."""
    configs = (getattr(module, "config", None) for module in network.modules())
    found = next((config for config in configs if hasattr(config, "num_attention_heads")), None)
    return {"num_heads": getattr(found, "num_attention_heads", 0), "hidden_size": getattr(found, "hidden_size", 0)}


def _fuse_operations(
    path: Path, inputs: Mapping[str, NDArray[Any]], expected: NDArray[np.float32], *, num_heads: int, hidden_size: int
) -> None:
    """Make one operation of the many that attention, normalisation and activation consist of.

    They are found by their pattern: where that led to another result, or nowhere, the graph stays as it was.
    """
    from onnxruntime import InferenceSession
    from onnxruntime.transformers import optimizer
    from onnxruntime.transformers.fusion_options import FusionOptions

    fused = path.with_suffix(".fused")
    options = FusionOptions("bert")
    options.enable_skip_layer_norm = options.enable_bias_skip_layer_norm = False  # see onnx_runtime.UNHELPFUL
    options.enable_bias_gelu = False  # a product in eight bits adds the bias on its way, which takes no time
    try:
        found = optimizer.optimize_model(
            str(path), "bert", num_heads=num_heads, hidden_size=hidden_size, opt_level=0, optimization_options=options
        )
        found.save_model_to_file(str(fused))
        logits = InferenceSession(str(fused), providers=["CPUExecutionProvider"]).run(None, dict(inputs))[0]
        if np.abs(logits - expected).max() < CLOSE:
            fused.replace(path)
    except Exception:  # noqa: S110 - of an architecture that its patterns do not foresee: the graph stays, and is slower
        pass
    finally:
        fused.unlink(missing_ok=True)


def _sample_inputs(preprocessor: Preprocessor, texts: "Sequence[Text]") -> list[dict[str, NDArray[Any]]]:
    """Sequences of texts from all over these, each by itself."""
    some = {int(number) for number in np.linspace(0, len(texts) - 1, SAMPLES)}
    read = preprocessor.read([texts[number] for number in sorted(some)])
    return [read.arrays(np.array([number])) for number in range(len(read.lengths))]


@contextmanager
def _silence_exporters() -> Iterator[None]:
    """The exporters speak of what concerns their authors."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
