"""Descriptors: every operator of the format, from and to DirectML's names; errors name the field in that spelling."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk import DataType, TensorDesc, TensorFlags
from dmlvk.dxdispatch.descriptors import UNION_MEMBERS, read_descriptor, write_descriptor
from dmlvk.dxdispatch.document import DocumentNode
from dmlvk.operators import OperatorDesc
from dmlvk.operators.registry import OPERATORS
from tests.dxdispatch.models import refused

SCALE = {"DataType": "FLOAT32", "Sizes": [1, 1, 1, 1]}
BYTE = {"DataType": "UINT8", "Sizes": [1, 1, 1, 1]}
PLANE = {"DataType": "FLOAT32", "Sizes": [3, 5]}

# A descriptor of each operator, by hand, in the format's spelling, and the same as dmlvk's own.
BY_HAND: dict[str, tuple[dict[str, Any], OperatorDesc]] = {
    "ELEMENT_WISE_QUANTIZED_LINEAR_ADD": (
        {
            "ATensor": {"DataType": "UINT8", "Sizes": [4, 6]},
            "AScaleTensor": {"DataType": "FLOAT32", "Sizes": [1, 1]},
            "AZeroPointTensor": {"DataType": "UINT8", "Sizes": [1, 1]},
            "BTensor": {"DataType": "INT8", "Sizes": [4, 6]},
            "BScaleTensor": {"DataType": "FLOAT32", "Sizes": [1, 1]},
            "BZeroPointTensor": {"DataType": "INT8", "Sizes": [1, 1]},
            "OutputScaleTensor": {"DataType": "FLOAT32", "Sizes": [1, 1]},
            "OutputZeroPointTensor": {"DataType": "UINT8", "Sizes": [1, 1]},
            "OutputTensor": {"DataType": "UINT8", "Sizes": [4, 6]},
        },
        dmlvk.ElementWiseQuantizedLinearAddDesc(
            a_tensor=TensorDesc(DataType.UINT8, (4, 6)),
            a_scale_tensor=TensorDesc(DataType.FLOAT32, (1, 1)),
            a_zero_point_tensor=TensorDesc(DataType.UINT8, (1, 1)),
            b_tensor=TensorDesc(DataType.INT8, (4, 6)),
            b_scale_tensor=TensorDesc(DataType.FLOAT32, (1, 1)),
            b_zero_point_tensor=TensorDesc(DataType.INT8, (1, 1)),
            output_scale_tensor=TensorDesc(DataType.FLOAT32, (1, 1)),
            output_zero_point_tensor=TensorDesc(DataType.UINT8, (1, 1)),
            output_tensor=TensorDesc(DataType.UINT8, (4, 6)),
        ),
    ),
    "ELEMENT_WISE_QUANTIZE_LINEAR": (
        {
            "InputTensor": {"DataType": "FLOAT32", "Sizes": [4, 6]},
            "ScaleTensor": {"DataType": "FLOAT32", "Sizes": [1, 1]},
            "ZeroPointTensor": {"DataType": "UINT8", "Sizes": [1, 1]},
            "OutputTensor": {"DataType": "UINT8", "Sizes": [4, 6]},
        },
        dmlvk.ElementWiseQuantizeLinearDesc(
            input_tensor=TensorDesc(DataType.FLOAT32, (4, 6)),
            scale_tensor=TensorDesc(DataType.FLOAT32, (1, 1)),
            zero_point_tensor=TensorDesc(DataType.UINT8, (1, 1)),
            output_tensor=TensorDesc(DataType.UINT8, (4, 6)),
        ),
    ),
    "ELEMENT_WISE_DEQUANTIZE_LINEAR": (
        {
            "InputTensor": {"DataType": "INT8", "Sizes": [4, 6]},
            "ScaleTensor": {"DataType": "FLOAT32", "Sizes": [1, 1]},
            "ZeroPointTensor": {"DataType": "INT8", "Sizes": [1, 1]},
            "OutputTensor": {"DataType": "FLOAT32", "Sizes": [4, 6]},
        },
        dmlvk.ElementWiseDequantizeLinearDesc(
            input_tensor=TensorDesc(DataType.INT8, (4, 6)),
            scale_tensor=TensorDesc(DataType.FLOAT32, (1, 1)),
            zero_point_tensor=TensorDesc(DataType.INT8, (1, 1)),
            output_tensor=TensorDesc(DataType.FLOAT32, (4, 6)),
        ),
    ),
    "ELEMENT_WISE_ADD": (
        {
            "ATensor": {"DataType": "FLOAT32", "Sizes": [4, 6]},
            "BTensor": {"DataType": "FLOAT32", "Sizes": [4, 6], "Strides": [0, 1]},
            "OutputTensor": {"DataType": "FLOAT32", "Sizes": [4, 6]},
        },
        dmlvk.ElementWiseAddDesc(
            a_tensor=TensorDesc(DataType.FLOAT32, (4, 6)),
            b_tensor=TensorDesc(DataType.FLOAT32, (4, 6), (0, 1)),
            output_tensor=TensorDesc(DataType.FLOAT32, (4, 6)),
        ),
    ),
    "ACTIVATION_RELU": (
        {
            "InputTensor": {"DataType": "FLOAT32", "Sizes": [4, 6]},
            "OutputTensor": {"DataType": "FLOAT32", "Sizes": [4, 6]},
        },
        dmlvk.ActivationReluDesc(
            input_tensor=TensorDesc(DataType.FLOAT32, (4, 6)), output_tensor=TensorDesc(DataType.FLOAT32, (4, 6))
        ),
    ),
    "SLICE": (
        {
            "InputTensor": {"DataType": "INT16", "Sizes": [4, 6]},
            "OutputTensor": {"DataType": "INT16", "Sizes": [2, 2], "Strides": [4, 2]},
            "DimensionCount": 2,
            "Offsets": [1, 0],
            "Sizes": [2, 2],
            "Strides": [2, 3],
        },
        dmlvk.SliceDesc(
            input_tensor=TensorDesc(DataType.INT16, (4, 6)),
            output_tensor=TensorDesc(DataType.INT16, (2, 2), (4, 2)),
            offsets=(1, 0),
            sizes=(2, 2),
            strides=(2, 3),
        ),
    ),
    "SLICE1": (
        {
            "InputTensor": {"DataType": "DML_TENSOR_DATA_TYPE_UINT64", "Sizes": [4, 6], "Strides": [0, 1]},
            "OutputTensor": {"DataType": "UINT64", "Sizes": [4, 2], "TotalTensorSizeInBytes": 128},
            "DimensionCount": 2,
            "InputWindowOffsets": [0, 1],
            "InputWindowSizes": [4, 5],
            "InputWindowStrides": [1, -4],
        },
        dmlvk.Slice1Desc(
            input_tensor=TensorDesc(DataType.UINT64, (4, 6), (0, 1)),
            output_tensor=TensorDesc(DataType.UINT64, (4, 2), total_size_in_bytes=128),
            input_window_offsets=(0, 1),
            input_window_sizes=(4, 5),
            input_window_strides=(1, -4),
        ),
    ),
    "DIAGONAL_MATRIX": (
        {"OutputTensor": PLANE, "Offset": -2, "Value": 0.1},
        dmlvk.DiagonalMatrixDesc(output_tensor=TensorDesc(DataType.FLOAT32, (3, 5)), offset=-2, value=0.1),
    ),
    "DIAGONAL_MATRIX1": (
        {
            "InputTensor": {"Type": "DML_TENSOR_TYPE_BUFFER", "Desc": PLANE},
            "OutputTensor": {**PLANE, "DimensionCount": 2, "Flags": ["NONE"], "Strides": []},
            "ValueDataType": "FLOAT32",
            "Value": {"Float32": "-inf"},
            "DiagonalFillBegin": -(2**31),
            "DiagonalFillEnd": 2,
        },
        dmlvk.DiagonalMatrix1Desc(
            input_tensor=TensorDesc(DataType.FLOAT32, (3, 5)),
            output_tensor=TensorDesc(DataType.FLOAT32, (3, 5)),
            value=-np.inf,
            diagonal_fill_begin=-(2**31),
            diagonal_fill_end=2,
        ),
    ),
    "ONE_HOT": (
        {
            "IndicesTensor": {"DataType": "INT64", "Sizes": [3, 1], "GuaranteedBaseOffsetAlignment": 64},
            "ValuesTensor": {"DataType": "UINT8", "Sizes": [1, 2]},
            "OutputTensor": {"DataType": "UINT8", "Sizes": [3, 9], "TotalTensorSizeInBytes": 0},
            "Axis": 1,
        },
        dmlvk.OneHotDesc(
            indices_tensor=TensorDesc(DataType.INT64, (3, 1), guaranteed_base_offset_alignment=64),
            values_tensor=TensorDesc(DataType.UINT8, (1, 2)),
            output_tensor=TensorDesc(DataType.UINT8, (3, 9)),
            axis=1,
        ),
    ),
    "QUANTIZED_LINEAR_CONVOLUTION": (
        {
            "InputTensor": {"DataType": "UINT8", "Sizes": [2, 4, 9, 8]},
            "InputScaleTensor": SCALE,
            "InputZeroPointTensor": BYTE,
            "FilterTensor": {"DataType": "INT8", "Sizes": [6, 2, 3, 2], "Flags": "DML_TENSOR_FLAG_OWNED_BY_DML"},
            "FilterScaleTensor": {"DataType": "FLOAT32", "Sizes": [1, 6, 1, 1]},
            "BiasTensor": {"DataType": "INT32", "Sizes": [1, 6, 1, 1]},
            "OutputScaleTensor": SCALE,
            "OutputTensor": {"DataType": "INT8", "Sizes": [2, 6, 5, 6]},
            "DimensionCount": 2,
            "Strides": [2, 1],
            "Dilations": [1, 3],
            "StartPadding": [1, 0],
            "EndPadding": [1, 1],
            "GroupCount": 2,
        },
        dmlvk.QuantizedLinearConvolutionDesc(
            input_tensor=TensorDesc(DataType.UINT8, (2, 4, 9, 8)),
            input_scale_tensor=TensorDesc(DataType.FLOAT32, (1, 1, 1, 1)),
            input_zero_point_tensor=TensorDesc(DataType.UINT8, (1, 1, 1, 1)),
            filter_tensor=TensorDesc(DataType.INT8, (6, 2, 3, 2), flags=TensorFlags.OWNED_BY_DML),
            filter_scale_tensor=TensorDesc(DataType.FLOAT32, (1, 6, 1, 1)),
            bias_tensor=TensorDesc(DataType.INT32, (1, 6, 1, 1)),
            output_scale_tensor=TensorDesc(DataType.FLOAT32, (1, 1, 1, 1)),
            output_tensor=TensorDesc(DataType.INT8, (2, 6, 5, 6)),
            strides=(2, 1),
            dilations=(1, 3),
            start_padding=(1, 0),
            end_padding=(1, 1),
            group_count=2,
        ),
    ),
    "MAX_POOLING2": (
        {
            "InputTensor": {"DataType": "INT64", "Sizes": [2, 4, 9, 8]},
            "OutputTensor": {"DataType": "INT64", "Sizes": [2, 4, 5, 5]},
            "OutputIndicesTensor": {"DataType": "UINT32", "Sizes": [2, 4, 5, 5]},
            "DimensionCount": 2,
            "Strides": [2, 1],
            "WindowSize": [3, 2],
            "StartPadding": [1, 0],
            "EndPadding": [1, 0],
            "Dilations": [1, 3],
        },
        dmlvk.MaxPooling2Desc(
            input_tensor=TensorDesc(DataType.INT64, (2, 4, 9, 8)),
            output_tensor=TensorDesc(DataType.INT64, (2, 4, 5, 5)),
            output_indices_tensor=TensorDesc(DataType.UINT32, (2, 4, 5, 5)),
            strides=(2, 1),
            window_size=(3, 2),
            start_padding=(1, 0),
            end_padding=(1, 0),
            dilations=(1, 3),
        ),
    ),
    "QUANTIZED_LINEAR_AVERAGE_POOLING": (
        {
            "InputTensor": {"DataType": "UINT8", "Sizes": [2, 4, 9, 8]},
            "InputScaleTensor": SCALE,
            "InputZeroPointTensor": BYTE,
            "OutputScaleTensor": SCALE,
            "OutputTensor": {"DataType": "INT8", "Sizes": [2, 4, 5, 7]},
            "DimensionCount": 2,
            "Strides": [2, 1],
            "WindowSize": [3, 2],
            "StartPadding": [1, 0],
            "EndPadding": [1, 0],
            "Dilations": [1, 1],
            "IncludePadding": 1,
        },
        dmlvk.QuantizedLinearAveragePoolingDesc(
            input_tensor=TensorDesc(DataType.UINT8, (2, 4, 9, 8)),
            input_scale_tensor=TensorDesc(DataType.FLOAT32, (1, 1, 1, 1)),
            input_zero_point_tensor=TensorDesc(DataType.UINT8, (1, 1, 1, 1)),
            output_scale_tensor=TensorDesc(DataType.FLOAT32, (1, 1, 1, 1)),
            output_tensor=TensorDesc(DataType.INT8, (2, 4, 5, 7)),
            strides=(2, 1),
            window_size=(3, 2),
            start_padding=(1, 0),
            end_padding=(1, 0),
            dilations=(1, 1),
            include_padding=True,
        ),
    ),
}


def read(dispatchable: dict[str, Any]) -> OperatorDesc:
    return read_descriptor(DocumentNode("model.json", "dispatchables.x", dispatchable))[0]


def with_desc(name: str, changes: dict[str, Any], absent: str = "") -> dict[str, Any]:
    """A model with one dispatchable; `changes` by path in its descriptor."""
    desc = copy.deepcopy(BY_HAND[name][0])
    for path, value in changes.items():
        *parents, last = path.split(".")
        holder = desc
        for parent in parents:
            holder = holder[parent]
        holder[last] = value
    desc.pop(absent, None)
    return {"resources": {}, "dispatchables": {"x": {"type": name, "desc": desc}}, "commands": []}


def test_every_operator_is_here() -> None:
    """All of DirectML's; seven are dmlvk's own."""
    own = {"BYTE_LAYER_NORMALIZATION", "BYTE_RESAMPLE", "BYTE_SOFTMAX", "BYTE_TABLE", "BYTE_TABLE_MEAN"}
    own |= {"QUANTIZED_LINEAR_CONVOLUTION_ADD", "QUANTIZED_LINEAR_CONVOLUTION_TABLE"}
    assert {*BY_HAND, *own} == {desc.operator_name for desc in OPERATORS}


@pytest.mark.parametrize("name", BY_HAND)
@pytest.mark.parametrize("form", ["Desc", "desc", "beside"])
@pytest.mark.parametrize("prefix", ["", "DML_OPERATOR_"])
def test_a_descriptor_is_read(name: str, form: str, prefix: str) -> None:
    desc, expected = BY_HAND[name]
    fields = desc if form == "beside" else {form: desc}
    assert read({"type": prefix + name, **fields}) == expected


@pytest.mark.parametrize("name", BY_HAND)
def test_what_is_written_is_read_again(name: str) -> None:
    written = write_descriptor(BY_HAND[name][1])
    assert written["type"] == f"DML_OPERATOR_{name}"
    assert read(written) == BY_HAND[name][1]


@pytest.mark.parametrize("name", BY_HAND)
def test_the_fields_are_those_of_the_format(name: str) -> None:
    """DxDispatch knows no other names: what is written by hand and what dmlvk writes have the same."""
    written = write_descriptor(BY_HAND[name][1])["desc"]
    assert set(written) == set(BY_HAND[name][0])
    for field, value in BY_HAND[name][0].items():
        if not isinstance(value, dict) and field != "Value":
            assert written[field] == value


@pytest.mark.parametrize("name", BY_HAND)
def test_every_field_is_required_unless_the_operator_can_do_without(tmp_path: Path, name: str) -> None:
    desc, expected = BY_HAND[name]
    for field in desc:
        snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in field)[1:]
        if snake in expected.optional_fields:
            assert getattr(read({"type": name, "desc": {k: v for k, v in desc.items() if k != field}}), snake) is None
        else:
            refused(tmp_path, with_desc(name, {}, field), f"dispatchables.x.desc.{field}", "is missing")


@pytest.mark.parametrize("data_type", list(DataType))
def test_scalar_unions(data_type: DataType) -> None:
    """A number, or an object with the type as its key; FLOAT16 has its bits there."""
    dtype = data_type.numpy_dtype
    number = 0.1 if data_type.is_floating_point else int(np.iinfo(dtype).max)
    tensor = {"DataType": data_type.name, "Sizes": [3, 3]}
    desc = {"OutputTensor": tensor, "ValueDataType": data_type.name, "DiagonalFillBegin": 0, "DiagonalFillEnd": 1}
    bits = np.array(number, dtype)
    member = {
        DataType.FLOAT32: "Float32", DataType.FLOAT16: "UInt16", DataType.FLOAT64: "Float64",
        DataType.UINT8: "UInt8", DataType.UINT16: "UInt16", DataType.UINT32: "UInt32", DataType.UINT64: "UInt64",
        DataType.INT8: "Int8", DataType.INT16: "Int16", DataType.INT32: "Int32", DataType.INT64: "Int64",
    }[data_type]  # fmt: skip
    assert UNION_MEMBERS[data_type] == member
    value = int(bits.view(np.uint16)) if data_type is DataType.FLOAT16 else number
    for given in (number, {member: value}):
        found = read({"type": "DIAGONAL_MATRIX1", "desc": {**desc, "Value": given}})
        assert isinstance(found, dmlvk.DiagonalMatrix1Desc)
        assert found.value_bytes == bits.tobytes()


def test_only_the_object_of_a_scalar_union_takes_text(tmp_path: Path) -> None:
    name = "DIAGONAL_MATRIX1"
    found = read({"type": name, "desc": {**BY_HAND[name][0], "Value": {"Float32": "NaN"}}})
    assert isinstance(found, dmlvk.DiagonalMatrix1Desc)
    assert np.isnan(np.frombuffer(found.value_bytes, np.float32)).all()
    refused(tmp_path, with_desc(name, {"Value": "nan"}), "dispatchables.x.desc.Value", "a number")
    refused(tmp_path, with_desc(name, {"Value": {"Float64": 1}}), "dispatchables.x.desc.Value.Float32", "is missing")
    read({"type": "DIAGONAL_MATRIX", "desc": {**BY_HAND["DIAGONAL_MATRIX"][0], "Value": "inf"}})


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("hlsl", "runs no hlsl"),
        ("ONNX", "runs no ONNX"),
        ("DmlSerializedGraph", "runs no DmlSerializedGraph"),
        ("DML_OPERATOR_GEMM", "does not have this operator"),
        ("slice1", "does not have this operator"),
        ("DML_OPERATOR_DML_OPERATOR_SLICE1", "does not have this operator"),
    ],
)
def test_other_dispatchables_are_refused_by_name_before_all_else(tmp_path: Path, kind: str, shown: str) -> None:
    model = {"resources": {"A": {"initialValues": "deferred"}}, "dispatchables": {"x": {"type": kind}}, "commands": 3}
    refused(tmp_path, model, "dispatchables.x.type", repr(kind), shown, "SLICE1")


@pytest.mark.parametrize(
    ("name", "changes", "key"),
    [
        ("SLICE1", {"InputTensor.Sizes": [4, 6.0]}, "InputTensor.Sizes[1]"),
        ("SLICE1", {"InputTensor.Sizes": [4, 0]}, "InputTensor.Sizes[1]"),
        ("SLICE1", {"InputTensor.Sizes": [4, 2**32]}, "InputTensor.Sizes[1]"),
        ("SLICE1", {"InputTensor.Sizes": []}, "InputTensor.Sizes"),
        ("SLICE1", {"InputTensor.Sizes": 4}, "InputTensor.Sizes"),
        ("SLICE1", {"InputTensor.Strides": [1]}, "InputTensor.Strides"),
        ("SLICE1", {"InputTensor.Strides": [-1, 1]}, "InputTensor.Strides[0]"),
        ("SLICE1", {"InputTensor.DataType": "FLOAT8"}, "InputTensor.DataType"),
        ("SLICE1", {"InputTensor.DimensionCount": 3}, "InputTensor.DimensionCount"),
        ("SLICE1", {"InputTensor.Flags": "OWNED"}, "InputTensor.Flags"),
        ("SLICE1", {"InputTensor.Flags": ["NONE", 3]}, "InputTensor.Flags[1]"),
        ("SLICE1", {"InputTensor.Type": "TEXTURE"}, "InputTensor.Type"),
        ("SLICE1", {"InputTensor.TotalTensorSizeInBytes": 4}, "InputTensor.TotalTensorSizeInBytes"),
        ("SLICE1", {"InputTensor.GuaranteedBaseOffsetAlignment": 3}, "InputTensor.GuaranteedBaseOffsetAlignment"),
        ("SLICE1", {"InputTensor": None}, "InputTensor"),
        ("SLICE1", {"DimensionCount": 3}, "InputWindowOffsets"),
        ("SLICE1", {"InputWindowSizes": [4]}, "InputWindowSizes"),
        ("SLICE1", {"InputWindowSizes": [4, 6]}, "InputWindowSizes[1]"),
        ("SLICE1", {"InputWindowStrides": [1, 2**31]}, "InputWindowStrides[1]"),
        ("SLICE1", {"InputWindowStrides": [1, 0]}, "InputWindowStrides[1]"),
        ("SLICE1", {"InputWindowOffsets": 3}, "InputWindowOffsets"),
        ("SLICE1", {"OutputTensor.DataType": "INT64"}, "OutputTensor.DataType"),
        ("SLICE1", {"OutputTensor.Strides": [1, 1]}, "OutputTensor.Strides"),
        ("SLICE", {"Offsets": [-1, 0]}, "Offsets[0]"),
        ("DIAGONAL_MATRIX", {"Offset": 2**31}, "Offset"),
        ("DIAGONAL_MATRIX", {"Offset": [1]}, "Offset"),
        ("DIAGONAL_MATRIX", {"Value": 1e39}, "Value"),
        ("DIAGONAL_MATRIX1", {"ValueDataType": "INT32", "Value": 3}, "ValueDataType"),
        ("DIAGONAL_MATRIX1", {"InputTensor.Desc.Sizes": [3, 0]}, "InputTensor.Desc.Sizes[1]"),
        ("ONE_HOT", {"Axis": -1}, "Axis"),
        ("ONE_HOT", {"Axis": 2}, "Axis"),
        ("QUANTIZED_LINEAR_CONVOLUTION", {"GroupCount": 3}, "GroupCount"),
        ("QUANTIZED_LINEAR_CONVOLUTION", {"EndPadding": [1, 1, 1]}, "EndPadding"),
        ("QUANTIZED_LINEAR_CONVOLUTION", {"OutputTensor.Sizes": [2, 6, 5, 5]}, "OutputTensor.Sizes"),
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_field_is_named(tmp_path: Path, name: str, changes: dict[str, Any], key: str) -> None:
    refused(tmp_path, with_desc(name, changes), f"dispatchables.x.desc.{key}")


@pytest.mark.parametrize(
    ("member", "good", "bad"),
    [
        ("dmlCompileType", ["DmlCompileOp", "DmlCompileGraph"], ["dmlcompileop", 3]),
        ("executionFlags", ["NONE", ["DML_EXECUTION_FLAG_DISABLE_META_COMMANDS", "NONE"]], ["FAST", 1]),
    ],
)
def test_hints_are_checked(tmp_path: Path, member: str, good: list[Any], bad: list[Any]) -> None:
    model = with_desc("SLICE1", {})
    for value in good:
        model["dispatchables"]["x"][member] = value
        (tmp_path / "model.json").write_text(json.dumps(model))
        dmlvk.dxdispatch.load(tmp_path / "model.json")
    for value in bad:
        model["dispatchables"]["x"][member] = value
        refused(tmp_path, model, f"dispatchables.x.{member}")


def test_a_nan_that_the_format_cannot_express_is_not_written() -> None:
    desc = BY_HAND["DIAGONAL_MATRIX1"][1]
    assert isinstance(desc, dmlvk.DiagonalMatrix1Desc)
    usual = dataclasses.replace(desc, value=np.float32(np.nan))
    assert read(write_descriptor(usual)) == usual
    with pytest.raises(ValueError, match="7fc01234"):
        write_descriptor(dataclasses.replace(desc, value=np.uint32(0x7FC01234).tobytes()))
