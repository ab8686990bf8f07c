"""SLICE: copies the elements of a tensor at regular steps; the predecessor of SLICE1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmlvk.operators.declared import (
    EIGHT_BIT_TYPES,
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
from dmlvk.operators.slice1 import Slice1Desc
from dmlvk.tensor_desc import MAXIMUM_UINT32, TensorDesc

DIMENSIONS = dimensions_of("input_tensor")


@operator("SLICE", number=5, family="data_movement", successor=Slice1Desc)
class SliceDesc(OperatorDesc):
    """DML_SLICE_OPERATOR_DESC: output[c] = input[offset + stride * c], a coordinate at a time.

    Args:
        input_tensor (TensorDesc): Rank 1 to 8, any data type.
        output_tensor (TensorDesc, optional): Has the input's data type and rank, and exactly the sizes `sizes`. By
            default it is packed.
        offsets (sequence of int): The first element to copy, one a dimension.
        sizes (sequence of int): The number of elements to copy, one a dimension; the last of them lies inside the
            input.
        strides (sequence of int): Steps through the input, 1 or more, in 32 unsigned bits. They are not the strides of
            the tensors.

    Source: the page DML_SLICE_OPERATOR_DESC. It is silent about a stride of 0, which is refused here as in SLICE1.

    >>> desc = dmlvk.SliceDesc(input_tensor=dmlvk.TensorDesc("int32", [6]), offsets=[1], sizes=[3], strides=[2])
    >>> dmlvk.reference.run(desc, input_tensor=np.arange(6, dtype=np.int32))
    array([1, 3, 5], dtype=int32)
    """

    input_tensor: TensorDesc = source()
    output_tensor: TensorDesc = result(same_as("input_tensor"), rank=same_as("input_tensor"), default=None)
    offsets: Sequence[int] = integers(0, MAXIMUM_UINT32, "must fit an unsigned 32-bit integer", count=DIMENSIONS)
    sizes: Sequence[int] = integers(1, MAXIMUM_UINT32, "the slice may not be empty", count=DIMENSIONS)
    strides: Sequence[int] = integers(
        1, MAXIMUM_UINT32, "must be 1 or more; SLICE1 also takes negative strides", count=DIMENSIONS
    )

    @classmethod
    def tied(cls, choose: Choices, fields: Mapping[str, Any]) -> dict[str, Any]:
        """A slice inside the input."""
        extents = fields["input_tensor"].sizes
        offsets = [choose.integer("offsets", 0, size - 1) for size in extents]
        strides = [choose.one_of("strides", (1, 1, 2, 3, MAXIMUM_UINT32)) for _ in extents]
        most = [1 + (n - 1 - offset) // stride for n, offset, stride in zip(extents, offsets, strides, strict=True)]
        return {"offsets": offsets, "sizes": [choose.integer("sizes", 1, n) for n in most], "strides": strides}

    def check(self) -> None:
        """Check that the slice lies inside the input."""
        offsets, sizes, strides = self.offsets, self.sizes, self.strides
        for k, extent in enumerate(self.input_tensor.sizes):
            if offsets[k] >= extent:
                rule = f"the slice may not begin past the end of the input, which has size {extent} in dimension {k}"
                self._fail(f"offsets[{k}]", offsets[k], rule, f"at most {extent - 1}")
            last = offsets[k] + (sizes[k] - 1) * strides[k]
            if last >= extent:
                rule = (
                    f"the slice may not end past the end of the input, which has size {extent} in dimension {k}: "
                    f"offset + (size - 1) * stride is {last}"
                )
                self._fail(f"sizes[{k}]", sizes[k], rule, f"at most {1 + (extent - 1 - offsets[k]) // strides[k]}")

    def output_sizes(self) -> tuple[int, ...]:
        """Those of the slice."""
        return tuple(self.sizes)

    def check_output(self) -> None:
        """Check that the output has the sizes of the slice."""
        if self.output_tensor.sizes != self.sizes:
            rule = "must equal the field sizes; without output_tensor the output is packed"
            self._fail("output_tensor.sizes", self.output_tensor.sizes, rule, str(self.sizes))

    @property
    def copy_starts(self) -> tuple[int, ...]:
        """The input coordinate that output coordinate 0 copies, under the same name as in SLICE1."""
        return tuple(self.offsets)

    @property
    def input_window_strides(self) -> tuple[int, ...]:
        """The steps through the input, under the same name as in SLICE1, but up to 2**32 - 1."""
        return tuple(self.strides)

    @property
    def minimum_feature_level(self) -> FeatureLevel:
        """1.0 for rank 4 and 5, 2.1 for 8-bit types at these ranks, 3.0 for ranks 1 to 8, 4.1 for 64-bit types."""
        if self.input_tensor.data_type in SIXTY_FOUR_BIT_TYPES:
            return FeatureLevel.FEATURE_LEVEL_4_1
        if self.input_tensor.rank not in (4, 5):
            return FeatureLevel.FEATURE_LEVEL_3_0
        is_8_bit = self.input_tensor.data_type in EIGHT_BIT_TYPES
        return FeatureLevel.FEATURE_LEVEL_2_1 if is_8_bit else FeatureLevel.FEATURE_LEVEL_1_0
