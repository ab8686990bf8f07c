"""Finds the fastest kernel path for a descriptor on a device: measured, checked, remembered.

The candidates are the paths that the operator's planner accepts on the device and, on matrix units, the tiles that the
kernel can have there. Only the planner knows which tiles are possible: this module asks for a plan of each candidate
and measures the plans that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

import dmlvk
from dmlvk import planning, reference
from dmlvk._common.arguments import as_argument
from dmlvk.benchmark.measurement import measure
from dmlvk.benchmark.work import random_inputs_of
from dmlvk.conformance.case import Workload
from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.operators import OperatorDesc
from dmlvk.planning.quantized_linear_convolution.choice import PATHS_WITH_TILES
from dmlvk.runtime.tuned_paths import TunedPaths
from dmlvk.runtime.tuning import MARGIN, PLANNER

# Paths are measured one after the other, so the device is already warm for all except the first.
WARM_UP_SECONDS = 0.3

# Pixels and channels of a tile and of a subgroup, and bytes of K. The planner refuses tiles that a device cannot have.
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
    """The result for one descriptor.

    attempts: the first is the planner's own choice, as PLANNER.
    path: the fastest path; None if the planner's choice is as good.
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
        """Median seconds of each path with a right result."""
        return {attempt.path: attempt.seconds for attempt in self.attempts if attempt.counts}


def candidates(desc: OperatorDesc, profile: DeviceProfile) -> Iterator[str]:
    """The kernel paths whose plans differ from the planner's choice and from each other's."""
    seen = [replace(planning.plan(desc, profile), path="")]
    for name in planning.KERNEL_PATHS[type(desc)]:
        if name == planning.GENERAL_PATH:
            continue  # the direct path, but slower
        # A CPU driver's "matrix units" are loops, and a whole batch takes thousands of dispatches.
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


def tune(
    device: dmlvk.Device,
    workload: Workload,
    rounds: int = 10,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Tuning:
    """Measure every candidate on a workload.

    device: opened with `timestamps=True`.
    progress: called after each candidate, with how many are measured and how many there are.
    Returns the result, not yet remembered.
    Raises ValueError: for rounds that are not an integer, or below 1.
    """
    rounds = as_argument("rounds", rounds, 1, None, "each candidate is run at least once", ValueError)
    desc, expected = workload.desc, workload.result()
    # Under the name PLANNER, the planner's choice is planned even if a path is remembered for the descriptor.
    planned = device.plan(desc).path
    paths = [planned, *candidates(desc, device.profile)]
    attempts = []
    for path in paths:
        attempts.append(_attempt(device, workload, expected, path, rounds))
        progress(len(attempts), len(paths))
    attempts[0] = replace(attempts[0], path=PLANNER)
    return Tuning(desc, tuple(attempts))


def remember(choices: TunedPaths, tuning: Tuning) -> None:
    """Remember the result for later programs on this device.

    Raises OSError.
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
