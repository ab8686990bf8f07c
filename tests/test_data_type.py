"""DataType: DirectML's values, and NumPy's dtypes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
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


@pytest.mark.parametrize("data_type", DataType)
def test_it_speaks_numpy_s_names(data_type: DataType) -> None:
    """In the same way on every version of Python, whose IntEnums differ."""
    name = data_type.name.lower()
    assert str(data_type) == f"{data_type}" == f"{data_type!s}" == "%s" % data_type == name  # noqa: UP031
    assert f"{data_type:>8}" == name.rjust(8) and "{:s}".format(data_type) == name  # noqa: UP032
    assert f"{data_type:d}" == str(int(data_type)) and f"{data_type:03x}" == f"{int(data_type):03x}"
    assert json.dumps(data_type) == str(int(data_type)) and data_type + 0 == int(data_type)


@pytest.mark.parametrize("data_type", DataType)
def test_it_is_found_by_whatever_names_it(data_type: DataType) -> None:
    name = data_type.name.lower()
    dtype = np.dtype(name)
    names = [name, name.upper(), name.title(), dtype, dtype.type, dtype.newbyteorder(), dtype.str, np.str_(name)]
    for known in [*names, int(data_type), np.int64(data_type), data_type, torch_dtype(name)]:
        assert DataType(known) is data_type
    for known in [*names, torch_dtype(name)]:
        assert DataType.from_numpy(known) is data_type


def torch_dtype(name: str) -> Any:
    """What stands for torch.<name>: its dtypes are no NumPy dtypes, and torch need not be installed."""
    return type("dtype", (), {"__module__": "torch", "__str__": lambda self: f"torch.{name}"})()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("unit8", "'unit8' is no NumPy dtype; supported are float32, .*did you mean uint8"),
        ("FLOAT", "did you mean float64 or float32 or float16"),
        ("x" * 100_000, "is no NumPy dtype"),
        ("", "is no NumPy dtype"),
        (0, "0 is no data type; a name such as 'uint8', a NumPy dtype or FLOAT32 = 1, .*, INT64 = 11"),
        (None, "None is no data type"),
        (False, "False is no data type"),
        (1.5, "1.5 is no data type"),
        ([1], "is no NumPy dtype"),
        (object(), "is no NumPy dtype"),
        ("complex64", "has no DirectML data type"),
    ],
)
def test_what_names_no_data_type_is_a_value_error_that_teaches(name: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        DataType(name)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    ("dtype", "advice"),
    [
        (bool, r"dtype bool .* array\.view\(np\.uint8\)"),
        (np.dtype(bool), r"dtype bool .* array\.view\(np\.uint8\)"),
        ("bool", r"dtype bool .* array\.view\(np\.uint8\)"),
        ("bfloat16", r"dtype bfloat16 .* array\.astype\(np\.float32\)"),
        (torch_dtype("bfloat16"), r"dtype bfloat16 .* array\.astype\(np\.float32\)"),
        (torch_dtype("bool"), r"dtype bool .* array\.view\(np\.uint8\)"),
        ("complex128", r"array\.view\(np\.float64\)"),
        ("datetime64[s]", r"array\.view\(np\.int64\)"),
    ],
)
def test_dtypes_that_directml_lacks_come_with_what_to_do_instead(dtype: Any, advice: str) -> None:
    with pytest.raises(TypeError, match=advice):
        DataType.from_numpy(dtype)
    with pytest.raises(ValueError, match=advice):
        DataType(dtype)


def test_what_the_advice_says_is_so() -> None:
    bits = np.array([True, False, True])
    assert bits.view(np.uint8).tolist() == [1, 0, 1]
    assert np.array([1 + 2j], np.complex64).view(np.float32).tolist() == [1, 2]
