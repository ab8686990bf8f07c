"""BYTE_SOFTMAX's reference against its page in fractions, which are exact."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dmlvk import DataType, TensorDesc
from dmlvk.operators import ByteSoftmaxDesc
from dmlvk.operators.byte_softmax import MOST_STEPS
from dmlvk.reference import run


def by_the_page(row: list[int], table: np.ndarray, steps: int, zero: int) -> list[int]:
    """One row of UINT8; round() of a fraction rounds halves to even."""
    terms = [table[255 - (max(row) - x)] for x in row]
    terms = [term if np.float32(0) < term < np.inf else np.float32(0) for term in terms]
    total = np.float32(0)
    for term in terms:
        total += term
    if not 0 < total < np.inf:
        return [zero] * len(row)
    return [min(round(Fraction(float(term)) * steps / Fraction(float(total))) + zero, 255) for term in terms]


@pytest.mark.parametrize("steps", [256, 255, MOST_STEPS])
@pytest.mark.parametrize("kind", ["exponentials", "ties", "any"])
def test_rows_are_those_of_the_page(kind: str, steps: int) -> None:
    random = np.random.default_rng(steps)
    table = np.exp((np.arange(256) - 255) * 0.031 + 60).astype(np.float32)
    if kind == "ties":
        table = 2.0 ** random.integers(-30, 3, 256).astype(np.float32)
    elif kind == "any":
        table = random.integers(0, 1 << 32, 256, np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        for length in range(1, 40):
            x = random.integers(0, 256, (2, 3, length), np.uint8)
            desc = ByteSoftmaxDesc(
                input_tensor=TensorDesc(DataType.UINT8, x.shape),
                table_tensor=TensorDesc(DataType.FLOAT32, (256,)),
                output_steps=steps,
                output_zero_point=3,
            )
            found = run(desc, input_tensor=x, table_tensor=table).reshape(6, length)
            expected = [by_the_page(list(map(int, row)), table, steps, 3) for row in x.reshape(6, length)]
            np.testing.assert_array_equal(found, expected)
