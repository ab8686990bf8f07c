"""DLPack's structures for the memory of a CUDA device, which NumPy cannot read.

Source: dlpack.h of dmlc/dlpack, version 0.8, whose structures every consumer reads.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from dmlvk.runtime.elements import element_view
from dmlvk.tensor_desc import TensorDesc, packed_strides

DL_CUDA = 2
NAME = b"dltensor"
USED_NAME = b"used_dltensor"
# NumPy's kind of a dtype by DLDataTypeCode.
KINDS = {0: "i", 1: "u", 2: "f"}


class DLDevice(ctypes.Structure):
    """A kind of device, and its number."""

    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class DLDataType(ctypes.Structure):
    """An element type: its kind, its bits, and the number of elements in a vector."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class DLTensor(ctypes.Structure):
    """Elements in memory. Strides count elements; NULL is packed."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class DLManagedTensor(ctypes.Structure):
    """A DLTensor with the function that its consumer calls when it is done."""

    _fields_ = (("dl_tensor", DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))


class _Foreign:
    """Bytes that the host cannot read, at an address of another device, for NumPy's array interface."""

    def __init__(self, address: int, size: int, owner: object) -> None:
        self.owner = owner
        self.__array_interface__ = {"version": 3, "shape": (size,), "typestr": "|u1", "data": (address, False)}


def capsule_of(desc: TensorDesc, address: int, device: tuple[int, int], owner: object) -> Any:
    """A capsule with a tensor in the memory of a device.

    NumPy makes the capsule, as of an array that nobody reads, and only the device is changed afterwards: NumPy's own
    functions in C end it safely, on any thread and in the middle of an exception. Functions in Python would not.

    address: of the tensor's memory, as the device counts addresses.
    device: DLDeviceType, and the number of the device.
    owner: kept until the consumer is done.
    """
    unreadable = np.asarray(_Foreign(address, desc.total_size_in_bytes, owner))
    capsule = element_view(desc, unreadable).__dlpack__()
    tensor = DLManagedTensor.from_address(_pointer(capsule, NAME)).dl_tensor
    tensor.device.device_type, tensor.device.device_id = device
    return capsule


class Import:
    """The tensor in another library's capsule. It is given back to the library by `release`.

    address: of the first element.
    sizes, strides: strides count elements.
    Raises TypeError: elements of a type that DirectML lacks.
    """

    def __init__(self, capsule: Any) -> None:
        pointer = _pointer(capsule, NAME)
        _set_name(capsule, USED_NAME)
        self._managed: DLManagedTensor | None = DLManagedTensor.from_address(pointer)
        tensor = self._managed.dl_tensor
        self.address = (tensor.data or 0) + tensor.byte_offset
        self.sizes: tuple[int, ...] = tuple(tensor.shape[: tensor.ndim])
        strides = tensor.strides[: tensor.ndim] if tensor.strides else packed_strides(self.sizes)
        self.strides: tuple[int, ...] = tuple(strides)
        kind, bits, lanes = KINDS.get(tensor.dtype.code), tensor.dtype.bits, tensor.dtype.lanes
        if kind is None or lanes != 1:
            code = tensor.dtype.code
            self.release()
            raise TypeError(
                f"DLPack's type with code {code}, {bits} bits and {lanes} lanes has no DirectML data type: convert the "
                "elements first (bfloat16: to float32; bool: to uint8)"
            )
        self.dtype = np.dtype(f"{kind}{bits // 8}")

    def release(self) -> None:
        """Give the tensor back to its library. May be repeated."""
        managed, self._managed = self._managed, None
        if managed is not None and managed.deleter:
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(managed.deleter)(ctypes.addressof(managed))
