"""Nodes that write patterns: OneHot becomes ONE_HOT, Trilu and EyeLike become DIAGONAL_MATRIX1."""

from __future__ import annotations

import math

import numpy as np
from onnx import helper

from dmlvk.data_type import DataType
from dmlvk.onnx.errors import NotOnDeviceError
from dmlvk.onnx.graph import Node
from dmlvk.onnx.program import MOVABLE_ELEMENTS, ProgramBuilder
from dmlvk.operators import DiagonalMatrix1Desc, OneHotDesc
from dmlvk.operators.declared import INT32_MAX, INT32_MIN
from dmlvk.operators.one_hot import INDEX_DATA_TYPES
from dmlvk.tensor_desc import TensorDesc

INDEX_TYPES = tuple(data_type.numpy_dtype for data_type in INDEX_DATA_TYPES)


def plan_one_hot(node: Node, builder: ProgramBuilder) -> None:
    """OneHot with indices of 32 or 64 bits."""
    shape, dtype = builder.kind(node.inputs[0])
    if dtype not in INDEX_TYPES:
        names = ", ".join(sorted(index.name for index in INDEX_TYPES))
        raise NotOnDeviceError(f"its indices are {dtype.name}; on the device they are {names}")
    if not shape:
        raise NotOnDeviceError("its index has no dimensions, which ONNX Runtime refuses")
    rank = len(shape) + 1
    axis = int(node.attributes.get("axis", -1))
    if not -rank <= axis < rank:
        raise NotOnDeviceError(f"its axis {axis} is no dimension of an output of rank {rank}")
    axis %= rank
    given = np.asarray(builder.parameter(node.inputs[1]))
    if given.size != 1 or given.ndim > 1 or given.dtype.kind not in "if" or not 1 <= given.reshape(()) < 1 << 32:
        raise NotOnDeviceError(f"its depth is {given.tolist()}")
    depth = int(given.reshape(()))
    indices, values = builder.packed(node.inputs[0]), builder.packed(node.inputs[2])
    if values.shape != (2,):
        raise NotOnDeviceError(f"its values have the shape {values.shape}; on the device it is (2,)")
    output = builder.new(values.dtype, (*shape[:axis], depth, *shape[axis:]))
    desc = OneHotDesc(
        indices_tensor=TensorDesc(DataType.from_numpy(dtype), (*shape[:axis], 1, *shape[axis:])),
        values_tensor=values.desc((1,) * (rank - 1) + (2,)),
        output_tensor=output.desc(),
        axis=axis,
    )
    builder.dispatch(desc, {"indices_tensor": indices, "values_tensor": values, "output_tensor": output})
    builder.set(node.outputs[0], output)


def _diagonal(limit: int) -> int:
    return min(max(limit, INT32_MIN), INT32_MAX)


def _only(elements: list[int]) -> int:
    if len(elements) != 1:
        raise NotOnDeviceError(f"{elements} where one number is needed")
    return elements[0]


def plan_trilu(node: Node, builder: ProgramBuilder) -> None:
    """Trilu: zeros on one side of a diagonal."""
    source = builder.packed(node.inputs[0])
    if len(source.shape) < 2:
        raise NotOnDeviceError(f"its input has the shape {source.shape}, which is no matrix")
    k = _only(builder.integers(node.input(1), (0, 1))) if node.input(1) else 0
    begin, end = (INT32_MIN, k) if node.attributes.get("upper", 1) else (k + 1, INT32_MAX)
    output = builder.new(source.dtype, source.shape)
    sizes = (math.prod(source.shape[:-2]), *source.shape[-2:])
    desc = DiagonalMatrix1Desc(
        input_tensor=source.desc(sizes),
        output_tensor=output.desc(sizes),
        value=0,
        diagonal_fill_begin=_diagonal(begin),
        diagonal_fill_end=_diagonal(end),
    )
    builder.dispatch(desc, {"input_tensor": source, "output_tensor": output})
    builder.set(node.outputs[0], output)


def plan_eye_like(node: Node, builder: ProgramBuilder) -> None:
    """EyeLike: of its input only the shape and the type count, so nothing is moved to the device."""
    shape, dtype = builder.kind(node.inputs[0])
    element = node.attributes.get("dtype", helper.np_dtype_to_tensor_dtype(dtype))
    if element not in MOVABLE_ELEMENTS:
        raise NotOnDeviceError(f"its dtype is {element}, of which the device has no tensors")
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element))
    if len(shape) != 2:
        raise NotOnDeviceError(f"its shape is {shape}, which is no matrix")
    k = int(node.attributes.get("k", 0))
    output = builder.new(dtype, shape)
    desc = DiagonalMatrix1Desc(
        output_tensor=output.desc(),
        value=np.ones((), dtype).tobytes(),
        diagonal_fill_begin=_diagonal(k),
        diagonal_fill_end=_diagonal(k + 1),
    )
    builder.dispatch(desc, {"output_tensor": output})
    builder.set(node.outputs[0], output)
