"""How many pipelines a network's convolutions take on a recorded device, and which constants make them so many.

    python -m tools.pipelines --network resnet50 --batch 1 --layout nhwc

A driver compiles each pipeline for tenths of a second. For each kernel the table has the number of its pipelines, and
each specialization constant that differs between them, with the number of its values. "Fewer alone": how many pipelines
fewer there would be if it alone were a push constant. "So far": how many there would be with only the constants up to
this row, of which the next is always the one that adds the fewest. So sizes that belong together stand at the end.
Nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable

import click
from rich.console import Console
from rich.table import Table

from dmlvk.benchmark.networks import NETWORKS
from dmlvk.benchmark.networks.network import Dimensions
from dmlvk.benchmark.networks.work import LAYOUTS, desc_of
from dmlvk.conformance.recorded import NAMES, load
from dmlvk.device_profile import DeviceProfile
from dmlvk.planning import plan
from dmlvk.planning.kernel_interface import kernel_interface

Constants = tuple[int, ...]


@click.command(help=__doc__)
@click.option("--device", type=click.Choice(NAMES), default="nvidia-h200", show_default=True)
@click.option("--network", type=click.Choice(list(NETWORKS)), default="resnet50", show_default=True)
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True)
@click.option("--layout", type=click.Choice(LAYOUTS), default="nhwc", show_default=True)
def main(device: str, network: str, batch: int, layout: str) -> None:
    found = pipelines(load(device), network, batch, layout)
    table = Table("kernel", "pipelines", "constant", "values", "fewer alone", "so far")
    for kernel, constants in found.items():
        table.add_row(kernel.rpartition("/")[2], str(len(constants)))
        for name, values, fewer, so_far in report(kernel, constants):
            table.add_row("", "", name, str(values), str(fewer), str(so_far))
    Console().print(table)
    print(f"{sum(map(len, found.values()))} pipelines")


def pipelines(profile: DeviceProfile, network: str, batch: int, layout: str) -> dict[str, list[Constants]]:
    """The specialization constants of each pipeline, by kernel; all constants of the layers are OWNED_BY_DML."""
    found: dict[str, dict[Constants, None]] = {}
    for layer in NETWORKS[network](Dimensions()).counts:
        planned = plan(desc_of(layer, batch, layout), profile)
        for stage in (*planned.initialization, *planned.stages):
            for dispatch in stage:
                found.setdefault(dispatch.kernel, {})[dispatch.specialization] = None
    return {kernel: list(constants) for kernel, constants in found.items()}


def report(kernel: str, constants: list[Constants]) -> list[tuple[str, int, int, int]]:
    """The constants that differ: name, number of values, pipelines fewer without it, pipelines with those so far."""
    differing = [index for index, values in enumerate(zip(*constants, strict=True)) if len(set(values)) > 1]

    def count(kept: Iterable[int]) -> int:
        indices = list(kept)
        return len({tuple(values[index] for index in indices) for values in constants})

    rows, kept = [], list[int]()
    while len(kept) < len(differing):
        rest = [index for index in differing if index not in kept]
        best = min(rest, key=lambda index: count([*kept, index]))
        kept.append(best)
        without = count(index for index in differing if index != best)
        name = kernel_interface(kernel).specialization_constants[best]
        rows.append((name, count([best]), len(constants) - without, count(kept)))
    return rows


if __name__ == "__main__":
    main()
