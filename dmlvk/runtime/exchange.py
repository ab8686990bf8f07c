"""Elements from and for other libraries: arrays, lists, and DLPack, which shares memory instead of copying it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dmlvk.arguments import integer_of
from dmlvk.errors import DeviceError, shown
from dmlvk.runtime.elements import Array, element_view
from dmlvk.tensor_desc import as_data_type

if TYPE_CHECKING:
    from dmlvk.runtime.cuda_sharing import CudaSharing
    from dmlvk.runtime.device import Device
    from dmlvk.runtime.tensor import Tensor

# DLDeviceType, of dlpack.h
DL_CPU = 1
DL_CUDA = 2
DL_VULKAN = 7
HOST = (DL_CPU, 0)
# Since NumPy 2.1, arrays take the newer arguments of __dlpack__.
NUMPY_TAKES_VERSIONS = tuple(int(part) for part in np.__version__.split(".")[:2]) >= (2, 1)


def dlpack_device(tensor: Tensor) -> tuple[int, int]:
    """The DLDeviceType of the memory of a tensor, and the number of the device."""
    if obstacle_to_host_view(tensor) is None:
        return HOST
    try:
        return DL_CUDA, _cuda_sharing(tensor).ordinal
    except DeviceError:
        return DL_VULKAN, 0


def dlpack_capsule(
    tensor: Tensor,
    stream: object,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """The capsule that `Tensor.__dlpack__` returns.

    Raises
    ------
    BufferError
        The memory cannot be shared as it is asked for; the message says why, and what is possible.
    """
    if dl_device is not None and tuple(dl_device) not in (HOST, dlpack_device(tensor)):
        raise BufferError(f"{tensor!r} can be given to the host, {HOST}, not to the DLPack device {tuple(dl_device)}")
    obstacle = obstacle_to_host_view(tensor)
    is_to_host = dl_device is not None and tuple(dl_device) == HOST
    if obstacle is not None and not is_to_host and not copy:
        try:
            return _cuda_sharing(tensor).capsule(tensor, _cuda_stream(stream))
        except DeviceError as error:
            raise BufferError(
                f"{tensor!r} cannot be shared: by the host, because {obstacle}; by CUDA, because {error}; copy=True or "
                "tensor.numpy() copies"
            ) from error
    if copy or (obstacle is not None and copy is None):
        elements = tensor.numpy()
    elif obstacle is not None:
        raise BufferError(f"{tensor!r} cannot be shared with the host: {obstacle}; copy=True or tensor.numpy() copies")
    else:
        if stream is not None:
            raise BufferError(f"stream = {stream!r}: memory of the host has no streams; pass None")
        elements = host_elements(tensor)
    if not NUMPY_TAKES_VERSIONS:
        return elements.__dlpack__()
    return elements.__dlpack__(max_version=max_version)


def _cuda_sharing(tensor: Tensor) -> CudaSharing:
    """The sharing with CUDA of the memory of a tensor.

    Raises
    ------
    DeviceError
        CUDA cannot see the memory; the message says why.
    """
    if not tensor.device.profile.runs_cuda:
        raise DeviceError("it shares memory with NVIDIA's own driver alone")
    if len(tensor.memory().segments) > 1:
        raise DeviceError("it lies in several blocks of this device's memory")
    from dmlvk.runtime.cuda_sharing import sharing_of

    return sharing_of(tensor.device)


def _cuda_stream(stream: object) -> int | None:
    """The handle of a consumer's stream. The array API's rules: None is the default stream, and 0 is ambiguous."""
    if stream is None:
        return None
    found = integer_of(stream)
    if found is None or found == 0 or found < -1:
        raise BufferError(f"stream = {shown(stream)}: a CUDA stream is a handle, 1, 2, -1 or None; 0 is ambiguous")
    return found


def tensor_of_cuda(device: Device, values: Any) -> Tensor | None:
    """A packed tensor with the elements of a CUDA array on the GPU of a device, copied there; None for other values."""
    if not device.profile.runs_cuda or not hasattr(values, "__dlpack_device__") or isinstance(values, np.ndarray):
        return None
    kind, ordinal = values.__dlpack_device__()
    if kind != DL_CUDA:
        return None
    values = _resolved(values)
    from dmlvk.runtime.cuda_sharing import is_on_gpu_of, sharing_of

    try:
        if not is_on_gpu_of(device, ordinal):
            return None
        found = sharing_of(device).tensor(device, values)
    except DeviceError:
        return None
    if found is None or found.desc.is_packed:
        return found
    packed = device.empty(found.desc.sizes, found.desc.data_type)
    packed.write(found)
    return packed


def obstacle_to_host_view(tensor: Tensor) -> str | None:
    """Why the host cannot reach the memory of a tensor; None if it can."""
    transfers, desc = tensor.device.vulkan.transfers, tensor.desc
    if not transfers.is_direct:
        return "the device has memory of its own, which the host does not reach at full speed"
    if transfers.mapped(tensor.memory(), tensor.offset, desc.total_size_in_bytes) is None:
        return "it is larger than a block of this device's memory"
    return None


def host_elements(tensor: Tensor) -> Array:
    """The elements where they are, without a copy. The array keeps the memory, not the tensor or the device.

    Work that is in flight is waited for.
    """
    memory = tensor.memory()
    vulkan = tensor.device.vulkan
    view = vulkan.host_view(memory)
    vulkan.transfers.wait_for_uses(memory)
    return element_view(tensor.desc, view.bytes()[tensor.offset :])


def array_of(values: Any, dtype: object = None) -> Array:
    """An array with the elements of any array-like object: without a copy where its library shares memory.

    Parameters
    ----------
    values : array_like
    dtype : DataType or dtype, optional
        The elements are converted to this type, as NumPy's `astype` does.

    Raises
    ------
    DescriptorError
        A dtype without a DirectML data type.
    TypeError, BufferError
        Elements that no array can hold, or that their library does not give away.
    """
    array = _array_of(values)
    if dtype is not None:
        array = array.astype(as_data_type("Device.tensor", "dtype", dtype).numpy_dtype, copy=False)
    return array


def _array_of(values: Any) -> Array:
    if isinstance(values, np.ndarray) or not hasattr(values, "__dlpack__") or not hasattr(values, "__dlpack_device__"):
        return np.asarray(values)
    if str(getattr(values, "dtype", "")).endswith("bfloat16"):
        raise TypeError("bfloat16 has no DirectML data type: convert the elements to float32 first (torch: x.float())")
    kind, _ = values.__dlpack_device__()
    if kind != DL_CPU:
        if not NUMPY_TAKES_VERSIONS:
            raise TypeError(
                f"a {type(values).__module__}.{type(values).__name__} of another device's memory: copy it to the host "
                "first, or use NumPy 2.1 or newer"
            )
        return np.from_dlpack(_resolved(values), device="cpu", copy=True)
    return np.from_dlpack(_resolved(values))


def _resolved(values: Any) -> Any:
    """A torch tensor with its elements in memory: torch may leave a negation to do, and DLPack then leaves it out."""
    resolve = getattr(values, "resolve_neg", None)
    return values if resolve is None else resolve()
