"""MAX_POOLING2's reference against ONNX Runtime's MaxPool, bit for bit, and against itself with larger integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlvk.operators import MaxPooling2Desc
from dmlvk.reference.max_pooling2 import indices as indices_of
from dmlvk.reference.max_pooling2 import run
from dmlvk.tensor_desc import TensorDesc
from tests.reference.onnx_runtime import run_node

TYPES = [np.int8, np.uint8]


def described(x: np.ndarray, **fields: Any) -> MaxPooling2Desc:
    """The descriptor of {N, C, W} is that of {N, C, 1, W}."""
    if x.ndim == 3:
        neutral = {"start_padding": 0, "end_padding": 0}
        fields = {name: [neutral.get(name, 1), *values] for name, values in fields.items()}
        x = x[:, :, np.newaxis]
    return MaxPooling2Desc(input_tensor=TensorDesc.of(x), **fields)


def pooled(x: np.ndarray, **fields: Any) -> tuple[np.ndarray, np.ndarray]:
    desc = described(x, **fields)
    wide = x.reshape(desc.input_tensor.sizes)
    found = run(desc, input_tensor=wide), indices_of(desc, input_tensor=wide)
    return tuple(each if x.ndim > 3 else each[:, :, 0] for each in found)  # type: ignore[return-value]


def ceil_padding(size: int, window: int, stride: int, dilation: int, start: int, end: int) -> int:
    """The end padding that gives the output size of ONNX's ceil_mode."""
    room = size + start + end - (window - 1) * dilation - 1
    count = -(-room // stride) + 1
    if (count - 1) * stride >= size + start:
        count -= 1
    return max(0, end + (count - 1) * stride - room)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_it_is_onnx_runtime_s_max_pool(rank: int, seed: int) -> None:
    random = np.random.default_rng(100 * rank + seed)
    window, strides, dilations = (random.integers(1, top, rank).tolist() for top in (4, 4, 3))
    start, end = ([int(random.integers(0, size)) for size in window] for _ in range(2))
    ceil_mode = int(random.integers(2))
    sizes = random.integers(5, 12, rank).tolist()
    dtype = TYPES[seed % 2]
    info = np.iinfo(dtype)
    # Few values, so that there are equal ones, with the least one among them.
    x = random.choice([info.min, info.max, 3, 4, 5], (2, 3, *sizes)).astype(dtype)
    attributes = {"kernel_shape": window, "strides": strides, "pads": start + end, "dilations": dilations}
    given = [dtype, np.int64]
    expected = [
        run_node("MaxPool", [x], kind, 22, outputs_before=place, ceil_mode=ceil_mode, **attributes)
        for place, kind in enumerate(given)
    ]
    if ceil_mode:
        end = [ceil_padding(*values) for values in zip(sizes, window, strides, dilations, start, end, strict=True)]
    values, indices = pooled(
        x, window_size=window, strides=strides, dilations=dilations, start_padding=start, end_padding=end
    )
    np.testing.assert_array_equal(values, expected[0], strict=True)
    np.testing.assert_array_equal(indices.astype(np.int64), expected[1])


@pytest.mark.parametrize("dtype", [f"{sign}{size}" for sign in "iu" for size in (2, 4, 8)])
def test_larger_integers(dtype: str) -> None:
    """Each window on its own, by NumPy's own maximum."""
    random = np.random.default_rng(5)
    info = np.iinfo(dtype)
    x = random.integers(info.min, info.max, (2, 3, 9, 8), dtype, endpoint=True)
    x[0, :, :, :4] = info.min
    values, indices = pooled(
        x, window_size=[3, 2], strides=[2, 1], start_padding=[1, 1], end_padding=[1, 0], dilations=[2, 1]
    )
    for n, c, i, j in np.ndindex(values.shape):
        rows = [r for r in range(2 * i - 1, 2 * i + 4, 2) if 0 <= r < 9]
        columns = [k for k in (j - 1, j) if 0 <= k < 8]
        window = x[n, c][np.ix_(rows, columns)]
        row, column = divmod(int(window.argmax()), len(columns))
        assert values[n, c, i, j] == window.max()
        assert indices[n, c, i, j] == np.ravel_multi_index((n, c, rows[row], columns[column]), x.shape)
