"""ELEMENT_WISE_QUANTIZE_LINEAR and ELEMENT_WISE_DEQUANTIZE_LINEAR on devices, against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, TensorDesc
from dmlvk.operators import ElementWiseDequantizeLinearDesc, ElementWiseQuantizeLinearDesc, OperatorDesc
from tests.amount import examples
from tests.kernels.element_wise import both, check_against_reference, inputs, memory_of, outputs, owned, shapes

TYPES = (DataType.UINT8, DataType.INT8)
SEEDS = st.integers(0, 1 << 20)
KINDS = st.integers(0, 3)


@st.composite
def descriptors(draw: st.DrawFn) -> OperatorDesc:
    """Either of the two; the scale and the zero point are one element, or step along in any layout."""
    extents, quantized = draw(shapes()), draw(st.sampled_from(TYPES))
    quantizes = draw(st.booleans())
    source, target = (DataType.FLOAT32, quantized) if quantizes else (quantized, DataType.FLOAT32)

    def parameter(data_type: DataType) -> TensorDesc:
        if draw(st.booleans()):
            return TensorDesc(data_type, (1,) * len(extents), flags=draw(owned()))
        return draw(inputs(data_type, extents))

    tensors: dict[str, Any] = {
        "input_tensor": draw(inputs(source, extents)),
        "scale_tensor": parameter(DataType.FLOAT32),
    }
    if draw(st.booleans()):
        tensors["zero_point_tensor"] = parameter(quantized)
    operator = ElementWiseQuantizeLinearDesc if quantizes else ElementWiseDequantizeLinearDesc
    return operator(**tensors, output_tensor=draw(outputs(target, extents)))


@given(descriptors(), KINDS, SEEDS)
@examples(0.5)
def test_any_layout(device: dmlvk.Device, desc: OperatorDesc, kind: int, seed: int) -> None:
    check_against_reference(device, desc, memory_of(desc, seed, kind), seed=seed)


@given(descriptors(), KINDS, SEEDS)
@examples(0.2)
def test_tensors_that_are_cut(tight_device: dmlvk.Device, desc: OperatorDesc, kind: int, seed: int) -> None:
    check_against_reference(tight_device, desc, memory_of(desc, seed, kind), seed=seed)


@pytest.mark.parametrize("data_type", TYPES)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_scale_for_each_channel(device: dmlvk.Device, layout: str, data_type: DataType) -> None:
    sizes, strides = ((2, 24, 7, 7), (0, 1, 0, 0)) if layout == "NCHW" else ((2, 7, 7, 24), (0, 0, 0, 1))
    for desc in both(sizes, TensorDesc(DataType.FLOAT32, sizes, strides), data_type):
        for kind in range(4):
            check_against_reference(device, desc, memory_of(desc, kind, kind), seed=kind)


@pytest.mark.every_driver
@pytest.mark.parametrize("data_type", TYPES)
def test_floats_at_every_threshold(device: dmlvk.Device, data_type: DataType) -> None:
    """The middle of each two neighbouring integers, and what lies next to it, for scales of every kind."""
    random = np.random.default_rng(7)
    sizes = (12, 3, 512)
    scale = np.exp2(random.uniform(-140, 120, 12)).astype(np.float32)
    scale[:4] = np.exp2(random.uniform(-6, 6, 4))
    middle = (np.arange(512, dtype=np.float32) - 255.5) * scale[:, np.newaxis]
    x = np.stack([np.nextafter(middle, -np.float32(np.inf)), middle, np.nextafter(middle, np.float32(np.inf))], 1)
    desc, _ = both(sizes, TensorDesc(DataType.FLOAT32, sizes, (1, 0, 0)), data_type)
    memory = {
        "input_tensor": np.ascontiguousarray(x, np.float32).view(np.uint8).ravel(),
        "scale_tensor": scale.view(np.uint8),
    }
    check_against_reference(device, desc, memory_of(desc, 1, 0) | memory)
