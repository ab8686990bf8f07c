"""The rules of DML_ONE_HOT_OPERATOR_DESC, and its feature levels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlvk.data_type import DataType
from dmlvk.errors import DescriptorError
from dmlvk.operators import OneHotDesc
from dmlvk.tensor_desc import TensorDesc, TensorFlags

FLOAT32, UINT32 = DataType.FLOAT32, DataType.UINT32


def describe(**changes: Any) -> OneHotDesc:
    """The page's example 1, with changes."""
    fields: dict[str, Any] = {
        "indices_tensor": TensorDesc(UINT32, (1, 1, 3, 1)),
        "values_tensor": TensorDesc(FLOAT32, (1, 1, 1, 2)),
        "output_tensor": TensorDesc(FLOAT32, (1, 1, 3, 4)),
        "axis": 3,
    }
    return OneHotDesc(**(fields | changes))


def refused(field: str, value: object, rule: str, /, **changes: Any) -> DescriptorError:
    with pytest.raises(DescriptorError) as caught:
        describe(**changes)
    assert (caught.value.descriptor, caught.value.field) == ("OneHotDesc", field)
    assert caught.value.value == value
    assert rule in caught.value.rule
    assert field in str(caught.value) and repr(value) in str(caught.value)
    return caught.value


def test_page_example_1() -> None:
    desc = describe()
    assert desc.values_axis == 3 and desc.on_value_offset == 1
    assert list(desc.tensors) == ["indices_tensor", "values_tensor", "output_tensor"]
    assert not desc.indices_are_signed


def test_on_value_is_element_1_of_the_last_dimension_larger_than_1() -> None:
    assert describe(values_tensor=TensorDesc(FLOAT32, (1, 1, 3, 1))).values_axis == 2
    assert describe(values_tensor=TensorDesc(FLOAT32, (2, 1, 1, 1))).values_axis == 0
    strided = describe(values_tensor=TensorDesc(FLOAT32, (2, 3, 1, 1), (50, 7, 9, 9)))
    assert (strided.values_axis, strided.on_value_offset) == (1, 7)
    assert describe(values_tensor=TensorDesc(FLOAT32, (1, 1, 1, 2), (0, 0, 0, 0))).on_value_offset == 0


def test_descriptors_are_values() -> None:
    assert describe() == describe(axis=np.uint32(3)) and hash(describe()) == hash(describe(axis=np.uint32(3)))
    assert type(describe(axis=np.uint32(3)).axis) is int


@pytest.mark.parametrize("field", ["indices_tensor", "values_tensor", "output_tensor"])
def test_tensors_must_be_there(field: str) -> None:
    refused(field, None, "must be a TensorDesc", **{field: None})


def test_the_output_s_length_is_said_by_no_other_field() -> None:
    fields = {"indices_tensor": TensorDesc(UINT32, (1, 5, 3)), "values_tensor": TensorDesc(FLOAT32, (1, 1, 2))}
    with pytest.raises(DescriptorError, match="its size at axis 0 is the length of the sequences") as caught:
        OneHotDesc(**fields, axis=0)  # type: ignore[call-arg]
    assert (caught.value.field, caught.value.value) == ("output_tensor", None)
    assert caught.value.expected == "TensorDesc('float32', (LENGTH, 5, 3))"


def test_without_an_output_errors_are_about_the_other_fields() -> None:
    left_out: dict[str, Any] = {"output_tensor": None}
    refused("axis", 4, "less than the DimensionCount", **left_out, axis=4)
    refused("indices_tensor.sizes[2]", 3, "must be 1", **left_out, axis=2)
    refused("values_tensor.sizes", (1, 1, 1, 1), "at least 2", **left_out, values_tensor=TensorDesc(FLOAT32, (1,) * 4))
    refused("values_tensor.sizes", (2,), "same DimensionCount", **left_out, values_tensor=TensorDesc(FLOAT32, (2,)))


@pytest.mark.parametrize("data_type", [t for t in DataType if t.name not in ("INT64", "INT32", "UINT64", "UINT32")])
def test_indices_have_32_or_64_bit_integer_types(data_type: DataType) -> None:
    indices = TensorDesc(data_type, (1, 1, 3, 1))
    error = refused("indices_tensor.data_type", data_type.name, "does not take", indices_tensor=indices)
    assert error.expected == "one of INT64, INT32, UINT64, UINT32"


def test_output_and_values_must_have_the_same_data_type() -> None:
    output = TensorDesc(DataType.INT8, (1, 1, 3, 4))
    refused("output_tensor.data_type", "INT8", "values_tensor must have the same DataType", output_tensor=output)


@pytest.mark.parametrize("field", ["values_tensor", "output_tensor"])
def test_tensors_must_have_the_same_dimension_count(field: str) -> None:
    refused(f"{field}.sizes", (3, 4), "same DimensionCount", **{field: TensorDesc(FLOAT32, (3, 4))})


@pytest.mark.parametrize("axis", [4, -1, 2**32])
def test_axis_must_be_less_than_the_dimension_count(axis: int) -> None:
    error = refused("axis", axis, "less than the DimensionCount", axis=axis)
    assert error.expected == "an integer from 0 to 3"


def test_axis_must_be_an_integer() -> None:
    refused("axis", "3", "integer, not str", axis="3")


def test_indices_have_size_1_at_the_axis() -> None:
    indices = TensorDesc(UINT32, (1, 1, 3, 4))
    refused("indices_tensor.sizes[3]", 4, "must be 1", indices_tensor=indices)


def test_other_sizes_of_the_output_equal_those_of_the_indices() -> None:
    output = TensorDesc(FLOAT32, (1, 2, 3, 4))
    error = refused("output_tensor.sizes", (1, 2, 3, 4), "except at axis 3", output_tensor=output)
    assert error.expected == "(1, 1, 3, 4)"


def test_the_output_may_have_any_size_at_the_axis() -> None:
    for length in (1, 2**30):
        describe(output_tensor=TensorDesc(FLOAT32, (1, 1, 3, length)))


def test_values_have_at_least_2_elements() -> None:
    values = TensorDesc(FLOAT32, (1, 1, 1, 1))
    refused("values_tensor.sizes", (1, 1, 1, 1), "at least 2 elements", values_tensor=values)


def test_output_elements_may_not_overlap() -> None:
    output = TensorDesc(FLOAT32, (1, 1, 3, 4), (0, 0, 2, 1))
    refused("output_tensor.strides", (0, 0, 2, 1), "may not overlap", output_tensor=output)


def test_inputs_may_overlap_and_be_owned_by_dml() -> None:
    flags = TensorFlags.OWNED_BY_DML
    describe(indices_tensor=TensorDesc(UINT32, (1, 1, 3, 1), (0, 0, 0, 0), flags=flags))


def test_only_inputs_can_be_owned_by_dml() -> None:
    flags = TensorFlags.OWNED_BY_DML
    output = TensorDesc(FLOAT32, (1, 1, 3, 4), flags=flags)
    refused("output_tensor.flags", flags, "only inputs", output_tensor=output)


@pytest.mark.parametrize("index_type", [UINT32, DataType.INT32, DataType.INT64, DataType.UINT64])
@pytest.mark.parametrize("value_type", DataType)
@pytest.mark.parametrize("rank", [1, 3, 4, 5, 8])
def test_feature_levels(rank: int, value_type: DataType, index_type: DataType) -> None:
    if value_type in (DataType.FLOAT64, DataType.INT64, DataType.UINT64):
        expected = 0x4100
    elif rank != 4 or index_type != UINT32:
        expected = 0x3000
    else:
        expected = 0x2000 if value_type in (FLOAT32, DataType.FLOAT16) else 0x2100
    ones = (1,) * (rank - 1)
    desc = OneHotDesc(
        indices_tensor=TensorDesc(index_type, (*ones, 1)), values_tensor=TensorDesc(value_type, (*ones, 2)),
        output_tensor=TensorDesc(value_type, (*ones, 5)), axis=rank - 1,
    )  # fmt: skip
    assert desc.minimum_feature_level == expected
