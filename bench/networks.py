"""Writes a well-known network with random weights as a quantized ONNX model (QOperator), for any number of images.

    python -m bench.networks resnet50 FILE.onnx [--width 1] [--size N] [--blocks N] [--seed 0]

The network is one of `dmlvk.benchmark.networks`. Its image is float32, of the standard normal distribution; its
convolutions are QLinearConv with a bias, a scale for each channel and uint8 data; sums are QLinearAdd; maxima, means,
repeated pixels, concatenations and the product at the end are MaxPool, QLinearGlobalAveragePool, Resize, Concat and
QGemm; its outputs are float32 again.

Random weights alone would make the values vanish or saturate after a few layers. So the weights are random numbers of
7 bits, whose products ONNX Runtime adds exactly on processors without VNNI too, and the scales and biases come from a
random image that passes through the network in NumPy: each channel of each convolution gets about the same mean and
spread, as a trained network's normalization gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from dmlvk import DataType
from dmlvk._common import files
from dmlvk.benchmark.cases.quantized_linear_convolution import descriptor
from dmlvk.benchmark.networks import NETWORKS, Dimensions, LayerNode, Network
from dmlvk.benchmark.networks.network import IMAGE
from dmlvk.reference.quantized_linear_convolution import correlate

Array = npt.NDArray[Any]
OPSET, IR_VERSION = 17, 9
MICROSOFT = "com.microsoft"
PIXELS = "pixels"
# Levels of a byte for the standard deviation of what a convolution computes: without and with rectification.
LEVELS, RECTIFIED_LEVELS = 40, 50
MIDDLE = 128
# The offset of a channel, in standard deviations.
OFFSET = 0.3
# After a sum or a mean: the share of the values that may lie beyond the limits, and a reserve for other images.
BEYOND, RESERVE = 1e-3, 1.3


@dataclass(frozen=True)
class Value:
    """A quantized tensor of the image that passes through.

    Attributes:
        levels (ndarray): uint8.
        scale (float):
        zero_point (int):
    """

    levels: Array
    scale: float
    zero_point: int

    @property
    def centred(self) -> Array:
        """The levels without the zero point."""
        return self.levels.astype(np.int64) - self.zero_point

    @property
    def real(self) -> Array:
        """What the levels stand for."""
        return self.centred * self.scale

    @classmethod
    def of(cls, real: Array, scale: float, zero_point: int) -> Value:
        """Real numbers, quantized."""
        levels = np.clip(np.rint(real / scale) + zero_point, 0, 255).astype(np.uint8)
        return cls(levels, float(np.float32(scale)), zero_point)

    @classmethod
    def in_range(cls, real: Array, is_rectified: bool) -> Value:
        """Real numbers, quantized with the scale that nearly all of them need."""
        limit = float(np.quantile(np.abs(np.maximum(real, 0) if is_rectified else real), 1 - BEYOND)) * RESERVE
        return cls.of(real, limit / 255, 0) if is_rectified else cls.of(real, limit / (MIDDLE - 1), MIDDLE)


class Writer:
    """Writes the nodes of a network one after the other, while an image passes through them.

    Args:
        network (Network):
        random (Generator):
        is_real (bool): Whether the model's image and outputs are float32, or uint8 as within the model.
    """

    def __init__(self, network: Network, random: np.random.Generator, is_real: bool = True) -> None:
        self._network = network
        self._random = random
        self._given = PIXELS if is_real else IMAGE
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, Array] = {}
        self._outputs: list[onnx.ValueInfoProto] = []
        self.values: dict[str, Value] = {}

    def model(self) -> onnx.ModelProto:
        """The whole model."""
        network = self._network
        sizes = (1, network.channels, network.size, network.size)
        value = self.values[IMAGE] = Value.of(self._random.standard_normal(sizes), 1 / LEVELS, MIDDLE)
        if self._given == PIXELS:
            parameters = [self._constant(f"{IMAGE}_{name}", array) for name, array in _quantization(value)]
            self._emit("QuantizeLinear", IMAGE, [PIXELS, *parameters])
        for node in network.nodes.values():
            self.values[node.name] = WRITERS[node.kind](self, node, [self.values[name] for name in node.inputs])
        for node in network.outputs:
            self._give(node)
        given = helper.make_tensor_value_info(self._given, self._element, ["images", *sizes[1:]])
        constants = [numpy_helper.from_array(array, name) for name, array in self._constants.items()]
        graph = helper.make_graph(self._nodes, network.name, [given], self._outputs, constants)
        imports = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)
        onnx.checker.check_model(model)
        return model

    def _give(self, node: LayerNode) -> None:
        """An output of the model."""
        name = node.name
        if self._given == PIXELS:
            name = f"{node.name}_real"
            self._emit("DequantizeLinear", name, self._quantized(node.name))
        sizes = [node.channels] if node.kind == "product" else [node.channels, node.size, node.size]
        self._outputs.append(helper.make_tensor_value_info(name, self._element, ["images", *sizes]))

    @property
    def _element(self) -> int:
        return int(TensorProto.FLOAT if self._given == PIXELS else TensorProto.UINT8)

    def _constant(self, name: str, array: Array) -> str:
        self._constants[name] = array
        return name

    def _scale_and_zero_point(self, name: str) -> list[str]:
        """The names of the scale and the zero point of a value."""
        return [self._constant(f"{name}_{part}", array) for part, array in _quantization(self.values[name])]

    def _quantized(self, name: str) -> list[str]:
        """A value, its scale and its zero point."""
        return [name, *self._scale_and_zero_point(name)]

    def _emit(self, operator: str, name: str, inputs: list[str], domain: str = "", **attributes: Any) -> None:
        node = helper.make_node(operator, inputs, [name], name=name, domain=domain or None, **attributes)
        self._nodes.append(node)

    def convolution(self, node: LayerNode, sources: list[Value]) -> Value:
        """QLinearConv."""
        layer = node.layer
        assert layer is not None
        sizes = (layer.filters, layer.channels // layer.groups, layer.kernel, layer.kernel)
        geometry = descriptor(layer, 1, "nchw", DataType.UINT8).geometry
        weights = self._random.integers(-63, 64, sizes, np.int8)
        sums = correlate(sources[0].centred, weights.astype(np.int64), geometry)
        value, scale, bias = self._normalized(sums, sources[0].scale, node.is_rectified)
        self.values[node.name] = value
        weight_names = self._weights(node.name, weights, scale)
        bias_name = self._constant(f"{node.name}_bias", bias)
        inputs = [*self._quantized(node.inputs[0]), *weight_names, *self._scale_and_zero_point(node.name), bias_name]
        attributes: dict[str, Any] = {
            "strides": [layer.stride] * 2,
            "pads": [layer.margin] * 4,
            "group": layer.groups,
        }
        self._emit("QLinearConv", node.name, inputs, kernel_shape=[layer.kernel] * 2, **attributes)
        return value

    def _weights(self, name: str, weights: Array, scale: Array) -> list[str]:
        """Weights, their scales and their zero points."""
        parts = {"weights": weights, "weight_scale": scale, "weight_zero_point": np.zeros(scale.shape, np.int8)}
        return [self._constant(f"{name}_{part}", array) for part, array in parts.items()]

    def _normalized(self, sums: Array, input_scale: float, is_rectified: bool) -> tuple[Value, Array, Array]:
        """The output of sums of products (1, channels, ...), and the weights' scales and the bias that give it."""
        axes = (0, *range(2, sums.ndim))
        one_channel = (1, -1, *(1,) * (sums.ndim - 2))
        # Few pixels say little about a channel's spread.
        few = 16 / (16 + sums[0, 0].size)
        spread = np.maximum(1, (1 - few) * sums.std(axes) + few * sums.std())
        middle = (1 - few) * sums.mean(axes) - spread * self._random.normal(0, OFFSET, spread.shape)
        bias = -np.rint(middle).astype(np.int32)
        scale = (1 / (input_scale * spread)).astype(np.float32)
        real = (sums + bias.reshape(one_channel)) * (scale * input_scale).reshape(one_channel)
        if is_rectified:
            return Value.of(real, 1 / RECTIFIED_LEVELS, 0), scale, bias
        return Value.of(real, 1 / LEVELS, MIDDLE), scale, bias

    def add(self, node: LayerNode, sources: list[Value]) -> Value:
        """QLinearAdd."""
        first, second = sources
        self.values[node.name] = value = Value.in_range(first.real + second.real, node.is_rectified)
        inputs = [name for source in node.inputs for name in self._quantized(source)]
        self._emit("QLinearAdd", node.name, [*inputs, *self._scale_and_zero_point(node.name)], MICROSOFT)
        return value

    def concat(self, node: LayerNode, sources: list[Value]) -> Value:
        """Concat, of values with one scale."""
        first = sources[0]
        assert all((each.scale, each.zero_point) == (first.scale, first.zero_point) for each in sources)
        self._emit("Concat", node.name, list(node.inputs), axis=1)
        return Value(np.concatenate([each.levels for each in sources], 1), first.scale, first.zero_point)

    def maximum(self, node: LayerNode, sources: list[Value]) -> Value:
        """MaxPool."""
        kernel, stride, before, after = node.window
        (source,) = sources
        attributes: dict[str, Any] = {
            "kernel_shape": [kernel] * 2,
            "strides": [stride] * 2,
            "pads": [before] * 2 + [after] * 2,
        }
        self._emit("MaxPool", node.name, list(node.inputs), **attributes)
        levels = np.pad(source.levels, ((0, 0), (0, 0), (before, after), (before, after)))
        windows = np.lib.stride_tricks.sliding_window_view(levels, (kernel, kernel), (2, 3))
        return Value(windows[:, :, ::stride, ::stride].max((-2, -1)), source.scale, source.zero_point)

    def mean(self, node: LayerNode, sources: list[Value]) -> Value:
        """QLinearGlobalAveragePool."""
        real = sources[0].real.mean((2, 3), keepdims=True)
        self.values[node.name] = value = Value.in_range(real, sources[0].zero_point == 0)
        inputs = [*self._quantized(node.inputs[0]), *self._scale_and_zero_point(node.name)]
        self._emit("QLinearGlobalAveragePool", node.name, inputs, MICROSOFT, channels_last=0)
        return value

    def double(self, node: LayerNode, sources: list[Value]) -> Value:
        """Resize to twice the size, to the nearest pixel."""
        factors = self._constant("double", np.array([1, 1, 2, 2], np.float32))
        rounding = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "mode": "nearest"}
        self._emit("Resize", node.name, [node.inputs[0], "", factors], **rounding)
        (source,) = sources
        return Value(source.levels.repeat(2, 2).repeat(2, 3), source.scale, source.zero_point)

    def product(self, node: LayerNode, sources: list[Value]) -> Value:
        """Flatten and QGemm."""
        flat = f"{node.name}_flat"
        self._emit("Flatten", flat, [node.inputs[0]])
        levels = sources[0].levels.reshape(1, -1)
        self.values[flat] = source = Value(levels, sources[0].scale, sources[0].zero_point)
        weights = self._random.integers(-63, 64, (levels.shape[1], node.channels), np.int8)
        value, scale, bias = self._normalized(source.centred @ weights.astype(np.int64), source.scale, False)
        self.values[node.name] = value
        weight_names = self._weights(node.name, weights, scale)
        bias_name = self._constant(f"{node.name}_bias", bias)
        inputs = [*self._quantized(flat), *weight_names, bias_name, *self._scale_and_zero_point(node.name)]
        self._emit("QGemm", node.name, inputs, MICROSOFT)
        return value


WRITERS: Mapping[str, Callable[[Writer, LayerNode, list[Value]], Value]] = {
    "convolution": Writer.convolution,
    "add": Writer.add,
    "concat": Writer.concat,
    "maximum": Writer.maximum,
    "mean": Writer.mean,
    "double": Writer.double,
    "product": Writer.product,
}


def _quantization(value: Value) -> tuple[tuple[str, Array], tuple[str, Array]]:
    return ("scale", np.array(value.scale, np.float32)), ("zero_point", np.array(value.zero_point, np.uint8))


def model_of(network: Network, seed: int = 0, is_real: bool = True) -> onnx.ModelProto:
    """A network as a model with random weights, the same for the same seed."""
    return Writer(network, np.random.default_rng(seed), is_real).model()


@click.command(help=__doc__)
@click.argument("name", type=click.Choice(list(NETWORKS)))
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--width", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True)
@click.option("--size", type=click.IntRange(32), default=None, help="Of the image; by default as published.")
@click.option("--blocks", type=click.IntRange(1), default=None, help="The most blocks of a stage; by default all.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
def main(name: str, file: Path, width: float, size: int | None, blocks: int | None, seed: int) -> None:
    try:
        files.require_place(file)
        network = NETWORKS[name](Dimensions(width, size, blocks))
        writer = Writer(network, np.random.default_rng(seed))
        content = writer.model().SerializeToString()
        files.write_bytes(file, content)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    fewest = min(len(np.unique(value.levels)) for value in writer.values.values())
    kinds = [node.kind for node in network.nodes.values()]
    print(
        f"{file}: {len(content):,} bytes; {', '.join(f'{kinds.count(kind)} {kind}' for kind in dict.fromkeys(kinds))}"
    )
    print(f"each value has at least {fewest} different levels")


if __name__ == "__main__":
    main()
