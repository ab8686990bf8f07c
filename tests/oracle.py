"""A library that tests ask as an oracle, in a process of its own: what it does there costs the test that asked.

Loaded into the tests' own process, its crash (at an instruction that the processor or an emulator lacks, say) would end
the whole run, and so would its hang.
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
# For one answer. The first one of a process takes seconds: it imports the library.
ANSWER_SECONDS = 120.0
# What the process printed before its end is shown from here.
PRINTED_TAIL = 2000
# Tests in a row that may lose the process over one topic, until it is not asked about that any more: a hundred crashes
# under Wine, each with a new start, take a quarter of an hour, and a hundred hangs do not end.
MOST_LOSSES = 3
# Exit codes of Windows that mean the end of a process by force.
WINDOWS_CODES = {
    0xC0000005: "access violation",
    0xC000001D: "illegal instruction",
    0xC00000FD: "stack overflow",
    0xC0000374: "heap corruption",
    0xC0000409: "abort or overrun buffer",
}


class OracleError(Exception):
    """An exception that was raised in the oracle's process: its type and message."""


class _LostError(Exception):
    """The oracle's process gave no answer; says why."""


class Oracle:
    """A process that calls functions: begun at the first call, kept for those that follow, begun anew after its end.

    Parameters
    ----------
    name : str
        The library's, for messages.
    probe : callable
        A call that works wherever the library works at all; each process is asked for it first. Where it fails, every
        call fails with its reason from then on, and no process is begun any more.
    """

    def __init__(self, name: str, probe: Callable[[], object]) -> None:
        self.name = name
        self._probe = probe
        self._process: subprocess.Popen[bytes] | None = None
        self._printed: IO[bytes] | None = None
        self._unusable: str | None = None
        self._losses: dict[str, dict[str, str]] = {}  # by topic and test, since its last answer: why
        atexit.register(self.close)

    def call(self, topic: str, function: Callable[..., Any], *arguments: Any, seconds: float = ANSWER_SECONDS) -> Any:
        """What a function returns in the oracle's process.

        Parameters
        ----------
        topic : str
            What the library is asked for, for messages.
        function : callable
            A function of a module: it travels by its name.
        *arguments
            What pickle takes, as the result is.
        seconds : float
            How long to wait for the result.

        Raises
        ------
        OracleError
            The function raised an exception. The process stays.
        pytest.fail.Exception
            The process ended, or was ended because it took too long, or does not work on this machine at all: the test
            fails with a line that says which, and with what the process printed last. So it does without being asked
            where MOST_LOSSES tests in a row lost it over this topic.
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
        question = pickle.dumps((function, arguments))  # what cannot be sent is an error of the test's own
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
            self.close()  # an answer to this would be taken for the next one's
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
    """How a process ended, from its exit code as subprocess gives it: negative where it is the number of a signal."""
    if code < 0:
        return f"its process ended with signal {-code} ({signal.strsignal(-code)})"
    if code in WINDOWS_CODES:
        return f"its process ended with 0x{code:08X} ({WINDOWS_CODES[code]})"
    return f"its process ended with exit status {code if code < 1 << 16 else f'0x{code:08X}'}"


def _serve() -> None:
    """Answer what comes in by standard input, until it is closed."""
    questions = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the library prints is not to lie between the answers
    while True:
        try:
            function, arguments = pickle.load(questions)
        except EOFError:
            return
        try:
            answer = pickle.dumps((True, function(*arguments)))
        except Exception as error:  # the library's own types of exceptions would have to be imported to be read
            answer = pickle.dumps((False, f"{type(error).__name__}: {error}"))
        answers.write(answer)
        answers.flush()


if __name__ == "__main__":
    _serve()
