"""DLPack's structures for memory that NumPy cannot describe: the memory of a CUDA device.

Source: dlpack.h of dmlc/dlpack, version 0.8, whose structures every consumer reads.
"""

from __future__ import annotations

import atexit
import ctypes
from typing import Any

import numpy as np

from dmlvk.tensor_desc import TensorDesc, packed_strides

DL_CUDA = 2
NAME = b"dltensor"
USED_NAME = b"used_dltensor"
# DLDataTypeCode by NumPy's kind of a dtype.
CODES = {"i": 0, "u": 1, "f": 2}
KINDS = {code: kind for kind, code in CODES.items()}


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


class Export:
    """One DLManagedTensor that a consumer holds, and the owner of its memory."""

    def __init__(self, desc: TensorDesc, address: int, device: tuple[int, int], owner: object) -> None:
        self.owner = owner
        self.sizes = (ctypes.c_int64 * desc.rank)(*desc.sizes)
        self.strides = (ctypes.c_int64 * desc.rank)(*desc.element_strides)
        dtype = desc.data_type.numpy_dtype
        self.managed = DLManagedTensor(
            DLTensor(
                address,
                DLDevice(*device),
                desc.rank,
                DLDataType(CODES[dtype.kind], 8 * dtype.itemsize, 1),
                self.sizes,
                self.strides,
                0,
            ),
            None,
            ctypes.cast(_delete, ctypes.c_void_p),
        )
        self.address = ctypes.addressof(self.managed)


# The exports that consumers hold, by the address of their structure.
_exports: dict[int, Export] = {}


def _forget(address: int) -> None:
    """Drop an export: its consumer is done."""
    _exports.pop(address, None)


def _forget_unused(capsule: int) -> None:
    """Drop the export of a capsule that no consumer took. The capsule is being freed, so it has no Python object."""
    if _is_valid(capsule, NAME):
        _exports.pop(_pointer_of_freed(capsule, NAME), None)


# void (*deleter)(struct DLManagedTensor* self): called by any thread, with or without Python's lock.
_delete = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_forget)
# typedef void (*PyCapsule_Destructor)(PyObject*)
_destroy = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_forget_unused)
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer_of_freed = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))


@atexit.register
def _leave() -> None:
    """As the process ends: consumers that are freed later must not call Python any more."""
    for export in list(_exports.values()):
        export.managed.deleter = None


def capsule_of(desc: TensorDesc, address: int, device: tuple[int, int], owner: object) -> Any:
    """A capsule with a tensor in the memory of a device.

    Parameters
    ----------
    desc : TensorDesc
    address : int
        Of the first element, as the device counts addresses.
    device : (int, int)
        DLDeviceType, and the number of the device.
    owner : object
        Kept until the consumer is done.
    """
    export = Export(desc, address, device, owner)
    _exports[export.address] = export
    return _new(export.address, NAME, ctypes.cast(_destroy, ctypes.c_void_p))


class Import:
    """The tensor in another library's capsule. It is given back to the library by `release`.

    Attributes
    ----------
    address : int
        Of the first element.
    sizes, strides : tuple of int
        Strides count elements.
    dtype : numpy.dtype
    device : (int, int)
        DLDeviceType, and the number of the device.
    """

    def __init__(self, capsule: Any) -> None:
        pointer = _pointer(capsule, NAME)
        _set_name(capsule, USED_NAME)
        self._managed: DLManagedTensor | None = DLManagedTensor.from_address(pointer)
        tensor = self._managed.dl_tensor
        self.address = (tensor.data or 0) + tensor.byte_offset
        self.device = (tensor.device.device_type, tensor.device.device_id)
        self.sizes: tuple[int, ...] = tuple(tensor.shape[: tensor.ndim])
        self.strides: tuple[int, ...] = (
            tuple(tensor.strides[: tensor.ndim]) if tensor.strides else packed_strides(self.sizes)
        )
        kind = KINDS.get(tensor.dtype.code)
        if kind is None or tensor.dtype.lanes != 1:
            self.release()
            raise TypeError(
                f"DLPack's type with code {tensor.dtype.code}, {tensor.dtype.bits} bits and {tensor.dtype.lanes} lanes "
                "has no DirectML data type: convert the elements first (bfloat16: to float32; bool: to uint8)"
            )
        self.dtype = np.dtype(f"{kind}{tensor.dtype.bits // 8}")

    def release(self) -> None:
        """Give the tensor back to its library. May be repeated."""
        managed, self._managed = self._managed, None
        if managed is not None and managed.deleter:
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(managed.deleter)(ctypes.addressof(managed))
