"""The bytes and operations that an operator needs: counted by hand, and element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmlvk import DataType, DiagonalMatrix1Desc, DiagonalMatrixDesc, SliceDesc, TensorDesc, reference
from dmlvk.benchmark.cases import SCALES, cases, select
from dmlvk.benchmark.cases.quantized_linear_convolution import LAYERS, descriptor
from dmlvk.benchmark.cases.slice1 import workload
from dmlvk.benchmark.work import Work, work_of


def test_convolution_counts_every_tensor_once() -> None:
    layer = next(layer for layer in LAYERS if layer.name == "64-64_56x56_3x3")
    work = work_of(descriptor(layer, 64, "nhwc", DataType.UINT8))
    pixels = 64 * 56 * 56
    assert work.operations == 2 * pixels * 64 * 64 * 9
    assert work.bytes_written == 64 * pixels
    assert 0 <= work.bytes_read - (64 * pixels + 64 * 64 * 9) < 1000, "and a few parameters"


@pytest.mark.parametrize(
    ("steps", "read"),
    [
        ([1, 1, 1, 1], 32 * 16),  # all of it
        ([1, 1, 2, 1], 16 * 16),  # every other row
        ([1, 1, 1, 2], 32 * 16),  # half of the bytes, but all sectors
        ([1, 1, 1, -1], 32 * 16),
    ],
)
def test_slice_counts_the_sectors_that_hold_its_elements(steps: list[int], read: int) -> None:
    tensor = TensorDesc(DataType.UINT16, [1, 1, 16, 16])
    work = work_of(workload(tensor, [0] * 4, [1, 1, 16, 16], steps, np.s_[...]).desc)
    assert work.bytes_read == read
    assert work.operations == 0


def test_slice_of_far_elements_counts_a_sector_each() -> None:
    tensor = TensorDesc(DataType.UINT8, [1, 1, 1, 1024])
    work = work_of(workload(tensor, [0] * 4, [1, 1, 1, 1024], [1, 1, 1, 64], np.s_[...]).desc)
    assert (work.bytes_read, work.bytes_written) == (16 * 32, 16)


@pytest.mark.parametrize(
    ("begin", "end"), [(-(2**31), 0), (0, 1), (-2, 3), (0, 2**31 - 1), (3, -2), (1, 1), (-9, 9), (5, -(2**31))]
)
def test_diagonals_that_are_filled_are_not_read(begin: int, end: int) -> None:
    tensor = TensorDesc(DataType.INT32, [2, 5, 7])
    fields: dict[str, Any] = {"value": 1, "diagonal_fill_begin": begin, "diagonal_fill_end": end}
    desc = DiagonalMatrix1Desc(input_tensor=tensor, output_tensor=tensor, **fields)
    kept = int((reference.run(desc, input_tensor=np.zeros(tensor.sizes, np.int32)) == 0).sum())
    assert work_of(desc).bytes_read == 4 * kept
    assert work_of(desc).bytes_written == 4 * 70
    assert work_of(DiagonalMatrix1Desc(output_tensor=tensor, **fields)).bytes_read == 0


def test_predecessors_count_as_their_successors() -> None:
    source = TensorDesc(DataType.UINT16, [1, 1, 16, 16])
    desc = SliceDesc(input_tensor=source, offsets=[0] * 4, sizes=[1, 1, 8, 16], strides=[1, 1, 2, 1])
    assert work_of(desc) == work_of(workload(source, [0] * 4, [1, 1, 15, 16], [1, 1, 2, 1], np.s_[...]).desc)
    assert work_of(desc) == Work(16 * 16, 16 * 16)
    assert work_of(DiagonalMatrixDesc(output_tensor=source, offset=3, value=1)) == Work(0, 512)


def test_names_of_cases_are_unique_and_the_same_at_every_scale() -> None:
    names = [[case.name for case in cases(scale)] for scale in SCALES.values()]
    assert len(set(names[0])) == len(names[0])
    assert names[0] == names[1] == names[2]


def test_selection_by_operator_name_type_and_layout() -> None:
    found = cases(SCALES["tiny"])
    assert {case.groups[0] for case in select(found)} == {case.groups[0] for case in found}
    assert all("UINT16" in case.name for case in select(found, operators=["slice1"], types=["uint16"]))
    layouts = select(found, patterns=["512-512_7x7"], layouts=["nchw"])
    assert layouts
    assert all(case.name.endswith("layout=nchw") for case in layouts)
    (one,) = select(found, patterns=["row_*UINT64"], path="blocks")
    assert (one.name, one.path) == ("slice1:row_step_2:type=UINT64", "blocks")
    extra = "quantized_linear_convolution:512-512_7x7_3x3:type=INT8;filter_zero_point=0;layout=nhwc"
    assert extra not in [case.name for case in select(found, patterns=["512-512_7x7"])]
    assert [case.name for case in select(found, patterns=[extra])] == [extra]


@pytest.mark.parametrize("operator", ["slice1", "diagonal_matrix1", "one_hot"])
def test_expected_results_are_the_reference_s(operator: str) -> None:
    """The expected outputs, made by NumPy's own indexing, triangles and identities, against dmlvk.reference."""
    for case in select(cases(SCALES["tiny"]), operators=[operator]):
        made = case.build()
        expected = reference.run(made.desc, **made.inputs)
        assert made.expected is not None
        assert made.expected.dtype == expected.dtype
        assert made.expected.tobytes() == expected.tobytes(), case.name
