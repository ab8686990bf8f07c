"""ONE_HOT: the indices are read, and the output is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.benchmark.work.base import Work, random_bits, size_of
from dmlvk.operators import OneHotDesc


def work(desc: OneHotDesc) -> Work:
    """Count the bytes that ONE_HOT moves."""
    return Work(size_of(desc.indices_tensor), size_of(desc.output_tensor))


def random_inputs(desc: OneHotDesc, random: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
    """Indices in range, and values with random bits."""
    indices, depth = desc.indices_tensor, desc.output_tensor.sizes[desc.axis]
    return {
        "indices_tensor": random.integers(0, depth, indices.sizes).astype(indices.data_type.numpy_dtype),
        "values_tensor": random_bits(desc.values_tensor, random),
    }
