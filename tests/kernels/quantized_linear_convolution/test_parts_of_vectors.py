"""K cut over workgroups by the path `vectors`: calls one after another and at the same time, with the same memory."""

from __future__ import annotations

import numpy as np
import pytest

import dmlvk
from dmlvk import QuantizedLinearConvolutionDesc
from tests.kernels.quantized_linear_convolution.arrays import PLAIN, describe, quantized

CHANNELS, FILTERS, SIZE = 144, 40, 5


def case(seed: int) -> tuple[QuantizedLinearConvolutionDesc, dict[str, np.ndarray]]:
    """A layer of eleven steps of K, whose sums of every second channel do not fit 32 bits."""
    generator = np.random.default_rng(seed)
    bias = generator.integers(-(2**15), 2**15, FILTERS).astype(np.int32)
    bias[::2] = 2**31 - 1
    scales = np.where(np.arange(FILTERS) % 2, 2.0**13, 1.0).astype(np.float32)
    arrays = quantized(
        generator.integers(0, 256, (1, CHANNELS, SIZE, SIZE)).astype(np.uint8),
        generator.integers(-128, 128, (FILTERS, CHANNELS, 3, 3)).astype(np.int8),
        input_zero_point_tensor=np.array([13], np.uint8),
        filter_zero_point_tensor=generator.integers(-9, 9, FILTERS).astype(np.int8),
        filter_scale_tensor=scales.reshape(1, FILTERS, 1, 1),
        bias_tensor=bias.reshape(1, FILTERS, 1, 1),
        output_scale_tensor=np.array([2.0**25], np.float32),
    )
    attributes = {**PLAIN, "start_padding": (1, 1), "end_padding": (1, 1)}
    return describe(arrays, np.uint8, attributes), arrays


@pytest.mark.parametrize("parts", [2, 3, 4, 11, 16])
def test_a_call_leaves_nothing_to_the_next(device: dmlvk.Device, parts: int) -> None:
    desc, arrays = case(parts)
    operator = device.compile(desc, path=f"vectors/{parts}")
    output = device.tensor(desc.output_tensor)
    tensors = {name: device.tensor(array) for name, array in arrays.items()}
    for turn in range(3):
        arrays["input_tensor"] = np.roll(arrays["input_tensor"], turn)
        tensors["input_tensor"].write(arrays["input_tensor"])
        output.write(np.full(desc.output_tensor.sizes, 0xA5, np.uint8))
        operator(output_tensor=output, **tensors).wait()
        expected = dmlvk.reference.run(desc, **arrays)
        assert len(np.unique(expected)) > 20
        np.testing.assert_array_equal(output.numpy(), expected)


def test_calls_in_flight_do_not_share_their_sums(device: dmlvk.Device) -> None:
    given, waiting = [], []
    desc, _ = case(0)
    operator = device.compile(desc, path="vectors/4")
    for seed in range(4):
        _, arrays = case(seed)
        tensors = {name: device.tensor(array) for name, array in arrays.items()}
        output = device.tensor(desc.output_tensor)
        given.append((arrays, output))
        waiting += [operator(output_tensor=output, **tensors) for _ in range(2)]
    for submission in waiting:
        submission.wait()
    for arrays, output in given:
        np.testing.assert_array_equal(output.numpy(), dmlvk.reference.run(desc, **arrays))
