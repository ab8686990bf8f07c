"""Transfers of arrays whose layout differs from the tensor's, beside packed transfers of as many bytes.

    python -m bench.layouts [--device NAME] [--mebibytes N]

Each figure is the median of several transfers of random data, checked once. The share is that of a packed transfer's
speed; on a CPU driver, a strided copy by NumPy stands beside it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

import dmlvk

DTYPES = ("uint8", "uint16", "uint32", "uint64")
ROUNDS = 7


def median_seconds(work: Callable[[], object]) -> float:
    """The median time of several rounds, after one that warms up."""
    work()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def strides_of(sizes: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Element strides of a layout without gaps, its dimensions in an order from the outermost."""
    strides, step = [0] * len(sizes), 1
    for dimension in reversed(order):
        strides[dimension] = step
        step *= sizes[dimension]
    return tuple(strides)


@dataclass
class Case:
    """A tensor of some layout, and packed arrays to write to it and to read it into."""

    device: dmlvk.Device
    array: npt.NDArray[Any]
    out: npt.NDArray[Any]
    tensor: dmlvk.Tensor

    def write(self) -> None:
        self.tensor.write(self.array)
        self.device.wait()

    def read(self) -> None:
        self.tensor.numpy(self.out)

    def speeds(self) -> tuple[float, float]:
        """GB/s of writing and of reading, checked."""
        found = tuple(self.array.nbytes / median_seconds(work) / 1e9 for work in (self.write, self.read))
        if not np.array_equal(self.out, self.array):
            raise SystemExit(f"{self.tensor!r}: wrong bits")
        return found[0], found[1]


def numpy_speed(array: npt.NDArray[Any], strides: tuple[int, ...]) -> float:
    """GB/s of NumPy's copy to an array with these element strides."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(array.shape, strides, strict=True))
    memory = np.empty(span, array.dtype)
    turned = np.ndarray(array.shape, array.dtype, memory, strides=[each * array.itemsize for each in strides])
    return array.nbytes / median_seconds(partial(np.copyto, turned, array)) / 1e9


@click.command(help=__doc__)
@click.option("--device", "name", help="Part of a device's name.")
@click.option("--mebibytes", default=64, show_default=True)
def main(name: str | None, mebibytes: int) -> None:
    table = Table("elements", "layout of the tensor", "write GB/s", "of packed", "read GB/s", "of packed", "NumPy GB/s")
    with dmlvk.Device(name) as device:
        for dtype in DTYPES:
            width = (mebibytes << 20) // (8 * 64 * 64 * np.dtype(dtype).itemsize)
            sizes = (8, 64, 64, width)
            array = np.random.default_rng(1).integers(0, 256, mebibytes << 20, np.uint8).view(dtype).reshape(sizes)
            write, read = Case(device, array, np.empty_like(array), device.tensor(array)).speeds()
            table.add_row(dtype, "packed", f"{write:.1f}", "", f"{read:.1f}", "", "")
            layouts = {
                "NHWC": strides_of(sizes, (0, 2, 3, 1)),
                "reversed": strides_of(sizes, (3, 2, 1, 0)),
                "rows and columns": strides_of(sizes, (0, 1, 3, 2)),
                "gaps between rows": (64 * 64 * (width + 8), 64 * (width + 8), width + 8, 1),
            }
            for label, strides in layouts.items():
                tensor = device.tensor(dmlvk.TensorDesc(dtype, sizes, strides))
                written, was_read = Case(device, array, np.empty_like(array), tensor).speeds()
                shares = (f"{written:.1f}", f"{written / write:.2f}", f"{was_read:.1f}", f"{was_read / read:.2f}")
                table.add_row(dtype, label, *shares, f"{numpy_speed(array, strides):.1f}")
        Console(width=120).print(table)
        print(device.name, device.profile.driver_info)


if __name__ == "__main__":
    main()
