"""ELEMENT_WISE_QUANTIZED_LINEAR_ADD: tensors of equal layout, and one that broadcasts, in both layouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from dmlvk import DataType, ElementWiseQuantizedLinearAddDesc, TensorDesc, TensorFlags
from dmlvk.benchmark.cases.byte_table import IMAGES, batches
from dmlvk.benchmark.cases.scale import Scale
from dmlvk.conformance.case import Case, Workload, generator
from dmlvk.conformance.cases.values import random_array

SCALES = {"a": 0.0173, "b": 0.0219, "output": 0.0311}
ZERO_POINTS = {"a": 121, "b": 128, "output": 117}


def workload(sizes: Sequence[int], axis: int, broadcasts: bool, flags: TensorFlags) -> Workload:
    """Random bytes; scales and zero points like those of a network."""
    tensor = TensorDesc(DataType.UINT8, sizes)
    strides = [int(k == axis) for k in range(4)] if broadcasts else None
    tensors: dict[str, Any] = {"a_tensor": tensor, "b_tensor": TensorDesc(DataType.UINT8, sizes, strides)}
    numbers = generator(f"add {sizes} {broadcasts}")
    inputs = {name: random_array(numbers, each) for name, each in tensors.items()}
    one = (1, 1, 1, 1)
    for name, scale in SCALES.items():
        tensors[f"{name}_scale_tensor"] = TensorDesc(DataType.FLOAT32, one, flags=flags)
        tensors[f"{name}_zero_point_tensor"] = TensorDesc(DataType.UINT8, one, flags=flags)
        inputs[f"{name}_scale_tensor"] = np.full(one, scale, np.float32)
        inputs[f"{name}_zero_point_tensor"] = np.full(one, ZERO_POINTS[name], np.uint8)
    return Workload(ElementWiseQuantizedLinearAddDesc(**tensors, output_tensor=tensor), inputs)


def cases(scale: Scale) -> Iterator[Case]:
    """Cases in both layouts."""
    stem = ElementWiseQuantizedLinearAddDesc.stem
    flags = TensorFlags.OWNED_BY_DML if scale.parameters_are_owned else TensorFlags.NONE
    for layout, (image, axis) in IMAGES.items():
        for kind, bytes_per_element in (("tensors", 3), ("each_channel", 2)):
            for size, count in batches(scale, bytes_per_element):
                build = partial(workload, (count, *image), axis, kind == "each_channel", flags)
                yield Case(f"{stem}:{kind}:layout={layout};size={size}", build, is_default=True)
