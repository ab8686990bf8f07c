"""Cases of BYTE_SOFTMAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.by_declaration import declared_form
from dmlvk.conformance.cases.combinations import DEVICES, GPU_AND_OWN, PLANNERS_CHOICE, Groups, Parameters
from dmlvk.conformance.cases.layouts import LIMITS
from dmlvk.conformance.cases.values import random_array
from dmlvk.data_type import DataType
from dmlvk.operators import ByteSoftmaxDesc
from dmlvk.operators.byte_softmax import MOST_STEPS
from dmlvk.planning import KERNEL_PATHS
from dmlvk.tensor_desc import TensorDesc

# Rules that the declaration does not say, with descriptors that break them.
BROKEN_RULES: Mapping[str, Mapping[str, Any]] = {
    "table_of_another_length": {"table_tensor.sizes": [255]},
    "zero_point_of_the_other_type": {"output_zero_point": -1, "input_tensor.data_type": "UINT8"},
}
ROWS = "rows"
PATHS = (PLANNERS_CHOICE, *(path for path in KERNEL_PATHS[ByteSoftmaxDesc] if path != ROWS))
TABLES = ("exponentials", "large", "equal", "denormal", "overflowing", "any")


def table_of(kind: str, numbers: np.random.Generator) -> np.ndarray[Any, Any]:
    """256 terms: exponentials, also as large as ONNX Runtime's; equal ones, which make halves of a step; odd ones."""
    distances = np.arange(256) - 255
    values = np.exp(distances * 0.0437)
    if kind == "large":
        values = np.exp(distances * 0.61 + 76)
    elif kind == "equal":
        values = np.ones(256)
    elif kind == "denormal":
        values = numbers.integers(0, 1 << 23, 256) * 2.0**-149
    elif kind == "overflowing":
        values = np.exp(distances * 0.0437 + 86)
    elif kind == "any":
        return numbers.integers(0, 1 << 32, 256, np.uint32).view(np.float32)
    return values.astype(np.float32)


def _workload(numbers: np.random.Generator, p: Parameters, tensor: TensorDesc) -> Workload:
    desc = ByteSoftmaxDesc(
        input_tensor=tensor,
        table_tensor=TensorDesc(DataType.FLOAT32, (256,)),
        output_tensor=tensor,
        output_steps=p.steps,
        output_zero_point=0 if p.type is DataType.UINT8 else -128,
    )
    arrays = {"input_tensor": random_array(numbers, tensor), "table_tensor": table_of(p.table, numbers)}
    return Workload(desc, arrays, device_type=p.device, limits=LIMITS["own"])


GROUPS = Groups("byte_softmax", declared_form(ByteSoftmaxDesc))


@GROUPS.of(
    length=(1, 10, 257, 2050),
    layout=("packed", "side_by_side"),
    table=TABLES,
    steps=(256, MOST_STEPS),
    type=(DataType.UINT8, DataType.INT8),
    path=PATHS,
    device=DEVICES,
)
def rows(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Rows of one element and of many, packed and side by side, with all kinds of terms."""
    sizes = (2, 3, p.length)
    strides = (3 * p.length, 1, 3) if p.layout == "side_by_side" else None
    return _workload(numbers, p, TensorDesc(p.type, sizes, strides))


@GROUPS.of(
    length=(4, 11, 97, 512),
    table=("exponentials", "equal", "any"),
    steps=(256,),
    type=(DataType.UINT8, DataType.INT8),
    path=(PLANNERS_CHOICE, ROWS),
    device=GPU_AND_OWN,
)
def many_rows(numbers: np.random.Generator, p: Parameters) -> Workload:
    """More packed rows than a workgroup has, which begin at words or anywhere, with all kinds of terms."""
    return _workload(numbers, p, TensorDesc(p.type, (1, max(37, 120_000 // p.length), p.length)))
