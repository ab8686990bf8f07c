"""`python -m bench.cold`: its record and tables; it notices a wrong result; its processes find what they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import dmlvk
from bench.cold import CACHES, EMPTY, FIRST_RESULT, KEPT, ONE_THREAD, WAYS, measurement, process
from bench.cold.__main__ import KINDS, main
from bench.cold.tables import figure_of, first_result_seconds, is_correct, sections
from dmlvk.benchmark.kinds import read
from dmlvk.benchmark.networks import NETWORKS, Dimensions, Network
from dmlvk.benchmark.networks.work import work_of


def small(dimensions: Dimensions = Dimensions()) -> Network:  # noqa: B008 it is frozen
    """Three convolutions, two of them the same."""
    network = Network("small", 3, 10)
    x = network.convolution(network.image, 8, 3, 2)
    for _ in range(2):
        x = network.convolution(x, 8, 1)
    return network


LAYERS = [layer.name for layer in small().counts]


@pytest.fixture(autouse=True)
def _small_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETWORKS, "squeezenet", small)  # type: ignore[arg-type]


def bench(device: dmlvk.Device, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["squeezenet", "--device", device.profile.name, *arguments])


@pytest.mark.nightly
def test_first_calls_are_measured_checked_recorded_and_shown(
    device: dmlvk.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also: each process begins with the cache that is named: no file, or what another has left of all layers."""
    seen: list[tuple[str, bool, bool]] = []

    def spied(request: Any, data: Path, cache_folder: Path) -> Any:
        before = cache_folder.exists() and bool(list(cache_folder.glob("pipelines-*")))
        found = honest(request, data, cache_folder)
        seen.append((request["way"], before, bool(list(cache_folder.glob("pipelines-*")))))
        return found

    honest = measurement._in_a_process
    monkeypatch.setattr(measurement, "_in_a_process", spied)
    file, page = tmp_path / "record.json", tmp_path / "record.md"
    outputs = ["--json", str(file), "--markdown", str(page)]
    result = bench(device, "--layout", "NCHW", "--batch", "3", *outputs)
    assert result.exit_code == 0, result.output
    record = read(file, KINDS)
    assert is_correct(record)
    runs = {(run["layout"], run["cache"], run["way"]): run for run in record["runs"]}
    assert list(runs) == [*product(("nchw",), CACHES, WAYS)]
    assert [(way, before) for way, before, _ in seen] == [
        (way, cache == KEPT) for cache, way in product((EMPTY, KEPT), WAYS)
    ]
    assert all(after for *_, after in seen)
    for (_, _, way), run in runs.items():
        assert [row["name"] for row in run["layers"]] == LAYERS
        assert [row["count"] for row in run["layers"]] == [1, 2]
        assert run["open_seconds"] > 0
        assert run["compile_seconds"] > 0
        assert run["pipelines"] > 0
        assert ("very_first" in run) == (way == FIRST_RESULT)
        for row in run["layers"]:
            assert row["correct"] is True
            assert row["call_seconds"] > 0
            assert (row["compile_seconds"] is None) == (way == "all cores")
    text = page.read_text()
    assert "## batch 3, NCHW, kept cache" in text
    assert all(name in text for name in LAYERS)
    again = CliRunner().invoke(main, ["--from-json", str(file)])
    assert again.exit_code == 0, again.output
    drawn = CliRunner().invoke(main, ["--from-json", str(file), "--plot", str(tmp_path / "x.png")])
    assert drawn.exit_code == 0, drawn.output
    figure = figure_of(record)
    processes, layers = figure.axes
    assert len(processes.get_yticklabels()) == len(record["runs"]) == 6
    assert [label.get_text() for label in layers.get_yticklabels()] == [name.replace("_", " ") for name in LAYERS]
    points = {round(float(line.get_xdata()[0]), 9) for line in layers.lines if len(line.get_xdata()) == 1}
    firsts = [row for run in record["runs"] if run["way"] == FIRST_RESULT for row in run["layers"]]
    assert points == {round(1e3 * first_result_seconds(row), 9) for row in firsts}
    ends = {round(bar.get_x() + bar.get_width(), 6) for bar in processes.patches}
    for run in record["runs"]:
        whole = run["open_seconds"] + run["compile_seconds"] + sum(row["call_seconds"] for row in run["layers"])
        assert round(1e3 * whole, 6) in ends


def test_a_wrong_layer_is_status_1(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The expected output of one layer has one wrong bit, in the second image."""

    def broken(layer: Any) -> Any:
        work = honest(layer)
        if layer.name != LAYERS[1]:
            return work
        expected = work.expected.copy()
        expected[1].flat[-1] ^= 1
        return replace(work, expected=expected)

    honest = work_of
    monkeypatch.setattr(measurement, "work_of", broken)
    monkeypatch.setattr(measurement, "WAYS", (FIRST_RESULT,))
    monkeypatch.setattr(measurement, "CACHES", (EMPTY,))
    result = bench(device, "--layout", "nhwc", "--batch", "2")
    assert result.exit_code == 1
    assert result.output.count("DIFFERENT") == 3, "the process, the layer and the message"


def test_the_drivers_caches_are_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: dict[str, str] = {}

    def run(command: list[str], env: dict[str, str], **options: Any) -> Any:
        seen.update(env)
        Path(command[-1]).write_text("{}")
        return honest([sys.executable, "-c", ""], **options)

    honest = subprocess.run
    monkeypatch.setattr(subprocess, "run", run)
    assert measurement._in_a_process({}, tmp_path, tmp_path / "cache") == {}
    assert seen["__GL_SHADER_DISK_CACHE"] == "0"
    assert seen["MESA_SHADER_CACHE_DISABLE"] == "true"
    assert seen["DMLVK_CACHE_DIR"] == str(tmp_path / "cache")


def test_a_refusal_of_the_device_is_a_row(tmp_path: Path) -> None:
    request, result = tmp_path / "request.json", tmp_path / "result.json"
    asked = {"selector": "no such device", "layers": [], "batch": 1, "layout": "nhwc", "way": ONE_THREAD}
    request.write_text(json.dumps(asked))
    process.main(str(request), str(result))
    found = json.loads(result.read_text())
    assert found["failure"].startswith("DeviceError: ")
    record = {
        "device": {"name": "x", "driver": "y"},
        "date": "z",
        "network": {"name": "n", "size": 1, "layers": 1},
        "cores": 1,
        "runs": [{"batch": 1, "layout": "nhwc", "cache": EMPTY, "way": ONE_THREAD, **found}],
    }
    table, *_ = sections(record)
    assert found["failure"] in table.notes[-1]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no program that fails whatever its arguments")
def test_a_measuring_process_that_dies_is_an_error(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    ended = bench(device, "--layout", "nhwc")
    assert ended.exit_code == 1
    assert "the measuring process ended with status 1: it said nothing" in " ".join(ended.output.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("alexnet",), "there is no 'alexnet'; there are resnet50, resnext50"),
        (("unet", "--layout", "nwhc"), "there is no 'nwhc'; there are nhwc, nchw"),
    ],
)
def test_wrong_options_are_one_clear_error(device: dmlvk.Device, arguments: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(main, [*arguments, "--device", device.profile.name])
    assert result.exit_code != 0
    assert said in " ".join(result.output.split())
    assert "Traceback" not in result.output
