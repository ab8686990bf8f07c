"""The rules of ELEMENT_WISE_QUANTIZED_LINEAR_ADD."""

from __future__ import annotations

from typing import Any

import pytest

from dmlvk import DescriptorError, TensorDesc
from dmlvk.operators import ElementWiseQuantizedLinearAddDesc

ONE = TensorDesc("float32", (1, 1))


def describe(**fields: Any) -> ElementWiseQuantizedLinearAddDesc:
    tensors: dict[str, Any] = {
        "a_tensor": TensorDesc("uint8", (3, 4)),
        "b_tensor": TensorDesc("int8", (3, 4), (0, 1)),
        "a_scale_tensor": ONE,
        "b_scale_tensor": ONE,
        "output_scale_tensor": ONE,
    }
    return ElementWiseQuantizedLinearAddDesc(**{**tensors, **fields})


def test_the_output_has_the_type_of_its_zero_point_or_of_a() -> None:
    assert describe().output_tensor == TensorDesc("uint8", (3, 4))
    assert describe(output_zero_point_tensor=TensorDesc("int8", (1, 1))).output_tensor == TensorDesc("int8", (3, 4))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"a_tensor": TensorDesc("int32", (3, 4))}, "a_tensor.data_type"),
        ({"b_tensor": TensorDesc("uint8", (1, 4))}, "b_tensor.sizes"),
        ({"b_tensor": TensorDesc("uint8", (4,))}, "b_tensor.sizes"),
        ({"a_scale_tensor": TensorDesc("float32", (3, 4))}, "a_scale_tensor.sizes"),
        ({"a_scale_tensor": TensorDesc("float16", (1, 1))}, "a_scale_tensor.data_type"),
        ({"b_scale_tensor": TensorDesc("float32", (1,))}, "b_scale_tensor.sizes"),
        ({"a_zero_point_tensor": TensorDesc("int8", (1, 1))}, "a_zero_point_tensor.data_type"),
        ({"b_zero_point_tensor": TensorDesc("int8", (1, 4))}, "b_zero_point_tensor.sizes"),
        ({"output_zero_point_tensor": TensorDesc("int32", (1, 1))}, "output_zero_point_tensor.data_type"),
        ({"output_tensor": TensorDesc("uint8", (4, 3))}, "output_tensor.sizes"),
        ({"output_tensor": TensorDesc("uint8", (3, 4), (0, 1))}, "output_tensor.strides"),
        ({"output_scale_tensor": None}, "output_scale_tensor"),
    ],
)
def test_what_breaks_a_rule_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(DescriptorError) as raised:
        describe(**fields)
    assert f"ElementWiseQuantizedLinearAddDesc.{field} = " in str(raised.value)


def test_it_came_with_feature_level_4_0() -> None:
    assert describe().minimum_feature_level == 0x4000
