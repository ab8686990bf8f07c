"""MAX_POOLING2 on devices, against its reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, TensorDesc
from dmlvk.operators import MaxPooling2Desc
from dmlvk.operators.max_pooling2 import INTEGER_DATA_TYPES
from dmlvk.reference.max_pooling2 import indices
from dmlvk.reference.max_pooling2 import run as reference
from tests.amount import examples
from tests.kernels.pooling import layouts, run, spatial_fields, tensor_sizes
from tests.layouts import random_bytes, view


@st.composite
def descriptors(draw: st.DrawFn) -> MaxPooling2Desc:
    sizes, data_type = draw(tensor_sizes()), draw(st.sampled_from(INTEGER_DATA_TYPES))
    fields: dict[str, Any] = draw(spatial_fields(sizes[2:]))
    source = TensorDesc(data_type, sizes, draw(layouts(tuple(sizes), is_output=False)))
    pooled = MaxPooling2Desc(input_tensor=source, **fields).output_tensor.sizes
    return MaxPooling2Desc(
        input_tensor=source,
        output_tensor=TensorDesc(data_type, pooled, draw(layouts(pooled, is_output=True))),
        output_indices_tensor=draw(
            st.none() | layouts(pooled, is_output=True).map(lambda s: TensorDesc(DataType.UINT32, pooled, s))
        ),
        **fields,
    )


def check(device: dmlvk.Device, desc: MaxPooling2Desc, blocks: int, seed: int, path: str | None = None) -> None:
    memory = random_bytes(seed, desc.input_tensor.total_size_in_bytes)
    if seed % 2:  # few values: equal ones, and the least one of signed and of unsigned types
        memory = np.random.default_rng(seed).choice(np.array([0, 127, 128, 255], np.uint8), memory.size)
    elements = view(memory, desc.input_tensor).view(desc.input_tensor.data_type.numpy_dtype)
    expected = {"output_tensor": reference(desc, input_tensor=elements)}
    if desc.output_indices_tensor is not None:
        expected["output_indices_tensor"] = indices(desc, input_tensor=elements)
    run(device, desc, {"input_tensor": memory}, expected, offset=16 * blocks, seed=seed, path=path)


@given(descriptors(), st.integers(0, 20), st.integers(0, 1 << 20))
@examples(0.3)
def test_any_windows_of_any_layout(device: dmlvk.Device, desc: MaxPooling2Desc, blocks: int, seed: int) -> None:
    check(device, desc, blocks, seed)


@given(descriptors(), st.integers(0, 20), st.integers(0, 1 << 20))
@examples(0.12)
def test_elements(device: dmlvk.Device, desc: MaxPooling2Desc, blocks: int, seed: int) -> None:
    check(device, desc, blocks, seed, "elements")


@pytest.mark.every_driver
@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("data_type", [DataType.INT8, DataType.UINT8, DataType.INT16, DataType.UINT32])
def test_usual_windows(device: dmlvk.Device, data_type: DataType, is_last: bool) -> None:
    """Vectors of channels and words of rows."""
    for channels, window, stride, padding in ((48, 2, 2, 0), (16, 3, 2, 1), (4, 3, 1, 1), (8, 7, 3, 3)):
        sizes = (2, channels, 16, 24)

        def layout(extents: tuple[int, ...]) -> tuple[int, ...] | None:
            return (extents[1] * extents[2] * extents[3], 1, extents[1] * extents[3], extents[1]) if is_last else None

        fields: dict[str, Any] = {
            name: [value] * 2 for name, value in (("window_size", window), ("strides", stride), ("dilations", 1))
        }
        fields |= {"start_padding": [padding] * 2, "end_padding": [padding] * 2}
        pooled = MaxPooling2Desc(input_tensor=TensorDesc(data_type, sizes), **fields).output_tensor.sizes
        desc = MaxPooling2Desc(
            input_tensor=TensorDesc(data_type, sizes, layout(sizes)),
            output_tensor=TensorDesc(data_type, pooled, layout(pooled)),
            **fields,
        )
        expected = "vectors" if is_last else "rows" if data_type.size_in_bytes < 4 else "elements"
        assert [dispatch.kernel for dispatch in device.plan(desc).dispatches] == [f"max_pooling2/{expected}"]
        check(device, desc, 1, window)


@pytest.mark.every_driver
@pytest.mark.parametrize("is_last", [False, True])
def test_steps_past_what_a_kernel_counts(device: dmlvk.Device, is_last: bool) -> None:
    """A stride of a single output, and a dilation of a single tap."""
    largest, sizes = (1 << 32) - 1, (1, 4, 5, 8)
    source = TensorDesc(DataType.INT8, sizes, (160, 1, 32, 4) if is_last else None)
    for strides, window, dilations in (([largest, 2], [2, 2], [1, 1]), ([2, 2], [1, 2], [largest, 1])):
        desc = MaxPooling2Desc(
            input_tensor=source,
            strides=strides,
            window_size=window,
            start_padding=[0, 1],
            end_padding=[0, 1],
            dilations=dilations,
        )
        check(device, desc, 1, 3)


@given(descriptors(), st.integers(0, 20), st.integers(0, 1 << 20))
@examples(0.12)
def test_windows_across_cuts_in_memory(
    tight_device: dmlvk.Device, desc: MaxPooling2Desc, blocks: int, seed: int
) -> None:
    check(tight_device, desc, blocks, seed)


@pytest.mark.half_by_day
@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("data_type", [DataType.INT8, DataType.UINT64])
def test_taps_that_no_window_shows_together(tight_device: dmlvk.Device, data_type: DataType, is_last: bool) -> None:
    sizes = (1, 8, 61, 50)
    strides = (8 * 61 * 50, 1, 8 * 50, 8) if is_last else None
    fields: dict[str, Any] = {"strides": [7, 9], "window_size": [9, 5], "start_padding": [1, 0], "end_padding": [3, 2]}
    source, dilations = TensorDesc(data_type, sizes, strides), [2, 1 if is_last else 3]
    plain = MaxPooling2Desc(input_tensor=source, **fields, dilations=dilations)
    indices = TensorDesc(DataType.UINT32, plain.output_tensor.sizes)
    check(tight_device, plain, 2, 7)
    desc = MaxPooling2Desc(input_tensor=source, output_indices_tensor=indices, **fields, dilations=dilations)
    check(tight_device, desc, 2, 7)
