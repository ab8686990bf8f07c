"""What the layers of a network lose when they run one after the other, beside each again and again.

    python -m bench.chain_losses NETWORK [--device NAME] [--batch N]... [--layout NAME]... [--rounds 20]

All convolutions of NETWORK in their order, on two buffers in turn, as in `dmlvk bench --network`. Then:

- each layer twice, the second time minus the first: weights, code and input were used a moment ago;
- the same, but the first time with other weights: only the code was;
- the layers in their order with one set of weights for all equal layers;
- the layers in their order after a copy of twice 128 MiB, which leaves nothing of them in the GPU's caches.

Times are medians on the device, in microseconds, from the first to the last timestamp. The variants take turns. Each
runs three times in a row, and the third time counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from statistics import median

import click
from rich.console import Console
from rich.table import Table

import dmlvk
from dmlvk import DataType, Slice1Desc, TensorDesc
from dmlvk.benchmark.cases.quantized_linear_convolution import Layer
from dmlvk.benchmark.networks import NETWORKS, Dimensions
from dmlvk.benchmark.networks.chain import measure_layer
from dmlvk.benchmark.networks.work import LAYOUTS, constants_of, desc_of
from dmlvk.benchmark.timing import warm_up
from dmlvk.device_profile import DeviceType
from dmlvk.runtime.binding import Binding
from dmlvk.runtime.compiled_operator import CompiledOperator
from dmlvk.runtime.sequence import Sequence as Recorded
from dmlvk.runtime.tensor import Buffer

Operator = CompiledOperator[dmlvk.QuantizedLinearConvolutionDesc]
FLUSHED_BYTES = 128 << 20
FLUSHED_BYTES_ON_CPU = 1 << 20
OTHER_WEIGHTS = 1000
RUNS_IN_A_ROW = 3

ORDERED, SHARED, FLUSHED = "all in their order", "equal layers share weights", "after a large copy"
TWICE, AFTER_OTHERS, OTHERS = "each twice", "each after itself with other weights", "with other weights"


def operators_of(
    device: dmlvk.Device, layers: Sequence[Layer], batch: int, layout: str, first_weights: int
) -> list[Operator]:
    """The layers with random weights, those of the same form with different ones."""
    made = []
    for number, layer in enumerate(layers):
        operator = device.compile(desc_of(layer, batch, layout), wait=True)
        operator.initialize(**constants_of(layer, first_weights + number))
        made.append(operator)
    return made


def bound(operators: Sequence[Operator], memory: tuple[Buffer, Buffer]) -> list[Binding]:
    """The operators in order: each reads the buffer that the one before has written."""
    return [
        operator.bind(
            input_tensor=memory[number % 2].tensor(operator.desc.input_tensor),
            output_tensor=memory[1 - number % 2].tensor(operator.desc.output_tensor),
        )
        for number, operator in enumerate(operators)
    ]


def flush_of(device: dmlvk.Device) -> Binding:
    """A copy that is larger than the caches."""
    is_cpu = device.profile.device_type is DeviceType.CPU
    size = FLUSHED_BYTES_ON_CPU if is_cpu else FLUSHED_BYTES
    tensor = TensorDesc(DataType.UINT8, [size])
    copy = device.compile(
        Slice1Desc(
            input_tensor=tensor,
            output_tensor=tensor,
            input_window_offsets=[0],
            input_window_sizes=[size],
            input_window_strides=[1],
        ),
        wait=True,
    )
    return copy.bind(input_tensor=device.tensor(tensor), output_tensor=device.tensor(tensor))


def measured(device: dmlvk.Device, variants: Mapping[str, Sequence[Binding]], rounds: int) -> dict[str, float]:
    """Seconds of each variant, and of the one in order after a large copy."""
    recorded = {
        name: Recorded(device, tuple(bindings), timestamps=True, times_of_each=False)
        for name, bindings in variants.items()
    }
    flush = Recorded(device, (flush_of(device),), timestamps=False)
    if device.profile.device_type is not DeviceType.CPU:
        warm_up(lambda: recorded[ORDERED].submit().wait(), 1.0)
    times: dict[str, list[float]] = {name: [] for name in (*recorded, FLUSHED)}
    for _ in range(rounds):
        for name, sequence in recorded.items():
            for _ in range(RUNS_IN_A_ROW):
                submission = sequence.submit()
                submission.wait()
            times[name].append(submission.gpu_time or 0.0)
        flush.submit().wait()
        times[FLUSHED].append(recorded[ORDERED].submit().gpu_time or 0.0)
    return {name: median(seconds) for name, seconds in times.items()}


def losses(device: dmlvk.Device, layers: Sequence[Layer], batch: int, layout: str, rounds: int) -> dict[str, float]:
    """Seconds, by what the row says."""
    own = operators_of(device, layers, batch, layout, 0)
    other = operators_of(device, layers, batch, layout, OTHER_WEIGHTS)
    first_of: dict[Layer, Operator] = {}
    shared = [first_of.setdefault(layer, operator) for layer, operator in zip(layers, own, strict=True)]
    size = max(
        tensor.total_size_in_bytes
        for operator in own
        for tensor in (operator.desc.input_tensor, operator.desc.output_tensor)
    )
    memory = device.buffer(size), device.buffer(size)
    ordered, others = bound(own, memory), bound(other, memory)
    times = measured(
        device,
        {
            ORDERED: ordered,
            OTHERS: others,
            SHARED: bound(shared, memory),
            TWICE: list(chain.from_iterable(zip(ordered, ordered, strict=True))),
            AFTER_OTHERS: list(chain.from_iterable(zip(others, ordered, strict=True))),
        },
        rounds,
    )
    repeated = {layer: measure_layer(device, layer, batch, layout, rounds) for layer in first_of}
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
        found = [losses(device, layers, batch, layout, rounds) for batch, layout in columns]
        table = Table(title=f"{network}, {len(layers)} layers, {device.name}, {device.profile.driver_info}, us")
        table.add_column("")
        for batch, layout in columns:
            table.add_column(f"batch {batch}, {layout.upper()}", justify="right")
        for row in found[0]:
            table.add_row(row, *(f"{each[row] * 1e6:.1f}" for each in found))
        Console().print(table)


if __name__ == "__main__":
    main()
