"""Checks of the functions' arguments. torch's compilers trace them, so they stay simple."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from dmlvk._common.arguments import as_integer, as_integers, is_number
from dmlvk.data_type import DataType
from dmlvk.errors import BindingError, DescriptorError, shown

# torch 2.4 has all eleven, torch.uint16 to uint64 among them.
DATA_TYPES: dict[Any, DataType] = {getattr(torch, data_type.name.lower()): data_type for data_type in DataType}
TORCH_DTYPES = {data_type: dtype for dtype, data_type in DATA_TYPES.items()}
# Ways to pass tensors of other types; {x} stands for the argument's name.
INTEGERS_OF_QUANTIZED = "{x}.int_repr() has its integers, {x}.q_scale() and {x}.q_zero_point() the rest"
PARTS_OF_COMPLEX = "torch.view_as_real({x}) has its real and imaginary parts side by side"
INSTEAD = {
    "bool": "{x}.view(torch.uint8) has its bytes, which are 0 and 1",
    "bfloat16": "{x}.float() keeps its values, {x}.view(torch.int16) its bits",
    "complex32": PARTS_OF_COMPLEX,
    "complex64": PARTS_OF_COMPLEX,
    "complex128": PARTS_OF_COMPLEX,
    "quint8": INTEGERS_OF_QUANTIZED,
    "qint8": INTEGERS_OF_QUANTIZED,
    "qint32": INTEGERS_OF_QUANTIZED,
}
# The integers of torch's operators have 64 bits.
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def data_type_of(name: str, dtype: torch.dtype) -> DataType:
    """The data type of an argument's elements.

    Raises TypeError: DirectML has no such type; the message says how the tensor can be passed.
    """
    if dtype not in DATA_TYPES:
        known = str(dtype).removeprefix("torch.")
        instead = INSTEAD.get(known, "{x}.float() converts its values").format(x=name)
        supported = ", ".join(data_type.name.lower() for data_type in DataType)
        raise TypeError(f"{name} has dtype {known}, which DirectML lacks: {instead}; supported are {supported}")
    return DATA_TYPES[dtype]


def torch_dtype(name: str, dtype: Any) -> torch.dtype:
    """A dtype argument, which may also be a DataType or a NumPy dtype, as torch's dtype.

    Raises TypeError: DirectML has no such type.
    """
    if isinstance(dtype, torch.dtype):
        if dtype not in DATA_TYPES:
            supported = ", ".join(str(known) for known in DATA_TYPES)
            raise TypeError(f"{name} = {dtype}: must be one of DirectML's data types: {supported}")
        return dtype
    return TORCH_DTYPES[dtype if isinstance(dtype, DataType) else DataType.from_numpy(dtype)]


def check_tensors(**tensors: Any) -> None:
    """Refuse what the operators cannot take as a tensor.

    Raises TypeError: no tensor, or one of a layout or dtype that DirectML lacks.
    Raises BindingError: a tensor that requires a gradient, has no elements of its own, or lies on another device than
        the first one.
    """
    first = None
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            kind = f"{type(tensor).__module__}.{type(tensor).__name__}".removeprefix("builtins.")
            raise TypeError(f"{name} has type {kind}, and must be a torch.Tensor: pass torch.as_tensor({name})")
        if tensor.layout != torch.strided or tensor.is_nested:
            layout = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
            convert = f"torch.nested.to_padded_tensor({name}, 0)" if tensor.is_nested else f"{name}.to_dense()"
            raise TypeError(f"{name} is a {layout} tensor; a kernel reads strided memory: pass {convert}")
        data_type_of(name, tensor.dtype)
        if tensor.device.type == "meta":
            raise BindingError(f"{name} is a meta tensor, which has no elements: pass a tensor on the CPU or on CUDA")
        if tensor.requires_grad and torch.is_grad_enabled():
            raise BindingError(
                f"{name} requires a gradient, and the operator has none: pass {name}.detach(), or call it under "
                "torch.no_grad()"
            )
        if first is None:
            first = (name, tensor.device)
        # As in torch's own operators, a number on the CPU may accompany tensors of another device.
        elif tensor.device != first[1] and not (tensor.device.type == "cpu" and tensor.ndim == 0):
            raise BindingError(
                f"{name} is on {tensor.device}, and {first[0]} on {first[1]}; the tensors of a call share one device: "
                f"pass {name}.to({str(first[1])!r})"
            )


def integer(function: str, name: str, value: Any) -> int:
    """An argument as an integer; a compiler's symbol stays one.

    Raises DescriptorError: it is no integer of 64 bits.
    """
    if isinstance(value, torch.SymInt):
        return value
    return as_integer(function, name, value, INT64_MIN, INT64_MAX, "must be an integer of 64 bits")


def integers(function: str, name: str, values: Iterable[Any]) -> Sequence[int]:
    """An argument as integers; a compiler's symbols stay symbols. Raises as `integer` does."""
    if isinstance(values, (list, tuple)) and any(isinstance(value, torch.SymInt) for value in values):
        return values
    return as_integers(function, name, values, INT64_MIN, INT64_MAX, "must be an integer of 64 bits")


def fill_value(value: Any) -> Any:
    """The value of DIAGONAL_MATRIX1 as a number of Python's; a compiler's symbol stays one.

    Raises TypeError: it is a tensor.
    Raises DescriptorError: it is no number, or an integer that torch's operators do not take.
    """
    if isinstance(value, torch.Tensor):
        raise TypeError("value is a tensor, and the operator takes a number: pass value.item()")
    if isinstance(value, np.generic):
        value = value.item()
    if not is_real(value):
        rule = f"must be one number, not {type(value).__name__}"
        raise DescriptorError("diagonal_matrix1", "value", value, rule, "an int or a float")
    if isinstance(value, int) and not INT64_MIN <= value <= 2 * INT64_MAX + 1:
        rule = "an integer must have 64 bits"
        raise DescriptorError(
            "diagonal_matrix1", "value", value, rule, "an integer from -2**63 to 2**64 - 1, or a float"
        )
    return value


def is_real(value: Any) -> bool:
    """Whether an argument is one real number, which may be a compiler's symbol."""
    return isinstance(value, (torch.SymInt, torch.SymFloat)) or is_number(value)


def sort_parameter(name: str, argument: Any, tensors: dict[str, Any], numbers: dict[str, Any]) -> None:
    """Put a scale or zero point among the tensors, or as `{name}_value` among the numbers.

    Raises TypeError: it is neither a tensor nor a number, or a fraction where an integer is needed.
    """
    is_integer = not name.endswith("_scale")
    if isinstance(argument, torch.Tensor):
        tensors[name] = argument
    elif not is_real(argument) or (is_integer and isinstance(argument, (float, torch.SymFloat))):
        kind = "an integer" if is_integer else "a real number"
        raise TypeError(f"{name} must be {kind} or a torch.Tensor, not {type(argument).__name__} {shown(argument)}")
    elif is_integer:
        numbers[f"{name}_value"] = integer("quantized_linear_convolution", name, argument)
    else:
        numbers[f"{name}_value"] = float(argument)


def check_integers(**tensors: torch.Tensor) -> None:
    """Refuse floating point elements.

    Raises TypeError: a tensor has such elements.
    """
    for name, tensor in tensors.items():
        if tensor.dtype.is_floating_point:
            dtype = str(tensor.dtype).removeprefix("torch.")
            raise TypeError(f"{name} must have integers, not {dtype}: pass {name}.round().to(torch.int32)")
