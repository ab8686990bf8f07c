"""Runs one ONNX operator on ONNX Runtime's CPU provider, as an independent oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper

from tests.oracle import Oracle


def run_node(
    operator: str,
    inputs: Sequence[np.ndarray | None],
    output_dtype: Any,
    opset: int,
    *,
    domain: str = "",
    outputs_before: int = 0,
    **attributes: Any,
) -> np.ndarray:
    """An operator's output, the first one or a later one. None means that an optional input is absent."""
    names = ["" if array is None else f"input_{k}" for k, array in enumerate(inputs)]
    present = {name: array for name, array in zip(names, inputs, strict=True) if array is not None}
    others = [f"other_{k}" for k in range(outputs_before)]
    element = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [helper.make_node(operator, names, [*others, "output"], domain=domain, **attributes)],
        operator,
        [helper.make_tensor_value_info(name, element(array.dtype), array.shape) for name, array in present.items()],
        [helper.make_tensor_value_info("output", element(np.dtype(output_dtype)), None)],
    )
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return ONNX_RUNTIME.call(operator, _run, model.SerializeToString(), present)


def _run(model: bytes, feeds: Mapping[str, np.ndarray]) -> np.ndarray:
    import onnxruntime  # only in the oracle's process; tests/conftest.py forbids it elsewhere

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(["output"], feeds)[0]


def _probe() -> None:
    """Load the library and run a model of an operator without arithmetic."""
    value = helper.make_tensor_value_info
    node = helper.make_node("Identity", ["input"], ["output"])
    graph = helper.make_graph([node], "probe", [value("input", 1, [1])], [value("output", 1, [1])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    _run(model.SerializeToString(), {"input": np.ones(1, np.float32)})


ONNX_RUNTIME = Oracle("ONNX Runtime", _probe)
