"""What the one-liners make of their arguments: arrays of the data types and shapes that the descriptors ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from dmlvk._common.arguments import as_integers
from dmlvk.data_type import DataType
from dmlvk.errors import DescriptorError, shown
from dmlvk.operators.declared import EIGHT_BIT_TYPES
from dmlvk.operators.quantized_linear_convolution import SPATIAL_FIELDS, QuantizedLinearConvolutionDesc
from dmlvk.runtime.exchange import array_of
from dmlvk.runtime.tensor import Tensor
from dmlvk.tensor_desc import MAXIMUM_UINT32, TensorDesc, packed_strides

if TYPE_CHECKING:
    from dmlvk.runtime.device import Device

Array: TypeAlias = npt.NDArray[Any]
Operand: TypeAlias = "Array | Tensor"
Argument: TypeAlias = "npt.ArrayLike | Tensor"
# What is array_like in another way may be a Tensor to a type checker: it cannot say which of the two comes back.
Plain: TypeAlias = "Array | np.generic | complex | Sequence[Any]"
Integers: TypeAlias = "Iterable[SupportsIndex]"
DType: TypeAlias = "npt.DTypeLike | DataType"
Scalar = TypeVar("Scalar", bound=np.generic)

CONVOLUTION = "quantized_linear_convolution"


def as_operand(name: str, argument: Any, dtype: npt.DTypeLike | None = None) -> Operand:
    """A Tensor unchanged; any other argument as an array: another library's by DLPack."""
    if isinstance(argument, Tensor):
        return argument
    return array_of(argument, dtype, name)


def is_untyped(argument: object) -> bool:
    """Whether an argument is a Python number or a list of them, so that its dtype is NumPy's guess."""
    return not hasattr(argument, "dtype") and isinstance(argument, (int, float, list, tuple))


def as_data_type(dtype: Any) -> DataType:
    """The data type of a dtype argument."""
    return dtype if isinstance(dtype, DataType) else DataType.from_numpy(dtype)


def with_rank(operand: Operand, rank: int) -> Operand:
    """An array with leading dimensions of 1 added, or removed as far as it has any; a Tensor unchanged."""
    if isinstance(operand, Tensor):
        return operand
    array: Array = operand
    while array.ndim > rank and array.shape[0] == 1:
        array = array[0]
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


def quantized_data_type(
    output_dtype: Any, output_zero_point: Any, input_type: DataType, function: str = CONVOLUTION
) -> DataType:
    """The type of a quantized output: the given one, else its zero point's, else its input's.

    Raises DescriptorError: the given one is no 8-bit integer.
    """
    if output_dtype is not None:
        data_type = as_data_type(output_dtype)
        if data_type not in EIGHT_BIT_TYPES:
            rule, expected = "the output has integers of 8 bits", "int8 or uint8"
            raise DescriptorError(function, "output_dtype", data_type.name, rule, expected)
        return data_type
    if isinstance(output_zero_point, Tensor):
        return output_zero_point.desc.data_type
    zero_point_type = getattr(output_zero_point, "dtype", None)
    return as_data_type(zero_point_type) if zero_point_type in (np.int8, np.uint8) else input_type


def scale_operand(name: str, scale: Any, rank: int | None, function: str = CONVOLUTION) -> Operand:
    """A scale as an array of float32, if its finite values stay finite; a Tensor unchanged.

    Without a rank it keeps its shape.
    """
    _require_numbers(name, scale, "must be a real number or an array of them")
    operand = as_operand(name, scale)
    if isinstance(operand, Tensor):
        return operand
    if operand.dtype.kind not in "fiu":
        raise TypeError(f"{name} must be a real number or an array of them, not {operand.dtype.name}")
    with np.errstate(over="ignore"):
        rounded = operand.astype(np.float32)
    overflows = np.isinf(rounded) & np.isfinite(operand)
    if overflows.any():
        largest = f"at most {np.finfo(np.float32).max:.8g}"
        raise DescriptorError(function, name, operand[overflows][0].item(), "must be in the range of FLOAT32", largest)
    return _with_channel_dimension(rounded, rank)


def integer_operand(
    name: str, argument: Any, data_type: DataType, rank: int | None, function: str = CONVOLUTION
) -> Operand | None:
    """A zero point or a bias as an array of the data type, if all its values fit; a Tensor or None unchanged.

    Without a rank it keeps its shape.
    """
    if argument is not None:
        _require_numbers(name, argument, "must be an integer or an array of integers")
    operand = None if argument is None else as_operand(name, argument)
    if operand is None or isinstance(operand, Tensor):
        return operand
    if operand.dtype.kind not in "iu":
        raise TypeError(f"{name} must be an integer or an array of integers, not {operand.dtype.name}")
    if data_type.numpy_dtype.kind in "iu" and operand.size:
        limits = np.iinfo(data_type.numpy_dtype)
        worst = next((v for v in (int(operand.min()), int(operand.max())) if not limits.min <= v <= limits.max), None)
        if worst is not None:
            expected = f"{limits.min} to {limits.max}"
            rule = f"must be in the range of {data_type.name}"
            raise DescriptorError(function, name, worst, rule, expected)
    return _with_channel_dimension(operand.astype(data_type.numpy_dtype), rank)


def _require_numbers(name: str, argument: object, rule: str) -> None:
    """Refuse None and text, for which `as_operand` would advise to read a file."""
    if argument is None or isinstance(argument, (str, bytes)):
        kind = "None" if argument is None else f"{type(argument).__name__} {shown(argument)}"
        raise TypeError(f"{name} {rule}, not {kind}")


def _with_channel_dimension(array: Array, rank: int | None) -> Array:
    """Reshape one element to {1, 1, ...}, and one for each channel to {1, C, 1, ...}; nothing without a rank.

    The descriptor refuses other shapes.
    """
    if rank is None:
        return array
    if array.ndim <= 1 or array.shape == (1, array.size) + (1,) * (array.ndim - 2):
        return array.reshape((1, array.size, 1, 1)[:rank] if rank > 1 else -1)
    return array


def broadcast_sizes(function: str, operands: Mapping[str, Operand]) -> tuple[int, ...]:
    """The sizes to which operands broadcast, as in NumPy. No dimensions count as one element.

    Raises DescriptorError: they do not broadcast.
    """
    shapes = {name.removesuffix("_tensor"): tuple(operand.shape) for name, operand in operands.items()}
    try:
        return np.broadcast_shapes(*shapes.values()) or (1,)
    except ValueError:
        first, *others = shapes
        rule = f"must broadcast with {first}, which has the shape {shapes[first]}"
        raise DescriptorError(function, others[0], shapes[others[0]], rule) from None


def broadcast_desc(operand: Operand, sizes: tuple[int, ...]) -> TensorDesc:
    """The tensor of an array that broadcasts to some sizes: packed, with strides of 0. A Tensor's own.

    An array that does not broadcast keeps its own sizes, which the descriptor refuses.
    """
    if isinstance(operand, Tensor):
        return operand.desc
    array: Array = operand
    own = (1,) * (len(sizes) - array.ndim) + array.shape
    if len(own) != len(sizes) or any(size not in (1, wanted) for size, wanted in zip(own, sizes, strict=True)):
        return TensorDesc.of(array)
    strides = packed_strides(own)
    steps = [0 if size < wanted else stride for size, wanted, stride in zip(own, sizes, strides, strict=True)]
    return TensorDesc(DataType.from_numpy(array.dtype), sizes, None if own == sizes else steps)


def brought(device: Device, operand: Array, desc: TensorDesc) -> Tensor:
    """A tensor on a device with an array's elements; an array that broadcasts is copied as small as it is."""
    if operand.size == desc.element_count:
        return device.tensor(operand.reshape(desc.sizes))
    tensor = device.tensor(desc)
    content = operand.astype(desc.data_type.numpy_dtype).tobytes()  # in the processor's byte order
    tensor.write_bytes(content.ljust(desc.total_size_in_bytes, b"\0"))
    return tensor


def spatial_operand(name: str, values: Any, rank: int) -> tuple[int, ...]:
    """For rank 3, extend one element to two, so that given values and defaults have the same length."""
    least, neutral = SPATIAL_FIELDS[name]
    rule = f"must be {least} or more"
    checked = as_integers("quantized_linear_convolution", name, values, least, MAXIMUM_UINT32, rule)
    return (neutral, *checked) if rank == 3 and len(checked) == 1 else checked


def described_tensor(operand: Operand) -> TensorDesc:
    """The tensor of an operand: packed for an array."""
    return operand.desc if isinstance(operand, Tensor) else TensorDesc.of(operand)


def convolution_operands(
    described: TensorDesc, filter: Operand, constants: Mapping[str, Any], output_dtype: Any
) -> dict[str, Operand]:
    """The tensors of a convolution beside its input, by field; absent ones are left out.

    constants: "input_scale", "filter_scale", "output_scale", "bias" and the zero points, as the one-liner takes them.
    """
    output_type = quantized_data_type(output_dtype, constants["output_zero_point"], described.data_type)
    types = {"input": described.data_type, "filter": described_tensor(filter).data_type, "output": output_type}
    operands: dict[str, Operand | None] = {"filter_tensor": filter}
    for role, data_type in types.items():
        scale, zero_point = f"{role}_scale", f"{role}_zero_point"
        operands[f"{scale}_tensor"] = scale_operand(scale, constants[scale], described.rank)
        operands[f"{zero_point}_tensor"] = integer_operand(zero_point, constants[zero_point], data_type, described.rank)
    operands["bias_tensor"] = integer_operand("bias", constants["bias"], DataType.INT32, described.rank)
    return {name: operand for name, operand in operands.items() if operand is not None}


def convolution_desc(
    described: TensorDesc,
    tensors: Mapping[str, TensorDesc],
    output_zero_point: Any,
    output_dtype: Any,
    windows: Mapping[str, Any],
    group_count: Any,
) -> QuantizedLinearConvolutionDesc:
    """The descriptor of a convolution whose output is packed.

    tensors: those of `convolution_operands`.
    output_zero_point, output_dtype: as the one-liner takes them.
    windows: strides, dilations and paddings.
    """
    fields: dict[str, Any] = {"input_tensor": described, **tensors, "group_count": group_count}
    fields |= {name: spatial_operand(name, values, described.rank) for name, values in windows.items()}
    desc = QuantizedLinearConvolutionDesc(**fields)
    output_type = quantized_data_type(output_dtype, output_zero_point, described.data_type)
    if desc.output_tensor.data_type is not output_type:
        desc = replace(desc, output_tensor=TensorDesc(output_type, desc.output_tensor.sizes))
    return desc
