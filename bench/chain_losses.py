"""What the layers of a network lose when they run one after the other, beside each again and again.

    python -m bench.chain_losses NETWORK [--device NAME] [--batch N]... [--layout NAME]... [--rounds 20]

All convolutions of NETWORK in their order, on two buffers in turn, as in `dmlvk bench --network`. Then:

- each layer twice, the second time minus the first: weights, code and input were used a moment ago;
- the same, but the first time with other weights: only the code was;
- the layers in their order with one set of weights for all equal layers;
- the layers in their order after a copy of twice 128 MiB, which leaves nothing of them in the GPU's caches.

Times are medians on the device, in microseconds, from the first to the last timestamp. The variants take turns. Each
runs three times in a row, and the third time counts. Afterwards each layer is checked with what it has read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from statistics import median

import click
from rich.console import Console
from rich.table import Table

import dmlvk
from dmlvk.benchmark.cases.quantized_linear_convolution import Layer
from dmlvk.benchmark.networks import NETWORKS, Dimensions
from dmlvk.benchmark.networks.chain import bound, compiled, copy_of, measure_layer, random_memory, wrong_layers
from dmlvk.benchmark.networks.work import LAYOUTS, constants_of, desc_of
from dmlvk.benchmark.timing import WARM_UP_SECONDS, warm_up
from dmlvk.device_profile import DeviceType
from dmlvk.runtime.binding import Binding
from dmlvk.runtime.sequence import Sequence as Recorded

FLUSHED_BYTES = 128 << 20
FLUSHED_BYTES_ON_CPU = 1 << 20
# Layers of the same form have different weights by their number.
OTHER_WEIGHTS = 1000
RUNS_IN_A_ROW = 3

ORDERED, SHARED, FLUSHED = "all in their order", "equal layers share weights", "after a large copy"
TWICE, AFTER_OTHERS, OTHERS = "each twice", "each after itself with other weights", "with other weights"


class WrongLayersError(Exception):
    """Layers of a chain give something else than the reference."""


def flush_of(device: dmlvk.Device) -> Binding:
    """A copy that is larger than the caches."""
    is_cpu = device.profile.device_type is DeviceType.CPU
    copy = copy_of(device, FLUSHED_BYTES_ON_CPU if is_cpu else FLUSHED_BYTES)
    tensor = copy.desc.output_tensor
    return copy.bind(input_tensor=device.tensor(tensor), output_tensor=device.tensor(tensor))


def variants_of(
    ordered: Sequence[Binding], others: Sequence[Binding], shared: Sequence[Binding]
) -> dict[str, list[Binding]]:
    """What is run, from the layers in order with their own weights, with others, and with those of the first alike."""
    return {
        ORDERED: list(ordered),
        OTHERS: list(others),
        SHARED: list(shared),
        TWICE: list(chain.from_iterable(zip(ordered, ordered, strict=True))),
        AFTER_OTHERS: list(chain.from_iterable(zip(others, ordered, strict=True))),
    }


def measured(device: dmlvk.Device, variants: Mapping[str, Sequence[Binding]], rounds: int) -> dict[str, float]:
    """Seconds of each variant, and of the one in order after a large copy."""
    recorded = {
        name: Recorded(device.engine, tuple(bindings), timestamps=True, times_of_each=False)
        for name, bindings in variants.items()
    }
    flush = Recorded(device.engine, (flush_of(device),), timestamps=False)
    if device.profile.device_type is not DeviceType.CPU:
        warm_up(lambda: recorded[ORDERED].submit().wait(), WARM_UP_SECONDS)
    times: dict[str, list[float]] = {name: [] for name in (*recorded, FLUSHED)}
    for _ in range(rounds):
        for name, sequence in recorded.items():
            for _ in range(RUNS_IN_A_ROW):
                submission = sequence.submit()
                submission.wait()
            times[name].append(submission.gpu_time)
        flush.submit().wait()
        times[FLUSHED].append(recorded[ORDERED].submit().gpu_time)
    return {name: median(seconds) for name, seconds in times.items()}


def losses(device: dmlvk.Device, layers: Sequence[Layer], batch: int, layout: str, rounds: int) -> dict[str, float]:
    """Seconds, by what the row says.

    Raises:
        WrongLayersError
    """
    chains = []
    for first in (0, OTHER_WEIGHTS):
        constants = [constants_of(layer, first + number) for number, layer in enumerate(layers)]
        descs = [desc_of(layer, batch, layout) for layer in layers]
        chains.append((constants, [compiled(device, *each) for each in zip(descs, constants, strict=True)]))
    (_, own), (_, other) = chains
    first_of = dict(zip(reversed(layers), reversed(own), strict=True))
    pair = random_memory(device, own, 2)
    memory = [pair[number % 2] for number in range(len(layers) + 1)]
    ordered, others = bound(own, memory), bound(other, memory)
    shared = bound([first_of[layer] for layer in layers], memory)
    times = measured(device, variants_of(ordered, others, shared), rounds)
    repeated = {layer: measure_layer(device, layer, batch, layout, rounds) for layer in first_of}
    wrong = {layer for layer, each in repeated.items() if each.wrong}
    for (constants, _), bindings in zip(chains, (ordered, others), strict=True):
        wrong |= {layers[number] for number in wrong_layers(device, layers, layout, constants, bindings, memory)}
    if wrong:
        raise WrongLayersError(f"wrong outputs of {', '.join(sorted(layer.name for layer in wrong))}")
    return {
        "sum of the layers, each again and again": sum(repeated[layer].times.best.median for layer in layers),
        "each right after itself": times[TWICE] - times[ORDERED],
        "each right after itself with other weights": times[AFTER_OTHERS] - times[OTHERS],
        SHARED: times[SHARED],
        ORDERED: times[ORDERED],
        FLUSHED: times[FLUSHED],
    }


@click.command(help=__doc__)
@click.argument("network", type=click.Choice(list(NETWORKS)))
@click.option("--device", "selector", default=None)
@click.option("--batch", "batches", multiple=True, type=click.IntRange(1), default=(1,), show_default=True)
@click.option("--layout", "layouts", multiple=True, type=click.Choice(LAYOUTS), default=LAYOUTS, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=20, show_default=True)
def main(network: str, selector: str | None, batches: tuple[int, ...], layouts: tuple[str, ...], rounds: int) -> None:
    layers = NETWORKS[network](Dimensions()).layers
    with dmlvk.Device(selector) as device:
        columns = [(batch, layout) for batch in batches for layout in layouts]
        try:
            found = [losses(device, layers, batch, layout, rounds) for batch, layout in columns]
        except WrongLayersError as error:
            raise click.ClickException(str(error)) from error
        table = Table(title=f"{network}, {len(layers)} layers, {device.name}, {device.profile.driver_info}, us")
        table.add_column("")
        for batch, layout in columns:
            table.add_column(f"batch {batch}, {layout.upper()}", justify="right")
        for row in found[0]:
            table.add_row(row, *(f"{each[row] * 1e6:.1f}" for each in found))
        Console().print(table)


if __name__ == "__main__":
    main()
