"""Models made for tests, and their outputs by ONNX Runtime in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.oracle import OracleError
from tests.reference.onnx_runtime import ONNX_RUNTIME

Array = np.ndarray
# From this version on, ONNX Runtime's LayerNormalization has the bits that dmlvk's has.
SINCE_THESE_NORMALIZATIONS = (1, 30)
HAS_THESE_NORMALIZATIONS = tuple(map(int, version("onnxruntime").split(".")[:2])) >= SINCE_THESE_NORMALIZATIONS
Node = tuple[str, Sequence[str], Sequence[str], dict[str, Any]]


def model_of(
    nodes: Sequence[Node],
    inputs: Mapping[str, Array | onnx.ValueInfoProto],
    outputs: Mapping[str, Any],
    constants: Mapping[str, Array] | None = None,
    *,
    opset: int = 17,
) -> onnx.ModelProto:
    """A model. A node is (operator, inputs, outputs, attributes); "com.microsoft.QGemm" has a domain.

    An input is an example or a description; an output is its type.
    """
    protos = []
    for number, (operator, read, written, attributes) in enumerate(nodes):
        domain, _, name = operator.rpartition(".")
        protos.append(helper.make_node(name, read, written, name=f"node_{number}", domain=domain or None, **attributes))
    element = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        protos,
        "test",
        [
            value
            if isinstance(value, onnx.ValueInfoProto)
            else helper.make_tensor_value_info(name, element(value.dtype), value.shape)
            for name, value in inputs.items()
        ],
        [helper.make_tensor_value_info(name, element(np.dtype(dtype)), None) for name, dtype in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def onnx_runtime(model: onnx.ModelProto, feeds: Mapping[str, Array], *, optimize: bool = True) -> list[Array]:
    """All outputs of a model by ONNX Runtime, or by ONNX's own evaluator where it lacks the operator for the type."""
    try:
        return ONNX_RUNTIME.call(model.graph.node[0].op_type, _run, model.SerializeToString(), dict(feeds), optimize)
    except OracleError as error:
        if "NOT_IMPLEMENTED" not in str(error):
            raise
        return list(ReferenceEvaluator(model).run(None, dict(feeds)))


def _run(model: bytes, feeds: Mapping[str, Array], optimize: bool) -> list[Array]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def require_equal(found: Sequence[Array], expected: Sequence[Array]) -> None:
    """Each array has the type, the shape and the bits of the other."""
    assert len(found) == len(expected)
    for array, right in zip(found, expected, strict=True):
        assert array.dtype == right.dtype
        np.testing.assert_array_equal(array, right, strict=True)


def elements(generator: np.random.Generator, dtype: Any, shape: Sequence[int]) -> Array:
    """Random elements over the whole range of a type; floats are standard normal."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype.kind == "f":
        return generator.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def weights(generator: np.random.Generator, dtype: Any, shape: Sequence[int]) -> Array:
    """Random elements of a filter or of a matrix that is constant.

    Signed ones have 7 bits: on x86 processors without VNNI, ONNX Runtime saturates sums of two products to 16 bits.
    """
    found = elements(generator, dtype, shape)
    return found >> 1 if found.dtype == np.int8 else found


# The constants of QLinearConv in the order of its inputs, after x.
PARAMETERS = ("x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero", "b")


def convolution_parameters(
    generator: np.random.Generator,
    filter_shape: Sequence[int],
    types: tuple[Any, Any, Any] = (np.uint8, np.int8, np.uint8),
    *,
    per_channel: bool = False,
    bias: bool = True,
) -> dict[str, Array]:
    """Constants of a QLinearConv whose outputs spread over the range of their type."""
    x, w, y = map(np.dtype, types)
    filters, taps = filter_shape[0], int(np.prod(filter_shape[1:]))
    count = (filters,) if per_channel else ()
    x_scale, w_scale = (generator.uniform(0.001, 0.02, shape).astype(np.float32) for shape in ((), count))
    w_spread = 37 if w == np.int8 else 74  # standard deviations of 7 bits and of 8
    spread = float(x_scale * np.max(w_scale)) * 74 * w_spread * np.sqrt(taps) / 50
    x_zero, w_zero, y_zero = (_middle(dtype) + int(generator.integers(-9, 10)) for dtype in (x, w, y))
    return {
        "x_scale": x_scale,
        "x_zero": np.array(x_zero, x),
        "w": weights(generator, w, filter_shape),
        "w_scale": w_scale,
        "w_zero": np.full(count, w_zero, w),
        "y_scale": np.array(spread, np.float32),
        "y_zero": np.array(y_zero, y),
        **({"b": generator.integers(-20000, 20000, filters).astype(np.int32)} if bias else {}),
    }


def _middle(dtype: np.dtype) -> int:
    return 128 if dtype.kind == "u" else 0


def convolution(parameters: Mapping[str, Array], x: str = "x", y: str = "y", **attributes: Any) -> Node:
    """The node of such constants."""
    names = [name for name in PARAMETERS if name in parameters]
    return ("QLinearConv", [x, *names], [y], attributes)


def convolved(
    x: Array, parameters: Mapping[str, Array], pads: Sequence[int], strides: Sequence[int], group: int = 1
) -> Array:
    """QLinearConv of rank 4 without dilations, in NumPy's integers and single floats."""
    w, channels = parameters["w"].astype(np.int64), x.shape[1] // group
    shifted = x.astype(np.int64) - int(parameters["x_zero"])
    padded = np.pad(shifted, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))[:, :, :: strides[0], :: strides[1]]
    w = w - parameters["w_zero"].astype(np.int64).reshape(-1, 1, 1, 1)
    per_group = w.shape[0] // group
    parts = [
        np.einsum(
            "nchwij,mcij->nmhw",
            windows[:, g * channels : (g + 1) * channels],
            w[g * per_group : (g + 1) * per_group],
        )
        for g in range(group)
    ]
    total = np.concatenate(parts, 1) + parameters.get("b", np.zeros(1, np.int32)).astype(np.int64).reshape(1, -1, 1, 1)
    scale = (parameters["x_scale"] * parameters["w_scale"]).astype(np.float32) / parameters["y_scale"]
    scaled = total.astype(np.float32) * scale.astype(np.float32).reshape(1, -1, 1, 1)
    dtype = parameters["y_zero"].dtype
    limits = np.iinfo(dtype)
    return np.clip(np.rint(scaled) + int(parameters["y_zero"]), limits.min, limits.max).astype(dtype)


def session_with_onnx_runtime(
    device: str, model: onnx.ModelProto, feeds: Mapping[str, Array], **options: Any
) -> tuple[list[Array], list[tuple[str, str, str]]]:
    """Outputs and placement (name, operator, place) of a session with ONNX Runtime, in the oracle's process."""
    return ONNX_RUNTIME.call("a session", _run_session, device, model.SerializeToString(), dict(feeds), options)


def _run_session(
    device: str, model: bytes, feeds: Mapping[str, Array], options: Mapping[str, Any]
) -> tuple[list[Array], list[tuple[str, str, str]]]:
    from dmlvk.onnx import InferenceSession

    session = InferenceSession(model, device, **options)
    session.run(None, feeds)
    found = session.run(None, feeds)  # as prepared by the first run
    session.device.close()
    return found, [(row.name, row.op_type, row.where) for row in session.placement]
