"""The rules of BYTE_LAYER_NORMALIZATION."""

from __future__ import annotations

from typing import Any

import pytest

from dmlvk import DescriptorError, TensorDesc
from dmlvk.operators import ByteLayerNormalizationDesc
from dmlvk.operators.byte_layer_normalization import LONGEST_ROW, RANGES


def describe(*, length: int = 16, data_type: str = "int8", **fields: Any) -> ByteLayerNormalizationDesc:
    parameter = TensorDesc("float32", (length,))
    tensors = {"input_tensor": TensorDesc(data_type, (3, length)), "scale_tensor": parameter, "bias_tensor": parameter}
    numbers = {"epsilon": 1e-5, "input_scale": 0.5, "output_scale": 0.1}
    return ByteLayerNormalizationDesc(**{**tensors, **numbers, "input_zero_point": 1, "output_zero_point": 2, **fields})


def describe_with(field: str, value: Any, data_type: str = "int8") -> ByteLayerNormalizationDesc:
    fields: dict[str, Any] = {field: value}
    return describe(data_type=data_type, **fields)


def test_the_output_is_like_the_input() -> None:
    assert describe(data_type="uint8").output_tensor == TensorDesc("uint8", (3, 16))


@pytest.mark.parametrize("length", [1, 7, 12, LONGEST_ROW + 8])
def test_rows_have_a_multiple_of_8_elements(length: int) -> None:
    with pytest.raises(DescriptorError, match=r"input_tensor.sizes.*multiple of 8"):
        describe(length=length)


@pytest.mark.parametrize("field", ["scale_tensor", "bias_tensor"])
def test_each_element_of_a_row_has_a_scale_and_a_bias(field: str) -> None:
    with pytest.raises(DescriptorError, match=rf"{field}.sizes.*\(16,\)"):
        describe_with(field, TensorDesc("float32", (15,)))


@pytest.mark.parametrize("field", ["input_zero_point", "output_zero_point"])
@pytest.mark.parametrize(("data_type", "wrong"), [("int8", 128), ("uint8", -1)])
def test_zero_points_are_numbers_of_the_type(data_type: str, wrong: int, field: str) -> None:
    with pytest.raises(DescriptorError, match=rf"{field}.*must be a number of"):
        describe_with(field, wrong, data_type)


@pytest.mark.parametrize("field", RANGES)
def test_with_numbers_of_the_ranges_no_step_is_denormal_or_infinite(field: str) -> None:
    most = RANGES[field]
    for right in (2.0**-most, 2.0**most):
        describe_with(field, right)
    for wrong in (0.0, -1.0, 2.0 ** (-most - 1), 2.0 ** (most + 1), float("nan"), float("inf")):
        with pytest.raises(DescriptorError, match=rf"{field}.*must be from 2\^-{most} to 2\^{most}"):
            describe_with(field, wrong)
