"""What all descriptors have in common: an output that may be left out, and a repr that makes an equal descriptor."""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import dmlvk
from dmlvk.conformance.cases.invalid import broken_rules, valid
from dmlvk.data_type import DataType
from dmlvk.errors import DescriptorError
from dmlvk.operators import (
    DiagonalMatrix1Desc,
    DiagonalMatrixDesc,
    OperatorDesc,
    QuantizedLinearConvolutionDesc,
    Slice1Desc,
)
from dmlvk.operators.declared import (
    EIGHT_BIT_TYPES,
    axis,
    boolean,
    one_a_channel,
    operator,
    result,
    same_as,
    scale,
    source,
    zero_point,
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
    assert list(STRATEGIES) == list(OPERATORS)


@given(DESCRIPTORS)
def test_the_output_is_always_there(desc: OperatorDesc) -> None:
    output = desc.tensors["output_tensor"]
    assert isinstance(output, TensorDesc) and output is getattr(desc, "output_tensor")  # noqa: B009
    assert next(name for name in desc.tensors if name in desc.output_fields) == "output_tensor"


@given(DESCRIPTORS)
def test_an_output_that_is_left_out_is_the_packed_one_that_fits(desc: OperatorDesc) -> None:
    """It is of the sizes that any other output has; SLICE1 alone may write less than its window gives."""
    fields = arguments(desc)
    written_out = fields.pop("output_tensor")
    rule = desc.tensor_rules["output_tensor"]
    if not rule.is_optional or (isinstance(desc, DiagonalMatrix1Desc) and desc.input_tensor is None):
        with pytest.raises(DescriptorError, match=r"output_tensor = None: must be a TensorDesc: .*no other field says"):
            type(desc)(**fields)
        return
    output = type(desc)(**fields).tensors["output_tensor"]
    assert output.strides is None and output.flags is TensorFlags.NONE
    assert output.total_size_in_bytes == output.minimum_size_in_bytes and not output.guaranteed_base_offset_alignment
    from_others = [fields[name].data_type for name in rule.type_from if fields[name] is not None]
    # Where no field says the data type, it is the first of those that the rule has.
    first = rule.types[0] if isinstance(rule.types, tuple) else written_out.data_type
    assert output.data_type is (from_others[0] if from_others else first)
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
    # Its hash is remembered, and is another one in another process.
    before = set(vars(desc)) - {"_hash"}
    assert hash(desc) == hash(desc) == hash(dataclasses.replace(desc))
    assert set(vars(pickle.loads(pickle.dumps(desc)))) == before


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


@operator("SAMPLE", number=99, family="element_wise")
class SampleDesc(OperatorDesc):
    """A declaration with fields of the kinds that few operators have."""

    a_tensor: TensorDesc = source(EIGHT_BIT_TYPES)
    a_scale_tensor: TensorDesc = scale("a_tensor", rank=same_as("a_tensor"), sizes=one_a_channel("a_tensor"))
    b_tensor: TensorDesc | None = source(same_as("a_tensor"), sizes=same_as("a_tensor"), default=None)
    output_scale_tensor: TensorDesc = scale("output_tensor")
    output_zero_point_tensor: TensorDesc | None = zero_point("output_tensor", default=None)
    output_tensor: TensorDesc = result(
        EIGHT_BIT_TYPES, sizes=same_as("a_tensor"), type_from=("output_zero_point_tensor", "a_tensor"), default=None
    )
    indices_tensor: TensorDesc | None = result(DataType.UINT32, sizes=same_as("output_tensor"), default=None)
    axis: int | None = axis("a_tensor", default=None)
    is_padded: bool = boolean()


class TestASample:
    """Rules that are said with a declaration alone."""

    GIVEN: Mapping[str, Any] = {
        "a_tensor": TensorDesc("uint8", (2, 3, 4)),
        "a_scale_tensor": TensorDesc("float32", (1, 3, 1)),
        "output_scale_tensor": TensorDesc("float32", (1,)),
        "is_padded": np.True_,
    }

    def test_what_follows_from_it(self) -> None:
        assert (SampleDesc.stem, SampleDesc.number, SampleDesc.successor) == ("sample", 99, None)
        assert SampleDesc.input_fields == (*("a_tensor", "a_scale_tensor", "b_tensor"), *SampleDesc.input_fields[3:])
        assert SampleDesc.input_fields[3:] == ("output_scale_tensor", "output_zero_point_tensor")
        assert SampleDesc.output_fields == ("output_tensor", "indices_tensor")
        assert SampleDesc.optional_fields == ("b_tensor", "output_zero_point_tensor", "indices_tensor", "axis")
        desc = SampleDesc(**self.GIVEN)
        assert desc.output_tensor == TensorDesc("uint8", (2, 3, 4)) and list(desc.tensors)[-1] == "output_tensor"
        assert desc.is_padded is True and desc.axis is None and desc.indices_tensor is None
        signed = SampleDesc(**self.GIVEN, output_zero_point_tensor=TensorDesc("int8", (1,)))
        assert signed.output_tensor == TensorDesc("int8", (2, 3, 4)) and signed != desc
        assert "output_tensor" not in repr(signed) and hash(signed) == hash(dataclasses.replace(signed))

    @pytest.mark.parametrize(
        ("field", "changes", "rule"),
        [
            ("a_tensor", {"a_tensor": None}, "must be a TensorDesc, not NoneType"),
            ("b_tensor", {"b_tensor": 3}, "must be a TensorDesc, not int"),
            ("indices_tensor", {"indices_tensor": 3}, "must be a TensorDesc, not int"),
            ("a_tensor.data_type", {"a_tensor": TensorDesc("int16", (2, 3, 4))}, "SAMPLE does not take this data type"),
            ("b_tensor.data_type", {"b_tensor": TensorDesc("int8", (2, 3, 4))}, "b_tensor and a_tensor must have the"),
            ("b_tensor.sizes", {"b_tensor": TensorDesc("uint8", (3, 4))}, "mismatched ranks: b_tensor and a_tensor"),
            ("b_tensor.sizes", {"b_tensor": TensorDesc("uint8", (1, 3, 4))}, "must equal the sizes of a_tensor; an in"),
            ("output_tensor.sizes", {"output_tensor": TensorDesc("int8", (2, 3, 5))}, "must equal the sizes of a_tens"),
            ("a_scale_tensor.sizes", {"a_scale_tensor": TensorDesc("float32", (3,))}, "mismatched ranks: a_scale_ten"),
            ("a_scale_tensor.sizes", {"a_scale_tensor": TensorDesc("float32", (2, 1, 1))}, r"for each channel \(3\)"),
            ("output_scale_tensor.sizes", {"output_scale_tensor": TensorDesc("float32", (3,))}, "must have one elemen"),
            (
                "output_zero_point_tensor.data_type",
                {"output_zero_point_tensor": TensorDesc("int32", (1,))},
                "SAMPLE does not take this data type here; expected one of INT8, UINT8",
            ),
            (
                "output_zero_point_tensor.data_type",
                {
                    "output_zero_point_tensor": TensorDesc("uint8", (1,)),
                    "output_tensor": TensorDesc("int8", (2, 3, 4)),
                },
                "output_zero_point_tensor and output_tensor must have the same DataType",
            ),
            ("indices_tensor.sizes", {"indices_tensor": TensorDesc("uint32", (2, 3, 5))}, "sizes of output_tensor"),
            (
                "indices_tensor.strides",
                {"indices_tensor": TensorDesc("uint32", (2, 3, 4), (0, 4, 1))},
                "elements of an output may not overlap",
            ),
            ("axis", {"axis": 3}, "must be less than the DimensionCount of a_tensor, which is 3"),
            ("is_padded", {"is_padded": 1}, "must be True or False, not int"),
        ],
    )
    def test_each_rule_is_broken(self, field: str, changes: Mapping[str, Any], rule: str) -> None:
        with pytest.raises(DescriptorError, match=rule) as caught:
            SampleDesc(**{**self.GIVEN, **changes})
        assert caught.value.field == field

    def test_an_output_that_nothing_implies_has_to_be_given(self) -> None:
        @operator("OTHER_SAMPLE", number=98, family="element_wise")
        class OtherDesc(OperatorDesc):
            input_tensor: TensorDesc = source()
            output_tensor: TensorDesc = result()

        with pytest.raises(DescriptorError, match="no other field says how large the output is"):
            OtherDesc(input_tensor=TensorDesc("int8", (3,)))  # type: ignore[call-arg]


class TestBrokenRules:
    """One refusal a rule, from the declaration alone."""

    @pytest.mark.parametrize("declared", [*OPERATORS, SampleDesc], ids=lambda declared: declared.stem)
    def test_each_is_refused_where_it_is_broken(self, declared: type[OperatorDesc]) -> None:
        broken = broken_rules(declared)
        for rule, changes in broken.items():
            with pytest.raises(DescriptorError) as caught:
                declared(**changed(valid(declared), changes))
            (place,) = changes
            assert caught.value.field.split(".")[0].split("[")[0] == place.partition(".")[0], rule
        for name, rule_of_field in declared.rules.items():
            assert any(place.partition(".")[0] == name for changes in broken.values() for place in changes), (
                rule_of_field
            )

    def test_the_sample_s(self) -> None:
        rules = broken_rules(SampleDesc)
        some = ("a_absent", "a_scale_sizes", "b_rank", "indices_sizes", "axis_negative", "is_padded_no_truth_value")
        assert set(some) < set(rules)
        assert "output_zero_point_absent" not in rules and len(rules) > 20


def changed(desc: OperatorDesc, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a descriptor with changes, which are named as the conformance suite names them."""
    fields = arguments(desc)
    for place, value in changes.items():
        name, _, member = place.partition(".")
        if member:
            tensor = fields[name]
            value = {"data_type": DataType.__getitem__}.get(member, lambda value: value)(value)
            value = (0,) * tensor.rank if value == "broadcast" else value
            kept = {"data_type": tensor.data_type, "sizes": tensor.sizes}
            value = TensorDesc(**{**kept, member: value})
        elif name == "value_data_type":
            value = DataType[value]
        fields[name] = value
    return fields
