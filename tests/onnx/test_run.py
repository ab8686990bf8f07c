"""`dmlvk run MODEL.onnx`: its table, its files, its check and its errors. A process of its own has ONNX Runtime."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

import dmlvk
from dmlvk.command_line import main
from dmlvk.onnx import InferenceSession
from dmlvk.onnx.checking import check, check_values, first_difference
from dmlvk.onnx.host import HostPart
from tests.onnx.models import convolution, convolution_parameters, convolved, elements, model_of
from tests.programs import python

SHAPE = (2, 3, 9, 8)


@pytest.fixture
def model(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """The path of a model, and its constants."""
    generator = np.random.default_rng(0)
    parameters = convolution_parameters(generator, (4, 3, 3, 3), per_channel=True)
    nodes = [convolution(parameters), ("Transpose", ["y"], ["t/1"], {}), ("Neg", ["n"], ["m"], {})]
    inputs = {"x": elements(generator, np.uint8, SHAPE), "n": np.ones(3, np.float32)}
    outputs = {"t/1": np.uint8, "m": np.float32}
    onnx.save(model_of(nodes, inputs, outputs, parameters), tmp_path / "model.onnx")
    return tmp_path / "model.onnx", parameters


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(main, ["run", *map(str, arguments)])


def test_a_run_with_files(device: dmlvk.Device, model: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    path, parameters = model
    generator = np.random.default_rng(1)
    options: list[Any] = ["--device", device.name, "--output", tmp_path / "outputs"]
    inputs = [elements(generator, np.uint8, SHAPE) for _ in range(2)]
    for k, x in enumerate(inputs):
        np.save(tmp_path / f"x{k}.npy", x)
        np.save(tmp_path / f"n{k}.npy", np.full(3, k, np.float32))
        options += ["--input", f"x={tmp_path}/x{k}.npy", "--input", f"n={tmp_path}/n{k}.npy"]
    done = run(path, *options)
    assert done.exit_code == 0, done.output
    for k, x in enumerate(inputs):
        found = np.load(tmp_path / "outputs" / f"{k}_t_1.npy")
        np.testing.assert_array_equal(found, convolved(x, parameters, (0,) * 4, (1, 1)).T)
        np.testing.assert_array_equal(np.load(tmp_path / "outputs" / f"{k}_m.npy"), np.full(3, -k, np.float32))
    assert "2 device, 1 host" in done.output
    assert "Neg is not an operator of the device" in done.output


def test_a_model_in_floats_says_that_nothing_runs_on_the_device(tmp_path: Path) -> None:
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Neg", ["x"], ["y"])],
        "floats",
        [onnx.helper.make_tensor_value_info("x", 1, [3])],
        [onnx.helper.make_tensor_value_info("y", 1, [3])],
    )
    path = tmp_path / "floats.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    done = python("-m", "dmlvk", "run", path, timeout=120, env={**os.environ, "DMLVK_DEVICE": "llvmpipe"})
    assert done.returncode == 0, done.stderr
    assert "1 host. Nothing runs on the device." in done.stdout
    assert "Inputs: x, tensor(float) [3]." in done.stdout
    assert done.stdout.splitlines()[-1].startswith("A run of ")
    assert done.stderr == ""  # the last line says what a driver on the processor is for


def test_the_check_with_onnx_runtime(device: dmlvk.Device, model: tuple[Path, dict[str, np.ndarray]]) -> None:
    done = python("-m", "dmlvk", "run", model[0], "--check", "--device", device.name, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("equal") == 2
    assert "reference evaluator" not in done.stderr


def test_the_check_names_the_first_element_that_differs(
    device: dmlvk.Device, model: tuple[Path, dict[str, np.ndarray]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The host's answer is changed in one element."""
    honest = HostPart.run

    def changed(part: HostPart, feeds: Any) -> list[Any]:
        (found,) = honest(part, feeds)
        found = np.array(found)
        if found.ndim == 4 and found.shape[0] != 2:  # the Transpose's
            found[1, 2, 3, 1] ^= 5
        return [found]

    monkeypatch.setattr(HostPart, "run", changed)
    done = run(model[0], "--check", "--device", device.name, "--output", tmp_path / "outputs")
    assert done.exit_code == 1
    assert "1 nodes differ from the host's: node_1: t/1[1, 2, 3, 1] is" in done.output
    assert "DIFFERS" in done.output
    assert not (tmp_path / "outputs").exists()


def test_the_check_compares_each_output_of_a_node(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(6, dtype=np.uint8)
    model = model_of([("Split", ["x"], ["a", "b"], {"axis": 0})], {"x": x}, {"a": np.uint8, "b": np.uint8})
    session = InferenceSession(model, device)
    assert [finding.is_equal for finding in check(session, {"x": x})] == [True]
    honest = HostPart.run
    monkeypatch.setattr(HostPart, "run", lambda part, feeds: [found + k for k, found in enumerate(honest(part, feeds))])
    (finding,) = check(session, {"x": x})
    assert finding.is_equal is False and finding.text.startswith("b[0] is 3, expected 4")


def test_each_value_beside_a_run_on_the_host(
    device: dmlvk.Device, model: tuple[Path, dict[str, np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(2)
    feeds = {"x": elements(generator, np.uint8, SHAPE), "n": np.ones(3, np.float32)}
    session = InferenceSession(model[0], device)
    found = check_values(session, feeds)
    assert [(finding.name, finding.is_equal, finding.text) for finding in found] == [
        (name, True, "") for name in ("y", "t/1", "m")
    ]
    honest = HostPart.run

    def changed(part: HostPart, feeds: Any) -> list[Any]:
        answers = [np.array(answer) for answer in honest(part, feeds)]
        if len(answers) == 3:  # of the whole model
            answers[0][1, 2, 3, 4] ^= 5
        return answers

    monkeypatch.setattr(HostPart, "run", changed)
    found = check_values(session, feeds)
    assert [finding.is_equal for finding in found] == [False, True, True]
    assert found[0].text.startswith("y[1, 2, 3, 4] is ") and "; 1 of " in found[0].text


def test_differences() -> None:
    zeros = np.array([0.0, 1.0], np.float32)
    assert first_difference("y", zeros, zeros.copy()) == ""
    assert first_difference("y", np.array([-0.0, 1.0], np.float32), zeros).startswith(
        "y[0] is -0.0, expected 0.0; 1 of 2"
    )
    assert "expected float32 (2,)" in first_difference("y", zeros.reshape(1, 2), zeros)


WRONG: dict[str, tuple[list[str], str]] = {
    "no name": (["--input", "file.npy"], "'file.npy' is not NAME=FILE.npy"),
    "no file": (["--input", "x=absent.npy"], "absent.npy"),
    "no array": (["--input", f"x={__file__}"], "is no .npy file"),
    "another's name": (["--input", "q=x.npy"], "'q=x.npy' names no input of the model; its inputs are 'x', 'n'"),
    "empty array": (["--input", "x={folder}/empty.npy"], "is no .npy file"),
    "damaged header": (["--input", "x={folder}/header.npy"], "cannot be read as .npy"),
    "short array": (["--input", "x={folder}/short.npy"], "cannot be read as .npy"),
    "folder": (["--input", "x={folder}"], "--input"),
    "missing input": (["--input", "x={folder}/x.npy"], "the input 'n' is missing; its inputs are x, n"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_inputs(
    device: dmlvk.Device, model: tuple[Path, dict[str, np.ndarray]], name: str, tmp_path: Path
) -> None:
    arguments, message = WRONG[name]
    np.save(tmp_path / "x.npy", np.ones(SHAPE, np.uint8))
    (tmp_path / "empty.npy").touch()
    (tmp_path / "header.npy").write_bytes(b"\x93NUMPY\x01\x00\x04\x00(((\n")
    (tmp_path / "short.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-3])
    filled = [argument.replace("{folder}", str(tmp_path)) for argument in arguments]
    done = run(model[0], "--device", device.name, *filled)
    assert done.exit_code != 0
    assert message in done.output
    assert "Traceback" not in done.output


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"text")
    assert "this is no ONNX model" in run(tmp_path / "model.onnx").output
    assert "expected an .onnx file" in run(tmp_path / "model.txt").output


def test_random_inputs_are_the_same_each_time(device: dmlvk.Device, model: tuple[Path, Any], tmp_path: Path) -> None:
    for folder in ("a", "b"):
        assert run(model[0], "--device", device.name, "--output", tmp_path / folder).exit_code == 0
    first, second = (np.load(tmp_path / folder / "t_1.npy") for folder in ("a", "b"))
    np.testing.assert_array_equal(first, second)
    assert np.unique(first).size > 20
    assert InferenceSession(model[0], device).get_inputs()[0].shape == list(SHAPE)


def test_an_input_and_a_file_whose_names_have_an_equals_sign(device: dmlvk.Device, tmp_path: Path) -> None:
    values = np.random.default_rng(4).normal(size=(2, 2, 3)).astype(np.float32)
    nodes: Any = [("Transpose", ["a"], ["p"], {}), ("Transpose", ["a=b"], ["q"], {})]
    inputs = dict(zip(("a", "a=b"), values, strict=True))
    onnx.save(model_of(nodes, inputs, {"p": np.float32, "q": np.float32}), tmp_path / "m.onnx")
    np.save(tmp_path / "x=1.npy", values[0])
    np.save(tmp_path / "b=y.npy", values[1])
    given = ["--input", f"a={tmp_path}/x=1.npy", "--input", f"a=b={tmp_path}/b=y.npy"]
    done = run(tmp_path / "m.onnx", "--device", device.name, "--output", tmp_path / "out", *given)
    assert done.exit_code == 0, done.output
    for name, value in zip("pq", values, strict=True):
        np.testing.assert_array_equal(np.load(tmp_path / "out" / f"{name}.npy"), value.T)


def test_no_random_elements_for_an_input_that_no_memory_holds(device: dmlvk.Device, tmp_path: Path) -> None:
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2**20, 2**20])
    onnx.save(model_of([("Relu", ["x"], ["y"], {})], {"x": x}, {"y": np.float32}), tmp_path / "m.onnx")
    done = run(tmp_path / "m.onnx", "--device", device.name)
    assert done.exit_code == 1
    assert "the input 'x'" in done.output
    assert "pass --input" in done.output
    assert len(done.output.splitlines()) == 1
