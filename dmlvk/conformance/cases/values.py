"""Random data in place of zeros, with bit patterns that arithmetic would change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.data_type import DataType
from dmlvk.operators.declared import BIAS, SCALE
from dmlvk.tensor_desc import TensorDesc

Array = npt.NDArray[Any]

# NaNs with payloads (quiet and signalling, of both signs), -0.0, the smallest and the largest denormals, infinities.
SPECIAL_BITS: Mapping[DataType, tuple[int, ...]] = {
    DataType.FLOAT16: (0x7C01, 0xFC2A, 0x7E00, 0xFFFF, 0x8000, 0x0001, 0x83FF, 0x7C00, 0xFC00),
    DataType.FLOAT32: (
        *(0x7F800001, 0xFFA12345, 0x7FC00000, 0xFFFFFFFF),
        *(0x80000000, 0x00000001, 0x807FFFFF, 0x7F800000, 0xFF800000),
    ),
    DataType.FLOAT64: (
        *(0x7FF0000000000001, 0xFFF4123456789ABC, 0x7FF8000000000000, 0xFFFFFFFFFFFFFFFF),
        *(1 << 63, 1, 0x800FFFFFFFFFFFFF, 0x7FF << 52, 0xFFF << 52),
    ),
}


def random_array(numbers: np.random.Generator, desc: TensorDesc) -> Array:
    """Random bits in the tensor's memory. Elements that share memory are equal."""
    return in_memory(desc, np.frombuffer(numbers.bytes(desc.minimum_size_in_bytes), np.uint8))


def chosen_array(numbers: np.random.Generator, desc: TensorDesc, candidates: Sequence[int]) -> Array:
    """Elements drawn from bit patterns or integers. Memory begins with each candidate once, if there is room."""
    dtype = desc.data_type.numpy_dtype
    bits = np.dtype(f"u{dtype.itemsize}")
    mask = (1 << 8 * dtype.itemsize) - 1
    choice = np.array([candidate & mask for candidate in candidates], bits)
    count = -(-desc.minimum_size_in_bytes // dtype.itemsize)
    chosen = choice[numbers.integers(0, len(choice), count)]
    chosen[: len(choice)] = choice[:count]
    return in_memory(desc, chosen.view(np.uint8))


def elements_of(numbers: np.random.Generator, desc: TensorDesc, role: str) -> Array:
    """Elements as a tensor's role says. Elements that share memory are equal.

    Scales are such that a product of bytes uses the range of a byte. Other floating point numbers are multiples of 1/8,
    and one in eight is a special one. Integers are random bits, but for a bias.
    """
    dtype = desc.data_type.numpy_dtype
    count = -(-desc.minimum_size_in_bytes // dtype.itemsize)
    if role == SCALE:
        elements = (numbers.integers(50, 200, count) / 1e4).astype(dtype)
    elif role == BIAS:
        elements = numbers.integers(-5000, 5000, count).astype(dtype)
    elif desc.data_type.is_floating_point:
        elements = (numbers.integers(-2000, 2000, count) / 8).astype(dtype)
        special = np.array(SPECIAL_BITS[desc.data_type], f"u{dtype.itemsize}").view(dtype)
        chosen = numbers.integers(0, 8 * len(special), count)
        elements = np.where(chosen < len(special), special[chosen % len(special)], elements)
    else:
        return random_array(numbers, desc)
    return in_memory(desc, elements.view(np.uint8))


def in_memory(desc: TensorDesc, memory: Array) -> Array:
    """The tensor's elements, read from its memory: a read-only array."""
    size = desc.data_type.size_in_bytes
    steps = [stride * size for stride in desc.element_strides]
    view = np.ndarray(desc.sizes, desc.data_type.numpy_dtype, memory.tobytes(), 0, steps)
    view.flags.writeable = False
    return view
