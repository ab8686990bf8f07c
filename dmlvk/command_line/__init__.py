"""The command `dmlvk`: one module for each subcommand."""

from __future__ import annotations

import click

from dmlvk.command_line.bench import bench
from dmlvk.command_line.compare import compare
from dmlvk.command_line.conformance import conformance
from dmlvk.command_line.demo import demo
from dmlvk.command_line.devices import devices
from dmlvk.command_line.quantize import quantize
from dmlvk.command_line.run import run
from dmlvk.command_line.terminal import Commands
from dmlvk.command_line.tune import tune
from dmlvk.version import __version__


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dmlvk")
def main() -> None:
    """DirectML operators as Vulkan compute kernels."""


for _command in (bench, compare, conformance, demo, devices, quantize, run, tune):
    main.add_command(_command)
