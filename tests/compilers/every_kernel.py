"""Build the pipelines of many descriptors' plans on the first device, which only has to compile.

The descriptors are those that planning is tested with, and SLICE1, DIAGONAL_MATRIX1 and ONE_HOT in each element size.
Every kernel path that the planner has for the device is planned; each kernel is built once for each set of constants.
Standard output is the driver's extensions as JSON; standard error is the driver's messages about the kernels.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterator

import click

from dmlvk import DataType, TensorDesc
from dmlvk.operators import DiagonalMatrix1Desc, OneHotDesc, OperatorDesc, Slice1Desc
from dmlvk.planning import KERNEL_PATHS, Dispatch, plan
from dmlvk.runtime.implementation import spirv
from dmlvk.vulkan.configuration import configure
from dmlvk.vulkan.context import Context
from dmlvk.vulkan.descriptors import DescriptorSets
from dmlvk.vulkan.physical_device import PhysicalDevice, physical_devices
from dmlvk.vulkan.pipelines import Pipelines
from tests.compilers.radv_messages import MARK
from tests.planning import test_data_movement
from tests.planning.quantized_linear_convolution import descriptors as convolutions

# A type of each element size.
DATA_TYPES = (DataType.UINT8, DataType.FLOAT16, DataType.FLOAT32, DataType.INT64)


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


def in_each_element_size() -> Iterator[OperatorDesc]:
    for data_type in DATA_TYPES:
        matrix = TensorDesc(data_type, [3, 199, 201])
        value = data_type.numpy_dtype.type(1)
        yield DiagonalMatrix1Desc(
            input_tensor=matrix, output_tensor=matrix, value=value, diagonal_fill_begin=-1, diagonal_fill_end=7
        )
        for strides in (None, [201 * 199, 1, 199]):  # the second is a transpose
            for step in (1, -2):
                yield Slice1Desc(
                    input_tensor=TensorDesc(data_type, [3, 199, 201], strides),
                    output_tensor=TensorDesc(data_type, [3, 197, 1 + 199 // abs(step)]),
                    input_window_offsets=[0, 1, 1],
                    input_window_sizes=[3, 197, 200],
                    input_window_strides=[1, 1, step],
                )
        for axis in (0, 1):
            yield OneHotDesc(
                indices_tensor=TensorDesc(DataType.INT64, [160, 1] if axis else [1, 160]),
                values_tensor=TensorDesc(data_type, [1, 2]),
                output_tensor=TensorDesc(data_type, [160, 320] if axis else [320, 160]),
                axis=axis,
            )


def dispatches(device: CompilingDevice, path: str | None) -> Iterator[Dispatch]:
    """The dispatches of all descriptors, in all kernel paths that they have on the device."""
    descriptors = [
        *in_each_element_size(),
        *test_data_movement.DESCRIPTORS.values(),
        *convolutions.DESCRIPTORS.values(),
    ]
    for desc in descriptors:
        for name in (None, *KERNEL_PATHS[type(desc)]) if path is None else (path,):
            try:
                planned = plan(desc, device.profile, path=name)
            except ValueError:  # the operator or the device does not have the path
                continue
            for stage in (*planned.initialization, *planned.stages):
                yield from stage


@click.command(help=__doc__)
@click.option("--kernel", "kernels", multiple=True)
@click.option("--path", default=None)
def main(kernels: tuple[str, ...], path: str | None) -> None:
    device = CompilingDevice(physical_devices()[0])
    seen = set()
    for dispatch in dispatches(device, path):
        key = (
            dispatch.kernel,
            dispatch.specialization,
            len(dispatch.windows),
            4 * len(dispatch.push_constants),
            dispatch.subgroup_size,
        )
        if key in seen or (kernels and dispatch.kernel not in kernels):
            continue
        seen.add(key)
        # Unbuffered, so that it comes before the driver's messages.
        os.write(sys.stderr.fileno(), f"{MARK}{dispatch.kernel} {dispatch.specialization}\n".encode())
        device.pipelines.get(dispatch.kernel, spirv(dispatch.kernel), *key[1:])
    os.write(sys.stdout.fileno(), json.dumps(sorted(device.profile.extensions)).encode())
    # The device is not closed, because closing would wait for a queue.
    os._exit(0)


if __name__ == "__main__":
    main()
