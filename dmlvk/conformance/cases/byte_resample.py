"""Cases of BYTE_RESAMPLE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.by_declaration import declared_form
from dmlvk.conformance.cases.combinations import DEVICES, PLANNERS_CHOICE, Groups, Parameters, only
from dmlvk.conformance.cases.layouts import LIMITS, lay_out
from dmlvk.conformance.cases.values import random_array
from dmlvk.data_type import DataType
from dmlvk.operators import ByteResampleDesc
from dmlvk.operators.byte_resample import MOST_SIDE, THRESHOLDS
from dmlvk.planning import KERNEL_PATHS
from dmlvk.tensor_desc import TensorDesc

# Rules that the declaration does not say, with descriptors that break them.
BROKEN_RULES: Mapping[str, Mapping[str, Any]] = {
    "thresholds_of_another_number": {"threshold_tensor.sizes": [256]},
    "coordinates_of_another_number": {"coordinate_tensor.sizes": [2]},
    "other_channels": {"output_tensor.sizes": [3, 9, 1, 1], "coordinate_tensor.sizes": [2]},
    "too_many_rows": {"output_tensor.sizes": [3, 2, MOST_SIDE + 1, 1], "coordinate_tensor.sizes": [MOST_SIDE + 2]},
    "zero_point_of_the_other_type": {"input_zero_point": -1, "input_tensor.data_type": "UINT8"},
    "scale_below_its_range": {"input_scale": 2.0**-41},
}
PATHS = (PLANNERS_CHOICE, *KERNEL_PATHS[ByteResampleDesc])
# Rows and columns of the input and of the output. The words of a row end inside it, or are whole. Of large planes an
# invocation makes several rows.
SIDES = {
    "double": ((9, 8), (18, 16)),
    "ratio": ((7, 11), (17, 29)),
    "one": ((1, 5), (3, 1)),
    "less": ((23, 31), (7, 4)),
    "large": ((20, 30), (127, 150)),
}
COORDINATES = ("half_pixel", "align_corners", "asymmetric", "any")
# A falling threshold makes the output what a bisection finds.
RESULTS = ("integers", "steps", "shifted_steps", "uneven", "falling")


def coordinates_of(kind: str, size: int, length: int, numbers: np.random.Generator) -> np.ndarray[Any, Any]:
    """Those of ONNX's modes, or any numbers around a dimension and beside it."""
    places, scale = np.arange(length, dtype=np.float32), np.float32(length) / np.float32(size)
    if kind == "half_pixel":
        return (places + np.float32(0.5)) / scale - np.float32(0.5)
    if kind == "asymmetric":
        return places / scale
    if kind == "align_corners":
        return places * np.float32(size - 1) / np.float32(max(length - 1, 1))
    beside = np.array(
        [np.nan, -np.nan, np.inf, -np.inf, -0.0, -1, 1e-40, 2.0**-30, 2.0**-31, size - 1, 3e38], np.float32
    )
    near = numbers.uniform(-1, size + 1, length).astype(np.float32)
    return np.where(numbers.random(length) < 0.3, numbers.choice(beside, length), near)


def thresholds_of(kind: str, scale: float, numbers: np.random.Generator) -> np.ndarray[Any, Any]:
    """Integers, as to cut off; halves of steps; those that lie beside a line, in none, or fall."""
    levels = np.arange(1, 1 + THRESHOLDS, dtype=np.float32)
    if kind == "integers":
        return np.where(levels < 129, np.nextafter(levels - np.float32(129), np.float32(1)), levels - np.float32(128))
    steps = (levels - np.float32(0.5) - np.float32(128 if kind == "steps" else 20)) * np.float32(scale)
    if kind == "beside_a_line":
        steps += numbers.uniform(-0.4, 0.4, THRESHOLDS).astype(np.float32) * np.float32(scale)
    if kind == "uneven":
        return np.sort(numbers.normal(0, 100 * scale, THRESHOLDS)).astype(np.float32)
    if kind == "falling":
        steps[:: int(numbers.integers(2, 40))] = numbers.choice(np.array([np.nan, -np.inf, 7 * scale, 0], np.float32))
    return steps.astype(np.float32)


GROUPS = Groups("byte_resample", declared_form(ByteResampleDesc))


@GROUPS.of(
    sides=SIDES,
    layout=("packed", "rows", "permuted", "channels_last", "odd_channels_last"),
    coordinates=COORDINATES,
    result=RESULTS,
    type=(DataType.UINT8, DataType.INT8),
    limits=only(LIMITS, "own", "floor"),
    path=PATHS,
    device=DEVICES,
)
def planes(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Planes that grow and shrink, to coordinates and by thresholds of all kinds, in both layouts."""
    (height, width), (rows, columns) = p.sides
    channels = {"channels_last": 8, "odd_channels_last": 5}.get(p.layout, 3)
    layout = "channels_last" if p.layout.endswith("channels_last") else p.layout
    scale = 1.0 if p.result == "integers" else 0.0437
    output_type = DataType.UINT8 if p.result == "shifted_steps" else p.type
    desc = ByteResampleDesc(
        input_tensor=lay_out(p.type, (2, channels, height, width), layout),
        coordinate_tensor=TensorDesc(DataType.FLOAT32, (rows + columns,)),
        threshold_tensor=TensorDesc(DataType.FLOAT32, (THRESHOLDS,)),
        output_tensor=lay_out(output_type, (2, channels, rows, columns), layout),
        input_scale=scale,
        input_zero_point=128 if p.type is DataType.UINT8 else 0,
    )
    both = (coordinates_of(p.coordinates, *pair, numbers) for pair in ((height, rows), (width, columns)))
    arrays = {
        "input_tensor": random_array(numbers, desc.input_tensor),
        "coordinate_tensor": np.concatenate([*both]),
        "threshold_tensor": thresholds_of(p.result, scale, numbers),
    }
    return Workload(desc, arrays, device_type=p.device, limits=p.limits)


GROUPS.add(
    "beside_a_line",
    planes,
    sides=only(SIDES, "large"),
    layout=("packed", "channels_last"),
    coordinates=("half_pixel", "any"),
    result=("beside_a_line",),
    type=(DataType.UINT8,),
    limits=only(LIMITS, "own"),
    path=PATHS,
    device=only(DEVICES, "own"),
    about="Thresholds up to 0.4 steps beside a line, of which two have to be compared.",
)
