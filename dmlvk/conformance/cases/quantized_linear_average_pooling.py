"""QUANTIZED_LINEAR_AVERAGE_POOLING: the windows and the rules of MAX_POOLING2, with scales of several kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.by_declaration import declared_form
from dmlvk.conformance.cases.combinations import Groups, Parameters
from dmlvk.conformance.cases.layouts import LIMITS
from dmlvk.conformance.cases.max_pooling2 import WINDOW_RULES, WINDOWS, laid_out, pooled
from dmlvk.conformance.cases.values import random_array
from dmlvk.data_type import DataType
from dmlvk.operators import QuantizedLinearAveragePoolingDesc
from dmlvk.tensor_desc import TensorDesc

# Those of all pools, and whole planes: a few words, and so many that invocations add up parts of a plane.
MEAN_WINDOWS: Mapping[str, tuple[int, int, int, int, tuple[int, ...]]] = {
    **WINDOWS,
    "7x7_plane": (7, 1, 1, 0, (3, 35, 7, 7)),
    "23x23_plane": (23, 1, 1, 0, (2, 5, 23, 23)),
}

BROKEN_RULES: Mapping[str, Mapping[str, Any]] = {
    name: {field: value for field, value in changes.items() if field != "output_indices_tensor"}
    for name, changes in WINDOW_RULES.items()
}

# Input and output scale. With equal ones, means of an even number of taps lie in the middle between two integers; with
# negative or very small ones, a mean is not compared but computed.
SCALES: Mapping[str, tuple[float, float]] = {
    "equal": (0.0371, 0.0371),
    "half": (0.0371, 0.0742),
    "other": (0.0371, 0.0293),
    "negative": (0.0371, -0.0371),
    "small": (1e-30, 1e-30),
}


GROUPS = Groups("quantized_linear_average_pooling", declared_form(QuantizedLinearAveragePoolingDesc))


@GROUPS.of(
    window=MEAN_WINDOWS,
    layout=("NCHW", "NHWC"),
    type={kind.name.lower(): kind for kind in (DataType.INT8, DataType.UINT8)},
    scales=SCALES,
    padding=("counts", "does_not"),
)
def windows(numbers: np.random.Generator, p: Parameters) -> Workload:
    """The windows of networks, in both layouts, with scales for which many means lie between two integers."""
    sizes, fields = p.window[-1], pooled(p.window)
    parameters: dict[str, Any] = {
        "input_scale_tensor": np.array([p.scales[0]], np.float32),
        "input_zero_point_tensor": random_array(numbers, TensorDesc(p.type, (1,))),
        "output_scale_tensor": np.array([p.scales[1]], np.float32),
        "output_zero_point_tensor": random_array(numbers, TensorDesc(p.type, (1,))),
    }
    fields |= {name: TensorDesc.of(array) for name, array in parameters.items()}
    fields |= {"include_padding": p.padding == "counts"}
    given = QuantizedLinearAveragePoolingDesc(input_tensor=TensorDesc(p.type, sizes), **fields).output_tensor.sizes
    desc = QuantizedLinearAveragePoolingDesc(
        input_tensor=laid_out(p.type, sizes, p.layout), output_tensor=laid_out(p.type, given, p.layout), **fields
    )
    inputs = {"input_tensor": random_array(numbers, desc.input_tensor), **parameters}
    return Workload(desc, inputs, limits=LIMITS["own"])
