"""A crash or hang of an oracle's process costs only the test that called it."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tests.oracle import MOST_LOSSES, Oracle, OracleError, ending
from tests.reference.onnx_runtime import run_node

Failed = pytest.fail.Exception


@pytest.fixture
def own() -> Iterator[Oracle]:
    """A process of the test's own, apart from the process of the other tests."""
    made = Oracle("The library", os.getpid)
    yield made
    made.close()


def print_and_abort() -> None:
    os.write(1, b"said to standard output\n")
    os.write(2, b"said to standard error\n")
    os.abort()


def print_and_return(value: int) -> int:
    print("said to standard output", flush=True)
    os.write(1, b"\x80\x05said below Python")
    return value


def test_it_is_another_process_and_stays() -> None:
    own = Oracle("The library", os.getpid)
    first = own.call("its number", os.getpid)
    assert first != os.getpid()
    assert own.call("its number", os.getpid) == first
    process = own._process
    assert process is not None
    own.close()
    assert process.returncode is not None


def test_a_death_costs_one_call(own: Oracle) -> None:
    first = own.call("its number", os.getpid)
    with pytest.raises(Failed, match=r"^The library, asked for an abort: its process ended with ") as death:
        own.call("an abort", print_and_abort)
    assert death.value.msg is not None
    assert death.value.msg.splitlines()[1:] == ["said to standard output", "said to standard error"]
    assert death.value.pytrace is False
    if os.name == "posix":
        assert "its process ended with signal 6 (Aborted)" in death.value.msg
    assert own.call("its number", os.getpid) != first


@pytest.mark.parametrize("status", [0, 3])
def test_an_exit_is_a_death(own: Oracle, status: int) -> None:
    with pytest.raises(Failed, match=f"asked for an end: its process ended with exit status {status}$"):
        own.call("an end", os._exit, status)
    assert own.call("a length", len, "abc") == 3


def test_a_hang_is_ended_by_the_limit(own: Oracle) -> None:
    first = own.call("its number", os.getpid)
    start = time.monotonic()
    with pytest.raises(Failed, match=r"^The library, asked for an hour: no answer in 0\.2 seconds$"):
        own.call("an hour", time.sleep, 3600, seconds=0.2)
    assert time.monotonic() - start < 30
    assert own.call("its number", os.getpid) != first


def test_an_exception_arrives_and_the_process_stays(own: Oracle) -> None:
    first = own.call("its number", os.getpid)
    with pytest.raises(OracleError, match=r"^ValueError: invalid literal for int\(\) with base 10: 'seven'$"):
        own.call("a number", int, "seven")
    assert own.call("its number", os.getpid) == first


def test_what_it_prints_is_no_answer(own: Oracle) -> None:
    assert own.call("a value", print_and_return, 5) == 5


def test_an_interrupted_call_leaves_no_answer_for_the_next(own: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    own.call("its number", os.getpid)
    with monkeypatch.context() as patch:
        patch.setattr(pickle, "load", interrupt)
        with pytest.raises(KeyboardInterrupt):
            own.call("a length", len, "abc")
    assert own.call("a length", len, "abcde") == 5


def lose(own: Oracle, monkeypatch: pytest.MonkeyPatch, topic: str, test: str) -> list[str]:
    """The lines of the message of a test in which the process dies."""
    monkeypatch.setenv("PYTEST_CURRENT_TEST", test)
    with pytest.raises(Failed) as death:
        own.call(topic, os._exit, 3)
    return str(death.value.msg).splitlines()


def test_what_kills_it_in_test_after_test_is_not_asked_again(own: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """One test may lose the process any number of times, because Hypothesis looks for the smallest example."""
    refusal = f"Not asked again, after {MOST_LOSSES} tests in a row that ended so."
    for test in ["first", "first", "first", "second"]:
        (line,) = lose(own, monkeypatch, "an end", test)
    assert own.call("an end", len, "abc") == 3, "an answer ends the row"
    for number in range(MOST_LOSSES):
        assert lose(own, monkeypatch, "an end", f"{number}") == [line]
    assert lose(own, monkeypatch, "an end", "next") == [line, refusal]
    assert own._process is None
    assert own.call("something else", len, "abc") == 3


def test_where_the_library_never_works_each_call_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    def count(*arguments: object, **options: object) -> object:
        begun.append(arguments)
        return popen(*arguments, **options)  # type: ignore[call-overload]

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", count)
    own = Oracle("The library", os.abort)
    for _ in range(3):
        with pytest.raises(Failed) as failure:
            own.call("its number", os.getpid)
        assert str(failure.value.msg).startswith(
            "The library does not work on this machine, not even for what always works: its process ended with "
        )
        assert len(str(failure.value.msg).splitlines()) == 1
    assert len(begun) == 1


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0xC000001D, "its process ended with 0xC000001D (illegal instruction)"),
        (0xC0000005, "its process ended with 0xC0000005 (access violation)"),
        (0xC0000135, "its process ended with exit status 0xC0000135"),
        (1, "its process ended with exit status 1"),
        (-int(signal.SIGILL), "its process ended with signal 4 (Illegal instruction)"),
    ],
)
def test_endings_have_names(code: int, text: str) -> None:
    assert ending(code) == text


def test_onnx_runtime_s_exceptions_arrive() -> None:
    with pytest.raises(OracleError, match=r"\[ONNXRuntimeError\] .* No Op registered for NoSuchOperator"):
        run_node("NoSuchOperator", [np.ones(1, np.float32)], np.float32, 13)
    assert run_node("Neg", [np.ones(1, np.float32)], np.float32, 13).tolist() == [-1]


def test_the_tests_own_process_does_not_load_onnx_runtime() -> None:
    """Otherwise a test that calls ONNX Runtime in its own process would not be noticed until a crash."""
    assert sys.modules["onnxruntime"] is None
    with pytest.raises(ImportError):
        import onnxruntime  # noqa: F401
