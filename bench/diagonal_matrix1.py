"""DIAGONAL_MATRIX1: triangles and an identity, beside a plain copy.

python -m bench.diagonal_matrix1 [--device NAME] [--side 2048] [--batch 64] [--rounds 20]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click
import numpy as np

import dmlvk
from bench.measure import Case, random_array, report
from bench.slice1 import case as slice_case
from dmlvk import DataType, DiagonalMatrix1Desc, TensorDesc

INT32_MIN = -(1 << 31)


def cases(batch: int, side: int) -> Iterator[Case]:
    for data_type, count in ((DataType.FLOAT32, batch), (DataType.FLOAT16, 2 * batch), (DataType.UINT8, 4 * batch)):
        tensor = TensorDesc(data_type, [count, side, side])
        source = random_array(data_type, tensor.sizes)
        yield slice_case(f"{data_type.name} copy", tensor, [0, 0, 0], list(tensor.sizes), [1, 1, 1])
        desc = DiagonalMatrix1Desc(
            input_tensor=tensor,
            output_tensor=tensor,
            value=np.zeros((), data_type.numpy_dtype)[()],
            diagonal_fill_begin=INT32_MIN,
            diagonal_fill_end=0,
        )
        yield Case(f"{data_type.name} upper triangle", desc, {"input_tensor": source})
    desc = DiagonalMatrix1Desc(
        output_tensor=TensorDesc(DataType.FLOAT32, [8 * side, 8 * side]),
        value=1.0,
        diagonal_fill_begin=0,
        diagonal_fill_end=1,
    )
    yield Case("FLOAT32 identity", desc, {})


@click.command(help=__doc__)
@click.option("--device", default=None, help="Index or part of a name.")
@click.option("--batch", default=64, show_default=True)
@click.option("--side", default=2048, show_default=True)
@click.option("--rounds", default=20, show_default=True)
def main(device: str | None, batch: int, side: int, rounds: int) -> None:
    with dmlvk.Device(device, timestamps=True) as opened:
        sys.exit(report(opened, cases(batch, side), "FLOAT32 copy", rounds))


if __name__ == "__main__":
    main()
