"""The messages of the Khronos validation layer, collected so that the call that caused them raises them."""

from __future__ import annotations

from typing import Any

from dmlvk.vulkan.library import vk

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
    information = ffi.new("VkDebugUtilsMessengerCreateInfoEXT*")
    information.sType = vk.VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT
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
    features = vk.ffi.new("VkValidationFeaturesEXT*")
    features.sType = vk.VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT
    features.enabledValidationFeatureCount = 1
    features.pEnabledValidationFeatures = enabled
    return features, enabled
