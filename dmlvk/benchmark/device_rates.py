"""Measures a device's rates with the marks' kernels: `dmlvk tune --rates`."""

from __future__ import annotations

from dataclasses import dataclass

import dmlvk
from dmlvk._common.rates import Rates
from dmlvk.benchmark.marks import Mark, measure_marks
from dmlvk.benchmark.networks.chain import measure_floor
from dmlvk.planning.device_rates import FLOOR, rates_of_class

# Bytes that are copied: more than caches hold, and soon moved.
COPY_SIZE = 1 << 28
ROUNDS = 5


@dataclass(frozen=True)
class MeasuredDevice:
    """What was measured.

    floor: seconds of a dispatch that does next to nothing, after another one.
    """

    rates: Rates
    marks: dict[str, Mark]
    floor: float

    @property
    def wrong(self) -> list[str]:
        """The marks whose result was not right."""
        return [name for name, mark in self.marks.items() if not mark.correct]


def measure_rates(device: dmlvk.Device, size: int = COPY_SIZE) -> MeasuredDevice:
    """Measure a device in a few seconds.

    What no mark measures follows from the device's class and from the nearest mark: single multiplications from 32-bit
    ones, last steps from float32 ones, a dispatch from one that does nothing. A unit that the device lacks keeps its
    class's rate, since no path uses it.

    device: with timestamps.
    size: bytes that are copied.
    """
    typical = rates_of_class(device.profile)
    marks, _ = measure_marks(device, size, ROUNDS)
    floor = measure_floor(device, ROUNDS).best.median

    def rate(name: str, otherwise: float) -> float:
        return marks[name].rate if name in marks else otherwise

    integer = rate("integer_multiply_add", typical.integer)
    float32 = rate("float_multiply_add", typical.float32)
    rates = Rates(
        matrix=rate("matrix", typical.matrix),
        dot_product=rate("dot_product", typical.dot_product),
        integer=integer,
        float32=float32,
        tap=typical.tap * integer / typical.integer,
        last_step=typical.last_step * float32 / typical.float32,
        copy=rate("copy", typical.copy),
        processors=typical.processors,
        dispatch=typical.dispatch * floor / FLOOR,
        wait=typical.wait,
    )
    return MeasuredDevice(rates, marks, floor)
