"""Cases of SLICE. Few run by default, because the cases of SLICE1 test the same kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.combinations import GPU_AND_OWN, PLANNERS_CHOICE, Groups, Parameters, only
from dmlvk.conformance.cases.layouts import (
    INPUT_LAYOUTS,
    LIMITS,
    OUTPUT_LAYOUTS,
    SIZES,
    TYPES,
    TYPES_BY_SIZE,
    fits_ranks,
    lay_out,
    strides,
)
from dmlvk.conformance.cases.values import random_array
from dmlvk.data_type import DataType
from dmlvk.operators import SliceDesc
from dmlvk.planning import KERNEL_PATHS
from dmlvk.tensor_desc import TensorDesc

# What no rule of a field says, in the descriptor of `invalid.valid`.
BROKEN_RULES: Mapping[str, Mapping[str, Any]] = {
    "begins_past_the_end": {"offsets": [3, 1, 1, 4]},
    "ends_past_the_end": {"offsets": [0, 1, 6, 4]},
    "output_sizes": {"output_tensor.sizes": [1, 1, 2, 2]},
}

PATHS = (PLANNERS_CHOICE, *KERNEL_PATHS[SliceDesc])
# Strides of the last dimensions, from the last one backwards. All other strides are 1.
STEPS: Mapping[str, tuple[int, ...]] = {"one": (1,), "strided": (2, 1, 3), "rows": (1, 2)}


def describe(
    source: TensorDesc, offsets: Sequence[int], sizes: Sequence[int], steps: Sequence[int], output: str = "packed"
) -> SliceDesc:
    """A descriptor whose output has a layout. A packed output_tensor is left out: it is the default."""
    if output == "packed":
        return SliceDesc(input_tensor=source, offsets=offsets, sizes=sizes, strides=steps)
    output_tensor = TensorDesc(source.data_type, sizes, strides(output, sizes))
    return SliceDesc(input_tensor=source, output_tensor=output_tensor, offsets=offsets, sizes=sizes, strides=steps)


def workload(
    numbers: np.random.Generator, desc: SliceDesc, p: Parameters, limits: Mapping[str, int] = LIMITS["own"]
) -> Workload:
    """A workload whose input has random bits."""
    inputs = {"input_tensor": random_array(numbers, desc.input_tensor)}
    return Workload(desc, inputs, limits=limits, device_type=p.device)


# Each form is one type and one rank, so that few cases cover all of them.
FORMS = {f"{name}_{1 + k % 8}": (kind, 1 + k % 8) for k, (name, kind) in enumerate(TYPES.items())}


GROUPS = Groups("slice")


@GROUPS.of(
    form=FORMS,
    input=("packed", "gaps"),
    output=("packed", "gaps"),
    steps=only(STEPS, "one", "strided"),
    path=("blocks", "tiles"),
)
def form(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Every type and every rank."""
    data_type, rank = p.form
    return layout(numbers, SimpleNamespace(**{**vars(p), "type": data_type, "rank": rank}))


@GROUPS.of(type={"uint8": DataType.UINT8}, step=(2,), reach=("to_the_end", "shorter"), path=("boxes", "elements"))
def reach(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Slices that end at the last element of the input, or before it."""
    size = {"to_the_end": 13, "shorter": 7}[p.reach]
    desc = describe(lay_out(p.type, (5, 3 + 12 * p.step + 1)), (1, 3), (4, size), (1, p.step))
    return workload(numbers, desc, p)


@GROUPS.of(type={"uint32": DataType.UINT32}, step=(1 << 31, (1 << 32) - 1))
def far(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Strides from 2^31 to 2^32 - 1, which SLICE1 does not have. They reach single elements."""
    desc = describe(lay_out(p.type, (6, 37)), (2, 5), (3, 1), (1, p.step))
    return workload(numbers, desc, p)


@GROUPS.of(example=("1", "2"), default="all")
def page(numbers: np.random.Generator, p: Parameters) -> Workload:
    """The two examples of the operator's page."""
    offsets, sizes, steps, expected = {
        "1": ((0, 0, 1, 2), (1, 1, 3, 2), (1, 1, 1, 1), [[7, 8], [11, 12], [15, 16]]),
        "2": ((0, 0, 1, 0), (1, 1, 2, 2), (1, 1, 2, 3), [[5, 8], [13, 16]]),
    }[p.example]
    desc = describe(lay_out(DataType.FLOAT32, (1, 1, 4, 4)), offsets, sizes, steps)
    source = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)
    return Workload(desc, {"input_tensor": source}, np.array([[expected]], np.float32))


@GROUPS.of(
    type=TYPES_BY_SIZE,
    rank=range(1, 9),
    input=INPUT_LAYOUTS,
    output=OUTPUT_LAYOUTS,
    steps=STEPS,
    path=KERNEL_PATHS[SliceDesc],
    default="none",
    keep=fits_ranks,
)
def layout(numbers: np.random.Generator, p: Parameters) -> Workload:
    """A slice of a tensor in any layout, to any layout. It has a margin in dimensions with room for one."""
    extents = SIZES[p.rank]
    steps = [*p.steps, *([1] * 8)][: p.rank][::-1]
    offsets = [1 if extent > 6 else 0 for extent in extents]
    sizes = [1 + (n - 1 - offset) // step for n, offset, step in zip(extents, offsets, steps, strict=True)]
    if p.output == "interleaved":
        while np.gcd(sizes[-2], sizes[-1]) != 1:
            sizes[-1] -= 1
    return workload(numbers, describe(lay_out(p.type, extents, p.input), offsets, sizes, steps, p.output), p)


@GROUPS.of(type={"uint8": DataType.UINT8}, step=(1 << 31, (1 << 32) - 3), default="none")
def far_broadcast(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Strides of 2^31 or more that reach a second element, in a broadcast dimension of 2^32 - 1 elements."""
    desc = describe(TensorDesc(p.type, ((1 << 32) - 1, 1), (0, 1)), (1, 0), (2, 1), (p.step, 1))
    return workload(numbers, desc, p)


@GROUPS.of(
    type=TYPES_BY_SIZE,
    shape=("rows", "columns"),
    input=("packed", "permuted"),
    step=(1, 2),
    limits=("cut", "cut_floor"),
    default="none",
)
def cut(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Tensors that span several memory segments, each of several storage buffer ranges."""
    count = 7001 // p.type.size_in_bytes
    source = lay_out(p.type, (3, count) if p.shape == "rows" else (count, 3), p.input)
    sizes = [1 + (extent - 2) // p.step for extent in source.sizes]
    return workload(numbers, describe(source, (1, 1), sizes, (p.step, p.step)), p, LIMITS[p.limits])


@GROUPS.of(type=TYPES_BY_SIZE, step=(1, 2), device=GPU_AND_OWN, path=PATHS, default="none")
def transpose(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Rows of the output are columns of the input."""
    source = TensorDesc(p.type, (2, 71, 133), (71 * 133, 1, 71))
    return workload(numbers, describe(source, (0, 1, 2), (2, 70, 131 // p.step), (1, 1, p.step)), p)
