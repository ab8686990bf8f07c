"""`dmlvk quantize` and what it stands on. A process of its own has ONNX Runtime."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import dmlvk
from tests.onnx.float_models import classifier, inputs
from tests.programs import python

ROOT = Path(__file__).parents[2]


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DMLVK_VALIDATE": "0"}
    return python("-W", "error::UserWarning:__main__", "-c", program, *arguments, env=environment, timeout=120)


def quantized(*arguments: object) -> subprocess.CompletedProcess[str]:
    program = "import sys; from dmlvk.command_line import main; main(['quantize', *sys.argv[1:]])"
    return run(program, *arguments)


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
    for text in ("Outputs beside those in floats, 3 runs", "% of 40 rows", "Layers that lose most", "1 host"):
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
others = quantization_report(model, quantize(model, [inputs(20)], format="QDQ"), [inputs(20)], device="llvmpipe")
lost = [{layer.name: round(layer.lost, 1) for layer in report.layers} for report in (good, others)]
assert lost[0] == lost[1] and len(lost[0]) == 4, lost
assert 0 < good.float_seconds < good.seconds < 10 and good.inputs == 1
import numpy as np
data = [np.random.default_rng(2).integers(0, 256, inputs(20).shape).astype(np.float32) / 255]  # exact in 8 bits
exact = quantization_report(model, quantize(model, data), data, device="llvmpipe")
assert 40 < max(layer.decibels + layer.lost for layer in exact.layers) <= 50.001, exact.layers
"""
    done = run(program)
    assert done.returncode == 0, done.stderr


def test_a_sum_of_two_values_after_a_product_is_quantized() -> None:
    """ONNX Runtime's optimizer would make one Gemm of the product and the sum, which the quantizer leaves in floats."""
    program = """
import numpy as np
from onnx import helper, numpy_helper
from dmlvk.onnx import quantize
weights = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "w"], ["product"]), helper.make_node("Add", ["product", "z"], ["y"])],
    "sum",
    [helper.make_tensor_value_info("x", 1, ["n", 6]), helper.make_tensor_value_info("z", 1, ["n", 8])],
    [helper.make_tensor_value_info("y", 1, ["n", 8])],
    [numpy_helper.from_array(weights, "w")],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
made = quantize(model, [{"x": np.ones((2, 6), np.float32), "z": -np.ones((2, 8), np.float32)}])
names = {node.op_type for node in made.graph.node}
assert {"QLinearMatMul", "QLinearAdd"} < names and "Gemm" not in names, names
"""
    done = run(program)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("no data", "--data: "),
        ("pictures", "that the model takes: docs/quantizing.md, Samples from photographs, makes an .npz of them"),
        ("shape", "its dimension 1 must have size 3, ['n', 3, 12, 12]; is it channels last? np.moveaxis(array, -1, 1)"),
        ("shape of the second", "1.npy: input 2 of the data: "),
        ("empty", "counts the inputs, so it has to be the same, and at least 1"),
        ("name", "has no input 'z'"),
        ("nan", "floats.onnx: 'x' has elements that are not finite"),
        ("quantized", "is quantized already"),
        ("nothing", "has nothing to quantize"),
        ("float16", "quantize the model in FLOAT32 from which it was made, or take the format QDQ"),
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
    elif setting == "empty":
        samples = {"x": inputs(2)[:0]}
    elif setting == "shape of the second":
        data = tmp_path / "folder"
        data.mkdir()
        for number in range(2):
            np.save(data / f"{number}.npy", inputs(1)[0, :, number:])
    elif setting == "name":
        samples = {"z": inputs(2), "y": inputs(2)}
    elif setting == "nan":
        samples["x"][1, 2, 3, 4] = np.nan
    elif setting == "quantized":
        model = Path(dmlvk.__file__).parent / "demo" / "digits.onnx"
    elif setting == "float16":
        graph = classifier(opset=13)
        for node in graph.graph.node[:8]:
            tensor = node.attribute[0].t
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16)))
        for value in (*graph.graph.input, *graph.graph.output):
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
        samples = {"x": inputs(2).astype(np.float16)}
        onnx.save(graph, model)
    elif setting == "nothing":
        graph = classifier()
        del graph.graph.node[:]
        graph.graph.node.append(onnx.helper.make_node("Identity", ["x"], ["y"]))
        del graph.graph.output[0].type.tensor_type.shape.dim[:]
        graph.graph.output[0].type.tensor_type.ClearField("shape")
        onnx.save(graph, model)
    if setting != "no data" and data.suffix:
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
    done = run(program, model, "--data", tmp_path / "data.npz", "-o", tmp_path / "out.onnx", "--no-report")
    assert done.returncode == 0, done.stderr
    assert "Interrupted: calibrated with 3 of 400 inputs" in done.stderr
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"))
