"""Runs cases in worker processes that are watched and restarted, and runs failed ones again: a crash costs one case."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

import dmlvk
from dmlvk.conformance.privacy import without_home
from dmlvk.conformance.results import PASSED, Environment, Result, Status
from dmlvk.conformance.running.worker import WorkerConfiguration
from dmlvk.device_profile import DeviceType
from dmlvk.errors import DeviceError

# The profile and the name of a case.
Item: TypeAlias = tuple[str, str]
# Messages of workers; None at the end of a worker.
Inbox: TypeAlias = "queue.Queue[tuple[Worker, dict[str, Any] | None]]"

# A worker is given this many cases ahead, so that it does not wait for its parent.
AHEAD = 4
# Seconds for starting Python and opening the device, and for closing it.
START_SECONDS = 120.0
QUIT_SECONDS = 20.0
# At most this many workers may die one after the other without having run a case.
FRUITLESS_STARTS = 3
MOST_WORKERS = 4
# In place of a case's name, in a result that reports that a device could not be closed.
CLOSING = "device:close"
# A message shows at most this many bytes from the end of a worker's standard error.
ERROR_TAIL = 2000


# Python puts the current folder first on the path for -m and for -c, and Python 3.10 has no option against that. Only
# `sys`, which is built in, is imported before the path is right.
WORKER = "import sys; sys.path[:] = sys.argv[1:]; from dmlvk.conformance.running.worker import main; main()"
SAFE_PATH = ("-P",) if sys.version_info >= (3, 11) else ()


def worker_path() -> list[str]:
    """The import path of a worker: this process's path, with the current folder moved to the end.

    So the worker runs the same dmlvk and NumPy as this process, whatever the current folder contains. It still finds a
    module of cases there if this process does. If this process imported dmlvk from the current folder, the path is
    left unchanged.
    """
    try:
        here = os.getcwd()
    except FileNotFoundError:  # a deleted folder contains no code
        return [entry for entry in sys.path if entry]
    path = [entry or here for entry in sys.path]
    elsewhere = [entry for entry in path if os.path.realpath(entry) != here]
    if os.path.realpath(here) == str(Path(dmlvk.__file__).resolve().parents[1]) or len(elsewhere) == len(path):
        return path
    return [*elsewhere, here]


class Worker:
    """One worker process and its cases.

    assigned: the cases given to it and not finished, in order.
    current: the case that it has started.
    """

    def __init__(self, configuration: WorkerConfiguration, variables: Mapping[str, str], inbox: Inbox) -> None:
        self.assigned: deque[Item] = deque()
        self.current: Item | None = None
        self.is_ready = False
        self.has_run = False
        self.last_message = time.monotonic()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 closed with the worker
        own_group: dict[str, Any] = (
            {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
            if os.name == "nt"
            else {"start_new_session": True}
        )  # Ctrl-C goes to the parent only, which ends its workers itself
        self._process = subprocess.Popen(
            [sys.executable, *SAFE_PATH, "-c", WORKER, *worker_path()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **variables},
            **own_group,
        )
        threading.Thread(target=self._read, args=(inbox,), daemon=True).start()
        self.send(configure=asdict(configuration))

    def _read(self, inbox: Inbox) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                inbox.put((self, json.loads(line)))
            except ValueError:
                break  # cut short by the process's end
        inbox.put((self, None))

    def send(self, **message: Any) -> None:
        """Send a message. If the process is gone, the reader of its answers notices that."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def assign(self, item: Item) -> None:
        """Give the worker a case."""
        if not self.assigned:
            self.last_message = time.monotonic()
        self.assigned.append(item)
        self.send(run=list(item))

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        self._release()

    def quit(self) -> str:
        """Ask the worker to close its devices and end. Returns an error text, empty if all went well."""
        self.send(quit=True)
        try:
            self._process.wait(QUIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"closing the device took more than {QUIT_SECONDS:.0f} s"
        text = "" if self._process.returncode == 0 else f"closing the device: {self.ending()}\n{self.errors()}"
        self._release()
        return text

    def _release(self) -> None:
        for stream in (self._process.stdin, self._errors):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def ending(self) -> str:
        """How the process ended: "crash:SIGSEGV", "crash:exit status 0xc0000005"."""
        try:
            code = self._process.wait(QUIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code < 0:
            try:
                return f"crash:{signal.Signals(-code).name}"
            except ValueError:
                return f"crash:signal {-code}"
        return f"crash:exit status {hex(code) if code > 255 else code}"

    def errors(self) -> str:
        """The last part of the worker's standard error."""
        try:
            size = self._errors.seek(0, os.SEEK_END)
            self._errors.seek(max(0, size - ERROR_TAIL))
            return without_home(self._errors.read().decode(errors="replace").strip())
        except ValueError:  # closed
            return ""


class Runner:
    """Runs cases and yields each result as it arrives. Used in a `with` statement, which ends the processes.

    timeout: the time limit of a case, in seconds.
    jobs: worker processes at a time. None: one worker, or on a CPU driver one for each core, at most four. A lost
        device is lost to all workers, so on a GPU only a single worker shows at once which case was at fault.
    validate: whether the Khronos validation layer is enabled, with synchronization validation.
    environment: known from the first result on.
    """

    def __init__(
        self, configuration: WorkerConfiguration, *, timeout: float, jobs: int | None = None, validate: bool = False
    ) -> None:
        self._variables = {"DMLVK_VALIDATE": "synchronization"} if validate else {}
        self._configuration = configuration
        self._timeout = timeout
        self._jobs = jobs
        self._inbox: Inbox = queue.Queue()
        self._workers: list[Worker] = []
        self._pending: deque[Item] = deque()
        self._fruitless = 0
        self.environment: Environment | None = None

    def run(self, items: Sequence[Item]) -> Iterator[Result]:
        """Run cases.

        Raises DeviceError: there is no device to run on.
        """
        self.open()
        lost = []
        for result in self._run(items):
            if result.reason == "VK_ERROR_DEVICE_LOST" and self._limit() > 1:
                lost.append(result)
            else:
                yield result
        yield from self._one_by_one(lost)
        yield from self._quit()

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.kill()
        self._workers.clear()

    def _one_by_one(self, lost: list[Result]) -> Iterator[Result]:
        """Run again, one at a time, the cases that lost the device while others ran on it, to find the one at fault."""
        self._jobs = 1
        again = list(self._run([result.key for result in lost]))
        explained = any(result.status is Status.DEVICE_LOST for result in again)
        yield from again if explained else lost

    def open(self) -> Environment:
        """Start a first worker and learn about its device.

        Raises DeviceError: there is no device to run on.
        """
        if self.environment is None:
            self._start()
        while self.environment is None:
            self._receive()
        return self.environment

    def _limit(self) -> int:
        if self._jobs is not None:
            return self._jobs
        assert self.environment is not None
        is_cpu = self.environment.record["deviceType"] == DeviceType.CPU
        return min(os.cpu_count() or 1, MOST_WORKERS) if is_cpu else 1

    def _start(self) -> None:
        self._workers.append(Worker(self._configuration, self._variables, self._inbox))

    def _run(self, items: Sequence[Item]) -> Iterator[Result]:
        self._pending = deque(items)
        left = len(items)
        while left:
            self._fill()
            for result in self._receive():
                left -= 1
                yield result

    def _fill(self) -> None:
        while self._pending and len(self._workers) < self._limit():
            if len(self._workers) * AHEAD >= len(self._pending) + sum(len(w.assigned) for w in self._workers):
                break
            self._start()
        if not self._workers:
            self._start()
        for worker in self._workers[: self._limit()]:
            while self._pending and len(worker.assigned) < AHEAD:
                worker.assign(self._pending.popleft())

    def _receive(self) -> list[Result]:
        """Wait for a message or for the end of a worker's time; returns the results that follow."""
        try:
            worker, message = self._inbox.get(timeout=self._patience())
        except queue.Empty:
            return self._overdue()
        if worker not in self._workers:
            return []  # the message of a worker that was killed
        worker.last_message = time.monotonic()
        if message is None:
            return self._ended(worker)
        if "error" in message:
            raise DeviceError(message["error"])
        if "ready" in message:
            worker.is_ready = True
            self.environment = self.environment or Environment.from_json(message["ready"])
        elif "start" in message:
            worker.current = (message["start"][0], message["start"][1])
        elif "result" in message:
            worker.current = None
            worker.has_run = True
            worker.assigned.popleft()
            self._fruitless = 0
            return [Result.from_json(message["result"])]
        return []

    def _seconds(self, worker: Worker) -> float:
        return self._timeout if worker.is_ready else START_SECONDS

    def _patience(self) -> float:
        """Seconds until the first worker's time is over; at most 0.5, as Windows does not interrupt a longer wait."""
        now = time.monotonic()
        busy = [worker for worker in self._workers if worker.assigned or not worker.is_ready]
        left = [worker.last_message + self._seconds(worker) - now for worker in busy]
        return min(0.5, max(0.0, min(left, default=0.5)))

    def _overdue(self) -> list[Result]:
        now = time.monotonic()
        results = []
        for worker in tuple(self._workers):
            if (worker.assigned or not worker.is_ready) and now - worker.last_message >= self._seconds(worker):
                worker.kill()
                seconds = f"{self._seconds(worker):g}"
                results += self._lost(worker, Status.TIMEOUT, f"timeout:{seconds}", f"not done within {seconds} s")
        return results

    def _ended(self, worker: Worker) -> list[Result]:
        """Handle the end of a worker's pipe."""
        ending, errors = worker.ending(), worker.errors()
        worker.kill()
        message = (
            f"the process that ran it ended ({ending.removeprefix('crash:')}); its last output: {errors or 'none'}"
        )
        return self._lost(worker, Status.DEVICE_LOST, ending, message)

    def _lost(self, worker: Worker, status: Status, reason: str, message: str) -> list[Result]:
        """Put the cases that a worker had not begun back in front, and blame the case that it had begun."""
        self._workers.remove(worker)
        current = worker.current
        unfinished = [item for item in worker.assigned if item != current]
        self._pending.extendleft(reversed(unfinished))
        if current is not None:
            self._fruitless = 0
            profile, name = current
            return [Result(name, profile, status, reason, message, seconds=time.monotonic() - worker.last_message)]
        if not worker.has_run:
            self._fruitless += 1
        if self._fruitless >= FRUITLESS_STARTS or self.environment is None:
            raise DeviceError(f"the device could not be opened: {message}")
        return []

    def _quit(self) -> Iterator[Result]:
        """Close the devices properly: last messages of the driver and the validation layer count too."""
        while self._workers:
            worker = self._workers.pop()
            text = worker.quit()
            if text:
                yield Result(CLOSING, "device", Status.DEVICE_LOST, "crash:close", text)


# The beginning of the reason of a result that passed on a further run: "again:3" on the third.
AGAIN = "again:"


def run_again(
    run: Callable[[Sequence[Item]], Iterator[Result]], failed: Mapping[Item, Result], most_runs: Mapping[Item, int]
) -> Iterator[Result]:
    """Run failed cases again, until each has passed once or has no run left.

    run: runs cases and yields their results.
    failed: the results of the first run.
    most_runs: the number of further runs of each; 0 if absent.
    Yields for each of these cases: Flaky if a further run passed; otherwise the first result, which then says how often
        the case failed.
    """
    left = {item: result for item, result in failed.items() if most_runs.get(item, 0) > 0}
    number = 1
    while left:
        number += 1
        # What ended the process may keep cases from being run at all: their results do not come.
        for result in run(list(left)):
            if result.key in left and result.status in PASSED:
                yield _flaky(left.pop(result.key), number)
        for item in [item for item in left if most_runs[item] < number]:
            first = left.pop(item)
            yield replace(first, message=f"{first.message} (It failed in each of {number} runs.)".strip())


def _flaky(first: Result, number: int) -> Result:
    """The result of a case that failed first and passed on a later run."""
    reason = f" {first.reason}" if first.reason else ""
    text = f"it passed on run {number}; the first run was {first.status.value}{reason}: {first.message}"
    return replace(first, status=Status.FLAKY, reason=f"{AGAIN}{number}", message=text)
