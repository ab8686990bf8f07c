"""ONE_HOT: turns indices into sequences with one element on and the others off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NoReturn

from dmlvk.data_type import DataType
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.operators.rules import ALL_DATA_TYPES, SIXTY_FOUR_BIT_TYPES, OperatorDesc, output_has_to_be_given
from dmlvk.tensor_desc import TensorDesc

INDEX_DATA_TYPES = (DataType.INT64, DataType.INT32, DataType.UINT64, DataType.UINT32)


@output_has_to_be_given
@dataclass(frozen=True, kw_only=True, repr=False)
class OneHotDesc(OperatorDesc):
    """DML_ONE_HOT_OPERATOR_DESC: along the axis, the indexed element is OnValue and all others are OffValue.

    Parameters
    ----------
    indices_tensor : TensorDesc
        INT64, INT32, UINT64 or UINT32; the sizes of the output, except 1 at the axis. A negative index counts once from
        the end. An index that is then still out of range makes its whole sequence OffValue. All bits of the index
        count.
    values_tensor : TensorDesc
        At least 2 elements of any sizes. Element 0 is OffValue, element 1 along the last dimension larger than 1 is
        OnValue.
    output_tensor : TensorDesc
        Has the rank of the other two tensors and the data type of the values. It cannot be left out: no other field
        says its size at the axis.
    axis : int
        Less than the rank.

    Raises
    ------
    DescriptorError

    Notes
    -----
    Source: the page DML_ONE_HOT_OPERATOR_DESC.
    """

    operator_name: ClassVar[str] = "ONE_HOT"
    input_fields: ClassVar[tuple[str, ...]] = ("indices_tensor", "values_tensor")
    output_fields: ClassVar[tuple[str, ...]] = ("output_tensor",)

    indices_tensor: TensorDesc
    values_tensor: TensorDesc
    output_tensor: TensorDesc
    axis: int

    def __post_init__(self) -> None:
        self._check_tensors_are_descs()
        self._check_data_type("indices_tensor", INDEX_DATA_TYPES)
        self._check_data_type("values_tensor", ALL_DATA_TYPES)
        self._check_same_data_type("output_tensor", "values_tensor")
        self._check_same_rank("values_tensor", "indices_tensor")
        self._check_same_rank("output_tensor", "indices_tensor")
        rank = self.indices_tensor.rank
        self._normalise_integer(
            "axis", 0, rank - 1, f"must be less than the DimensionCount of indices_tensor, which is {rank}"
        )
        self._check_input_sizes()
        self._fill_output()
        self._check_output_sizes()
        self._check_outputs()

    def _check_input_sizes(self) -> None:
        indices, values = self.indices_tensor.sizes, self.values_tensor.sizes
        if indices[self.axis] != 1:
            field = f"indices_tensor.sizes[{self.axis}]"
            self._fail(field, indices[self.axis], "the size along the axis must be 1: each sequence has one index", "1")
        if self.values_tensor.element_count < 2:
            rule = "must have at least 2 elements: OffValue and OnValue"
            self._fail("values_tensor.sizes", values, rule, f"{(1,) * (len(values) - 1) + (2,)}, for example")

    def _implied_output(self) -> NoReturn:
        indices = self.indices_tensor.sizes
        reason = f"its size at axis {self.axis} is the length of the sequences, which no other field says"
        sizes = str((*indices[: self.axis], "LENGTH", *indices[self.axis + 1 :])).replace("'", "")
        expected = f"TensorDesc('{self.values_tensor.data_type}', {sizes})"
        self._fail("output_tensor", None, f"must be a TensorDesc: {reason}", expected)

    def _check_output_sizes(self) -> None:
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
