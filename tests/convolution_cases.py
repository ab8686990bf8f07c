"""Random quantized convolutions, and ONNX Runtime's QLinearConv as an independent oracle.

ONNX Runtime takes u8 x u8, u8 x s8 and s8 x s8, and one filter zero point for all channels. Other mixes are converted:
128 is added to the data and to the zero point. A filter zero point per channel becomes one convolution per channel.
Signed filters stay within [-64, 63]: on x86 processors without VNNI, ONNX Runtime saturates sums of two products to 16
bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.onnx_runtime import run_node

TYPES = {"s8": np.int8, "u8": np.uint8}


def as_type(array: np.ndarray, dtype: type) -> np.ndarray:
    """The array in the other 8-bit type. The real numbers stay the same if the zero point is converted too."""
    if array.dtype == dtype:
        return array
    return (array.astype(np.int16) + (128 if dtype == np.uint8 else -128)).astype(dtype)


def qlinear_conv(arrays: dict[str, np.ndarray], output_dtype: Any, **attributes: Any) -> np.ndarray:
    """ONNX Runtime's QLinearConv of the same arrays."""
    x, w = arrays["input_tensor"], arrays["filter_tensor"]
    zero = {name: arrays.get(f"{name}_zero_point_tensor") for name in ("input", "filter", "output")}
    x_zero, w_zero = (
        np.zeros(1, t.dtype) if z is None else z.ravel() for z, t in ((zero["input"], x), (zero["filter"], w))
    )
    y_zero = np.zeros(1, output_dtype) if zero["output"] is None else zero["output"].ravel()
    kind = np.uint8 if w.dtype == np.uint8 else x.dtype.type
    x, x_zero, y_zero = (as_type(array, kind) for array in (x, x_zero, y_zero))
    groups, filters = attributes["group_count"], len(w)
    scales = arrays["filter_scale_tensor"].ravel()
    bias = arrays.get("bias_tensor")
    options = {
        "strides": attributes["strides"],
        "dilations": attributes["dilations"],
        "pads": [*attributes["start_padding"], *attributes["end_padding"]],
    }

    def call(x_part: np.ndarray, rows: slice, w_zero_part: np.ndarray, group: int) -> np.ndarray:
        inputs = [
            x_part,
            arrays["input_scale_tensor"].ravel()[0],
            x_zero[0],
            w[rows],
            scales[rows] if scales.size > 1 else scales[0],
            w_zero_part,
            arrays["output_scale_tensor"].ravel()[0],
            y_zero[0],
            None if bias is None else bias.ravel()[rows],
        ]
        inputs = [None if array is None else np.asarray(array) for array in inputs]
        return run_node("QLinearConv", inputs, kind, 10, group=group, **options)

    if w_zero.size == 1:
        output = call(x, slice(None), w_zero[0], groups)
    else:
        channels, per_group = x.shape[1] // groups, filters // groups
        parts = []
        for m in range(filters):
            first = m // per_group * channels
            parts.append(call(x[:, first : first + channels], slice(m, m + 1), w_zero[m], 1))
        output = np.concatenate(parts, axis=1)
    return as_type(output, np.dtype(output_dtype).type)


def random_case(seed: int, x_type: str, w_type: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and attributes. Outputs are spread over the range, some sums exceed it, and many sums are ties."""
    generator = np.random.default_rng(seed)
    pick = generator.integers
    spatial = int(pick(1, 3))
    groups = int(generator.choice([1, 1, 2, 3]))
    channels, filters = groups * int(pick(1, 6)), groups * int(pick(1, 5))
    if pick(4) == 0:
        groups = channels = filters = int(pick(1, 9))  # depthwise
    kernel = [int(n) for n in pick(1, 5, spatial)]
    dilations = [int(n) for n in pick(1, 4, spatial)]
    start, end = ([int(n) for n in pick(0, 4, spatial)] for _ in range(2))
    reach = [1 + (k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    size = [max(1, r - s - e) + int(pick(0, 8)) for r, s, e in zip(reach, start, end, strict=True)]

    def data(kind: str, shape: tuple[int, ...], narrow: bool = False) -> np.ndarray:
        low, high = (-64, 64) if narrow and kind == "s8" else (np.iinfo(TYPES[kind]).min, np.iinfo(TYPES[kind]).max + 1)
        return pick(low, high, shape).astype(TYPES[kind])

    def channel_shape(rank: int) -> tuple[int, ...]:
        return (filters,) if rank == 1 else (1, filters, 1, 1)[:rank]

    rank = int(pick(1, 5))
    binary = bool(pick(2))  # scales are powers of two: if few bits are cut off, half of all results are ties
    taps = channels // groups * int(np.prod(kernel))
    spread = 60 * np.sqrt(taps) + 1
    scale = 2.0 ** -round(np.log2(spread)) if binary else 1 / spread * generator.uniform(0.5, 2)
    per_channel = bool(pick(2))
    factors = 2.0 ** pick(-1, 2, filters) if binary else generator.uniform(0.3, 3, filters)
    arrays: dict[str, np.ndarray] = {
        "input_tensor": data(x_type, (int(pick(1, 3)), channels, *size)),
        "filter_tensor": data(w_type, (filters, channels // groups, *kernel), narrow=True),
        "input_scale_tensor": np.full((1,) * int(pick(1, 5)), 0.25 if binary else 0.03, np.float32),
        "output_scale_tensor": np.full((1,) * int(pick(1, 5)), 0.5 if binary else 0.7, np.float32),
    }
    factors = factors[: filters if per_channel else 1] * scale * 4
    arrays["filter_scale_tensor"] = factors.astype(np.float32).reshape(
        channel_shape(rank) if per_channel else (1,) * rank
    )
    if pick(4):
        arrays["input_zero_point_tensor"] = data(x_type, (1,) * int(pick(1, 5)))
    if pick(4):
        shape = channel_shape(int(pick(1, 5))) if pick(2) else (1,) * int(pick(1, 5))
        arrays["filter_zero_point_tensor"] = data(w_type, shape, narrow=True)
    if pick(2):
        bias = pick(-int(spread * 60), int(spread * 60), filters)
        arrays["bias_tensor"] = bias.astype(np.int32).reshape(channel_shape(2 + spatial))
    attributes = {
        "strides": [int(n) for n in pick(1, 4, spatial)],
        "dilations": dilations,
        "start_padding": start,
        "end_padding": end,
        "group_count": groups,
    }
    return arrays, attributes
