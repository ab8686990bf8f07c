"""`dmlvk quantize` and what it stands on. A process of its own has ONNX Runtime."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import dmlvk
from tests.onnx.float_models import classifier, inputs

ROOT = Path(__file__).parents[2]


def python(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DMLVK_VALIDATE": "0"}
    command = [sys.executable, "-W", "error::UserWarning:__main__", "-c", program, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def quantized(*arguments: object) -> subprocess.CompletedProcess[str]:
    program = "import sys; from dmlvk.command_line import main; main(['quantize', *sys.argv[1:]])"
    return python(program, *arguments)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(classifier(), tmp_path / "floats.onnx")
    return tmp_path / "floats.onnx"


def test_a_model_of_an_old_opset_with_its_report(device: dmlvk.Device, model: Path, tmp_path: Path) -> None:
    """From an archive: batch normalization and Constant nodes, which the quantizer cannot take, are prepared away."""
    np.savez(tmp_path / "data.npz", x=inputs(40))
    target = tmp_path / "integers.onnx"
    done = quantized(model, "--data", tmp_path / "data.npz", "-o", target, "--device", device.name)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    made = onnx.load(target)
    names = [node.op_type for node in made.graph.node]
    assert names.count("QLinearConv") == 2 and {"QLinearMatMul", "Softmax"} <= set(names)
    assert "BatchNormalization" not in names
    scales = [each for each in made.graph.initializer if each.name.endswith("_scale") and each.dims == [8]]
    assert scales, "the first convolution has a scale for each of its 8 channels"
    for text in ("Outputs beside those in floats, 3 inputs", "% of 40 rows", "Layers that lose most", "1 host"):
        assert text in done.stdout
    assert "on the host: softmax (Softmax): Softmax is not an operator of the device" in done.stdout
    assert "times as fast" in done.stdout.splitlines()[-1]


def test_a_folder_in_the_other_format_with_weights_of_7_bits(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "samples"
    folder.mkdir()
    for number, picture in enumerate(inputs(3)):
        np.save(folder / f"{number}.npy", picture)  # without the dimension of the batch
    target = tmp_path / "integers.onnx"
    options = ["--format", "QDQ", "--weight-bits", "7", "--no-report"]
    done = quantized(model, "--data", folder, "-o", target, *options)
    assert done.returncode == 0, done.stderr
    made = onnx.load(target)
    assert {"QuantizeLinear", "DequantizeLinear", "Conv"} <= {node.op_type for node in made.graph.node}
    weights = [onnx.numpy_helper.to_array(each) for each in made.graph.initializer if each.dims == [8, 3, 3, 3]]
    assert [weight.dtype for weight in weights] == [np.int8] and 60 < np.abs(weights[0]).max() <= 64
    assert "Outputs beside" not in done.stdout


def test_the_report_sees_what_is_lost(tmp_path: Path) -> None:
    """Outputs of a model whose last weights were disturbed are further from the floats, and that layer loses most."""
    program = """
from onnx import numpy_helper
from dmlvk.onnx import quantization_report, quantize
from tests.onnx.float_models import classifier, inputs
model = classifier()
made = quantize(model, [{"x": inputs(20)}])
good = quantization_report(model, made, [inputs(20)], device="llvmpipe")
for each in made.graph.initializer:
    if each.dims == [16, 8, 3, 3]:
        each.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(each), each.name))
bad = quantization_report(model, made, [inputs(20)], device="llvmpipe")
assert good.outputs[0].decibels > 30 > 15 > bad.outputs[0].decibels
assert good.outputs[0].agreement > 0.9 and good.outputs[0].rows == 20 > 20 * bad.outputs[0].agreement
assert bad.layers[0].name == "second" and bad.layers[0].lost > 10 > good.layers[0].lost
assert all(layer.decibels > 25 for layer in good.layers)
assert 0 < good.float_seconds < good.seconds < 10 and good.inputs == 1
"""
    done = python(program)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("no data", "No such file"),
        ("pictures", "pictures have to be arrays of the size and range that the model takes"),
        ("shape", "its dimension 1 must have size 3"),
        ("name", "has no input 'z'"),
        ("nan", "elements in 'x' that are not finite"),
        ("quantized", "is quantized already"),
        ("nothing", "has nothing to quantize"),
    ],
)
def test_bad_input_is_answered_by_one_line(model: Path, tmp_path: Path, setting: str, words: str) -> None:
    data = tmp_path / "data.npz"
    samples = {"x": inputs(2)}
    if setting == "pictures":
        data = tmp_path / "folder"
        data.mkdir()
        (data / "photo.JPG").write_bytes(b"jpeg")
    elif setting == "shape":
        samples = {"x": np.moveaxis(inputs(2), 1, -1)}
    elif setting == "name":
        samples = {"z": inputs(2), "y": inputs(2)}
    elif setting == "nan":
        samples["x"][1, 2, 3, 4] = np.nan
    elif setting == "quantized":
        model = Path(dmlvk.__file__).parent / "demo" / "digits.onnx"
    elif setting == "nothing":
        graph = classifier()
        del graph.graph.node[:]
        graph.graph.node.append(onnx.helper.make_node("Identity", ["x"], ["y"]))
        del graph.graph.output[0].type.tensor_type.shape.dim[:]
        graph.graph.output[0].type.tensor_type.ClearField("shape")
        onnx.save(graph, model)
    if setting not in ("no data", "pictures"):
        np.savez(data, **samples)  # type: ignore[arg-type]
    done = quantized(model, "--data", data, "-o", tmp_path / "out.onnx")
    assert done.returncode in (1, 2)
    assert done.stdout == "" and done.stderr.count("\n") == 1 and words in done.stderr
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_interrupt_keeps_what_was_calibrated(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=inputs(16 * 400))
    program = """
import os, signal, sys
from dmlvk.command_line import main, quantize, terminal
step = terminal.Steps.__call__
def interrupt(self, name):
    if name == "input 3":
        os.kill(os.getpid(), signal.SIGINT)
    step(self, name)
terminal.Steps.__call__ = interrupt
main(["quantize", *sys.argv[1:]])
"""
    done = python(program, model, "--data", tmp_path / "data.npz", "-o", tmp_path / "out.onnx", "--no-report")
    assert done.returncode == 0, done.stderr
    assert "Interrupted: calibrated with 3 of 400 inputs" in done.stderr
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"))
