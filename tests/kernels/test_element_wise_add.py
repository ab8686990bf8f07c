"""ELEMENT_WISE_ADD on devices, against its reference."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, TensorDesc
from dmlvk.operators import ElementWiseAddDesc, OperatorDesc
from tests.amount import examples
from tests.kernels.element_wise import check_against_reference, inputs, outputs, shapes

FLOAT32 = DataType.FLOAT32
SEEDS = st.integers(0, 1 << 20)


@st.composite
def sums(draw: st.DrawFn) -> ElementWiseAddDesc:
    extents = draw(shapes())
    return ElementWiseAddDesc(
        a_tensor=draw(inputs(FLOAT32, extents)),
        b_tensor=draw(inputs(FLOAT32, extents)),
        output_tensor=draw(outputs(FLOAT32, extents)),
    )


def memory_of(desc: OperatorDesc, seed: int) -> dict[str, np.ndarray]:
    """Numbers of sizes near each other, any bits, or numbers whose sums are denormal."""
    random = np.random.default_rng(seed)
    memory = {}
    for field in desc.input_fields:
        bits = random.integers(0, 1 << 32, desc.tensors[field].total_size_in_bytes // 4, np.uint32)
        near = bits & 0x80FFFFFF | random.integers(60, 68, bits.size, np.uint32) << 24
        memory[field] = (near, near, bits, bits & 0x80FFFFFF)[seed % 4].view(np.uint8)
    return memory


@given(sums(), SEEDS)
@examples(0.4)
def test_any_sum(device: dmlvk.Device, desc: ElementWiseAddDesc, seed: int) -> None:
    check_against_reference(device, desc, memory_of(desc, seed), seed=seed)


@given(sums(), SEEDS)
@examples(0.2)
def test_any_sum_in_integers(device: dmlvk.Device, desc: ElementWiseAddDesc, seed: int) -> None:
    check_against_reference(device, desc, memory_of(desc, seed), seed=seed, path="integers")


def test_tensors_that_no_window_shows_whole(tight_device: dmlvk.Device) -> None:
    tensor = TensorDesc(FLOAT32, (3, 61, 997))
    desc = ElementWiseAddDesc(a_tensor=tensor, b_tensor=tensor)
    check_against_reference(tight_device, desc, memory_of(desc, 2))
