"""Values on devices: against ONNX Runtime's QLinearConv, or the reference."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, TensorDesc
from tests.amount import examples
from tests.convolution_cases import TYPES, qlinear_conv, random_case
from tests.kernels.quantized_linear_convolution.arrays import PLAIN, describe, quantized
from tests.kernels.quantized_linear_convolution.paths import MADE_FOR_SOME, one_path, paths_of, run, takes
from tests.layouts import random_bytes

KINDS = st.sampled_from(list(TYPES))


@given(KINDS, KINDS, KINDS, st.integers(0, 1 << 30))
@examples(1.5)
def test_any_convolution_is_onnx_runtime_s(
    device: dmlvk.Device, x_type: str, w_type: str, y_type: str, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    arrays, attributes = random_case(seed, x_type, w_type)
    if generator.integers(4):
        limits = np.iinfo(TYPES[y_type])
        point = generator.choice(np.array([limits.min, limits.max, generator.integers(limits.min, limits.max + 1)]))
        arrays["output_zero_point_tensor"] = np.array([point], TYPES[y_type])
    desc = describe(arrays, TYPES[y_type], attributes, generator)
    expected = qlinear_conv(arrays, TYPES[y_type], **attributes)
    run(device, desc, arrays, expected, one_path(device, desc, seed), seed)


@given(KINDS, KINDS, KINDS, st.integers(0, 1 << 30))
@examples(0.6)
def test_windows_across_cuts_in_memory(
    tight_device: dmlvk.Device, x_type: str, w_type: str, y_type: str, seed: int
) -> None:
    arrays, attributes = random_case(seed, x_type, w_type)
    desc = describe(arrays, TYPES[y_type], attributes, np.random.default_rng(seed))
    expected = dmlvk.reference.run(desc, **arrays)
    # Operands that do not fit such windows when packed are read in place; a path that packs is then refused.
    run(tight_device, desc, arrays, expected, tight_device.plan(desc).path, seed)


def hard_case(seed: int, x_type: str, w_type: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Extreme bytes and zero points, sums far above 2^24, scales over all magnitudes of binary32, exact ties."""
    generator = np.random.default_rng(seed)
    arrays, attributes = random_case(seed, x_type, w_type)
    filters = arrays["filter_tensor"].shape[0]
    for name, kind in (("input", x_type), ("filter", w_type)):
        limits = np.iinfo(TYPES[kind])
        edges = np.array([limits.min, limits.min + 1, -1 & 0xFF if kind == "u8" else -1, 0, 1, limits.max], np.int64)
        shape = arrays[f"{name}_tensor"].shape
        if generator.integers(2):
            arrays[f"{name}_tensor"] = generator.choice(edges, shape).astype(TYPES[kind])
        arrays[f"{name}_zero_point_tensor"] = generator.choice(edges, 1).astype(TYPES[kind])
    style = generator.integers(3)
    if style == 0:  # any binary32 number that is not negative, including denormals and the largest ones
        bits = generator.integers(1, 0x7F800000, filters + 2).astype(np.uint32)
        scales = bits.view(np.float32)
    elif style == 1:  # powers of two around a ratio that leaves results in range: half of them ties
        scales = (2.0 ** generator.integers(-12, 3, filters + 2)).astype(np.float32)
    else:
        scales = (10.0 ** generator.uniform(-6, 1, filters + 2)).astype(np.float32)
    arrays["input_scale_tensor"] = scales[:1]
    arrays["output_scale_tensor"] = scales[1:2]
    arrays["filter_scale_tensor"] = scales[2:]
    bias = generator.choice([0, 1, -1, 2**24 + 1, -(2**24) - 3, 2**31 - 1, -(2**31)], filters)
    arrays["bias_tensor"] = bias.astype(np.int32).reshape((1, filters, 1, 1)[: arrays["input_tensor"].ndim])
    return arrays, attributes


@pytest.mark.every_driver
@given(KINDS, KINDS, KINDS, st.integers(0, 1 << 30))
@examples()
def test_hard_values(device: dmlvk.Device, x_type: str, w_type: str, y_type: str, seed: int) -> None:
    arrays, attributes = hard_case(seed, x_type, w_type)
    desc = describe(arrays, TYPES[y_type], attributes)
    run(device, desc, arrays, dmlvk.reference.run(desc, **arrays), one_path(device, desc, seed), seed)


@pytest.mark.parametrize("scale", [0.0, -0.0, np.inf, -np.inf, np.nan, -1.0])
@pytest.mark.parametrize("place", ["input", "filter", "output"])
def test_undefined_scales_give_some_value_and_touch_nothing_else(
    device: dmlvk.Device, scale: float, place: str
) -> None:
    arrays, attributes = random_case(5, "u8", "s8")
    arrays[f"{place}_scale_tensor"] = np.array([scale], np.float32)
    desc = describe(arrays, np.int8, attributes)
    paths = [path for path in paths_of(device) if takes(device, desc, path)]
    assert {"direct", "integer", "general"} <= set(paths)
    for path in paths:
        buffer = device.buffer(desc.output_tensor.total_size_in_bytes + 64)
        everything = buffer.tensor(TensorDesc(DataType.UINT8, [buffer.size_in_bytes]))
        before = random_bytes(1, buffer.size_in_bytes)
        everything.write_bytes(before.tobytes())
        tensors = {name: device.tensor(array) for name, array in arrays.items()}
        output = buffer.tensor(desc.output_tensor, offset=16)
        device.compile(desc, path=path)(output_tensor=output, **tensors).wait(timeout=60)
        after = np.frombuffer(everything.read_bytes(), np.uint8)
        changed = np.flatnonzero(before != after)
        assert changed.size == 0 or 16 <= changed[0] <= changed[-1] < 16 + desc.output_tensor.element_count


@pytest.mark.parametrize("channels", [33_026, 70_001])
def test_sums_past_32_bits_do_not_wrap(device: dmlvk.Device, channels: int) -> None:
    generator = np.random.default_rng(channels)
    arrays = quantized(
        np.full((2, channels, 1, 2), 255, np.uint8),
        np.full((3, channels, 1, 1), 255, np.uint8),
        bias_tensor=np.array([2**31 - 1, 0, -(2**31)], np.int32).reshape(1, 3, 1, 1),
        output_scale_tensor=np.array([2.0**26], np.float32),
    )
    arrays["filter_tensor"][1] = generator.integers(0, 256, (channels, 1, 1))
    desc = describe(arrays, np.uint8, PLAIN)
    expected = dmlvk.reference.run(desc, **arrays)
    assert expected.max() >= 32  # 2^31 / 2^26
    run(device, desc, arrays, expected, "direct")
    run(device, desc, arrays, expected, device.compile(desc).plan.path)


def test_products_near_32_bits_on_every_path(device: dmlvk.Device) -> None:
    """The most taps of the largest products that fit 32 bits, and a bias with which the sum exceeds 32 bits."""
    arrays = quantized(
        np.full((1, 33_024, 1, 1), 255, np.uint8),
        np.full((2, 33_024, 1, 1), 255, np.uint8),
        bias_tensor=np.array([2**31 - 1, -(2**31)], np.int32).reshape(1, 2, 1, 1),
        output_scale_tensor=np.array([2.0**25], np.float32),
    )
    desc = describe(arrays, np.uint8, PLAIN)
    expected = dmlvk.reference.run(desc, **arrays)
    for path in paths_of(device):
        try:
            device.plan(desc, path)
        except ValueError as error:
            if path in MADE_FOR_SOME:  # for few channels, or for several taps
                obstacles = r"input channels( of a group)? = 33024|filter size = \(1, 1\)"
                assert re.search(rf"({obstacles}), possible: ", str(error))
            else:
                assert "words of four taps that an output sums up in 32 bits = 33024" in str(error)
        else:
            run(device, desc, arrays, expected, path)
