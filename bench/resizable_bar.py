"""Whether tensors in memory of the GPU that the host reaches through the bus would pay: the host's speed there.

    python -m bench.resizable_bar [--device NAME] [--mebibytes N]

Where a device has memory that is device-local and host-visible, the host writes to it and reads from it directly.
dmlvk's own transfers, by way of staging memory, stand beside it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import click
import numpy as np

import dmlvk
from dmlvk.vulkan.blocks import Block
from dmlvk.vulkan.memory_types import DEVICE_LOCAL, HOST_VISIBLE


def gigabytes_per_second(work: Callable[[], object], size: int) -> float:
    """The median speed of five rounds, after one that warms up."""
    times = []
    for _ in range(6):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return size / statistics.median(times[1:]) / 1e9


@click.command(help=__doc__)
@click.option("--device", "name", help="Part of a device's name.")
@click.option("--mebibytes", default=64, show_default=True)
def main(name: str | None, mebibytes: int) -> None:
    size = mebibytes << 20
    values = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    found = np.empty_like(values)
    with dmlvk.Device(name) as device:
        print(device.name, device.profile.driver_info)
        tensor = device.tensor(values)

        def write() -> None:
            tensor.write(values)
            device.wait()

        print(f"tensor.write {gigabytes_per_second(write, size):.1f} GB/s")
        print(f"tensor.numpy(out) {gigabytes_per_second(lambda: tensor.numpy(found), size):.1f} GB/s")
        vulkan = device.vulkan
        reached = [t for t in vulkan.memory.allowed_types if t.flags & DEVICE_LOCAL and t.flags & HOST_VISIBLE]
        for memory_type in reached:
            block = Block(size, memory_type, is_shared=False, is_staging=True)
            block.create(vulkan.context)
            mapped = block.mapped
            assert mapped is not None, "the type is host-visible"
            written = gigabytes_per_second(lambda mapped=mapped: np.copyto(mapped, values), size)  # type: ignore[misc]
            part = size // 64  # reads may be a thousand times slower
            read = gigabytes_per_second(
                lambda mapped=mapped, part=part: np.copyto(found[:part], mapped[:part]),  # type: ignore[misc]
                part,
            )
            if not np.array_equal(found[:part], values[:part]):
                raise SystemExit("wrong bits")
            heap = vulkan.context.physical.memory_heaps[memory_type.heap].size >> 20
            flags = f"flags {memory_type.flags:#x}, a heap of {heap} MiB"
            print(f"memory type {memory_type.index} ({flags}): host writes {written:.2f} GB/s, reads {read:.3f} GB/s")
            mapped = None
            block.destroy()
        if not reached:
            print("no memory is device-local and host-visible")


if __name__ == "__main__":
    main()
