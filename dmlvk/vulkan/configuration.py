"""The queues, features and extensions that a device is opened with: pure choices from a snapshot of the device."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from dmlvk.device_profile import DeviceProfile
from dmlvk.vulkan.device_properties import EXTENSIONS_OF_1_3
from dmlvk.vulkan.physical_device import PhysicalDevice, QueueFamily

# The features that kernels use where the device has them. All others stay off, so that no kernel comes to need one
# unnoticed.
FEATURES = (
    "timelineSemaphore",
    "shaderIntegerDotProduct",
    "vulkanMemoryModel",
    "vulkanMemoryModelDeviceScope",
    "subgroupSizeControl",
    "computeFullSubgroups",
    "maintenance4",
    "pipelineCreationCacheControl",  # asks whether a pipeline is in a cache
    "pipelineRobustness",  # turns off what a kernel does not need: see `Pipelines`
    "shaderInt64",
    "shaderInt8",  # the component type of 8-bit cooperative matrices
    "storageBuffer8BitAccess",
    "shaderFloat16",
    "cooperativeMatrix",
)
PORTABILITY_SUBSET = "VK_KHR_portability_subset"  # must be enabled on a device that lists it
EXTENSIONS = (
    "VK_KHR_cooperative_matrix",
    "VK_EXT_pipeline_robustness",
    PORTABILITY_SUBSET,
    "VK_EXT_memory_budget",
)
# The extensions by which CUDA imports memory and semaphores.
EXPORTING_EXTENSIONS = (
    ("VK_KHR_external_memory_win32", "VK_KHR_external_semaphore_win32")
    if sys.platform == "win32"
    else ("VK_KHR_external_memory_fd", "VK_KHR_external_semaphore_fd")
)


@dataclass(frozen=True)
class QueuePlace:
    """One queue of a device: the index of its family, and its index in the family."""

    family: int
    index: int


@dataclass(frozen=True)
class Configuration:
    """The choices with which a VkDevice is created.

    compute_family: its first queue runs the kernels.
    copy_queue: a queue beside the compute queue for large copies.
    exports_memory: whether CUDA, on the same GPU, can import the memory of tensors.
    """

    compute_family: QueueFamily
    copy_queue: QueuePlace | None
    features: frozenset[str]
    extensions: tuple[str, ...]
    exports_memory: bool

    @property
    def families(self) -> list[int]:
        """The indices of the queue families that work on the device's buffers."""
        compute = self.compute_family.index
        if self.copy_queue is None or self.copy_queue.family == compute:
            return [compute]
        return [compute, self.copy_queue.family]

    def queue_count(self, family: int) -> int:
        """The number of queues to create in a family."""
        return 1 + (self.copy_queue.index if self.copy_queue is not None and self.copy_queue.family == family else 0)


def configure(physical: PhysicalDevice, profile: DeviceProfile, *, force_copy_queue: bool = False) -> Configuration:
    """Choose the configuration of a device.

    profile: its own profile, or a narrower one, whose features and extensions alone are used.
    force_copy_queue: on a device with one queue only, treat that queue as two; for tests.
    """
    available = physical.profile.extensions & (profile.extensions | {PORTABILITY_SUBSET})
    wanted: tuple[str, ...] = EXTENSIONS
    exports_memory = physical.profile.runs_cuda and available.issuperset(EXPORTING_EXTENSIONS)
    if exports_memory:
        wanted += EXPORTING_EXTENSIONS
    if physical.profile.api_version < (1, 3, 0):
        wanted += tuple(EXTENSIONS_OF_1_3)
    return Configuration(
        compute_family=physical.compute_family,
        copy_queue=_copy_queue(physical, force_copy_queue),
        features=frozenset(FEATURES) & physical.profile.features & profile.features,
        extensions=tuple(name for name in wanted if name in available),
        exports_memory=exports_memory,
    )


def _copy_queue(physical: PhysicalDevice, force: bool) -> QueuePlace | None:
    """A queue of the copy engines where the device has such a family, else a second compute queue."""
    transfer, compute = physical.transfer_family, physical.compute_family
    if transfer is not None:
        return QueuePlace(transfer.index, 0)
    if compute.count > 1:
        return QueuePlace(compute.index, 1)
    return QueuePlace(compute.index, 0) if force else None
