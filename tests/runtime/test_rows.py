"""Tensors whose rows lie between each other's: what is said to be apart is compared with the tensors' bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, TensorDesc
from dmlvk.runtime.command_writer import Hazards
from dmlvk.runtime.rows import WORD, are_apart, rows_of
from tests.amount import examples
from tests.vulkan.variants import copy_desc


def words(desc: TensorDesc, start: int) -> set[int]:
    """The words in which a tensor has a byte."""
    places = np.zeros((), np.int64)
    for size, stride in zip(desc.sizes, desc.element_strides, strict=True):
        places = places[..., None] + np.arange(size) * stride
    item = desc.data_type.size_in_bytes
    first = start + places.reshape(-1, 1) * item
    return {int(word) for word in np.unique((first + np.arange(item)) // WORD)}


@st.composite
def tensors(draw: st.DrawFn) -> TensorDesc:
    """A tensor of up to four dimensions, whose strides are mostly those of rows with gaps."""
    data_type = draw(st.sampled_from([DataType.UINT8, DataType.FLOAT32]))
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    strides = [draw(st.sampled_from([1, 4, 8, 16, 32, 48, 64, 96, 0, 3])) for _ in sizes]
    return TensorDesc(data_type, sizes, strides)


@given(tensors(), tensors(), st.integers(0, 12), st.integers(0, 12))
@examples(40)
def test_what_is_apart_shares_no_word(first: TensorDesc, second: TensorDesc, start: int, other: int) -> None:
    start, other = start * WORD, other * WORD
    if are_apart(start, rows_of(first), other, rows_of(second)):
        assert words(first, start).isdisjoint(words(second, other))


def test_parts_of_channels_are_apart(device: dmlvk.Device) -> None:
    """Channels of 32, 16 and 16 bytes that lie last: nothing waits for a part but who reads or writes it."""
    whole = (2, 64, 3, 5)
    strides = (64 * 15, 1, 64 * 5, 64)

    def part(channels: int) -> TensorDesc:
        return TensorDesc("uint8", (2, channels, 3, 5), strides)

    buffer = device.buffer(TensorDesc("uint8", whole, strides).total_size_in_bytes)
    operators = {n: device.compile(copy_desc(TensorDesc("uint8", part(n).sizes), part(n))) for n in (32, 16)}
    given = {n: device.tensor(np.full((2, n, 3, 5), n, np.uint8)) for n in (32, 16)}
    bindings = [
        operators[n].bind(input_tensor=given[n], output_tensor=buffer.tensor(part(n), at))
        for n, at in ((32, 0), (16, 32), (16, 48), (16, 16))
    ]
    hazards = Hazards()
    assert [hazards.add(binding) for binding in bindings] == [False, False, False, True]
    device.submit(bindings).wait()
    found = buffer.tensor(TensorDesc("uint8", whole, strides)).numpy()
    assert np.array_equal(np.unique(found[:, :16]), [32])
    assert np.array_equal(np.unique(found[:, 16:]), [16])
