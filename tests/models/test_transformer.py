"""A small vision transformer, quantized by ONNX Runtime, runs in one part with the bits of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import dmlvk
from tests.models.networks import examine, quantize, saturates
from tests.onnx.models import HAS_THESE_NORMALIZATIONS
from tests.reference.onnx_runtime import ONNX_RUNTIME

SIDE, PATCH, TOKENS, WIDTH, HEADS, HIDDEN, BLOCKS, CLASSES = 16, 4, 17, 32, 4, 64, 1, 10


def transformer() -> onnx.ModelProto:
    """Patches by a convolution, a token of its own for the class, blocks of attention and of two products, a head."""
    generator = np.random.default_rng(0)
    constants: dict[str, np.ndarray] = {}
    nodes: list[onnx.NodeProto] = []

    def weights(*shape: int, mean: float = 0, spread: float = 0.15) -> str:
        name = f"w{len(constants)}"
        constants[name] = generator.normal(mean, spread, shape).astype(np.float32)
        return name

    def given(value: Any) -> str:
        name = f"c{len(constants)}"
        constants[name] = np.array(value, np.int64 if isinstance(value, list | int) else np.float32)
        return name

    def node(operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator}_{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def normalized(x: str) -> str:
        scale, bias = weights(WIDTH, mean=1), weights(WIDTH)
        return node("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-6)

    def product(x: str, rows: int, columns: int) -> str:
        return node("Add", node("MatMul", x, weights(rows, columns)), weights(columns))

    def attention(x: str) -> str:
        heads = node("Reshape", product(x, WIDTH, 3 * WIDTH), given([0, TOKENS, 3, HEADS, WIDTH // HEADS]))
        heads = node("Transpose", heads, perm=[2, 0, 3, 1, 4])
        query, key, value = (node("Gather", heads, given(k), axis=0) for k in range(3))
        scaled = node("Mul", query, given((WIDTH / HEADS) ** -0.5))
        shares = node("Softmax", node("MatMul", scaled, node("Transpose", key, perm=[0, 1, 3, 2])), axis=-1)
        joined = node("Transpose", node("MatMul", shares, value), perm=[0, 2, 1, 3])
        return product(node("Reshape", joined, given([0, TOKENS, WIDTH])), WIDTH, WIDTH)

    def gelu(x: str) -> str:
        part = node("Add", node("Erf", node("Div", x, given(2**0.5))), given(1.0))
        return node("Mul", node("Mul", x, part), given(0.5))

    patches = node("Conv", "image", weights(WIDTH, 3, PATCH, PATCH), weights(WIDTH), strides=[PATCH, PATCH])
    patches = node("Transpose", node("Reshape", patches, given([0, WIDTH, TOKENS - 1])), perm=[0, 2, 1])
    x = node("Add", node("Concat", weights(1, 1, WIDTH), patches, axis=1), weights(1, TOKENS, WIDTH))
    for _ in range(BLOCKS):
        x = node("Add", attention(normalized(x)), x)
        x = node("Add", product(gelu(product(normalized(x), WIDTH, HIDDEN)), HIDDEN, WIDTH), x)
    token = node("Gather", normalized(x), given(0), axis=1)
    scores = node("Gemm", token, weights(WIDTH, CLASSES), weights(CLASSES))
    graph = helper.make_graph(
        nodes,
        "transformer",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [1, 3, SIDE, SIDE])],
        [helper.make_tensor_value_info(scores, onnx.TensorProto.FLOAT, [1, CLASSES])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.skipif(not HAS_THESE_NORMALIZATIONS, reason="an older ONNX Runtime rounds otherwise")
def test_a_transformer_runs_in_one_part(device: dmlvk.Device, tmp_path: Path) -> None:
    source, target = tmp_path / "source.onnx", tmp_path / "quantized.onnx"
    onnx.save(transformer(), source)
    generator = np.random.default_rng(1)
    samples = [{"image": generator.standard_normal((1, 3, SIDE, SIDE)).astype(np.float32)} for _ in range(8)]
    reduced = bool(ONNX_RUNTIME.call("a product", saturates))
    ONNX_RUNTIME.call("the quantization of a transformer", quantize, source, target, "QDQ", samples, reduced)
    findings = ONNX_RUNTIME.call("a transformer", examine, device.name, target, samples[:2], seconds=600.0)
    np.testing.assert_array_equal(findings.found, findings.optimized, strict=True)
    assert not [f"{name}: {text}" for name, text in findings.nodes if text]
    assert not [operator for operator, where in findings.places if where == "host"]
    assert findings.parts == 1
    assert np.unique(findings.found).size > CLASSES
