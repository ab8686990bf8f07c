"""SLICE1: copies a strided window of a tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmlvk.operators.declared import (
    INT32_MAX,
    INT32_MIN,
    SIXTY_FOUR_BIT_TYPES,
    Choices,
    OperatorDesc,
    dimensions_of,
    integers,
    operator,
    result,
    same_as,
    source,
)
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.tensor_desc import MAXIMUM_UINT32, TensorDesc

DIMENSIONS = dimensions_of("input_tensor")


def maximum_copied_elements(window_sizes: Sequence[int], window_strides: Sequence[int]) -> tuple[int, ...]:
    """The most elements a window gives in each dimension: 1 + (size - 1) / abs(stride), rounded down."""
    return tuple(1 + (size - 1) // abs(stride) for size, stride in zip(window_sizes, window_strides, strict=True))


@operator("SLICE1", number=1, family="data_movement")
class Slice1Desc(OperatorDesc):
    """DML_SLICE1_OPERATOR_DESC: output[c] = input[start + stride * c], a coordinate at a time.

    A dimension with a positive window stride starts at the window's begin, one with a negative stride at its end.

    Args:
        input_tensor (TensorDesc): Rank 1 to 8, any data type.
        output_tensor (TensorDesc, optional): Has the input's data type and rank, and sizes from 1 to 1 + (window size -
            1) / abs(window stride). By default it has the largest of these sizes, and is packed.
        input_window_offsets (sequence of int): Where the window begins along each dimension; 0 or more.
        input_window_sizes (sequence of int): The window's extent along each dimension: 1 or more, and offset + size is
            at most the input's size.
        input_window_strides (sequence of int): Signed 32-bit steps through the window; not 0. They are not the strides
            of the tensors.

    Source: the page DML_SLICE1_OPERATOR_DESC. Its formula of the most copied elements divides by the stride; the
    stride's magnitude is meant. Its example 2 prints InputWindowSizes[0] where [2] is meant. One of its translations
    lets a stride be 0, which the English page forbids and which leaves the output undefined.

    >>> desc = dmlvk.Slice1Desc(
    ...     input_tensor=dmlvk.TensorDesc("uint8", [480, 640]),
    ...     input_window_offsets=[0, 0],
    ...     input_window_sizes=[480, 640],
    ...     input_window_strides=[2, -1],  # every other row, columns from the right
    ... )
    >>> desc.output_tensor
    TensorDesc('uint8', (240, 640))
    """

    input_tensor: TensorDesc = source()
    output_tensor: TensorDesc = result(same_as("input_tensor"), rank=same_as("input_tensor"), default=None)
    input_window_offsets: Sequence[int] = integers(
        0, MAXIMUM_UINT32, "must fit an unsigned 32-bit integer", count=DIMENSIONS
    )
    input_window_sizes: Sequence[int] = integers(1, MAXIMUM_UINT32, "the window may not be empty", count=DIMENSIONS)
    input_window_strides: Sequence[int] = integers(
        INT32_MIN, INT32_MAX, "must fit a signed 32-bit integer", count=DIMENSIONS
    )

    @classmethod
    def tied(cls, choose: Choices, fields: Mapping[str, Any]) -> dict[str, Any]:
        """A window inside the input, and as many of its elements as it gives, or fewer."""
        source: TensorDesc = fields["input_tensor"]
        offsets = [choose.integer("input_window_offsets", 0, size - 1) for size in source.sizes]
        extents = [size - offset for size, offset in zip(source.sizes, offsets, strict=True)]
        sizes = [choose.integer("input_window_sizes", 1, extent) for extent in extents]
        strides = [choose.one_of("input_window_strides", (1, 1, -1, 2, -3, INT32_MAX, INT32_MIN)) for _ in sizes]
        most = maximum_copied_elements(sizes, strides)
        output = [choose.one_of("output_tensor.sizes", (size, choose.integer("less", 1, size))) for size in most]
        return {
            "input_window_offsets": offsets,
            "input_window_sizes": sizes,
            "input_window_strides": strides,
            "output_tensor": choose.tensor("output_tensor", source.data_type, output)
            if choose.one_of("output_tensor.is_present", (True, False))
            else None,
        }

    def check(self) -> None:
        """Check that the window lies inside the input."""
        offsets, sizes, strides = self.input_window_offsets, self.input_window_sizes, self.input_window_strides
        for k, size in enumerate(self.input_tensor.sizes):
            if offsets[k] >= size:
                rule = f"the window may not begin past the end of the input, which has size {size} in dimension {k}"
                self._fail(
                    f"input_window_offsets[{k}]",
                    offsets[k],
                    rule,
                    f"at most {size - sizes[k] if sizes[k] <= size else 0}",
                )
            if offsets[k] + sizes[k] > size:
                end = offsets[k] + sizes[k]
                rule = (
                    f"the window may not extend past the end of the input, which has size {size} in dimension {k}: "
                    f"offset + size is {end}"
                )
                self._fail(f"input_window_sizes[{k}]", sizes[k], rule, f"at most {size - offsets[k]}")
            if strides[k] == 0:
                self._fail(f"input_window_strides[{k}]", 0, "a window stride may not be 0", "1 to copy every element")

    def output_sizes(self) -> tuple[int, ...]:
        """The largest that the window gives."""
        return self.maximum_copied_elements

    def check_output(self) -> None:
        """Check that the window gives as many elements as the output has."""
        most = self.maximum_copied_elements
        for k, size in enumerate(self.output_tensor.sizes):
            if size > most[k]:
                rule = (
                    f"a window of {self.input_window_sizes[k]} with stride {self.input_window_strides[k]} gives "
                    f"at most 1 + (size - 1) / abs(stride) = {most[k]} elements"
                )
                self._fail(f"output_tensor.sizes[{k}]", size, rule, f"sizes of at most {most}")

    @property
    def maximum_copied_elements(self) -> tuple[int, ...]:
        """The largest output sizes that the window gives."""
        return maximum_copied_elements(self.input_window_sizes, self.input_window_strides)

    @property
    def copy_starts(self) -> tuple[int, ...]:
        """The input coordinate that output coordinate 0 copies: the window's begin, or end for a negative stride."""
        windows = zip(self.input_window_offsets, self.input_window_sizes, self.input_window_strides, strict=True)
        return tuple(offset + (size - 1 if stride < 0 else 0) for offset, size, stride in windows)

    @property
    def minimum_feature_level(self) -> FeatureLevel:
        """2.1 for rank 4 and 5, 3.0 for ranks 1 to 8, 4.1 for 64-bit data types."""
        if self.input_tensor.data_type in SIXTY_FOUR_BIT_TYPES:
            return FeatureLevel.FEATURE_LEVEL_4_1
        return FeatureLevel.FEATURE_LEVEL_2_1 if self.input_tensor.rank in (4, 5) else FeatureLevel.FEATURE_LEVEL_3_0


def copy_desc(source: TensorDesc, output: TensorDesc | None = None) -> Slice1Desc:
    """The descriptor of a copy of a whole tensor, by default to one of the same layout."""
    return Slice1Desc(
        input_tensor=source,
        output_tensor=source if output is None else output,
        input_window_offsets=(0,) * source.rank,
        input_window_sizes=source.sizes,
        input_window_strides=(1,) * source.rank,
    )
