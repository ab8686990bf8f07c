"""Images a second on one device of this host and on all of them, with and without a cluster, and with equal bits.

    python -m bench.many_devices [--devices 0,1] [--batch 64] [--size 224] [--seconds 10] [--json FILE]

The network has ResNet-50's convolutions in their order, without the additions around them, a convolution of each
channel in place of each pooling, and the classifier as a last convolution. Weights and images are random.

Each way runs for so many seconds after a warm-up, and all ways see the same batches:

- one device: `InferenceSession(model, device=N).map`, for each device by itself;
- all devices: `InferenceSession(model, device=[...]).map`, by threads of one process; both also with `runs_at_once=2`;
- map, one worker, and map, all workers: `dmlvk.dask.map` on a `LocalCluster` of processes, whose workers load the
  batches from files; and once more with batches that the client sends. Left out where Dask is not installed.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
import onnx
from onnx import helper, numpy_helper
from rich.console import Console
from rich.table import Table

import dmlvk
from dmlvk.onnx import InferenceSession
from dmlvk.runtime.device_info import best_devices

Array = np.ndarray[Any, Any]

# Different batches that take turns; the outputs of each are compared between the ways.
BATCHES = 8
# Seconds of running before the clock starts: a GPU takes one to reach its speed.
WARM_UP_SECONDS = 2.0
SEED = 20
TWO_RUNS = ", two runs at once"


@dataclass(frozen=True)
class Layer:
    """A convolution: output channels, kernel, stride, groups. None is one group for each channel."""

    channels: int
    kernel: int
    stride: int = 1
    groups: int | None = 1


def resnet50(classes: int = 1000) -> list[Layer]:
    """The convolutions of ResNet-50. Its pooling becomes convolutions."""
    layers = [Layer(64, 7, 2), Layer(64, 3, 2, None)]
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(count):
            layers += [Layer(width, 1), Layer(width, 3, 1 if number else stride), Layer(4 * width, 1)]
            if not number:  # the projection that stands beside the first block
                layers.append(Layer(4 * width, 1))
    return [*layers, Layer(2048, 0, 1, None), Layer(classes, 1)]


def network(layers: list[Layer], size: int) -> onnx.ModelProto:
    """A chain of QLinearConv for batches of any number of images {3, size, size}."""
    generator = np.random.default_rng(SEED)
    nodes, constants = [], []
    channels, value = 3, "x"

    def constant(name: str, array: Any) -> str:
        constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    for number, layer in enumerate(layers):
        groups = channels if layer.groups is None else layer.groups
        kernel = layer.kernel or size
        padding = kernel // 2 if layer.kernel else 0
        w = generator.integers(-127, 128, (layer.channels, channels // groups, kernel, kernel), np.int8)
        taps = w[0].size
        # The outputs of each layer spread over their range, so that the last ones still depend on the images.
        spread = 0.02 * 0.01 * (60 if number else 74) * 73 * float(np.sqrt(taps)) / 60
        zero = np.array(128, np.uint8)
        names = [
            constant(f"{name}_{number}", array)
            for name, array in (
                ("x_scale", np.float32(0.02)),
                ("x_zero", zero),
                ("w", w),
                ("w_scale", np.full(layer.channels, 0.01, np.float32)),
                ("w_zero", np.zeros(layer.channels, np.int8)),
                ("y_scale", np.float32(spread)),
                ("y_zero", zero),
                ("b", generator.integers(-500, 500, layer.channels, np.int32)),
            )
        ]
        attributes = {"strides": [layer.stride] * 2, "pads": [padding] * 4, "group": groups}
        nodes.append(helper.make_node("QLinearConv", [value, *names], [f"y_{number}"], **attributes))
        channels, value = layer.channels, f"y_{number}"
        size = (size + 2 * padding - kernel) // layer.stride + 1
    given = helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, ["n", 3, None, None])
    returned = helper.make_tensor_value_info(value, onnx.TensorProto.UINT8, None)
    graph = helper.make_graph(nodes, "convolutions", [given], [returned], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def digest(outputs: list[Array]) -> str:
    """A few digits of the outputs' SHA-256."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).data for array in outputs)).hexdigest()[:16]


@dataclass
class Way:
    """What one way gave: images a second, and a digest for each of the batches."""

    name: str
    rate: float
    digests: list[str]


def measured(
    name: str, run: Callable[[Iterator[Any]], Iterator[list[Array]]], given: list[Any], images: int, seconds: float
) -> Way:
    """Run batches in turn for some seconds."""
    digests: dict[int, str] = {}
    count, start = 0, 0.0
    begin = perf_counter()
    with contextlib.closing(run(itertools.cycle(given))) as results:  # type: ignore[type-var]
        for number, outputs in enumerate(results):
            if number < len(given):
                digests[number] = digest(outputs)
            now = perf_counter()
            if not start:
                if now - begin >= WARM_UP_SECONDS and number + 1 >= len(given):
                    start = now
                continue
            count += 1
            if now - start >= seconds:
                return Way(name, count * images / (now - start), [digests[key] for key in sorted(digests)])
    raise AssertionError("the batches have no end")


def of_this_process(model: bytes, indices: list[int], given: list[Array], seconds: float) -> Iterator[Way]:
    """One device after the other, then all of them."""
    images = len(given[0])
    for chosen in [[index] for index in indices] + ([indices] if len(indices) > 1 else []):
        name = f"device {chosen[0]}" if len(chosen) == 1 else f"all {len(chosen)} devices"
        for runs_at_once in (1, 2):  # the default is 1 for one device, and 2 for several GPUs
            session = InferenceSession(model, chosen, runs_at_once=runs_at_once)
            yield measured(name + TWO_RUNS * (runs_at_once > 1), session.map, given, images, seconds)
            for device in session.devices:
                device.close()


def map_on(client: Any, model: bytes, batches: Iterator[Any]) -> Iterator[list[Array]]:
    """The outputs of batches on a cluster."""
    from dmlvk.dask import map as map_batches

    return map_batches(client, model, batches)


def of_clusters(model: bytes, indices: list[int], given: list[Array], folder: Path, seconds: float) -> Iterator[Way]:
    """A cluster of one worker, then one of as many workers as devices."""
    try:
        import dask
        from distributed import Client, LocalCluster

        from dmlvk.dask import prepare
    except ImportError as error:
        click.echo(f"without clusters: {error}", err=True)
        return
    paths = []
    for number, array in enumerate(given):
        paths.append(folder / f"{number}.npy")
        np.save(paths[-1], array)
    images = len(given[0])
    for chosen in [indices[:1]] + ([indices] if len(indices) > 1 else []):
        with (
            LocalCluster(n_workers=len(chosen), threads_per_worker=4, dashboard_address="127.0.0.1:0") as cluster,
            Client(cluster) as client,
        ):
            prepare(client, chosen)
            workers = f"map, {len(chosen)} worker{'s' * (len(chosen) > 1)}"

            def loading(batches: Iterator[Path]) -> Iterator[list[Array]]:
                # A key of its own for each: Dask would keep the array of a key that is used again soon.
                return map_on(client, model, (dask.delayed(np.load, pure=False)(path) for path in batches))

            yield measured(f"{workers}, loaded there", loading, paths, images, seconds)
            yield measured(f"{workers}, sent by the client", partial(map_on, client, model), given, images, seconds)


def kind_of(name: str) -> str:
    """The name of a way without its devices: ways of one kind differ in nothing else."""
    return name.rpartition(", ")[2] if name.startswith("map") or TWO_RUNS in name else ""


@click.command()
@click.option("--devices", default=None, help="Indices in dmlvk.devices(), as 0,1. Default: all of the best kind.")
@click.option("--batch", type=click.IntRange(1), default=64, show_default=True)
@click.option("--size", type=click.IntRange(32), default=224, show_default=True, help="Height and width of an image.")
@click.option("--layers", type=click.IntRange(1), default=None, help="Only so many of the convolutions.")
@click.option("--seconds", type=float, default=10.0, show_default=True, help="For each way, after its warm-up.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), default=None)
def main(
    devices: str | None, batch: int, size: int, layers: int | None, seconds: float, json_path: Path | None
) -> None:
    """Measure, print a table, and end with status 1 if any two ways gave different bits."""
    known = dmlvk.devices()
    indices = [info.index for info in best_devices()] if devices is None else [int(each) for each in devices.split(",")]
    model = network(resnet50()[:layers], size).SerializeToString()
    generator = np.random.default_rng(SEED + 1)
    given = [generator.integers(0, 256, (batch, 3, size, size), np.uint8) for _ in range(BATCHES)]
    with tempfile.TemporaryDirectory() as folder:
        ways = [
            *of_this_process(model, indices, given, seconds),
            *of_clusters(model, indices, given, Path(folder), seconds),
        ]
    table = Table("way", "images a second", "times one device", "times its own one", "bits", title=f"batch {batch}")
    rows = []
    for way in ways:
        own = next(each for each in ways if kind_of(each.name) == kind_of(way.name))
        same = way.digests == ways[0].digests
        rows.append({"way": way.name, "images_per_second": way.rate, "equal": same, "times_own": way.rate / own.rate})
        ratios = f"{way.rate / ways[0].rate:.3f}", f"{way.rate / own.rate:.3f}"
        table.add_row(way.name, f"{way.rate:,.1f}", *ratios, "equal" if same else "DIFFERENT")
    Console(width=120).print(table)
    for index in indices:
        click.echo(str(known[index]))
    if json_path is not None:
        names = [str(known[index]) for index in indices]
        record = {"devices": names, "batch": batch, "size": size, "layers": layers, "seconds": seconds, "ways": rows}
        json_path.write_text(json.dumps(record, indent=1) + "\n")
    if not all(row["equal"] for row in rows):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
