"""Where the estimates would choose another kernel path of the convolution than the preferences that measurements gave.

    python -m tools.estimated_choice [DEVICE]...

The descriptors are those of `tools.plan_digests`; the devices are recorded ones, all of them by default. Nothing is
planned: the preferred path is compared with the path of the least estimated seconds.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import click
from rich.console import Console
from rich.table import Table

from dmlvk.conformance.profiles import DEVICE, workload_profile
from dmlvk.conformance.recorded import NAMES, load
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.planning.quantized_linear_convolution.path import Path, Problem
from dmlvk.planning.quantized_linear_convolution.registry import PATHS
from tools.plan_digests import tasks


@click.command(help=__doc__)
@click.argument("devices", nargs=-1, type=click.Choice(NAMES))
def main(devices: tuple[str, ...]) -> None:
    chosen = devices or tuple(NAMES)
    convolutions = [task for task in tasks() if isinstance(task.workload.desc, QuantizedLinearConvolutionDesc)]
    table = Table("device", "preferred", "by estimate", "convolutions", "the first of them")
    for device in chosen:
        counts: Counter[tuple[str, str]] = Counter()
        first: dict[tuple[str, str], str] = {}
        for task in convolutions:
            desc = task.workload.desc
            assert isinstance(desc, QuantizedLinearConvolutionDesc)
            problem = Problem(desc, workload_profile(load(device), DEVICE, task.workload), task.workload.offsets)
            pair = chosen_paths(problem)
            counts[pair] += 1
            first.setdefault(pair, task.name)
        for pair, count in sorted(counts.items()):
            if pair[0] != pair[1]:
                table.add_row(device, *pair, f"{count} of {len(convolutions)}", first[pair])
    Console().print(table)


def chosen_paths(problem: Problem) -> tuple[str, str]:
    """The names of the preferred path and of the path with the least estimated seconds."""
    possible = [
        path for path in PATHS if path.obstacle_on(problem.profile) is None and path.obstacle_to(problem) is None
    ]

    def seconds(path: Path[object]) -> float:
        return min(map(partial(path.seconds, problem), path.tiles(problem)))

    return next(path.name for path in possible if path.is_preferred(problem)), min(possible, key=seconds).name


if __name__ == "__main__":
    main()
