"""Descriptors as plain data and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from dmlvk import DataType, DiagonalMatrix1Desc, DiagonalMatrixDesc, OneHotDesc, SliceDesc, TensorDesc
from dmlvk.benchmark.cases import SCALES, cases, select
from dmlvk.benchmark.cases.quantized_linear_convolution import LAYERS, LAYOUTS, descriptor
from dmlvk.operators import OperatorDesc
from dmlvk.operators.serialization import deserialize, serialize


def through_json(desc: OperatorDesc) -> OperatorDesc:
    return deserialize(json.loads(json.dumps(serialize(desc))))


def test_every_benchmark_s_descriptor_comes_back() -> None:
    data_movement = select(cases(SCALES["tiny"]), operators=["slice1", "diagonal_matrix1", "one_hot"])
    convolutions = [descriptor(layer, 64, layout, DataType.INT8, True) for layer in LAYERS for layout in LAYOUTS]
    for desc in (*(case.build().desc for case in data_movement), *convolutions):
        assert through_json(desc) == desc


def test_values_keep_their_bits() -> None:
    tensor = TensorDesc(DataType.FLOAT32, (3, 3), (4, 1), total_size_in_bytes=64, guaranteed_base_offset_alignment=16)
    nan = np.array([0x7FC01234], np.uint32).view(np.float32)[0]
    for value in (nan, np.float32(-0.0), 1.5):
        desc = DiagonalMatrix1Desc(output_tensor=tensor, value=value, diagonal_fill_begin=-1, diagonal_fill_end=2)
        again = through_json(desc)
        assert again == desc
        assert isinstance(again, DiagonalMatrix1Desc)
        assert again.value_bytes == desc.value_bytes
    for data_type, value in ((DataType.FLOAT32, nan), (DataType.FLOAT16, -0.0), (DataType.INT64, 10.6)):
        predecessor = DiagonalMatrixDesc(output_tensor=TensorDesc(data_type, (2, 3)), offset=-1, value=value)
        found = through_json(predecessor)
        assert isinstance(found, DiagonalMatrixDesc)
        assert (found, found.value_bytes) == (predecessor, predecessor.value_bytes)


def test_an_output_that_was_left_out_comes_back() -> None:
    tensor = TensorDesc(DataType.UINT8, (5,), (3,))
    desc = SliceDesc(input_tensor=tensor, offsets=(1,), sizes=(2,), strides=(2,))
    assert serialize(desc)["output_tensor"] == {"data_type": "UINT8", "sizes": [2]}
    assert through_json(desc) == desc


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {},
        {"operator": "GEMM"},
        {"operator": "SLICE1", "axis": 1},
        {"operator": "SLICE1"},
        {"operator": "ONE_HOT", "indices_tensor": {"data_type": "INT33", "sizes": [1]}},
        {"operator": "ONE_HOT", "indices_tensor": {"sizes": [1]}},
        {"operator": "ONE_HOT", "indices_tensor": {"data_type": "INT32", "sizes": [1], "colour": 1}},
    ],
)
def test_what_is_no_record_is_a_value_error(record: Any) -> None:
    with pytest.raises(ValueError, match=r"operator|field|cannot be read|missing"):
        deserialize(record)


def test_a_descriptor_that_breaks_a_rule_is_refused() -> None:
    tensor = TensorDesc(DataType.INT32, (2, 1))
    desc = OneHotDesc(
        indices_tensor=tensor,
        values_tensor=TensorDesc(DataType.INT8, (1, 2)),
        output_tensor=TensorDesc(DataType.INT8, (2, 4)),
        axis=1,
    )
    record = serialize(desc)
    with pytest.raises(ValueError, match="axis"):
        deserialize({**record, "axis": 9})
