"""QUANTIZED_LINEAR_AVERAGE_POOLING: the windows of networks, channels last and first, and whole planes.

With equal scales, a quarter of the means of 2 x 2 lie in the middle between two integers, and are computed twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from dmlvk import DataType, QuantizedLinearAveragePoolingDesc, TensorDesc
from dmlvk.benchmark.cases.max_pooling2 import LAYOUTS, images_of, pooled, random_images, repeating
from dmlvk.benchmark.cases.scale import Scale
from dmlvk.conformance.case import Case, Workload
from dmlvk.conformance.cases.max_pooling2 import laid_out

# Channels, window, stride, padding, height and width of an image, and whether the scales are equal.
WINDOWS = {
    "2x2_stride_2": (64, 2, 2, 0, 56, False),
    "2x2_stride_2_equal_scales": (64, 2, 2, 0, 56, True),
    "3x3_stride_2": (64, 3, 2, 1, 112, False),
    "plane": (2048, 7, 1, 0, 7, False),
}


def workload(batch: int, window: tuple[int, int, int, int, int, bool], layout: str) -> Workload:
    """Random images, and the reference's output for those that differ."""
    channels, size, stride, padding, side, is_equal = window
    sizes = (batch, channels, side, side)
    parameters: dict[str, Any] = {
        "input_scale_tensor": np.array([0.0371], np.float32),
        "input_zero_point_tensor": np.array([117], np.uint8),
        "output_scale_tensor": np.array([0.0371 if is_equal else 0.0293], np.float32),
        "output_zero_point_tensor": np.array([130], np.uint8),
    }
    fields: dict[str, Any] = {name: TensorDesc.of(array) for name, array in parameters.items()}
    fields |= {**pooled(size, stride, padding), "include_padding": False}
    packed = QuantizedLinearAveragePoolingDesc(input_tensor=TensorDesc(DataType.UINT8, sizes), **fields)
    source = laid_out(DataType.UINT8, sizes, layout)
    output = laid_out(DataType.UINT8, packed.output_tensor.sizes, layout)
    desc = QuantizedLinearAveragePoolingDesc(input_tensor=source, output_tensor=output, **fields)
    return repeating(desc, random_images("quantized_linear_average_pooling", source), **parameters)


def cases(scale: Scale) -> Iterator[Case]:
    """Cases whose inputs have about as many bytes as the scale says."""
    for name, window in WINDOWS.items():
        for layout in LAYOUTS:
            batch = images_of(scale.data_bytes, 1, window[4]) * 64 // window[0]
            build = partial(workload, max(1, batch), window, layout)
            yield Case(f"quantized_linear_average_pooling:{name}:type=UINT8;layout={layout}", build, is_default=True)
