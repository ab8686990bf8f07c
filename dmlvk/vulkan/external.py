"""Memory and semaphores that another API on the same GPU imports: as file descriptors, or as handles of Windows."""

from __future__ import annotations

import sys
from typing import Any

from dmlvk.vulkan.context import Context
from dmlvk.vulkan.handles import Handle
from dmlvk.vulkan.library import check, structure, vk

ON_WINDOWS = sys.platform == "win32"
# VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32_BIT or ..._OPAQUE_FD_BIT; semaphores' handle types have the same numbers.
OPAQUE = 2 if ON_WINDOWS else 1


def export_of_memory() -> Any:
    """The VkExportMemoryAllocateInfo with which memory can be exported."""
    information = structure("ExportMemoryAllocateInfo", handleTypes=OPAQUE)
    return information


def export_of_buffer() -> Any:
    """The VkExternalMemoryBufferCreateInfo of a buffer whose memory can be exported."""
    information = structure("ExternalMemoryBufferCreateInfo", handleTypes=OPAQUE)
    return information


def timeline_for_export(context: Context) -> Handle:
    """A timeline semaphore that another API can import."""
    export = structure("ExportSemaphoreCreateInfo", handleTypes=OPAQUE)
    kind = structure("SemaphoreTypeCreateInfo", semaphoreType=vk.VK_SEMAPHORE_TYPE_TIMELINE, pNext=export)
    information = structure("SemaphoreCreateInfo", pNext=kind)
    return context.handles.create("Semaphore", information)


def memory_handle(context: Context, memory: Any) -> int:
    """A file descriptor, or a handle of Windows, of a VkDeviceMemory. The caller owns it, or the API that imports it.

    Raises DeviceError: the driver fails.
    """
    return _exported(context, "Memory", "memory", memory)


def semaphore_handle(context: Context, semaphore: Any) -> int:
    """As `memory_handle`, of a VkSemaphore."""
    return _exported(context, "Semaphore", "semaphore", semaphore)


def _exported(context: Context, kind: str, member: str, value: Any) -> int:
    ffi = vk.ffi
    suffix = "Win32Handle" if ON_WINDOWS else "Fd"
    name = f"vkGet{kind}{suffix}KHR"
    information = ffi.new(f"Vk{kind}Get{suffix}InfoKHR*")
    information.sType = getattr(
        vk, f"VK_STRUCTURE_TYPE_{kind.upper()}_GET_{'WIN32_HANDLE' if ON_WINDOWS else 'FD'}_INFO_KHR"
    )
    setattr(information, member, value)
    information.handleType = OPAQUE
    # An extension's functions are not among the loader's own.
    # PFN_vkVoidFunction vkGetDeviceProcAddr(VkDevice device, const char* pName)
    address = vk.vkGetDeviceProcAddr(context.handle, name.encode())
    result = ffi.new("void**" if ON_WINDOWS else "int*")
    # VkResult vkGetMemoryFdKHR(VkDevice device, const VkMemoryGetFdInfoKHR* pGetFdInfo, int* pFd), and likewise for
    #     semaphores; on Windows VkResult vkGetMemoryWin32HandleKHR(VkDevice device, const
    #     VkMemoryGetWin32HandleInfoKHR* pGetWin32HandleInfo, HANDLE* pHandle)
    check(ffi.cast(f"PFN_{name}", address)(context.handle, information, result), name)
    return int(ffi.cast("intptr_t", result[0])) if ON_WINDOWS else int(result[0])
