"""DIAGONAL_MATRIX's reference against the page's examples, NumPy's eye and DIAGONAL_MATRIX1's reference."""

from __future__ import annotations

import numpy as np
import pytest

from dmlvk.data_type import DataType
from dmlvk.operators import DiagonalMatrix1Desc, DiagonalMatrixDesc
from dmlvk.reference import run
from dmlvk.tensor_desc import TensorDesc


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (0, [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
        (1, [[0, 1, 0], [0, 0, 1], [0, 0, 0]]),
        (-1, [[0, 0], [1, 0], [0, 1]]),
        (-3, [[0, 0], [0, 0], [0, 0]]),
    ],
)
def test_page_examples_1_to_4(offset: int, expected: list[list[int]]) -> None:
    output_tensor = TensorDesc(DataType.FLOAT32, (1, 1, 3, len(expected[0])))
    output = run(DiagonalMatrixDesc(output_tensor=output_tensor, offset=offset, value=1.0))
    assert output.dtype == np.float32
    np.testing.assert_array_equal(output, [[expected]])


@pytest.mark.parametrize("data_type", DataType)
@pytest.mark.parametrize("sizes", [(4, 5), (7, 3), (1, 6), (6, 1), (2, 3, 4), (2, 3, 4, 2)])
def test_it_is_numpy_s_eye_and_diagonal_matrix1(sizes: tuple[int, ...], data_type: DataType) -> None:
    output_tensor = TensorDesc(data_type, sizes)
    for offset in (*range(-8, 9), -(2**31), 2**31 - 2):
        output = run(DiagonalMatrixDesc(output_tensor=output_tensor, offset=offset, value=3))
        assert output.shape == sizes and output.dtype == data_type.numpy_dtype
        eye = np.eye(sizes[-2], sizes[-1], min(max(offset, -10), 10)) * 3
        np.testing.assert_array_equal(output, np.broadcast_to(eye, sizes))
        successor = DiagonalMatrix1Desc(
            output_tensor=output_tensor, value=3, diagonal_fill_begin=offset, diagonal_fill_end=offset + 1
        )
        assert run(successor).tobytes() == output.tobytes()


def test_bits_arrive_unchanged() -> None:
    bits = bytes([1, 2, 0x81, 0x7F])
    output = run(DiagonalMatrixDesc(output_tensor=TensorDesc(DataType.FLOAT32, (2, 2)), offset=1, value=bits))
    assert output.tobytes() == bytes(4) + bits + bytes(8)
