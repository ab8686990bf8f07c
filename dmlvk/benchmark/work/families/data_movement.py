"""Operators that move data: any bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.benchmark.work.base import random_bits
from dmlvk.operators import OperatorDesc


def random_inputs(desc: OperatorDesc, random: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
    """Elements with random bits for each input."""
    return {name: random_bits(desc.tensors[name], random) for name in desc.input_fields if name in desc.tensors}
