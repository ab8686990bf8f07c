"""Where the estimates would choose another kernel path of the convolution than the ranks that measurements gave.

    python -m tools.estimated_choice [DEVICE]...

The descriptors are those of `tools.plan_digests`; the devices are recorded ones, all of them by default. Nothing is
planned: a path's rank and its estimated seconds are compared alone.
"""

from __future__ import annotations

from collections import Counter

import click
from rich.console import Console
from rich.table import Table

from dmlvk.conformance.profiles import DEVICE, workload_profile
from dmlvk.conformance.recorded import NAMES, load
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.planning.quantized_linear_convolution.choice import estimates
from dmlvk.planning.quantized_linear_convolution.path import Problem
from tools.plan_digests import tasks


@click.command(help=__doc__)
@click.argument("devices", nargs=-1, type=click.Choice(NAMES))
def main(devices: tuple[str, ...]) -> None:
    chosen = devices or tuple(NAMES)
    convolutions = [task for task in tasks() if isinstance(task.workload.desc, QuantizedLinearConvolutionDesc)]
    table = Table("device", "by rank", "by estimate", "convolutions", "the first of them")
    for device in chosen:
        counts: Counter[tuple[str, str]] = Counter()
        first: dict[tuple[str, str], str] = {}
        for task in convolutions:
            desc = task.workload.desc
            assert isinstance(desc, QuantizedLinearConvolutionDesc)
            profile = workload_profile(load(device), DEVICE, task.workload)
            found = list(estimates(Problem(desc, profile, task.workload.offsets)))
            ranked = min(estimate for estimate in found if estimate.rank is not None)
            fastest = min(found, key=lambda estimate: estimate.seconds)
            pair = ranked.path.name, fastest.path.name
            counts[pair] += 1
            first.setdefault(pair, task.name)
        for pair, count in sorted(counts.items()):
            if pair[0] != pair[1]:
                table.add_row(device, *pair, f"{count} of {len(convolutions)}", first[pair])
    Console().print(table)


if __name__ == "__main__":
    main()
