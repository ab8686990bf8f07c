"""Copying on several threads: each part once, errors and interrupts are raised, and no thread is left at work."""

from __future__ import annotations

import threading
import time

import pytest

from dmlvk.vulkan.host_threads import for_each

PATIENCE = 60  # seconds, after which a test fails rather than hangs


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_each_part_is_moved_once(count: int) -> None:
    moved: list[int] = []
    for_each(range(count), moved.append)
    assert sorted(moved) == list(range(count))


def test_parts_are_moved_at_the_same_time() -> None:
    meeting = threading.Barrier(2)

    def move(part: int) -> None:
        meeting.wait(PATIENCE)

    for_each(range(2), move)


def test_an_error_of_another_thread_is_raised_here_and_ends_the_rest() -> None:
    meeting = threading.Barrier(2)
    begun: list[int] = []

    def move(part: int) -> None:
        begun.append(part)
        if part < 2:
            meeting.wait(PATIENCE)
            if threading.current_thread() is not threading.main_thread():
                raise ValueError("of another thread")
            time.sleep(0.05)

    with pytest.raises(ValueError, match="of another thread"):
        for_each(range(10_000), move)
    assert len(begun) < 10_000


def test_an_interrupt_waits_for_those_who_are_at_it_and_for_nobody_else() -> None:
    meeting = threading.Barrier(2)
    ended: list[int] = []

    def move(part: int) -> None:
        if part < 2:
            meeting.wait(PATIENCE)
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        time.sleep(0.05)
        ended.append(part)

    with pytest.raises(KeyboardInterrupt):
        for_each(range(1000), move)
    count = len(ended)
    assert 1 <= count < 100
    time.sleep(0.1)
    assert len(ended) == count


def test_who_is_at_work_may_call_it_too() -> None:
    """There are more callers than threads. Each caller moves its parts itself if no other thread does."""
    moved: list[int] = []
    for_each(range(50), lambda part: for_each(range(20), moved.append))
    assert len(moved) == 1000


def test_a_nested_call_has_threads_of_its_own() -> None:
    """All threads of the outer call wait for the inner one, whose parts meet."""
    ended, meeting = threading.Event(), threading.Barrier(2)

    def meet(part: int) -> None:
        meeting.wait(PATIENCE)

    def move(part: int) -> None:
        if part == 0:
            for_each(range(2), meet, threads=2, is_nested=True)
            ended.set()
        assert ended.wait(PATIENCE)

    for_each(range(8), move)
