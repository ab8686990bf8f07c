"""The element types of tensors: DML_TENSOR_DATA_TYPE."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from dmlvk.errors import shown


class DataType(IntEnum):
    """DirectML's tensor data types, with DirectML's values.

    UNKNOWN (0) and the 4-bit types (12 and 13) are left out: none of the four operators takes them.
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

    @property
    def numpy_dtype(self) -> np.dtype:
        """The NumPy dtype with the same bits."""
        return np.dtype(self.name.lower())

    @property
    def size_in_bytes(self) -> int:
        """Bytes an element: 1, 2, 4 or 8."""
        return self.numpy_dtype.itemsize

    @property
    def is_floating_point(self) -> bool:
        return self.name.startswith("FLOAT")

    @property
    def is_signed_integer(self) -> bool:
        return self.name.startswith("INT")

    @classmethod
    def from_numpy(cls, dtype: npt.DTypeLike) -> DataType:
        """The data type with the bits of a NumPy dtype.

        Raises
        ------
        TypeError
            For a dtype that DirectML has no type for (bool, complex, strings, ...), with those that it has.
        """
        supported = ", ".join(data_type.name.lower() for data_type in cls)
        try:
            name = np.dtype(dtype).name
        except (TypeError, ValueError, SyntaxError):  # what NumPy raises for text depends on where it stops reading
            raise TypeError(f"{shown(dtype)} is no NumPy dtype; supported are {supported}") from None
        if name.upper() not in cls.__members__:
            raise TypeError(f"dtype {name} has no DirectML data type; supported are {supported}")
        return cls[name.upper()]
