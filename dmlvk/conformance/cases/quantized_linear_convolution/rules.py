"""Cases of QUANTIZED_LINEAR_CONVOLUTION: types, sizes, layouts and kernel paths.

`arithmetic` has the cases of the arithmetic, `kinds` those of convolutions with kernel paths of their own,
`other_devices` those for the kernels of other devices, `split_k` those whose K is split over subgroups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlvk.conformance.case import NotSupported, Workload
from dmlvk.conformance.cases.combinations import DEVICES, GPU, PLANNERS_CHOICE, Groups, Parameters, by_sizes, only
from dmlvk.conformance.cases.layouts import LIMITS, offset_of
from dmlvk.conformance.cases.quantized_linear_convolution import arithmetic, kinds, other_devices, split_k
from dmlvk.conformance.cases.quantized_linear_convolution.convolution import (
    GENERAL_PATHS,
    KINDS,
    OPERATOR,
    PATHS,
    SAME,
    SHAPES,
    TYPE_PARAMETERS,
    CaseShape,
    convolution,
    single,
    suits,
)
from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import QuantizedLinearConvolutionDesc

ALL_PATHS = (PLANNERS_CHOICE, *PATHS)
GENERAL = (PLANNERS_CHOICE, *GENERAL_PATHS)

CPU_AND_OWN = only(DEVICES, "own", "cpu")

OPTIONAL = QuantizedLinearConvolutionDesc.optional_fields
PER_CHANNEL = ("filter_scale_tensor", "filter_zero_point_tensor", "bias_tensor")
DATA_LAYOUTS = ("packed", "channels_last", "rows", "gaps", "permuted", "scalar", "broadcast", "sheared")
OUTPUT_LAYOUTS = ("packed", "channels_last", "rows", "gaps", "permuted")

OWNED: Mapping[str, tuple[str, ...]] = {
    "filter": ("filter_tensor",),
    "parameters": ("filter_scale_tensor", "filter_zero_point_tensor", "bias_tensor", "output_scale_tensor"),
    "weights": ("filter_tensor", *PER_CHANNEL),
    "all": QuantizedLinearConvolutionDesc.input_fields[1:],
    "input": ("input_tensor", "input_zero_point_tensor"),
}


CUT_SHAPES: Mapping[str, CaseShape] = {
    "planes": CaseShape(2, 7, (37, 41), 9, (3, 3), **SAME),
    "many_channels": CaseShape(1, 260, (5, 6), 20, (1, 1)),
    "many_filters": CaseShape(1, 8, (6, 7), 150, (3, 3), **SAME),
    "depthwise": CaseShape(1, 48, (17, 19), 48, (3, 3), groups=48, **SAME),
    "first_layer": CaseShape(1, 3, (45, 47), 20, (7, 7), (2, 2), (1, 1), (3, 3), (3, 3)),
    "groups": CaseShape(1, 12, (15, 17), 45, (3, 3), groups=3, **SAME),
    "large_filter": CaseShape(1, 3, (40, 45), 4, (19, 17)),
    "images": CaseShape(30, 5, (7, 9), 6, (2, 2)),
}


def is_past_the_range(profile: DeviceProfile, p: Parameters) -> NotSupported | None:
    """Why `large` is not supported: its input is not larger than a storage buffer of the device. Else None."""
    largest = profile.limits.max_storage_buffer_range
    if largest < 16 * 2900 * 3001:
        return None
    return NotSupported("limit:memory", f"a tensor above maxStorageBufferRange, {largest}, is too large for a test")


CHANNEL_COUNTS = (1, 3, 4, 7, 16, 17, 33, 64)


GROUPS = Groups(OPERATOR)


@GROUPS.of(**TYPE_PARAMETERS, shape=SHAPES, device=CPU_AND_OWN, path=ALL_PATHS, keep=suits)
def types(numbers: np.random.Generator, p: Parameters) -> Workload:
    """All eight mixes of types, in each shape."""
    return convolution(numbers, p, p.shape)


# A CPU driver takes seconds to compile a GPU's tiles, so few of these cases run by default.
@GROUPS.of(
    shape=only(SHAPES, "odd", "vectors", "pointwise", "depthwise", "first_layer_small"),
    layout=("packed", "channels_last"),
    out=("u8", "s8"),
    device=GPU,
    path=PATHS,
    keep=suits,
)
def tiles(numbers: np.random.Generator, p: Parameters) -> Workload:
    """The kernels that a GPU would run."""
    return convolution(numbers, p, p.shape, layouts={"input_tensor": p.layout, "output_tensor": p.layout})


GROUPS.add(
    "gpu_types",
    types,
    **TYPE_PARAMETERS,
    shape=SHAPES,
    device=GPU,
    path=ALL_PATHS,
    default="none",
    keep=suits,
    about="All eight mixes of types, in each shape, with the kernels that a GPU would run.",
)


@GROUPS.of(
    channels=CHANNEL_COUNTS,
    filters=(1, 3, 8, 9, 33, 65, 129),
    kernel=(1, 3),
    layout=("packed", "channels_last"),
    path=GENERAL,
)
def channels(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Numbers of channels around the sizes of words, vectors, panels and tiles."""
    shape = CaseShape(1, p.channels, (4, 5), p.filters, (p.kernel, p.kernel), **(SAME if p.kernel == 3 else {}))
    return convolution(numbers, p, shape, layouts={"input_tensor": p.layout, "output_tensor": p.layout})


@GROUPS.of(width=(1, 3, 4, 5, 33, 129), height=(1, 2, 7), batch=(1, 3), path=GENERAL)
def pixels(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Rows and planes around the sizes that invocations and workgroups compute."""
    shape = CaseShape(p.batch, 5, (p.height, p.width), 6, (1, 3), start_padding=(0, 1), end_padding=(0, 1))
    return convolution(numbers, p, shape)


@GROUPS.of(
    groups=(1, 2, 3, 8, 17),
    inputs=(1, 2, 4, 5),
    outputs=(1, 2, 4, 9),
    kernel=(1, 3),
    layout=("packed", "channels_last"),
    path=GENERAL,
)
def groups(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Groups of few and of many channels, and depthwise convolutions with multipliers, in both layouts."""
    shape = CaseShape(
        *(2, p.groups * p.inputs, (6, 7), p.groups * p.outputs, (p.kernel, p.kernel)),
        **(SAME if p.kernel == 3 else {}),
        groups=p.groups,
    )
    return convolution(numbers, p, shape, layouts={"input_tensor": p.layout, "output_tensor": p.layout})


@GROUPS.of(
    kernel=by_sizes((1, 1), (3, 3), (1, 4), (5, 2)),
    strides=by_sizes((1, 1), (2, 2), (1, 3), (4, 1)),
    dilations=by_sizes((1, 1), (2, 1), (1, 3)),
    start=(0, 1, 2, 7),
    end=(0, 1, 6),
    path=GENERAL,
)
def geometry(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Filters, strides, dilations and paddings of all kinds, including paddings larger than the filter."""
    reach = [1 + (k - 1) * d for k, d in zip(p.kernel, p.dilations, strict=True)]
    size = [max(1, r - p.start - p.end) + extra for r, extra in zip(reach, (5, 8), strict=True)]
    shape = CaseShape(
        *(1, 3, tuple(size), 5, p.kernel),
        strides=p.strides,
        dilations=p.dilations,
        start_padding=(p.start, max(0, p.start - 1)),
        end_padding=(p.end, p.end + 1),
    )
    limits = np.iinfo(np.uint8)
    edge = limits.max if p.start > p.end else limits.min
    return convolution(numbers, p, shape, arrays={"input_zero_point_tensor": np.array([edge], np.uint8)})


@GROUPS.of(
    in_=("u8", "s8"), padding=(2, 5), zero_point=("min", "max"), layout=("packed", "channels_last"), path=GENERAL
)
def border(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Outputs whose taps all lie on padding: they depend on the bias alone, whatever the zero points are."""
    shape = CaseShape(1, 6, (2, 3), 9, (2, 2), start_padding=(p.padding, 0), end_padding=(0, p.padding))
    limits = np.iinfo(KINDS[getattr(p, "in")].numpy_dtype)
    zero_point = {"min": limits.min, "max": limits.max}[p.zero_point]
    layouts = {"input_tensor": p.layout, "output_tensor": p.layout}
    arrays = {"input_zero_point_tensor": single(zero_point, KINDS[getattr(p, "in")])}
    return convolution(numbers, p, shape, arrays=arrays, layouts=layouts)


@GROUPS.of(
    input=DATA_LAYOUTS,
    filters=DATA_LAYOUTS,
    output=OUTPUT_LAYOUTS,
    shape=only(SHAPES, "odd", "vectors", "depthwise", "first_layer_small"),
    path=ALL_PATHS,
    keep=suits,
)
def layout(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Tensors in any layout; inputs may overlap themselves."""
    layouts = {"input_tensor": p.input, "filter_tensor": p.filters, "output_tensor": p.output}
    return convolution(numbers, p, p.shape, layouts=layouts)


@GROUPS.of(rank=(3, 4), arrays=("one", "two"), scales=(1, 2, 3, 4), zero_points=(1, 2, 3, 4), path=GENERAL)
def rank(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Ranks 3 and 4; scales and zero points may have other ranks."""
    shape = SHAPES["line" if p.rank == 3 else "odd"]
    filters = shape.filters

    def shaped(array: Any, rank: int) -> Any:
        per_channel = {1: (filters,), 2: (1, filters), 3: (1, filters, 1), 4: (1, filters, 1, 1)}
        return array.reshape(per_channel[rank] if array.size > 1 else (1,) * rank)

    inputs = convolution(numbers, p, shape).inputs
    ranks = {name: p.scales for name in inputs if name.endswith("scale_tensor")}
    ranks |= {name: p.zero_points for name in inputs if name.endswith("zero_point_tensor")}
    arrays = {name: shaped(array, ranks[name]) if name in ranks else array for name, array in inputs.items()}
    return convolution(numbers, p, shape, arrays=arrays, spatial_prefix=p.arrays == "two" and p.rank == 3)


@GROUPS.of(
    **TYPE_PARAMETERS,
    input_zero_point=("absent", "given"),
    filter_scale=("one", "per_channel"),
    filter_zero_point=("absent", "one", "per_channel"),
    bias=("absent", "given"),
    output_zero_point=("absent", "given"),
    shape=only(SHAPES, "odd", "vectors", "depthwise", "first_layer_small"),
    path=ALL_PATHS,
    keep=suits,
)
def optional(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Each optional tensor absent or given; filter scale and zero point with one element, or one for each channel."""
    shape = p.shape
    absent = [name for name in OPTIONAL if getattr(p, name.removesuffix("_tensor")) == "absent"]
    inputs = convolution(numbers, p, shape).inputs
    arrays = {name: array for name, array in inputs.items() if name not in absent}
    for name in ("filter_scale_tensor", "filter_zero_point_tensor"):
        if getattr(p, name.removesuffix("_tensor")) == "one" and name in arrays:
            arrays[name] = arrays[name].ravel()[:1].reshape(1, 1, 1, 1)
    return convolution(numbers, p, shape, arrays=arrays, absent=absent)


@GROUPS.of(view=("broadcast", "apart", "scalar_apart"), path=GENERAL)
def views(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Per-channel tensors with strides of their own; with strides of 0, all channels share one element in memory."""
    shape = SHAPES["odd"]
    inputs = convolution(numbers, p, shape).inputs
    steps = {"broadcast": (0, 0, 0, 0), "apart": (1000, 37, 1, 1), "scalar_apart": (5, 6, 7, 8)}[p.view]
    arrays, tensors = {}, {}
    for name in PER_CHANNEL:
        array = inputs[name]
        if p.view == "broadcast":
            array = np.broadcast_to(array.ravel()[:1].reshape(1, 1, 1, 1), array.shape)
        elif p.view == "scalar_apart":
            array = array if name == "bias_tensor" else array.ravel()[:1].reshape(1, 1, 1, 1)
        arrays[name], tensors[name] = array, {"strides": steps}
    return convolution(numbers, p, shape, arrays=arrays, tensors=tensors)


@GROUPS.of(
    owned={name: name for name in OWNED},
    layout=("packed", "channels_last", "gaps"),
    shape=only(SHAPES, "odd", "depthwise", "first_layer_small"),
    path=ALL_PATHS,
    keep=suits,
)
def owned(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Tensors that are OWNED_BY_DML: given at initialization and not bound again."""
    layouts = {"filter_tensor": p.layout, "input_tensor": p.layout}
    return convolution(numbers, p, p.shape, owned=OWNED[p.owned], layouts=layouts)


@GROUPS.of(
    offset=(0, 16, 80, 240, 4080),
    alignment=(0, 8, 32, 256),
    tail=(0, 4, 5, 64),
    layout=("packed", "channels_last"),
    path=GENERAL,
)
def binding(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Tensors at many offsets in their buffers, with a tail after the output."""
    shape = CaseShape(1, 16, (5, 7), 18, (3, 3), **SAME)
    workload = convolution(numbers, p, shape)
    members: dict[str, dict[str, Any]] = {
        name: {"guaranteed_base_offset_alignment": p.alignment if tensor.data_type.size_in_bytes <= p.alignment else 0}
        for name, tensor in workload.desc.tensors.items()
    }
    total = workload.desc.tensors["output_tensor"].minimum_size_in_bytes + p.tail
    members["output_tensor"]["total_size_in_bytes"] = total
    layouts = {"input_tensor": p.layout, "output_tensor": p.layout}
    offsets = {name: offset_of(p.offset * (1 + k % 3), p.alignment) for k, name in enumerate(members)}
    return convolution(numbers, p, shape, arrays=workload.inputs, tensors=members, layouts=layouts, offsets=offsets)


@GROUPS.of(
    shape=CUT_SHAPES,
    layout=("packed", "channels_last", "rows"),
    filters=("packed", "channels_last"),
    limits=("cut", "cut_floor", "floor"),
    path=ALL_PATHS,
    keep=suits,
)
def cut(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Tensors that span several memory segments, each of several storage buffer ranges."""
    layouts = {"input_tensor": p.layout, "filter_tensor": p.filters, "output_tensor": p.layout}
    limits = LIMITS[p.limits]
    return convolution(numbers, p, p.shape, layouts=layouts, limits=limits, offsets={"output_tensor": 48})


@GROUPS.of(path=GENERAL, default="none", support=is_past_the_range)
def large(numbers: np.random.Generator, p: Parameters) -> Workload:
    """An input of more bytes than the least maxStorageBufferRange that Vulkan allows."""
    return convolution(numbers, p, CaseShape(1, 16, (2900, 3001), 2, (1, 1)))


GROUPS += kinds.GROUPS
GROUPS += other_devices.GROUPS
GROUPS += split_k.GROUPS
GROUPS += arithmetic.GROUPS
