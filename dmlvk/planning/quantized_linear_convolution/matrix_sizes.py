"""Sizes that a kernel on matrix units takes as constants or as push constants.

A pipeline whose sizes are push constants serves all layers of a kind, so that a network waits for few compilations. A
pipeline for one layer alone is up to a tenth faster, which counts where a dispatch is long.
"""

from __future__ import annotations

from collections.abc import Mapping

from dmlvk import quirks
from dmlvk.device_profile import DeviceProfile
from dmlvk.planning.division import quick_division

# Sizes that are divisors, with the first bit of their shifts.
DIVISORS = {"ROWS": 0, "COLUMNS": 5, "RUN": 10}
# Dispatches of at most this many operations share pipelines. On an H200 they take 9 us at most, of which constants save
# 1%, and in a network the next layer finds the kernel's code where it is. (ResNet-50 has 231 million operations in a
# layer of one picture.)
SHORT_OPERATIONS = 280_000_000


def shares_pipelines(profile: DeviceProfile, operations: int) -> bool:
    """Whether a dispatch takes its sizes as push constants."""
    return operations <= SHORT_OPERATIONS and not quirks.SAMSUNG_MATRIX_OPERANDS_FROM_BUFFERS.applies_to(profile)


def push_constants(sizes: Mapping[str, int]) -> dict[str, int]:
    """The push constants of a kernel's sizes: each size, and what replaces the divisions by some of them."""
    values = {name.lower(): value for name, value in sizes.items()}
    shifts = 0
    for name, first_bit in DIVISORS.items():
        reciprocal, shift = reciprocal_of(sizes[name])
        values[f"{name.lower()}_reciprocal"] = reciprocal
        shifts |= shift << first_bit
    return {**values, "reciprocal_shifts": shifts}


def reciprocal_of(divisor: int) -> tuple[int, int]:
    """A number and a shift, for which 2 * n * number >> 32 + shift is n // divisor for all n below 2**31."""
    if divisor == 1:
        return 1 << 31, 0
    multiplier, shift = quick_division(divisor)
    return multiplier, shift + 1


def constants(sizes: Mapping[str, int], is_shared: bool) -> dict[str, int]:
    """The specialization constants of sizes: their values, or 0 for those that the kernel takes as push constants."""
    if not is_shared:
        return dict(sizes)
    # One tile in turn, and one part, are constants in any case: less code. So are neighbours.
    alone = {name for name in ("TURNS", "PARTS", "OUTPUT_STRIDE_C") if sizes[name] == 1}
    return {name: value if name in alone else 0 for name, value in sizes.items()}
