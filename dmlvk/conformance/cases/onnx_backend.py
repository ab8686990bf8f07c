"""ONNX's own backend tests as cases, with the outputs that ONNX expects.

The package `onnx` makes the tests. Each is one node with its inputs and outputs. EyeLike and Trilu become
DIAGONAL_MATRIX1, OneHot becomes ONE_HOT, Slice becomes SLICE1, and QLinearConv becomes QUANTIZED_LINEAR_CONVOLUTION.
Three tests are left out: their output has no elements, and DirectML has no such tensor.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from dmlvk.conformance.case import Case, NotSupported, Workload
from dmlvk.conformance.cases.values import Array
from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import DiagonalMatrix1Desc, OneHotDesc, QuantizedLinearConvolutionDesc, Slice1Desc
from dmlvk.operators.declared import INT32_MAX, INT32_MIN
from dmlvk.tensor_desc import TensorDesc

# Written out, so that the list of cases is the same whether or not the package is installed.
TESTS: Mapping[str, tuple[str, ...]] = {
    "eyelike": ("without_dtype", "with_dtype", "populate_off_main_diagonal"),
    "triu": ("", "neg", "out_neg_out", "pos", "out_pos", "square", "square_neg", "one_row"),
    "tril": ("", "neg", "out_neg", "pos", "out_pos", "square", "square_neg", "one_row_neg"),
    "onehot": (
        *("without_axis", "with_axis", "negative_indices"),
        *("out_of_range_indices", "with_negative_axis", "with_bfloat16_values"),
    ),
    "slice": ("", "neg", "end_out_of_bounds", "default_axes", "default_steps", "neg_steps", "negative_axes"),
    "qlinearconv": ("",),
}
OPERATORS = {
    "eyelike": "diagonal_matrix1",
    "triu": "diagonal_matrix1",
    "tril": "diagonal_matrix1",
    "onehot": "one_hot",
    "slice": "slice1",
    "qlinearconv": "qlinearconv",
}
ABOUT = "ONNX's own tests of the operator, with the outputs that ONNX expects."
MODULES = ("eyelike", "trilu", "onehot", "slice", "qlinearconv")


def cases(default_only: bool = False) -> Iterator[Case]:
    """One case for each test; all cases run by default."""
    for kind, tests in TESTS.items():
        for test in tests:
            name = "_".join(filter(None, ("test", kind, test)))
            case_name = f"onnx:{OPERATORS[kind]}:test={name}"
            yield Case(case_name, partial(build, name), is_default=True, support=partial(missing, name), about=ABOUT)


def missing(test: str, profile: DeviceProfile) -> NotSupported | None:
    """Why a test is not supported: the package is not installed, or its version lacks the test. Else None."""
    if find_spec("onnx") is None:
        return NotSupported("package:onnx", "the expected outputs come from the package onnx, which is not installed")
    if test not in backend_tests():
        return NotSupported("package:onnx", f"the installed version of onnx has no {test}")
    return None


@cache
def backend_tests() -> Mapping[str, Any]:
    """ONNX's tests of the five operators, by name."""
    package = "onnx.backend.test.case.node"
    # The tests are made on import, which seeds NumPy's global generator.
    state = np.random.get_state()
    for module in MODULES:
        importlib.import_module(f"{package}.{module}")
    np.random.set_state(state)
    return {test.name: test for test in importlib.import_module(package)._NodeTestCases}


def build(test: str) -> Workload:
    """A test's node as one of the operators, with its inputs and outputs."""
    found = backend_tests()[test]
    node = found.model.graph.node[0]
    (inputs, outputs), *_ = found.data_sets
    arrays = dict(zip(filter(None, node.input), map(np.asarray, inputs), strict=True))
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    return CONVERSIONS[node.op_type](arrays, attributes, np.asarray(outputs[0]))


def eye_like(arrays: Mapping[str, Array], attributes: Mapping[str, int], expected: Array) -> Workload:
    """EyeLike: ones on diagonal k, zeros elsewhere."""
    k = attributes.get("k", 0)
    desc = DiagonalMatrix1Desc(
        output_tensor=TensorDesc(expected.dtype, expected.shape),
        value=1,
        diagonal_fill_begin=k,
        diagonal_fill_end=k + 1,
    )
    return Workload(desc, {}, expected)


def trilu(arrays: Mapping[str, Array], attributes: Mapping[str, int], expected: Array) -> Workload:
    """Trilu: zeros below diagonal k (upper) or above it."""
    k = int(arrays["k"].item()) if "k" in arrays else 0
    begin, end = (INT32_MIN, k) if attributes.get("upper", 1) else (k + 1, INT32_MAX)
    tensor = TensorDesc(expected.dtype, expected.shape)
    desc = DiagonalMatrix1Desc(
        input_tensor=tensor, output_tensor=tensor, value=0, diagonal_fill_begin=begin, diagonal_fill_end=end
    )
    return Workload(desc, {"input_tensor": arrays["x"]}, expected)


def one_hot(arrays: Mapping[str, Array], attributes: Mapping[str, int], expected: Array) -> Workload:
    """OneHot: the indices lack the axis and have any number type; a negative axis counts from the end."""
    axis = attributes.get("axis", -1) % expected.ndim
    indices = np.expand_dims(arrays["indices"].astype(np.int64), axis)
    values, on_off = _bits(expected), _bits(arrays["values"])
    pair = on_off.reshape((1,) * (expected.ndim - 1) + (2,))
    desc = OneHotDesc(
        indices_tensor=TensorDesc(indices.dtype, indices.shape),
        values_tensor=TensorDesc(pair.dtype, pair.shape),
        output_tensor=TensorDesc(values.dtype, values.shape),
        axis=axis,
    )
    return Workload(desc, {"indices_tensor": indices, "values_tensor": pair}, values)


def _bits(array: Array) -> Array:
    """Elements that are only copied. Types that DirectML lacks (bfloat16) become integers of the same bits."""
    known = array.dtype.kind in "fiu" and array.dtype.isbuiltin == 1
    return array if known else array.view(f"u{array.dtype.itemsize}")


def slice1(arrays: Mapping[str, Array], attributes: Mapping[str, int], expected: Array) -> Workload:
    """Slice: negative starts and ends count from the end. All are clamped to the tensor."""
    x = arrays["x"]
    offsets, sizes, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    count = len(arrays["starts"])
    axes = arrays["axes"] if "axes" in arrays else np.arange(count)
    for k, axis in enumerate(int(axis) % x.ndim for axis in axes):
        step = int(arrays["steps"][k]) if "steps" in arrays else 1
        chosen = range(*slice(int(arrays["starts"][k]), int(arrays["ends"][k]), step).indices(x.shape[axis]))
        offsets[axis], steps[axis] = min(chosen[0], chosen[-1]), step
        sizes[axis] = abs(chosen[-1] - chosen[0]) + 1
    desc = Slice1Desc(
        input_tensor=TensorDesc(x.dtype, x.shape),
        output_tensor=TensorDesc(expected.dtype, expected.shape),
        input_window_offsets=offsets,
        input_window_sizes=sizes,
        input_window_strides=steps,
    )
    return Workload(desc, {"input_tensor": x}, expected)


def q_linear_conv(arrays: Mapping[str, Array], attributes: Mapping[str, int], expected: Array) -> Workload:
    """QLinearConv with its default attributes."""
    names = {
        "x": "input_tensor",
        "x_scale": "input_scale_tensor",
        "x_zero_point": "input_zero_point_tensor",
        "w": "filter_tensor",
        "w_scale": "filter_scale_tensor",
        "w_zero_point": "filter_zero_point_tensor",
        "y_scale": "output_scale_tensor",
        "y_zero_point": "output_zero_point_tensor",
    }
    inputs = {field: np.atleast_1d(arrays[name]) for name, field in names.items()}
    tensors: dict[str, Any] = {field: TensorDesc(array.dtype, array.shape) for field, array in inputs.items()}
    desc = QuantizedLinearConvolutionDesc(
        **tensors,
        output_tensor=TensorDesc(expected.dtype, expected.shape),
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(0, 0),
        end_padding=(0, 0),
        group_count=1,
    )
    return Workload(desc, inputs, expected)


Conversion = Callable[[Mapping[str, Array], Mapping[str, int], Array], Workload]
CONVERSIONS: Mapping[str, Conversion] = {
    "EyeLike": eye_like,
    "Trilu": trilu,
    "OneHot": one_hot,
    "Slice": slice1,
    "QLinearConv": q_linear_conv,
}
