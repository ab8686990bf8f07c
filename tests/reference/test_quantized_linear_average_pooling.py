"""QUANTIZED_LINEAR_AVERAGE_POOLING's reference against ONNX Runtime's two operators, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlvk.operators import QuantizedLinearAveragePoolingDesc
from dmlvk.reference.quantized_linear_average_pooling import run
from dmlvk.tensor_desc import TensorDesc
from tests.reference.onnx_runtime import run_node
from tests.reference.test_max_pooling2 import ceil_padding

MICROSOFT = "com.microsoft"


def averaged(x: np.ndarray, sx: Any, zx: Any, sy: Any, zy: Any, **fields: Any) -> np.ndarray:
    """{N, C, W} is {N, C, 1, W}."""
    spatial = {name: values for name, values in fields.items() if name != "include_padding"}
    spatial["dilations"] = [1] * (x.ndim - 2)
    wide = x
    if x.ndim == 3:
        neutral = {"start_padding": 0, "end_padding": 0}
        spatial = {name: [neutral.get(name, 1), *values] for name, values in spatial.items()}
        wide = x[:, :, np.newaxis]
    arrays = {
        "input_tensor": wide,
        "input_scale_tensor": np.asarray(sx, np.float32).reshape(-1),
        "input_zero_point_tensor": np.asarray(zx, x.dtype).reshape(-1),
        "output_scale_tensor": np.asarray(sy, np.float32).reshape(-1),
        "output_zero_point_tensor": np.asarray(zy, x.dtype).reshape(-1),
    }
    desc = QuantizedLinearAveragePoolingDesc(
        **{field: TensorDesc.of(array) for field, array in arrays.items()},  # type: ignore[arg-type]
        **spatial,
        include_padding=bool(fields.get("include_padding", False)),
    )
    result = run(desc, **arrays)
    return result if x.ndim > 3 else result[:, :, 0]


def parameters(random: np.random.Generator, dtype: Any, kind: int) -> tuple[Any, ...]:
    """Scales that are near each other or equal, and zero points, odd ones and the ends among them."""
    sx = np.float32(random.uniform(0.5, 2) * 2.0 ** random.integers(-8, 3))
    sy = sx if kind % 3 == 0 else np.float32(sx * np.float32(random.choice([0.5, 0.3, 0.77, 1.3])))
    info = np.iinfo(dtype)
    zx, zy = (dtype(random.choice([info.min, info.max, int(random.integers(info.min, info.max))])) for _ in range(2))
    return sx, zx, sy, zy


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_it_is_onnx_runtime_s_q_linear_average_pool(rank: int, seed: int) -> None:
    random = np.random.default_rng(1000 * rank + seed)
    dtype = (np.int8, np.uint8)[seed % 2]
    window, strides = (random.integers(1, top, rank).tolist() for top in (5, 4))
    start, end = ([int(random.integers(0, size)) for size in window] for _ in range(2))
    ceil_mode, include_padding = (int(each) for each in random.integers(0, 2, 2))
    sizes = random.integers(4, 12, rank).tolist()
    info = np.iinfo(dtype)
    x = random.integers(info.min, info.max, (2, 3, *sizes), dtype, endpoint=True)
    sx, zx, sy, zy = parameters(random, dtype, seed)
    expected = run_node(
        "QLinearAveragePool",
        [x, np.array(sx), np.array(zx), np.array(sy), np.array(zy)],
        dtype,
        21,
        domain=MICROSOFT,
        kernel_shape=window,
        strides=strides,
        pads=start + end,
        ceil_mode=ceil_mode,
        count_include_pad=include_padding,
    )
    if ceil_mode:
        end = [ceil_padding(*each) for each in zip(sizes, window, strides, [1] * rank, start, end, strict=True)]
    fields = {"window_size": window, "strides": strides, "start_padding": start, "end_padding": end}
    got = averaged(x, sx, zx, sy, zy, **fields, include_padding=include_padding)
    np.testing.assert_array_equal(got, expected, strict=True)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_window_of_the_whole_plane_is_both_operators(rank: int) -> None:
    """ONNX Runtime's two operators agree there, and with padding only the formula of windows is left."""
    random = np.random.default_rng(rank)
    for kind in range(12):
        sizes = random.integers(1, 9, rank).tolist() if kind % 4 else [2] * rank
        x = random.integers(0, 256, (3, 64, *sizes), np.uint8)
        sx, zx, sy, zy = parameters(random, np.uint8, 3 * kind)
        inputs = [x, np.array(sx), np.array(zx), np.array(sy), np.array(zy)]
        for end in ([0] * rank, [1] * rank):
            strides = (np.array(end) + random.integers(1, 4, rank)).tolist()  # so large that there is one window
            window = {"kernel_shape": sizes, "strides": strides, "pads": [0] * rank + end}
            if max(end) and min(sizes) == 1:
                continue
            expected = run_node("QLinearAveragePool", inputs, np.uint8, 21, domain=MICROSOFT, **window)
            got = averaged(
                x, sx, zx, sy, zy, window_size=sizes, strides=strides, start_padding=[0] * rank, end_padding=end
            )
            np.testing.assert_array_equal(got, expected, strict=True)
            if not max(end):
                whole = run_node("QLinearGlobalAveragePool", inputs, np.uint8, 21, domain=MICROSOFT)
                np.testing.assert_array_equal(got, whole, strict=True)


def test_scales_and_zero_points_of_each_channel() -> None:
    random = np.random.default_rng(4)
    x = random.integers(0, 256, (2, 5, 6, 7), np.uint8)
    sx, sy = (random.uniform(0.5, 2, 5).astype(np.float32) for _ in range(2))
    zx, zy = (random.integers(0, 256, 5, np.uint8) for _ in range(2))
    fields = {"window_size": [2, 3], "strides": [1, 2], "start_padding": [1, 0], "end_padding": [0, 2]}
    got = averaged(x, sx, zx, sy, zy, **fields)
    for c in range(5):
        alone = averaged(x[:, c : c + 1], sx[c], zx[c], sy[c], zy[c], **fields)
        np.testing.assert_array_equal(got[:, c : c + 1], alone)


@pytest.mark.parametrize("scale", [0.0, np.inf, np.nan, 1e-45, 3e38])
def test_undefined_scales_give_some_value(scale: float) -> None:
    x = np.arange(32, dtype=np.uint8).reshape(1, 2, 4, 4)
    for window in ([2, 2], [4, 4]):
        fields = {"window_size": window, "strides": [1, 1], "start_padding": [0, 0], "end_padding": [0, 0]}
        for scales in ((scale, 1), (1, scale)):
            averaged(x, scales[0], 3, scales[1], 5, **fields)
