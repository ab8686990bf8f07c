"""BYTE_RESAMPLE on devices, against its reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, TensorDesc
from dmlvk.conformance.cases.byte_resample import COORDINATES, RESULTS, coordinates_of, thresholds_of
from dmlvk.operators import ByteResampleDesc
from dmlvk.operators.byte_softmax import limits_of
from tests.amount import examples
from tests.kernels.element_wise import check_against_reference, owned
from tests.layouts import input_strides, output_strides
from tests.layouts import sizes as sizes_of_rank

SEEDS = st.integers(0, 1 << 20)
TYPES = (DataType.UINT8, DataType.INT8)


@st.composite
def descriptors(draw: st.DrawFn) -> ByteResampleDesc:
    sizes = draw(sizes_of_rank(4, 2000))
    length = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    given_type, output_type = draw(st.sampled_from(TYPES)), draw(st.sampled_from(TYPES))
    output = (*sizes[:2], *length)
    channels_last = draw(st.booleans())

    def strides(of: tuple[int, ...], any_: Any) -> Any:
        _, c, h, w = of
        return (h * w * c, 1, w * c, c) if channels_last else draw(any_(of))

    return ByteResampleDesc(
        input_tensor=TensorDesc(given_type, sizes, strides(sizes, input_strides)),
        coordinate_tensor=TensorDesc(
            DataType.FLOAT32, (sum(length),), draw(input_strides((sum(length),))), flags=draw(owned())
        ),
        threshold_tensor=TensorDesc(DataType.FLOAT32, (255,), draw(input_strides((255,))), flags=draw(owned())),
        output_tensor=TensorDesc(output_type, output, strides(output, output_strides)),
        input_scale=draw(st.sampled_from([1.0, 0.0437, 2.0**-40, 2.0**40])),
        input_zero_point=draw(st.integers(*limits_of(given_type))),
    )


def memory_of(desc: ByteResampleDesc, seed: int) -> dict[str, np.ndarray]:
    """Random bytes, coordinates and thresholds of some kind."""
    random = np.random.default_rng(seed)
    rows, columns = desc.output_tensor.sizes[2:]
    pairs = zip(desc.input_tensor.sizes[2:], (rows, columns), strict=True)
    coordinates = np.concatenate([coordinates_of(COORDINATES[seed % 4], *pair, random) for pair in pairs])
    scale = float(np.frombuffer(desc.input_scale_bytes, np.float32)[0])
    thresholds = thresholds_of(RESULTS[seed // 4 % len(RESULTS)], scale, random)
    memory = {"input_tensor": random.integers(0, 256, desc.input_tensor.total_size_in_bytes, np.uint8)}
    for field, array in (("coordinate_tensor", coordinates), ("threshold_tensor", thresholds)):
        tensor = desc.tensors[field]
        found = random.integers(0, 1 << 32, tensor.total_size_in_bytes // 4, np.uint32).view(np.float32)
        for k, element in enumerate(array):
            found[k * tensor.element_strides[0]] = element
        memory[field] = found.view(np.uint8)
    return memory


@given(descriptors(), SEEDS)
@examples(0.4)
def test_any_layout(device: dmlvk.Device, desc: ByteResampleDesc, seed: int) -> None:
    check_against_reference(device, desc, memory_of(desc, seed), seed=seed)


@given(descriptors(), SEEDS)
@examples(0.3)
def test_any_layout_in_integers(device: dmlvk.Device, desc: ByteResampleDesc, seed: int) -> None:
    check_against_reference(device, desc, memory_of(desc, seed), seed=seed, path="integers")


@pytest.mark.half_by_day
@pytest.mark.parametrize("sizes", [(1, 2, 130, 171), (1, 9, 3, 1400), (3, 40, 9, 8)], ids=str)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "far"])
def test_planes_that_no_window_shows_whole(
    tight_device: dmlvk.Device, sizes: tuple[int, int, int, int], layout: str
) -> None:
    """Their parts, and elements that are brought together since they lie far from each other."""
    n, c, h, w = sizes
    output = (n, c, 21, 50)
    strides = {"NCHW": None, "NHWC": (h * w * c, 1, w * c, c), "far": (1, n, n * c, n * c * h)}[layout]
    desc = ByteResampleDesc(
        input_tensor=TensorDesc(DataType.INT8, sizes, strides),
        coordinate_tensor=TensorDesc(DataType.FLOAT32, (71,)),
        threshold_tensor=TensorDesc(DataType.FLOAT32, (255,)),
        output_tensor=TensorDesc(DataType.UINT8, output, None if layout == "NCHW" else (c * 1050, 1, 50 * c, c)),
        input_scale=0.0437,
        input_zero_point=3,
    )
    check_against_reference(tight_device, desc, memory_of(desc, 4), seed=1)
