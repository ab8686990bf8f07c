"""Locks: no exception of a signal handler leaves one taken."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

import pytest

from dmlvk.vulkan.interrupts.locks import Lock, RLock

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no timer that sends signals")

ROUNDS = 3000


class Raised(BaseException):
    """The handler's exception."""


def raise_it(number: int, frame: FrameType | None) -> None:
    raise Raised


def take_for_ever(lock: Any) -> None:
    """Take the lock and release it until a signal comes: most of the time goes into taking it."""
    while True:
        with lock: pass  # noqa: E701  # fmt: skip


def is_taken(lock: Any) -> bool:
    """Whether the lock is taken, asked from another thread: the owner of an RLock may take it again."""
    found: list[bool] = []

    def ask() -> None:
        free = lock.acquire(blocking=False)
        if free:
            lock.release()
        found.append(not free)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("kind", [Lock, RLock], ids=["Lock", "RLock"])
def test_a_signal_leaves_no_lock_taken(kind: Any) -> None:
    lock, taken = kind(), 0
    before = signal.signal(signal.SIGALRM, raise_it)
    try:
        for number in range(ROUNDS):
            try:
                signal.setitimer(signal.ITIMER_REAL, 20e-6 + number % 50 * 1e-6)
                take_for_ever(lock)
            except Raised:
                pass
            if is_taken(lock):
                taken += 1
                lock = kind()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert taken == 0


@pytest.mark.parametrize("kind", [Lock, RLock], ids=["Lock", "RLock"])
def test_one_thread_at_a_time_holds_a_lock(kind: Any) -> None:
    lock, inside, most = kind(), [], []

    def work() -> None:
        for _ in range(500):
            with lock:
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert len(most) == 2000
    assert not is_taken(lock)
    with lock:
        assert is_taken(lock)
        assert lock.locked() if hasattr(lock, "locked") else lock._is_owned()


def test_an_interrupted_wait_for_a_lock_takes_nothing() -> None:
    lock = Lock()
    held, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            leave.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    before = signal.signal(signal.SIGALRM, raise_it)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Raised):
            take_for_ever(lock)
    finally:
        signal.signal(signal.SIGALRM, before)
        leave.set()
        thread.join()
    assert not is_taken(lock)
