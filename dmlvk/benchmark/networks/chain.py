"""A network's convolutions one after the other on a device, and each of them alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

import dmlvk
from dmlvk import DataType, QuantizedLinearConvolutionDesc, Slice1Desc, TensorDesc, reference
from dmlvk._common.bits import equal_bits
from dmlvk.benchmark.cases.quantized_linear_convolution import Layer
from dmlvk.benchmark.measurement import bind_anew
from dmlvk.benchmark.networks.timing import ChainTimes, time_chain
from dmlvk.benchmark.networks.work import Array, constants_of, desc_of, noise, work_of
from dmlvk.benchmark.timing import WARM_UP_SECONDS
from dmlvk.operators.slice1 import copy_desc
from dmlvk.planning.plan import Plan
from dmlvk.runtime.binding import Binding
from dmlvk.runtime.compiled_operator import CompiledOperator
from dmlvk.runtime.tensor import Buffer

LayerOperator = CompiledOperator[QuantizedLinearConvolutionDesc]

FLOOR_BYTES = 64


@dataclass(frozen=True)
class Measured:
    """A chain's measurement.

    plans: of its layers, in their order.
    wrong: the numbers of the layers with a wrong output.
    """

    times: ChainTimes
    plans: tuple[Plan, ...]
    wrong: tuple[int, ...]

    @property
    def predicted(self) -> float:
        """The planner's estimate, in seconds."""
        return sum(plan.predicted_seconds for plan in self.plans)

    @property
    def dispatch_count(self) -> int:
        """The dispatches of a run."""
        return sum(len(plan.dispatches) for plan in self.plans)


def copy_of(device: dmlvk.Device, size: int) -> CompiledOperator[Slice1Desc]:
    """A copy of this many bytes."""
    return device.compile(copy_desc(TensorDesc(DataType.UINT8, [size])), wait=True)


def measure_floor(device: dmlvk.Device, rounds: int) -> ChainTimes:
    """The time of a dispatch that does next to nothing, after another one: two SLICE1 of 64 bytes, back and forth."""
    operator = copy_of(device, FLOOR_BYTES)
    a, b = device.tensor(noise("floor", FLOOR_BYTES)), device.tensor(operator.desc.output_tensor)
    pair = [operator.bind(input_tensor=a, output_tensor=b), operator.bind(input_tensor=b, output_tensor=a)]
    return time_chain(device, pair, rounds, is_repeated=True).divided(len(pair))


def measure_layer(device: dmlvk.Device, layer: Layer, batch: int, layout: str, rounds: int) -> Measured:
    """A layer again and again: each run waits for the one before, because both write the same output.

    Its data may be found in a cache, as in a network the output of the layer before.
    """
    work = work_of(layer)
    operator = device.compile(desc_of(layer, batch, layout), wait=True)
    inputs = {"input_tensor": work.batch(work.images, batch), **work.constants}
    bindings, (output,) = bind_anew(device, operator, inputs)
    times = time_chain(device, bindings, rounds, is_repeated=True)
    is_right = equal_bits(output.numpy(), work.batch(work.expected, batch))
    return Measured(times, (operator.plan,), () if is_right else (0,))


def measure_chain(device: dmlvk.Device, layers: Sequence[Layer], batch: int, layout: str, rounds: int) -> Measured:
    """All layers in their order: each reads the memory that the one before has written.

    After the first image, two buffers take turns, as in a runtime that uses the memory of dead values again: the GPU's
    caches know them. Where an input is larger than the output before it, its rest is what an earlier layer has left.
    So after a few runs, each has the same data. After the timed runs, the layers run once more one by one, and each is
    checked with what it has read, for the first image.
    """
    constants = [constants_of(layer, number) for number, layer in enumerate(layers)]
    operators = [
        compiled(device, desc_of(layer, batch, layout), each) for layer, each in zip(layers, constants, strict=True)
    ]
    first, *turns = random_memory(device, operators, 3)
    memory = [first, *(turns[number % 2] for number in range(len(layers)))]
    bindings = bound(operators, memory)
    # The device was idle while the operators were compiled.
    times = time_chain(device, bindings, rounds, is_repeated=False, warm_up_seconds=WARM_UP_SECONDS)
    results = memory[-1].tensor(operators[-1].desc.output_tensor)
    last = results.numpy()
    wrong = wrong_layers(device, layers, layout, constants, bindings, memory)
    if not equal_bits(results.numpy(), last) and not wrong:  # alone each layer is right, and one after the other not
        wrong.append(len(layers) - 1)
    return Measured(times, tuple(operator.plan for operator in operators), tuple(wrong))


def compiled(device: dmlvk.Device, desc: QuantizedLinearConvolutionDesc, constants: dict[str, Array]) -> LayerOperator:
    """A layer with its constants."""
    operator = device.compile(desc, wait=True)
    operator.initialize(**constants)
    return operator


def random_memory(device: dmlvk.Device, operators: Sequence[LayerOperator], count: int) -> list[Buffer]:
    """Buffers of random levels, each large enough for the image and the output of every operator."""
    images = [tensor for each in operators for tensor in (each.desc.input_tensor, each.desc.output_tensor)]
    size = max(tensor.total_size_in_bytes for tensor in images)
    made = [device.buffer(size) for _ in range(count)]
    for number, memory in enumerate(made):
        memory.tensor(TensorDesc(DataType.UINT8, [size])).write(noise(f"memory {number}", size))
    return made


def bound(operators: Sequence[LayerOperator], memory: Sequence[Buffer]) -> list[Binding]:
    """Each operator reads the memory of its number, and writes the next."""
    return [
        operator.bind(
            input_tensor=given.tensor(operator.desc.input_tensor),
            output_tensor=taken.tensor(operator.desc.output_tensor),
        )
        for operator, (given, taken) in zip(operators, pairwise(memory), strict=True)
    ]


def wrong_layers(
    device: dmlvk.Device,
    layers: Sequence[Layer],
    layout: str,
    constants: Sequence[dict[str, Array]],
    bindings: Sequence[Binding],
    memory: Sequence[Buffer],
) -> list[int]:
    """Run the layers one by one, and return the numbers of those that give a wrong first image for what they read."""
    wrong = []
    for number, layer in enumerate(layers):
        image = memory[number].tensor(desc_of(layer, 1, layout).input_tensor).numpy()
        device.submit([bindings[number]]).wait()
        found = memory[number + 1].tensor(desc_of(layer, 1, layout).output_tensor).numpy()
        if not _is_right(layer, layout, constants[number], image, found):
            wrong.append(number)
    return wrong


def _is_right(layer: Layer, layout: str, constants: dict[str, Array], image: Array, found: Array) -> bool:
    """Whether the first image of an output is what follows from the first image of the input."""
    expected = reference.run(desc_of(layer, 1, layout), input_tensor=image, **constants)
    return equal_bits(found, expected) and len(np.unique(found)) > 1
