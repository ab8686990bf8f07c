"""A small classifier in floats, and inputs for it."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper


def classifier(opset: int = 11, batch: int | str = "n") -> onnx.ModelProto:
    """Two convolutions, a batch normalization, a pool, a product and a Softmax; weights are Constant nodes."""
    generator = np.random.default_rng(7)
    arrays = {
        "w1": generator.standard_normal((8, 3, 3, 3)) / 5,
        "b1": generator.standard_normal(8) / 10,
        "gain": generator.uniform(0.5, 1.5, 8),
        "offset": generator.standard_normal(8) / 5,
        "mean": generator.standard_normal(8) / 10,
        "variance": generator.uniform(0.5, 1.5, 8),
        "w2": generator.standard_normal((16, 8, 3, 3)) / 8,
        "w3": generator.standard_normal((16, 10)) / 2,
    }
    constants = [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array.astype(np.float32)))
        for name, array in arrays.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c1", "gain", "offset", "mean", "variance"], ["n1"], name="norm"),
        helper.make_node("Relu", ["n1"], ["r1"], name="relu"),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], name="second", strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["c2"], ["g"], name="pool"),
        helper.make_node("Flatten", ["g"], ["f"], name="flat"),
        helper.make_node("MatMul", ["f", "w3"], ["m"], name="product"),
        helper.make_node("Softmax", ["m"], ["y"], name="softmax", axis=1),
    ]
    graph = helper.make_graph(
        constants + nodes,
        "classifier",
        [helper.make_tensor_value_info("x", 1, [batch, 3, 12, 12])],
        [helper.make_tensor_value_info("y", 1, [batch, 10])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)


def inputs(count: int) -> np.ndarray:
    """Inputs of the classifier, {count, 3, 12, 12}."""
    return np.random.default_rng(8).standard_normal((count, 3, 12, 12)).astype(np.float32)
