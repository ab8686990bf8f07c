"""The process's one VkInstance, with the validation layer when DMLVK_VALIDATE=1.

The layer's messages are collected, so that the call that caused them raises them.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol, TypeVar
from weakref import ref

from dmlvk.errors import DeviceError
from dmlvk.vulkan.handles import destroy_in
from dmlvk.vulkan.host_threads import forget_threads
from dmlvk.vulkan.interrupts.availability import Availability
from dmlvk.vulkan.interrupts.monitor import Monitor
from dmlvk.vulkan.interrupts.visits import Visits
from dmlvk.vulkan.library import (
    VK_SUCCESS,
    check,
    driver_hint,
    raise_messages,
    require_validation_setting,
    skip_inherited_exit_handlers,
    structure,
    vk,
)

# With a layer newer than the loader: the loader asks each device for functions, of video encoding among them, which the
# layer says are the instance's. dmlvk asks a device for functions of its own extensions alone.
LOADER_ASKS = "vkGetDeviceProcAddr(): pName is trying to grab vkGetPhysicalDevice"


def messenger_create_information() -> tuple[Any, Any]:
    """A VkDebugUtilsMessengerCreateInfoEXT for warnings and errors of every type, and the callback to keep alive."""
    ffi = vk.ffi

    def report(severity: int, types: int, data: Any, user_data: Any) -> int:
        name = ffi.string(data.pMessageIdName).decode(errors="replace") if data.pMessageIdName else ""
        # The loader uses the same messenger for messages about other drivers and layers on the machine, such as an ICD
        # file that it cannot read. dmlvk did not cause those; all others count.
        message = ffi.string(data.pMessage).decode(errors="replace")
        is_of_loader = types == vk.VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT and name == "Loader Message"
        if not is_of_loader and not message.startswith(LOADER_ASKS):
            vk.messages.append(message)
        return 0  # VK_FALSE: the call goes on; the exception is raised after it returns

    callback = ffi.callback("PFN_vkDebugUtilsMessengerCallbackEXT", report, error=0)
    information = structure("DebugUtilsMessengerCreateInfoEXT")
    information.messageSeverity = (
        vk.VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | vk.VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT
    )
    information.messageType = (
        vk.VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT
        | vk.VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT
        | vk.VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT
    )
    information.pfnUserCallback = callback
    return information, callback


def synchronization_validation() -> tuple[Any, Any]:
    """A VkValidationFeaturesEXT with which the layer also finds missing barriers, and the array to keep alive."""
    enabled = vk.ffi.new(
        "VkValidationFeatureEnableEXT[1]", [vk.VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT]
    )
    features = structure("ValidationFeaturesEXT", enabledValidationFeatureCount=1, pEnabledValidationFeatures=enabled)
    return features, enabled


VALIDATION_LAYER = "VK_LAYER_KHRONOS_validation"
API_VERSION = 1 << 22 | 3 << 12  # VK_API_VERSION_1_3: the highest version whose structures dmlvk reads


AnyResult = TypeVar("AnyResult")


class ProcessEndError(DeviceError):
    """The process is ending, so no device can be opened any more. No device is at fault."""


class Process(Availability):
    """Whether this process may still use Vulkan; it may not once it is about to end."""

    def require_open(self) -> None:
        """Raise a DeviceError if the process is about to end."""
        if self.is_closed:
            raise ProcessEndError("this process is ending, and has closed its devices: none can be opened any more")


class OpenDevice(Protocol):
    """The functions of a device that the end of the process, and a fork, call."""

    def close(self) -> None:
        """Destroy the device. Nothing happens if it is destroyed already."""

    def disown(self) -> None:
        """In a forked child: leave the device to the parent."""

    def __hash__(self) -> int: ...


_process = Process("dmlvk")
# The visits of threads that use the instance now; the end of the process waits for them.
_visits = Visits(_process)
_monitor = Monitor()
_instance: Instance | None = None
# Devices that are not destroyed, each with its owner. When the process ends, they are closed before the instance.
open_devices: dict[OpenDevice, ref[object]] = {}


def while_process_lasts(use: Callable[..., AnyResult], *arguments: Any) -> AnyResult:
    """Call a function that uses the instance or opens a device, and keep the process from closing both meanwhile.

    Raises DeviceError: the process is ending: daemon threads may still run, but use no device any more.
    """
    return _visits.during(use, *arguments)


def instance() -> Instance:
    """The process's instance, made at the first call. Called inside of `while_process_lasts`.

    Raises DeviceError: there is no loader or no driver; the message says what to install.
    """
    if _instance is None or not _instance.is_open:
        _monitor.run(_open)
    assert _instance is not None
    return _instance


def _open() -> None:
    global _instance
    if _instance is None:
        _instance = Instance()  # noted before there is anything to lose
        atexit.register(_close_all)
    if not _instance.is_open:
        _instance.open()


def close_ownerless() -> None:
    """Close the devices whose owner is gone: an exception struck before the owner had noted its device."""
    for device, owner in list(open_devices.items()):
        if owner() is None:
            device.close()


def _close_all() -> None:
    global _instance
    # Daemon threads go on while the process ends. They open no device from now on, so the list below is complete.
    _process.is_closed = True
    _visits.wait_for_end()
    # The stack calls its functions in reverse order, and each of them even if another one fails.
    with ExitStack() as stack:
        if _instance is not None:
            stack.callback(_close_unused, _instance)
            _instance = None
        for device in list(open_devices):
            stack.callback(device.close)


def _close_unused(instance: Instance) -> None:
    """Close the instance, unless a device is left: other libraries still see its memory as the process ends."""
    if not open_devices:
        instance.close()


def _after_fork_in_child() -> None:
    """Leave the parent's devices alone. A child lacks the threads of the drivers, so no device works in it."""
    global _instance, _process, _visits
    # Threads that the child lacks may be in the middle of a visit.
    _process = Process("dmlvk")
    _visits = Visits(_process)
    for device in list(open_devices):
        device.disown()
    open_devices.clear()
    if _instance is not None:
        vk.leave_inherited()
        skip_inherited_exit_handlers()
    _instance = None
    _monitor.renew()
    forget_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def version_tuple(version: int) -> tuple[int, int, int]:
    """(major, minor, patch) of VK_MAKE_API_VERSION."""
    return version >> 22 & 0x7F, version >> 12 & 0x3FF, version & 0xFFF


def names(function: Any, call: str, structure: str, member: str, *arguments: Any) -> dict[str, int]:
    """The names that one of the vkEnumerate...Properties functions lists, with their specVersion.

    function: the vkEnumerate...Properties function.
    call: its name, for messages.
    structure: the type of its results, such as "VkExtensionProperties".
    member: the member of the structure that holds the name.
    *arguments: the function's arguments before the count.
    """
    count = vk.ffi.new("uint32_t*")
    check(function(*arguments, count, vk.ffi.NULL), call)
    array = vk.ffi.new(f"{structure}[]", max(1, count[0]))
    check(function(*arguments, count, array), call)
    return {vk.ffi.string(getattr(array[i], member)).decode(): array[i].specVersion for i in range(count[0])}


class Instance:
    """A VkInstance and, when validating, its debug messenger."""

    def __init__(self) -> None:
        self.is_open = False
        self._messenger: Any = None
        self._array: Any = vk.ffi.new("VkInstance[1]")

    @property
    def handle(self) -> Any:
        """The VkInstance."""
        return self._array[0]

    def open(self) -> None:
        """Make the VkInstance; may be repeated after an exception.

        Raises DeviceError: there is no driver, or the validation layer is not installed; the message says what to
            install.
        """
        require_validation_setting()
        self.close()
        ffi = vk.ffi
        layers: list[str] = []
        # VkResult vkEnumerateInstanceExtensionProperties(const char* pLayerName, uint32_t* pPropertyCount,
        #     VkExtensionProperties* pProperties)
        enumerate_extensions = vk.vkEnumerateInstanceExtensionProperties
        call = "vkEnumerateInstanceExtensionProperties"
        available = names(enumerate_extensions, call, "VkExtensionProperties", "extensionName", ffi.NULL)
        extensions: list[str] = []
        flags = 0
        if "VK_KHR_portability_enumeration" in available:
            # Without it, the loader hides drivers on top of another API (MoltenVK).
            extensions.append("VK_KHR_portability_enumeration")
            flags |= 1  # VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR
        if vk.validates:
            # VkResult vkEnumerateInstanceLayerProperties(uint32_t* pPropertyCount, VkLayerProperties* pProperties)
            enumerate_layers = vk.vkEnumerateInstanceLayerProperties
            installed = names(enumerate_layers, "vkEnumerateInstanceLayerProperties", "VkLayerProperties", "layerName")
            if VALIDATION_LAYER not in installed:
                raise DeviceError(
                    f"DMLVK_VALIDATE is set, but {VALIDATION_LAYER} is not installed. Debian and Ubuntu: apt install "
                    "vulkan-validationlayers; Fedora: dnf install vulkan-validation-layers; Windows: the Vulkan SDK"
                )
            layers.append(VALIDATION_LAYER)
            extensions.append("VK_EXT_debug_utils")

        name = ffi.new("char[]", b"dmlvk")
        application = structure("ApplicationInfo", pApplicationName=name, pEngineName=name, apiVersion=API_VERSION)
        layer_names = [ffi.new("char[]", name.encode()) for name in layers]
        extension_names = [ffi.new("char[]", name.encode()) for name in extensions]
        layer_array = ffi.new("char*[]", layer_names)
        extension_array = ffi.new("char*[]", extension_names)
        information = structure(
            "InstanceCreateInfo",
            flags=flags,
            pApplicationInfo=application,
            enabledLayerCount=len(layers),
            ppEnabledLayerNames=layer_array,
            enabledExtensionCount=len(extensions),
            ppEnabledExtensionNames=extension_array,
        )
        messenger_information: Any = None
        if vk.validates:
            from dmlvk.vulkan.instance import messenger_create_information, synchronization_validation

            messenger_information, self._callback = messenger_create_information()
            information.pNext = messenger_information  # reports on creating and destroying the instance too
            if vk.validates_synchronization:
                features, self._enabled = synchronization_validation()
                features.pNext = messenger_information
                information.pNext = features
        # VkResult vkCreateInstance(const VkInstanceCreateInfo* pCreateInfo, const VkAllocationCallbacks* pAllocator,
        #     VkInstance* pInstance)
        result = vk.vkCreateInstance(information, ffi.NULL, self._array)
        if result != VK_SUCCESS:
            self._array[0] = ffi.NULL
        if result == vk.VK_ERROR_INCOMPATIBLE_DRIVER:
            raise DeviceError(f"the Vulkan loader found no driver. {driver_hint()}")
        check(result, "vkCreateInstance")
        if vk.validates:
            # VkResult vkCreateDebugUtilsMessengerEXT(VkInstance instance, const VkDebugUtilsMessengerCreateInfoEXT*
            #     pCreateInfo, const VkAllocationCallbacks* pAllocator, VkDebugUtilsMessengerEXT* pMessenger)
            create = vk.instance_function(self.handle, "vkCreateDebugUtilsMessengerEXT")
            self._messenger = ffi.new("VkDebugUtilsMessengerEXT[1]")
            result = create(self.handle, messenger_information, ffi.NULL, self._messenger)
            check(result, "vkCreateDebugUtilsMessengerEXT")
            raise_messages()
        self.is_open = True

    def physical_devices(self) -> list[Any]:
        """The VkPhysicalDevice handles, in the loader's order."""
        count = vk.ffi.new("uint32_t*")
        # VkResult vkEnumeratePhysicalDevices(VkInstance instance, uint32_t* pPhysicalDeviceCount, VkPhysicalDevice*
        #     pPhysicalDevices)
        check(vk.vkEnumeratePhysicalDevices(self.handle, count, vk.ffi.NULL), "vkEnumeratePhysicalDevices")
        array = vk.ffi.new("VkPhysicalDevice[]", max(1, count[0]))
        if count[0]:
            check(vk.vkEnumeratePhysicalDevices(self.handle, count, array), "vkEnumeratePhysicalDevices")
        return [array[i] for i in range(count[0])]

    def close(self) -> None:
        """Destroy the instance; every device must have been closed. Nothing happens if there is no instance."""
        self.is_open = False
        if self._messenger is not None:
            # void vkDestroyDebugUtilsMessengerEXT(VkInstance instance, VkDebugUtilsMessengerEXT messenger, const
            #     VkAllocationCallbacks* pAllocator)
            destroy = vk.instance_function(self.handle, "vkDestroyDebugUtilsMessengerEXT")
            destroy_in(self._messenger, destroy, self.handle)
        # void vkDestroyInstance(VkInstance instance, const VkAllocationCallbacks* pAllocator)
        destroy_in(self._array, vk.vkDestroyInstance)
