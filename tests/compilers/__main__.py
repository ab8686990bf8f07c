"""Compile kernels for GPUs that are not there, and check the machine code.

    python -m tests.compilers [--chip intel-dg2]... [--kernel slice1/blocks --variants] [--record] [--shrink]

Drivers of Mesa compile for a chip that a variable names. RADV does so by itself; under the others lies a DRM shim, a
library that stands in for the kernel's part of the driver. Nothing executes. The kernels are those of plans for layers
of networks and for cases at the limits of the operators. The table has a row for each kernel and chip. The exit status
is 1 if a number is over its limit (tests/compilers/compiled.py) and not waived (tests/compilers/waivers.toml), if a
waiver is not needed, or if nothing was checked.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tests.compilers import record, waivers
from tests.compilers.chips import CHIPS, RADV, Chip
from tests.compilers.compiled import Compiled
from tests.compilers.executables import lines_of
from tools import mesa
from tools.debian import SetupError
from tools.drivers import get_radv
from tools.drm_shims.build import get as get_shim

# A compiler may crash or hang in so many pipelines of a chip. After each, the next process goes on behind it.
MOST_ATTEMPTS = 8


def command(chip: Chip) -> tuple[list[str], dict[str, str]]:
    """The Python that runs on the chip's driver, and its environment. Gets the driver if it is not there.

    Raises
    ------
    SetupError
        The driver cannot be got on this machine.
    """
    environment = {**os.environ, **chip.environment, "MESA_SHADER_CACHE_DISABLE": "true", "DMLVK_VALIDATE": "0"}
    environment.pop("DMLVK_KERNEL", None)
    if chip.driver is RADV:
        python, description = Path(sys.executable), get_radv()
    else:
        mesa.get(mesa.COMPILERS)
        python, description = mesa.COMPILERS.python, mesa.COMPILERS.description_of(chip.driver.name)
        environment["LD_PRELOAD"] = str(get_shim(chip.driver.name))
    environment["VK_DRIVER_FILES"] = environment["VK_ICD_FILENAMES"] = str(description)
    return [str(python), "-m", "tests.compilers.executables"], environment


def compile_for(chip: Chip, kernels: tuple[str, ...]) -> Compiled:
    """All pipelines of a chip, or those of some kernels.

    They are compiled in processes of their own, because a driver reads its variables once, and may crash.

    Raises
    ------
    SetupError
        The driver cannot be got, or makes no device.
    """
    program, environment = command(chip)
    program += [f"--kernel={kernel}" for kernel in kernels]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pipelines.jsonl"
        for _ in range(MOST_ATTEMPTS):
            before = len(lines_of(path))
            finished = subprocess.run(
                [*program, str(path)], env={**environment, "DMLVK_CACHE_DIR": folder}, capture_output=True
            )
            lines = lines_of(path)
            if finished.returncode == 0:
                return Compiled.of(chip, lines)
            if not any("begun" in line for line in lines[before:]):
                break
    said = finished.stderr.decode(errors="replace")[-3000:]
    raise SetupError(f"{chip.name}: the driver does not compile; status {finished.returncode}:\n{said}")


def chip_names(_context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(name for text in given for name in text.replace(",", " ").split())
    for name in names:
        if name not in CHIPS:
            raise click.BadParameter(f"{name} is no chip: one of {', '.join(CHIPS)} is right")
    return names or tuple(CHIPS)


@click.command(help=__doc__)
@click.option("--chip", "names", multiple=True, callback=chip_names, help="Names of chips. Default: all of them.")
@click.option("--kernel", "kernels", multiple=True, help="Only these kernels, and no look for missing ones.")
@click.option("--variants", is_flag=True, help="A line for each pipeline as well.")
@click.option("--record", "records", is_flag=True, help="Write the chips' parts of docs/machine_code.md.")
@click.option("--shrink", "shrinks", is_flag=True, help="Take waivers out that are not needed, and lower the others.")
def main(names: tuple[str, ...], kernels: tuple[str, ...], variants: bool, records: bool, shrinks: bool) -> None:
    if kernels and (records or shrinks):
        raise click.UsageError("--kernel is for looking: --record and --shrink take all kernels of a chip")
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    table = Table("chip", *record.COLUMNS, title="Kernels compiled for chips that are not there")
    faults: list[str] = []
    allowed = waivers.read(waivers.FILE.read_text(encoding="utf-8"))
    for name in names:
        try:
            with console.status(f"compiling for {name}"):
                compiled = compile_for(CHIPS[name], kernels)
        except (SetupError, ValueError) as error:
            faults.append(f"{name}: {error}")
            continue
        for row in record.rows(compiled):
            table.add_row(name, *row)
        table.add_section()
        for line in record.lines(compiled) if variants else ():
            console.print(line, soft_wrap=True, highlight=False)
        measured = compiled.measured()
        if shrinks:
            allowed = list(waivers.shrunk(name, measured, allowed))
            waivers.FILE.write_text(waivers.write(allowed), encoding="utf-8")
        faults += waivers.faults(name, measured, [each for each in allowed if not kernels or each.kernel in kernels])
        faults += () if kernels else compiled.unchecked()
        if records:
            before = record.FILE.read_text(encoding="utf-8") if record.FILE.exists() else ""
            text = record.page(before, compiled, date.today().isoformat())
            record.FILE.write_text(text, encoding="utf-8")
    console.print(table)
    for fault in faults:
        console.print(fault, soft_wrap=True, highlight=False)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
