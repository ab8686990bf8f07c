"""Cases of ELEMENT_WISE_QUANTIZED_LINEAR_ADD."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.by_declaration import declared_form
from dmlvk.conformance.cases.byte_table import BYTES, PAIRS
from dmlvk.conformance.cases.combinations import DEVICES, Groups, Parameters, only
from dmlvk.conformance.cases.layouts import LIMITS
from dmlvk.conformance.cases.values import random_array
from dmlvk.data_type import DataType
from dmlvk.operators import ElementWiseQuantizedLinearAddDesc
from dmlvk.planning import KERNEL_PATHS
from dmlvk.tensor_desc import TensorDesc, TensorFlags

# Scales of A, B and the output.
SCALES: dict[str, tuple[float, float, float]] = {
    "ordinary": (0.0173, 0.0219, 0.0311),
    "half": (0.125, 0.125, 0.25),  # every second sum is a tie
    "almost_half": (0.0117, 0.0117, 0.0234),
    "eighths": (11.406158, 7.604106, 7.604106),
    "small": (0.003, 0.9, 0.9),
    "denormal": (1e-45, 3e-45, 7e-45),
    "negative": (-0.7, 0.3, 0.2),
    "large": (2e7, -2e7, 1.0),
    "overflowing": (3e38, 1.0, 0.5),
    "zero": (0.0, 1.0, 0.5),
    "by_zero": (0.5, 1.0, 0.0),
    "infinite": (np.inf, 1.0, 0.5),
    "by_infinity": (1.0, 0.5, np.inf),
    "nan": (np.nan, 1.0, 0.5),
}
ZERO_POINTS = {"absent": None, "zero": (0, 0, 0), "odd": (3, 121, 117), "ends": (255, 127, 128)}


def workload(
    numbers: np.random.Generator,
    scales: Sequence[float],
    zero_points: Sequence[int] | None,
    p: Parameters,
    inputs: dict[str, Any],
    *,
    flags: TensorFlags = TensorFlags.NONE,
    **tensors: Any,
) -> Workload:
    """A workload with random bytes in the inputs that are not given."""
    one = (1,) * tensors["a_tensor"].rank
    inputs = {**{name: random_array(numbers, tensors[name]) for name in ("a_tensor", "b_tensor")}, **inputs}
    for index, name in enumerate(("a", "b", "output")):
        tensors[f"{name}_scale_tensor"] = TensorDesc(DataType.FLOAT32, one, flags=flags)
        inputs[f"{name}_scale_tensor"] = np.full(one, scales[index], np.float32)
        if zero_points is not None:
            data_type = tensors[f"{name}_tensor"].data_type
            tensors[f"{name}_zero_point_tensor"] = TensorDesc(data_type, one, flags=flags)
            inputs[f"{name}_zero_point_tensor"] = np.full(one, zero_points[index], np.uint8).view(data_type.numpy_dtype)
    desc = ElementWiseQuantizedLinearAddDesc(**tensors)
    return Workload(desc, inputs, device_type=getattr(p, "device", None), limits=getattr(p, "limits", LIMITS["own"]))


# The table of pairs does not fit into the small storage buffers of these limits.
GROUPS = Groups(
    "element_wise_quantized_linear_add",
    declared_form(ElementWiseQuantizedLinearAddDesc, left_out=lambda labels: labels["limits"] == "cut"),
)


@GROUPS.of(
    scales=SCALES,
    zero_points=ZERO_POINTS,
    a=BYTES,
    b=BYTES,
    output=BYTES,
    path=KERNEL_PATHS[ElementWiseQuantizedLinearAddDesc],
)
def pairs(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Every pair of bytes, with ordinary scales, with sums that lie between two integers, and with odd scales."""
    kinds = {"a_tensor": p.a, "b_tensor": p.b, "output_tensor": p.output}
    tensors: dict[str, Any] = {name: TensorDesc(kind, (1 << 16,)) for name, kind in kinds.items()}
    sides = {name: side.view(kinds[name].numpy_dtype) for name, side in zip(kinds, PAIRS, strict=False)}
    return workload(numbers, p.scales, p.zero_points, p, sides, **tensors)


@GROUPS.of(
    shape=("row", "channel", "one", "image"),
    side=("a", "b"),
    rows=("odd", "whole"),
    parameters=("bound", "owned"),
    limits=only(LIMITS, "own", "floor"),
    device=DEVICES,
)
def broadcast(numbers: np.random.Generator, p: Parameters) -> Workload:
    """A tensor that is one row, one column or one number for each channel, added to another from either side."""
    sizes = (2, 6, 5, 7) if p.rows == "odd" else (2, 6, 5, 16)
    strides = {"row": (0, 0, 0, 1), "channel": (0, 1, 0, 0), "one": (0, 0, 0, 0), "image": (6, 1, 0, 0)}[p.shape]
    whole, small = TensorDesc(DataType.UINT8, sizes), TensorDesc(DataType.UINT8, sizes, strides)
    a, b = (whole, small) if p.side == "b" else (small, whole)
    flags = TensorFlags.OWNED_BY_DML if p.parameters == "owned" else TensorFlags.NONE
    tensors = {"a_tensor": a, "b_tensor": b, "output_tensor": whole}
    return workload(numbers, SCALES["eighths"], ZERO_POINTS["odd"], p, {}, flags=flags, **tensors)
