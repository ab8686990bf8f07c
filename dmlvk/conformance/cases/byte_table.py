"""Cases of BYTE_TABLE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.by_declaration import declared_form
from dmlvk.conformance.cases.combinations import DEVICES, PLANNERS_CHOICE, Groups, Parameters, only
from dmlvk.conformance.cases.layouts import LIMITS
from dmlvk.conformance.cases.values import random_array
from dmlvk.data_type import DataType
from dmlvk.operators import ByteTableDesc
from dmlvk.planning import KERNEL_PATHS
from dmlvk.tensor_desc import TensorDesc

# Rules that the declaration does not say, with descriptors that break them.
BROKEN_RULES: Mapping[str, Mapping[str, Any]] = {
    "table_of_bytes_for_pairs": {"table_tensor.sizes": [3, 256]},
    "table_too_long": {"table_tensor.sizes": [3, 65_537]},
    "tables_for_another_axis": {"axis": 1},
    "one_table_for_an_axis": {"table_tensor.sizes": [65_536]},
    "tables_without_an_axis": {"axis": None},
    "table_of_pairs_for_bytes": {"second_input_tensor": None},
}
BYTES = {"uint8": DataType.UINT8, "int8": DataType.INT8}
PATHS = (PLANNERS_CHOICE, *KERNEL_PATHS[ByteTableDesc])
# Both sides of all pairs of bytes.
PAIRS = tuple(side.ravel().astype(np.uint8) for side in np.meshgrid(np.arange(256), np.arange(256), indexing="ij"))


def workload(desc: ByteTableDesc, numbers: np.random.Generator, p: Parameters, **inputs: Any) -> Workload:
    """A workload with random bytes in the inputs that are not given."""
    arrays = {
        name: inputs[name] if name in inputs else random_array(numbers, tensor)
        for name, tensor in desc.tensors.items()
        if name in desc.input_fields
    }
    return Workload(desc, arrays, device_type=getattr(p, "device", None), limits=getattr(p, "limits", LIMITS["own"]))


# A table of pairs does not fit into the small storage buffers of these limits.
GROUPS = Groups(
    "byte_table",
    declared_form(ByteTableDesc, left_out=lambda labels: labels["limits"] == "cut" and labels["optional"] == "present"),
)


@GROUPS.of(input=BYTES, table=BYTES, path=PATHS, device=DEVICES)
def every(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Every byte, in a table of random bytes; the last unit of the output is not whole."""
    desc = ByteTableDesc(input_tensor=TensorDesc(p.input, (1003,)), table_tensor=TensorDesc(p.table, (256,)))
    values = np.arange(1003).astype(np.uint8).view(p.input.numpy_dtype)
    return workload(desc, numbers, p, input_tensor=values)


@GROUPS.of(first=BYTES, second=BYTES, table=BYTES, path=PATHS)
def pairs(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Every pair of bytes."""
    sizes = (1 << 16,)
    desc = ByteTableDesc(
        input_tensor=TensorDesc(p.first, sizes),
        second_input_tensor=TensorDesc(p.second, sizes),
        table_tensor=TensorDesc(p.table, sizes),
    )
    first, second = (side.view(kind.numpy_dtype) for side, kind in zip(PAIRS, (p.first, p.second), strict=True))
    return workload(desc, numbers, p, input_tensor=first, second_input_tensor=second)


@GROUPS.of(
    axis=(0, 1, 2),
    rows=("odd", "whole"),
    second={"absent": False, "present": True},
    limits=only(LIMITS, "own", "floor"),
)
def axis(numbers: np.random.Generator, p: Parameters) -> Workload:
    """A table for each index along an axis, of bytes or of pairs whose second one broadcasts."""
    sizes = (3, 5, 33) if p.rows == "odd" else (3, 5, 64)
    tensor, length = TensorDesc(DataType.UINT8, sizes), 65536 if p.second else 256
    desc = ByteTableDesc(
        input_tensor=tensor,
        second_input_tensor=TensorDesc(DataType.INT8, sizes, (0, 1, 0)) if p.second else None,
        table_tensor=TensorDesc(DataType.UINT8, (sizes[p.axis], length)),
        axis=p.axis,
    )
    return workload(desc, numbers, p)


@GROUPS.of(
    sizes={
        "48_last": ((3, 131, 48), 2),
        "129_last": ((5, 129), 1),
        "long": ((9001, 48), 1),
        "7x7": ((3, 32, 7, 7), 1),
        "8x8": ((2, 5, 8, 8), 1),
        "first": ((6, 3, 80), 0),
    },
    path=PATHS,
    device=DEVICES,
    default="all",
)
def tables(numbers: np.random.Generator, p: Parameters) -> Workload:
    """A table for each index along the last, the first or a middle axis, in whole vectors of 16 bytes or not."""
    sizes, axis = p.sizes
    tensor = TensorDesc(DataType.UINT8, sizes)
    desc = ByteTableDesc(input_tensor=tensor, table_tensor=TensorDesc(DataType.INT8, (sizes[axis], 256)), axis=axis)
    return workload(desc, numbers, p)
