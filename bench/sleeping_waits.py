"""Whether a driver submits more slowly after threads have slept in its waits.

    python -m bench.sleeping_waits [--device NAME] [--processes 4] [--rounds 3000] [--json FILE]

A process calls an operator 100 times in a row and waits for the last, again and again. In half of the processes the
wait sleeps in the driver, in vkWaitSemaphores; in the others it looks at the timeline, sleeps by itself and looks
again. NVIDIA's driver may come into a state, once a thread has slept in it, in which a submission that signals a
timeline takes some 23 us in place of 3. A round counts as slow when its calls took more than twice as long as the
quickest tenth of all processes' rounds.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from time import perf_counter

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import dmlvk
from bench.dispatch import CALLS, VALUES, reverse_desc
from bench.raw_vulkan import driver_text, warm_up

WAYS = {"in the driver": True, "by itself": False}


def seconds_of_calls(selector: str | None, sleeps_in_driver: bool, rounds: int) -> tuple[str, list[float]]:
    """Device and driver, and the seconds of a call in each round."""
    with dmlvk.Device(selector) as device:
        for queue in (device.vulkan.queue, device.vulkan.copy_queue):
            if queue is not None:
                queue.timeline.sleeps_in_driver = sleeps_in_driver
        operator = device.compile(reverse_desc())
        source, target = device.tensor(VALUES), device.tensor(reverse_desc().output_tensor)
        warm_up(device, operator.bind(input_tensor=source, output_tensor=target))
        seconds = []
        for _ in range(rounds):
            start = perf_counter()
            for _ in range(CALLS):
                operator(input_tensor=source, output_tensor=target)
            seconds.append((perf_counter() - start) / CALLS)
            device.wait()
        if not np.array_equal(target.numpy(), VALUES[::-1]):
            raise SystemExit("the result is wrong")
        return driver_text(device), seconds


def longest_run(is_slow: list[bool]) -> int:
    """The length of the longest series of slow rounds."""
    return max((len(list(run)) for slow, run in groupby(is_slow) if slow), default=0)


@click.command(help=__doc__)
@click.option("--device", "selector", default=None, help="Index or part of a name.")
@click.option("--processes", default=4, show_default=True, help="Of each way.")
@click.option("--rounds", default=3000, show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path), default=None, help="Also write the figures here.")
@click.option("--only", type=click.Choice(list(WAYS)), default=None, hidden=True)
def main(selector: str | None, processes: int, rounds: int, json_path: Path | None, only: str | None) -> None:
    if only is not None:
        try:
            print(json.dumps(seconds_of_calls(selector, WAYS[only], rounds)))
        except dmlvk.DeviceError as error:
            raise click.ClickException(str(error)) from error
        return
    console = Console()
    command = [sys.executable, "-m", "bench.sleeping_waits", "--rounds", str(rounds)]
    command += [] if selector is None else ["--device", selector]
    found: list[tuple[str, list[float]]] = []
    for way in track(list(WAYS) * processes, console=console, transient=True):
        done = subprocess.run([*command, "--only", way], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:  # the process has printed the reason
            raise SystemExit(done.returncode)
        driver, seconds = json.loads(done.stdout)
        found.append((way, seconds))
    quickest = statistics.quantiles([each for _, seconds in found for each in seconds], n=10)[0]
    table = Table("the waits sleep", "median us a call", "slow rounds", "most in a row", title=driver)
    for way, seconds in found:
        is_slow = [each > 2 * quickest for each in seconds]
        table.add_row(way, f"{statistics.median(seconds) * 1e6:.2f}", str(sum(is_slow)), str(longest_run(is_slow)))
    console.print(table)
    if json_path is not None:
        json_path.write_text(json.dumps({"device": driver, "processes": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
