"""int8 quantisation of a graph: its weights, and its activations at fixed scales calibrated on sample texts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tagline.prediction.onnx_runtime import FIXED_SCALES

if TYPE_CHECKING:
    import onnx

FLOAT = 1
"""ONNX's number of the type, which fused operations do not declare."""
LARGEST_WEIGHT = 63
"""Largest quantised weight, of 127. A processor without int8 instructions (VNNI) adds two products in 16 bits, where
full-range weights saturate silently: a processor could then serve other scores than another has measured."""
OUTLYING = 3.0
"""A channel more than this many times the median one is divided before a product."""
MOST_DIVIDED = 32.0
"""The largest divisor: weights multiplied by more would leave the others of their column no resolution."""
MARGIN = 1.1
"""Headroom of the scales for values a little larger than in any sample."""
RECURRENT = ("LSTM", "GRU", "RNN")
Inputs = Mapping[str, NDArray[Any]]


def write_int8(source: Path, target: Path, samples: Sequence[Inputs]) -> None:
    """Write the graph in int8. Each sample is one text's inputs.

    A recurrent network computes its scales dynamically in each call, so that its texts are computed one by one.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    kinds = {node.op_type for node in onnx.load(source, load_external_data=False).graph.node}
    is_recurrent = bool(kinds & set(RECURRENT))
    quantize_dynamic(
        source,
        target,
        weight_type=QuantType.QInt8,
        per_channel=True,
        reduce_range=True,
        op_types_to_quantize=None if is_recurrent else ["EmbedLayerNormalization", "Gather"],
        extra_options={"DefaultTensorType": FLOAT},
    )
    if not is_recurrent:
        model = onnx.load(target)
        _GraphQuantiser(model, samples).quantise()
        model.metadata_props.add(key=FIXED_SCALES, value="fixed")
        onnx.save(model, target)


class _GraphQuantiser:
    """Quantises the matrix products of a graph, by the observed ranges of their inputs."""

    def __init__(self, model: "onnx.ModelProto", samples: Sequence[Inputs]) -> None:
        self.model, self.graph = model, model.graph
        self.weights = {each.name: each for each in self.graph.initializer}
        self.uses = Counter(name for node in self.graph.node for name in node.input)
        products = [
            node
            for node in self.graph.node
            if node.op_type in ("MatMul", "Attention")
            and node.input[1] in self.weights
            and len(self.weights[node.input[1]].dims) == 2
        ]
        self.products = products[:-1] or products  # the last one makes the scores: quantising it saves no time
        self.ranges = _observe_ranges(model, sorted({node.input[0] for node in self.products}), samples)

    def quantise(self) -> None:
        """Replace each product by one in int8."""
        from onnx import helper

        for node in self.products:
            name = node.output[0]
            lowest, highest = self._even_channels(node)
            scale = max(MARGIN * (highest - lowest) / 255, 1e-9)
            at = self._add_constant(f"{name}.scale", np.array(scale, np.float32))
            zero = self._add_constant(f"{name}.zero", np.array(round(-MARGIN * lowest / scale), np.uint8))
            self._insert_before(node, helper.make_node("QuantizeLinear", [node.input[0], at, zero], [f"{name}.input"]))
            weight, weight_scale = self._quantise_weight(node.input[1])
            if node.op_type == "Attention":
                rest = [*node.input[2:4], ""][:2]  # bias, and a mask where there is one
                inputs = [f"{name}.input", weight, rest[0], at, weight_scale, rest[1], zero]
                node.op_type = "QAttention"
                for attribute in [each for each in node.attribute if each.name == "qkv_hidden_sizes"]:
                    node.attribute.remove(attribute)
            else:
                inputs = [f"{name}.input", weight, at, weight_scale, zero, "", self._absorb_bias(node)]
                node.op_type, node.domain = "MatMulIntegerToFloat", "com.microsoft"
            del node.input[:]
            node.input.extend(inputs)
        used = {name for node in self.graph.node for name in node.input}
        for each in [each for each in self.graph.initializer if each.name not in used]:
            self.graph.initializer.remove(each)
        if not any(each.domain == "com.microsoft" for each in self.model.opset_import):
            self.model.opset_import.append(helper.make_opsetid("com.microsoft", 1))

    def _even_channels(self, node: "onnx.NodeProto") -> tuple[float, float]:
        """Divide outlying channels of a product's input, and multiply their weights; return the new range.

        Encoders have a few channels that are ten times as large as the others, whatever the text. In int8 they leave
        the others a handful of steps (SmoothQuant, Xiao and others 2023).
        """
        from onnx import helper, numpy_helper

        name = node.output[0]
        lowest, highest = self.ranges[node.input[0]]
        sizes = np.maximum(-lowest, highest)
        usual = np.median(sizes[sizes > 0]) if sizes.any() else 1.0
        divisors = np.clip(sizes / (OUTLYING * usual), 1, MOST_DIVIDED).astype(np.float32)
        # Attention has small errors, and a division takes time.
        if node.op_type == "MatMul" and divisors.max() > 1 and self.uses[node.input[1]] == 1:
            weight = self.weights[node.input[1]]
            weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * divisors[:, None], weight.name))
            factors = self._add_constant(f"{name}.share", 1 / divisors)
            self._insert_before(node, helper.make_node("Mul", [node.input[0], factors], [f"{name}.evened"]))
            node.input[0] = f"{name}.evened"
            lowest, highest = lowest / divisors, highest / divisors
        return min(float(lowest.min()), 0.0), max(float(highest.max()), 0.0)

    def _quantise_weight(self, name: str) -> tuple[str, str]:
        """Quantise a weight; return the names of its int8 values and of the scales of its columns."""
        from onnx import numpy_helper

        weight = numpy_helper.to_array(self.weights[name])
        scale = np.maximum(np.abs(weight).max(axis=0) / LARGEST_WEIGHT, 1e-12).astype(np.float32)
        return self._add_constant(f"{name}.bytes", np.round(weight / scale).astype(np.int8)), self._add_constant(
            f"{name}.scale", scale
        )

    def _absorb_bias(self, node: "onnx.NodeProto") -> str:
        """Remove the addition of a bias after a product, and return its name: the int8 product adds it itself."""
        after = [each for each in self.graph.node if node.output[0] in each.input]
        if len(after) != 1 or after[0].op_type != "Add":
            return ""
        other: str = next((name for name in after[0].input if name != node.output[0]), "")
        if other not in self.weights or len(self.weights[other].dims) != 1:
            return ""
        node.output[0] = after[0].output[0]
        self.graph.node.remove(after[0])
        return other

    def _add_constant(self, name: str, value: NDArray[Any]) -> str:
        from onnx import numpy_helper

        if name not in self.weights:
            self.weights[name] = numpy_helper.from_array(value, name)
            self.graph.initializer.append(self.weights[name])
        return name

    def _insert_before(self, node: "onnx.NodeProto", new: "onnx.NodeProto") -> None:
        self.graph.node.insert(list(self.graph.node).index(node), new)


def _observe_ranges(
    model: "onnx.ModelProto", names: Sequence[str], samples: Sequence[Inputs]
) -> dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Return the minimum and maximum of each channel of some values in a graph, over the samples."""
    import onnx
    from onnxruntime import InferenceSession

    if not names:
        return {}
    observed = onnx.ModelProto()
    observed.CopyFrom(model)
    del observed.graph.output[:]
    observed.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    session = InferenceSession(observed.SerializeToString(), providers=["CPUExecutionProvider"])
    lowest: dict[str, list[NDArray[np.float32]]] = {name: [] for name in names}
    highest: dict[str, list[NDArray[np.float32]]] = {name: [] for name in names}
    for sample in samples:
        for name, value in zip(names, session.run(None, dict(sample)), strict=True):
            rows = value.reshape(-1, value.shape[-1])
            lowest[name].append(rows.min(axis=0))
            highest[name].append(rows.max(axis=0))
    return {name: (np.min(lowest[name], axis=0), np.max(highest[name], axis=0)) for name in names}
