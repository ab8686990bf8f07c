"""Closes, drops and leaves devices at random moments of everything else that other threads do with them.

    python -m tests.runtime.closing DEVICE HOW --seconds 60 --seed 1

HOW is "close" (threads, and `close` beside them), "drop" (devices that are dropped with work in flight) or "exit" (the
process ends beside daemon threads; one round, whose seed says when). The program ends with status 0 if every thread
ended with right results or with a DeviceError, and if no thread, file descriptor, memory or Vulkan device is left.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import dmlvk
from dmlvk.runtime import background
from dmlvk.runtime.submission import MeasuredSubmission
from dmlvk.vulkan import host_threads
from dmlvk.vulkan.instance import open_devices
from tests.runtime.convolutions import Convolution, convolution
from tests.vulkan.variants import VARIANTS, copy_desc, open_variant

# What is waited for so long is waited for in vain.
LONGEST_WAIT = 300.0
# A round leaves nothing. The process itself grows at first: caches of the driver, of Python and of dmlvk. On lavapipe
# its memory grows by 230 MiB in a hundred rounds and then no more. So the second half of the rounds has a limit, which
# is higher by the growth of those of the hundred that come in it.
WARM_UP_ROUNDS = 4
LARGEST_GROWTH = 64 << 20
GROWING_ROUNDS = 100
GROWTH_OF_A_ROUND = (230 << 20) // GROWING_ROUNDS

CASES = [
    convolution(channels, size, kernel=1 + size % 5, owned=size % 2 == 0)
    for channels in (4, 8)
    for size in range(5, 17)
]
DESCS = [dmlvk.TensorDesc(dmlvk.DataType.INT32, (size,)) for size in (64, 1000, 70_000)]


class Work:
    """What one thread does with a device: public calls in a random order, until the device is closed.

    Parameters
    ----------
    device : Device
    choice : random.Random
        Of this thread alone.
    """

    def __init__(self, device: dmlvk.Device, choice: random.Random) -> None:
        self.device = device
        self.choice = choice
        self.operators: list[dmlvk.CompiledOperator[Any]] = []
        self.kept: list[Any] = []
        self.steps: list[Callable[[], object]] = [
            self.compile_convolution,
            self.compile_convolution,
            self.compile_convolution,
            self.compile_several,
            self.call,
            self.submit,
            self.sequence,
            self.transfer,
            self.large_transfer,
            self.view,
            self.drop,
            self.drop,
            self.look,
        ]

    def run(self) -> None:
        while True:
            self.choice.choice(self.steps)()

    def case(self) -> Convolution:
        return self.choice.choice(CASES)

    def compile_convolution(self) -> None:
        case = self.case()
        operator = self.device.compile(case.desc, wait=self.choice.random() < 0.2)
        self.operators.append(operator)
        case.initialize(operator)
        if self.choice.random() < 0.7:
            tensors = case.tensors(self.device)
            submission = operator(**tensors)
            if self.choice.random() < 0.5:
                submission.wait()
                found = tensors["output_tensor"].numpy()
                np.testing.assert_array_equal(found, case.expected())

    def compile_several(self) -> None:
        descs = [self.case().desc for _ in range(3)]
        if self.choice.random() < 0.5:
            self.device.is_ready(descs[0])
        else:
            self.kept.append(self.device.compile_all(descs))

    def pair(self) -> tuple[Any, dmlvk.Tensor, dmlvk.Tensor, Any]:
        desc = self.choice.choice(DESCS)
        values = np.arange(desc.sizes[0], dtype=np.int32) + self.choice.randrange(1000)
        operator = self.device.compile(copy_desc(desc))
        return operator, self.device.tensor(values), self.device.tensor(desc), values

    def call(self) -> None:
        operator, source, target, values = self.pair()
        for _ in range(self.choice.randrange(1, 4)):
            submission = operator(input_tensor=source, output_tensor=target)
        if self.choice.random() < 0.5:
            np.testing.assert_array_equal(target.numpy(), values)
            assert submission.done
        self.kept.append((operator, source, target, submission))

    def submit(self) -> None:
        operator, source, target, values = self.pair()
        other = self.device.tensor(target.desc)
        bindings = [
            operator.bind(input_tensor=source, output_tensor=target),
            operator.bind(input_tensor=target, output_tensor=other),
        ]
        for _ in range(self.choice.randrange(1, 4)):
            self.kept.append(self.device.submit(bindings[: self.choice.randrange(3)]))
        self.device.submit(bindings)
        np.testing.assert_array_equal(other.numpy(), values)
        self.kept.append(bindings)

    def sequence(self) -> None:
        case = self.case()
        operator = self.device.compile(case.desc)
        case.initialize(operator)
        self.device.timestamps = self.choice.random() < 0.3
        tensors = case.tensors(self.device)
        sequence = self.device.sequence([operator.bind(**tensors)])
        for _ in range(self.choice.randrange(1, 4)):
            submission = sequence.submit()
        if self.choice.random() < 0.5:
            submission.wait()
            if isinstance(submission, MeasuredSubmission):  # else other threads have just turned timestamps off
                assert submission.gpu_time >= 0
        self.kept.append(sequence)

    def transfer(self) -> None:
        desc = self.choice.choice(DESCS)
        values = np.arange(desc.sizes[0], dtype=np.int32)
        tensor = self.device.tensor(desc)
        tensor.write(values)
        np.testing.assert_array_equal(tensor.numpy(), values)
        assert not self.device.zeros(desc.sizes, "int32").numpy().any()
        placed = self.device.buffer(1 << 16).tensor(DESCS[0], 256)
        placed.write_bytes(bytes(256))
        assert placed.read_bytes() == bytes(256)
        self.kept.append((tensor, placed))

    def large_transfer(self) -> None:
        values = np.full(3 << 20, self.choice.randrange(256), np.uint8)
        tensor = self.device.tensor(values)
        np.testing.assert_array_equal(self.device.tensor(tensor).numpy(), values)

    def view(self) -> None:
        tensor = self.device.tensor(np.arange(64, dtype=np.int32))
        with suppress(BufferError):  # the host does not reach the memory
            self.kept.append(np.from_dlpack(tensor))

    def drop(self) -> None:
        for objects in (self.operators, self.kept):
            del objects[: self.choice.randrange(1 + len(objects))]
        if self.choice.random() < 0.1:
            gc.collect()

    def look(self) -> None:
        assert self.device.memory_used >= 0
        if self.choice.random() < 0.3:
            self.device.wait()


def work(device: dmlvk.Device, choice: random.Random, failures: list[BaseException]) -> None:
    """The body of a thread: it ends with a DeviceError, because the device was closed."""
    try:
        Work(device, choice).run()
    except dmlvk.DeviceError as error:
        if "closed" not in str(error):
            failures.append(error)
    except BaseException as error:
        failures.append(error)


def close_beside_threads(name: str, choice: random.Random) -> None:
    device = variant_of(name, choice)
    failures: list[BaseException] = []
    threads = [
        threading.Thread(target=work, args=(device, random.Random(choice.random()), failures), daemon=True)
        for _ in range(choice.randrange(1, 5))
    ]
    for thread in threads:
        thread.start()
    time.sleep(choice.random() * choice.choice([0.02, 0.12, 0.5]))
    if choice.random() < 0.3:
        closing = threading.Thread(target=device.close)
        closing.start()
        device.close()
        closing.join(LONGEST_WAIT)
    device.close()
    assert device.is_closed
    del device
    for thread in threads:
        thread.join(LONGEST_WAIT)
        assert not thread.is_alive(), "a thread waits for ever"
    if failures:
        raise failures[0]


def drop_with_work(name: str, choice: random.Random) -> None:
    """One thread uses a device a little, and drops all that it has of it in a random order."""
    device = variant_of(name, choice)
    own = Work(device, choice)
    for step in choice.choices([own.compile_convolution, own.call, own.submit, own.sequence, own.transfer], k=3):
        step()
    operator, source, target, _ = own.pair()
    kept = [operator(input_tensor=source, output_tensor=target)]
    kept += [
        device,
        source,
        target,
        operator,
        own.operators,
        own.kept,
        operator.bind(input_tensor=source, output_tensor=target),
    ]
    del device, source, target, operator, own
    choice.shuffle(kept)
    while kept:
        kept.pop()


def variant_of(name: str, choice: random.Random) -> dmlvk.Device:
    with dmlvk.Device(name) as device:
        return open_variant(device, choice.choice(VARIANTS), timestamps=choice.random() < 0.2)


def counted() -> tuple[int, int, int]:
    """Threads, file descriptors and resident bytes of this process, where the system says so.

    Without the threads that dmlvk keeps for the process.
    """
    if sys.platform != "linux":  # under Wine the files are there: those of the host
        return 0, 0, 0
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    kept = sum(len(each._threads) for each in (host_threads._workers, host_threads._background, host_threads._nested))
    return len(os.listdir("/proc/self/task")) - kept, len(os.listdir("/proc/self/fd")), resident


def run_rounds(name: str, one_round: Callable[[str, random.Random], None], seed: int, seconds: float) -> int:
    start = time.monotonic()
    number = 0
    before = counted()
    half: int | None = None
    growing = 0
    while number <= WARM_UP_ROUNDS or half is None or time.monotonic() < start + seconds:
        faulthandler.dump_traceback_later(LONGEST_WAIT, exit=True)
        one_round(name, random.Random(f"{seed} {number}"))
        faulthandler.cancel_dump_traceback_later()
        number += 1
        if number == WARM_UP_ROUNDS:
            before = settled()
        if half is None and number > WARM_UP_ROUNDS and time.monotonic() >= start + seconds / 2:
            half, growing = settled()[2], max(0, GROWING_ROUNDS - number)
    after = settled()
    assert after[0] <= before[0], f"{after[0] - before[0]} threads are left of {number} rounds"
    assert after[1] <= before[1], f"{after[1] - before[1]} file descriptors are left of {number} rounds"
    growth = after[2] - half
    limit = LARGEST_GROWTH + growing * GROWTH_OF_A_ROUND
    assert growth <= limit, f"{growth >> 20} MiB are left of the second half of {number} rounds"
    return number


def settled() -> tuple[int, int, int]:
    """What is left once the background is done."""
    end = time.monotonic() + LONGEST_WAIT
    while True:
        gc.collect()
        if not open_devices:
            return counted()
        assert time.monotonic() < end, f"{len(open_devices)} devices are left open"
        time.sleep(0.02)


def exit_beside_threads(name: str, choice: random.Random) -> None:
    """The end of the process beside threads that use devices, open them, and look for them."""
    devices = [variant_of(name, choice) for _ in range(choice.randrange(1, 3))]

    def open_for_ever() -> None:
        while True:
            with dmlvk.Device(name) as device:
                device.compile(choice.choice(CASES).desc)

    def look_for_ever() -> None:
        while True:
            dmlvk.devices()

    for number in range(4):
        failures: list[BaseException] = []
        target = choice.choice([work, work, work, open_for_ever, look_for_ever])
        arguments = (devices[number % len(devices)], random.Random(choice.random()), failures)
        threading.Thread(target=quietly, args=(target, arguments if target is work else ()), daemon=True).start()
    if choice.random() < 0.3:
        del devices
    time.sleep(choice.random() * choice.choice([0.02, 0.2, 0.8]))
    sys.exit(0)


def quietly(target: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    with suppress(dmlvk.DeviceError):  # the process ends
        target(*arguments)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("device")
    parser.add_argument("how", choices=["close", "drop", "exit"])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    faulthandler.enable()
    unraised: list[str] = []
    sys.unraisablehook = lambda report: unraised.append(f"{report.err_msg}: {report.exc_value!r} in {report.object!r}")
    background.core_count = lambda: 2  # type: ignore[attr-defined]
    sys.setswitchinterval(1e-4)  # threads meet more often
    if arguments.how == "exit":
        sys.unraisablehook = sys.__unraisablehook__
        exit_beside_threads(arguments.device, random.Random(arguments.seed))
    one_round = close_beside_threads if arguments.how == "close" else drop_with_work
    print(run_rounds(arguments.device, one_round, arguments.seed, arguments.seconds), "rounds")
    assert not unraised, unraised


if __name__ == "__main__":
    main()
