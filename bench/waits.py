"""How soon the host learns that a dispatch is done, by each way that Vulkan has to tell it.

    python -m bench.waits [--device NAME] [--rounds 1000] [--json FILE]

One recorded dispatch of next to nothing is submitted and waited for, by raw cffi calls alone, every structure built
before. The ways take turns, so that whatever else the machine does falls on all of them. What a submission costs that
nobody waits for is told apart: a fence or a semaphore has its price there too.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import dmlvk
from bench.raw_vulkan import FOREVER, RawCommandBuffer, driver_text, warm_up

VALUES = np.arange(64, dtype=np.int32)


class Waits(RawCommandBuffer):
    """A command buffer and the ways to wait for it."""

    def wait_fence(self) -> None:
        """vkWaitForFences and vkResetFences."""
        self._lib.vkWaitForFences(self._device, 1, self._fence, 1, FOREVER)
        self._lib.vkResetFences(self._device, 1, self._fence)

    def submit_fence(self) -> None:
        """vkQueueSubmit with the fence."""
        self._lib.vkQueueSubmit(self._queue, 1, self._submit_information, self._fence[0])

    def ways(self) -> dict[str, tuple[Callable[[], None], Callable[[], None]]]:
        """The function that submits and the function that waits, by name."""

        def both() -> None:
            self.signal_timeline(self._fence[0])

        def late_fence() -> None:
            self._lib.vkQueueSubmit(self._queue, 0, self._null, self._fence[0])
            self.wait_fence()

        return {
            "fence, vkWaitForFences": (self.submit_fence, self.wait_fence),
            "fence, vkGetFenceStatus polled": (self.submit_fence, self.poll_fence),
            "timeline, vkWaitSemaphores": (self.signal_timeline, self.wait_timeline),
            "timeline, vkGetSemaphoreCounterValue polled": (self.signal_timeline, self.poll_timeline),
            "timeline and fence, vkWaitForFences": (both, self.wait_fence),
            "timeline and fence, vkGetFenceStatus polled": (both, self.poll_fence),
            "timeline, then an empty submission with a fence, vkWaitForFences": (self.signal_timeline, late_fence),
            "nothing signalled, vkQueueWaitIdle": (self.submit, self.wait_idle),
        }


def measure(waits: Waits, rounds: int) -> dict[str, tuple[float, float, float]]:
    """Median seconds of submission and wait, their 90th percentile, and the submission alone, for each way."""
    ways = waits.ways()
    whole: dict[str, list[float]] = {name: [] for name in ways}
    issue: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 50):
        for name, (submit, wait) in ways.items():
            start = perf_counter()
            submit()
            submitted = perf_counter()
            wait()
            end = perf_counter()
            if number >= 50:  # the first ones warm up
                whole[name].append(end - start)
                issue[name].append(submitted - start)
    return {
        name: (statistics.median(each), statistics.quantiles(each, n=10)[-1], statistics.median(issue[name]))
        for name, each in whole.items()
    }


@click.command(help=__doc__)
@click.option("--device", "selector", default=None, help="Index or part of a name.")
@click.option("--rounds", default=1000, show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path), default=None, help="Also write the figures here.")
def main(selector: str | None, rounds: int, json_path: Path | None) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    with dmlvk.Device(selector) as device:
        a = device.tensor(VALUES)
        b = device.tensor(a.desc)
        operator = device.compile(
            dmlvk.Slice1Desc(
                input_tensor=a.desc,
                output_tensor=a.desc,
                input_window_offsets=[0],
                input_window_sizes=[64],
                input_window_strides=[-1],
            )
        )
        binding = operator.bind(input_tensor=a, output_tensor=b)
        warm_up(device, binding)
        waits = Waits(device, [binding])
        found = measure(waits, rounds)
        waits.close()
        if not np.array_equal(b.numpy(), VALUES[::-1]):
            raise SystemExit("the result is wrong")
        table = Table("way", "median us", "90% us", "submission us", title=driver_text(device))
        for name, (median, late, issue) in found.items():
            table.add_row(name, f"{median * 1e6:.1f}", f"{late * 1e6:.1f}", f"{issue * 1e6:.2f}")
        console.print(table)
        result = {"device": driver_text(device), "ways": found}
    if json_path is not None:
        json_path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
