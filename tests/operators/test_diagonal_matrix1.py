"""The rules of DML_DIAGONAL_MATRIX1_OPERATOR_DESC, and its feature level."""

from __future__ import annotations

import dataclasses
import itertools
import struct
from typing import Any

import numpy as np
import pytest

from dmlvk.data_type import DataType
from dmlvk.errors import DescriptorError
from dmlvk.operators import DiagonalMatrix1Desc
from dmlvk.tensor_desc import TensorDesc, TensorFlags

FLOAT32 = DataType.FLOAT32
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


def describe(**changes: Any) -> DiagonalMatrix1Desc:
    """The page's example 1, with changes."""
    fields: dict[str, Any] = {
        "output_tensor": TensorDesc(FLOAT32, (4, 5)),
        "value_data_type": None,
        "value": 7,
        "diagonal_fill_begin": 0,
        "diagonal_fill_end": 1,
    }
    return DiagonalMatrix1Desc(**(fields | changes))


def refused(field: str, value: object, rule: str, /, **changes: Any) -> DescriptorError:
    with pytest.raises(DescriptorError) as caught:
        describe(**changes)
    assert (caught.value.descriptor, caught.value.field) == ("DiagonalMatrix1Desc", field)
    assert caught.value.value == value
    assert rule in caught.value.rule
    assert field in str(caught.value) and repr(value) in str(caught.value)
    return caught.value


def value_bytes(value: object, data_type: DataType) -> bytes:
    return describe(output_tensor=TensorDesc(data_type, (2, 2)), value=value).value_bytes


def test_page_example_1() -> None:
    desc = describe(value_data_type=FLOAT32)
    assert desc.value_bytes == struct.pack("<f", 7)
    assert desc.diagonal_range == (0, 1, True)
    assert list(desc.tensors) == ["output_tensor"]
    assert list(describe(input_tensor=TensorDesc(FLOAT32, (4, 5))).tensors) == ["input_tensor", "output_tensor"]


@pytest.mark.parametrize("sizes", [(4,), (1, 1, 1, 4, 5)])
def test_rank_is_2_to_4(sizes: tuple[int, ...]) -> None:
    refused("output_tensor.sizes", sizes, "takes 2 to 4 dimensions", output_tensor=TensorDesc(FLOAT32, sizes))


def test_tensors_must_have_the_same_data_type() -> None:
    tensor = TensorDesc(DataType.INT32, (4, 5))
    refused("input_tensor.data_type", "INT32", "same DataType", input_tensor=tensor)


def test_tensors_must_have_the_same_dimension_count() -> None:
    tensor = TensorDesc(FLOAT32, (1, 4, 5))
    refused("input_tensor.sizes", (1, 4, 5), "same DimensionCount", input_tensor=tensor)


def test_input_sizes_must_equal_output_sizes() -> None:
    error = refused("input_tensor.sizes", (1, 5), "strides of 0", input_tensor=TensorDesc(FLOAT32, (1, 5)))
    assert error.expected == "(4, 5)"


def test_an_input_broadcasts_by_strides_of_0() -> None:
    describe(input_tensor=TensorDesc(FLOAT32, (4, 5), (0, 1)))


def test_without_an_input_the_output_must_be_there() -> None:
    refused("output_tensor", None, "without an input_tensor no other field says how large", output_tensor=None)
    with pytest.raises(DescriptorError, match="must be a TensorDesc: without an input_tensor"):
        DiagonalMatrix1Desc(value=1, diagonal_fill_begin=0, diagonal_fill_end=1)


def test_without_an_output_it_is_as_the_input() -> None:
    source = TensorDesc(DataType.INT16, (4, 5), (0, 1), flags=TensorFlags.OWNED_BY_DML)
    desc = describe(input_tensor=source, output_tensor=None)
    assert desc == describe(input_tensor=source, output_tensor=TensorDesc(DataType.INT16, (4, 5)))
    assert desc.value_data_type is DataType.INT16 and desc.value_bytes == struct.pack("<h", 7)


def test_without_an_output_errors_are_about_the_other_fields() -> None:
    left_out: dict[str, Any] = {"input_tensor": TensorDesc(DataType.INT8, (4, 5)), "output_tensor": None}
    refused("input_tensor.sizes", (4,), "2 to 4 dimensions", output_tensor=None, input_tensor=TensorDesc("int8", (4,)))
    refused("value_data_type", "FLOAT32", "must match", **left_out, value_data_type=FLOAT32)
    refused("value", 128, "must be a value of INT8", **left_out, value=128)
    refused("diagonal_fill_end", 2**31, "signed 32-bit", output_tensor=None, diagonal_fill_end=2**31)
    refused("input_tensor", 5, "must be a TensorDesc, not int", output_tensor=None, input_tensor=5)


def test_value_data_type_must_match_the_output() -> None:
    error = refused(
        "value_data_type", "INT8", "must match the DataType of output_tensor", value_data_type=DataType.INT8
    )
    assert error.expected == "FLOAT32"
    refused("value_data_type", 77, "data types", value_data_type=77)


def test_value_data_type_defaults_to_that_of_the_output() -> None:
    assert describe().value_data_type is FLOAT32
    assert describe() == describe(value_data_type=1) == describe(value_data_type=np.float32)


@pytest.mark.parametrize("data_type", [t for t in DataType if not t.is_floating_point])
def test_integer_values_keep_every_bit_and_do_not_wrap(data_type: DataType) -> None:
    limits = np.iinfo(data_type.numpy_dtype)
    for number in (int(limits.min), int(limits.max), 1):
        assert value_bytes(number, data_type) == np.array(number, data_type.numpy_dtype).tobytes()
        assert value_bytes(data_type.numpy_dtype.type(number), data_type) == value_bytes(number, data_type)
    output = TensorDesc(data_type, (4, 5))
    for number in (int(limits.min) - 1, int(limits.max) + 1):
        error = refused("value", number, f"must be a value of {data_type.name}", output_tensor=output, value=number)
        assert error.expected == f"an integer from {limits.min} to {limits.max}"
    refused("value", 1.5, "must be a value of", output_tensor=output, value=1.5)


@pytest.mark.parametrize("data_type", [DataType.FLOAT16, DataType.FLOAT32, DataType.FLOAT64])
def test_floating_point_values_keep_their_bits(data_type: DataType) -> None:
    size = data_type.size_in_bytes
    for pattern in (0, 1, 1 << (8 * size - 1), (1 << (8 * size)) - 3, (1 << (8 * size - 1)) - 2):
        bits = pattern.to_bytes(size, "little")
        scalar = np.frombuffer(bits, data_type.numpy_dtype)[0]
        assert value_bytes(scalar, data_type) == bits
        assert value_bytes(np.array(scalar), data_type) == bits
        assert value_bytes(bits, data_type) == bits


def test_other_numbers_are_rounded_to_the_nearest_value() -> None:
    assert value_bytes(0.1, FLOAT32) == np.float32(0.1).tobytes()
    assert value_bytes(np.float64(0.1), DataType.FLOAT16) == np.float16(0.1).tobytes()
    assert value_bytes(True + 2, FLOAT32) == np.float32(3).tobytes()
    assert value_bytes(float("inf"), FLOAT32) == np.float32(np.inf).tobytes()


def test_large_integers_are_rounded_once() -> None:
    # The value lies just above the tie between 2**60 and its successor 2**60 + 2**37. Rounding to binary64 first would
    # make it the tie, which rounds down.
    assert value_bytes(2**60 + 2**36 + 1, FLOAT32) == np.array(2.0**60 + 2.0**37, np.float32).tobytes()
    assert value_bytes(-(2**60) - 2**36, FLOAT32) == np.array(-(2.0**60), np.float32).tobytes()
    assert value_bytes(2**60 + 129, DataType.FLOAT64) == np.array(2.0**60 + 256).tobytes()


@pytest.mark.parametrize(("value", "data_type"), [(1e39, FLOAT32), (70000, DataType.FLOAT16), (10**60, FLOAT32)])
def test_a_finite_value_may_not_become_infinite(value: float, data_type: DataType) -> None:
    refused("value", value, "too large", output_tensor=TensorDesc(data_type, (2, 2)), value=value)


@pytest.mark.parametrize("value", [True, "7", None, 1j])
def test_the_value_is_one_number(value: object) -> None:
    refused("value", value, "must be one number", value=value)


def test_bytes_are_one_element() -> None:
    refused("value", b"\0\0", "one element of FLOAT32", value=b"\0\0")


def test_equality_goes_by_the_bits_of_the_value() -> None:
    nan = np.frombuffer(b"\x01\x00\xc0\x7f", np.float32)[0]
    assert describe(value=nan) == describe(value=nan) and hash(describe(value=nan)) == hash(describe(value=nan))
    assert describe(value=nan) != describe(value=float("nan"))
    assert describe(value=0.0) != describe(value=-0.0)
    assert describe(value=7) == describe(value=np.float32(7))
    assert dataclasses.replace(describe(value=nan), diagonal_fill_begin=-1).value_bytes == b"\x01\x00\xc0\x7f"


@pytest.mark.parametrize("field", ["diagonal_fill_begin", "diagonal_fill_end"])
@pytest.mark.parametrize("limit", [INT32_MIN - 1, INT32_MAX + 1])
def test_fill_limits_have_32_signed_bits(field: str, limit: int) -> None:
    refused(field, limit, "signed 32-bit", **{field: limit})


@pytest.mark.parametrize("field", ["diagonal_fill_begin", "diagonal_fill_end"])
def test_fill_limits_are_integers(field: str) -> None:
    refused(field, 0.0, "integer, not float", **{field: 0.0})


def test_the_diagonal_range_is_the_page_s_formula() -> None:
    limits = [INT32_MIN, -5, -4, -3, -1, 0, 1, 2, 3, 4, 5, 6, INT32_MAX]
    for begin, end in itertools.product(limits, limits):
        low, high, inside = describe(diagonal_fill_begin=begin, diagonal_fill_end=end).diagonal_range
        assert 1 - 4 <= low <= high <= 5
        for t in range(1 - 4, 5):
            assert ((low <= t < high) == inside) == ((end >= begin) ^ (t >= begin) ^ (t < end))


def test_the_extreme_limits_are_open_ends() -> None:
    wide = TensorDesc(DataType.UINT8, (1, 2**32 - 1))
    desc = describe(output_tensor=wide, diagonal_fill_begin=5, diagonal_fill_end=INT32_MAX)
    assert desc.diagonal_range == (5, 2**32 - 1, True)
    tall = TensorDesc(DataType.UINT8, (2**32 - 1, 1))
    desc = describe(output_tensor=tall, diagonal_fill_begin=INT32_MIN, diagonal_fill_end=-7)
    assert desc.diagonal_range == (2 - 2**32, -7, True)


def test_output_elements_may_not_overlap() -> None:
    output = TensorDesc(FLOAT32, (4, 5), (4, 1))
    refused("output_tensor.strides", (4, 1), "may not overlap", output_tensor=output)


def test_only_inputs_can_be_owned_by_dml() -> None:
    flags = TensorFlags.OWNED_BY_DML
    describe(input_tensor=TensorDesc(FLOAT32, (4, 5), flags=flags))
    output = TensorDesc(FLOAT32, (4, 5), flags=flags)
    refused("output_tensor.flags", flags, "only inputs", output_tensor=output)


@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize("data_type", DataType)
def test_feature_level(data_type: DataType, rank: int) -> None:
    assert describe(output_tensor=TensorDesc(data_type, (2,) * rank), value=1).minimum_feature_level == 0x5100
