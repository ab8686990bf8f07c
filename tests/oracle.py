"""Runs a library that tests use as an oracle, in a process of its own: its crash costs only the test that called it.

In the tests' own process, a crash (at an instruction that the processor or an emulator lacks, for example) would end
the whole run, and so would a hang.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
# The limit for one call. The first call of a process takes seconds, because it imports the library.
ANSWER_SECONDS = 120.0
# A failure shows at most this many of the last bytes that the process printed.
PRINTED_TAIL = 2000
# After this many tests in a row that lost the process at one topic, calls of the topic fail at once. A hundred crashes
# under Wine, each with a new start, take a quarter of an hour, and a hundred hangs do not end.
MOST_LOSSES = 3
# Exit codes of processes that Windows ended.
WINDOWS_CODES = {
    0xC0000005: "access violation",
    0xC000001D: "illegal instruction",
    0xC00000FD: "stack overflow",
    0xC0000374: "heap corruption",
    0xC0000409: "abort or overrun buffer",
}


class OracleError(Exception):
    """An exception of the oracle's process, by its type and message."""


class _LostError(Exception):
    """The oracle's process gave no answer. The message is the reason."""


class Oracle:
    """A process that calls functions. The first call starts it, later calls use it, and one after its end restarts it.

    Parameters
    ----------
    name : str
        The library's name, for messages.
    probe : callable
        A call that works wherever the library works at all. Each process makes it first. If it fails, every later call
        fails with the same reason, and no other process is started.
    """

    def __init__(self, name: str, probe: Callable[[], object]) -> None:
        self.name = name
        self._probe = probe
        self._process: subprocess.Popen[bytes] | None = None
        self._printed: IO[bytes] | None = None
        self._unusable: str | None = None
        self._losses: dict[str, dict[str, str]] = {}  # the reasons by topic and test, since the topic's last answer
        atexit.register(self.close)

    def call(self, topic: str, function: Callable[..., Any], *arguments: Any, seconds: float = ANSWER_SECONDS) -> Any:
        """Call a function in the oracle's process and return its result.

        Parameters
        ----------
        topic : str
            The subject of the call, for messages.
        function : callable
            A function of a module: pickle sends its name.
        *arguments
            Arguments that pickle can send. The result has to be such a value too.
        seconds : float
            The limit for the call.

        Raises
        ------
        OracleError
            The function raised an exception. The process stays.
        pytest.fail.Exception
            The process ended, or it took too long and was ended, or the library does not work on this machine. The test
            fails with the reason and the last output of the process. If MOST_LOSSES tests in a row lost the process at
            this topic, the test fails without a call.
        """
        losses = self._losses.setdefault(topic, {})
        if self._process is None and self._unusable is None and len(losses) < MOST_LOSSES:
            self._start()
        if self._unusable is not None:
            failure = self._unusable
        elif len(losses) >= MOST_LOSSES:
            failure = f"{[*losses.values()][-1]}\nNot asked again, after {len(losses)} tests in a row that ended so."
        else:
            try:
                answer = self._ask(function, arguments, seconds)
                losses.clear()
                return answer
            except _LostError as error:
                failure = f"{self.name}, asked for {topic}: {error}"
                losses[os.environ.get("PYTEST_CURRENT_TEST", "")] = failure
        pytest.fail(failure, pytrace=False)

    def close(self) -> None:
        """End the process, if there is one."""
        process, printed = self._process, self._printed
        self._process = self._printed = None
        if process is not None and printed is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, printed):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()

    def _start(self) -> None:
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.oracle"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._printed,
        )
        try:
            self._ask(self._probe, (), ANSWER_SECONDS)
        except (OracleError, _LostError) as error:
            self.close()
            self._unusable = f"{self.name} does not work on this machine, not even for what always works: {error}"

    def _ask(self, function: Callable[..., Any], arguments: tuple[Any, ...], seconds: float) -> Any:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        question = pickle.dumps((function, arguments))  # arguments that cannot be sent are an error of the test
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            process.kill()

        timer = threading.Timer(seconds, expire)
        timer.start()
        try:
            try:
                process.stdin.write(question)
                process.stdin.flush()
                succeeded, answer = pickle.load(process.stdout)
            except (OSError, EOFError, pickle.UnpicklingError):
                process.wait()
        except BaseException:
            self.close()  # otherwise the next call would read the answer of this one
            raise
        finally:
            timer.cancel()
            timer.join()
        if process.returncode is None and not expired.is_set():
            if succeeded:
                return answer
            raise OracleError(answer)
        reason = f"no answer in {seconds:g} seconds" if expired.is_set() else ending(process.returncode)
        printed = self._last_printed()
        self.close()
        raise _LostError("\n".join(filter(None, [reason, printed])))

    def _last_printed(self) -> str:
        assert self._printed is not None
        self._printed.seek(max(0, self._printed.seek(0, os.SEEK_END) - PRINTED_TAIL))
        return self._printed.read().decode(errors="replace").strip()


def ending(code: int) -> str:
    """How a process ended, from the exit code of subprocess: the negated number of a signal if it is negative."""
    if code < 0:
        return f"its process ended with signal {-code} ({signal.strsignal(-code)})"
    if code in WINDOWS_CODES:
        return f"its process ended with 0x{code:08X} ({WINDOWS_CODES[code]})"
    return f"its process ended with exit status {code if code < 1 << 16 else f'0x{code:08X}'}"


def _serve() -> None:
    """Answer the calls that arrive at standard input, until it is closed."""
    questions = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the library's output must not mix with the answers
    while True:
        try:
            function, arguments = pickle.load(questions)
        except EOFError:
            return
        try:
            answer = pickle.dumps((True, function(*arguments)))
        except Exception as error:  # unpickling the library's own exceptions would import the library
            answer = pickle.dumps((False, f"{type(error).__name__}: {error}"))
        answers.write(answer)
        answers.flush()


if __name__ == "__main__":
    _serve()
