"""Transfers of arrays whose layout differs from the tensor's, beside packed transfers of as many bytes.

    python -m bench.layouts [--device NAME] [--mebibytes N]

Each figure is the median of several transfers of random data, checked once. The share is that of a packed transfer's
speed; on a CPU driver, a strided copy by NumPy stands beside it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import click
import numpy as np
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
            out = np.empty_like(array)
            packed = device.tensor(array)
            write, read = (
                median_seconds(lambda: (packed.write(array), device.wait())),
                median_seconds(lambda: packed.numpy(out)),
            )
            layouts = {
                "NHWC": strides_of(sizes, (0, 2, 3, 1)),
                "reversed": strides_of(sizes, (3, 2, 1, 0)),
                "rows and columns": strides_of(sizes, (0, 1, 3, 2)),
                "gaps between rows": (64 * 64 * (width + 8), 64 * (width + 8), width + 8, 1),
            }
            table.add_row(
                dtype, "packed", f"{array.nbytes / write / 1e9:.1f}", "1", f"{array.nbytes / read / 1e9:.1f}", "1", ""
            )
            for label, strides in layouts.items():
                tensor = device.tensor(dmlvk.TensorDesc(dtype, sizes, strides))
                written = median_seconds(lambda: (tensor.write(array), device.wait()))
                was_read = median_seconds(lambda: tensor.numpy(out))
                if not np.array_equal(out, array):
                    raise SystemExit(f"{dtype}, {label}: wrong bits")
                if label == "gaps between rows":
                    turned = np.empty((8, 64, 64, width + 8), dtype)[..., :width]
                else:
                    order = tuple(sorted(range(4), key=lambda k: -strides[k]))
                    turned = np.empty([sizes[k] for k in order], dtype).transpose(np.argsort(order))
                copied = median_seconds(lambda: np.copyto(turned, array))
                table.add_row(
                    dtype,
                    label,
                    f"{array.nbytes / written / 1e9:.1f}",
                    f"{write / written:.2f}",
                    f"{array.nbytes / was_read / 1e9:.1f}",
                    f"{read / was_read:.2f}",
                    f"{array.nbytes / copied / 1e9:.1f}",
                )
        Console(width=120).print(table)
        print(device.name, device.profile.driver_info)


if __name__ == "__main__":
    main()
