"""Every call that can fail is made to fail: a clear exception, no leak, intact host data, a usable or closed device."""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import dmlvk
from tests.amount import THOROUGH
from tests.runtime.busy import keep_busy
from tests.vulkan.shim import Shim
from tests.vulkan.variants import copy_desc, open_variant

DESC = dmlvk.TensorDesc(dmlvk.DataType.INT32, (64,))
VALUES = np.arange(64, dtype=np.int32)
DEVICE_LOST = -4
OTHER_CODES = (-1, -2, -77_000_001)  # out of host memory, out of device memory, a code that no header has
# What happens in each way of moving data. At night every call returns every code; by day every call of some ways loses
# the device, or returns one of the other codes in turn; with staging, every second call each, as all calls are made
# twice and more. The work of "staged" is a part of that with a copy queue.
FAULTS = [("staged-copy-queue", True), ("staged-copy-queue", False), ("direct", False)]
if THOROUGH:
    FAULTS += [("direct", True), ("staged", True), ("staged", False)]


@pytest.fixture(autouse=True)
def _no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DMLVK_CACHE_DIR", str(tmp_path))
    faulthandler.dump_traceback_later(300, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def work(own: dmlvk.Device, values: np.ndarray) -> None:
    """Use everything once: tensors, a call, a list, a sequence, timestamps, and their results."""
    source, target, third = own.tensor(values), own.tensor(DESC), own.tensor(DESC)
    copy = own.compile(copy_desc(DESC))
    copy(input_tensor=source, output_tensor=target).wait()
    np.testing.assert_array_equal(target.numpy(), values)
    bindings = [
        copy.bind(input_tensor=source, output_tensor=target),
        copy.bind(input_tensor=target, output_tensor=third),
    ]
    own.submit(bindings)
    np.testing.assert_array_equal(third.numpy(), values)
    source.write(values + 1)
    own.sequence(bindings).submit()
    np.testing.assert_array_equal(third.numpy(), values + 1)
    own.timestamps = True
    assert own.submit(bindings).gpu_time is not None
    own.timestamps = False
    own.wait()


def program(device: dmlvk.Device, variant: str) -> list[dmlvk.DeviceError]:
    """Run a small program that continues after failures on the same device if it can; its exceptions, in order."""
    errors: list[dmlvk.DeviceError] = []
    values = VALUES.copy()
    try:
        with open_variant(device, variant) as own:
            if own.vulkan.copy_queue is not None:  # as on a GPU, but once or twice and not for a tenth of a millisecond
                for queue in (own.vulkan.queue, own.vulkan.copy_queue):
                    queue.timeline.watch_seconds = 1e-6
                    queue.timeline.sleeps_in_driver = "segmented" not in variant
            for _ in range(2):
                try:
                    work(own, values)
                except dmlvk.DeviceError as error:
                    errors.append(error)
            if own.vulkan.is_lost:
                with pytest.raises(dmlvk.DeviceError, match="was lost"):
                    own.tensor(values)
            elif errors:
                work(own, values)
    except dmlvk.DeviceError as error:
        errors.append(error)
    np.testing.assert_array_equal(values, VALUES)
    return errors


@pytest.mark.parametrize(("variant", "is_lost"), FAULTS)
def test_each_call_of_a_program_failing(device: dmlvk.Device, shim: Shim, variant: str, is_lost: bool) -> None:
    assert program(device, variant) == []
    calls = len(shim.calls)
    assert calls > 40
    assert shim.live_count == {}
    survived = tried = 0
    # Every call on one driver; some calls on others, which may take a quarter of a second to open a device.
    step = 1 if "llvmpipe" in device.name or THOROUGH else 17
    for number, code in product(range(0, calls, step), (DEVICE_LOST,) if is_lost else OTHER_CODES):
        if not (is_lost or THOROUGH or code == OTHER_CODES[number // step % len(OTHER_CODES)]):
            continue
        if not THOROUGH and variant != "direct" and number // step % 2 == is_lost:
            continue
        shim.fail(number, code)
        errors = program(device, variant)
        happened = number < len(shim.calls)
        name = shim.calls[number] if happened else "none: less had to be waited for this time"
        shim.work()
        tried += happened
        assert shim.live_count == {}, f"call {number}, {name}: {errors}"
        if errors:
            # The message describes a failed allocation in words, other failures by the function and its code.
            assert name in str(errors[0]) or "out of memory" in str(errors[0]), f"call {number}, {name}"
            assert errors[0].__traceback__ is not None
            lost = code == -4 and name in ("vkQueueSubmit", "vkWaitSemaphores", "vkGetSemaphoreCounterValue")
            assert len(errors) == 1 or lost, f"call {number}, {name}: {errors}"
        else:
            survived += happened
    # Some failures need not reach the caller: the pipeline cache is optional, and a block of memory is a first try.
    assert survived < tried / 2


def test_an_interrupt_of_closing_leaves_the_device_open(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    from dmlvk.vulkan.library import vk

    own = open_variant(device, "direct")
    copy = own.compile(copy_desc(DESC))
    source, target = own.tensor(VALUES), own.tensor(DESC)

    def interrupted(*arguments: object) -> int:
        raise KeyboardInterrupt

    # A GPU that has done its work is seen to have done it, and not waited for.
    keep_busy(own)
    monkeypatch.setattr(vk, "vkWaitSemaphores", interrupted)
    with pytest.raises(KeyboardInterrupt):
        own.close()
    monkeypatch.undo()
    assert not own.is_closed
    copy(input_tensor=source, output_tensor=target)
    np.testing.assert_array_equal(target.numpy(), VALUES)
    own.close()
    assert own.is_closed
