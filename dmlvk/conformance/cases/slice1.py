"""Cases of SLICE1."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dmlvk.conformance.case import NotSupported, Workload
from dmlvk.conformance.cases.combinations import (
    DEVICES,
    GPU,
    GPU_AND_OWN,
    PLANNERS_CHOICE,
    Groups,
    Parameters,
    by_sizes,
    only,
)
from dmlvk.conformance.cases.layouts import (
    FLOATS,
    INPUT_LAYOUTS,
    LIMITS,
    OUTPUT_LAYOUTS,
    SIZES,
    SMALL_WORKGROUPS,
    TYPES,
    TYPES_BY_SIZE,
    fits_ranks,
    lay_out,
    offset_of,
    strides,
    with_tail,
)
from dmlvk.conformance.cases.values import SPECIAL_BITS, chosen_array, random_array
from dmlvk.data_type import DataType
from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import Slice1Desc
from dmlvk.operators.declared import INT32_MAX, INT32_MIN
from dmlvk.operators.slice1 import maximum_copied_elements
from dmlvk.planning import KERNEL_PATHS
from dmlvk.tensor_desc import TensorDesc, packed_strides

# What no rule of a field says, in the descriptor of `invalid.valid`.
BROKEN_RULES: Mapping[str, Mapping[str, Any]] = {
    "stride_0": {"input_window_strides": [1, 1, 0, 2]},
    "window_begins_past_the_end": {"input_window_offsets": [2, 0, 7, 6]},
    "window_ends_past_the_end": {"input_window_sizes": [1, 1, 6, 5]},
    "output_larger_than_the_window_gives": {"output_tensor.sizes": [1, 1, 2, 2]},
}

PATHS = (PLANNERS_CHOICE, *KERNEL_PATHS[Slice1Desc])

# Limits under which a workgroup does what many invocations do with few, or has little shared memory.
FEWER_LIMITS = only(LIMITS, "own", "floor") | {"few": {**LIMITS["floor"], **SMALL_WORKGROUPS}}

# Orders of a number of dimensions in memory, from the outermost.
ORDERS: Mapping[str, Callable[[int], Sequence[int]]] = {
    "reversed": lambda rank: range(rank)[::-1],
    "rotated": lambda rank: [*range(1, rank), 0],
    "shuffled": lambda rank: sorted(range(rank), key=lambda k: (3 * k + 1) % 7),
}

# Window strides of the last dimensions, from the last one backwards. All other strides are 1.
STEPS: Mapping[str, tuple[int, ...]] = {
    "forward": (1,),
    "backward": (-1, 1, -1),
    "strided": (2, 1, 3),
    "mixed": (-3, 2, -1, 1, -2),
}


def describe(
    source: TensorDesc,
    offsets: Sequence[int],
    sizes: Sequence[int],
    steps: Sequence[int],
    output: str | TensorDesc = "packed",
) -> Slice1Desc:
    """A descriptor. With the name of an output layout, the output has all elements that the window gives."""
    if isinstance(output, str):
        output = lay_out(source.data_type, maximum_copied_elements(sizes, steps), output)
    return Slice1Desc(
        input_tensor=source,
        output_tensor=output,
        input_window_offsets=offsets,
        input_window_sizes=sizes,
        input_window_strides=steps,
    )


def random_workload(numbers: np.random.Generator, desc: Slice1Desc, p: Parameters, **fields: Any) -> Workload:
    """A workload whose input has random bits."""
    return Workload(desc, {"input_tensor": random_array(numbers, desc.input_tensor)}, device_type=p.device, **fields)


def _coprime(sizes: Sequence[int]) -> tuple[int, ...]:
    """The sizes, with the last one reduced until the last two are coprime."""
    a, b = sizes[-2:]
    while np.gcd(a, b) != 1:
        b -= 1
    return (*sizes[:-1], int(b))


def is_past_the_range(profile: DeviceProfile, p: Parameters) -> NotSupported | None:
    """Why the case is not supported: its tensor is not larger than a storage buffer of the device. Else None."""
    largest = profile.limits.max_storage_buffer_range
    if p.bytes > largest:
        return None
    return NotSupported("limit:memory", f"a tensor above maxStorageBufferRange, {largest}, is too large for a test")


GROUPS = Groups("slice1")


@GROUPS.of(
    type=TYPES,
    rank=range(1, 9),
    input=INPUT_LAYOUTS,
    output=OUTPUT_LAYOUTS,
    steps=STEPS,
    path=KERNEL_PATHS[Slice1Desc],
    keep=fits_ranks,
)
def layout(numbers: np.random.Generator, p: Parameters) -> Workload:
    """A window of a tensor in any layout, to any layout. It has a margin in dimensions with room for one."""
    sizes = SIZES[p.rank]
    margins = [1 if size > 6 else 0 for size in sizes]
    window = [size - 2 * margin for size, margin in zip(sizes, margins, strict=True)]
    steps = [*p.steps, *([1] * 8)][: p.rank][::-1]
    output_sizes = maximum_copied_elements(window, steps)
    if p.output == "interleaved":
        output_sizes = _coprime(output_sizes)
    output = TensorDesc(p.type, output_sizes, strides(p.output, output_sizes))
    return random_workload(numbers, describe(lay_out(p.type, sizes, p.input), margins, window, steps, output), p)


@GROUPS.of(type=TYPES_BY_SIZE, shift=range(17), step=(1, -1, 2, -3), device=GPU_AND_OWN, path=PATHS)
def window(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Long rows that begin at any element of a 16-byte block, with forward and backward strides."""
    desc = describe(lay_out(p.type, (3, 97)), (0, p.shift), (3, 79), (-1, p.step))
    return random_workload(numbers, desc, p)


@GROUPS.of(type=TYPES_BY_SIZE, row=(1, 2, 3, 5, 7, 9, 15, 17, 33), step=(1, -1, 2, 3), device=DEVICES, path=PATHS)
def short_rows(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Many rows of about a block: neighbouring blocks hold parts of one, two or many rows."""
    count = 1 + (p.row - 1) * abs(p.step)
    desc = describe(lay_out(p.type, (57, count + 2)), (0, 1), (57, count), (1, p.step))
    return random_workload(numbers, desc, p)


@GROUPS.of(type=TYPES_BY_SIZE, step=(1, -1, 2, -2, -5), short=("one", "by_one"))
def smaller_output(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Fewer elements than the window gives; a negative stride still starts at the window's end."""
    most = maximum_copied_elements((7, 29), (p.step, p.step))
    sizes = [1 if p.short == "one" else size - 1 for size in most]
    desc = describe(lay_out(p.type, (9, 35)), (1, 4), (7, 29), (p.step, p.step), TensorDesc(p.type, sizes))
    return random_workload(numbers, desc, p)


@GROUPS.of(type=TYPES_BY_SIZE, step=(30, -30, 31, -31, 65_536, INT32_MAX, -INT32_MAX, INT32_MIN))
def long_stride(numbers: np.random.Generator, p: Parameters) -> Workload:
    """A stride at least as long as the window: one element, at the window's begin or end."""
    desc = describe(lay_out(p.type, (6, 37)), (2, 5), (3, 30), (1, p.step))
    return random_workload(numbers, desc, p)


@GROUPS.of(type={"uint8": DataType.UINT8}, step=(INT32_MAX, -INT32_MAX, INT32_MIN), default="none")
def far_stride(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Strides of about 2^31 that reach a second element, in a broadcast dimension of 2^31 + 5 elements."""
    desc = describe(TensorDesc(p.type, ((1 << 31) + 5, 1), (0, 1)), (2, 0), ((1 << 31) + 2, 1), (p.step, 1))
    return random_workload(numbers, desc, p)


@GROUPS.of(type=FLOATS, step=(1, -1, 2, -2), output=("packed", "permuted", "gaps"), path=PATHS)
def bits(numbers: np.random.Generator, p: Parameters) -> Workload:
    """NaN payloads, -0.0 and denormals arrive unchanged."""
    desc = describe(lay_out(p.type, (5, 21)), (0, 1), (5, 20), (1, p.step), p.output)
    array = chosen_array(numbers, desc.input_tensor, SPECIAL_BITS[p.type])
    return Workload(desc, {"input_tensor": array}, device_type=p.device)


@GROUPS.of(
    type=TYPES_BY_SIZE,
    offset=(0, 16, 32, 80, 240, 272, 4080),
    alignment=(0, 8, 32, 4096),
    output=("packed", "rows", "gaps"),
    tail=(0, 4, 5, 64),
)
def binding(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Tensors at many offsets in their buffers, with guaranteed alignments, and a tail after the output."""
    source = TensorDesc(p.type, (5, 67), guaranteed_base_offset_alignment=p.alignment)
    desc = describe(source, (0, 3), (5, 63), (1, -1), with_tail(p.type, (5, 63), p))
    offsets = {"input_tensor": offset_of(3 * p.offset, p.alignment), "output_tensor": offset_of(p.offset, p.alignment)}
    return random_workload(numbers, desc, p, offsets=offsets)


@GROUPS.of(
    type=TYPES_BY_SIZE,
    shape=("rows", "columns", "square", "planes"),
    input=("packed", "rows", "permuted", "broadcast"),
    output=("packed", "rows", "gaps", "permuted"),
    step=(1, -1, 3),
    limits=("cut", "cut_floor", "floor"),
    path=PATHS,
)
def cut(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Tensors that span several memory segments, each of several storage buffer ranges."""
    size = p.type.size_in_bytes
    side = math.isqrt(20_000 // size)
    sizes = {
        "rows": (3, 7001 // size),
        "columns": (7001 // size, 3),
        "square": (side, side + 9),
        "planes": (3, 7, 1001 // size),
    }[p.shape]
    ones = [1] * (len(sizes) - 1)
    desc = describe(
        lay_out(p.type, sizes, p.input),
        [*(0 for _ in ones), 1],
        [*sizes[:-1], sizes[-1] - 1],
        [*ones, p.step],
        p.output,
    )
    return random_workload(numbers, desc, p, limits=LIMITS[p.limits], offsets={"output_tensor": 48})


@GROUPS.of(
    type=TYPES_BY_SIZE,
    shape=by_sizes((64, 64), (33, 129), (131, 32), (70, 70), (300, 37)),
    shift=(0, 1, 5),
    gap=(0, 1, 16),
    step=(1, -1),
    device=GPU_AND_OWN,
    path=PATHS,
)
def transpose(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Rows of the output are columns of the input, with rows of any alignment."""
    (rows, columns), outer = p.shape, 2
    pitch = p.shift + columns + p.gap
    source = TensorDesc(p.type, (outer, columns + p.shift, rows + 3), (pitch * (rows + 3), 1, pitch))
    output = TensorDesc(p.type, (outer, columns, rows), ((rows + p.gap) * columns, rows + p.gap, 1))
    desc = describe(source, (0, p.shift, 3), (outer, columns, rows), (-1, 1, p.step), output)
    return random_workload(numbers, desc, p)


GROUPS.add(
    "transpose_whole_blocks",
    transpose,
    type=TYPES_BY_SIZE,
    shape=by_sizes((64, 64), (160, 32), (560, 48)),
    shift=(0,),
    gap=(0,),
    step=(1, -1),
    path=("tiles",),
    default="all",
    about="Rows of the output are columns of the input, in whole blocks on both sides: kernels handle them apart.",
)


@GROUPS.of(
    type=TYPES_BY_SIZE,
    rows={"8x17": (8, 17), "3x32": (3, 32)},
    columns={"16x8": (16, 8), "19x5": (19, 5)},
    gap=(0, 1, 16),
    path=("tiles",),
)
def transpose_narrow(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Rows of the output are several dimensions, columns of the input too, each too narrow for a tile of its own."""
    (inner, outer), (first, second) = p.rows, p.columns
    row, column = inner * outer, first * second
    # The output's dimensions are second, first, outer, inner, and the input's are inner, outer, first, second, so that
    # no two dimensions follow each other in both.
    sizes = (second, first, outer, inner)
    output = TensorDesc(p.type, sizes, (first * (row + p.gap), row + p.gap, inner, 1))
    source = TensorDesc(p.type, sizes, (1, second, column, column * outer))
    return random_workload(numbers, describe(source, (0,) * 4, sizes, (1,) * 4, output), p)


@GROUPS.of(
    type=TYPES_BY_SIZE,
    sizes=by_sizes((5, 67, 3, 2, 5), (7, 131, 8), (4, 3, 2, 5, 3, 7, 2, 4), (2, 3000)),
    order=ORDERS,
    shift=(0, 1),
    gap=(0, 1, 16),
    step=(1, -1, 2),
    limits=FEWER_LIMITS,
    device=GPU_AND_OWN,
    path=("boxes",),
)
def permutation(numbers: np.random.Generator, p: Parameters) -> Workload:
    """The dimensions, most of them narrow, in another order in the input; with a gap in the output, and steps."""
    sizes, rank = p.sizes, len(p.sizes)
    steps = [1] * (rank - 1) + [p.step]
    window = [1 + (size - 1) * abs(step) for size, step in zip(sizes, steps, strict=True)]
    source_sizes = [window[0] + p.shift, *window[1:]]
    source_strides, stride = [0] * rank, 1
    for k in reversed(p.order(rank)):
        source_strides[k] = stride
        stride *= source_sizes[k]
    first, *others = packed_strides(sizes)
    source = TensorDesc(p.type, source_sizes, source_strides)
    output = TensorDesc(p.type, sizes, [first + p.gap, *others])
    desc = describe(source, [p.shift] + [0] * (rank - 1), window, steps, output)
    return random_workload(numbers, desc, p, limits=p.limits)


GROUPS.add(
    "rows_together",
    permutation,
    type=only(TYPES_BY_SIZE, "int8", "float16"),
    sizes={"2x5x182x6": (2, 5, 182, 6)},
    order={"rows_innermost": lambda _: (2, 0, 3, 1)},
    shift=(0,),
    gap={"three_rows": 3 * 182 * 6},
    step=(1,),
    limits={"own": LIMITS["own"]},
    path=("boxes",),
    default="all",
    about="Five rows that kernels read two or four at a time: behind the last one is a gap that keeps its bytes.",
)


@GROUPS.of(step=(-1,), device=GPU)
def long(numbers: np.random.Generator, p: Parameters) -> Workload:
    """More than 65,535 workgroups, and a dimension of more than 2^16 elements."""
    count = 65_536 * SMALL_WORKGROUPS["max_compute_work_group_invocations"] + 77
    output = TensorDesc(DataType.UINT8, (count,), (2,))
    desc = describe(lay_out(DataType.UINT8, (count,)), (0,), (count,), (p.step,), output)
    return random_workload(numbers, desc, p, limits=SMALL_WORKGROUPS)


@GROUPS.of(bytes={"150MB": 150_000_001, "300MB": 300_000_001}, step=(1, -1), default="none", support=is_past_the_range)
def large(numbers: np.random.Generator, p: Parameters) -> Workload:
    """More bytes than the least maxStorageBufferRange that Vulkan allows, and a window that starts at an odd byte."""
    desc = describe(lay_out(DataType.UINT8, (1, p.bytes)), (0, 1), (1, p.bytes - 1), (1, p.step))
    return random_workload(numbers, desc, p)


@GROUPS.of(example=("1", "2"), default="all")
def page(numbers: np.random.Generator, p: Parameters) -> Workload:
    """The two examples of the operator's page."""
    steps, expected = {"1": ((1, 1, 2, 2), [[2, 4], [10, 12]]), "2": ((1, 1, -2, 2), [[14, 16], [6, 8]])}[p.example]
    desc = describe(lay_out(DataType.FLOAT32, (1, 1, 4, 4)), (0, 0, 0, 1), (1, 1, 4, 3), steps)
    source = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)
    return Workload(desc, {"input_tensor": source}, np.array(expected, np.float32).reshape(1, 1, 2, 2))
