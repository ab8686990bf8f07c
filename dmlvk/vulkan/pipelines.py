"""Compute pipelines, each built once, with their layouts and shader modules."""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import suppress
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from dmlvk import quirks
from dmlvk.device_profile import DeviceType
from dmlvk.errors import DeviceError
from dmlvk.vulkan.context import Context
from dmlvk.vulkan.descriptors import COMPUTE_SHADER_STAGE, DescriptorSets
from dmlvk.vulkan.handles import Handle
from dmlvk.vulkan.interrupts.locks import RLock
from dmlvk.vulkan.interrupts.monitor import Monitor, reentered
from dmlvk.vulkan.library import VK_SUCCESS, failure, structure, vk
from dmlvk.vulkan.pipeline_cache import PipelineCache
from dmlvk.vulkan.queue import Queue
from dmlvk.vulkan.specialization import specialized

FAIL_ON_COMPILE_REQUIRED = 0x100  # VK_PIPELINE_CREATE_FAIL_ON_PIPELINE_COMPILE_REQUIRED_BIT
VK_PIPELINE_COMPILE_REQUIRED = 1000297000
REQUIRE_FULL_SUBGROUPS = 0x2  # VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT
SPIRV_MAGIC = 0x07230203
# The number of pipelines that a device keeps for operators that are compiled again. Beyond it, the pipelines of live
# operators and bindings stay alive. A GPU's compiler takes a third of a second for a pipeline, which then costs little
# memory; a pipeline of a CPU driver costs one to three megabytes.
PIPELINES_KEPT = 512
PIPELINES_KEPT_ON_CPU = 16
# Bytes of push constants. All kernels have room in them. Some devices have fewer, and cannot run those with most.
LARGEST_PUSH_CONSTANTS_SIZE = 256
# Kernel, specialization constants, required size of subgroups.
Key: TypeAlias = tuple[str, tuple[int, ...], int]


class Pipeline:
    """A VkPipeline, destroyed when the last operator, binding or submission drops it.

    layout: VkPipelineLayout. The layout of the descriptor sets and push constants of all pipelines.
    has_run: whether it was dispatched so that the driver would compile it.
    """

    __slots__ = ("_owner", "handle", "has_run", "layout")

    def __init__(self, owner: Handle, layout: Any) -> None:
        self._owner = owner
        self.handle = owner.value
        self.layout = layout
        self.has_run = False

    def __del__(self) -> None:
        self._owner.destroy()


class Pipelines:
    """The pipelines of one device, by kernel and specialization constants.

    descriptors: makes the descriptor sets that the pipelines use.
    queue: the compute queue.
    """

    def __init__(self, context: Context, descriptors: DescriptorSets, queue: Queue) -> None:
        self._context = context
        self._queue = queue
        self.monitor = Monitor(context.availability)
        self._modules: dict[str, Handle] = {}
        self._specializes = quirks.SWIFTSHADER_SPECIALIZES_LAST.applies_to(context.profile)
        # NVIDIA's driver takes 1 to 4 ms to make one. So there is one for all pipelines, made with the device.
        self._layout = self._new_layout(descriptors)
        self._unchecked = _without_bounds_checks() if "pipelineRobustness" in context.configuration.features else None
        self._kept = PIPELINES_KEPT_ON_CPU if context.profile.device_type == DeviceType.CPU else PIPELINES_KEPT
        # The least recently used first.
        self._pipelines: OrderedDict[Key, Pipeline] = OrderedDict()
        # Locks of the pipelines that threads build or wait for.
        self._building: WeakValueDictionary[Key, Any] = WeakValueDictionary()
        self.cache = PipelineCache(context)

    @property
    def count(self) -> int:
        """The number of pipelines that are kept for operators that are compiled again."""
        return len(self._pipelines)

    @property
    def is_entered(self) -> bool:
        """Whether this thread is in the middle of building a pipeline."""
        # The references are a list at once; other threads may add locks while this one looks at them.
        locks = (reference() for reference in self._building.valuerefs())
        return self.monitor.is_entered or any(lock is not None and lock._is_owned() for lock in locks)

    def get(self, kernel: str, code: bytes, specialization: tuple[int, ...], subgroup_size: int = 0) -> Pipeline:
        """The pipeline, built at the first call.

        kernel: name of the kernel; the same name always comes with the same code.
        code: SPIR-V with a compute entry point "main", and storage buffers at the first bindings of set 0.
        specialization: 32-bit values of the specialization constants 0, 1, 2, ...
        subgroup_size: require full subgroups of this size, as far as the device can be told; with 0 the driver chooses.
        Raises DeviceError: the driver refuses the kernel; or this thread is in the middle of building it.
        """
        pipeline = self._get((kernel, specialization, subgroup_size), code, True)
        assert pipeline is not None, "the compiler gives a pipeline or an error"
        return pipeline

    def find(
        self, kernel: str, code: bytes, specialization: tuple[int, ...], subgroup_size: int = 0
    ) -> Pipeline | None:
        """As `get`, but None if the driver's compiler would have to run, or if the driver cannot say so."""
        return self._get((kernel, specialization, subgroup_size), code, False)

    def _get(self, key: Key, code: bytes, compiles: bool) -> Pipeline | None:
        if not compiles and key not in self._pipelines:
            can_ask = "pipelineCreationCacheControl" in self._context.configuration.features
            if not can_ask or key in self._building:  # another thread is compiling it
                return None
        found, building = self.monitor.run(self._known, key)
        if found is not None:
            return found
        if building._is_owned():
            raise reentered()
        # Drivers compile for as long as a second. Other threads have to wait only if they want the same pipeline.
        with building: return self._context.visits.during(self._built, key, code, compiles)  # noqa: E701  # fmt: skip

    def _known(self, key: Key) -> tuple[Pipeline | None, Any]:
        """The pipeline if it is there; and the lock that is held while it is built."""
        pipeline = self._pipelines.get(key)
        if pipeline is not None:
            with suppress(KeyError):  # a signal handler has just removed it to make room
                self._pipelines.move_to_end(key)
            return pipeline, None
        building = self._building.get(key)
        if building is None:
            building = self._building[key] = RLock()
        return None, building

    def _built(self, key: Key, code: bytes, compiles: bool) -> Pipeline | None:
        found, _ = self.monitor.run(self._known, key)
        if found is not None:  # another thread has built it
            return found
        kernel, specialization, _ = key
        module = self.monitor.run(self._module, kernel, code, specialization if self._specializes else ())
        start = time.monotonic()
        pipeline = self._build(key, module, compiles)
        if pipeline is None:
            return None
        seconds = time.monotonic() - start
        self.monitor.run(self._keep, key, pipeline)
        self.cache.save_soon(seconds)
        return pipeline

    def _keep(self, key: Key, pipeline: Pipeline) -> None:
        self._pipelines[key] = pipeline
        if len(self._pipelines) > self._kept:
            self._pipelines.popitem(last=False)
            # See quirks.LAVAPIPE_KEEPS_DESTROYED_PIPELINES.
            self._queue.submit_nothing()
        self.cache.count_addition()

    def _module(self, kernel: str, code: bytes, specialization: tuple[int, ...]) -> Handle:
        """The kernel's module; given specialization constants, a new module in which they are plain constants."""
        module = None if specialization else self._modules.get(kernel)
        if module is None:
            if len(code) % 4 or int.from_bytes(code[:4], "little") != SPIRV_MAGIC:
                raise DeviceError(f"kernel {kernel}: its {len(code)} bytes are not SPIR-V")
            if specialization:
                code = specialized(code, specialization)
            ffi = vk.ffi
            words = ffi.new("uint32_t[]", len(code) // 4)
            ffi.memmove(words, code, len(code))
            information = structure("ShaderModuleCreateInfo", codeSize=len(code), pCode=words)
            module = self._context.handles.create("ShaderModule", information)
            if not specialization:
                self._modules[kernel] = module
        return module

    def _new_layout(self, descriptors: DescriptorSets) -> Any:
        ffi = vk.ffi
        size = min(LARGEST_PUSH_CONSTANTS_SIZE, self._context.profile.limits.max_push_constants_size)
        sets = ffi.new("VkDescriptorSetLayout[1]", [descriptors.layout])
        constants = ffi.new("VkPushConstantRange*", (COMPUTE_SHADER_STAGE, 0, size))
        information = structure(
            "PipelineLayoutCreateInfo",
            setLayoutCount=1,
            pSetLayouts=sets,
            pushConstantRangeCount=1,
            pPushConstantRanges=constants,
        )
        return self._context.handles.create("PipelineLayout", information).value

    def _build(self, key: Key, module: Handle, compiles: bool) -> Pipeline | None:
        ffi = vk.ffi
        kernel, specialization, subgroup_size = key
        todo = () if self._specializes else specialization
        count = len(todo)
        entries = ffi.new("VkSpecializationMapEntry[]", [(i, 4 * i, 4) for i in range(count)])
        # Callers give signed or unsigned values; either way 32 bits count.
        data = ffi.new("uint32_t[]", [value & 0xFFFFFFFF for value in todo])
        constants = ffi.new("VkSpecializationInfo*", (count, entries, 4 * count, data))
        entry_point = ffi.new("char[]", b"main")
        flags = 0 if compiles else FAIL_ON_COMPILE_REQUIRED
        information = structure("ComputePipelineCreateInfo", flags=flags, layout=self._layout)
        information.stage.sType = vk.VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO
        information.stage.stage = COMPUTE_SHADER_STAGE
        information.stage.module = module.value
        information.stage.pName = entry_point
        information.stage.pSpecializationInfo = constants if count else ffi.NULL
        if subgroup_size:
            profile, features = self._context.profile, self._context.configuration.features
            if "computeFullSubgroups" in features:
                information.stage.flags |= REQUIRE_FULL_SUBGROUPS
            # If the device has only one size, there is nothing to require, and some drivers refuse a required size.
            if "subgroupSizeControl" in features and profile.min_subgroup_size != profile.max_subgroup_size:
                kind = "PipelineShaderStageRequiredSubgroupSizeCreateInfo"
                required_size = structure(kind, requiredSubgroupSize=subgroup_size)
                information.stage.pNext = required_size
        if self._unchecked is not None:
            information.pNext = self._unchecked
        pipeline = self._context.handles.new("Pipeline")
        cache = self.cache.current
        # VkResult vkCreateComputePipelines(VkDevice device, VkPipelineCache pipelineCache, uint32_t createInfoCount,
        #     const VkComputePipelineCreateInfo* pCreateInfos, const VkAllocationCallbacks* pAllocator, VkPipeline*
        #     pPipelines)
        result = vk.vkCreateComputePipelines(
            self._context.handle, cache.handle, 1, information, ffi.NULL, pipeline.array
        )
        if self._specializes and specialization:
            module.destroy()  # no other pipeline uses it
        if result != VK_SUCCESS:
            pipeline.array[0] = ffi.NULL  # some drivers write to it all the same
            pipeline.destroy()
            if result == VK_PIPELINE_COMPILE_REQUIRED:
                return None
            error = failure(result, "vkCreateComputePipelines")
            raise type(error)(f"kernel {kernel} with specialization constants {specialization}: {error}")
        return Pipeline(pipeline, self._layout)

    def close(self) -> None:
        """Save the cache, and drop the pipelines; nothing may be in flight."""
        self.cache.save()
        self._pipelines.clear()


def _without_bounds_checks() -> Any:
    """A VkPipelineRobustnessCreateInfoEXT that turns off the checks of accesses to buffers.

    No kernel needs them: none accesses anything outside of its buffers, whatever a caller passes, because drivers need
    not check. NVIDIA's does so by default, with two instructions for each load. As they stand before the load, they
    keep it back, and they are a tenth of what a step of a matrix product executes.
    """
    information = structure(
        "PipelineRobustnessCreateInfoEXT",
        storageBuffers=vk.VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DISABLED_EXT,
        uniformBuffers=vk.VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DISABLED_EXT,
        vertexInputs=vk.VK_PIPELINE_ROBUSTNESS_BUFFER_BEHAVIOR_DEVICE_DEFAULT_EXT,
        images=vk.VK_PIPELINE_ROBUSTNESS_IMAGE_BEHAVIOR_DEVICE_DEFAULT_EXT,
    )
    return information
