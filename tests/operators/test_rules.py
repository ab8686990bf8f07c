"""What all descriptors have in common: an output that may be left out, and a repr that makes an equal descriptor."""

from __future__ import annotations

import dataclasses
import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import dmlvk
from dmlvk.data_type import DataType
from dmlvk.errors import DescriptorError
from dmlvk.operators import (
    DiagonalMatrix1Desc,
    DiagonalMatrixDesc,
    OneHotDesc,
    OperatorDesc,
    QuantizedLinearConvolutionDesc,
    Slice1Desc,
)
from dmlvk.operators.registry import OPERATORS
from dmlvk.operators.serialization import deserialize, serialize
from dmlvk.tensor_desc import TensorDesc, TensorFlags
from tests.descriptors import DESCRIPTORS, STRATEGIES

NAMES = {name: getattr(dmlvk, name) for name in dmlvk.__all__}


def arguments(desc: OperatorDesc) -> dict[str, Any]:
    """The fields that a descriptor is made of."""
    return {field.name: getattr(desc, field.name) for field in dataclasses.fields(desc) if field.init}


def test_every_operator_has_a_strategy() -> None:
    assert list(STRATEGIES) == [operator.desc for operator in OPERATORS]


@given(DESCRIPTORS)
def test_the_output_is_always_there(desc: OperatorDesc) -> None:
    output = desc.tensors["output_tensor"]
    assert isinstance(output, TensorDesc) and output is getattr(desc, "output_tensor")  # noqa: B009
    assert list(desc.tensors)[-1] == "output_tensor"


@given(DESCRIPTORS)
def test_an_output_that_is_left_out_is_the_packed_one_that_fits(desc: OperatorDesc) -> None:
    """It is of the sizes that any other output has; SLICE1 alone may write less than its window gives."""
    fields = arguments(desc)
    written_out = fields.pop("output_tensor")
    needs_output = isinstance(desc, (OneHotDesc, DiagonalMatrixDesc))
    if needs_output or (isinstance(desc, DiagonalMatrix1Desc) and desc.input_tensor is None):
        with pytest.raises(DescriptorError, match=r"output_tensor = None: must be a TensorDesc: .*no other field says"):
            type(desc)(**fields)
        return
    output = type(desc)(**fields).tensors["output_tensor"]
    assert output.strides is None and output.flags is TensorFlags.NONE
    assert output.total_size_in_bytes == output.minimum_size_in_bytes and not output.guaranteed_base_offset_alignment
    if isinstance(desc, QuantizedLinearConvolutionDesc):
        zero_point = desc.output_zero_point_tensor
        assert output.data_type is (desc.input_tensor if zero_point is None else zero_point).data_type
    else:
        assert output.data_type is written_out.data_type
    if isinstance(desc, Slice1Desc):
        assert output.sizes == desc.maximum_copied_elements
    else:
        assert output.sizes == written_out.sizes
    for left_out in (fields, {**fields, "output_tensor": None}):
        again, whole = type(desc)(**left_out), type(desc)(**{**fields, "output_tensor": output})
        assert again == whole and hash(again) == hash(whole)
        assert serialize(again) == serialize(whole)
        assert "output_tensor" not in repr(again)


@given(DESCRIPTORS)
def test_a_repr_evaluates_to_an_equal_descriptor(desc: OperatorDesc) -> None:
    again = eval(repr(desc), dict(NAMES))
    assert again == desc and type(again) is type(desc)
    assert repr(again) == repr(desc) == str(desc)
    for name, bits in desc.bit_fields.items():
        assert getattr(again, bits) == getattr(desc, bits), name


@given(DESCRIPTORS)
def test_a_descriptor_comes_back_from_json_and_pickle(desc: OperatorDesc) -> None:
    assert deserialize(json.loads(json.dumps(serialize(desc)))) == desc == pickle.loads(pickle.dumps(desc))


def test_a_record_without_an_output_is_read() -> None:
    desc = Slice1Desc(
        input_tensor=TensorDesc("int8", (5,)),
        input_window_offsets=(0,),
        input_window_sizes=(5,),
        input_window_strides=(2,),
    )
    record = serialize(desc)
    del record["output_tensor"]
    assert deserialize(record) == desc


class TestShortReprs:
    def test_of_a_slice(self) -> None:
        fields = {"input_window_offsets": (0, 0), "input_window_sizes": (4, 6), "input_window_strides": (2, -1)}
        desc = Slice1Desc(input_tensor=TensorDesc("uint8", (4, 6)), **fields)  # type: ignore[arg-type]
        window = ", ".join(f"{name}={value}" for name, value in fields.items())
        assert repr(desc) == f"Slice1Desc(input_tensor=TensorDesc('uint8', (4, 6)), {window})"
        smaller = dataclasses.replace(desc, output_tensor=TensorDesc("uint8", (1, 6)))
        assert f"output_tensor=TensorDesc('uint8', (1, 6)), {window}" in repr(smaller)

    def test_of_a_convolution_with_a_plain_output(self) -> None:
        one = TensorDesc("float32", (1,))
        desc = QuantizedLinearConvolutionDesc(
            input_tensor=TensorDesc("uint8", (1, 16, 32, 32)),
            input_scale_tensor=one,
            filter_tensor=TensorDesc("int8", (8, 16, 3, 3), flags=TensorFlags.OWNED_BY_DML),
            filter_scale_tensor=one,
            output_scale_tensor=one,
            strides=(2, 2),
            dilations=(1, 1),
            start_padding=(1, 1),
            end_padding=(1, 1),
            group_count=1,
        )
        text = repr(desc)
        assert len(text) < 500 and "None" not in text and "output_tensor" not in text
        assert "filter_tensor=TensorDesc('int8', (8, 16, 3, 3), flags=TensorFlags.OWNED_BY_DML)" in text

    @pytest.mark.parametrize(
        ("value", "data_type", "text"),
        [
            (7, "float32", "7.0"),
            (0.1, "float32", "0.1"),
            (np.float16(0.1), "float16", "0.1"),
            (0.1, "float64", "0.1"),
            (1 / 3, "float64", "0.3333333333333333"),
            (5e-324, "float64", "5e-324"),
            (1.7976931348623157e308, "float64", "1.7976931348623157e+308"),
            (np.finfo(np.float32).max, "float32", "3.4028235e+38"),
            (-0.0, "float16", "-0.0"),
            (65504, "float16", "65504.0"),
            (float("nan"), "float32", "float('nan')"),
            (float("-inf"), "float64", "float('-inf')"),
            (b"\x01\x00\xc0\x7f", "float32", r"b'\x01\x00\xc0\x7f'"),
            (np.int8(-3), "int8", "-3"),
            (2**64 - 1, "uint64", "18446744073709551615"),
            (b"\xff", "uint8", "255"),
        ],
    )
    def test_a_value_is_the_shortest_text_with_its_bits(self, value: Any, data_type: str, text: str) -> None:
        desc = DiagonalMatrix1Desc(
            output_tensor=TensorDesc(data_type, (2, 2)), value=value, diagonal_fill_begin=0, diagonal_fill_end=1
        )
        output = f"TensorDesc('{data_type}', (2, 2))"
        expected = f"output_tensor={output}, value={text}, diagonal_fill_begin=0, diagonal_fill_end=1"
        assert repr(desc) == f"DiagonalMatrix1Desc({expected})"

    @pytest.mark.parametrize(
        ("value", "data_type", "text"),
        [(10.6, "int64", "10.6"), (np.float32(0.1), "float64", "0.1"), (float("nan"), "float16", "float('nan')")],
    )
    def test_the_predecessor_s_value_is_a_float_whatever_the_output_is(
        self, value: float, data_type: str, text: str
    ) -> None:
        desc = DiagonalMatrixDesc(output_tensor=TensorDesc(data_type, (2, 2)), offset=-1, value=value)
        output = f"TensorDesc('{data_type}', (2, 2))"
        assert repr(desc) == f"DiagonalMatrixDesc(output_tensor={output}, offset=-1, value={text})"


@pytest.mark.parametrize("data_type", DataType)
def test_values_of_every_data_type_come_back(data_type: DataType) -> None:
    for bits in (b"\0", b"\x01", b"\x7f", b"\x80", b"\xff"):
        desc = DiagonalMatrix1Desc(
            output_tensor=TensorDesc(data_type, (2, 2)),
            value=bits * data_type.size_in_bytes,
            diagonal_fill_begin=0,
            diagonal_fill_end=1,
        )
        assert eval(repr(desc), dict(NAMES)).value_bytes == desc.value_bytes
