"""The shapes of the operators' outputs, for torch's compilers, which call an operator without elements.

Sizes may be symbols. A call without any is checked as its descriptor checks it, so that a mistake is found when a
program is exported. A call with symbols is checked when it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from dmlvk._common.arguments import as_integer
from dmlvk.operators import DiagonalMatrix1Desc, OneHotDesc, OperatorDesc, QuantizedLinearConvolutionDesc, Slice1Desc
from dmlvk.operators.quantized_linear_convolution import SPATIAL_FIELDS, output_size
from dmlvk.operators.slice1 import maximum_copied_elements
from dmlvk.tensor_desc import TensorDesc
from dmlvk.torch.arguments import data_type_of

# The type and the sizes of a tensor.
TypeAndSizes = tuple[Any, Sequence[int]]
# The tensors of the operator quantized_linear_convolution, in their order.
TENSORS = (
    "input",
    "input_scale",
    "filter",
    "filter_scale",
    "output_scale",
    "input_zero_point",
    "filter_zero_point",
    "bias",
    "output_zero_point",
)


def diagonal_matrix1(
    input: torch.Tensor | None,
    *,
    sizes: Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
    device: str | None = None,
    **fields: Any,
) -> torch.Tensor:
    shapes: dict[str, TypeAndSizes] = {}
    if input is not None:
        shapes["input_tensor"] = (input.dtype, input.shape)
        sizes = input.shape if sizes is None else sizes
        dtype = input.dtype if dtype is None else dtype
    assert sizes is not None, "the function refuses a call with neither input nor sizes"
    shapes["output_tensor"] = (dtype, sizes)
    _check(DiagonalMatrix1Desc, shapes, **fields)
    return torch.empty(sizes, dtype=dtype, device="cpu" if input is None else input.device)


def one_hot(
    indices: torch.Tensor, values: torch.Tensor, *, output_length: int, axis: int, device: str | None = None
) -> torch.Tensor:
    indices = torch.atleast_1d(indices)
    if not isinstance(axis, torch.SymInt):
        rule = f"must name one of the {indices.ndim} dimensions of indices"
        axis = as_integer("one_hot", "axis", axis, -indices.ndim, indices.ndim - 1, rule)
    dimension = axis + indices.ndim if axis < 0 else axis
    sizes = (*indices.shape[:dimension], output_length, *indices.shape[dimension + 1 :])
    shapes = {
        "indices_tensor": (indices.dtype, indices.shape),
        "values_tensor": (values.dtype, with_rank(values, indices.ndim).shape),
        "output_tensor": (values.dtype, sizes),
    }
    _check(OneHotDesc, shapes, axis=dimension)
    return values.new_empty(sizes, device=indices.device)


def slice1(
    input: torch.Tensor,
    *,
    input_window_sizes: Sequence[int],
    input_window_strides: Sequence[int],
    output_sizes: Sequence[int] | None = None,
    device: str | None = None,
    **fields: Any,
) -> torch.Tensor:
    input = torch.atleast_1d(input)  # an array without dimensions is one element to the one-liners, too
    sizes: Sequence[int] = (1,) * input.ndim  # for these the descriptor says which other argument is wrong
    if output_sizes is not None:
        sizes = output_sizes
    elif len(input_window_sizes) == len(input_window_strides) == input.ndim and 0 not in input_window_strides:
        sizes = maximum_copied_elements(input_window_sizes, input_window_strides)
    _check(
        Slice1Desc,
        {"input_tensor": (input.dtype, input.shape), "output_tensor": (input.dtype, sizes)},
        input_window_sizes=input_window_sizes,
        input_window_strides=input_window_strides,
        **fields,
    )
    return input.new_empty(sizes)


def quantized_linear_convolution(
    *tensors: torch.Tensor | None,
    output_dtype: torch.dtype | None = None,
    group_count: int,
    device: str | None = None,
    **fields: Any,
) -> torch.Tensor:
    convolution = ConvolutionArguments.of(*tensors, output_dtype=output_dtype)
    input, filter = convolution.input, convolution.filter
    spatial = {name: _pair(fields[name], neutral, input.ndim) for name, (_, neutral) in SPATIAL_FIELDS.items()}
    sizes = _convolved_sizes(input.shape, filter.shape, spatial)
    shapes: dict[str, TypeAndSizes] = {
        "input_tensor": (input.dtype, input.shape),
        "filter_tensor": (filter.dtype, filter.shape),
        "output_tensor": (convolution.output_dtype, sizes),
    }
    for name, dtype in convolution.parameter_dtypes.items():
        if name in convolution.parameters:
            shapes[f"{name}_tensor"] = (dtype, convolution.parameters[name].shape)
        elif fields.get(f"{name}_value") is not None:
            shapes[f"{name}_tensor"] = (dtype, (1,) * input.ndim)
    _check(QuantizedLinearConvolutionDesc, shapes, **spatial, group_count=group_count)
    return input.new_empty(sizes, dtype=convolution.output_dtype)


@dataclass(frozen=True)
class ConvolutionArguments:
    """The tensors of a convolution.

    parameters: the scales, zero points and bias that are tensors, with the rank of the input: {1, 1, 1, 1} or
        {1, M, 1, 1}.
    output_dtype: the given one, or else the type of the output's zero point, or else that of the input.
    """

    input: torch.Tensor
    filter: torch.Tensor
    parameters: dict[str, torch.Tensor]
    output_dtype: torch.dtype

    @classmethod
    def of(cls, *tensors: torch.Tensor | None, output_dtype: torch.dtype | None) -> ConvolutionArguments:
        """From the operator's arguments, of which torch leaves out the last ones if they are None."""
        given = {name: tensor for name, tensor in zip(TENSORS, tensors, strict=False) if tensor is not None}
        input, filter = given.pop("input"), given.pop("filter")
        if output_dtype is None:
            zero_point = given.get("output_zero_point", input)
            output_dtype = zero_point.dtype if zero_point.dtype in (torch.int8, torch.uint8) else input.dtype
        parameters = {name: with_channel_dimension(tensor, input.ndim) for name, tensor in given.items()}
        return cls(input, filter, parameters, output_dtype)

    @property
    def parameter_dtypes(self) -> dict[str, torch.dtype]:
        """The types that the descriptor asks for."""
        return {
            "input_scale": torch.float32,
            "filter_scale": torch.float32,
            "output_scale": torch.float32,
            "input_zero_point": self.input.dtype,
            "filter_zero_point": self.filter.dtype,
            "output_zero_point": self.output_dtype,
            "bias": torch.int32,
        }


def with_rank(tensor: torch.Tensor, rank: int) -> torch.Tensor:
    """The tensor with leading dimensions of 1 added, or removed as far as it has any."""
    while tensor.ndim > rank and tensor.shape[0] == 1:
        tensor = tensor[0]
    return tensor.reshape((1,) * (rank - tensor.ndim) + tuple(tensor.shape))


def with_channel_dimension(tensor: torch.Tensor, rank: int) -> torch.Tensor:
    """Reshape one element to {1, 1, ...}, and one for each channel to {1, C, 1, ...}.

    The descriptor refuses other shapes.
    """
    count = tensor.numel()
    if tensor.ndim <= 1 or tuple(tensor.shape) == (1, count) + (1,) * (tensor.ndim - 2):
        return tensor.reshape((1, count, 1, 1)[:rank] if rank > 1 else (-1,))
    return tensor


def _pair(values: Sequence[int], neutral: int, rank: int) -> tuple[int, ...]:
    """For rank 3, one element is extended to two, of which the first is for the height that such tensors lack."""
    return (neutral, *values) if rank == 3 and len(values) == 1 else tuple(values)


def _convolved_sizes(
    input_sizes: Sequence[int], filter_sizes: Sequence[int], spatial: dict[str, tuple[int, ...]]
) -> tuple[int, ...]:
    """The output's sizes. If there are none, sizes for which the descriptor's error names the mistake."""
    rank = len(input_sizes)
    if rank not in (3, 4) or len(filter_sizes) != rank or any(len(values) != 2 for values in spatial.values()):
        return (1,) * rank
    found = [input_sizes[0], filter_sizes[0]]
    for k in range(2 - rank, 0):
        steps = [spatial[name][k] for name in SPATIAL_FIELDS]
        size = 0
        with suppress(ZeroDivisionError):
            size = output_size(input_sizes[k], filter_sizes[k], *steps)
        found.append(size if isinstance(size, torch.SymInt) else max(size, 1))
    return tuple(found)


def _check(descriptor: type[OperatorDesc], shapes: Mapping[str, TypeAndSizes], **fields: Any) -> None:
    """Raise what the descriptor raises, if no number is a symbol."""
    numbers = [size for _, sizes in shapes.values() for size in sizes]
    for value in fields.values():
        numbers.extend(value if isinstance(value, (list, tuple)) else (value,))
    if any(isinstance(number, (torch.SymInt, torch.SymFloat)) for number in numbers):
        return
    tensors = {name: TensorDesc(data_type_of(name, dtype), tuple(sizes)) for name, (dtype, sizes) in shapes.items()}
    descriptor(**tensors, **fields)
