"""`dmlvk bench --network`: its record, tables and picture; it notices a wrong result; layers wait for each other."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

import dmlvk
from dmlvk.benchmark.kinds import read
from dmlvk.benchmark.networks import NETWORKS, Dimensions, Network, chain, timing
from dmlvk.benchmark.networks import peers as network_peers
from dmlvk.benchmark.networks.chain import measure_chain, measure_floor, measure_layer
from dmlvk.benchmark.networks.tables import is_correct
from dmlvk.benchmark.networks.work import LEVELS, ZERO_POINT, noise, work_of
from dmlvk.command_line import main
from dmlvk.runtime.engine import Engine
from dmlvk.runtime.sequence import Sequence
from tests.reference.onnx_runtime import ONNX_RUNTIME
from tests.runtime.small_work import Counter


def small(dimensions: Dimensions = Dimensions()) -> Network:  # noqa: B008 it is frozen
    """Five convolutions, two of them the same. Each driver compiles what is not in its cache."""
    network = Network("small", 3, 10)
    x = network.convolution(network.image, 8, 3, 2)
    for _ in range(2):
        x = network.convolution(x, 8, 1)
    x = network.convolution(x, 8, 3, groups=8)
    network.convolution(x, 255, 3, padding=0)
    return network


TINY = small()


@pytest.fixture(autouse=True)
def _small_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETWORKS, "squeezenet", small)  # type: ignore[arg-type]


def bench(device: dmlvk.Device, *arguments: str) -> Result:
    options = ["--device", device.profile.name, "--network", "squeezenet", "--size", "tiny", "--rounds", "1"]
    return CliRunner().invoke(main, ["bench", *options, *arguments])


def test_layers_are_measured_checked_recorded_and_drawn(device: dmlvk.Device, tmp_path: Path) -> None:
    file, picture, page = (tmp_path / name for name in ("record.json", "record.png", "record.md"))
    outputs = ["--json", str(file), "--plot", str(picture), "--markdown", str(page)]
    result = bench(device, "--batch", "1", "--batch", "3", "--peer", "none", *outputs)
    assert result.exit_code == 0, result.output
    assert "DIFFERENT" not in result.output
    assert "peers cudnn-fp16-graph, onnxruntime, ncnn: absent, not asked for" in result.output
    record = read(file)
    assert is_correct(record)
    assert record["device"]["name"] == device.profile.name
    assert [(run["batch"], run["layout"]) for run in record["runs"]] == [*product((1, 3), ("nhwc", "nchw"))]
    for run in record["runs"]:
        assert {row["name"]: row["count"] for row in run["layers"]} == {
            layer.name: count for layer, count in TINY.counts.items()
        }
        for row in (*run["layers"], run["chain"]):
            assert row["correct"] is True
            assert row["predicted_seconds"] > 0
            assert row["dispatches"] >= 1
            for seconds in row["seconds"].values():
                assert 0 < seconds["minimum"] <= seconds["median"] <= seconds["maximum"]
        assert run["chain"]["dispatches"] == sum(row["count"] * row["dispatches"] for row in run["layers"])
        estimate = sum(row["count"] * row["predicted_seconds"] for row in run["layers"])
        assert run["chain"]["predicted_seconds"] == pytest.approx(estimate)
    assert 0 < record["floor"]["device"]["median"] < 1
    with Image.open(picture) as image:
        assert image.format == "PNG"
        assert len(image.convert("RGB").getcolors(1 << 24) or []) > 50
    assert "## batch 3, NCHW" in page.read_text()
    picture.unlink()
    again = CliRunner().invoke(main, ["bench", "--from-json", str(file), "--plot", str(picture), "--dispatches"])
    assert again.exit_code == 0, again.output
    assert picture.stat().st_size > 10_000
    assert "sum of the layers" in again.output


def test_a_device_is_measured_as_a_lesser_one(
    device: dmlvk.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernels are those that the lesser device has, and the record says so."""
    seen: list[dmlvk.Device] = []
    honest = chain.measure_layer

    def noted(device: Any, *arguments: Any) -> Any:
        seen.append(device)
        return honest(device, *arguments)

    monkeypatch.setattr("dmlvk.benchmark.networks.measurement.measure_layer", noted)
    file = tmp_path / "record.json"
    options = ["--layout", "nhwc", "--batch", "1", "--peer", "none", "--json", str(file)]
    result = bench(device, *options, "--profile", "no-dot-product", "--profile", "workgroup-128")
    assert result.exit_code == 0, result.output
    name = f"{device.profile.name} as no-dot-product and workgroup-128"
    assert name in " ".join(result.output.split()) and read(file)["device"]["name"] == name
    assert device.profile.has_integer_dot_product and not any(each.profile.has_integer_dot_product for each in seen)
    assert {each.profile.limits.max_compute_work_group_invocations for each in seen} == {128}


def test_a_wrong_layer_is_status_1(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The expected output of one layer has one wrong bit, in the second image."""

    def broken(layer: Any) -> Any:
        work = honest(layer)
        if layer != TINY.layers[1]:
            return work
        expected = work.expected.copy()
        expected[1].flat[-1] ^= 1
        return replace(work, expected=expected)

    honest = work_of
    monkeypatch.setattr(chain, "work_of", broken)
    assert bench(device, "--layout", "nhwc", "--batch", "1", "--peer", "none").exit_code == 0, "there is one image"
    result = bench(device, "--layout", "nhwc", "--batch", "3", "--peer", "none")
    assert result.exit_code == 1
    assert result.output.count("DIFFERENT") == 2, "the layer's, and the message"


def test_a_wrong_layer_of_the_chain_is_named(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fourth layer has another bias on the device."""

    def compiled(device: Any, desc: Any, constants: Any) -> Any:
        asked.append(desc)
        if len(asked) == 4:
            constants = {**constants, "bias_tensor": constants["bias_tensor"] + 20_000}
        return honest_compiled(device, desc, constants)

    asked: list[Any] = []
    honest_compiled = chain.compiled
    monkeypatch.setattr(chain, "compiled", compiled)
    with dmlvk.Device(device.profile.name, timestamps=True) as own:
        assert measure_chain(own, TINY.layers, 1, "nchw", 1).wrong == (3,)
        monkeypatch.setattr(chain, "compiled", honest_compiled)
        assert measure_chain(own, TINY.layers, 1, "nchw", 1).wrong == ()


def test_a_chain_out_of_order_is_wrong(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layer is right when it runs alone, so only what the timed runs left can tell."""
    honest = timing.time_chain

    def backwards(device: Any, bindings: Any, *arguments: Any, **options: Any) -> Any:
        return honest(device, bindings[::-1], *arguments, **options)

    with dmlvk.Device(device.profile.name, timestamps=True) as own:
        monkeypatch.setattr(chain, "time_chain", backwards)
        assert measure_chain(own, TINY.layers, 1, "nhwc", 1).wrong == (len(TINY.layers) - 1,)


def test_each_layer_waits_for_the_one_before(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A barrier stands between each two dispatches, in the chain and where one layer or the floor is repeated."""
    monkeypatch.setattr(timing, "repeats", lambda seconds: 3)  # on a busy machine once would be enough
    with dmlvk.Device(device.profile.name, timestamps=True) as own:
        for measure in (
            lambda: measure_chain(own, TINY.layers, 2, "nhwc", 1),
            lambda: measure_layer(own, TINY.layers[1], 2, "nchw", 1),
            lambda: measure_floor(own, 1),
        ):
            recorded: list[Any] = []
            monkeypatch.setattr(timing, "Recorded", kept(recorded))
            measure()
            bindings = max(recorded, key=len)
            assert len(bindings) > 1
            barriers = Counter(monkeypatch, "vkCmdPipelineBarrier")
            own.sequence(bindings)
            # Each command buffer has a barrier before its dispatches, and one for the host after them.
            between = barriers.count - 1 - own.vulkan.memory.is_direct
            assert between == sum(len(binding.stages) for binding in bindings) - 1


def kept(recorded: list[Any]) -> Any:
    """The class of sequences, with a list of the bindings that each got."""

    def record(engine: Engine, bindings: Any, **options: Any) -> Sequence:
        recorded.append(bindings)
        return Sequence(engine, bindings, **options)

    return record


def test_data_keep_their_spread() -> None:
    for layer in TINY.layers:
        expected = work_of(layer).expected
        assert 0.5 * LEVELS < expected.std() < 1.6 * LEVELS
        assert abs(expected.mean() - ZERO_POINT) < LEVELS / 2
    levels = noise("a name", 100_000)
    assert abs(levels.std() - LEVELS) < 1
    assert abs(levels.mean() - ZERO_POINT) < 1
    assert not np.array_equal(levels, noise("another name", 100_000))


def by_onnx_runtime() -> tuple[float, list[str]]:
    """The peer's time for the layers, and those whose outputs are not the reference's. Runs where ONNX Runtime is."""
    import onnxruntime

    layers = TINY.layers
    times = network_peers.PEERS["onnxruntime"].measure_chain(layers, 2, "nhwc", 3)
    assert times.device is None
    wrong = []
    for layer in TINY.counts:
        model, feeds = network_peers._model([layer], 2)
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        if not np.array_equal(session.run(None, dict(feeds))[0], work_of(layer).expected):
            wrong.append(layer.name)
    return times.best.median, wrong


def test_onnx_runtime_as_a_peer_has_the_reference_s_outputs() -> None:
    seconds, wrong = ONNX_RUNTIME.call("layers of networks", by_onnx_runtime)
    assert seconds > 0
    assert not wrong


def test_a_peer_that_fails_is_one_line(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("out of luck")

    peer = type(network_peers.PEERS["cudnn-fp16-graph"])
    monkeypatch.setattr(peer, "absence", lambda self: None)
    monkeypatch.setattr(peer, "version", lambda self: "9")
    monkeypatch.setattr(peer, "measure_layer", fail)
    monkeypatch.setattr(peer, "measure_chain", fail)
    file = tmp_path / "record.json"
    result = bench(device, "--layout", "nhwc", "--batch", "1", "--peer", "cudnn-fp16-graph", "--json", str(file))
    assert result.exit_code == 0, result.output
    more = f"and {len(TINY.counts)} more: cudnn-fp16-graph failed, RuntimeError: out of luck"
    assert " ".join(result.output.split()).count(more) == 1
    assert json.loads(file.read_text())["peers"]["cudnn-fp16-graph"] == {"version": "9", "runs_on": "CUDA"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--network", "alexnet"), "there is no 'alexnet'; there are resnet50, resnext50"),
        (("--network", "unet", "--peer", "cupy"), "there is no 'cupy'; there are cudnn-fp16-graph"),
        (("--network", "unet", "--layout", "nwhc"), "there is no 'nwhc'; there are nhwc, nchw"),
        (("--network", "unet", "--profile", "none"), "there is no 'none'; there are device, minimum, "),
        (("--network", "unet", "--case", "x"), "--network measures all layers of a network: --case does not belong"),
        (("--network", "unet", "--operator", "slice1"), "--operator does not belong to it"),
        (("--network", "unet", "--list"), "--list does not belong to it"),
        (("--network", "unet", "--model", "x.onnx"), "--model measures a whole model: --network does not belong to it"),
        (("--network", "unet", "--from-json", "x.json"), "--from-json does not belong to it"),
        (("--batch", "1", "--batch", "2"), "--batch is one number, unless --model or --network is given"),
        (("--network", "unet", "--batch", "0"), "0 is not in the range x>=1"),
    ],
)
def test_wrong_options_are_one_clear_error(device: dmlvk.Device, arguments: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(main, ["bench", "--device", device.profile.name, *arguments])
    assert result.exit_code != 0
    assert said in " ".join(result.output.split())
    assert result.output.count("\n") == 1
