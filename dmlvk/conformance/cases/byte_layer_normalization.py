"""Cases of BYTE_LAYER_NORMALIZATION."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.by_declaration import declared_form
from dmlvk.conformance.cases.combinations import DEVICES, Groups, Parameters, only
from dmlvk.conformance.cases.layouts import LIMITS, lay_out
from dmlvk.data_type import DataType
from dmlvk.operators import ByteLayerNormalizationDesc
from dmlvk.operators.byte_layer_normalization import LONGEST_ROW
from dmlvk.operators.byte_softmax import limits_of
from dmlvk.reference.byte_layer_normalization import Array, normalized
from dmlvk.tensor_desc import TensorDesc

# Rules that the declaration does not say, with descriptors that break them.
BROKEN_RULES: Mapping[str, Mapping[str, Any]] = {
    "rows_of_12": {"input_tensor.sizes": [3, 12], "output_tensor.sizes": [3, 12]},
    "rows_too_long": {"input_tensor.sizes": [1, LONGEST_ROW + 8], "output_tensor.sizes": [1, LONGEST_ROW + 8]},
    "scale_of_another_length": {"scale_tensor.sizes": [7]},
    "zero_point_of_the_other_type": {
        "input_zero_point": 128,
        "input_tensor.data_type": "INT8",
        "output_tensor.data_type": "INT8",
    },
    "input_scale_below_its_range": {"input_scale": 2.0**-21},
    "output_scale_beyond_its_range": {"output_scale": 2.0**21},
    "no_epsilon": {"epsilon": 0.0},
}
SIZES = {"one": (1, 8), "rows": (23, 192), "many": (150, 40), "long": (2, 3000)}
NUMBERS = ("bytes", "near", "equal")
PARAMETERS = ("ordinary", "halves", "any")
# Of the input and of the output, and epsilon.
SCALES = {
    "ordinary": (0.0371, 0.0213, 1e-5),
    "small": (2.0**-20, 2.0**-20, 2.0**-60),
    "large": (2.0**20, 0.0213, 2.0**60),
}


def bytes_of(kind: str, sizes: tuple[int, ...], data_type: DataType, numbers: np.random.Generator) -> Array:
    """Any bytes, some that are near each other, or rows of one byte."""
    low, high = limits_of(data_type)
    if kind == "equal":
        found = np.broadcast_to(numbers.integers(low, high + 1, (sizes[0], 1)), sizes)
    elif kind == "near":
        found = numbers.integers(high - 4, high + 1, sizes)
    else:
        found = numbers.integers(low, high + 1, sizes)
    return found.astype(data_type.numpy_dtype)


def parameters_of(
    kind: str, desc: ByteLayerNormalizationDesc, elements: Array, numbers: np.random.Generator
) -> dict[str, Array]:
    """Scales and biases: those of networks; results that are halves of steps, or next to them; any bits.

    With "last_bits", the last bit of what is multiplied by the scale is a step of the output or two, in a row that
    differs from column to column. So each rounding before that decides.
    """
    (output_scale,) = np.frombuffer(desc.output_scale_bytes, np.float32)
    length = elements.shape[1]
    scale, bias = numbers.normal(1, 0.3, length), numbers.normal(0, 0.5, length)
    if kind == "any":
        scale, bias = (numbers.integers(0, 1 << 32, length, np.uint32).view(np.float32) for _ in range(2))
    elif kind == "halves":
        bias = (numbers.integers(-90, 90, length) + 0.5) * output_scale
        scale = numbers.choice(np.array([0, 1e-7, -1e-7, 1e-30, 1e-42]), length)
    elif kind == "last_bits":
        places = np.arange(length)
        expected = np.asarray(normalized(desc, elements)[places % len(elements), places], np.float64)
        scale = np.ldexp(1.0, 24 - np.maximum(np.frexp(expected)[1], -60) + np.frexp(output_scale)[1])
        bias = -expected * scale
    return {"scale_tensor": np.asarray(scale, np.float32), "bias_tensor": np.asarray(bias, np.float32)}


GROUPS = Groups("byte_layer_normalization", declared_form(ByteLayerNormalizationDesc))


@GROUPS.of(
    sizes=SIZES,
    numbers=NUMBERS,
    parameters=PARAMETERS,
    scales=SCALES,
    zero_point=(0, 119, 255),
    layout=("packed", "rows", "gaps", "permuted"),
    type=(DataType.UINT8, DataType.INT8),
    limits=only(LIMITS, "own", "floor"),
    device=DEVICES,
)
def rows(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Rows, few and many, short and long, in all layouts, with numbers from the middle and the ends of the ranges."""
    input_scale, output_scale, epsilon = p.scales
    desc = ByteLayerNormalizationDesc(
        input_tensor=lay_out(p.type, p.sizes, p.layout),
        scale_tensor=TensorDesc(DataType.FLOAT32, p.sizes[1:]),
        bias_tensor=TensorDesc(DataType.FLOAT32, p.sizes[1:]),
        output_tensor=lay_out(p.type, p.sizes, p.layout),
        epsilon=epsilon,
        input_scale=input_scale,
        input_zero_point=limits_of(p.type)[0] + p.zero_point,
        output_scale=output_scale,
        output_zero_point=limits_of(p.type)[0] + 255 - p.zero_point,
    )
    elements = bytes_of(p.numbers, p.sizes, p.type, numbers)
    arrays = {"input_tensor": elements, **parameters_of(p.parameters, desc, elements, numbers)}
    return Workload(desc, arrays, device_type=p.device, limits=p.limits)


GROUPS.add(
    "last_bits",
    rows,
    sizes=only(SIZES, "rows", "long"),
    numbers=("bytes",),
    parameters=("last_bits",),
    scales=only(SCALES, "ordinary", "small"),
    zero_point=(0, 119),
    layout=("packed",),
    type=(DataType.UINT8,),
    limits=only(LIMITS, "own"),
    device=DEVICES,
)
