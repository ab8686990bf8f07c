"""What the subcommands share: how they print, and how they end where the user can put something right."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click
from rich.console import Console

from dmlvk.conformance.errors import ConformanceError
from dmlvk.errors import BindingError, DescriptorError, DeviceError


def clear_errors(command: Callable[..., None]) -> Callable[..., None]:
    """End with one line and status 1 where something that the user can change is wrong; a traceback is for bugs."""

    @wraps(command)
    def guarded(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except (BindingError, ConformanceError, DescriptorError, DeviceError, OSError) as error:
            raise click.ClickException(" ".join(str(error).split())) from error

    return guarded


def console() -> Console:
    """The terminal; into a file or a pipe a table is as wide as its text, rather than cut to a guess at a width."""
    return Console() if sys.stdout.isatty() else Console(width=200, soft_wrap=False)
