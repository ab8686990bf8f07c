"""BYTE_TABLE_MEAN's reference against the orders of its page, element by element."""

from __future__ import annotations

import numpy as np
import pytest

from dmlvk import DataType, TensorDesc
from dmlvk.operators import ByteTableMeanDesc
from dmlvk.operators.byte_table_mean import LANE_COUNTS
from dmlvk.reference import run

F = np.float32


def by_the_page(values: list[F], plane: int, lane_count: int) -> F:
    """The mean of one plane."""
    count = len(values)
    first = min((-plane * count) % 4, count) if lane_count == 8 else 0
    lanes, waiting, rest = [F(0)] * lane_count, values[:first], values[first:]
    while len(rest) >= lane_count:
        lanes = [total + value for total, value in zip(lanes, rest, strict=False)]
        rest = rest[lane_count:]
    if lane_count == 8:
        lanes = [low + high for low, high in zip(lanes[:4], lanes[4:], strict=True)]
        if len(rest) >= 4:
            lanes = [total + value for total, value in zip(lanes, rest, strict=False)]
            rest = rest[4:]
    total = lanes[0] if lane_count == 1 else (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
    for value in (*waiting, *rest):
        total = total + value
    return total / F(count)


@pytest.mark.parametrize("lane_count", LANE_COUNTS)
def test_each_order_is_that_of_the_page(lane_count: int) -> None:
    random = np.random.default_rng(lane_count)
    table = random.standard_normal(256).astype(F)
    for count in range(1, 30):
        x = random.integers(0, 256, (2, 5, 1, count), np.uint8)
        desc = ByteTableMeanDesc(
            input_tensor=TensorDesc(DataType.UINT8, x.shape),
            table_tensor=TensorDesc(DataType.FLOAT32, (256,)),
            lane_count=lane_count,
        )
        found = run(desc, input_tensor=x, table_tensor=table).reshape(-1)
        planes = enumerate(table[x].reshape(10, count))
        np.testing.assert_array_equal(found, [by_the_page(list(row), plane, lane_count) for plane, row in planes])
