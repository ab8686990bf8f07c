"""The operators as functions: NumPy arrays in, a NumPy array out.

If any of its tensors is a dmlvk.Tensor, a function returns a dmlvk.Tensor, and no data leaves the device. The function
then does not wait; `Tensor.numpy` does.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dmlvk.arguments import as_integer, as_integers
from dmlvk.data_type import DataType
from dmlvk.errors import BindingError, DescriptorError, shown
from dmlvk.operators import DiagonalMatrix1Desc, OneHotDesc, OperatorDesc, QuantizedLinearConvolutionDesc, Slice1Desc
from dmlvk.operators.quantized_linear_convolution import SPATIAL_FIELDS, output_size
from dmlvk.operators.rules import INT32_MAX, INT32_MIN
from dmlvk.operators.slice1 import maximum_copied_elements
from dmlvk.runtime.device import Device
from dmlvk.runtime.tensor import Tensor
from dmlvk.tensor_desc import MAXIMUM_UINT32, TensorDesc
from dmlvk.vulkan.monitor import Monitor

Array: TypeAlias = npt.NDArray[Any]
Argument: TypeAlias = "npt.ArrayLike | Tensor"
Result: TypeAlias = "Array | Tensor"

_default_device: Device | None = None
_default_device_monitor = Monitor()


def diagonal_matrix1(
    input: Argument | None = None,
    *,
    sizes: Sequence[int] | None = None,
    value: Any,
    diagonal_fill_begin: int,
    diagonal_fill_end: int,
    dtype: npt.DTypeLike | DataType | None = None,
    device: Device | None = None,
) -> Any:
    """Fill a band of diagonals with a value; if begin > end, fill everything except a band.

    Parameters
    ----------
    input : array_like or Tensor, optional
        Rank 2 to 4. Elements outside the fill keep the input's values; without an input, they are zeros.
    sizes : sequence of int, optional
        Sizes of the output. Required without an input; the input's sizes otherwise.
    value : number
        The value to fill with. A NumPy scalar of the output's type keeps its bits.
    diagonal_fill_begin, diagonal_fill_end : int
        Elements with begin <= x - y < end are filled. If begin > end, those with x - y < end or x - y >= begin are.
    dtype : dtype, optional
        Type of the output: the input's type. Without an input, it defaults to that of ``numpy.asarray(value)``.
    device : Device, optional
        Defaults to the device of the tensors given, else to the process's default device.

    Returns
    -------
    numpy.ndarray, or Tensor if `input` is one

    Raises
    ------
    DescriptorError
        For sizes, types or values that DIAGONAL_MATRIX1 does not accept.
    TypeError
        For a dtype without a DirectML data type, or if neither `input` nor `sizes` is given.

    Notes
    -----
    Source: the page DML_DIAGONAL_MATRIX1_OPERATOR_DESC.
    """
    operand = None if input is None else _operand(input, _numpy_dtype(dtype) if _is_untyped(input) else None)
    described = None if operand is None else _describe(operand)
    if dtype is not None:
        data_type = _data_type(dtype)
    else:
        data_type = _data_type(np.asarray(value).dtype) if described is None else described.data_type
    if sizes is None:
        if described is None:
            raise TypeError("diagonal_matrix1 needs input or sizes: neither says how large the output is")
        sizes = described.sizes
    desc = DiagonalMatrix1Desc(
        input_tensor=described,
        output_tensor=TensorDesc(data_type, sizes),
        value=value,
        diagonal_fill_begin=diagonal_fill_begin,
        diagonal_fill_end=diagonal_fill_end,
    )
    return _run(desc, {"input_tensor": operand}, device)


def one_hot(
    indices: Argument,
    values: Argument,
    *,
    output_length: int,
    axis: int,
    device: Device | None = None,
) -> Any:
    """Turn each index into a sequence of `output_length` elements: on at the index, off elsewhere.

    Parameters
    ----------
    indices : array_like or Tensor
        int32, int64, uint32 or uint64, with size 1 at `axis`. A negative index counts once from the end. For an index
        out of range, the whole sequence is off.
    values : array_like or Tensor
        Element 0 is the off value. Element 1 along the last dimension larger than 1 is the on value. An array whose
        rank differs from that of `indices`, such as ``[0.0, 1.0]``, gets leading dimensions of 1; a Tensor must have
        that rank.
    output_length : int
        Size of the output at `axis`.
    axis : int
        Dimension of the sequences; a negative one counts from the last.
    device : Device, optional
        Defaults to the device of the tensors given, else to the process's default device.

    Returns
    -------
    numpy.ndarray of the type of `values`, or Tensor if an argument is one

    Raises
    ------
    DescriptorError
        For sizes, types or an axis that ONE_HOT does not accept.

    Notes
    -----
    Source: the page DML_ONE_HOT_OPERATOR_DESC.
    """
    index_operand, value_operand = _operand(indices), _operand(values)
    index_desc = _describe(index_operand)
    rank = index_desc.rank
    if isinstance(value_operand, np.ndarray):
        value_operand = _with_rank(value_operand, rank)
    rule = f"must name one of the {rank} dimensions of indices"
    dimension = as_integer("one_hot", "axis", axis, -rank, rank - 1, rule) % rank
    rule = "a sequence has 1 element or more"
    length = as_integer("one_hot", "output_length", output_length, 1, MAXIMUM_UINT32, rule)
    value_desc = _describe(value_operand)
    output_sizes = (*index_desc.sizes[:dimension], length, *index_desc.sizes[dimension + 1 :])
    desc = OneHotDesc(
        indices_tensor=index_desc,
        values_tensor=value_desc,
        output_tensor=TensorDesc(value_desc.data_type, output_sizes),
        axis=dimension,
    )
    return _run(desc, {"indices_tensor": index_operand, "values_tensor": value_operand}, device)


def slice1(
    input: Argument,
    *,
    input_window_offsets: Sequence[int],
    input_window_sizes: Sequence[int],
    input_window_strides: Sequence[int],
    output_sizes: Sequence[int] | None = None,
    device: Device | None = None,
) -> Any:
    """Copy a strided window of an array; a negative stride starts at the window's end.

    Parameters
    ----------
    input : array_like or Tensor
        Rank 1 to 8.
    input_window_offsets, input_window_sizes, input_window_strides : sequence of int
        One element for each dimension. The window must lie inside the input, and strides must not be 0.
    output_sizes : sequence of int, optional
        Defaults to all elements of the window: 1 + (size - 1) // abs(stride).
    device : Device, optional
        Defaults to the device of the tensors given, else to the process's default device.

    Returns
    -------
    numpy.ndarray of the type of `input`, or Tensor if `input` is one

    Raises
    ------
    DescriptorError
        For a window or sizes that SLICE1 does not accept.

    Notes
    -----
    Source: the page DML_SLICE1_OPERATOR_DESC.
    """
    operand = _operand(input)
    described = _describe(operand)
    rule = "the window may not be empty"
    input_window_sizes = as_integers("slice1", "input_window_sizes", input_window_sizes, 1, MAXIMUM_UINT32, rule)
    rule = "a window stride has 32 signed bits"
    input_window_strides = as_integers(
        "slice1", "input_window_strides", input_window_strides, INT32_MIN, INT32_MAX, rule
    )
    if output_sizes is None:
        output_sizes = _most_elements(described.rank, input_window_sizes, input_window_strides)
    desc = Slice1Desc(
        input_tensor=described,
        output_tensor=TensorDesc(described.data_type, output_sizes),
        input_window_offsets=input_window_offsets,
        input_window_sizes=input_window_sizes,
        input_window_strides=input_window_strides,
    )
    return _run(desc, {"input_tensor": operand}, device)


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
    output_dtype: npt.DTypeLike | DataType | None = None,
    strides: Sequence[int] = (1, 1),
    dilations: Sequence[int] = (1, 1),
    start_padding: Sequence[int] = (0, 0),
    end_padding: Sequence[int] = (0, 0),
    group_count: int = 1,
    device: Device | None = None,
) -> Any:
    """Convolve int8 or uint8 arrays that have scales and zero points.

    Parameters
    ----------
    input, filter : array_like or Tensor
        int8 or uint8, {N, C, H, W} and {M, C / group_count, H, W}; or {N, C, W} and {M, C / group_count, W}.
    input_scale, output_scale : float or array_like or Tensor
        One number, rounded to float32 unless it is a Tensor.
    filter_scale : float or array_like or Tensor
        One number, or one for each output channel: {M} or {1, M, 1, 1}.
    input_zero_point, filter_zero_point, output_zero_point : int or array_like or Tensor, optional
        In the same forms as the scales, and in the range of the tensor that each belongs to; default 0.
    bias : array_like or Tensor, optional
        In the range of int32; {M} or {1, M, 1, 1}. A Tensor must have the rank of `input`.
    output_dtype : dtype, optional
        int8 or uint8. Defaults to the type of `output_zero_point` if that is int8 or uint8, else to that of `input`.
    strides, dilations, start_padding, end_padding : sequence of int
        (height, width). For rank 3, one element is accepted too.
    group_count : int
    device : Device, optional
        Defaults to the device of the tensors given, else to the process's default device.

    Returns
    -------
    numpy.ndarray of `output_dtype`, or Tensor if an argument is one

    Raises
    ------
    DescriptorError
        For sizes, types or values that QUANTIZED_LINEAR_CONVOLUTION does not accept.
    TypeError
        For a scale that is not a real number, or a zero point or bias that is not an integer.

    Notes
    -----
    Source: the page DML_QUANTIZED_LINEAR_CONVOLUTION_OPERATOR_DESC.
    """
    operands: dict[str, Array | Tensor | None] = {"input_tensor": _operand(input), "filter_tensor": _operand(filter)}
    input_desc, filter_desc = _describe(operands["input_tensor"]), _describe(operands["filter_tensor"])
    output_type = _output_data_type(output_dtype, output_zero_point, input_desc.data_type)
    rank = input_desc.rank
    for name, scale in (("input", input_scale), ("filter", filter_scale), ("output", output_scale)):
        operands[f"{name}_scale_tensor"] = _scale_operand(f"{name}_scale", scale, rank)
    operands["input_zero_point_tensor"] = _integer_operand(
        "input_zero_point", input_zero_point, input_desc.data_type, rank
    )
    operands["filter_zero_point_tensor"] = _integer_operand(
        "filter_zero_point", filter_zero_point, filter_desc.data_type, rank
    )
    operands["output_zero_point_tensor"] = _integer_operand("output_zero_point", output_zero_point, output_type, rank)
    operands["bias_tensor"] = _integer_operand("bias", bias, DataType.INT32, rank)
    given = {"strides": strides, "dilations": dilations, "start_padding": start_padding, "end_padding": end_padding}
    spatial: dict[str, Any] = {name: _spatial(name, values, rank) for name, values in given.items()}
    tensors: dict[str, Any] = {name: _describe(operand) for name, operand in operands.items() if operand is not None}
    desc = QuantizedLinearConvolutionDesc(
        **tensors,
        output_tensor=TensorDesc(output_type, _convolved_sizes(input_desc, filter_desc, spatial)),
        **spatial,
        group_count=group_count,
    )
    return _run(desc, operands, device)


def _run(desc: OperatorDesc, operands: dict[str, Array | Tensor | None], device: Device | None) -> Result:
    """Bind the operands by field name and run the operator. The output goes to where the operands came from."""
    present = {name: operand for name, operand in operands.items() if operand is not None}
    on_device = {name: operand for name, operand in present.items() if not isinstance(operand, np.ndarray)}
    device = _device_of(on_device, device)
    bound: dict[str, Any] = {
        name: operand if name in on_device else device.tensor(operand) for name, operand in present.items()
    }
    output = device.tensor(desc.tensors["output_tensor"])
    submission = device.compile(desc)(**bound, output_tensor=output)
    if on_device:
        return output
    submission.wait()
    result: Array = output.numpy()
    return result


def _device_of(tensors: dict[str, Any], device: Device | None) -> Any:
    if device is not None and not isinstance(device, Device):
        opened = f"dmlvk.Device({shown(device) if isinstance(device, (int, str)) else ''})"
        raise TypeError(f"device is None or a dmlvk.Device, not {type(device).__name__}: pass device={opened}")
    for name, tensor in tensors.items():
        if device is not None and tensor.device is not device:
            raise BindingError(f"{name} lies on {tensor.device}, not on {device}; tensors of one call share one device")
        device = tensor.device
    return _shared_device() if device is None else device


def _shared_device() -> Device:
    """The device for calls that name no device, opened at the first such call."""
    found = _default_device
    return _default_device_monitor.run(_open_default_device) if found is None or found.is_closed else found


def _open_default_device() -> Device:
    global _default_device
    if _default_device is None or _default_device.is_closed:
        _default_device = Device()
    return _default_device


def _after_fork_in_child() -> None:
    global _default_device
    _default_device = None
    _default_device_monitor.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _operand(argument: Any, dtype: npt.DTypeLike | None = None) -> Any:
    """A Tensor unchanged; any other argument as an array."""
    return argument if isinstance(argument, Tensor) else np.asarray(argument, dtype)


def _is_untyped(argument: object) -> bool:
    """Whether an argument is a Python number or a list of them, so that its dtype is NumPy's guess."""
    return not hasattr(argument, "dtype") and isinstance(argument, (int, float, list, tuple))


def _describe(operand: Any) -> TensorDesc:
    if isinstance(operand, np.ndarray):
        return TensorDesc(DataType.from_numpy(operand.dtype), operand.shape)
    desc: TensorDesc = operand.desc
    return desc


def _data_type(dtype: Any) -> DataType:
    return dtype if isinstance(dtype, DataType) else DataType.from_numpy(dtype)


def _numpy_dtype(dtype: Any) -> np.dtype[Any] | None:
    return None if dtype is None else _data_type(dtype).numpy_dtype


def _with_rank(array: Array, rank: int) -> Array:
    """The array with leading dimensions of 1 added, or removed as far as it has any."""
    while array.ndim > rank and array.shape[0] == 1:
        array = array[0]
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


def _most_elements(rank: int, window_sizes: tuple[int, ...], window_strides: tuple[int, ...]) -> tuple[int, ...]:
    if len(window_sizes) != rank or len(window_strides) != rank or 0 in window_strides:
        return (1,) * rank  # the descriptor says what is wrong with the window
    return maximum_copied_elements(window_sizes, window_strides)


def _output_data_type(output_dtype: Any, output_zero_point: Any, input_type: DataType) -> DataType:
    if output_dtype is not None:
        return _data_type(output_dtype)
    zero_point_type = getattr(output_zero_point, "dtype", None)
    if output_zero_point is not None and zero_point_type is None:
        operand = _operand(output_zero_point)
        return input_type if isinstance(operand, np.ndarray) else _describe(operand).data_type
    return _data_type(zero_point_type) if zero_point_type in (np.int8, np.uint8) else input_type


def _with_channel_dimension(array: Array, rank: int) -> Array:
    """Reshape one element to {1, 1, ...}, and one for each channel to {1, C, 1, ...}.

    The descriptor refuses other shapes.
    """
    if array.ndim <= 1 or array.shape == (1, array.size) + (1,) * (array.ndim - 2):
        return array.reshape((1, array.size, 1, 1)[:rank] if rank > 1 else -1)
    return array


def _scale_operand(name: str, scale: Any, rank: int) -> Any:
    operand = _operand(scale)
    if not isinstance(operand, np.ndarray):
        return operand
    if operand.dtype.kind not in "fiu":
        raise TypeError(f"{name} must be a real number or an array of them, not {operand.dtype.name}")
    return _with_channel_dimension(operand.astype(np.float32), rank)


def _integer_operand(name: str, argument: Any, data_type: DataType, rank: int) -> Any:
    """A zero point or a bias as an array of the data type, if all its values fit; a Tensor unchanged."""
    operand = None if argument is None else _operand(argument)
    if not isinstance(operand, np.ndarray):
        return operand
    if operand.dtype.kind not in "iu":
        raise TypeError(f"{name} must be an integer or an array of integers, not {operand.dtype.name}")
    if data_type.numpy_dtype.kind in "iu" and operand.size:
        limits = np.iinfo(data_type.numpy_dtype)
        worst = next((v for v in (int(operand.min()), int(operand.max())) if not limits.min <= v <= limits.max), None)
        if worst is not None:
            expected = f"{limits.min} to {limits.max}"
            rule = f"must be in the range of {data_type.name}"
            raise DescriptorError("quantized_linear_convolution", name, worst, rule, expected)
    return _with_channel_dimension(operand.astype(data_type.numpy_dtype), rank)


def _spatial(name: str, values: Any, rank: int) -> tuple[int, ...]:
    """For rank 3, extend one element to two, so that given values and defaults have the same length."""
    least, neutral = SPATIAL_FIELDS[name]
    rule = f"must be {least} or more"
    checked = as_integers("quantized_linear_convolution", name, values, least, MAXIMUM_UINT32, rule)
    return (neutral, *checked) if rank == 3 and len(checked) == 1 else checked


def _convolved_sizes(
    input_desc: TensorDesc, filter_desc: TensorDesc, spatial: dict[str, tuple[int, ...]]
) -> tuple[int, ...]:
    """The output's sizes. If there are none, sizes for which the descriptor's error names the mistake."""
    unusable = (1,) * input_desc.rank
    if input_desc.rank not in (3, 4) or filter_desc.rank != input_desc.rank:
        return unusable
    if any(len(values) != 2 for values in spatial.values()):
        return unusable
    sizes = [input_desc.sizes[0], filter_desc.sizes[0]]
    for dimension in range(2, input_desc.rank):
        k = dimension - input_desc.rank
        size, taps = input_desc.sizes[dimension], filter_desc.sizes[dimension]
        found = output_size(
            size, taps, *(spatial[name][k] for name in ("strides", "dilations", "start_padding", "end_padding"))
        )
        sizes.append(min(max(found, 1), MAXIMUM_UINT32))
    return tuple(sizes) if math.prod(sizes) <= MAXIMUM_UINT32 else unusable
