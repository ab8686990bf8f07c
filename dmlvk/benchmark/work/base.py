"""The unit in which work is counted, and what several operators count alike."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.operators import OperatorDesc
from dmlvk.tensor_desc import TensorDesc


@dataclass(frozen=True)
class Work:
    """Bytes that have to be read and to be written, and operations: a multiply-add is two."""

    bytes_read: int
    bytes_written: int
    operations: int = 0

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written


def size_of(tensor: TensorDesc) -> int:
    """Bytes of a tensor's elements, without gaps."""
    return math.prod(tensor.sizes) * tensor.data_type.size_in_bytes


def random_bits(tensor: TensorDesc, random: np.random.Generator) -> npt.NDArray[Any]:
    """Elements of any bits."""
    return np.frombuffer(random.bytes(size_of(tensor)), tensor.data_type.numpy_dtype).reshape(tensor.sizes)


def random_inputs(desc: OperatorDesc, random: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
    """Elements of any bits for each input: for operators that copy them."""
    return {name: random_bits(desc.tensors[name], random) for name in desc.input_fields if name in desc.tensors}
