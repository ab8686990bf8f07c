"""The process's one VkInstance, with the validation layer when DMLVK_VALIDATE=1."""

from __future__ import annotations

import atexit
import threading
import weakref
from contextlib import ExitStack
from typing import Any

from dmlvk.errors import DeviceError
from dmlvk.vulkan.library import INSTALL_HINT, check, raise_messages, vk

VALIDATION_LAYER = "VK_LAYER_KHRONOS_validation"
API_VERSION = 1 << 22 | 3 << 12  # VK_API_VERSION_1_3: the highest whose structures dmlvk reads


_lock = threading.Lock()
_instance: Instance | None = None
# Devices that are open: they are closed before the instance when the process ends.
open_devices: weakref.WeakSet[Any] = weakref.WeakSet()


def instance() -> Instance:
    """The process's instance, made at the first call.

    Raises
    ------
    DeviceError
        No loader or no driver; with what to install.
    """
    global _instance
    with _lock:
        if _instance is None:
            _instance = Instance()
            atexit.register(_close_all)
        return _instance


def _close_all() -> None:
    global _instance
    # Backwards, and each even when another fails.
    with ExitStack() as stack:
        if _instance is not None:
            stack.callback(_instance.close)
            _instance = None
        for device in list(open_devices):
            stack.callback(device.close)


def version_tuple(version: int) -> tuple[int, int, int]:
    """(major, minor, patch) of VK_MAKE_API_VERSION."""
    return version >> 22 & 0x7F, version >> 12 & 0x3FF, version & 0xFFF


def names(function: Any, call: str, structure: str, member: str, *arguments: Any) -> dict[str, int]:
    """The names that one of the vkEnumerate...Properties functions lists, with their specVersion."""
    count = vk.ffi.new("uint32_t*")
    check(function(*arguments, count, vk.ffi.NULL), call)
    array = vk.ffi.new(f"{structure}[]", max(1, count[0]))
    check(function(*arguments, count, array), call)
    return {vk.ffi.string(getattr(array[i], member)).decode(): array[i].specVersion for i in range(count[0])}


class Instance:
    """A VkInstance and, when validating, its debug messenger."""

    def __init__(self) -> None:
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
            # Drivers on top of another API (MoltenVK) are hidden without it.
            extensions.append("VK_KHR_portability_enumeration")
            flags |= 1  # VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR
        if vk.validates:
            # VkResult vkEnumerateInstanceLayerProperties(uint32_t* pPropertyCount, VkLayerProperties* pProperties)
            enumerate_layers = vk.vkEnumerateInstanceLayerProperties
            installed = names(enumerate_layers, "vkEnumerateInstanceLayerProperties", "VkLayerProperties", "layerName")
            if VALIDATION_LAYER not in installed:
                raise DeviceError(
                    f"DMLVK_VALIDATE is set and {VALIDATION_LAYER} is not installed. Debian and Ubuntu: apt install "
                    "vulkan-validationlayers; Fedora: dnf install vulkan-validation-layers; Windows: the Vulkan SDK"
                )
            layers.append(VALIDATION_LAYER)
            extensions.append("VK_EXT_debug_utils")

        application_name = ffi.new("char[]", b"dmlvk")
        application = ffi.new("VkApplicationInfo*")
        application.sType = vk.VK_STRUCTURE_TYPE_APPLICATION_INFO
        application.pApplicationName = application.pEngineName = application_name
        application.apiVersion = API_VERSION
        layer_names = [ffi.new("char[]", name.encode()) for name in layers]
        extension_names = [ffi.new("char[]", name.encode()) for name in extensions]
        layer_array = ffi.new("char*[]", layer_names)
        extension_array = ffi.new("char*[]", extension_names)
        information = ffi.new("VkInstanceCreateInfo*")
        information.sType = vk.VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO
        information.flags = flags
        information.pApplicationInfo = application
        information.enabledLayerCount = len(layers)
        information.ppEnabledLayerNames = layer_array
        information.enabledExtensionCount = len(extensions)
        information.ppEnabledExtensionNames = extension_array
        messenger_information: Any = None
        if vk.validates:
            from dmlvk.vulkan.validation import messenger_create_information, synchronization_validation

            messenger_information, self._callback = messenger_create_information()
            information.pNext = messenger_information  # so that creating and destroying the instance is watched too
            if vk.validates_synchronization:
                features, self._enabled = synchronization_validation()
                features.pNext = messenger_information
                information.pNext = features
        handle = ffi.new("VkInstance*")
        # VkResult vkCreateInstance(const VkInstanceCreateInfo* pCreateInfo, const VkAllocationCallbacks* pAllocator,
        #     VkInstance* pInstance)
        result = vk.vkCreateInstance(information, ffi.NULL, handle)
        if result == vk.VK_ERROR_INCOMPATIBLE_DRIVER:
            raise DeviceError(f"the Vulkan loader found no driver. {INSTALL_HINT}")
        check(result, "vkCreateInstance")
        self.handle = handle[0]
        self._messenger: Any = None
        if vk.validates:
            # VkResult vkCreateDebugUtilsMessengerEXT(VkInstance instance, const VkDebugUtilsMessengerCreateInfoEXT*
            #     pCreateInfo, const VkAllocationCallbacks* pAllocator, VkDebugUtilsMessengerEXT* pMessenger)
            create = vk.instance_function(self.handle, "vkCreateDebugUtilsMessengerEXT")
            messenger = ffi.new("VkDebugUtilsMessengerEXT*")
            check(create(self.handle, messenger_information, ffi.NULL, messenger), "vkCreateDebugUtilsMessengerEXT")
            self._messenger = messenger[0]
            raise_messages()

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
        """Destroy the instance; every device must have been closed."""
        if self._messenger is not None:
            # void vkDestroyDebugUtilsMessengerEXT(VkInstance instance, VkDebugUtilsMessengerEXT messenger, const
            #     VkAllocationCallbacks* pAllocator)
            destroy = vk.instance_function(self.handle, "vkDestroyDebugUtilsMessengerEXT")
            destroy(self.handle, self._messenger, vk.ffi.NULL)
        # void vkDestroyInstance(VkInstance instance, const VkAllocationCallbacks* pAllocator)
        vk.vkDestroyInstance(self.handle, vk.ffi.NULL)
