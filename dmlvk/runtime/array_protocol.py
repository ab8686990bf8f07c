"""A tensor as NumPy sees it: shape, dtype and conversion, and arithmetic refused with a hint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from dmlvk.runtime.elements import Array
from dmlvk.runtime.of_device import OfDevice
from dmlvk.tensor_desc import TensorDesc
from dmlvk.vulkan.allocation import Allocation

Class = TypeVar("Class", bound=type)

HINT = (
    "a dmlvk.Tensor computes nothing by itself: copy its elements to the host (tensor.numpy()), share them "
    "(np.from_dlpack(tensor), torch.from_dlpack(tensor)), or run an operator on them (dmlvk.slice1, ...)"
)


TO_HOST = "tensor.numpy() copies its elements to an array"
ON_HOST = "tensor.numpy().{name} has it, on a copy of its elements"
# Names that arrays of other libraries have, and what has their place here. Attributes of NumPy's arrays are added.
ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(np.ndarray.__dict__, ON_HOST),
    **dict.fromkeys(
        ("array", "as_numpy", "asarray", "asnumpy", "contiguous", "copy_to_host", "cpu", "data", "detach", "download"),
        TO_HOST,
    ),
    **dict.fromkeys(("eval", "fetch", "get", "host", "numpy_array", "read", "to_host", "to_numpy", "value"), TO_HOST),
    **dict.fromkeys(("values", "tonumpy"), TO_HOST),
    "to": f"{TO_HOST}; other.tensor(tensor) copies them to another device",
    "cuda": "torch.from_dlpack(tensor) and cupy.from_dlpack(tensor) share its memory on CUDA's GPUs",
    **dict.fromkeys(("clone", "copy"), "device.tensor(tensor) copies it on the device; tensor.numpy() to the host"),
    **dict.fromkeys(("assign", "copy_", "fill_", "put", "set", "update", "upload"), "tensor.write(array) writes it"),
    "fill": "tensor.write(array) writes it; device.zeros(sizes, data_type) makes one of zeros",
    **{name: f"tensor.desc.{name}" for name in ("data_type", "element_count", "element_strides", "is_packed")},
    **{name: f"tensor.desc.{name}" for name in ("rank", "sizes", "strides", "total_size_in_bytes")},
}


class Elsewhere:
    """An attribute that is not there, and whose error says what is. `hasattr` says no; no call gets slower by it."""

    def __init__(self, advice: str) -> None:
        self._advice = advice

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        kind = f"dmlvk.{(owner or type(instance)).__name__}"
        raise AttributeError(f"a {kind} has no attribute {self._name!r}: {self._advice.format(name=self._name)}")


def with_advice(advice: Mapping[str, str]) -> Callable[[Class], Class]:
    """Add attributes to a class that are not there, each with what has its place. `dir` does not show them."""

    def add(owner: Class) -> Class:
        for name, text in advice.items():
            if not name.startswith("__") and not hasattr(owner, name):
                absent = Elsewhere(text)
                absent.__set_name__(owner, name)
                setattr(owner, name, absent)
        every = owner.__dir__

        def shown(self: object) -> list[str]:
            return [name for name in every(self) if name not in advice or hasattr(self, name)]  # type: ignore[call-arg]

        owner.__dir__ = shown  # type: ignore[method-assign, assignment]
        return owner

    return add


class ArrayProtocol(OfDevice):
    """Elements in a device's memory, with the attributes of an array and NumPy's protocol.

    Two tensors are equal if they are the same object: comparing elements is arithmetic.
    """

    __slots__ = ()

    desc: TensorDesc
    offset: int

    def memory(self) -> Allocation:
        """The memory in which the elements lie, from `offset` on."""
        raise NotImplementedError

    def numpy(self, out: Array | None = None) -> Array:
        """Copy the elements to an array."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes, outermost first."""
        return self.desc.sizes

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the elements."""
        return self.desc.data_type.numpy_dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.desc.rank

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.desc.element_count

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, excluding gaps between them: those of `tensor.numpy()`."""
        return self.desc.element_count * self.desc.data_type.size_in_bytes

    def __len__(self) -> int:
        return self.desc.sizes[0]

    def __bool__(self) -> bool:
        if self.size != 1:
            message = "a Tensor of several elements is neither true nor false: use tensor.numpy().any() or .all()"
            raise ValueError(message)
        return bool(self.numpy().item())

    def tolist(self) -> list[Any]:
        """The elements as Python numbers, in nested lists."""
        found: list[Any] = self.numpy().tolist()
        return found

    def item(self) -> Any:
        """The only element as a Python number.

        Raises ValueError: there are several elements.
        """
        if self.size != 1:
            raise ValueError(f"a Tensor of sizes {self.desc.sizes} has {self.size} elements, not one: use tolist()")
        return self.numpy().item()

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        """The elements, copied: `np.asarray(tensor)` is `tensor.numpy()`. `np.from_dlpack(tensor)` shares memory."""
        if copy is False:
            raise ValueError("here the elements of a Tensor are copied; np.from_dlpack(tensor) shares them if it can")
        return self.numpy() if dtype is None else self.numpy().astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: object, method: str, *inputs: object, **arguments: object) -> NoReturn:
        raise TypeError(HINT)

    def __getitem__(self, index: object) -> NoReturn:
        raise TypeError(
            "a dmlvk.Tensor is not indexed or iterated over: take a copy (tensor.numpy(), tensor.tolist()), or copy a "
            "window on the device (dmlvk.slice1)"
        )

    def __setitem__(self, index: object, value: object) -> NoReturn:
        raise TypeError(
            "single elements of a dmlvk.Tensor are not written: write all of them (tensor.write(array)), or share the "
            "memory (np.from_dlpack(tensor)[...] = value)"
        )

    # No methods for < and the like: Python refuses these anyway, and a class with one of them is compared by name
    # look-ups, which would cost each call of an operator 40 ns a tensor.
    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(HINT)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _refuse
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __and__ = __rand__ = __or__ = __ror__ = _refuse
    __xor__ = __rxor__ = __neg__ = __pos__ = __abs__ = __invert__ = __divmod__ = __rdivmod__ = _refuse
