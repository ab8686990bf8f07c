"""Cases of QUANTIZED_LINEAR_CONVOLUTION_ADD: what the declaration leaves open, and sums in a kernel's last step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.by_declaration import declared_form
from dmlvk.conformance.cases.combinations import DEVICES, PLANNERS_CHOICE, Groups, Parameters
from dmlvk.conformance.cases.element_wise_quantized_linear_add import ZERO_POINTS
from dmlvk.conformance.cases.layouts import LIMITS, lay_out
from dmlvk.conformance.cases.values import random_array
from dmlvk.data_type import DataType
from dmlvk.operators import QuantizedLinearConvolutionAddDesc
from dmlvk.tensor_desc import TensorDesc, TensorFlags

# What no rule of a field says, beside the convolution's own rules.
BROKEN_RULES: Mapping[str, Mapping[str, Any]] = {"addend_sizes": {"addend_tensor.sizes": [2, 3, 1, 1]}}

# Images, input channels, height, width, output channels, the filter's height and width, and groups.
Shape = tuple[int, int, int, int, int, int, int]
SHAPES: Mapping[str, Shape] = {
    "whole": (1, 64, 16, 16, 64, 1, 1),
    "odd": (2, 19, 9, 5, 37, 3, 1),
    "seven": (2, 32, 7, 7, 48, 3, 1),
    "wide": (1, 32, 12, 12, 160, 1, 1),
}
# What the paths take whose kernels have no last step with a sum.
SHAPES_APART: Mapping[str, Shape] = {"depthwise": (2, 24, 9, 5, 24, 3, 24), "halo": (2, 32, 7, 7, 48, 3, 1)}
# Factors of the scales of the convolution's output, the addend and the sum. Where a scale is infinite, or a sum beyond
# 2^31, no sum in floats is right, and the table gives all of them.
SCALES: Mapping[str, tuple[float, float, float]] = {
    "ordinary": (1.0, 0.61, 1.43),
    "half": (1.0, 1.0, 2.0),
    "infinite": (1.0, np.inf, 1.0),
    "overflowing": (1.0, 2e38, 1e-3),
    "negative": (1.0, -0.7, 1.3),
}
LAYOUTS = {"nhwc": "channels_last", "nchw": "packed"}
PATHS = (PLANNERS_CHOICE, "matrix", "split_k", "vectors")


# The table of pairs does not fit into the small storage buffers of these limits.
GROUPS = Groups(
    "quantized_linear_convolution_add",
    declared_form(QuantizedLinearConvolutionAddDesc, left_out=lambda labels: labels["limits"] == "cut"),
)


@GROUPS.of(
    shape=SHAPES,
    type={"uint8": DataType.UINT8, "int8": DataType.INT8},
    layout=LAYOUTS,
    order=("addend_first", "addend_second"),
    scales=SCALES,
    zero_points=ZERO_POINTS,
    parameters=("owned", "bound"),
    path=PATHS,
    device=DEVICES,
)
def last_step(numbers: np.random.Generator, p: Parameters) -> Workload:
    """An addend that lies as the output does, in every order, so that a kernel may add in its last step."""
    images, channels, height, width, filters, taps, groups = p.shape
    sizes = {"input_tensor": (images, channels, height, width), "output_tensor": (images, filters, height, width)}
    sizes |= {"addend_tensor": sizes["output_tensor"], "filter_tensor": (filters, channels // groups, taps, taps)}
    tensors = {name: lay_out(p.type, extents, p.layout) for name, extents in sizes.items()}
    flags = TensorFlags.OWNED_BY_DML if p.parameters == "owned" else TensorFlags.NONE
    tensors["filter_tensor"] = TensorDesc(DataType.INT8, sizes["filter_tensor"], flags=flags)
    inputs = {name: random_array(numbers, desc) for name, desc in tensors.items() if name != "output_tensor"}

    def add(name: str, data_type: DataType, array: Any) -> None:
        tensors[name] = TensorDesc(data_type, array.shape, flags=flags)
        inputs[name] = array.astype(data_type.numpy_dtype)

    one, each = (1, 1, 1, 1), (1, filters, 1, 1)
    add("bias_tensor", DataType.INT32, numbers.integers(-900, 900, each))
    add("input_scale_tensor", DataType.FLOAT32, np.full(one, 0.02))
    add("filter_scale_tensor", DataType.FLOAT32, numbers.uniform(0.005, 0.015, each))
    between = 0.013 * float(np.sqrt(channels // groups * taps * taps))
    for name, factor in zip(("output", "addend", "sum"), p.scales, strict=True):
        add(f"{name}_scale_tensor", DataType.FLOAT32, np.full(one, between * factor))
    if p.zero_points is not None:
        for name, zero_point in zip(("output", "addend", "sum"), p.zero_points, strict=True):
            number = np.full(one, zero_point, np.uint8).view(p.type.numpy_dtype)
            add(f"{name}_zero_point_tensor", p.type, number)
    desc = QuantizedLinearConvolutionAddDesc(
        **tensors,
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(taps // 2,) * 2,
        end_padding=(taps // 2,) * 2,
        group_count=groups,
        addend_comes_first=p.order == "addend_first",
    )
    return Workload(desc, inputs, device_type=p.device, limits=LIMITS["own"])


GROUPS.add(
    "apart",
    last_step,
    keep=lambda labels: labels["shape"] == labels["path"],
    shape=SHAPES_APART,
    type={"uint8": DataType.UINT8},
    layout=LAYOUTS,
    order=("addend_first", "addend_second"),
    scales={"ordinary": SCALES["ordinary"]},
    zero_points={"odd": ZERO_POINTS["odd"]},
    parameters=("owned", "bound"),
    path=tuple(SHAPES_APART),
    about="Paths whose kernels have no last step with a sum: a second kernel adds to the convolution's output in "
    "scratch.",
)

GROUPS.add(
    "strips",
    last_step,
    shape={label: SHAPES[label] for label in ("whole", "wide")},
    type={"uint8": DataType.UINT8, "int8": DataType.INT8},
    layout=LAYOUTS,
    order=("addend_first", "addend_second"),
    scales={"ordinary": SCALES["ordinary"]},
    zero_points={"odd": ZERO_POINTS["odd"]},
    parameters=("owned", "bound"),
    path=("matrix",),
    about="Matrix units, sums in floats and 16 bytes at a time: the strips of a tile wait in shared memory, each with "
    "its addends.",
)
