"""ONNX Runtime on the CPU: Slice, Transpose, Trilu, EyeLike, OneHot and QLinearConv as models of one node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dmlvk.benchmark.peers.peer import (
    OperatorPeer,
    Peer,
    Slices,
    Trial,
    compare,
    memory_of,
    missing_package,
    package_version,
    part_for,
    require_upper_triangle_or_identity,
)
from dmlvk.benchmark.timing import time_on_host
from dmlvk.conformance.case import Workload
from dmlvk.operators import DiagonalMatrix1Desc, OneHotDesc, OperatorDesc, QuantizedLinearConvolutionDesc, Slice1Desc

Array = npt.NDArray[Any]
OPSET = 18
IR_VERSION = 8


@dataclass(frozen=True)
class NodeForm:
    """A node of a model.

    kind: ONNX's operator.
    inputs: names in the node's order, each in `feeds` or `constants`.
    constants: the parameters, which become part of the model.
    """

    kind: str
    inputs: tuple[str, ...]
    feeds: Mapping[str, Array]
    constants: Mapping[str, Array] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)


def _slice1(desc: Slice1Desc, inputs: Mapping[str, Array], expected: Array) -> NodeForm:
    slices = Slices.of(desc)
    packed = tuple(1 for _ in desc.input_tensor.sizes)
    if desc.input_window_strides == packed and desc.input_tensor.sizes == desc.output_tensor.sizes:
        # The same elements in another order: the memory as it is, transposed.
        strides = desc.input_tensor.element_strides
        outermost_first = sorted(range(len(strides)), key=lambda dimension: -strides[dimension])
        sizes = [desc.input_tensor.sizes[dimension] for dimension in outermost_first]
        data = memory_of(inputs["input_tensor"], desc.input_tensor).reshape(sizes)
        permutation = [outermost_first.index(dimension) for dimension in range(len(strides))]
        return NodeForm("Transpose", ("data",), {"data": data}, attributes={"perm": permutation})
    furthest = np.iinfo(np.int64)
    constants = {
        "starts": np.array([each.start for each in slices.signed], np.int64),
        "ends": np.array([furthest.min if s.stop is None else s.stop for s in slices.signed], np.int64),
        "axes": np.arange(len(packed), dtype=np.int64),
        "steps": np.array([each.step for each in slices.signed], np.int64),
    }
    return NodeForm("Slice", ("data", *constants), {"data": inputs["input_tensor"]}, constants)


def _diagonal_matrix1(desc: DiagonalMatrix1Desc, inputs: Mapping[str, Array], expected: Array) -> NodeForm:
    require_upper_triangle_or_identity(desc)
    if desc.input_tensor is None:
        return NodeForm("EyeLike", ("data",), {"data": np.zeros(expected.shape, expected.dtype)})
    constants = {"k": np.array(desc.diagonal_fill_end, np.int64)}
    return NodeForm("Trilu", ("data", "k"), {"data": inputs["input_tensor"]}, constants, {"upper": 1})


def _one_hot(desc: OneHotDesc, inputs: Mapping[str, Array], expected: Array) -> NodeForm:
    feeds = {"indices": np.squeeze(inputs["indices_tensor"], desc.axis)}
    constants = {
        "depth": np.array(expected.shape[desc.axis], np.int64),
        "values": inputs["values_tensor"].ravel(),
    }
    return NodeForm("OneHot", ("indices", *constants), feeds, constants, {"axis": desc.axis})


# The constants of QLinearConv, and the fields from which they come.
CONVOLUTION_CONSTANTS = {
    "x_scale": "input_scale_tensor",
    "x_zero_point": "input_zero_point_tensor",
    "w": "filter_tensor",
    "w_scale": "filter_scale_tensor",
    "w_zero_point": "filter_zero_point_tensor",
    "y_scale": "output_scale_tensor",
    "y_zero_point": "output_zero_point_tensor",
    "b": "bias_tensor",
}


def _quantized_linear_convolution(
    desc: QuantizedLinearConvolutionDesc, inputs: Mapping[str, Array], expected: Array
) -> NodeForm:
    constants = {}
    # QLinearConv requires the zero points that DirectML does not.
    zeros = {
        f"{kind}_zero_point_tensor": np.zeros(1, desc.tensors[f"{kind}_tensor"].data_type.numpy_dtype)
        for kind in ("input", "filter", "output")
    }
    given = {**zeros, **inputs}
    for name, source in CONVOLUTION_CONSTANTS.items():
        array = given[source]
        constants[name] = array if name == "w" else array.reshape(()) if array.size == 1 else array.ravel()
    # A filter has one zero point for each channel if it has one scale for each channel.
    constants["w_zero_point"] = np.broadcast_to(constants["w_zero_point"], constants["w_scale"].shape).copy()
    attributes = {
        "strides": desc.strides,
        "dilations": desc.dilations,
        "pads": [*desc.start_padding, *desc.end_padding],
        "group": desc.group_count,
    }
    return NodeForm("QLinearConv", ("x", *constants), {"x": inputs["input_tensor"]}, constants, attributes)


# For each operator, the function that makes its node from the descriptor, its inputs and the expected output.
NODES: Mapping[type[OperatorDesc], Callable[[Any, Mapping[str, Array], Array], NodeForm]] = {
    Slice1Desc: _slice1,
    DiagonalMatrix1Desc: _diagonal_matrix1,
    OneHotDesc: _one_hot,
    QuantizedLinearConvolutionDesc: _quantized_linear_convolution,
}


class OnONNXRuntime(Peer):
    """ONNX Runtime's CPU kernels, on all cores: a peer of operators, of networks and of models."""

    name = "onnxruntime"
    runs_on: ClassVar[str] = "CPU"

    def absence(self) -> str | None:
        return missing_package("onnx", "onnxruntime")

    def version(self) -> str:
        return package_version("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml")


def session_of(model: bytes | str, *, optimizes: bool = True) -> Any:
    """A session of a serialized model or of a file, which prints nothing."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimizes else levels.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class ONNXRuntime(OnONNXRuntime, OperatorPeer):
    """Models of one node."""

    operators = NODES.keys()

    def measure(self, workload: Workload, expected: Array, rounds: int) -> Trial:
        model, feeds = model_of(workload, expected)
        session = session_of(model)
        results: list[Array] = []

        def step(_: int) -> None:
            results[:] = session.run(None, feeds)

        times = time_on_host(step, rounds)
        return Trial(times, compare(results[0], expected))


def model_of(workload: Workload, expected: Array) -> tuple[bytes, dict[str, Array]]:
    """A serialized model of one node, and the data to feed it. Parameters are part of the model."""
    from onnx import helper, numpy_helper

    node = part_for(NODES, workload.desc)(workload.desc, workload.inputs, expected)
    feeds = dict(node.feeds)

    def element_type(array: Array) -> int:
        return int(helper.np_dtype_to_tensor_dtype(array.dtype))

    graph = helper.make_graph(
        [helper.make_node(node.kind, list(node.inputs), ["y"], **node.attributes)],
        "one node",
        [helper.make_tensor_value_info(name, element_type(array), array.shape) for name, array in feeds.items()],
        [helper.make_tensor_value_info("y", element_type(expected), expected.shape)],
        [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in node.constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return model.SerializeToString(), feeds
