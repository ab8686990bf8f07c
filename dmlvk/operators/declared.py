"""What an operator is: a class of fields, each of which carries its rules. All else is derived from them.

A declaration is a class under `@operator`, whose fields are made by the functions of this module: `source`, `result`,
`scale`, `zero_point`, `integer`, `integers`, `axis`, `boolean`, `data_type` and `element`. What no rule of a field can
say is in its methods `check`, `output_sizes` and `check_output`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, TypeAlias, TypeVar

from dmlvk._common.arguments import as_boolean, as_integer, as_integers, unknown_argument
from dmlvk._common.overlap import find_overlap
from dmlvk.data_type import DataType
from dmlvk.errors import DescriptorError
from dmlvk.operators.element import element_text, encode_element
from dmlvk.operators.feature_level import FeatureLevel
from dmlvk.tensor_desc import MAXIMUM_RANK, NO_FLAGS, TensorDesc, TensorFlags, as_data_type

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        """For type checkers alone; in the standard library from Python 3.11 on."""
        return lambda function: function


INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1
ALL_DATA_TYPES = tuple(DataType)
ALL_RANKS = (1, MAXIMUM_RANK)
EIGHT_BIT_TYPES = (DataType.INT8, DataType.UINT8)
SIXTY_FOUR_BIT_TYPES = (DataType.FLOAT64, DataType.UINT64, DataType.INT64)

# The output of every operator. It is filled in where it is left out; other outputs are absent then.
OUTPUT = "output_tensor"
# What the elements of a tensor are, for random data: quantized or other data, or parameters of another tensor.
DATA, INDICES, SCALE, ZERO_POINT, BIAS = "data", "indices", "scale", "zero_point", "bias"

Option = TypeVar("Option")
Descriptor = TypeVar("Descriptor", bound="OperatorDesc")


@dataclass(frozen=True)
class Same:
    """The data type, rank or sizes of another field."""

    field: str


@dataclass(frozen=True)
class OneElement:
    """Sizes of 1."""

    def check(self, desc: OperatorDesc, name: str, tensor: TensorDesc) -> None:
        if tensor.element_count != 1:
            desc._fail(f"{name}.sizes", tensor.sizes, "must have one element", str((1,) * tensor.rank))


@dataclass(frozen=True)
class OneAChannel:
    """Sizes with one element for each channel of another tensor, in dimension 1 (or 0, if it is the only one).

    of: the tensor with the channels.
    dimension: its dimension of the channels.
    noun: what an error calls a channel.
    or_one: whether it may also have one element for all of them.
    """

    of: str
    dimension: int = 1
    noun: str = "channel"
    or_one: bool = True

    def sizes_of(self, sizes: Sequence[int], rank: int) -> tuple[int, ...]:
        """The sizes at a rank, given those of the tensor with the channels, with one element for each channel."""
        channels = sizes[self.dimension]
        return (1, channels, *(1,) * (rank - 2)) if rank > 1 else (channels,)

    def check(self, desc: OperatorDesc, name: str, tensor: TensorDesc) -> None:
        expected = self.sizes_of(getattr(desc, self.of).sizes, tensor.rank)
        if tensor.sizes == expected or (self.or_one and tensor.element_count == 1):
            return
        if not self.or_one:
            rule = f"must have one element for each {self.noun}, in dimension 1"
            desc._fail(f"{name}.sizes", tensor.sizes, rule, str(expected))
        channels = getattr(desc, self.of).sizes[self.dimension]
        rule = f"must have one element, or one for each {self.noun} ({channels}), in dimension 1 (rank 1: 0)"
        desc._fail(f"{name}.sizes", tensor.sizes, rule, f"{(1,) * tensor.rank} or {expected}")


ONE_ELEMENT = OneElement()

# The methods of a rule, in two parts: between them the operator's own `check` is called, and the output is filled in.
CHECKS = ("require", "check_by_itself", "check_beside_others", "normalise"), ("check_sizes", "settle")
# A check and the field that it checks.
FieldChecks: TypeAlias = "tuple[tuple[Callable[[OperatorDesc, str], None], str], ...]"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The rules of a field. The methods of CHECKS are called in this order, each for all fields that `says` names."""

    is_optional: bool = False

    def says(self, check: str) -> bool:
        """Whether one of CHECKS has anything to check. What has not is left out when the operator is declared."""
        return getattr(type(self), check) is not getattr(Rule, check)

    def require(self, desc: OperatorDesc, name: str) -> None:
        """Check the type of the value."""

    def check_by_itself(self, desc: OperatorDesc, name: str) -> None:
        """Check what does not depend on other fields."""

    def check_beside_others(self, desc: OperatorDesc, name: str) -> None:
        """Check what depends on other fields, excluding sizes."""

    def normalise(self, desc: OperatorDesc, name: str) -> None:
        """Check a number that does not depend on the output, and replace it by a Python number."""

    def check_sizes(self, desc: OperatorDesc, name: str) -> None:
        """Check sizes. The output is filled in."""

    def settle(self, desc: OperatorDesc, name: str) -> None:
        """Check a value that depends on the output, which is filled in."""

    def text(self, desc: OperatorDesc, name: str) -> str:
        """The value as Python text."""
        return repr(getattr(desc, name))


@dataclass(frozen=True, kw_only=True)
class TensorRule(Rule):
    """The rules of a tensor.

    rank: the least and the most dimensions.
    sizes: None: any sizes, or the operator's `check` and `check_output` say which.
    role: DATA, INDICES, SCALE, ZERO_POINT or BIAS.
    of: the tensor to which this scale, zero point or bias belongs.
    type_from: where an output that is left out has its data type from: from the first of these fields that is present.
    """

    is_output: bool
    types: tuple[DataType, ...] | Same
    rank: tuple[int, int] | Same
    sizes: Same | OneElement | OneAChannel | None = None
    role: str = DATA
    of: str | None = None
    type_from: tuple[str, ...] = ()

    def says(self, check: str) -> bool:
        is_any = self.types == ALL_DATA_TYPES and self.rank == ALL_RANKS
        has_model = any(isinstance(each, Same) for each in (self.types, self.rank, self.sizes))
        said = {"check_by_itself": not is_any, "check_beside_others": has_model, "check_sizes": self.sizes is not None}
        return said.get(check, super().says(check))

    def require(self, desc: OperatorDesc, name: str) -> None:
        """Check that it is a TensorDesc. An output that was left out is filled in later."""
        value = getattr(desc, name)
        if type(value) is TensorDesc:
            return
        if not isinstance(value, TensorDesc) and (value is not None or not (self.is_optional or name == OUTPUT)):
            desc._fail(name, value, f"must be a TensorDesc, not {type(value).__name__}")

    def check_by_itself(self, desc: OperatorDesc, name: str) -> None:
        """Check the data type and the rank as far as they do not depend on other fields."""
        tensor: TensorDesc | None = getattr(desc, name)
        if tensor is None:
            return
        if isinstance(self.types, tuple):
            _check_data_type(desc, name, tensor, self.types)
        if isinstance(self.rank, tuple):
            low, high = self.rank
            if not low <= tensor.rank <= high:
                rule = f"{desc.operator_name} takes {low} to {high} dimensions here, not {tensor.rank}"
                desc._fail(f"{name}.sizes", tensor.sizes, rule)

    def check_beside_others(self, desc: OperatorDesc, name: str) -> None:
        """Check the data type and the rank against those of other fields."""
        tensor: TensorDesc | None = getattr(desc, name)
        if tensor is None:
            return
        if isinstance(self.types, Same):
            self._check_same_data_type(desc, name, tensor, self.types.field)
        for other in (self.rank, self.sizes):
            model = getattr(desc, other.field) if isinstance(other, Same) else None
            if isinstance(other, Same) and model is not None and tensor.rank != model.rank:
                rule = f"mismatched ranks: {name} and {other.field} must have the same DimensionCount"
                expected = f"{model.rank} dimensions, as {other.field} has"
                desc._fail(f"{name}.sizes", tensor.sizes, rule, expected)

    @staticmethod
    def _check_same_data_type(desc: OperatorDesc, name: str, tensor: TensorDesc, other: str) -> None:
        model: TensorDesc | None = getattr(desc, other)
        if model is None:  # an output that is left out and takes its type from here
            model_rule = desc.tensor_rules[other]
            if model_rule.is_output and isinstance(model_rule.types, tuple):
                _check_data_type(desc, name, tensor, model_rule.types)
        elif tensor.data_type != model.data_type:
            rule = f"mismatched tensor data types: {name} and {other} must have the same DataType"
            desc._fail(f"{name}.data_type", tensor.data_type.name, rule, f"{model.data_type.name}, as {other} has")

    def check_sizes(self, desc: OperatorDesc, name: str) -> None:
        """Check the sizes. The output is filled in."""
        tensor: TensorDesc | None = getattr(desc, name)
        if tensor is None or self.sizes is None:
            return
        if not isinstance(self.sizes, Same):
            self.sizes.check(desc, name, tensor)
            return
        model: TensorDesc | None = getattr(desc, self.sizes.field)
        if model is not None and tensor.sizes != model.sizes:
            rule = f"must equal the sizes of {self.sizes.field}"
            note = "" if self.is_output else "; an input broadcasts by strides of 0"
            desc._fail(f"{name}.sizes", tensor.sizes, rule + note, str(model.sizes))


def _check_data_type(desc: OperatorDesc, name: str, tensor: TensorDesc, allowed: tuple[DataType, ...]) -> None:
    if tensor.data_type not in allowed:
        names = ", ".join(data_type.name for data_type in allowed)
        rule = f"{desc.operator_name} does not take this data type here"
        expected = names if len(allowed) == 1 else f"one of {names}"
        desc._fail(f"{name}.data_type", tensor.data_type.name, rule, expected)


@dataclass(frozen=True, kw_only=True)
class IntegerRule(Rule):
    """An integer from `low` to `high`. Signed in DirectML if `low` is negative."""

    low: int
    high: int
    rule: str

    def normalise(self, desc: OperatorDesc, name: str) -> None:
        value = getattr(desc, name)
        if value is not None or not self.is_optional:
            desc._set(name, as_integer(type(desc).__name__, name, value, self.low, self.high, self.rule))


@dataclass(frozen=True, kw_only=True)
class AxisRule(Rule):
    """A dimension of the tensor `of`."""

    of: str

    def normalise(self, desc: OperatorDesc, name: str) -> None:
        value, rank = getattr(desc, name), getattr(desc, self.of).rank
        if value is not None or not self.is_optional:
            rule = f"must be less than the DimensionCount of {self.of}, which is {rank}"
            desc._set(name, as_integer(type(desc).__name__, name, value, 0, rank - 1, rule))


@dataclass(frozen=True, kw_only=True)
class IntegersRule(IntegerRule):
    """A sequence of integers from `low` to `high`.

    count: the lengths that it may have.
    """

    count: Callable[[Any], tuple[int, ...]]

    def normalise(self, desc: OperatorDesc, name: str) -> None:
        checked = as_integers(type(desc).__name__, name, getattr(desc, name), self.low, self.high, self.rule)
        lengths = self.count(desc)
        if len(checked) not in lengths:
            rule = f"must have one element for each dimension, not {len(checked)}"
            desc._fail(name, checked, rule, f"{' or '.join(map(str, lengths))} elements")
        desc._set(name, checked)


@dataclass(frozen=True, kw_only=True)
class BooleanRule(Rule):
    """True or False: BOOL in DirectML."""

    def normalise(self, desc: OperatorDesc, name: str) -> None:
        desc._set(name, as_boolean(type(desc).__name__, name, getattr(desc, name)))


@dataclass(frozen=True, kw_only=True)
class DataTypeRule(Rule):
    """The data type of the tensor `of`, which it follows from."""

    of: str

    def settle(self, desc: OperatorDesc, name: str) -> None:
        expected = getattr(desc, self.of).data_type
        if getattr(desc, name) is not None:
            given = as_data_type(type(desc).__name__, name, getattr(desc, name))
            if given != expected:
                desc._fail(name, given.name, f"must match the DataType of {self.of}", expected.name)
        desc._set(name, expected)


@dataclass(frozen=True, kw_only=True)
class ElementRule(Rule):
    """A number that is kept, compared and written by its bits.

    of: the tensor whose data type it has, or the data type.
    kept_as: the attribute that holds its bytes in memory.
    """

    of: str | DataType
    kept_as: str

    def data_type(self, desc: OperatorDesc) -> DataType:
        return self.of if isinstance(self.of, DataType) else getattr(desc, self.of).data_type

    def settle(self, desc: OperatorDesc, name: str) -> None:
        value: Any = getattr(desc, name)
        if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0:
            desc._set(name, value := value[()])  # a 0-d array can change later, the scalar in it cannot
        desc._set(self.kept_as, encode_element(type(desc).__name__, name, value, self.data_type(desc)))

    def text(self, desc: OperatorDesc, name: str) -> str:
        return element_text(getattr(desc, self.kept_as), self.data_type(desc))


def _field(kind: Callable[..., Rule], default: Any, /, **members: Any) -> Any:
    options: dict[str, Any] = {} if default is MISSING else {"default": default}
    # Descriptors compare by the bits of a number, so that NaN equals itself and -0.0 differs from 0.0.
    made = kind(is_optional=default is None, **members)
    return dataclasses.field(compare=not isinstance(made, ElementRule), metadata={"rule": made}, **options)


def _tensor(default: Any, types: Any, rank: Any, sizes: Any, **members: Any) -> Any:
    types = (types,) if isinstance(types, DataType) else types if isinstance(types, Same) else tuple(types)
    members["rank"] = (rank, rank) if isinstance(rank, int) else rank
    return _field(TensorRule, default, types=types, sizes=sizes, **members)


def same_as(field: str) -> Any:
    """The data type, the rank or the sizes that another field has."""
    return Same(field)


def one_a_channel(of: str, dimension: int = 1, *, noun: str = "channel", or_one: bool = True) -> Any:
    """One element for each channel of a tensor, in dimension 1; or one element for all, if `or_one` says so."""
    return OneAChannel(of, dimension, noun, or_one)


def dimensions_of(field: str, *, excluding: int = 0) -> Callable[[Any], tuple[int, ...]]:
    """One element for each dimension of a tensor, excluding its first ones."""
    return lambda desc: (getattr(desc, field).rank - excluding,)


def source(
    types: Any = ALL_DATA_TYPES,
    *,
    rank: Any = ALL_RANKS,
    sizes: Any = None,
    role: str = DATA,
    of: str | None = None,
    default: Any = MISSING,
) -> Any:
    """An input tensor.

    types: DataType, iterable of DataType, or same_as(field).
    rank: the number of dimensions: one, from the first to the second, or that of another tensor.
    sizes: ONE_ELEMENT, one_a_channel(...) or same_as(field). None: any sizes, or the operator's `check` says which.
        Equal sizes imply equal ranks.
    role: what the elements are, for random data.
    default: the tensor may be absent.
    """
    return _tensor(default, types, rank, sizes, is_output=False, role=role, of=of)


def scale(
    of: str, *, types: Any = DataType.FLOAT32, rank: Any = (1, 4), sizes: Any = ONE_ELEMENT, default: Any = MISSING
) -> Any:
    """The scale of a quantized tensor."""
    return source(types, rank=rank, sizes=sizes, role=SCALE, of=of, default=default)


def zero_point(
    of: str, *, types: Any = None, rank: Any = (1, 4), sizes: Any = ONE_ELEMENT, default: Any = MISSING
) -> Any:
    """The zero point of a quantized tensor, of its data type unless `types` says otherwise."""
    types = same_as(of) if types is None else types
    return source(types, rank=rank, sizes=sizes, role=ZERO_POINT, of=of, default=default)


def result(
    types: Any = ALL_DATA_TYPES,
    *,
    rank: Any = ALL_RANKS,
    sizes: Any = None,
    type_from: tuple[str, ...] = (),
    default: Any = MISSING,
) -> Any:
    """An output tensor, with the rules of `source`.

    With `default=None` it may be left out and is filled in, packed: of the data type that `types` says if there is one,
    else of that of the first present field of `type_from`; and of the sizes that `output_sizes` gives. Without a
    default it has to be given: the descriptor's `output_sizes` may say why.
    """
    return _tensor(default, types, rank, sizes, is_output=True, type_from=type_from)


def integer(low: int, high: int, rule: str, *, default: Any = MISSING) -> Any:
    """An integer from `low` to `high`; the rule is what an error says. Signed in DirectML if `low` is negative."""
    return _field(IntegerRule, default, low=low, high=high, rule=rule)


def axis(of: str, *, default: Any = MISSING) -> Any:
    """A dimension of a tensor, from 0."""
    return _field(AxisRule, default, of=of)


def integers(low: int, high: int, rule: str, *, count: Callable[[Any], tuple[int, ...]], default: Any = MISSING) -> Any:
    """A sequence of integers from `low` to `high`, as many as `count` says: see `dimensions_of`."""
    return _field(IntegersRule, default, low=low, high=high, rule=rule, count=count)


def boolean(*, default: Any = MISSING) -> Any:
    """True or False."""
    return _field(BooleanRule, default)


def data_type(of: str, *, default: Any = MISSING) -> Any:
    """The data type of a tensor, as a field of its own."""
    return _field(DataTypeRule, default, of=of)


def element(of: str | DataType, *, kept_as: str, default: Any = MISSING) -> Any:
    """A number of a tensor's data type, or of the given one, whose bytes the attribute `kept_as` holds."""
    return _field(ElementRule, default, of=of, kept_as=kept_as)


class Choices(Protocol):
    """What is left open by the rules. A choice has a name, such as "a_tensor.rank" or "strides"."""

    def one_of(self, name: str, options: Sequence[Option]) -> Option:
        """One of several options."""

    def integer(self, name: str, low: int, high: int) -> int:
        """An integer from `low` to `high`."""

    def sizes(self, name: str, rank: int) -> tuple[int, ...]:
        """The sizes of a tensor of some rank."""

    def tensor(self, name: str, data_type: DataType, sizes: Sequence[int]) -> TensorDesc:
        """A tensor: its layout is open."""

    def element(self, name: str, data_type: DataType) -> Any:
        """A number of a data type."""


@dataclass(frozen=True, kw_only=True, repr=False)
class OperatorDesc:
    """Base of the operator descriptors: immutable, hashable, checked when made.

    A descriptor's `output_tensor` may be left out where the other fields say what it is. It is filled in then, packed,
    and the descriptor equals one in which it was written out.

    Attributes:
        operator_name (str): DirectML's name without ``DML_OPERATOR_``.
        stem (str): The name in lower case: that of the operator's module in every wing.
        number (int): Its place in the order of the conformance cases and of the benchmark.
        family (str): The kind of operators that share a planner: "data_movement", "element_wise", "products",
            "windows".
        successor (type of OperatorDesc, optional): The operator that took its place, and whose kernels it runs.
        rules, tensor_rules (mapping): The rules of each field by its name, in DirectML's order; and those of the
            tensors.
        input_fields, output_fields (tuple of str): The fields that hold a TensorDesc or, for optional ones, None; in
            DirectML's order.
        optional_fields (tuple of str): The fields that may be absent.
        bit_fields (mapping of str to str): Fields that are compared and serialized by their bits, each with the name of
            the attribute that holds its bytes.
        implied_fields (tuple of str): Fields that can hold no other value than the one that follows from the other
            fields.

    Raises:
        DescriptorError: The fields break a rule of the operator.
    """

    operator_name: ClassVar[str]
    stem: ClassVar[str]
    number: ClassVar[int]
    family: ClassVar[str]
    successor: ClassVar[type[OperatorDesc] | None]
    rules: ClassVar[Mapping[str, Rule]]
    tensor_rules: ClassVar[Mapping[str, TensorRule]]
    input_fields: ClassVar[tuple[str, ...]]
    output_fields: ClassVar[tuple[str, ...]]
    optional_fields: ClassVar[tuple[str, ...]]
    bit_fields: ClassVar[Mapping[str, str]]
    implied_fields: ClassVar[tuple[str, ...]]
    _feature_level: ClassVar[FeatureLevel | None]
    _checks: ClassVar[tuple[FieldChecks, ...]]

    if not TYPE_CHECKING:  # which knows the fields of each descriptor from its own `__init__`

        def __new__(cls, *positional: object, **given: object) -> OperatorDesc:
            if positional or not given.keys() <= cls.__dataclass_fields__.keys():
                known = [field.name for field in dataclasses.fields(cls) if field.init]
                if positional:
                    fields = f"{known[0]}=...; they are {', '.join(known)}"
                    raise TypeError(f"{cls.__name__} takes its fields by name, {fields}")
                raise unknown_argument(cls.__name__, given, known) or AssertionError("one of them is unknown")
            return super().__new__(cls)

    def __post_init__(self) -> None:
        before_output, beside_output = self._checks
        for check, name in before_output:
            check(self, name)
        self.check()
        if self.__dict__[OUTPUT] is None:
            self._set(OUTPUT, self.implied_output())
        for check, name in beside_output:
            check(self, name)
        self.check_output()
        self._check_outputs()

    @classmethod
    def tied(cls, choose: Choices, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of a random descriptor that `check` and `check_output` tie to others, in place of those given.

        See `dmlvk.operators.drawing`.
        """
        return {}

    def check(self) -> None:
        """Check what no rule of a field says. The fields are checked; the output may be missing."""

    def output_sizes(self) -> tuple[int, ...]:
        """The sizes of an output that is left out. All other fields have been checked.

        Raises:
            DescriptorError: The other fields do not say them: the message says why the output has to be given.
        """
        sizes = self.tensor_rules[OUTPUT].sizes
        if not isinstance(sizes, Same):
            self._fail_without_output("no other field says how large the output is")
        return tuple(getattr(self, sizes.field).sizes)

    def _fail_without_output(
        self, reason: str, expected: str = "TensorDesc('float32', (3, 3)), for example"
    ) -> NoReturn:
        self._fail(OUTPUT, None, f"must be a TensorDesc: {reason}", expected)

    def check_output(self) -> None:
        """Check what no rule of a field says of the output, which is filled in."""

    def __repr__(self) -> str:
        """The shortest call that makes an equal descriptor: without what is absent or follows from the other fields."""
        present = {name: rule for name, rule in self.rules.items() if getattr(self, name) is not None}
        shown = [f"{name}={rule.text(self, name)}" for name, rule in present.items() if not self._is_implied(name)]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _is_implied(self, field: str) -> bool:
        """Whether a field holds what it would hold if it had been left out."""
        if field != OUTPUT:
            return field in self.implied_fields
        try:
            return bool(getattr(self, field) == self.implied_output())
        except DescriptorError:  # the other fields do not say it
            return False

    def implied_output(self) -> TensorDesc:
        """What the other fields say of the output, packed.

        Raises:
            DescriptorError: They do not say it.
        """
        sizes = self.output_sizes()
        rule = self.tensor_rules[OUTPUT]
        fields = (rule.types.field,) if isinstance(rule.types, Same) else rule.type_from
        types = [tensor.data_type for name in fields if (tensor := getattr(self, name)) is not None]
        return TensorDesc(types[0] if types else rule.types[0], sizes)  # type: ignore[index]

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: without the hash, which is another one in another process."""
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    @property
    def tensors(self) -> dict[str, TensorDesc]:
        """The tensors that are present, by field name, in DirectML's order: inputs, then outputs."""
        fields = ((name, getattr(self, name)) for name in self.input_fields + self.output_fields)
        return {name: tensor for name, tensor in fields if tensor is not None}

    @property
    def minimum_feature_level(self) -> FeatureLevel | None:
        """The lowest DML_FEATURE_LEVEL on which DirectML itself would take this descriptor; None if it never would."""
        return self._feature_level

    def _fail(self, field: str, value: object, rule: str, expected: str | None = None) -> NoReturn:
        raise DescriptorError(type(self).__name__, field, value, rule, expected)

    def _set(self, field: str, value: object) -> None:
        self.__dict__[field] = value  # the way a frozen dataclass normalises its fields in __post_init__

    def _check_outputs(self) -> None:
        """Check the rules of every output: it is not OWNED_BY_DML, and no two elements share memory."""
        for name in self.output_fields:
            tensor: TensorDesc | None = getattr(self, name)
            if tensor is None:
                continue
            if tensor.flags is not NO_FLAGS and tensor.flags & TensorFlags.OWNED_BY_DML:
                self._fail(f"{name}.flags", tensor.flags, "only inputs can be OWNED_BY_DML", "TensorFlags.NONE")
            overlap = None if tensor.strides is None else find_overlap(tensor.sizes, tensor.strides)
            if overlap is not None:
                rule = f"elements of an output may not overlap; with sizes {tensor.sizes}, {overlap}"
                expected = "strides that give every element a place of its own"
                self._fail(f"{name}.strides", tensor.strides, rule, expected)


def _once(hashed: Callable[[Any], int]) -> Callable[[Any], int]:
    """A hash that is computed once: a device finds what it has compiled by descriptors."""

    def known(self: OperatorDesc) -> int:
        own = self.__dict__
        try:
            return own["_hash"]  # type: ignore[no-any-return]
        except KeyError:
            own["_hash"] = found = hashed(self)
            return found

    return known


@dataclass_transform(
    frozen_default=True,
    kw_only_default=True,
    field_specifiers=(
        source,
        scale,
        zero_point,
        result,
        integer,
        integers,
        axis,
        boolean,
        data_type,
        element,
        dataclasses.field,
    ),
)
def operator(
    name: str,
    *,
    number: int,
    family: str,
    successor: type[OperatorDesc] | None = None,
    feature_level: FeatureLevel | None = None,
) -> Callable[[type[Descriptor]], type[Descriptor]]:
    """Make a class of fields the descriptor of an operator: a frozen dataclass, with what follows from the rules.

    name: DirectML's name without ``DML_OPERATOR_``.
    number: the place in the order of the conformance cases and of the benchmark. A new operator has the highest one.
    family: the kind of operators that share a planner.
    successor: the operator that took its place, and whose kernels it runs.
    feature_level: that of all descriptors, where `minimum_feature_level` does not say more; None if DirectML does not
        have the operator.
    """

    def declare(declared: type[Descriptor]) -> type[Descriptor]:
        made = dataclass(frozen=True, kw_only=True, repr=False)(declared)
        rules: dict[str, Rule] = {
            field.name: field.metadata["rule"] for field in dataclasses.fields(made) if "rule" in field.metadata
        }
        tensors = {field: rule for field, rule in rules.items() if isinstance(rule, TensorRule)}
        made._checks = tuple(
            tuple((getattr(rule, check), field) for check in part for field, rule in rules.items() if rule.says(check))
            for part in CHECKS
        )
        made.__hash__ = _once(made.__hash__)  # type: ignore[assignment, method-assign]
        made.operator_name, made.stem, made.number = name, name.lower(), number
        made.family, made.successor, made._feature_level = family, successor, feature_level
        made.rules, made.tensor_rules = MappingProxyType(rules), MappingProxyType(tensors)
        made.input_fields = tuple(field for field, rule in tensors.items() if not rule.is_output)
        made.output_fields = tuple(field for field, rule in tensors.items() if rule.is_output)
        made.bit_fields = MappingProxyType(
            {field: rule.kept_as for field, rule in rules.items() if isinstance(rule, ElementRule)}
        )
        made.implied_fields = tuple(field for field, rule in rules.items() if isinstance(rule, DataTypeRule))
        implied = (OUTPUT, *made.implied_fields)
        made.optional_fields = tuple(
            field for field, rule in rules.items() if rule.is_optional and field not in implied
        )
        # Where an output has to be given, the descriptor itself says why; Python would say that an argument is missing.
        # Type checkers see that it is required.
        made.__init__.__kwdefaults__ = {**(made.__init__.__kwdefaults__ or {}), OUTPUT: None}
        return made

    return declare
