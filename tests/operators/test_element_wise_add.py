"""The rules of ELEMENT_WISE_ADD."""

from __future__ import annotations

from typing import Any

import pytest

from dmlvk import DescriptorError, TensorDesc
from dmlvk.operators import ElementWiseAddDesc

FLOATS = TensorDesc("float32", (2, 3, 4, 5))


def test_the_output_has_the_sizes_of_the_input() -> None:
    assert ElementWiseAddDesc(a_tensor=FLOATS, b_tensor=FLOATS).output_tensor == FLOATS


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"a_tensor": TensorDesc("float16", FLOATS.sizes)}, "a_tensor.data_type"),
        ({"b_tensor": TensorDesc("int32", FLOATS.sizes)}, "b_tensor.data_type"),
        ({"b_tensor": TensorDesc("float32", (2, 3, 4, 1))}, "b_tensor.sizes"),
        ({"output_tensor": TensorDesc("float32", (2, 3, 4))}, "output_tensor.sizes"),
    ],
)
def test_what_breaks_a_rule_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(DescriptorError) as raised:
        ElementWiseAddDesc(**{"a_tensor": FLOATS, "b_tensor": FLOATS, **fields})
    assert f"ElementWiseAddDesc.{field} = " in str(raised.value)


@pytest.mark.parametrize(("rank", "level"), [(1, 0x3000), (4, 0x1000), (5, 0x2000), (8, 0x3000)])
def test_feature_levels(rank: int, level: int) -> None:
    tensor = TensorDesc("float32", (2,) * rank)
    assert ElementWiseAddDesc(a_tensor=tensor, b_tensor=tensor).minimum_feature_level == level
