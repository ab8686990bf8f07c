"""QUANTIZED_LINEAR_CONVOLUTION on layers of well-known networks, UINT8 x INT8 with per-channel scales and a bias.

python -m bench.quantized_linear_convolution [--device NAME] [--path dot4] [--layer NAME]... [--batch 64] [--rounds 20]
    [--layout nchw|nhwc] [--owned]
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import click
import numpy as np

import dmlvk
from bench.measure import Case, random_array, report
from dmlvk import DataType, QuantizedLinearConvolutionDesc, TensorDesc, TensorFlags


@dataclass(frozen=True)
class Layer:
    """Square images and filters, padded so that stride 1 keeps the size."""

    channels: int
    size: int
    filters: int
    kernel: int
    stride: int = 1
    groups: int = 1


LAYERS = {
    "64 56x56 3x3": Layer(64, 56, 64, 3),
    "256-64 56x56 1x1": Layer(256, 56, 64, 1),
    "64-256 56x56 1x1": Layer(64, 56, 256, 1),
    "128 28x28 3x3": Layer(128, 28, 128, 3),
    "256 14x14 3x3": Layer(256, 14, 256, 3),
    "512 7x7 3x3": Layer(512, 7, 512, 3),
    "1024-2048 14x14 1x1/2": Layer(1024, 14, 2048, 1, 2),
    "3-64 224x224 7x7/2": Layer(3, 224, 64, 7, 2),
    "144 56x56 3x3 depthwise": Layer(144, 56, 144, 3, 1, 144),
    "512 28x28 3x3": Layer(512, 28, 512, 3),
}
# The two that the project watches: the first on a CPU driver, the second on a large GPU.
WATCHED = ("256 14x14 3x3", "512 28x28 3x3")


def channels_last(sizes: list[int]) -> list[int]:
    """Strides of NHWC, in the order of NCHW."""
    return [sizes[1] * sizes[2] * sizes[3], 1, sizes[3] * sizes[1], sizes[1]]


def case(
    name: str, layer: Layer, batch: int, path: str | None, layout: str = "nchw", filter_is_owned: bool = False
) -> Case:
    """One layer with random data; the scales make the outputs use the whole range of a byte."""
    padding = layer.kernel // 2
    size = (layer.size + 2 * padding - layer.kernel) // layer.stride + 1
    taps = layer.channels // layer.groups * layer.kernel**2
    filter_sizes = [layer.filters, layer.channels // layer.groups, layer.kernel, layer.kernel]
    one, per_channel = [1, 1, 1, 1], [1, layer.filters, 1, 1]
    flags = TensorFlags.OWNED_BY_DML if filter_is_owned else TensorFlags.NONE

    def data(data_type: DataType, sizes: list[int], flags: TensorFlags = TensorFlags.NONE) -> TensorDesc:
        return TensorDesc(data_type, sizes, channels_last(sizes) if layout == "nhwc" else None, flags=flags)

    desc = QuantizedLinearConvolutionDesc(
        input_tensor=data(DataType.UINT8, [batch, layer.channels, layer.size, layer.size]),
        input_scale_tensor=TensorDesc(DataType.FLOAT32, one),
        input_zero_point_tensor=TensorDesc(DataType.UINT8, one),
        filter_tensor=data(DataType.INT8, filter_sizes, flags),
        filter_scale_tensor=TensorDesc(DataType.FLOAT32, per_channel),
        filter_zero_point_tensor=TensorDesc(DataType.INT8, one),
        bias_tensor=TensorDesc(DataType.INT32, per_channel),
        output_scale_tensor=TensorDesc(DataType.FLOAT32, one),
        output_zero_point_tensor=TensorDesc(DataType.UINT8, one),
        output_tensor=data(DataType.UINT8, [batch, layer.filters, size, size]),
        strides=[layer.stride] * 2,
        dilations=[1, 1],
        start_padding=[padding] * 2,
        end_padding=[padding] * 2,
        group_count=layer.groups,
    )
    random = np.random.default_rng(0)
    # Bytes of a uniform distribution have a standard deviation of 74: so much, and a little more, is a byte of output.
    spread = 74.0 * 74.0 * taps**0.5
    inputs = {
        "input_tensor": random_array(DataType.UINT8, desc.input_tensor.sizes),
        "input_scale_tensor": np.full(one, 0.02, np.float32),
        "input_zero_point_tensor": np.full(one, 128, np.uint8),
        "filter_tensor": random_array(DataType.INT8, filter_sizes, 1),
        "filter_scale_tensor": random.uniform(0.005, 0.02, per_channel).astype(np.float32),
        "filter_zero_point_tensor": np.full(one, 0, np.int8),
        "bias_tensor": random.integers(-5000, 5000, per_channel, np.int32),
        "output_scale_tensor": np.full(one, 0.02 * 0.01 * spread / 50, np.float32),
        "output_zero_point_tensor": np.full(one, 120, np.uint8),
    }
    return Case(name, desc, inputs, path)


def cases(
    names: Iterable[str], batch: int, path: str | None, layout: str = "nchw", filter_is_owned: bool = False
) -> Iterator[Case]:
    for name in names:
        yield case(name, LAYERS[name], batch, path, layout, filter_is_owned)


@click.command(help=__doc__)
@click.option("--device", default=None, help="Index or part of a name.")
@click.option(
    "--path", default=None, help="Kernel path: matrix, dot4, integer, float or direct; the planner's choice otherwise."
)
@click.option(
    "--layer", "layers", multiple=True, type=click.Choice(list(LAYERS)), help="Default: the two watched ones."
)
@click.option("--everything", is_flag=True, help="All layers.")
@click.option("--batch", default=64, show_default=True)
@click.option("--rounds", default=20, show_default=True)
@click.option("--layout", default="nchw", type=click.Choice(["nchw", "nhwc"]), show_default=True)
@click.option("--owned", is_flag=True, help="The filter is OWNED_BY_DML: packed once, at initialization.")
def main(
    device: str | None,
    path: str | None,
    layers: tuple[str, ...],
    everything: bool,
    batch: int,
    rounds: int,
    layout: str,
    owned: bool,
) -> None:
    names = tuple(LAYERS) if everything else layers or WATCHED
    with dmlvk.Device(device, timestamps=True) as opened:
        sys.exit(report(opened, cases(names, batch, path, layout, owned), None, rounds))


if __name__ == "__main__":
    main()
