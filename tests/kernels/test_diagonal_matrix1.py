"""DIAGONAL_MATRIX1 on devices, against NumPy's diagonals and ONNX Runtime's Trilu and EyeLike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, DiagonalMatrix1Desc, TensorDesc
from tests.amount import examples
from tests.kernels.harness import check, input_memory
from tests.layouts import DATA_TYPES, input_strides, output_strides, random_bytes, sizes, view
from tests.reference.onnx_runtime import run_node

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
BOUNDS = st.one_of(st.integers(-60, 60), st.sampled_from([INT32_MIN, INT32_MIN + 1, 0, INT32_MAX - 1, INT32_MAX]))


def filled(height: int, width: int, begin: int, end: int) -> np.ndarray:
    """The filled part, put together from NumPy's lower triangles."""

    def below(diagonal: int) -> np.ndarray:
        # All t = x - y < diagonal. Bounds far outside the matrix mean the whole matrix, or nothing.
        return np.tri(height, width, min(max(diagonal - 1, -height - 1), width + 1), dtype=bool)

    return below(end) & ~below(begin) if begin <= end else below(end) | ~below(begin)


@st.composite
def descriptors(draw: st.DrawFn) -> DiagonalMatrix1Desc:
    rank = draw(st.integers(2, 4))
    output = draw(sizes(rank))
    data_type = draw(DATA_TYPES)
    source = TensorDesc(data_type, output, draw(input_strides(output))) if draw(st.booleans()) else None
    value = np.frombuffer(draw(st.binary(min_size=8, max_size=8)), data_type.numpy_dtype)[0]
    return DiagonalMatrix1Desc(
        input_tensor=source,
        output_tensor=TensorDesc(data_type, output, draw(output_strides(output))),
        value=value,
        diagonal_fill_begin=draw(BOUNDS),
        diagonal_fill_end=draw(BOUNDS),
    )


def check_against_numpy(device: dmlvk.Device, desc: DiagonalMatrix1Desc, offset: int, seed: int) -> None:
    inputs = input_memory(desc, seed)
    output = desc.output_tensor
    dtype = np.dtype(f"u{output.data_type.size_in_bytes}")
    others = view(inputs["input_tensor"], desc.input_tensor) if desc.input_tensor else np.zeros(output.sizes, dtype)
    height, width = output.sizes[-2:]
    mask = filled(height, width, desc.diagonal_fill_begin, desc.diagonal_fill_end)
    expected = np.where(mask, np.frombuffer(desc.value_bytes, dtype)[0], others)
    check(device, desc, expected, inputs, offset=offset, seed=seed)


@given(descriptors(), st.integers(0, 20), st.integers(0, 1 << 20))
@examples(3)
def test_any_layout_and_any_band(device: dmlvk.Device, desc: DiagonalMatrix1Desc, blocks: int, seed: int) -> None:
    check_against_numpy(device, desc, 16 * blocks, seed)


@given(descriptors(), st.integers(0, 20), st.integers(0, 1 << 20))
@examples(0.8)
def test_a_band_across_cuts_in_memory(
    tight_device: dmlvk.Device, desc: DiagonalMatrix1Desc, blocks: int, seed: int
) -> None:
    check_against_numpy(tight_device, desc, 16 * blocks, seed)


@pytest.mark.every_driver
@pytest.mark.parametrize("data_type", DataType)
@pytest.mark.parametrize("has_input", [False, True])
def test_every_type_with_wide_and_narrow_bands(device: dmlvk.Device, data_type: DataType, has_input: bool) -> None:
    tensor = TensorDesc(data_type, [2, 61, 67])
    value = random_bytes(9, 8).view(data_type.numpy_dtype)[0]
    for begin, end in [
        (0, 1),
        (-20, 17),
        (17, -20),
        (5, 5),
        (1, 0),
        (INT32_MIN, 3),
        (-3, INT32_MAX),
        (INT32_MAX, INT32_MIN),
    ]:
        desc = DiagonalMatrix1Desc(
            input_tensor=tensor if has_input else None,
            output_tensor=tensor,
            value=value,
            diagonal_fill_begin=begin,
            diagonal_fill_end=end,
        )
        check_against_numpy(device, desc, 16, begin & 0xFF)


@pytest.mark.parametrize("k", [-70, -61, -5, -1, 0, 1, 13, 66, 67, 90])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float64])
def test_triangles_agree_with_onnx_trilu(device: dmlvk.Device, dtype: type, k: int) -> None:
    source: np.ndarray = random_bytes(k & 0xFF, 3 * 61 * 67).reshape(3, 61, 67).astype(dtype)
    diagonal = np.array(k, np.int64)
    upper = dmlvk.diagonal_matrix1(source, value=0, diagonal_fill_begin=INT32_MIN, diagonal_fill_end=k, device=device)
    assert upper.tobytes() == run_node("Trilu", [source, diagonal], dtype, 14, upper=1).tobytes()
    lower = dmlvk.diagonal_matrix1(
        source, value=0, diagonal_fill_begin=k + 1, diagonal_fill_end=INT32_MAX, device=device
    )
    assert lower.tobytes() == run_node("Trilu", [source, diagonal], dtype, 14, upper=0).tobytes()


@pytest.mark.parametrize("k", [-60, -1, 0, 2, 66])
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float64])
def test_identities_agree_with_onnx_eye_like(device: dmlvk.Device, dtype: type, k: int) -> None:
    expected = run_node("EyeLike", [np.zeros((61, 67), dtype)], dtype, 14, k=k)
    found = dmlvk.diagonal_matrix1(
        sizes=(61, 67), value=1, diagonal_fill_begin=k, diagonal_fill_end=k + 1, dtype=dtype, device=device
    )
    assert found.tobytes() == expected.tobytes()
