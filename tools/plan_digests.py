"""Writes digests of plans, to show that a change of the planner changes no plan, or which ones.

    python -m tools.plan_digests write before.json
    python -m tools.plan_digests compare before.json
    python -m tools.plan_digests show DESCRIPTOR_NAME DEVICE [PATH]

The descriptors are those of the conformance suite, of the benchmark, and random convolutions in the sizes of networks.
Each is planned for every recorded device with the path that the planner chooses, and for some of the devices with
every path that its operator has. A kernel counts as its SPIR-V: one that only gets another name changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from pprint import pformat

import click

from dmlvk.benchmark.cases import quantized_linear_convolution as layers
from dmlvk.conformance.case import Workload
from dmlvk.conformance.cases import all_cases
from dmlvk.conformance.profiles import DEVICE, workload_profile
from dmlvk.conformance.recorded import NAMES, load
from dmlvk.data_type import DataType
from dmlvk.errors import PathError
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.planning import KERNEL_PATHS, Plan, plan
from dmlvk.runtime.kernel_modules import spirv
from dmlvk.tensor_desc import TensorDesc, TensorFlags

# Of all conformance cases, beside the default ones, so many are left out between two that are planned.
CASE_STEP = 400
RANDOM_CONVOLUTION_COUNT = 500
BATCHES = (1, 8)
# Of the devices, so many plan a descriptor with every path.
DEVICES_OF_ALL_PATHS = 3


@dataclass(frozen=True)
class Task:
    """A descriptor to plan, with the workload's requirements of the device."""

    name: str
    workload: Workload


def tasks() -> Iterator[Task]:
    """All descriptors under names of their own, in an order that does not change."""
    seen = set()
    for cases in (all_cases(default_only=True), islice(all_cases(), 0, None, CASE_STEP)):
        for case in cases:
            if case.refusal is not None:
                continue  # there is nothing to plan
            workload = case.build()
            key = (workload.desc, *(tuple(each.items()) for each in (workload.offsets, workload.limits)))
            if (*key, workload.device_type) not in seen:
                seen.add((*key, workload.device_type))
                yield _task(case.name, workload)
    for layer in layers.LAYERS:
        for batch in BATCHES:
            for layout in layers.LAYOUTS:
                for owned in (False, True):
                    desc = layers.descriptor(layer, batch, layout, DataType.UINT8, owned)
                    yield _task(f"{layer.name} {batch} {layout} {owned}", Workload(desc, {}))
    for number in range(RANDOM_CONVOLUTION_COUNT):
        yield _task(f"random convolution {number}", Workload(_random_convolution(random.Random(number)), {}))


def _task(name: str, workload: Workload) -> Task:
    offsets, limits = dict(workload.offsets), dict(workload.limits)
    return Task(name, replace(workload, inputs={}, expected=None, offsets=offsets, limits=limits))


def _random_convolution(draw: random.Random) -> QuantizedLinearConvolutionDesc:
    groups = draw.choice([1, 1, 1, 2, 4, 32])
    of_group = draw.choice([1, 2, 3, 4, 8, 16, 24, 32, 64, 100, 128, 256])
    filters = groups * draw.choice([1, 2, 3, 8, 16, 32, 64, 96, 128, 255])
    if draw.random() < 0.25:  # depthwise
        groups, of_group = draw.choice([8, 32, 96, 144, 384]), 1
        filters = groups * draw.choice([1, 1, 2])
    kernel = draw.choice([1, 1, 3, 3, 5, 7])
    stride, dilation = draw.choice([1, 1, 2, 3]), draw.choice([1, 1, 1, 2])
    padding = draw.choice([0, (kernel - 1) * dilation // 2])
    size = [draw.choice([7, 14, 28, 56, 112, 13, 31, 64]) + (kernel - 1) * dilation for _ in range(2)]
    batch = draw.choice([1, 1, 2, 8])
    output = [(extent + 2 * padding - (kernel - 1) * dilation - 1) // stride + 1 for extent in size]
    channels_last = draw.random() < 0.5
    kinds = [draw.choice([DataType.INT8, DataType.UINT8]) for _ in range(3)]

    def data(kind: DataType, sizes: list[int], owned: bool = False) -> TensorDesc:
        _, c, h, w = sizes
        flags = TensorFlags.OWNED_BY_DML if owned else TensorFlags.NONE
        return TensorDesc(kind, sizes, [h * w * c, 1, w * c, c] if channels_last else None, flags=flags)

    def parameter(kind: DataType, channels: int, present: bool = True) -> TensorDesc | None:
        return TensorDesc(kind, [1, channels, 1, 1]) if present else None

    def chance() -> bool:
        return draw.random() < 0.5

    one_scale = TensorDesc(DataType.FLOAT32, [1, 1, 1, 1])
    return QuantizedLinearConvolutionDesc(
        input_tensor=data(kinds[0], [batch, groups * of_group, *size]),
        input_scale_tensor=one_scale,
        input_zero_point_tensor=parameter(kinds[0], 1, chance()),
        filter_tensor=data(kinds[1], [filters, of_group, kernel, kernel], chance()),
        filter_scale_tensor=TensorDesc(DataType.FLOAT32, [1, filters if chance() else 1, 1, 1]),
        filter_zero_point_tensor=parameter(kinds[1], filters if chance() else 1, chance()),
        bias_tensor=parameter(DataType.INT32, filters, chance()),
        output_scale_tensor=one_scale,
        output_zero_point_tensor=parameter(kinds[2], 1, chance()),
        output_tensor=data(kinds[2], [batch, filters, *output]),
        strides=[stride] * 2,
        dilations=[dilation] * 2,
        start_padding=[padding] * 2,
        end_padding=[padding] * 2,
        group_count=groups,
    )


def planned(task: Task, device: str, path: str | None) -> Plan | str:
    """The plan of a descriptor for a recorded device, or the kind of error."""
    profile = workload_profile(load(device), DEVICE, task.workload)
    try:
        return plan(task.workload.desc, profile, path=path, offsets=task.workload.offsets)
    except PathError:
        return "PathError"


@cache
def _spirv_digest(kernel: str) -> str:
    return hashlib.sha256(spirv(kernel)).hexdigest()[:16]


def frozen(made: Plan | str) -> str:
    """A plan as text in which kernels are represented by their SPIR-V."""
    if isinstance(made, str):
        return made
    stages = [
        [
            [
                (
                    _spirv_digest(each.kernel),
                    each.specialization,
                    each.push_constants,
                    [(w.tensor, w.offset, w.size, w.access.value, w.base_word, w.base_unit) for w in each.windows],
                    each.groups,
                    float(f"{each.seconds:.6g}"),
                    each.bytes_moved,
                    each.operations,
                    each.subgroup_size,
                )
                for each in stage
            ]
            for stage in part
        ]
        for part in (made.initialization, made.stages)
    ]
    return repr((made.path, stages, made.scratch_size, made.persistent_size, made.clean_size))


def task_digests(numbered: tuple[int, Task]) -> tuple[str, list[str]]:
    """The name of a task, and a digest for each device and path."""
    number, task = numbered
    found = []
    for index, device in enumerate(NAMES):
        paths: list[str | None] = [None]
        if (index - number) % len(NAMES) < DEVICES_OF_ALL_PATHS:
            paths += list(KERNEL_PATHS[type(task.workload.desc)])
        for path in paths:
            text = frozen(planned(task, device, path))
            found.append(f"{device} {path or 'chosen'} {hashlib.sha256(text.encode()).hexdigest()[:12]}")
    # Without the operator, whose name may change.
    return f"{number}: {task.name.partition(':')[2] or task.name}", found


def all_digests() -> dict[str, list[str]]:
    """The digests of all tasks, by name."""
    with ProcessPoolExecutor() as executor:
        return dict(executor.map(task_digests, enumerate(tasks()), chunksize=32))


@click.group(help=__doc__)
def main() -> None:
    pass


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
def write(file: Path) -> None:
    """Write the digests of this checkout's plans."""
    digests = all_digests()
    file.write_text(json.dumps(digests), encoding="utf-8")
    print(f"{len(digests)} descriptors, {sum(map(len, digests.values()))} plans")


@main.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True))
def compare(file: Path) -> None:
    """Compare this checkout's plans with digests that were written before; status 1 where one differs."""
    before, after = json.loads(file.read_text(encoding="utf-8")), all_digests()
    different = 0
    for name in sorted(before.keys() | after.keys()):
        was, now = set(before.get(name, ())), set(after.get(name, ()))
        for line in sorted(now - was)[:3]:
            print(f"{name}: {line}")
        different += max(len(now - was), len(was - now))
    print(f"{different} of {sum(map(len, after.values()))} plans differ")
    sys.exit(different > 0)


@main.command()
@click.argument("name")
@click.argument("device")
@click.argument("path", required=False)
def show(name: str, device: str, path: str | None) -> None:
    """Print a plan."""
    print(pformat(planned(next(task for task in tasks() if task.name == name), device, path)))


if __name__ == "__main__":
    main()
