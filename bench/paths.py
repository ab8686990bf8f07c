"""Every path of the layers of networks, measured: whether the planner takes the fastest, and what it predicted.

    python -m bench.paths measure FILE [--device NAME] [--network NAME]... [--batch N]... [--layout NAME]...
    python -m bench.paths compare FILE... [--device NAME]

`measure` appends a line of JSON to FILE for each layer and path; `compare` plans the same layers, and holds the choice
against the times, on a recorded device. Every result is compared with the reference.
"""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import reduce
from itertools import product
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

import dmlvk
from dmlvk import planning
from dmlvk.benchmark.cases.quantized_linear_convolution import Layer
from dmlvk.benchmark.networks import NETWORKS, Dimensions
from dmlvk.benchmark.networks.chain import measure_floor
from dmlvk.benchmark.networks.timing import time_chain
from dmlvk.benchmark.networks.work import LAYOUTS, LayerWork, desc_of, work_of
from dmlvk.benchmark.timing import WARM_UP_SECONDS, warm_up
from dmlvk.bits import equal_bits
from dmlvk.command_line.bench_subject import opened
from dmlvk.conformance.profiles import narrow
from dmlvk.conformance.recorded import NAMES, load
from dmlvk.planning.plan import NO_OFFSETS
from dmlvk.planning.quantized_linear_convolution.choice import offers
from dmlvk.planning.quantized_linear_convolution.path import Problem
from dmlvk.vulkan.host_threads import core_count, for_each

POISON = b"\xa5"
SHORT_WARM_UP_SECONDS = 0.01
ROUNDS = 5
PATHS = tuple(
    path
    for path in planning.KERNEL_PATHS[dmlvk.QuantizedLinearConvolutionDesc]
    if path != planning.GENERAL_PATH  # the direct path, but slower
)
# The choice may be so much slower than the fastest path.
TOLERANCE = 1.1


@dataclass(frozen=True)
class Job:
    """A layer in a batch and a layout, by a path."""

    layer: Layer
    batch: int
    layout: str
    path: str


def jobs(device: dmlvk.Device, runs: Iterable[tuple[int, str, Layer]], paths: tuple[str, ...]) -> list[Job]:
    """The paths that the device has for each layer in a batch and a layout."""
    found = []
    for batch, layout, layer in runs:
        desc = desc_of(layer, batch, layout)
        for path in paths:
            try:
                planning.plan(desc, device.profile, path=path)
            except planning.PathError:
                continue
            found.append(Job(layer, batch, layout, path))
    return found


def measured(device: dmlvk.Device, job: Job, work: LayerWork) -> tuple[float, bool]:
    """Seconds of a layer after itself, and whether the output is right."""
    operator = device.compile(desc_of(job.layer, job.batch, job.layout), path=job.path)
    operator.initialize(**work.constants)
    image, output = (device.tensor(operator.desc.tensors[field]) for field in ("input_tensor", "output_tensor"))
    image.write(work.batch(work.images, job.batch))
    output.write_bytes(POISON * output.desc.total_size_in_bytes)
    binding = operator.bind(input_tensor=image, output_tensor=output)
    times = time_chain(device, [binding], ROUNDS, is_repeated=True, warm_up_seconds=SHORT_WARM_UP_SECONDS)
    return times.best.median, equal_bits(output.numpy(), work.batch(work.expected, job.batch))


@click.group()
def main() -> None:
    """Every path of the layers of networks."""


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--device", "selector")
@click.option("--profile", "profiles", multiple=True)
@click.option("--network", "networks", multiple=True, type=click.Choice(list(NETWORKS)), default=["resnet50"])
@click.option("--batch", "batches", multiple=True, type=click.IntRange(1), default=[1])
@click.option("--layout", "layouts", multiple=True, type=click.Choice(LAYOUTS), default=LAYOUTS)
@click.option("--path", "paths", multiple=True, help="Default: all; a tile may follow, vectors:32x64x128:4x4.")
@click.option("--seconds", type=float, default=math.inf, help="Begin no measurement after so many.")
def measure(
    file: Path,
    selector: str | None,
    profiles: tuple[str, ...],
    networks: tuple[str, ...],
    batches: tuple[int, ...],
    layouts: tuple[str, ...],
    paths: tuple[str, ...],
    seconds: float,
) -> None:
    """Measure, and append to FILE."""
    begin = time.monotonic()
    layers = list(dict.fromkeys(layer for name in networks for layer in NETWORKS[name](Dimensions()).layers))
    with opened(selector, profiles) as device, file.open("a", encoding="utf-8") as out:
        works: dict[Layer, LayerWork] = {}

        def prepare(layer: Layer) -> None:
            works[layer] = work_of(layer)

        for_each(layers, prepare, threads=core_count())
        row = jobs(device, product(batches, layouts, layers), paths or PATHS)
        for_each(row, lambda job: _compile(device, job), threads=core_count())
        # The device was idle while the kernels were compiled.
        warm_up(lambda: measure_floor(device, 1), WARM_UP_SECONDS)
        for job in track(row, console=Console(stderr=True)):
            if time.monotonic() - begin > seconds:
                break
            taken, is_right = measured(device, job, works[job.layer])
            record = {**asdict(job), "seconds": taken, "correct": is_right, "profiles": profiles, "device": device.name}
            out.write(json.dumps(record) + "\n")
            out.flush()


def _compile(device: dmlvk.Device, job: Job) -> None:
    device.compile(desc_of(job.layer, job.batch, job.layout), path=job.path)


@dataclass
class Choice:
    """What was measured of a layer, beside what the planner chooses and predicts."""

    name: str
    chosen: str
    seconds: dict[str, float]
    predicted: dict[str, float]

    @property
    def fastest(self) -> str:
        return min(self.seconds, key=self.seconds.__getitem__)

    @property
    def ratio(self) -> float:
        """The chosen path's time beside the fastest path's."""
        return self.seconds[self.chosen] / self.seconds[self.fastest]


def choices(file: Path, device: str) -> Iterator[tuple[str, Choice]]:
    """The measured layers, each with its run: profiles, layout and batch."""
    whole = load(device)
    found: dict[tuple[Layer, int, str, tuple[str, ...]], dict[str, float]] = defaultdict(dict)
    with file.open(encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            key = Layer(**line["layer"]), line["batch"], line["layout"], tuple(line["profiles"])
            assert line["correct"], line
            found[key][line["path"]] = line["seconds"]
    for (layer, batch, layout, profiles), seconds in found.items():
        profile = reduce(narrow, profiles, whole)
        desc = desc_of(layer, batch, layout)
        predicted = {offer.path.name: offer.seconds for offer in offers(Problem(desc, profile, NO_OFFSETS))}
        run = " ".join((*profiles, layout.upper(), f"batch {batch}"))
        yield run, Choice(layer.name, planning.plan(desc, profile).path, seconds, predicted)


@main.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--device", default="nvidia-h200", type=click.Choice(NAMES), help="A recorded device.")
def compare(files: tuple[Path, ...], device: str) -> None:
    """Hold the planner's choice against the times in FILES."""
    console = Console()
    runs: dict[str, list[Choice]] = defaultdict(list)
    for file in files:
        for run, choice in choices(file, device):
            runs[run].append(choice)
    for run, row in runs.items():
        late = [choice for choice in row if choice.ratio > TOLERANCE]
        mean = math.exp(sum(math.log(choice.ratio) for choice in row) / len(row))
        title = f"{run}: {len(row) - len(late)} of {len(row)} choices within {TOLERANCE - 1:.0%} of the fastest path"
        table = Table(title=f"{title}; geometric mean {mean:.3f}")
        for column in ("layer", "chosen", "us", "fastest", "us", "ratio", "predicted, us"):
            table.add_column(column, justify="left" if column in ("layer", "chosen", "fastest") else "right")
        for choice in sorted(late, key=lambda each: -each.ratio):
            pair = choice.chosen, choice.fastest
            times = [f"{choice.seconds[path] * 1e6:.1f}" for path in pair]
            predicted = " / ".join(f"{choice.predicted[path] * 1e6:.1f}" for path in pair)
            table.add_row(choice.name, pair[0], times[0], pair[1], times[1], f"{choice.ratio:.2f}", predicted)
        console.print(table if late else table.title)


if __name__ == "__main__":
    main()
