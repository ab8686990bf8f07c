"""Standard output and standard error that are closed, or that nobody reads any more."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

OUTPUTS = ("stdout", "stderr")
# Whether this system says by EINVAL that the reader of a pipe has gone away.
SAYS_EINVAL = os.name == "nt"


def open_closed_streams() -> None:
    """Open the null device for closed standard streams: else the next file that is opened would take their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It gets the lowest free descriptor: the stream's own, unless a library has already taken that.
            setattr(sys, name, open(os.open(os.devnull, os.O_RDWR), mode))  # noqa: SIM115 open to the end


def is_readers_end(error: BaseException) -> bool:
    """Whether an error says that standard output has no reader any more. An error of a file has the file's name.

    On Windows this holds of what `name_readers_ends` has prepared.
    """
    return isinstance(error, BrokenPipeError) and error.filename is None


class PipeOfWindows(io.TextIOWrapper):
    """An output stream that raises BrokenPipeError if its reader has gone away, as on other systems.

    Windows says so by EINVAL, which Python raises as a bare OSError. In an error of anything else EINVAL is an error.

    stream: writes to a pipe. It must not be written to from now on.
    """

    def __init__(self, stream: io.TextIOWrapper) -> None:
        with suppress(OSError):  # the next flush says it again
            stream.flush()
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self._stream = stream  # the end of its life would close the pipe

    def write(self, text: str, /) -> int:
        """Write text, as any stream."""
        with _einval_is_readers_end():
            return super().write(text)

    def flush(self) -> None:
        """Flush, as any stream."""
        with _einval_is_readers_end():
            super().flush()


@contextmanager
def _einval_is_readers_end() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from error


def name_readers_ends() -> None:
    """On Windows, let standard output and standard error say by its name that their reader has gone away."""
    for name in OUTPUTS:
        stream = getattr(sys, name)
        if SAYS_EINVAL and type(stream) is io.TextIOWrapper and is_pipe(stream):
            setattr(sys, name, PipeOfWindows(stream))


def encode_everything() -> None:
    """Let standard output and standard error write an escape for a character that their encoding lacks."""
    for name in OUTPUTS:
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def is_pipe(stream: io.TextIOWrapper) -> bool:
    """Whether a stream writes to a pipe."""
    try:
        return stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # it has no descriptor, or is closed
        return False
