"""A logical device: one compute queue and all that hangs on it."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

from dmlvk.device_profile import DeviceProfile
from dmlvk.errors import DeviceError
from dmlvk.vulkan.descriptors import DescriptorSets
from dmlvk.vulkan.instance import open_devices
from dmlvk.vulkan.library import check, vk
from dmlvk.vulkan.memory import MemoryPool
from dmlvk.vulkan.physical_device import PhysicalDevice, feature_structures
from dmlvk.vulkan.pipelines import Pipelines
from dmlvk.vulkan.queue import Queue
from dmlvk.vulkan.timestamps import QueryPools
from dmlvk.vulkan.transfers import Transfers

# What kernels use where it is there. All else stays off, so that no kernel comes to need it unseen.
FEATURES = (
    "timelineSemaphore",
    "shaderIntegerDotProduct",
    "vulkanMemoryModel",
    "vulkanMemoryModelDeviceScope",
    "subgroupSizeControl",
    "computeFullSubgroups",
    "maintenance4",
    "shaderInt8",  # the component type of 8-bit cooperative matrices
    "shaderFloat16",
    "cooperativeMatrix",
)
EXTENSIONS = (
    "VK_KHR_cooperative_matrix",
    "VK_KHR_portability_subset",  # must be enabled where it is listed
    "VK_EXT_memory_budget",
)
# In core since Vulkan 1.3.
EXTENSIONS_BEFORE_1_3 = ("VK_KHR_shader_integer_dot_product", "VK_EXT_subgroup_size_control", "VK_KHR_maintenance4")


class VulkanDevice:
    """A VkDevice with its queue, memory, pipelines and transfers.

    Parameters
    ----------
    physical : PhysicalDevice
    profile : DeviceProfile, optional
        What to believe of the device in place of what it says; for tests of tighter limits.
    force_staging : bool
        Move data through staging memory even where the host reaches the device's memory directly; for tests.

    Attributes
    ----------
    lock : RLock
        Held while a command buffer is recorded and submitted.
    """

    def __init__(
        self, physical: PhysicalDevice, *, profile: DeviceProfile | None = None, force_staging: bool = False
    ) -> None:
        self.physical = physical
        self.profile = physical.profile if profile is None else profile
        self.lock = threading.RLock()
        self.is_closed = False
        self.is_lost = False
        self.family = physical.compute_family
        self.features = frozenset(FEATURES) & physical.profile.features & self.profile.features
        self.extensions = self._extensions()
        self.handle = self._create()
        try:
            self.queue = Queue(self)
            self.transfers = Transfers(self)
            self.memory = MemoryPool(self, force_staging=force_staging)
            self.descriptors = DescriptorSets(self)
            self.pipelines = Pipelines(self)
            self.query_pools = QueryPools(self)
        except BaseException:
            self._destroy()
            raise
        open_devices.add(self)

    def _extensions(self) -> list[str]:
        available = self.physical.profile.extensions
        wanted: tuple[str, ...] = EXTENSIONS
        if self.physical.profile.api_version < (1, 3, 0):
            wanted += EXTENSIONS_BEFORE_1_3
        return [name for name in wanted if name in available]

    def _create(self) -> Any:
        ffi = vk.ffi
        priority = ffi.new("float[1]", [1.0])
        queue = ffi.new("VkDeviceQueueCreateInfo*")
        queue.sType = vk.VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO
        queue.queueFamilyIndex = self.family.index
        queue.queueCount = 1
        queue.pQueuePriorities = priority
        chain: list[Any] = []
        for type_name, structure_type in feature_structures(
            self.physical.profile.api_version, self.physical.profile.extensions
        ):
            structure = ffi.new(f"{type_name}*")
            structure.sType = getattr(vk, f"VK_STRUCTURE_TYPE_{structure_type}")
            for name, _ in ffi.typeof(structure).item.fields:
                if name in self.features:
                    setattr(structure, name, 1)
            if chain:
                chain[-1].pNext = structure
            chain.append(structure)
        names = [ffi.new("char[]", name.encode()) for name in self.extensions]
        name_array = ffi.new("char*[]", names)
        information = ffi.new("VkDeviceCreateInfo*")
        information.sType = vk.VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO
        information.pNext = chain[0]
        information.queueCreateInfoCount = 1
        information.pQueueCreateInfos = queue
        information.enabledExtensionCount = len(names)
        information.ppEnabledExtensionNames = name_array
        handle = ffi.new("VkDevice*")
        # VkResult vkCreateDevice(VkPhysicalDevice physicalDevice, const VkDeviceCreateInfo* pCreateInfo, const
        #     VkAllocationCallbacks* pAllocator, VkDevice* pDevice)
        check(vk.vkCreateDevice(self.physical.handle, information, ffi.NULL, handle), "vkCreateDevice")
        return handle[0]

    def memory_budget(self, heap: int) -> tuple[int, int] | None:
        """(budget, usage) of a heap in bytes as the driver estimates them, or None without VK_EXT_memory_budget."""
        if "VK_EXT_memory_budget" not in self.extensions:
            return None
        budget = vk.ffi.new("VkPhysicalDeviceMemoryBudgetPropertiesEXT*")
        budget.sType = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT
        properties = vk.ffi.new("VkPhysicalDeviceMemoryProperties2*")
        properties.sType = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2
        properties.pNext = budget
        # void vkGetPhysicalDeviceMemoryProperties2(VkPhysicalDevice physicalDevice,
        #     VkPhysicalDeviceMemoryProperties2* pMemoryProperties)
        vk.vkGetPhysicalDeviceMemoryProperties2(self.physical.handle, properties)
        return budget.heapBudget[heap], budget.heapUsage[heap]

    def require_open(self) -> None:
        """Raise a DeviceError when the device is closed or lost."""
        if self.is_closed:
            raise DeviceError(f"{self.profile.name}: this Device is closed; open a new one")
        if self.is_lost:
            raise DeviceError(f"{self.profile.name}: this Device was lost; close it and open a new one")

    def close(self) -> None:
        """Wait for what is in flight, then destroy everything. Closing again does nothing."""
        with self.lock:
            if self.is_closed:
                return
            try:
                self.queue.drain()
            finally:
                self.is_closed = True
                open_devices.discard(self)
                self._destroy()

    def _destroy(self) -> None:
        with ExitStack() as stack:  # backwards, and each even when another fails
            stack.callback(self._destroy_handle)
            for part in ("queue", "memory", "descriptors", "pipelines", "query_pools"):
                if hasattr(self, part):
                    stack.callback(getattr(self, part).close)

    def _destroy_handle(self) -> None:
        # void vkDestroyDevice(VkDevice device, const VkAllocationCallbacks* pAllocator)
        vk.vkDestroyDevice(self.handle, vk.ffi.NULL)
