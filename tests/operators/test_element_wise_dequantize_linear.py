"""The rules of ELEMENT_WISE_DEQUANTIZE_LINEAR."""

from __future__ import annotations

from typing import Any

import pytest

from dmlvk import DescriptorError, TensorDesc
from dmlvk.operators import ElementWiseDequantizeLinearDesc

SIZES = (2, 3, 4, 5)
ONE = (1, 1, 1, 1)
BYTES = TensorDesc("int8", SIZES)


def dequantize(**fields: Any) -> ElementWiseDequantizeLinearDesc:
    return ElementWiseDequantizeLinearDesc(
        **{"input_tensor": BYTES, "scale_tensor": TensorDesc("float32", ONE), **fields}
    )


def test_the_output_is_float32() -> None:
    assert dequantize().output_tensor == TensorDesc("float32", SIZES)


@pytest.mark.parametrize("sizes", [ONE, SIZES])
def test_a_scale_has_one_element_or_the_input_s_sizes(sizes: tuple[int, ...]) -> None:
    scale, zero_point = TensorDesc("float32", sizes), TensorDesc("int8", sizes)
    assert dequantize(scale_tensor=scale, zero_point_tensor=zero_point).zero_point_tensor == zero_point


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"input_tensor": TensorDesc("int32", SIZES)}, "input_tensor.data_type"),
        ({"scale_tensor": TensorDesc("float32", (2, 3, 4, 1))}, "scale_tensor.sizes"),
        ({"zero_point_tensor": TensorDesc("uint8", ONE)}, "zero_point_tensor.data_type"),
        ({"output_tensor": TensorDesc("float16", SIZES)}, "output_tensor.data_type"),
    ],
)
def test_what_breaks_a_rule_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(DescriptorError) as raised:
        dequantize(**fields)
    assert f"ElementWiseDequantizeLinearDesc.{field} = " in str(raised.value)


def test_feature_levels() -> None:
    assert dequantize().minimum_feature_level == 0x6200
    assert dequantize(zero_point_tensor=TensorDesc("int8", ONE)).minimum_feature_level == 0x2100
    flat = {"input_tensor": TensorDesc("uint8", (4,)), "scale_tensor": TensorDesc("float32", (1,))}
    assert dequantize(**flat, zero_point_tensor=TensorDesc("uint8", (1,))).minimum_feature_level == 0x3000
