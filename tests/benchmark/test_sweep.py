"""`python -m bench.sweep`: its shapes, its check against the reference, its record, tables and picture."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import numpy as np
import pytest
from click.testing import CliRunner, Result

import dmlvk
from bench.sweep import OPERATORS, measurement
from bench.sweep.__main__ import KINDS, main
from bench.sweep.measurement import SweepSettings, bound, run
from bench.sweep.shapes import ConvolutionShape, MovementShape, SweptShape, shapes
from bench.sweep.tables import figure_of, is_correct, measured, sections, share
from dmlvk import reference
from dmlvk.benchmark.cases.quantized_linear_convolution import Layer
from dmlvk.benchmark.kinds import read
from dmlvk.benchmark.marks import Mark
from dmlvk.benchmark.records import Record
from dmlvk.benchmark.timing import Times
from dmlvk.benchmark.work import Work

matplotlib.use("Agg")
BYTES = 1 << 12
SHAPES = (
    ConvolutionShape(Layer(3, 9, 8, 3, 2), 2, "nchw"),
    ConvolutionShape(Layer(12, 7, 8, 5, 1, 4), 3, "nhwc"),
    ConvolutionShape(Layer(6, 8, 6, 3, 2, 6), 1, "nhwc"),
    MovementShape(dmlvk.DataType.UINT16, (3, 40, 5), (2, 0, 1), (1, -2, 1)),
)


@pytest.fixture
def timed_device(device: dmlvk.Device) -> Iterator[dmlvk.Device]:
    with dmlvk.Device(device.profile.name, timestamps=True) as opened:
        yield opened


def run_of_nothing() -> Record:
    """A record without shapes, as on a device without marks."""
    device = {"name": "a GPU", "driver": "a driver"}
    return {"device": device, "date": "2026-11-26", "seed": 1, "marks": {}, "peers": {}, "absent_peers": {}}


def bench(device: dmlvk.Device, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--device", device.profile.name, *arguments])


def test_the_same_seed_gives_the_same_different_shapes() -> None:
    first, again, other = (
        [shape.name for shape in itertools.islice(shapes(OPERATORS, seed, 1 << 20), 60)] for seed in (1, 1, 2)
    )
    assert first == again and first != other and len(set(first)) == 60
    assert [name.partition(":")[0] for name in first] == [*OPERATORS] * 30
    for shape in itertools.islice(shapes(OPERATORS, 3, 1 << 16), 100):
        assert shape.work.bytes_moved <= 2.5 * (1 << 16)  # inputs, outputs, and parameters for each channel


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_outputs_are_held_against_the_reference(shape: SweptShape) -> None:
    """The reference's whole output is right. A wrong element at a compared place is noticed, whatever the place."""
    inputs = shape.inputs()
    right = reference.run(shape.desc, **inputs)
    assert shape.is_right(inputs, right)
    noticed = 0
    for place in np.ndindex(right.shape):
        wrong = right.copy()
        wrong[place] ^= 1
        noticed += not shape.is_right(inputs, wrong)
    assert noticed == right.size if isinstance(shape, MovementShape) else noticed >= min(right.size, 64) // 3
    corner = right.copy()
    corner[(*[0] * right.ndim,)] ^= 1
    if right.shape[0] == 1 or isinstance(shape, MovementShape):
        assert not shape.is_right(inputs, corner)


def test_a_sweep_is_measured_recorded_and_shown(device: dmlvk.Device, tmp_path: Path) -> None:
    record_file, picture, page = (tmp_path / f"sweep.{kind}" for kind in ("json", "png", "md"))
    outputs = ("--json", str(record_file), "--plot", str(picture), "--markdown", str(page))
    options = ("--operator", "SLICE1", "--operator", OPERATORS[0], "--megabytes", "1", "--rounds", "3")
    done = bench(device, "--seconds", "2", "--seed", "5", *options, *outputs)
    assert done.exit_code == 0, done.output
    record = read(record_file, KINDS)
    names = [shape.name for shape in itertools.islice(shapes(OPERATORS, 5, 1 << 20), len(record["shapes"]))]
    assert [row["name"] for row in record["shapes"]] == names
    assert record["seed"] == 5 and is_correct(record)
    assert picture.read_bytes().startswith(b"\x89PNG")
    text = page.read_text(encoding="utf-8")
    assert record["shapes"][0]["name"].partition(":")[2] in text and "64 elements were compared" in text
    again = CliRunner().invoke(main, ["--from-json", str(record_file)])
    assert again.exit_code == 0 and "share of the bound" in again.output


def test_tables_begin_with_the_least_share(timed_device: dmlvk.Device) -> None:
    record = run(timed_device, SweepSettings(OPERATORS, 60.0, 1, BYTES, 3, ()), row=SHAPES)
    assert is_correct(record) and len(record["shapes"]) == len(SHAPES)
    rows = measured(record, OPERATORS[0])
    assert len(rows) == 3 and [share(row) for row in rows] == sorted(map(share, rows))
    (table, movements) = sections(record)
    assert [row[0] for row in table.rows] == [row["name"].partition(":")[2] for row in rows]
    assert len(movements.rows) == 1
    figure = figure_of(record)
    points = sum(len(line.get_xdata()) for axes in figure.axes for line in axes.lines if line.get_marker() != "None")
    assert points == len(SHAPES)


def test_shapes_wait_for_their_own_kernels(timed_device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until these are compiled, general ones run, which no shape is to be judged by."""
    compile_, waits = dmlvk.Device.compile, []

    def compiled(self: dmlvk.Device, desc: Any, path: str | None = None, *, wait: bool = False) -> Any:
        waits.append(wait)
        return compile_(self, desc, path, wait=wait)

    monkeypatch.setattr(measurement, "measure_marks", lambda *_: ({}, {}))
    monkeypatch.setattr(measurement, "bound", lambda *_: (1e-6, "copy"))
    monkeypatch.setattr(dmlvk.Device, "compile", compiled)
    run(timed_device, SweepSettings(OPERATORS, 60.0, 1, BYTES, 3, ()), row=SHAPES)
    assert waits == [True] * len(SHAPES)


def test_the_slowest_beside_a_peer_come_first() -> None:
    def row(name: str, seconds: float, *peers: float) -> Record:
        row = {"name": f"{OPERATORS[0]}:{name}", "path": "direct", "seconds": seconds, "predicted_seconds": seconds}
        bound = {"seconds": 1e-6, "bound_by": "copy"}
        return {**row, "bound": bound, "correct": True, "peers": [{"peer": "a", "seconds": each} for each in peers]}

    rows = [row("slow", 9e-6, 3e-6), row("alone", 9e-6), row("slowest", 5e-6, 1e-6), row("fast", 1e-6, 2e-6)]
    record = {**run_of_nothing(), "shapes": rows}
    _, beside = sections(record)
    assert [cells[0] for cells in beside.rows] == ["slowest", "slow", "fast"]
    assert [cells[8] for cells in beside.rows] == ["0.20", "0.33", "2.00"]
    (_,) = sections({**record, "shapes": rows[1:2]})


def test_a_wrong_result_is_reported(timed_device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    numpy = dmlvk.Tensor.numpy
    wrong_from = [0]

    def broken(self: Any, *arguments: Any) -> Any:
        found = numpy(self, *arguments)
        wrong_from[0] += 1
        return found ^ 1 if found.ndim == 4 else found

    monkeypatch.setattr(dmlvk.Tensor, "numpy", broken)
    record = run(timed_device, SweepSettings(OPERATORS, 60.0, 1, BYTES, 3, ()), row=SHAPES[:1])
    assert wrong_from[0] and not is_correct(record)
    assert next(sections(record)).rows[0][-1] == "DIFFERENT"


def test_no_shape_is_begun_when_the_time_is_over(timed_device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr(measurement, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    record = run(timed_device, SweepSettings(OPERATORS, 2, 1, BYTES, 3, ()), row=SHAPES)
    assert len(record["shapes"]) == 2


def test_the_bound_is_that_of_the_fastest_unit() -> None:
    def mark(name: str, rate: float) -> Mark:
        return Mark(name, rate, "", "", Times((1.0,)), True)

    marks = {name: mark(name, rate) for name, rate in {"copy": 10.0, "fill": 20.0, "float_multiply_add": 4.0}.items()}
    marks["integer_multiply_add"] = mark("integer_multiply_add", 2.0)
    assert bound(Work(50, 50), marks) == (10.0, "copy")
    assert bound(Work(1, 99), marks) == (5.0, "fill")
    assert bound(Work(50, 50, 100), marks) == (25.0, "float_multiply_add")
    assert bound(Work(50, 50, 20), marks) == (10.0, "copy")
    marks["matrix"] = mark("matrix", 400.0)
    assert bound(Work(50, 50, 8000), marks) == (20.0, "matrix")


def test_wrong_options_are_refused(device: dmlvk.Device) -> None:
    for options, message in {
        ("--operator", "one_hot"): "one_hot",
        ("--peer", "cupy"): "cupy",
        ("--seconds", "0"): "--seconds",
        ("--megabytes", "3"): "3 is not a power of two",
    }.items():
        done = CliRunner().invoke(main, ["--device", device.profile.name, *options])
        assert done.exit_code != 0 and message in done.output, done.output
