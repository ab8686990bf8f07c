"""Compute pipelines, each built once, with their layouts and shader modules."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from dmlvk.device_profile import DriverId
from dmlvk.errors import DeviceError
from dmlvk.vulkan.library import VK_SUCCESS, check, failure, vk
from dmlvk.vulkan.pipeline_cache import PipelineCache
from dmlvk.vulkan.specialization import specialized

if TYPE_CHECKING:
    from dmlvk.vulkan.device import VulkanDevice

COMPUTE_SHADER_STAGE = 0x20  # VK_SHADER_STAGE_COMPUTE_BIT
REQUIRE_FULL_SUBGROUPS = 0x2  # VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT
SPIRV_MAGIC = 0x07230203


class Pipeline(NamedTuple):
    """A VkPipeline and the VkPipelineLayout that its sets and push constants go by."""

    handle: Any
    layout: Any


class Pipelines:
    """The pipelines of one device, by kernel, specialization constants, number of buffers and push constants' size."""

    def __init__(self, device: VulkanDevice) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._modules: dict[tuple[str, tuple[int, ...]], Any] = {}
        self._specializes = device.profile.driver_id == DriverId.GOOGLE_SWIFTSHADER
        self._layouts: dict[tuple[int, int], Any] = {}
        self._pipelines: dict[tuple[str, tuple[int, ...], int, int, int], Pipeline] = {}
        self.cache = PipelineCache(device)

    @property
    def count(self) -> int:
        """Pipelines built so far."""
        return len(self._pipelines)

    def get(
        self,
        kernel: str,
        code: bytes,
        specialization: tuple[int, ...],
        buffer_count: int,
        push_size: int,
        subgroup_size: int = 0,
    ) -> Pipeline:
        """The pipeline, built at the first call.

        Parameters
        ----------
        kernel : str
            Name of the kernel; one name stands for one code.
        code : bytes
            SPIR-V with a compute entry point "main".
        specialization : tuple of int
            32-bit values of the specialization constants 0, 1, 2, ...
        buffer_count : int
            Storage buffers, at bindings 0 to buffer_count - 1 of set 0.
        push_size : int
            Bytes of push constants.
        subgroup_size : int, optional
            Runs in whole subgroups of this size, as far as the device can be told; 0 leaves both to the driver.

        Raises
        ------
        DeviceError
            The driver refuses the kernel.
        """
        key = (kernel, specialization, buffer_count, push_size, subgroup_size)
        pipeline = self._pipelines.get(key)
        if pipeline is None:
            with self._lock:
                self._device.require_open()
                pipeline = self._pipelines.get(key)
                if pipeline is None:
                    layout = self._layout(buffer_count, push_size)
                    pipeline = Pipeline(self._build(kernel, code, specialization, layout, subgroup_size), layout)
                    self._pipelines[key] = pipeline
        return pipeline

    def _module(self, kernel: str, code: bytes, specialization: tuple[int, ...]) -> Any:
        """The kernel's module, with these specialization constants made plain ones."""
        module = self._modules.get((kernel, specialization))
        if module is None:
            if len(code) % 4 or int.from_bytes(code[:4], "little") != SPIRV_MAGIC:
                raise DeviceError(f"kernel {kernel}: {len(code)} bytes that are not SPIR-V")
            if specialization:
                code = specialized(code, specialization)
            ffi = vk.ffi
            words = ffi.new("uint32_t[]", len(code) // 4)
            ffi.memmove(words, code, len(code))
            information = ffi.new("VkShaderModuleCreateInfo*")
            information.sType = vk.VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO
            information.codeSize = len(code)
            information.pCode = words
            handle = ffi.new("VkShaderModule*")
            # VkResult vkCreateShaderModule(VkDevice device, const VkShaderModuleCreateInfo* pCreateInfo, const
            #     VkAllocationCallbacks* pAllocator, VkShaderModule* pShaderModule)
            result = vk.vkCreateShaderModule(self._device.handle, information, ffi.NULL, handle)
            check(result, f"vkCreateShaderModule({kernel})")
            module = self._modules[kernel, specialization] = handle[0]
        return module

    def _layout(self, buffer_count: int, push_size: int) -> Any:
        layout = self._layouts.get((buffer_count, push_size))
        if layout is None:
            ffi = vk.ffi
            sets = ffi.new("VkDescriptorSetLayout[1]", [self._device.descriptors.layout(buffer_count)])
            constants = ffi.new("VkPushConstantRange*", (COMPUTE_SHADER_STAGE, 0, push_size))
            information = ffi.new("VkPipelineLayoutCreateInfo*")
            information.sType = vk.VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO
            information.setLayoutCount = 1
            information.pSetLayouts = sets
            information.pushConstantRangeCount = 1 if push_size else 0
            information.pPushConstantRanges = constants
            handle = ffi.new("VkPipelineLayout*")
            # VkResult vkCreatePipelineLayout(VkDevice device, const VkPipelineLayoutCreateInfo* pCreateInfo, const
            #     VkAllocationCallbacks* pAllocator, VkPipelineLayout* pPipelineLayout)
            result = vk.vkCreatePipelineLayout(self._device.handle, information, ffi.NULL, handle)
            check(result, "vkCreatePipelineLayout")
            layout = self._layouts[buffer_count, push_size] = handle[0]
        return layout

    def _build(self, kernel: str, code: bytes, specialization: tuple[int, ...], layout: Any, subgroup_size: int) -> Any:
        ffi = vk.ffi
        done, todo = (specialization, ()) if self._specializes else ((), specialization)
        module = self._module(kernel, code, done)
        count = len(todo)
        entries = ffi.new("VkSpecializationMapEntry[]", [(i, 4 * i, 4) for i in range(count)])
        # Values may be given signed or unsigned: 32 bits either way.
        data = ffi.new("uint32_t[]", [value & 0xFFFFFFFF for value in todo])
        constants = ffi.new("VkSpecializationInfo*")
        constants.mapEntryCount = count
        constants.pMapEntries = entries
        constants.dataSize = 4 * count
        constants.pData = data
        entry_point = ffi.new("char[]", b"main")
        information = ffi.new("VkComputePipelineCreateInfo*")
        information.sType = vk.VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO
        information.stage.sType = vk.VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO
        information.stage.stage = COMPUTE_SHADER_STAGE
        information.stage.module = module
        information.stage.pName = entry_point
        information.stage.pSpecializationInfo = constants if count else ffi.NULL
        information.layout = layout
        required_size = ffi.new("VkPipelineShaderStageRequiredSubgroupSizeCreateInfo*")
        if subgroup_size:
            profile, features = self._device.profile, self._device.features
            if "computeFullSubgroups" in features:
                information.stage.flags |= REQUIRE_FULL_SUBGROUPS
            # Where there is only one size, there is nothing to require; some drivers cannot be told then.
            if "subgroupSizeControl" in features and profile.min_subgroup_size != profile.max_subgroup_size:
                required_size.sType = vk.VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO
                required_size.requiredSubgroupSize = subgroup_size
                information.stage.pNext = required_size
        handle = ffi.new("VkPipeline*")
        # VkResult vkCreateComputePipelines(VkDevice device, VkPipelineCache pipelineCache, uint32_t createInfoCount,
        #     const VkComputePipelineCreateInfo* pCreateInfos, const VkAllocationCallbacks* pAllocator, VkPipeline*
        #     pPipelines)
        result = vk.vkCreateComputePipelines(self._device.handle, self.cache.handle, 1, information, ffi.NULL, handle)
        if result != VK_SUCCESS:
            error = failure(result, "vkCreateComputePipelines")
            raise type(error)(f"kernel {kernel} with specialization constants {specialization}: {error}")
        self.cache.added += 1
        return handle[0]

    def close(self) -> None:
        """Save the cache, then destroy everything; nothing may be in flight."""
        with self._lock:
            device = self._device.handle
            self.cache.close()
            for pipeline in self._pipelines.values():
                # void vkDestroyPipeline(VkDevice device, VkPipeline pipeline, const VkAllocationCallbacks*
                #     pAllocator)
                vk.vkDestroyPipeline(device, pipeline.handle, vk.ffi.NULL)
            for layout in self._layouts.values():
                # void vkDestroyPipelineLayout(VkDevice device, VkPipelineLayout pipelineLayout, const
                #     VkAllocationCallbacks* pAllocator)
                vk.vkDestroyPipelineLayout(device, layout, vk.ffi.NULL)
            for module in self._modules.values():
                # void vkDestroyShaderModule(VkDevice device, VkShaderModule shaderModule, const
                #     VkAllocationCallbacks* pAllocator)
                vk.vkDestroyShaderModule(device, module, vk.ffi.NULL)
            self._pipelines.clear()
            self._layouts.clear()
            self._modules.clear()
