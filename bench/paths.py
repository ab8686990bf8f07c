"""Every path of the layers of networks, measured: whether the planner takes the fastest, and what it predicted.

    python -m bench.paths measure FILE [--device NAME] [--network NAME]... [--batch N]... [--layout NAME]... [--tune]
    python -m bench.paths measure FILE [--device NAME] --random N [--seed N]
    python -m bench.paths compare FILE... [--device NAME] [--tuned]

`measure` appends a line of JSON to FILE for each layer in a batch and a layout: the seconds of each path. The paths
take turns, and each one's least time counts, of several lines too. `compare` plans the same layers for a recorded
device, and holds the choice against the times. Every result is compared with the reference; those of random layers,
which are convolutions of `python -m bench.sweep`, in 64 elements.

With --tune, `measure` first lets the device tune itself (`Device.compile_all(tune=True)`), and then measures what was
chosen with the other paths, by times of its own. `compare --tuned` holds that against the times.

bench/results/nvidia-h200-paths.jsonl was made so on 2026-11-28, with driver 580.159.04, --within 2 and --tune: paths
that are estimated at more than twice the least are not in it. The layers without matrices and dot products were not
tuned, since a device with another profile cannot be. nvidia-h200-random-paths.jsonl was made on 2026-11-26, with the
same driver (seed 14, and 23 without matrices).
"""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import reduce
from itertools import groupby, islice, product
from operator import attrgetter
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

import dmlvk
from bench.sweep import OPERATORS
from bench.sweep.shapes import ConvolutionShape, shapes
from dmlvk import planning
from dmlvk._common.bits import equal_bits
from dmlvk.benchmark.cases.quantized_linear_convolution import Layer
from dmlvk.benchmark.networks import NETWORKS, Dimensions
from dmlvk.benchmark.networks.chain import measure_floor
from dmlvk.benchmark.networks.work import LAYOUTS, Array, LayerWork, desc_of, work_of
from dmlvk.benchmark.timing import WARM_UP_SECONDS, warm_up
from dmlvk.command_line.bench_subject import opened
from dmlvk.conformance.profiles import narrow
from dmlvk.conformance.recorded import NAMES, load
from dmlvk.device_profile import DeviceProfile
from dmlvk.planning.plan import NO_OFFSETS
from dmlvk.planning.quantized_linear_convolution.choice import offers
from dmlvk.planning.quantized_linear_convolution.path import DATA_FIELDS, Problem
from dmlvk.runtime.binding import Binding
from dmlvk.runtime.compiled_operator import CompiledOperator
from dmlvk.runtime.tuning import times_in_turns
from dmlvk.vulkan.host_threads import core_count, for_each

POISON = b"\xa5"
ROUNDS = 5
# The most bytes that a random layer's input and output have.
RANDOM_BYTES = 1 << 26
PATHS = tuple(
    path
    for path in planning.KERNEL_PATHS[dmlvk.QuantizedLinearConvolutionDesc]
    if path != planning.GENERAL_PATH  # the direct path, but slower
)
# The choice may be so much slower than the fastest path.
TOLERANCE, TUNED_TOLERANCE = 1.1, 1.05
NOTHING: Mapping[Run, str] = {}


@dataclass(frozen=True)
class Run:
    """A layer in a batch and a layout."""

    layer: Layer
    batch: int
    layout: str


@dataclass(frozen=True)
class Job:
    """A run by a path."""

    run: Run
    path: str

    def compiled(self, device: dmlvk.Device) -> CompiledOperator[dmlvk.QuantizedLinearConvolutionDesc]:
        return device.compile(desc_of(self.run.layer, self.run.batch, self.run.layout), path=self.path)

    def compile(self, device: dmlvk.Device) -> None:
        self.compiled(device)


def tuned_paths(device: dmlvk.Device, runs: list[Run]) -> dict[Run, str]:
    """What the device takes for each run after it has measured what is close."""
    operators = device.compile_all((desc_of(run.layer, run.batch, run.layout) for run in runs), tune=True)
    return {run: operator.plan.path for run, operator in zip(runs, operators, strict=True)}


def jobs(
    device: dmlvk.Device,
    runs: Iterable[Run],
    paths: tuple[str, ...],
    within: float = math.inf,
    tuned: Mapping[Run, str] = NOTHING,
) -> list[Job]:
    """The paths that the device has for each run, but those that would take so many times as long as the cheapest.

    tuned: more of them: the path of a run.
    """
    found = []
    for run in runs:
        desc = desc_of(run.layer, run.batch, run.layout)
        estimates = {}
        for path in paths:
            with suppress(planning.PathError):
                estimates[path] = planning.plan(desc, device.profile, path=path).seconds
        most = within * min(estimates.values(), default=0.0)
        names = [path for path, seconds in estimates.items() if seconds <= most]
        found += [Job(run, path) for path in dict.fromkeys((*names, *([tuned[run]] if run in tuned else [])))]
    return found


@dataclass(frozen=True)
class Data:
    """What a run reads, and whether an output follows from it."""

    image: Array
    constants: Mapping[str, Array]
    is_right: Callable[[Array], bool]


def data_of(run: Run, work: LayerWork) -> Data:
    """The data of a network's layer, whose whole output is compared."""
    expected = work.batch(work.expected, run.batch)
    return Data(work.batch(work.images, run.batch), work.constants, lambda output: equal_bits(output, expected))


def sampled_data_of(run: Run) -> Data:
    """The data of a random layer, of whose output some elements are compared."""
    shape = ConvolutionShape(run.layer, run.batch, run.layout)
    inputs = shape.inputs()
    constants = {field: array for field, array in inputs.items() if field != "input_tensor"}
    return Data(inputs["input_tensor"], constants, lambda output: shape.is_right(inputs, output))


def random_runs(count: int, seed: int) -> list[Run]:
    """Different convolutions of the sweep."""
    drawn = islice(shapes(OPERATORS[:1], seed, RANDOM_BYTES), count)
    return [Run(shape.layer, shape.batch, shape.layout) for shape in drawn if isinstance(shape, ConvolutionShape)]


def measured(device: dmlvk.Device, run: Run, jobs: Iterable[Job], data: Data) -> dict[str, tuple[float, bool]]:
    """Seconds of a layer after itself by each path, and whether the output is right."""
    tensors = desc_of(run.layer, run.batch, run.layout).tensors
    image, output = (device.tensor(tensors[field]) for field in DATA_FIELDS)
    image.write(data.image)
    bindings: dict[str, Binding] = {}
    right: dict[str, bool] = {}
    results: dict[bytes, bool] = {}
    for job in jobs:
        operator = job.compiled(device)
        operator.initialize(**data.constants)
        bindings[job.path] = operator.bind(input_tensor=image, output_tensor=output)
        output.write_bytes(POISON * output.desc.total_size_in_bytes)
        device.submit([bindings[job.path]]).wait()
        found = output.read_bytes()
        if found not in results:
            results[found] = data.is_right(output.numpy())
        right[job.path] = results[found]
    times = times_in_turns(device.engine, bindings, ROUNDS)
    return {path: (times[path], right[path]) for path in bindings}


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
@click.option("--random", "random_count", type=click.IntRange(1), help="So many random layers in place of networks'.")
@click.option("--seed", default=1, show_default=True, help="Of --random: the same seed, the same layers.")
@click.option("--path", "paths", multiple=True, help="Default: all; a tile may follow, vectors:32x64x128:4x4.")
@click.option("--within", type=float, default=math.inf, help="Leave out paths estimated at so many times the least.")
@click.option("--seconds", type=float, default=math.inf, help="Begin no measurement after so many.")
@click.option("--tune", "tunes", is_flag=True, help="Let the device tune itself first, and measure what it chose too.")
def measure(
    file: Path,
    selector: str | None,
    profiles: tuple[str, ...],
    networks: tuple[str, ...],
    batches: tuple[int, ...],
    layouts: tuple[str, ...],
    random_count: int | None,
    seed: int,
    paths: tuple[str, ...],
    within: float,
    seconds: float,
    tunes: bool,
) -> None:
    """Measure, and append to FILE. Ends with status 1 if any result is not the reference's, bit for bit."""
    begin = time.monotonic()
    wrong_layers: list[str] = []
    works: dict[Layer, LayerWork] = {}
    known: dict[Run, Data] = {}
    if random_count is None:
        layers = list(dict.fromkeys(layer for name in networks for layer in NETWORKS[name](Dimensions()).layers))
        pairs = product(batches, layouts)
        portions = [[Run(layer, batch, layout) for layer in layers] for batch, layout in pairs]
    else:
        layers, portions = [], [random_runs(random_count, seed)]

    def work_out(layer: Layer) -> None:
        works[layer] = work_of(layer)

    def draw(run: Run) -> None:
        known[run] = sampled_data_of(run)

    with opened(selector, profiles) as device, file.open("a", encoding="utf-8") as out:
        for_each(layers, work_out, threads=core_count())
        for_each(portions[0] if random_count else [], draw, threads=core_count())
        for runs in portions:
            if time.monotonic() - begin > seconds:
                break
            tuned = tuned_paths(device, runs) if tunes else {}
            row = jobs(device, runs, paths or PATHS, within, tuned)
            for_each(row, lambda job: job.compile(device), threads=core_count())
            # The device was idle while the kernels were compiled.
            warm_up(lambda: measure_floor(device, 1), WARM_UP_SECONDS)
            for run, of_run in groupby(track(row, console=Console(stderr=True)), key=attrgetter("run")):
                if time.monotonic() - begin > seconds:
                    break
                found = measured(device, run, of_run, known.get(run) or data_of(run, works[run.layer]))
                times = {path: float(f"{taken:.4g}") for path, (taken, _) in found.items()}
                wrong = [path for path, (_, is_right) in found.items() if not is_right]
                line = {"profiles": profiles, **asdict(run), "seconds": times, "wrong": wrong}
                out.write(json.dumps({**line, "tuned": tuned[run]} if tunes else line) + "\n")
                out.flush()
                wrong_layers += [f"{run.layer.name}, batch {run.batch}, {run.layout}: {path}" for path in wrong]
    if wrong_layers:
        raise click.ClickException("wrong results:\n" + "\n".join(wrong_layers))


@dataclass
class Choice:
    """What was measured of a layer, beside what the planner chooses and predicts.

    chosen: the path; of a device that tuned itself, with a tile.
    """

    name: str
    desc: dmlvk.QuantizedLinearConvolutionDesc
    profile: DeviceProfile
    chosen: str
    seconds: dict[str, float]

    @property
    def predicted(self) -> dict[str, float]:
        """The planner's estimate for each path."""
        return {offer.path.name: offer.seconds for offer in offers(Problem(self.desc, self.profile, NO_OFFSETS))}

    @property
    def fastest(self) -> str:
        return min(self.seconds, key=self.seconds.__getitem__)

    @property
    def ratio(self) -> float:
        """The chosen path's time beside the fastest path's; NaN if it was not measured."""
        return self.seconds.get(self.chosen, math.nan) / self.seconds[self.fastest]


def choices(file: Path, device: str, is_tuned: bool = False) -> Iterator[tuple[str, Choice]]:
    """The measured layers, each with its run: profiles, layout and batch.

    is_tuned: whether the choice is that of the measured device, which had tuned itself, and tiles count as paths.
    """
    whole = load(device)
    times: dict[tuple[Run, tuple[str, ...]], dict[str, float]] = defaultdict(dict)
    tuned: dict[tuple[Run, tuple[str, ...]], str] = {}
    for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
        layer, batch, layout = Layer(**line["layer"]), line["batch"], line["layout"]
        if line["wrong"]:
            raise click.ClickException(f"{file}: {layer.name}, batch {batch}, {layout}: wrong by {line['wrong']}")
        if is_tuned and "tuned" not in line:
            continue
        key = Run(layer, batch, layout), tuple(line["profiles"])
        least = times[key]
        for path, taken in line["seconds"].items():
            if is_tuned or ":" not in path:
                least[path] = min(taken, least.get(path, math.inf))
        if is_tuned:
            tuned[key] = line["tuned"]
    for (measurement, profiles), seconds in times.items():
        layer, batch, layout = measurement.layer, measurement.batch, measurement.layout
        profile = reduce(narrow, profiles, whole)
        desc = desc_of(layer, batch, layout)
        run = " ".join((*profiles, layout.upper(), f"batch {batch}"))
        chosen = tuned.get((measurement, profiles)) or planning.plan(desc, profile).path
        yield run, Choice(layer.name, desc, profile, chosen, seconds)


@main.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--device", default="nvidia-h200", type=click.Choice(NAMES), help="A recorded device.")
@click.option("--tuned", "is_tuned", is_flag=True, help="In place of the planner's choice that of `measure --tune`.")
def compare(files: tuple[Path, ...], device: str, is_tuned: bool) -> None:
    """Hold the planner's choice against the times in FILES, also those of paths that dmlvk has no more."""
    console, tolerance = Console(), TUNED_TOLERANCE if is_tuned else TOLERANCE
    runs: dict[str, list[Choice]] = defaultdict(list)
    for file in files:
        for run, choice in choices(file, device, is_tuned):
            runs[run].append(choice)
    for run, all_of_run in runs.items():
        row = [choice for choice in all_of_run if choice.chosen in choice.seconds]
        late = [choice for choice in row if choice.ratio > tolerance]
        mean = math.exp(sum(math.log(choice.ratio) for choice in row) / len(row))
        title = f"{run}: {len(row) - len(late)} of {len(row)} choices within {tolerance - 1:.0%} of the fastest path"
        table = Table(title=f"{title}; geometric mean {mean:.3f}; {len(all_of_run) - len(row)} not measured")
        for column in ("layer", "chosen", "us", "fastest", "us", "ratio", "predicted, us"):
            table.add_column(column, justify="left" if column in ("layer", "chosen", "fastest") else "right")
        for choice in sorted(late, key=lambda each: -each.ratio):
            pair = choice.chosen, choice.fastest
            times = [f"{choice.seconds[path] * 1e6:.1f}" for path in pair]
            estimates = choice.predicted
            predicted = " / ".join(f"{estimates.get(path, math.nan) * 1e6:.1f}" for path in pair)
            table.add_row(choice.name, pair[0], times[0], pair[1], times[1], f"{choice.ratio:.2f}", predicted)
        console.print(table if late else table.title)


if __name__ == "__main__":
    main()
