"""A reader of the output that goes away, as Windows says it, and errors that only look like it."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from dmlvk.command_line import main, standard_streams
from dmlvk.command_line.standard_streams import PipeOfWindows, name_readers_ends
from dmlvk.command_line.terminal import BROKEN_PIPE, Commands, clear_errors


class Failing(io.RawIOBase):
    """A stream to a pipe, of which every write fails."""

    def __init__(self, descriptor: int, number: int = errno.EINVAL) -> None:
        self._descriptor, self._number = descriptor, number

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        if self._number:
            raise OSError(self._number, os.strerror(self._number))
        return len(bytes(data))  # type: ignore[call-overload]

    def close(self) -> None:
        """End without a last flush's error."""
        self._number = 0
        super().close()


def text_stream(raw: Failing, line_buffering: bool = False) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors="replace", line_buffering=line_buffering)


@pytest.fixture
def pipe() -> Iterator[int]:
    """The end of a pipe to which is written."""
    reader, writer = os.pipe()
    yield writer
    os.close(reader)
    os.close(writer)


@pytest.fixture
def _windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_streams, "SAYS_EINVAL", True)


@pytest.mark.parametrize("text", ["a\n", "a" * 100_000], ids=["short", "long"])
def test_einval_of_the_stream_is_the_reader_s_end(pipe: int, text: str) -> None:
    """At the flush, and at once if the text does not fit into the buffers."""
    raw = Failing(pipe)
    stream = PipeOfWindows(text_stream(raw))
    with pytest.raises(BrokenPipeError) as raised:
        stream.write(text)
        stream.flush()
    assert standard_streams.is_readers_end(raised.value)
    raw.close()


def test_other_errors_of_the_stream_stay(pipe: int) -> None:
    raw = Failing(pipe, errno.ENOSPC)
    stream = PipeOfWindows(text_stream(raw))
    stream.write("a")
    with pytest.raises(OSError, match="No space") as raised:
        stream.flush()
    assert not standard_streams.is_readers_end(raised.value)
    raw.close()


@pytest.mark.usefixtures("_windows")
@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_both_outputs_are_prepared_once_and_write_as_before(
    name: str, pipe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = text_stream(Failing(pipe, 0), line_buffering=name == "stderr")
    monkeypatch.setattr(sys, name, before)
    name_readers_ends()
    after = getattr(sys, name)
    assert isinstance(after, PipeOfWindows)
    for member in ("encoding", "errors", "line_buffering", "write_through"):
        assert getattr(after, member) == getattr(before, member)
    name_readers_ends()
    assert getattr(sys, name) is after


@pytest.mark.usefixtures("_windows")
def test_streams_that_are_no_pipes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull, "w") as file:
        for stream in (file, io.TextIOWrapper(io.BytesIO()), io.StringIO()):
            monkeypatch.setattr(sys, "stdout", stream)
            name_readers_ends()
            assert sys.stdout is stream


@pytest.mark.usefixtures("_windows")
@pytest.mark.parametrize("arguments", [["--help"], ["bench", "--list"]], ids=" ".join)
def test_a_command_whose_reader_goes_away_ends_without_a_message(
    arguments: list[str], pipe: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = Failing(pipe)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", text_stream(raw))
        with pytest.raises(SystemExit) as ended:
            main.main(arguments)
        raw.close()
    assert ended.value.code in (1, BROKEN_PIPE)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("_windows")
def test_einval_of_anything_else_is_an_error() -> None:
    @click.group(cls=Commands)
    def group() -> None:
        pass

    @group.command()
    @clear_errors
    def broken() -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    finished = CliRunner().invoke(group, ["broken"])
    assert (finished.exit_code, finished.output) == (1, "Error: [Errno 22] Invalid argument\n")
