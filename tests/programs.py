"""Python programs that tests run: each is a fork of one process that has imported dmlvk.

To import NumPy and dmlvk takes 0.7 s of a processor, which is most of what many of these programs take. A fork is a
process of its own, runs its program as `__main__`, and ends as an interpreter does. Unlike a process that was started,
it has modules already: tests of imports, of the interpreter's options and of its streams start one.
"""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
HAS_FORK = hasattr(os, "fork")
MEGABYTE = 1 << 20


def python(
    *arguments: object,
    env: dict[str, str] | None = None,
    cwd: Path | str | None = None,
    input: Any = None,
    text: bool = True,
    timeout: float | None = None,
    stdout: int | None = None,
) -> subprocess.CompletedProcess[Any]:
    """Run `python -c PROGRAM ...` or `python -m MODULE ...` and wait for its end, as `subprocess.run` does.

    Only `-W` may precede these options. Output is kept; that to `stdout`, a file descriptor, is not. Variables that the
    interpreter reads have no effect.
    """
    words = [*map(str, arguments)]
    environment = dict(os.environ if env is None else env)
    if not HAS_FORK:
        command = [sys.executable, *words]
        out = subprocess.PIPE if stdout is None else stdout
        return subprocess.run(
            command,
            env=environment,
            cwd=cwd,
            input=input,
            stdout=out,
            stderr=subprocess.PIPE,
            text=text,
            timeout=timeout,
        )
    with ExitStack() as stack:
        streams: list[IO[bytes]] = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        if input is not None:
            streams[0].write(input.encode() if text else input)
            streams[0].seek(0)
        given = [streams[0], streams[1] if stdout is None else stdout, streams[2]]
        code = _forks.run((words, environment, os.fspath(cwd or os.getcwd())), given, timeout)
        printed: list[Any] = []
        for stream in streams[1:]:
            stream.seek(0)
            printed.append(stream.read().decode() if text else stream.read())
    return subprocess.CompletedProcess(words, code, *printed)


class _Forks:
    """The process that forks, started by the first program; a thread runs one program at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def run(self, request: tuple[Any, ...], streams: Sequence[IO[bytes] | int], timeout: float | None) -> int:
        """Run a program; the exit code is that of subprocess: the negated number of a signal, if one ended it."""
        with self._lock:
            if self._socket is None:
                self._socket = self._started()
            message = pickle.dumps(request)
            socket.send_fds(
                self._socket, [message], [each if isinstance(each, int) else each.fileno() for each in streams]
            )
            child = int(self._socket.recv(64))
            self._socket.settimeout(timeout)
            try:
                return int(self._socket.recv(64))
            except TimeoutError:
                os.kill(child, signal.SIGKILL)
                self._socket.settimeout(None)
                self._socket.recv(64)
                assert timeout is not None
                raise subprocess.TimeoutExpired(request[0], timeout) from None

    def _started(self) -> socket.socket:
        # Messages have ends, unlike those of a stream.
        own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MEGABYTE)
        command = [sys.executable, "-m", "tests.programs", str(other.fileno())]
        process = subprocess.Popen(command, cwd=ROOT, pass_fds=[other.fileno()])
        other.close()

        def end() -> None:
            own.close()
            process.wait()

        atexit.register(end)
        return own


_forks = _Forks()


def _serve(requests: socket.socket) -> list[str] | None:
    """Fork a process a request until the tests end: None here, the command line in a fork."""
    import dmlvk  # noqa: F401

    gc.freeze()  # a collection in a fork would copy every page of the memory
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        message, streams, _, _ = socket.recv_fds(requests, MEGABYTE, 3)
        if not message:
            return None
        child = os.fork()
        if child == 0:
            requests.close()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            words, environment, folder = pickle.loads(message)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            # Made anew, since it knows whether it can seek.
            sys.stdout = open(1, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False)  # noqa: SIM115
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            return words
        for stream in streams:
            os.close(stream)
        requests.send(str(child).encode())
        requests.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def _run(words: list[str]) -> None:
    """Be the program of a command line."""
    while words[0] == "-W":
        warnings._processoptions([words[1]])  # type: ignore[attr-defined]
        del words[:2]
    option, program, *arguments = words
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    if option == "-c":
        sys.argv, sys.path[0] = ["-c", *arguments], ""
        exec(compile(program, "<string>", "exec"), main.__dict__)
    elif option == "-m":
        sys.argv, sys.path[0] = [program, *arguments], os.getcwd()
        runpy._run_module_as_main(program)  # type: ignore[attr-defined]
    else:
        raise ValueError(f"a program is given by -c or -m, not by {option}")


if __name__ == "__main__":
    command_line = _serve(socket.socket(fileno=int(sys.argv[1])))
    if command_line is not None:
        _run(command_line)
