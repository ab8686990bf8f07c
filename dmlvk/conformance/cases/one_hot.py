"""Cases of ONE_HOT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.combinations import GPU, GPU_AND_OWN, Groups, Parameters
from dmlvk.conformance.cases.layouts import (
    FLOATS,
    INPUT_LAYOUTS,
    LIMITS,
    OUTPUT_LAYOUTS,
    SIZES,
    SMALL_WORKGROUPS,
    TYPES,
    TYPES_BY_SIZE,
    fits_rank,
    lay_out,
    offset_of,
    strides,
    with_tail,
)
from dmlvk.conformance.cases.values import SPECIAL_BITS, chosen_array, random_array
from dmlvk.data_type import DataType
from dmlvk.device_profile import DeviceType
from dmlvk.operators import OneHotDesc
from dmlvk.operators.one_hot import INDEX_DATA_TYPES
from dmlvk.planning import KERNEL_PATHS
from dmlvk.tensor_desc import TensorDesc

# What no rule of a field says, in the descriptor of `invalid.valid`.
BROKEN_RULES: Mapping[str, Mapping[str, Any]] = {
    "size_along_the_axis": {"indices_tensor.sizes": [3, 2, 2, 16]},
    "one_value": {"values_tensor.sizes": [1, 1, 1, 1]},
    "output_sizes": {"output_tensor.sizes": [3, 3, 7, 16]},
}

INDEX_TYPES = {kind.name.lower(): kind for kind in INDEX_DATA_TYPES}

# Indices by name, each as a function of the depth.
INDICES: Mapping[str, Any] = {
    "zero": lambda depth: 0,
    "last": lambda depth: depth - 1,
    "depth": lambda depth: depth,
    "minus_one": lambda depth: -1,
    "minus_depth": lambda depth: -depth,
    "below_minus_depth": lambda depth: -depth - 1,
    "minus_two_depths": lambda depth: -2 * depth,
    "2^31": lambda depth: 1 << 31,
    "2^31-1": lambda depth: (1 << 31) - 1,
    "-2^31": lambda depth: -(1 << 31),
    "2^32-1": lambda depth: (1 << 32) - 1,
    "2^32": lambda depth: 1 << 32,
    "2^32+1": lambda depth: (1 << 32) + 1,
    "-2^32": lambda depth: -(1 << 32),
    "2-2^32": lambda depth: 2 - (1 << 32),
    "2^63-1": lambda depth: (1 << 63) - 1,
    "2^63": lambda depth: 1 << 63,
    "2^63+1": lambda depth: (1 << 63) + 1,
    "-2^63": lambda depth: -(1 << 63),
    "2^64-1": lambda depth: (1 << 64) - 1,
}


def fits_type(label: str, index_type: str) -> bool:
    """Whether the index type can hold an index."""
    limits = np.iinfo(index_type)
    return int(limits.min) <= INDICES[label](23) <= int(limits.max)


def describe(
    index_type: DataType,
    data_type: DataType,
    sizes: Sequence[int],
    axis: int,
    *,
    indices: str = "packed",
    output: str | TensorDesc = "packed",
    values: TensorDesc | None = None,
) -> OneHotDesc:
    """A descriptor, from the output's sizes and the names of layouts."""
    index_sizes = tuple(1 if k == axis else size for k, size in enumerate(sizes))
    ones = (1,) * (len(sizes) - 1)
    return OneHotDesc(
        indices_tensor=TensorDesc(index_type, index_sizes, strides(indices, index_sizes)),
        values_tensor=values or TensorDesc(data_type, (*ones, 2)),
        output_tensor=lay_out(data_type, sizes, output) if isinstance(output, str) else output,
        axis=axis,
    )


def workload(numbers: np.random.Generator, desc: OneHotDesc, p: Parameters, **fields: Any) -> Workload:
    """Most indices are in range; others are just out of it, or far out. The values have random bits."""
    limits = np.iinfo(desc.indices_tensor.data_type.numpy_dtype)
    depth = desc.output_tensor.sizes[desc.axis]
    candidates = [index(depth) for index in INDICES.values()]
    candidates = [index for index in candidates if int(limits.min) <= index <= int(limits.max)]
    candidates += [int(index) for index in numbers.integers(0, depth, 2 * len(candidates))]
    inputs = {
        "indices_tensor": chosen_array(numbers, desc.indices_tensor, candidates),
        "values_tensor": random_array(numbers, desc.values_tensor),
    }
    return Workload(desc, inputs, device_type=p.device, **fields)


def _keeps(labels: Mapping[str, str]) -> bool:
    rank, axis = int(labels["rank"]), labels["axis"]
    if rank == 1:
        return axis == "first" and labels["indices"] == "packed" and fits_rank(labels["output"], 1)
    # At rank 2 the middle axis is the last one.
    return not (rank == 2 and axis == "middle") and not (labels["indices"] == "interleaved" and axis != "first")


GROUPS = Groups("one_hot")


@GROUPS.of(
    type=TYPES,
    index=INDEX_TYPES,
    rank=range(1, 9),
    axis=("first", "middle", "last"),
    indices=[name for name in INPUT_LAYOUTS if name != "interleaved"],
    output=OUTPUT_LAYOUTS,
    path=KERNEL_PATHS[OneHotDesc],
    keep=_keeps,
)
def layout(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Any layout of indices and output, along any axis."""
    sizes = SIZES[p.rank]
    axis = {"first": 0, "middle": p.rank // 2, "last": p.rank - 1}[p.axis]
    desc = describe(p.index, p.type, sizes, axis, indices=p.indices, output=p.output)
    return workload(numbers, desc, p)


@GROUPS.of(
    type=INDEX_TYPES,
    value=tuple(INDICES),
    axis=("innermost", "other"),
    device=GPU_AND_OWN,
    keep=lambda labels: fits_type(labels["value"], labels["type"]),
)
def index(numbers: np.random.Generator, p: Parameters) -> Workload:
    """The index in every second sequence, and random ones between; along the innermost dimension or another one."""
    depth, others = 23, 14
    sizes, axis = ((others, depth), 1) if p.axis == "innermost" else ((depth, others), 0)
    desc = describe(p.type, DataType.UINT16, sizes, axis)
    array = np.array([INDICES[p.value](depth) & (1 << 64) - 1] * others, np.uint64)
    array[1::2] = numbers.integers(0, depth, others // 2, np.uint64)
    indices = array.astype(np.uint64).view(np.int64).astype(p.type.numpy_dtype).reshape(desc.indices_tensor.sizes)
    values = random_array(numbers, desc.values_tensor)
    return Workload(desc, {"indices_tensor": indices, "values_tensor": values}, device_type=p.device)


@GROUPS.of(
    type=TYPES_BY_SIZE,
    shape=("last", "first", "more", "matrix", "cube", "middle", "far", "broadcast", "reversed"),
    axis=(0, 1, 2),
)
def values(numbers: np.random.Generator, p: Parameters) -> Workload:
    """OnValue is element 1 along the last dimension larger than 1; all else is ignored."""
    sizes, layout_strides = {
        "last": ((1, 1, 2), None),
        "first": ((2, 1, 1), None),
        "more": ((1, 1, 5), None),
        "matrix": ((3, 4, 1), None),
        "cube": ((2, 3, 4), None),
        "middle": ((3, 2, 1), (7, 3, 100)),
        "far": ((1, 1, 2), (0, 0, 4999)),
        "broadcast": ((1, 3, 2), (0, 5, 0)),
        "reversed": ((2, 3, 4), (1, 2, 6)),
    }[p.shape]
    tensor = TensorDesc(p.type, sizes, layout_strides)
    return workload(numbers, describe(DataType.INT32, p.type, (3, 19, 11), p.axis, values=tensor), p)


@GROUPS.of(type=FLOATS, axis=(0, 1), output=("packed", "permuted", "gaps"))
def bits(numbers: np.random.Generator, p: Parameters) -> Workload:
    """NaN payloads, -0.0 and denormals arrive unchanged."""
    desc = describe(DataType.INT32, p.type, (13, 9), p.axis, output=p.output)
    special = SPECIAL_BITS[p.type]
    numbers_of_values = numbers.permutation(len(special))[:2]
    pair = np.array([[special[k] for k in numbers_of_values]], f"u{p.type.size_in_bytes}")
    limits = workload(numbers, desc, p)
    return Workload(desc, {**limits.inputs, "values_tensor": pair.view(p.type.numpy_dtype)}, device_type=p.device)


@GROUPS.of(
    type=TYPES_BY_SIZE,
    index=INDEX_TYPES,
    depth=(1, 2, 3, 15, 16, 17, 255, 4099, 65_537),
    axis=("innermost", "other"),
    device=GPU_AND_OWN,
)
def depth(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Sequences of many lengths, down to a single element."""
    sizes, axis = ((7, p.depth), 1) if p.axis == "innermost" else ((p.depth, 7), 0)
    return workload(numbers, describe(p.index, p.type, sizes, axis), p)


@GROUPS.of(
    type=TYPES_BY_SIZE,
    index=INDEX_TYPES,
    row=(1, 2, 3, 4, 7, 16, 33, 161),
    output=("packed", "rows"),
    device=GPU_AND_OWN,
)
def rows(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Outputs whose rows run along the indices and begin anywhere in a word or a block."""
    return workload(numbers, describe(p.index, p.type, (3, 70, p.row), 1, output=p.output), p)


@GROUPS.of(type=TYPES_BY_SIZE, index=INDEX_TYPES, row=(1024, 1040), depth=(7, 150), device=GPU)
def rows_of_blocks(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Outputs whose rows run along the indices in whole blocks, enough of them for each processor."""
    return workload(numbers, describe(p.index, p.type, (3, p.depth, p.row), 1), p, limits=SMALL_WORKGROUPS)


@GROUPS.of(
    type=(DataType.INT8,),
    index=(DataType.INT64, DataType.UINT64),
    device={**GPU, "integrated": DeviceType.INTEGRATED_GPU},
    default="all",
)
def rows_of_bytes(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Bytes by 64-bit indices, with more processors than workgroups on the first device, and fewer on the second."""
    return workload(numbers, describe(p.index, p.type, (3, 150, 1040), 1), p, limits=SMALL_WORKGROUPS)


@GROUPS.of(
    type=TYPES_BY_SIZE,
    index=INDEX_TYPES,
    rows=(16, 304, 2000),
    depth=(16, 48, 272),
    output=("packed", "rows"),
    device=GPU_AND_OWN,
    path=("rows",),
)
def whole_rows(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Outputs whose rows are whole blocks, of which a workgroup writes many after it has loaded their indices."""
    return workload(numbers, describe(p.index, p.type, (p.rows, p.depth), 1, output=p.output), p)


@GROUPS.of(
    type=TYPES_BY_SIZE,
    index=INDEX_TYPES,
    axis=(0, 1),
    offset=(0, 16, 80, 240, 4080),
    alignment=(0, 8, 32, 256),
    output=("packed", "rows", "gaps"),
    tail=(0, 4, 5, 64),
)
def binding(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Tensors at many offsets in their buffers, and a tail after the output."""
    desc = describe(p.index, p.type, (9, 41), p.axis, output=with_tail(p.type, (9, 41), p))
    output_offset = offset_of(p.offset, p.alignment)
    offsets = {"indices_tensor": 48 + p.offset, "values_tensor": 16 + p.offset, "output_tensor": output_offset}
    return workload(numbers, desc, p, offsets=offsets)


@GROUPS.of(
    type=TYPES_BY_SIZE,
    index=INDEX_TYPES,
    shape=("long_sequences", "tall_sequences", "many_indices", "middle"),
    indices=("packed", "gaps", "permuted"),
    output=("packed", "rows", "permuted"),
    limits=("cut", "cut_floor", "floor"),
    device=GPU_AND_OWN,
)
def cut(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Sequences and indices that span several memory segments and several storage buffer ranges."""
    count = 9001 // p.type.size_in_bytes
    sizes, axis = {
        "long_sequences": ((2, count), 1),
        "tall_sequences": ((count, 2), 0),
        "many_indices": ((count // 2, 4), 1),
        "middle": ((count // 100, 17, 9), 1),
    }[p.shape]
    desc = describe(p.index, p.type, sizes, axis, indices=p.indices, output=p.output)
    return workload(numbers, desc, p, limits=LIMITS[p.limits], offsets={"output_tensor": 32})


@GROUPS.of(axis=(1,), device=GPU)
def long(numbers: np.random.Generator, p: Parameters) -> Workload:
    """More than 65,535 workgroups, along an axis of more than 2^16 elements."""
    count = SMALL_WORKGROUPS["max_compute_work_group_invocations"]
    sizes = (count, 65_537) if p.axis == 1 else (65_537, count)
    output = TensorDesc(DataType.UINT8, sizes, (2 * sizes[1], 2))
    desc = describe(DataType.INT64, DataType.UINT8, sizes, p.axis, output=output)
    return workload(numbers, desc, p, limits=SMALL_WORKGROUPS)


@GROUPS.of(example=("1", "2", "3", "4"), default="all")
def page(numbers: np.random.Generator, p: Parameters) -> Workload:
    """The four examples of the operator's page."""
    kind, indices, pair, axis, expected = {
        "1": (np.uint32, [0, 3, 2], [0, 1], 3, [[1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]),
        "2": (np.uint32, [0, 2, 1, 0], [0, 1], 2, [[1, 0, 0, 1], [0, 0, 1, 0], [0, 1, 0, 0]]),
        "3": (np.uint32, [0, 3, 2], [4, 2, 9], 3, [[2, 4, 4, 4], [4, 4, 4, 2], [4, 4, 2, 4]]),
        "4": (np.int32, [-3, 100, 3], [0, 1], 3, [[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]),
    }[p.example]
    index_sizes = (1, 1, 1, 4) if axis == 2 else (1, 1, 3, 1)
    inputs = {
        "indices_tensor": np.array(indices, kind).reshape(index_sizes),
        "values_tensor": np.array(pair, np.float32).reshape((1, 1, 3, 1) if len(pair) == 3 else (1, 1, 1, 2)),
    }
    desc = OneHotDesc(
        indices_tensor=TensorDesc(kind, index_sizes),
        values_tensor=TensorDesc(np.float32, inputs["values_tensor"].shape),
        output_tensor=TensorDesc(np.float32, (1, 1, 3, 4)),
        axis=axis,
    )
    return Workload(desc, inputs, np.array(expected, np.float32).reshape(1, 1, 3, 4))
