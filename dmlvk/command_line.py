"""The command `dmlvk`: devices, demo."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import dmlvk
from dmlvk.errors import BindingError, DescriptorError, DeviceError


def _clear_errors(command: Callable[..., None]) -> Callable[..., None]:
    """End with one line and status 1 where something that the user can change is wrong; a traceback is for bugs."""

    @wraps(command)
    def guarded(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except (BindingError, DescriptorError, DeviceError, OSError) as error:
            raise click.ClickException(" ".join(str(error).split())) from error

    return guarded


def _console() -> Console:
    # Into a file or a pipe a table is as wide as its text, rather than cut to a guess at a terminal's width.
    return Console() if sys.stdout.isatty() else Console(width=200, soft_wrap=False)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dmlvk")
def main() -> None:
    """DirectML operators as Vulkan compute kernels."""


@main.command()
@_clear_errors
def devices() -> None:
    """List the Vulkan devices that dmlvk can use, best first."""
    found = dmlvk.devices()
    if not found:
        raise DeviceError("no usable Vulkan device: install a Vulkan driver (Debian, Ubuntu: mesa-vulkan-drivers)")
    title = "Vulkan devices, best first; $DMLVK_DEVICE takes an index or part of a name"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for index, info in enumerate(found):
        table.add_column(f"{index}: {info.name}", overflow="fold")
    for label, value in _DEVICE_ROWS.items():
        table.add_row(label, *(value(info) for info in found))
    console = _console()
    console.print(table)
    for rejected in dmlvk.rejected_devices():
        console.print(f"Left out: {rejected.name}: {rejected.reason}", markup=False)


def _binary_size(size: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"


def _subgroups(info: dmlvk.DeviceInfo) -> str:
    profile = info.profile
    smallest, largest = profile.min_subgroup_size, profile.max_subgroup_size
    return str(profile.subgroup_size) + (f" ({smallest} to {largest})" if smallest != largest else "")


# What `dmlvk devices` says of a device: a row's label, and what it shows.
_DEVICE_ROWS: dict[str, Callable[[dmlvk.DeviceInfo], str]] = {
    "type": lambda info: info.type.name.lower().replace("_", " "),
    "vendor": lambda info: info.vendor,
    "driver": lambda info: info.driver,
    "Vulkan version": lambda info: ".".join(str(part) for part in info.profile.api_version),
    "memory": lambda info: _binary_size(info.memory_size),
    "integer dot product": lambda info: "yes" if info.profile.has_integer_dot_product else "no",
    "accelerated": lambda info: "\n".join(info.accelerated) or "nothing beyond the above",
    "subgroup size": _subgroups,
    "shared memory": lambda info: _binary_size(info.profile.limits.max_compute_shared_memory_size),
    "threads a workgroup": lambda info: str(info.profile.limits.max_compute_work_group_invocations),
    "storage buffer range": lambda info: _binary_size(info.profile.limits.max_storage_buffer_range),
    "largest allocation": lambda info: _binary_size(info.profile.limits.max_memory_allocation_size),
    "buffer offset alignment": lambda info: str(info.profile.limits.min_storage_buffer_offset_alignment),
}


def _rate(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.1g}"


@main.command()
@click.option(
    "--output",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    default=Path("dmlvk-demo.png"),
    show_default=True,
    help="The picture to write, a PNG.",
)
@click.option("--device", "selector", default=None, help="Index or part of a name; else $DMLVK_DEVICE, else the best.")
@_clear_errors
def demo(output: Path, selector: str | None) -> None:
    """Run the operators on a photograph, check each result, write a picture.

    Ends with status 1 if any result differs from the NumPy reference.
    """
    from dmlvk.demo import all_panels, draw_sheet, measure, photograph

    if not output.parent.is_dir():
        raise click.ClickException(f"the picture cannot be written: there is no folder {output.parent}")
    photo = photograph()
    device = dmlvk.Device(selector, timestamps=True)
    measurements = [measure(device, panel) for panels in all_panels(photo).values() for panel in panels]

    driver = next((info.driver for info in dmlvk.devices() if info.profile == device.profile), "")
    name = f"{device.name}, driver {driver}"
    table = Table(title=f"Device: {name}", title_justify="left", caption_justify="left")
    for heading in ("operator", "result", "kernel"):
        table.add_column(heading)
    for heading in ("time", "GB/s"):
        table.add_column(heading, justify="right")
    table.add_column("check")
    for entry in measurements:
        table.add_row(
            entry.operator,
            entry.panel.title,
            " ".join(entry.kernels),
            f"{entry.seconds * 1e6:,.0f} us",
            _rate(entry.gigabytes_per_second),
            "[green]equal[/green]" if entry.correct else "[red]DIFFERS[/red]",
        )
    clocks = " and ".join(sorted({entry.timed_by for entry in measurements}))
    table.caption = f"Median of several runs by the {clocks}'s clock. These tensors are small: no measure of speed."
    console = _console()
    console.print(table)
    draw_sheet(photo, measurements, name, output)
    console.print(f"Picture: {output}")
    wrong = [entry.panel.title for entry in measurements if not entry.correct]
    if wrong:
        raise click.ClickException(f"differs from the NumPy reference: {', '.join(wrong)}")
