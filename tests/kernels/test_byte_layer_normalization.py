"""BYTE_LAYER_NORMALIZATION on devices, against its reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlvk
from dmlvk import DataType, TensorDesc
from dmlvk.conformance.cases.byte_layer_normalization import NUMBERS, PARAMETERS, bytes_of, parameters_of
from dmlvk.operators import ByteLayerNormalizationDesc
from dmlvk.operators.byte_layer_normalization import RANGES
from dmlvk.operators.byte_softmax import limits_of
from tests.amount import examples
from tests.kernels.element_wise import check_against_reference, owned
from tests.layouts import input_strides, output_strides, view

SEEDS = st.integers(0, 1 << 20)


@st.composite
def descriptors(draw: st.DrawFn) -> ByteLayerNormalizationDesc:
    length = 8 * draw(st.integers(1, 30))
    sizes = draw(st.integers(1, 40)), length
    data_type = draw(st.sampled_from([DataType.UINT8, DataType.INT8]))

    def parameter() -> TensorDesc:
        return TensorDesc(DataType.FLOAT32, (length,), draw(input_strides((length,))), flags=draw(owned()))

    def number(name: str) -> float:
        most = RANGES[name]
        return draw(st.sampled_from([0.0371, 1e-5, 2.0**-most, 2.0**most]) | st.floats(2.0**-most, 2.0**most, width=32))

    return ByteLayerNormalizationDesc(
        input_tensor=TensorDesc(data_type, sizes, draw(input_strides(sizes))),
        scale_tensor=parameter(),
        bias_tensor=parameter(),
        output_tensor=TensorDesc(data_type, sizes, draw(output_strides(sizes))),
        epsilon=number("epsilon"),
        input_scale=number("input_scale"),
        input_zero_point=draw(st.integers(*limits_of(data_type))),
        output_scale=number("output_scale"),
        output_zero_point=draw(st.integers(*limits_of(data_type))),
    )


def memory_of(desc: ByteLayerNormalizationDesc, seed: int) -> dict[str, np.ndarray]:
    """Bytes, scales and biases of some kinds."""
    random = np.random.default_rng(seed)
    source = desc.input_tensor
    elements = bytes_of(NUMBERS[seed % 3], source.sizes, source.data_type, random)
    arrays = {
        "input_tensor": elements,
        **parameters_of((*PARAMETERS, "last_bits")[seed // 3 % 4], desc, elements, random),
    }
    memory = {}
    for field, array in arrays.items():
        tensor = desc.tensors[field]
        memory[field] = random.integers(0, 256, tensor.total_size_in_bytes, np.uint8)
        view(memory[field], tensor)[...] = array.view(f"u{array.itemsize}")
    return memory


@given(descriptors(), SEEDS)
@examples(0.4)
def test_any_layout(device: dmlvk.Device, desc: ByteLayerNormalizationDesc, seed: int) -> None:
    check_against_reference(device, desc, memory_of(desc, seed), seed=seed)


@pytest.mark.parametrize("strides", [None, (1, 6), (2005, 1)], ids=["packed", "far", "rows"])
def test_rows_that_no_window_shows(tight_device: dmlvk.Device, strides: tuple[int, ...] | None) -> None:
    """They are brought together, and what they become goes apart."""
    sizes = (6, 800)
    desc = ByteLayerNormalizationDesc(
        input_tensor=TensorDesc(DataType.INT8, sizes, strides),
        scale_tensor=TensorDesc(DataType.FLOAT32, sizes[1:]),
        bias_tensor=TensorDesc(DataType.FLOAT32, sizes[1:]),
        output_tensor=TensorDesc(DataType.INT8, sizes, strides),
        epsilon=1e-5,
        input_scale=0.0371,
        input_zero_point=9,
        output_scale=0.0213,
        output_zero_point=-3,
    )
    check_against_reference(tight_device, desc, memory_of(desc, 0), seed=1)
