"""Networks as data, and as models with random weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from bench.networks import PIXELS, Writer, main
from dmlvk.benchmark.networks import NETWORKS, SIZES, Dimensions
from dmlvk.benchmark.networks.network import IMAGE, Network
from tests.reference.onnx_runtime import ONNX_RUNTIME

# Convolutions, different ones, and billions of multiply-adds in the convolutions, as published.
PUBLISHED = {
    "resnet50": (53, 23, 4.09),
    "resnext50": (53, 24, 4.23),
    "mobilenetv2": (52, 30, 0.299),
    "efficientnetb0": (49, 32, 0.384),
    "squeezenet": (26, 18, 0.349),
    "yolov3tiny": (13, 12, 2.78),
    "unet": (18, 15, 9.22),
}
# Features that a benchmark of layers should meet, and a layer that has each.
FEATURES = {
    "32 channels": ("unet", "32-32_256x256_3x3"),
    "5x5 depthwise": ("efficientnetb0", "672-672_14x14_5x5_stride2_depthwise"),
    "odd sizes": ("squeezenet", "512-1000_13x13_1x1"),
    "concatenated inputs": ("yolov3tiny", "384-256_26x26_3x3"),
    "255 outputs": ("yolov3tiny", "512-255_13x13_1x1"),
    "4 channels a group": ("resnext50", "128-128_56x56_3x3_groups32"),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_network_has_the_published_layers(name: str) -> None:
    network = NETWORKS[name](SIZES["full"])
    layers, different, billions = PUBLISHED[name]
    assert (len(network.layers), len(network.counts)) == (layers, different)
    assert sum(network.counts.values()) == layers
    products = sum(
        layer.filters * layer.channels // layer.groups * layer.kernel**2 * layer.output_size**2
        for layer in network.layers
    )
    assert products / 1e9 == pytest.approx(billions, rel=0.01)


@pytest.mark.parametrize("feature", FEATURES)
def test_the_networks_have_layers_of_all_kinds(feature: str) -> None:
    name, layer = FEATURES[feature]
    assert layer in {each.name for each in NETWORKS[name](SIZES["full"]).layers}


def test_every_network_has_a_test() -> None:
    assert NETWORKS.keys() == PUBLISHED.keys()


def values_by_onnx_runtime(model: bytes, feeds: Mapping[str, Any], names: list[str]) -> dict[str, np.ndarray]:
    """Values inside a model. Runs in a process of its own."""
    import onnxruntime

    proto = onnx.load_from_string(model)
    proto.graph.output.extend(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UINT8, None) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_model_of_a_network_neither_saturates_nor_vanishes(name: str) -> None:
    """Also: the image that gave the scales has the same values by ONNX Runtime."""
    network: Network = NETWORKS[name](Dimensions(width=0.25, size=96, blocks=2))
    writer = Writer(network, np.random.default_rng(3))
    model = writer.model()
    shape = [dim.dim_param or dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    assert shape == ["images", 3, 96, 96]
    image = writer.values[IMAGE]
    other = np.random.default_rng(4).standard_normal(image.levels.shape, np.float32)
    pixels = np.concatenate([image.real.astype(np.float32), other])
    feeds = {PIXELS: pixels}
    found = ONNX_RUNTIME.call(name, values_by_onnx_runtime, model.SerializeToString(), feeds, [*writer.values])
    for value, array in found.items():
        assert array.dtype == np.uint8
        assert len(array) == 2
        assert (array[0] != array[1]).mean() > 0.2, f"{value} says nothing about the image"
        for levels in array:
            assert len(np.unique(levels)) >= min(64, levels.size // 8), f"{value} vanishes"
            assert (levels == 255).mean() < 0.1, f"{value} saturates"
            assert (levels == 0).mean() < 0.7, f"{value} vanishes"
        # Roundings add up over many layers, to three levels. What another node computes differs by tens.
        difference = np.abs(array[:1].astype(int) - writer.values[value].levels.astype(int)).mean()
        assert difference < 8, f"{value} is not what the node computes"


def test_a_network_is_written_as_a_file(tmp_path: Path) -> None:
    file = tmp_path / "small.onnx"
    options = ["--width", "0.125", "--size", "64", "--blocks", "1"]
    for seed in ("1", "1", "2"):
        before = file.read_bytes() if file.exists() else b""
        result = CliRunner().invoke(main, ["squeezenet", str(file), *options, "--seed", seed])
        assert result.exit_code == 0, result.output
        assert "11 convolution" in result.output
        assert before in (b"", file.read_bytes()) or seed == "2"
    assert before != file.read_bytes()
    onnx.checker.check_model(onnx.load(file))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("alexnet", "x.onnx"), "'alexnet' is not one of 'resnet50'"), (("unet", "no/such/x.onnx"), str(Path("no/such")))],
)
def test_what_cannot_be_written_is_one_error(arguments: tuple[str, str], said: str, tmp_path: Path) -> None:
    name, file = arguments
    result = CliRunner().invoke(main, [name, str(tmp_path / file), "--size", "64", "--width", "0.1", "--blocks", "1"])
    assert not list(tmp_path.iterdir())
    assert result.exit_code != 0
    assert said in result.output
    assert "Traceback" not in result.output
