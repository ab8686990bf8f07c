"""What a device does in a second, typical of its class or measured: see `dmlvk.planning.device_rates`."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Rates:
    """What a device does in a second.

    matrix, dot_product, integer, float32: operations on bytes, a second: by matrix units, packed dot products, 32-bit
        multiplications, and products that are float32 numbers. A multiply-add is two.
    tap: Multiply-adds of a kernel that reads each of its operands by itself.
    last_step: outputs that are scaled, rounded and stored from registers.
    copy: bytes that a copy reads and writes.
    processors: workgroups that each have a processor of their own.
    dispatch: seconds of a dispatch beside its work, after another one.
    wait: seconds of a load that nothing hides.
    """

    matrix: float
    dot_product: float
    integer: float
    float32: float
    tap: float
    last_step: float
    copy: float
    processors: float
    dispatch: float
    wait: float

    def seconds(self, dispatches: float, waits: float, busy: float) -> float:
        """An estimate.

        dispatches: how many there are, one after the other.
        waits: the loads that one workgroup waits for, one after the other.
        busy: seconds for which the whole device is busy. With many workgroups, one computes while another waits: of the
            two times, the greater one counts more.
        """
        return dispatches * self.dispatch + math.hypot(waits * self.wait, busy)
