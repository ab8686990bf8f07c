"""The custom operators of torch: `torch.ops.dmlvk`. Each has a function that runs it, and one that tells compilers the
output's shape.
"""

from __future__ import annotations

from typing import Any

import torch

from dmlvk import functional
from dmlvk.torch import shapes
from dmlvk.torch.arguments import data_type_of
from dmlvk.torch.devices import device_for, on_host, operand, result
from dmlvk.torch.shapes import ConvolutionArguments, with_rank

DIAGONAL_MATRIX1_SCHEMA = """(
    Tensor? input, *, SymInt[]? sizes=None, Scalar value, SymInt diagonal_fill_begin, SymInt diagonal_fill_end,
    ScalarType? dtype=None, str? device=None
) -> Tensor"""
ONE_HOT_SCHEMA = "(Tensor indices, Tensor values, *, SymInt output_length, SymInt axis, str? device=None) -> Tensor"
SLICE1_SCHEMA = """(
    Tensor input, *, SymInt[] input_window_offsets, SymInt[] input_window_sizes, SymInt[] input_window_strides,
    SymInt[]? output_sizes=None, str? device=None
) -> Tensor"""
# A scale or zero point is a tensor, or its `_value` is a number.
QUANTIZED_LINEAR_CONVOLUTION_SCHEMA = """(
    Tensor input, Tensor? input_scale, Tensor filter, Tensor? filter_scale, Tensor? output_scale,
    Tensor? input_zero_point=None, Tensor? filter_zero_point=None, Tensor? bias=None, Tensor? output_zero_point=None, *,
    float? input_scale_value=None, float? filter_scale_value=None, float? output_scale_value=None,
    SymInt? input_zero_point_value=None, SymInt? filter_zero_point_value=None, SymInt? output_zero_point_value=None,
    ScalarType? output_dtype=None, SymInt[] strides, SymInt[] dilations, SymInt[] start_padding, SymInt[] end_padding,
    SymInt group_count, str? device=None
) -> Tensor"""


def run_diagonal_matrix1(
    input: torch.Tensor | None, *, dtype: torch.dtype | None = None, device: str | None = None, **fields: Any
) -> torch.Tensor:
    place = device_for(device, input)
    data_type = None if dtype is None else data_type_of("dtype", dtype)
    if input is None:
        array = functional.diagonal_matrix1(dtype=data_type, device=place, **fields)
        return torch.from_numpy(array)
    output = functional.diagonal_matrix1(operand("input", input, place), dtype=data_type, device=place, **fields)
    return result(output, input.device)


def run_one_hot(
    indices: torch.Tensor, values: torch.Tensor, *, device: str | None = None, **fields: Any
) -> torch.Tensor:
    place = device_for(device, indices)
    ranked = with_rank(values, indices.ndim)
    output = functional.one_hot(
        operand("indices", indices, place), operand("values", ranked, place), device=place, **fields
    )
    return result(output, indices.device)


def run_slice1(input: torch.Tensor, *, device: str | None = None, **fields: Any) -> torch.Tensor:
    place = device_for(device, input)
    output = functional.slice1(operand("input", input, place), device=place, **fields)
    return result(output, input.device)


def run_quantized_linear_convolution(
    *tensors: torch.Tensor | None, output_dtype: torch.dtype | None = None, device: str | None = None, **fields: Any
) -> torch.Tensor:
    convolution = ConvolutionArguments.of(*tensors, output_dtype=output_dtype)
    input, filter = convolution.input, convolution.filter
    place = device_for(device, input)
    operands: dict[str, Any] = {"input": operand("input", input, place), "filter": operand("filter", filter, place)}
    for name, dtype in convolution.parameter_dtypes.items():
        number, tensor = fields.pop(f"{name}_value", None), convolution.parameters.get(name)
        if tensor is None:
            operands[name] = number
        elif tensor.dtype == dtype:
            operands[name] = operand(name, tensor, place)
        else:  # the one-liner converts other types, and checks that the values fit, in NumPy
            operands[name] = on_host(name, tensor)
    output_type = data_type_of("output_dtype", convolution.output_dtype)
    output = functional.quantized_linear_convolution(**operands, **fields, output_dtype=output_type, device=place)
    return result(output, input.device)


def _register(name: str, run: Any, shape: Any, schema: str) -> Any:
    """The operator `dmlvk::name`. Its outputs are new, and its inputs stay as they are."""
    # A CUDA graph replays CUDA's work, and would leave Vulkan's out. torch before 2.9 has no such tag.
    unsafe = getattr(torch.Tag, "cudagraph_unsafe", None)
    options = {} if unsafe is None else {"tags": (unsafe,)}
    schema = " ".join(schema.split())
    operator = torch.library.custom_op(f"dmlvk::{name}", run, mutates_args=(), schema=schema, **options)
    operator.register_fake(shape)
    return operator


DIAGONAL_MATRIX1 = _register("diagonal_matrix1", run_diagonal_matrix1, shapes.diagonal_matrix1, DIAGONAL_MATRIX1_SCHEMA)
ONE_HOT = _register("one_hot", run_one_hot, shapes.one_hot, ONE_HOT_SCHEMA)
SLICE1 = _register("slice1", run_slice1, shapes.slice1, SLICE1_SCHEMA)
QUANTIZED_LINEAR_CONVOLUTION = _register(
    "quantized_linear_convolution",
    run_quantized_linear_convolution,
    shapes.quantized_linear_convolution,
    QUANTIZED_LINEAR_CONVOLUTION_SCHEMA,
)
