"""Cases of QUANTIZED_LINEAR_CONVOLUTION_TABLE: what the declaration leaves open, and tables in a kernel's last step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.by_declaration import declared_form
from dmlvk.conformance.cases.combinations import DEVICES, GPU, PLANNERS_CHOICE, Groups, Parameters
from dmlvk.conformance.cases.layouts import LIMITS, lay_out
from dmlvk.conformance.cases.quantized_linear_convolution_add import SHAPES, SHAPES_APART
from dmlvk.conformance.cases.values import random_array
from dmlvk.data_type import DataType
from dmlvk.operators import QuantizedLinearConvolutionTableDesc
from dmlvk.tensor_desc import TensorDesc, TensorFlags

# What no rule of a field says, beside the convolution's own rules.
BROKEN_RULES: Mapping[str, Mapping[str, Any]] = {"table_length": {"table_tensor.sizes": [255]}}

# A bias of some channels with which sums need more than 32 bits: the last step is one in integers.
BIASES = {"narrow": 900, "wide": 2**31 - 1}
PATHS = (PLANNERS_CHOICE, "matrix", "split_k", "vectors", "halo")
TYPES_OF_BYTES = {"uint8": DataType.UINT8, "int8": DataType.INT8}
ORDERS = ("channels_last", "packed")


# With few storage buffers, plans are those of the convolution and of BYTE_TABLE.
GROUPS = Groups(
    "quantized_linear_convolution_table",
    declared_form(QuantizedLinearConvolutionTableDesc, left_out=lambda labels: labels["limits"] == "floor"),
)


@GROUPS.of(
    keep=lambda labels: labels["shape"] == "seven" or labels["path"] != "halo",
    shape=SHAPES,
    type=TYPES_OF_BYTES,
    layout=ORDERS,
    accumulators=BIASES,
    parameters=("owned",),
    path=PATHS,
    device=DEVICES,
)
def last_step(numbers: np.random.Generator, p: Parameters) -> Workload:
    """A table of random bytes, so that each byte of the convolution's output counts."""
    images, channels, height, width, filters, taps, groups = p.shape
    sizes = {"input_tensor": (images, channels, height, width), "output_tensor": (images, filters, height, width)}
    tensors = {name: lay_out(p.type, extents, p.layout) for name, extents in sizes.items()}
    inputs = {"input_tensor": random_array(numbers, tensors["input_tensor"])}
    flags = TensorFlags.OWNED_BY_DML if p.parameters == "owned" else TensorFlags.NONE

    def add(name: str, data_type: DataType, array: Any) -> None:
        tensors[name] = TensorDesc(data_type, array.shape, flags=flags)
        inputs[name] = array.astype(data_type.numpy_dtype)

    one, each, bias = (1, 1, 1, 1), (1, filters, 1, 1), p.accumulators
    add("filter_tensor", DataType.INT8, numbers.integers(-128, 128, (filters, channels // groups, taps, taps)))
    add("bias_tensor", DataType.INT32, numbers.integers(-bias, bias, each))
    add("input_scale_tensor", DataType.FLOAT32, np.full(one, 0.02))
    add("filter_scale_tensor", DataType.FLOAT32, numbers.uniform(0.005, 0.015, each))
    spread = max(74 * 74 * float(np.sqrt(channels // groups * taps * taps)), bias / 4)
    add("output_scale_tensor", DataType.FLOAT32, np.full(one, 0.02 * 0.01 * spread / 60))
    number = np.full(one, 121, np.uint8).view(p.type.numpy_dtype)
    add("output_zero_point_tensor", p.type, number)
    add("table_tensor", p.type, numbers.integers(0, 256, 256))
    desc = QuantizedLinearConvolutionTableDesc(
        **tensors,
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(taps // 2,) * 2,
        end_padding=(taps // 2,) * 2,
        group_count=groups,
    )
    return Workload(desc, inputs, device_type=p.device, limits=LIMITS["own"])


GROUPS.add(
    "depthwise",
    last_step,
    default="all",
    shape={"depthwise": SHAPES_APART["depthwise"]},
    type=TYPES_OF_BYTES,
    layout=ORDERS,
    accumulators=BIASES,
    parameters=("owned",),
    path=("depthwise",),
    device=GPU,
    about="The same where each channel is convolved by itself.",
)


GROUPS.add(
    "apart",
    last_step,
    shape={"odd": SHAPES["odd"]},
    type=TYPES_OF_BYTES,
    layout=ORDERS,
    accumulators=BIASES,
    parameters=("owned", "bound"),
    path=("direct", "vectors"),
    about="Kernels without a last step that looks up, and tables that may change: a second kernel reads the output.",
)
