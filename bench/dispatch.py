"""What a call costs the host, beside the driver's own functions called through raw cffi in the same run.

    python -m bench.dispatch [--device NAME] [--rounds 60] [--json FILE] [--parts] [--startup]

Each figure is a median of many rounds, and the raw loop's rounds come between, so that whatever else the machine does
falls on both. The kernel is SLICE1 of 64 elements: there is next to nothing to compute.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import click
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import dmlvk
from bench.raw_vulkan import RawCommandBuffer, driver_text, warm_up
from bench.startup import startup
from dmlvk.device_profile import DeviceType
from dmlvk.runtime.binding import Binding

CALLS = 100  # in a row before each wait
ROUNDS_A_TURN = 6
VALUES = np.arange(64, dtype=np.int32)
DESC = dmlvk.TensorDesc(dmlvk.DataType.INT32, VALUES.shape)

Step = Callable[[], object]


def reverse_desc(size: int = 64) -> dmlvk.Slice1Desc:
    """SLICE1 that reverses a row: after an even number of runs the contents are the original ones."""
    tensor = dmlvk.TensorDesc(dmlvk.DataType.INT32, (size,))
    return dmlvk.Slice1Desc(
        input_tensor=tensor,
        output_tensor=tensor,
        input_window_offsets=[0],
        input_window_sizes=[size],
        input_window_strides=[-1],
    )


def side_by_side(steps: dict[str, Step], calls: int, rounds: int, finish: Step) -> dict[str, float]:
    """Median seconds of a call of each step: `calls` in a row, then `finish`, which is not timed."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 2):
        for name in list(steps)[:: 1 if number % 2 else -1]:
            step = steps[name]
            start = perf_counter()
            for _ in range(calls):
                step()
            elapsed = perf_counter() - start
            finish()
            if number > 1:  # the first two warm up
                seconds[name].append(elapsed / calls)
    return {name: statistics.median(each) for name, each in seconds.items()}


class Contender(NamedTuple):
    """A function that issues work, and the function by which its users wait for that work."""

    issue: Step
    wait: Step


def in_turns(contenders: dict[str, Contender], calls: int, turns: int) -> dict[str, float]:
    """Median seconds of a call that issues work, of each contender in a state of its own.

    A round is `calls` in a row, and then the wait for them by the contender's own means, which is not timed. Each
    contender has several rounds in a row, of which the first is not counted. The reason is that the cost of the calls
    depends on the wait before: a driver may keep something for each value of a timeline until somebody asks for it, and
    its thread may sleep or not.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(turns + 1):
        for name, (issue, wait) in contenders.items():
            for number in range(ROUNDS_A_TURN):
                start = perf_counter()
                for _ in range(calls):
                    issue()
                elapsed = perf_counter() - start
                wait()
                if turn and number:  # the first turn warms up
                    seconds[name].append(elapsed / calls)
    return {name: statistics.median(each) for name, each in seconds.items()}


class Bench:
    """One device with its tensors, and the rows of the table."""

    def __init__(self, device: dmlvk.Device, rounds: int) -> None:
        self.device = device
        self.rounds = rounds
        self.rows: list[dict[str, Any]] = []
        self.operator = device.compile(reverse_desc())
        self.a, self.b = device.tensor(VALUES), device.tensor(DESC)
        self.forth = self.operator.bind(input_tensor=self.a, output_tensor=self.b)
        self.back = self.operator.bind(input_tensor=self.b, output_tensor=self.a)
        self.is_cpu = device.profile.device_type == DeviceType.CPU
        self.torch = torch_contender()
        warm_up(device, self.forth)

    def row(
        self, name: str, seconds: float, raw: float | None = None, mark: float | None = None, limit: float | None = None
    ) -> None:
        """Add a row: `mark` is the largest ratio to `raw`, `limit` the most seconds."""
        self.rows.append({"name": name, "seconds": seconds, "raw": raw, "mark": mark, "limit": limit})

    def check(self, tensor: dmlvk.Tensor, expected: np.ndarray, name: str) -> None:
        """End the benchmark when a result is wrong."""
        if not np.array_equal(tensor.numpy(), expected):
            raise SystemExit(f"{name}: the result is wrong")

    def _raw_contenders(self, raw: RawCommandBuffer) -> dict[str, Contender]:
        """Plain raw submissions, and those that signal a timeline.

        On a GPU their waits do not sleep in the driver: NVIDIA's driver may be slow for the whole process afterwards.
        """
        plain, timeline = (raw.wait_idle, raw.wait_timeline) if self.is_cpu else (raw.poll_idle, raw.poll_timeline)
        return {"raw": Contender(raw.submit, plain), "signal": Contender(raw.signal_timeline, timeline)}

    def issue(self) -> None:
        raw = RawCommandBuffer(self.device, [self.forth])
        contenders = {
            **self._raw_contenders(raw),
            "call": Contender(self._call, self.device.wait),
            "binding": Contender(self._submit_one, self.device.wait),
        }
        found = in_turns(contenders, CALLS, max(1, self.rounds // 5))
        self.check(self.b, VALUES[::-1], "call")
        self.row("vkQueueSubmit, raw", found["raw"])
        self.row("  the same with a timeline semaphore to signal", found["signal"], found["raw"])
        self.row("operator(...), not waited for", found["call"], found["raw"], 6.0 if self.is_cpu else None)
        self.row("device.submit([binding])", found["binding"], found["raw"])
        raw.close()
        if self.torch is not None:
            # Many in a row: a GPU takes 100 us to go from one API's work to the other's.
            contenders = {"call": Contender(self._call, self.device.wait), "torch": self.torch}
            found = in_turns(contenders, CALLS, max(1, self.rounds // 5))
            self.row("operator(...) beside torch's eager elementwise operation", found["call"], found["torch"], 1.0)

    def _call(self) -> None:
        self.operator(input_tensor=self.a, output_tensor=self.b)

    def _submit_one(self) -> None:
        self.device.submit([self.forth])

    def _call_and_wait(self) -> None:
        self.operator(input_tensor=self.a, output_tensor=self.b).wait()

    def call_and_wait(self) -> None:
        raw = RawCommandBuffer(self.device, [self.forth])
        steps: dict[str, Step] = {"raw": raw.submit_and_wait, "call": self._call_and_wait}
        found = side_by_side(steps, 1, 20 * self.rounds, lambda: None)
        self.check(self.b, VALUES[::-1], "call and wait")
        self.row("vkQueueSubmit, vkWaitForFences, vkResetFences, raw", found["raw"])
        self.row("operator(...).wait()", found["call"], found["raw"], 1.15)
        raw.close()
        if self.torch is not None:
            issue, synchronize = self.torch

            def torch_and_wait() -> None:
                issue()
                synchronize()

            # Many in a row: a GPU takes 100 us to go from one API's work to the other's.
            steps = {"call": self._call_and_wait, "torch": torch_and_wait}
            found = side_by_side(steps, CALLS, self.rounds, lambda: None)
            self.row("operator(...).wait() beside torch's operation and synchronize", found["call"], found["torch"])

    def sequence(self) -> None:
        bindings = [self.forth, self.back] * (CALLS // 2)
        raw, sequence = RawCommandBuffer(self.device, bindings), self.device.sequence(bindings)
        contenders = {**self._raw_contenders(raw), "dmlvk": Contender(sequence.submit, self.device.wait)}
        # The first call after a wait wakes the driver's thread and finds cold caches, which costs more than the rest.
        times = {1: max(1, self.rounds // 2), 10: max(1, self.rounds // 3), CALLS: max(2, self.rounds // 20)}
        issued = {calls: in_turns(contenders, calls, turns) for calls, turns in times.items()}
        steps: dict[str, Step] = {"raw": raw.submit_and_wait, "dmlvk": lambda: sequence.submit().wait()}
        waited = side_by_side(steps, 1, 3 * self.rounds, lambda: None)
        self.check(self.a, VALUES, "sequence")
        self.row(f"{CALLS} dependent dispatches in one command buffer, raw submit and fence", waited["raw"])
        self.row("sequence.submit().wait()", waited["dmlvk"], waited["raw"], 1.05)
        for calls, found in issued.items():
            in_a_row = "once" if calls == 1 else f"{calls} in a row"
            self.row(f"vkQueueSubmit of it, raw, {in_a_row}", found["raw"])
            self.row("sequence.submit(), not waited for", found["dmlvk"], found["raw"], 1.5 if calls == 10 else None)
            self.row("  the same beside a raw one that signals a timeline", found["dmlvk"], found["signal"])
        raw.close()

    def lists(self) -> None:
        pairs = [(self.device.tensor(VALUES + n), self.device.tensor(DESC)) for n in range(CALLS)]
        apart = [self.operator.bind(input_tensor=a, output_tensor=b) for a, b in pairs]
        chain = [self.forth, self.back] * (CALLS // 2)
        for name, bindings in (("apart", apart), ("each after the one before", chain)):
            # A list that was never submitted before has to be recorded; every rotation of a list is another list.
            fresh = itertools.cycle([bindings[n:] + bindings[:n] for n in range(0, len(bindings), 2)])

            def anew(lists: Any = fresh) -> None:
                self.device.submit(next(lists))

            if name != "apart":  # the rotations of a chain of two are two lists: vary the end as well
                longer = itertools.cycle([bindings[: CALLS - 2 * n] + apart[: 2 * n] for n in range(45)])

                def anew(lists: Any = longer) -> None:
                    self.device.submit(next(lists))

            def again(same: list[Binding] = bindings) -> None:
                self.device.submit(same)

            self._forget_lists()
            seconds = []
            for _ in range(40):  # fewer than there are other lists
                start = perf_counter()
                anew()
                seconds.append((perf_counter() - start) / CALLS)
                self.device.wait()
            self.row(f"device.submit of {CALLS} bindings {name}: each, recorded", statistics.median(seconds),
                     limit=3e-6)  # fmt: skip
            found = side_by_side({"again": again}, 1, self.rounds, self.device.wait)
            self.row("  the same list again: each", found["again"] / CALLS, limit=3e-6)
        for n, (_, b) in enumerate(pairs):
            self.check(b, (VALUES + n)[::-1], "device.submit")
        self.check(self.b, VALUES[::-1], "device.submit")

    def _forget_lists(self) -> None:
        for n in range(64):
            self.device.submit([self.forth, self.back] * (60 + n))
        self.device.wait()

    def objects(self) -> None:
        desc = reverse_desc()
        steps: dict[str, Step] = {
            "known": lambda: self.device.compile(desc),
            "equal": lambda: self.device.compile(reverse_desc()),
            "tensor": lambda: self.device.tensor(DESC),
            "bind": lambda: self.operator.bind(input_tensor=self.a, output_tensor=self.b),
        }
        found = side_by_side(steps, CALLS, self.rounds, self.device.wait)
        others = [reverse_desc(size) for size in range(1000, 1000 + 2 * self.rounds)]
        seconds = []
        for other in others:
            start = perf_counter()
            self.device.compile(other)
            seconds.append(perf_counter() - start)
        self.row("device.compile of a descriptor that was compiled", found["known"], limit=50e-6)
        self.row("  the same, making an equal descriptor", found["equal"])
        self.row("device.compile of another descriptor", statistics.median(seconds))
        self.row("operator.bind", found["bind"])
        self.row("tensor created and dropped", found["tensor"], limit=10e-6)


def torch_contender() -> Contender | None:
    """torch's eager addition on CUDA and its synchronize, or None where there is no torch with CUDA."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    x, y, out = (torch.arange(64, dtype=torch.int32, device="cuda") for _ in range(3))
    return Contender(lambda: torch.add(x, y, out=out), torch.cuda.synchronize)


def parts(bench: Bench) -> dict[str, float]:
    """Where the time of `operator(...)` goes, in seconds: each part done alone, a hundred times in a row."""
    from dmlvk.vulkan.library import vk

    device, operator, a, b = bench.device, bench.operator, bench.a, bench.b
    vulkan, queue = device.vulkan, device.vulkan.queue
    operator(input_tensor=a, output_tensor=b).wait()
    (key,) = operator._calls
    call = operator._calls[key]
    raw = RawCommandBuffer(device, [bench.forth])
    tensors = {"input_tensor": a, "output_tensor": b}

    def empty(**tensors: dmlvk.Tensor) -> None: ...

    def make_key(**tensors: dmlvk.Tensor) -> object:
        return (*tensors, *map(id, tensors.values()))

    def lock() -> None:
        with vulkan.monitor.lock:
            pass

    def nothing() -> None: ...

    def queue_submit() -> None:
        queue.submit(call.batch)

    steps: dict[str, Step] = {
        "a Python call without arguments": nothing,
        "a Python call with two keyword arguments": lambda: empty(input_tensor=a, output_tensor=b),
        "... that makes the key of the tensors": lambda: make_key(input_tensor=a, output_tensor=b),
        "looking the key up": lambda: operator._calls.get(key),
        "comparing the tensors with the last call's": lambda: tensors == call.tensors,
        "taking and giving back the device's lock": lock,
        "a Submission": dmlvk.Submission,
        "vkQueueSubmit, raw, no semaphore": raw.submit,
        "vkGetSemaphoreCounterValue": lambda: vk.vkGetSemaphoreCounterValue(
            vulkan.context.handle, queue.timeline.semaphore[0], counter
        ),
        "Queue.submit with lock, bookkeeping and timeline": queue_submit,
        "operator(...) whole": lambda: operator(input_tensor=a, output_tensor=b),
    }
    counter = vk.ffi.new("uint64_t*")

    def finish() -> None:
        raw.wait_idle()
        device.wait()

    found = side_by_side(steps, CALLS, bench.rounds, finish)
    raw.close()
    return found


def verdict(row: dict[str, Any]) -> str:
    """Whether a row keeps its mark."""
    if row["mark"] is not None:
        ratio = row["seconds"] / row["raw"]
        return f"at most {row['mark']:g}: {'kept' if ratio <= row['mark'] else 'MISSED'}"
    if row["limit"] is not None:
        kept = row["seconds"] <= row["limit"]
        return f"at most {row['limit'] * 1e6:g} us: {'kept' if kept else 'MISSED'}"
    return ""


@click.command(help=__doc__)
@click.option("--device", "selector", default=None, help="Index or part of a name.")
@click.option("--rounds", default=60, show_default=True)
@click.option("--json", "json_path", type=click.Path(path_type=Path), default=None, help="Also write the figures here.")
@click.option("--parts", "wants_parts", is_flag=True, help="Also where the time of one call goes.")
@click.option("--startup", "wants_startup", is_flag=True, help="Also the first result of a fresh process.")
def main(selector: str | None, rounds: int, json_path: Path | None, wants_parts: bool, wants_startup: bool) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    with dmlvk.Device(selector) as device:
        bench = Bench(device, rounds)
        for measure in (bench.issue, bench.sequence, bench.lists, bench.objects, bench.call_and_wait):
            measure()
        table = Table("what", "median us", "raw us", "ratio", "mark", title=driver_text(device))
        for row in bench.rows:
            ratio = f"{row['seconds'] / row['raw']:.2f}" if row["raw"] else ""
            raw = f"{row['raw'] * 1e6:.2f}" if row["raw"] else ""
            table.add_row(escape(row["name"]), f"{row['seconds'] * 1e6:.2f}", raw, ratio, verdict(row))
        console.print(table)
        if bench.torch is None:
            console.print("torch with CUDA: absent, so the row beside torch's eager operation is left out")
        result: dict[str, Any] = {
            "device": driver_text(device),
            "python": sys.version.split()[0],
            "torch": None if bench.torch is None else "present",
            "rows": bench.rows,
        }
        if wants_parts:
            result["parts"] = parts(bench)
            part_table = Table("part of a call", "median us")
            for name, seconds in result["parts"].items():
                part_table.add_row(name, f"{seconds * 1e6:.2f}")
            console.print(part_table)
        name = device.name
    if wants_startup:
        result["startup"] = startup(name)
        startup_table = Table("first result of a fresh process, warm cache", "median ms")
        for name, seconds in result["startup"].items():
            startup_table.add_row(name, f"{seconds * 1e3:.1f}")
        console.print(startup_table)
    if json_path is not None:
        json_path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
