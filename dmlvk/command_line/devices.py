"""`dmlvk devices`: the Vulkan devices and their abilities."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import dmlvk
from dmlvk import quirks
from dmlvk._common import files
from dmlvk._printable import printable
from dmlvk.command_line.terminal import clear_errors, console, echo
from dmlvk.errors import DeviceError
from dmlvk.runtime import answers_file, device_files
from dmlvk.runtime.device_info import TYPE_NAMES, RejectedDevice, binary_size
from dmlvk.vulkan.library import driver_hint
from dmlvk.vulkan.physical_device import choose
from dmlvk.vulkan.pipeline_cache import cache_folder


@click.command()
@click.option(
    "--record",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the profile of one device here, as JSON: the best one, or that of --device.",
)
@click.option("--device", "selector", default=None, help="Of --record: index or part of a name.")
@click.option("--json", "as_json", is_flag=True, help="Write all that is known of the devices as JSON.")
@clear_errors
def devices(record: Path | None, selector: str | None, as_json: bool) -> None:
    """List the Vulkan devices that dmlvk can use, best first."""
    if as_json and (record is not None or selector is not None):
        raise click.UsageError("--json writes all devices, and goes with no other option")
    found = dmlvk.devices()
    if as_json:
        echo(files.json_text(as_data(found, dmlvk.rejected_devices()), 1), is_multiline=True)
        return
    if not found:
        raise DeviceError(f"no usable Vulkan device. {driver_hint()}")
    if record is not None:
        name = write_profile(record, selector)
        console().print(f"The profile of {name} is in {record}", highlight=False, soft_wrap=True)
        return
    if selector is not None:
        raise click.UsageError("--device can only be used with --record")
    title = "Vulkan devices, best first; $DMLVK_DEVICE takes an index or part of a name"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for index, info in enumerate(found):
        table.add_column(f"{index}: {info.name}", overflow="fold")
    for label, value in _DEVICE_ROWS.items():
        table.add_row(label, *(value(info) for info in found))
    terminal = console()
    terminal.print(table)
    for index, info in enumerate(found):
        print_quirks(terminal, f"{index}: {info.name}", info)
        print_faults(terminal, f"{index}: {info.name}", info)
    for rejected in dmlvk.rejected_devices():
        terminal.print(f"Left out: {rejected.name}: {rejected.reason}")
    terminal.print(Text(cache_text()), soft_wrap=True)


def cache_text() -> str:
    """Where the cache is, and whether it holds anything."""
    folder = cache_folder()
    if folder is None:
        return "Cache: switched off by DMLVK_CACHE_DIR"
    count, size = device_files.cached()
    if not count:
        return f"Cache: {folder} (empty; CPU drivers give no pipelines to keep)"
    return f"Cache: {folder} ({count} file{'s' if count > 1 else ''}, {binary_size(size)})"


def as_data(found: Iterable[dmlvk.DeviceInfo], rejected: Iterable[RejectedDevice]) -> dict[str, Any]:
    """What `dmlvk devices --json` writes. Programs read it: keys may be added, and those that there are stay.

    Memory is in bytes, types are DeviceType's names. "profile" is as `dmlvk devices --record` writes it. The cache's
    folder is null if it is switched off.
    """
    folder = cache_folder()
    return {
        "dmlvk": dmlvk.__version__,
        "devices": [
            {
                "index": info.index,
                "name": info.name,
                "type": info.type.name,
                "vendor": info.vendor,
                "driver": info.driver,
                "driver_release": list(info.profile.driver_release),
                "vulkan": ".".join(str(part) for part in info.profile.api_version),
                "memory_size": info.memory_size,
                "accelerated": list(info.accelerated),
                "quirks": [
                    {"name": quirk.name, "effect": quirk.effect, "remedy": quirk.remedy, "reported": quirk.reported}
                    for quirk in quirks.of(info.profile)
                ],
                "distrusted_paths": answers_file.faults(info.profile),
                "profile": info.profile.to_record(),
            }
            for info in found
        ],
        "rejected": [{"name": device.name, "reason": device.reason} for device in rejected],
        "cache": {
            "folder": None if folder is None else str(folder),
            **dict(zip(("files", "bytes"), device_files.cached(), strict=True)),
        },
    }


def print_quirks(terminal: Console, heading: str, info: dmlvk.DeviceInfo) -> None:
    """Print the known bugs of a device's driver, below the table: a narrow terminal has room for them there."""
    applying = quirks.of(info.profile)
    if applying:
        terminal.print(Text(printable(f"{heading}: bugs of its driver that dmlvk works around")))
    for quirk in applying:
        terminal.print(Padding(Text(printable(f"{quirk.name}: {quirk.effect}")), (0, 0, 0, 4), expand=False))


def print_faults(terminal: Console, heading: str, info: dmlvk.DeviceInfo) -> None:
    """Print the kernel paths that a device does not take, because it answered a known question wrong."""
    found = answers_file.faults(info.profile)
    if found:
        terminal.print(
            Text(printable(f"{heading}: kernel paths that are not taken, because a known question was answered wrong"))
        )
    for path, fault in found.items():
        terminal.print(Padding(Text(printable(f"{path}: {fault}")), (0, 0, 0, 4), expand=False))


def write_profile(path: Path, selector: str | None) -> str:
    """Write a device's profile as `DeviceProfile.from_record` reads it; returns the device's name."""
    profile = choose(selector).profile
    record = {"source": f"read on the device by dmlvk, {platform.system()}", "profile": path.stem}
    files.write_text(path, files.json_text(record | profile.to_record(), 1) + "\n")
    return profile.name


def _subgroups(info: dmlvk.DeviceInfo) -> str:
    profile = info.profile
    smallest, largest = profile.min_subgroup_size, profile.max_subgroup_size
    return str(profile.subgroup_size) + (f" ({smallest} to {largest})" if smallest != largest else "")


# The rows of `dmlvk devices` for a device: each row's label, and the value that it shows.
_DEVICE_ROWS: dict[str, Callable[[dmlvk.DeviceInfo], str | Text]] = {
    "type": lambda info: TYPE_NAMES[info.type],
    "vendor": lambda info: info.vendor,
    "driver": lambda info: info.driver,
    "Vulkan version": lambda info: ".".join(str(part) for part in info.profile.api_version),
    "memory": lambda info: binary_size(info.memory_size),
    "integer dot product": lambda info: "yes" if info.profile.has_integer_dot_product else "no",
    "accelerated": lambda info: Text("\n".join(info.accelerated) or "nothing beyond the above"),
    "subgroup size": _subgroups,
    "shared memory": lambda info: binary_size(info.profile.limits.max_compute_shared_memory_size),
    "threads a workgroup": lambda info: str(info.profile.limits.max_compute_work_group_invocations),
    "storage buffer range": lambda info: binary_size(info.profile.limits.max_storage_buffer_range),
    "largest allocation": lambda info: binary_size(info.profile.limits.max_memory_allocation_size),
    "buffer offset alignment": lambda info: str(info.profile.limits.min_storage_buffer_offset_alignment),
}
