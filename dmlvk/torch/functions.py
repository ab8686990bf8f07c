"""The public functions: they check their arguments and call the custom operators. torch's compilers trace them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, SupportsIndex

import torch

from dmlvk.runtime.shared_devices import DeviceName
from dmlvk.torch import operators  # registers the operators
from dmlvk.torch.arguments import (
    check_integers,
    check_tensors,
    fill_value,
    integer,
    integers,
    sort_parameter,
    torch_dtype,
)
from dmlvk.torch.devices import device_key


def diagonal_matrix1(
    input: torch.Tensor | None = None,
    *,
    sizes: Iterable[SupportsIndex] | None = None,
    value: float,
    diagonal_fill_begin: SupportsIndex,
    diagonal_fill_end: SupportsIndex,
    dtype: Any = None,
    device: DeviceName = None,
) -> torch.Tensor:
    """Fill a band of diagonals with a value; if begin > end, fill everything except a band.

    Args:
        input (torch.Tensor, optional): Rank 2 to 4, any strides. Elements outside the fill keep the input's values;
            without an input, they are zeros.
        sizes (sequence of int, optional): Sizes of the output. Required without an input; the input's sizes otherwise.
        value (int or float): The value to fill with.
        diagonal_fill_begin, diagonal_fill_end (int): Elements with begin <= x - y < end are filled. If begin > end,
            those with x - y < end or x - y >= begin are.
        dtype (torch.dtype, optional): Type of the output: the input's type. Without an input, it defaults to that of
            ``torch.tensor(value)``.
        device (dmlvk.Device, int or str, optional): By default that of the GPU of a CUDA tensor, or else the process's
            default device.

    Returns:
        torch.Tensor: Packed, on the torch device of `input`; on the CPU without an input.

    Raises:
        DescriptorError: For sizes, types or values that DIAGONAL_MATRIX1 does not accept.
        BindingError: For a tensor that requires a gradient or has no elements of its own (meta).
        TypeError: For a dtype without a DirectML data type, a tensor that is not strided, another library's array, or
            if neither `input` nor `sizes` is given.
    """
    value = fill_value(value)
    if input is None and sizes is None:
        raise TypeError("diagonal_matrix1 needs input or sizes: neither says how large the output is")
    if input is not None:
        check_tensors(input=input)
    if dtype is not None:
        dtype = torch_dtype("dtype", dtype)
    elif input is None:
        dtype = torch.get_default_dtype() if isinstance(value, (float, torch.SymFloat)) else torch.int64
    return operators.DIAGONAL_MATRIX1(
        input,
        sizes=None if sizes is None else integers("diagonal_matrix1", "sizes", sizes),
        value=value,
        diagonal_fill_begin=integer("diagonal_matrix1", "diagonal_fill_begin", diagonal_fill_begin),
        diagonal_fill_end=integer("diagonal_matrix1", "diagonal_fill_end", diagonal_fill_end),
        dtype=dtype,
        device=device_key(device),
    )


def one_hot(
    indices: torch.Tensor,
    values: torch.Tensor,
    *,
    output_length: SupportsIndex,
    axis: SupportsIndex,
    device: DeviceName = None,
) -> torch.Tensor:
    """Turn each index into a sequence of `output_length` elements: on at the index, off elsewhere.

    Args:
        indices (torch.Tensor): int32, int64, uint32 or uint64, with size 1 at `axis`. A negative index counts once from
            the end. For an index out of range, the whole sequence is off.
        values (torch.Tensor): Element 0 is the off value. Element 1 along the last dimension larger than 1 is the on
            value. A tensor whose rank differs from that of `indices` gets leading dimensions of 1.
        output_length (int): Size of the output at `axis`.
        axis (int): Dimension of the sequences; a negative one counts from the last.
        device (dmlvk.Device, int or str, optional): By default that of the GPU of a CUDA tensor, or else the process's
            default device.

    Returns:
        torch.Tensor: Packed, of the type of `values`, on the torch device of `indices`.

    Raises:
        DescriptorError: For sizes, types or an axis that ONE_HOT does not accept.
        BindingError: For tensors of two devices, one that requires a gradient, or one that has no elements of its own
            (meta).
        TypeError: For a dtype without a DirectML data type, a tensor that is not strided, or another library's array.
    """
    check_tensors(indices=indices, values=values)
    return operators.ONE_HOT(
        indices,
        values,
        output_length=integer("one_hot", "output_length", output_length),
        axis=integer("one_hot", "axis", axis),
        device=device_key(device),
    )


def slice1(
    input: torch.Tensor,
    *,
    input_window_offsets: Iterable[SupportsIndex],
    input_window_sizes: Iterable[SupportsIndex],
    input_window_strides: Iterable[SupportsIndex],
    output_sizes: Iterable[SupportsIndex] | None = None,
    device: DeviceName = None,
) -> torch.Tensor:
    """Copy a strided window of a tensor; a negative stride starts at the window's end.

    Args:
        input (torch.Tensor): Rank 1 to 8, any strides.
        input_window_offsets, input_window_sizes, input_window_strides (sequence of int): One element for each
            dimension. The window must lie inside the input, and strides must not be 0.
        output_sizes (sequence of int, optional): Defaults to all elements of the window: 1 + (size - 1) // abs(stride).
        device (dmlvk.Device, int or str, optional): By default that of the GPU of a CUDA tensor, or else the process's
            default device.

    Returns:
        torch.Tensor: Packed, of the type of `input`, on its torch device.

    Raises:
        DescriptorError: For a window or sizes that SLICE1 does not accept.
        BindingError: For a tensor that requires a gradient or has no elements of its own (meta).
        TypeError: For a dtype without a DirectML data type, a tensor that is not strided, or another library's array.
    """
    check_tensors(input=input)
    return operators.SLICE1(
        input,
        input_window_offsets=integers("slice1", "input_window_offsets", input_window_offsets),
        input_window_sizes=integers("slice1", "input_window_sizes", input_window_sizes),
        input_window_strides=integers("slice1", "input_window_strides", input_window_strides),
        output_sizes=None if output_sizes is None else integers("slice1", "output_sizes", output_sizes),
        device=device_key(device),
    )


def quantized_linear_convolution(
    input: torch.Tensor,
    input_scale: torch.Tensor | float,
    filter: torch.Tensor,
    filter_scale: torch.Tensor | float,
    output_scale: torch.Tensor | float,
    *,
    input_zero_point: torch.Tensor | int | None = None,
    filter_zero_point: torch.Tensor | int | None = None,
    bias: torch.Tensor | None = None,
    output_zero_point: torch.Tensor | int | None = None,
    output_dtype: Any = None,
    strides: Iterable[SupportsIndex] = (1, 1),
    dilations: Iterable[SupportsIndex] = (1, 1),
    start_padding: Iterable[SupportsIndex] = (0, 0),
    end_padding: Iterable[SupportsIndex] = (0, 0),
    group_count: SupportsIndex = 1,
    device: DeviceName = None,
) -> torch.Tensor:
    """Convolve int8 or uint8 tensors that have scales and zero points.

    Args:
        input, filter (torch.Tensor): int8 or uint8, {N, C, H, W} and {M, C / group_count, H, W}; or {N, C, W} and {M, C
            / group_count, W}. Any strides, channels_last among them.
        input_scale, output_scale (float or torch.Tensor): One number, rounded to float32.
        filter_scale (float or torch.Tensor): One number, or one for each output channel: {M} or {1, M, 1, 1}.
        input_zero_point, filter_zero_point, output_zero_point (int or torch.Tensor, optional): In the same forms as the
            scales, and in the range of the tensor that each belongs to; default 0.
        bias (torch.Tensor, optional): In the range of int32; {M} or {1, M, 1, 1}.
        output_dtype (torch.dtype, optional): int8 or uint8. Defaults to the type of `output_zero_point` if that is int8
            or uint8, else to that of `input`.
        strides, dilations, start_padding, end_padding (sequence of int): (height, width). For rank 3, one element is
            accepted too.
        group_count (int):
        device (dmlvk.Device, int or str, optional): By default that of the GPU of a CUDA tensor, or else the process's
            default device.

    Returns:
        torch.Tensor: Packed, of `output_dtype`, on the torch device of `input`.

    Raises:
        DescriptorError: For sizes, types or values that QUANTIZED_LINEAR_CONVOLUTION does not accept.
        BindingError: For tensors of two devices, one that requires a gradient, or one that has no elements of its own
            (meta).
        TypeError: For a scale that is no real number, a zero point or bias that is no integer, a dtype without a
            DirectML data type, a tensor that is not strided, or another library's array.

    A scale, zero point or bias on CUDA stays there if it has the operator's type: float32 for a scale, int32 for the
    bias, and for a zero point the type of its tensor. Otherwise its values are checked on the host.
    """
    parameters = {
        "input_scale": input_scale,
        "filter_scale": filter_scale,
        "output_scale": output_scale,
        "input_zero_point": input_zero_point,
        "filter_zero_point": filter_zero_point,
        "output_zero_point": output_zero_point,
    }
    tensors: dict[str, torch.Tensor] = {}
    numbers: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if parameter is not None or name.endswith("_scale"):
            sort_parameter(name, parameter, tensors, numbers)
    if bias is not None:
        tensors["bias"] = bias
    check_tensors(input=input, filter=filter, **tensors)
    check_integers(**{name: tensor for name, tensor in tensors.items() if not name.endswith("_scale")})
    given = {"strides": strides, "dilations": dilations, "start_padding": start_padding, "end_padding": end_padding}
    function = "quantized_linear_convolution"
    return operators.QUANTIZED_LINEAR_CONVOLUTION(
        input,
        tensors.get("input_scale"),
        filter,
        tensors.get("filter_scale"),
        tensors.get("output_scale"),
        tensors.get("input_zero_point"),
        tensors.get("filter_zero_point"),
        tensors.get("bias"),
        tensors.get("output_zero_point"),
        **numbers,
        output_dtype=None if output_dtype is None else torch_dtype("output_dtype", output_dtype),
        **{name: integers(function, name, values) for name, values in given.items()},
        group_count=integer(function, "group_count", group_count),
        device=device_key(device),
    )
