"""Runs the compute dispatches recorded in this folder on a Vulkan device and compares what they leave behind.

    pip install numpy vulkan
    python replay.py                     # the device it was recorded on, if there is one of that name; else the first
    python replay.py --device llvmpipe   # part of a device's name, or its index
    python replay.py --repeat 100

case.json says what was dispatched. Each *.bin is the memory of one tensor before the run, random guard bytes included,
and output_tensor.expected.bin is what the output's memory has to be afterwards, to the byte. Ends with status 0 when
it is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from vulkan._vulkan import ffi
from vulkan._vulkan import lib as vk

HERE = Path(__file__).resolve().parent
ENTIRE_SIZE = 0xFFFFFFFFFFFFFFFF
COMPUTE_STAGE = 0x800  # VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT
COMPUTE_SHADER = 0x20  # VK_SHADER_STAGE_COMPUTE_BIT
EXTENSIONS = ("VK_KHR_cooperative_matrix", "VK_KHR_shader_integer_dot_product", "VK_EXT_subgroup_size_control")
# Each with the extension that it belongs to, if it is not in core Vulkan.
FEATURE_STRUCTURES = {
    "Vulkan11Features": "",
    "Vulkan12Features": "",
    "Vulkan13Features": "",
    "CooperativeMatrixFeaturesKHR": "VK_KHR_cooperative_matrix",
}
BEFORE_VULKAN_1_3 = {
    "ShaderIntegerDotProductFeatures": "VK_KHR_shader_integer_dot_product",
    "SubgroupSizeControlFeatures": "VK_EXT_subgroup_size_control",
}
# Before each word of a structure's name: "PhysicalDevice|Vulkan|1|1|Features".
WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[a-z0-9])(?=\d)")


def check(result: int, call: str) -> None:
    if result != 0:
        name = ffi.typeof("VkResult").elements.get(result, "an unknown result")
        sys.exit(f"{call} returned {name} ({result})")


def structure(kind: str, **members: Any) -> Any:
    """A Vk... structure with its sType; arrays given as members are kept alive by whoever made them."""
    made = ffi.new(f"Vk{kind}*")
    made.sType = getattr(vk, f"VK_STRUCTURE_TYPE_{WORDS.sub('_', kind).upper()}")
    for name, value in members.items():
        setattr(made, name, value)
    return made


class Replay:
    """The recorded dispatches on one device."""

    def __init__(self, case: dict[str, Any], selector: str | None) -> None:
        self.case = case
        self.kept: list[Any] = []  # C objects that must outlive a call
        application = structure("ApplicationInfo", apiVersion=1 << 22 | 3 << 12)
        information = structure("InstanceCreateInfo", pApplicationInfo=application)
        instance = ffi.new("VkInstance*")
        check(vk.vkCreateInstance(information, ffi.NULL, instance), "vkCreateInstance")
        self.instance = instance[0]
        self.physical = self.choose(selector)
        self.device, self.family = self.open()
        self.modules: dict[str, Any] = {}
        self.segments = {name: self.allocate(size) for name, size in case["memory"].items()}

    def keep(self, value: Any) -> Any:
        self.kept.append(value)
        return value

    def create(self, kind: str, **members: Any) -> Any:
        """An object of the device: a "Buffer" by vkCreateBuffer, from a VkBufferCreateInfo with these members."""
        made, call = ffi.new(f"Vk{kind}*"), f"vkCreate{kind}"
        check(getattr(vk, call)(self.device, structure(f"{kind}CreateInfo", **members), ffi.NULL, made), call)
        return made[0]

    def choose(self, selector: str | None) -> Any:
        count = ffi.new("uint32_t*")
        check(vk.vkEnumeratePhysicalDevices(self.instance, count, ffi.NULL), "vkEnumeratePhysicalDevices")
        handles = ffi.new("VkPhysicalDevice[]", max(1, count[0]))
        check(vk.vkEnumeratePhysicalDevices(self.instance, count, handles), "vkEnumeratePhysicalDevices")
        found = []
        for index in range(count[0]):
            properties = ffi.new("VkPhysicalDeviceProperties*")
            vk.vkGetPhysicalDeviceProperties(handles[index], properties)
            name = ffi.string(properties.deviceName).decode(errors="replace")
            found.append((name, handles[index], properties.apiVersion))
        if selector is not None and selector.isdecimal():  # an index, and no part of a name
            matching = [each for index, each in enumerate(found) if str(index) == selector]
        else:
            wanted = self.case["environment"]["device"] if selector is None else selector
            matching = [each for each in found if wanted.casefold() in each[0].casefold()]
        if not found or (not matching and selector is not None):
            listing = ", ".join(f"{index}: {name}" for index, (name, _, _) in enumerate(found))
            sys.exit(f"no Vulkan device {selector or ''}; there are {listing or 'none'}")
        name, handle, self.version = (matching or found)[0]
        print(f"Device: {name}")
        return handle

    def open(self) -> tuple[Any, int]:
        count = ffi.new("uint32_t*")
        vk.vkGetPhysicalDeviceQueueFamilyProperties(self.physical, count, ffi.NULL)
        families = ffi.new("VkQueueFamilyProperties[]", count[0])
        vk.vkGetPhysicalDeviceQueueFamilyProperties(self.physical, count, families)
        family = next(index for index in range(count[0]) if families[index].queueFlags & 2)
        vk.vkEnumerateDeviceExtensionProperties(self.physical, ffi.NULL, count, ffi.NULL)
        properties = ffi.new("VkExtensionProperties[]", max(1, count[0]))
        vk.vkEnumerateDeviceExtensionProperties(self.physical, ffi.NULL, count, properties)
        available = {ffi.string(properties[index].extensionName).decode() for index in range(count[0])}
        is_1_3 = self.version >= 1 << 22 | 3 << 12
        names = [name for name in EXTENSIONS if name in available and (not is_1_3 or "KHR_cooperative" in name)]
        structures = dict(FEATURE_STRUCTURES)
        if not is_1_3:
            del structures["Vulkan13Features"]
            structures |= BEFORE_VULKAN_1_3
        chain = ffi.NULL
        for kind, extension in structures.items():
            if extension and extension not in available:
                continue
            features = structure(f"PhysicalDevice{kind}", pNext=chain)
            for name, _ in ffi.typeof(features).item.fields:
                if name in self.case["features"]:
                    setattr(features, name, 1)
            chain = self.keep(features)
        queue = structure(
            "DeviceQueueCreateInfo",
            queueFamilyIndex=family,
            queueCount=1,
            pQueuePriorities=self.keep(ffi.new("float[1]", [1.0])),
        )
        strings = self.keep([ffi.new("char[]", name.encode()) for name in names])
        information = structure(
            "DeviceCreateInfo",
            pNext=chain,
            queueCreateInfoCount=1,
            pQueueCreateInfos=queue,
            enabledExtensionCount=len(names),
            ppEnabledExtensionNames=self.keep(ffi.new("char*[]", strings)),
        )
        device = ffi.new("VkDevice*")
        check(vk.vkCreateDevice(self.physical, information, ffi.NULL, device), "vkCreateDevice")
        return device[0], family

    def allocate(self, size: int) -> list[tuple[Any, np.ndarray]]:
        """Host-visible memory in buffers of at most the recorded segment size: each with its VkBuffer."""
        segments = []
        step = self.case["segment_size"]
        for start in range(0, size, step):
            length = -(-min(step, size - start) // 256) * 256
            buffer = self.create("Buffer", size=length, usage=32)
            needs = ffi.new("VkMemoryRequirements*")
            vk.vkGetBufferMemoryRequirements(self.device, buffer, needs)
            kinds = ffi.new("VkPhysicalDeviceMemoryProperties*")
            vk.vkGetPhysicalDeviceMemoryProperties(self.physical, kinds)
            kind = next(  # VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
                index
                for index in range(kinds.memoryTypeCount)
                if needs.memoryTypeBits >> index & 1 and kinds.memoryTypes[index].propertyFlags & 6 == 6
            )
            allocation = structure("MemoryAllocateInfo", allocationSize=needs.size, memoryTypeIndex=kind)
            memory = ffi.new("VkDeviceMemory*")
            check(vk.vkAllocateMemory(self.device, allocation, ffi.NULL, memory), "vkAllocateMemory")
            check(vk.vkBindBufferMemory(self.device, buffer, memory[0], 0), "vkBindBufferMemory")
            address = ffi.new("void**")
            check(vk.vkMapMemory(self.device, memory[0], 0, ENTIRE_SIZE, 0, address), "vkMapMemory")
            segments.append((buffer, np.frombuffer(ffi.buffer(address[0], length), np.uint8)))
        return segments

    def write(self, name: str, content: np.ndarray) -> None:
        position = 0
        for _, mapped in self.segments[name]:
            part = content[position : position + mapped.size]
            mapped[: part.size] = part
            position += mapped.size

    def read(self, name: str) -> np.ndarray:
        return np.concatenate([mapped for _, mapped in self.segments[name]])[: self.case["memory"][name]]

    def module(self, kernel: str) -> Any:
        if kernel not in self.modules:
            words = self.keep(ffi.new("uint32_t[]", np.fromfile(HERE / f"{kernel}.spv", "<u4").tolist()))
            self.modules[kernel] = self.create("ShaderModule", codeSize=4 * len(words), pCode=words)
        return self.modules[kernel]

    def prepare(self, dispatch: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
        """Pipeline, pipeline layout, descriptor sets and push constants of a dispatch."""
        bindings = dispatch["bindings"]
        count = len(bindings)
        entries = ffi.new("VkDescriptorSetLayoutBinding[]", [(i, 7, 1, COMPUTE_SHADER) for i in range(count)])
        created = self.create("DescriptorSetLayout", bindingCount=count, pBindings=entries)
        set_layout = ffi.new("VkDescriptorSetLayout[1]", [created])
        push_constants = self.keep(ffi.new("uint32_t[]", dispatch["push_constants"]))
        constants = ffi.new("VkPushConstantRange*", (COMPUTE_SHADER, 0, 4 * len(push_constants)))
        layout = self.create(
            "PipelineLayout",
            setLayoutCount=1,
            pSetLayouts=set_layout,
            pushConstantRangeCount=1 if len(push_constants) else 0,
            pPushConstantRanges=constants,
        )
        sizes = ffi.new("VkDescriptorPoolSize*", (7, count))  # VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
        pool = self.create("DescriptorPool", maxSets=1, poolSizeCount=1, pPoolSizes=sizes)
        set_information = structure(
            "DescriptorSetAllocateInfo",
            descriptorPool=pool,
            descriptorSetCount=1,
            pSetLayouts=set_layout,
        )
        sets = self.keep(ffi.new("VkDescriptorSet[1]"))
        check(vk.vkAllocateDescriptorSets(self.device, set_information, sets), "vkAllocateDescriptorSets")
        for number, binding in enumerate(bindings):
            buffer, _ = self.segments[binding["memory"]][binding["segment"]]
            place = ffi.new("VkDescriptorBufferInfo*", (buffer, binding["offset"], binding["size"]))
            write = structure(
                "WriteDescriptorSet",
                dstSet=sets[0],
                dstBinding=number,
                descriptorCount=1,
                descriptorType=7,
                pBufferInfo=place,
            )
            vk.vkUpdateDescriptorSets(self.device, 1, write, 0, ffi.NULL)
        return self.pipeline(dispatch, layout), layout, sets, push_constants

    def pipeline(self, dispatch: dict[str, Any], layout: Any) -> Any:
        values = dispatch["specialization"]
        entries = ffi.new("VkSpecializationMapEntry[]", [(i, 4 * i, 4) for i in range(len(values))])
        data = ffi.new("uint32_t[]", [value & 0xFFFFFFFF for value in values])
        constants = ffi.new("VkSpecializationInfo*", (len(values), entries, 4 * len(values), data))
        name = ffi.new("char[]", b"main")
        information = structure("ComputePipelineCreateInfo", layout=layout)
        stage = information.stage
        stage.sType = vk.VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO
        stage.stage = COMPUTE_SHADER
        stage.module = self.module(dispatch["kernel"])
        stage.pName = name
        stage.pSpecializationInfo = constants
        size = dispatch["subgroup_size"]
        if size and "computeFullSubgroups" in self.case["features"]:
            stage.flags = 2  # VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT
        properties = self.case["environment"]["record"]["properties"]
        varies = properties["minSubgroupSize"] != properties["maxSubgroupSize"]
        if size and varies and "subgroupSizeControl" in self.case["features"]:
            stage.pNext = self.keep(
                structure(
                    "PipelineShaderStageRequiredSubgroupSizeCreateInfo",
                    requiredSubgroupSize=size,
                )
            )
        pipeline = ffi.new("VkPipeline*")
        result = vk.vkCreateComputePipelines(self.device, ffi.NULL, 1, information, ffi.NULL, pipeline)
        check(result, f"vkCreateComputePipelines({dispatch['kernel']})")
        return pipeline[0]

    def record(self) -> Any:
        """All dispatches, with a barrier between stages, in one command buffer."""
        pool = self.create("CommandPool", queueFamilyIndex=self.family)
        allocation = structure("CommandBufferAllocateInfo", commandPool=pool, commandBufferCount=1)
        buffers = self.keep(ffi.new("VkCommandBuffer[1]"))
        check(vk.vkAllocateCommandBuffers(self.device, allocation, buffers), "vkAllocateCommandBuffers")
        commands = buffers[0]
        begin = structure("CommandBufferBeginInfo")
        check(vk.vkBeginCommandBuffer(commands, begin), "vkBeginCommandBuffer")
        # VK_ACCESS_SHADER_READ_BIT, VK_ACCESS_SHADER_WRITE_BIT, VK_ACCESS_HOST_READ_BIT
        between = structure("MemoryBarrier", srcAccessMask=0x40, dstAccessMask=0x60)
        at_end = structure("MemoryBarrier", srcAccessMask=0x40, dstAccessMask=0x2000)
        for number, stage in enumerate(self.case["initialization"] + self.case["stages"]):
            if number:
                vk.vkCmdPipelineBarrier(commands, COMPUTE_STAGE, COMPUTE_STAGE, 0, 1, between, 0, ffi.NULL, 0, ffi.NULL)
            for dispatch in stage:
                pipeline, layout, sets, push_constants = self.prepare(dispatch)
                vk.vkCmdBindPipeline(commands, 1, pipeline)
                vk.vkCmdBindDescriptorSets(commands, 1, layout, 0, 1, sets, 0, ffi.NULL)
                if len(push_constants):
                    size = 4 * len(push_constants)
                    vk.vkCmdPushConstants(commands, layout, COMPUTE_SHADER, 0, size, push_constants)
                vk.vkCmdDispatch(commands, *dispatch["groups"])
        vk.vkCmdPipelineBarrier(commands, COMPUTE_STAGE, 0x4000, 0, 1, at_end, 0, ffi.NULL, 0, ffi.NULL)
        check(vk.vkEndCommandBuffer(commands), "vkEndCommandBuffer")
        return buffers

    def run(self, repeat: int) -> int:
        """Run, compare, and return the exit status."""
        queue = ffi.new("VkQueue*")
        vk.vkGetDeviceQueue(self.device, self.family, 0, queue)
        commands = self.record()
        submission = structure("SubmitInfo", commandBufferCount=1, pCommandBuffers=commands)
        expected = np.fromfile(HERE / "output_tensor.expected.bin", np.uint8)
        digests = []
        wrong = None
        for _ in range(repeat):
            for name in self.case["memory"]:
                path = HERE / f"{name}.bin"
                if path.exists():
                    self.write(name, np.fromfile(path, np.uint8))
                elif name == "clean":  # zeros before each run
                    self.write(name, np.zeros(self.case["memory"][name], np.uint8))
            check(vk.vkQueueSubmit(queue[0], 1, submission, ffi.NULL), "vkQueueSubmit")
            check(vk.vkQueueWaitIdle(queue[0]), "vkQueueWaitIdle")
            got = self.read("output_tensor")
            if not self.case["output"]["is_defined"]:
                self.elements(expected)[...] = self.elements(got)
            digests.append(hashlib.sha256(got.data).hexdigest()[:16])
            if wrong is None and not np.array_equal(got, expected):
                wrong = got
        if len(set(digests)) > 1:
            print(f"FLAKY: {len(set(digests))} different results in {repeat} runs")
        if wrong is None:
            print(f"equal: {expected.size} bytes, {repeat} runs")
            return 0
        self.explain(wrong, expected)
        return 1

    def elements(self, memory: np.ndarray) -> np.ndarray:
        """The output's elements in its memory, as unsigned integers."""
        layout = self.case["output"]
        strides = [stride if size > 1 else 0 for size, stride in zip(layout["sizes"], layout["strides"], strict=True)]
        return np.ndarray(layout["sizes"], f"u{np.dtype(layout['type']).itemsize}", memory, layout["start"], strides)

    def explain(self, got: np.ndarray, expected: np.ndarray) -> None:
        dtype = np.dtype(self.case["output"]["type"])
        views = [self.elements(got), self.elements(expected)]
        differing = np.argwhere(views[0] != views[1])
        if len(differing):
            first = tuple(int(index) for index in differing[0])
            mine, theirs = (np.ascontiguousarray(view[first]).view(dtype).item() for view in views)
            print(f"DIFFERS: {len(differing)} of {views[0].size} elements, the first at {first}: {mine}, not {theirs}")
        others = got.copy()
        self.elements(others)[...] = views[1]
        damaged = np.flatnonzero(others != expected)
        if damaged.size:
            place = int(damaged[0]) - self.case["output"]["start"]
            print(f"DIFFERS: {damaged.size} bytes outside the elements, the first {place} from the tensor's start")


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the recorded dispatches and compare what they leave behind.")
    parser.add_argument("--device", help="part of a device's name, or its index")
    parser.add_argument("--repeat", type=int, default=3, help="runs; default 3")
    arguments = parser.parse_args()
    case = json.loads((HERE / "case.json").read_text(encoding="utf-8"))
    print(f"Case: {case['result']['name']}, recorded on {case['environment']['device']}, path {case['path']}")
    sys.exit(Replay(case, arguments.device).run(arguments.repeat))


if __name__ == "__main__":
    main()
