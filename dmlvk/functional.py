"""The operators as functions: NumPy arrays in, a NumPy array out.

If any of its tensors is a dmlvk.Tensor, a function returns a dmlvk.Tensor, and no data leaves the device. The function
then does not wait; `Tensor.numpy` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, SupportsIndex

import numpy as np

from dmlvk import _signatures
from dmlvk._common.arguments import as_integer
from dmlvk._operands import (
    Argument,
    DType,
    Integers,
    Operand,
    as_data_type,
    as_operand,
    broadcast_desc,
    broadcast_sizes,
    brought,
    convolution_desc,
    convolution_operands,
    described_tensor,
    integer_operand,
    is_untyped,
    quantized_data_type,
    scale_operand,
    with_rank,
)
from dmlvk.data_type import DataType
from dmlvk.operators import (
    ByteTableDesc,
    DiagonalMatrix1Desc,
    ElementWiseDequantizeLinearDesc,
    ElementWiseQuantizedLinearAddDesc,
    ElementWiseQuantizeLinearDesc,
    MaxPooling2Desc,
    OneHotDesc,
    OperatorDesc,
    QuantizedLinearAveragePoolingDesc,
    Slice1Desc,
)
from dmlvk.runtime.shared_devices import DeviceName, device_of
from dmlvk.runtime.tensor import Tensor
from dmlvk.tensor_desc import MAXIMUM_UINT32, TensorDesc


@_signatures.one_liner(_signatures.diagonal_matrix1)
def diagonal_matrix1(
    input: Argument | None = None,
    *,
    sizes: Integers | None = None,
    value: Any,
    diagonal_fill_begin: SupportsIndex,
    diagonal_fill_end: SupportsIndex,
    dtype: DType | None = None,
    device: DeviceName = None,
) -> Operand:
    """Fill a band of diagonals with a value; if begin > end, fill everything except a band.

    Args:
        input (array_like or Tensor, optional): Rank 2 to 4. Elements outside the fill keep the input's values; without
            an input, they are zeros.
        sizes (sequence of int, optional): Sizes of the output. Required without an input; the input's sizes otherwise.
        value (number): The value to fill with. A NumPy scalar of the output's type keeps its bits.
        diagonal_fill_begin (int): The first diagonal of the fill: elements with begin <= x - y < end are filled.
        diagonal_fill_end (int): The diagonal behind the last one. If it is below `diagonal_fill_begin`, elements with x
            - y < end or x - y >= begin are filled.
        dtype (dtype, optional): Type of the output: the input's type. Without an input, it defaults to that of
            ``numpy.asarray(value)``.
        device (Device, DeviceInfo, str or int, optional): A Device, an element or an index of `dmlvk.devices()`, or
            part of a device's name. A device that is named is opened once and kept. Defaults to the device of the
            tensors given, else to $DMLVK_DEVICE or the best device.

    Returns:
        numpy.ndarray or Tensor: A Tensor if `input` is one.

    Raises:
        DescriptorError: For sizes, types or values that DIAGONAL_MATRIX1 does not accept.
        TypeError: For a dtype without a DirectML data type, or if neither `input` nor `sizes` is given.

    Source: the page DML_DIAGONAL_MATRIX1_OPERATOR_DESC.

    >>> dmlvk.diagonal_matrix1(sizes=(3, 4), value=7, diagonal_fill_begin=0, diagonal_fill_end=2, dtype="int8")
    array([[7, 7, 0, 0],
           [0, 7, 7, 0],
           [0, 0, 7, 7]], dtype=int8)
    """
    given = None if dtype is None else as_data_type(dtype)
    operand = output = described = None
    if input is not None:
        operand = as_operand("input", input, given.numpy_dtype if given is not None and is_untyped(input) else None)
        described = described_tensor(operand)
        if given is not None or sizes is not None:
            data_type = described.data_type if given is None else given
            output = TensorDesc(data_type, described.sizes if sizes is None else sizes)
    elif sizes is None:
        raise TypeError("diagonal_matrix1 needs input or sizes: neither says how large the output is")
    else:
        output = TensorDesc(as_data_type(np.asarray(value).dtype) if given is None else given, sizes)
    fields: dict[str, Any] = {
        "input_tensor": described,
        "output_tensor": output,  # None: as the input
        "value": value,
        "diagonal_fill_begin": diagonal_fill_begin,
        "diagonal_fill_end": diagonal_fill_end,
    }
    desc = DiagonalMatrix1Desc(**fields)
    return _run(desc, {"input_tensor": operand}, device)


@_signatures.one_liner(_signatures.one_hot)
def one_hot(
    indices: Argument, values: Argument, *, output_length: SupportsIndex, axis: SupportsIndex, device: DeviceName = None
) -> Operand:
    """Turn each index into a sequence of `output_length` elements: on at the index, off elsewhere.

    Args:
        indices (array_like or Tensor): int32, int64, uint32 or uint64, with size 1 at `axis`. A negative index counts
            once from the end. For an index out of range, the whole sequence is off.
        values (array_like or Tensor): Element 0 is the off value. Element 1 along the last dimension larger than 1 is
            the on value. An array whose rank differs from that of `indices`, such as ``[0.0, 1.0]``, gets leading
            dimensions of 1; a Tensor must have that rank.
        output_length (int): Size of the output at `axis`.
        axis (int): Dimension of the sequences; a negative one counts from the last.
        device (Device, DeviceInfo, str or int, optional): A Device, an element or an index of `dmlvk.devices()`, or
            part of a device's name. A device that is named is opened once and kept. Defaults to the device of the
            tensors given, else to $DMLVK_DEVICE or the best device.

    Returns:
        numpy.ndarray or Tensor: Of the type of `values`; a Tensor if an argument is one.

    Raises:
        DescriptorError: For sizes, types or an axis that ONE_HOT does not accept.

    Source: the page DML_ONE_HOT_OPERATOR_DESC.

    >>> dmlvk.one_hot([[2], [0]], np.array([0, 1], np.uint8), output_length=3, axis=1)
    array([[0, 0, 1],
           [1, 0, 0]], dtype=uint8)
    """
    index_operand = as_operand("indices", indices)
    index_desc = described_tensor(index_operand)
    rank = index_desc.rank
    value_operand = with_rank(as_operand("values", values), rank)
    value_desc = described_tensor(value_operand)
    rule = f"must name one of the {rank} dimensions of indices"
    dimension = as_integer("one_hot", "axis", axis, -rank, rank - 1, rule) % rank
    rule = "a sequence has 1 element or more"
    length = as_integer("one_hot", "output_length", output_length, 1, MAXIMUM_UINT32, rule)
    output_sizes = (*index_desc.sizes[:dimension], length, *index_desc.sizes[dimension + 1 :])
    desc = OneHotDesc(
        indices_tensor=index_desc,
        values_tensor=value_desc,
        output_tensor=TensorDesc(value_desc.data_type, output_sizes),
        axis=dimension,
    )
    return _run(desc, {"indices_tensor": index_operand, "values_tensor": value_operand}, device)


@_signatures.one_liner(_signatures.slice1)
def slice1(
    input: Argument,
    *,
    input_window_offsets: Integers,
    input_window_sizes: Integers,
    input_window_strides: Integers,
    output_sizes: Integers | None = None,
    device: DeviceName = None,
) -> Operand:
    """Copy a strided window of an array; a negative stride starts at the window's end.

    Args:
        input (array_like or Tensor): Rank 1 to 8.
        input_window_offsets (sequence of int): Where the window begins, one element for each dimension.
        input_window_sizes (sequence of int): How many elements of the input the window spans, one size for each
            dimension. It must lie inside the input.
        input_window_strides (sequence of int): How far apart the copied elements of the window are, one for each
            dimension. A negative stride copies backwards, from the window's end; 0 is refused.
        output_sizes (sequence of int, optional): Defaults to all elements of the window: 1 + (size - 1) // abs(stride).
        device (Device, DeviceInfo, str or int, optional): A Device, an element or an index of `dmlvk.devices()`, or
            part of a device's name. A device that is named is opened once and kept. Defaults to the device of the
            tensors given, else to $DMLVK_DEVICE or the best device.

    Returns:
        numpy.ndarray or Tensor: Of the type of `input`; a Tensor if `input` is one.

    Raises:
        DescriptorError: For a window or sizes that SLICE1 does not accept.

    Source: the page DML_SLICE1_OPERATOR_DESC.

    >>> matrix = np.arange(8).reshape(2, 4)
    >>> dmlvk.slice1(matrix, input_window_offsets=(0, 1), input_window_sizes=(2, 3), input_window_strides=(1, -2))
    array([[3, 1],
           [7, 5]])
    """
    operand = as_operand("input", input)
    described = described_tensor(operand)
    output = None if output_sizes is None else TensorDesc(described.data_type, output_sizes)
    fields: dict[str, Any] = {
        "input_tensor": described,
        "output_tensor": output,  # None: all that the window gives
        "input_window_offsets": input_window_offsets,
        "input_window_sizes": input_window_sizes,
        "input_window_strides": input_window_strides,
    }
    desc = Slice1Desc(**fields)
    return _run(desc, {"input_tensor": operand}, device)


@_signatures.one_liner(_signatures.quantized_linear_convolution)
def quantized_linear_convolution(
    input: Argument,
    input_scale: Argument,
    filter: Argument,
    filter_scale: Argument,
    output_scale: Argument,
    *,
    input_zero_point: Argument | None = None,
    filter_zero_point: Argument | None = None,
    bias: Argument | None = None,
    output_zero_point: Argument | None = None,
    output_dtype: DType | None = None,
    strides: Integers = (1, 1),
    dilations: Integers = (1, 1),
    start_padding: Integers = (0, 0),
    end_padding: Integers = (0, 0),
    group_count: SupportsIndex = 1,
    device: DeviceName = None,
) -> Operand:
    """Convolve int8 or uint8 arrays that have scales and zero points.

    Args:
        input (array_like or Tensor): int8 or uint8, {N, C, H, W} or {N, C, W}.
        input_scale (float or array_like or Tensor): The real step between two integers of the input: one number,
            rounded to float32 unless it is a Tensor.
        filter (array_like or Tensor): int8 or uint8, {M, C / group_count, H, W} or {M, C / group_count, W}.
        filter_scale (float or array_like or Tensor): The step of the filter: one number, or one for each output
            channel, {M} or {1, M, 1, 1}.
        output_scale (float or array_like or Tensor): The step of the output, one number.
        input_zero_point (int or array_like or Tensor, optional): The input element that stands for 0, in the range of
            the input's type; default 0.
        filter_zero_point (int or array_like or Tensor, optional): The filter element that stands for 0: one number, or
            one for each output channel; default 0.
        bias (array_like or Tensor, optional): Added to the sums: in the range of int32, {M} or {1, M, 1, 1}. A Tensor
            must have the rank of `input`.
        output_zero_point (int or array_like or Tensor, optional): The output element that stands for 0, in the range of
            the output's type; default 0.
        output_dtype (dtype, optional): int8 or uint8. Defaults to the type of `output_zero_point` if that is int8 or
            uint8, else to that of `input`.
        strides (sequence of int): How far the window moves for each output element, (height, width). For rank 3, one
            element is accepted too.
        dilations (sequence of int): How far apart a filter's neighbouring elements are on the input, in the same form.
        start_padding (sequence of int): How many rows and columns of real zeros stand before the input, in the same
            form.
        end_padding (sequence of int): How many rows and columns of real zeros stand behind the input, in the same form.
        group_count (int): Into how many groups the channels fall; an output channel sees the input channels of its
            group.
        device (Device, DeviceInfo, str or int, optional): A Device, an element or an index of `dmlvk.devices()`, or
            part of a device's name. A device that is named is opened once and kept. Defaults to the device of the
            tensors given, else to $DMLVK_DEVICE or the best device.

    Returns:
        numpy.ndarray or Tensor: Of `output_dtype`; a Tensor if an argument is one.

    Raises:
        DescriptorError: For sizes, types or values that QUANTIZED_LINEAR_CONVOLUTION does not accept.
        TypeError: For a scale that is not a real number, or a zero point or bias that is not an integer.

    Source: the page DML_QUANTIZED_LINEAR_CONVOLUTION_OPERATOR_DESC.

    >>> row = np.array([[[0, 10, 30, 90]]], np.uint8)
    >>> dmlvk.quantized_linear_convolution(row, 1, np.array([[[-1, 0, 1]]], np.int8), 1, 0.5, output_dtype="uint8")
    array([[[ 60, 160]]], dtype=uint8)
    """
    filter_operand = as_operand("filter", filter)
    input_operand = as_operand("input", input)
    constants: dict[str, Any] = {
        "input_scale": input_scale,
        "filter_scale": filter_scale,
        "output_scale": output_scale,
        "input_zero_point": input_zero_point,
        "filter_zero_point": filter_zero_point,
        "output_zero_point": output_zero_point,
        "bias": bias,
    }
    windows = {"strides": strides, "dilations": dilations, "start_padding": start_padding, "end_padding": end_padding}
    described = described_tensor(input_operand)
    operands = convolution_operands(described, filter_operand, constants, output_dtype)
    tensors = {name: described_tensor(operand) for name, operand in operands.items()}
    desc = convolution_desc(described, tensors, constants["output_zero_point"], output_dtype, windows, group_count)
    operands["input_tensor"] = input_operand
    return _run(desc, operands, device)


@_signatures.one_liner(_signatures.max_pooling2)
def max_pooling2(
    input: Argument,
    *,
    window_size: Integers,
    strides: Integers | None = None,
    start_padding: Integers | None = None,
    end_padding: Integers | None = None,
    dilations: Integers | None = None,
    return_indices: bool = False,
    device: DeviceName = None,
) -> Any:
    """Take the largest element of each window of an array of integers.

    Args:
        input (array_like or Tensor): Integers, {N, C, H, W} or {N, C, D, H, W}.
        window_size (sequence of int): One for each spatial dimension, as the other sequences.
        strides (sequence of int, optional): How far the window moves for each output element: 1 by default.
        start_padding (sequence of int, optional): How many elements of padding stand before the input: 0 by default.
        end_padding (sequence of int, optional): How many elements of padding stand behind the input: 0 by default. It
            is never the largest element.
        dilations (sequence of int, optional): How far apart a window's neighbouring elements are: 1 by default.
        return_indices (bool, optional): Whether to return where in the input each output was found, too.
        device (Device, DeviceInfo, str or int, optional): A Device, an element or an index of `dmlvk.devices()`, or
            part of a device's name. A device that is named is opened once and kept. Defaults to the device of the
            tensors given, else to $DMLVK_DEVICE or the best device.

    Returns:
        numpy.ndarray or Tensor: Of the type of `input`; a Tensor if `input` is one. With `return_indices`, a pair: the
            second one, of uint32, has the indices of the packed input; of equal elements, the first one counts.

    Raises:
        DescriptorError: For types, sizes or windows that MAX_POOLING2 does not accept.

    Source: the page DML_MAX_POOLING2_OPERATOR_DESC.

    >>> plane = np.array([[[[1, 5, 2], [7, 0, 3]]]], np.int8)
    >>> dmlvk.max_pooling2(plane, window_size=(2, 2))
    array([[[[7, 5]]]], dtype=int8)
    """
    operand = as_operand("input", input)
    described = described_tensor(operand)
    fields = _windows(described, window_size, strides, start_padding, end_padding, dilations)
    desc = MaxPooling2Desc(input_tensor=described, **fields)
    if return_indices:
        desc = replace(desc, output_indices_tensor=TensorDesc(DataType.UINT32, desc.output_tensor.sizes))
    return _run(desc, {"input_tensor": operand}, device)


@_signatures.one_liner(_signatures.quantized_linear_average_pooling)
def quantized_linear_average_pooling(
    input: Argument,
    input_scale: Argument,
    output_scale: Argument,
    *,
    window_size: Integers,
    input_zero_point: Argument | None = None,
    output_zero_point: Argument | None = None,
    output_dtype: DType | None = None,
    strides: Integers | None = None,
    start_padding: Integers | None = None,
    end_padding: Integers | None = None,
    dilations: Integers | None = None,
    include_padding: bool = False,
    device: DeviceName = None,
) -> Operand:
    """Take the mean of each window of an int8 or uint8 array that has a scale and a zero point.

    Args:
        input (array_like or Tensor): int8 or uint8, {N, C, H, W} or {N, C, D, H, W}.
        input_scale (float or array_like or Tensor): The step of the input: one number, or one for each channel; rounded
            to float32 unless it is a Tensor.
        output_scale (float or array_like or Tensor): The step of the output, in the same form.
        window_size (sequence of int): One for each spatial dimension, as the other sequences.
        input_zero_point (int or array_like or Tensor, optional): The input element that stands for 0: one number, or
            one for each channel; default 0.
        output_zero_point (int or array_like or Tensor, optional): The output element that stands for 0, in the same
            form; default 0.
        output_dtype (dtype, optional): int8 or uint8. Defaults to the type of `output_zero_point` if that is int8 or
            uint8, else to that of `input`.
        strides (sequence of int, optional): How far the window moves for each output element: 1 by default.
        start_padding (sequence of int, optional): How many elements of padding stand before the input: 0 by default.
        end_padding (sequence of int, optional): How many elements of padding stand behind the input: 0 by default.
        dilations (sequence of int, optional): How far apart a window's neighbouring elements are: 1 by default.
        include_padding (bool, optional): Whether padding counts in the means, as real zeros.
        device (Device, DeviceInfo, str or int, optional): A Device, an element or an index of `dmlvk.devices()`, or
            part of a device's name. A device that is named is opened once and kept. Defaults to the device of the
            tensors given, else to $DMLVK_DEVICE or the best device.

    Returns:
        numpy.ndarray or Tensor: Of `output_dtype`; a Tensor if an argument is one. The bits are those of ONNX Runtime's
            QLinearAveragePool.

    Raises:
        DescriptorError: For sizes, types or values that QUANTIZED_LINEAR_AVERAGE_POOLING does not accept.
        TypeError: For a scale that is not a real number, or a zero point that is not an integer.

    Source: the page DML_QUANTIZED_LINEAR_AVERAGE_POOLING_OPERATOR_DESC.

    >>> plane = np.array([[[[1, 5, 2], [7, 3, 6]]]], np.int8)
    >>> dmlvk.quantized_linear_average_pooling(plane, 1, 1, window_size=(2, 2))
    array([[[[4, 4]]]], dtype=int8)
    """
    name = "quantized_linear_average_pooling"
    operands: dict[str, Operand | None] = {"input_tensor": (operand := as_operand("input", input))}
    described = described_tensor(operand)
    output_type = quantized_data_type(output_dtype, output_zero_point, described.data_type, name)
    for end, scale, zero_point, data_type in (
        ("input", input_scale, input_zero_point, described.data_type),
        ("output", output_scale, output_zero_point, output_type),
    ):
        operands[f"{end}_scale_tensor"] = scale_operand(f"{end}_scale", scale, 4, name)
        operands[f"{end}_zero_point_tensor"] = integer_operand(f"{end}_zero_point", zero_point, data_type, 4, name)
    fields: dict[str, Any] = {f: described_tensor(each) for f, each in operands.items() if each is not None}
    fields |= _windows(described, window_size, strides, start_padding, end_padding, dilations)
    desc = QuantizedLinearAveragePoolingDesc(**fields, include_padding=include_padding)
    if desc.output_tensor.data_type is not output_type:
        desc = replace(desc, output_tensor=TensorDesc(output_type, desc.output_tensor.sizes))
    return _run(desc, operands, device)


def _windows(
    described: TensorDesc,
    window_size: Integers,
    strides: Integers | None,
    start_padding: Integers | None,
    end_padding: Integers | None,
    dilations: Integers | None,
) -> dict[str, Any]:
    """The fields of a pooling's windows, with defaults for what is left out."""
    ones, zeros = ((number,) * (described.rank - 2) for number in (1, 0))
    return {
        "window_size": window_size,
        "strides": ones if strides is None else strides,
        "start_padding": zeros if start_padding is None else start_padding,
        "end_padding": zeros if end_padding is None else end_padding,
        "dilations": ones if dilations is None else dilations,
    }


@_signatures.one_liner(_signatures.byte_table)
def byte_table(
    input: Argument,
    table: Argument,
    *,
    second_input: Argument | None = None,
    axis: SupportsIndex | None = None,
    device: DeviceName = None,
) -> Operand:
    """Look up each byte in a table, or each pair of bytes: any function of one or two 8-bit numbers.

    Args:
        input (array_like or Tensor): int8 or uint8. A byte is an index by its bits, so that -1 is the table's last
            element, as in NumPy.
        table (array_like or Tensor): int8 or uint8: (256,), or with a second input (65536,) or (256, 256), of which
            `input` chooses the row. With an axis there is one for each index along it: (n, 256), (n, 65536) or (n, 256,
            256).
        second_input (array_like or Tensor, optional): int8 or uint8. It broadcasts with `input`, as in NumPy; a Tensor
            must have the sizes of the result.
        axis (int, optional): The dimension of the result along which tables change; a negative one counts from the
            last.
        device (Device, DeviceInfo, str or int, optional): A Device, an element or an index of `dmlvk.devices()`, or
            part of a device's name. A device that is named is opened once and kept. Defaults to the device of the
            tensors given, else to $DMLVK_DEVICE or the best device.

    Returns:
        numpy.ndarray or Tensor: Of the type of `table`; a Tensor if an argument is one.

    Raises:
        DescriptorError: For sizes, types or an axis that BYTE_TABLE does not accept.

    >>> squares = np.minimum(np.arange(256) ** 2, 255).astype(np.uint8)
    >>> dmlvk.byte_table(np.array([2, 3, 40], np.uint8), squares)
    array([  4,   9, 255], dtype=uint8)
    """
    operands = {"input_tensor": as_operand("input", input), "table_tensor": as_operand("table", table)}
    if second_input is not None:
        operands["second_input_tensor"] = as_operand("second_input", second_input)
    tables = operands["table_tensor"]
    if not isinstance(tables, Tensor) and second_input is not None and tables.shape[-2:] == (256, 256):
        operands["table_tensor"] = tables.reshape((*tables.shape[:-2], 256 * 256))
    sizes = broadcast_sizes(
        "byte_table", {name: operand for name, operand in operands.items() if name != "table_tensor"}
    )
    fields: dict[str, Any] = {
        name: described_tensor(operand) if name == "table_tensor" else broadcast_desc(operand, sizes)
        for name, operand in operands.items()
    }
    if axis is not None:
        rule = f"must name one of the {len(sizes)} dimensions of the result"
        fields["axis"] = as_integer("byte_table", "axis", axis, -len(sizes), len(sizes) - 1, rule) % len(sizes)
    return _run(ByteTableDesc(**fields), operands, device)


@_signatures.one_liner(_signatures.quantized_linear_add)
def quantized_linear_add(
    a: Argument,
    a_scale: Argument,
    b: Argument,
    b_scale: Argument,
    output_scale: Argument,
    *,
    a_zero_point: Argument | None = None,
    b_zero_point: Argument | None = None,
    output_zero_point: Argument | None = None,
    output_dtype: DType | None = None,
    device: DeviceName = None,
) -> Operand:
    """Add int8 or uint8 arrays that have scales and zero points.

    Args:
        a (array_like or Tensor): int8 or uint8. It broadcasts with `b` as in NumPy; a Tensor must have the sizes of the
            result.
        a_scale (float or array_like or Tensor): The step of `a`: one number, rounded to float32 unless it is a Tensor.
        b (array_like or Tensor): int8 or uint8. With `a` and `b` exchanged, a sum may differ by 1 where it lies between
            two integers.
        b_scale (float or array_like or Tensor): The step of `b`, one number.
        output_scale (float or array_like or Tensor): The step of the sum, one number.
        a_zero_point (int or array_like or Tensor, optional): The element of `a` that stands for 0: one number in the
            range of its type; default 0.
        b_zero_point (int or array_like or Tensor, optional): The element of `b` that stands for 0; default 0.
        output_zero_point (int or array_like or Tensor, optional): The output element that stands for 0; default 0.
        output_dtype (dtype, optional): int8 or uint8. Defaults to the type of `output_zero_point` if that is int8 or
            uint8, else to that of `a`.
        device (Device, DeviceInfo, str or int, optional): A Device, an element or an index of `dmlvk.devices()`, or
            part of a device's name. A device that is named is opened once and kept. Defaults to the device of the
            tensors given, else to $DMLVK_DEVICE or the best device.

    Returns:
        numpy.ndarray or Tensor: Of `output_dtype`; a Tensor if an argument is one.

    Raises:
        DescriptorError: For sizes, types or values that ELEMENT_WISE_QUANTIZED_LINEAR_ADD does not accept.
        TypeError: For a scale that is not a real number, or a zero point that is not an integer.

    Source: the page DML_ELEMENT_WISE_QUANTIZED_LINEAR_ADD_OPERATOR_DESC.

    >>> dmlvk.quantized_linear_add(np.int8([10, 100]), 0.5, np.int8([4, 90]), 1, 1)
    array([  9, 127], dtype=int8)
    """
    function = "quantized_linear_add"
    data = {"a_tensor": as_operand("a", a), "b_tensor": as_operand("b", b)}
    sizes = broadcast_sizes(function, data)
    fields: dict[str, Any] = {name: broadcast_desc(operand, sizes) for name, operand in data.items()}
    output_type = quantized_data_type(output_dtype, output_zero_point, fields["a_tensor"].data_type, function)
    operands: dict[str, Operand] = dict(data)
    for name, scale, zero_point in (
        ("a", a_scale, a_zero_point),
        ("b", b_scale, b_zero_point),
        ("output", output_scale, output_zero_point),
    ):
        operands[f"{name}_scale_tensor"] = with_rank(scale_operand(f"{name}_scale", scale, None, function), len(sizes))
        data_type = output_type if name == "output" else fields[f"{name}_tensor"].data_type
        checked = integer_operand(f"{name}_zero_point", zero_point, data_type, None, function)
        if checked is not None:
            operands[f"{name}_zero_point_tensor"] = with_rank(checked, len(sizes))
    fields |= {name: described_tensor(operand) for name, operand in operands.items() if name not in fields}
    fields["output_tensor"] = TensorDesc(output_type, sizes)
    return _run(ElementWiseQuantizedLinearAddDesc(**fields), operands, device)


@_signatures.one_liner(_signatures.quantize_linear)
def quantize_linear(
    input: Argument,
    scale: Argument,
    *,
    zero_point: Argument | None = None,
    axis: SupportsIndex | None = None,
    output_dtype: DType | None = None,
    device: DeviceName = None,
) -> Operand:
    """Make 8-bit integers of floats: round(input / scale) + zero point, halves to even, clamped to the type.

    Args:
        input (array_like or Tensor): float32.
        scale (float or array_like or Tensor): One number, or an array that broadcasts to `input` as in NumPy; with an
            axis, one for each index along it. It is rounded to float32. A Tensor has one element, or the sizes of
            `input`.
        zero_point (int or array_like or Tensor, optional): In the same forms, and in the range of the result's type;
            default 0.
        axis (int, optional): The dimension of `input` along which scales and zero points of one dimension lie; a
            negative one counts from the last.
        output_dtype (dtype, optional): int8 or uint8. Defaults to the type of `zero_point` if that is int8 or uint8,
            else to uint8.
        device (Device, DeviceInfo, str or int, optional): A Device, an element or an index of `dmlvk.devices()`, or
            part of a device's name. A device that is named is opened once and kept. Defaults to the device of the
            tensors given, else to $DMLVK_DEVICE or the best device.

    Returns:
        numpy.ndarray or Tensor: Of `output_dtype`; a Tensor if an argument is one.

    Raises:
        DescriptorError: For sizes, types or values that ELEMENT_WISE_QUANTIZE_LINEAR does not accept.
        TypeError: For a scale that is not a real number, or a zero point that is not an integer.

    Source: the page DML_ELEMENT_WISE_QUANTIZE_LINEAR_OPERATOR_DESC.

    >>> dmlvk.quantize_linear(np.float32([-1, 0, 0.5, 9]), 1 / 64, zero_point=np.uint8(128))
    array([ 64, 128, 160, 255], dtype=uint8)
    """
    function = "quantize_linear"
    data = as_operand("input", input, np.float32 if is_untyped(input) else None)
    output_type = quantized_data_type(output_dtype, zero_point, DataType.UINT8, function)
    operands, fields = _linear(function, data, scale, zero_point, output_type, axis)
    fields["output_tensor"] = TensorDesc(output_type, fields["input_tensor"].sizes)
    return _run(ElementWiseQuantizeLinearDesc(**fields), operands, device)


@_signatures.one_liner(_signatures.dequantize_linear)
def dequantize_linear(
    input: Argument,
    scale: Argument,
    *,
    zero_point: Argument | None = None,
    axis: SupportsIndex | None = None,
    device: DeviceName = None,
) -> Operand:
    """Make floats of 8-bit integers: (input - zero point) * scale.

    Args:
        input (array_like or Tensor): int8 or uint8.
        scale (float or array_like or Tensor): One number, or an array that broadcasts to `input` as in NumPy; with an
            axis, one for each index along it. It is rounded to float32. A Tensor has one element, or the sizes of
            `input`.
        zero_point (int or array_like or Tensor, optional): In the same forms, and in the range of the type of `input`;
            default 0.
        axis (int, optional): The dimension of `input` along which scales and zero points of one dimension lie; a
            negative one counts from the last.
        device (Device, DeviceInfo, str or int, optional): A Device, an element or an index of `dmlvk.devices()`, or
            part of a device's name. A device that is named is opened once and kept. Defaults to the device of the
            tensors given, else to $DMLVK_DEVICE or the best device.

    Returns:
        numpy.ndarray or Tensor: float32; a Tensor if an argument is one.

    Raises:
        DescriptorError: For sizes, types or values that ELEMENT_WISE_DEQUANTIZE_LINEAR does not accept.
        TypeError: For a scale that is not a real number, or a zero point that is not an integer.

    Source: the page DML_ELEMENT_WISE_DEQUANTIZE_LINEAR_OPERATOR_DESC.

    >>> dmlvk.dequantize_linear(np.uint8([64, 128, 160]), 1 / 64, zero_point=128)
    array([-1. ,  0. ,  0.5], dtype=float32)
    """
    data = as_operand("input", input)
    operands, fields = _linear("dequantize_linear", data, scale, zero_point, described_tensor(data).data_type, axis)
    return _run(ElementWiseDequantizeLinearDesc(**fields), operands, device)


def _linear(
    function: str, data: Operand, scale: Any, zero_point: Any, quantized: DataType, axis: SupportsIndex | None
) -> tuple[dict[str, Operand], dict[str, Any]]:
    """The operands and the tensors of quantize_linear and dequantize_linear, by field, without the output."""
    sizes = described_tensor(data).sizes
    operands = {"input_tensor": data, "scale_tensor": scale_operand("scale", scale, None, function)}
    checked = integer_operand("zero_point", zero_point, quantized, None, function)
    if checked is not None:
        operands["zero_point_tensor"] = checked
    if axis is not None:
        rule = f"must name one of the {len(sizes)} dimensions of input"
        dimension = as_integer(function, "axis", axis, -len(sizes), len(sizes) - 1, rule) % len(sizes)
        for name in ("scale_tensor", "zero_point_tensor"):
            parameter = operands.get(name)
            if parameter is not None and not isinstance(parameter, Tensor) and parameter.ndim == 1:
                operands[name] = parameter.reshape((-1, *(1,) * (len(sizes) - 1 - dimension)))
    return operands, {name: broadcast_desc(operand, sizes) for name, operand in operands.items()}


def _run(desc: OperatorDesc, operands: Mapping[str, Operand | None], device: DeviceName) -> Any:
    """Bind the operands by field name and run the operator. The output goes to where the operands came from.

    Several outputs are a tuple.
    """
    present = {name: operand for name, operand in operands.items() if operand is not None}
    on_device = {name: operand for name, operand in present.items() if isinstance(operand, Tensor)}
    chosen = device_of(on_device, device)
    bound = {
        name: operand if isinstance(operand, Tensor) else brought(chosen, operand, desc.tensors[name])
        for name, operand in present.items()
    }
    outputs = {name: chosen.tensor(desc.tensors[name]) for name in desc.output_fields if name in desc.tensors}
    submission = chosen.compile(desc)(**bound, **outputs)
    if not on_device:
        submission.wait()
    results = tuple(outputs.values() if on_device else (output.numpy() for output in outputs.values()))
    return results if len(results) > 1 else results[0]
