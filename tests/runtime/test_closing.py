"""Closing, dropping and exiting at any moment of what other threads do."""

from __future__ import annotations

import gc
import os
import subprocess
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dmlvk
from dmlvk.vulkan.instance import open_devices
from dmlvk.vulkan.library import vk
from tests.amount import THOROUGH
from tests.programs import python
from tests.runtime.busy import keep_busy
from tests.runtime.small_work import DESC, VALUES
from tests.vulkan.variants import copy_desc, open_variant

SECONDS = 120.0 if THOROUGH else 2.0
EXITS = 60 if THOROUGH else 2
PROMPTLY = 60.0


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return python(*arguments, env={**os.environ, "DMLVK_BACKGROUND": "1", "DMLVK_VALIDATE": "0"}, timeout=600)


@pytest.mark.parametrize("how", ["close", "drop"])
def test_random_moments(device: dmlvk.Device, how: str) -> None:
    done = run("-m", "tests.runtime.closing", device.name, how, "--seconds", str(SECONDS))
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("seed", range(EXITS))
def test_random_ends_of_the_process(device: dmlvk.Device, seed: int) -> None:
    done = run("-m", "tests.runtime.closing", device.name, "exit", "--seed", str(seed))
    assert (done.returncode, done.stderr) == (0, ""), f"status {done.returncode}\n{done.stdout}\n{done.stderr[-3000:]}"


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def ended(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(PROMPTLY)
        assert not thread.is_alive(), "threads wait for each other"


def test_a_driver_is_done_with_semaphores_before_they_are_destroyed(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mesa's thread of a queue lets go of those that a submission waited for after its signal, and crashed there."""
    own = open_variant(device, "staged-copy-queue")
    own.tensor(np.zeros(3 << 20, np.uint8))
    order: list[str] = []

    def note(name: str) -> None:
        call = getattr(vk, name)

        def noted(*arguments: Any) -> Any:
            order.append(name)
            return call(*arguments)

        monkeypatch.setattr(vk, name, noted)

    note("vkDeviceWaitIdle")
    note("vkDestroySemaphore")
    own.close()
    assert order[0] == "vkDeviceWaitIdle"
    assert "vkDestroySemaphore" in order


@pytest.mark.parametrize(
    "kind", ["vkDestroyPipeline", "vkDestroyPipelineCache", "vkDestroyBuffer", "vkFreeMemory", "vkDestroySemaphore"]
)
def test_closing_waits_for_who_destroys_an_object(
    device: dmlvk.Device, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the object: the device goes after the last call that destroys one of them."""
    own = open_variant(device, "direct")
    kept = own.compile(copy_desc(DESC)), own.tensor(DESC)
    handle = next(each for each in own.vulkan.context.handles._live.values() if each._destroy == kind)
    entered, goes_on = threading.Event(), threading.Event()
    order: list[str] = []
    destroy, destroy_device = getattr(vk, kind), vk.vkDestroyDevice
    first = handle.value

    def slowly(parent: Any, value: Any, allocator: Any) -> None:
        if value == first:
            entered.set()
            assert goes_on.wait(PROMPTLY)
            order.append(kind)
        destroy(parent, value, allocator)

    def note(*arguments: Any) -> None:
        order.append("vkDestroyDevice")
        destroy_device(*arguments)

    monkeypatch.setattr(vk, kind, slowly)
    monkeypatch.setattr(vk, "vkDestroyDevice", note)
    destroying = in_thread(handle.destroy)
    assert entered.wait(PROMPTLY)
    closing = in_thread(own.close)
    closing.join(0.2)
    assert closing.is_alive()
    goes_on.set()
    ended(destroying, closing)
    assert order == [kind, "vkDestroyDevice"]
    assert own.is_closed
    del kept


def test_closing_in_the_midst_of_destroying_is_refused(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    own = open_variant(device, "direct")
    tensor = own.tensor(DESC)
    handle = next(each for each in own.vulkan.context.handles._live.values() if each._destroy == "vkFreeMemory")
    destroy = vk.vkFreeMemory
    refused: list[BaseException] = []

    def handler(*arguments: Any) -> None:
        try:
            own.close()
        except dmlvk.DeviceError as error:
            refused.append(error)
        destroy(*arguments)

    monkeypatch.setattr(vk, "vkFreeMemory", handler)
    handle.destroy()
    monkeypatch.undo()
    assert "in the middle of another call" in str(refused[0])
    assert not own.is_closed
    own.close()
    del tensor


@pytest.mark.parametrize("where", ["visit", "change"])
def test_closing_in_the_midst_of_a_call_does_not_wait_for_who_closes_already(device: dmlvk.Device, where: str) -> None:
    """The other thread waits for this call, which would wait for the other thread."""
    own = open_variant(device, "direct")
    entered = threading.Event()
    refused: list[BaseException] = []

    def call() -> None:
        entered.set()
        while not own.is_closed:
            pass
        try:
            own.close()  # a signal handler's
        except dmlvk.DeviceError as error:
            refused.append(error)

    enter = own.vulkan.visits.during if where == "visit" else own.vulkan.monitor.run
    inside = in_thread(lambda: enter(call))
    assert entered.wait(PROMPTLY)
    closing = in_thread(own.close)
    ended(inside, closing)
    assert "in the middle of another call" in str(refused[0])
    assert not any(each is own.vulkan for each in open_devices)


def test_a_finalizer_does_not_wait_for_who_closes_the_device(device: dmlvk.Device) -> None:
    """The other thread may be waiting for the thread in which the garbage collector has called the finalizer."""
    own = open_variant(device, "direct")
    close = own.vulkan.pipelines.close

    def wait_for_thread() -> None:
        ended(in_thread(own.vulkan.close_from_finalizer))
        close()

    own.vulkan.pipelines.close = wait_for_thread  # type: ignore[method-assign]
    own.close()
    assert not any(each is own.vulkan for each in open_devices)


def use_once(own: dmlvk.Device, how: str) -> tuple[list[Any], weakref.ref[Any] | None]:
    """Work in flight, as a user leaves it who drops all but what is returned; and its output's memory."""
    copy = own.compile(copy_desc(DESC))
    source, target = own.tensor(VALUES), own.tensor(-VALUES)
    binding = copy.bind(input_tensor=source, output_tensor=target)
    busy, _ = keep_busy(own, 0.2)
    if how == "call":
        submissions = [copy(input_tensor=source, output_tensor=target) for _ in range(2)]
    elif how == "list":
        submissions = [own.submit([binding, binding])]
    elif how == "sequence":
        submissions = [own.sequence([binding]).submit()]
    elif how == "timestamps":
        own.timestamps = True
        submissions = [own.submit([binding]), own.sequence([binding]).submit()]
    elif how == "write":
        target.write(VALUES)
        return [], None
    else:
        submissions = [own.submit([binding])]
    memory = weakref.ref(target.memory())
    assert not busy.done
    return (submissions if how == "binding" else []), memory


@pytest.mark.parametrize("how", ["call", "binding", "list", "sequence", "timestamps", "write"])
@pytest.mark.parametrize("variant", ["direct", "staged-copy-queue"])
def test_a_dropped_device_is_freed_when_its_work_is_done(device: dmlvk.Device, variant: str, how: str) -> None:
    before = list(open_devices)
    own = open_variant(device, variant)
    gone = weakref.ref(own)
    submissions, memory = use_once(own, how)
    del own
    gc.collect()
    assert gone() is None
    assert set(open_devices) <= set(before)
    assert memory is None or memory() is None
    assert all(submission.done for submission in submissions)


@pytest.mark.parametrize("last", ["device", "tensor", "operator", "binding", "sequence"])
def test_a_device_is_closed_with_the_last_object_that_belongs_to_it(device: dmlvk.Device, last: str) -> None:
    """By counting references: without the garbage collector, and with work in flight."""
    before = set(open_devices)
    gc.collect()
    gc.disable()
    try:
        own = open_variant(device, "direct")
        gone = weakref.ref(own.engine)
        source, target = own.tensor(VALUES), own.tensor(DESC)
        copy = own.compile(copy_desc(DESC))
        binding = copy.bind(input_tensor=source, output_tensor=target)
        sequence = own.sequence([binding])
        running = keep_busy(own, 0.05)[0]
        submissions = [
            own.submit([binding, binding]),
            sequence.submit(),
            copy(input_tensor=source, output_tensor=target),
        ]
        of_device: dict[str, Any] = {
            "device": own,
            "tensor": target,
            "operator": copy,
            "binding": binding,
            "sequence": sequence,
        }
        kept = of_device.pop(last)
        del of_device, own, source, target, copy, binding, sequence
        assert gone() is not None
        shown = kept if last == "device" else kept.device
        np.testing.assert_array_equal(shown.tensor(VALUES).numpy(), VALUES)
        if last != "device":
            assert kept.device is shown
        del shown, kept
        assert gone() is None
        assert set(open_devices) <= before
        assert running.done and all(submission.done for submission in submissions)
    finally:
        gc.enable()


def test_work_in_flight_keeps_what_it_uses_when_its_users_drop_it(device: dmlvk.Device) -> None:
    """All but the device and the output is dropped, in the middle of the work."""
    with open_variant(device, "direct") as own:
        for how in range(3):
            copy = own.compile(copy_desc(DESC))
            source, target = own.tensor(VALUES), own.tensor(-VALUES)
            running, _ = keep_busy(own, 0.1)
            if how == 0:
                copy(input_tensor=source, output_tensor=target)
            else:
                binding = copy.bind(input_tensor=source, output_tensor=target)
                submitted = own.sequence([binding]).submit() if how == 1 else own.submit([binding, binding])
                del binding, submitted
            assert not running.done
            own._operators.clear()
            own.engine.lists.clear()
            del copy, source
            gc.collect()
            for _ in range(50):  # takes the memory, and the descriptor sets and command buffers, if they are free
                again = own.compile(copy_desc(DESC))
                again(input_tensor=own.tensor(-VALUES), output_tensor=own.tensor(DESC))
            np.testing.assert_array_equal(target.numpy(), VALUES)


def test_a_device_that_is_dropped_in_the_midst_of_destroying_is_closed_later(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the garbage collector runs there."""
    before = list(open_devices)
    dropped = [open_variant(device, "direct")]
    vulkan = dropped[0].vulkan
    dropped[0].tensor(VALUES)
    handle = next(each for each in vulkan.context.handles._live.values() if each._destroy == "vkFreeMemory")
    destroy = vk.vkFreeMemory

    def drop(*arguments: Any) -> None:
        dropped.clear()
        gc.collect()
        destroy(*arguments)

    monkeypatch.setattr(vk, "vkFreeMemory", drop)
    handle.destroy()
    closed = in_thread(lambda: [None for _ in iter(lambda: set(open_devices) <= set(before), True)])
    ended(closed)


def test_closing_while_another_thread_lets_go_of_work_that_is_done(device: dmlvk.Device) -> None:
    own = open_variant(device, "direct")
    queue = own.vulkan.queue
    own.submit([]).wait()

    class Last:
        @property
        def last(self) -> int:
            queue.drop()  # as the other thread does just then
            return 0

    class OfBatch:
        run = Last()
        is_kept = True

    queue._in_flight.append((0, OfBatch()))  # type: ignore[arg-type]
    queue._release_completed()
    own.close()


def test_the_process_ends_while_a_thread_opens_a_device(device: dmlvk.Device) -> None:
    """The end waits for it, and closes it; devices that come later are refused."""
    program = """
    import sys, threading, time
    import dmlvk
    from dmlvk.vulkan.context import Context
    create, made, said = Context.create, threading.Event(), []

    def slowly(context):
        create(context)
        made.set()
        time.sleep(0.5)

    dmlvk.devices()
    Context.create = slowly

    def open_for_ever():
        kept = []
        while True:
            try:
                kept.append(dmlvk.Device(sys.argv[1]))
            except dmlvk.DeviceError as error:
                said.append(str(error))
                return

    thread = threading.Thread(target=open_for_ever, daemon=True)
    thread.start()
    from dmlvk.vulkan import instance
    made.wait()
    instance._close_all()
    print(len(instance.open_devices))
    thread.join(60)
    print(*said)
    """
    done = run("-c", "\n".join(line[4:] for line in program.splitlines()), device.name)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == ""
    number, message = done.stdout.splitlines()
    assert number == "0"
    assert "this process is ending" in message or "closed" in message


def test_where_the_driver_makes_no_device_there_is_nothing_to_wait_for(
    device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drivers crash on a VkDevice that is NULL."""
    given: list[Any] = []
    monkeypatch.setattr(vk, "vkCreateDevice", lambda *arguments: -3)
    monkeypatch.setattr(vk, "vkDeviceWaitIdle", given.append)
    with pytest.raises(dmlvk.DeviceError, match="initialization failed"):
        dmlvk.Device(device.name)
    gc.collect()
    assert not given
