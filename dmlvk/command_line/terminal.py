"""Shared by the subcommands: how they print, and how they end on an error that the user can correct."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from dmlvk import planning
from dmlvk._common import files
from dmlvk._printable import printable
from dmlvk.command_line.standard_streams import (
    encode_everything,
    is_readers_end,
    name_readers_ends,
    open_closed_streams,
)
from dmlvk.conformance.errors import ConformanceError
from dmlvk.dxdispatch.errors import ModelError
from dmlvk.errors import BindingError, DescriptorError, DeviceError
from dmlvk.runtime import background, self_test
from dmlvk.runtime.debug import debug_level
from dmlvk.runtime.tuned_paths import record_file
from dmlvk.vulkan.library import require_validation_setting
from dmlvk.vulkan.pipeline_cache import cache_folder

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

COMPILED = "kernels compiled"
INTERRUPTED = 130  # a shell's status for a program that Ctrl-C ended
BROKEN_PIPE = 141  # a shell's status for a program whose reader closed the pipe
# The least seconds between two lines of progress where the output is not a terminal.
LINE_SECONDS = 10.0
# The longest message: a message may quote a whole file.
MOST_CHARACTERS = 4000
# Errors that the user can correct.
CORRECTABLE = (
    BindingError,
    ConformanceError,
    DescriptorError,
    DeviceError,
    ModelError,
    planning.PathError,
    OSError,
)


def echo(text: str, *, is_error: bool = False, is_multiline: bool = False) -> None:
    """Print a line of text, or several if it is said so. Nothing in it is obeyed by a terminal."""
    click.echo(printable(text, is_multiline=is_multiline), err=is_error)


def clear_errors(command: Callable[..., None]) -> Callable[..., None]:
    """End with one line and status 1 on an error that the user can correct. A traceback is for bugs."""

    @wraps(command)
    def guarded(*arguments: Any, **options: Any) -> None:
        require_settings()
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                command(*arguments, **options)
        except CORRECTABLE as error:
            if is_readers_end(error):
                raise
            raise click.ClickException(one_line(error)) from error

    return guarded


@contextmanager
def ended_early() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second one interrupts."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = signal.getsignal(signal.SIGINT)

    def end(*_: Any) -> None:
        event.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, end)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """A warning as one line, without the place in the sources from which it came."""
    echo(f"Warning: {' '.join(str(message).split())}", is_error=True)


def one_line(error: Exception) -> str:
    """An error's message in one line."""
    text = printable(" ".join(str(error).split()))
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} ..."


def require_settings() -> None:
    """Check, before any work, that the variables DMLVK_... have valid values."""
    try:
        debug_level()
        background.is_allowed()
        if name := os.environ.get("DMLVK_KERNEL"):
            planning.require_path_name(name)
        record_file()
        self_test.mode()
        require_validation_setting()
        folder = cache_folder()
        if folder is not None and os.environ.get("DMLVK_CACHE_DIR"):
            files.require_folder_place(folder, "DMLVK_CACHE_DIR: ")
    except (OSError, ValueError) as error:
        raise click.ClickException(one_line(error)) from error


class WrongCommandLine(click.ClickException):
    """A click.UsageError as one line."""

    exit_code = click.UsageError.exit_code


class Commands(click.Group):
    """Ends with one line, where click prints several (a wrong command line) or "Aborted!" (Ctrl-C).

    A closed standard output counts as one that nobody reads. If a reader closes the pipe, as `head` does, it has seen
    enough, and the command ends without a message.
    """

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run the command line, and flush the output while a failure can still be reported."""
        open_closed_streams()
        name_readers_ends()
        encode_everything()
        try:
            return super().main(*arguments, **options)
        except OSError as error:  # an error in click's own output, such as --help
            if is_readers_end(error):
                raise SystemExit(BROKEN_PIPE) from None
            echo(f"Error: {one_line(error)}", is_error=True)
            raise SystemExit(1) from None
        finally:
            _flush(sys.exc_info()[1])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the named command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            echo("Interrupted", is_error=True)
            ctx.exit(INTERRUPTED)
        except OSError as error:
            if not is_readers_end(error):
                raise
            ctx.exit(BROKEN_PIPE)
        except click.UsageError as error:
            command = (error.ctx or ctx).command_path
            text = printable(" ".join(error.format_message().split()))
            raise WrongCommandLine(f"{text.rstrip('.')}; {command} --help tells more") from error
        except click.ClickException as error:
            raise click.ClickException(one_line(error)) from error


def _flush(ending: BaseException | None) -> None:
    """Flush standard output. If a write fails, it is not tried again when the interpreter ends."""
    try:
        sys.stdout.flush()
    except OSError as error:
        with suppress(OSError, ValueError):  # not a file, in a test
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stdout.fileno())
            os.close(null)
        if ending is not None and not (isinstance(ending, SystemExit) and not ending.code):
            return  # with a status of its own
        if is_readers_end(error):
            raise SystemExit(BROKEN_PIPE) from None
        echo(f"Error: standard output: {one_line(error)}", is_error=True)
        raise SystemExit(1) from None


class PlainConsole(Console):
    """A terminal for names from outside: [brackets], :colons: and codes for terminals in a string mean nothing.

    A string is one line, and shows as it is. Coloured text, and text of several lines, is a `rich.text.Text`; what a
    terminal would obey in it is an escape too.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:  # type: ignore[override]
        """A string of a table, a title, a line."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """All that is printed, in pieces."""
        for piece in super().render(renderable, options):
            if piece.control or piece.text.isprintable():
                yield piece
            else:
                yield Segment(printable(piece.text, is_multiline=True), piece.style)

    def on_broken_pipe(self) -> NoReturn:
        """Tell the caller that prints; rich would end the process."""
        raise


def console() -> Console:
    """The terminal. In a file or a pipe, a table is as wide as its text, not cut to a guessed width."""
    return PlainConsole() if sys.stdout.isatty() else PlainConsole(width=200, soft_wrap=False)


def require_names(option: str, given: Iterable[str], known: Iterable[str]) -> None:
    """If an option names something unknown, end with a message that lists the known names."""
    names = list(known)
    for name in given:
        if name not in names:
            raise click.BadParameter(f"there is no {name!r}; there are {', '.join(names)}", param_hint=option)


class Lines:
    """Progress where the output is no terminal: a line on standard error now and then.

    total: the number of steps; 0 if it is not known.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._begun = -1
        self._start = self._last = time.monotonic()

    def step(self, name: str) -> None:
        """A step of this name begins."""
        self._begun += 1
        self.show(f"{self._begun} of {self._total}, {name}" if self._total else name)

    def show(self, text: str) -> None:
        """Print a line, if the last one was long ago."""
        now = time.monotonic()
        if now - self._last >= LINE_SECONDS:
            self._last = now
            echo(f"{now - self._start:.0f} s: {text}", is_error=True)


class Steps:
    """What a progress bar is told. Without a bar, a line is printed now and then.

    total: the number of steps; 0 for no bar of the steps.
    """

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._lines = Lines(total)
        self._task = None if progress is None or not total else progress.add_task("", total=total)
        self._begun = -1

    def __call__(self, name: str) -> None:
        """A step of this name begins."""
        if self._progress is None:
            self._lines.step(name)
        elif self._task is not None:
            self._begun += 1
            self._progress.update(self._task, completed=self._begun, description=printable(name))

    def parts(self, what: str) -> Callable[[int, int], None]:
        """A function to call with how many parts of a step are done, and how many there are: they have a second bar.

        It is shown while there are parts to be done. Any thread may call the function.
        """
        tasks: list[TaskID] = []

        def show(done: int, total: int) -> None:
            if self._progress is None:
                self._lines.show(f"{done} of {total} {what}")
                return
            if not tasks:
                tasks.append(self._progress.add_task(what, total=total))
            is_done = done >= total
            self._progress.update(tasks[0], completed=done, total=total, visible=not is_done, refresh=is_done)

        return show


@contextmanager
def shown_progress(terminal: Console, total: int = 0) -> Iterator[Steps]:
    """A progress bar on a terminal, a line now and then elsewhere.

    Yields an object to call with each step's name as it begins.
    """
    if not terminal.is_terminal:
        yield Steps(None, total)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False)
    with Progress(*columns, console=terminal, transient=True) as progress:
        yield Steps(progress, total)


@contextmanager
def shown_parts(terminal: Console, what: str) -> Iterator[Callable[[int, int], None]]:
    """As `Steps.parts`, of a bar that is gone as soon as all parts are done: what is printed then is not wrapped."""
    with ExitStack() as stack:
        shown: list[Callable[[int, int], None]] = []

        def show(done: int, total: int) -> None:
            if done < total and not shown:
                shown.append(stack.enter_context(shown_progress(terminal)).parts(what))
            for each in shown:
                each(done, total)
            if done >= total:
                shown.clear()
                stack.close()

        yield show
