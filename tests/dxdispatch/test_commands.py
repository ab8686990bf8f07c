"""print and writeFile as DxDispatch does them, and what is refused in commands and bindings before anything runs."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import dmlvk
from dmlvk.command_line import main
from dmlvk.dxdispatch.printing import number_text
from tests.dxdispatch.models import copy_model, initial, refused, write

FLOATS = [1.0, -2.5, 1 / 3, 1e-7, 123456.789, 1e20, "nan", "inf", "-inf", -0.0]
FLOAT_TEXTS = ["1", "-2.5", "0.333333", "1e-07", "123457", "1e+20", "nan", "inf", "-inf", "-0"]


def run(folder: Path, device: dmlvk.Device, resource: Any, commands: list[Any], **options: Any) -> list[str]:
    """Run commands on one resource A; returns what is logged."""
    lines: list[str] = []
    model = {"resources": {"A": resource}, "dispatchables": {}, "commands": commands}
    dmlvk.dxdispatch.load(write(folder, model)).run(device, log=lines.append, **options)
    return lines


PRINT = {"type": "print", "resource": "A"}


@pytest.mark.parametrize(
    ("name", "values", "texts"),
    [
        ("FLOAT32", FLOATS, FLOAT_TEXTS),
        ("FLOAT64", FLOATS, FLOAT_TEXTS),
        ("FLOAT16", [0.1, 65504, 1 / 3], ["0.0999756", "65504", "0.333252"]),
        ("UINT8", [0, 65, 255], ["0", "65", "255"]),
        ("INT8", [-128, 65, 127], ["-128", "65", "127"]),
        ("UINT64", [2**64 - 1], ["18446744073709551615"]),
        ("INT64", [-(2**63)], ["-9223372036854775808"]),
    ],
)
def test_print(tmp_path: Path, device: dmlvk.Device, name: str, values: list[Any], texts: list[str]) -> None:
    """As many elements as there were initial values, though the memory is larger."""
    resource = {"initialValuesDataType": name, "initialValues": values, "sizeInBytes": 800}
    assert run(tmp_path, device, resource, [PRINT]) == [f"Resource 'A': {', '.join(texts)}"]


def test_print_verbosely(tmp_path: Path, device: dmlvk.Device) -> None:
    resource = {"initialValuesDataType": "FLOAT32", "initialValues": [1.0, *[-2.5] * 9, 1e-45]}
    (text,) = run(tmp_path, device, resource, [PRINT | {"verbose": True}])
    lines = [
        "[ 0] 1 (0x3F800000)",
        *[f"[{i:2}] -2.5 (0xC0200000)" for i in range(1, 10)],
        "[10] 1.4013e-45 (0x       1)",
    ]
    assert text == "Resource 'A':\n" + "".join(f"{line}\n" for line in lines)
    resource = {"initialValuesDataType": "INT16", "initialValues": [-1, 18]}
    (text,) = run(tmp_path, device, resource, [PRINT | {"verbose": True}])
    assert text == "Resource 'A':\n[0] -1 (0xFFFF)\n[1] 18 (0x  12)\n"


def to_file(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "writeFile", "resource": "A", "targetPath": name, **more}


def test_write_file(tmp_path: Path, device: dmlvk.Device) -> None:
    values = np.random.default_rng(3).normal(size=5).astype(np.float16)
    resource = {"initialValuesDataType": "FLOAT16", "initialValues": values.tolist()}
    commands = [to_file("a.npy"), to_file("b.NPY", dimensions=[1, 5]), to_file("new/folder\\c.dat")]
    lines = run(tmp_path, device, resource, commands)
    paths = [tmp_path / "a.npy", tmp_path / "b.NPY", tmp_path / "new" / "folder" / "c.dat"]
    assert lines == [f"Resource 'A' written to '{path}'" for path in paths]
    whole = np.load(paths[0])
    assert whole.dtype == np.float16
    np.testing.assert_array_equal(whole, [*values, 0])  # over the memory's whole size, as DxDispatch does
    np.testing.assert_array_equal(np.load(paths[1]), values.reshape(1, 5))
    assert paths[2].read_bytes() == values.tobytes() + b"\0\0"


def test_write_file_into_another_folder(tmp_path: Path, device: dmlvk.Device) -> None:
    resource = {"initialValuesDataType": "UINT8", "initialValues": [1, 2, 3, 4]}
    folder = tmp_path / "elsewhere"
    run(tmp_path, device, resource, [to_file("x.bin")], output_folder=folder)
    assert (folder / "x.bin").read_bytes() == bytes([1, 2, 3, 4])
    assert not (tmp_path / "x.bin").exists()


@pytest.mark.parametrize("name", ["FLOAT32", "FLOAT16"])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_write_a_picture(tmp_path: Path, device: dmlvk.Device, name: str, channels: int) -> None:
    """Elements from 0 to 1 become bytes, cut to whole numbers; what lies outside is clamped."""
    values = np.random.default_rng(channels).uniform(-0.2, 1.2, (channels, 5, 7)).astype(name.lower())
    resource = {"initialValuesDataType": name, "initialValues": values.reshape(-1).tolist()}
    run(tmp_path, device, resource, [to_file("p.png", dimensions=[1, channels, 5, 7])])
    expected = (values.astype(np.float32).clip(0, 1) * np.float32(255)).astype(np.uint8)
    with Image.open(tmp_path / "p.png") as picture:
        pixels = np.asarray(picture).reshape(5, 7, channels)
    np.testing.assert_array_equal(pixels, np.moveaxis(expected, 0, 2))
    run(tmp_path, device, resource, [to_file("p.jpg", dimensions=[1, channels, 5, 7])])
    with Image.open(tmp_path / "p.jpg") as picture:
        assert (picture.format, picture.size) == ("JPEG", (7, 5))


def test_a_file_that_cannot_be_written_is_logged_and_the_run_goes_on(tmp_path: Path, device: dmlvk.Device) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    resource = {"initialValuesDataType": "UINT8", "initialValues": [1]}
    first, second, third = run(tmp_path, device, resource, [to_file("folder"), to_file("file/x.dat"), PRINT])
    assert first.startswith(f"Failed to write resource to file '{tmp_path / 'folder'}': ")
    assert second.startswith("Failed to write resource to file ")
    assert third == "Resource 'A': 1"
    assert (tmp_path / "file").read_text() == "mine"


MIXED = {"initialValues": [{"type": "UINT8", "value": 1}, {"type": "FLOAT32", "value": 1}]}


@pytest.mark.parametrize(
    ("command", "key"),
    [
        ({}, "type"),
        ({"type": "copy"}, "type"),
        ({"type": 3}, "type"),
        ({"type": "print"}, "resource"),
        ({"type": "print", "resource": "D"}, "resource"),
        ({"type": "print", "resource": "M"}, "resource"),
        ({"type": "print", "resource": "A", "verbose": 1}, "verbose"),
        ({"type": "dispatch"}, "dispatchable"),
        ({"type": "dispatch", "dispatchable": "none"}, "dispatchable"),
        ({"type": "dispatch", "dispatchable": "reverse"}, "bindings"),
        ({"type": "writeFile", "resource": "A"}, "targetPath"),
        (to_file(""), "targetPath"),
        (to_file("x.npy", resource="M"), "targetPath"),
        (to_file("x.npy", dimensions=[3, 3]), "dimensions"),
        (to_file("x.npy", dimensions=[0]), "dimensions[0]"),
        (to_file("x.png", dimensions=[1, 1, 2, 2]), "targetPath"),
        (to_file("x.png", resource="F"), "targetPath"),
        (to_file("x.jpg", resource="F", dimensions=[1, 2, 2, 1]), "dimensions"),
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_command_is_refused_before_anything_is_written(tmp_path: Path, command: Any, key: str) -> None:
    source = {"initialValuesDataType": "INT16", "initialValues": [1, 2, 3, 4]}
    model = copy_model("INT16", 4, source, commands=[to_file("before.dat"), command])
    model["resources"] |= {"M": MIXED, "F": {"initialValuesDataType": "FLOAT32", "initialValues": [1, 2, 3, 4]}}
    refused(tmp_path, model, f"commands[2].{key}")
    assert {path.name for path in tmp_path.iterdir()} == {"model.json"}


@pytest.mark.parametrize(
    ("bindings", "key", "words"),
    [
        ({"InputTensor": "A"}, "OutputTensor", "nothing is bound"),
        ({"OutputTensor": "Z"}, "OutputTensor", "no such resource"),
        ({"Unknown": "Z"}, "Unknown", "no such resource"),
        ({"InputTensor": 3}, "InputTensor", "must be a resource"),
        ({"InputTensor": ["A", "A"]}, "InputTensor", "one resource"),
        ({"InputTensor": []}, "InputTensor", "one resource"),
        ({"InputTensor": ["Z"]}, "InputTensor[0]", "no such resource"),
        ({"InputTensor": {}}, "InputTensor.name", "is missing"),
        ({"InputTensor": {"name": "A", "elementOffset": -1}}, "InputTensor.elementOffset", "integer"),
        ({"InputTensor": {"name": "A", "elementOffset": 4}}, "InputTensor", "multiple of 16"),
        ({"InputTensor": {"name": "A", "elementOffset": 64}}, "InputTensor", "bytes or more"),
        ({"InputTensor": {"name": "A", "counter": "Z"}}, "InputTensor.counter", "no such resource"),
        ({"InputTensor": {"name": "M", "elementOffset": 1}}, "InputTensor", "elementSizeInBytes"),
        ({"InputTensor": "M"}, "InputTensor", "120 bytes or more"),
        ({"OutputTensor": "A"}, "OutputTensor", "shares memory with InputTensor"),
        ({"OutputTensor": {"name": "A", "elementOffset": 56}}, "OutputTensor", "shares memory"),
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_binding_is_refused(tmp_path: Path, bindings: dict[str, Any], key: str, words: str) -> None:
    source = {"initialValuesDataType": "INT16", "initialValues": {"valueCount": 120, "valueStart": 1, "valueDelta": 3}}
    model = copy_model("INT16", 60, source)
    model["resources"]["M"] = MIXED
    everything = {} if words == "nothing is bound" else model["commands"][0]["bindings"]
    model["commands"][0]["bindings"] = everything | bindings
    refused(tmp_path, model, f"commands[0].bindings.{key}", words)


def owned_model() -> dict[str, Any]:
    model = copy_model("INT16", 4, {"initialValuesDataType": "INT16", "initialValues": [1, 2, 3, 4]})
    dispatchable = model["dispatchables"]["reverse"]
    dispatchable["desc"]["InputTensor"] = {**dispatchable["desc"]["InputTensor"], "Flags": "OWNED_BY_DML"}
    dispatchable["bindings"] = {"InputTensor": "A"}
    del model["commands"][0]["bindings"]["InputTensor"]
    return model


def test_owned_tensors_are_bound_by_the_dispatchable_alone(tmp_path: Path, device: dmlvk.Device) -> None:
    found = dmlvk.dxdispatch.load(write(tmp_path, owned_model())).run(device)
    assert found["B"].tolist() == [4, 3, 2, 1]
    model = owned_model()
    del model["dispatchables"]["reverse"]["bindings"]
    refused(tmp_path, model, "dispatchables.reverse.bindings", "OWNED_BY_DML")
    model = owned_model()
    model["dispatchables"]["reverse"]["bindings"]["OutputTensor"] = "B"
    refused(tmp_path, model, "dispatchables.reverse.bindings.OutputTensor", "a dispatch binds it")
    model = owned_model()
    model["commands"][0]["bindings"]["InputTensor"] = "A"
    refused(tmp_path, model, "commands[0].bindings.InputTensor", "the dispatchable binds it")


def test_an_absent_tensor_cannot_be_bound(tmp_path: Path) -> None:
    tensor = {"DataType": "UINT8", "Sizes": [2, 2]}
    desc = {"OutputTensor": tensor, "ValueDataType": "UINT8", "Value": 3, "DiagonalFillBegin": 0, "DiagonalFillEnd": 1}
    model = copy_model("UINT8", 4, {"initialValuesDataType": "UINT8", "initialValues": [1, 2, 3, 4]})
    model["dispatchables"]["reverse"] = {"type": "DIAGONAL_MATRIX1", "desc": desc}
    refused(tmp_path, model, "commands[0].bindings.InputTensor", "has no InputTensor")


def test_the_command(tmp_path: Path, device: dmlvk.Device) -> None:
    source = {"initialValuesDataType": "INT16", "initialValues": [1, 2, 3, 4]}
    model = copy_model("INT16", 4, source, commands=[PRINT | {"resource": "B"}, to_file("a.dat")])
    path = write(tmp_path, model)
    output = tmp_path / "output"
    result = CliRunner().invoke(main, ["run", str(path), "--device", device.name, "--output", str(output)])
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == ["Resource 'B': 4, 3, 2, 1", f"Resource 'A' written to '{output / 'a.dat'}'"]
    assert (output / "a.dat").read_bytes() == np.array([1, 2, 3, 4], np.int16).tobytes()


@pytest.mark.parametrize("kind", ["wrong", "missing", "folder", "other"])
def test_the_command_refuses_in_one_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("model.txt" if kind == "other" else "model.json")
    if kind == "folder":
        path.mkdir()
    elif kind != "missing":
        path.write_text("{}")
    result = CliRunner().invoke(main, ["run", str(path)])
    assert result.exit_code == 1
    (line,) = result.output.splitlines()
    assert line.startswith("Error: ")
    assert path.name in line


@pytest.mark.skipif(os.name == "nt", reason="of links as POSIX has them")
def test_a_file_to_write_keeps_its_links(tmp_path: Path, device: dmlvk.Device) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link.dat").symlink_to("real")
    run(tmp_path, device, {"initialValuesDataType": "UINT8", "initialValues": [65, 66, 67, 68]}, [to_file("link.dat")])
    assert (tmp_path / "real").read_text() == "ABCD"


def test_a_resource_of_several_types_comes_back_as_bytes(tmp_path: Path) -> None:
    found = initial(tmp_path, MIXED)
    assert found.dtype == np.uint8
    assert found.tobytes() == b"\x01" + np.float32(1).tobytes()


def test_a_nan_with_a_sign_shows_it() -> None:
    assert [number_text(value) for value in (math.nan, -math.nan, -math.inf)] == ["nan", "-nan", "-inf"]
