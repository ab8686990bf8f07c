"""The rules of BYTE_TABLE_MEAN."""

from __future__ import annotations

from typing import Any

import pytest

from dmlvk import DescriptorError, TensorDesc
from dmlvk.operators import ByteTableMeanDesc


def describe(**fields: Any) -> ByteTableMeanDesc:
    tensors = {"input_tensor": TensorDesc("int8", (2, 3, 4, 5)), "table_tensor": TensorDesc("float32", (256,))}
    return ByteTableMeanDesc(**{**tensors, "lane_count": 8, **fields})


def test_the_output_has_an_element_for_each_plane() -> None:
    assert describe().output_tensor == TensorDesc("float32", (2, 3, 1, 1))
    volume = describe(input_tensor=TensorDesc("uint8", (2, 3, 4, 5, 6)))
    assert volume.output_tensor == TensorDesc("float32", (2, 3, 1, 1, 1))


@pytest.mark.parametrize("count", [0, 2, 3, 5, 6, 7, 9])
def test_there_are_three_orders(count: int) -> None:
    with pytest.raises(DescriptorError, match=r"lane_count.*must be 1, 4 or 8"):
        describe(lane_count=count)


@pytest.mark.parametrize("sizes", [(2, 3, 4, 1), (2, 1, 1, 1), (1, 3, 1, 1)])
def test_no_other_output_is_taken(sizes: tuple[int, ...]) -> None:
    with pytest.raises(DescriptorError, match=r"output_tensor.*\(2, 3, 1, 1\)"):
        describe(output_tensor=TensorDesc("float32", sizes))
