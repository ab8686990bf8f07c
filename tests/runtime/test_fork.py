"""A process that forks while a device is open."""

from __future__ import annotations

import os
import textwrap

import pytest

import dmlvk
from tests.programs import python

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")

# Python 3.12 and later warn of each fork of a process that has threads, and drivers start some.
MAY_FORK = ("-W", "ignore:This process:DeprecationWarning")
PROGRAM = """
import os, sys, time, signal
import numpy as np, dmlvk
from tests.vulkan.variants import copy_desc

name, parent = sys.argv[1], os.getpid()
os.environ["DMLVK_DEVICE"] = name
DESC = dmlvk.TensorDesc("int32", (64,))
values = np.arange(64, dtype=np.int32)
device = dmlvk.Device(name)
copy = device.compile(copy_desc(DESC))
a, b = device.tensor(values), device.tensor(DESC)
indices = device.tensor(np.array([[1], [2]], np.int32))
buffer = device.buffer(1024)
binding = copy.bind(input_tensor=a, output_tensor=b)
sequence = device.sequence([binding, binding])
submission = copy(input_tensor=a, output_tensor=b)
def one_hot(named=None):
    return dmlvk.one_hot(np.array([[1], [2]], np.int32), [0, 7], output_length=3, axis=1, device=named)

one_hot()
one_hot(name)

def nothing():
    pass

def use():
    uses = [
        a.numpy, lambda: a.write(values), a.read_bytes, lambda: copy(input_tensor=a, output_tensor=b),
        lambda: copy.bind(input_tensor=a, output_tensor=b), lambda: device.submit([binding]), sequence.submit,
        lambda: device.sequence([binding]), lambda: device.compile(copy_desc(DESC)), lambda: device.tensor(values),
        lambda: device.buffer(64), lambda: buffer.tensor(DESC), device.wait, lambda: device.memory_used,
        lambda: device.empty(3), lambda: device.zeros(3), lambda: device.tensor(a), lambda: b.write(a),
        lambda: a.numpy(out=values.copy()), lambda: np.asarray(a), lambda: np.from_dlpack(a), a.__dlpack_device__,
    ]
    for number, inherited in enumerate(uses):
        try:
            inherited()
        except dmlvk.DeviceError as error:
            assert "opened before a fork; open one in the child, or use spawn" in str(error), error
        else:
            raise AssertionError(f"use {number} of what the parent opened")
    device.close()

def open_own():
    with dmlvk.Device(name) as own:
        source, target = own.tensor(values), own.tensor(DESC)
        own.compile(copy_desc(DESC))(input_tensor=source, output_tensor=target)
        assert (target.numpy() == values).all()

def call_one_liner():
    for named in (None, name):
        assert (one_hot(named) == [[0, 7, 0], [0, 0, 7]]).all()
    for named in (None, name, indices.device):
        try:
            dmlvk.one_hot(indices, [0, 7], output_length=3, axis=1, device=named)
            assert os.getpid() == parent
        except dmlvk.DeviceError as error:
            assert os.getpid() != parent and "opened before a fork" in str(error), error

def drop():
    global device, copy, a, b, buffer, binding, sequence, submission
    del device, copy, a, b, buffer, binding, sequence, submission

def fork_again():
    in_child(call_one_liner)

def in_child(work):
    child = os.fork()
    if not child:
        try:
            work()
        except SystemExit:  # of a child of the child
            raise
        except BaseException as error:
            print(f"{work.__name__}: {error!r}", flush=True)
            os._exit(1)
        sys.exit(7)
    end = time.monotonic() + 100
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            print(work.__name__, os.waitstatus_to_exitcode(status), flush=True)
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print(work.__name__, "hangs", flush=True)

MORE

submission.wait()
values += 1
a.write(values)
copy(input_tensor=a, output_tensor=b)
assert (b.numpy() == values).all()
call_one_liner()
device.close()
print("parent", flush=True)
"""


def run(device: dmlvk.Device, more: str) -> list[str]:
    program = textwrap.dedent(PROGRAM).replace("MORE", textwrap.dedent(more))
    done = python(*MAY_FORK, "-c", program, device.name, env={**os.environ, "DMLVK_VALIDATE": "0"}, timeout=240)
    assert (done.returncode, done.stderr) == (0, ""), f"{done.stdout}{done.stderr}"
    return done.stdout.splitlines()


def test_what_a_forked_child_may_do(device: dmlvk.Device) -> None:
    """Children of one parent; the last one's own child prints its line before."""
    works = ["nothing", "use", "open_own", "call_one_liner", "drop", "fork_again"]
    expected = [*(f"{work} 7" for work in works[:-1]), "call_one_liner 7", "fork_again 7", "parent"]
    assert run(device, f"for work in ({', '.join(works)}): in_child(work)") == expected


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_child_sees_its_parents_views(device: dmlvk.Device, is_closed: bool) -> None:
    """They are the child's to read and to drop, which changes nothing for the parent."""
    more = f"""
    other = dmlvk.Device(name)
    views = [np.from_dlpack(other.tensor(values + number)) for number in range(3)]
    if {is_closed}:
        other.close()
    def look_and_drop():
        assert all((view == values + number).all() for number, view in enumerate(views))
        views.clear()
        global other
        del other
        open_own()
    in_child(look_and_drop)
    in_child(nothing)
    assert all((view == values + number).all() for number, view in enumerate(views))
    vulkan = other.vulkan
    views.clear()
    del other
    assert vulkan._is_destroyed
    """
    assert run(device, more) == ["look_and_drop 7", "nothing 7", "parent"]


def test_a_pool_of_forked_processes(device: dmlvk.Device) -> None:
    more = """
    import multiprocessing
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.apply(call_one_liner)
        pool.apply(use)
        pool.close()
        pool.join()
    """
    assert run(device, more) == ["parent"]


def test_a_fork_while_other_threads_work(device: dmlvk.Device) -> None:
    """The other threads' locks stay locked for ever in the child, which has none of these threads."""
    more = """
    import threading
    stop = threading.Event()
    def work():
        source, target = device.tensor(values), device.tensor(DESC)
        while not stop.is_set():
            copy(input_tensor=source, output_tensor=device.tensor(DESC))
            assert (target.numpy() == target.numpy()).all()
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        in_child(use)
        in_child(call_one_liner)
    stop.set()
    for thread in threads:
        thread.join()
    """
    assert run(device, more) == ["use 7", "call_one_liner 7"] * 2 + ["parent"]
