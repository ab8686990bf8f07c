"""`dmlvk bench --model`: its record, tables and picture, its check, and its errors."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import helper

import dmlvk
from bench.networks import model_of as model_of_network
from dmlvk.benchmark.kinds import read
from dmlvk.benchmark.model import measurement
from dmlvk.benchmark.model.peers import ModelWork, ONNXRuntimeSession, comparison
from dmlvk.benchmark.model.tables import STEP_HEADS, is_correct, parts_of, sections
from dmlvk.benchmark.networks import Network
from dmlvk.benchmark.sections import Section, show
from dmlvk.benchmark.timing import Times
from dmlvk.command_line import main
from dmlvk.command_line.terminal import PlainConsole
from tests.onnx.models import elements, model_of
from tests.programs import python

ROOT = Path(__file__).parents[2]


def bench(device: dmlvk.Device, *arguments: Any) -> Result:
    return CliRunner().invoke(main, ["bench", "--device", device.profile.name, *map(str, arguments)])


def shown(tables: list[Section], width: int) -> list[str]:
    """The lines of tables on a terminal of this width."""
    file = io.StringIO()
    show(tables, PlainConsole(file=file, width=width))
    return file.getvalue().splitlines()


def test_a_network_beside_onnx_runtime(device: dmlvk.Device, tmp_path: Path) -> None:
    """In a process of its own, which has ONNX Runtime: a small network with all that the host runs of such."""
    model, file, picture, page = (tmp_path / name for name in ("net.onnx", "net.json", "net.png", "net.md"))
    network = Network("residual", 3, 32)
    x = network.convolution(network.image, 8, 3, 2)
    x = network.add(network.convolution(x, 8, 1, is_rectified=False), x)
    x = network.convolution(network.maximum(x, 3, 2, 1, 1), 16, 1)
    network.product(network.mean(x), 10)
    onnx.save(model_of_network(network), model)
    command = ["-m", "dmlvk", "bench", "--model", model, "--device", device.profile.name, "--batch", 1, "--batch", 3]
    done = python(*command, "--rounds", 3, "--json", file, "--plot", picture, "--markdown", page, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "DIFFERENT" not in done.stdout
    record = read(file)
    assert is_correct(record)
    others = ("QuantizeLinear", "QLinearAdd", "MaxPool", "QLinearGlobalAveragePool", "QGemm", "DequantizeLinear")
    assert record["model"]["nodes"]["device"] == len(network.layers) + len(others)
    assert record["model"]["on_host"] == {}
    for row, batch in zip(record["batches"], (1, 3), strict=True):
        assert row["batch"] == batch
        assert row["inputs"] == {"pixels": [batch, 3, 32, 32]}
        (trial,) = row["peers"]
        (output,) = trial["outputs"]
        assert (output["result"], output["to"], output["elements"]) == ("equal", "plain", 10 * batch)
        assert trial["seconds"]["median"] > 0
        parts = parts_of(row)
        assert sum(parts.values()) < 60
        assert all(seconds >= 0 for seconds in parts.values())
        assert parts["gpu"] > 0
        steps = row["steps"]
        assert [step["where"] for step in steps] == ["device", "outputs"]
        assert steps[0]["bytes_to_device"] == 4 * batch * 3 * 32 * 32, "the image as it is given"
        assert (
            sum(step["nodes"] for step in steps if step["where"] == "device") == len(network.layers) + len(others) + 1
        )
        operators = [each["operator"] for each in row["dispatches"]]
        assert operators[0] == "ELEMENT_WISE_QUANTIZE_LINEAR"
        assert operators.count("QUANTIZED_LINEAR_CONVOLUTION_ADD") == 1
        assert all(0 < each[key] < 60 for each in row["dispatches"] for key in ("seconds", "alone_seconds"))
        assert all(0 < row[name] < 60 for name in ("alone_seconds", "mapped_seconds"))
    assert "# net.onnx on" in page.read_text()
    assert picture.read_bytes()[:4] == b"\x89PNG"
    again = CliRunner().invoke(main, ["bench", "--from-json", str(file), "--plot", str(picture), "--dispatches"])
    assert again.exit_code == 0, again.output
    assert again.output.count("QLinearGlobalAveragePool") == 2, "a step of each batch"
    assert again.output.count("QUANTIZED_LINEAR_AVERAGE_POOLING") == 2, "a dispatch of each batch"
    tables = list(sections(record, dispatches=True))
    lines = shown(tables, 80)
    assert max(map(len, lines)) <= 80
    words = {word for line in lines for word in line.split()}
    for table in tables:
        for cell in (table.heads, *table.rows):
            assert words >= set(" ".join(cell).split()), "no word is broken"
    # Where there is room, a table has a line for all headings.
    assert any(set(" ".join(STEP_HEADS).split()) <= set(line.split()) for line in shown(tables, 300))


def test_without_onnx_runtime_nothing_is_compared(device: dmlvk.Device, tmp_path: Path) -> None:
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3, 4])
    onnx.save(model_of([("Transpose", ["x"], ["y"], {})], {"x": given}, {"y": np.float32}), tmp_path / "model.onnx")
    file = tmp_path / "record.json"
    result = bench(device, "--model", tmp_path / "model.onnx", "--rounds", 1, "--peer", "none", "--json", file)
    assert result.exit_code == 0, result.output
    assert "peers onnxruntime, torch-graph, torch-compile: absent, not asked for" in result.output
    assert "not compared" in result.output
    (row,) = json.loads(file.read_text())["batches"]
    assert row["inputs"] == {"x": [1, 3, 4]}
    assert row["batch"] is None


def test_a_mapped_run_is_a_share_of_all(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def timed(step: Callable[[int], Any], rounds: int) -> Times:
        for number in range(1 + rounds):
            step(number)
        return Times((1.0,))

    monkeypatch.setattr(measurement, "time_on_host", timed)
    x = elements(np.random.default_rng(0), np.int16, (4, 3))
    onnx.save(model_of([("Transpose", ["x"], ["y"], {})], {"x": x}, {"y": np.int16}), tmp_path / "model.onnx")
    file = tmp_path / "record.json"
    result = bench(device, "--model", tmp_path / "model.onnx", "--rounds", 2, "--peer", "none", "--json", file)
    assert result.exit_code == 0, result.output
    (row,) = json.loads(file.read_text())["batches"]
    assert (row["seconds"]["median"], row["mapped_seconds"]) == (1.0, 1 / measurement.MAPPED)


@pytest.mark.parametrize(("change", "status"), [(0, 0), (1, 1)])
def test_an_output_that_differs_is_status_1(
    device: dmlvk.Device, change: int, status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """ONNX Runtime's answer differs in one bit."""

    def measure(peer: Any, work: ModelWork, rounds: int) -> Any:
        outputs = {"y": np.ascontiguousarray(work.feeds["x"].T)}
        outputs["y"][2, 1] ^= change
        return Times((1.0,)), outputs, outputs

    monkeypatch.setattr(ONNXRuntimeSession, "absence", lambda peer: None)
    monkeypatch.setattr(ONNXRuntimeSession, "outputs", measure)
    x = elements(np.random.default_rng(0), np.int16, (4, 3))
    onnx.save(model_of([("Transpose", ["x"], ["y"], {})], {"x": x}, {"y": np.int16}), tmp_path / "model.onnx")
    result = bench(device, "--model", tmp_path / "model.onnx", "--rounds", "1")
    assert result.exit_code == status
    said = "y: 1 of 12 elements differ from ONNX Runtime's plain run, by at most 1" if change else "y: equal to"
    assert said in result.output


def test_a_failure_of_onnx_runtime_is_a_line(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(ONNXRuntimeSession, "absence", lambda peer: None)
    monkeypatch.setattr(ONNXRuntimeSession, "measure", fail)
    x = np.ones((4, 3), np.float32)
    onnx.save(model_of([("Transpose", ["x"], ["y"], {})], {"x": x}, {"y": np.float32}), tmp_path / "model.onnx")
    result = bench(device, "--model", tmp_path / "model.onnx", "--rounds", "1")
    assert result.exit_code == 0
    assert "onnxruntime failed, RuntimeError: out of luck" in result.output


def test_torch_s_network_has_a_table_of_its_own(device: dmlvk.Device, tmp_path: Path) -> None:
    """Its times from arrays to arrays and on the GPU stand beside the model's; its bits are not compared."""
    given = helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, [1, 3, 4])
    onnx.save(model_of([("Transpose", ["x"], ["y"], {})], {"x": given}, {"y": np.uint8}), tmp_path / "model.onnx")
    file = tmp_path / "record.json"
    assert bench(device, "--model", tmp_path / "model.onnx", "--peer", "none", "--json", file).exit_code == 0
    record = read(file)
    (row,) = record["batches"]
    ours = row["seconds"]["median"]
    row["peers"] = [
        {"peer": "torch-graph", "seconds": {"median": 3 * ours}, "gpu_seconds": 4e-3, "network": "resnet50"},
        {"peer": "torch-compile", "unsupported": "model: torchvision has no network of that name"},
    ]
    found = list(sections(record))
    (table,) = (each for each in found if "library" in each.heads)
    (only,) = table.rows
    assert only[1:3] == ("torch-graph", "resnet50")
    assert only[4].startswith("3.0")
    assert only[5] == "4.000"
    assert only[6] == f"{row['alone_seconds'] * 1e3:,.3f}", "beside ours in the device's memory"
    assert found[0].rows[0][-1] == "not compared"
    assert any("torchvision has no network of that name" in note for note in found[0].notes)


FLOATS = np.linspace(-1, 1, 7, dtype=np.float32)
LEVELS = np.arange(7, dtype=np.uint8)


@pytest.mark.parametrize(
    ("found", "plain", "optimized", "is_fused", "result"),
    [
        (LEVELS, LEVELS, LEVELS + 1, False, "equal"),
        (LEVELS, LEVELS + 1, LEVELS, False, "equal"),
        (LEVELS, LEVELS + 1, LEVELS + 1, False, "wrong"),
        (LEVELS, LEVELS + 1, LEVELS + 1, True, "different"),
        (FLOATS, FLOATS * np.float32(1 + 1e-6), FLOATS * 2, False, "different"),
        (FLOATS, FLOATS + np.float32(0.01), FLOATS * 2, False, "wrong"),
        (FLOATS, FLOATS.astype(np.float64), FLOATS.astype(np.float64), True, "wrong"),
        (FLOATS, FLOATS[:3], FLOATS[:3], True, "wrong"),
        (np.where(FLOATS > 0, np.nan, FLOATS), FLOATS, FLOATS, False, "wrong"),
        (FLOATS > 0, FLOATS >= 0, FLOATS >= 0, False, "wrong"),
        ([FLOATS], [FLOATS], [FLOATS], False, "not compared"),
    ],
)
def test_an_output_beside_onnx_runtime_s(found: Any, plain: Any, optimized: Any, is_fused: bool, result: str) -> None:
    found_out = comparison(found, plain, optimized, is_fused)
    assert found_out["result"] == result
    json.dumps(found_out, allow_nan=False)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with models that cannot be measured, or not so."""
    value = helper.make_tensor_value_info
    shapes: dict[str, Any] = {"fixed": [2, 3], "free": ["n", "h"]}
    for name, shape in shapes.items():
        given = value("x", onnx.TensorProto.FLOAT, shape)
        model = model_of([("Transpose", ["x"], ["y"], {})], {"x": given}, {"y": np.float32})
        onnx.save(model, tmp_path / f"{name}.onnx")
    text = value("x", onnx.TensorProto.STRING, [2])
    onnx.save(model_of([("Identity", ["x"], ["y"], {})], {"x": text}, {"y": np.object_}), tmp_path / "text.onnx")
    (tmp_path / "letter.onnx").write_text("Dear Sir or Madam")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("none.onnx", (), "none.onnx: the model cannot be read: No such file"),
        ("letter.onnx", (), "letter.onnx: this is no ONNX model"),
        ("fixed.onnx", ("--batch", "4"), "no input can have 4 as its first dimension; the shapes are 'x' [2, 3]"),
        ("free.onnx", (), "'x' has the shape ['n', 'h']: only its first dimension can be given a size here"),
        ("text.onnx", (), "'x' is tensor(string), for which there are no random elements"),
        (
            "fixed.onnx",
            ("--peer", "torch"),
            "there is no 'torch'; there are onnxruntime, torch-graph, torch-compile, none",
        ),
        ("fixed.onnx", ("--operator", "slice1"), "--model measures a whole model: --operator does not belong to it"),
        ("fixed.onnx", ("--size", "tiny"), "--size does not belong to it"),
    ],
)
def test_what_cannot_be_measured_is_one_error(
    device: dmlvk.Device, models: Path, name: str, options: tuple[str, ...], said: str
) -> None:
    before = sorted(models.iterdir())
    result = bench(device, "--model", models / name, "--json", models / "record.json", *options)
    assert result.exit_code != 0
    assert said in " ".join(result.output.split())
    assert result.output.count("\n") == 1
    assert sorted(models.iterdir()) == before
