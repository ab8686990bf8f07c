"""The meaning of each operator in plain NumPy, written to be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from dmlvk._common.arguments import as_array, similar
from dmlvk.errors import BindingError
from dmlvk.operators import OperatorDesc
from dmlvk.operators.registry import parts

OPERATORS: dict[type[OperatorDesc], Callable[..., npt.NDArray[Any]]] = parts(__name__, "run")

# Of operators with more outputs than `output_tensor`: the function of each other output, by field.
FURTHER: dict[type[OperatorDesc], dict[str, Callable[..., npt.NDArray[Any]]]] = parts(
    __name__, "FURTHER", default=lambda _: {}
)


def run(desc: OperatorDesc, **arrays: npt.ArrayLike) -> npt.NDArray[Any]:
    """Run an operator in NumPy.

    Args:
        desc (OperatorDesc): A descriptor of any operator of the registry.
        **arrays (array_like): One for each input tensor of the descriptor, by field name, with its sizes and data type.
            Their memory layout does not matter here, and neither do the strides in the descriptor.

    Returns:
        numpy.ndarray: The output, with the sizes and data type of output_tensor, packed.

    Raises:
        BindingError: If an array is missing or has no tensor, or does not have the sizes and data type of its tensor.
        TypeError: If `desc` is not a descriptor.

    >>> plane = dmlvk.TensorDesc("int8", (2, 2))
    >>> desc = dmlvk.DiagonalMatrix1Desc(output_tensor=plane, value=1, diagonal_fill_begin=0, diagonal_fill_end=1)
    >>> dmlvk.reference.run(desc)
    array([[1, 0],
           [0, 1]], dtype=int8)
    """
    operator = OPERATORS.get(type(desc))
    if operator is None:
        raise TypeError(f"desc must be an operator descriptor, not {type(desc).__name__}")
    return operator(desc, **_checked(desc, arrays))


def further_outputs(desc: OperatorDesc, **arrays: npt.ArrayLike) -> dict[str, npt.NDArray[Any]]:
    """The outputs of an operator beside `output_tensor` that a descriptor has, by field: see `run`."""
    checked = _checked(desc, arrays)
    functions = FURTHER[type(desc)]
    return {field: functions[field](desc, **checked) for field in desc.output_fields[1:] if field in desc.tensors}


def _checked(desc: OperatorDesc, arrays: dict[str, npt.ArrayLike]) -> dict[str, npt.NDArray[Any]]:
    name = type(desc).__name__
    inputs = {field: tensor for field, tensor in desc.tensors.items() if field in desc.input_fields}
    if unknown := sorted(arrays.keys() - inputs.keys()):
        hint = similar(unknown[0], inputs)
        raise BindingError(f"{name} has no input {unknown[0]}; expected {', '.join(inputs) or 'none'}{hint}")
    checked = {}
    for field, tensor in inputs.items():
        if field not in arrays:
            raise BindingError(
                f"{name} needs an array for {field}, of shape {tensor.sizes} and data type {tensor.data_type.name}"
            )
        array = as_array(arrays[field])
        if array.dtype != tensor.data_type.numpy_dtype or array.shape != tensor.sizes:
            raise BindingError(
                f"{field} is an array of shape {array.shape} and dtype {array.dtype}; {name} describes "
                f"{tensor.sizes} and {tensor.data_type.numpy_dtype}"
            )
        checked[field] = array
    return checked
