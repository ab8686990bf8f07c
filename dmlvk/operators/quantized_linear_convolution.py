"""QUANTIZED_LINEAR_CONVOLUTION: convolution of 8-bit tensors, each with a scale and a zero point."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NoReturn, TypeAlias

from dmlvk.data_type import DataType
from dmlvk.operators.declared import (
    BIAS,
    EIGHT_BIT_TYPES,
    Choices,
    OperatorDesc,
    integer,
    integers,
    one_a_channel,
    operator,
    result,
    same_as,
    scale,
    source,
    zero_point,
)
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.tensor_desc import MAXIMUM_UINT32, TensorDesc

# The spatial arrays, with the least value of an element and the neutral value that does not change a dimension.
SPATIAL_FIELDS = {"strides": (1, 1), "dilations": (1, 1), "start_padding": (0, 0), "end_padding": (0, 0)}

# The arguments of `_fail`.
Mistake: TypeAlias = "tuple[str, object, str, str]"
# Fields of errors that may come of dimensions in another order.
ORDERED = ("input_tensor.sizes", "filter_tensor.sizes", "filter_tensor.sizes[1]", "group_count")


def output_size(
    input_size: int, filter_size: int, stride: int, dilation: int, start_padding: int, end_padding: int
) -> int:
    """The output's size along one dimension; less than 1 if the dilated filter is larger than the padded input."""
    return (input_size + start_padding + end_padding - (1 + (filter_size - 1) * dilation)) // stride + 1


@dataclass(frozen=True)
class ConvolutionGeometry:
    """A convolution as rank 4, for any rank of its descriptor. Pairs are (height, width).

    Attributes:
        batch, input_channels, output_channels, group_count (int):
        input_size, filter_size, output_size (tuple of 2 int):
        strides, dilations, start_padding, end_padding (tuple of 2 int):
        input_strides, filter_strides, output_strides (tuple of 4 int): Element strides of the tensors along N, C, H and
            W; the height of a rank 3 tensor, which is 1, has stride 0.
    """

    batch: int
    input_channels: int
    output_channels: int
    group_count: int
    input_size: tuple[int, int]
    filter_size: tuple[int, int]
    output_size: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    start_padding: tuple[int, int]
    end_padding: tuple[int, int]
    input_strides: tuple[int, int, int, int]
    filter_strides: tuple[int, int, int, int]
    output_strides: tuple[int, int, int, int]

    @property
    def input_channels_per_group(self) -> int:
        """Channels of the input that one output channel sees; the filter's second size."""
        return self.input_channels // self.group_count

    @property
    def output_channels_per_group(self) -> int:
        return self.output_channels // self.group_count

    @property
    def input_sizes(self) -> tuple[int, int, int, int]:
        """Sizes of the input along N, C, H and W."""
        return self.batch, self.input_channels, *self.input_size

    @property
    def output_sizes(self) -> tuple[int, int, int, int]:
        """Sizes of the output along N, C, H and W."""
        return self.batch, self.output_channels, *self.output_size

    @property
    def filter_sizes(self) -> tuple[int, int, int, int]:
        """Sizes of the filter along M, C, H and W."""
        return self.output_channels, self.input_channels_per_group, *self.filter_size

    @property
    def tap_count(self) -> int:
        """Multiply-adds for one output element, including those on padding."""
        return self.input_channels_per_group * math.prod(self.filter_size)


PER_CHANNEL = one_a_channel("filter_tensor", 0, noun="output channel")
ONE_A_CHANNEL = one_a_channel("filter_tensor", 0, noun="output channel", or_one=False)


def _spatial_count(desc: QuantizedLinearConvolutionDesc) -> tuple[int, ...]:
    return (2,) if desc.input_tensor.rank == 4 else (1, 2)


def spatial(least: int) -> Any:
    """An integer for each spatial dimension."""
    return integers(least, MAXIMUM_UINT32, f"must be {least} or more", count=_spatial_count)


@operator("QUANTIZED_LINEAR_CONVOLUTION", number=4, family="products")
class QuantizedLinearConvolutionDesc(OperatorDesc):
    """DML_QUANTIZED_LINEAR_CONVOLUTION_OPERATOR_DESC: dequantize, cross-correlate, quantize, in exact integers between.

    acc = sum over the taps inside the input of (x - zx)(w - zw), plus bias; m = f32(f32(sx * sw[c]) / sy);
    y = clamp(nearest_even(f32(f32(acc) * m)) + zy). Padding is real zero, so its taps add nothing.

    Args:
        input_tensor (TensorDesc): INT8 or UINT8, {N, C, H, W}, or {N, C, W}, which is treated as {N, C, 1, W}.
        filter_tensor (TensorDesc): INT8 or UINT8, {M, C / group_count, H, W}, or {M, C / group_count, W}.
        output_tensor (TensorDesc, optional): INT8 or UINT8, {N, M, H, W} or {N, M, W}; each spatial size is exactly
            floor((input + start + end - (1 + (filter - 1) * dilation)) / stride) + 1. By default it has the data type
            of output_zero_point_tensor, or else of input_tensor, and is packed.
        input_scale_tensor (TensorDesc): FLOAT32, rank 1 to 4, one element.
        output_scale_tensor (TensorDesc): FLOAT32, in the forms of `input_scale_tensor`.
        filter_scale_tensor (TensorDesc): FLOAT32, one element of rank 1 to 4, or one an output channel: {M}, {1, M},
            {1, M, 1} or {1, M, 1, 1}.
        input_zero_point_tensor (TensorDesc, optional): The input's data type, in the forms of `input_scale_tensor`. An
            absent tensor means 0.
        output_zero_point_tensor (TensorDesc, optional): The output's data type, in the forms of `input_scale_tensor`.
            An absent tensor means 0.
        filter_zero_point_tensor (TensorDesc, optional): The filter's data type, in the forms of `filter_scale_tensor`;
            either may be one per channel without the other. An absent tensor means 0.
        bias_tensor (TensorDesc, optional): INT32, {1, M, 1, 1} or {1, M, 1}, in units of input scale times filter
            scale.
        strides (sequence of int): How far the filter moves, 1 or more; (height, width) for rank 4. Rank 3 takes one
            element, or two with a first element of 1.
        dilations (sequence of int): The distance of the filter's taps, in the forms of `strides`; 1 for neighbours.
        start_padding (sequence of int): Zeros before the input, 0 or more; (height, width) for rank 4. Rank 3 takes one
            element, or two with a first element of 0.
        end_padding (sequence of int): Zeros behind the input, in the forms of `start_padding`. The padded input has at
            most 2**32 - 1 positions along each dimension.
        group_count (int): Divides C and M.

    Source: the page DML_QUANTIZED_LINEAR_CONVOLUTION_OPERATOR_DESC. It lists rank 3 but only two spatial dimensions,
    so the arrays have two forms. It says nothing about per-channel shapes below rank 4. Here the channel is dimension
    1, or the only dimension.

    >>> scalar = dmlvk.TensorDesc("float32", [1])
    >>> desc = dmlvk.QuantizedLinearConvolutionDesc(
    ...     input_tensor=dmlvk.TensorDesc("uint8", [1, 3, 224, 224]),
    ...     input_scale_tensor=scalar,
    ...     filter_tensor=dmlvk.TensorDesc("int8", [64, 3, 7, 7], flags=dmlvk.TensorFlags.OWNED_BY_DML),
    ...     filter_scale_tensor=dmlvk.TensorDesc("float32", [64]),
    ...     output_scale_tensor=scalar,
    ...     strides=[2, 2],
    ...     dilations=[1, 1],
    ...     start_padding=[3, 3],
    ...     end_padding=[3, 3],
    ...     group_count=1,
    ... )
    >>> desc.output_tensor
    TensorDesc('uint8', (1, 64, 112, 112))
    """

    input_tensor: TensorDesc = source(EIGHT_BIT_TYPES, rank=(3, 4))
    input_scale_tensor: TensorDesc = scale("input_tensor")
    input_zero_point_tensor: TensorDesc | None = zero_point("input_tensor", default=None)
    filter_tensor: TensorDesc = source(EIGHT_BIT_TYPES, rank=same_as("input_tensor"))
    filter_scale_tensor: TensorDesc = scale("filter_tensor", sizes=PER_CHANNEL)
    filter_zero_point_tensor: TensorDesc | None = zero_point("filter_tensor", sizes=PER_CHANNEL, default=None)
    bias_tensor: TensorDesc | None = source(
        DataType.INT32, rank=same_as("input_tensor"), sizes=ONE_A_CHANNEL, role=BIAS, default=None
    )
    output_scale_tensor: TensorDesc = scale("output_tensor")
    output_zero_point_tensor: TensorDesc | None = zero_point("output_tensor", default=None)
    output_tensor: TensorDesc = result(
        EIGHT_BIT_TYPES,
        rank=same_as("input_tensor"),
        type_from=("output_zero_point_tensor", "input_tensor"),
        default=None,
    )
    strides: Sequence[int] = spatial(1)
    dilations: Sequence[int] = spatial(1)
    start_padding: Sequence[int] = spatial(0)
    end_padding: Sequence[int] = spatial(0)
    group_count: int = integer(1, MAXIMUM_UINT32, "must be 1 or more")

    @classmethod
    def tied(cls, choose: Choices, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Channels that groups divide, and filters no larger than the padded input."""
        rank, groups = fields["input_tensor"].rank, choose.integer("group_count", 1, 3)
        channels, filters = (groups * choose.integer("channels", 1, 3) for _ in range(2))
        sizes = {
            "input_tensor": (choose.integer("batch", 1, 2), channels, *choose.sizes("pixels", rank - 2)),
            "filter_tensor": (filters, channels // groups, *(choose.integer("taps", 1, 3) for _ in range(rank - 2))),
            "bias_tensor": (1, filters, 1, 1)[:rank],
        }
        for name in ("filter_scale_tensor", "filter_zero_point_tensor"):
            if name in fields:
                one = (1,) * fields[name].rank
                sizes[name] = choose.one_of(f"{name}.is_per_channel", (one, PER_CHANNEL.sizes_of((filters,), len(one))))
        tied: dict[str, Any] = {
            name: choose.tensor(name, fields[name].data_type, extents)
            for name, extents in sizes.items()
            if name in fields
        }
        missing = [max(0, 9 - extent) for extent in sizes["input_tensor"][2:]]
        tied["start_padding"] = [choose.integer("start_padding", least, least + 3) for least in missing]
        tied["end_padding"] = [choose.integer("end_padding", 0, 3) for _ in missing]
        for name in ("strides", "dilations"):
            tied[name] = [choose.integer(name, 1, 3) for _ in missing]
        return {**tied, "group_count": groups}

    def check(self) -> None:
        """Check the spatial arrays and the numbers of channels."""
        self._check_spatial_arrays()
        self._check_channels()

    def _fail(self, field: str, value: object, rule: str, expected: str | None = None) -> NoReturn:
        """Say what a picture, or a filter, of another order of dimensions needs, in place of what does not fit then."""
        mistake = None
        if (
            field in ORDERED
            and isinstance(self.input_tensor, TensorDesc)
            and isinstance(self.filter_tensor, TensorDesc)
        ):
            is_batch = self.input_tensor.rank == self.filter_tensor.rank
            mistake = self._channels_last() if is_batch else self._picture()
        super()._fail(*(mistake or (field, value, rule, expected)))

    def _picture(self) -> Mistake | None:
        """The commonest mistake: an input that is a picture and no batch. Says how it becomes one."""
        sizes, filters = self.input_tensor.sizes, self.filter_tensor.sizes
        if len(sizes) == 2:
            rule = f"{self.operator_name} takes 3 to 4 dimensions here, not 2; is it one gray picture, {{H, W}}? "
            rule += "array[np.newaxis, np.newaxis] is {N, C, H, W}"
            return "input_tensor.sizes", sizes, rule, f"{(1, 1, *sizes)}"
        if len(sizes) != 3 or len(filters) != 4:
            return None
        rule = f"must be {{N, C, H, W}}, as filter_tensor {filters} is {{M, C / group_count, H, W}}; is it one picture"
        if sizes[0] != self._filtered_channels and self._may_be_last(sizes):
            rule += (
                ", channels last, {H, W, C}? np.moveaxis(array, -1, 0)[np.newaxis], which is "
                "np.transpose(array, (2, 0, 1))[np.newaxis]"
            )
            return "input_tensor.sizes", sizes, rule, f"{(1, sizes[2], *sizes[:2])}"
        rule += ", {C, H, W}? array[np.newaxis]; or a batch of gray ones? array[:, np.newaxis]"
        return "input_tensor.sizes", sizes, rule, f"{(1, *sizes)} or {(sizes[0], 1, *sizes[1:])}"

    @property
    def _filtered_channels(self) -> int | None:
        """The channels of the input that the filter fits; None if group_count, which may be unchecked, is no number."""
        return self.filter_tensor.sizes[1] * self.group_count if isinstance(self.group_count, int) else None

    def _may_be_last(self, sizes: Sequence[int]) -> bool:
        """Whether the last size of an input looks like its channels: it fits the filter, or is that of a picture."""
        return sizes[-1] == self._filtered_channels or (sizes[-1] in (1, 3, 4) and min(sizes[-3:-1]) > 4)

    def _channels_last(self) -> Mistake | None:
        """What to do about channels that come last, if they do not fit as they are."""
        channels, sizes, filters = self._filtered_channels, self.input_tensor.sizes, self.filter_tensor.sizes
        rest = "W" if len(sizes) == 3 else "H, W"
        if sizes[1] == channels or not 3 <= len(sizes) <= 4:
            return None
        if sizes[-1] == channels or (self._may_be_last(sizes) and len(sizes) == 4):
            moved = (sizes[0], sizes[-1], *sizes[1:-1])
            strides = (math.prod(sizes[1:]), 1, *(math.prod(sizes[k + 1 :]) for k in range(1, len(sizes) - 1)))
            axes = (0, len(sizes) - 1, *range(1, len(sizes) - 1))
            rule = (
                f"must be {{N, C, {rest}}} with C = {channels}, as filter_tensor {filters} has it, and here C is "
                f"{sizes[1]}; is it channels last, {{N, {rest}, C}}? np.moveaxis(array, -1, 1), which is "
                f"np.transpose(array, {axes}), or without a copy "
                f"TensorDesc('{self.input_tensor.data_type}', {moved}, strides={strides})"
            )
            return "input_tensor.sizes", sizes, rule, str((sizes[0], channels, *sizes[1:-1]))
        rule = f"must be {{M, C, {rest}}} with C = {sizes[1]}, as input_tensor {sizes} has it; is it "
        if self.group_count == 1 and filters[-1] == sizes[1]:
            rule += f"channels last, {{M, {rest}, C}}? np.moveaxis(filter, -1, 1)"
            return "filter_tensor.sizes", filters, rule, str((filters[0], filters[-1], *filters[1:-1]))
        if self.group_count == 1 and len(filters) == 4 and filters[2] == sizes[1]:
            rule += "TensorFlow's {H, W, C, M}? np.transpose(filter, (3, 2, 0, 1))"
            return "filter_tensor.sizes", filters, rule, str((filters[3], filters[2], *filters[:2]))
        return None

    def _check_spatial_arrays(self) -> None:
        for name, (_, neutral) in SPATIAL_FIELDS.items():
            values = getattr(self, name)
            if len(values) != len(self.strides):
                rule = f"strides, dilations and paddings must have one length; strides has {len(self.strides)} elements"
                self._fail(name, values, rule, f"{len(self.strides)} elements")
            if self.input_tensor.rank == 3 and len(values) == 2 and values[0] != neutral:
                rule = "the first of two elements must be neutral, because a tensor of rank 3 has height 1"
                self._fail(f"{name}[0]", values[0], rule, str(neutral))

    def _check_channels(self) -> None:
        channels, groups = self.input_tensor.sizes[1], self.group_count
        filters, filter_channels = self.filter_tensor.sizes[:2]
        if channels % groups:
            self._fail("group_count", groups, f"must divide the number of channels of input_tensor, {channels}")
        if filters % groups:
            self._fail("group_count", groups, f"must divide the number of output channels of filter_tensor, {filters}")
        if filter_channels != channels // groups:
            rule = f"must be the number of channels of input_tensor divided by group_count, {channels} / {groups}"
            self._fail("filter_tensor.sizes[1]", filter_channels, rule, str(channels // groups))

    def _convolved_sizes(self) -> tuple[int, ...]:
        """The sizes that the output must have."""
        sizes = [self.input_tensor.sizes[0], self.filter_tensor.sizes[0]]
        for dimension in range(2, self.input_tensor.rank):
            size, taps = self.input_tensor.sizes[dimension], self.filter_tensor.sizes[dimension]
            k = dimension - self.input_tensor.rank
            stride, dilation = self.strides[k], self.dilations[k]
            start, end = self.start_padding[k], self.end_padding[k]
            if size + start + end > MAXIMUM_UINT32:
                field = "start_padding" if start > end else "end_padding"
                padded = f"the padded input, {size} + {start} + {end} = {size + start + end}"
                rule = f"{padded}, may have at most 2**32 - 1 positions"
                self._fail(f"{field}[{k + len(self.strides)}]", getattr(self, field)[k], rule, "less padding")
            sizes.append(output_size(size, taps, stride, dilation, start, end))
            if sizes[-1] < 1:
                rule = (
                    f"the dilated filter, 1 + (size - 1) * dilation = {1 + (taps - 1) * dilation}, "
                    f"may not be larger than the padded input, {size} + {start} + {end} = {size + start + end}"
                )
                self._fail(f"filter_tensor.sizes[{dimension}]", taps, rule, "a smaller filter or more padding")
        return tuple(sizes)

    def output_sizes(self) -> tuple[int, ...]:
        """The sizes that the other fields give."""
        sizes = self._convolved_sizes()
        if math.prod(sizes) > MAXIMUM_UINT32:
            rule = "the other fields give an output of these sizes, and a tensor has at most 2**32 - 1 elements"
            self._fail("output_tensor.sizes", sizes, f"{rule}, not {math.prod(sizes)}")
        return sizes

    def check_output(self) -> None:
        """Check that the output has the sizes that the other fields give."""
        sizes, expected = self.output_tensor.sizes, self._convolved_sizes()
        if sizes[0] != expected[0]:
            self._fail("output_tensor.sizes[0]", sizes[0], "must be the batch of input_tensor", str(expected[0]))
        if sizes[1] != expected[1]:
            rule = "must be the first size of filter_tensor: the output channels"
            self._fail("output_tensor.sizes[1]", sizes[1], rule, str(expected[1]))
        if sizes != expected:
            rule = "must be floor((input + start + end padding - (1 + (filter - 1) * dilation)) / stride) + 1"
            self._fail("output_tensor.sizes", sizes, rule, str(expected))

    @cached_property
    def convolution(self) -> QuantizedLinearConvolutionDesc:
        """The convolution alone, of an operator that does more with its output, which lies as the last one does."""
        names = [field.name for field in fields(QuantizedLinearConvolutionDesc) if field.init]
        return QuantizedLinearConvolutionDesc(**{name: getattr(self, name) for name in names})

    @cached_property
    def geometry(self) -> ConvolutionGeometry:
        """Sizes, strides and paddings in the form of rank 4."""
        return ConvolutionGeometry(
            batch=self.input_tensor.sizes[0],
            input_channels=self.input_tensor.sizes[1],
            output_channels=self.filter_tensor.sizes[0],
            group_count=self.group_count,
            input_size=_pair(self.input_tensor.sizes[2:], 1),
            filter_size=_pair(self.filter_tensor.sizes[2:], 1),
            output_size=_pair(self.output_tensor.sizes[2:], 1),
            strides=_pair(self.strides, 1),
            dilations=_pair(self.dilations, 1),
            start_padding=_pair(self.start_padding, 0),
            end_padding=_pair(self.end_padding, 0),
            input_strides=_four_strides(self.input_tensor),
            filter_strides=_four_strides(self.filter_tensor),
            output_strides=_four_strides(self.output_tensor),
        )

    def channel_stride(self, field: str) -> int:
        """Elements from one output channel's entry to the next in a scale, zero point or bias; 0 if all share one.

        Args:
            field (str): Such as "filter_scale_tensor" or "bias_tensor"; the tensor must be there.
        """
        tensor: TensorDesc = getattr(self, field)
        if tensor.element_count == 1:
            return 0
        return tensor.element_strides[min(1, tensor.rank - 1)]

    @property
    def minimum_feature_level(self) -> FeatureLevel | None:
        """2.1 if all tensors have rank 4; 5.2 for a filter scale of rank 1 or 2; 4.0 for other ranks."""
        if self.filter_scale_tensor.rank < 3:
            return FeatureLevel.FEATURE_LEVEL_5_2
        if any(tensor.rank != 4 for tensor in self.tensors.values()):
            return FeatureLevel.FEATURE_LEVEL_4_0
        return FeatureLevel.FEATURE_LEVEL_2_1


def _pair(values: Sequence[int], neutral: int) -> tuple[int, int]:
    return (values[0], values[1]) if len(values) == 2 else (neutral, values[0])


def _four_strides(tensor: TensorDesc) -> tuple[int, int, int, int]:
    strides = tensor.element_strides
    return (strides[0], strides[1], strides[2] if tensor.rank == 4 else 0, strides[-1])
