"""Cases of ELEMENT_WISE_QUANTIZE_LINEAR, and those that it shares with ELEMENT_WISE_DEQUANTIZE_LINEAR."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.by_declaration import declared_form
from dmlvk.conformance.cases.byte_table import BYTES
from dmlvk.conformance.cases.combinations import DEVICES, Groups, Parameters, only
from dmlvk.conformance.cases.layouts import LIMITS
from dmlvk.conformance.cases.values import random_array
from dmlvk.data_type import DataType
from dmlvk.operators import ElementWiseDequantizeLinearDesc, ElementWiseQuantizeLinearDesc
from dmlvk.tensor_desc import TensorDesc

LinearOperator = type[ElementWiseQuantizeLinearDesc] | type[ElementWiseDequantizeLinearDesc]

# Rules that the declaration does not say, with descriptors that break them.
BROKEN_RULES: Mapping[str, Mapping[str, Any]] = {
    "scales_of_channels_without_strides": {"scale_tensor.sizes": [1, 2, 1, 1]},
    "zero_points_of_channels_without_strides": {"zero_point_tensor.sizes": [1, 2, 1, 1]},
}
SCALES = {
    "ordinary": 0.0173,
    "power": 0.125,
    "negative": -0.3,
    "denormal": 3e-45,
    "small": 2.0**-101,
    "large": 3e36,
    "zero": 0.0,
    "infinite": np.inf,
    "nan": np.nan,
}
SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45, -1e-40, 3.4e38, -3.4e38], np.float32)
# Where a scale or a zero point lies: one element, or strides of it in a tensor of the output's sizes.
PLACES: dict[str, tuple[int, ...] | None] = {
    "one": None,
    "all": (0, 0, 0, 0),
    "channel": (0, 1, 0, 0),
    "last": (0, 0, 0, 1),
    "each": (1 << 12, 1 << 9, 1 << 6, 1),
}


def near(numbers: np.random.Generator, scale: Any, sizes: tuple[int, ...]) -> np.ndarray:
    """Floats on integer multiples of scales, between two of them, next to that, and special ones."""
    with np.errstate(all="ignore"):
        value = (numbers.integers(-1300, 1300, sizes) / 4 * scale).astype(np.float32)
        value = np.where(
            numbers.random(sizes) < 0.4, np.nextafter(value, np.float32(np.inf) * numbers.choice([-1, 1], sizes)), value
        )
    return np.where(numbers.random(sizes) < 0.1, numbers.choice(SPECIAL, sizes), value).astype(np.float32)


def parameters(operator: LinearOperator, numbers: np.random.Generator, p: Parameters) -> Workload:
    """Scales and zero points for all elements, for channels, and for each element."""
    sizes = (2, 6, 5, 7) if p.rows == "odd" else (2, 6, 5, 16)

    def place(data_type: DataType, where: tuple[int, ...] | None) -> TensorDesc:
        return TensorDesc(data_type, (1, 1, 1, 1)) if where is None else TensorDesc(data_type, sizes, where)

    floats, integers = TensorDesc(DataType.FLOAT32, sizes), TensorDesc(p.type, sizes)
    scale, zero_point = place(DataType.FLOAT32, p.scale), place(p.type, p.zero_point)
    strides = zip(scale.sizes, scale.element_strides, strict=True)
    scales = numbers.uniform(0.01, 2, [size if stride else 1 for size, stride in strides]).astype(np.float32)
    inputs = {
        "scale_tensor": np.broadcast_to(scales, scale.sizes),
        "zero_point_tensor": random_array(numbers, zero_point),
    }
    tensors: dict[str, Any] = {"scale_tensor": scale, "zero_point_tensor": zero_point}
    if operator is ElementWiseQuantizeLinearDesc:
        desc: Any = operator(input_tensor=floats, output_tensor=integers, **tensors)
        inputs["input_tensor"] = near(numbers, scales, sizes)
    else:
        desc = operator(input_tensor=integers, output_tensor=floats, **tensors)
        inputs["input_tensor"] = random_array(numbers, integers)
    return Workload(desc, inputs, device_type=p.device, limits=p.limits)


def add_parameters(groups: Groups, operator: LinearOperator) -> None:
    """The cases of where scales and zero points lie."""
    groups.add(
        "parameters",
        partial(parameters, operator),
        scale=PLACES,
        zero_point=PLACES,
        type=BYTES,
        rows=("odd", "whole"),
        limits=only(LIMITS, "own", "floor"),
        device=DEVICES,
        about=" ".join((parameters.__doc__ or "").split()),
    )


GROUPS = Groups("element_wise_quantize_linear", declared_form(ElementWiseQuantizeLinearDesc))


@GROUPS.of(scale=SCALES, type=BYTES, zero_point=(0, 1, 128, 255))
def thresholds(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Floats at, just below and just above every place where the result changes."""
    scale = np.full(1, p.scale, np.float32)
    with np.errstate(all="ignore"):
        middle = ((np.arange(1024) - 512) / 2 * scale).astype(np.float32)
        ends = [np.nextafter(middle, np.float32(end)) for end in (-np.inf, np.inf)]
    values = np.concatenate([middle, *ends, SPECIAL])
    zero_point = np.array([p.zero_point], np.uint8).view(p.type.numpy_dtype)
    desc = ElementWiseQuantizeLinearDesc(
        input_tensor=TensorDesc(DataType.FLOAT32, values.shape),
        scale_tensor=TensorDesc(DataType.FLOAT32, (1,)),
        zero_point_tensor=TensorDesc(p.type, (1,)),
    )
    return Workload(desc, {"input_tensor": values, "scale_tensor": scale, "zero_point_tensor": zero_point})


add_parameters(GROUPS, ElementWiseQuantizeLinearDesc)
