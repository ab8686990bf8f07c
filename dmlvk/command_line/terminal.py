"""What the subcommands share: how they print, and how they end where the user can put something right."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import click
from rich.console import Console

from dmlvk.conformance.errors import ConformanceError
from dmlvk.errors import BindingError, DescriptorError, DeviceError

INTERRUPTED = 130  # what a shell says of a program that Ctrl-C ended


def clear_errors(command: Callable[..., None]) -> Callable[..., None]:
    """End with one line and status 1 where something that the user can change is wrong; a traceback is for bugs."""

    @wraps(command)
    def guarded(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except (BindingError, ConformanceError, DescriptorError, DeviceError, OSError) as error:
            raise click.ClickException(one_line(error)) from error

    return guarded


def one_line(error: Exception) -> str:
    """An error's message in one line."""
    return " ".join(str(error).split())


class WrongCommandLine(click.ClickException):
    """A click.UsageError as one line."""

    exit_code = click.UsageError.exit_code


class Commands(click.Group):
    """Ends in one line where click takes more, for a wrong command line, or says "Aborted!", after Ctrl-C."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that is named."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except click.UsageError as error:
            command = (error.ctx or ctx).command_path
            text = " ".join(error.format_message().split())
            raise WrongCommandLine(f"{text.rstrip('.')}; {command} --help tells more") from error


def console() -> Console:
    """The terminal; into a file or a pipe a table is as wide as its text, rather than cut to a guess at a width."""
    return Console() if sys.stdout.isatty() else Console(width=200, soft_wrap=False)


def require_names(option: str, given: Iterable[str], known: Iterable[str]) -> None:
    """End with what there is to choose from, where an option names something else."""
    names = list(known)
    for name in given:
        if name not in names:
            raise click.BadParameter(f"there is no {name!r}; there are {', '.join(names)}", param_hint=option)


@contextmanager
def shown_progress(terminal: Console, total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on a terminal, nothing elsewhere; gives what to call with the name of each step as it begins."""
    if not terminal.is_terminal:
        yield lambda name: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    with Progress(*columns, console=terminal, transient=True) as progress:
        task = progress.add_task("", total=total, completed=-1)

        def step(name: str) -> None:
            progress.update(task, advance=1, description=name)

        yield step
