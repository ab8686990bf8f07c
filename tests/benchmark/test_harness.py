"""`dmlvk bench`: its table, its record and its picture; it notices a wrong result."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

import dmlvk
from dmlvk.benchmark import cases, choice, harness, marks
from dmlvk.benchmark.marks import measure_marks
from dmlvk.benchmark.peers import PEERS
from dmlvk.benchmark.records import Record
from dmlvk.benchmark.tables import best_trial, summary
from dmlvk.benchmark.timing import Times
from dmlvk.benchmark.work import Work
from dmlvk.command_line import main
from dmlvk.conformance.case import Case
from tests.reference.onnx_runtime import ONNX_RUNTIME

SLICE = "slice1:row_step_2:type=UINT16"
LAYER = "quantized_linear_convolution:144-144_56x56_3x3_depthwise:type=UINT8;filter_zero_point=3;layout=nhwc"


def bench(device: dmlvk.Device, *arguments: str) -> Result:
    options = ["--device", device.profile.name, "--size", "tiny", "--rounds", "3"]
    return CliRunner().invoke(main, ["bench", *options, *arguments])


def test_cases_are_measured_checked_recorded_and_drawn(device: dmlvk.Device, tmp_path: Path) -> None:
    file, picture = tmp_path / "record.json", tmp_path / "record.png"
    names = [SLICE, LAYER, "diagonal_matrix1:identity:type=FLOAT32", "one_hot:first_axis:depth=256;type=UINT8"]
    chosen = [argument for name in names for argument in ("--case", name)]
    result = bench(device, *chosen, "--json", str(file), "--plot", str(picture), "--peer", "numpy", "--peer", "cupy")
    assert result.exit_code == 0, result.output
    assert "DIFFERENT" not in result.output
    assert "peer cupy: absent, the Python package cupy is not installed" in result.output
    assert "not asked for" in result.output
    record = json.loads(file.read_text())
    assert record["device"]["name"] == device.profile.name
    assert {row["name"] for row in record["cases"]} == set(names)
    assert len(record["kernels"]["spirv_sha256"]) > 20
    assert record["versions"]["numpy"] == np.__version__
    for row in record["cases"]:
        seconds = row["seconds"]
        assert 0 < seconds["minimum"] <= seconds["first_quartile"] <= seconds["median"] <= seconds["maximum"]
        assert row["correct"] is True
        assert row["mark"]["bound_by"] in record["marks"]
        assert row["mark"]["fraction"] == pytest.approx(row["mark"]["seconds"] / seconds["median"])
        assert row["bytes_per_second"] == pytest.approx(row["bytes"] / seconds["median"])
        assert row["dispatches"]
        assert (row["processor_seconds"] is not None) == (device.profile.device_type is dmlvk.DeviceType.CPU)
        for trial in row["peers"]:
            assert trial.get("result", "equal") == "equal", "NumPy agrees"
            assert ("seconds" in trial) == (row["name"] != LAYER), "NumPy has all but a convolution"
    for mark in record["marks"].values():
        assert mark["correct"] is True
        assert mark["rate"] > 0
    with Image.open(picture) as image:
        assert image.format == "PNG"
        assert len(image.convert("RGB").getcolors(1 << 24) or []) > 50
    picture.unlink()
    page = tmp_path / "record.md"
    options = ["--plot", str(picture), "--markdown", str(page), "--dispatches"]
    again = CliRunner().invoke(main, ["bench", "--from-json", str(file), *options])
    assert again.exit_code == 0
    assert picture.stat().st_size > 10_000
    assert "quantized_linear_convolution/" in again.output, "the kernels of each dispatch"
    assert re.search(r"\| slice1:\S+ \| \S+ \| [\d.,]+ \|", page.read_text())
    assert "DIFFERENT" not in page.read_text()


def test_a_wrong_result_is_status_1(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The expected output has one wrong bit."""

    def broken(*arguments: Any, **options: Any) -> list[Case]:
        found = []
        for case in original(*arguments, **options):
            made = case.build()
            expected = np.array(made.expected)
            expected.reshape(-1)[-1] ^= 1
            found.append(replace(case, build=partial(replace, made, expected=expected)))
        return found

    original = cases.select
    monkeypatch.setattr(choice, "select", broken)
    result = bench(device, "--case", SLICE, "--peer", "numpy")
    assert result.exit_code == 1
    assert "DIFFERENT" in result.output


def test_a_wrong_mark_is_noticed(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every element of a mark's result has one wrong bit."""
    with dmlvk.Device(device.profile.name, timestamps=True) as opened:
        found, absent = measure_marks(opened, 1 << 16, 1)
        assert all(mark.correct for mark in found.values())
        assert {*found, *absent} == set(marks.MARKS)
        run = marks._run

        def other(*arguments: Any, **options: Any) -> Any:
            times, result = run(*arguments, **options)
            return times, result ^ np.uint32(1 << 7)

        monkeypatch.setattr(marks, "_run", other)
        found, _ = measure_marks(opened, 1 << 16, 1)
        assert not any(mark.correct for mark in found.values())


def test_a_forced_path_that_is_not_there_is_said_to_be_impossible(device: dmlvk.Device) -> None:
    result = bench(device, "--case", SLICE, "--path", "tiles", "--peer", "none")
    assert result.exit_code == 0
    assert "tiles" in result.output
    result = bench(device, "--case", SLICE, "--path", "integer", "--peer", "none")
    assert "has no kernel path 'integer'" in result.output


def test_a_peer_that_fails_is_reported(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(type(PEERS["numpy"]), "measure", fail)
    result = bench(device, "--case", SLICE, "--peer", "numpy")
    assert result.exit_code == 0
    assert "numpy failed, RuntimeError: out of luck" in result.output


@pytest.mark.parametrize("name", ["slice1", "diagonal_matrix1", "one_hot", "512-512_7x7*=0;layout=nhwc"])
@pytest.mark.parametrize("peer", ["numpy", "onnxruntime"])
def test_peers_on_the_cpu_agree(name: str, peer: str) -> None:
    rows = ONNX_RUNTIME.call(name, trials, name, peer)
    has_none = peer == "numpy" and "layout" in name  # NumPy has no convolution
    assert any(row.get("result") == "equal" for row in rows.values()) != has_none
    for case, row in rows.items():
        if row.get("result") == "DIFFERENT":
            # ONNX Runtime converts float16 to float32 and back, which changes NaNs.
            assert (peer, "FLOAT16" in case) == ("onnxruntime", True), case
        else:
            assert {"result", "unsupported", "failure"} & row.keys()


def trials(name: str, peer: str) -> dict[str, Record]:
    """The record of a peer for each case that the name matches. Runs in a process that the peer may crash."""
    found = {}
    for case in cases.select(cases.cases(cases.SCALES["tiny"]), patterns=[name]):
        made = case.build()
        found[case.name] = PEERS[peer].trial(harness._trial, PEERS[peer], made, made.result(), 1)
    return found


def test_a_convolution_s_mark_is_the_larger_of_bytes_and_operations() -> None:
    times = Times((1.0,))
    rates = {"copy": 100.0, "fill": 200.0, "matrix": 1000.0, "float_multiply_add": 10.0, "integer_multiply_add": 5.0}
    known = {name: marks.Mark(name, rate, "", "", times, True) for name, rate in rates.items()}
    assert harness.mark_seconds(Work(50, 50, 100), "matrix", known) == (1.0, "copy")
    assert harness.mark_seconds(Work(50, 50, 5000), "matrix", known) == (5.0, "matrix")
    assert harness.mark_seconds(Work(50, 50, 5000), None, known) == (500.0, "float_multiply_add")
    assert harness.mark_seconds(Work(50, 50, 5000), "dot_product", known) is None
    assert harness.mark_seconds(Work(0, 100), None, known) == (0.5, "fill")
    assert harness.mark_seconds(Work(50, 50), None, known) == (1.0, "copy")


def test_the_unit_of_a_kernel_is_what_its_spirv_declares() -> None:
    convolution = "quantized_linear_convolution"
    assert harness.unit_of([f"{convolution}/pack_input", f"{convolution}/matrix"]) == "matrix"
    assert harness.unit_of([f"{convolution}/vectors_dot4"]) == "dot_product"
    assert harness.unit_of([f"{convolution}/tile_integer", "slice1/blocks"]) is None


def test_a_work_s_best_peer_is_found_from_each_of_its_layouts() -> None:
    def seconds(median: float) -> dict[str, Any]:
        return {"median": median}

    trials = [
        {"peer": "a", "seconds": seconds(2.0)},
        {"peer": "b", "seconds": seconds(1.5)},
        {"peer": "cpu", "seconds": seconds(0.1)},
        {"peer": "c", "failure": "no"},
    ]
    common = {"operator": "quantized_linear_convolution", "work": "w"}
    record: dict[str, Any] = {
        "device": {"type": "DISCRETE_GPU"},
        "peers": {name: {"runs_on": "CPU" if name == "cpu" else "CUDA"} for name in ("a", "b", "c", "cpu")},
        "cases": [
            {**common, "name": "x:layer:layout=nhwc", "seconds": seconds(1.0), "peers": trials},
            {**common, "name": "x:layer:layout=nchw", "seconds": seconds(3.0)},
        ],
    }
    best = best_trial(record, record["cases"][1])
    assert best is not None
    assert best["peer"] == "b"
    on_cpu = best_trial({**record, "device": {"type": "CPU"}}, record["cases"][1])
    assert on_cpu is not None and on_cpu["peer"] == "cpu"
    nhwc, nchw = summary(record)
    assert "layout=nhwc: 1.50 times" in nhwc
    assert "layout=nchw: 0.50 times" in nchw


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--operator", "sliced"), "there is no 'sliced'; there are slice1"),
        (("--peer", "tourch"), "there is no 'tourch'"),
        (("--case", "no such case"), "no case matches the options"),
        (("--megabytes", "3"), "is not a power of two"),
    ],
)
def test_wrong_options_say_what_there_is(device: dmlvk.Device, arguments: tuple[str, ...], said: str) -> None:
    result = bench(device, *arguments)
    assert result.exit_code != 0
    assert said in " ".join(result.output.replace("│", " ").split())


def test_operators_have_names_in_upper_and_lower_case(device: dmlvk.Device) -> None:
    lower = bench(device, "--operator", "slice1", "--list")
    upper = bench(device, "--operator", "SLICE1", "--list")
    assert upper.exit_code == 0 and upper.output == lower.output
    assert upper.output.splitlines() and all(line.startswith("slice1:") for line in upper.output.splitlines())
    case = bench(device, "--case", "SLICE1:Row_Step_2:type=uint16", "--list")
    assert case.output.split() == [SLICE]


def test_a_case_of_an_operator_that_is_not_chosen_is_refused(device: dmlvk.Device) -> None:
    result = bench(device, "--operator", "ONE_HOT", "--case", SLICE)
    assert result.exit_code == 2
    said = " ".join(result.output.replace("│", " ").split())
    assert f"--case '{SLICE}' names cases of slice1, but --operator chooses one_hot: leave one of the two out" in said
    both = bench(device, "--operator", "one_hot", "--operator", "slice1", "--case", SLICE, "--list")
    assert both.exit_code != 0 and "one_hot" in both.output


def test_a_file_that_is_no_record_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    for content in ("{", "[]", '{"format": 99}'):
        file.write_text(content)
        result = CliRunner().invoke(main, ["bench", "--from-json", str(file)])
        assert result.exit_code == 1
        assert "other.json" in result.output
