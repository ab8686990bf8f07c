"""BYTE_SOFTMAX in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlvk.operators import ByteSoftmaxDesc
from dmlvk.operators.byte_softmax import limits_of

Array = npt.NDArray[Any]
INFINITY_BITS = np.uint32(0x7F800000)


def run(desc: ByteSoftmaxDesc, *, input_tensor: Array, table_tensor: Array) -> Array:
    """Look the distances from each row's largest number up, and divide the terms by their sum.

    In binary64 a product of the steps is exact, and a quotient of such numbers is rounded to the same integer as the
    exact one: it is a half, or further from one than that rounding goes.
    """
    numbers = input_tensor.astype(np.intp)
    table = np.where(table_tensor.view(np.uint32) < INFINITY_BITS, table_tensor, np.float32(0))
    terms = table[255 - (numbers.max(axis=2, keepdims=True) - numbers)]
    with np.errstate(all="ignore"):
        sums = np.add.accumulate(terms, axis=2, dtype=np.float32)[:, :, -1:].astype(np.float64)
        quotients = np.rint(terms.astype(np.float64) * desc.output_steps / sums)
    quotients = np.where((sums > 0) & (sums < np.inf), quotients, 0) + desc.output_zero_point
    return np.clip(quotients, *limits_of(desc.input_tensor.data_type)).astype(input_tensor.dtype)
