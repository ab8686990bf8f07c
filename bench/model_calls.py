"""What a session of dmlvk.onnx costs beside its Sequence made by hand: networks of convolutions alone.

    python -m bench.model_calls [--device NAME] [--rounds 60] [--batch 1] [--json FILE]

Both write the same image, run the same convolutions and read the same output, and take turns; each figure is a median
of a call that has its result. By hand, the tensors between two convolutions lie either as ONNX has them or with their
channels last; the session is compared with the faster of the two. The images and the weights are random, and all
outputs are compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper
from rich.console import Console
from rich.table import Table

import dmlvk
from bench.dispatch import side_by_side
from bench.networks import model_of
from dmlvk import DataType, QuantizedLinearConvolutionDesc, TensorDesc, TensorFlags, files
from dmlvk.benchmark.networks import Network
from dmlvk.benchmark.networks.network import IMAGE
from dmlvk.benchmark.timing import warm_up
from dmlvk.device_profile import DeviceType
from dmlvk.onnx import InferenceSession
from dmlvk.onnx.convolution import CONVOLUTION_FIELDS

Array = npt.NDArray[Any]
# The most that a session may cost, beside the sequence made by hand.
MARK = 1.05
LAYOUTS = ("nchw", "nhwc")
# The constants of a convolution that are rank 4 on the device.
SIZES = {"bias_tensor": (1, -1, 1, 1)}


def small() -> Network:
    """Four convolutions of 16 channels."""
    network = Network("4 of 16 channels, 14 x 14", 16, 14)
    node = network.image
    for _ in range(4):
        node = network.convolution(node, 16, 3)
    return network


def separable() -> Network:
    """Depthwise convolutions and 1x1 ones in turn, as in MobileNet."""
    network = Network("MobileNet's 27, 224 x 224", 3, 224)
    node = network.convolution(network.image, 32, 3, 2)
    blocks = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
    for filters, stride in blocks:
        node = network.convolution(node, node.channels, 3, stride, groups=node.channels)
        node = network.convolution(node, filters, 1)
    return network


def dense() -> Network:
    """3x3 convolutions whose strides take the place of pools."""
    network = Network("11 of 3x3, 112 x 112", 3, 112)
    node = network.image
    layers = (
        (64, 1),
        (64, 2),
        (128, 1),
        (128, 2),
        (256, 1),
        (256, 1),
        (256, 2),
        (512, 1),
        (512, 1),
        (512, 2),
        (512, 1),
    )
    for filters, stride in layers:
        node = network.convolution(node, filters, 3, stride)
    return network


NETWORKS = (small, separable, dense)


class ByHand:
    """A model's convolutions as a Sequence.

    Parameters
    ----------
    device : Device
    network : Network
        A chain of convolutions.
    model : ModelProto
        The same, with its weights.
    batch : int
    layout : str
        "nchw" or "nhwc": of the tensors between two convolutions.
    """

    def __init__(self, device: dmlvk.Device, network: Network, model: onnx.ModelProto, batch: int, layout: str) -> None:
        constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        last = model.graph.node[-1].output[0]
        tensors: dict[str, dmlvk.Tensor] = {}

        def tensor(name: str) -> dmlvk.Tensor:
            if name not in tensors:
                node = network.image if name == IMAGE else network.nodes[name]
                sizes = [batch, node.channels, node.size, node.size]
                is_inner = layout == "nhwc" and name not in (IMAGE, last)
                channels_last = [node.channels * node.size**2, 1, node.channels * node.size, node.channels]
                tensors[name] = device.tensor(TensorDesc(DataType.UINT8, sizes, channels_last if is_inner else None))
            return tensors[name]

        bindings = []
        for node in model.graph.node:
            layer = network.nodes[node.output[0]].layer
            assert layer is not None
            data = {"input_tensor": tensor(node.input[0]), "output_tensor": tensor(node.output[0])}
            owned = {}
            for field, name in zip(CONVOLUTION_FIELDS, node.input, strict=True):
                if field != "input_tensor":
                    array = constants[name]
                    array = array.reshape(SIZES[field]) if field in SIZES else array
                    owned[field] = array.reshape(-1) if array.ndim == 0 else array
            descs = {
                field: TensorDesc(DataType.from_numpy(array.dtype), array.shape, flags=TensorFlags.OWNED_BY_DML)
                for field, array in owned.items()
            }
            operator = device.compile(
                QuantizedLinearConvolutionDesc(
                    **{field: each.desc for field, each in data.items()},
                    **descs,
                    strides=[layer.stride] * 2,
                    dilations=[1, 1],
                    start_padding=[layer.margin] * 2,
                    end_padding=[layer.margin] * 2,
                    group_count=layer.groups,
                )
            )
            operator.initialize(**owned)
            bindings.append(operator.bind(**data))
        self._image, self._output = tensor(IMAGE), tensor(last)
        self._sequence = device.sequence(bindings)

    def run(self, image: Array) -> Array:
        """The output for an image."""
        self._image.write(image)
        self._sequence.submit()
        return self._output.numpy()


def measure(device: dmlvk.Device, network: Network, batch: int, rounds: int) -> dict[str, Any]:
    """Median seconds of each way.

    Raises
    ------
    SystemExit
        The outputs are not the same.
    """
    model = model_of(network, is_real=False)
    session = InferenceSession(model, device)
    sizes = (batch, network.channels, network.size, network.size)
    image = np.random.default_rng(1).integers(0, 256, sizes, np.uint8)
    ways = {layout: ByHand(device, network, model, batch, layout) for layout in LAYOUTS}
    expected = session.run(None, {IMAGE: image})[0]
    if len(np.unique(expected)) < 32 or not all(np.array_equal(way.run(image), expected) for way in ways.values()):
        raise SystemExit(f"{network.name}: wrong bits")

    def by_hand(way: ByHand) -> Callable[[], object]:
        return lambda: way.run(image)

    steps: dict[str, Callable[[], object]] = {layout: by_hand(way) for layout, way in ways.items()}
    steps["session"] = lambda: session.run(None, {IMAGE: image})
    if device.profile.device_type != DeviceType.CPU:
        warm_up(steps["session"])
    seconds = side_by_side(steps, 1, rounds, lambda: None)
    best = min(seconds[layout] for layout in LAYOUTS)
    return {"network": network.name, "batch": batch, **seconds, "ratio": seconds["session"] / best}


@click.command(help=__doc__)
@click.option("--device", "name", help="Part of a device's name.")
@click.option("--rounds", type=click.IntRange(1), default=60, show_default=True)
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True)
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures here.")
def main(name: str | None, rounds: int, batch: int, file: Path | None) -> None:
    table = Table(
        "convolutions alone", "by hand, NCHW us", "by hand, NHWC us", "session us", "ratio", f"at most {MARK}"
    )
    found = []
    with dmlvk.Device(name) as device:
        for network in NETWORKS:
            row = measure(device, network(), batch, rounds)
            found.append(row)
            times = [f"{row[way] * 1e6:,.0f}" for way in (*LAYOUTS, "session")]
            table.add_row(row["network"], *times, f"{row['ratio']:.3f}", "yes" if row["ratio"] <= MARK else "NO")
        Console(width=120).print(table)
        print(device.name, device.profile.driver_info)
    if file is not None:
        files.write_text(file, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
