"""Old networks of ONNX's own package, with random weights and quantized by ONNX Runtime, run in few parts.

They carry floats from block to block: Sum and Relu between DequantizeLinear and QuantizeLinear.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import dmlvk
from tests.models.networks import examine, quantize, saturates
from tests.reference.onnx_runtime import ONNX_RUNTIME

SECONDS = 900.0
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
INPUT = (1, 3, 224, 224)
# By network and format, the parts of a run in which the device computes whatever it can. As QDQ, the host has the last
# sum, ReLU and AveragePool in floats, which ONNX Runtime may join.
PARTS = {
    ("resnet50", "QOperator"): 1,
    ("resnet50", "QDQ"): 3,
    ("shufflenet", "QOperator"): 1,
    ("shufflenet", "QDQ"): 3,
    ("squeezenet", "QOperator"): 1,
    ("squeezenet", "QDQ"): 1,
}
# Mean and spread of the parameters of a batch normalization, by their position, which is 1 or more.
OF_NORMALIZATION = ((0.0, 0.0), (1, 0.1), (0, 0.1), (0, 0.1), (1.2, 0.05))


def filled(name: str) -> onnx.ModelProto:
    """A light network, whose weights are one number each, with random ones."""
    model = onnx.load(LIGHT / f"light_{name}.onnx")
    graph, generator = model.graph, np.random.default_rng(0)
    sizes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    users = {read: (node.op_type, k) for node in graph.node for k, read in enumerate(node.input)}
    nodes = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shape = tuple(map(int, sizes[node.input[0]]))
            operator, position = users[node.output[0]]
            mean, spread = OF_NORMALIZATION[position] if operator == "BatchNormalization" else (0.0, 0.05)
            if operator in ("Conv", "Gemm") and position == 1:
                spread = float(np.sqrt(2 / np.prod(shape[1:])))
            array = generator.normal(mean, spread, shape).astype(np.float32)
            graph.initializer.append(numpy_helper.from_array(array, node.output[0]))
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    for field, kept in ((graph.node, nodes), (graph.input, inputs)):
        del field[:]
        field.extend(kept)
    model.ir_version = 8
    return model


@pytest.mark.parametrize(("name", "format"), PARTS)
def test_networks_that_carry_floats_run_in_few_parts(
    device: dmlvk.Device, tmp_path: Path, name: str, format: str
) -> None:
    model, generator = filled(name), np.random.default_rng(1)
    source, target = tmp_path / "source.onnx", tmp_path / "quantized.onnx"
    onnx.save(model, source)
    feeds = {model.graph.input[0].name: generator.standard_normal(INPUT).astype(np.float32)}
    reduced = bool(ONNX_RUNTIME.call("a product", saturates))
    ONNX_RUNTIME.call(f"the quantization of {name}", quantize, source, target, format, [feeds], reduced)
    findings = ONNX_RUNTIME.call(name, examine, device.name, target, [feeds], seconds=SECONDS)
    right = findings.plain if format == "QOperator" else findings.optimized
    np.testing.assert_array_equal(findings.found, right, strict=True)
    assert not [f"{node}: {text}" for node, text in findings.nodes if text]
    assert findings.parts == PARTS[name, format]
