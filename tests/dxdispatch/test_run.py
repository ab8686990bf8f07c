"""Models on the test devices: the operators, owned tensors, offsets, state between commands. NumPy is the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk import DataType
from tests.dxdispatch.models import copy_model, write

Lines = list[str]


def run(folder: Path, model: Any, device: dmlvk.Device) -> tuple[dict[str, Any], Lines]:
    lines: Lines = []
    return dmlvk.dxdispatch.load(write(folder, model)).run(device, log=lines.append), lines


def values_of(name: str, count: int, seed: int = 0) -> np.ndarray:
    """Random bits, without NaNs."""
    dtype = DataType[name].numpy_dtype
    random = np.random.default_rng(seed)
    if dtype.kind == "f":
        return random.normal(size=count).astype(dtype)
    return random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, count, dtype)


@pytest.mark.parametrize("name", [data_type.name for data_type in DataType])
def test_slice1_of_every_type(tmp_path: Path, device: dmlvk.Device, name: str) -> None:
    values = values_of(name, 37)
    source = {"initialValuesDataType": name, "initialValues": values.tolist()}
    found, lines = run(tmp_path, copy_model(name, 37, source), device)
    assert lines == []
    assert found.keys() == {"A", "B"}
    assert found["B"].dtype == values.dtype
    np.testing.assert_array_equal(found["B"], values[::-1])
    np.testing.assert_array_equal(found["A"], values)


def test_slice_in_the_form_of_the_published_sample(tmp_path: Path, device: dmlvk.Device) -> None:
    model = {
        "resources": {
            "input": {
                "initialValuesDataType": "FLOAT32",
                "initialValues": {"valueCount": 25, "valueStart": 1, "valueDelta": 1},
            },
            "output": {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 6, "value": 5}},
        },
        "dispatchables": {
            "slice": {
                "type": "SLICE",
                "Desc": {
                    "InputTensor": {"DataType": "FLOAT32", "Sizes": [1, 1, 5, 5]},
                    "OutputTensor": {"DataType": "FLOAT32", "Sizes": [1, 1, 3, 2]},
                    "DimensionCount": 4,
                    "Offsets": [0, 0, 1, 1],
                    "Sizes": [1, 1, 3, 2],
                    "Strides": [1, 1, 1, 2],
                },
            }
        },
        "commands": [
            {
                "type": "DISPATCH",
                "dispatchable": "slice",
                "bindings": {"InputTensor": ["input"], "OutputTensor": "output", "Unknown": "input"},
            },
            {"type": "Print", "resource": "output"},
        ],
    }
    found, lines = run(tmp_path, model, device)
    expected = np.arange(1, 26, dtype=np.float32).reshape(5, 5)[1:4, 1:5:2]
    np.testing.assert_array_equal(found["output"], expected.reshape(-1))
    assert lines == ["Resource 'output': 7, 9, 12, 14, 17, 19"]


def test_diagonal_matrices(tmp_path: Path, device: dmlvk.Device) -> None:
    base = values_of("FLOAT16", 35)
    tensor = {"DataType": "FLOAT16", "Sizes": [5, 7]}
    poison = {"initialValuesDataType": "FLOAT16", "initialValues": {"valueCount": 35, "value": 99}}
    model = {
        "resources": {
            "base": {"initialValuesDataType": "FLOAT16", "initialValues": base.tolist()},
            "band": poison,
            "bare": poison,
            "old": {"initialValuesDataType": "INT8", "initialValues": {"valueCount": 35, "value": 99}},
        },
        "dispatchables": {
            "band": {
                "type": "DIAGONAL_MATRIX1",
                "desc": {
                    "InputTensor": tensor,
                    "OutputTensor": tensor,
                    "ValueDataType": "FLOAT16",
                    "Value": {"UInt16": 0xC500},
                    "DiagonalFillBegin": -1,
                    "DiagonalFillEnd": 2,
                },
            },
            "bare": {
                "type": "DIAGONAL_MATRIX1",
                "OutputTensor": tensor,
                "ValueDataType": "FLOAT16",
                "Value": 2.5,
                "DiagonalFillBegin": 3,
                "DiagonalFillEnd": -2,
            },
            "old": {
                "type": "DIAGONAL_MATRIX",
                "desc": {"OutputTensor": {"DataType": "INT8", "Sizes": [5, 7]}, "Offset": 2, "Value": -3.9},
            },
        },
        "commands": [
            {"type": "dispatch", "dispatchable": "band", "bindings": {"InputTensor": "base", "OutputTensor": "band"}},
            {"type": "dispatch", "dispatchable": "bare", "bindings": {"OutputTensor": "bare"}},
            {"type": "dispatch", "dispatchable": "old", "bindings": {"OutputTensor": "old"}},
        ],
    }
    found, _ = run(tmp_path, model, device)
    t = np.arange(7) - np.arange(5)[:, None]
    np.testing.assert_array_equal(found["band"].reshape(5, 7), np.where((t >= -1) & (t < 2), -5, base.reshape(5, 7)))
    np.testing.assert_array_equal(found["bare"].reshape(5, 7), np.where((t >= -2) & (t < 3), 0, 2.5))
    np.testing.assert_array_equal(found["old"].reshape(5, 7), np.where(t == 2, -3, 0))


def test_one_hot(tmp_path: Path, device: dmlvk.Device) -> None:
    indices = [0, 3, -1, 4, 2**32 + 1]
    model = {
        "resources": {
            "indices": {"initialValuesDataType": "INT64", "initialValues": indices},
            "values": {"initialValuesDataType": "UINT16", "initialValues": [300, 65535]},
            "output": {"initialValuesDataType": "UINT16", "initialValues": {"valueCount": 20, "value": 7}},
        },
        "dispatchables": {
            "hot": {
                "type": "DML_OPERATOR_ONE_HOT",
                "desc": {
                    "IndicesTensor": {"DataType": "INT64", "Sizes": [5, 1]},
                    "ValuesTensor": {"DataType": "UINT16", "Sizes": [1, 2]},
                    "OutputTensor": {"DataType": "UINT16", "Sizes": [5, 4]},
                    "Axis": 1,
                },
            }
        },
        "commands": [
            {
                "type": "dispatch",
                "dispatchable": "hot",
                "bindings": {"IndicesTensor": "indices", "ValuesTensor": "values", "OutputTensor": "output"},
            }
        ],
    }
    found, _ = run(tmp_path, model, device)
    on = [index % 4 if -4 <= index < 4 else -1 for index in indices]
    expected = np.where(np.arange(4) == np.array(on)[:, None], 65535, 300)
    np.testing.assert_array_equal(found["output"].reshape(5, 4), expected)


def convolution(owned: str) -> tuple[dict[str, Any], np.ndarray]:
    """A convolution with a filter that is bound by the dispatchable (or not), and its result by plain sums."""
    random = np.random.default_rng(5)
    x = random.integers(0, 256, (1, 3, 6, 7), np.uint8)
    w = random.integers(-128, 128, (4, 3, 2, 3), np.int8)
    sx, zx, sy = np.float32(0.02), 131, np.float32(0.25)
    sw = np.array([0.011, 0.02, 0.008, 0.03], np.float32)
    bias = random.integers(-500, 500, 4, np.int32)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64) - zx, (2, 3), axis=(2, 3))
    total = np.einsum("ncyxij,mcij->nmyx", windows, w.astype(np.int64)) + bias.reshape(1, 4, 1, 1)
    scale = ((sx * sw) / sy).reshape(1, 4, 1, 1)
    expected = np.clip(np.rint(total.astype(np.float32) * scale), -128, 127).astype(np.int8)
    arrays = {
        "InputTensor": x, "InputScaleTensor": sx.reshape(1, 1, 1, 1),
        "InputZeroPointTensor": np.full((1, 1, 1, 1), zx, np.uint8),
        "FilterTensor": w, "FilterScaleTensor": sw.reshape(1, 4, 1, 1), "BiasTensor": bias.reshape(1, 4, 1, 1),
        "OutputScaleTensor": sy.reshape(1, 1, 1, 1), "OutputTensor": np.full(expected.shape, 77, np.int8),
    }  # fmt: skip
    tensors: dict[str, Any] = {
        name: {"DataType": DataType.from_numpy(array.dtype).name, "Sizes": list(array.shape)}
        for name, array in arrays.items()
    }
    dispatchable: dict[str, Any] = {
        "type": "QUANTIZED_LINEAR_CONVOLUTION",
        "desc": {
            **tensors,
            "DimensionCount": 2,
            "Strides": [1, 1],
            "Dilations": [1, 1],
            "StartPadding": [0, 0],
            "EndPadding": [0, 0],
            "GroupCount": 1,
        },
        "dmlCompileType": "DmlCompileGraph",
    }
    bindings = {name: name for name in arrays}
    if owned:
        tensors[owned]["Flags"] = ["OWNED_BY_DML"]
        dispatchable["bindings"] = {owned: {"name": bindings.pop(owned)}}
    resources = {
        name: {"initialValuesDataType": tensors[name]["DataType"], "initialValues": array.reshape(-1).tolist()}
        for name, array in arrays.items()
    }
    commands = [{"type": "dispatch", "dispatchable": "convolution", "bindings": bindings}]
    return {"resources": resources, "dispatchables": {"convolution": dispatchable}, "commands": commands}, expected


@pytest.mark.parametrize("owned", ["", "FilterTensor", "FilterScaleTensor", "BiasTensor"])
def test_quantized_linear_convolution_with_owned_tensors(tmp_path: Path, device: dmlvk.Device, owned: str) -> None:
    model, expected = convolution(owned)
    found, _ = run(tmp_path, model, device)
    np.testing.assert_array_equal(found["OutputTensor"].reshape(expected.shape), expected)


def test_an_owned_tensor_has_the_contents_from_before_the_commands(tmp_path: Path, device: dmlvk.Device) -> None:
    model, expected = convolution("FilterTensor")
    count = 4 * 3 * 2 * 3
    overwrite = copy_model("INT8", count, None)["dispatchables"]["reverse"]
    model["dispatchables"]["overwrite"] = overwrite
    model["resources"]["other"] = {"initialValuesDataType": "INT8", "initialValues": {"valueCount": count, "value": 5}}
    bindings = {"InputTensor": "other", "OutputTensor": "FilterTensor"}
    model["commands"].insert(0, {"type": "dispatch", "dispatchable": "overwrite", "bindings": bindings})
    found, _ = run(tmp_path, model, device)
    np.testing.assert_array_equal(found["FilterTensor"], np.full(count, 5))
    np.testing.assert_array_equal(found["OutputTensor"].reshape(expected.shape), expected)


@pytest.mark.parametrize(("offset", "size"), [(8, 4), (16, 2), (2, 16), (16, 0)])
def test_offsets_of_sources(tmp_path: Path, device: dmlvk.Device, offset: int, size: int) -> None:
    """The offset is elementOffset x elementSizeInBytes, the resource's own element size by default."""
    values = values_of("UINT16", 64)
    begin = offset * (size or 2) // 2
    model = copy_model("UINT16", 9, {"initialValuesDataType": "UINT16", "initialValues": values.tolist()})
    target = {"initialValuesDataType": "UINT16", "initialValues": values[::-1].tolist()}
    model["resources"]["B"] = target
    model["commands"][0]["bindings"] = {
        "InputTensor": {
            "name": "A",
            "elementOffset": offset,
            "elementSizeInBytes": size,
            "elementCount": 3,
            "shape": [9],
        },
        "OutputTensor": {"name": "B", "elementOffset": 48, "format": "R16_UINT", "counter": "A"},
    }
    found, _ = run(tmp_path, model, device)
    expected = values[::-1].copy()
    expected[48:57] = values[begin : begin + 9][::-1]
    np.testing.assert_array_equal(found["B"], expected)
    np.testing.assert_array_equal(found["A"], values)


def test_commands_run_in_order_and_memory_keeps_its_state(tmp_path: Path, device: dmlvk.Device) -> None:
    values = values_of("INT32", 11)
    show = {"type": "print", "resource": "B"}
    back = {"type": "dispatch", "dispatchable": "reverse", "bindings": {"InputTensor": "B", "OutputTensor": "C"}}
    model = copy_model(
        "INT32", 11, {"initialValuesDataType": "INT32", "initialValues": values.tolist()}, commands=[show, back]
    )
    model["resources"]["C"] = model["resources"]["B"]
    model["commands"].insert(0, show)
    found, lines = run(tmp_path, model, device)
    reverse = ", ".join(str(value) for value in values[::-1])
    assert lines == [f"Resource 'B': {', '.join(['7'] * 11)}", f"Resource 'B': {reverse}"]
    np.testing.assert_array_equal(found["C"], values)


def test_each_run_begins_anew_and_frees_its_memory(tmp_path: Path, device: dmlvk.Device) -> None:
    values = values_of("INT32", 11)
    model = copy_model("INT32", 11, {"initialValuesDataType": "INT32", "initialValues": values.tolist()})
    model["commands"].insert(0, {"type": "print", "resource": "B"})
    loaded = dmlvk.dxdispatch.load(write(tmp_path, model))
    used = device.memory_used
    for _ in range(2):
        lines: Lines = []
        np.testing.assert_array_equal(loaded.run(device, log=lines.append)["B"], values[::-1])
        assert lines == [f"Resource 'B': {', '.join(['7'] * 11)}"]
    assert device.memory_used == used


def test_a_device_by_name_and_the_print_command(
    tmp_path: Path, device: dmlvk.Device, capsys: pytest.CaptureFixture[str]
) -> None:
    source = {"initialValuesDataType": "UINT8", "initialValues": [65, 66, 200]}
    model = copy_model("UINT8", 3, source, commands=[{"type": "print", "resource": "B"}])
    found = dmlvk.dxdispatch.load(write(tmp_path, model)).run(device.name)
    assert found["B"].tolist() == [200, 66, 65]
    assert capsys.readouterr().out == "Resource 'B': 200, 66, 65\n"


def test_bytes_beyond_the_initial_values_are_zeros(tmp_path: Path, device: dmlvk.Device) -> None:
    source = {"initialValuesDataType": "UINT8", "initialValues": [1, 2, 3], "sizeInBytes": 8}
    found, _ = run(tmp_path, copy_model("UINT8", 8, source), device)
    assert found["A"].tolist() == [1, 2, 3, 0, 0, 0, 0, 0]
    assert found["B"].tolist() == [0, 0, 0, 0, 0, 3, 2, 1]
