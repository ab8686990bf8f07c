"""Locks between processes: held by one, free after an exception at any time."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import filelock
import pytest

from dmlvk._common.file_lock import FileLock

needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no timers that send signals")


def test_one_holds_it_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FileLock(path, 0.0):
        with pytest.raises(TimeoutError), FileLock(path, 0.0):
            pass
        with pytest.raises(filelock.Timeout):
            filelock.FileLock(path, timeout=0).acquire()
    with FileLock(path, 0.0):
        pass


def test_on_another_thread(tmp_path: Path) -> None:
    found: list[bool] = []

    def work() -> None:
        with FileLock(tmp_path / "lock", 0.0):
            found.append(filelock.FileLock(tmp_path / "lock").is_locked)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found


def test_another_process_waits(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from dmlvk._common.file_lock import FileLock\n"
    program += "with FileLock(Path(sys.argv[1]), 60): print('taken')"
    path = tmp_path / "lock"
    with FileLock(path, 0.0):
        process = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
        time.sleep(1.0)
        assert process.poll() is None
    assert process.communicate(timeout=60)[0].strip() == "taken"


def test_it_is_free_after_an_exception_between_taking_it_and_the_work(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock", 0.0)
    lock.__enter__()
    del lock
    with FileLock(tmp_path / "lock", 10.0):
        pass


@needs_signals
def test_exceptions_from_signal_handlers(tmp_path: Path) -> None:
    """At any time, filelock's own code included, which would wait for ever afterwards."""

    class Strike(Exception):
        pass

    def strike(*_: object) -> None:
        raise Strike

    path = tmp_path / "lock"
    struck = 0
    gc.disable()  # an exception in another library's callback of the collector would be reported as that library's
    earlier = signal.signal(signal.SIGALRM, strike)
    try:
        end = time.monotonic() + 60.0
        while struck < 1000 and time.monotonic() < end:
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + int.from_bytes(os.urandom(2), "little") * 1e-8)
                for _ in range(20):
                    with FileLock(path, 5.0):
                        pass
            except Strike:
                struck += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    except Strike:  # between the two last lines
        pass
    finally:
        signal.signal(signal.SIGALRM, earlier)
        gc.enable()
    assert struck > 100
    done = threading.Event()

    def take() -> None:
        with FileLock(path, 10.0):
            done.set()

    threading.Thread(target=take, daemon=True).start()
    assert done.wait(30.0)
