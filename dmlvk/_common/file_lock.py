"""Locks between processes, which no exception from a signal handler can leave taken in this one."""

from __future__ import annotations

import _thread
import sys
import threading
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, TypeAlias
from weakref import ref

# Windows calls no signal handler in the middle of a wait.
LONGEST_WAIT_SECONDS = 0.1
# An error, or None when the file is taken, and when it is released.
Answers: TypeAlias = "SimpleQueue[BaseException | None]"


class FileLock:
    """A file that one process holds at a time, by `with`.

    filelock has locks of its own around what it knows of all files. An exception from a signal handler (Ctrl-C) in the
    middle of filelock leaves these taken, and the next use of filelock in this process waits for ever. Handlers run on
    the main thread alone. So there another thread takes the file, holds it, and releases it.

    path: the file that is held. It is made if it is not there.
    timeout: seconds to wait for other processes.
    Raises OSError: by `with`: the file cannot be written, or is held for too long (TimeoutError).
    Raises NotImplementedError: by `with`: the file system has no locks.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._here: Any = None
        self._answers: Answers = SimpleQueue()
        self._end: SimpleQueue[object] = SimpleQueue()

    def __enter__(self) -> None:
        if not self._begins_elsewhere():
            self._here = _file_lock(self._path, self._timeout)
            self._here.acquire()
            return
        self._wait()

    def _begins_elsewhere(self) -> bool:
        """Let another thread take the file, if this is the main one and another can be started."""
        if sys.is_finalizing() or _thread.get_ident() != threading.main_thread().ident:
            return False
        try:
            # If an exception strikes before `__exit__`, this object goes, and the call-back ends the other thread: no
            # code in Python that a handler could interrupt.
            gone = ref(self, self._end.put)
            _thread.start_new_thread(_hold, (self._path, self._timeout, self._answers, self._end, gone))
        except RuntimeError:  # at the interpreter's end, or at a limit of the system
            return False
        return True

    def _wait(self) -> None:
        while True:
            with suppress(Empty):
                error = self._answers.get(timeout=LONGEST_WAIT_SECONDS)
                break
        if error is not None:
            raise error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._here is not None:
            self._here.release()
            return
        self._end.put(None)
        self._wait()


def _hold(path: Path, timeout: float, answers: Answers, end: SimpleQueue[object], gone: ref[FileLock]) -> None:
    """On a thread of its own: hold a file until the end. `gone` is kept, because it tells the end too."""
    try:
        with _file_lock(path, timeout):
            answers.put(None)
            end.get()
        answers.put(None)
    except BaseException as error:
        answers.put(error)


def _file_lock(path: Path, timeout: float) -> Any:
    import filelock  # a program that writes no file never needs this module

    return filelock.FileLock(path, timeout=timeout)
