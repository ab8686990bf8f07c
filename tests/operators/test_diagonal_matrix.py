"""The rules of DML_DIAGONAL_MATRIX_OPERATOR_DESC, and its feature levels."""

from __future__ import annotations

import dataclasses
import math
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dmlvk.data_type import DataType
from dmlvk.errors import DescriptorError
from dmlvk.operators import DiagonalMatrixDesc
from dmlvk.tensor_desc import TensorDesc, TensorFlags

FLOAT32 = DataType.FLOAT32
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


def describe(**changes: Any) -> DiagonalMatrixDesc:
    """The page's example 1, with changes."""
    fields: dict[str, Any] = {"output_tensor": TensorDesc(FLOAT32, (1, 1, 3, 3)), "offset": 0, "value": 1.0}
    return DiagonalMatrixDesc(**(fields | changes))


def refused(field: str, value: object, rule: str, /, **changes: Any) -> DescriptorError:
    with pytest.raises(DescriptorError) as caught:
        describe(**changes)
    assert (caught.value.descriptor, caught.value.field) == ("DiagonalMatrixDesc", field)
    assert caught.value.value is value or caught.value.value == value
    assert rule in caught.value.rule
    assert field in str(caught.value)
    return caught.value


def element(value: object, data_type: DataType) -> Any:
    desc = describe(output_tensor=TensorDesc(data_type, (2, 2)), value=value)
    return np.frombuffer(desc.value_bytes, data_type.numpy_dtype)[0]


def test_page_example_1() -> None:
    desc = describe()
    assert desc.value_bytes == struct.pack("<f", 1)
    assert desc.diagonal_range == (0, 1, True)
    assert list(desc.tensors) == ["output_tensor"]
    assert desc.operator_name == "DIAGONAL_MATRIX"


@pytest.mark.parametrize("sizes", [(4,), (1, 1, 1, 4, 5)])
def test_rank_is_2_to_4(sizes: tuple[int, ...]) -> None:
    refused("output_tensor.sizes", sizes, "takes 2 to 4 dimensions", output_tensor=TensorDesc(FLOAT32, sizes))


def test_the_output_must_be_there() -> None:
    refused("output_tensor", None, "no other field says how large", output_tensor=None)
    with pytest.raises(DescriptorError, match="output_tensor = None: must be a TensorDesc"):
        DiagonalMatrixDesc(offset=0, value=1.0)  # type: ignore[call-arg]
    refused("offset", 1.0, "integer, not float", output_tensor=None, offset=1.0)


@pytest.mark.parametrize("limit", [INT32_MIN - 1, INT32_MAX + 1])
def test_the_offset_has_32_signed_bits(limit: int) -> None:
    refused("offset", limit, "signed 32-bit", offset=limit)
    refused("offset", 1.0, "integer, not float", offset=1.0)


@pytest.mark.parametrize("offset", [INT32_MIN, -3, 3, INT32_MAX - 1, INT32_MAX])
def test_an_offset_past_the_matrix_fills_nothing(offset: int) -> None:
    low, high, inside = describe(offset=offset).diagonal_range
    assert inside and low == high


def test_the_ends_of_32_bits_are_no_open_ends() -> None:
    wide = TensorDesc(DataType.UINT8, (1, 2**32 - 1))
    assert describe(output_tensor=wide, offset=INT32_MAX).diagonal_range == (INT32_MAX, INT32_MAX + 1, True)
    tall = TensorDesc(DataType.UINT8, (2**32 - 1, 1))
    assert describe(output_tensor=tall, offset=INT32_MIN).diagonal_range == (INT32_MIN, INT32_MIN + 1, True)


@pytest.mark.parametrize("data_type", [t for t in DataType if not t.is_floating_point])
def test_integers_are_truncated_towards_zero(data_type: DataType) -> None:
    assert element(10.6, data_type) == 10
    assert element(0.99, data_type) == element(-0.99, data_type) == 0
    if data_type.is_signed_integer:
        assert element(-10.6, data_type) == -10


def test_the_value_is_a_float_whatever_the_output() -> None:
    assert element(2**24 + 1, DataType.INT64) == 2**24
    assert element(2**63, DataType.UINT64) == 2**63
    assert element(0.1, DataType.FLOAT64) == np.float64(np.float32(0.1))
    # The value lies between two FLOAT16 numbers, beside their tie. As a FLOAT it is the tie.
    assert element(Fraction(2**11 + 1) + Fraction(1, 2**40), DataType.FLOAT16) == 2**11


@pytest.mark.parametrize("data_type", [t for t in DataType if not t.is_floating_point])
def test_integers_do_not_wrap(data_type: DataType) -> None:
    limits = np.iinfo(data_type.numpy_dtype)
    output = TensorDesc(data_type, (2, 2))
    for value in (2.0 * limits.max, -2.0 * limits.max - 2, math.inf, -math.inf, math.nan):
        error = refused(
            "value", value, f"must be in the range of {data_type.name} after", output_tensor=output, value=value
        )
        assert error.expected == f"a number from {limits.min} to {limits.max}"


def test_floats_keep_their_bits() -> None:
    for pattern in (0x7FC01234, 0xFF800001, 0x80000000, 1, 0x807FFFFF):
        bits = pattern.to_bytes(4, "little")
        scalar = np.frombuffer(bits, np.float32)[0]
        for value in (bits, scalar, np.array(scalar)):
            assert describe(value=value).value_bytes == bits
    assert math.isnan(element(math.nan, DataType.FLOAT16)) and math.isnan(element(math.nan, DataType.FLOAT64))
    assert math.copysign(1, element(-0.0, DataType.FLOAT16)) == -1


@pytest.mark.parametrize(("value", "data_type"), [(1e39, FLOAT32), (70000, DataType.FLOAT16), (1e39, DataType.FLOAT64)])
def test_a_finite_value_may_not_become_infinite(value: float, data_type: DataType) -> None:
    refused("value", value, "too large", output_tensor=TensorDesc(data_type, (2, 2)), value=value)


@pytest.mark.parametrize("value", [True, "7", None, 1j])
def test_the_value_is_one_number(value: object) -> None:
    refused("value", value, "must be one number", value=value)


def test_bytes_are_one_float() -> None:
    output = TensorDesc(DataType.INT64, (2, 2))
    refused("value", bytes(8), "one element of FLOAT32", output_tensor=output, value=bytes(8))
    assert element(struct.pack("<f", 5.5), DataType.INT64) == 5


def test_equality_goes_by_the_bits_of_the_value() -> None:
    nan = np.frombuffer(b"\x01\x00\xc0\x7f", np.float32)[0]
    assert describe(value=nan) == describe(value=nan) and hash(describe(value=nan)) == hash(describe(value=nan))
    assert describe(value=nan) != describe(value=math.nan)
    assert describe(value=0.0) != describe(value=-0.0)
    assert describe(value=7) == describe(value=np.float32(7))
    assert dataclasses.replace(describe(value=nan), offset=-1).value_bytes == b"\x01\x00\xc0\x7f"


def test_rules_of_outputs() -> None:
    overlapping = TensorDesc(FLOAT32, (4, 5), (0, 1))
    refused("output_tensor.strides", (0, 1), "may not overlap", output_tensor=overlapping)
    owned = TensorFlags.OWNED_BY_DML
    refused("output_tensor.flags", owned, "only inputs", output_tensor=TensorDesc(FLOAT32, (4, 5), flags=owned))


@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize("data_type", DataType)
def test_feature_levels(data_type: DataType, rank: int) -> None:
    desc = describe(output_tensor=TensorDesc(data_type, (2,) * rank))
    if data_type in (DataType.FLOAT64, DataType.INT64, DataType.UINT64):
        expected = 0x5100
    elif rank < 4:
        expected = 0x4000
    else:
        expected = 0x2000 if data_type in (FLOAT32, DataType.FLOAT16) else 0x2100
    assert desc.minimum_feature_level == expected
