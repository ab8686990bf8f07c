"""Tensors past 4 GiB: `make test-large`, on a device with 16 GiB of memory and a host with 32."""

from __future__ import annotations

import numpy as np

import dmlvk
from dmlvk import DataType, Slice1Desc, TensorDesc
from tests.layouts import view


def test_a_window_past_4_gib_of_a_12_gib_tensor(device: dmlvk.Device) -> None:
    """The last two of four rows 3 GiB apart: every second element, backwards. The window starts at an odd byte.

    A tensor has at most 2^32 - 1 elements, so 12 GiB of bytes need gaps between the rows.
    """
    row = 715_827_877
    desc = Slice1Desc(
        input_tensor=TensorDesc(DataType.INT8, [4, row], [3 << 30, 1], total_size_in_bytes=12 << 30),
        output_tensor=TensorDesc(DataType.INT8, [2, 1 + (row - 8) // 2]),
        input_window_offsets=[2, 5],
        input_window_sizes=[2, row - 7],
        input_window_strides=[1, -2],
    )
    source = np.empty(12 << 30, np.uint8)
    pattern = np.frombuffer(np.random.default_rng(1).bytes(61_000_007), np.uint8)
    for start in range(0, source.size, pattern.size):
        source[start : start + pattern.size] = pattern[: source.size - start]

    tensor = device.tensor(desc.input_tensor)
    tensor.write_bytes(source)
    output = device.tensor(desc.output_tensor)
    output.write_bytes(np.full(desc.output_tensor.total_size_in_bytes, 0xA5, np.uint8))
    device.compile(desc)(input_tensor=tensor, output_tensor=output).wait()

    expected = view(source, desc.input_tensor)[2:, 5 : row - 2][:, ::-2]
    assert np.array_equal(output.numpy().view(np.uint8), expected)
