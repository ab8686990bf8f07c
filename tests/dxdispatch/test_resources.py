"""Resources: every kind of initial values, in every data type, with NumPy's arithmetic as the oracle."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image

import dmlvk
from dmlvk import DataType
from tests.dxdispatch.models import initial, refused, write

TYPES = [data_type.name for data_type in DataType]
INTEGERS = [name for name in TYPES if "INT" in name]
FLOATS = [name for name in TYPES if "FLOAT" in name]


def one(resource: Any) -> dict[str, Any]:
    return {"resources": {"A": resource}, "dispatchables": {}, "commands": []}


def random_values(name: str, count: int) -> np.ndarray:
    """Finite values of a data type, without zeros."""
    random = np.random.default_rng(len(name) + count)
    dtype = DataType[name].numpy_dtype
    if name in FLOATS:
        return random.normal(size=count).astype(dtype)
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, count, dtype, endpoint=True) | dtype.type(1)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("prefix", ["", "DML_TENSOR_DATA_TYPE_"])
def test_a_list(tmp_path: Path, name: str, prefix: str) -> None:
    values = random_values(name, 37)
    found = initial(tmp_path, {"initialValuesDataType": prefix + name, "initialValues": values.tolist()})
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("name", TYPES)
def test_a_constant(tmp_path: Path, name: str) -> None:
    value = random_values(name, 1)
    generator = {"valueCount": 13, "value": value.item()}
    found = initial(tmp_path, {"initialValuesDataType": name, "initialValues": generator})
    assert found.dtype == value.dtype
    np.testing.assert_array_equal(found, np.repeat(value, 13))


@pytest.mark.parametrize("name", TYPES)
def test_a_sequence_is_summed_in_the_type(tmp_path: Path, name: str) -> None:
    """Integers wrap, and each sum of floats is rounded: 0.1 a thousand times is not 100."""
    dtype = DataType[name].numpy_dtype
    start, delta = (dtype.type(3.3), dtype.type(0.1)) if name in FLOATS else (dtype.type(120), dtype.type(119))
    values, value = [], start
    with np.errstate(over="ignore"):
        for _ in range(1000):
            values.append(value)
            value = dtype.type(value + delta)
    generator = {"valueCount": 1000, "valueStart": start.item(), "valueDelta": delta.item()}
    found = initial(tmp_path, {"initialValuesDataType": name, "initialValues": generator})
    np.testing.assert_array_equal(found, np.array(values, dtype))


@pytest.mark.parametrize("name", FLOATS)
def test_special_floats_in_any_case(tmp_path: Path, name: str) -> None:
    values = ["NaN", "inf", "-INF", "Inf", 1, -0.0, 1e-7]
    found = initial(tmp_path, {"initialValuesDataType": name, "initialValues": values})
    expected = np.array([np.nan, np.inf, -np.inf, np.inf, 1, -0.0, 1e-7], DataType[name].numpy_dtype)
    np.testing.assert_array_equal(found, expected)
    assert np.signbit(found).tolist() == np.signbit(expected).tolist()


def test_float16_is_rounded_by_way_of_float32(tmp_path: Path) -> None:
    """1 + 2**-11 + 2**-40 is above the middle of two halves, but float32 rounds it to the middle: C++ does that too."""
    value = 1 + 2**-11 + 2**-40
    assert np.float16(value) != np.float16(np.float32(value))
    (found,) = initial(tmp_path, {"initialValuesDataType": "FLOAT16", "initialValues": [value]})
    assert found == np.float16(np.float32(value))


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("kind", ["above", "below", "float", "text", "bool", "null"])
def test_integers_are_strict(tmp_path: Path, name: str, kind: str) -> None:
    limits = np.iinfo(DataType[name].numpy_dtype)
    values = {"above": int(limits.max) + 1, "below": int(limits.min) - 1, "float": 1.0, "text": "1", "bool": True}
    resource: dict[str, Any] = {"initialValuesDataType": name, "initialValues": [1, 2, values.get(kind)]}
    words = (f"from {limits.min} to {limits.max}",)
    refused(tmp_path, one(resource), "resources.A.initialValues[2]", *words)
    resource["initialValues"] = {"valueCount": 3, "value": values.get(kind)}
    refused(tmp_path, one(resource), "resources.A.initialValues.value", *words)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FLOAT16", 65520),
        ("FLOAT32", 3.5e38),
        ("FLOAT64", 10**400),
        ("FLOAT32", "1"),
        ("FLOAT16", True),
        ("FLOAT32", None),
    ],
    ids=lambda value: str(value)[:9],
)
def test_floats_that_are_none_are_refused(tmp_path: Path, name: str, value: Any) -> None:
    resource = {"initialValuesDataType": name, "initialValues": [1.5, value]}
    refused(tmp_path, one(resource), "resources.A.initialValues[1]", "number")


def test_mixed_values(tmp_path: Path) -> None:
    values = [
        {"name": "ignored", "type": "UINT8", "value": 200},
        {"type": "FLOAT32", "value": "nan"},
        {"type": "DML_TENSOR_DATA_TYPE_INT16", "value": -2},
        {"type": "FLOAT64", "value": 0.1},
    ]
    parts: list[Any] = [np.uint8(200), np.float32(np.nan), np.int16(-2), np.float64(0.1)]
    expected = b"".join(part.tobytes() for part in parts)
    assert initial(tmp_path, {"initialValues": values}).tobytes() == expected
    assert initial(tmp_path, {"initialValuesDataType": "UNKNOWN", "initialValues": values}).tobytes() == expected
    refused(tmp_path, one({"initialValues": [1, 2]}), "resources.A.initialValues[0]", "initialValuesDataType")
    half = {"initialValues": [{"type": "FLOAT16", "value": 1}]}
    refused(tmp_path, one(half), "resources.A.initialValues[0].type", "FLOAT16")


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("order", ["<", ">"])
def test_npy(tmp_path: Path, name: str, order: Literal["<", ">"]) -> None:
    values = random_values(name, 30).reshape(5, 6)
    np.save(tmp_path / "values.npy", values.astype(values.dtype.newbyteorder(order)))
    found = initial(tmp_path, {"initialValues": {"sourcePath": "values.npy"}})
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values.reshape(-1))
    resource = {"initialValuesDataType": name, "initialValues": {"sourcePath": "values.npy"}}
    np.testing.assert_array_equal(initial(tmp_path, resource), values.reshape(-1))
    resource["initialValuesDataType"] = "INT8" if name != "INT8" else "UINT8"
    refused(tmp_path, one(resource), "resources.A.initialValuesDataType", f"expected {name}")


def test_npy_of_bools_is_uint8(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 2, 40).astype(bool)
    np.save(tmp_path / "values.npy", values)
    found = initial(tmp_path, {"initialValues": {"sourcePath": "values.npy"}})
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize(
    "kind", ["fortran", "complex", "damaged", "no header", "object", "empty", "archive", "missing", "folder"]
)
def test_npy_that_cannot_be_used_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "values.npy"
    arrays = {
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "complex": np.ones(3, complex),
        "object": np.array([{}], object),
        "empty": np.empty(0, np.float32),
        "damaged": np.arange(100.0),
    }
    if kind in arrays:
        np.save(path, arrays[kind], allow_pickle=True)
    if kind == "damaged":
        path.write_bytes(path.read_bytes()[:200])
    elif kind == "no header":
        path.write_bytes(b"\x93NUMPY\x01\x00\xff")
    elif kind == "archive":
        with open(path, "wb") as file:
            np.savez(file, first=np.ones(3))
    elif kind == "folder":
        path.mkdir()
    key = "resources.A.initialValues" if kind == "empty" else "resources.A.initialValues.sourcePath"
    refused(tmp_path, one({"initialValues": {"sourcePath": "values.npy"}}), key)


def test_raw_files_beside_the_model_come_before_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = random_values("INT16", 9)
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "sub").mkdir()
    elsewhere.mkdir()
    (elsewhere / "values.dat").write_bytes(values.tobytes())
    monkeypatch.chdir(elsewhere)
    resource = {"initialValuesDataType": "INT16", "initialValues": {"sourcePath": "values.dat"}}
    np.testing.assert_array_equal(initial(tmp_path, resource), values)
    (tmp_path / "values.dat").write_bytes((values + 1).tobytes())
    np.testing.assert_array_equal(initial(tmp_path, resource), values + 1)
    (tmp_path / "sub" / "values.dat").write_bytes((values - 1).tobytes())
    resource["initialValues"] = {"sourcePath": "sub\\values.dat"}
    np.testing.assert_array_equal(initial(tmp_path, resource), values - 1)
    del resource["initialValuesDataType"]
    refused(tmp_path, one(resource), "resources.A.initialValuesDataType", "is missing")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no FIFOs in folders")
def test_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "values.dat")
    resource = {"initialValuesDataType": "UINT8", "initialValues": {"sourcePath": "values.dat"}}
    refused(tmp_path, one(resource), "resources.A.initialValues.sourcePath", "FIFO")


@pytest.mark.parametrize("name", ["FLOAT32", "FLOAT16"])
@pytest.mark.parametrize("channels", [3, 4])
def test_a_picture(tmp_path: Path, name: str, channels: int) -> None:
    pixels = np.random.default_rng(1).integers(1, 256, (5, 7, channels), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    resource = {
        "initialValuesDataType": name,
        "initialValues": {"sourcePath": "picture.png"},
        "resampleSize": [1, channels, 5, 7],
        "resampleMode": "scale",
    }
    planes = np.moveaxis(pixels.astype(np.float32) / np.float32(255), 2, 0).astype(DataType[name].numpy_dtype)
    np.testing.assert_array_equal(initial(tmp_path, resource), planes.reshape(-1))
    resource["resampleSize"] = [1, channels, 3, 9]
    scaled = initial(tmp_path, resource)
    assert scaled.shape == (channels * 27,)
    assert 0.2 < scaled.mean() < 0.8


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"initialValuesDataType": "UINT8"}, "FLOAT32 or FLOAT16"),
        ({"resampleSize": [1, 2, 5, 7]}, "3 or 4 channels"),
        ({"resampleSize": [2, 3, 5, 7]}, "3 or 4 channels"),
        ({"resampleSize": []}, "3 or 4 channels"),
        ({"resampleMode": "crop"}, '"scale"'),
    ],
)
def test_a_picture_without_what_it_needs_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    Image.new("RGB", (7, 5), (1, 2, 3)).save(tmp_path / "p.jpg")
    resource = {
        "initialValuesDataType": "FLOAT32",
        "initialValues": {"sourcePath": "p.jpg"},
        "resampleSize": [1, 3, 5, 7],
    }
    initial(tmp_path, resource)
    refused(tmp_path, one(resource | changes), "resources.A.initialValues.sourcePath", words)


def test_without_pillow_a_picture_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (7, 5), (1, 2, 3)).save(tmp_path / "p.png")
    resource = {
        "initialValuesDataType": "FLOAT32",
        "initialValues": {"sourcePath": "p.png"},
        "resampleSize": [1, 3, 5, 7],
    }
    for module in ("PIL", "PIL.Image"):
        monkeypatch.setitem(sys.modules, module, None)
    refused(tmp_path, one(resource), "resources.A.initialValues.sourcePath", "pip install pillow")


def test_sizes_of_the_memory(tmp_path: Path) -> None:
    values = random_values("UINT16", 5)
    resource: dict[str, Any] = {"initialValuesDataType": "UINT16", "initialValues": values.tolist()}
    model = dmlvk.dxdispatch.load(write(tmp_path, one(resource)))
    assert model.resources["A"].size == 12
    assert model.resources["A"].initial_memory == values.tobytes() + b"\0\0"
    resource["sizeInBytes"] = 15
    assert dmlvk.dxdispatch.load(write(tmp_path, one(resource))).resources["A"].size == 15
    found = initial(tmp_path, resource)
    np.testing.assert_array_equal(found, [*values, 0, 0])
    resource["initialValuesOffsetInBytes"] = 5
    np.testing.assert_array_equal(initial(tmp_path, resource), found)  # checked, then ignored
    resource["initialValuesOffsetInBytes"] = 6
    refused(tmp_path, one(resource), "resources.A.sizeInBytes", "16 or more")
    del resource["sizeInBytes"]
    refused(tmp_path, one(resource), "resources.A.initialValuesOffsetInBytes", "too small")
    resource |= {"initialValuesOffsetInBytes": 0, "sizeInBytes": 9}
    refused(tmp_path, one(resource), "resources.A.sizeInBytes", "10 or more")


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ([], "initialValues"),
        ({}, "initialValues"),
        (None, "initialValues"),
        ("deferred", "initialValues"),
        ({"value": 1}, "initialValues.valueCount"),
        ({"valueCount": 0, "value": 1}, "initialValues.valueCount"),
        ({"valueCount": 2**32, "value": 1}, "initialValues.valueCount"),
        ({"valueCount": 3, "valueStart": 1}, "initialValues.valueDelta"),
        ({"valueCount": 3, "valueStart": 1, "value": 1}, "initialValues"),
        ({"sourcePath": 3}, "initialValues.sourcePath"),
        ({"sourcePath": "null\0character"}, "initialValues.sourcePath"),
        ({"sourcePath": "x" * 5000}, "initialValues.sourcePath"),
    ],
)
def test_initial_values_of_no_known_form_are_refused(tmp_path: Path, values: Any, key: str) -> None:
    refused(tmp_path, one({"initialValuesDataType": "INT32", "initialValues": values}), f"resources.A.{key}")


@pytest.mark.parametrize("name", ["FLOAT", "float32", "INT4", "DML_FLOAT32", 1, None])
def test_an_unknown_data_type_is_refused(tmp_path: Path, name: Any) -> None:
    resource = {"initialValuesDataType": name, "initialValues": [1]}
    refused(tmp_path, one(resource), "resources.A.initialValuesDataType", "FLOAT32", "INT64")
