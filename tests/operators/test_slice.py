"""The rules of DML_SLICE_OPERATOR_DESC, and its feature levels."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest

from dmlvk.data_type import DataType
from dmlvk.errors import DescriptorError
from dmlvk.operators import SliceDesc
from dmlvk.tensor_desc import TensorDesc, TensorFlags

FLOAT32 = DataType.FLOAT32


def describe(**changes: Any) -> SliceDesc:
    """The page's example 2, with changes."""
    fields: dict[str, Any] = {
        "input_tensor": TensorDesc(FLOAT32, (1, 1, 4, 4)),
        "output_tensor": TensorDesc(FLOAT32, (1, 1, 2, 2)),
        "offsets": (0, 0, 1, 0),
        "sizes": (1, 1, 2, 2),
        "strides": (1, 1, 2, 3),
    }
    return SliceDesc(**(fields | changes))


def refused(field: str, value: object, rule: str, /, **changes: Any) -> DescriptorError:
    with pytest.raises(DescriptorError) as caught:
        describe(**changes)
    assert (caught.value.descriptor, caught.value.field) == ("SliceDesc", field)
    assert caught.value.value == value
    assert rule in caught.value.rule
    assert field in str(caught.value) and repr(value) in str(caught.value)
    return caught.value


def test_page_example_2() -> None:
    desc = describe()
    assert (desc.offsets, desc.sizes, desc.strides) == ((0, 0, 1, 0), (1, 1, 2, 2), (1, 1, 2, 3))
    assert list(desc.tensors) == ["input_tensor", "output_tensor"]
    assert desc.operator_name == "SLICE"


def test_without_an_output_it_is_packed() -> None:
    desc = describe(output_tensor=None)
    assert desc == describe() and desc.output_tensor == TensorDesc(FLOAT32, (1, 1, 2, 2))
    left_out = SliceDesc(input_tensor=TensorDesc(DataType.INT8, (5,), (3,)), offsets=(0,), sizes=(2,), strides=(1,))
    assert left_out.output_tensor == TensorDesc(DataType.INT8, (2,))


def test_fields_become_tuples_of_python_integers() -> None:
    desc = describe(offsets=np.array([0, 0, 1, 0]), strides=[np.int8(1), 1, 2, 3])
    assert desc.offsets == (0, 0, 1, 0)
    assert all(type(number) is int for number in (*desc.offsets, *desc.strides))


def test_descriptors_are_values() -> None:
    assert describe() == describe() and hash(describe()) == hash(describe())
    assert describe() != describe(offsets=(0, 0, 0, 0))
    assert pickle.loads(pickle.dumps(describe())) == describe() == copy.deepcopy(describe())
    with pytest.raises(dataclasses.FrozenInstanceError):
        describe().offsets = (0, 0, 0, 0)  # type: ignore[misc]


def test_fields_are_keyword_only() -> None:
    tensor = TensorDesc(FLOAT32, (4,))
    with pytest.raises(TypeError):
        SliceDesc(tensor, tensor, (0,), (4,), (1,))  # type: ignore[misc]


def test_tensors_are_descs() -> None:
    refused("input_tensor", None, "must be a TensorDesc, not NoneType", input_tensor=None)
    refused("output_tensor", 5, "must be a TensorDesc, not int", output_tensor=5)


def test_tensors_must_have_the_same_data_type() -> None:
    output = TensorDesc(DataType.FLOAT16, (1, 1, 2, 2))
    refused("output_tensor.data_type", "FLOAT16", "same DataType", output_tensor=output)


def test_tensors_must_have_the_same_dimension_count() -> None:
    refused("output_tensor.sizes", (1, 2, 2), "same DimensionCount", output_tensor=TensorDesc(FLOAT32, (1, 2, 2)))


@pytest.mark.parametrize("sizes", [(1, 1, 2, 1), (1, 1, 2, 3), (1, 1, 1, 1)])
def test_output_sizes_are_exactly_the_sizes(sizes: tuple[int, ...]) -> None:
    output = TensorDesc(FLOAT32, sizes)
    error = refused("output_tensor.sizes", sizes, "must equal the field sizes", output_tensor=output)
    assert error.expected == "(1, 1, 2, 2)"


@pytest.mark.parametrize("field", ["offsets", "sizes", "strides"])
def test_arrays_have_one_element_a_dimension(field: str) -> None:
    refused(field, (1, 1, 1), "one element for each dimension, not 3", **{field: (1, 1, 1)})
    refused(field, 1, "sequence of integers", **{field: 1})
    refused(f"{field}[1]", 1.0, "integer, not float", **{field: (1, 1.0, 1, 1)})
    refused(f"{field}[0]", True, "not a bool", **{field: (True, 1, 1, 1)})


def test_the_slice_may_not_be_empty() -> None:
    refused("sizes[2]", 0, "may not be empty", sizes=(1, 1, 0, 2))


def test_offsets_are_not_negative() -> None:
    refused("offsets[3]", -1, "unsigned 32-bit integer", offsets=(0, 0, 0, -1))


def test_the_slice_may_not_begin_past_the_input() -> None:
    error = refused("offsets[3]", 4, "may not begin past the end", offsets=(0, 0, 0, 4))
    assert error.expected == "at most 3"


def test_the_slice_may_not_end_past_the_input() -> None:
    error = refused("sizes[3]", 3, "offset + (size - 1) * stride is 6", sizes=(1, 1, 2, 3))
    assert error.expected == "at most 2"
    error = refused("sizes[3]", 2, "size 4 in dimension 3: offset + (size - 1) * stride is 4", strides=(1, 1, 2, 4))
    assert error.expected == "at most 1"
    assert describe(sizes=(1, 1, 2, 2)).sizes == (1, 1, 2, 2), "which fits"


def test_the_end_of_the_slice_does_not_wrap_at_32_bits() -> None:
    refused("sizes[3]", 2**31 + 1, "is 4294967296", sizes=(1, 1, 2, 2**31 + 1), strides=(1, 1, 2, 2))


@pytest.mark.parametrize("stride", [0, -1, 2**32])
def test_strides_are_positive_and_of_32_bits(stride: int) -> None:
    error = refused("strides[2]", stride, "1 or more", strides=(1, 1, stride, 3))
    assert error.expected is not None


@pytest.mark.parametrize("stride", [2**31, 2**32 - 1])
def test_a_stride_past_the_input_takes_one_element(stride: int) -> None:
    assert describe(output_tensor=None, sizes=(1, 1, 1, 2), strides=(1, 1, stride, 3)).sizes == (1, 1, 1, 2)


def test_output_elements_may_not_overlap() -> None:
    output = TensorDesc(FLOAT32, (1, 1, 2, 2), (0, 0, 0, 1))
    refused("output_tensor.strides", (0, 0, 0, 1), "may not overlap", output_tensor=output)


def test_input_elements_may_overlap() -> None:
    describe(input_tensor=TensorDesc(FLOAT32, (1, 1, 4, 4), (0, 0, 1, 1)))


def test_only_inputs_can_be_owned_by_dml() -> None:
    owned = TensorFlags.OWNED_BY_DML
    describe(input_tensor=TensorDesc(FLOAT32, (1, 1, 4, 4), flags=owned))
    refused("output_tensor.flags", owned, "only inputs", output_tensor=TensorDesc(FLOAT32, (1, 1, 2, 2), flags=owned))


@pytest.mark.parametrize("rank", range(1, 9))
@pytest.mark.parametrize("data_type", DataType)
def test_feature_levels(data_type: DataType, rank: int) -> None:
    desc = SliceDesc(
        input_tensor=TensorDesc(data_type, (2,) * rank), offsets=(0,) * rank, sizes=(2,) * rank, strides=(1,) * rank
    )
    if data_type in (DataType.FLOAT64, DataType.INT64, DataType.UINT64):
        expected = 0x4100
    elif rank not in (4, 5):
        expected = 0x3000
    else:
        expected = 0x2100 if data_type in (DataType.INT8, DataType.UINT8) else 0x1000
    assert desc.minimum_feature_level == expected
