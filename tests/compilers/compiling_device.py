"""A device that compiles pipelines and runs nothing."""

from __future__ import annotations

import dataclasses

from dmlvk.vulkan.configuration import configure
from dmlvk.vulkan.context import Context
from dmlvk.vulkan.descriptors import DescriptorSets
from dmlvk.vulkan.physical_device import PhysicalDevice
from dmlvk.vulkan.pipelines import Pipelines


class NoQueue:
    """Stands in for a queue; no work is submitted."""

    def submit_nothing(self) -> None: ...


class CompilingDevice:
    """A VkDevice with pipelines only: without its GPU, the driver has neither semaphores nor memory."""

    def __init__(self, physical: PhysicalDevice) -> None:
        self.profile = physical.profile
        configuration = dataclasses.replace(configure(physical, physical.profile), copy_queue=None)
        context = Context(physical, physical.profile, configuration)
        context.create()
        context.availability.is_usable = True
        self.handle = context.handle
        self.pipelines = Pipelines(context, DescriptorSets(context), NoQueue())  # type: ignore[arg-type]
