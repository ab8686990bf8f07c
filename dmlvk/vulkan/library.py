"""The Vulkan loader's C functions, and the meanings of their result codes.

Every call of the project goes through the one object `vk`. So a test can replace a function with a failing one, and
`DMLVK_VALIDATE=1` can look for messages after each call. The object holds the functions of the `vulkan` package's raw
cffi library, because the package's wrappers cost 3 to 25 us a call.
"""

from __future__ import annotations

import ctypes
import os
import re
from typing import Any

from dmlvk.errors import DeviceError, DeviceLostError, OutOfMemoryError, ValidationError

INSTALL_HINT = (
    "Debian and Ubuntu: apt install libvulkan1 mesa-vulkan-drivers; "
    "Fedora: dnf install vulkan-loader mesa-vulkan-drivers; "
    "Windows: install the GPU vendor's driver, which brings vulkan-1.dll"
)

# Environment variables that list the drivers for the loader instead of the installed ones; the first one that is set
# counts.
DRIVER_VARIABLES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")

VK_SUCCESS = 0
VK_TIMEOUT = 2
VK_ERROR_OUT_OF_HOST_MEMORY = -1
VK_ERROR_OUT_OF_DEVICE_MEMORY = -2
VK_ERROR_DEVICE_LOST = -4

RESULT_MEANINGS = {
    1: "not ready yet",
    2: "timed out",
    3: "the event is set",
    4: "the event is not set",
    5: "the array given was too small for all results",
    -1: "out of host memory",
    -2: "out of device memory",
    -3: "initialization failed",
    -4: "the device was lost: a kernel ran too long or faulted, or the driver reset the GPU; open a new Device",
    -5: "mapping memory failed",
    -6: "a requested layer is not installed",
    -7: "a requested extension is not supported",
    -8: "a requested feature is not supported",
    -9: "no driver supports the requested Vulkan version",
    -10: "too many objects of one type",
    -11: "a requested format is not supported",
    -12: "a pool is fragmented",
    -13: "an unknown error in the driver",
}


# Before each word of a structure's name: "PhysicalDevice|ID|Properties", "PhysicalDevice|Vulkan|1|1|Features".
WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-z0-9])(?=\d)")


def require_validation_setting() -> None:
    """Raise a ValueError unless $DMLVK_VALIDATE has a value that it may have."""
    text = os.environ.get("DMLVK_VALIDATE", "")
    if text not in ("", "0", "1", "synchronization"):
        raise ValueError(
            f"DMLVK_VALIDATE is {text!r}; it can be 0, 1 (the Khronos validation layer) or synchronization (missing "
            "barriers too)"
        )


class Library:
    """The C functions (vk...), enumerants (VK_...) and cffi's `ffi`, loaded at the first use.

    So `import dmlvk` works on a machine without a Vulkan loader.
    """

    ffi: Any

    def __init__(self) -> None:
        # What it may be is checked when the loader is first used: an import does not fail.
        validation = os.environ.get("DMLVK_VALIDATE", "")
        self.validates = validation not in ("", "0")
        self.validates_synchronization = validation == "synchronization"
        self.messages: list[str] = []
        self._own: Any = None  # in a forked child, a loader of its own
        self._is_forked = False

    def __getattr__(self, name: str) -> Any:
        # Python calls this function only for attributes that are not set. The value is set here, so each name costs one
        # call.
        if name.startswith("__"):
            raise AttributeError(name)
        ffi, library = self._load()
        self.ffi = ffi
        if name == "ffi":
            return ffi
        value = getattr(library, name)
        if self.validates and name.startswith("vk"):
            value = self.watched(value)
        setattr(self, name, value)
        return value

    def _load(self) -> tuple[Any, Any]:
        try:
            from vulkan._vulkan import ffi, lib
        except OSError as error:
            raise DeviceError(f"no Vulkan loader found. {INSTALL_HINT}") from error
        if self._is_forked and self._own is None:
            self._own = ffi.dlopen(ffi.cast("void*", load_in_new_namespace()))
        return ffi, self._own or lib

    def leave_inherited(self) -> None:
        """In a forked child: load the loader and the drivers anew at the next use.

        The parent's drivers have threads that the child does not have. Where a driver shares threads between devices,
        even a new device would wait for them for ever: see quirks.SWIFTSHADER_SHARES_THREADS_BETWEEN_DEVICES.
        """
        for name in [name for name in vars(self) if name.startswith("vk")]:
            delattr(self, name)
        self._own = None
        self._is_forked = True

    def watched(self, function: Any) -> Any:
        """The same function, but it raises a ValidationError if the validation layer reported a message on the call."""

        def call(*arguments: Any) -> Any:
            result = function(*arguments)
            if self.messages:
                raise_messages()
            return result

        return call

    def instance_function(self, instance: Any, name: str) -> Any:
        """An extension's function of type PFN_<name>, or None if the driver lacks it."""
        # PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char* pName)
        address = self.vkGetInstanceProcAddr(instance, name.encode())
        if address == self.ffi.NULL:
            return None
        function = self.ffi.cast(f"PFN_{name}", address)
        return self.watched(function) if self.validates else function


vk = Library()


def structure(kind: str, **members: Any) -> Any:
    """A new Vulkan structure with its sType: a VkBufferCreateInfo* of "BufferCreateInfo".

    What its pointers lead to lives only as long as the caller keeps it.
    """
    made = vk.ffi.new(f"Vk{kind}*")
    made.sType = getattr(vk, f"VK_STRUCTURE_TYPE_{WORDS.sub('_', kind).upper()}")
    for name, value in members.items():
        setattr(made, name, value)
    return made


def skip_inherited_exit_handlers() -> None:
    """In a forked child: skip the exit handlers of the parent's libraries.

    See quirks.MESA_WAITS_FOR_THREADS_AT_EXIT. Handlers that the child registers still run, and C's files are written.
    """
    own = ctypes.CDLL(None)
    if hasattr(own, "on_exit"):
        # int on_exit(void (*function)(int status, void* argument), void* argument): the last registered runs first
        own.on_exit.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        for function in (own._exit, own.fcloseall):  # void _exit(int status), int fcloseall(void)
            own.on_exit(ctypes.cast(function, ctypes.c_void_p), None)


def load_in_new_namespace() -> int:
    """The handle of a second Vulkan loader. It, and the drivers that it loads, share nothing with the first one.

    Raises DeviceError: the C library cannot load it (only glibc can), or has no namespace left.
    """
    own = ctypes.CDLL(None)
    if hasattr(own, "dlmopen"):
        # void* dlmopen(Lmid_t lmid, const char* filename, int flags)
        own.dlmopen.restype = ctypes.c_void_p
        own.dlmopen.argtypes = [ctypes.c_long, ctypes.c_char_p, ctypes.c_int]
        new_namespace = -1  # LM_ID_NEWLM
        for name in (b"libvulkan.so.1", b"libvulkan.so"):
            handle = own.dlmopen(new_namespace, name, os.RTLD_NOW)
            if handle is not None:
                return int(handle)
    raise DeviceError(
        "this process was forked after its parent had opened a Vulkan device, and a second Vulkan loader cannot be "
        'loaded here; use spawn (multiprocessing.get_context("spawn"))'
    )


def driver_hint() -> str:
    """The advice for a loader that finds no driver: install one, or correct an environment variable."""
    for name in DRIVER_VARIABLES:
        if not os.environ.get(name, name).strip(os.pathsep + " "):
            return f"{name} is set and names no file, so the loader finds none: unset it, or name a driver's JSON file"
        listed = [path for path in os.environ.get(name, "").split(os.pathsep) if path]
        missing = [path for path in listed if not os.path.exists(path)]
        if missing:
            there = "that do not exist" if len(missing) > 1 else "that does not exist"
            files = "files" if len(missing) > 1 else "a file"
            return f"{name} names {files} {there}: {', '.join(missing)}; unset it, or name a driver's JSON file"
        if listed:
            return f"{name} is set, so the loader looks only at {', '.join(listed)}: unset it, or else: {INSTALL_HINT}"
    return INSTALL_HINT


def raise_messages() -> None:
    """Raise a ValidationError if the validation layer reported messages since the last call."""
    if vk.messages:
        messages = "\n".join(vk.messages)
        vk.messages.clear()
        raise ValidationError(f"the validation layer reported:\n{messages}")


def result_text(result: int) -> str:
    """Name and meaning of a VkResult, including codes that this version of the headers does not know."""
    name = vk.ffi.typeof("VkResult").elements.get(result, "an unknown VkResult")
    meaning = RESULT_MEANINGS.get(result)
    return f"{name} ({result})" if meaning is None else f"{name} ({result}): {meaning}"


def failure(result: int, call: str) -> DeviceError:
    """The exception for a VkResult that is not VK_SUCCESS."""
    kind = {
        VK_ERROR_OUT_OF_HOST_MEMORY: OutOfMemoryError,
        VK_ERROR_OUT_OF_DEVICE_MEMORY: OutOfMemoryError,
        VK_ERROR_DEVICE_LOST: DeviceLostError,
    }.get(result, DeviceError)
    return kind(f"{call} returned {result_text(result)}")


def check(result: int, call: str) -> None:
    """Raise a DeviceError unless a call returned VK_SUCCESS."""
    if result != VK_SUCCESS:
        raise failure(result, call)
