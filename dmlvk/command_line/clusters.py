"""What the commands with --scheduler share: the connection, and lines about workers that are left out."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from dmlvk.command_line.terminal import echo

if TYPE_CHECKING:
    from distributed import Client


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """A client of the scheduler at an address. Prints a line for each worker that is left out, once.

    Raises click.ClickException: Dask is not installed.
    Raises ClusterError: no scheduler answers.
    """
    try:
        from dmlvk.dask import ClusterWarning, connect
    except ImportError as error:
        raise click.ClickException(f"--scheduler: {error}") from error

    said: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", ClusterWarning)
        other = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: object, **options: object) -> None:
            if not issubclass(category, ClusterWarning):
                other(message, category, *place, **options)  # type: ignore[arg-type]
            elif str(message) not in said:
                said.add(str(message))
                echo(f"Warning: {message}", is_error=True)

        warnings.showwarning = show
        with connect(address) as client:
            yield client
