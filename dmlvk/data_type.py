"""The element types of tensors: DML_TENSOR_DATA_TYPE."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dmlvk.errors import shown

# The presentation types of a format specification that ask for a number: f"{data_type:d}" is DirectML's value.
NUMERIC_PRESENTATIONS = frozenset("bcdeEfFgGnoxX%")

# What to do about the dtypes that DirectML lacks and arrays often have.
INSTEAD = {
    "bool": "view it as uint8: array.view(np.uint8) has its bytes, which are 0 and 1",
    "bfloat16": "array.astype(np.float32) keeps its values, array.view(np.uint16) its bits",
    "complex64": "array.view(np.float32) has its real and imaginary parts side by side",
    "complex128": "array.view(np.float64) has its real and imaginary parts side by side",
    "object": "give its elements a type first, such as array.astype(np.float32), if one type holds them all",
    "datetime64": "array.view(np.int64) has its bits",
    "timedelta64": "array.view(np.int64) has its bits",
}


class DataType(IntEnum):
    """DirectML's tensor data types, with DirectML's values.

    `DataType("uint8")` finds a type by its name in any case, by a NumPy dtype, by a torch dtype or by DirectML's value.
    `str(DataType.UINT8)` is "uint8", which is NumPy's name too.

    UNKNOWN (0) and the 4-bit types (12 and 13) are left out: none of the four operators takes them.

    Raises:
        ValueError: There is no such type; the message says which there are.
    """

    FLOAT32 = 1
    FLOAT16 = 2
    UINT32 = 3
    UINT16 = 4
    UINT8 = 5
    INT32 = 6
    INT16 = 7
    INT8 = 8
    FLOAT64 = 9
    UINT64 = 10
    INT64 = 11

    if TYPE_CHECKING:
        # Type checkers take an IntEnum for one that is called with an int only.
        _value_: int

        def __new__(cls, value: object) -> DataType: ...

    def __str__(self) -> str:
        return self.name.lower()

    def __format__(self, specification: str) -> str:
        # Python's versions differ in what an IntEnum does here.
        is_number = specification[-1:] in NUMERIC_PRESENTATIONS
        return format(int(self) if is_number else str(self), specification)

    @classmethod
    def _missing_(cls, value: object) -> DataType:
        if value is None or isinstance(value, (bool, int, float, np.number)):
            numbers = ", ".join(f"{member.name} = {int(member)}" for member in cls)
            raise ValueError(f"{shown(value)} is no data type; a name such as 'uint8', a NumPy dtype or {numbers}")
        try:
            return cls.from_numpy(value)  # type: ignore[arg-type]  # which says what is wrong with it
        except TypeError as error:
            raise ValueError(str(error)) from None

    @property
    def numpy_dtype(self) -> np.dtype:
        """The NumPy dtype with the same bits."""
        return _NUMPY_DTYPES[self]

    @property
    def size_in_bytes(self) -> int:
        """Bytes an element: 1, 2, 4 or 8."""
        return _NUMPY_DTYPES[self].itemsize

    @property
    def is_floating_point(self) -> bool:
        return self.name.startswith("FLOAT")

    @property
    def is_signed_integer(self) -> bool:
        return self.name.startswith("INT")

    @classmethod
    def from_numpy(cls, dtype: npt.DTypeLike) -> DataType:
        """The data type with the bits of a NumPy dtype.

        Args:
            dtype (dtype): Whatever `numpy.dtype` takes, a name of DirectML's in any case, or a torch dtype. The byte
                order does not count.

        Raises:
            TypeError: For a dtype that DirectML has no type for (bool, bfloat16, complex, strings, ...), with those
                that it has, and with what to do instead where that can be said.
        """
        name = _name(dtype)
        found = None if name is None else cls.__members__.get(name.upper())
        if found is None:
            rule = f"{shown(dtype)} is no NumPy dtype" if name is None else f"dtype {name} has no DirectML data type"
            hint = data_type_hint(dtype)
            raise TypeError(f"{rule}; supported are {_names()}" + (f"; {hint}" if hint else ""))
        return found


# Made once, because they are looked up at each transfer.
_NUMPY_DTYPES = {member: np.dtype(member.name.lower()) for member in DataType}


def data_type_hint(dtype: object) -> str:
    """What to do in place of a dtype that is no data type, or what its name may mean; "" where nothing can be said."""
    name = _name(dtype)
    if name is not None:
        return INSTEAD.get(name.partition("[")[0], "")
    if not isinstance(dtype, str):
        return ""
    from difflib import get_close_matches  # here, because no program that is right needs it

    close = get_close_matches(dtype[:20].lower(), _names().split(", "))
    return f"did you mean {' or '.join(close)}?" if close else ""


def _name(dtype: Any) -> str | None:
    """The name of a dtype as NumPy would call it; None if the argument is not a dtype."""
    if isinstance(dtype, str) and (dtype.upper() in DataType.__members__ or dtype.lower() in INSTEAD):
        return dtype.lower()
    if type(dtype).__module__ == "torch":  # torch.float32; by name, so that torch need not be there
        return str(dtype).rpartition(".")[2]
    try:
        return np.dtype(dtype).name
    except (TypeError, ValueError, SyntaxError):  # what NumPy raises for text depends on where it stops reading
        return None


def _names() -> str:
    return ", ".join(str(member) for member in DataType)
