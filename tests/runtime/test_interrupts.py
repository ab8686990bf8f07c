"""Ctrl-C: in a wait, and between the moment when the driver takes work and the moment when dmlvk records that."""

from __future__ import annotations

import dis
import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.vulkan.library import vk
from dmlvk.vulkan.queue import Queue
from tests.programs import python
from tests.vulkan.variants import copy_desc, open_variant

DESC = dmlvk.TensorDesc(dmlvk.DataType.INT32, (64,))
VALUES = np.arange(64, dtype=np.int32)

# Windows has no signals between processes: there, Ctrl-C comes as a new thread that runs the process' own handler.
INTERRUPT = "signal.raise_signal, (signal.SIGINT,)" if os.name == "nt" else "os.kill, (os.getpid(), signal.SIGINT)"


# Where a tensor is written through staging memory, that goes on by itself: only the work is waited for.
@pytest.mark.parametrize(
    "wait", ["submission.wait()", "a.numpy()", "a.write(values); submission.wait()", "device.wait()"]
)
def test_a_signal_during_a_wait(device: dmlvk.Device, wait: str) -> None:
    program = f"""
    import os, signal, threading, time
    import numpy as np, dmlvk
    from tests.runtime.busy import DESC, keep_busy
    from tests.vulkan.variants import copy_desc
    values = np.random.default_rng(1).integers(0, 256, DESC.sizes, np.uint8)
    with dmlvk.Device({device.name!r}) as device:
        for seconds in (0.5, 2.0, 8.0):  # on a busy machine the signal may come when less work is done
            submission, a = keep_busy(device, seconds)
            try:
                threading.Timer(0.1, {INTERRUPT}).start()
                {wait}
                time.sleep(60)
            except KeyboardInterrupt:
                state = "done" if submission.done else "running"
            submission.wait()
            if state == "running":
                break
        print("interrupted", state)
        a.write(values)
        b = device.tensor(DESC)
        device.compile(copy_desc(DESC))(input_tensor=a, output_tensor=b)
        assert (b.numpy() == values).all()
    print("closed")
    """
    done = python("-c", textwrap.dedent(program), env={**os.environ, "DMLVK_VALIDATE": "0"}, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted running\nclosed\n", "", 0)


@pytest.mark.parametrize("variant", ["direct", "staged", "staged-copy-queue"])
@pytest.mark.parametrize("reaches_the_driver", [True, False], ids=["after the driver", "before the driver"])
def test_an_interrupt_inside_a_submission(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch, variant: str, reaches_the_driver: bool
) -> None:
    """Wherever it strikes, objects that may be in use are kept, later work waits for them, and nothing hangs."""
    with open_variant(device, variant) as own:
        copy = own.compile(copy_desc(DESC))
        source, target, third = own.tensor(VALUES), own.tensor(DESC), own.tensor(DESC)
        bindings = [
            copy.bind(input_tensor=source, output_tensor=target),
            copy.bind(input_tensor=target, output_tensor=third),
        ]
        sequence = own.sequence(bindings)
        uses: list[Callable[[], object]] = [
            lambda: copy(input_tensor=source, output_tensor=own.tensor(DESC)),
            lambda: copy(input_tensor=source, output_tensor=target),
            lambda: own.submit(bindings),
            sequence.submit,
            lambda: own.tensor(DESC),
        ]
        if variant != "direct":
            uses += [lambda: source.write(VALUES), target.numpy]
        submit = vk.vkQueueSubmit

        def interrupted(*arguments: object) -> int:
            if reaches_the_driver:
                submit(*arguments)
            raise KeyboardInterrupt

        for number in range(3 * len(uses)):
            use = uses[number % len(uses)]
            monkeypatch.setattr(vk, "vkQueueSubmit", interrupted)
            with suppress(KeyboardInterrupt):
                use()
            if number % 2:  # and once more, in the cleanup
                with pytest.raises(KeyboardInterrupt):
                    own.submit(bindings)
            monkeypatch.setattr(vk, "vkQueueSubmit", submit)
            if number % 3:
                source.write(VALUES + number)
                own.submit(bindings)
                np.testing.assert_array_equal(third.numpy(), VALUES + number)
        own.wait()
        for tensor in (source, target, third):
            tensor.free()
        bindings.clear()
        uses.clear()
        sequence = use = None  # type: ignore[assignment]
        own.wait()
        assert own.memory_used == 0


def test_an_interrupt_while_another_thread_submits(device: dmlvk.Device) -> None:
    with open_variant(device, "direct") as own:
        copy = own.compile(copy_desc(DESC))
        source, target = own.tensor(VALUES), own.tensor(DESC)
        sequence = own.sequence([copy.bind(input_tensor=source, output_tensor=target)])
        taken = threading.Event()

        def hold() -> None:
            with own.vulkan.monitor.lock:
                taken.set()
                time.sleep(0.3)

        holder = threading.Thread(target=hold)
        holder.start()
        taken.wait()
        # As in INTERRUPT above.
        how: tuple[Any, tuple[int, ...]] = (os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(0.1, *((signal.raise_signal, (signal.SIGINT,)) if os.name == "nt" else how)).start()
            sequence.submit()
            time.sleep(60)
        holder.join()
        assert is_free(own)
        sequence.submit()
        np.testing.assert_array_equal(target.numpy(), VALUES)


def is_free(own: dmlvk.Device) -> bool:
    """Whether another thread can take the device's lock."""
    taken: list[bool] = []

    def take() -> None:
        taken.append(own.vulkan.monitor.lock.acquire(timeout=5))
        if taken[0]:
            own.vulkan.monitor.lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return taken[0]


class InterruptAfterCall:
    """Raises KeyboardInterrupt in a function after its n-th call, which is where Python looks for signals."""

    def __init__(self, code: CodeType, number: int) -> None:
        self._code = code
        self._left = number
        names = [(each.offset, each.opname) for each in dis.get_instructions(code) if each.opname != "CACHE"]
        self._after_calls = {names[i + 1][0] for i, (_, name) in enumerate(names) if name.startswith("CALL")}
        self.has_struck = False

    def run(self, function: Callable[[], object]) -> None:
        """Run a function until it returns or the interrupt strikes."""
        before = sys.gettrace()
        # Python 3.12 sends no events of opcodes unless a frame had asked for them when the trace function was set.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self)
        try:
            with suppress(KeyboardInterrupt):
                function()
        finally:
            sys.settrace(before)

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is not self._code:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in self._after_calls and not self.has_struck:
            self._left -= 1
            if self._left < 0:
                self.has_struck = True
                raise KeyboardInterrupt
        return self


@pytest.mark.parametrize("comes_again", [False, True], ids=["first run", "run again"])
def test_an_interrupt_after_each_call_inside_a_submission(device: dmlvk.Device, comes_again: bool) -> None:
    """The lock is released, objects that may be in use are kept, and later work runs."""
    with open_variant(device, "direct") as own:
        copy = own.compile(copy_desc(DESC))
        struck = 0
        for number in range(100):
            source, target = own.tensor(VALUES + number), own.tensor(DESC)
            sequence = own.sequence([copy.bind(input_tensor=source, output_tensor=target)])
            if comes_again:
                sequence.submit()
            interrupt = InterruptAfterCall(Queue.submit_inside.__code__, number)
            interrupt.run(sequence.submit)
            assert is_free(own)
            if number % 2:
                sequence.submit()
                np.testing.assert_array_equal(target.numpy(), VALUES + number)
            del sequence, source, target
            struck += interrupt.has_struck
            if not interrupt.has_struck:
                break
        # Inside of the monitor: the driver's call, putting among what is in flight.
        assert struck >= (1 if comes_again else 2)
        own.wait()
        assert own.memory_used == 0
