# Written by `python -m tools.stubs` from the operators' declarations.

from collections.abc import Callable
from typing import Any, Literal, SupportsIndex, TypeVar, overload

import numpy as np
import numpy.typing as npt

from dmlvk._operands import Argument, Array, DType, Integers, Operand, Plain, Scalar
from dmlvk.runtime.shared_devices import DeviceName
from dmlvk.runtime.tensor import Tensor

Function = TypeVar("Function")

def one_liner(signature: Function) -> Callable[[Callable[..., Any]], Function]: ...

@overload
def diagonal_matrix1(
    input: Tensor,
    *,
    sizes: Integers | None = None,
    value: Any,
    diagonal_fill_begin: SupportsIndex,
    diagonal_fill_end: SupportsIndex,
    dtype: DType | None = None,
    device: DeviceName = None,
) -> Tensor:
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

@overload
def diagonal_matrix1(
    input: npt.NDArray[Scalar],
    *,
    sizes: Integers | None = None,
    value: Any,
    diagonal_fill_begin: SupportsIndex,
    diagonal_fill_end: SupportsIndex,
    dtype: DType | None = None,
    device: DeviceName = None,
) -> npt.NDArray[Scalar]: ...

@overload
def diagonal_matrix1(
    input: Plain,
    *,
    sizes: Integers | None = None,
    value: Any,
    diagonal_fill_begin: SupportsIndex,
    diagonal_fill_end: SupportsIndex,
    dtype: DType | None = None,
    device: DeviceName = None,
) -> Array: ...

@overload
def diagonal_matrix1(
    input: None = None,
    *,
    sizes: Integers,
    value: Any,
    diagonal_fill_begin: SupportsIndex,
    diagonal_fill_end: SupportsIndex,
    dtype: DType | None = None,
    device: DeviceName = None,
) -> Array: ...

@overload
def diagonal_matrix1(
    input: Argument,
    *,
    sizes: Integers | None = None,
    value: Any,
    diagonal_fill_begin: SupportsIndex,
    diagonal_fill_end: SupportsIndex,
    dtype: DType | None = None,
    device: DeviceName = None,
) -> Operand: ...

@overload
def one_hot(
    indices: Tensor,
    values: Argument,
    *,
    output_length: SupportsIndex,
    axis: SupportsIndex,
    device: DeviceName = None,
) -> Tensor:
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

@overload
def one_hot(
    indices: Argument,
    values: Tensor,
    *,
    output_length: SupportsIndex,
    axis: SupportsIndex,
    device: DeviceName = None,
) -> Tensor: ...

@overload
def one_hot(
    indices: Plain,
    values: npt.NDArray[Scalar],
    *,
    output_length: SupportsIndex,
    axis: SupportsIndex,
    device: DeviceName = None,
) -> npt.NDArray[Scalar]: ...

@overload
def one_hot(
    indices: Plain,
    values: Plain,
    *,
    output_length: SupportsIndex,
    axis: SupportsIndex,
    device: DeviceName = None,
) -> Array: ...

@overload
def one_hot(
    indices: Argument,
    values: Argument,
    *,
    output_length: SupportsIndex,
    axis: SupportsIndex,
    device: DeviceName = None,
) -> Operand: ...

@overload
def slice1(
    input: Tensor,
    *,
    input_window_offsets: Integers,
    input_window_sizes: Integers,
    input_window_strides: Integers,
    output_sizes: Integers | None = None,
    device: DeviceName = None,
) -> Tensor:
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

@overload
def slice1(
    input: npt.NDArray[Scalar],
    *,
    input_window_offsets: Integers,
    input_window_sizes: Integers,
    input_window_strides: Integers,
    output_sizes: Integers | None = None,
    device: DeviceName = None,
) -> npt.NDArray[Scalar]: ...

@overload
def slice1(
    input: Plain,
    *,
    input_window_offsets: Integers,
    input_window_sizes: Integers,
    input_window_strides: Integers,
    output_sizes: Integers | None = None,
    device: DeviceName = None,
) -> Array: ...

@overload
def slice1(
    input: Argument,
    *,
    input_window_offsets: Integers,
    input_window_sizes: Integers,
    input_window_strides: Integers,
    output_sizes: Integers | None = None,
    device: DeviceName = None,
) -> Operand: ...

@overload
def quantized_linear_convolution(
    input: Tensor,
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
) -> Tensor:
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

@overload
def quantized_linear_convolution(
    input: Argument,
    input_scale: Argument,
    filter: Tensor,
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
) -> Tensor: ...

@overload
def quantized_linear_convolution(
    input: Plain,
    input_scale: Plain,
    filter: Plain,
    filter_scale: Plain,
    output_scale: Plain,
    *,
    input_zero_point: Plain | None = None,
    filter_zero_point: Plain | None = None,
    bias: Plain | None = None,
    output_zero_point: Plain | None = None,
    output_dtype: DType | None = None,
    strides: Integers = (1, 1),
    dilations: Integers = (1, 1),
    start_padding: Integers = (0, 0),
    end_padding: Integers = (0, 0),
    group_count: SupportsIndex = 1,
    device: DeviceName = None,
) -> Array: ...

@overload
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
) -> Operand: ...

@overload
def max_pooling2(
    input: Tensor,
    *,
    window_size: Integers,
    strides: Integers | None = None,
    start_padding: Integers | None = None,
    end_padding: Integers | None = None,
    dilations: Integers | None = None,
    return_indices: Literal[False] = False,
    device: DeviceName = None,
) -> Tensor:
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

@overload
def max_pooling2(
    input: Tensor,
    *,
    window_size: Integers,
    strides: Integers | None = None,
    start_padding: Integers | None = None,
    end_padding: Integers | None = None,
    dilations: Integers | None = None,
    return_indices: Literal[True],
    device: DeviceName = None,
) -> tuple[Tensor, Tensor]: ...

@overload
def max_pooling2(
    input: Plain,
    *,
    window_size: Integers,
    strides: Integers | None = None,
    start_padding: Integers | None = None,
    end_padding: Integers | None = None,
    dilations: Integers | None = None,
    return_indices: Literal[False] = False,
    device: DeviceName = None,
) -> Array: ...

@overload
def max_pooling2(
    input: Plain,
    *,
    window_size: Integers,
    strides: Integers | None = None,
    start_padding: Integers | None = None,
    end_padding: Integers | None = None,
    dilations: Integers | None = None,
    return_indices: Literal[True],
    device: DeviceName = None,
) -> tuple[Array, Array]: ...

@overload
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
) -> Operand | tuple[Operand, Operand]: ...

@overload
def quantized_linear_average_pooling(
    input: Tensor,
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
) -> Tensor:
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

@overload
def quantized_linear_average_pooling(
    input: Plain,
    input_scale: Plain,
    output_scale: Plain,
    *,
    window_size: Integers,
    input_zero_point: Plain | None = None,
    output_zero_point: Plain | None = None,
    output_dtype: DType | None = None,
    strides: Integers | None = None,
    start_padding: Integers | None = None,
    end_padding: Integers | None = None,
    dilations: Integers | None = None,
    include_padding: bool = False,
    device: DeviceName = None,
) -> Array: ...

@overload
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
) -> Operand: ...

@overload
def byte_table(
    input: Tensor,
    table: Argument,
    *,
    second_input: Argument | None = None,
    axis: SupportsIndex | None = None,
    device: DeviceName = None,
) -> Tensor:
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

@overload
def byte_table(
    input: Argument,
    table: Tensor,
    *,
    second_input: Argument | None = None,
    axis: SupportsIndex | None = None,
    device: DeviceName = None,
) -> Tensor: ...

@overload
def byte_table(
    input: Plain,
    table: npt.NDArray[Scalar],
    *,
    second_input: Plain | None = None,
    axis: SupportsIndex | None = None,
    device: DeviceName = None,
) -> npt.NDArray[Scalar]: ...

@overload
def byte_table(
    input: Plain,
    table: Plain,
    *,
    second_input: Plain | None = None,
    axis: SupportsIndex | None = None,
    device: DeviceName = None,
) -> Array: ...

@overload
def byte_table(
    input: Argument,
    table: Argument,
    *,
    second_input: Argument | None = None,
    axis: SupportsIndex | None = None,
    device: DeviceName = None,
) -> Operand: ...

@overload
def quantized_linear_add(
    a: Tensor,
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
) -> Tensor:
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

@overload
def quantized_linear_add(
    a: Argument,
    a_scale: Argument,
    b: Tensor,
    b_scale: Argument,
    output_scale: Argument,
    *,
    a_zero_point: Argument | None = None,
    b_zero_point: Argument | None = None,
    output_zero_point: Argument | None = None,
    output_dtype: DType | None = None,
    device: DeviceName = None,
) -> Tensor: ...

@overload
def quantized_linear_add(
    a: Plain,
    a_scale: Plain,
    b: Plain,
    b_scale: Plain,
    output_scale: Plain,
    *,
    a_zero_point: Plain | None = None,
    b_zero_point: Plain | None = None,
    output_zero_point: Plain | None = None,
    output_dtype: DType | None = None,
    device: DeviceName = None,
) -> Array: ...

@overload
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
) -> Operand: ...

@overload
def quantize_linear(
    input: Tensor,
    scale: Argument,
    *,
    zero_point: Argument | None = None,
    axis: SupportsIndex | None = None,
    output_dtype: DType | None = None,
    device: DeviceName = None,
) -> Tensor:
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

@overload
def quantize_linear(
    input: Plain,
    scale: Plain,
    *,
    zero_point: Plain | None = None,
    axis: SupportsIndex | None = None,
    output_dtype: DType | None = None,
    device: DeviceName = None,
) -> Array: ...

@overload
def quantize_linear(
    input: Argument,
    scale: Argument,
    *,
    zero_point: Argument | None = None,
    axis: SupportsIndex | None = None,
    output_dtype: DType | None = None,
    device: DeviceName = None,
) -> Operand: ...

@overload
def dequantize_linear(
    input: Tensor,
    scale: Argument,
    *,
    zero_point: Argument | None = None,
    axis: SupportsIndex | None = None,
    device: DeviceName = None,
) -> Tensor:
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

@overload
def dequantize_linear(
    input: Plain,
    scale: Plain,
    *,
    zero_point: Plain | None = None,
    axis: SupportsIndex | None = None,
    device: DeviceName = None,
) -> npt.NDArray[np.float32]: ...

@overload
def dequantize_linear(
    input: Argument,
    scale: Argument,
    *,
    zero_point: Argument | None = None,
    axis: SupportsIndex | None = None,
    device: DeviceName = None,
) -> Operand: ...
