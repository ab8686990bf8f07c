"""Quantized convolutions as workloads: shapes by name, random tensors, scales that spread the results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.combinations import Parameters
from dmlvk.conformance.cases.layouts import strides
from dmlvk.conformance.cases.values import Array, random_array
from dmlvk.data_type import DataType
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.operators.quantized_linear_convolution import output_size
from dmlvk.planning import GENERAL_PATH, KERNEL_PATHS
from dmlvk.tensor_desc import TensorDesc, TensorFlags

# The first group in the names of the cases.
OPERATOR = "quantized_linear_convolution"

KINDS: Mapping[str, DataType] = {"u8": DataType.UINT8, "s8": DataType.INT8}


# All inputs of a convolution but its image.
ALL_CONSTANTS = tuple(field for field in QuantizedLinearConvolutionDesc.input_fields if field != "input_tensor")
# Offsets of a convolution's data in their buffers.
APART: Mapping[str, int] = {"input_tensor": 16, "output_tensor": 48}


@dataclass(frozen=True)
class CaseShape:
    """The sizes of a convolution. Spatial tuples have two elements for rank 4, and one for rank 3."""

    batch: int
    channels: int
    size: tuple[int, ...]
    filters: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    start_padding: tuple[int, ...] = ()
    end_padding: tuple[int, ...] = ()
    groups: int = 1

    def __post_init__(self) -> None:
        for name, neutral in (("strides", 1), ("dilations", 1), ("start_padding", 0), ("end_padding", 0)):
            if not getattr(self, name):
                object.__setattr__(self, name, (neutral,) * len(self.size))

    @property
    def taps(self) -> int:
        """The number of products in a sum."""
        return self.channels // self.groups * math.prod(self.kernel)

    @property
    def output(self) -> tuple[int, ...]:
        """Sizes of the output."""
        spatial = zip(
            self.size, self.kernel, self.strides, self.dilations, self.start_padding, self.end_padding, strict=True
        )
        return (self.batch, self.filters, *(output_size(*sizes) for sizes in spatial))

    @property
    def per_channel(self) -> tuple[int, ...]:
        """Sizes of a tensor with one element for each output channel: {1, M, 1, 1}."""
        return (1, self.filters, *(1 for _ in self.size))


SAME: Mapping[str, Any] = {"start_padding": (1, 1), "end_padding": (1, 1)}

SHAPES: Mapping[str, CaseShape] = {
    "odd": CaseShape(2, 5, (9, 11), 7, (3, 2), start_padding=(1, 0), end_padding=(0, 1)),
    "pointwise": CaseShape(2, 21, (6, 7), 17, (1, 1)),
    "wide": CaseShape(1, 40, (8, 8), 36, (3, 3), **SAME),
    "vectors": CaseShape(2, 32, (7, 9), 48, (3, 3), **SAME),
    "strided": CaseShape(1, 6, (13, 15), 9, (3, 3), (2, 3), (2, 1), (2, 1), (1, 2)),
    "pointwise_strided": CaseShape(2, 12, (9, 9), 10, (1, 1), (2, 2)),
    "groups": CaseShape(2, 12, (7, 8), 9, (3, 3), groups=3, **SAME),
    "depthwise": CaseShape(1, 24, (9, 11), 24, (3, 3), groups=24, **SAME),
    "depthwise_strided": CaseShape(2, 16, (11, 10), 16, (3, 3), (2, 2), groups=16, **SAME),
    "depthwise_wide": CaseShape(1, 8, (12, 12), 16, (5, 5), groups=8, start_padding=(2, 2), end_padding=(2, 2)),
    "first_layer": CaseShape(1, 3, (17, 19), 16, (7, 7), (2, 2), (1, 1), (3, 3), (3, 3)),
    "first_layer_small": CaseShape(2, 3, (12, 13), 8, (3, 3), (2, 2), (1, 1), (1, 1), (1, 1)),
    "first_layer_gray": CaseShape(1, 1, (9, 70), 33, (5, 5), (1, 1), (1, 1), (2, 2), (2, 2)),
    "line": CaseShape(2, 6, (33,), 8, (5,), (2,), (1,), (2,), (1,)),
    "single": CaseShape(1, 1, (1, 1), 1, (1, 1)),
}

# Kernel paths that take one kind of convolution. The names of its shapes begin with the name of the path.
PATHS_OF_A_KIND = ("depthwise",)
# Three have groups of their own. The kernel of "halo" begins and ends like that of "matrix", and it takes few of the
# shapes above. The kernel of "split_k" fetches as that of "matrix", and ends like that of "vectors". The kernel of
# "general" is that of "direct", which only gets its sizes and types in another way.
OWN_GROUPS = ("halo", "split_k", GENERAL_PATH)
PATHS = tuple(path for path in KERNEL_PATHS[QuantizedLinearConvolutionDesc] if path not in OWN_GROUPS)
GENERAL_PATHS = tuple(path for path in PATHS if path not in PATHS_OF_A_KIND)


def suits(labels: Mapping[str, str]) -> bool:
    """Whether the forced kernel path takes shapes of this kind."""
    return labels["path"] not in PATHS_OF_A_KIND or labels["shape"].startswith(labels["path"])


TYPE_PARAMETERS: Mapping[str, Any] = {"in": ("u8", "s8"), "filter": ("u8", "s8"), "out": ("u8", "s8")}


def kind(p: Parameters, tensor: str) -> DataType:
    """The data type of "in", "filter" or "out"; by default UINT8, INT8 and UINT8."""
    label = getattr(p, tensor, {"in": "u8", "filter": "s8", "out": "u8"}[tensor])
    return KINDS[label]


def any_value(numbers: np.random.Generator, data_type: DataType, count: int = 1) -> Array:
    """Any values of an 8-bit type."""
    return np.frombuffer(numbers.bytes(count), data_type.numpy_dtype)


def mantissas(numbers: np.random.Generator, count: int) -> Array:
    """Float32 numbers from 1 to 2 with random mantissas."""
    return (numbers.integers(1 << 23, 1 << 24, count) / (1 << 23)).astype(np.float32)


def convolution(
    numbers: np.random.Generator,
    p: Parameters,
    shape: CaseShape,
    *,
    arrays: Mapping[str, Array] | None = None,
    absent: Sequence[str] = (),
    layouts: Mapping[str, str] | None = None,
    owned: Sequence[str] = (),
    tensors: Mapping[str, Mapping[str, Any]] | None = None,
    spatial_prefix: bool = False,
    **fields: Any,
) -> Workload:
    """A convolution with all its tensors; results cover the output's range, and some lie past its ends.

    arrays: tensors, by field, in place of random ones.
    absent: optional tensors that are left out.
    layouts: layouts of input_tensor, filter_tensor and output_tensor; by default they are packed.
    tensors: more members of TensorDesc, by field.
    spatial_prefix: give rank 3 arrays of two elements; the first one is neutral.
    **fields: members of Workload.
    """
    layouts, tensors, given = layouts or {}, tensors or {}, arrays or {}

    def lay(field: str, data_type: Any, sizes: Sequence[int]) -> TensorDesc:
        members: dict[str, Any] = dict(tensors.get(field, {}))
        members.setdefault("strides", strides(layouts.get(field, "packed"), sizes))
        if field in owned:
            members["flags"] = TensorFlags.OWNED_BY_DML
        return TensorDesc(data_type, sizes, **members)

    sizes = {
        "input_tensor": (shape.batch, shape.channels, *shape.size),
        "filter_tensor": (shape.filters, shape.channels // shape.groups, *shape.kernel),
    }
    inputs: dict[str, Array] = {
        "input_tensor": random_array(numbers, lay("input_tensor", kind(p, "in"), sizes["input_tensor"])),
        "filter_tensor": random_array(numbers, lay("filter_tensor", kind(p, "filter"), sizes["filter_tensor"])),
        **random_quantization(numbers, p, shape),
    }
    # In the descriptor's order, whatever the order of the given arrays.
    inputs.update(given)
    inputs = {
        field: inputs[field]
        for field in QuantizedLinearConvolutionDesc.input_fields
        if field in inputs and (field in given or field not in absent)
    }
    prefix = {"strides": (1,), "dilations": (1,), "start_padding": (0,), "end_padding": (0,)} if spatial_prefix else {}
    described: dict[str, Any] = {field: lay(field, array.dtype, array.shape) for field, array in inputs.items()}
    desc = QuantizedLinearConvolutionDesc(
        **described,
        output_tensor=lay("output_tensor", kind(p, "out"), shape.output),
        strides=prefix.get("strides", ()) + shape.strides,
        dilations=prefix.get("dilations", ()) + shape.dilations,
        start_padding=prefix.get("start_padding", ()) + shape.start_padding,
        end_padding=prefix.get("end_padding", ()) + shape.end_padding,
        group_count=shape.groups,
    )
    return Workload(desc, inputs, device_type=p.device, **fields)


def shape_of(
    p: Parameters, size: tuple[int, ...], padding: tuple[tuple[int, ...], tuple[int, ...]] | None = None
) -> CaseShape:
    """The sizes that a group's parameters name, of a group of channels each; what they do not name is neutral.

    padding: before the input and behind it; by default a stride of 1 keeps the size.
    """
    half = tuple(extent // 2 for extent in p.kernel)
    start_padding, end_padding = padding or (half, half)
    groups = getattr(p, "groups", 1)
    return CaseShape(
        *(getattr(p, "batch", 2), groups * p.channels, size, groups * p.filters, p.kernel),
        strides=getattr(p, "strides", ()),
        dilations=getattr(p, "dilations", ()),
        start_padding=start_padding,
        end_padding=end_padding,
        groups=groups,
    )


def convolution_of(
    numbers: np.random.Generator, p: Parameters, shape: CaseShape, *, past: bool = False, **fields: Any
) -> Workload:
    """A convolution as a group's parameters say. Those that the group lacks have their first value.

    layout, or input and output: "packed" or another layout.
    bias: "narrow", or "wide" for sums that do not fit 32 bits.
    filter_zero_point: "each" channel has its own, or "none".
    constants: "bound"; "filter" is given once, before; or all are "owned".
    past: with a wide bias every second sum lies past 32 bits.
    **fields: members of Workload.
    """
    arrays = wide_sums(numbers, shape) if getattr(p, "bias", "narrow") == "wide" else {}
    if arrays and past:
        arrays["bias_tensor"].flat[::2] = 2**31 - 1
    both = getattr(p, "layout", "packed")
    layouts = {"input_tensor": getattr(p, "input", both), "output_tensor": getattr(p, "output", both)}
    absent = ("filter_zero_point_tensor",) if getattr(p, "filter_zero_point", "each") == "none" else ()
    owned = {"bound": (), "filter": ("filter_tensor",), "owned": ALL_CONSTANTS}[getattr(p, "constants", "bound")]
    return convolution(numbers, p, shape, arrays=arrays, absent=absent, layouts=layouts, owned=owned, **fields)


def random_quantization(numbers: np.random.Generator, p: Parameters, shape: CaseShape) -> dict[str, Array]:
    """Scales, zero points and biases that bring results of random bytes to the middle of the output's range.

    Filter scale, filter zero point and bias have one element for each output channel.
    """
    spread = 75 * 75 * math.sqrt(shape.taps) + 1
    input_scale, output_scale = mantissas(numbers, 1) / 64, mantissas(numbers, 1) / 8
    multipliers = mantissas(numbers, shape.filters).astype(np.float64) * 30 / spread
    filter_scale = (multipliers * float(output_scale[0]) / float(input_scale[0])).astype(np.float32)
    near = numbers.integers(-25, 26, 2)
    middle = {DataType.UINT8: 128, DataType.INT8: 0}
    filter_zero_points = middle[kind(p, "filter")] + numbers.integers(-9, 10, shape.filters)
    return {
        "input_scale_tensor": input_scale,
        "filter_scale_tensor": filter_scale.reshape(shape.per_channel),
        "output_scale_tensor": output_scale,
        "input_zero_point_tensor": single(middle[kind(p, "in")] + near[0], kind(p, "in")),
        "filter_zero_point_tensor": filter_zero_points.astype(kind(p, "filter").numpy_dtype).reshape(shape.per_channel),
        "output_zero_point_tensor": single(middle[kind(p, "out")] + near[1], kind(p, "out")),
        "bias_tensor": numbers.integers(-int(spread), int(spread) + 1, shape.filters)
        .astype(np.int32)
        .reshape(shape.per_channel),
    }


def single(value: Any, data_type: DataType) -> Array:
    """One element."""
    return np.array([int(value)]).astype(data_type.numpy_dtype)


def ones(*names: str) -> dict[str, Array]:
    """Scales of 1: "input", "filter", "output"."""
    return {f"{name}_scale_tensor": np.ones(1, np.float32) for name in names}


def wide_sums(numbers: np.random.Generator, shape: CaseShape) -> dict[str, Array]:
    """A bias of any 32 bits, and scales that bring it into the output's range."""
    bias = numbers.integers(-(2**31), 2**31, shape.filters).astype(np.int32)
    scales = mantissas(numbers, shape.filters) / np.float32(2**25)
    one = np.ones(1, np.float32)
    return {
        "bias_tensor": bias.reshape(shape.per_channel),
        "filter_scale_tensor": scales.reshape(shape.per_channel),
        "input_scale_tensor": one,
        "output_scale_tensor": one,
    }
