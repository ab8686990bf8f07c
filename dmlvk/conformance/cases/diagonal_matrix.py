"""Cases of DIAGONAL_MATRIX. Few run by default, because the cases of DIAGONAL_MATRIX1 test the same kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases.combinations import GPU_AND_OWN, Groups, Parameters, by_sizes
from dmlvk.conformance.cases.layouts import LIMITS, OUTPUT_LAYOUTS, SIZES, TYPES, TYPES_BY_SIZE, lay_out
from dmlvk.conformance.cases.values import SPECIAL_BITS
from dmlvk.data_type import DataType
from dmlvk.operators import DiagonalMatrixDesc
from dmlvk.operators.declared import INT32_MAX, INT32_MIN
from dmlvk.planning import KERNEL_PATHS
from dmlvk.tensor_desc import TensorDesc

# What no rule of a field says, in the descriptor of `invalid.valid`.
BROKEN_RULES: Mapping[str, Mapping[str, Any]] = {
    "output_rank_1": {"output_tensor.sizes": [24]},
    "value_past_its_type": {"value": 256.5},
    "value_no_integer_holds": {"value": "0000c07f"},
    "finite_value_too_large_for_float16": {"output_tensor.data_type": "FLOAT16", "value": 1e5},
    "finite_value_too_large_for_a_float": {"value": 1e39},
}


def workload(
    output: TensorDesc, offset: int, value: Any, p: Parameters, expected: np.ndarray | None = None, **fields: Any
) -> Workload:
    """A workload without an input."""
    desc = DiagonalMatrixDesc(output_tensor=output, offset=offset, value=value)
    return Workload(desc, {}, expected, device_type=p.device, **fields)


# Each form is one type, one rank and one layout, so that few cases cover all of them.
FORMS = {
    f"{name}_{2 + k % 3}_{OUTPUT_LAYOUTS[k % 5]}": (kind, 2 + k % 3, OUTPUT_LAYOUTS[k % 5])
    for k, (name, kind) in enumerate(TYPES.items())
}


GROUPS = Groups("diagonal_matrix")


@GROUPS.of(form=FORMS, path=KERNEL_PATHS[DiagonalMatrixDesc])
def form(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Every type, rank and layout, with a Value that integer types truncate."""
    data_type, rank, output = p.form
    return workload(lay_out(data_type, SIZES[rank], output), 1, 10.6, p)


@GROUPS.of(offset={"min": INT32_MIN, "-28": -28, "36": 36, "max": INT32_MAX}, type={"uint8": DataType.UINT8})
def ends(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Offsets before, at and past the ends of the matrix, and at the ends of the 32-bit range."""
    return workload(lay_out(p.type, (29, 37)), p.offset, int(numbers.integers(1, 127)), p)


@GROUPS.of(example=("1", "2", "3", "4"), default="all")
def page(numbers: np.random.Generator, p: Parameters) -> Workload:
    """The four examples of the operator's page."""
    offset, expected = {
        "1": (0, [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
        "2": (1, [[0, 1, 0], [0, 0, 1], [0, 0, 0]]),
        "3": (-1, [[0, 0], [1, 0], [0, 1]]),
        "4": (-3, [[0, 0], [0, 0], [0, 0]]),
    }[p.example]
    output = TensorDesc(DataType.FLOAT32, (1, 1, 3, len(expected[0])))
    return workload(output, offset, 1.0, p, np.array([[expected]], np.float32))


@GROUPS.of(type=TYPES, rank=(2, 3, 4), output=OUTPUT_LAYOUTS, offset=(0, 2, -3), default="none")
def layout(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Any layout of the output."""
    value = int(numbers.integers(1, 127))
    return workload(lay_out(p.type, SIZES[p.rank], p.output), p.offset, value, p)


@GROUPS.of(
    shape=by_sizes((1, 1), (1, 97), (97, 1), (2, 200), (200, 2), (9, 1, 1), (5, 4, 3, 2), (23, 9, 17)),
    offset=(0, 1, -1),
    type=TYPES_BY_SIZE,
    device=GPU_AND_OWN,
    default="none",
)
def shape(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Rows, columns, squares, single elements, and batches of them."""
    return workload(lay_out(p.type, p.shape), p.offset, int(numbers.integers(1, 127)), p)


@GROUPS.of(number=range(9), default="none")
def bits(numbers: np.random.Generator, p: Parameters) -> Workload:
    """A FLOAT32 output has the bits of Value: NaN payloads, -0.0, denormals."""
    element = SPECIAL_BITS[DataType.FLOAT32][p.number].to_bytes(4, "little")
    return workload(lay_out(DataType.FLOAT32, (17, 13)), -2, element, p)


@GROUPS.of(type=TYPES, number={"10.6": 10.6, "-10.6": -10.6, "0.9": 0.9, "-0.0": -0.0, "100": 100}, default="none")
def value(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Value is a FLOAT, which integer types truncate towards 0."""
    number = p.number if p.type.is_floating_point or p.type.is_signed_integer else abs(p.number)
    element = np.float32(number)
    if not p.type.is_floating_point:
        element = np.trunc(element)
    expected = np.where(np.eye(6, 7, 1, dtype=bool), element, np.float32(0)).astype(p.type.numpy_dtype)
    return workload(lay_out(p.type, (6, 7)), 1, number, p, expected)


@GROUPS.of(type=TYPES_BY_SIZE, shape=("wide", "tall"), limits=("cut", "cut_floor", "floor"), default="none")
def cut(numbers: np.random.Generator, p: Parameters) -> Workload:
    """Matrices that span several memory segments and several storage buffer ranges."""
    count = 9001 // p.type.size_in_bytes
    sizes = (3, count) if p.shape == "wide" else (count, 3)
    offset = 2 if p.shape == "wide" else 2 - count // 2
    return workload(lay_out(p.type, sizes), offset, int(numbers.integers(1, 127)), p, limits=LIMITS[p.limits])
