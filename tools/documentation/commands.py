"""The commands' help, as `dmlvk COMMAND --help` prints it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from dmlvk.command_line import main

WIDTH = 90


def page() -> Iterator[str]:
    """The lines of the page, below its first heading."""
    for name, command in main.commands.items():
        with click.Context(command, info_name=f"dmlvk {name}", terminal_width=WIDTH) as context:
            yield f"## dmlvk {name}"
            yield ""
            yield "```text"
            yield command.get_help(context)
            yield "```"
            yield ""
