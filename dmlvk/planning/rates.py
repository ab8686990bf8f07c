"""What a device does in a second: the rates by which the paths of an operator estimate their time.

A choice between paths needs their ratios alone. So one table stands for all GPUs of a class, however fast they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.planning import device_traits


@dataclass(frozen=True)
class Rates:
    """What a device does in a second.

    Attributes
    ----------
    matrix, dot_product, integer, float32 : float
        Operations on bytes, a second: by matrix units, packed dot products, 32-bit multiplications, and products that
        are float32 numbers. A multiply-add is two.
    tap : float
        Multiply-adds of a kernel that reads each of its operands by itself.
    last_step : float
        Outputs that are scaled, rounded and stored from registers.
    copy : float
        Bytes that a copy reads and writes.
    dispatch : float
        Seconds of a dispatch beside its work, after another one.
    wait : float
        Seconds of a load that nothing hides.
    """

    matrix: float
    dot_product: float
    integer: float
    float32: float
    tap: float
    last_step: float
    copy: float
    dispatch: float
    wait: float

    def seconds(self, dispatches: float, waits: float, busy: float) -> float:
        """An estimate.

        Parameters
        ----------
        dispatches : float
            How many there are, one after the other.
        waits : float
            The loads that one workgroup waits for, one after the other.
        busy : float
            Seconds for which the whole device is busy. With many workgroups, one computes while another waits: of the
            two times, the greater one counts more.
        """
        return dispatches * self.dispatch + math.hypot(waits * self.wait, busy)


# An H200, driver 580.159.04, 2026-11-23: the marks of `dmlvk bench`, and what `bench.paths` gave for the others.
LARGE_GPU = Rates(
    matrix=1.1e15,
    dot_product=95.8e12,
    integer=31.7e12,
    float32=54.0e12,
    tap=1.25e12,
    last_step=1.9e12,
    copy=4.2e12,
    dispatch=3.5e-6,
    wait=0.3e-6,
)
# An integrated GPU has a fortieth of the processors. It waits as long for its memory.
SMALLER_BY = 40
SMALL_GPU = Rates(
    matrix=LARGE_GPU.matrix / SMALLER_BY,
    dot_product=LARGE_GPU.dot_product / SMALLER_BY,
    integer=LARGE_GPU.integer / SMALLER_BY,
    float32=LARGE_GPU.float32 / SMALLER_BY,
    tap=LARGE_GPU.tap / SMALLER_BY,
    last_step=LARGE_GPU.last_step / SMALLER_BY,
    copy=LARGE_GPU.copy / SMALLER_BY,
    dispatch=3 * LARGE_GPU.dispatch,
    wait=LARGE_GPU.wait,
)
# On a CPU, a multiplication of the direct kernel takes as long as this number of words of the fastest packed product.
WORDS_OF_TAP = 5


@lru_cache(maxsize=64)
def rates_of(profile: DeviceProfile) -> Rates:
    """The rates of a device, by its class."""
    if profile.device_type is not DeviceType.CPU:
        return LARGE_GPU if profile.device_type is DeviceType.DISCRETE_GPU else SMALL_GPU
    # A CPU's "matrix units" are loops. Beside its products, hardly anything counts.
    product = 8e9 if device_traits.can_run_float_kernel(profile) else 1e9 if profile.has_integer_dot_product else 5e8
    return Rates(
        matrix=2e8,
        dot_product=1e9,
        integer=5e8,
        float32=8e9,
        tap=product / (8 * WORDS_OF_TAP),
        last_step=1e12,
        copy=math.inf,
        dispatch=0.0,
        wait=0.0,
    )
