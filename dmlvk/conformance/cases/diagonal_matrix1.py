"""Cases of DIAGONAL_MATRIX1."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.combinations import DEVICES, GPU, GPU_AND_OWN, Groups, Parameters, by_sizes, only
from dmlvk.conformance.cases.layouts import (
    FLOATS,
    INPUT_LAYOUTS,
    LIMITS,
    OUTPUT_LAYOUTS,
    SIZES,
    SMALL_WORKGROUPS,
    TYPES,
    TYPES_BY_SIZE,
    lay_out,
    offset_of,
    with_tail,
)
from dmlvk.conformance.cases.values import SPECIAL_BITS, random_array
from dmlvk.data_type import DataType
from dmlvk.operators import DiagonalMatrix1Desc
from dmlvk.operators.declared import INT32_MAX, INT32_MIN
from dmlvk.planning import KERNEL_PATHS
from dmlvk.tensor_desc import TensorDesc

# What no rule of a field says, in the descriptor of `invalid.valid`.
BROKEN_RULES: Mapping[str, Mapping[str, Any]] = {
    "neither_input_nor_output": {"input_tensor": None, "output_tensor": None},
    "input_rank_without_output": {"input_tensor.sizes": [1, 1, 1, 5, 7], "output_tensor": None},
    "output_rank_1": {"input_tensor": None, "output_tensor.sizes": [35]},
    "output_rank_5": {"input_tensor": None, "output_tensor.sizes": [1, 1, 1, 5, 7]},
    "value_past_its_type": {"value": 256},
    "negative_value_of_an_unsigned_type": {"value": -1},
    "fractional_value_of_an_integer_type": {"value": 0.5},
    "finite_value_too_large_for_float16": {
        "input_tensor.data_type": "FLOAT16",
        "output_tensor.data_type": "FLOAT16",
        "value_data_type": "FLOAT16",
        "value": 65520.0,
    },
    "value_of_other_bytes": {"value": "0700"},
}

ABSENT = "absent"

Band = tuple[int, int]
BANDS: Mapping[str, Band] = {
    "identity": (0, 1),
    "strip": (-5, 9),
    "kept_strip": (9, -5),
    "kept_diagonal": (1, 0),
    "empty": (3, 3),
    "lower": (INT32_MIN, 2),
    "upper": (-3, INT32_MAX),
    "all_but_upper": (INT32_MAX, 4),
    "all_but_lower": (-2, INT32_MIN),
}
# The ends of the 32-bit range, and those of a matrix of 29 rows and 37 columns.
ENDS = (INT32_MIN, -29, -28, 0, 36, 37, INT32_MAX - 1, INT32_MAX)


def describe(
    data_type: DataType, sizes: Sequence[int], band: Band, value: Any, *, source: str = ABSENT, output: str | TensorDesc
) -> DiagonalMatrix1Desc:
    """A descriptor, from the names of layouts."""
    return DiagonalMatrix1Desc(
        input_tensor=None if source == ABSENT else lay_out(data_type, sizes, source),
        output_tensor=lay_out(data_type, sizes, output) if isinstance(output, str) else output,
        value=value,
        diagonal_fill_begin=band[0],
        diagonal_fill_end=band[1],
    )


def workload(numbers: np.random.Generator, desc: DiagonalMatrix1Desc, p: Parameters, **fields: Any) -> Workload:
    """A workload whose input, if there is one, has random bits."""
    inputs = {} if desc.input_tensor is None else {"input_tensor": random_array(numbers, desc.input_tensor)}
    return Workload(desc, inputs, device_type=p.device, **fields)


def random_value(numbers: np.random.Generator, data_type: DataType) -> bytes:
    """A random element of a data type."""
    return numbers.bytes(data_type.size_in_bytes)


def _filled_with(numbers: np.random.Generator, p: Parameters, element: int) -> Workload:
    encoded = element.to_bytes(p.type.size_in_bytes, "little")
    return workload(numbers, describe(p.type, (17, 13), (-2, 4), encoded, source=p.input, output="packed"), p)


PAGE_INPUT = [[4, 7, 3, 7, 9], [1, 2, 8, 6, 9], [9, 4, 1, 8, 7], [4, 3, 4, 2, 4]]


def _in_range(value: int) -> str:
    return {INT32_MIN: "min", INT32_MAX - 1: "max-1", INT32_MAX: "max"}.get(value, str(value))


GROUPS = Groups("diagonal_matrix1")


@GROUPS.of(
    type=TYPES,
    rank=(2, 3, 4),
    input=(ABSENT, *INPUT_LAYOUTS),
    output=OUTPUT_LAYOUTS,
    band=BANDS,
    path=KERNEL_PATHS[DiagonalMatrix1Desc],
)
def layout(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Any layout of input and output, with any kind of band."""
    value = random_value(numbers, p.type)
    return workload(numbers, describe(p.type, SIZES[p.rank], p.band, value, source=p.input, output=p.output), p)


@GROUPS.of(
    begin={_in_range(value): value for value in ENDS},
    end={_in_range(value): value for value in ENDS},
    type=TYPES_BY_SIZE,
    input=(ABSENT, "packed"),
    output=("packed", "permuted"),
)
def ends(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Begin and end before, at and past the ends of the matrix, and at the ends of the 32-bit range."""
    value = random_value(numbers, p.type)
    desc = describe(p.type, (29, 37), (p.begin, p.end), value, source=p.input, output=p.output)
    return workload(numbers, desc, p)


@GROUPS.of(
    shape=by_sizes(*((1, 1), (1, 97), (97, 1), (3, 3), (2, 200), (200, 2)), *((9, 1, 1), (5, 4, 3, 2), (1, 1, 40, 41))),
    band=only(BANDS, "identity", "strip", "kept_strip"),
    type=TYPES_BY_SIZE,
    input=(ABSENT, "packed", "broadcast"),
    device=GPU_AND_OWN,
)
def shape(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Rows, columns, squares, single elements, and batches of them."""
    value = random_value(numbers, p.type)
    desc = describe(p.type, p.shape, p.band, value, source=p.input, output="packed")
    return workload(numbers, desc, p)


@GROUPS.of(
    type=TYPES_BY_SIZE,
    rows=(2, 5, 9),
    columns=(1, 2, 3, 5, 9, 15, 17, 33),
    band=only(BANDS, "identity", "upper", "kept_diagonal"),
    input=(ABSENT, "packed"),
    device=DEVICES,
)
def small_matrices(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Many matrices with rows of about a block: neighbouring blocks hold parts of one, two or many rows."""
    value = random_value(numbers, p.type)
    desc = describe(p.type, (23, p.rows, p.columns), p.band, value, source=p.input, output="packed")
    return workload(numbers, desc, p)


@GROUPS.of(type=FLOATS, number=range(9), input=(ABSENT, "packed"))
def bits(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Value keeps its bits: NaN payloads, -0.0, denormals."""
    return _filled_with(numbers, p, SPECIAL_BITS[p.type][p.number])


@GROUPS.of(
    type={name: kind for name, kind in TYPES.items() if not kind.is_floating_point},
    number=("0", "ones", "low", "top", "bytes"),
    input=(ABSENT, "packed"),
)
def value(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Values at the ends of the integer types, and one whose bytes all differ."""
    size = p.type.size_in_bytes
    ones = (1 << 8 * size) - 1
    number = {"0": 0, "ones": ones, "low": ones >> 1, "top": (ones >> 1) + 1, "bytes": 0x0123456789ABCDEF & ones}
    return _filled_with(numbers, p, number[p.number])


@GROUPS.of(
    type=TYPES_BY_SIZE,
    input=(ABSENT, "packed", "rows"),
    output=("packed", "rows", "gaps"),
    offset=(0, 16, 80, 240, 4080),
    alignment=(0, 8, 32, 256),
    tail=(0, 4, 5, 64),
)
def binding(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Tensors at many offsets in their buffers, and a tail after the output."""
    sizes = (2, 11, 37)
    output = with_tail(p.type, sizes, p)
    desc = describe(p.type, sizes, (-4, 7), random_value(numbers, p.type), source=p.input, output=output)
    offsets = {"output_tensor": offset_of(p.offset, p.alignment)}
    if p.input != ABSENT:
        offsets["input_tensor"] = p.offset + 48
    return workload(numbers, desc, p, offsets=offsets)


@GROUPS.of(
    type=TYPES_BY_SIZE,
    shape=("wide", "tall", "square", "batch"),
    band=("strip", "kept_strip", "upper"),
    input=(ABSENT, "packed", "permuted", "broadcast"),
    output=("packed", "rows", "permuted"),
    limits=("cut", "cut_floor", "floor"),
    device=GPU_AND_OWN,
)
def cut(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Matrices that span several memory segments and several storage buffer ranges."""
    count = 9001 // p.type.size_in_bytes
    side = math.isqrt(20_000 // p.type.size_in_bytes)
    sizes = {"wide": (3, count), "tall": (count, 3), "square": (side, side + 9), "batch": (4, side // 2, side // 2)}
    band = {"strip": (-31, 27), "kept_strip": (27, -31), "upper": (20, INT32_MAX)}[p.band]
    desc = describe(p.type, sizes[p.shape], band, random_value(numbers, p.type), source=p.input, output=p.output)
    return workload(numbers, desc, p, limits=LIMITS[p.limits], offsets={"output_tensor": 48})


@GROUPS.of(shape=("tall",), device=GPU)
def long(numbers: np.random.Generator, p: Parameters) -> Workload:
    """More than 65,535 workgroups, and a dimension of more than 2^16 elements."""
    count = SMALL_WORKGROUPS["max_compute_work_group_invocations"]
    sizes = (count, 65_537) if p.shape == "wide" else (65_537, count)
    output = TensorDesc(DataType.UINT8, sizes, (2 * sizes[1], 2))
    desc = describe(DataType.UINT8, sizes, (-40_000, 50), b"\xa7", output=output)
    return workload(numbers, desc, p, limits=SMALL_WORKGROUPS)


@GROUPS.of(example=("1", "2", "3", "4"), default="all")
def page(numbers: np.random.Generator, p: Parameters) -> Workload:
    """The four examples of the operator's page. In the first, Value 7 gives sevens; the page prints ones."""
    has_input, element, band, expected = {
        "1": (False, 7.0, (0, 1), [[7, 0, 0, 0, 0], [0, 7, 0, 0, 0], [0, 0, 7, 0, 0], [0, 0, 0, 7, 0]]),
        "2": (False, 7.0, (0, 3), [[7, 7, 7, 0, 0], [0, 7, 7, 7, 0], [0, 0, 7, 7, 7], [0, 0, 0, 7, 7]]),
        "3": (True, 0.0, (INT32_MIN, 1), [[0, 7, 3, 7, 9], [0, 0, 8, 6, 9], [0, 0, 0, 8, 7], [0, 0, 0, 0, 4]]),
        "4": (True, 0.0, (1, 0), [[4, 0, 0, 0, 0], [0, 2, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 2, 0]]),
    }[p.example]
    source = "packed" if has_input else ABSENT
    desc = describe(DataType.FLOAT32, (4, 5), band, element, source=source, output="packed")
    inputs = {"input_tensor": np.array(PAGE_INPUT, np.float32)} if has_input else {}
    return Workload(desc, inputs, np.array(expected, np.float32))
