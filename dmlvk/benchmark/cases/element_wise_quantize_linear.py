"""ELEMENT_WISE_QUANTIZE_LINEAR and ELEMENT_WISE_DEQUANTIZE_LINEAR: one scale, and one for each channel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from dmlvk import DataType, ElementWiseQuantizeLinearDesc, TensorDesc
from dmlvk.benchmark.cases.byte_table import IMAGES, batches
from dmlvk.benchmark.cases.scale import Scale
from dmlvk.conformance.case import Case, Workload, generator
from dmlvk.conformance.cases.element_wise_quantize_linear import LinearOperator
from dmlvk.conformance.cases.values import random_array


def workload(operator: LinearOperator, sizes: Sequence[int], axis: int, is_each: bool) -> Workload:
    """Random bytes, or floats that use the range of a byte; random scales and zero points."""
    strides = [int(is_each and k == axis) for k in range(4)]
    parameters: dict[str, Any] = {
        "scale_tensor": TensorDesc(DataType.FLOAT32, sizes, strides),
        "zero_point_tensor": TensorDesc(DataType.UINT8, sizes, strides),
    }
    floats, integers = TensorDesc(DataType.FLOAT32, sizes), TensorDesc(DataType.UINT8, sizes)
    numbers = generator(f"{operator.stem} {sizes} {is_each}")
    shape = [sizes[axis] if is_each and k == axis else 1 for k in range(4)]
    inputs = {
        "scale_tensor": np.broadcast_to(numbers.uniform(0.01, 0.02, shape).astype(np.float32), sizes),
        "zero_point_tensor": np.broadcast_to(numbers.integers(100, 150, shape, np.uint8), sizes),
    }
    if operator is ElementWiseQuantizeLinearDesc:
        source, output = floats, integers
        inputs["input_tensor"] = numbers.standard_normal(sizes, np.float32)
    else:
        source, output = integers, floats
        inputs["input_tensor"] = random_array(numbers, integers)
    return Workload(operator(input_tensor=source, output_tensor=output, **parameters), inputs)


def linear_cases(operator: LinearOperator, scale: Scale) -> Iterator[Case]:
    """Cases of either of the two operators."""
    for layout, (image, axis) in IMAGES.items():
        for kind in ("one_scale", "each_channel"):
            for size, count in batches(scale, 5):
                build = partial(workload, operator, (count, *image), axis, kind == "each_channel")
                yield Case(f"{operator.stem}:{kind}:layout={layout};size={size}", build, is_default=True)


def cases(scale: Scale) -> Iterator[Case]:
    """Cases in both layouts."""
    return linear_cases(ElementWiseQuantizeLinearDesc, scale)
