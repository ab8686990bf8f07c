"""ONE_HOT: turns indices into sequences with one element on and the others off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from dmlvk.data_type import DataType
from dmlvk.operators.declared import (
    INDICES,
    SIXTY_FOUR_BIT_TYPES,
    Choices,
    OperatorDesc,
    axis,
    operator,
    result,
    same_as,
    source,
)
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.tensor_desc import TensorDesc

INDEX_DATA_TYPES = (DataType.INT64, DataType.INT32, DataType.UINT64, DataType.UINT32)


@operator("ONE_HOT", number=2, family="data_movement")
class OneHotDesc(OperatorDesc):
    """DML_ONE_HOT_OPERATOR_DESC: along the axis, the indexed element is OnValue and all others are OffValue.

    Args:
        indices_tensor (TensorDesc): INT64, INT32, UINT64 or UINT32; the sizes of the output, except 1 at the axis. A
            negative index counts once from the end. An index that is then still out of range makes its whole sequence
            OffValue. All bits of the index count.
        values_tensor (TensorDesc): At least 2 elements of any sizes. Element 0 is OffValue, element 1 along the last
            dimension larger than 1 is OnValue.
        output_tensor (TensorDesc): Has the rank of the other two tensors and the data type of the values. It cannot be
            left out: no other field says its size at the axis.
        axis (int): Less than the rank.

    Source: the page DML_ONE_HOT_OPERATOR_DESC.

    >>> desc = dmlvk.OneHotDesc(
    ...     indices_tensor=dmlvk.TensorDesc("int64", [2, 1]),
    ...     values_tensor=dmlvk.TensorDesc("float32", [1, 2]),
    ...     output_tensor=dmlvk.TensorDesc("float32", [2, 3]),
    ...     axis=1,
    ... )
    >>> values = np.array([[0, 1]], dtype=np.float32)
    >>> dmlvk.reference.run(desc, indices_tensor=np.array([[2], [-3]]), values_tensor=values)
    array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32)
    """

    indices_tensor: TensorDesc = source(INDEX_DATA_TYPES, role=INDICES)
    values_tensor: TensorDesc = source(rank=same_as("indices_tensor"))
    output_tensor: TensorDesc = result(same_as("values_tensor"), rank=same_as("indices_tensor"))
    axis: int = axis(of="indices_tensor")

    @classmethod
    def tied(cls, choose: Choices, fields: Mapping[str, Any]) -> dict[str, Any]:
        """One index a sequence, two values, and an output of any length."""
        axis, sizes = fields["axis"], fields["indices_tensor"].sizes
        index_type, value_type = fields["indices_tensor"].data_type, fields["values_tensor"].data_type
        fastest = choose.integer("values_axis", 0, len(sizes) - 1)
        two = [2 if k == fastest else 1 for k in range(len(sizes))]
        return {
            "indices_tensor": choose.tensor("indices_tensor", index_type, (*sizes[:axis], 1, *sizes[axis + 1 :])),
            "values_tensor": choose.tensor("values_tensor", value_type, two),
            "output_tensor": choose.tensor("output_tensor", value_type, sizes),
        }

    def check(self) -> None:
        """Check that there is one index a sequence, and two values."""
        indices, values = self.indices_tensor.sizes, self.values_tensor.sizes
        if indices[self.axis] != 1:
            field = f"indices_tensor.sizes[{self.axis}]"
            self._fail(field, indices[self.axis], "the size along the axis must be 1: each sequence has one index", "1")
        if self.values_tensor.element_count < 2:
            rule = "must have at least 2 elements: OffValue and OnValue"
            self._fail("values_tensor.sizes", values, rule, f"{(1,) * (len(values) - 1) + (2,)}, for example")

    def output_sizes(self) -> NoReturn:
        """No other field says the length of the sequences."""
        indices = self.indices_tensor.sizes
        sizes = str((*indices[: self.axis], "LENGTH", *indices[self.axis + 1 :])).replace("'", "")
        self._fail_without_output(
            f"its size at axis {self.axis} is the length of the sequences, which no other field says",
            f"TensorDesc('{self.values_tensor.data_type}', {sizes})",
        )

    def check_output(self) -> None:
        """Check that the output has the sizes of the indices, except at the axis."""
        indices, output = self.indices_tensor.sizes, self.output_tensor.sizes
        expected = (*indices[: self.axis], output[self.axis], *indices[self.axis + 1 :])
        if output != expected:
            rule = f"must be the sizes of indices_tensor, {indices}, except at axis {self.axis}"
            self._fail("output_tensor.sizes", output, rule, str(expected))

    @property
    def values_axis(self) -> int:
        """The last dimension of ValuesTensor that is larger than 1: OffValue and OnValue are its elements 0 and 1."""
        return max(k for k, size in enumerate(self.values_tensor.sizes) if size > 1)

    @property
    def on_value_offset(self) -> int:
        """Where OnValue lies in the memory of ValuesTensor, in elements; OffValue lies at 0."""
        return self.values_tensor.element_strides[self.values_axis]

    @property
    def indices_are_signed(self) -> bool:
        """Whether negative indices, which count from the end, can occur."""
        return self.indices_tensor.data_type.is_signed_integer

    @property
    def minimum_feature_level(self) -> FeatureLevel:
        """2.0 for rank 4, UINT32 indices and FLOAT32 or FLOAT16 values; 2.1 for integer values; 3.0 for other ranks and
        indices; 4.1 for 64-bit values."""
        value_type = self.values_tensor.data_type
        if value_type in SIXTY_FOUR_BIT_TYPES:
            return FeatureLevel.FEATURE_LEVEL_4_1
        if self.indices_tensor.rank != 4 or self.indices_tensor.data_type != DataType.UINT32:
            return FeatureLevel.FEATURE_LEVEL_3_0
        return FeatureLevel.FEATURE_LEVEL_2_0 if value_type.is_floating_point else FeatureLevel.FEATURE_LEVEL_2_1
