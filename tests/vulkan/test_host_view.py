"""Memory that other libraries see outlives its tensor, its device and, at the end, everything but the process."""

from __future__ import annotations

import faulthandler
import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import dmlvk
from dmlvk.runtime.exchange import NUMPY_TAKES_VERSIONS
from dmlvk.vulkan.allocation import Allocation, HostView
from dmlvk.vulkan.instance import close_ownerless
from dmlvk.vulkan.library import vk
from tests.runtime.busy import keep_busy
from tests.vulkan.shim import Shim
from tests.vulkan.variants import copy_desc, open_variant

DESC = dmlvk.TensorDesc("int32", (64,))
VALUES = np.random.default_rng(31).integers(-(2**31), 2**31, 64).astype(np.int32)
# What a closed device keeps under one view.
ONE_BLOCK = {"Device": 1, "Buffer": 1, "Memory": 1}


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    faulthandler.dump_traceback_later(120, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def left(shim: Shim) -> dict[str, int]:
    """The Vulkan objects that are left of devices opened in this test."""
    gc.collect()
    return {kind: count for kind, count in shim.live_count.items() if kind != "Instance"}


def close_by_name(own: dmlvk.Device) -> None:
    own.close()


def close_by_with(own: dmlvk.Device) -> None:
    with own:
        pass


def on_another_thread(work: Callable[[], object]) -> None:
    """Do the work on another thread; it must come to its end."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "the other thread waits for ever"


def write_if_allowed(shared: np.ndarray, values: np.ndarray) -> np.ndarray:
    """What is in an array after writing values into it; before NumPy 2.1 those of np.from_dlpack are read-only."""
    if not NUMPY_TAKES_VERSIONS:
        return shared.copy()
    shared[:] = values
    return values


@pytest.mark.every_driver(drops_tensor_first=[False])
@pytest.mark.parametrize("close", [close_by_name, close_by_with, lambda own: None], ids=["close", "with", "del"])
@pytest.mark.parametrize("drops_tensor_first", [True, False])
def test_a_view_outlives_tensor_and_device(
    device: dmlvk.Device, shim: Shim, close: Callable[[dmlvk.Device], None], drops_tensor_first: bool
) -> None:
    own = open_variant(device, "direct")
    copy = own.compile(copy_desc(DESC))
    source, tensor = own.tensor(VALUES), own.tensor(DESC)
    copy(input_tensor=source, output_tensor=tensor)
    shared = np.from_dlpack(tensor)
    if drops_tensor_first:
        tensor.free()
        del tensor
    close(own)
    del source, copy, own
    if not drops_tensor_first:
        del tensor
    assert left(shim) == ONE_BLOCK
    np.testing.assert_array_equal(shared, VALUES)
    values = write_if_allowed(shared, VALUES + 1)
    part = shared[10:20:3]
    del shared
    np.testing.assert_array_equal(part, values[10:20:3])
    assert left(shim) == ONE_BLOCK
    del part
    assert left(shim) == {}


def test_a_tensor_and_a_device_that_outlive_their_view(device: dmlvk.Device, shim: Shim) -> None:
    own = open_variant(device, "direct")
    tensor = own.tensor(VALUES)
    shared = np.from_dlpack(tensor)
    own.close()
    assert own.is_closed
    del shared
    assert left(shim) == {}
    with pytest.raises(dmlvk.DeviceError, match="closed"):
        tensor.numpy()
    own.close()


def test_views_go_one_after_the_other(device: dmlvk.Device, shim: Shim) -> None:
    """Closing again in between changes nothing; each block goes with its last view."""
    own = open_variant(device, "segmented")
    size = own.vulkan.memory.block_size // 2 + 1  # a block each
    tensors = [own.tensor(np.full(size, number, np.uint8)) for number in (3, 4)]
    views = [np.from_dlpack(tensors[0]), np.from_dlpack(tensors[0]), np.from_dlpack(tensors[1])]
    del tensors
    for blocks in (2, 2, 1):
        own.close()
        assert own.is_closed
        assert left(shim) == {"Device": 1, "Buffer": blocks, "Memory": blocks}
        np.testing.assert_array_equal(views[-1], np.full(size, 4))
        for view in views[:-1]:
            np.testing.assert_array_equal(view, np.full(size, 3))
            del view
        views.pop(0)
    assert left(shim) == {}


@pytest.mark.parametrize("first", [0, 1])
def test_two_views_of_one_tensor_keep_it_each(device: dmlvk.Device, shim: Shim, first: int) -> None:
    own = open_variant(device, "direct")
    tensor = own.tensor(VALUES)
    views = [np.from_dlpack(tensor), np.from_dlpack(tensor)]
    own.close()
    del views[first]
    assert left(shim) == ONE_BLOCK
    np.testing.assert_array_equal(views[0], VALUES)
    views.clear()
    assert left(shim) == {}


def test_another_device_opens_and_closes_meanwhile(device: dmlvk.Device, shim: Shim) -> None:
    own = open_variant(device, "direct")
    shared = np.from_dlpack(own.tensor(VALUES))
    own.close()
    del own
    with open_variant(device, "direct") as other:
        target = other.tensor(DESC)
        other.compile(copy_desc(DESC))(input_tensor=other.tensor(shared), output_tensor=target)
        np.testing.assert_array_equal(target.numpy(), VALUES)
        values = write_if_allowed(shared, VALUES - 1)
        np.testing.assert_array_equal(target.numpy(), VALUES)
        del target
    np.testing.assert_array_equal(shared, values)
    assert left(shim) == ONE_BLOCK
    with open_variant(device, "direct"):
        del shared
    assert left(shim) == {}


def test_a_view_is_dropped_on_another_thread(device: dmlvk.Device, shim: Shim) -> None:
    own = open_variant(device, "direct")
    views = [np.from_dlpack(own.tensor(VALUES))]
    own.close()
    on_another_thread(views.clear)
    assert left(shim) == {}


def test_many_threads_export_and_drop_while_the_device_closes(device: dmlvk.Device, shim: Shim) -> None:
    for number in range(4):
        own = open_variant(device, "direct")
        tensor = own.tensor(VALUES)
        kept: list[np.ndarray] = []
        closed: list[dmlvk.DeviceError] = []

        def export(tensor: dmlvk.Tensor = tensor, kept: list = kept, closed: list = closed) -> None:
            try:
                for count in range(1_000_000):
                    shared = np.from_dlpack(tensor)
                    if count % 50 == 0:
                        kept.append(shared)
            except dmlvk.DeviceError as error:
                closed.append(error.with_traceback(None))  # whose frame keeps the last view

        threads = [threading.Thread(target=export) for _ in range(3)]
        for thread in threads:
            thread.start()
        while len(kept) < 3 + number:
            pass
        own.close()
        for thread in threads:
            thread.join()
        assert len(closed) == 3
        assert left(shim) == ONE_BLOCK
        assert all((view == VALUES).all() for view in kept)
        del own, tensor, export, threads, thread
        kept.clear()
        assert left(shim) == {}


def test_closing_waits_for_an_export_under_way(
    device: dmlvk.Device, shim: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = open_variant(device, "direct")
    tensor = own.tensor(VALUES)
    began, closing = threading.Event(), threading.Event()
    transfers = own.vulkan.transfers
    wait = transfers.wait_for_uses

    def wait_until_it_closes(allocation: Allocation) -> None:
        wait(allocation)
        began.set()
        assert closing.wait(30)

    monkeypatch.setattr(transfers, "wait_for_uses", wait_until_it_closes)
    shared: list[np.ndarray] = []
    exporter = threading.Thread(target=lambda: shared.append(np.from_dlpack(tensor)))
    exporter.start()
    assert began.wait(30)
    closer = threading.Thread(target=own.close)
    closer.start()
    while not own.is_closed:
        pass
    closer.join(0.1)
    assert closer.is_alive()
    closing.set()
    for thread in (exporter, closer):
        thread.join(30)
        assert not thread.is_alive()
    assert left(shim) == ONE_BLOCK
    np.testing.assert_array_equal(shared[0], VALUES)
    shared.clear()
    assert left(shim) == {}


def test_an_export_that_comes_too_late_is_refused(device: dmlvk.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device closes after the first look at the tensor and before the view is made."""
    from dmlvk.runtime import exchange

    own = open_variant(device, "direct")
    tensor = own.tensor(VALUES)
    look = exchange.obstacle_to_host_view

    def look_and_close(tensor: dmlvk.Tensor) -> str | None:
        found = look(tensor)
        on_another_thread(own.close)
        return found

    monkeypatch.setattr(exchange, "obstacle_to_host_view", look_and_close)
    with pytest.raises(dmlvk.DeviceError, match="closed"):
        np.from_dlpack(tensor)


def test_a_view_dropped_in_the_middle_of_closing(
    device: dmlvk.Device, shim: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by the garbage collector on the thread that closes: it cannot close, so the closing looks once more."""
    own = open_variant(device, "direct")
    tensor = own.tensor(VALUES)
    views = [np.from_dlpack(tensor)]
    close = own.vulkan.memory.close

    def close_and_drop() -> None:
        close()
        views.clear()

    monkeypatch.setattr(own.vulkan.memory, "close", close_and_drop)
    own.close()
    assert left(shim) == {}


def test_a_view_dropped_by_a_call_that_closing_waits_for(device: dmlvk.Device, shim: Shim) -> None:
    """The finalizer must not wait for the closing."""
    own = open_variant(device, "direct")
    views = [np.from_dlpack(own.tensor(VALUES))]
    entered = threading.Event()

    def visit() -> None:
        entered.set()
        while not own.is_closed:
            pass
        views.clear()

    visitor = threading.Thread(target=own.vulkan.visits.during, args=(visit,), daemon=True)
    visitor.start()
    assert entered.wait(30)
    on_another_thread(own.close)
    visitor.join(30)
    assert not visitor.is_alive()
    assert left(shim) == {}


def test_a_view_dropped_while_closing_waits_closes_nothing(
    device: dmlvk.Device, shim: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupted wait leaves the device open: the view's end must not close it."""
    own = open_variant(device, "direct")
    views = [np.from_dlpack(own.tensor(VALUES)), np.from_dlpack(own.tensor(VALUES))]

    def interrupted(*arguments: object) -> int:
        views.pop()
        on_another_thread(views.clear)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        keep_busy(own)
        patch.setattr(vk, "vkWaitSemaphores", interrupted)
        patch.setattr(vk, "vkGetSemaphoreCounterValue", interrupted)
        with pytest.raises(KeyboardInterrupt):
            own.close()
    assert not views
    assert not own.is_closed
    np.testing.assert_array_equal(own.tensor(VALUES).numpy(), VALUES)
    own.close()
    assert left(shim) == {}


@pytest.mark.parametrize("part", ["pipelines", "memory"])
def test_an_exception_in_the_middle_of_closing_leaves_the_views(
    device: dmlvk.Device, shim: Shim, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    own = open_variant(device, "direct")
    shared = np.from_dlpack(own.tensor(VALUES))

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(getattr(own.vulkan, part), "close", interrupted)
        with pytest.raises(KeyboardInterrupt):
            own.close()
    assert {kind: left(shim)[kind] for kind in ONE_BLOCK} == ONE_BLOCK
    np.testing.assert_array_equal(shared, VALUES)
    own.close()
    assert left(shim) == ONE_BLOCK
    np.testing.assert_array_equal(shared, VALUES)
    del shared
    assert left(shim) == {}


def test_the_next_opening_goes_on_where_an_exception_ended_a_views_end(
    device: dmlvk.Device, shim: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = open_variant(device, "direct")
    shared = np.from_dlpack(own.tensor(VALUES))
    vulkan = own.vulkan
    own.close()
    del own

    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(vulkan, "close", interrupted)
        patch.setattr(sys, "unraisablehook", lambda _: None)
        del shared
    del vulkan
    assert left(shim) == ONE_BLOCK
    close_ownerless()  # as opening a device does
    assert left(shim) == {}


def test_a_half_made_view_goes_quietly() -> None:
    HostView.__new__(HostView).__del__()


PROGRAM = """
import sys, threading
import numpy as np, dmlvk

class Cycle:
    pass

device = dmlvk.Device(sys.argv[1])
views = [np.from_dlpack(device.tensor(np.arange(64) + number)) for number in range(6)]
kept_by_a_module = sys.kept = views[1]
local = threading.local()
local.kept = views[2]
cycle = Cycle()
cycle.itself, cycle.kept = cycle, views[3]

def keep(kept=views[4]):
    threading.Event().wait()

threading.Thread(target=keep, daemon=True).start()
capsule = device.tensor(np.arange(3)).__dlpack__()
if sys.argv[2] == "closed":
    device.close()
elif sys.argv[2] == "dropped":
    device.close()
    del device
print(sum(int(view.sum()) for view in views))
"""


@pytest.mark.parametrize("state", ["open", "closed", "dropped"])
def test_views_at_the_end_of_the_process(device: dmlvk.Device, state: str) -> None:
    """Under the validation layer: neither it nor Python says a word."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(PROGRAM), device.name, state],
        env={**os.environ, "DMLVK_VALIDATE": os.environ.get("DMLVK_VALIDATE", "1")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    expected = sum(int((np.arange(64) + number).sum()) for number in range(6))
    assert (done.stdout, done.stderr, done.returncode) == (f"{expected}\n", "", 0)
