"""DIAGONAL_MATRIX1: upper triangles of a batch of matrices, and an identity matrix."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from dmlvk import DataType, DiagonalMatrix1Desc, TensorDesc
from dmlvk.benchmark.cases.scale import Scale
from dmlvk.benchmark.cases.slice1 import random_elements
from dmlvk.conformance.case import Case, Workload
from dmlvk.operators.declared import INT32_MIN

DATA_TYPES = (DataType.FLOAT32, DataType.FLOAT16, DataType.UINT8)
LARGEST_SIDE = 2048


def upper_triangle(data_type: DataType, count: int, side: int) -> Workload:
    """Zeros below the diagonal of each of `count` matrices."""
    tensor = TensorDesc(data_type, [count, side, side])
    desc = DiagonalMatrix1Desc(
        input_tensor=tensor,
        output_tensor=tensor,
        value=data_type.numpy_dtype.type(0),
        diagonal_fill_begin=INT32_MIN,
        diagonal_fill_end=0,
    )
    matrices = random_elements(data_type, count * side * side).reshape(tensor.sizes)
    return Workload(desc, {"input_tensor": matrices}, expected=np.triu(matrices))


def identity(side: int) -> Workload:
    """A FLOAT32 identity matrix, without an input."""
    desc = DiagonalMatrix1Desc(
        output_tensor=TensorDesc(DataType.FLOAT32, [side, side]),
        value=np.float32(1),
        diagonal_fill_begin=0,
        diagonal_fill_end=1,
    )
    return Workload(desc, {}, expected=np.eye(side, dtype=np.float32))


def cases(scale: Scale) -> Iterator[Case]:
    """Cases whose output has as many bytes as SLICE1 reads and writes at this scale."""
    output_bytes = 2 * scale.data_bytes
    for data_type in DATA_TYPES:
        elements = output_bytes // data_type.size_in_bytes
        side = min(LARGEST_SIDE, _square_root(elements))
        build = partial(upper_triangle, data_type, elements // side**2, side)
        yield Case(f"diagonal_matrix1:upper_triangle:type={data_type.name}", build, is_default=True)
    build = partial(identity, _square_root(output_bytes // 4))
    yield Case("diagonal_matrix1:identity:type=FLOAT32", build, is_default=True)


def _square_root(number: int) -> int:
    """The largest power of two whose square is at most the number."""
    return 1 << (number.bit_length() - 1) // 2
