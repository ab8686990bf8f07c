"""ONNX Runtime on the CPU: Slice, Transpose, Trilu, EyeLike, OneHot and QLinearConv as models of one node."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dmlvk.benchmark.peers.peer import (
    Peer,
    Slices,
    Trial,
    UnsupportedError,
    compare,
    memory_of,
    missing_package,
    package_version,
    require_upper_triangle_or_identity,
)
from dmlvk.benchmark.timing import time_on_host
from dmlvk.conformance.case import Workload
from dmlvk.operators import DiagonalMatrix1Desc, OneHotDesc, QuantizedLinearConvolutionDesc, Slice1Desc

Array = npt.NDArray[Any]
OPSET = 18
IR_VERSION = 8


class ONNXRuntime(Peer):
    """ONNX Runtime's CPU kernels, on all cores."""

    name = "onnxruntime"
    runs_on: ClassVar[str] = "CPU"

    def absence(self) -> str | None:
        return missing_package("onnx", "onnxruntime")

    def version(self) -> str:
        return package_version("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml")

    def measure(self, workload: Workload, expected: Array, rounds: int) -> Trial:
        import onnxruntime

        model, feeds = model_of(workload, expected)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        results: list[Array] = []

        def step(_: int) -> None:
            results[:] = session.run(None, feeds)

        times = time_on_host(step, rounds)
        return Trial(times, compare(results[0], expected))


def model_of(workload: Workload, expected: Array) -> tuple[bytes, dict[str, Array]]:
    """A model of one node, serialized, and what to feed it: the data; parameters are part of the model."""
    from onnx import helper, numpy_helper

    desc, inputs = workload.desc, workload.inputs
    constants: dict[str, Array] = {}
    attributes: dict[str, Any] = {}
    feeds: dict[str, Array] = {}
    order: list[str]
    if isinstance(desc, Slice1Desc):
        slices = Slices.of(desc)
        packed = tuple(1 for _ in desc.input_tensor.sizes)
        if desc.input_window_strides == packed and desc.input_tensor.sizes == desc.output_tensor.sizes:
            # The same elements in another order: the memory as it lies, transposed.
            strides = desc.input_tensor.element_strides
            outermost_first = sorted(range(len(strides)), key=lambda dimension: -strides[dimension])
            sizes = [desc.input_tensor.sizes[dimension] for dimension in outermost_first]
            feeds["data"] = memory_of(inputs["input_tensor"], desc.input_tensor).reshape(sizes)
            attributes["perm"] = [outermost_first.index(dimension) for dimension in range(len(strides))]
            kind, order = "Transpose", ["data"]
        else:
            feeds["data"] = inputs["input_tensor"]
            furthest = np.iinfo(np.int64)
            constants["starts"] = np.array([each.start for each in slices.signed], np.int64)
            constants["ends"] = np.array([furthest.min if s.stop is None else s.stop for s in slices.signed], np.int64)
            constants["axes"] = np.arange(len(packed), dtype=np.int64)
            constants["steps"] = np.array([each.step for each in slices.signed], np.int64)
            kind, order = "Slice", ["data", "starts", "ends", "axes", "steps"]
    elif isinstance(desc, DiagonalMatrix1Desc):
        require_upper_triangle_or_identity(desc)
        if desc.input_tensor is None:
            feeds["data"] = np.zeros(expected.shape, expected.dtype)
            kind, order = "EyeLike", ["data"]
        else:
            feeds["data"] = inputs["input_tensor"]
            constants["k"] = np.array(desc.diagonal_fill_end, np.int64)
            attributes["upper"] = 1
            kind, order = "Trilu", ["data", "k"]
    elif isinstance(desc, OneHotDesc):
        feeds["indices"] = np.squeeze(inputs["indices_tensor"], desc.axis)
        constants["depth"] = np.array(expected.shape[desc.axis], np.int64)
        constants["values"] = inputs["values_tensor"].ravel()
        attributes["axis"] = desc.axis
        kind, order = "OneHot", ["indices", "depth", "values"]
    elif isinstance(desc, QuantizedLinearConvolutionDesc):
        feeds["x"] = inputs["input_tensor"]
        for name, field in {
            "x_scale": "input_scale", "x_zero_point": "input_zero_point", "w": "filter", "w_scale": "filter_scale",
            "w_zero_point": "filter_zero_point", "y_scale": "output_scale", "y_zero_point": "output_zero_point",
            "b": "bias",
        }.items():  # fmt: skip
            array = inputs[f"{field}_tensor"]
            constants[name] = array if name == "w" else array.reshape(()) if array.size == 1 else array.ravel()
        attributes = {
            "strides": desc.strides,
            "dilations": desc.dilations,
            "pads": [*desc.start_padding, *desc.end_padding],
            "group": desc.group_count,
        }
        order = ["x", "x_scale", "x_zero_point", "w", "w_scale", "w_zero_point", "y_scale", "y_zero_point", "b"]
        # Zero points of filters are one a channel where scales are.
        constants["w_zero_point"] = np.broadcast_to(constants["w_zero_point"], constants["w_scale"].shape).copy()
        kind = "QLinearConv"
    else:
        raise UnsupportedError("no such operator")

    def element_type(array: Array) -> int:
        return int(helper.np_dtype_to_tensor_dtype(array.dtype))

    graph = helper.make_graph(
        [helper.make_node(kind, order, ["y"], **attributes)],
        "one node",
        [helper.make_tensor_value_info(name, element_type(array), array.shape) for name, array in feeds.items()],
        [helper.make_tensor_value_info("y", element_type(expected), expected.shape)],
        [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return model.SerializeToString(), feeds
