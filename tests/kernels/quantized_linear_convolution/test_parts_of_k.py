"""K cut over workgroups, and over subgroups: any number of parts, and calls that share the memory of their sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dmlvk
from dmlvk import QuantizedLinearConvolutionDesc, TensorDesc
from tests.amount import THOROUGH
from tests.kernels.quantized_linear_convolution.arrays import PLAIN, describe, quantized
from tests.kernels.quantized_linear_convolution.paths import paths_of

CHANNELS, FILTERS, SIZE = 144, 40, 5
# Of `split_k`, a tile that a driver for a CPU compiles in a second; GPUs take their own, for which "" stands.
SMALL_TILE = ":8x8x16:3"


def case(seed: int, channels: int = CHANNELS) -> tuple[QuantizedLinearConvolutionDesc, dict[str, np.ndarray]]:
    """A layer of eleven steps of 128 bytes of K, or fewer, whose sums of every second channel do not fit 32 bits."""
    generator = np.random.default_rng(seed)
    bias = generator.integers(-(2**15), 2**15, FILTERS).astype(np.int32)
    bias[::2] = 2**31 - 1
    scales = np.where(np.arange(FILTERS) % 2, 2.0**13, 1.0).astype(np.float32)
    arrays = quantized(
        generator.integers(0, 256, (1, channels, SIZE, SIZE)).astype(np.uint8),
        generator.integers(-128, 128, (FILTERS, channels, 3, 3)).astype(np.int8),
        input_zero_point_tensor=np.array([13], np.uint8),
        filter_zero_point_tensor=generator.integers(-9, 9, FILTERS).astype(np.int8),
        filter_scale_tensor=scales.reshape(1, FILTERS, 1, 1),
        bias_tensor=bias.reshape(1, FILTERS, 1, 1),
        output_scale_tensor=np.array([2.0**25], np.float32),
    )
    attributes = {**PLAIN, "start_padding": (1, 1), "end_padding": (1, 1)}
    return describe(arrays, np.uint8, attributes), arrays


def paths_that_cut_k(device: dmlvk.Device) -> list[str]:
    """Those that the device has. On a CPU driver with matrices, `split_k` has a small tile too."""
    found: list[str] = [path for path in ("vectors", "split_k") if path in paths_of(device)]
    assert "vectors" in found
    if "split_k" in found and device.profile.device_type is dmlvk.DeviceType.CPU:
        found.append(f"split_k{SMALL_TILE}")
    return found


@pytest.mark.parametrize("parts", [4, 11, *(pytest.param(parts, marks=pytest.mark.nightly) for parts in (2, 3, 16))])
def test_a_call_leaves_nothing_to_the_next(device: dmlvk.Device, parts: int) -> None:
    for path in paths_that_cut_k(device):
        desc, arrays = case(parts)
        operator = device.compile(desc, path=f"{path}/{parts}")
        output = device.tensor(desc.output_tensor)
        tensors = {name: device.tensor(array) for name, array in arrays.items()}
        for turn in range(3):
            arrays["input_tensor"] = np.roll(arrays["input_tensor"], turn)
            tensors["input_tensor"].write(arrays["input_tensor"])
            output.write(np.full(desc.output_tensor.sizes, 0xA5, np.uint8))
            operator(output_tensor=output, **tensors).wait()
            expected = dmlvk.reference.run(desc, **arrays)
            assert len(np.unique(expected)) > 20
            np.testing.assert_array_equal(output.numpy(), expected, err_msg=path)


@pytest.mark.every_driver
def test_every_number_of_parts(device: dmlvk.Device) -> None:
    """On `split_k`, whose parts share a pipeline: uneven ones, parts of one step, and parts of nothing.

    Of 36 channels side by side, each tap is two vectors and a word; so K ends in any of a subgroup's steps.
    """
    desc, arrays = case(1, channels=36)
    last = TensorDesc(desc.input_tensor.data_type, desc.input_tensor.sizes, (36 * 25, 1, 36 * 5, 36))
    desc = replace(desc, input_tensor=last)
    expected = dmlvk.reference.run(desc, **arrays)
    tensors = {name: device.tensor(desc.tensors[name]) for name in arrays}
    for name, array in arrays.items():
        tensors[name].write(array)
    output = device.tensor(desc.output_tensor)
    for path in paths_that_cut_k(device):
        for parts in range(1, 33) if path.startswith("split_k") else (1, 5, 32) if THOROUGH else (5,):
            output.write(np.full(desc.output_tensor.sizes, 0xA5, np.uint8))
            device.compile(desc, path=f"{path}/{parts}")(output_tensor=output, **tensors).wait()
            np.testing.assert_array_equal(output.numpy(), expected, err_msg=f"{path}/{parts}")


def test_calls_in_flight_do_not_share_their_sums(device: dmlvk.Device) -> None:
    for path in paths_that_cut_k(device):
        given, waiting = [], []
        desc, _ = case(0)
        operator = device.compile(desc, path=f"{path}/4")
        for seed in range(4):
            _, arrays = case(seed)
            tensors = {name: device.tensor(array) for name, array in arrays.items()}
            output = device.tensor(desc.output_tensor)
            given.append((arrays, output))
            waiting += [operator(output_tensor=output, **tensors) for _ in range(2)]
        for submission in waiting:
            submission.wait()
        for arrays, output in given:
            np.testing.assert_array_equal(output.numpy(), dmlvk.reference.run(desc, **arrays), err_msg=path)


def test_sequences_in_flight_do_not_share_their_sums(device: dmlvk.Device) -> None:
    """Each of two sequences runs two layers, one after the other, and both are submitted again while the first runs."""
    for path in paths_that_cut_k(device):
        desc, _ = case(0)
        operator = device.compile(desc, path=f"{path}/3")
        sequences, given = [], []
        for number in range(2):
            bindings = []
            for seed in (2 * number, 2 * number + 1):
                _, arrays = case(seed)
                tensors = {name: device.tensor(array) for name, array in arrays.items()}
                output = device.tensor(desc.output_tensor)
                bindings.append(operator.bind(output_tensor=output, **tensors))
                given.append((arrays, output))
            sequences.append(device.sequence(bindings))
        submissions = [sequence.submit() for _ in range(3) for sequence in sequences]
        for submission in submissions:
            submission.wait()
        for arrays, output in given:
            np.testing.assert_array_equal(output.numpy(), dmlvk.reference.run(desc, **arrays), err_msg=path)
