"""ACTIVATION_RELU on devices, against its reference."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import TensorDesc
from dmlvk.operators import ActivationReluDesc
from tests.amount import examples
from tests.kernels.element_wise import check_against_reference, inputs, outputs, shapes
from tests.kernels.test_element_wise_add import FLOAT32, SEEDS, memory_of


@st.composite
def activations(draw: st.DrawFn) -> ActivationReluDesc:
    extents = draw(shapes())
    return ActivationReluDesc(
        input_tensor=draw(inputs(FLOAT32, extents)), output_tensor=draw(outputs(FLOAT32, extents))
    )


@given(activations(), SEEDS)
@examples(0.2)
def test_any_layout(device: dmlvk.Device, desc: ActivationReluDesc, seed: int) -> None:
    check_against_reference(device, desc, memory_of(desc, seed), seed=seed)


def test_a_tensor_that_no_window_shows_whole(tight_device: dmlvk.Device) -> None:
    desc = ActivationReluDesc(input_tensor=TensorDesc(FLOAT32, (3, 61, 997)))
    check_against_reference(tight_device, desc, memory_of(desc, 2))
