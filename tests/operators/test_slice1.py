"""The rules of DML_SLICE1_OPERATOR_DESC, and its feature levels."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest

from dmlvk.data_type import DataType
from dmlvk.errors import DescriptorError
from dmlvk.operators import FeatureLevel, Slice1Desc
from dmlvk.tensor_desc import TensorDesc, TensorFlags

FLOAT32 = DataType.FLOAT32


def describe(**changes: Any) -> Slice1Desc:
    """The page's example 1, with changes."""
    fields: dict[str, Any] = {
        "input_tensor": TensorDesc(FLOAT32, (1, 1, 4, 4)),
        "output_tensor": TensorDesc(FLOAT32, (1, 1, 2, 2)),
        "input_window_offsets": (0, 0, 0, 1),
        "input_window_sizes": (1, 1, 4, 3),
        "input_window_strides": (1, 1, 2, 2),
    }
    return Slice1Desc(**(fields | changes))


def refused(field: str, value: object, rule: str, /, **changes: Any) -> DescriptorError:
    with pytest.raises(DescriptorError) as caught:
        describe(**changes)
    assert (caught.value.descriptor, caught.value.field) == ("Slice1Desc", field)
    assert caught.value.value == value
    assert rule in caught.value.rule
    assert field in str(caught.value) and repr(value) in str(caught.value)
    return caught.value


def test_page_example_1() -> None:
    desc = describe()
    assert desc.copy_starts == (0, 0, 0, 1)
    assert desc.maximum_copied_elements == (1, 1, 2, 2)
    assert list(desc.tensors) == ["input_tensor", "output_tensor"]
    assert desc.operator_name == "SLICE1"


def test_page_example_2_a_negative_stride_starts_at_the_end_of_the_window() -> None:
    assert describe(input_window_strides=(1, 1, -2, 2)).copy_starts == (0, 0, 3, 1)


def test_fields_become_tuples_of_python_integers() -> None:
    desc = describe(input_window_offsets=np.array([0, 0, 0, 1]), input_window_strides=[np.int8(1), 1, -2, 2])
    assert desc.input_window_offsets == (0, 0, 0, 1)
    assert all(type(number) is int for number in (*desc.input_window_offsets, *desc.input_window_strides))


def test_descriptors_are_values() -> None:
    assert describe() == describe() and hash(describe()) == hash(describe())
    assert describe() != describe(input_window_strides=(1, 1, -2, 2))
    assert pickle.loads(pickle.dumps(describe())) == describe() == copy.deepcopy(describe())
    with pytest.raises(dataclasses.FrozenInstanceError):
        describe().input_window_offsets = (0, 0, 0, 0)  # type: ignore[misc]


def test_fields_are_keyword_only() -> None:
    tensor = TensorDesc(FLOAT32, (4,))
    with pytest.raises(TypeError):
        Slice1Desc(tensor, tensor, (0,), (4,), (1,))  # type: ignore[misc]


def test_tensors_are_descs() -> None:
    refused("input_tensor", None, "must be a TensorDesc, not NoneType", input_tensor=None)
    refused("output_tensor", 5, "must be a TensorDesc, not int", output_tensor=5)


def test_without_an_output_it_is_the_most_that_the_window_gives() -> None:
    desc = describe(output_tensor=None, input_window_strides=(1, 1, -3, 2))
    assert desc.output_tensor == TensorDesc(FLOAT32, desc.maximum_copied_elements)
    left_out = Slice1Desc(
        input_tensor=TensorDesc(DataType.INT8, (9,), (3,), flags=TensorFlags.OWNED_BY_DML),
        input_window_offsets=(1,),
        input_window_sizes=(8,),
        input_window_strides=(-3,),
    )
    assert left_out.output_tensor == TensorDesc(DataType.INT8, (3,)), "packed, and not OWNED_BY_DML as the input is"


def test_without_an_output_errors_are_about_the_window() -> None:
    left_out: dict[str, Any] = {"output_tensor": None}
    refused("input_window_strides[2]", 0, "may not be 0", **left_out, input_window_strides=(1, 1, 0, 1))
    refused("input_window_sizes[3]", 9, "may not extend past", **left_out, input_window_sizes=(1, 1, 1, 9))
    refused("input_window_sizes", (1, 1, 1), "one element for each dimension", **left_out, input_window_sizes=(1, 1, 1))
    refused("input_window_sizes[0]", 0, "may not be empty", **left_out, input_window_sizes=(0, 1, 1, 1))


def test_tensors_must_have_the_same_data_type() -> None:
    output = TensorDesc(DataType.FLOAT16, (1, 1, 2, 2))
    error = refused("output_tensor.data_type", "FLOAT16", "same DataType", output_tensor=output)
    assert error.expected is not None and "FLOAT32" in error.expected


def test_tensors_must_have_the_same_dimension_count() -> None:
    output = TensorDesc(FLOAT32, (1, 2, 2))
    refused("output_tensor.sizes", (1, 2, 2), "same DimensionCount", output_tensor=output)


@pytest.mark.parametrize("field", ["input_window_offsets", "input_window_sizes", "input_window_strides"])
def test_arrays_have_one_element_a_dimension(field: str) -> None:
    refused(field, (1, 1, 1), "one element for each dimension, not 3", **{field: (1, 1, 1)})
    refused(field, 1, "sequence of integers", **{field: 1})
    refused(f"{field}[1]", 1.0, "integer, not float", **{field: (1, 1.0, 1, 1)})
    refused(f"{field}[0]", True, "not a bool", **{field: (True, 1, 1, 1)})


def test_the_window_may_not_be_empty() -> None:
    refused("input_window_sizes[2]", 0, "may not be empty", input_window_sizes=(1, 1, 0, 3))


def test_offsets_are_not_negative() -> None:
    refused("input_window_offsets[3]", -1, "unsigned 32-bit integer", input_window_offsets=(0, 0, 0, -1))


def test_the_window_may_not_extend_past_the_input() -> None:
    error = refused("input_window_sizes[3]", 4, "offset + size is 5", input_window_sizes=(1, 1, 4, 4))
    assert error.expected == "at most 3"


def test_the_window_may_not_begin_past_the_input() -> None:
    refused("input_window_offsets[3]", 4, "begin past the end", input_window_offsets=(0, 0, 0, 4))


def test_the_end_of_the_window_does_not_wrap_at_32_bits() -> None:
    offsets = (0, 0, 0, 3)
    refused("input_window_sizes[3]", 2**32 - 1, "offset + size is 4294967298",
            input_window_offsets=offsets, input_window_sizes=(1, 1, 4, 2**32 - 1))  # fmt: skip


def test_strides_may_not_be_0() -> None:
    error = refused("input_window_strides[2]", 0, "may not be 0", input_window_strides=(1, 1, 0, 2))
    assert error.expected is not None


@pytest.mark.parametrize("stride", [-(2**31) - 1, 2**31])
def test_strides_have_32_signed_bits(stride: int) -> None:
    refused("input_window_strides[2]", stride, "fit a signed 32-bit integer", input_window_strides=(1, 1, stride, 2))


@pytest.mark.parametrize("stride", [-(2**31), 2**31 - 1, 5, -5])
def test_a_stride_larger_than_the_window_gives_one_element(stride: int) -> None:
    output = TensorDesc(FLOAT32, (1, 1, 1, 2))
    desc = describe(input_window_strides=(1, 1, stride, 2), output_tensor=output)
    assert desc.maximum_copied_elements[2] == 1
    assert desc.copy_starts[2] == (3 if stride < 0 else 0)


@pytest.mark.parametrize("stride", [2, -2])
def test_output_sizes_are_at_most_what_the_window_gives(stride: int) -> None:
    error = refused(
        "output_tensor.sizes[2]", 3, "gives at most 1 + (size - 1) / abs(stride) = 2 elements",
        output_tensor=TensorDesc(FLOAT32, (1, 1, 3, 2)),
        input_window_strides=(1, 1, stride, 2),
    )  # fmt: skip
    assert error.expected is not None and "(1, 1, 2, 2)" in error.expected


def test_output_sizes_may_be_smaller_than_what_the_window_gives() -> None:
    desc = describe(output_tensor=TensorDesc(FLOAT32, (1, 1, 1, 1)), input_window_strides=(1, 1, -2, 2))
    assert desc.copy_starts == (0, 0, 3, 1)


def test_output_elements_may_not_overlap() -> None:
    output = TensorDesc(FLOAT32, (1, 1, 2, 2), (0, 0, 0, 1))
    refused("output_tensor.strides", (0, 0, 0, 1), "may not overlap", output_tensor=output)
    output = TensorDesc(FLOAT32, (1, 1, 2, 2), (1, 1, 1, 1))
    error = refused("output_tensor.strides", (1, 1, 1, 1), "share an element", output_tensor=output)
    assert "(0, 0, 0, 1)" in error.rule and "(0, 0, 1, 0)" in error.rule


def test_output_strides_may_be_any_that_do_not_overlap() -> None:
    describe(output_tensor=TensorDesc(FLOAT32, (1, 1, 2, 2), (0, 0, 1, 7)))


def test_input_elements_may_overlap() -> None:
    describe(input_tensor=TensorDesc(FLOAT32, (1, 1, 4, 4), (0, 0, 0, 0)))
    describe(input_tensor=TensorDesc(FLOAT32, (1, 1, 4, 4), (0, 0, 1, 1)))


def test_only_inputs_can_be_owned_by_dml() -> None:
    owned = TensorFlags.OWNED_BY_DML
    describe(input_tensor=TensorDesc(FLOAT32, (1, 1, 4, 4), flags=owned))
    output = TensorDesc(FLOAT32, (1, 1, 2, 2), flags=owned)
    refused("output_tensor.flags", owned, "only inputs", output_tensor=output)


def level(data_type: DataType, rank: int) -> FeatureLevel:
    tensor = TensorDesc(data_type, (2,) * rank)
    return Slice1Desc(
        input_tensor=tensor, output_tensor=tensor, input_window_offsets=(0,) * rank,
        input_window_sizes=(2,) * rank, input_window_strides=(1,) * rank,
    ).minimum_feature_level  # fmt: skip


@pytest.mark.parametrize("rank", range(1, 9))
@pytest.mark.parametrize("data_type", DataType)
def test_feature_levels(data_type: DataType, rank: int) -> None:
    if data_type in (DataType.FLOAT64, DataType.INT64, DataType.UINT64):
        expected = 0x4100
    else:
        expected = 0x2100 if rank in (4, 5) else 0x3000
    assert level(data_type, rank) == expected
