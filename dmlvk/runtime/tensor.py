"""Memory on a device, and the tensors in it."""

from __future__ import annotations

from typing import Any
from weakref import ref

import numpy as np

from dmlvk._common.arguments import as_argument, named_arguments
from dmlvk.errors import BindingError
from dmlvk.runtime.array_protocol import ELSEWHERE, ArrayProtocol, with_advice
from dmlvk.runtime.copying import NotCopied
from dmlvk.runtime.elements import Array, Bytes, element_view, write_elements
from dmlvk.runtime.engine import Engine
from dmlvk.runtime.exchange import array_of, dlpack_capsule, dlpack_device
from dmlvk.runtime.layouts import LEAST_SIZE_TURNED_ON_DEVICE, read_turned, turn, write_turned
from dmlvk.runtime.of_device import OfDevice
from dmlvk.tensor_desc import TensorDesc
from dmlvk.vulkan.allocation import Allocation
from dmlvk.vulkan.transfers import LARGE

# Kernels read and write 16 bytes at a time from a tensor's start.
TENSOR_ALIGNMENT = 16


class Buffer(OfDevice, NotCopied):
    """A block of memory on a device, for tensors that must lie next to each other. Made by `Device.buffer`.

    Attributes:
        device (Device):
        size_in_bytes (int):
    """

    in_place_of_a_copy = "copy the contents of its tensors (Tensor.read_bytes, Tensor.write_bytes)"

    def __init__(self, engine: Engine, size_in_bytes: int, memory: Allocation) -> None:
        self.engine = engine
        self.size_in_bytes = size_in_bytes
        self._memory: Allocation | None = memory

    @classmethod
    def on_host(cls, engine: Engine, size_in_bytes: int) -> Buffer:
        """A buffer in the host's own memory, which the device reaches over the bus.

        For sequences whose dispatches read or write each byte about once: an array of the host is then copied once, and
        no transfer is submitted.
        """
        return cls(engine, size_in_bytes, engine.vulkan.memory.allocate_on_host(size_in_bytes))

    def __repr__(self) -> str:
        return f"<dmlvk.Buffer of {self.size_in_bytes} bytes on {self.engine.name}>"

    @named_arguments
    def tensor(self, desc: TensorDesc, offset: int = 0) -> Tensor:
        """Place a tensor in the buffer. The tensor keeps the memory alive. Tensors may overlap.

        Args:
            desc (TensorDesc): What lies there.
            offset (int): Bytes from the buffer's start; a multiple of 16 and of the desc's
                guaranteed_base_offset_alignment.

        Raises:
            BindingError: For an offset that is not an integer or not aligned, or a tensor that does not fit.
        """
        if not isinstance(desc, TensorDesc):
            raise TypeError(f"desc is a TensorDesc, not {type(desc).__name__}")
        alignment = max(TENSOR_ALIGNMENT, desc.guaranteed_base_offset_alignment)
        rule = f"a tensor starts inside its buffer, at a multiple of {alignment}"
        offset = as_argument("offset", offset, 0, self.size_in_bytes, rule)
        if offset % alignment:
            raise BindingError(f"offset {offset} is no multiple of {alignment}: use {offset // alignment * alignment}")
        end = offset + desc.total_size_in_bytes
        if end > self.size_in_bytes:
            raise BindingError(
                f"a tensor of {desc.total_size_in_bytes} bytes at offset {offset} ends at {end}, past the buffer's "
                f"{self.size_in_bytes} bytes"
            )
        return Tensor(self.engine, desc, self._live_memory(), offset)

    def _live_memory(self) -> Allocation:
        self.engine.require_open()
        if self._memory is None:
            raise BindingError(f"{self!r} was freed")
        return self._memory

    def free(self) -> None:
        """Release the memory. It is given back when no tensor, binding or running work uses it any more."""
        self._memory = None


@with_advice(ELSEWHERE)
class Tensor(NotCopied, ArrayProtocol):
    """A tensor in a device's memory. Made by `Device.tensor` and `Buffer.tensor`.

    Attributes:
        device (Device):
        desc (TensorDesc):
        offset (int): Bytes from the start of its memory.
    """

    # calls : set of weak references to Call, optional
    #     The calls with this tensor that operators remember. Not a WeakSet: while one thread goes through that,
    #     another one may not add to it.

    __slots__ = ("__weakref__", "_memory", "calls", "desc", "engine", "offset")

    in_place_of_a_copy = "copy the contents (device.tensor(tensor.numpy())), or send tensor.numpy()"

    def __init__(self, engine: Engine, desc: TensorDesc, memory: Allocation, offset: int = 0) -> None:
        self.calls: set[ref[Any]] | None = None
        self.engine = engine
        self.desc = desc
        self.offset = offset
        self._memory: Allocation | None = memory

    @classmethod
    def empty(cls, engine: Engine, desc: TensorDesc) -> Tensor:
        """A tensor whose contents are undefined, in memory of its own."""
        return cls(engine, desc, engine.vulkan.memory.allocate(desc.total_size_in_bytes))

    def __repr__(self) -> str:
        return f"<dmlvk.Tensor {self.desc.data_type.name} {self.desc.sizes} on {self.engine.name}>"

    @property
    def is_freed(self) -> bool:
        """Whether `free` was called."""
        return self._memory is None

    def memory(self) -> Allocation:
        """The memory in which the tensor lies.

        Raises:
            BindingError: The tensor was freed.
            DeviceError: Its device was closed.
        """
        self.engine.require_open()
        if self._memory is None:
            raise BindingError(f"{self!r} was freed")
        return self._memory

    def free(self) -> None:
        """Release the memory now. It is given back when no other tensor, binding or running work uses it any more."""
        self._forget_calls()
        self._memory = None
        self._forget_calls()  # the calls that another thread has made meanwhile

    def __del__(self) -> None:
        if getattr(self, "calls", None) is not None:
            # A finalizer that revives the tensor finds it freed: the calls remembered by its id are gone.
            self._memory = None
            self._forget_calls()

    def _forget_calls(self) -> None:
        if self.calls is not None:
            for reference in self.calls.copy():
                call = reference()
                if call is not None:
                    call.forget()

    def numpy(self, out: Array | None = None) -> Array:
        """Copy the elements to an array, after waiting for the work that writes them.

        Args:
            out (numpy.ndarray, optional): An array of the tensor's sizes and data type, of any strides, to be filled;
                by default a new, packed one. After an exception it may be filled in part.

        Returns:
            numpy.ndarray: `out`, or the new array.

        Raises:
            BindingError: `out` has other sizes or another data type, or cannot be written.
            TypeError: `out` is not a NumPy array.
        """
        dtype = self.desc.data_type.numpy_dtype
        if out is None:
            out = np.empty(self.desc.sizes, dtype)
        elif not isinstance(out, np.ndarray):
            raise TypeError(f"out is a numpy.ndarray, not {type(out).__name__}")
        elif out.shape != self.desc.sizes or out.dtype != dtype:
            raise BindingError(
                f"out is an array of shape {out.shape} and dtype {out.dtype}; the tensor's elements need "
                f"{self.desc.sizes} and {dtype}"
            )
        elif not out.flags.writeable:
            raise BindingError("out is a read-only array: pass one that can be written, or none")
        self._read_into(np.asarray(out))  # a matrix would have two dimensions whatever it is reshaped to
        return out

    def _read_into(self, out: Array) -> None:
        if self.engine.vulkan.visits.during(self._read_mapped, out):
            return
        if self.desc.total_size_in_bytes >= LEAST_SIZE_TURNED_ON_DEVICE and read_turned(self, out):
            return
        memory = self.memory()
        if self.desc.is_packed and out.flags.c_contiguous:
            self.engine.vulkan.transfers.read(memory, self.offset, out.reshape(-1).view(np.uint8))
        else:
            out[...] = element_view(self.desc, self._read(memory))

    def _read_mapped(self, out: Array) -> bool:
        """Read the elements where the host reaches them; whether it does."""
        memory = self.memory()
        view = self._mapped(memory, out)
        if view is None:
            return False
        self.engine.vulkan.transfers.wait_for_writes(memory)
        out[...] = element_view(self.desc, view)
        return True

    def mapped_bytes(self) -> Bytes | None:
        """The host's view of a small packed tensor, for visits alone; None if there is none.

        None also if several threads are to copy the tensor, or it has gaps.
        """
        size = self.desc.total_size_in_bytes
        if size >= LARGE or not self.desc.is_packed:
            return None
        return self.engine.vulkan.transfers.mapped(self.memory(), self.offset, size)

    def _mapped(self, memory: Allocation, array: Array) -> Bytes | None:
        """The host's view of the memory; None if the host cannot reach it, or if several threads are to copy."""
        size = self.desc.total_size_in_bytes
        if size >= LARGE and self.desc.is_packed and array.flags.c_contiguous:
            return None
        return self.engine.vulkan.transfers.mapped(memory, self.offset, size)

    def write(self, array: Any) -> None:
        """Write every element, with any strides. Bytes between the elements keep their value.

        Work submitted before the write sees the old elements; work submitted after it sees the new ones. If elements
        share memory, the last of them in row-major order is kept.

        Args:
            array (array_like): Of the tensor's sizes and data type, with any strides and byte order: a NumPy array, a
                list, a Tensor, or another library's array (by DLPack). Elements that another thread changes meanwhile
                arrive as they were before or after the change.

        Raises:
            BindingError: For other sizes or another data type.
        """
        desc = self.desc
        if isinstance(array, Tensor) and array.engine is self.engine and self._write_tensor(array):
            return
        elements = array_of(array)
        if elements.shape != desc.sizes:
            raise BindingError(
                f"an array of shape {elements.shape} cannot be written to a tensor of sizes {desc.sizes}"
            )
        expected = desc.data_type.numpy_dtype
        if elements.dtype.newbyteorder("=") != expected:
            raise BindingError(f"an array of {elements.dtype} cannot be written to a tensor of {expected}; use astype")
        if self.engine.vulkan.visits.during(self._write_mapped, elements):
            return
        memory = self.memory()
        if desc.is_packed and elements.flags.c_contiguous and elements.dtype.isnative:
            self.engine.vulkan.transfers.write(memory, self.offset, elements.reshape(-1).view(np.uint8))
        elif desc.total_size_in_bytes >= LEAST_SIZE_TURNED_ON_DEVICE and write_turned(self, elements):
            return
        elif desc.is_packed:
            packed = np.ascontiguousarray(elements, dtype=expected)
            self.engine.vulkan.transfers.write(memory, self.offset, packed.reshape(-1).view(np.uint8))
        else:
            content = self._read(memory)
            write_elements(desc, content, elements)
            self.engine.vulkan.transfers.write(memory, self.offset, content)

    def _write_tensor(self, source: Tensor) -> bool:
        """Write the elements of a tensor of the same device; whether the device can do that."""
        is_alike = source.desc.sizes == self.desc.sizes and source.desc.data_type == self.desc.data_type
        if not is_alike or self.desc.has_overlap() or source.memory() is self.memory():
            return False
        turn(source, self)
        return True

    def _write_mapped(self, elements: Array) -> bool:
        """Write the elements where the host reaches them; whether it does."""
        memory = self.memory()
        view = self._mapped(memory, elements)
        if view is None:
            return False
        self.engine.vulkan.transfers.wait_for_uses(memory)
        write_elements(self.desc, view, elements)
        return True

    def __dlpack_device__(self) -> tuple[int, int]:
        """The kind and the number of the device whose memory `__dlpack__` gives: (1, 0) is the host's."""
        return dlpack_device(self)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The memory in DLPack's form, for `np.from_dlpack(tensor)`, `torch.from_dlpack(tensor)` and others.

        The consumer's array shares the tensor's memory where the host reaches it, and keeps that memory when the tensor
        and its device are gone. Work in flight is waited for here. Work that is submitted later has to be waited for
        (`Submission.wait`) before the consumer looks at its results.

        Args:
            stream, max_version, dl_device, copy: As Python's array API standard has them.

        Raises:
            BufferError: The memory cannot be shared; the message says why. `copy=True` copies.
        """
        return dlpack_capsule(self, stream, max_version, dl_device, copy)

    def read_bytes(self) -> bytes:
        """The whole memory, after waiting for its writes: `desc.total_size_in_bytes` bytes with gaps and padding."""
        return self._read(self.memory()).tobytes()

    def write_bytes(self, data: Any) -> None:
        """Write the whole memory, gaps and padding included.

        Args:
            data (bytes-like): Exactly `desc.total_size_in_bytes` bytes.

        Raises:
            BindingError: For another number of bytes.
        """
        content = np.frombuffer(memoryview(data).cast("B"), np.uint8)
        if content.size != self.desc.total_size_in_bytes:
            raise BindingError(f"{content.size} bytes given for a tensor of {self.desc.total_size_in_bytes} bytes")
        self.engine.vulkan.transfers.write(self.memory(), self.offset, content)

    def _read(self, memory: Allocation) -> Bytes:
        content = np.empty(self.desc.total_size_in_bytes, np.uint8)
        self.engine.vulkan.transfers.read(memory, self.offset, content)
        return content
