"""A tensor's elements in NumPy: a strided view of its bytes, and writes to layouts whose elements overlap."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dmlvk.tensor_desc import TensorDesc

Array: TypeAlias = npt.NDArray[Any]
Bytes: TypeAlias = npt.NDArray[np.uint8]


def element_view(desc: TensorDesc, memory: Bytes) -> Array:
    """The elements of a tensor in its memory, without copying."""
    size = desc.data_type.size_in_bytes
    # DirectML allows any stride for a dimension of size 1. NumPy would refuse a stride past the memory's end.
    strides = [
        stride * size if extent > 1 else 0 for extent, stride in zip(desc.sizes, desc.element_strides, strict=True)
    ]
    return np.ndarray(desc.sizes, desc.data_type.numpy_dtype, memory, strides=strides)


def write_elements(desc: TensorDesc, memory: Bytes, array: Array) -> None:
    """Write every element in row-major order. If several share memory, the last of them is kept."""
    view = element_view(desc, memory)
    if not desc.has_overlap():
        view[...] = array
        return
    # A broadcast dimension keeps the elements of its last coordinate.
    last = tuple(
        slice(-1, None) if size > 1 and stride == 0 else slice(None)
        for size, stride in zip(desc.sizes, desc.element_strides, strict=True)
    )
    view, array = view[last], array[last]
    # Other overlapping layouts (a sheared window) are written by element number: NumPy promises no order for
    # repeated ones.
    offsets = np.zeros((1,) * desc.rank, np.int64)
    for dimension, size in enumerate(view.shape):
        shape = [1] * desc.rank
        shape[dimension] = size
        offsets = offsets + np.arange(size, dtype=np.int64).reshape(shape) * desc.element_strides[dimension]
    unique, first = np.unique(offsets.ravel()[::-1], return_index=True)
    flat = element_view(flat_desc(desc, memory), memory)
    flat[unique] = array.ravel()[::-1][first]


def flat_desc(desc: TensorDesc, memory: Bytes) -> TensorDesc:
    """A packed, one-dimensional tensor of all whole elements that fit in the memory."""
    return TensorDesc(desc.data_type, (memory.size // desc.data_type.size_in_bytes,))
