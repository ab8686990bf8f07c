"""How work is counted, and the functions that several operators share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.conformance.cases.values import elements_of
from dmlvk.operators import OperatorDesc
from dmlvk.tensor_desc import TensorDesc


@dataclass(frozen=True)
class Work:
    """The bytes that must be read and written, and the operations. A multiply-add counts as two operations."""

    bytes_read: int
    bytes_written: int
    operations: int = 0

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written


def size_of(tensor: TensorDesc) -> int:
    """Bytes of a tensor's elements, excluding gaps."""
    return math.prod(tensor.sizes) * tensor.data_type.size_in_bytes


def random_bits(tensor: TensorDesc, random: np.random.Generator) -> npt.NDArray[Any]:
    """Elements with random bits."""
    return np.frombuffer(random.bytes(size_of(tensor)), tensor.data_type.numpy_dtype).reshape(tensor.sizes)


def distinct_size_of(tensor: TensorDesc) -> int:
    """Bytes of a tensor's elements; those that are broadcast by a stride of 0 count once."""
    layout = zip(tensor.sizes, tensor.element_strides, strict=True)
    return math.prod(size for size, stride in layout if stride) * tensor.data_type.size_in_bytes


def work(desc: OperatorDesc) -> Work:
    """Each tensor is moved once."""
    sizes = {name: distinct_size_of(tensor) for name, tensor in desc.tensors.items()}
    written = sum(size for name, size in sizes.items() if name in desc.output_fields)
    return Work(sum(sizes.values()) - written, written)


def random_inputs(desc: OperatorDesc, random: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
    """Elements for each input, as its role says: see `dmlvk.conformance.cases.values.elements_of`."""
    return {
        name: elements_of(random, tensor, desc.tensor_rules[name].role)
        for name, tensor in desc.tensors.items()
        if name in desc.input_fields
    }
