"""The rules of BYTE_RESAMPLE."""

from __future__ import annotations

from typing import Any

import pytest

from dmlvk import DescriptorError, TensorDesc
from dmlvk.operators import ByteResampleDesc


def describe(data_type: str = "int8", **fields: Any) -> ByteResampleDesc:
    tensors = {
        "input_tensor": TensorDesc(data_type, (2, 3, 4, 5)),
        "coordinate_tensor": TensorDesc("float32", (15,)),
        "threshold_tensor": TensorDesc("float32", (255,)),
        "output_tensor": TensorDesc("uint8", (2, 3, 8, 7)),
    }
    return ByteResampleDesc(**{**tensors, "input_scale": 0.5, "input_zero_point": 0, **fields})


@pytest.mark.parametrize(("data_type", "wrong"), [("int8", 128), ("uint8", -1)])
def test_the_zero_point_is_a_number_of_the_type(data_type: str, wrong: int) -> None:
    with pytest.raises(DescriptorError, match=r"input_zero_point.*must be a number of"):
        describe(data_type, input_zero_point=wrong)


@pytest.mark.parametrize("wrong", [0.0, -1.0, 2.0**41, 2.0**-41, float("nan"), float("inf")])
def test_with_a_scale_no_step_is_denormal_or_infinite(wrong: float) -> None:
    with pytest.raises(DescriptorError, match=r"input_scale.*from 2\^-40 to 2\^40"):
        describe(input_scale=wrong)


def test_each_row_and_each_column_has_a_coordinate() -> None:
    assert describe().output_tensor.sizes == (2, 3, 8, 7)
    with pytest.raises(DescriptorError, match=r"coordinate_tensor.sizes.*\(15,\)"):
        describe(coordinate_tensor=TensorDesc("float32", (14,)))


def test_the_output_has_to_be_given() -> None:
    with pytest.raises(DescriptorError, match="how many rows and how many columns"):
        describe(output_tensor=None)


def test_the_planes_are_those_of_the_input() -> None:
    with pytest.raises(DescriptorError, match=r"output_tensor.sizes.*the batch and the channels"):
        describe(output_tensor=TensorDesc("uint8", (2, 4, 8, 7)))
