"""DataType: DirectML's values, and NumPy's dtypes."""

from __future__ import annotations

import pytest

from dmlvk.data_type import DataType


def test_values_are_directml_s() -> None:
    names = "FLOAT32 FLOAT16 UINT32 UINT16 UINT8 INT32 INT16 INT8 FLOAT64 UINT64 INT64"
    assert [member.name for member in DataType] == names.split()
    assert [member.value for member in DataType] == list(range(1, 12))


@pytest.mark.parametrize("data_type", DataType)
def test_numpy_dtypes_have_the_same_bits(data_type: DataType) -> None:
    dtype = data_type.numpy_dtype
    assert DataType.from_numpy(dtype) is data_type
    assert DataType.from_numpy(dtype.name) is data_type and DataType.from_numpy(dtype.type) is data_type
    assert data_type.size_in_bytes == dtype.itemsize == int("".join(filter(str.isdigit, data_type.name))) // 8
    assert data_type.is_floating_point == (dtype.kind == "f")
    assert data_type.is_signed_integer == (dtype.kind == "i")


@pytest.mark.parametrize("dtype", ["bool", "complex64", "U4", "S4", "datetime64[s]", "object", "i4,f4"])
def test_other_dtypes_are_refused_with_those_that_there_are(dtype: str) -> None:
    with pytest.raises(TypeError, match=r"has no DirectML data type; supported are float32, float16.*int64"):
        DataType.from_numpy(dtype)


@pytest.mark.parametrize("value", [0, 12, 13, -1])
def test_unknown_and_4_bit_types_are_left_out(value: int) -> None:
    with pytest.raises(ValueError, match=str(value)):
        DataType(value)
