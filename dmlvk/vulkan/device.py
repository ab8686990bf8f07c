"""A logical device: one compute queue and all that hangs on it."""

from __future__ import annotations

from typing import Any
from weakref import ref

from dmlvk.device_profile import DeviceProfile, narrower
from dmlvk.errors import DeviceError
from dmlvk.vulkan.command_buffers import CommandBuffer
from dmlvk.vulkan.descriptors import DescriptorSets
from dmlvk.vulkan.handles import Handles, destroy_in
from dmlvk.vulkan.instance import close_ownerless, open_devices
from dmlvk.vulkan.library import VK_ERROR_DEVICE_LOST, VK_SUCCESS, failure, vk
from dmlvk.vulkan.memory import MemoryPool
from dmlvk.vulkan.monitor import Monitor
from dmlvk.vulkan.physical_device import PhysicalDevice, feature_structures
from dmlvk.vulkan.pipelines import Pipelines
from dmlvk.vulkan.queue import Queue
from dmlvk.vulkan.timestamps import QueryPools
from dmlvk.vulkan.transfers import Transfers
from dmlvk.vulkan.visits import Visits

# What kernels use where it is there. All else stays off, so that no kernel comes to need it unseen.
FEATURES = (
    "timelineSemaphore",
    "shaderIntegerDotProduct",
    "vulkanMemoryModel",
    "vulkanMemoryModelDeviceScope",
    "subgroupSizeControl",
    "computeFullSubgroups",
    "maintenance4",
    "shaderInt64",
    "shaderInt8",  # the component type of 8-bit cooperative matrices
    "storageBuffer8BitAccess",
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
    owner : object
        When it is gone, nobody uses the device any more.
    profile : DeviceProfile, optional
        What to believe of the device in place of what it says, if that is no more: see `narrower`.
    force_staging : bool
        Move data through staging memory even where the host reaches the device's memory directly; for tests.
    force_copy_queue : bool
        Where the device has one queue only, treat it as two; for tests.

    Attributes
    ----------
    monitor : Monitor
        Entered while command buffers are recorded and submitted.
    visits : Visits
        Waits and uses of mapped memory under way, which closing waits for.
    handles : Handles
        Every Vulkan object of the device.
    families : list of int
        The queue families that work on the device's buffers.
    barrier : CommandBuffer, optional
        A barrier between dispatches, recorded once, for command buffers that are put together of others.
    is_usable : bool
        Neither closed nor lost nor inherited.
    """

    # So that what an exception left half made can be closed.
    is_closed = False
    is_lost = False
    is_usable = False
    _is_idle = False
    _is_destroyed = False

    def __init__(
        self,
        physical: PhysicalDevice,
        owner: object,
        *,
        profile: DeviceProfile | None = None,
        force_staging: bool = False,
        force_copy_queue: bool = False,
    ) -> None:
        self.physical = physical
        self.profile = physical.profile if profile is None else narrower(profile, physical.profile)
        self._array: Any = vk.ffi.new("VkDevice[1]")
        self.handle: Any = vk.ffi.NULL
        self.handles = Handles(self)
        self.monitor = Monitor(self)
        self.visits = Visits(self)
        self._closing = Monitor()
        self.family = physical.compute_family
        self._copy_family, self._copy_index = self._choose_copy_queue(force_copy_queue)
        self.families = [self.family.index]
        if self._copy_family is not None and self._copy_family != self.family.index:
            self.families.append(self._copy_family)
        self.features = frozenset(FEATURES) & physical.profile.features & self.profile.features
        self.extensions = self._extensions()
        self.copy_queue: Queue | None = None
        self.barrier: CommandBuffer | None = None
        close_ownerless()
        # From here on: whatever an exception interrupts, what was made is destroyed when its owner is gone.
        open_devices[self] = ref(owner)
        try:
            self._create()
            self.queue = Queue(self, self.family.index)
            if self._copy_family is not None:
                self.copy_queue = Queue(self, self._copy_family, self._copy_index)
            self.transfers = Transfers(self, self.copy_queue)
            self.memory = MemoryPool(self, force_staging=force_staging)
            self.descriptors = DescriptorSets(self)
            self.pipelines = Pipelines(self)
            self.query_pools = QueryPools(self)
            self.is_usable = True
        except BaseException:
            self.close()
            raise

    def _choose_copy_queue(self, force: bool) -> tuple[int | None, int]:
        """Family and index of a queue beside the compute queue: the copy engines' where there are such."""
        transfer = self.physical.transfer_family
        if transfer is not None:
            return transfer.index, 0
        if self.family.count > 1:
            return self.family.index, 1
        return (self.family.index, 0) if force else (None, 0)

    def _extensions(self) -> list[str]:
        # A narrowed profile lacks extensions too; where this one is there, Vulkan requires it.
        available = self.physical.profile.extensions & (self.profile.extensions | {"VK_KHR_portability_subset"})
        wanted: tuple[str, ...] = EXTENSIONS
        if self.physical.profile.api_version < (1, 3, 0):
            wanted += EXTENSIONS_BEFORE_1_3
        return [name for name in wanted if name in available]

    def _create(self) -> None:
        ffi = vk.ffi
        priorities = ffi.new("float[2]", [1.0, 1.0])
        queues = ffi.new("VkDeviceQueueCreateInfo[]", len(self.families))
        for queue, family in zip(queues, self.families, strict=True):
            queue.sType = vk.VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO
            queue.queueFamilyIndex = family
            queue.queueCount = 1 + (self._copy_index if family == self._copy_family else 0)
            queue.pQueuePriorities = priorities
        chain: list[Any] = []
        for type_name, structure_type in feature_structures(
            self.physical.profile.api_version, frozenset(self.extensions)
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
        basic = ffi.new("VkPhysicalDeviceFeatures*")
        for name in self.features & {name for name, _ in ffi.typeof(basic).item.fields}:
            setattr(basic, name, 1)
        information.pEnabledFeatures = basic
        information.queueCreateInfoCount = len(queues)
        information.pQueueCreateInfos = queues
        information.enabledExtensionCount = len(names)
        information.ppEnabledExtensionNames = name_array
        # VkResult vkCreateDevice(VkPhysicalDevice physicalDevice, const VkDeviceCreateInfo* pCreateInfo, const
        #     VkAllocationCallbacks* pAllocator, VkDevice* pDevice)
        result = vk.vkCreateDevice(self.physical.handle, information, ffi.NULL, self._array)
        if result != VK_SUCCESS:
            self._array[0] = ffi.NULL
            raise failure(result, "vkCreateDevice")
        self.handle = self._array[0]

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
        """Raise a DeviceError when the device is closed or lost, or was opened before a fork."""
        if self.handles.is_inherited:
            raise DeviceError(
                f"{self.profile.name}: this Device was opened before a fork; open one in the child, or use spawn "
                '(multiprocessing.get_context("spawn"))'
            )
        if self.is_closed:
            raise DeviceError(f"{self.profile.name}: this Device is closed; open a new one")
        if self.is_lost:
            raise DeviceError(f"{self.profile.name}: this Device was lost; close it and open a new one")

    def failure(self, result: int, call: str) -> DeviceError:
        """The exception for what a call returned; when that is VK_ERROR_DEVICE_LOST, the device is lost from now on."""
        if result == VK_ERROR_DEVICE_LOST:
            self.is_lost = True
            self._refuse_submissions()
        return failure(result, call)

    def _refuse_submissions(self) -> None:
        self.is_usable = False
        for queue in self._queues():
            queue.obstruct()

    def close(self) -> None:
        """Wait for what is in flight, then destroy everything. Closing again does nothing.

        An interrupt (Ctrl-C) while it waits leaves the device open; later, the next call goes on with it.

        Raises
        ------
        DeviceError
            The work in flight failed; the device is closed all the same. Or this is a signal handler or finalizer in
            the middle of another call of this device; the device stays open.
        """
        if not self._is_destroyed and not self.handles.is_inherited:
            self._closing.run(self._close)

    def _close(self) -> None:
        if self._is_destroyed:
            return
        error = None if self._is_idle else self._wait_for_end()
        self._is_idle = True
        self._destroy()
        if error is not None:
            raise error

    def _wait_for_end(self) -> DeviceError | None:
        """Let nobody in any more, and wait for those who are there and for the device; returns what it failed with."""
        was_usable = self.is_usable
        self.is_closed = True
        self._refuse_submissions()
        error: DeviceError | None = None
        try:
            # Whoever is in the middle of something comes to an end; who comes after sees that the device is closed.
            for monitor in self._monitors():
                monitor.pass_through()
            self.visits.wait_for_end()
            try:
                for queue in self._queues():
                    queue.drain()
            except DeviceError as failed:
                error = failed
            if self.is_lost or error is not None:
                # The driver lets go of what a lost device had under way, in finite time whatever it returns.
                # VkResult vkDeviceWaitIdle(VkDevice device)
                vk.vkDeviceWaitIdle(self.handle)
        except BaseException:
            self.is_closed = False
            self.is_usable = was_usable and not self.is_lost
            raise
        return error

    def _monitors(self) -> list[Monitor]:
        parts = (getattr(self, name, None) for name in ("transfers", "memory", "descriptors", "pipelines"))
        return [self.monitor, *(part.monitor for part in parts if part is not None)]

    def _queues(self) -> list[Queue]:
        queues = (getattr(self, name, None) for name in ("queue", "copy_queue"))
        return [queue for queue in queues if queue is not None]

    def wait_idle(self) -> None:
        """Wait for everything submitted so far."""
        for queue in self._queues():
            queue.wait_idle()

    def disown(self) -> None:
        """In a forked child: the device is the parent's. Nothing is done with it, and nothing waits for its threads."""
        self.handles.is_inherited = True
        self._refuse_submissions()
        for monitor in (*self._monitors(), self._closing):
            monitor.renew()
        for queue in self._queues():
            queue.disown()

    def _destroy(self) -> None:
        """Destroy everything; nothing is in flight. May be repeated where an exception ended it."""
        for queue in self._queues():
            queue.drop()
        try:
            if hasattr(self, "pipelines"):
                self.pipelines.close()
            if hasattr(self, "memory"):
                self.memory.close()
        finally:
            self.handles.destroy_all()
            # void vkDestroyDevice(VkDevice device, const VkAllocationCallbacks* pAllocator)
            destroy_in(self._array, vk.vkDestroyDevice)
            self._is_destroyed = True
            open_devices.pop(self, None)
