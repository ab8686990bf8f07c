"""Elements from and for other libraries: arrays, lists, and DLPack, which shares memory instead of copying it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dmlvk._common.arguments import as_array, converted, integer_of
from dmlvk.errors import DeviceError, shown
from dmlvk.runtime.array_protocol import ArrayProtocol
from dmlvk.runtime.cuda_driver import library_device
from dmlvk.runtime.elements import Array, element_view
from dmlvk.runtime.engine import Engine
from dmlvk.tensor_desc import TensorDesc, as_data_type

if TYPE_CHECKING:
    from dmlvk.runtime.cuda_sharing import CudaSharing

# DLDeviceType, of dlpack.h
DL_CPU = 1
DL_CUDA = 2
DL_CUDA_HOST = 3
DL_VULKAN = 7
DL_ROCM_HOST = 11
HOST = (DL_CPU, 0)
# Memory that NumPy reads where it is: the host's own, and the host's memory that a GPU reaches too.
HOST_KINDS = (DL_CPU, DL_CUDA_HOST, DL_ROCM_HOST)
# Since NumPy 2.1, arrays take the newer arguments of __dlpack__.
NUMPY_TAKES_VERSIONS = tuple(int(part) for part in np.__version__.split(".")[:2]) >= (2, 1)


def dlpack_device(tensor: ArrayProtocol) -> tuple[int, int]:
    """The DLDeviceType of the memory of a tensor, and the number of the device."""
    if obstacle_to_host_view(tensor) is None:
        return HOST
    try:
        return DL_CUDA, cuda_sharing(tensor).ordinal
    except DeviceError:
        return DL_VULKAN, 0


def dlpack_capsule(
    tensor: ArrayProtocol,
    stream: object,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """The capsule that `Tensor.__dlpack__` returns.

    Raises BufferError: the memory cannot be shared as it is asked for; the message says why, and what is possible.
    """
    device = dlpack_device(tensor)
    if dl_device not in (None, HOST) and (dl_device != device or device[0] != DL_CUDA):
        raise BufferError(f"{tensor!r} is given to the host, {HOST}, not to the DLPack device {shown(dl_device)}")
    obstacle = obstacle_to_host_view(tensor)
    if device[0] == DL_CUDA and dl_device != HOST:
        shared = tensor.device.tensor(tensor) if copy else tensor
        return cuda_sharing(tensor).capsule(shared, _cuda_stream(stream))
    if stream is not None:
        raise BufferError(f"stream = {shown(stream)}: memory of the host has no streams; pass None")
    if copy or (obstacle is not None and copy is None and dl_device is not None):
        elements = tensor.numpy()
    elif obstacle is not None:
        raise BufferError(
            f"{tensor!r} cannot be shared with the host: {obstacle}; nor with CUDA: {_obstacle_to_cuda(tensor)}; "
            "tensor.numpy() copies, and so does copy=True"
        )
    else:
        elements = host_elements(tensor)
    if not NUMPY_TAKES_VERSIONS:
        return elements.__dlpack__()
    return elements.__dlpack__(max_version=max_version)


def _obstacle_to_cuda(tensor: ArrayProtocol) -> str:
    """Why CUDA does not see the memory of a tensor."""
    try:
        cuda_sharing(tensor)
    except DeviceError as error:
        return str(error)
    return "the host's memory was asked for"


def cuda_sharing(tensor: ArrayProtocol) -> CudaSharing:
    """The sharing with CUDA of the memory of a tensor.

    Raises DeviceError: CUDA cannot see the memory; the message says why.
    """
    if not tensor.engine.profile.runs_cuda:
        raise DeviceError("it shares memory with NVIDIA's own driver alone")
    if len(tensor.memory().segments) > 1:
        raise DeviceError("it lies in several blocks of this device's memory")
    from dmlvk.runtime.cuda_sharing import sharing_of

    return sharing_of(tensor.engine)


def _cuda_stream(stream: object) -> int | None:
    """The handle of a consumer's stream. The array API's rules: None is the default stream, and 0 is ambiguous."""
    if stream is None:
        return None
    found = integer_of(stream)
    if found is None or found == 0 or found < -1:
        raise BufferError(f"stream = {shown(stream)}: a CUDA stream is a handle, 1, 2, -1 or None; 0 is ambiguous")
    return found


def tensor_of_cuda(engine: Engine, values: Any) -> Any:
    """A packed tensor with the elements of a CUDA array on the GPU of a device, copied there; None for other values."""
    if not engine.profile.runs_cuda or not hasattr(values, "__dlpack_device__") or isinstance(values, np.ndarray):
        return None
    kind, ordinal = values.__dlpack_device__()
    if kind != DL_CUDA:
        return None
    values = _resolved(values)
    from dmlvk.runtime.cuda_sharing import is_on_gpu_of, sharing_of

    try:
        if not is_on_gpu_of(engine, ordinal):
            return None
        with library_device(ordinal):
            found = sharing_of(engine).tensor(engine, values)
    except DeviceError:
        return None
    if found is None or found.desc.is_packed:
        return found
    packed = engine.device.tensor(TensorDesc(found.desc.data_type, found.desc.sizes))
    packed.write(found)
    return packed


def obstacle_to_host_view(tensor: ArrayProtocol) -> str | None:
    """Why the host cannot reach the memory of a tensor; None if it can.

    Raises BindingError, DeviceError: the tensor was freed, or its device was closed.
    """
    memory = tensor.memory()
    if not memory.access.is_direct:
        return "the device has memory of its own, which the host does not reach at full speed"
    if len(memory.pieces(tensor.offset, tensor.desc.total_size_in_bytes)) > 1:
        return "it lies in several blocks of the device's memory, because none is as large"
    return None


def host_elements(tensor: ArrayProtocol) -> Array:
    """The elements where they are, without a copy. The array keeps the memory, not the tensor or the device.

    Work that is in flight is waited for.
    """
    return tensor.engine.vulkan.visits.during(_host_elements, tensor)


def _host_elements(tensor: ArrayProtocol) -> Array:
    memory, vulkan = tensor.memory(), tensor.engine.vulkan
    ((segment, start, length),) = memory.pieces(tensor.offset, tensor.desc.total_size_in_bytes)
    view = vulkan.host_view(memory, segment)
    vulkan.transfers.wait_for_uses(memory)
    return element_view(tensor.desc, view.bytes()[start : start + length])


def array_of(values: Any, dtype: object = None, name: str = "elements") -> Array:
    """An array with the elements of any array-like object: without a copy where its library shares memory.

    dtype: the elements are converted to this type: see `arguments.converted`.
    name: what messages call the values.
    Raises DescriptorError: a `dtype` without a DirectML data type.
    Raises TypeError, BufferError: elements that no array can hold, that are not numbers, or that their library does not
        give away.
    Raises ValueError: lists of unequal lengths, masked elements, or a NaN for integers.
    Raises OverflowError: a number that the type cannot hold.
    """
    array = _array_of(values, name, is_converted=dtype is not None)
    if dtype is None:
        return array
    data_type = as_data_type("Device.tensor", "dtype", dtype)
    if not is_converted(array.dtype):
        raise TypeError(
            f"elements of dtype {array.dtype} are not converted to {data_type.name}: bools, integers and floats are; "
            "make such an array of them first"
        )
    return converted(array, data_type.numpy_dtype, data_type.name, name)


def is_converted(dtype: np.dtype[Any]) -> bool:
    """Whether `dtype=` converts elements of a NumPy dtype: bools, integers, floats, and other libraries' floats.

    NumPy would also take None for NaN, read text as numbers, and leave out the imaginary parts of complex numbers. Of
    objects, only Python's integers come here.
    """
    return dtype.kind in "biufO" or (dtype.kind == "V" and dtype.type is not np.void)  # bfloat16, of ml_dtypes


def _array_of(values: Any, name: str, *, is_converted: bool) -> Array:
    if isinstance(values, ArrayProtocol):
        return host_elements(values) if obstacle_to_host_view(values) is None else values.numpy()
    if isinstance(values, (np.ndarray, type)) or not hasattr(values, "__dlpack__"):
        return as_array(values, name, is_converted=is_converted)
    if str(getattr(values, "dtype", "")).endswith("bfloat16"):
        raise TypeError("bfloat16 has no DirectML data type: convert the elements to float32 first (torch: x.float())")
    values = _resolved(values)
    if not hasattr(values, "__dlpack_device__") or values.__dlpack_device__()[0] in HOST_KINDS:
        return np.from_dlpack(values)
    advice = f"the memory of this {type(values).__module__}.{type(values).__name__} is another device's: copy it to"
    if not NUMPY_TAKES_VERSIONS:
        raise TypeError(f"{advice} the host first, or use NumPy 2.1 or newer")
    try:
        with library_device(values.__dlpack_device__()[1]):
            return np.from_dlpack(values, device="cpu", copy=True)
    except TypeError as error:  # its __dlpack__ lacks the newer arguments
        raise TypeError(f"{advice} the host first, because its library does not ({error})") from error


def _resolved(values: Any) -> Any:
    """A torch tensor with its elements in memory: torch may leave a negation to do, and DLPack then leaves it out."""
    resolve = getattr(values, "resolve_neg", None)
    return values if resolve is None else resolve()
