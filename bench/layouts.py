"""Transfers of arrays whose layout differs from the tensor's, beside packed transfers of as many bytes.

    python -m bench.layouts [--device NAME] [--mebibytes N]

Each figure is the median of several transfers of random data, checked once. They come in turns with packed transfers,
of whose speed the share is, and with NumPy's own strided copy.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
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
ROUNDS = 9


def in_turns(*works: Callable[[], object]) -> list[float]:
    """The median time of each work; their rounds come in turns, so that other work on the machine falls on all."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(ROUNDS + 1):
        for work, found in zip(works, times, strict=True):
            start = time.perf_counter()
            work()
            found.append(time.perf_counter() - start)
    return [statistics.median(found[1:]) for found in times]  # the first round warms up


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


def numpy_copy(array: npt.NDArray[Any], strides: tuple[int, ...]) -> Callable[[], None]:
    """NumPy's copy to an array with these element strides."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(array.shape, strides, strict=True))
    memory = np.empty(span, array.dtype)
    turned = np.ndarray(array.shape, array.dtype, memory, strides=[each * array.itemsize for each in strides])
    return partial(np.copyto, turned, array)


def layouts(size: int, element_size: int) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Layouts of about `size` bytes: a name, sizes and strides in elements."""
    width = size // (8 * 64 * 64 * element_size)
    sizes = (8, 64, 64, width)
    yield "NHWC", sizes, strides_of(sizes, (0, 2, 3, 1))
    yield "reversed", sizes, strides_of(sizes, (3, 2, 1, 0))
    yield "rows and columns", sizes, strides_of(sizes, (0, 1, 3, 2))
    yield "gaps between rows", sizes, (64 * 64 * (width + 8), 64 * (width + 8), width + 8, 1)
    pictures = (-(-size // (3 * 224 * 224 * element_size)), 3, 224, 224)
    yield "NHWC, 3 channels", pictures, strides_of(pictures, (0, 2, 3, 1))


@click.command(help=__doc__)
@click.option("--device", "name", help="Part of a device's name.")
@click.option("--mebibytes", default=64, show_default=True)
def main(name: str | None, mebibytes: int) -> None:
    table = Table("elements", "layout of the tensor", "write GB/s", "of packed", "read GB/s", "of packed", "NumPy GB/s")
    with dmlvk.Device(name) as device:
        for dtype in DTYPES:
            for label, sizes, strides in layouts(mebibytes << 20, np.dtype(dtype).itemsize):
                count = math.prod(sizes) * np.dtype(dtype).itemsize
                array = np.random.default_rng(1).integers(0, 256, count, np.uint8).view(dtype).reshape(sizes)
                packed = Case(device, array, np.empty_like(array), device.tensor(array))
                tensor = device.tensor(dmlvk.TensorDesc(dtype, sizes, strides))
                case = Case(device, array, np.empty_like(array), tensor)
                works = (packed.write, case.write, packed.read, case.read, numpy_copy(array, strides))
                write, written, read, was_read, copied = in_turns(*works)
                if not np.array_equal(case.out, array):
                    raise SystemExit(f"{tensor!r}: wrong bits")
                speeds = [f"{array.nbytes / seconds / 1e9:.1f}" for seconds in (written, was_read, copied)]
                shares = f"{write / written:.2f}", f"{read / was_read:.2f}"
                table.add_row(dtype, label, speeds[0], shares[0], speeds[1], shares[1], speeds[2])
        Console(width=120).print(table)
        print(device.name, device.profile.driver_info)


if __name__ == "__main__":
    main()
