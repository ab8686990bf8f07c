"""The rules of DML_MAX_POOLING2_OPERATOR_DESC, and those of windows that it shares with average pooling."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dmlvk.data_type import DataType
from dmlvk.errors import DescriptorError
from dmlvk.operators import FeatureLevel, MaxPooling2Desc
from dmlvk.operators.pooling import first_of
from dmlvk.tensor_desc import TensorDesc

INT8 = DataType.INT8


def describe(**changes: Any) -> MaxPooling2Desc:
    fields: dict[str, Any] = {
        "input_tensor": TensorDesc(INT8, (2, 3, 10, 7)),
        "strides": (2, 1),
        "window_size": (3, 2),
        "start_padding": (1, 0),
        "end_padding": (2, 1),
        "dilations": (1, 3),
    }
    return MaxPooling2Desc(**(fields | changes))


def refused(field: str, rule: str, **changes: Any) -> DescriptorError:
    with pytest.raises(DescriptorError) as caught:
        describe(**changes)
    assert caught.value.descriptor == "MaxPooling2Desc"
    assert caught.value.field == field and rule in caught.value.rule, str(caught.value)
    return caught.value


def test_the_output_has_an_element_for_each_window() -> None:
    desc = describe()
    # floor((10 + 1 + 2 - 3) / 2) + 1, floor((7 + 0 + 1 - 4) / 1) + 1
    assert desc.output_tensor == TensorDesc(INT8, (2, 3, 6, 5))
    assert desc.output_indices_tensor is None
    assert list(desc.tensors) == ["input_tensor", "output_tensor"]
    assert desc == describe(output_tensor=TensorDesc(INT8, (2, 3, 6, 5)))
    assert "output_tensor" not in repr(desc)


def test_indices_are_an_output_that_may_be_absent() -> None:
    desc = describe(output_indices_tensor=TensorDesc(DataType.UINT32, (2, 3, 6, 5)))
    assert desc.output_fields == ("output_tensor", "output_indices_tensor")
    assert list(desc.tensors) == ["input_tensor", "output_tensor", "output_indices_tensor"]
    refused("output_indices_tensor.data_type", "data type", output_indices_tensor=TensorDesc(INT8, (2, 3, 6, 5)))
    indices = TensorDesc(DataType.UINT32, (2, 3, 6, 4))
    refused("output_indices_tensor.sizes", "sizes of output_tensor", output_indices_tensor=indices)


def test_a_volume_has_three_elements_in_each_array() -> None:
    source = TensorDesc(DataType.UINT64, (1, 2, 3, 4, 5))
    one, zero = (1, 1, 1), (0, 0, 0)
    desc = describe(
        input_tensor=source, strides=one, window_size=(2, 2, 2), start_padding=zero, end_padding=zero, dilations=one
    )
    assert desc.output_tensor.sizes == (1, 2, 2, 3, 4)
    assert desc.geometry.input_size == (3, 4, 5)


def test_types_and_ranks() -> None:
    refused("input_tensor.data_type", "data type", input_tensor=TensorDesc(DataType.FLOAT32, (2, 3, 10, 7)))
    refused("input_tensor.sizes", "4 to 5 dimensions", input_tensor=TensorDesc(INT8, (2, 10, 7)))
    refused("output_tensor.data_type", "same DataType", output_tensor=TensorDesc(DataType.UINT8, (2, 3, 6, 5)))
    refused("output_tensor.sizes", "floor((input", output_tensor=TensorDesc(INT8, (2, 3, 5, 5)))
    refused("output_tensor.strides", "overlap", output_tensor=TensorDesc(INT8, (2, 3, 6, 5), (0, 30, 5, 1)))


@pytest.mark.parametrize("field", ["strides", "window_size", "dilations"])
def test_arrays_of_at_least_1(field: str) -> None:
    refused(f"{field}[1]", "must be 1 or more", **{field: (1, 0)})
    refused(field, "one element for each dimension", **{field: (1, 1, 1)})


def test_padding_of_at_least_0() -> None:
    refused("end_padding[0]", "must be 0 or more", end_padding=(-1, 0))


def test_a_window_may_not_be_larger_than_the_padded_input() -> None:
    error = refused("window_size[0]", "may not be larger than the padded input, 10 + 1 + 2 = 13", window_size=(14, 2))
    assert error.value == 14
    refused("window_size[1]", "1 + (window_size - 1) * dilations = 10", window_size=(3, 4))


@pytest.mark.parametrize(
    ("field", "reason", "changes"),
    [
        ("start_padding[0]", "window 0 along spatial dimension 0 has none: the first window ends at -1", {
            "start_padding": (3, 0)}),
        ("end_padding[0]", "window 6 along spatial dimension 0 has none: the last window begins at 11", {
            "end_padding": (4, 1)}),
        ("start_padding[1]", "window 0 along spatial dimension 1 has none: a dilation of 9 steps over", {
            "start_padding": (1, 1), "dilations": (1, 9), "end_padding": (2, 3)}),
    ],
)  # fmt: skip
def test_each_window_has_a_tap_inside_the_input(field: str, reason: str, changes: dict[str, Any]) -> None:
    refused(field, reason, **changes)


def test_the_first_remainder_of_at_least_a_limit_is_found() -> None:
    """Against one after the other; and for numbers for which that would take hours."""
    numbers = random.Random(3)
    for _ in range(3000):
        count, step, modulus = (numbers.randint(1, 40) for _ in range(3))
        start, limit = numbers.randint(-50, 50), numbers.randint(0, 45)
        expected = next((i for i in range(count) if (start + i * step) % modulus >= limit), None)
        assert first_of(count, step, start, modulus, limit) == expected, (count, step, start, modulus, limit)
    assert first_of(1 << 32, 1, 0, 1 << 32, (1 << 32) - 1) == (1 << 32) - 1
    assert first_of(1 << 32, 2, 0, 1 << 32, (1 << 32) - 1) is None


def test_minimum_feature_levels() -> None:
    assert describe().minimum_feature_level is FeatureLevel.FEATURE_LEVEL_3_0
    desc = describe(input_tensor=TensorDesc(DataType.INT64, (2, 3, 10, 7)))
    assert desc.minimum_feature_level is FeatureLevel.FEATURE_LEVEL_5_0
