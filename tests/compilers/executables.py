"""What a driver says of the pipelines that it compiled, by VK_KHR_pipeline_executable_properties.

    python -m tests.compilers.executables FILE

compiles the kernels of the sample for the only Vulkan device, which has to compile and not to run, and appends lines of
JSON to the file: the device; and before and after each pipeline what it is, and what became of it. So the kernel is
known in which a driver crashes or hangs. Run again with the same file, it goes on behind that kernel.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from dmlvk.runtime.kernel_modules import spirv
from dmlvk.vulkan.library import vk
from dmlvk.vulkan.physical_device import physical_devices
from tests.compilers.compiling_device import CompilingDevice
from tests.compilers.loops import instructions, loops
from tests.compilers.sample import Planned, dispatches

EXTENSION = "VK_KHR_pipeline_executable_properties"
CAPTURE = 0x40 | 0x80  # VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR, _CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR

# The time that one pipeline may take, in seconds of the processor's time; then the driver counts as hanging in it.
# A busy machine does not shorten that. The clock ends a compiler that sleeps.
LONGEST_COMPILATION = 90
LONGEST_SLEEP = 900


def capture() -> None:
    """Let every device be created with the extension, and every pipeline with what the extension says of it."""
    functions: Any = vk
    ffi = functions.ffi
    create_device, create_pipelines = functions.vkCreateDevice, functions.vkCreateComputePipelines
    feature = ffi.new("VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR*")
    feature.sType = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR
    feature.pipelineExecutableInfo = 1
    name = ffi.new("char[]", EXTENSION.encode())

    def with_extension(physical: Any, information: Any, allocator: Any, device: Any) -> int:
        names = [information.ppEnabledExtensionNames[i] for i in range(information.enabledExtensionCount)]
        array = ffi.new("char*[]", [*names, name])
        information.ppEnabledExtensionNames = array
        information.enabledExtensionCount = len(array)
        feature.pNext = ffi.cast("void*", information.pNext)
        information.pNext = feature
        return create_device(physical, information, allocator, device)

    def with_statistics(device: Any, cache: Any, count: int, information: Any, allocator: Any, made: Any) -> int:
        information.flags |= CAPTURE
        return create_pipelines(device, ffi.NULL, count, information, allocator, made)

    functions.vkCreateDevice, functions.vkCreateComputePipelines = with_extension, with_statistics


class Executables:
    """Asks a device for the executables of its pipelines.

    Parameters
    ----------
    device : VkDevice
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        ffi = vk.ffi

        def function(name: str) -> Callable[..., int]:
            found = vk.vkGetDeviceProcAddr(device, name.encode())
            assert found != ffi.NULL, f"the driver has no {name}"
            return ffi.cast(f"PFN_{name}", found)

        self._properties = function("vkGetPipelineExecutablePropertiesKHR")
        self._statistics = function("vkGetPipelineExecutableStatisticsKHR")
        self._texts = function("vkGetPipelineExecutableInternalRepresentationsKHR")

    def of(self, pipeline: Any) -> Iterator[dict[str, Any]]:
        """The subgroup size, the statistics by name, the counts of instructions, and the loops of each executable."""
        ffi = vk.ffi
        information = ffi.new("VkPipelineInfoKHR*")
        information.sType = vk.VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR
        information.pipeline = pipeline
        for index, properties in enumerate(self._all(self._properties, information, "Properties", "PROPERTIES")):
            executable = ffi.new("VkPipelineExecutableInfoKHR*")
            executable.sType = vk.VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR
            executable.pipeline, executable.executableIndex = pipeline, index
            statistics = {}
            for statistic in self._all(self._statistics, executable, "Statistic", "STATISTIC"):
                value = statistic.value
                by_format = (bool(value.b32), value.i64, value.u64, value.f64)
                statistics[_text(statistic.name)] = by_format[statistic.format]
            text = self._machine_code(executable)
            yield {
                "subgroup": properties.subgroupSize,
                "statistics": statistics,
                "instructions": dict(instructions(text)),
                "loops": [asdict(loop) for loop in loops(text)],
            }

    def _all(self, ask: Callable[..., int], information: Any, structure: str, kind: str) -> Any:
        """The array that a function of Vulkan fills, asked first for its length."""
        ffi = vk.ffi
        count = ffi.new("uint32_t*")
        _check(ask(self._device, information, count, ffi.NULL))
        array = ffi.new(f"VkPipelineExecutable{structure}KHR[]", count[0])
        for entry in array:
            entry.sType = getattr(vk, f"VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_{kind}_KHR")
        _check(ask(self._device, information, count, array))
        return array

    def _machine_code(self, executable: Any) -> str:
        """The text of an executable's machine code; empty if the driver gives none."""
        ffi = vk.ffi
        texts = self._all(self._texts, executable, "InternalRepresentation", "INTERNAL_REPRESENTATION")
        buffers = []
        for text in texts:
            buffers.append(ffi.new("char[]", text.dataSize + 1))
            text.pData = buffers[-1]
        _check(self._texts(self._device, executable, ffi.new("uint32_t*", len(texts)), texts))
        return "\n".join(
            _text(ffi.cast("char*", text.pData)) for text in texts if "assembly" in _text(text.name).lower()
        )


def _check(result: int) -> None:
    assert result == vk.VK_SUCCESS, f"the driver gave {result}"


def _text(array: Any) -> str:
    return vk.ffi.string(array).decode(errors="replace")


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines that are in the file already."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@click.command(help=__doc__)
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--kernel", "kernels", multiple=True, help="Only these kernels.")
def main(path: Path, kernels: tuple[str, ...]) -> None:
    begun = {line["begun"] for line in lines_of(path) if "begun" in line}
    capture()
    (physical,) = physical_devices()
    profile = physical.profile
    assert EXTENSION in profile.extensions, f"{profile.name} offers no {EXTENSION}"
    device = CompilingDevice(physical)
    executables = Executables(device.handle)
    planned: dict[Any, list[Planned]] = {}
    for each in dispatches(profile):
        dispatch = each.dispatch
        if kernels and dispatch.kernel not in kernels:
            continue
        planned.setdefault((dispatch.kernel, dispatch.specialization, dispatch.subgroup_size), []).append(each)
    with path.open("a") as output:

        def write(**line: Any) -> None:
            print(json.dumps(line), file=output, flush=True)

        write(device=profile.name, driver=profile.driver_info, pipelines=len(planned))
        for number, (key, users) in enumerate(planned.items()):
            if number in begun:
                continue
            kernel, specialization, subgroup_size = key
            chosen = [user for user in users if user.is_chosen]
            user = (chosen or users)[0]
            names = {"kernel": kernel, "path": user.path, "chosen": bool(chosen), "descriptor": user.name}
            write(begun=number, **names, specialization=specialization)
            signal.setitimer(signal.ITIMER_PROF, LONGEST_COMPILATION)  # this timer and the next end the process
            signal.alarm(LONGEST_SLEEP)
            start = time.process_time()
            pipeline = device.pipelines.get(kernel, spirv(kernel), specialization, subgroup_size)
            seconds = time.process_time() - start
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_PROF, 0)
            write(finished=number, seconds=seconds, executables=list(executables.of(pipeline.handle)))
    # The device is not closed, because closing would wait for a queue.
    os._exit(0)


if __name__ == "__main__":
    main()
