"""The rules of DML_QUANTIZED_LINEAR_CONVOLUTION_OPERATOR_DESC, and its feature levels."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

from dmlvk.data_type import DataType
from dmlvk.errors import DescriptorError
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.tensor_desc import TensorDesc, TensorFlags

INT8, UINT8, FLOAT32, INT32 = DataType.INT8, DataType.UINT8, DataType.FLOAT32, DataType.INT32
ONE = TensorDesc(FLOAT32, (1, 1, 1, 1))


def describe(**changes: Any) -> QuantizedLinearConvolutionDesc:
    """An input of sizes {2, 4, 10, 9} and 6 filters of sizes {4, 3, 2}, with changes."""
    fields: dict[str, Any] = {
        "input_tensor": TensorDesc(UINT8, (2, 4, 10, 9)),
        "input_scale_tensor": ONE,
        "filter_tensor": TensorDesc(INT8, (6, 4, 3, 2)),
        "filter_scale_tensor": TensorDesc(FLOAT32, (1, 6, 1, 1)),
        "output_scale_tensor": ONE,
        "output_tensor": TensorDesc(UINT8, (2, 6, 5, 9)),
        "strides": (2, 1),
        "dilations": (1, 3),
        "start_padding": (1, 0),
        "end_padding": (0, 3),
        "group_count": 1,
    }
    return QuantizedLinearConvolutionDesc(**(fields | changes))


def describe_rank_3(**changes: Any) -> QuantizedLinearConvolutionDesc:
    fields: dict[str, Any] = {
        "input_tensor": TensorDesc(UINT8, (2, 4, 9)),
        "filter_tensor": TensorDesc(INT8, (6, 4, 2)),
        "output_tensor": TensorDesc(UINT8, (2, 6, 4)),
        "strides": (2,),
        "dilations": (3,),
        "start_padding": (0,),
        "end_padding": (2,),
    }
    return describe(**(fields | changes))


def refused(field: str, value: object, rule: str, /, make: Any = describe, **changes: Any) -> DescriptorError:
    with pytest.raises(DescriptorError) as caught:
        make(**changes)
    assert (caught.value.descriptor, caught.value.field) == ("QuantizedLinearConvolutionDesc", field)
    assert caught.value.value == value
    assert rule in caught.value.rule
    assert field in str(caught.value) and repr(value) in str(caught.value)
    return caught.value


def test_geometry_of_rank_4() -> None:
    geometry = describe().geometry
    assert (geometry.batch, geometry.input_channels, geometry.output_channels, geometry.group_count) == (2, 4, 6, 1)
    assert (geometry.input_size, geometry.filter_size, geometry.output_size) == ((10, 9), (3, 2), (5, 9))
    assert (geometry.strides, geometry.dilations) == ((2, 1), (1, 3))
    assert (geometry.start_padding, geometry.end_padding) == ((1, 0), (0, 3))
    assert geometry.input_strides == (360, 90, 9, 1)
    assert geometry.tap_count == 24


def test_rank_3_is_seen_with_a_height_of_1() -> None:
    geometry = describe_rank_3().geometry
    assert (geometry.input_size, geometry.filter_size, geometry.output_size) == ((1, 9), (1, 2), (1, 4))
    assert (geometry.strides, geometry.dilations) == ((1, 2), (1, 3))
    assert (geometry.start_padding, geometry.end_padding) == ((0, 0), (0, 2))
    assert geometry.input_strides == (36, 9, 0, 1)


def test_rank_3_takes_two_element_arrays_with_a_neutral_first() -> None:
    desc = describe_rank_3(strides=(1, 2), dilations=(1, 3), start_padding=(0, 0), end_padding=(0, 2))
    assert desc.geometry == describe_rank_3().geometry


@pytest.mark.parametrize(
    ("field", "value"), [("strides", 2), ("dilations", 2), ("start_padding", 1), ("end_padding", 1)]
)
def test_rank_3_refuses_a_first_element_that_is_not_neutral(field: str, value: int) -> None:
    arrays = {"strides": (1, 2), "dilations": (1, 3), "start_padding": (0, 0), "end_padding": (0, 2)}
    arrays[field] = (value, arrays[field][1])
    refused(f"{field}[0]", value, "height 1", make=describe_rank_3, **arrays)


def test_without_an_output_its_sizes_follow() -> None:
    assert describe(output_tensor=None) == describe()
    assert describe_rank_3(output_tensor=None) == describe_rank_3()
    strided = TensorDesc(UINT8, (2, 4, 10, 9), (360, 1, 36, 4), flags=TensorFlags.OWNED_BY_DML)
    assert describe(output_tensor=None, input_tensor=strided).output_tensor == TensorDesc(UINT8, (2, 6, 5, 9))


def test_without_an_output_its_type_is_the_zero_point_s_or_the_input_s() -> None:
    for zero_point in (INT8, UINT8):
        desc = describe(output_tensor=None, output_zero_point_tensor=TensorDesc(zero_point, (1,)))
        assert desc.output_tensor.data_type is zero_point
    assert describe(output_tensor=None, input_tensor=TensorDesc(INT8, (2, 4, 10, 9))).output_tensor.data_type is INT8


def test_without_an_output_errors_are_about_the_other_fields() -> None:
    left_out: dict[str, Any] = {"output_tensor": None}
    refused("filter_tensor.sizes[2]", 3, "larger than the padded input", **left_out, dilations=(9, 3))
    refused("strides[0]", 0, "1 or more", **left_out, strides=(0, 1))
    refused("end_padding", (1,), "one element for each dimension", **left_out, end_padding=(1,))
    refused("group_count", 3, "must divide the number of channels", **left_out, group_count=3)
    error = refused(
        "output_zero_point_tensor.data_type", "FLOAT32", "does not take", **left_out, output_zero_point_tensor=ONE
    )
    assert error.expected == "one of INT8, UINT8"
    refused("filter_tensor.sizes", (6, 4, 3), "mismatched ranks", **left_out, filter_tensor=TensorDesc(INT8, (6, 4, 3)))
    refused("output_tensor", 5, "must be a TensorDesc, not int", output_tensor=5)


@pytest.mark.parametrize("end_padding", [(2**32 - 99, 0), (2**16, 2**16)])
def test_without_an_output_it_may_not_be_larger_than_a_tensor(end_padding: tuple[int, int]) -> None:
    with pytest.raises(DescriptorError, match=r"the other fields give an output of these sizes, .* at most") as caught:
        describe(output_tensor=None, end_padding=end_padding)
    assert caught.value.field == "output_tensor.sizes" and str(caught.value.value).startswith("(2, 6, ")


def test_tensors_are_listed_in_order() -> None:
    point, scalar = TensorDesc(UINT8, (1,)), TensorDesc(INT8, (1,))
    desc = describe(
        input_zero_point_tensor=point, filter_zero_point_tensor=scalar, output_zero_point_tensor=point,
        bias_tensor=TensorDesc(INT32, (1, 6, 1, 1)),
    )  # fmt: skip
    assert tuple(desc.tensors) == (*desc.input_fields, "output_tensor")
    assert len(describe().tensors) == 6
    assert hash(desc) != hash(describe()) and desc != describe() and describe() == describe(strides=np.array([2, 1]))


@pytest.mark.parametrize(
    "field", ["input_tensor", "input_scale_tensor", "filter_tensor", "filter_scale_tensor", "output_scale_tensor"]
)
def test_tensors_must_be_there(field: str) -> None:
    refused(field, None, "must be a TensorDesc", **{field: None})


@pytest.mark.parametrize("field", ["input_tensor", "filter_tensor", "output_tensor"])
@pytest.mark.parametrize("data_type", [t for t in DataType if t not in (INT8, UINT8)])
def test_data_is_int8_or_uint8(field: str, data_type: DataType) -> None:
    sizes = getattr(describe(), field).sizes
    error = refused(f"{field}.data_type", data_type.name, "does not take", **{field: TensorDesc(data_type, sizes)})
    assert error.expected == "one of INT8, UINT8"


@pytest.mark.parametrize("types", list(itertools.product([INT8, UINT8], repeat=3)))
def test_input_filter_and_output_types_are_independent(types: tuple[DataType, DataType, DataType]) -> None:
    describe(
        input_tensor=TensorDesc(types[0], (2, 4, 10, 9)), filter_tensor=TensorDesc(types[1], (6, 4, 3, 2)),
        output_tensor=TensorDesc(types[2], (2, 6, 5, 9)),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["input", "filter", "output"])
def test_a_zero_point_has_the_data_type_of_its_tensor(name: str) -> None:
    field, other = f"{name}_zero_point_tensor", UINT8 if name == "filter" else INT8
    rule = f"{field} and {name}_tensor must have the same DataType"
    refused(f"{field}.data_type", other.name, rule, **{field: TensorDesc(other, (1,))})


@pytest.mark.parametrize("name", ["input", "filter", "output"])
def test_scales_are_float32(name: str) -> None:
    field = f"{name}_scale_tensor"
    error = refused(f"{field}.data_type", "FLOAT64", "does not take", **{field: TensorDesc(DataType.FLOAT64, (1,))})
    assert error.expected == "FLOAT32"


def test_bias_is_int32() -> None:
    bias = TensorDesc(FLOAT32, (1, 6, 1, 1))
    assert refused("bias_tensor.data_type", "FLOAT32", "does not take", bias_tensor=bias).expected == "INT32"


@pytest.mark.parametrize("rank", [1, 2, 5, 8])
def test_data_has_3_or_4_dimensions(rank: int) -> None:
    tensor = TensorDesc(UINT8, (1,) * rank)
    refused("input_tensor.sizes", tensor.sizes, "takes 3 to 4 dimensions", input_tensor=tensor)


@pytest.mark.parametrize("field", ["filter_tensor", "output_tensor", "bias_tensor"])
def test_data_and_bias_have_the_same_dimension_count(field: str) -> None:
    tensor = TensorDesc(INT32 if field == "bias_tensor" else INT8, (1, 6, 1))
    refused(f"{field}.sizes", (1, 6, 1), "same DimensionCount", **{field: tensor})


@pytest.mark.parametrize("name", ["input", "output"])
@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_input_and_output_scales_and_zero_points_have_one_element(name: str, rank: int) -> None:
    one, six = (1,) * rank, (1, 6, 1, 1)[:rank] if rank > 1 else (6,)
    describe(**{f"{name}_scale_tensor": TensorDesc(FLOAT32, one), f"{name}_zero_point_tensor": TensorDesc(UINT8, one)})
    for field, data_type in ((f"{name}_scale_tensor", FLOAT32), (f"{name}_zero_point_tensor", UINT8)):
        refused(f"{field}.sizes", six, "must have one element", **{field: TensorDesc(data_type, six)})


@pytest.mark.parametrize("field", ["input_scale_tensor", "filter_scale_tensor", "output_zero_point_tensor"])
def test_scales_and_zero_points_have_at_most_4_dimensions(field: str) -> None:
    tensor = TensorDesc(FLOAT32 if "scale" in field else UINT8, (1,) * 5)
    refused(f"{field}.sizes", (1,) * 5, "takes 1 to 4 dimensions", **{field: tensor})


@pytest.mark.parametrize("scale", [(1,), (6,), (1, 6), (1, 6, 1), (1, 6, 1, 1), (1, 1, 1)])
@pytest.mark.parametrize("zero_point", [None, (1,), (6,), (1, 6), (1, 6, 1), (1, 6, 1, 1)])
def test_filter_scale_and_zero_point_are_per_channel_independently(
    scale: tuple[int, ...], zero_point: tuple[int, ...] | None
) -> None:
    for make in (describe, describe_rank_3):
        desc = make(
            filter_scale_tensor=TensorDesc(FLOAT32, scale),
            filter_zero_point_tensor=None if zero_point is None else TensorDesc(INT8, zero_point),
        )
        assert desc.channel_stride("filter_scale_tensor") == (1 if 6 in scale else 0)
        if zero_point is not None:
            assert desc.channel_stride("filter_zero_point_tensor") == (1 if 6 in zero_point else 0)


@pytest.mark.parametrize(
    "sizes", [(4,), (6, 1), (1, 1, 6), (6, 1, 1), (1, 1, 1, 6), (6, 1, 1, 1), (1, 5, 1, 1), (2, 3)]
)
@pytest.mark.parametrize("field", ["filter_scale_tensor", "filter_zero_point_tensor"])
def test_other_shapes_per_channel_are_refused(field: str, sizes: tuple[int, ...]) -> None:
    tensor = TensorDesc(FLOAT32 if "scale" in field else INT8, sizes)
    error = refused(f"{field}.sizes", sizes, "one for each output channel (6)", **{field: tensor})
    assert error.expected is not None and str((1, 6, 1, 1)[: len(sizes)] if len(sizes) > 1 else (6,)) in error.expected


def test_a_scale_per_channel_may_be_a_broadcast_or_strided_view() -> None:
    scale = TensorDesc(FLOAT32, (1, 6, 1, 1), (0, 0, 0, 0), total_size_in_bytes=4)
    assert describe(filter_scale_tensor=scale).channel_stride("filter_scale_tensor") == 0
    scale = TensorDesc(FLOAT32, (1, 6, 1, 1), (99, 5, 7, 7))
    assert describe(filter_scale_tensor=scale).channel_stride("filter_scale_tensor") == 5


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (6, 1, 1, 1), (2, 6, 1, 1), (1, 6, 5, 9)])
def test_bias_has_one_element_an_output_channel(sizes: tuple[int, ...]) -> None:
    bias = TensorDesc(INT32, sizes)
    assert refused("bias_tensor.sizes", sizes, "dimension 1", bias_tensor=bias).expected == "(1, 6, 1, 1)"
    assert describe(bias_tensor=TensorDesc(INT32, (1, 6, 1, 1), (6, 2, 1, 1))).channel_stride("bias_tensor") == 2
    describe_rank_3(bias_tensor=TensorDesc(INT32, (1, 6, 1)))


@pytest.mark.parametrize("field", ["strides", "dilations", "start_padding", "end_padding"])
def test_arrays_have_one_element_a_spatial_dimension(field: str) -> None:
    refused(field, (1,), "one element for each dimension", **{field: (1,)})
    refused(field, (1, 1, 1), "one element for each dimension", **{field: (1, 1, 1)})
    refused(field, (1, 1, 1), "one element for each dimension", make=describe_rank_3, **{field: (1, 1, 1)})
    refused(f"{field}[1]", 1.5, "integer, not float", **{field: (1, 1.5)})


def test_arrays_of_rank_3_have_one_length() -> None:
    refused("dilations", (1, 3), "must have one length", make=describe_rank_3, dilations=(1, 3))


@pytest.mark.parametrize("field", ["strides", "dilations"])
def test_strides_and_dilations_may_not_be_0(field: str) -> None:
    refused(f"{field}[1]", 0, "1 or more", **{field: (1, 0)})


@pytest.mark.parametrize("field", ["start_padding", "end_padding"])
def test_paddings_are_not_negative(field: str) -> None:
    refused(f"{field}[0]", -1, "0 or more", **{field: (-1, 0)})


def test_there_is_at_least_one_group() -> None:
    refused("group_count", 0, "must be 1 or more", group_count=0)


def test_groups_divide_the_input_channels() -> None:
    refused("group_count", 3, "divide the number of channels of input_tensor, 4", group_count=3)


def test_groups_divide_the_output_channels() -> None:
    refused("group_count", 4, "divide the number of output channels of filter_tensor, 6", group_count=4)


def test_filter_channels_are_input_channels_divided_by_groups() -> None:
    error = refused("filter_tensor.sizes[1]", 4, "divided by group_count", group_count=2)
    assert error.expected == "2"
    grouped = describe(group_count=2, filter_tensor=TensorDesc(INT8, (6, 2, 3, 2))).geometry
    assert (grouped.input_channels_per_group, grouped.output_channels_per_group) == (2, 3)


def test_the_output_has_the_batch_of_the_input() -> None:
    output = TensorDesc(UINT8, (3, 6, 5, 9))
    assert refused("output_tensor.sizes[0]", 3, "batch", output_tensor=output).expected == "2"


def test_the_output_has_a_channel_for_each_filter() -> None:
    output = TensorDesc(UINT8, (2, 5, 5, 9))
    assert refused("output_tensor.sizes[1]", 5, "output channels", output_tensor=output).expected == "6"


@pytest.mark.parametrize("size", [(4, 9), (6, 9), (5, 8), (5, 10)])
def test_output_sizes_are_exact(size: tuple[int, int]) -> None:
    output = TensorDesc(UINT8, (2, 6, *size))
    error = refused("output_tensor.sizes", output.sizes, "must be floor(", output_tensor=output)
    assert error.expected == "(2, 6, 5, 9)"
    output = TensorDesc(UINT8, (2, 6, 5))
    error = refused("output_tensor.sizes", (2, 6, 5), "must be floor(", make=describe_rank_3, output_tensor=output)
    assert error.expected == "(2, 6, 4)"


def test_the_dilated_filter_is_not_larger_than_the_padded_input() -> None:
    error = refused(
        "filter_tensor.sizes[3]", 2, "may not be larger than the padded input, 9 + 0 + 3 = 12", dilations=(1, 12)
    )
    assert "= 13" in error.rule
    refused("filter_tensor.sizes[2]", 2, "may not be larger than", make=describe_rank_3, dilations=(11,))
    describe(dilations=(1, 11), output_tensor=TensorDesc(UINT8, (2, 6, 5, 1)))


def test_sizes_do_not_wrap_at_32_bits() -> None:
    padding = (2**31 - 9, 2**31 - 9)
    refused("output_tensor.sizes", (2, 6, 5, 9), "must be floor(", start_padding=padding, end_padding=padding)
    refused("filter_tensor.sizes[2]", 3, "may not be larger than", dilations=(2**32 - 1, 1))


def test_positions_in_the_padded_input_have_32_bits() -> None:
    """Kernels count them modulo 2^32: past that, padding would be input."""
    most = 2**32 - 1 - 10
    rule = "the padded input, 10 + 4294967286 + 0 = 4294967296, may have at most 2**32 - 1 positions"
    refused("start_padding[0]", most + 1, rule, start_padding=(most + 1, 0), strides=(most, 1))
    refused("end_padding[0]", most, "may have at most", start_padding=(1, 0), end_padding=(most, 0), strides=(most, 1))
    output = TensorDesc(UINT8, (2, 6, 2, 6))
    describe(start_padding=(most, 0), end_padding=(0, 0), strides=(most, 1), output_tensor=output)


def test_output_elements_may_not_overlap() -> None:
    output = TensorDesc(UINT8, (2, 6, 5, 9), (0, 45, 9, 1))
    refused("output_tensor.strides", (0, 45, 9, 1), "may not overlap", output_tensor=output)
    describe(output_tensor=TensorDesc(UINT8, (2, 6, 5, 9), (270, 1, 54, 6)))


def test_only_inputs_can_be_owned_by_dml() -> None:
    flags = TensorFlags.OWNED_BY_DML
    describe(filter_tensor=TensorDesc(INT8, (6, 4, 3, 2), flags=flags))
    output = TensorDesc(UINT8, (2, 6, 5, 9), flags=flags)
    refused("output_tensor.flags", flags, "only inputs", output_tensor=output)


def test_feature_level_2_1_takes_rank_4() -> None:
    assert describe(input_zero_point_tensor=TensorDesc(UINT8, (1, 1, 1, 1))).minimum_feature_level == 0x2100


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_feature_level_4_0_takes_other_ranks(rank: int) -> None:
    one = TensorDesc(FLOAT32, (1,) * rank)
    assert describe(input_scale_tensor=one).minimum_feature_level == 0x4000
    assert describe(output_zero_point_tensor=TensorDesc(UINT8, (1,) * rank)).minimum_feature_level == 0x4000
    assert describe(filter_zero_point_tensor=TensorDesc(INT8, (1,) * rank)).minimum_feature_level == 0x4000
    assert describe_rank_3().minimum_feature_level == 0x4000


@pytest.mark.parametrize(("sizes", "level"), [((6,), 0x5200), ((1, 6), 0x5200), ((1, 6, 1), 0x4000), ((1,), 0x5200)])
def test_feature_level_5_2_takes_a_filter_scale_of_rank_1_and_2(sizes: tuple[int, ...], level: int) -> None:
    assert describe(filter_scale_tensor=TensorDesc(FLOAT32, sizes)).minimum_feature_level == level


@pytest.mark.parametrize(
    ("sizes", "filters", "groups", "words", "expected"),
    [
        # A batch with channels last; of groups; of RGBA under a filter of RGB; of rank 3.
        (
            (1, 48, 64, 3),
            (8, 3, 3, 3),
            1,
            "is it channels last, {N, H, W, C}? np.moveaxis(array, -1, 1)",
            (1, 3, 48, 64),
        ),
        ((2, 48, 64, 32), (32, 1, 3, 3), 32, "np.transpose(array, (0, 3, 1, 2))", (2, 32, 48, 64)),
        ((2, 47, 64, 6), (8, 3, 3, 3), 2, "is it channels last", (2, 6, 47, 64)),
        ((1, 48, 64, 4), (8, 3, 3, 3), 1, "is it channels last", (1, 3, 48, 64)),
        ((1, 48, 3), (8, 3, 3), 1, "is it channels last, {N, W, C}? np.moveaxis(array, -1, 1)", (1, 3, 48)),
        # A single picture: in color, gray with a channel, gray without, and with channels first.
        ((48, 64, 3), (8, 3, 3, 3), 1, "is it one picture, channels last, {H, W, C}?", (1, 3, 48, 64)),
        ((48, 64, 4), (8, 3, 3, 3), 1, "np.moveaxis(array, -1, 0)[np.newaxis]", (1, 4, 48, 64)),
        ((48, 64, 1), (8, 1, 3, 3), 1, "is it one picture, channels last", (1, 1, 48, 64)),
        ((48, 64), (8, 1, 3, 3), 1, "is it one gray picture, {H, W}?", (1, 1, 48, 64)),
        ((48, 64), (8, 3, 3), 1, "is it one gray picture", (1, 1, 48, 64)),
        ((3, 48, 64), (8, 3, 3, 3), 1, "is it one picture, {C, H, W}?", (1, 3, 48, 64)),
        ((5, 48, 64), (8, 1, 3, 3), 1, "or a batch of gray ones?", (1, 5, 48, 64)),
    ],
)
def test_a_picture_that_is_not_nchw_is_asked_whether_its_channels_are_last(
    sizes: tuple[int, ...], filters: tuple[int, ...], groups: int, words: str, expected: tuple[int, ...]
) -> None:
    tensors = {"input_tensor": TensorDesc(UINT8, sizes), "filter_tensor": TensorDesc(INT8, filters)}
    changes = tensors | {"filter_scale_tensor": ONE, "output_tensor": None, "group_count": groups}
    make = describe if len(filters) == 4 else describe_rank_3
    error = refused("input_tensor.sizes", sizes, words, make, **changes)
    assert "{N, C, " in error.rule
    assert (error.expected or "").startswith(str(expected))
    # What the message says to do has the order of dimensions that it expects.
    array = np.zeros(sizes, np.uint8)
    calls = re.findall(r"(?:np\.moveaxis\(.*?\)|np\.transpose\(.*?\)\)|array)(?:\[[^]]*\])?(?=[,;. ]|$)", error.rule)
    calls = [call for call in calls if call != "array"]
    assert calls
    assert eval(calls[0], {"np": np, "array": array}).shape[2:] == expected[2:]
    assert (
        len(calls) < 2
        or "np.transpose" not in error.rule
        or (eval(calls[1], {"np": np, "array": array}).shape == eval(calls[0], {"np": np, "array": array}).shape)
    )


def test_strides_of_the_message_describe_the_same_picture_without_a_copy() -> None:
    array = np.random.default_rng(1).integers(0, 256, (2, 5, 7, 3), np.uint8)
    right = {"filter_tensor": TensorDesc(INT8, (6, 3, 3, 2)), "output_tensor": None}
    error = refused("input_tensor.sizes", array.shape, "without a copy", input_tensor=TensorDesc.of(array), **right)
    (text,) = re.findall(r"TensorDesc\(.*\)\)", error.rule)
    desc = eval(text, {"TensorDesc": TensorDesc})
    strided = np.lib.stride_tricks.as_strided(array, desc.sizes, desc.strides)
    assert np.array_equal(strided, np.moveaxis(array, -1, 1))
    assert describe(input_tensor=desc, **right).input_tensor == desc


@pytest.mark.parametrize(
    ("filters", "words", "expected"),
    [
        ((6, 3, 2, 4), "is it channels last, {M, H, W, C}? np.moveaxis(filter, -1, 1)", (6, 4, 3, 2)),
        ((3, 2, 4, 6), "is it TensorFlow's {H, W, C, M}? np.transpose(filter, (3, 2, 0, 1))", (6, 4, 3, 2)),
    ],
)
def test_a_filter_that_is_not_mchw_is_asked_for_its_order(
    filters: tuple[int, ...], words: str, expected: tuple[int, ...]
) -> None:
    tensor = TensorDesc(INT8, filters)
    error = refused("filter_tensor.sizes", filters, words, filter_tensor=tensor, filter_scale_tensor=ONE)
    assert error.expected == str(expected)
    call = words.partition("? ")[2]
    assert eval(call, {"np": np, "filter": np.zeros(filters, np.int8)}).shape == expected


def test_channels_that_fit_nowhere_are_named() -> None:
    error = refused(
        "filter_tensor.sizes[1]", 5, "divided by group_count, 4 / 1", filter_tensor=TensorDesc(INT8, (6, 5, 3, 2))
    )
    assert error.expected == "4"
