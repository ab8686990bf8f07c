"""Numbers of a model as elements of tensors: integers are strict, floats may be "nan", "inf" and "-inf"."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk._common.arguments import is_number
from dmlvk.data_type import DataType
from dmlvk.dxdispatch.document import DocumentNode

Array = npt.NDArray[Any]

SPECIAL_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
TYPE_NAMES = [data_type.name for data_type in DataType]
TYPE_PREFIX = "DML_TENSOR_DATA_TYPE_"


def data_type_of(node: DocumentNode) -> DataType:
    """A data type by its name, with or without DirectML's prefix."""
    return DataType[node.one_of(TYPE_NAMES, TYPE_PREFIX)]


def element(node: DocumentNode, data_type: DataType, *, is_special_allowed: bool = True) -> Array:
    """A number of a model as an array without dimensions.

    FLOAT16 is rounded by way of FLOAT32, as DxDispatch does.

    is_special_allowed: whether the texts "nan", "inf" and "-inf" are numbers here.
    Raises ModelError: it is no number that the data type holds.
    """
    if not data_type.is_floating_point:
        limits = np.iinfo(data_type.numpy_dtype)
        return np.array(node.integer(int(limits.min), int(limits.max)), data_type.numpy_dtype)
    value = node.value
    if isinstance(value, str) and is_special_allowed and value.lower() in SPECIAL_FLOATS:
        return _rounded(np.array(SPECIAL_FLOATS[value.lower()]), data_type)
    if not is_number(value):
        node.fail("must be a number", 'a number, "nan", "inf" or "-inf"' if is_special_allowed else "a number")
    try:
        rounded = _rounded(np.array(float(value)), data_type)
    except OverflowError:  # an integer that no float holds
        rounded = np.array(math.inf)
    if not np.isfinite(rounded):
        node.fail(f"is a finite number that is too large for {data_type.name}", 'a smaller number, or "inf"')
    return rounded


def elements(node: DocumentNode, data_type: DataType) -> Array:
    """A list of numbers as an array of one dimension. Raises as `element` does."""
    values = node.sequence("a list of numbers")
    kinds = set(map(type, values))
    # The usual list is converted at once, and a million elements take no minute.
    if kinds == {int} and not data_type.is_floating_point:
        limits = np.iinfo(data_type.numpy_dtype)
        if min(values) >= limits.min and max(values) <= limits.max:
            return np.array(values, data_type.numpy_dtype)
    if kinds == {float} and data_type.is_floating_point:
        rounded = _rounded(np.array(values), data_type)
        if np.isfinite(rounded).all():
            return rounded
    converted = [element(item, data_type) for item in node.items()]
    return np.array(converted, data_type.numpy_dtype).reshape(-1)


def _rounded(values: Array, data_type: DataType) -> Array:
    with np.errstate(over="ignore"):
        if data_type is DataType.FLOAT16:
            values = values.astype(np.float32)
        return values.astype(data_type.numpy_dtype)


def sequence(start: Array, delta: Array, count: int) -> Array:
    """start, start + delta, start + delta + delta ...: each sum is rounded, or wraps, in the elements' type."""
    steps = np.full(count, delta, start.dtype)
    steps[0] = start
    with np.errstate(over="ignore", invalid="ignore"):
        return np.add.accumulate(steps, dtype=start.dtype)
