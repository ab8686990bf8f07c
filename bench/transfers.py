"""Tensor.write and Tensor.numpy beside the bus and beside a plain memcpy of the same size.

    python -m bench.transfers [--device NAME] [--megabytes 256] [--rounds 15] [--json FILE]

The bus is vkCmdCopyBuffer between staging memory and a tensor's memory, nothing copied by the host: what a transfer
can reach when the host's own copying hides behind it. memcpy is NumPy copying between two arrays that are in memory
already, on one thread and on those that transfers use. Through staging memory data moves twice, so neither mark can be
passed; where the host reaches the device's memory directly it moves once, on one thread, and memcpy is the mark.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import dmlvk
from bench.raw_vulkan import driver_text
from dmlvk.vulkan.host_threads import for_each, thread_count
from dmlvk.vulkan.recorder import Recorder
from dmlvk.vulkan.staging_ring import PIECE_SIZE


def medians(steps: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each step, done in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 1):
        for name, step in steps.items():
            start = perf_counter()
            step()
            if number:
                seconds[name].append(perf_counter() - start)
    return {name: statistics.median(each) for name, each in seconds.items()}


def bus_steps(device: dmlvk.Device, tensor: dmlvk.Tensor, size: int) -> dict[str, Callable[[], object]]:
    """Copies of `size` bytes between staging memory and a tensor, on the queue that transfers use."""
    vulkan = device.vulkan
    queue = vulkan.copy_queue or vulkan.queue
    copies_only = queue is vulkan.copy_queue
    staging = vulkan.transfers.ring().block
    batches: dict[str, Any] = {}
    for name in ("bus, write", "bus, read"):
        recorder = Recorder(vulkan.monitor.run(queue.command_buffers.acquire), 4)
        recorder.after_earlier_submissions(copies_only=copies_only)
        for segment, start, length in tensor.memory().pieces(tensor.offset, size):
            for begin in range(0, length, PIECE_SIZE):
                part = min(PIECE_SIZE, length - begin)
                here, there = (segment.block.buffer, segment.offset + start + begin), (staging.buffer, 0)
                source, target = (there, here) if name.endswith("write") else (here, there)
                recorder.copy(*source, *target, part)
        batches[name] = queue.batch([recorder.end()], (), ())

    def run(batch: Any) -> None:
        queue.wait(queue.submit(batch, batch))

    return {name: lambda batch=batch: run(batch) for name, batch in batches.items()}  # type: ignore[misc]


def measure(device: dmlvk.Device, size: int, rounds: int) -> dict[str, float]:
    """Seconds of every step, for one size. The data that is read back is compared."""
    data = np.frombuffer(np.random.default_rng(size).bytes(size), np.uint8)
    elsewhere = data.copy()
    tensor = device.tensor(data)
    result: list[np.ndarray] = []

    def write() -> None:
        tensor.write(data)
        device.wait()

    def read() -> None:
        result[:] = [tensor.numpy()]

    def memcpy_fresh() -> None:
        result[:] = [data.copy()]

    steps: dict[str, Callable[[], object]] = {
        "memcpy": lambda: np.copyto(elsewhere, data),
        "memcpy to a new array": memcpy_fresh,
        f"memcpy, {thread_count()} threads": lambda: memcpy_on_threads(elsewhere, data),
        "... to a new array": lambda: memcpy_on_threads(np.empty_like(data), data),
        "write": write,
        "read": read,
    }
    if not device.vulkan.memory.is_direct:
        steps |= bus_steps(device, tensor, size)
    found = medians(steps, rounds)
    write()  # the bus steps have overwritten the tensor
    if not np.array_equal(tensor.numpy(), data):
        raise SystemExit(f"{size} bytes: what came back is not what was written")
    return found


def memcpy_on_threads(destination: np.ndarray, source: np.ndarray) -> None:
    """Copy with the threads that transfers use."""

    def copy(begin: int) -> None:
        destination[begin : begin + PIECE_SIZE] = source[begin : begin + PIECE_SIZE]

    for_each(range(0, source.size, PIECE_SIZE), copy)


def overlap(device: dmlvk.Device, size: int) -> dict[str, float]:
    """Seconds of kernels, of a write, and of both at once on different tensors."""
    desc = dmlvk.TensorDesc(dmlvk.DataType.UINT32, (size // 4,))
    copy = device.compile(
        dmlvk.Slice1Desc(
            input_tensor=desc,
            output_tensor=desc,
            input_window_offsets=[0],
            input_window_sizes=desc.sizes,
            input_window_strides=[1],
        )
    )
    a, b, other = (device.tensor(desc) for _ in range(3))
    data = np.frombuffer(np.random.default_rng(1).bytes(size), np.uint32)
    binding = copy.bind(input_tensor=a, output_tensor=b)
    other.write(data)
    device.submit([binding] * 2).wait()
    device.wait()
    start = perf_counter()
    device.submit([binding] * 4).wait()
    once = (perf_counter() - start) / 4
    start = perf_counter()
    other.write(data)
    device.wait()
    write = perf_counter() - start
    count = max(1, round(write / once))

    def kernels() -> None:
        device.submit([binding] * count)
        device.wait()

    def write_alone() -> None:
        other.write(data)
        device.wait()

    def both() -> None:
        device.submit([binding] * count)
        other.write(data)
        device.wait()

    return medians({"kernels": kernels, "write": write_alone, "both": both}, 5)


@click.command(help=__doc__)
@click.option("--device", "selector", default=None, help="Index or part of a name.")
@click.option("--megabytes", default=256, show_default=True, help="The largest size.")
@click.option("--rounds", default=15, show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path), default=None, help="Also write the figures here.")
def main(selector: str | None, megabytes: int, rounds: int, json_path: Path | None) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    result: list[dict[str, Any]] = []
    for force_staging in (False, True):
        with dmlvk.Device(selector, force_staging=force_staging) as device:
            if force_staging and not result[0]["direct"]:
                break  # this variant uses staging memory anyway
            direct = device.vulkan.memory.is_direct
            way = "direct" if direct else "staged" + (", copy queue" if device.vulkan.copy_queue else ", one queue")
            sizes = sorted({4096, 1 << 20, 16 << 20, megabytes << 20})
            rows = {size: measure(device, size, rounds) for size in sizes}
            both = overlap(device, min(megabytes, 64) << 20)
            result.append({"device": driver_text(device), "direct": direct, "way": way, "sizes": rows, "overlap": both})
    for each in result:
        names = list(next(iter(each["sizes"].values())))
        table = Table("bytes", *(f"{name}, GB/s" for name in names), title=f"{each['device']}: {each['way']}")
        for size, found in each["sizes"].items():
            table.add_row(str(size), *(f"{size / found[name] / 1e9:.2f}" for name in names))
        console.print(table)
        times = each["overlap"]
        hidden = (times["kernels"] + times["write"] - times["both"]) / min(times["kernels"], times["write"])
        console.print(
            f"kernels {times['kernels'] * 1e3:.1f} ms, a write {times['write'] * 1e3:.1f} ms, both at once "
            f"{times['both'] * 1e3:.1f} ms: {max(0.0, hidden):.0%} of the shorter is hidden\n"
        )
    if json_path is not None:
        json_path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
