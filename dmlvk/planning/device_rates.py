"""The rates of devices: by them the paths of an operator estimate their time.

`dmlvk tune --rates` measures those of a device. Without that, one table stands for all GPUs of a class, since a choice
between paths needs the rates' ratios alone.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from dmlvk._common.rates import Rates
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.planning import device_traits

# An H200, driver 580.159.04, 2026-11-23: the marks of `dmlvk bench`, and what `bench.paths` gave for the others.
LARGE_GPU = Rates(
    matrix=1.2e15,
    dot_product=95.8e12,
    integer=31.7e12,
    float32=54.0e12,
    tap=1.25e12,
    last_step=1.9e12,
    copy=4.2e12,
    processors=132.0,
    dispatch=3.5e-6,
    wait=0.3e-6,
)
# What `dmlvk bench --network` calls the floor there. A product's dispatch takes longer, to fetch its instructions.
FLOOR = 2.4e-6
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
    processors=LARGE_GPU.processors / SMALLER_BY,
    dispatch=3 * LARGE_GPU.dispatch,
    wait=LARGE_GPU.wait,
)
# Where packed dot products are emulated, each is four multiplications of integers and more. With these in their place,
# `vectors` reached five sixths of the integer rate on an H200.
EMULATED = 5 / 6
LARGE_GPU_THAT_EMULATES = replace(LARGE_GPU, dot_product=LARGE_GPU.integer * EMULATED)
SMALL_GPU_THAT_EMULATES = replace(SMALL_GPU, dot_product=SMALL_GPU.integer * EMULATED)
# Safety factors on an estimate: for a device of each type with the rates of its class, and with measured rates.
SLOWEST = {
    DeviceType.CPU: 2.0,
    DeviceType.INTEGRATED_GPU: 48.0,
    DeviceType.DISCRETE_GPU: 96.0,
    DeviceType.VIRTUAL_GPU: 48.0,
    DeviceType.OTHER: 1000.0,
}
SLOWEST_MEASURED = 8.0
# On a CPU, a multiplication of the direct kernel takes as long as this number of words of the fastest packed product.
WORDS_OF_TAP = 5


def rates_of(profile: DeviceProfile) -> Rates:
    """The rates of a device: the measured ones, or else those of its class."""
    return profile.rates or rates_of_class(profile)


def longest(profile: DeviceProfile, seconds: float) -> float:
    """What an estimate by the rates of a device becomes on the slowest device of its kind.

    Submissions are cut by it, so that no watchdog ends them.
    """
    return seconds * (SLOWEST[profile.device_type] if profile.rates is None else SLOWEST_MEASURED)


def rates_of_class(profile: DeviceProfile) -> Rates:
    """The rates that are typical of such a device."""
    if profile.device_type is DeviceType.CPU:
        return _rates_of_cpu(profile)
    emulates = device_traits.emulates_dot_products(profile)
    if profile.device_type is DeviceType.DISCRETE_GPU:
        return LARGE_GPU_THAT_EMULATES if emulates else LARGE_GPU
    return SMALL_GPU_THAT_EMULATES if emulates else SMALL_GPU


@lru_cache(maxsize=64)
def _rates_of_cpu(profile: DeviceProfile) -> Rates:
    # A CPU's "matrix units" are loops. Beside its products, nothing counts.
    float32, dot_product, integer, matrix = 8e9, 1e9, 5e8, 2e8
    has_float, has_dot_product = device_traits.can_run_float_kernel(profile), profile.has_integer_dot_product
    product = float32 if has_float else dot_product if has_dot_product else integer
    return Rates(
        matrix=matrix,
        dot_product=dot_product,
        integer=integer,
        float32=float32,
        tap=product / (8 * WORDS_OF_TAP),
        last_step=math.inf,
        copy=math.inf,
        processors=1,
        dispatch=0,
        wait=0,
    )
