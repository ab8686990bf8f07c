"""The common base of all operator descriptors, and the rules that several of them share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import ClassVar, NoReturn, TypeVar

from dmlvk.arguments import as_integer, as_integers
from dmlvk.data_type import DataType
from dmlvk.errors import DescriptorError
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.overlap import find_overlap
from dmlvk.tensor_desc import TensorDesc, TensorFlags

INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1
ALL_DATA_TYPES = tuple(DataType)
SIXTY_FOUR_BIT_TYPES = (DataType.FLOAT64, DataType.UINT64, DataType.INT64)

Descriptor = TypeVar("Descriptor", bound="OperatorDesc")


@dataclass(frozen=True, kw_only=True, repr=False)
class OperatorDesc:
    """Base of the operator descriptors: immutable, hashable, checked when made.

    A descriptor's `output_tensor` may be left out where the other fields say what it is. It is filled in then, packed,
    and the descriptor equals one in which it was written out.

    Attributes
    ----------
    operator_name : str
        DirectML's name without ``DML_OPERATOR_``.
    input_fields, output_fields : tuple of str
        The fields that hold a TensorDesc or, for optional ones, None; in DirectML's order.
    bit_fields : mapping of str to str
        Fields that are compared and serialized by their bits, each with the name of the attribute that holds its bytes.
    implied_fields : tuple of str
        Fields that can hold no other value than the one that follows from the other fields.
    """

    operator_name: ClassVar[str]
    input_fields: ClassVar[tuple[str, ...]]
    output_fields: ClassVar[tuple[str, ...]]
    optional_fields: ClassVar[tuple[str, ...]] = ()
    bit_fields: ClassVar[Mapping[str, str]] = MappingProxyType({})
    implied_fields: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        """The shortest call that makes an equal descriptor: without what is absent or follows from the other fields."""
        names = [field.name for field in fields(self) if field.init and getattr(self, field.name) is not None]
        arguments = [f"{name}={self._text(name)}" for name in names if not self._is_implied(name)]
        return f"{type(self).__name__}({', '.join(arguments)})"

    def _text(self, field: str) -> str:
        """A field as Python text."""
        return repr(getattr(self, field))

    def _is_implied(self, field: str) -> bool:
        """Whether a field holds what it would hold if it had been left out."""
        if field not in self.output_fields:
            return field in self.implied_fields
        try:
            return bool(getattr(self, field) == self._implied_output())
        except DescriptorError:  # the other fields do not say it
            return False

    def _implied_output(self) -> TensorDesc:
        """What the other fields, once they are checked, say of the output.

        Raises
        ------
        DescriptorError
            They do not say it: the message says why it has to be given.
        """
        raise NotImplementedError

    def _fill_output(self) -> None:
        """Fill in the output if it was left out. All other fields have been checked."""
        for name in self.output_fields:
            if getattr(self, name) is None:
                self._set(name, self._implied_output())

    @property
    def tensors(self) -> dict[str, TensorDesc]:
        """The tensors that are present, by field name, in DirectML's order: inputs, then outputs."""
        fields = ((name, getattr(self, name)) for name in self.input_fields + self.output_fields)
        return {name: tensor for name, tensor in fields if tensor is not None}

    @property
    def minimum_feature_level(self) -> FeatureLevel:
        """The lowest DML_FEATURE_LEVEL on which DirectML itself would take this descriptor."""
        raise NotImplementedError

    def _fail(self, field: str, value: object, rule: str, expected: str | None = None) -> NoReturn:
        raise DescriptorError(type(self).__name__, field, value, rule, expected)

    def _set(self, field: str, value: object) -> None:
        object.__setattr__(self, field, value)  # the way a frozen dataclass normalises its fields in __post_init__

    def _check_tensors_are_descs(self) -> None:
        """Check that each tensor is a TensorDesc. An output that was left out is filled in later."""
        for name in self.input_fields + self.output_fields:
            value = getattr(self, name)
            if value is not None or name not in self.optional_fields + self.output_fields:
                self._check_tensor_is_desc(name)

    def _check_tensor_is_desc(self, field: str) -> None:
        value = getattr(self, field)
        if not isinstance(value, TensorDesc):
            self._fail(field, value, f"must be a TensorDesc, not {type(value).__name__}")

    def _check_outputs(self) -> None:
        """Check the rules of every output: it is not OWNED_BY_DML, and no two elements share memory."""
        for name in self.output_fields:
            tensor: TensorDesc = getattr(self, name)
            if tensor.flags & TensorFlags.OWNED_BY_DML:
                self._fail(f"{name}.flags", tensor.flags, "only inputs can be OWNED_BY_DML", "TensorFlags.NONE")
            overlap = find_overlap(tensor.sizes, tensor.element_strides)
            if overlap is not None:
                rule = f"elements of an output may not overlap; with sizes {tensor.sizes}, {overlap}"
                self._fail(
                    f"{name}.strides", tensor.strides, rule, "strides that give every element a place of its own"
                )

    def _check_data_type(self, field: str, allowed: Collection[DataType]) -> None:
        tensor: TensorDesc | None = getattr(self, field)
        if tensor is not None and tensor.data_type not in allowed:
            names = ", ".join(data_type.name for data_type in allowed)
            rule = f"{self.operator_name} does not take this data type here"
            self._fail(
                f"{field}.data_type", tensor.data_type.name, rule, names if len(allowed) == 1 else f"one of {names}"
            )

    def _check_rank(self, field: str, low: int, high: int) -> None:
        tensor: TensorDesc | None = getattr(self, field)
        if tensor is not None and not low <= tensor.rank <= high:
            rule = f"{self.operator_name} takes {low} to {high} dimensions here, not {tensor.rank}"
            self._fail(f"{field}.sizes", tensor.sizes, rule)

    def _check_same_data_type(self, field: str, other: str) -> None:
        tensor, model = getattr(self, field), getattr(self, other)
        if tensor is not None and model is not None and tensor.data_type != model.data_type:
            rule = f"mismatched tensor data types: {field} and {other} must have the same DataType"
            self._fail(f"{field}.data_type", tensor.data_type.name, rule, f"{model.data_type.name}, as {other} has")

    def _check_same_rank(self, field: str, other: str) -> None:
        tensor, model = getattr(self, field), getattr(self, other)
        if tensor is not None and model is not None and tensor.rank != model.rank:
            rule = f"mismatched ranks: {field} and {other} must have the same DimensionCount"
            self._fail(f"{field}.sizes", tensor.sizes, rule, f"{model.rank} dimensions, as {other} has")

    def _normalise_integer(self, field: str, low: int, high: int, rule: str) -> int:
        checked = as_integer(type(self).__name__, field, getattr(self, field), low, high, rule)
        self._set(field, checked)
        return checked

    def _normalise_integers(
        self, field: str, lengths: Sequence[int], low: int, high: int, rule: str
    ) -> tuple[int, ...]:
        checked = as_integers(type(self).__name__, field, getattr(self, field), low, high, rule)
        if len(checked) not in lengths:
            wanted = " or ".join(str(length) for length in lengths)
            self._fail(
                field, checked, f"must have one element for each dimension, not {len(checked)}", f"{wanted} elements"
            )
        self._set(field, checked)
        return checked


def output_has_to_be_given(descriptor: type[Descriptor]) -> type[Descriptor]:
    """Let a descriptor itself say why `output_tensor` is needed, where Python would say that an argument is missing.

    The field stays without a default, so that type checkers see that it is required.
    """
    initialize = descriptor.__init__
    initialize.__kwdefaults__ = {**(initialize.__kwdefaults__ or {}), "output_tensor": None}
    return descriptor
