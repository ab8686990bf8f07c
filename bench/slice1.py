"""SLICE1: windows, steps and reversals of rows of every element size, beside a plain copy.

python -m bench.slice1 [--device NAME] [--megabytes 512] [--rounds 20]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import click

import dmlvk
from bench.measure import Case, random_array, report
from dmlvk import DataType, Slice1Desc, TensorDesc

DATA_TYPES = (DataType.UINT8, DataType.UINT16, DataType.UINT32, DataType.UINT64)


def case(name: str, input_tensor: TensorDesc, offsets: list[int], sizes: list[int], steps: list[int]) -> Case:
    output = [1 + (size - 1) // abs(step) for size, step in zip(sizes, steps, strict=True)]
    desc = Slice1Desc(
        input_tensor=input_tensor,
        output_tensor=TensorDesc(input_tensor.data_type, output),
        input_window_offsets=offsets,
        input_window_sizes=sizes,
        input_window_strides=steps,
    )
    return Case(name, desc, {"input_tensor": random_array(input_tensor.data_type, input_tensor.sizes)})


def cases(megabytes: int) -> Iterator[Case]:
    """Cases over inputs of so many megabytes (2**20 bytes)."""
    for data_type in DATA_TYPES:
        width = 512 // data_type.size_in_bytes
        n, c, h = megabytes, 4, 512
        tensor = TensorDesc(data_type, [n, c, h, width])
        full, start = [n, c, h, width], [0, 0, 0, 0]
        bits = f"{8 * data_type.size_in_bytes}-bit"
        yield case(f"{bits} copy", tensor, start, full, [1, 1, 1, 1])
        yield case(f"{bits} [:, :, 1:-1, 3:-5]", tensor, [0, 0, 1, 3], [n, c, h - 2, width - 8], [1, 1, 1, 1])
        skipping = case(f"{bits} step 2, innermost", tensor, start, full, [1, 1, 1, 2])
        # Every memory sector of the input has to be read.
        total = tensor.total_size_in_bytes + skipping.desc.tensors["output_tensor"].total_size_in_bytes
        yield replace(skipping, bytes_moved=total)
        yield case(f"{bits} step 2, rows", tensor, start, full, [1, 1, 2, 1])
        yield case(f"{bits} reversed innermost", tensor, start, full, [1, 1, 1, -1])
        nhwc = TensorDesc(data_type, [n, width // 8, h, 32], [c * h * width, 1, c * width, width // 8])
        yield case(f"{bits} NHWC to NCHW", nhwc, start, list(nhwc.sizes), [1, 1, 1, 1])


@click.command(help=__doc__)
@click.option("--device", default=None, help="Index or part of a name.")
@click.option("--megabytes", default=512, show_default=True, help="Size of each input.")
@click.option("--rounds", default=20, show_default=True)
def main(device: str | None, megabytes: int, rounds: int) -> None:
    with dmlvk.Device(device, timestamps=True) as opened:
        sys.exit(report(opened, cases(megabytes), "32-bit copy", rounds))


if __name__ == "__main__":
    main()
