"""The rules of BYTE_TABLE."""

from __future__ import annotations

from typing import Any

import pytest

from dmlvk import DescriptorError, TensorDesc
from dmlvk.operators import ByteTableDesc

U8 = TensorDesc("uint8", (2, 3, 4))


def describe(**fields: Any) -> ByteTableDesc:
    return ByteTableDesc(**{"input_tensor": U8, "table_tensor": TensorDesc("int8", (256,)), **fields})


def test_the_output_has_the_input_s_sizes_and_the_table_s_type() -> None:
    assert describe().output_tensor == TensorDesc("int8", (2, 3, 4))
    assert describe(output_tensor=TensorDesc("int8", (2, 3, 4))) == describe()


@pytest.mark.parametrize(
    ("fields", "sizes"),
    [
        ({}, (256,)),
        ({"second_input_tensor": U8}, (65536,)),
        ({"axis": 0}, (2, 256)),
        ({"axis": 2}, (4, 256)),
        ({"axis": 1, "second_input_tensor": U8}, (3, 65536)),
    ],
)
def test_a_table_has_an_element_for_each_byte_or_pair(fields: dict[str, Any], sizes: tuple[int, ...]) -> None:
    assert describe(**fields, table_tensor=TensorDesc("uint8", sizes)).table_sizes == sizes
    wrong = [(255,), (257,), (65535,), (256, 256), (1, 256), (2, 65536), (5, 256), (256,), (65536,), (2, 256), (4, 256)]
    for other in wrong:
        if other != sizes:
            with pytest.raises(DescriptorError) as raised:
                describe(**fields, table_tensor=TensorDesc("uint8", other))
            assert "table_tensor.sizes" in str(raised.value) and str(sizes) in str(raised.value)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"input_tensor": TensorDesc("uint16", (2, 3, 4))}, "input_tensor.data_type"),
        ({"table_tensor": TensorDesc("float32", (256,))}, "table_tensor.data_type"),
        ({"table_tensor": TensorDesc("uint8", (1, 1, 256))}, "table_tensor.sizes"),
        (
            {"second_input_tensor": TensorDesc("uint8", (2, 3, 1)), "table_tensor": TensorDesc("int8", (65536,))},
            "second_input_tensor.sizes",
        ),
        ({"second_input_tensor": TensorDesc("int16", (2, 3, 4))}, "second_input_tensor.data_type"),
        ({"output_tensor": TensorDesc("uint8", (2, 3, 4))}, "output_tensor.data_type"),
        ({"output_tensor": TensorDesc("int8", (2, 3, 5))}, "output_tensor.sizes"),
        ({"output_tensor": TensorDesc("int8", (2, 3, 4), (12, 0, 1))}, "output_tensor.strides"),
        ({"axis": 3}, "axis"),
        ({"axis": -1}, "axis"),
        ({"axis": 0.5}, "axis"),
        ({"table_tensor": None}, "table_tensor"),
    ],
)
def test_what_breaks_a_rule_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(DescriptorError) as raised:
        describe(**fields)
    assert f"ByteTableDesc.{field} = " in str(raised.value)


def test_directml_does_not_have_it() -> None:
    assert describe().minimum_feature_level is None
