"""Lifetimes: calls that are remembered, memory that is freed, objects that do not accumulate."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.planning.plan import SCRATCH, Plan
from dmlvk.runtime.calls import MAXIMUM_CALLS
from dmlvk.vulkan.library import vk
from tests.amount import THOROUGH
from tests.runtime.busy import keep_busy
from tests.runtime.test_compiled_operator import copying
from tests.vulkan.shim import Shim
from tests.vulkan.variants import copy_desc, open_variant

DESC = dmlvk.TensorDesc(dmlvk.DataType.INT32, (64,))
VALUES = np.arange(64, dtype=np.int32)
ROUNDS = 10_000 if THOROUGH else 4_000


def resident_bytes() -> int:
    """Memory of this process, if the system reports it."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 if sys.platform == "linux" else 0


def test_thousands_of_rounds_leave_no_object_and_no_memory(device: dmlvk.Device, shim: Shim) -> None:
    """Compile, bind, submit, drop: with validation off, the driver's memory is checked as well."""
    # A driver's leaks show in a fifth of the rounds.
    rounds = ROUNDS if "llvmpipe" in device.name else ROUNDS // 5
    with open_variant(device, "direct") as own:
        counts = []
        for number in range(rounds):
            size = 16 + number % 7
            desc = dmlvk.TensorDesc(dmlvk.DataType.INT32, (size,))
            source, target = own.tensor(desc), own.tensor(desc)
            operator = own.compile(copy_desc(desc))
            if number % 2:
                operator(input_tensor=source, output_tensor=target)
            else:
                binding = operator.bind(input_tensor=source, output_tensor=target)
                own.submit([binding] * (number % 3))
            if number % 50 == 0:
                own.wait()  # so that the amount of work in flight is the same on a busy machine as on an idle one
            if number in (rounds // 10, rounds - 1):
                del source, target, operator
                binding = None  # type: ignore[assignment]
                own.wait()
                gc.collect()
                assert own.memory_used == 0
                counts.append((shim.live_count, dict(shim.allocated), len(gc.get_objects()), resident_bytes()))
        (objects, allocated, python_objects, memory), last = counts
        assert last[0] == objects
        # The number of command buffers and descriptor sets is the most that were in use at a time.
        assert all(last[1][call] <= allocated[call] + 64 for call in last[1])
        assert last[2] < python_objects + 1000
        assert last[3] < memory + (32 << 20)
    assert shim.live_count == {}


def test_a_repeated_call_binds_and_records_nothing(device: dmlvk.Device, shim: Shim) -> None:
    copy = device.compile(copy_desc(DESC))
    source, target = device.tensor(VALUES), device.tensor(DESC)
    copy(input_tensor=source, output_tensor=target).wait()
    assert device.vulkan.queue.look() == 0  # a submission does this now and then, but none of these did
    before = (len(shim.calls), dict(shim.allocated))
    for _ in range(5):
        copy(input_tensor=source, output_tensor=target)
    assert shim.calls[before[0] :] == ["vkQueueSubmit"] * 5
    assert dict(shim.allocated) == before[1]


def test_a_list_that_comes_again_is_not_recorded_again(device: dmlvk.Device, shim: Shim) -> None:
    copy = device.compile(copy_desc(DESC))
    a, b, c = device.tensor(VALUES), device.tensor(DESC), device.tensor(DESC)
    bindings = [copy.bind(input_tensor=a, output_tensor=b), copy.bind(input_tensor=b, output_tensor=c)]
    device.submit(bindings).wait()
    assert device.vulkan.queue.look() == 0  # as above
    before = len(shim.calls)
    device.submit(bindings)
    device.submit(list(bindings))
    assert shim.calls[before:] == ["vkQueueSubmit"] * 2
    np.testing.assert_array_equal(c.numpy(), VALUES)


def test_a_remembered_list_does_not_hold_the_memory_of_its_bindings(device: dmlvk.Device) -> None:
    """It is forgotten with the first binding that goes, without the garbage collector."""
    gc.disable()
    try:
        with open_variant(device, "direct") as own:
            copy = own.compile(copy_desc(DESC))
            first, second = ([own.tensor(VALUES), own.tensor(DESC)] for _ in range(2))
            stays, goes = (copy.bind(input_tensor=a, output_tensor=b) for a, b in (first, second))
            for _ in range(2):
                own.submit([stays, goes, stays]).wait()
            used = own.memory_used
            del goes, second
            assert own.memory_used == used // 2
            own.submit([stays, stays]).wait()
            np.testing.assert_array_equal(first[1].numpy(), VALUES)
    finally:
        gc.enable()


def test_a_remembered_call_does_not_hold_its_tensors(device: dmlvk.Device) -> None:
    with open_variant(device, "direct") as own:
        copy = own.compile(copy_desc(DESC))
        source = own.tensor(VALUES)
        for _ in range(2 * MAXIMUM_CALLS):
            target = own.tensor(DESC)
            copy(input_tensor=source, output_tensor=target)
        np.testing.assert_array_equal(target.numpy(), VALUES)
        assert len(copy._calls) == 1
        assert source.calls is not None
        assert len(source.calls) == 1
        del target
        own.wait()
        assert own.memory_used == 256
        assert not copy._calls
        source.free()
        assert own.memory_used == 0


def test_so_many_calls_are_remembered_and_no_more(device: dmlvk.Device) -> None:
    with open_variant(device, "direct") as own:
        copy = own.compile(copy_desc(DESC))
        source, targets = own.tensor(VALUES), [own.tensor(DESC) for _ in range(MAXIMUM_CALLS + 20)]
        for _ in range(2):
            for target in targets:
                copy(input_tensor=source, output_tensor=target)
        assert len(copy._calls) == MAXIMUM_CALLS
        for target in targets:
            np.testing.assert_array_equal(target.numpy(), VALUES)


def test_a_new_tensor_in_the_place_of_a_dropped_one_is_not_taken_for_it(device: dmlvk.Device) -> None:
    """Python reuses ids at once, so entries remembered by the old tensor's id must be gone with it."""
    copy = device.compile(copy_desc(DESC))
    kept = []
    for number in range(50):
        source, target = device.tensor(VALUES + number), device.tensor(DESC)
        copy(input_tensor=source, output_tensor=target)
        np.testing.assert_array_equal(target.numpy(), VALUES + number)
        kept.append(device.buffer(256))  # so that the next memory is at another place


def test_a_freed_tensor_is_refused_by_a_remembered_call(device: dmlvk.Device) -> None:
    copy = device.compile(copy_desc(DESC))
    source, target = device.tensor(VALUES), device.tensor(DESC)
    copy(input_tensor=source, output_tensor=target)
    source.free()
    with pytest.raises(dmlvk.BindingError, match="input_tensor was freed"):
        copy(input_tensor=source, output_tensor=target)


def test_names_are_part_of_a_call(device: dmlvk.Device) -> None:
    copy = device.compile(copy_desc(DESC))
    a, b = device.tensor(VALUES), device.tensor(-VALUES)
    copy(input_tensor=a, output_tensor=b)
    np.testing.assert_array_equal(b.numpy(), VALUES)
    b.write(-VALUES)
    copy(output_tensor=a, input_tensor=b)
    copy(output_tensor=a, input_tensor=b)
    np.testing.assert_array_equal(a.numpy(), -VALUES)


def test_a_call_is_not_taken_for_the_one_before(device: dmlvk.Device) -> None:
    copy = device.compile(copy_desc(DESC))
    a, b, c = (device.tensor(VALUES + n) for n in range(3))
    for _ in range(3):
        for source, target, other in ((a, b, c), (b, c, a), (c, a, b), (a, c, b), (c, b, a), (b, a, c)):
            source.write(VALUES + 7)
            target.write(-VALUES)
            other.write(2 * VALUES)
            copy(input_tensor=source, output_tensor=target)
            np.testing.assert_array_equal(target.numpy(), VALUES + 7)
            np.testing.assert_array_equal(other.numpy(), 2 * VALUES)


def test_the_last_call_goes_with_its_tensors(device: dmlvk.Device) -> None:
    with open_variant(device, "direct") as own:
        copy = own.compile(copy_desc(DESC))
        source = own.tensor(VALUES)
        for _ in range(2):
            target = own.tensor(DESC)  # the previous tensor is dropped when this one exists
            assert copy._calls.last is None
            for _ in range(2):
                copy(input_tensor=source, output_tensor=target)
        call = copy._calls.last
        assert call is not None
        assert call.tensors == {"input_tensor": source, "output_tensor": target}
        # Another thread frees it during a call of this thread: the call still runs, and is not remembered.
        call.tensors = None
        copy(input_tensor=source, output_tensor=target)
        assert copy._calls.last is None
        call = None
        target.free()
        own.wait()
        assert own.memory_used == 256


def test_calls_of_one_operator_share_its_scratch(device: dmlvk.Device) -> None:
    stages = copying(device, "input_tensor", SCRATCH) + copying(device, SCRATCH, "output_tensor")
    with open_variant(device, "direct") as own:
        operator = dmlvk.CompiledOperator.of_plan(own.engine, copy_desc(DESC), Plan("twice", stages, scratch_size=256))
        sources, targets = [own.tensor(VALUES + n) for n in range(4)], [own.tensor(DESC) for _ in range(4)]
        for _ in range(3):
            for source, target in zip(sources, targets, strict=True):
                operator(input_tensor=source, output_tensor=target)
        assert own.memory_used == 9 * 256
        for number, target in enumerate(targets):
            np.testing.assert_array_equal(target.numpy(), VALUES + number)
        gone = weakref.ref(operator)
        del operator
        own.wait()
        assert gone() is None  # at once: nothing that it remembers makes a reference cycle
        assert own.memory_used == 8 * 256


def test_reading_waits_for_what_writes_it_and_for_nothing_else(device: dmlvk.Device) -> None:
    with open_variant(device, "direct") as own:
        copy = own.compile(copy_desc(DESC))
        source, target = own.tensor(VALUES), own.tensor(DESC)
        copy(input_tensor=source, output_tensor=target)
        running, _ = keep_busy(own)
        np.testing.assert_array_equal(target.numpy(), VALUES)
        np.testing.assert_array_equal(source.numpy(), VALUES)
        target.write(-VALUES)
        assert not running.done
        running.wait()


def test_waiting_lets_go_of_what_the_work_used(device: dmlvk.Device) -> None:
    copy = device.compile(copy_desc(DESC))
    source, target = device.tensor(VALUES), device.tensor(DESC)
    memory = weakref.ref(source.memory())
    submission = copy(input_tensor=source, output_tensor=target)
    source.free()
    submission.wait()
    assert memory() is None


def test_a_replay_keeps_what_it_uses_when_one_before_it_is_done(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_variant(device, "direct") as own:
        copy = own.compile(copy_desc(DESC))
        source, target = own.tensor(VALUES), own.tensor(DESC)
        sequence = own.sequence([copy.bind(input_tensor=source, output_tensor=target)])
        memory = weakref.ref(source.memory())
        done, other, running = sequence.submit(), own.submit([]), sequence.submit()
        source.free()
        del sequence
        queue = own.vulkan.queue
        for value in (done._value, other._value):

            def report(device: object, semaphore: object, counter: Any, value: int = value) -> int:
                counter[0] = value
                return 0

            monkeypatch.setattr(vk, "vkGetSemaphoreCounterValue", report)
            assert queue.look() == 0
            assert memory() is not None
        monkeypatch.undo()
        running.wait()
        assert memory() is None
        np.testing.assert_array_equal(target.numpy(), VALUES)


def test_a_submission_that_failed_is_not_waited_for(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_variant(device, "direct") as own:
        copy = own.compile(copy_desc(DESC))
        source, target = own.tensor(VALUES), own.tensor(-VALUES)
        binding = copy.bind(input_tensor=source, output_tensor=target)
        sequence = own.sequence([binding])
        uses: list[Callable[[], object]] = [
            lambda: own.submit([binding]),
            lambda: own.submit([binding] * 2),
            lambda: copy(input_tensor=source, output_tensor=target),
            sequence.submit,
        ]
        for use in uses:
            with monkeypatch.context() as patch:
                patch.setattr(vk, "vkQueueSubmit", lambda *arguments: -2)
                with pytest.raises(dmlvk.DeviceError, match="VK_ERROR_OUT_OF_DEVICE_MEMORY"):
                    use()
            np.testing.assert_array_equal(target.numpy(), -VALUES)
            source.write(VALUES)
        # It keeps no objects either: its value is never reached if no work follows it.
        for use in uses:
            use()
            with monkeypatch.context() as patch:
                patch.setattr(vk, "vkQueueSubmit", lambda *arguments: -2)
                with pytest.raises(dmlvk.DeviceError, match="VK_ERROR_OUT_OF_DEVICE_MEMORY"):
                    use()
            np.testing.assert_array_equal(target.numpy(), VALUES)
        uses.clear()
        sequence = binding = use = None  # type: ignore[assignment]
        source.free()
        target.free()
        own.wait()
        assert own.memory_used == 0
