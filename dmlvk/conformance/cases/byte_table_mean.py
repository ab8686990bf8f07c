"""Cases of BYTE_TABLE_MEAN."""

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
from dmlvk.operators import ByteTableMeanDesc
from dmlvk.operators.byte_table_mean import LANE_COUNTS
from dmlvk.planning.byte_table_mean import WORDS
from dmlvk.planning.float32 import PATHS as PATHS_OF_NUMBERS
from dmlvk.tensor_desc import TensorDesc

# Rules that the declaration does not say, with descriptors that break them.
BROKEN_RULES: Mapping[str, Mapping[str, Any]] = {
    "table_of_another_length": {"table_tensor.sizes": [255]},
    "lanes_of_no_order": {"lane_count": 2},
    "output_sizes": {"output_tensor.sizes": [3, 2, 1, 2]},
}
PATHS = (PLANNERS_CHOICE, *PATHS_OF_NUMBERS)
PLANES = {"one": (1, 1), "three": (1, 3), "row": (1, 7), "eleven": (1, 11), "square": (7, 7), "wide": (13, 17)}


def table_of(kind: str, numbers: np.random.Generator) -> np.ndarray[Any, Any]:
    """256 values: as a scale gives them, of very different sizes, denormal, or with infinities and NaN."""
    values = (np.arange(256) - 131) * np.float32(0.0437)
    if kind == "sizes":
        values = numbers.standard_normal(256) * 2.0 ** numbers.integers(-20, 21, 256)
    elif kind == "extreme":
        values = numbers.standard_normal(256) * 2.0 ** numbers.integers(-147, 128, 256)
    elif kind == "denormal":
        values = numbers.integers(-(1 << 23), 1 << 23, 256) * 2.0**-149
    elif kind == "infinite":
        values = values * np.float32(1e38)
        values[::97], values[1::101] = np.inf, np.nan
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


GROUPS = Groups("byte_table_mean", declared_form(ByteTableMeanDesc))


@GROUPS.of(
    lanes=LANE_COUNTS,
    plane=PLANES,
    layout=("NCHW", "NHWC"),
    table=("scale", "sizes", "extreme", "denormal", "infinite"),
    path=PATHS,
    device=DEVICES,
)
def planes(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Planes whose elements wait, fill the lanes or are left, in both layouts, with all kinds of numbers."""
    return _workload(numbers, p, 5)


@GROUPS.of(
    lanes=LANE_COUNTS,
    plane={"one": (1, 4), "chunk": (8, 8), "odd": (7, 12), "square": (14, 14)},
    layout=("NCHW", "NHWC"),
    table=("scale", "sizes", "infinite"),
    path=(WORDS,),
    device=GPU_AND_OWN,
)
def planes_of_words(numbers: np.random.Generator, p: Parameters) -> Workload:
    """More planes than a workgroup has, of words, which begin anywhere in what is read together."""
    return _workload(numbers, p, 76)


def _workload(numbers: np.random.Generator, p: Parameters, channels: int) -> Workload:
    sizes = (2, channels, *p.plane)
    strides = (channels * p.plane[0] * p.plane[1], 1, channels * p.plane[1], channels) if p.layout == "NHWC" else None
    desc = ByteTableMeanDesc(
        input_tensor=TensorDesc(DataType.UINT8, sizes, strides),
        table_tensor=TensorDesc(DataType.FLOAT32, (256,)),
        lane_count=p.lanes,
    )
    arrays = {"input_tensor": random_array(numbers, desc.input_tensor), "table_tensor": table_of(p.table, numbers)}
    return Workload(desc, arrays, device_type=p.device, limits=LIMITS["own"])
