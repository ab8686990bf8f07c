"""The rules of BYTE_SOFTMAX."""

from __future__ import annotations

from typing import Any

import pytest

from dmlvk import DescriptorError, TensorDesc
from dmlvk.operators import ByteSoftmaxDesc


def describe(data_type: str = "int8", **fields: Any) -> ByteSoftmaxDesc:
    tensors = {"input_tensor": TensorDesc(data_type, (2, 3, 4)), "table_tensor": TensorDesc("float32", (256,))}
    return ByteSoftmaxDesc(**{**tensors, "output_steps": 256, "output_zero_point": 0, **fields})


def test_the_output_is_like_the_input() -> None:
    assert describe("uint8").output_tensor == TensorDesc("uint8", (2, 3, 4))


@pytest.mark.parametrize(("data_type", "wrong"), [("int8", 128), ("uint8", -1)])
def test_the_zero_point_is_a_number_of_the_type(data_type: str, wrong: int) -> None:
    with pytest.raises(DescriptorError, match=r"output_zero_point.*must be a number of"):
        describe(data_type, output_zero_point=wrong)


def test_there_is_a_term_for_each_distance() -> None:
    with pytest.raises(DescriptorError, match=r"table_tensor.sizes.*\(256,\)"):
        describe(table_tensor=TensorDesc("float32", (255,)))
