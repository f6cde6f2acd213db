"""Graphs in eight bits."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

from tagline.exports import int8
from tagline.prediction.onnx_runtime import FIXED_SCALES

CHANNELS, LABELS = 16, 3
OUTLIER = 5


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def values(random: np.random.Generator, rows: int) -> Any:
    """What encoders look like inside: one channel that is far larger than the others."""
    found = random.standard_normal((1, rows, CHANNELS)).astype(np.float32)
    found[..., OUTLIER] *= 40
    return found


@pytest.fixture
def graph(tmp_path: Path, random: np.random.Generator) -> Path:
    """Two products with a bias each, of which the second makes scores."""
    weights = {
        "wide": random.standard_normal((CHANNELS, 32)),
        "wide_bias": random.standard_normal(32),
        "head": random.standard_normal((32, LABELS)),
        "head_bias": random.standard_normal(LABELS),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "wide"], ["a"], name="first"),
        helper.make_node("Add", ["a", "wide_bias"], ["b"], name="first bias"),
        helper.make_node("Tanh", ["b"], ["c"]),
        helper.make_node("MatMul", ["c", "head"], ["d"], name="last"),
        helper.make_node("Add", ["d", "head_bias"], ["y"], name="last bias"),
    ]
    made = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", "length", CHANNELS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    path = tmp_path / "graph.onnx"
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def answers(path: Path, x: Any) -> Any:
    return InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def test_an_outlying_channel_does_not_take_the_steps_of_the_others(
    graph: Path, random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = [{"x": values(random, 20)} for _ in range(20)]
    x = values(random, 200)
    expected = answers(graph, x)
    errors = []
    for outlying in (int8.OUTLYING, 1e9):
        monkeypatch.setattr(int8, "OUTLYING", outlying)
        target = graph.with_suffix(f".{outlying}.onnx")
        int8.write_int8(graph, target, samples)
        errors.append(float(np.abs(answers(target, x) - expected).mean()))
    evened, not_evened = errors
    assert evened < not_evened / 3


def test_scales_are_fixed_the_bias_is_inside_and_the_scores_product_stays(
    graph: Path, random: np.random.Generator
) -> None:
    target = graph.with_suffix(".int8.onnx")
    int8.write_int8(graph, target, [{"x": values(random, 20)} for _ in range(5)])
    model = onnx.load(target)
    assert FIXED_SCALES in {each.key for each in model.metadata_props}
    kinds = [node.op_type for node in model.graph.node]
    assert kinds == ["Mul", "QuantizeLinear", "MatMulIntegerToFloat", "Tanh", "MatMul", "Add"]
    (in_bytes,) = [each for each in model.graph.initializer if each.data_type == TensorProto.INT8]
    assert abs(numpy_helper.to_array(in_bytes).astype(int)).max() == int8.LARGEST_WEIGHT
    assert "wide" not in {each.name for each in model.graph.initializer}
    rows = values(random, 30)
    company = np.concatenate([rows, 100 * rows])
    assert answers(target, company)[:1] == pytest.approx(answers(target, rows), abs=1e-6)


def test_weights_that_two_products_share_are_kept_once_and_as_they_are(
    graph: Path, random: np.random.Generator
) -> None:
    model = onnx.load(graph)
    again = helper.make_node("MatMul", ["x", "wide"], ["again"], name="again")
    both = helper.make_node("Add", ["b", "again"], ["both"])
    model.graph.node.insert(2, again)
    model.graph.node.insert(3, both)
    model.graph.node[4].input[0] = "both"
    onnx.save(model, graph)
    target = graph.with_suffix(".int8.onnx")
    int8.write_int8(graph, target, [{"x": values(random, 20)} for _ in range(5)])
    found = onnx.load(target).graph
    assert sum(each.data_type == TensorProto.INT8 for each in found.initializer) == 1
    assert "Mul" not in {node.op_type for node in found.node}
    x = values(random, 10)
    assert np.corrcoef(answers(target, x).ravel(), answers(graph, x).ravel())[0, 1] > 0.98


def test_channels_that_are_never_used_and_products_without_a_name_do_no_harm(
    graph: Path, random: np.random.Generator
) -> None:
    model = onnx.load(graph)
    for node in model.graph.node:
        node.name = ""
    onnx.save(model, graph)

    def sparse(rows: int) -> Any:
        found = values(random, rows)
        found[..., : CHANNELS // 2 + 3] = 0
        return found

    target = graph.with_suffix(".int8.onnx")
    int8.write_int8(graph, target, [{"x": sparse(20)} for _ in range(5)])
    x = sparse(50)
    assert np.abs(answers(target, x) - answers(graph, x)).mean() < 0.1
    int8.write_int8(graph, target, [{"x": np.zeros((1, 3, CHANNELS), np.float32)}])
    zeros = np.zeros((2, 5, CHANNELS), np.float32)
    assert answers(target, zeros) == pytest.approx(answers(graph, zeros), abs=1e-6)
