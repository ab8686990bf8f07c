"""ONE_HOT along the last axis and along the first.

python -m bench.one_hot [--device NAME] [--megabytes 1024] [--rounds 20]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click
import numpy as np

import dmlvk
from bench.measure import Case, report
from dmlvk import DataType, OneHotDesc, TensorDesc


def cases(megabytes: int) -> Iterator[Case]:
    for data_type in (DataType.FLOAT32, DataType.FLOAT16, DataType.UINT8):
        for depth in (256, 8192):
            rows = (megabytes << 20) // (depth * data_type.size_in_bytes)
            for axis in (1, 0):
                indices = np.random.default_rng(depth).integers(-2, depth + 2, rows, np.int64)
                desc = OneHotDesc(
                    indices_tensor=TensorDesc(DataType.INT64, [rows, 1] if axis else [1, rows]),
                    values_tensor=TensorDesc(data_type, [1, 2]),
                    output_tensor=TensorDesc(data_type, [rows, depth] if axis else [depth, rows]),
                    axis=axis,
                )
                inputs = {
                    "indices_tensor": indices.reshape(desc.indices_tensor.sizes),
                    "values_tensor": np.array([[3, 9]], data_type.numpy_dtype),
                }
                yield Case(f"{data_type.name} {rows} x {depth}, axis {axis}", desc, inputs)


@click.command(help=__doc__)
@click.option("--device", default=None, help="Index or part of a name.")
@click.option("--megabytes", default=1024, show_default=True, help="Size of the output.")
@click.option("--rounds", default=20, show_default=True)
def main(device: str | None, megabytes: int, rounds: int) -> None:
    with dmlvk.Device(device, timestamps=True) as opened:
        sys.exit(report(opened, cases(megabytes), None, rounds))


if __name__ == "__main__":
    main()
