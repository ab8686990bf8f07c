"""DIAGONAL_MATRIX on devices, against NumPy's eye.

Its kernel is DIAGONAL_MATRIX1's: see tests/planning/test_predecessors.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, DiagonalMatrixDesc, TensorDesc
from tests.amount import examples
from tests.kernels.harness import check
from tests.planning.test_predecessors import diagonals


def check_against_numpy(device: dmlvk.Device, desc: DiagonalMatrixDesc, offset: int, seed: int) -> None:
    output = desc.output_tensor
    height, width = output.sizes[-2:]
    diagonal = min(max(desc.offset, -height - 1), width + 1)
    # NumPy's conversion truncates, like that of DirectML's FLOAT.
    value = np.float32(desc.value).astype(output.data_type.numpy_dtype)
    expected = np.where(np.eye(height, width, diagonal, dtype=bool), value, np.zeros((), value.dtype))
    check(device, desc, np.ascontiguousarray(np.broadcast_to(expected, output.sizes)), {}, offset=offset, seed=seed)


@given(diagonals(), st.integers(0, 20), st.integers(0, 1 << 20))
@examples()
def test_any_layout_and_any_offset(device: dmlvk.Device, desc: DiagonalMatrixDesc, blocks: int, seed: int) -> None:
    check_against_numpy(device, desc, 16 * blocks, seed)


@pytest.mark.parametrize("bits", [0x7FC01234, 0xFF800001, 0x80000000, 0x00000001])
def test_float32_values_keep_their_bits(device: dmlvk.Device, bits: int) -> None:
    tensor = TensorDesc(DataType.FLOAT32, (5, 7))
    desc = DiagonalMatrixDesc(output_tensor=tensor, offset=-1, value=bits.to_bytes(4, "little"))
    check(device, desc, np.eye(5, 7, -1, dtype=np.uint32) * np.uint32(bits), {})
