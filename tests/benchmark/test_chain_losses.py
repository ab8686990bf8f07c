"""What layers lose one after the other is measured for every way to run them."""

from __future__ import annotations

import numpy as np
import pytest

import dmlvk
from bench import chain_losses
from dmlvk.benchmark.cases.quantized_linear_convolution import Layer

LAYERS = [Layer(16, 9, 24, 1), Layer(24, 9, 16, 3), Layer(16, 9, 24, 1)]


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_losses(device: dmlvk.Device, layout: str) -> None:
    found = chain_losses.losses(device, LAYERS, 2, layout, 3)
    assert list(found)[-2:] == [chain_losses.ORDERED, chain_losses.FLUSHED] and len(found) == 6
    # Differences of two times may be less than nothing on a busy machine.
    assert all(seconds > 0 for row, seconds in found.items() if "after itself" not in row)


def test_layers_read_what_the_one_before_has_written(device: dmlvk.Device) -> None:
    operators = chain_losses.operators_of(device, LAYERS, 1, "nhwc", 0)
    first, second, third = chain_losses.bound(operators, (device.buffer(1 << 16), device.buffer(1 << 16)))
    for earlier, later in ((first, second), (second, third)):
        assert earlier.written_memory & later.read_memory


def test_equal_layers_have_different_weights(device: dmlvk.Device) -> None:
    """Unless they are told to share them."""
    results = []
    for operator in chain_losses.operators_of(device, [LAYERS[0], LAYERS[2]], 1, "nhwc", 0):
        image, output = device.tensor(operator.desc.input_tensor), device.tensor(operator.desc.output_tensor)
        image.write((np.arange(16 * 81) % 251).astype(np.uint8).reshape(1, 16, 9, 9))
        operator(input_tensor=image, output_tensor=output).wait()
        results.append(output.numpy())
    assert not np.array_equal(results[0], results[1])
