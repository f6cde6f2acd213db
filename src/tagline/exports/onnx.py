"""ONNX: a network as a graph that onnxruntime runs without torch, in float32 and in int8."""

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
"""The largest difference between the logits of a fused graph and those of the network; else it is not used."""
SAMPLES = 128
"""Texts by which the activation ranges of int8 are calibrated."""


class Onnx:
    """The export `onnx`."""

    def write(self, classifier: Classifier, directory: Path, *, family: str, samples: "Sequence[Text]") -> None:
        """Write the graph in both precisions."""
        if not isinstance(classifier, Exportable):
            raise SpecError(f"family {family} has no ONNX form")
        target = directory / DIRECTORY
        target.mkdir(exist_ok=True)
        preprocessor = registry.find("models", family).load_preprocessor(directory)
        examples = [(text, text) for text in EXAMPLES] if preprocessor.pair else EXAMPLES
        inputs = preprocessor.read(examples).arrays(np.arange(2))
        with _silence_exporters():
            try:
                network = classifier.graph()
                expected = _trace_network(network, inputs, target / FILES["float32"])
                _fuse_operations(target / FILES["float32"], inputs, expected, **_read_attention_sizes(network))
                calibration_inputs = _sample_inputs(preprocessor, samples if len(samples) else examples)
                int8.write_int8(target / FILES["float32"], target / FILES["int8"], calibration_inputs)
            except ImportError as error:
                hint = 'pip install "tagline[train]"'
                raise PlaceError(f"an ONNX export needs {error.name}, which is not installed", hint=hint) from error
            except Exception as error:  # errors of torch, onnx and onnxruntime have no base class in common
                problem = f"this {family} network has no ONNX form: {first_line(error)}"
                raise RunError(problem, hint="it predicts as it is, with torch") from error

    def forms(self, directory: Path, *, family: str) -> Mapping[str, Scorer]:
        """Load both precisions."""
        return {precision: OnnxScorer(directory, family, precision) for precision in FILES}


def _trace_network(network: "nn.Module", inputs: Mapping[str, NDArray[Any]], path: Path) -> NDArray[np.float32]:
    """Write a network's graph, with dynamic rows and lengths; return its logits of the examples."""
    import torch

    names = list(inputs)

    class ByPosition(torch.nn.Module):
        """Takes inputs by position, as the exporter passes them."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *values: torch.Tensor) -> Any:
            """Compute the logits of a batch."""
            return self.network(**dict(zip(names, values, strict=True)))

    wrapped = ByPosition().cpu().eval()
    values = tuple(torch.from_numpy(value) for value in inputs.values())
    with torch.inference_mode():
        logits: NDArray[np.float32] = wrapped(*values).numpy()
    dynamic_axes = {name: {0: "rows", 1: "length"} for name in names} | {"logits": {logits.ndim - 2: "rows"}}
    torch.onnx.export(
        wrapped,
        values,
        str(path),
        dynamo=False,
        input_names=names,
        output_names=["logits"],
        dynamic_axes=dynamic_axes,
        opset_version=OPSET,
    )
    return logits


def _read_attention_sizes(network: "nn.Module") -> dict[str, int]:
    """Return the number of attention heads and the hidden size; zeros where they are unknown."""
    configs = (getattr(module, "config", None) for module in network.modules())
    encoder_config = next((config for config in configs if hasattr(config, "num_attention_heads")), None)
    return {
        "num_heads": getattr(encoder_config, "num_attention_heads", 0),
        "hidden_size": getattr(encoder_config, "hidden_size", 0),
    }


def _fuse_operations(
    path: Path, inputs: Mapping[str, NDArray[Any]], expected: NDArray[np.float32], *, num_heads: int, hidden_size: int
) -> None:
    """Fuse the operations of attention, normalisation and activation.

    They are found by pattern matching: if the result differs, or nothing matches, the graph is left as it was.
    """
    from onnxruntime import InferenceSession
    from onnxruntime.transformers import optimizer
    from onnxruntime.transformers.fusion_options import FusionOptions

    fused = path.with_suffix(".fused")
    options = FusionOptions("bert")
    options.enable_skip_layer_norm = options.enable_bias_skip_layer_norm = False  # see onnx_runtime.UNHELPFUL
    options.enable_bias_gelu = False  # an int8 product adds the bias itself, at no cost
    try:
        optimized = optimizer.optimize_model(
            str(path), "bert", num_heads=num_heads, hidden_size=hidden_size, opt_level=0, optimization_options=options
        )
        optimized.save_model_to_file(str(fused))
        logits = InferenceSession(str(fused), providers=["CPUExecutionProvider"]).run(None, dict(inputs))[0]
        if np.abs(logits - expected).max() < CLOSE:
            fused.replace(path)
    except Exception:  # noqa: S110 - an architecture without known patterns: the graph is kept, and slower
        pass
    finally:
        fused.unlink(missing_ok=True)


def _sample_inputs(preprocessor: Preprocessor, texts: "Sequence[Text]") -> list[dict[str, NDArray[Any]]]:
    """Return the inputs of evenly spaced sample texts, one sequence each."""
    numbers = {int(number) for number in np.linspace(0, len(texts) - 1, SAMPLES)}
    inputs = preprocessor.read([texts[number] for number in sorted(numbers)])
    return [inputs.arrays(np.array([number])) for number in range(len(inputs.lengths))]


@contextmanager
def _silence_exporters() -> Iterator[None]:
    """Silence the exporters' warnings and logs, which concern their developers."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
