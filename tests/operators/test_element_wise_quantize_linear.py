"""The rules of ELEMENT_WISE_QUANTIZE_LINEAR."""

from __future__ import annotations

from typing import Any

import pytest

from dmlvk import DescriptorError, TensorDesc
from dmlvk.operators import ElementWiseQuantizeLinearDesc

SIZES = (2, 3, 4, 5)
ONE = (1, 1, 1, 1)
FLOATS, BYTES = TensorDesc("float32", SIZES), TensorDesc("int8", SIZES)


def quantize(**fields: Any) -> ElementWiseQuantizeLinearDesc:
    return ElementWiseQuantizeLinearDesc(
        **{"input_tensor": FLOATS, "scale_tensor": TensorDesc("float32", ONE), **fields}
    )


def test_outputs_that_are_left_out() -> None:
    assert quantize().output_tensor == TensorDesc("uint8", SIZES)
    assert quantize(zero_point_tensor=TensorDesc("int8", ONE)).output_tensor == TensorDesc("int8", SIZES)


@pytest.mark.parametrize("sizes", [ONE, SIZES])
def test_a_scale_has_one_element_or_the_input_s_sizes(sizes: tuple[int, ...]) -> None:
    scale, zero_point = TensorDesc("float32", sizes), TensorDesc("int8", sizes)
    assert quantize(scale_tensor=scale, zero_point_tensor=zero_point).scale_tensor == scale
    channels = TensorDesc("float32", SIZES, (0, 1, 0, 0))
    assert quantize(scale_tensor=channels).scale_tensor == channels


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"input_tensor": TensorDesc("float16", SIZES)}, "input_tensor.data_type"),
        ({"scale_tensor": TensorDesc("float32", (1, 3, 1, 1))}, "scale_tensor.sizes"),
        ({"scale_tensor": TensorDesc("float32", (1,))}, "scale_tensor.sizes"),
        ({"scale_tensor": TensorDesc("float16", ONE)}, "scale_tensor.data_type"),
        ({"zero_point_tensor": TensorDesc("int8", (3,))}, "zero_point_tensor.sizes"),
        ({"zero_point_tensor": TensorDesc("int16", ONE)}, "zero_point_tensor.data_type"),
        ({"zero_point_tensor": TensorDesc("uint8", ONE), "output_tensor": BYTES}, "zero_point_tensor.data_type"),
        ({"output_tensor": TensorDesc("int32", SIZES)}, "output_tensor.data_type"),
        ({"output_tensor": TensorDesc("uint8", (2, 3, 4, 6))}, "output_tensor.sizes"),
        ({"scale_tensor": None}, "scale_tensor"),
    ],
)
def test_what_breaks_a_rule_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(DescriptorError) as raised:
        quantize(**fields)
    assert f"ElementWiseQuantizeLinearDesc.{field} = " in str(raised.value)


def test_feature_levels() -> None:
    assert quantize().minimum_feature_level == 0x6200
    assert quantize(zero_point_tensor=TensorDesc("uint8", ONE)).minimum_feature_level == 0x1000
    assert quantize(zero_point_tensor=TensorDesc("int8", ONE)).minimum_feature_level == 0x2100
