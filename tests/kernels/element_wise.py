"""Layouts and data for tests of element-wise kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, TensorDesc, TensorFlags
from dmlvk.operators import ElementWiseDequantizeLinearDesc, ElementWiseQuantizeLinearDesc, OperatorDesc
from dmlvk.reference import run
from tests.kernels.harness import check
from tests.layouts import input_strides, output_strides, sizes, view
from tests.reference.quantized import floats_near, random_scales


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, ...]:
    """Sizes of any rank: small, or rows of whole units."""
    if draw(st.booleans()):
        return draw(st.integers(1, 8).flatmap(lambda rank: sizes(rank, 4000)))
    return (draw(st.integers(1, 5)), draw(st.sampled_from([3, 16, 49])), 16 * draw(st.integers(1, 9)))


@st.composite
def inputs(draw: st.DrawFn, data_type: dmlvk.DataType, extents: tuple[int, ...]) -> TensorDesc:
    """A tensor that steps along: packed, broadcast along any of the dimensions, or in any layout."""
    kind = draw(st.sampled_from(["packed", "broadcast", "any"]))
    strides = draw(input_strides(extents)) if kind == "any" else None
    if kind == "broadcast":
        kept = [size if draw(st.booleans()) else 1 for size in extents]
        strides = tuple(
            0 if size == 1 else stride
            for size, stride in zip(kept, TensorDesc(data_type, kept).element_strides, strict=True)
        )
    return TensorDesc(data_type, extents, strides, flags=draw(owned()))


@st.composite
def outputs(draw: st.DrawFn, data_type: dmlvk.DataType, extents: tuple[int, ...]) -> TensorDesc:
    return TensorDesc(data_type, extents, draw(output_strides(extents)))


def owned() -> st.SearchStrategy[TensorFlags]:
    return st.sampled_from([TensorFlags.NONE, TensorFlags.NONE, TensorFlags.OWNED_BY_DML])


def memory_of(desc: OperatorDesc, seed: int, kind: int) -> dict[str, np.ndarray]:
    """The memory of each input: any bytes, scales of a kind (`random_scales`), and floats near their multiples."""
    random = np.random.default_rng(seed)
    scales = random_scales(random, kind)
    memory = {}
    for field, tensor in desc.tensors.items():
        if field not in desc.input_fields:
            continue
        size = tensor.total_size_in_bytes
        if tensor.data_type.size_in_bytes == 1:
            memory[field] = random.integers(0, 256, size, np.uint8)
        elif "scale" in field:
            memory[field] = random.choice(scales, size // 4).view(np.uint8)
        else:
            memory[field] = floats_near(random, random.choice(scales, size // 4), (size // 4,)).view(np.uint8)
    return memory


def elements(desc: OperatorDesc, memory: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs' elements, as the reference takes them."""
    return {
        field: np.ascontiguousarray(view(bytes_, desc.tensors[field])).view(desc.tensors[field].data_type.numpy_dtype)
        for field, bytes_ in memory.items()
    }


def check_against_reference(
    device: dmlvk.Device,
    desc: OperatorDesc,
    memory: Mapping[str, np.ndarray],
    *,
    seed: int = 0,
    path: str | None = None,
) -> None:
    expected = np.ascontiguousarray(run(desc, **elements(desc, memory)))
    check(device, desc, expected, memory, offset=16 * (seed % 5), seed=seed, path=path)


def both(sizes: tuple[int, ...], parameters: TensorDesc, data_type: DataType) -> list[OperatorDesc]:
    """To quantize and to dequantize, with scales and zero points in a layout."""
    zero_point = TensorDesc(data_type, parameters.sizes, parameters.strides)
    floats, integers = TensorDesc(DataType.FLOAT32, sizes), TensorDesc(data_type, sizes)
    more: dict[str, Any] = {"scale_tensor": parameters, "zero_point_tensor": zero_point}
    return [
        ElementWiseQuantizeLinearDesc(input_tensor=floats, output_tensor=integers, **more),
        ElementWiseDequantizeLinearDesc(input_tensor=integers, output_tensor=floats, **more),
    ]


@pytest.fixture(scope="session")
def narrow_device(device: dmlvk.Device) -> Iterator[dmlvk.Device]:
    """The same device with storage buffers of 128 KiB, segments of 256 KiB and four storage buffers in a stage."""
    limits = replace(
        device.profile.limits,
        max_storage_buffer_range=1 << 17,
        max_per_stage_descriptor_storage_buffers=4,
        max_memory_allocation_size=1 << 18,
        max_buffer_size=1 << 18,
    )
    with dmlvk.Device(device.name, profile=replace(device.profile, limits=limits)) as narrow:
        yield narrow
