"""Memory layouts by name, offsets in buffers, and limits that make a device smaller than it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dmlvk.conformance.case import NO_NUMBERS
from dmlvk.data_type import DataType
from dmlvk.tensor_desc import TensorDesc, packed_strides

# Sizes by rank. The last two sizes are coprime, as the layout "interleaved" needs. Most rows end inside a 32-bit word.
SIZES: Mapping[int, tuple[int, ...]] = {
    1: (611,),
    2: (23, 41),
    3: (5, 9, 31),
    4: (3, 2, 7, 16),
    5: (2, 3, 2, 5, 9),
    6: (2, 1, 3, 2, 4, 7),
    7: (1, 2, 3, 1, 2, 5, 8),
    8: (2, 1, 2, 3, 1, 2, 3, 7),
}

OUTPUT_LAYOUTS = ("packed", "rows", "gaps", "permuted", "interleaved")
INPUT_LAYOUTS = ("packed", "rows", "gaps", "permuted", "interleaved", "broadcast", "scalar", "sheared")

# Layouts that need two or more dimensions.
LAYOUTS_OF_TWO = ("rows", "permuted", "interleaved", "sheared")

# One data type of each size, all data types, and those of floating point.
TYPES_BY_SIZE = {kind.name.lower(): kind for kind in (DataType.INT8, DataType.FLOAT16, DataType.UINT32, DataType.INT64)}
TYPES = {kind.name.lower(): kind for kind in DataType}
FLOATS = {kind.name.lower(): kind for kind in (DataType.FLOAT16, DataType.FLOAT32, DataType.FLOAT64)}

# Storage buffers of 4 KiB in memory segments of 8 KiB: they cut small tensors as a device's own limits cut large ones.
CUT = {"max_storage_buffer_range": 1 << 12, "max_memory_allocation_size": 1 << 13, "max_buffer_size": 1 << 13}
# Workgroups so small that a tensor of moderate size needs more than 65,535 of them.
SMALL_WORKGROUPS = {"max_compute_work_group_invocations": 8}
# The limits that Vulkan 1.2 guarantees on every device.
FLOOR = {
    "max_storage_buffer_range": 1 << 27,
    "max_push_constants_size": 128,
    "max_per_stage_descriptor_storage_buffers": 4,
    "max_compute_shared_memory_size": 16 << 10,
    "max_compute_work_group_invocations": 128,
    "min_storage_buffer_offset_alignment": 256,
}
LIMITS: Mapping[str, Mapping[str, int]] = {"own": NO_NUMBERS, "cut": CUT, "floor": FLOOR, "cut_floor": {**FLOOR, **CUT}}


def strides(layout: str, sizes: Sequence[int]) -> tuple[int, ...] | None:
    """Element strides of a layout.

    layout: packed: None. rows: each row ends in a gap of 3 elements. gaps: elements lie 3 apart, and rows and planes
        end in gaps too. permuted: packed in the reverse order of dimensions, the first one innermost. channels_last:
        dimension 1 is innermost. interleaved: rows and columns, of coprime sizes a and b, have strides b and a.
        broadcast: a dimension in the middle has stride 0. scalar: all strides are 0. sheared: each row begins inside
        the row before it. The last three are for inputs only.
    """
    count = len(sizes)
    if layout == "packed":
        return None
    if layout == "permuted":
        return packed_strides(tuple(sizes)[::-1])[::-1]
    if layout == "channels_last":
        order = packed_strides((sizes[0], *sizes[2:], sizes[1]))
        return (order[0], 1, *order[1:-1])
    if layout == "scalar":
        return (0,) * count
    if layout in ("rows", "gaps"):
        step, gap = (1, 3) if layout == "rows" else (3, 5)
        result = [0] * count
        for dimension in reversed(range(count)):
            result[dimension] = step
            step = step * sizes[dimension] + (gap if dimension == count - 1 or layout == "gaps" else 0)
        return tuple(result)
    result = list(packed_strides(sizes))
    if layout == "interleaved":
        a, b = sizes[-2:]
        if math.gcd(a, b) != 1:
            raise ValueError(f"sizes = {tuple(sizes)}: in the layout 'interleaved' the last two must be coprime")
        outer = packed_strides(sizes[:-2])
        return (*(2 * a * b * stride for stride in outer), b, a)
    if layout == "broadcast":
        result[count // 2] = 0
    elif layout == "sheared":
        result[-2] = max(1, sizes[-1] - 2)
    else:
        raise ValueError(f"layout = {layout!r}: must be one of {', '.join((*INPUT_LAYOUTS, 'channels_last'))}")
    return tuple(result)


def lay_out(data_type: DataType, sizes: Sequence[int], layout: str = "packed") -> TensorDesc:
    """The TensorDesc of a tensor in a layout."""
    return TensorDesc(data_type, sizes, strides(layout, sizes))


def offset_of(offset: int, alignment: int) -> int:
    """A tensor's offset in its buffer: the given one, rounded up to a multiple of 16 and of the tensor's alignment."""
    unit = max(16, alignment)
    return -(-offset // unit) * unit


def fits_rank(layout: str, rank: int) -> bool:
    """Whether a layout differs from "packed" at a rank."""
    return rank > 1 or layout not in LAYOUTS_OF_TWO


def fits_ranks(labels: Mapping[str, str]) -> bool:
    """Whether the layouts of input and output differ from "packed" at the rank of a case."""
    return all(fits_rank(labels[tensor], int(labels["rank"])) for tensor in ("input", "output"))


def with_tail(data_type: DataType, sizes: Sequence[int], p: Any) -> TensorDesc:
    """An output in the layout, with the alignment and with as many bytes behind its elements as the parameters say."""
    return replace(
        packed := lay_out(data_type, sizes, p.output),
        total_size_in_bytes=packed.minimum_size_in_bytes + p.tail,
        guaranteed_base_offset_alignment=p.alignment,
    )
