"""Which kernel path is the fastest for a descriptor on a device: measured, checked, remembered.

The paths are those that the operator's planner takes on the device, and on matrix units the tiles that the kernel can
have there. Which tiles those are is the planner's knowledge; this module asks it for a plan of each and measures the
ones that differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

import dmlvk
from dmlvk import planning, reference
from dmlvk.arguments import as_argument
from dmlvk.benchmark.measurement import measure
from dmlvk.benchmark.work import random_inputs_of
from dmlvk.conformance.case import Workload
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.operators import OperatorDesc
from dmlvk.planning.quantized_linear_convolution.registry import PATHS_WITH_TILES
from dmlvk.runtime.tuned_paths import TunedPaths

PLANNER = "planner"
# Paths follow each other, so the device is warm but for the first.
WARM_UP_SECONDS = 0.3
# A path that is not faster than the planner's choice by this much is noise.
MARGIN = 1.02

# Pixels and channels of a tile and of a subgroup, and bytes of K. Those that a device cannot have, the planner refuses.
TILE_SIDES = (32, 64, 128, 256)
SUBGROUP_SIDES = (16, 32, 64)
STEPS = (64, 32, 128)
FEWEST_SUBGROUPS, MOST_SUBGROUPS = 2, 8


@dataclass(frozen=True)
class Attempt:
    """One path: its median seconds and whether its result was right; or why it could not be measured."""

    path: str
    seconds: float = 0.0
    correct: bool = True
    failure: str = ""

    @property
    def counts(self) -> bool:
        return self.correct and not self.failure


@dataclass(frozen=True)
class Tuning:
    """What came of one descriptor.

    Attributes
    ----------
    attempts : tuple of Attempt
        The planner's own choice first, as PLANNER.
    path : str, optional
        The fastest path; None where the planner's choice is as good.
    """

    desc: OperatorDesc
    attempts: tuple[Attempt, ...]

    @property
    def path(self) -> str | None:
        counting = [attempt for attempt in self.attempts if attempt.counts]
        if not counting:
            return None
        best = min(counting, key=lambda attempt: attempt.seconds)
        planned = next((attempt for attempt in counting if attempt.path == PLANNER), None)
        if planned is not None and planned.seconds <= best.seconds * MARGIN:
            return None
        return best.path

    @property
    def seconds(self) -> dict[str, float]:
        """Of each path with a right result."""
        return {attempt.path: attempt.seconds for attempt in self.attempts if attempt.counts}


def candidates(desc: OperatorDesc, profile: DeviceProfile) -> Iterator[str]:
    """The kernel paths whose plans differ from the planner's choice and from each other's."""
    seen = [replace(planning.plan(desc, profile), path="")]
    for name in planning.KERNEL_PATHS[type(desc)]:
        # A CPU's "matrix units" are loops, and whole batches of them take thousands of dispatches.
        has_tiles = name in PATHS_WITH_TILES and profile.device_type is not DeviceType.CPU
        for path in (name, *(f"{name}:{tile}" for tile in tiles())) if has_tiles else (name,):
            try:
                plan = replace(planning.plan(desc, profile, path=path), path="")
            except planning.PathError:
                continue
            if plan not in seen:
                seen.append(plan)
                yield path


def tiles() -> Iterator[str]:
    """Tiles by their names, as a path has them: "128x64x64:64x32"."""
    for step, pixels, channels in product(STEPS, TILE_SIDES, TILE_SIDES):
        for subgroup_pixels, subgroup_channels in product(SUBGROUP_SIDES, SUBGROUP_SIDES):
            subgroups = (pixels // subgroup_pixels) * (channels // subgroup_channels)
            if FEWEST_SUBGROUPS <= subgroups <= MOST_SUBGROUPS:
                yield f"{pixels}x{channels}x{step}:{subgroup_pixels}x{subgroup_channels}"


def tune(device: dmlvk.Device, workload: Workload, rounds: int = 10) -> Tuning:
    """Measure every candidate on a workload.

    Parameters
    ----------
    device : Device
        Opened with `timestamps=True`.
    workload : Workload
    rounds : int

    Returns
    -------
    Tuning
        Not yet remembered.

    Raises
    ------
    ValueError
        For rounds that are no integer, or none.
    """
    rounds = as_argument("rounds", rounds, 1, None, "each candidate is run at least once", ValueError)
    desc, expected = workload.desc, workload.result()
    # Under its own name the planner's choice is planned, whatever is remembered for the descriptor.
    planned = device.plan(desc).path
    attempts = [replace(_attempt(device, workload, expected, planned, rounds), path=PLANNER)]
    attempts += [_attempt(device, workload, expected, path, rounds) for path in candidates(desc, device.profile)]
    return Tuning(desc, tuple(attempts))


def remember(choices: TunedPaths, tuning: Tuning) -> None:
    """Keep what was found for the device's next programs.

    Raises
    ------
    OSError
    """
    choices.remember(tuning.desc, tuning.path, tuning.seconds)


def random_workload(desc: OperatorDesc) -> Workload:
    """Random data for any descriptor, such as the recorded ones; its result is the reference's."""
    inputs = random_inputs_of(desc, np.random.default_rng(0))
    return Workload(desc, inputs, expected=reference.run(desc, **inputs))


def _attempt(device: dmlvk.Device, workload: Workload, expected: npt.NDArray[Any], path: str, rounds: int) -> Attempt:
    inputs: Mapping[str, npt.NDArray[Any]] = workload.inputs
    try:
        found = measure(
            device, workload.desc, inputs, expected, path=path, rounds=rounds, warm_up_seconds=WARM_UP_SECONDS
        )
    except (planning.PathError, dmlvk.DeviceError) as error:
        if device.vulkan.is_lost:
            raise
        return Attempt(path, failure=" ".join(str(error).split()))
    return Attempt(path, found.times.median, found.correct)
