"""Recording command buffers: prepared dispatches, copies, barriers and timestamps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from dmlvk.vulkan.command_buffers import SECONDARY, CommandBuffer, CommandBuffers
from dmlvk.vulkan.descriptors import COMPUTE_SHADER_STAGE, DescriptorSet
from dmlvk.vulkan.library import check, structure, vk
from dmlvk.vulkan.pipelines import Pipeline

# VkPipelineStageFlagBits
COMPUTE_STAGE = 0x800
TRANSFER_STAGE = 0x1000
BOTTOM_OF_PIPE = 0x2000
HOST_STAGE = 0x4000
# VkAccessFlagBits
SHADER_READ = 0x20
SHADER_WRITE = 0x40
TRANSFER_READ = 0x800
TRANSFER_WRITE = 0x1000
HOST_READ = 0x2000

ONE_TIME_SUBMIT = 1  # VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT
SIMULTANEOUS_USE = 4  # VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT
COMPUTE_BIND_POINT = 1  # VK_PIPELINE_BIND_POINT_COMPUTE


class PreparedDispatch:
    """One dispatch with every argument of its Vulkan calls already a C object.

    label: the kernel's name, for messages.
    """

    __slots__ = ("_owners", "groups", "label", "layout", "pipeline", "push_constants", "push_size", "sets")

    def __init__(
        self,
        label: str,
        pipeline: Pipeline,
        descriptor_set: DescriptorSet,
        push_constants: tuple[int, ...],
        groups: tuple[int, int, int],
    ) -> None:
        self.label = label
        self._owners = (pipeline, descriptor_set)
        self.pipeline = pipeline.handle
        self.layout = pipeline.layout
        self.sets = vk.ffi.new("VkDescriptorSet[1]", [descriptor_set.handle])
        self.push_constants = vk.ffi.new("uint32_t[]", push_constants) if push_constants else None
        self.push_size = 4 * len(push_constants)
        self.groups = groups


class Recorder:
    """Records into one command buffer. Used with the device's monitor entered."""

    __slots__ = ("_owner", "command_buffer")

    # Structures that never change, built at the first use.
    _begin_information: ClassVar[dict[tuple[int, bool], Any]] = {}
    _barriers: ClassVar[dict[tuple[int, int], Any]] = {}

    def __init__(self, owner: CommandBuffer, flags: int = ONE_TIME_SUBMIT, *, secondary: bool = False) -> None:
        self._owner = owner
        self.command_buffer = command_buffer = owner.handle
        owner.is_recorded = False
        begin = self._begin_information.get((flags, secondary))
        if begin is None:
            # Only secondary command buffers have inheritance information; outside of render passes it is empty.
            inheritance = structure("CommandBufferInheritanceInfo") if secondary else vk.ffi.NULL
            information = structure("CommandBufferBeginInfo", flags=flags, pInheritanceInfo=inheritance)
            begin = self._begin_information[flags, secondary] = (information, inheritance)
        information = begin[0]
        # VkResult vkBeginCommandBuffer(VkCommandBuffer commandBuffer, const VkCommandBufferBeginInfo* pBeginInfo)
        check(vk.vkBeginCommandBuffer(command_buffer, information), "vkBeginCommandBuffer")

    def _barrier(self, source_stage: int, source: int, destination_stage: int, destination: int) -> None:
        barrier = self._barriers.get((source, destination))
        if barrier is None:
            barrier = structure("MemoryBarrier", srcAccessMask=source, dstAccessMask=destination)
            self._barriers[source, destination] = barrier
        null = vk.ffi.NULL
        # void vkCmdPipelineBarrier(VkCommandBuffer commandBuffer, VkPipelineStageFlags srcStageMask,
        #     VkPipelineStageFlags dstStageMask, VkDependencyFlags dependencyFlags, uint32_t memoryBarrierCount, const
        #     VkMemoryBarrier* pMemoryBarriers, uint32_t bufferMemoryBarrierCount, const VkBufferMemoryBarrier*
        #     pBufferMemoryBarriers, uint32_t imageMemoryBarrierCount, const VkImageMemoryBarrier*
        #     pImageMemoryBarriers)
        vk.vkCmdPipelineBarrier(self.command_buffer, source_stage, destination_stage, 0, 1, barrier, 0, null, 0, null)

    def after_earlier_submissions(self, *, copies_only: bool = False) -> None:
        """Order the commands that follow after all earlier submissions, whose writes they see."""
        stages = TRANSFER_STAGE if copies_only else COMPUTE_STAGE | TRANSFER_STAGE
        written = TRANSFER_WRITE if copies_only else SHADER_WRITE | TRANSFER_WRITE
        read = TRANSFER_READ if copies_only else SHADER_READ | TRANSFER_READ
        self._barrier(stages, written, stages, read | written)

    def between_dispatches(self) -> None:
        """Order the dispatches that follow after the earlier ones, whose writes they see."""
        self._barrier(COMPUTE_STAGE, SHADER_WRITE, COMPUTE_STAGE, SHADER_READ | SHADER_WRITE)

    def before_host_reads(self, *, copies_only: bool = False) -> None:
        """Make all writes visible to the host, once the host knows that the submission is done."""
        stages = TRANSFER_STAGE if copies_only else COMPUTE_STAGE | TRANSFER_STAGE
        written = TRANSFER_WRITE if copies_only else SHADER_WRITE | TRANSFER_WRITE
        self._barrier(stages, written, HOST_STAGE, HOST_READ)

    def dispatch(self, prepared: PreparedDispatch) -> None:
        """Record one dispatch."""
        command_buffer = self.command_buffer
        # void vkCmdBindPipeline(VkCommandBuffer commandBuffer, VkPipelineBindPoint pipelineBindPoint, VkPipeline
        #     pipeline)
        vk.vkCmdBindPipeline(command_buffer, COMPUTE_BIND_POINT, prepared.pipeline)
        # void vkCmdBindDescriptorSets(VkCommandBuffer commandBuffer, VkPipelineBindPoint pipelineBindPoint,
        #     VkPipelineLayout layout, uint32_t firstSet, uint32_t descriptorSetCount, const VkDescriptorSet*
        #     pDescriptorSets, uint32_t dynamicOffsetCount, const uint32_t* pDynamicOffsets)
        vk.vkCmdBindDescriptorSets(
            command_buffer, COMPUTE_BIND_POINT, prepared.layout, 0, 1, prepared.sets, 0, vk.ffi.NULL
        )
        if prepared.push_size:
            # void vkCmdPushConstants(VkCommandBuffer commandBuffer, VkPipelineLayout layout, VkShaderStageFlags
            #     stageFlags, uint32_t offset, uint32_t size, const void* pValues)
            vk.vkCmdPushConstants(
                command_buffer, prepared.layout, COMPUTE_SHADER_STAGE, 0, prepared.push_size, prepared.push_constants
            )
        # void vkCmdDispatch(VkCommandBuffer commandBuffer, uint32_t groupCountX, uint32_t groupCountY, uint32_t
        #     groupCountZ)
        vk.vkCmdDispatch(command_buffer, *prepared.groups)

    def execute(self, secondaries: list[Any]) -> None:
        """Run secondary command buffers in order."""
        array = vk.ffi.new("VkCommandBuffer[]", secondaries)
        # void vkCmdExecuteCommands(VkCommandBuffer commandBuffer, uint32_t commandBufferCount, const VkCommandBuffer*
        #     pCommandBuffers)
        vk.vkCmdExecuteCommands(self.command_buffer, len(secondaries), array)

    def clear(self, buffer: Any, offset: int, size: int) -> None:
        """Fill bytes of a VkBuffer with zeros; offset and size are multiples of 4."""
        # void vkCmdFillBuffer(VkCommandBuffer commandBuffer, VkBuffer dstBuffer, VkDeviceSize dstOffset, VkDeviceSize
        #     size, uint32_t data)
        vk.vkCmdFillBuffer(self.command_buffer, buffer, offset, size, 0)

    def copy(self, source: Any, source_offset: int, destination: Any, destination_offset: int, size: int) -> None:
        """Copy bytes from one VkBuffer to another."""
        region = vk.ffi.new("VkBufferCopy*", (source_offset, destination_offset, size))
        # void vkCmdCopyBuffer(VkCommandBuffer commandBuffer, VkBuffer srcBuffer, VkBuffer dstBuffer, uint32_t
        #     regionCount, const VkBufferCopy* pRegions)
        vk.vkCmdCopyBuffer(self.command_buffer, source, destination, 1, region)

    def reset_timestamps(self, pool: Any, count: int) -> None:
        """Reset the first `count` queries of a pool, so that timestamps can be written."""
        # void vkCmdResetQueryPool(VkCommandBuffer commandBuffer, VkQueryPool queryPool, uint32_t firstQuery, uint32_t
        #     queryCount)
        vk.vkCmdResetQueryPool(self.command_buffer, pool, 0, count)

    def timestamp(self, pool: Any, query: int) -> None:
        """Write the time at which all commands recorded before are done."""
        # void vkCmdWriteTimestamp(VkCommandBuffer commandBuffer, VkPipelineStageFlagBits pipelineStage, VkQueryPool
        #     queryPool, uint32_t query)
        vk.vkCmdWriteTimestamp(self.command_buffer, BOTTOM_OF_PIPE, pool, query)

    def end(self) -> CommandBuffer:
        """End the recording; the command buffer can be submitted."""
        # VkResult vkEndCommandBuffer(VkCommandBuffer commandBuffer)
        check(vk.vkEndCommandBuffer(self.command_buffer), "vkEndCommandBuffer")
        self._owner.is_recorded = True
        return self._owner


def record_secondary(command_buffers: CommandBuffers, write: Callable[[Recorder], None]) -> CommandBuffer:
    """Record a secondary command buffer, which any number of primary ones can execute.

    Called with the device's monitor entered.

    write: records the commands.
    """
    recorder = Recorder(command_buffers.acquire(SECONDARY), SIMULTANEOUS_USE, secondary=True)
    write(recorder)
    return recorder.end()


class DispatchBarrier:
    """A barrier between dispatches, for command buffers that are composed of secondary ones.

    Used with the device's monitor entered.
    """

    def __init__(self, command_buffers: CommandBuffers) -> None:
        self._command_buffers = command_buffers
        self._recorded: CommandBuffer | None = None

    def secondary(self) -> CommandBuffer:
        """The secondary command buffer, recorded at the first call."""
        if self._recorded is None:
            self._recorded = record_secondary(self._command_buffers, Recorder.between_dispatches)
        return self._recorded
