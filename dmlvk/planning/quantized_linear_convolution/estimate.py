"""What a kernel of QUANTIZED_LINEAR_CONVOLUTION is estimated to take: its work by what the device does in a second.

    dispatches * seconds of a dispatch
    + root of the squares of (waits * seconds of a load that nothing hides)
                         and (products / rate of the unit + bytes fetched / copy rate + last steps / their rate)

The second root's part is the work of all workgroups, and of a last round of them as if it were full. While one waits
another computes, so the longer of the two counts most. One efficiency stands for all kernels on all devices: an
estimate only has to rank paths and tiles, and to say about how long a dispatch is. `dmlvk tune` measures those that are
close.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlvk._common.rates import Rates

# The part of its unit's rate that a product's kernel reaches.
EFFICIENCY = 0.9
# Bytes that caches serve to workgroups in the time in which memory moves one.
FETCHES = 2.5
# Bytes of the tensors that caches hold for each processor.
CACHED = 128 << 10
# Loads that a workgroup waits for, one after the other, where it works out its channels' parameters first.
PARAMETER_WAITS = 4
# Stores in place of one, and last steps with them, where no word of the output is whole: one for each byte of a word.
STORES_OF_A_BYTE = 4
# Bytes of whole vectors fetched in the time of one that is fetched by itself.
FETCHES_OF_A_BYTE = 2
# Bytes fetched for each of a group's channels, which end inside sectors: measured, as counted sectors ranked worse.
FETCHES_OF_A_GROUP = 1.5
# Bytes of memory that a load fetches at least.
SECTOR_SIZE = 32


@dataclass(frozen=True)
class ProductCost:
    """What a product's kernel does for a convolution."""

    workgroups: int
    # Operations: multiply-adds, times two, with those of outputs that are not stored.
    products: float
    fetched: float  # bytes that all workgroups fetch
    moved: float  # bytes of the input and of the output, of which caches hold some
    last_steps: float  # outputs that are scaled, rounded and stored
    waits: float  # loads that a workgroup waits for, one after the other
    parameter_rounds: int = 0  # rounds of workgroups that each work out parameters first

    def seconds(self, rates: Rates, unit: str) -> float:
        """The estimate, with one dispatch. The unit is the one that multiplies, by its name among the rates."""
        rounds = math.ceil(self.workgroups / rates.processors) * rates.processors / self.workgroups
        busy = self.products / (EFFICIENCY * getattr(rates, unit)) + self.last_steps / rates.last_step
        busy = rounds * (busy + self.fetched / (FETCHES * rates.copy))
        busy += max(0, self.moved - CACHED * rates.processors) / rates.copy
        busy += self.parameter_rounds * PARAMETER_WAITS * rates.wait
        return rates.seconds(1, self.waits, busy)
