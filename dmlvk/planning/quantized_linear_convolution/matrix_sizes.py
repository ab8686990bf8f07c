"""Sizes that a kernel on matrix units takes as constants or as push constants.

A pipeline whose sizes are push constants serves all layers of a kind, so that a network waits for few compilations.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from dmlvk import quirks
from dmlvk.device_profile import DeviceProfile

SIZES = {
    "pixels": (
        "ROWS",
        "COLUMNS",
        "INPUT_STRIDE_N",
        "INPUT_STRIDE_GROUP",
        "INPUT_STRIDE_H",
        "INPUT_STRIDE_W",
        "OUTPUT_STRIDE_N",
        "OUTPUT_STRIDE_C",
        "OUTPUT_STRIDE_H",
        "OUTPUT_STRIDE_W",
        "ROW_LIMIT",
        "COLUMN_LIMIT",
        "STRIDE_H",
        "STRIDE_W",
        "DILATION_H",
        "DILATION_W",
    ),
    "steps": ("RUN", "VECTORS_OF_K", "TAP_STRIDE_H", "TAP_STRIDE_W"),
    "planes": ("CHANNEL_STRIDE",),
    "turns": ("TURNS",),
    "parts": ("PARTS",),
}
NAMES = tuple(name for names in SIZES.values() for name in names)
# Sizes that are divisors, with the first bit of their shifts.
DIVISORS = {"ROWS": 0, "COLUMNS": 5, "RUN": 10}
# To measure what constants buy. TODO: settle by the H200's figures.
KEPT = tuple(filter(None, os.environ.get("DMLVK_CONSTANT_SIZES", "").split(",")))


def kept(profile: DeviceProfile) -> tuple[str, ...]:
    """The kinds of sizes that are constants on a device."""
    return tuple(SIZES) if quirks.SAMSUNG_MATRIX_OPERANDS_FROM_BUFFERS.applies_to(profile) else KEPT


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
    """A number and a shift, for which n * number >> 31 + shift is n // divisor for all n below 2**31."""
    shift = (divisor - 1).bit_length()
    return -(-(1 << 31 + shift) // divisor), shift


def constants(sizes: Mapping[str, int], groups: tuple[str, ...]) -> dict[str, int]:
    """The specialization constants of sizes: their values, or 0 for those that the kernel takes as push constants."""
    named = {name for group in groups for name in SIZES[group]}
    # One tile in turn, and one part, are constants in any case: less code. So are neighbours.
    alone = {name for name in ("TURNS", "PARTS", "OUTPUT_STRIDE_C") if sizes[name] == 1}
    return {name: value if name in named | alone else 0 for name, value in sizes.items()}
