"""The memory layout of a tensor's elements: DML_BUFFER_TENSOR_DESC, and its rules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntFlag
from functools import cached_property
from typing import Any, Literal, SupportsIndex

import numpy as np

from dmlvk._common.arguments import as_array, as_integer, as_integers, integer_of, named_arguments
from dmlvk._common.overlap import find_overlap
from dmlvk.data_type import DataType, data_type_hint
from dmlvk.errors import DescriptorError

MAXIMUM_RANK = 8  # DML_TENSOR_DIMENSION_COUNT_MAX1
MAXIMUM_UINT32 = 2**32 - 1
MAXIMUM_UINT64 = 2**64 - 1


class TensorFlags(IntFlag):
    """DML_TENSOR_FLAGS. OWNED_BY_DML: an input that is bound once, when the operator is initialised."""

    NONE = 0
    OWNED_BY_DML = 1


# Comparing flags with it costs less than taking a bit from them, and most tensors have none.
NO_FLAGS = TensorFlags.NONE


def as_data_type(descriptor: str, field: str, data_type: Any) -> DataType:
    """The data type that a DataType, its integer value or a NumPy dtype stands for."""
    if type(data_type) is DataType:
        return data_type
    rule = "must be one of DirectML's data types that these operators take"
    try:
        if isinstance(data_type, (bool, type(None))):
            raise TypeError
        integer = integer_of(data_type)
        return DataType.from_numpy(data_type) if integer is None else DataType(integer)
    except (TypeError, ValueError):
        hint = data_type_hint(data_type)
        supported = ", ".join(member.name for member in DataType)
        rule = f"{rule}; {hint}" if hint else rule
        raise DescriptorError(descriptor, field, data_type, rule, f"one of {supported}") from None


def packed_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Element strides of the row-major layout without gaps."""
    strides = [1] * len(sizes)
    for dimension in reversed(range(len(sizes) - 1)):
        strides[dimension] = strides[dimension + 1] * sizes[dimension + 1]
    return tuple(strides)


@dataclass(frozen=True, init=False, repr=False)
class TensorDesc:
    """A tensor's data type, sizes and memory layout (DML_BUFFER_TENSOR_DESC). Immutable and hashable.

    `TensorDesc.of` describes an array.

    Args:
        data_type (DataType): Also its name ("uint8"), its integer value, or a NumPy dtype.
        sizes (sequence of int): 1 to 8 sizes, outermost first, each 1 or more; at most 2**32 - 1 elements in all.
        strides (sequence of int, optional): Elements (not bytes) from one coordinate to the next, 0 to 2**32 - 1; 0
            broadcasts. None is packed.
        total_size_in_bytes (int, optional): Bytes of memory the tensor takes; at least `minimum_size_in_bytes`, which
            is the default.
        guaranteed_base_offset_alignment (int): 0, or a power of two that is at least the size of an element. The
            tensor's offset in its buffer is a multiple of it.
        flags (TensorFlags): `OWNED_BY_DML` for a tensor whose content a compiled operator keeps; `NONE` otherwise.

    Raises:
        DescriptorError: If one of these rules is broken.

    Source: the page of DML_BUFFER_TENSOR_DESC. All arithmetic is exact; nothing wraps at 32 or 64 bits.
    """

    data_type: DataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...] | None
    total_size_in_bytes: int
    guaranteed_base_offset_alignment: int
    flags: TensorFlags

    @named_arguments
    def __init__(
        self,
        data_type: Any,
        sizes: Iterable[SupportsIndex],
        strides: Iterable[SupportsIndex] | None = None,
        *,
        total_size_in_bytes: SupportsIndex | None = None,
        guaranteed_base_offset_alignment: SupportsIndex = 0,
        flags: TensorFlags | int = TensorFlags.NONE,
    ) -> None:
        fields: dict[str, Any] = {
            "data_type": as_data_type("TensorDesc", "data_type", data_type),
            "sizes": _checked_sizes(sizes),
            "flags": _checked_flags(flags),
        }
        fields["strides"] = None if strides is None else _checked_strides(strides, len(fields["sizes"]))
        fields["guaranteed_base_offset_alignment"] = _checked_alignment(
            guaranteed_base_offset_alignment, fields["data_type"]
        )
        own = self.__dict__  # a frozen dataclass has no other way for values that were checked
        own.update(fields)
        own["total_size_in_bytes"] = self._checked_total_size(total_size_in_bytes)

    @classmethod
    @named_arguments
    def of(
        cls,
        array: Any,
        *,
        strides: Literal["array"] | Iterable[SupportsIndex] | None = None,
        flags: TensorFlags | int = TensorFlags.NONE,
    ) -> TensorDesc:
        """The desc of an array: its data type and its sizes.

        Args:
            array (array_like, or Tensor): Anything that has a dtype and a shape, of which no element is read; or what
                `numpy.asarray` takes. An array without dimensions becomes one element in one dimension, (1,). The byte
                order does not count.
            strides ("array" or sequence of int, optional): Elements (not bytes) from one coordinate to the next. None
                is packed, whatever the array's own strides are: `Device.tensor` packs an array. "array" takes the
                array's own strides, which for a packed array is None too.
            flags (TensorFlags): As for a TensorDesc.

        Raises:
            DescriptorError: For an array that no tensor can hold (no elements, more than 8 dimensions), or strides that
                no tensor can have: of "array" those that run backwards, or that are no multiples of an element's bytes.
            TypeError: For a dtype without a DirectML data type, such as bool; the message says what to do instead.
        """
        known = getattr(array, "desc", None)
        if isinstance(known, TensorDesc):  # a Tensor, which need not be read to be described
            own = known.strides if isinstance(strides, str) and strides == "array" else strides
            return cls(known.data_type, known.sizes, own, flags=flags)
        if not hasattr(array, "dtype") or not hasattr(array, "shape"):
            array = as_array(array)
        data_type, sizes = DataType.from_numpy(array.dtype), tuple(array.shape) or (1,)
        if isinstance(strides, str):
            if strides != "array":
                expected = "'array', None for packed, or one stride a dimension"
                raise DescriptorError("TensorDesc", "strides", strides, "names no strides", expected)
            strides = _strides_of(array, data_type)
        return cls(data_type, sizes, strides, flags=flags)

    def __repr__(self) -> str:
        """The call that makes an equal desc, without the arguments that have their default values."""
        arguments = [f"'{self.data_type}'", str(self.sizes)]
        if self.strides is not None:
            arguments.append(f"strides={self.strides}")
        if self.total_size_in_bytes != self.minimum_size_in_bytes:
            arguments.append(f"total_size_in_bytes={self.total_size_in_bytes}")
        if self.guaranteed_base_offset_alignment:
            arguments.append(f"guaranteed_base_offset_alignment={self.guaranteed_base_offset_alignment}")
        if self.flags:
            arguments.append(f"flags=TensorFlags.{self.flags.name}")
        return f"{type(self).__name__}({', '.join(arguments)})"

    def _checked_total_size(self, total_size_in_bytes: object) -> int:
        minimum = self.minimum_size_in_bytes
        if minimum > MAXIMUM_UINT64:
            raise DescriptorError(
                "TensorDesc",
                "strides",
                self.strides,
                f"the last element ends at byte {minimum}, past the 64 bits of a size",
            )
        if total_size_in_bytes is None:
            return minimum
        rule = (
            f"must hold the elements of sizes {self.sizes} with strides {self.element_strides}, rounded up to 4 bytes"
        )
        return as_integer("TensorDesc", "total_size_in_bytes", total_size_in_bytes, minimum, MAXIMUM_UINT64, rule)

    @property
    def rank(self) -> int:
        """The number of dimensions: DimensionCount."""
        return len(self.sizes)

    @cached_property
    def element_count(self) -> int:
        """The product of the sizes."""
        return math.prod(self.sizes)

    @cached_property
    def element_strides(self) -> tuple[int, ...]:
        """Strides in elements, written out when `strides` is None."""
        return packed_strides(self.sizes) if self.strides is None else self.strides

    @cached_property
    def minimum_size_in_bytes(self) -> int:
        """DirectML's minimum implied size: up to the end of the last element, rounded up to a multiple of 4 bytes."""
        last = sum((size - 1) * stride for size, stride in zip(self.sizes, self.element_strides, strict=True))
        return -(-(last + 1) * self.data_type.size_in_bytes // 4) * 4

    @cached_property
    def is_packed(self) -> bool:
        """Whether the elements lie in row-major order without gaps; the stride of a size of 1 does not matter."""
        layout = zip(self.sizes, self.element_strides, packed_strides(self.sizes), strict=True)
        return all(size == 1 or stride == packed for size, stride, packed in layout)

    def has_overlap(self) -> bool:
        """Whether two coordinates share an element. Also True in the rare case that `find_overlap` cannot decide."""
        return find_overlap(self.sizes, self.element_strides) is not None


def _checked_sizes(sizes: object) -> tuple[int, ...]:
    rule = "a size is 1 or more; a tensor without elements cannot be described"
    checked = as_integers("TensorDesc", "sizes", sizes, 1, MAXIMUM_UINT32, rule)
    if not 1 <= len(checked) <= MAXIMUM_RANK:
        raise DescriptorError(
            "TensorDesc", "sizes", checked, f"a tensor has 1 to {MAXIMUM_RANK} dimensions, not {len(checked)}"
        )
    if math.prod(checked) > MAXIMUM_UINT32:
        rule = f"a tensor has at most 2**32 - 1 elements, not {math.prod(checked)}"
        raise DescriptorError("TensorDesc", "sizes", checked, rule)
    return checked


def _checked_strides(strides: object, rank: int) -> tuple[int, ...]:
    rule = "a stride counts elements in 32 unsigned bits; 0 broadcasts"
    checked = as_integers("TensorDesc", "strides", strides, 0, MAXIMUM_UINT32, rule)
    if len(checked) != rank:
        raise DescriptorError("TensorDesc", "strides", checked, "there is one stride a dimension", f"{rank} strides")
    return checked


def _strides_of(array: Any, data_type: DataType) -> tuple[int, ...] | None:
    """An array's own strides in elements; None if it is packed.

    Raises DescriptorError: no tensor has such strides.
    """
    size = data_type.size_in_bytes
    sizes = tuple(array.shape)
    in_bytes = tuple((array if hasattr(array, "strides") else np.asarray(array)).strides)
    used = [stride for extent, stride in zip(sizes, in_bytes, strict=True) if extent > 1]
    if any(stride < 0 for stride in used):
        rule = "the array runs backwards through memory, and the strides of a tensor are 0 or more"
        expected = "strides=None, which is packed: device.tensor copies such an array in its order"
        raise DescriptorError("TensorDesc", "strides", tuple(stride // size for stride in in_bytes), rule, expected)
    if any(stride % size for stride in used):
        rule = f"the array's strides are these bytes, and no multiples of the {size} bytes of an element"
        expected = "strides=None, which is packed: device.tensor copies such an array"
        raise DescriptorError("TensorDesc", "strides", in_bytes, rule, expected)
    # The stride of a dimension of one element is never used. NumPy leaves anything there.
    packed = packed_strides(sizes)
    strides = tuple(
        stride // size if extent > 1 else natural
        for extent, stride, natural in zip(sizes, in_bytes, packed, strict=True)
    )
    return None if strides == packed else strides


def _checked_alignment(alignment: object, data_type: DataType) -> int:
    if type(alignment) is int and alignment == 0:
        return 0  # the usual case
    rule = f"must be 0 or a power of two that is no smaller than an element of {data_type.name}"
    field = "guaranteed_base_offset_alignment"
    checked = as_integer("TensorDesc", field, alignment, 0, MAXIMUM_UINT32, rule)
    if checked and (checked & (checked - 1) or checked < data_type.size_in_bytes):
        raise DescriptorError(
            "TensorDesc", field, checked, rule, f"0, {data_type.size_in_bytes}, 16 or 32, for example"
        )
    return checked


def _checked_flags(flags: object) -> TensorFlags:
    if flags is NO_FLAGS:
        return NO_FLAGS  # the usual case
    rule = "must be TensorFlags.NONE or TensorFlags.OWNED_BY_DML"
    return TensorFlags(as_integer("TensorDesc", "flags", flags, 0, 1, rule))
