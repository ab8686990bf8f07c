"""ONE_HOT along the last axis and along the first axis. Every index is in range; some are negative."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from dmlvk import DataType, OneHotDesc, TensorDesc
from dmlvk.benchmark.cases.scale import Scale
from dmlvk.conformance.case import Case, Workload, generator

# Data type, depth, axis.
SHAPES = (
    (DataType.FLOAT32, 256, 1),
    (DataType.FLOAT32, 8192, 1),
    (DataType.FLOAT16, 256, 1),
    (DataType.UINT8, 256, 1),
    (DataType.FLOAT32, 256, 0),
    (DataType.UINT8, 256, 0),
)


def workload(data_type: DataType, rows: int, depth: int, axis: int) -> Workload:
    """Rows with one of `depth` elements on; the indices have 64 bits, as frameworks have them."""
    desc = OneHotDesc(
        indices_tensor=TensorDesc(DataType.INT64, [rows, 1] if axis else [1, rows]),
        values_tensor=TensorDesc(data_type, [1, 2]),
        output_tensor=TensorDesc(data_type, [rows, depth] if axis else [depth, rows]),
        axis=axis,
    )
    indices = generator(f"{rows} {depth}").integers(-depth, depth, rows, np.int64)
    off, on = 3, 9
    expected = np.full(desc.output_tensor.sizes, off, data_type.numpy_dtype)
    expected[(np.arange(rows), indices) if axis else (indices, np.arange(rows))] = on
    inputs = {
        "indices_tensor": indices.reshape(desc.indices_tensor.sizes),
        "values_tensor": np.array([[off, on]], data_type.numpy_dtype),
    }
    return Workload(desc, inputs, expected=expected)


def cases(scale: Scale) -> Iterator[Case]:
    """Cases whose output has as many bytes as SLICE1 reads and writes at this scale."""
    output_bytes = 2 * scale.data_bytes
    for data_type, depth, axis in SHAPES:
        rows = max(1, output_bytes // (depth * data_type.size_in_bytes))
        name = f"one_hot:{'last' if axis else 'first'}_axis:depth={depth};type={data_type.name}"
        yield Case(name, partial(workload, data_type, rows, depth, axis), is_default=True)
