"""Runs one ONNX operator on ONNX Runtime's CPU provider: an oracle that others wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import helper


def run_node(
    operator: str, inputs: Sequence[np.ndarray | None], output_dtype: Any, opset: int, **attributes: Any
) -> np.ndarray:
    """The single output of an operator; None stands for an optional input that is absent."""
    names = ["" if array is None else f"input_{k}" for k, array in enumerate(inputs)]
    present = {name: array for name, array in zip(names, inputs, strict=True) if array is not None}
    element = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["output"], **attributes)],
        operator,
        [helper.make_tensor_value_info(name, element(array.dtype), array.shape) for name, array in present.items()],
        [helper.make_tensor_value_info("output", element(np.dtype(output_dtype)), None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(["output"], present)[0]
