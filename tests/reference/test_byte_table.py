"""BYTE_TABLE's reference against functions of bytes, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlvk.operators import ByteTableDesc
from dmlvk.reference import run
from tests.reference.quantized import BYTE_TYPES, desc_of, random_bytes_of


def lookup(axis: int | None = None, **arrays: np.ndarray) -> np.ndarray:
    tensors: dict[str, Any] = {field: desc_of(array) for field, array in arrays.items()}
    output = desc_of(np.empty(arrays["input_tensor"].shape, arrays["table_tensor"].dtype))
    return run(ByteTableDesc(**tensors, output_tensor=output, axis=axis), **arrays)


@pytest.mark.parametrize("dtype", BYTE_TYPES)
def test_a_table_of_any_function_gives_its_values(dtype: Any) -> None:
    numbers = np.arange(256, dtype=np.uint8).view(dtype)
    table = np.clip(numbers.astype(int) * 3 - 40, -128, 127).astype(np.int8)
    x = random_bytes_of(np.random.default_rng(0), (3, 50), dtype)
    expected = [[min(max(int(value) * 3 - 40, -128), 127) for value in row] for row in x]
    assert lookup(input_tensor=x, table_tensor=table).tolist() == expected


def test_the_first_input_has_the_upper_bits_of_a_pair() -> None:
    first, second = np.array([-1, 2, 0], np.int8), np.array([3, 250, 0], np.uint8)
    table = (np.arange(65536) % 251).astype(np.uint8)
    output = lookup(input_tensor=first, second_input_tensor=second, table_tensor=table)
    assert output.tolist() == [(255 * 256 + 3) % 251, (2 * 256 + 250) % 251, 0]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_each_index_along_an_axis_has_a_table(axis: int) -> None:
    random = np.random.default_rng(axis)
    x = random_bytes_of(random, (2, 3, 4), np.int8)
    tables = random_bytes_of(random, (x.shape[axis], 256), np.uint8)
    output = lookup(axis, input_tensor=x, table_tensor=tables)
    for place in np.ndindex(*x.shape):
        assert output[place] == tables[place[axis], int(x[place]) & 255]
